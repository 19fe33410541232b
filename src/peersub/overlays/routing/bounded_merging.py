"""Imperfect merging within a budget, and under a hard bound on the rows of a table.

Two rows of one conjunction each can be replaced by their *hull*: the constraints that both have,
each united. The hull wants what both want, and more. What it adds is measured on a sample.

*Budget.* Pairs whose hull adds least go first, as long as all that was added stays within the share
`budget` of the sample's events. *Bound.* Beyond `rows_max` rows, or `bytes_max` bytes, pairs are
merged whatever it costs, cheapest first, until the table fits. Random wishes do not merge well:
soon a table wants nearly every event, and then it says so in a single row that matches everything,
which costs its neighbours a few events more and all of them much less memory. Each peer measures
against the rows that it was told, so what is added adds up along a path.

The cost of a pair needs no hull. Each constraint of a row has its *bits*: the events of the sample
that pass it. A hull's constraint passes what one of the two passes, so its bits are theirs united.
From the bits of all constraints follow the events that pass all (what is measured) and an estimate
of the share of all events, as if constraints were independent (what the order of merging goes by:
most conjunctions match no event of a small sample at all, and then only the estimate tells them
apart). A hull is built once it is in the result.

Pairs are tried where they are likely good: rows with the same most selective constraint, and rows
that share two of their most selective ones, next to each other in some order; a merged row is tried
with the neighbours of both.

Tree patterns have no such bits. They stay as they are up to PATTERNS_SHARE of the rows; beyond,
they are replaced by the patterns of their roots, and if these are too many, by `/*`.

The result is a function of the set of rows, the sample and the bounds: everything is sorted by
digest first. What is remembered (`_parts`, `_hulls`) are values of pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import combinations
from typing import Any, Final, TypeAlias

from peersub.filters.boxes import UNIVERSE, Box, Path, box_covers, box_of
from peersub.filters.domains import Domain, union_of
from peersub.filters.filter import Filter
from peersub.filters.intervals import EMPTY
from peersub.filters.patterns import TextTest
from peersub.filters.sample_columns import SampleColumns
from peersub.overlays.routing.rows import WireSizes

__all__ = ["EVERYTHING", "BoundedMerging"]

HULL_CUTS_MAX: Final = 256
"""Cuts of a hull's domain; beyond, its gaps are closed."""
SATURATED_SHARE: Final = 0.9
"""The share of the sample from which on a table that is too long becomes one row."""
PATTERNS_SHARE: Final = 0.5
"""The share of the rows that tree patterns may take."""
KEYS_TRIED: Final = 3
"""The constraints of a row, most selective first, by which it is paired with others."""
NEIGHBOURS_MAX: Final = 12
"""Rows that a merged row is tried with."""
PARTS_MAX: Final = 65_536
"""Filters whose bits are remembered."""
HULLS_MAX: Final = 65_536
"""Hulls that are remembered, so that equal ones in many tables are one object."""

EVERYTHING: Final = Filter.from_boxes([UNIVERSE])

Key: TypeAlias = Path | TextTest
"""What a constraint is about. Within a `BoundedMerging` each has a number."""
Bits: TypeAlias = dict[int, int]
"""Per constraint, by its number, the events of the sample that pass it."""


class _Part:
    """A row, or several that are to be one."""

    __slots__ = ("bits", "boxes", "digests", "filter", "mass", "passing", "places")

    def __init__(
        self,
        bits: Bits,
        mass: float,
        passing: int,
        boxes: tuple[Box, ...],
        digests: tuple[bytes, ...],
        wanted: Filter | None = None,
    ) -> None:
        self.bits = bits
        self.mass = mass
        """The estimated share of all events that pass all constraints."""
        self.passing = passing
        """The events of the sample that pass all constraints."""
        self.boxes = boxes
        self.digests = digests
        self.filter = wanted
        """The row, if it is one."""
        self.places: tuple[tuple[int, Any], ...] | None = None
        """The most selective constraints, first the most, each with the place of its values."""


class BoundedMerging:
    """Merging under one budget, sample and bound; to be shared by all peers of a process.

    Args:
        budget: the share of the sample's events that a table may want in addition.
        sample: attributes of events like those that will be published.
        rows_max: the rows that a table may have.
        bytes_max: the bytes that its rows may take.
        sizes: what filters take on the wire.
    """

    def __init__(
        self,
        budget: float,
        sample: Sequence[Mapping[str, Any]],
        rows_max: int,
        bytes_max: int,
        sizes: WireSizes,
    ) -> None:
        assert rows_max > 0
        self._allowed = int(budget * len(sample))
        self._columns = SampleColumns(sample)
        self._events = len(sample)
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._sizes = sizes
        self._keys: list[Key] = []
        self._numbers: dict[Key, int] = {}
        self._parts: dict[bytes, tuple[_Part, ...]] = {}
        self._hulls: dict[tuple[bytes, ...], Filter] = {}

    def merged(self, filters: Iterable[Filter]) -> list[Filter]:
        """Filters that together cover the given ones, sorted by digest, within the bounds."""
        if len(self._parts) > PARTS_MAX:
            self._parts.clear()
            self._keys.clear()
            self._numbers.clear()
        wanted = {one.digest: one for one in filters if not one.is_nothing}
        ordered = [wanted[digest] for digest in sorted(wanted)]
        patterns = self._bounded_patterns([one for one in ordered if one.language != "sql"])
        parts = {
            part.digests: part
            for one in ordered
            if one.language == "sql"
            for part in self._parts_of(one)
        }
        if any(not part.bits for part in parts.values()):
            return [EVERYTHING]
        rows_max = self._rows_max - len(patterns)
        while rows_max > 0:
            merged = _Contraction(self, list(parts.values()), rows_max).contracted()
            if merged is None:
                break
            rows = {row.digest: row for row in (*patterns, *map(self._row, merged))}
            if EVERYTHING.digest in rows:
                break
            if len(rows) <= 1 or sum(map(self._sizes.of_filter, rows.values())) <= self._bytes_max:
                return [rows[digest] for digest in sorted(rows)]
            rows_max //= 2
        return [EVERYTHING]

    # --- parts ---------------------------------------------------------------------------------

    def _parts_of(self, wanted: Filter) -> tuple[_Part, ...]:
        """One part per conjunction of the filter."""
        known = self._parts.get(wanted.digest)
        if known is None:
            boxes = wanted.boxes
            rows = [wanted] if len(boxes) == 1 else [Filter.from_boxes([box]) for box in boxes]
            known = self._parts[wanted.digest] = tuple(map(self._part, rows))
        return known

    def _part(self, row: Filter) -> _Part:
        (box,) = row.boxes
        bits: Bits = {}
        for path, domain in box.domains.items():
            bits[self._number(path)] = self._columns.domain_bits(path, domain)
        for test, truth in box.tests.items():
            bits[self._number(test)] = self._columns.test_bits(test, truth)
        return _Part(bits, self.mass(bits), self.passing(bits), (box,), (row.digest,), row)

    def _number(self, key: Key) -> int:
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self._keys)
            self._keys.append(key)
        return known

    def mass(self, bits: Bits) -> float:
        """The estimated share of events that pass constraints with these bits.

        Half an event is added: what no event of the sample passes may still be passed, and without
        a sample each constraint counts as one half.
        """
        mass, events = 1.0, self._events + 1
        for passing in bits.values():
            mass *= (passing.bit_count() + 0.5) / events
        return mass

    def passing(self, bits: Bits) -> int:
        """The events of the sample that pass all constraints."""
        passing = self._columns.all_bits
        for more in bits.values():
            passing &= more
        return passing

    def places(self, part: _Part) -> tuple[tuple[int, Any], ...]:
        """The most selective constraints of a part, and where it lies by the values of each."""
        if part.places is None:
            bits = part.bits
            ranked = sorted(bits, key=lambda one: (bits[one].bit_count(), _name(self._keys[one])))
            part.places = tuple(
                (number, _place(part.boxes[0], self._keys[number]))
                for number in ranked[:KEYS_TRIED]
            )
        return part.places

    # --- rows ----------------------------------------------------------------------------------

    def _row(self, part: _Part) -> Filter:
        if part.filter is not None:
            return part.filter
        key = tuple(sorted(part.digests))
        known = self._hulls.get(key)
        if known is None:
            if len(self._hulls) >= HULLS_MAX:
                self._hulls.clear()
            keys = [self._keys[number] for number in part.bits]
            known = self._hulls[key] = Filter.from_boxes([_hull(keys, part.boxes)])
        return known

    def _bounded_patterns(self, patterns: list[Filter]) -> list[Filter]:
        if len(patterns) <= self._rows_max * PATTERNS_SHARE:
            return patterns
        roots = {root.digest: root for root in map(_root_pattern, patterns)}
        if len(roots) <= self._rows_max * PATTERNS_SHARE:
            return [roots[digest] for digest in sorted(roots)]
        return [Filter.xpath("/*")]

    @property
    def allowed(self) -> int:
        """The events of the sample that a table may want in addition."""
        return self._allowed

    def is_saturated(self, passing: int) -> bool:
        """Whether a table that wants these events of the sample may as well want all."""
        return 0 < self._events * SATURATED_SHARE <= passing.bit_count()


def _root_pattern(pattern: Filter) -> Filter:
    """The first step of a tree pattern; everything, should that not be proven to cover it."""
    from peersub.filters.xpath.pattern import PatternNode
    from peersub.filters.xpath.xpath_filter import XPathFilter

    assert isinstance(pattern, XPathFilter)
    assert pattern.pattern is not None
    first = PatternNode(pattern.pattern.is_descendant, pattern.pattern.label)
    root = XPathFilter.from_pattern(first)
    return root if root.covers(pattern) else Filter.xpath("/*")


def _hull(keys: Iterable[Key], boxes: Sequence[Box]) -> Box:
    """The constraints that all boxes have, each united."""
    domains: dict[Path, Domain] = {}
    tests: dict[TextTest, int] = {}
    for key in keys:
        if isinstance(key, TextTest):
            tests[key] = 0
            for box in boxes:
                tests[key] |= box.tests[key]
        else:
            domains[key] = _spanned(union_of([box.domains[key] for box in boxes]))
    hull = box_of(domains, tests)
    assert hull is not None
    return hull


def _spanned(domain: Domain) -> Domain:
    if all(len(cuts) <= HULL_CUTS_MAX for cuts in domain.sets):
        return domain
    number, string, boolean, date, timestamp = (
        cuts if len(cuts) <= HULL_CUTS_MAX else (cuts[0], cuts[-1]) if cuts else EMPTY
        for cuts in domain.sets
    )
    return Domain(domain.absent, domain.other, (number, string, boolean, date, timestamp))


class _Contraction:
    """Parts of a table that are merged in pairs, cheapest first."""

    def __init__(self, merging: BoundedMerging, parts: Sequence[_Part], rows_max: int) -> None:
        self.merging = merging
        self.rows_max = rows_max
        self.parts = dict(enumerate(parts))
        self.next_number = len(parts)
        self.wanted = self.now_wanted = 0
        self.heap: list[tuple[float, int, int]] = []
        self.neighbours: dict[int, dict[int, None]] = {}

    def contracted(self) -> list[_Part] | None:
        """The parts that are left; None if they would want nearly everything."""
        merging = self.merging
        too_many = len(self.parts) > self.rows_max
        if not too_many and not merging.allowed:
            return list(self.parts.values())
        for part in self.parts.values():
            self.wanted |= part.passing
        self.now_wanted = self.wanted
        if too_many and merging.is_saturated(self.wanted):
            return None
        before = 0
        while before != len(self.parts):
            before = len(self.parts)
            self._link_all()
            if not self._contract_all():
                return None
            if len(self.parts) <= self.rows_max:
                return list(self.parts.values())
        return None

    def _contract_all(self) -> bool:
        """Merge linked pairs, cheapest first; False if that ends in wanting nearly everything."""
        merging = self.merging
        while self.heap:
            _, a, b = heappop(self.heap)
            if a not in self.parts or b not in self.parts:
                continue
            bits = _united(self.parts[a].bits, self.parts[b].bits)
            passing = merging.passing(bits)
            wanted = self.now_wanted | passing
            if len(self.parts) <= self.rows_max:
                if not merging.allowed:
                    return True
                if (wanted & ~self.wanted).bit_count() > merging.allowed:
                    continue
            elif merging.is_saturated(wanted):
                return False
            self.now_wanted = wanted
            self._contract(a, b, bits, passing)
        return True

    def _contract(self, a: int, b: int, bits: Bits, passing: int) -> None:
        first, second = self.parts.pop(a), self.parts.pop(b)
        around = {**self.neighbours.pop(a, {}), **self.neighbours.pop(b, {})}
        number = self.next_number
        self.next_number += 1
        # One that covers the other stays as it is.
        self.parts[number] = _coverer(first, second, bits) or _Part(
            bits,
            self.merging.mass(bits),
            passing,
            first.boxes + second.boxes,
            first.digests + second.digests,
        )
        near = sorted(other for other in around if other in self.parts)
        for other in near[:NEIGHBOURS_MAX]:
            self._link(other, number)

    def _link(self, a: int, b: int) -> None:
        """Consider merging two parts."""
        linked = self.neighbours.setdefault(a, {})
        if b in linked:
            return
        first, second = self.parts[a], self.parts[b]
        bits = _united(first.bits, second.bits)
        if not bits:
            return
        linked[b] = None
        self.neighbours.setdefault(b, {})[a] = None
        apart = first.mass + second.mass - first.mass * second.mass
        heappush(self.heap, (self.merging.mass(bits) - apart, min(a, b), max(a, b)))

    def _link_all(self) -> None:
        """Link the parts that are likely to go well together.

        Two that both let few events pass by one constraint have a hull that does so too, wherever
        their values lie. Two that share a pair of constraints keep both; there it is best if the
        values of one lie next to each other.
        """
        groups: dict[tuple[int, ...], list[tuple[int, Any, int]]] = {}
        for number, part in self.parts.items():
            places = self.merging.places(part)
            best, place = places[0]
            groups.setdefault((best,), []).append((part.bits[best].bit_count(), place, number))
            for (key, place), (other, other_place) in combinations(places, 2):
                if key < other:
                    groups.setdefault((key, other), []).append((0, place, number))
                else:
                    groups.setdefault((other, key), []).append((0, other_place, number))
        for members in groups.values():
            if len(members) > 1:
                members.sort()
                for distance in (1, 2):
                    for first, second in zip(members, members[distance:], strict=False):
                        self._link(first[2], second[2])


def _place(box: Box, key: Key) -> tuple[Any, ...]:
    """Where a box lies by the values of a constraint, as far as that can be compared."""
    if isinstance(key, TextTest):
        return (-1,)
    for kind_class, cuts in enumerate(box.domains[key].sets):
        if cuts:
            return (kind_class, cuts[0])
    return (-1,)


def _name(key: Key) -> tuple[Any, ...]:
    if isinstance(key, TextTest):
        return (1, key.path, key.operator, key.pattern)
    return (0, key)


def _united(first: Bits, second: Bits) -> Bits:
    return {key: bits | second[key] for key, bits in first.items() if key in second}


def _coverer(first: _Part, second: _Part, bits: Bits) -> _Part | None:
    """The part that covers the other, if both are rows."""
    if len(first.boxes) > 1 or len(second.boxes) > 1:
        return None
    for general, specific in ((first, second), (second, first)):
        if general.bits == bits and box_covers(general.boxes[0], specific.boxes[0]):
            return general
    return None
