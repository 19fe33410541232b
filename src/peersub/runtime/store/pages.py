"""Rows from the pages of a database file, without asking SQLite: for files that it refuses.

The format is the one that SQLite documents ("Database File Format", sections 1.5 to 1.7 and 2.1):
a table is a tree of pages, its rows are on the leaves, and the content that does not fit a leaf is
in a chain of overflow pages. Whatever does not hold together is passed over, and nothing raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

__all__ = ["DatabasePages", "Row", "has_shape"]

_LEAF: Final = 0x0D
_INTERIOR: Final = 0x05
_LEAF_HEADER_BYTES: Final = 8
_INTERIOR_HEADER_BYTES: Final = 12
_FILE_HEADER_BYTES: Final = 100
_VARINT_BYTES_MAX: Final = 9
_PAYLOAD_BYTES_MAX: Final = 32 * 1_024 * 1_024
"""Larger than the largest event: a larger row is no row."""
_INTEGER_BYTES: Final = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_FIRST_BYTES_CODE: Final = 12
_SCHEMA_SHAPE: Final = "TTTIT"

Row = tuple[int, tuple[Any, ...]]
"""A rowid, and the columns as they are stored."""


class _BrokenError(Exception):
    """What is read does not hold together."""


def has_shape(values: tuple[Any, ...], shape: str) -> bool:
    """Whether the columns are of these kinds, as `schema.Table` names them.

    >>> has_shape((None, "a", 1), "NTI"), has_shape((None, b"a", 1), "NTI")
    (True, False)
    """
    return len(values) == len(shape) and all(map(_is_of, values, shape))


def _is_of(value: Any, kind: str) -> bool:
    if value is None:
        return kind in "Nib"
    return (kind in "Ii" and type(value) is int) or (
        (kind in "Bb" and type(value) is bytes) or (kind == "T" and type(value) is str)
    )


class DatabasePages:
    """The pages of a file: `page(number)` gives one, from 1 on, padded if it is cut off."""

    def __init__(self, page: Callable[[int], bytes], count: int, page_bytes: int) -> None:
        self._page = page
        self._count = count
        self._usable = page_bytes
        self._visited: set[int] = set()

    # --- rows by table, and rows without one -----------------------------------------------------

    def roots(self) -> dict[str, int]:
        """Where the tree of each table begins, as far as the first page tells."""
        found: dict[str, int] = {}
        for _, values in self.tree(1):
            if has_shape(values, _SCHEMA_SHAPE) and values[0] == "table":
                found[values[1]] = values[3]
        return found

    def tree(self, root: int) -> Iterator[Row]:
        """The rows that can be reached from the root of a table, in order."""
        waiting = [root]
        while waiting:
            number = waiting.pop()
            if not 1 <= number <= self._count or number in self._visited:
                continue
            self._visited.add(number)
            page, begin = self._content(number)
            if page[begin] == _LEAF:
                yield from self._leaf(page, begin)
            elif page[begin] == _INTERIOR:
                waiting.extend(reversed(self._children(page, begin)))

    def orphans(self) -> Iterator[Row]:
        """The rows on leaves that no tree led to; asked for after all trees."""
        for number in range(1, self._count + 1):
            if number not in self._visited:
                page, begin = self._content(number)
                if page[begin] == _LEAF:
                    yield from self._leaf(page, begin)

    def _content(self, number: int) -> tuple[bytes, int]:
        return self._page(number), _FILE_HEADER_BYTES if number == 1 else 0

    # --- pages -----------------------------------------------------------------------------------

    def _cells(self, page: bytes, begin: int, header_bytes: int) -> list[int]:
        count = int.from_bytes(page[begin + 3 : begin + 5], "big")
        first = begin + header_bytes
        last = min(first + 2 * count, self._usable - 1)
        return [int.from_bytes(page[at : at + 2], "big") for at in range(first, last, 2)]

    def _children(self, page: bytes, begin: int) -> list[int]:
        children = [
            int.from_bytes(page[at : at + 4], "big")
            for at in self._cells(page, begin, _INTERIOR_HEADER_BYTES)
        ]
        return [*children, int.from_bytes(page[begin + 8 : begin + 12], "big")]

    def _leaf(self, page: bytes, begin: int) -> Iterator[Row]:
        for at in self._cells(page, begin, _LEAF_HEADER_BYTES):
            try:
                yield self._row(page, at)
            except (_BrokenError, IndexError, UnicodeDecodeError):
                continue

    def _row(self, page: bytes, at: int) -> Row:
        size, at = _varint(page, at)
        rowid, at = _varint(page, at)
        if not 0 < size <= _PAYLOAD_BYTES_MAX:
            raise _BrokenError
        return _signed(rowid), _values(self._payload(page, at, size))

    def _payload(self, page: bytes, at: int, size: int) -> bytes:
        usable = self._usable
        if size <= usable - 35:
            if at + size > usable:
                raise _BrokenError
            return page[at : at + size]
        least = (usable - 12) * 32 // 255 - 23
        local = least + (size - least) % (usable - 4)
        if local > usable - 35:
            local = least
        pieces = [page[at : at + local]]
        following = int.from_bytes(page[at + local : at + local + 4], "big")
        missing = size - local
        while missing > 0:
            if not 1 < following <= self._count:
                raise _BrokenError
            overflow = self._page(following)
            pieces.append(overflow[4 : 4 + min(missing, usable - 4)])
            missing -= usable - 4
            following = int.from_bytes(overflow[:4], "big")
        content = b"".join(pieces)
        if len(content) != size:
            raise _BrokenError
        return content


# --- records -------------------------------------------------------------------------------------


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, seven bits each but for the ninth, and where it ends."""
    value = 0
    for place in range(_VARINT_BYTES_MAX):
        byte = data[at + place]
        if place == _VARINT_BYTES_MAX - 1:
            return value << 8 | byte, at + place + 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + place + 1
    raise AssertionError("the ninth byte ends it")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _values(record: bytes) -> tuple[Any, ...]:
    """The columns of a record: the kinds of all, then the contents of all."""
    header_size, at = _varint(record, 0)
    if header_size > len(record):
        raise _BrokenError
    content = header_size
    values: list[Any] = []
    while at < header_size:
        code, at = _varint(record, at)
        value, content = _value(record, content, code)
        values.append(value)
    if content != len(record):
        raise _BrokenError
    return tuple(values)


def _value(record: bytes, at: int, code: int) -> tuple[Any, int]:
    if code == 0:
        return None, at
    if code in (8, 9):
        return code - 8, at
    if code in _INTEGER_BYTES:
        end = at + _INTEGER_BYTES[code]
        if end > len(record):
            raise _BrokenError
        return int.from_bytes(record[at:end], "big", signed=True), end
    if code < _FIRST_BYTES_CODE:
        # Fractions and reserved codes: no table of ours has them.
        raise _BrokenError
    end = at + (code - _FIRST_BYTES_CODE) // 2
    if end > len(record):
        raise _BrokenError
    content = record[at:end]
    return (content.decode() if code % 2 else content), end
