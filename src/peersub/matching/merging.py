"""Several segments as one: the living rows in their order, equal filters again sharing an entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from peersub.matching.conjunct_merge import merge
from peersub.matching.identifiers import Identifiers
from peersub.matching.segment import Segment

__all__ = ["Merge"]


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge of segments, with the rows of each that were alive when it was planned.

    Rows may die while the merged segment is being compiled: `finished` lets them die in it as well.
    """

    segments: tuple[Segment, ...]
    rows: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> Merge:
        """Plan a merge of neighbours, the oldest first."""
        rows = tuple(np.flatnonzero(segment.alive).astype(np.int32) for segment in segments)
        return cls(tuple(segments), rows)

    def compiled(self) -> Segment:
        """The merged segment as planned; reads only what never changes."""
        living = [_row_entries(s)[rows] for s, rows in zip(self.segments, self.rows, strict=True)]
        used = [np.unique(entries) for entries in living]
        digests = np.concatenate(
            [s.digests[entries] for s, entries in zip(self.segments, used, strict=True)]
        )
        number, first = _numbers_by_first_use(digests)
        kept, new_entries, start = [], [], 0
        for segment, entries, row_entries in zip(self.segments, used, living, strict=True):
            places = np.arange(start, start + len(entries))
            start += len(entries)
            is_first = first[number[places]] == places
            keep = np.full(len(segment.digests), -1, np.int32)
            keep[entries[is_first]] = number[places[is_first]]
            kept.append(keep)
            new_entries.append(number[places][np.searchsorted(entries, row_entries)])
        ids = pa.chunked_array(
            [
                s.identifiers.array.take(pa.array(r))
                for s, r in zip(self.segments, self.rows, strict=True)
            ],
            pa.large_string(),
        )
        return Segment.of_encoded(
            merge([segment.encoded for segment in self.segments], kept),
            np.concatenate(new_entries).astype(np.int32),
            digests[first],
            Identifiers.of(ids),
        )

    def finished(self, compiled: Segment) -> Segment:
        """The compiled segment without the rows that died in the meantime."""
        alive = [s.alive[rows] for s, rows in zip(self.segments, self.rows, strict=True)]
        compiled.alive = np.concatenate(alive)
        compiled.living = int(np.count_nonzero(compiled.alive))
        return compiled


def _row_entries(segment: Segment) -> np.ndarray:
    entries = np.empty(len(segment.entry_rows), np.int32)
    counts = np.diff(segment.entry_offsets)
    entries[segment.entry_rows] = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return entries


def _numbers_by_first_use(digests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A number for each digest, equal ones alike, counted by first use; and where each is first.

    >>> a, b = bytes(16), bytes([1] * 16)
    >>> number, first = _numbers_by_first_use(np.frombuffer(b + a + b, np.uint8).reshape(3, 16))
    >>> number.tolist(), first.tolist()
    ([0, 1, 0], [0, 1])
    """
    keys = np.ascontiguousarray(digests).view("V16").ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[inverse], first[order]
