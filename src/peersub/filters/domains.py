"""The values that a box allows one attribute: absent, one interval set per class, or something
else.

"Absent" is a value like any other: a box without a constraint on an attribute accepts its absence,
one with a comparison does not. Forgetting this makes covering unsound for events of different
shapes. "Other" stands for values that are there and do not compare: records, arrays, binary.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import and_, gt, or_
from typing import Final, NamedTuple

from peersub.events.kinds import KindClass, comparable, is_missing
from peersub.filters import intervals
from peersub.filters.intervals import EMPTY, FULL, Cut, IntervalSet

__all__ = [
    "ABSENT",
    "CLASSES",
    "EVERYTHING",
    "NOTHING",
    "PRESENT",
    "Domain",
    "intersection_of",
    "of_class",
    "union_of",
]

_SetOperation = Callable[[IntervalSet, IntervalSet], IntervalSet]
_FlagOperation = Callable[[bool, bool], bool]
Sets = tuple[IntervalSet, IntervalSet, IntervalSet, IntervalSet, IntervalSet]
"""One interval set per KindClass, in the order of its numbers."""


class Domain(NamedTuple):
    """A set of values of one attribute. A tuple, since many are hashed and compared."""

    absent: bool
    other: bool
    sets: Sets

    @property
    def is_empty(self) -> bool:
        """Whether no value is left."""
        return not (self.absent or self.other or any(self.sets))

    @property
    def is_everything(self) -> bool:
        """Whether nothing is excluded."""
        return self.absent and self.other and all(cuts == FULL for cuts in self.sets)

    def contains(self, value: object) -> bool:
        """Whether a value, None or NaN standing for absent, lies in the domain."""
        place = comparable(value)
        if place is None:
            return self.absent if is_missing(value) else self.other
        kind_class, key = place
        cuts = self.sets[kind_class]
        return bool(cuts) and intervals.contains_value(cuts, key)

    def intersection(self, other: Domain) -> Domain:
        """What lies in both."""
        return self._combine(other, intervals.intersection, and_)

    def union(self, other: Domain) -> Domain:
        """What lies in either."""
        return self._combine(other, intervals.union, or_)

    def difference(self, other: Domain) -> Domain:
        """What lies in this one only."""
        return self._combine(other, intervals.difference, gt)

    def _combine(self, other: Domain, sets: _SetOperation, flags: _FlagOperation) -> Domain:
        a, b = self.sets, other.sets
        return Domain(
            flags(self.absent, other.absent),
            flags(self.other, other.other),
            (
                sets(a[0], b[0]),
                sets(a[1], b[1]),
                sets(a[2], b[2]),
                sets(a[3], b[3]),
                sets(a[4], b[4]),
            ),
        )

    def is_subset(self, other: Domain) -> bool:
        """Whether all of this domain lies in the other."""
        if self is other:
            return True
        if (self.absent and not other.absent) or (self.other and not other.other):
            return False
        others = other.sets
        for number, cuts in enumerate(self.sets):
            # Nearly all domains have values of one class.
            if cuts and not intervals.is_subset(cuts, others[number]):
                return False
        return True

    @property
    def first_place(self) -> tuple[int, Cut]:
        """Where its first value lies, of a domain without "absent": a class, and the cut before."""
        for number, cuts in enumerate(self.sets):
            if cuts:
                return number, cuts[0]
        return OTHER_PLACE

    def holds(self, place: tuple[int, Cut] | None) -> bool:
        """Whether the value just after a cut lies in the domain; None stands for absent."""
        if place is None:
            return self.absent
        if place is OTHER_PLACE:
            return self.other
        return bisect_right(self.sets[place[0]], place[1]) % 2 == 1

    @property
    def only_class(self) -> KindClass | None:
        """The class whose values alone the domain holds, if there is just one."""
        if self.absent or self.other:
            return None
        found = None
        for number, cuts in enumerate(self.sets):
            if cuts:
                if found is not None:
                    return None
                found = CLASSES[number]
        return found


CLASSES: Final = tuple(KindClass)
"""In the order of their numbers. Going through an enum takes longer than what is done on the way.
"""
OTHER_PLACE: Final = (len(KindClass), intervals.LEAST)
"""Where values lie that do not compare."""
_NO_SETS: Final[Sets] = (EMPTY, EMPTY, EMPTY, EMPTY, EMPTY)
_ALL_SETS: Final[Sets] = (FULL, FULL, FULL, FULL, FULL)
EVERYTHING: Final = Domain(True, True, _ALL_SETS)
PRESENT: Final = Domain(False, True, _ALL_SETS)
ABSENT: Final = Domain(True, False, _NO_SETS)
NOTHING: Final = Domain(False, False, _NO_SETS)


def of_class(kind_class: KindClass, cuts: IntervalSet) -> Domain:
    """The values of one class that lie in the cuts, and nothing else.

    >>> of_class(KindClass.NUMBER, intervals.between((5, 1), intervals.GREATEST)).contains(5.5)
    True
    """
    sets = [EMPTY, EMPTY, EMPTY, EMPTY, EMPTY]
    sets[kind_class] = cuts
    number, string, boolean, date, timestamp = sets
    return Domain(False, False, (number, string, boolean, date, timestamp))


def intersection_of(domains: Sequence[Domain]) -> Domain:
    """What lies in all of them."""
    if len(domains) == 2:
        return domains[0].intersection(domains[1])
    return _combination(domains, all, intervals.intersection_of)


def union_of(domains: Sequence[Domain]) -> Domain:
    """What lies in any of them."""
    if len(domains) == 1:
        return domains[0]
    if len(domains) == 2:
        return domains[0].union(domains[1])
    return _combination(domains, any, intervals.union_of)


def _combination(
    domains: Sequence[Domain],
    flags: Callable[[Iterable[bool]], bool],
    sets: Callable[[Iterable[IntervalSet]], IntervalSet],
) -> Domain:
    number, string, boolean, date, timestamp = (
        sets([domain.sets[kind_class] for domain in domains]) for kind_class in KindClass
    )
    return Domain(
        flags(domain.absent for domain in domains),
        flags(domain.other for domain in domains),
        (number, string, boolean, date, timestamp),
    )
