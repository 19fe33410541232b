"""The index for few subscriptions: plain Python, nothing to compile or import, changed in place.

Each conjunction waits under one *access predicate*, the most selective that it has: under each
value of an equality or IN, or in the cells that its interval meets. An event looks up its values,
and of the conjunctions found there only what is left to ask is checked: nothing, where the access
predicate was all, and the cell lies wholly in the interval. Intervals are kept per slot (attribute
and class) in cells between their own bounds, or between some of them where cells would be too many,
laid anew each time the slot has doubled.

A small node needs nothing else; a large matcher keeps its newest subscriptions here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from peersub.events.kinds import KindClass, comparable, is_missing, value_at
from peersub.filters.boxes import FALSE, TRUE, UNDEFINED, Box, Path
from peersub.filters.domains import Domain
from peersub.filters.intervals import FULL, Cut, IntervalSet, contains_value, single_points
from peersub.filters.patterns import TextTest

__all__ = ["Probe", "SmallIndex"]

CELLS_PER_INTERVAL_MAX = 32
"""How many cells an interval may meet, on average: where they overlap much, cells are wider."""
POINTS_MAX = 32
"""A longer IN list is no good access predicate: it would stand in too many places."""

Slot = tuple[Path, KindClass]
Key = tuple[KindClass, Any] | None


class _Rest(NamedTuple):
    """What is left to ask about a conjunction beside its access predicate."""

    domains: tuple[tuple[Path, Domain], ...]
    tests: tuple[tuple[TextTest, int], ...]


_Place = dict[int, tuple[int, _Rest | None]]
"""By conjunct, its entry and what is left to ask; None: nothing, it holds."""


class Probe:
    """An event while it is being matched: each attribute is looked up and classified once.

    Whoever asks several indexes about an event hands the same probe to all of them.
    """

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

    def meets(self, rest: _Rest) -> bool:
        """The twin of `box_matches` on what is known of the event."""
        for path, domain in rest.domains:
            place, present = self.key(path)
            if place is None:
                if not (domain.other if present else domain.absent):
                    return False
            elif not contains_value(domain.sets[place[0]], place[1]):
                return False
        for test, truth in rest.tests:
            place, _ = self.key(test.path)
            if place is None or place[0] is not KindClass.STRING:
                outcome = UNDEFINED
            else:
                outcome = TRUE if test.holds(place[1]) else FALSE
            if not outcome & truth:
                return False
        return True


class _Cells:
    """The conjunctions of one slot whose access predicate is an interval, or several.

    Cell c holds the keys from the cut `bounds[c - 1]` up to the cut `bounds[c]`.
    """

    __slots__ = ("_slot", "bounds", "cells", "holders", "laid_at")

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self.bounds: list[Cut] = []
        self.cells: list[_Place] = [{}]
        self.holders: dict[int, tuple[int, Box]] = {}
        self.laid_at = 8

    def add(self, conjunct: int, entry: int, box: Box) -> None:
        self.holders[conjunct] = (entry, box)
        if len(self.holders) > self.laid_at:
            self._lay()
        else:
            self._enter(conjunct, entry, box)

    def remove(self, conjunct: int) -> None:
        _, box = self.holders.pop(conjunct)
        for cell in self._met(self._cuts(box)):
            self.cells[cell].pop(conjunct, None)

    def at(self, key: Any) -> _Place:
        return self.cells[bisect_right(self.bounds, (key, 0))]

    def _cuts(self, box: Box) -> IntervalSet:
        path, kind_class = self._slot
        return box.domains[path].sets[kind_class]

    def _met(self, cuts: IntervalSet) -> range:
        """From the first cell that may meet the intervals to the last; others may be among them."""
        first = bisect_right(self.bounds, cuts[0])
        return range(first, bisect_right(self.bounds, cuts[-1]) + 1)

    def _enter(self, conjunct: int, entry: int, box: Box) -> None:
        cuts, bounds = self._cuts(box), self.bounds
        partly, wholly = _rest(box, None), _rest(box, self._slot[0])
        for cell in self._met(cuts):
            lower = bounds[cell - 1] if cell else FULL[0]
            upper = bounds[cell] if cell < len(bounds) else FULL[1]
            # Cuts begin and end intervals in turn: after an odd number of them is inside.
            before = bisect_right(cuts, lower)
            is_same_throughout = before == len(cuts) or upper <= cuts[before]
            if not is_same_throughout:
                self.cells[cell][conjunct] = (entry, partly)
            elif before % 2:
                self.cells[cell][conjunct] = (entry, wholly)

    def _lay(self) -> None:
        """Place the cells' bounds at the intervals' own, or at quantiles of these."""
        self.laid_at = 2 * len(self.holders)
        all_cuts = [self._cuts(box) for _, box in self.holders.values()]
        ends = sorted({cut for cuts in all_cuts for cut in (cuts[0], cuts[-1])})
        rank = {cut: place for place, cut in enumerate(ends)}
        met = sum(rank[cuts[-1]] - rank[cuts[0]] for cuts in all_cuts)
        step = 1 + met // (CELLS_PER_INTERVAL_MAX * len(all_cuts))
        self.bounds = ends[::step]
        self.cells = [{} for _ in range(len(self.bounds) + 1)]
        for conjunct, (entry, box) in self.holders.items():
            self._enter(conjunct, entry, box)


class SmallIndex:
    """Unions of boxes by number; `match` gives the numbers whose union holds the event."""

    __slots__ = ("_conjuncts", "_everywhere", "_next", "_points", "_ranges")

    def __init__(self) -> None:
        self._next = 0
        self._conjuncts: dict[int, list[tuple[int, Box]]] = {}
        self._points: dict[Slot, dict[Any, _Place]] = {}
        self._ranges: dict[Slot, _Cells] = {}
        self._everywhere: _Place = {}

    def __len__(self) -> int:
        return len(self._conjuncts)

    def add(self, entry: int, boxes: Iterable[Box]) -> None:
        """Enter a union of boxes under a new number."""
        assert entry not in self._conjuncts
        numbered = []
        for box in boxes:
            conjunct = self._next
            self._next += 1
            numbered.append((conjunct, box))
            self._enter(conjunct, entry, box)
        self._conjuncts[entry] = numbered

    def remove(self, entry: int) -> None:
        """Take a union out again."""
        for conjunct, box in self._conjuncts.pop(entry):
            self._leave(conjunct, box)

    def match(self, probe: Probe) -> list[int]:
        """The numbers of the unions that hold the event, each once, ascending."""
        found: set[int] = set()
        for place in self._places(probe):
            for entry, rest in place.values():
                if entry not in found and (rest is None or probe.meets(rest)):
                    found.add(entry)
        return sorted(found)

    def matches_any(self, probe: Probe) -> bool:
        """Whether one of the unions holds the event."""
        for place in self._places(probe):
            for _, rest in place.values():
                if rest is None or probe.meets(rest):
                    return True
        return False

    def _places(self, probe: Probe) -> list[_Place]:
        """Where the conjunctions stand that the event may meet."""
        places = [self._everywhere] if self._everywhere else []
        for (path, kind_class), by_key in self._points.items():
            key, _ = probe.key(path)
            if key is not None and key[0] is kind_class:
                found = by_key.get(key[1])
                if found is not None:
                    places.append(found)
        for (path, kind_class), cells in self._ranges.items():
            key, _ = probe.key(path)
            if key is not None and key[0] is kind_class:
                places.append(cells.at(key[1]))
        return places

    def _enter(self, conjunct: int, entry: int, box: Box) -> None:
        slot, keys = _access(box)
        if slot is None:
            self._everywhere[conjunct] = (entry, _rest(box, None))
        elif keys is not None:
            by_key, rest = self._points.setdefault(slot, {}), _rest(box, slot[0])
            for key in keys:
                by_key.setdefault(key, {})[conjunct] = (entry, rest)
        else:
            self._ranges.setdefault(slot, _Cells(slot)).add(conjunct, entry, box)

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


def _rest(box: Box, settled: Path | None) -> _Rest | None:
    """What is left to ask of a box if its access predicate has settled an attribute."""
    domains = tuple([(path, domain) for path, domain in box.domains.items() if path != settled])
    return _Rest(domains, tuple(box.tests.items())) if domains or box.tests else None


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
