"""The index for few subscriptions: plain Python, nothing to compile or import, changed in place.

Each conjunction waits under one *access predicate*, the most selective that it has: under each
value of an equality or IN, or in the cells that its interval meets. An event looks up its values,
and only the conjunctions found there are checked in full. Intervals are kept per slot (attribute
and class) in up to CELLS_MAX cells between sampled bounds, laid anew each time the slot has
doubled.

A small node needs nothing else; a large matcher keeps its newest subscriptions here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from peersub.events.kinds import KindClass, comparable, is_missing, value_at
from peersub.filters.boxes import FALSE, TRUE, UNDEFINED, Box, Path
from peersub.filters.domains import Domain
from peersub.filters.intervals import FULL, Cut, IntervalSet, contains_value, single_points

__all__ = ["SmallIndex"]

CELLS_MAX = 64
POINTS_MAX = 32
"""A longer IN list is no good access predicate: it would stand in too many places."""

Slot = tuple[Path, KindClass]
Key = tuple[KindClass, Any] | None


class _Probe:
    """An event while it is being matched: each attribute is looked up and classified once."""

    __slots__ = ("_attributes", "_known")

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self._attributes = attributes
        self._known: dict[Path, tuple[Key, bool]] = {}

    def key(self, path: Path) -> tuple[Key, bool]:
        """The class and key of an attribute, None if it does not compare; whether it is there."""
        found = self._known.get(path)
        if found is None:
            value = value_at(self._attributes, path)
            place = comparable(value)
            found = (place, place is not None or not is_missing(value))
            self._known[path] = found
        return found

    def lies_in(self, box: Box) -> bool:
        """The twin of `box_matches` on what is known of the event."""
        for path, domain in box.domains.items():
            place, present = self.key(path)
            if place is None:
                if not (domain.other if present else domain.absent):
                    return False
            elif not contains_value(domain.sets[place[0]], place[1]):
                return False
        for test, truth in box.tests.items():
            place, _ = self.key(test.path)
            if place is None or place[0] is not KindClass.STRING:
                outcome = UNDEFINED
            else:
                outcome = TRUE if test.holds(place[1]) else FALSE
            if not outcome & truth:
                return False
        return True


class _Cells:
    """The conjunctions of one slot whose access predicate is an interval."""

    __slots__ = ("bounds", "cells", "holders", "laid_at")

    def __init__(self) -> None:
        self.bounds: list[Cut] = []
        self.cells: list[dict[int, Box]] = [{}]
        self.holders: dict[int, tuple[Box, IntervalSet]] = {}
        self.laid_at = 8

    def add(self, conjunct: int, box: Box, cuts: IntervalSet) -> None:
        self.holders[conjunct] = (box, cuts)
        if len(self.holders) > self.laid_at:
            self._lay()
        else:
            self._enter(conjunct, box, cuts)

    def remove(self, conjunct: int) -> None:
        _, cuts = self.holders.pop(conjunct)
        for cell in self._met(cuts):
            self.cells[cell].pop(conjunct, None)

    def at(self, key: Any) -> dict[int, Box]:
        return self.cells[bisect_right(self.bounds, (key, 0))]

    def _met(self, cuts: IntervalSet) -> range:
        first = bisect_right(self.bounds, cuts[0])
        return range(first, bisect_right(self.bounds, cuts[-1]) + 1)

    def _enter(self, conjunct: int, box: Box, cuts: IntervalSet) -> None:
        for cell in self._met(cuts):
            self.cells[cell][conjunct] = box

    def _lay(self) -> None:
        """Place the cells' bounds at quantiles of the intervals' own bounds."""
        self.laid_at = 2 * len(self.holders)
        ends = sorted({cut for _, cuts in self.holders.values() for cut in (cuts[0], cuts[-1])})
        step = max(1, len(ends) // CELLS_MAX)
        self.bounds = ends[::step][:CELLS_MAX]
        self.cells = [{} for _ in range(len(self.bounds) + 1)]
        for conjunct, (box, cuts) in self.holders.items():
            self._enter(conjunct, box, cuts)


class SmallIndex:
    """Unions of boxes by number; `match` gives the numbers whose union holds the event."""

    __slots__ = ("_conjuncts", "_entry_of", "_everywhere", "_next", "_points", "_ranges")

    def __init__(self) -> None:
        self._next = 0
        self._entry_of: dict[int, int] = {}
        self._conjuncts: dict[int, list[tuple[int, Box]]] = {}
        self._points: dict[Slot, dict[Any, dict[int, Box]]] = {}
        self._ranges: dict[Slot, _Cells] = {}
        self._everywhere: dict[int, Box] = {}

    def __len__(self) -> int:
        return len(self._conjuncts)

    def add(self, entry: int, boxes: Iterable[Box]) -> None:
        """Enter a union of boxes under a new number."""
        assert entry not in self._conjuncts
        numbered = []
        for box in boxes:
            conjunct = self._next
            self._next += 1
            self._entry_of[conjunct] = entry
            numbered.append((conjunct, box))
            self._enter(conjunct, box)
        self._conjuncts[entry] = numbered

    def remove(self, entry: int) -> None:
        """Take a union out again."""
        for conjunct, box in self._conjuncts.pop(entry):
            del self._entry_of[conjunct]
            self._leave(conjunct, box)

    def match(self, attributes: Mapping[str, Any]) -> list[int]:
        """The numbers of the unions that hold the event, each once, ascending."""
        probe = _Probe(attributes)
        found: set[int] = set()
        for candidates in self._candidates(probe):
            for conjunct, box in candidates.items():
                entry = self._entry_of[conjunct]
                if entry not in found and probe.lies_in(box):
                    found.add(entry)
        return sorted(found)

    def _candidates(self, probe: _Probe) -> Iterator[dict[int, Box]]:
        yield self._everywhere
        for (path, kind_class), by_key in self._points.items():
            place, _ = probe.key(path)
            if place is not None and place[0] is kind_class:
                found = by_key.get(place[1])
                if found is not None:
                    yield found
        for (path, kind_class), cells in self._ranges.items():
            place, _ = probe.key(path)
            if place is not None and place[0] is kind_class:
                yield cells.at(place[1])

    def _enter(self, conjunct: int, box: Box) -> None:
        slot, keys = _access(box)
        if slot is None:
            self._everywhere[conjunct] = box
        elif keys is not None:
            by_key = self._points.setdefault(slot, {})
            for key in keys:
                by_key.setdefault(key, {})[conjunct] = box
        else:
            cells = self._ranges.setdefault(slot, _Cells())
            cells.add(conjunct, box, box.domains[slot[0]].sets[slot[1]])

    def _leave(self, conjunct: int, box: Box) -> None:
        slot, keys = _access(box)
        if slot is None:
            del self._everywhere[conjunct]
        elif keys is not None:
            by_key = self._points[slot]
            for key in keys:
                del by_key[key][conjunct]
                if not by_key[key]:
                    del by_key[key]
            if not by_key:
                del self._points[slot]
        else:
            self._ranges[slot].remove(conjunct)
            if not self._ranges[slot].holders:
                del self._ranges[slot]


def _access(box: Box) -> tuple[Slot | None, list[Any] | None]:
    """The access predicate of a box: few points if it has them, else an interval, else nothing.

    A pure function of the box, so that a conjunction is found again where it was entered.
    """
    best_points: tuple[int, Slot, list[Any]] | None = None
    best_range: tuple[int, Slot] | None = None
    for path, domain in sorted(box.domains.items(), key=_path_of):
        kind_class = domain.only_class
        if kind_class is None:
            continue
        slot = (path, kind_class)
        cuts = domain.sets[kind_class]
        keys = single_points(kind_class, cuts) if len(cuts) <= 2 * POINTS_MAX else None
        if keys is not None and len(keys) <= POINTS_MAX:
            if best_points is None or len(keys) < best_points[0]:
                best_points = (len(keys), slot, keys)
        else:
            rank = _openness(cuts)
            if best_range is None or rank < best_range[0]:
                best_range = (rank, slot)
    if best_points is not None:
        return best_points[1], best_points[2]
    return (None, None) if best_range is None else (best_range[1], None)


def _path_of(item: tuple[Path, Domain]) -> Path:
    return item[0]


def _openness(cuts: IntervalSet) -> int:
    """How many sides of an interval are unbounded: the fewer, the more selective it likely is."""
    return int(cuts[0] == FULL[0]) + int(cuts[-1] == FULL[1])
