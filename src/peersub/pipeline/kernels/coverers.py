"""Who covers whom: witnesses against bands, candidates by intersection, proof by `covers`.

For a block of classes the witnesses are matched against one band after the other, from the first
that can hold a coverer upwards, without those that demand an attribute which a witness lacks. A
class of the band is a candidate if it matches all witnesses of the class in question. Candidates
are asked in the order of their selectivity, and a class leaves the search when `proven_max`
coverers are proven or `asked_max` candidates were asked.

What is given up by these bounds: coverers beyond the first, which are the more general ones. In a
chain (price > 1, price > 2, ...) a class has thousands of coverers and stops within its first band,
so that a chain costs a band per class and not a population.

A class without witnesses (a filter of nothing, or one for which no event could be made) asks the
classes of the bands one by one, within the same bounds.

Law: nothing is listed that `covers` has not proven; while the bounds are not reached, everything
that it would prove is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from peersub.events.arrow import table_of_rows
from peersub.filters.filter import Filter
from peersub.pipeline.kernels.class_bands import (
    NO_DEMAND,
    BandFolder,
    OpenBand,
    filter_of,
    open_band,
)
from peersub.pipeline.kernels.witnesses import witnesses_of
from peersub.pipeline.schemas import COVERINGS

__all__ = ["CoveringBounds", "Proven", "coverers_of", "coverings_kernel"]

BLOCK_CLASSES: Final = 8_192
"""Classes searched for together."""
ASKING_CLASSES_MAX: Final = 2_048
"""Classes of a block that ask one band at once: their witnesses are one batch of the matcher."""
_DENSE_SHARE: Final = 1 / 16
"""From this share of all pairs on, a table of all pairs is quicker than sorting those found."""


@dataclass(frozen=True, slots=True)
class CoveringBounds:
    """How far to search for the coverers of one class."""

    coverers_max: int = 32
    """Coverers that are listed."""
    proven_max: int = 32
    """Coverers after which the search ends; the most selective of them are listed."""
    asked_max: int = 1_024
    """Candidates that are asked for a proof, the unsuccessful ones included."""


@dataclass(frozen=True, slots=True)
class Proven:
    """A coverer of a class; sorts by selectivity."""

    sampled: int
    digest: bytes


@dataclass(slots=True)
class _Search:
    """A class whose coverers are looked for."""

    digest: bytes
    wanted: Filter
    sampled: int
    asked_left: int
    witnesses: int = 0
    proven: list[Proven] = field(default_factory=list)

    def is_open(self, bounds: CoveringBounds) -> bool:
        return len(self.proven) < bounds.proven_max and self.asked_left > 0

    def ask(self, band: OpenBand, rows: Iterable[int], bounds: CoveringBounds) -> None:
        """Ask candidates of a band, in the order of their rows, for a proof."""
        for row in rows:
            digest = band.digests[row]
            if digest == self.digest:
                continue
            self.asked_left -= 1
            if band.filter(row).covers(self.wanted):
                self.proven.append(Proven(int(band.sampled[row]), digest))
            if not self.is_open(bounds):
                return

    def sorted_proven(self) -> list[Proven]:
        return sorted(self.proven, key=lambda found: (found.sampled, found.digest))


def coverings_kernel(
    batches: Iterable[pa.RecordBatch], bands: Sequence[BandFolder], bounds: CoveringBounds
) -> Iterator[pa.RecordBatch]:
    """The coverings of batches of classes (digest, language, text, sampled)."""
    for batch in batches:
        for start in range(0, batch.num_rows, BLOCK_CLASSES):
            classes = batch.slice(start, BLOCK_CLASSES)
            found = coverers_of(classes, bands, bounds)
            yield _coverings(classes["digest"].to_pylist(), found, bounds)


def _coverings(
    digests: list[bytes], found: list[list[Proven]], bounds: CoveringBounds
) -> pa.RecordBatch:
    listed = [
        (digest, coverer.digest, rank, len(proven))
        for digest, proven in zip(digests, found, strict=True)
        for rank, coverer in enumerate(proven[: bounds.coverers_max])
    ]
    columns: Any = list(zip(*listed, strict=True)) or [()] * len(COVERINGS.arrow)
    arrays = [
        pa.array(column, kind.type) for column, kind in zip(columns, COVERINGS.arrow, strict=True)
    ]
    return pa.record_batch(arrays, schema=COVERINGS.arrow)


def coverers_of(
    classes: pa.RecordBatch | pa.Table, bands: Sequence[BandFolder], bounds: CoveringBounds
) -> list[list[Proven]]:
    """Per class its proven coverers, the most selective first."""
    searches = [
        _Search(digest, filter_of(language, text), sampled, bounds.asked_max)
        for digest, language, text, sampled in zip(
            *(classes[name].to_pylist() for name in ("digest", "language", "text", "sampled")),
            strict=True,
        )
    ]
    block = _Block(searches, bounds)
    for place in sorted(bands, key=lambda band: (band.sampled_min, band.band)):
        waiting = block.waiting_for(place)
        for start in range(0, len(waiting), ASKING_CLASSES_MAX):
            block.search(waiting[start : start + ASKING_CLASSES_MAX], open_band(place.folder))
    return [search.sorted_proven() for search in searches]


class _Block:
    """Classes whose coverers are looked for together."""

    def __init__(self, searches: list[_Search], bounds: CoveringBounds) -> None:
        self._searches = searches
        self._bounds = bounds
        self._witnesses = _Witnesses.of(searches)
        self._is_open = np.ones(len(searches), np.bool_)
        self._least = np.array([search.sampled for search in searches], np.int64)
        self._needed = np.array([search.witnesses for search in searches], np.int64)
        self._having = self._witnesses.having(self._needed)
        self._is_unseen = self._needed == 0

    def waiting_for(self, place: BandFolder) -> np.ndarray:
        """Those that may find a coverer in a band."""
        is_waiting = self._is_open & (self._least <= place.sampled_max)
        if place.demand != NO_DEMAND:
            having = self._having.get(place.demand)
            is_waiting &= self._is_unseen if having is None else having | self._is_unseen
        return np.flatnonzero(is_waiting)

    def search(self, waiting: np.ndarray, band: OpenBand) -> None:
        """Look in one band for the coverers of those that wait."""
        rows = self._witnesses.rows_of(waiting)
        if len(rows):
            at_event, members = band.match(self._witnesses.table_of(rows))
            # Owners count from 0 among those that wait.
            places = np.searchsorted(waiting, self._witnesses.owners[rows])
            asking, member = _matched_by_all(
                places[at_event], members, self._needed[waiting], band.rows
            )
            owner = waiting[asking]
            possible = band.sampled[member] >= self._least[owner]
            owner, member = owner[possible], member[possible]
            starts = np.flatnonzero(np.diff(owner, prepend=-1))
            for first, candidates in zip(owner[starts], np.split(member, starts[1:]), strict=False):
                self._ask(int(first), band, candidates.tolist())
        for number in waiting[self._is_unseen[waiting]].tolist():
            first_row = int(np.searchsorted(band.sampled, self._least[number]))
            self._ask(number, band, range(first_row, band.rows))

    def _ask(self, number: int, band: OpenBand, rows: Iterable[int]) -> None:
        search = self._searches[number]
        search.ask(band, rows, self._bounds)
        self._is_open[number] = search.is_open(self._bounds)


def _matched_by_all(
    owners: np.ndarray, members: np.ndarray, needed: np.ndarray, rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """The pairs (owner, member) that occur as often as the owner needs, sorted."""
    keys = owners * rows + members
    if len(keys) > _DENSE_SHARE * len(needed) * rows:
        counts = np.bincount(keys, minlength=len(needed) * rows)
        keys = np.flatnonzero(counts)
        counts = counts[keys]
    else:
        keys, counts = np.unique(keys, return_counts=True)
    keys = keys[counts == needed[keys // rows]]
    return keys // rows, keys % rows


@dataclass(frozen=True, slots=True)
class _Witnesses:
    """The witnesses of all searches of a block, and whose each is."""

    events: list[dict[str, Any]]
    owners: np.ndarray
    table: pa.Table

    @classmethod
    def of(cls, searches: list[_Search]) -> _Witnesses:
        events: list[dict[str, Any]] = []
        owners: list[int] = []
        for number, search in enumerate(searches):
            for event in witnesses_of(search.wanted):
                events.append(event)
                owners.append(number)
        try:
            table = table_of_rows(events)
        except ValueError:
            # A value that Arrow cannot hold, such as a number of a hundred digits: go without it.
            kept = [number for number, event in enumerate(events) if _fits(event)]
            events = [events[number] for number in kept]
            owners = [owners[number] for number in kept]
            table = table_of_rows(events)
        for owner in owners:
            searches[owner].witnesses += 1
        return cls(events, np.array(owners, np.int64), table)

    def having(self, needed: np.ndarray) -> dict[str, np.ndarray]:
        """Per attribute the searches all of whose witnesses have it; of so many witnesses each."""
        counts: dict[str, np.ndarray] = {}
        for owner, event in zip(self.owners.tolist(), self.events, strict=True):
            for name in event:
                if name not in counts:
                    counts[name] = np.zeros(len(needed), np.int64)
                counts[name][owner] += 1
        return {name: found == needed for name, found in counts.items()}

    def rows_of(self, waiting: np.ndarray) -> np.ndarray:
        """The witnesses of some searches, which are in order; owners are as well."""
        starts = np.searchsorted(self.owners, waiting)
        counts = np.searchsorted(self.owners, waiting, "right") - starts
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        found: np.ndarray = np.repeat(starts, counts) + within
        return found

    def table_of(self, rows: np.ndarray) -> pa.Table:
        """Some of the witnesses as a batch of events."""
        return self.table if len(rows) == len(self.events) else self.table.take(pa.array(rows))


def _fits(event: dict[str, Any]) -> bool:
    try:
        table_of_rows([event])
    except ValueError:
        return False
    return True
