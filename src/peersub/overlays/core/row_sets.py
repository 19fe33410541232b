"""Sets of events of one batch: an integer whose bit N stands for the event with number N.

Union, intersection and difference are the integer's own operations. A set of 16,384 events takes
2 KB, in memory and in messages.

>>> rows = rows_of([0, 2, 9])
>>> list(numbers_in(rows)), numbers_in(rows & ~rows_of([2])), rows.bit_count()
([0, 2, 9], [0, 9], 3)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from peersub.overlays.core.event_keys import BATCH_ROWS_MAX

__all__ = ["NamedSets", "numbers_in", "pack_rows", "rows_of", "rows_on", "unpack_rows"]

PACKED_BYTES_MAX: Final = BATCH_ROWS_MAX // 8

NamedSets = dict[str, int]
"""Per subscription, a set of events."""


def rows_of(numbers: Iterable[int]) -> int:
    """The set of events with these numbers."""
    flags = bytearray(PACKED_BYTES_MAX)
    for number in numbers:
        flags[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(flags, "little")


def numbers_in(rows: int) -> list[int]:
    """The numbers of the events in a set, rising."""
    return [number for number, bit in enumerate(bin(rows)[:1:-1]) if bit == "1"]


def rows_on(count: int, sets: Iterable[int]) -> int:
    """The events that are in at least so many of the sets.

    >>> numbers_in(rows_on(2, [0b0111, 0b1110, 0b1000]))
    [1, 2, 3]
    """
    in_at_least = [0] * count
    for rows in sets:
        for place in range(count - 1, 0, -1):
            in_at_least[place] |= in_at_least[place - 1] & rows
        in_at_least[0] |= rows
    return in_at_least[-1]


def pack_rows(rows: int) -> bytes:
    """The set as bytes."""
    return rows.to_bytes((rows.bit_length() + 7) // 8, "little")


def unpack_rows(packed: bytes) -> int:
    """The set that the bytes say; beyond the largest batch there is no event."""
    return int.from_bytes(packed[:PACKED_BYTES_MAX], "little")
