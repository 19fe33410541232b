"""Events and lists of names as columns of a row, and back."""

from __future__ import annotations

import sqlite3
from typing import Any, Final
from zlib import crc32

from msgspec import MsgspecError
from msgspec.msgpack import Decoder, Encoder

from peersub.overlays.core.publication import Delivery, Publication
from peersub.runtime.logs import NodeLog
from peersub.runtime.store.schema import TABLES
from peersub.wire.limits import VALUES_MAX
from peersub.wire.publications import packed_attributes, publication_of

__all__ = [
    "EVENT_ROW_BYTES",
    "EventColumns",
    "event_columns",
    "event_of",
    "is_sound",
    "names_of",
    "numbers_of",
    "packed",
    "seal_subscriptions",
    "subscription_checksum",
]

EVENT_ROW_BYTES: Final = 96
"""What an event takes on disk besides its attributes and body, roughly: id, numbers, indexes."""

EventColumns = tuple[str, int, bytes, bytes | None, int]

_log = NodeLog(__name__)

_ENCODE: Final = Encoder().encode
_DECODE_NAMES: Final = Decoder(list[str]).decode
_DECODE_NUMBERS: Final = Decoder(list[int]).decode


def event_columns(publication: Publication) -> EventColumns:
    """The columns of an event, in the order of `schema.EVENT_COLUMNS`.

    Raises:
        WireError: the attributes cannot be packed; `wire.sealed` says so earlier.
    """
    attributes = publication.packed or packed_attributes(publication)
    body, name = publication.body, publication.name
    return name, publication.delivery, attributes, body, _checksum(name, attributes, body)


def is_sound(event_id: str, delivery: int, attributes: bytes, body: bytes | None, at: int) -> bool:
    """Whether the columns are as they were written."""
    return delivery in _DELIVERIES and _checksum(event_id, attributes, body) == at


def event_of(columns: Any) -> Publication | None:
    """The event with these columns; None if it is not as it was written, or nobody would read it.

    Earlier versions took events with more values. Whoever gets one now, refuses it each time: it is
    lost, and must not stop those after it.
    """
    event_id, delivery, attributes, body, _ = columns
    if not is_sound(*columns):
        return None
    publication = publication_of(event_id, _DELIVERIES[delivery], attributes, body)
    if len(attributes) > VALUES_MAX:
        if not publication.is_sound:
            _log.error(
                "event %s is lost: it has more values than this version takes", publication.id
            )
            return None
        publication.forget_unpacked()
    return publication


_DELIVERIES: Final = {int(delivery): delivery for delivery in Delivery}


def _checksum(event_id: str, attributes: bytes, body: bytes | None) -> int:
    value = crc32(attributes, crc32(event_id.encode()))
    return value if body is None else crc32(body, value)


def subscription_checksum(*columns: Any) -> int:
    """Of the columns of a durable subscription between its number and its checksum."""
    return crc32(packed(columns))


def seal_subscriptions(connection: sqlite3.Connection, number: int | None = None) -> None:
    """Work the checksum of a subscription out that has changed, or (None) of all."""
    names = TABLES["subscriptions"].names
    columns = ", ".join(names[1 : names.index("checked")])
    condition, values = ("", ()) if number is None else (" WHERE number = ?", (number,))
    rows = connection.execute(f"SELECT number, {columns} FROM subscriptions{condition}", values)
    connection.executemany(
        "UPDATE subscriptions SET checked = ? WHERE number = ?",
        [(subscription_checksum(*columns), number) for number, *columns in rows.fetchall()],
    )


def packed(names: Any) -> bytes:
    """A list of names or numbers as bytes."""
    return _ENCODE(names)


def names_of(data: bytes) -> list[str]:
    """The names that `packed` wrote; none if the bytes are damaged."""
    try:
        return _DECODE_NAMES(data)
    except (MsgspecError, UnicodeDecodeError):
        return []


def numbers_of(data: bytes) -> list[int]:
    """The numbers that `packed` wrote; none if the bytes are damaged."""
    try:
        return _DECODE_NUMBERS(data)
    except MsgspecError:
        return []
