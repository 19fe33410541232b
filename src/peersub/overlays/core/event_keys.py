"""The identity of an event in the network: an opaque key of 16 bytes beside the id that users see.

Histories recognise an event by its key alone. A publisher's client hashes each id with the
publisher's secret (`publisher_key`). The node that takes the event hashes the result once more
(`network_key`), and that is what travels: a client that learns the key of another's event cannot
make a node use it. A client that is connected to another node sends the same hash, so the key is
the same there. Keys of one publisher have nothing in common.

Where nobody gave a key (nodes and clients of earlier versions, the simulator) it follows from the
id alone (`key_of_id`).

Events of a batch share the first 14 bytes of their keys; the last two are the event's number. Keys
of other events never look like that.

Messages and tables hold both as one text, the *name*: a mark, the key in base64, the id; the id
alone if the key follows from it. A node of an earlier version takes a name for an id: it recognises
repetitions by it, and sends it on unchanged.

>>> split_name(name_of(b"sixteen bytes AB", "e1")), split_name("e1")
((b'sixteen bytes AB', 'e1'), (None, 'e1'))
"""

from __future__ import annotations

from binascii import Error, a2b_base64, b2a_base64
from hashlib import blake2b
from typing import Final

__all__ = [
    "BATCH_ID_BYTES_MAX",
    "BATCH_ROWS_MAX",
    "KEY_BYTES",
    "NAME_BYTES_MORE",
    "PREFIX_BYTES",
    "batch_key_of_id",
    "event_id_of",
    "key_of_id",
    "key_of_name",
    "name_in_unit",
    "name_of",
    "name_of_key",
    "network_batch_key",
    "network_key",
    "number_of",
    "publisher_key",
    "row_key",
    "short_id",
    "split_event_id",
    "split_name",
    "token_of",
    "unit_of",
    "unit_of_batch",
]

KEY_BYTES: Final = 16
PREFIX_BYTES: Final = 14
"""Of a key: what the events of one batch share."""
BATCH_ID_BYTES_MAX: Final = 48
"""Leaves room for the number in an event's identifier."""
BATCH_ROWS_MAX: Final = 16_384
"""Events of one batch; who publishes more makes several."""

_SEPARATOR: Final = "/"
_MARK: Final = "\x01"
_BASE64_LENGTH: Final = 22
NAME_BYTES_MORE: Final = len(_MARK) + _BASE64_LENGTH
"""By how much a name with a key is longer than the id."""
_ALONE: Final = 0x80
"""The bit, in the byte after the prefix, by which the key of an event of no batch is known."""


def event_id_of(batch_id: str, number: int) -> str:
    """The identifier of an event of a batch.

    >>> event_id_of("b7", 12)
    'b7/12'
    """
    return f"{batch_id}{_SEPARATOR}{number}"


def split_event_id(event_id: str) -> tuple[str, int] | None:
    """Batch and number of an event that came, or may have come, in a batch.

    >>> split_event_id("b7/12"), split_event_id("e12"), split_event_id("b7/012")
    (('b7', 12), None, None)
    """
    batch, separator, number = event_id.rpartition(_SEPARATOR)
    if not separator or not batch or not number.isascii() or not number.isdigit():
        return None
    if (len(number) > 1 and number[0] == "0") or len(number) > len(str(BATCH_ROWS_MAX)):
        return None
    value = int(number)
    return (batch, value) if value < BATCH_ROWS_MAX else None


# --- making keys ---------------------------------------------------------------------------------


def publisher_key(secret: bytes, event_id: str) -> bytes:
    """What a client sends for an id, or for the id of a batch, under its publisher's secret."""
    return _hashed(event_id, secret)


def network_key(claimed: bytes) -> bytes:
    """The key of an event of which a client sent this hash."""
    return _alone(blake2b(claimed, digest_size=KEY_BYTES, person=b"peersub event").digest())


def network_batch_key(claimed: bytes) -> bytes:
    """The key of a batch of which a client sent this hash."""
    return row_key(blake2b(claimed, digest_size=KEY_BYTES, person=b"peersub batch").digest(), 0)


def token_of(key: bytes) -> bytes:
    """What a subscriber's client is told instead of a key: it looks like one, and hides it.

    All nodes make the same token of a key, whether an event of a batch comes in it or alone.

    >>> batch = batch_key_of_id("b7")
    >>> token_of(row_key(batch, 12)) == row_key(token_of(batch), 12)
    True
    """
    number = number_of(key)
    hidden = key if number is None else key[:PREFIX_BYTES]
    token = blake2b(hidden, digest_size=KEY_BYTES, person=b"peersub token").digest()
    return _alone(token) if number is None else row_key(token, number)


def key_of_id(event_id: str) -> bytes:
    """The key of an event that nobody gave one.

    >>> key_of_id("b7/12") == row_key(batch_key_of_id("b7"), 12)
    True
    """
    place = split_event_id(event_id)
    if place is None:
        return _alone(_hashed(event_id))
    return row_key(batch_key_of_id(place[0]), place[1])


def batch_key_of_id(batch_id: str) -> bytes:
    """The key of a batch that nobody gave one: that of its first event."""
    return row_key(_hashed(batch_id), 0)


def row_key(batch_key: bytes, number: int) -> bytes:
    """The key of an event of a batch."""
    return batch_key[:PREFIX_BYTES] + number.to_bytes(2, "big")


def number_of(key: bytes) -> int | None:
    """The number of an event in its batch; None if it is of none."""
    number = int.from_bytes(key[PREFIX_BYTES:], "big")
    return number if number < BATCH_ROWS_MAX else None


def _hashed(event_id: str, secret: bytes = b"") -> bytes:
    content = event_id.encode("utf-8", "surrogatepass")
    length = len(content).to_bytes(8, "big")
    return blake2b(length + content, digest_size=KEY_BYTES, key=secret).digest()


def _alone(key: bytes) -> bytes:
    return key[:PREFIX_BYTES] + bytes((key[PREFIX_BYTES] | _ALONE, key[PREFIX_BYTES + 1]))


# --- names ---------------------------------------------------------------------------------------


def name_of(key: bytes | None, event_id: str) -> str:
    """The text that holds both; None for a key that follows from the id."""
    if key is None:
        # An id that looks like a name is sent as a name.
        return event_id if event_id[:1] != _MARK else name_of(key_of_id(event_id), event_id)
    if number_of(key) is not None:
        # As nodes of earlier versions name an event of a batch: the batch's name, and the number.
        key = row_key(key, 0)
    return f"{_MARK}{b2a_base64(key, newline=False)[:_BASE64_LENGTH].decode()}{event_id}"


def name_of_key(key: bytes) -> str:
    """The key alone as a name: what a history on disk holds."""
    number = number_of(key)
    return name_of(key, "" if number is None else f"{_SEPARATOR}{number}")


def short_id(event_id: str, bytes_max: int, number: int | None = None) -> str:
    """As much of an id as leaves room for a key in a name of so many bytes.

    The number of an event of a batch, which its key has, stays.

    >>> short_id("order-" + 40 * "7", 40), short_id("e1", 40)
    ('order-77777777777', 'e1')
    """
    batch = event_id if number is None else event_id.rpartition(_SEPARATOR)[0]
    room = bytes_max - NAME_BYTES_MORE
    if len(batch.encode("utf-8", "surrogatepass")) <= room:
        return event_id
    cut = batch.encode("utf-8", "surrogatepass")[:room].decode("utf-8", "ignore")
    return cut if number is None else event_id_of(cut, number)


def split_name(name: str) -> tuple[bytes | None, str]:
    """Key and id; no key if it follows from the id."""
    if name[:1] != _MARK:
        return None, name
    try:
        key = a2b_base64(name[1:NAME_BYTES_MORE].encode("ascii") + b"==", strict_mode=True)
    except (Error, UnicodeEncodeError):
        return None, name
    if len(key) != KEY_BYTES:
        return None, name
    event_id = name[NAME_BYTES_MORE:]
    if number_of(key) is not None:
        batch, separator, number = event_id.rpartition(_SEPARATOR)
        place = split_event_id(f"{batch or _SEPARATOR}{separator}{number}")
        if place is not None:
            key = row_key(key, place[1])
    return key, event_id


def key_of_name(name: str) -> bytes:
    """The key that a name holds, or that follows from it."""
    key, event_id = split_name(name)
    return key_of_id(event_id) if key is None else key


# --- units: the events of a batch, or one that is alone ------------------------------------------


def unit_of(name: str) -> tuple[str, int]:
    """The batch of an event, by its name, and its number there; one that is alone has number 0.

    >>> unit_of("b7/12"), unit_of("e12")
    (('/b7', 12), ('.e12', 0))
    """
    if _SEPARATOR in name:
        key, event_id = split_name(name)
        place = split_event_id(event_id)
        if place is not None and (key is None or number_of(key) is not None):
            return unit_of_batch(name[: name.rindex(_SEPARATOR)]), place[1]
    return f".{name}", 0


def unit_of_batch(batch_name: str) -> str:
    """What `unit_of` says of all events of a batch."""
    return f"{_SEPARATOR}{batch_name}"


def name_in_unit(unit: str, number: int) -> str:
    """The name of an event.

    >>> name_in_unit("/b7", 12), name_in_unit(".e12", 0)
    ('b7/12', 'e12')
    """
    return event_id_of(unit[1:], number) if unit[0] == _SEPARATOR else unit[1:]
