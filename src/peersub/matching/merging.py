"""Several segments as one: the living rows in their order, equal filters again sharing an entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from peersub.matching.conjunct_merge import merge, numbers_by_first_use
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
        living = [s.row_entries()[rows] for s, rows in zip(self.segments, self.rows, strict=True)]
        used = [np.unique(entries) for entries in living]
        digests = np.concatenate(
            [s.digests[entries] for s, entries in zip(self.segments, used, strict=True)]
        )
        number, first = numbers_by_first_use(digests)
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
            merge([segment.conjuncts.unpacked() for segment in self.segments], kept),
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
