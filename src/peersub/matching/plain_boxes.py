"""Plain boxes: filters that are one box of numbers and texts, and which of them contain which.

A filter is *plain* if one conjunct in code space says all of it: no text test, no choice, and on
each attribute an interval or a set of numbers, or of texts. Codes keep the order of values, so that
one plain filter covers another iff it has no slot that the other lacks and on each of its slots its
codes contain the other's. This is what `covers` says of them, for it is complete on boxes without
text tests; here it is decided without the filters' objects, out of the arrays of a built index.

Rows are ranked by whoever makes the boxes, and a container is looked for from a given row on, in
the order of rows: with rows in the order of their selectivity the first found are the most
selective ones. A row looks only at rows that agree with it on a choice of its predicates
(`kernels.containment`); a predicate of a single value agrees by that value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from peersub.events.kinds import KindClass
from peersub.matching.conjunct_builder import EncodedConjuncts
from peersub.matching.conjunct_merge import merge, numbers_by_first_use
from peersub.matching.conjuncts import ConjunctTable
from peersub.matching.kernels import containment
from peersub.matching.kernels.memory import read_only
from peersub.matching.segment import Segment

__all__ = ["CHOICES_MAX", "PlainBoxes", "joined_entries", "plain_entries"]

CHOICES_MAX: Final = 1 << 12
"""Choices of predicates that one box is looked up by; a box with more is not plain."""
_KINDS: Final = (KindClass.NUMBER, KindClass.STRING)
_FILL: Final = 2
"""The table of keys has at least so many places for each."""


def joined_entries(segments: Sequence[Segment]) -> tuple[EncodedConjuncts, np.ndarray]:
    """The entries of all segments, at least one, over one set of bounds; and their digests.

    A filter that several segments have is there once.
    """
    digests = np.concatenate([segment.digests for segment in segments])
    if len(segments) == 1:
        return segments[0].conjuncts.unpacked(), digests
    numbers, first = numbers_by_first_use(digests)
    kept, start = [], 0
    for segment in segments:
        places = np.arange(start, start + len(segment.digests))
        kept.append(np.where(first[numbers[places]] == places, numbers[places], -1))
        start += len(places)
    parts = [segment.conjuncts.unpacked() for segment in segments]
    return merge(parts, [entries.astype(np.int32) for entries in kept]), digests[first]


def plain_entries(encoded: EncodedConjuncts) -> tuple[np.ndarray, np.ndarray]:
    """The entries that are plain, and the conjunct of each."""
    table = encoded.table
    kinds = np.array([slot.kind for slot in encoded.encoder.slots], np.int64)
    is_plain = ~(encoded.needs_check | (encoded.multi != 0))
    conjuncts = np.repeat(np.arange(table.conjuncts), np.diff(table.offsets))
    is_plain[conjuncts[~np.isin(kinds, _KINDS)[table.slots]]] = False
    choices = np.where(table.low == table.high, np.log2(3), 1.0)
    widths = np.bincount(conjuncts, weights=choices, minlength=table.conjuncts)
    is_plain &= widths <= np.log2(CHOICES_MAX)
    found = np.flatnonzero(is_plain)
    return np.asarray(encoded.conjunct_entry)[found], found


@dataclass(frozen=True, slots=True)
class PlainBoxes:
    """Boxes in code space, those with one key next to each other, and tables that lead to them."""

    starts: np.ndarray
    """int64[boxes + 1]: where the predicates of each box start."""
    slots: np.ndarray
    """int32[predicates], growing within a box"""
    low: np.ndarray
    """int32[predicates]"""
    high: np.ndarray
    """int32[predicates]"""
    value_set: np.ndarray
    """int32[predicates]: -1 where the interval is all"""
    set_offsets: np.ndarray
    """int64[sets + 1]"""
    set_low: np.ndarray
    """int32[intervals]"""
    set_high: np.ndarray
    """int32[intervals]"""
    table_keys: np.ndarray
    """uint64[a power of two]"""
    table_groups: np.ndarray
    """int32[the same]: the group of the key, or -1"""
    group_starts: np.ndarray
    """int64[groups + 1]: where the boxes of each group start."""
    group_rows: np.ndarray
    """int32[boxes]: the row of each box"""
    boxes: np.ndarray
    """int32[rows]: the box of each row"""
    places: np.ndarray
    """int64[groups, 3]: where the bounds of a large group's blocks start, of the outer and of the
    inner ones, and its chunks; -1 first where a group is not large."""
    outer_low: np.ndarray
    """int32[], as are the next three: per block and predicate"""
    outer_high: np.ndarray
    inner_low: np.ndarray
    inner_high: np.ndarray
    chunk_rows: np.ndarray
    """int32[chunks]: the last row of each"""

    @classmethod
    def of(cls, table: ConjunctTable, conjuncts: np.ndarray) -> PlainBoxes:
        """Some conjuncts of a table, in the order of rows."""
        keys = np.zeros(len(conjuncts), np.uint64)
        starts, places = _predicates(table, conjuncts)
        containment.keys_of(
            read_only(starts),
            read_only(table.slots[places]),
            read_only(table.low[places]),
            read_only(table.high[places]),
            keys,
        )
        rows = np.argsort(keys, kind="stable").astype(np.int32)
        ordered = keys[rows]
        firsts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))[: len(keys)]
        group_starts = np.append(firsts, len(keys)).astype(np.int64)
        size = 1 << max(1, _FILL * len(firsts)).bit_length()
        table_keys = np.zeros(size, np.uint64)
        table_groups = np.full(size, containment.NO_GROUP, np.int32)
        containment.enter(read_only(ordered[firsts]), table_keys, table_groups)
        # Sorted twice: by groups, to find out which are large, and within these by bounds.
        order = np.arange(len(rows))
        starts, places = _predicates(table, conjuncts[rows])
        outer, inner, chunks = containment.sort_chunks(
            read_only(group_starts),
            read_only(starts),
            read_only(table.slots[places]),
            read_only(table.low[places]),
            read_only(table.high[places]),
            order,
        )
        rows = rows[order]
        starts, places = _predicates(table, conjuncts[rows])
        boxes = np.empty(len(rows), np.int32)
        boxes[rows] = np.arange(len(rows), dtype=np.int32)
        made = cls(
            starts=starts,
            slots=table.slots[places],
            low=table.low[places],
            high=table.high[places],
            value_set=table.value_set[places],
            set_offsets=table.set_offsets,
            set_low=table.set_low,
            set_high=table.set_high,
            table_keys=table_keys,
            table_groups=table_groups,
            group_starts=group_starts,
            group_rows=rows,
            boxes=boxes,
            places=np.zeros((len(firsts), 3), np.int64),
            outer_low=np.full(outer, np.iinfo(np.int32).max, np.int32),
            outer_high=np.full(outer, -1, np.int32),
            inner_low=np.full(inner, np.iinfo(np.int32).max, np.int32),
            inner_high=np.full(inner, -1, np.int32),
            chunk_rows=np.full(chunks, -1, np.int32),
        )
        containment.bound_blocks(
            read_only(group_starts),
            read_only(rows),
            read_only(starts),
            read_only(made.slots),
            read_only(made.low),
            read_only(made.high),
            made.places,
            made.outer_low,
            made.outer_high,
            made.inner_low,
            made.inner_high,
            made.chunk_rows,
        )
        return made

    def __len__(self) -> int:
        return len(self.starts) - 1

    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> PlainBoxes:
        """The boxes whose arrays these are, possibly mapped from files."""
        return cls(**{field.name: arrays[field.name] for field in fields(cls)})

    def first_containers(
        self, rows: np.ndarray, least: np.ndarray, most: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """For each of some rows the first rows, from a least one on, that contain it.

        Args:
            rows: int64[asked].
            least: int64[asked]: from where to look.
            most: how many to find of each.

        Returns:
            Pairs of a place among those asked and a container, in order.
        """
        found = np.zeros((len(rows), most), np.int32)
        counts = np.zeros(len(rows), np.int64)
        arrays: Any = [read_only(array) for array in self.arrays().values()]
        search: Any = containment.first_containers
        search(read_only(rows), read_only(least), *arrays, found, counts)
        is_found = np.arange(most) < counts[:, None]
        return np.nonzero(is_found)[0], found[is_found]


def _predicates(table: ConjunctTable, conjuncts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the predicates of some conjuncts start, and their places in the table, by slot."""
    counts = np.diff(table.offsets)[conjuncts]
    starts = np.zeros(len(conjuncts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    owners = np.repeat(np.arange(len(conjuncts)), counts)
    places = np.arange(len(owners)) - starts[owners] + table.offsets[conjuncts][owners]
    return starts, places[np.lexsort((table.slots[places], owners))]
