"""The envelope of an event: its identifier, its attributes, its body.

The identifier is a string of up to 64 bytes. A file's `id` column fills it and stays filterable.
Rows without one are named by a hash of their content, with `#k` for the k-th equal row, so that the
same file gives the same names through every door. A live driver draws 128 random bits instead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from peersub.events.kinds import (
    Kind,
    is_missing,
    kind_of,
    number_key,
    plain_value,
    timestamp_key,
)

__all__ = [
    "IDENTIFIER_BYTES_MAX",
    "Event",
    "content_hash",
    "feed_content",
    "identifier_of",
    "number_name",
    "row_identifiers",
]

IDENTIFIER_BYTES_MAX = 64
_SPELLED_BITS = 1_328  # 400 decimal digits, where `number_key` leaves decimals as they are


@dataclass(frozen=True, slots=True)
class Event:
    """One published event. The body is opaque to SQL filters; XPath patterns read it as XML."""

    id: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    body: bytes | None = None
    redelivered: bool = field(default=False, repr=False, compare=False)
    """Whether it may have come before: to this consumer of a durable subscription, or another."""
    reading: list[Any] | None = field(default=None, repr=False, compare=False)
    """Where whoever parses the body leaves what it found, so that it is parsed once; or nowhere."""

    def __post_init__(self) -> None:
        size = len(self.id.encode("utf-8", "surrogatepass"))
        if not 0 < size <= IDENTIFIER_BYTES_MAX:
            raise ValueError(
                f"an event id has 1 to {IDENTIFIER_BYTES_MAX} bytes, this one has {size}: "
                f"{self.id[:80]!r}"
            )


def identifier_of(value: object) -> str | None:
    """The identifier that an `id` value gives, as text; None if there is none.

    >>> identifier_of(7), identifier_of("a"), identifier_of(None), identifier_of("")
    ('7', 'a', None, None)
    """
    if is_missing(value) or kind_of(value) in (Kind.RECORD, Kind.OPAQUE):
        return None
    value = plain_value(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) or None


def content_hash(attributes: Mapping[str, Any]) -> str:
    """128 bits that name a row by its content: equal rows, and only those, have equal names.

    Missing attributes do not count, nor does the order of names; 1 and 1.0 are one number.
    """
    digest = hashlib.blake2b(digest_size=16)
    feed_content(digest, attributes)
    return digest.hexdigest()


def feed_content(digest: Any, value: object) -> None:
    """Add a value to a hash, so that equal values, and only those, add the same bytes."""
    if isinstance(value, Mapping):
        present = sorted((name, item) for name, item in value.items() if not is_missing(item))
        digest.update(b"{%d" % len(present))
        for name, item in present:
            feed_content(digest, name)
            feed_content(digest, item)
        return
    if isinstance(value, list | tuple):
        digest.update(b"[%d" % len(value))
        for item in value:
            feed_content(digest, item)
        return
    tag, content = _tagged(plain_value(value))
    digest.update(b"%b%d:" % (tag, len(content)))
    digest.update(content)


def _tagged(value: object) -> tuple[bytes, bytes]:
    """A byte for the class of a value, and its content; values that compare equal give the same."""
    if isinstance(value, str):
        return b"s", value.encode("utf-8", "surrogatepass")
    if isinstance(value, bool):
        return b"b", b"1" if value else b"0"
    if isinstance(value, bytes | bytearray):
        return b"x", bytes(value)
    if isinstance(value, datetime):
        return b"t", str(timestamp_key(value)).encode()
    if isinstance(value, date):
        return b"d", value.isoformat().encode()
    if isinstance(value, int | float | Decimal) and not is_missing(value):
        return b"n", number_name(number_key(value)).encode()
    return b"?", repr(value).encode("utf-8", "surrogatepass")


def number_name(key: float | Decimal) -> str:
    """One spelling for a number, whatever zeros it was written with.

    Integers up to 400 digits are spelled out. Python refuses to spell much longer ones, and a
    decimal may stand for the same number.

    >>> number_name(Decimal("1.50")), number_name(Decimal("0E+500")), number_name(7)
    ('15e-1', '0', '7')
    """
    if isinstance(key, int) and key.bit_length() <= _SPELLED_BITS:
        return str(key)
    if isinstance(key, float):
        return repr(key)  # an infinity
    if key == 0:
        return "0"  # a decimal zero with a huge exponent
    sign, digits, exponent = Decimal(key).as_tuple()
    written = "".join(map(str, digits))
    significant = written.rstrip("0")
    shift = int(exponent) + len(written) - len(significant)
    return f"{'-' if sign else ''}{significant}e{shift}"


def row_identifiers(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """One identifier per row: its `id`, else a hash of the row, with `#k` for equal rows.

    >>> list(row_identifiers([{"id": 5}, {"id": "x"}]))
    ['5', 'x']
    """
    repeated: dict[str, int] = {}
    for row in rows:
        given = identifier_of(row.get("id"))
        if given is not None:
            yield given
            continue
        name = content_hash(row)
        count = repeated.get(name, 0)
        repeated[name] = count + 1
        yield name if count == 0 else f"{name}#{count}"
