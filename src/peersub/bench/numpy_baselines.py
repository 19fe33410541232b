"""NumPy baselines: what a skilled user would write over columns, two ways.

- `CountingColumns`: plain columnar evaluation. Event by event, compare one value with the
  bounds of all predicates on its attribute, count the hits of each subscription.
- `PrefixBitsets`: a batch of events at a time, a bit per event. With the events sorted by an
  attribute, every bound splits them in two, so an interval is the exclusive or of two rows of a
  table of prefix bitsets; a subscription is the AND of its predicates' rows.

Both start from the Arrow table and include encoding it. Tried and slower: all predicates of an
event in one comparison and `logical_and.reduceat`; comparing each predicate with the event
column and packing bits; candidates by rarest predicate, thinned one predicate at a time; the
bitsets with batches of 64 events and early exit on empty words.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from peersub.bench.pairs import Pairs, concatenate, shifted
from peersub.bench.predicates import ColumnEncoder, intervals, lists_of
from peersub.workloads import ABSENT, Workload
from peersub.workloads.attributes import CodeArray

_BITSET_BATCH = 2_048
_BITSET_BLOCK = 2_048
_WORD_BITS = 64

WordMatrix = npt.NDArray[np.uint64]


class CountingColumns:
    """Count satisfied predicates per subscription, one event at a time."""

    def __init__(self, workload: Workload) -> None:
        self._encoder = ColumnEncoder(workload.attributes)
        self._numeric_count = workload.attributes.numeric_count
        table = workload.subscriptions
        self._needed = np.diff(table.offsets).astype(np.uint16)
        exploded = intervals(table)
        self._by_attribute: list[tuple[npt.NDArray[np.integer], ...]] = []
        for attribute in range(workload.attributes.count):
            here = np.flatnonzero(exploded.attribute == attribute)
            low, owner = exploded.low[here], exploded.owner[here]
            if attribute < self._numeric_count:
                width = (exploded.high[here] - low).astype(np.uint32)
                self._by_attribute.append((low, width, owner))
            else:
                order = np.argsort(low, kind="stable")
                values = np.arange(workload.attributes.cardinalities[attribute] + 1)
                self._by_attribute.append((np.searchsorted(low[order], values), owner[order]))

    def match(self, events: pa.Table) -> Pairs:
        """All matches of the events."""
        rows = np.ascontiguousarray(self._encoder.encode(events).T)
        parts = []
        for event, row in enumerate(rows):
            matched = np.flatnonzero(self._count(row) == self._needed)
            parts.append(Pairs(np.full(len(matched), event), matched))
        return concatenate(parts)

    def _count(self, row: CodeArray) -> npt.NDArray[np.uint16]:
        hits = np.zeros(len(self._needed), np.uint16)
        for attribute in np.flatnonzero(row != ABSENT).tolist():
            value = row[attribute]
            if attribute < self._numeric_count:
                low, width, owner = self._by_attribute[attribute]
                # One unsigned compare tests both bounds.
                owner = owner[(value - low).view(np.uint32) <= width]
            else:
                starts, owner = self._by_attribute[attribute]
                owner = owner[starts[value] : starts[value + 1]]
            # At most one predicate per attribute and subscription: no owner repeats.
            hits[owner] += 1
        return hits


@dataclass(slots=True)
class _Scratch:
    """Buffers of one thread, reused from block to block."""

    held: WordMatrix
    low: WordMatrix
    high: WordMatrix


class PrefixBitsets:
    """Evaluate every predicate on a whole batch with two table rows.

    A predicate refers to two *marks*: its bounds, numbered over all attributes, or the code or
    list of a categorical one and the mark of nothing. Per batch each mark gets its bitset row.
    """

    def __init__(self, workload: Workload, threads: int = 1) -> None:
        self._encoder = ColumnEncoder(workload.attributes)
        self._attributes = workload.attributes
        self._threads = threads
        self._number_marks(workload)
        self._lay_out_by_position(workload)

    def _number_marks(self, workload: Workload) -> None:
        table, numeric_count = workload.subscriptions, workload.attributes.numeric_count
        self._low_mark = np.zeros(len(table.attribute), np.int32)
        self._high_mark = np.zeros(len(table.attribute), np.int32)
        self._first_mark: list[int] = []
        self._bounds: list[CodeArray] = []
        marks = 1
        for attribute, cardinality in enumerate(workload.attributes.cardinalities.tolist()):
            here = np.flatnonzero(table.attribute == attribute)
            self._first_mark.append(marks)
            if attribute < numeric_count:
                low, end = table.low[here], table.high[here] + 1
                bounds = np.unique(np.concatenate([low, end]))
                self._bounds.append(bounds)
                self._low_mark[here] = marks + np.searchsorted(bounds, low)
                self._high_mark[here] = marks + np.searchsorted(bounds, end)
                marks += len(bounds)
            else:
                self._low_mark[here] = marks + table.low[here]
                marks += cardinality
        listed = np.flatnonzero(table.value_list >= 0)
        self._list_offsets, values = lists_of(table, listed)
        first = np.array(self._first_mark)[table.attribute[listed]]
        self._list_marks = values + np.repeat(first, np.diff(self._list_offsets))
        self._low_mark[listed] = marks + np.arange(len(listed))
        self._marks, self._first_list_mark = marks + len(listed), marks

    def _lay_out_by_position(self, workload: Workload) -> None:
        """First predicates of all subscriptions side by side, then second ones, and so on."""
        table = workload.subscriptions
        lengths = np.diff(table.offsets)
        self._subscription = np.argsort(-lengths, kind="stable")
        self._positions = []
        for position in range(int(lengths.max(initial=0))):
            longer = self._subscription[: np.count_nonzero(lengths > position)]
            predicates = table.offsets[longer] + position
            self._positions.append((self._low_mark[predicates], self._high_mark[predicates]))

    def match(self, events: pa.Table) -> Pairs:
        """All matches of the events."""
        codes = self._encoder.encode(events)
        starts = range(0, events.num_rows, _BITSET_BATCH)

        def run(start: int) -> Pairs:
            return shifted(self._match_batch(codes[:, start : start + _BITSET_BATCH]), start)

        if self._threads == 1:
            return concatenate([run(start) for start in starts])
        with ThreadPoolExecutor(self._threads) as pool:
            return concatenate(list(pool.map(run, starts)))

    def _match_batch(self, codes: CodeArray) -> Pairs:
        rows, row_of_mark = self._bitset_rows(codes)
        positions = [(row_of_mark[low], row_of_mark[high]) for low, high in self._positions]
        shape = (_BITSET_BLOCK, rows.shape[1])
        scratch = _Scratch(*(np.empty(shape, np.uint64) for _ in range(3)))
        parts = []
        for start in range(0, len(self._subscription), _BITSET_BLOCK):
            block = slice(start, start + _BITSET_BLOCK)
            held = scratch.held[: len(self._subscription[block])]
            for position, (low, high) in enumerate(positions):
                count = len(low[block])
                if not count:
                    break
                first = held if position == 0 else scratch.low[:count]
                np.take(rows, low[block], axis=0, out=first, mode="clip")
                np.take(rows, high[block], axis=0, out=scratch.high[:count], mode="clip")
                first ^= scratch.high[:count]
                if position:
                    held[:count] &= first
            block_row, event = _set_bits(held)
            parts.append(Pairs(event, self._subscription[block][block_row]))
        return concatenate(parts)

    def _bitset_rows(self, codes: CodeArray) -> tuple[WordMatrix, npt.NDArray[np.int64]]:
        """The table of bitset rows of a batch, and the row of every mark; row 0 is empty."""
        events = codes.shape[1]
        words = -(-events // _WORD_BITS)
        number = np.arange(events)
        single = np.zeros((events, words), np.uint64)
        single[number, number // _WORD_BITS] = np.uint64(1) << (number % _WORD_BITS).astype(
            np.uint64
        )
        row_of_mark = np.zeros(self._marks, np.int64)
        tables, used = [np.zeros((1, words), np.uint64)], 1
        for attribute, column in enumerate(codes):
            present = np.flatnonzero(column != ABSENT)
            order = present[np.argsort(column[present], kind="stable")]
            values, mark = column[order], self._first_mark[attribute]
            if attribute < self._attributes.numeric_count:
                bounds = self._bounds[attribute]
                prefixes = np.zeros((len(order) + 1, words), np.uint64)
                np.bitwise_or.accumulate(single[order], axis=0, out=prefixes[1:])
                # A bound's row is the number of events below it.
                edges = np.searchsorted(bounds, values, side="right")
                edges = np.concatenate([[0], edges, [len(bounds)]])
                row_of_mark[mark : mark + len(bounds)] = used + np.repeat(
                    np.arange(len(order) + 1), np.diff(edges)
                )
                tables.append(prefixes)
                used += len(prefixes)
            elif len(order):
                distinct, first = np.unique(values, return_index=True)
                tables.append(np.bitwise_or.reduceat(single[order], first, axis=0))
                row_of_mark[mark + distinct] = used + np.arange(len(distinct))
                used += len(distinct)
        rows = np.concatenate(tables)
        if len(self._list_marks):
            listed = rows[row_of_mark[self._list_marks]]
            lists = np.bitwise_or.reduceat(listed, self._list_offsets[:-1], axis=0)
            row_of_mark[self._first_list_mark :] = used + np.arange(len(lists))
            rows = np.concatenate([rows, lists])
        return rows, row_of_mark


def _set_bits(words: WordMatrix) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Row and bit number of every set bit of a matrix of words, in no particular order."""
    flat = words.reshape(-1)
    where = np.flatnonzero(flat != 0)
    left = flat[where]
    rows, bits = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    while len(left):
        row, word = np.divmod(where, words.shape[1])
        # The lowest set bit's number is the count of ones below it.
        bit = np.bitwise_count((left & -left) - np.uint64(1))
        rows.append(row)
        bits.append(word * _WORD_BITS + bit)
        left &= left - np.uint64(1)
        remaining = np.flatnonzero(left)
        where, left = where[remaining], left[remaining]
    return np.concatenate(rows), np.concatenate(bits)
