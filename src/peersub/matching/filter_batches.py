"""Many filters against batches of events: which rows does each filter want?

A router asks all filters of all its edges about each batch. They are compiled once; filters that
come later are compiled by themselves, until they are many, so that a change costs as much as what
has changed. Filters that nobody asks for any more stay until then.

Filters are known by their number, which stays as long as the filter is in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from peersub.filters.filter import Filter

if TYPE_CHECKING:
    import pyarrow as pa

    from peersub.matching.segment import Segment

__all__ = ["FilterBatches", "Wanted"]

SLICE_ROWS_MAX: Final = 4_096
"""Events that are matched at once: their codes stay in the cache."""
LATER_SHARE_MAX: Final = 0.25
"""Later filters are compiled together with the others when they are more than this share."""
_SHORT_NUMBERS: Final = 1 << 16
DEAD_SHARE_MAX: Final = 0.5
"""Everything is compiled anew when more than this share of the filters is out of use."""


class Wanted:
    """Pairs of a row of a batch and the number of a filter that wants it.

    The rows of each filter rise; apart from that there is no order, unless `rows_rise`.
    """

    __slots__ = ("batch_rows", "filters", "rows", "rows_rise")

    def __init__(
        self, batch_rows: int, rows: np.ndarray, filters: np.ndarray, *, rows_rise: bool = False
    ) -> None:
        self.batch_rows = batch_rows
        self.rows = rows
        self.filters = filters
        self.rows_rise = rows_rise
        """Whether no row comes after a higher one."""

    def by_filter(self, is_meant: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Per filter of some, `is_meant` having a flag for each: its rows, rising."""
        rows, filters = self.rows, self.filters
        if not is_meant.all():
            meant = is_meant[filters]
            rows, filters = rows[meant], filters[meant]
        # The rows of one filter come in order: it is asked about them in order. NumPy sorts short
        # integers by their digits, in a quarter of the time.
        short = filters.astype(np.uint16) if len(is_meant) <= _SHORT_NUMBERS else filters
        rows = rows[np.argsort(short, kind="stable")]
        counts = np.bincount(filters, minlength=len(is_meant))
        numbers = np.flatnonzero(counts)
        end = 0
        for number, count in zip(numbers.tolist(), counts[numbers].tolist(), strict=True):
            begin, end = end, end + count
            yield number, rows[begin:end]

    def rows_of(self, is_meant: np.ndarray) -> np.ndarray:
        """The rows, rising, that one of some filters wants; `is_meant` has a flag per filter."""
        rows = self.rows[np.flatnonzero(is_meant[self.filters])]
        if self.rows_rise:
            is_first = np.ones(len(rows), bool)
            np.not_equal(rows[1:], rows[:-1], out=is_first[1:])
            return rows[is_first]
        flags = np.zeros(self.batch_rows, bool)
        flags[rows] = True
        return np.flatnonzero(flags)


class FilterBatches:
    """Filters by number, compiled.

    >>> import pyarrow as pa
    >>> filters = FilterBatches()
    >>> cheap, dear = Filter("price < 5"), Filter("price > 10")
    >>> filters.use([cheap, dear])
    >>> wanted = filters.match(pa.table({"price": [1, 7, 20]}))
    >>> wanted.rows_of(filters.flags([dear])).tolist()
    [2]
    """

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._filters: list[Filter] = []
        self._compiled: Segment | None = None
        self._later: Segment | None = None
        self._compiled_count = 0
        self._patterns: dict[int, Filter] = {}

    @property
    def numbers(self) -> Mapping[bytes, int]:
        """The number of each filter, by its digest."""
        return self._numbers

    @property
    def count(self) -> int:
        """How many numbers there are."""
        return len(self._filters)

    def use(self, filters: Iterable[Filter]) -> None:
        """These filters will be asked about; others need not be known any more."""
        in_use: dict[bytes, Filter] = {wanted.digest: wanted for wanted in filters}
        new = [wanted for digest, wanted in in_use.items() if digest not in self._numbers]
        known = len(self._filters)
        dead = known - (len(in_use) - len(new))
        if not new and dead <= DEAD_SHARE_MAX * known:
            return
        if dead > DEAD_SHARE_MAX * known:
            self._compile_all(in_use)
            return
        for wanted in new:
            self._number(wanted)
        later = len(self._filters) - self._compiled_count
        if later > LATER_SHARE_MAX * len(self._filters):
            self._compile_all(in_use)
        else:
            self._later = self._segment(self._compiled_count, len(self._filters))

    def flags(self, filters: Iterable[Filter]) -> np.ndarray:
        """bool[count]: which numbers are those of these filters, which are in use."""
        flags = np.zeros(self.count, bool)
        for wanted in filters:
            flags[self._numbers[wanted.digest]] = True
        return flags

    def match(self, table: pa.Table, bodies: pa.Array | None = None) -> Wanted:
        """Who wants which row: all filters, SQL by the columns, XPath by the bodies."""
        rows: list[np.ndarray] = []
        numbers: list[np.ndarray] = []
        from peersub.matching.compiled import row_of_each

        for segment in (self._compiled, self._later):
            if segment is None:
                continue
            for start in range(0, table.num_rows, SLICE_ROWS_MAX):
                stop = min(start + SLICE_ROWS_MAX, table.num_rows)
                offsets, found = segment.match_rows(table, start, stop)
                rows.append(row_of_each(offsets, start))
                numbers.append(self._numbers_of(segment, found))
        if self._patterns and bodies is not None:
            pairs = self._match_bodies(bodies)
            rows.append(pairs[:, 0])
            numbers.append(pairs[:, 1])
        if len(rows) == 1:
            return Wanted(table.num_rows, rows[0], numbers[0], rows_rise=True)
        if not rows:
            rows, numbers = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        rise = self._later is None and not self._patterns
        return Wanted(table.num_rows, np.concatenate(rows), np.concatenate(numbers), rows_rise=rise)

    # --- inside --------------------------------------------------------------------------------

    def _number(self, wanted: Filter) -> None:
        number = len(self._filters)
        self._numbers[wanted.digest] = number
        self._filters.append(wanted)
        if wanted.language == "xpath":
            self._patterns[number] = wanted

    def _compile_all(self, in_use: Mapping[bytes, Filter]) -> None:
        self._numbers.clear()
        self._filters.clear()
        self._patterns.clear()
        for wanted in in_use.values():
            self._number(wanted)
        self._compiled_count = len(self._filters)
        self._compiled = self._segment(0, len(self._filters))
        self._later = None

    def _segment(self, first: int, end: int) -> Segment | None:
        from peersub.matching.segment import Segment

        named = [
            (str(number), self._filters[number])
            for number in range(first, end)
            if number not in self._patterns
        ]
        return Segment.of_filters(named) if named else None

    def _numbers_of(self, segment: Segment, rows: np.ndarray) -> np.ndarray:
        first, end = (
            (0, self._compiled_count)
            if segment is self._compiled
            else (self._compiled_count, self.count)
        )
        if not self._patterns:
            return rows + np.int32(first) if first else rows
        numbers = [number for number in range(first, end) if number not in self._patterns]
        found: np.ndarray = np.array(numbers, np.int64)[rows]
        return found

    def _match_bodies(self, bodies: pa.Array) -> np.ndarray:
        pairs = [
            (row, number)
            for row, body in enumerate(bodies.to_pylist())
            if body is not None
            for number, pattern in self._patterns.items()
            if pattern.matches(body)
        ]
        return np.array(pairs, np.int64).reshape(-1, 2)
