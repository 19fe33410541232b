"""A segment: subscriptions compiled once and never changed, except that rows can die.

Rows are subscriptions, in the order in which they came. Rows with equal filters share an *entry*;
an entry has one *conjunct* per box of its filter. The encoder turns an event into codes, the index
finds the conjuncts that hold, text tests are checked on those that are left, and `expand` leads
from conjuncts over entries, each once, to the living rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from peersub.filters.filter import Filter
from peersub.matching.compiled import CompiledIndex, expand, expanded_count
from peersub.matching.conjunct_builder import EncodedConjuncts, build
from peersub.matching.identifiers import Identifiers
from peersub.matching.named_arrays import WithPrefix, prefixed
from peersub.matching.packed_conjuncts import PackedConjuncts
from peersub.matching.residual_tests import (
    conjuncts_that_hold,
    has_residue,
    pairs_that_hold,
)

__all__ = ["Segment"]

_Expansion = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
_OWN_ARRAYS = ("entry_offsets", "entry_rows", "digests", "alive")


@dataclass(slots=True, eq=False)
class Segment:
    """Compiled subscriptions. Only `alive` changes: a row turns 0 when its subscription goes."""

    conjuncts: PackedConjuncts
    index: CompiledIndex
    """Reports tags: a row, or beyond all rows the number of a conjunct that leads to its rows."""
    has_conjunct_tags: bool
    entry_offsets: np.ndarray
    """int64[entries + 1]: entry e has the rows entry_rows[entry_offsets[e]:entry_offsets[e + 1]];
    empty, as is the next, where row r is entry r."""
    entry_rows: np.ndarray
    """int32[rows]"""
    digests: np.ndarray
    """uint8[entries, 16]: the digest of each entry's filter."""
    identifiers: Identifiers
    alive: np.ndarray
    """uint8[rows]"""
    living: int
    _expansion_made: _Expansion | None = None

    @classmethod
    def of_filters(cls, subscriptions: Iterable[tuple[str, Filter]]) -> Segment:
        """Compile some subscriptions; equal filters share an entry."""
        ids: list[str] = []
        entries: dict[Filter, int] = {}
        row_entry: list[int] = []
        for subscription_id, wanted in subscriptions:
            ids.append(subscription_id)
            row_entry.append(entries.setdefault(wanted, len(entries)))
        digests = np.frombuffer(b"".join(wanted.digest for wanted in entries), np.uint8)
        return cls.of_encoded(
            build([wanted.boxes for wanted in entries]),
            np.array(row_entry, np.int32),
            digests.reshape(-1, 16),
            Identifiers.of(ids),
        )

    @classmethod
    def of_encoded(
        cls,
        encoded: EncodedConjuncts,
        row_entry: np.ndarray,
        digests: np.ndarray,
        identifiers: Identifiers,
        sample: np.ndarray | None = None,
    ) -> Segment:
        """Index what is already in code space."""
        rows = len(row_entry)
        entry_offsets, entry_rows = np.empty(0, np.int64), np.empty(0, np.int32)
        if not np.array_equal(row_entry, np.arange(len(digests))):
            entry_offsets = np.zeros(len(digests) + 1, np.int64)
            np.cumsum(np.bincount(row_entry, minlength=len(digests)), out=entry_offsets[1:])
            entry_rows = np.argsort(row_entry, kind="stable").astype(np.int32)
        tags = _tags(encoded, entry_offsets, entry_rows, rows)
        return cls(
            conjuncts=PackedConjuncts.of(encoded),
            index=CompiledIndex.build(encoded.table, sample, tags),
            has_conjunct_tags=bool((tags >= rows).any()),
            entry_offsets=entry_offsets,
            entry_rows=entry_rows,
            digests=digests,
            identifiers=identifiers,
            alive=np.ones(rows, np.uint8),
            living=rows,
        )

    def __len__(self) -> int:
        return self.living

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays().values())

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything that the segment holds, by name, to be saved."""
        own = {name: getattr(self, name) for name in _OWN_ARRAYS}
        own["has_conjunct_tags"] = np.array([self.has_conjunct_tags])
        return (
            own
            | prefixed("conjuncts", self.conjuncts.arrays())
            | prefixed("index", self.index.arrays())
            | prefixed("identifiers", self.identifiers.arrays())
        )

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Segment:
        """The segment whose arrays these are, possibly mapped from files."""
        return cls(
            conjuncts=PackedConjuncts.from_arrays(WithPrefix("conjuncts", arrays)),
            index=CompiledIndex.from_arrays(WithPrefix("index", arrays)),
            identifiers=Identifiers.from_arrays(WithPrefix("identifiers", arrays)),
            has_conjunct_tags=bool(arrays["has_conjunct_tags"][0]),
            entry_offsets=arrays["entry_offsets"],
            entry_rows=arrays["entry_rows"],
            digests=arrays["digests"],
            alive=arrays["alive"],
            living=int(np.count_nonzero(arrays["alive"])),
        )

    def row_of(self, subscription_id: str) -> int | None:
        """The living row of an id."""
        row = self.identifiers.row_of(subscription_id)
        return row if row is not None and self.alive[row] else None

    def kill(self, row: int) -> None:
        """Let a row go; events matched from now on do not see it."""
        if not self.alive.flags.writeable:
            self.alive = self.alive.copy()  # opened from a file: the file stays as it is
        self.alive[row] = 0
        self.living -= 1

    def row_entries(self) -> np.ndarray:
        """int32[rows]: the entry of each row."""
        entries = np.arange(len(self.alive), dtype=np.int32)
        if len(self.entry_rows):
            counts = np.diff(self.entry_offsets)
            entries[self.entry_rows] = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        return entries

    def match(self, attributes: Mapping[str, Any]) -> list[str]:
        """The ids of the living rows that want an event, in the order in which they came."""
        tags = self.index.match_one(self.conjuncts.encoder.encode_event(attributes))
        if not len(tags):
            return []
        rows = tags
        if self.has_conjunct_tags and not (of_rows := tags < len(self.alive)).all():
            conjuncts = tags[~of_rows] - np.int32(len(self.alive))
            held = conjuncts_that_hold(self.conjuncts, conjuncts, attributes)
            kept = np.concatenate((tags[of_rows], held + np.int32(len(self.alive))))
            _, rows = self._expanded(np.array([0, len(kept)], np.int64), kept)
        elif self.living < len(self.alive):
            rows = rows[self.alive[rows].view(np.bool_)]
        return self.identifiers.names(np.sort(rows))

    def match_rows(self, table: pa.Table, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Per event of a slice: offsets into the rows that want it, and those rows."""
        codes = self.conjuncts.encoder.encode_table(table, start, stop)
        found = self._match_within(codes, table, start, None)
        assert found is not None
        return found

    def match_parts(
        self, table: pa.Table, start: int, stop: int, pairs_max: int
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """What `match_rows` gives, in parts: the first event of each, its offsets and its rows.

        A part has at most `pairs_max` rows, or one event. What would be more is given up before it
        is held, and the events are taken in smaller steps.
        """
        codes = self.conjuncts.encoder.encode_table(table, start, stop)
        begin, step = 0, len(codes)
        while begin < len(codes):
            part = codes[begin : begin + step]
            found = self._match_within(part, table, start + begin, pairs_max)
            if found is None:
                step = len(part) // 2
                continue
            yield start + begin, *found
            begin += len(part)
            if len(found[1]) < pairs_max // 4:
                step *= 2

    def _match_within(
        self, codes: np.ndarray, table: pa.Table, start: int, pairs_max: int | None
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """The rows that want each of some events; None if several events have more than allowed."""
        found = self.index.match_within(codes, pairs_max)
        if found is None:
            return None
        offsets, tags = found
        if has_residue(self.conjuncts):
            self._drop_failed(offsets, tags, table, start)
        if not self.has_conjunct_tags and self.living == len(self.alive):
            return offsets, tags
        if pairs_max is not None and len(codes) > 1:
            conjunct_entry, _, entry_offsets, _ = self._expansion()
            if expanded_count(tags, len(self.alive), conjunct_entry, entry_offsets) > pairs_max:
                return None
        return self._expanded(offsets, tags)

    def _drop_failed(
        self, offsets: np.ndarray, tags: np.ndarray, table: pa.Table, start: int
    ) -> None:
        """Turn the tags of conjuncts whose residual tests fail into -1."""
        places = np.flatnonzero(tags >= len(self.alive))
        if len(places):
            rows = np.searchsorted(offsets, places, side="right") - 1
            conjuncts = tags[places] - np.int32(len(self.alive))
            holds = pairs_that_hold(self.conjuncts, rows, conjuncts, table, start)
            tags[places[~holds]] = -1

    def _expanded(self, offsets: np.ndarray, tags: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """From tags, where need be over entries, each once per event, to living rows."""
        alive = None if self.living == len(self.alive) else self.alive
        return expand(offsets, tags, len(self.alive), *self._expansion(), alive)

    def _expansion(self) -> _Expansion:
        """The arrays of `expand`; those that were left out are made at the first use."""
        if self._expansion_made is not None:
            return self._expansion_made
        conjuncts = self.conjuncts
        entries = conjuncts.entry_count
        self._expansion_made = (
            np.arange(entries, dtype=np.int32) if conjuncts.is_plain else conjuncts.conjunct_entry,
            conjuncts.multi
            if len(conjuncts.multi)
            else np.zeros(conjuncts.conjunct_count, np.uint8),
            self.entry_offsets if len(self.entry_offsets) else np.arange(entries + 1),
            self.entry_rows if len(self.entry_rows) else np.arange(entries, dtype=np.int32),
        )
        return self._expansion_made


def _tags(
    encoded: EncodedConjuncts, entry_offsets: np.ndarray, entry_rows: np.ndarray, rows: int
) -> np.ndarray:
    """int32[conjuncts]: the row of a conjunct that decides one row alone, else `rows` + its number.

    Most conjuncts are all that one subscription asks for: the index then reports its row at once.
    """
    entries = encoded.conjunct_entry
    numbers = np.arange(rows, rows + len(entries), dtype=np.int32)
    decides = (encoded.multi == 0) & ~encoded.needs_check
    if not len(entry_rows):
        return np.where(decides, entries, numbers)
    first = entry_offsets[entries]
    decides &= entry_offsets[entries + 1] == first + 1
    return np.where(decides, entry_rows[first], numbers)
