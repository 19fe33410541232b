"""Merging many filters into few that cover them: Mühl's perfect and imperfect merging.

*Perfect*: boxes that are equal but for one constraint become one, the union of the two; found by
hashing each box without one constraint, for each of its constraints, instead of comparing all
pairs. Boxes that another one covers are dropped. Nothing is gained or lost.

*Imperfect*: two boxes become their hull. What that adds is measured on a sample of events, as bits;
the pair that adds least for the size it saves goes first, and the events that are matched in
addition stay within a budget. Candidates are neighbours: in the order of the boxes, and by common
events of the sample (the event first in some order among those that a box matches: two boxes agree
on it as often as their events are the same).

The result is a function of the set of filters: everything is sorted before, and ties are broken by
that order. Base filters are never given up for merged ones; the caller keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, Final

from peersub.filters.boxes import UNIVERSE, Box, Path, box_of
from peersub.filters.covering_index import CoveringIndex, Subject, Summary
from peersub.filters.domains import Domain
from peersub.filters.filter import Filter, Matchable
from peersub.filters.intervals import EMPTY, Cut, IntervalSet
from peersub.filters.normal_form import sort_key
from peersub.filters.patterns import TextTest
from peersub.filters.relations import hull
from peersub.filters.sample_columns import SampleColumns
from peersub.filters.similarity import sample_bits

__all__ = ["merged_filters", "perfectly_merged"]

FUSED_CUTS_MAX: Final = 2_048
"""Cuts of the domains that are fused into one."""
HULL_CUTS_MAX: Final = 64
"""Cuts of a hull's domain; beyond, its gaps are closed."""
NEIGHBOURS_MAX: Final = 8
"""Boxes that a box is tried with."""
_ORDERS: Final = 4
"""Orders of the sample in which boxes with the same first event are neighbours."""
_BOX_SIZE: Final = 4
"""What a box costs by itself, in cuts: a table entry, an owner, a place in an index."""


def merged_filters(
    filters: Iterable[Filter], budget: float = 0.0, sample: Sequence[Matchable] = ()
) -> tuple[Filter, ...]:
    """Filters of one conjunction or pattern each that together cover all the given ones.

    >>> [f.text for f in merged_filters([Filter("a = 1 AND b > 0"), Filter("a = 2 AND b > 0")])]
    ['a IN (1, 2) AND b > 0']
    """
    filters = [wanted for wanted in filters if not wanted.is_nothing]
    sql = (wanted for wanted in filters if wanted.language == "sql")
    boxes = perfectly_merged(box for wanted in sql for box in wanted.boxes)
    patterns = _undominated(wanted for wanted in filters if wanted.language != "sql")
    if boxes == [UNIVERSE]:
        return (Filter.from_boxes(boxes),)
    if budget > 0 and sample:
        account = _Account(sample, int(budget * len(sample)), boxes, patterns)
        boxes = perfectly_merged(account.merged_boxes(boxes))
        patterns = account.merged_patterns(patterns)
    merged = [*(Filter.from_boxes([box]) for box in boxes), *patterns]
    return tuple(sorted(merged, key=lambda wanted: wanted.digest))


# --- perfect -----------------------------------------------------------------------------------


def perfectly_merged(boxes: Iterable[Box]) -> list[Box]:
    """The same events by fewer boxes, sorted, whatever the order in which they are given.

    Boxes are fused along one constraint, and dropped where another one covers them.
    """
    current = sorted(set(boxes), key=sort_key)
    while len(current) > 1:
        before = len(current)
        if UNIVERSE in current:
            return [UNIVERSE]
        current = sorted(_absorbed(_Fusion(current).fused()), key=sort_key)
        if len(current) == before:
            break
    return current


def _absorbed(boxes: Iterable[Box]) -> list[Box]:
    return [box for wanted in _undominated(map(_single, boxes)) for box in wanted.boxes]


def _single(box: Box) -> Filter:
    return Filter.from_boxes([box])


def _undominated(filters: Iterable[Filter]) -> list[Filter]:
    """Without the filters that another one covers; the first by name of equivalent ones stays."""
    index: CoveringIndex[Summary] = CoveringIndex()
    for node in sorted(map(Summary, filters), key=lambda node: (len(node.demands), node.digest)):
        if node.digest in index or index.coverer(node) is not None:
            continue
        for covered in index.covered(node):
            index.discard(covered)
        index.add(node)
    return sorted((node.filter for node in index), key=lambda wanted: wanted.digest)


_Constraint = tuple[Any, Any]
"""An attribute and its domain, or a text test and its truth."""


class _Fusion:
    """Boxes that are fused along one attribute or text test after the other."""

    def __init__(self, boxes: Iterable[Box]) -> None:
        self.boxes: dict[int, Box] = {}
        self.numbers: dict[_Constraint, int] = {}
        self.constraints: dict[int, frozenset[int]] = {}
        self.constrained: dict[Path | TextTest, list[int]] = {}
        for box in boxes:
            self.add(box)

    def add(self, box: Box) -> None:
        place = len(self.constraints)
        self.boxes[place] = box
        constraints: list[_Constraint] = [*box.domains.items(), *box.tests.items()]
        self.constraints[place] = frozenset(map(self.number, constraints))
        for name, _ in constraints:
            self.constrained.setdefault(name, []).append(place)

    def number(self, constraint: _Constraint) -> int:
        """Equal constraints have equal numbers: small things to hash in place of domains."""
        return self.numbers.setdefault(constraint, len(self.numbers))

    def fused(self) -> list[Box]:
        paths = sorted(name for name in self.constrained if not isinstance(name, TextTest))
        tests = sorted(name for name in self.constrained if isinstance(name, TextTest))
        names: list[Path | TextTest] = [*paths, *tests]
        for name in names:
            groups: dict[frozenset[int], list[int]] = {}
            for place in self.constrained[name]:
                if place in self.boxes:
                    rest = self.constraints[place] - {self.number((name, self.value(place, name)))}
                    groups.setdefault(rest, []).append(place)
            for group in groups.values():
                for chunk in self.chunks(group, name):
                    self.fuse(chunk, name)
        return list(self.boxes.values())

    def value(self, place: int, name: Path | TextTest) -> Any:
        box = self.boxes[place]
        return box.tests[name] if isinstance(name, TextTest) else box.domains[name]

    def chunks(self, group: list[int], name: Path | TextTest) -> Iterator[list[int]]:
        """The group in parts that do not make a domain too long."""
        chunk: list[int] = []
        cuts = 0
        for place in group:
            value = self.value(place, name)
            more = 0 if isinstance(value, int) else sum(map(len, value.sets))
            if chunk and cuts + more > FUSED_CUTS_MAX:
                yield chunk
                chunk, cuts = [], 0
            chunk.append(place)
            cuts += more
        yield chunk

    def fuse(self, places: list[int], name: Path | TextTest) -> None:
        if len(places) < 2:
            return
        values = [self.value(place, name) for place in places]
        first = self.boxes[places[0]]
        domains, tests = dict(first.domains), dict(first.tests)
        if isinstance(name, TextTest):
            for truth in values:
                tests[name] |= truth
        else:
            domains[name] = _union_of_domains(values)
        for place in places:
            del self.boxes[place]
        fused = box_of(domains, tests)
        assert fused is not None
        self.add(fused)


def _union_of_domains(domains: Sequence[Domain]) -> Domain:
    """The union of many domains, in one pass over their sorted intervals."""
    number, string, boolean, date, timestamp = (
        _union_of_sets(sets) for sets in zip(*(domain.sets for domain in domains), strict=True)
    )
    return Domain(
        any(domain.absent for domain in domains),
        any(domain.other for domain in domains),
        (number, string, boolean, date, timestamp),
    )


def _union_of_sets(sets: Iterable[IntervalSet]) -> IntervalSet:
    """What lies in any of the sets.

    >>> _union_of_sets([((1, 0), (2, 1)), ((5, 0), (6, 0)), ((2, 0), (3, 0))])
    ((1, 0), (3, 0), (5, 0), (6, 0))
    """
    pairs = sorted(pair for cuts in sets for pair in zip(cuts[::2], cuts[1::2], strict=True))
    union: list[Cut] = []
    for lower, upper in pairs:
        if union and lower <= union[-1]:
            union[-1] = max(union[-1], upper)
        else:
            union += (lower, upper)
    return tuple(union)


# --- imperfect ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """A box or a pattern, the events of the sample that it matches, and its size."""

    form: Any
    bits: int
    size: int


_Combine = Callable[[_Part, _Part], "_Part | None"]


class _Account:
    """What merging adds, counted over the sample: the events that were not wanted before."""

    def __init__(
        self,
        sample: Sequence[Matchable],
        allowed: int,
        boxes: Sequence[Box],
        patterns: Sequence[Filter],
    ) -> None:
        subjects = [Subject(event) for event in sample]
        # Patterns are asked about documents that are parsed once; where there is none, about none.
        self.documents: list[Any] = [s.document or b"" for s in subjects] if patterns else []
        self.events = len(sample)
        self.columns = SampleColumns([subject.attributes for subject in subjects])
        self.allowed = allowed
        self.wanted = 0
        for box in boxes:
            self.wanted |= self.columns.box_bits(box)
        for pattern in patterns:
            self.wanted |= sample_bits(pattern, self.documents)
        self.added = 0

    def more(self, bits: int) -> int:
        """How many unwanted events these bits add to those already added."""
        return (bits & ~self.wanted & ~self.added).bit_count()

    def merged_boxes(self, boxes: Sequence[Box]) -> list[Box]:
        parts = [self.box_part(box) for box in boxes]

        def combine(a: _Part, b: _Part) -> _Part:
            return self.box_part(_spanned_hull(a.form, b.form))

        return [part.form for part in _Contraction(parts, combine, self).contracted()]

    def box_part(self, box: Box) -> _Part:
        cuts = sum(len(cuts) for domain in box.domains.values() for cuts in domain.sets)
        return _Part(box, self.columns.box_bits(box), _BOX_SIZE + cuts + len(box.tests))

    def merged_patterns(self, patterns: Sequence[Filter]) -> list[Filter]:
        parts = [self.pattern_part(pattern) for pattern in sorted(patterns, key=lambda p: p.text)]

        def combine(a: _Part, b: _Part) -> _Part | None:
            merged = a.form.merge(b.form, sample=self.documents, budget=1.0)
            return None if merged is None else self.pattern_part(merged)

        contracted = _Contraction(parts, combine, self).contracted()
        return _undominated(part.form for part in contracted)

    def pattern_part(self, pattern: Filter) -> _Part:
        return _Part(
            pattern, sample_bits(pattern, self.documents), _BOX_SIZE + len(pattern.text) // 4
        )


def _spanned_hull(a: Box, b: Box) -> Box:
    """The hull of two boxes; a domain with many gaps is replaced by its span."""
    box = hull(a, b)
    if all(len(cuts) <= HULL_CUTS_MAX for domain in box.domains.values() for cuts in domain.sets):
        return box
    spanned = box_of({path: _spanned(domain) for path, domain in box.domains.items()}, box.tests)
    assert spanned is not None
    return spanned


def _spanned(domain: Domain) -> Domain:
    number, string, boolean, date, timestamp = (
        cuts if len(cuts) <= HULL_CUTS_MAX else (cuts[0], cuts[-1]) if cuts else EMPTY
        for cuts in domain.sets
    )
    return Domain(domain.absent, domain.other, (number, string, boolean, date, timestamp))


class _Contraction:
    """A graph of neighbouring parts that contracts, edge by edge, while the account allows it."""

    def __init__(self, parts: Sequence[_Part], combine: _Combine, account: _Account) -> None:
        self.parts: dict[int, _Part] = dict(enumerate(parts))
        self.next_number = len(parts)
        self.combine = combine
        self.account = account
        self.neighbours: dict[int, dict[int, None]] = {number: {} for number in self.parts}
        # What a pair adds per size it saves, the pair, and what becomes of it.
        self.heap: list[tuple[float, int, int, _Part]] = []

    def contracted(self) -> list[_Part]:
        for a, b in _neighbours(list(self.parts.values()), self.account.events):
            self.link(a, b)
        heapify(self.heap)
        while self.heap:
            _, a, b, merged = heappop(self.heap)
            if a not in self.parts or b not in self.parts:
                continue
            if self.account.added.bit_count() + self.account.more(merged.bits) <= (
                self.account.allowed
            ):
                self.contract(a, b, merged)
        return list(self.parts.values())

    def link(self, a: int, b: int) -> None:
        a, b = min(a, b), max(a, b)
        if b in self.neighbours[a]:
            return
        merged = self.combine(self.parts[a], self.parts[b])
        if merged is None:
            return
        saved = self.parts[a].size + self.parts[b].size - merged.size
        if saved <= 0:
            return
        self.neighbours[a][b] = self.neighbours[b][a] = None
        heappush(self.heap, (self.account.more(merged.bits) / saved, a, b, merged))

    def contract(self, a: int, b: int, merged: _Part) -> None:
        self.account.added |= merged.bits & ~self.account.wanted
        number = self.next_number
        self.next_number += 1
        around = {**self.neighbours.pop(a), **self.neighbours.pop(b)}
        del self.parts[a], self.parts[b]
        self.parts[number] = merged
        self.neighbours[number] = {}
        for other in sorted(other for other in around if other in self.parts)[:NEIGHBOURS_MAX]:
            self.link(other, number)
        for other in around:
            if other in self.neighbours:
                self.neighbours[other].pop(a, None)
                self.neighbours[other].pop(b, None)


def _neighbours(parts: Sequence[_Part], events: int) -> Iterator[tuple[int, int]]:
    """Pairs that are likely alike: next to each other in the given order, or by their events."""
    yield from _adjacent(range(len(parts)))
    whole = (1 << events) - 1
    for order in range(_ORDERS):
        shift = order * events // _ORDERS
        groups: dict[int, list[int]] = {}
        for number, part in enumerate(parts):
            turned = (part.bits >> shift | part.bits << (events - shift)) & whole
            if turned:
                groups.setdefault((turned & -turned).bit_length(), []).append(number)
        for group in groups.values():
            yield from _adjacent(group)


def _adjacent(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    for distance in (1, 2):
        yield from zip(numbers, numbers[distance:], strict=False)
