"""The write-ahead file of a database: which pages it holds, and whether it is damaged.

SQLite reads this file up to the first frame whose checksum is wrong, and takes that for its end: it
is one, if a crash cut the last transaction off. If whole transactions follow, the file is damaged,
and what they stored would be lost without a word. Here each frame is checked against the one before
it, so that what follows a damaged one is found (SQLite's "WAL File Format", sections 4.1 to 4.4).
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct, unpack_from
from typing import Final

__all__ = ["WriteAhead", "read_write_ahead"]

_HEADER: Final = Struct(">8I")
_FRAME: Final = Struct(">6I")
_MAGIC: Final = 0x377F0682
"""Checksums are of words with the low byte first; the next number says with the high byte first."""
_MASK: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class WriteAhead:
    """What can be read of a write-ahead file."""

    place_of_page: dict[int, int]
    """Where the newest committed version of each page begins in the file."""
    is_damaged: bool
    """Whether a frame in the midst of committed ones is damaged."""


def read_write_ahead(data: bytes, page_bytes: int) -> WriteAhead:
    """The pages of all transactions that were committed, without damaged frames."""
    if len(data) < _HEADER.size + _FRAME.size:
        return WriteAhead({}, False)
    magic, _, _, _, *salts, first, second = _HEADER.unpack_from(data)
    order = ">" if magic & 1 else "<"
    header_checks = magic | 1 == _MAGIC | 1 and _checksum(data, 0, 24, order, 0, 0) == (
        first,
        second,
    )
    if not header_checks:
        order = "<"
        salts = _salts_without_header(data, page_bytes)
    place_of_page: dict[int, int] = {}
    uncommitted: dict[int, int] = {}
    is_broken, is_damaged = not header_checks, False
    before = (first, second)
    step = _FRAME.size + page_bytes
    for at in range(_HEADER.size, len(data) - step + 1, step):
        page, size_after, *frame_salts, first, second = _FRAME.unpack_from(data, at)
        begin, previous, before = at + _FRAME.size, before, (first, second)
        if frame_salts != salts:
            # Of an earlier use of the file, or damaged.
            is_broken = True
            continue
        expected = _checksum(data, at, 8, order, *previous)
        if _checksum(data, begin, page_bytes, order, *expected) != before:
            is_broken = True
            continue
        uncommitted[page] = begin
        if size_after:
            is_damaged = is_damaged or is_broken
            place_of_page.update(uncommitted)
            uncommitted.clear()
    return WriteAhead(place_of_page, is_damaged)


def _salts_without_header(data: bytes, page_bytes: int) -> list[int]:
    """What marks the frames of the present use of the file: those of the first that is sound.

    Frames of earlier uses stand after all of the present one.
    """
    step = _FRAME.size + page_bytes
    for at in range(_HEADER.size + step, len(data) - step + 1, step):
        before = _FRAME.unpack_from(data, at - step)[4:]
        _, _, *salts, first, second = _FRAME.unpack_from(data, at)
        expected = _checksum(data, at, 8, "<", *before)
        if _checksum(data, at + _FRAME.size, page_bytes, "<", *expected) == (first, second):
            return salts
    return []


def _checksum(
    data: bytes, begin: int, size: int, order: str, first: int, second: int
) -> tuple[int, int]:
    words = iter(unpack_from(f"{order}{size // 4}I", data, begin))
    for even, odd in zip(words, words, strict=True):
        first = (first + even + second) & _MASK
        second = (second + odd + first) & _MASK
    return first, second
