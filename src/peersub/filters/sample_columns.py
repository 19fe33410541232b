"""A sample of events by columns: which of them lie in a domain, as bits, without asking each.

Bit i stands for the i-th event. Per attribute and class the values are sorted once; an interval is
then two look-ups in the sorted values and the difference of two prefixes. Bits of a union of
domains are the union of their bits, bits of a box the intersection of its constraints' bits:
exactly what `box_matches` says, event by event.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any, Final

from peersub.events.kinds import KindClass, comparable, is_missing, value_at
from peersub.filters.boxes import FALSE, TRUE, UNDEFINED, Box, Path
from peersub.filters.domains import Domain
from peersub.filters.intervals import Cut
from peersub.filters.patterns import TextTest

__all__ = ["SampleColumns"]

_STRIDE: Final = 64
"""Every so many values a prefix is kept: memory against time."""
_DENSE_MAX: Final = 1_024
"""Up to so many values a prefix is kept for each: that is 128 kB."""


class SampleColumns:
    """The attributes of some events, turned into columns as they are asked for."""

    def __init__(self, events: Sequence[Mapping[str, Any]]) -> None:
        self._events = events
        self._columns: dict[Path, _Column] = {}
        self._outcomes: dict[TextTest, tuple[int, int, int]] = {}
        self.all_bits: Final = (1 << len(events)) - 1

    def domain_bits(self, path: Path, domain: Domain) -> int:
        """The events whose value of the attribute lies in the domain."""
        column = self._columns.get(path)
        if column is None:
            column = _Column([value_at(event, path) for event in self._events])
            self._columns[path] = column
        return column.bits(domain)

    def test_bits(self, test: TextTest, truth: int) -> int:
        """The events for which the test comes out as one of the truths."""
        outcomes = self._outcomes.get(test)
        if outcomes is None:
            outcomes = self._outcomes[test] = self._try(test)
        return sum(
            bits
            for outcome, bits in zip((TRUE, FALSE, UNDEFINED), outcomes, strict=True)
            if truth & outcome
        )

    def _try(self, test: TextTest) -> tuple[int, int, int]:
        true = false = 0
        for place, event in enumerate(self._events):
            found = comparable(value_at(event, test.path))
            if found is not None and found[0] is KindClass.STRING:
                holds = test.holds(found[1])
                true |= holds << place
                false |= (not holds) << place
        return true, false, self.all_bits & ~true & ~false

    def box_bits(self, box: Box) -> int:
        """The events that lie in the box.

        >>> from peersub.filters.filter import Filter
        >>> columns = SampleColumns([{"a": 1}, {"a": 2, "b": 1}, {"b": 1}])
        >>> bin(columns.box_bits(Filter("a > 1 AND b = 1").boxes[0]))
        '0b10'
        """
        constraints = (
            *(self.domain_bits(path, domain) for path, domain in box.domains.items()),
            *(self.test_bits(test, truth) for test, truth in box.tests.items()),
        )
        return reduce(and_, constraints, self.all_bits)


class _Column:
    """The values of one attribute."""

    __slots__ = ("absent", "classes", "other")

    def __init__(self, values: Iterable[object]) -> None:
        self.absent = self.other = 0
        found: list[list[tuple[Any, int]]] = [[] for _ in KindClass]
        for place, value in enumerate(values):
            key = comparable(value)
            if key is not None:
                found[key[0]].append((key[1], place))
            elif is_missing(value):
                self.absent |= 1 << place
            else:
                self.other |= 1 << place
        self.classes = [_SortedValues(pairs) for pairs in found]

    def bits(self, domain: Domain) -> int:
        bits = (self.absent if domain.absent else 0) | (self.other if domain.other else 0)
        for values, cuts in zip(self.classes, domain.sets, strict=True):
            if cuts and values.keys:
                for lower, upper in zip(cuts[::2], cuts[1::2], strict=True):
                    bits |= values.below(upper) & ~values.below(lower)
        return bits


class _SortedValues:
    """The values of one class, with the events that have them."""

    __slots__ = ("keys", "places", "prefixes", "stride")

    def __init__(self, pairs: list[tuple[Any, int]]) -> None:
        pairs.sort()
        self.keys = [key for key, _ in pairs]
        self.places = [place for _, place in pairs]
        self.stride = 1 if len(pairs) <= _DENSE_MAX else _STRIDE
        self.prefixes = [0]
        for start in range(0, len(pairs), self.stride):
            more = _bits_of(self.places[start : start + self.stride])
            self.prefixes.append(self.prefixes[-1] | more)

    def below(self, cut: Cut) -> int:
        """The events whose value lies below the cut."""
        key, side = cut
        rank = (bisect_right if side else bisect_left)(self.keys, key)
        whole, rest = divmod(rank, self.stride)
        if not rest:
            return self.prefixes[whole]
        return self.prefixes[whole] | _bits_of(self.places[rank - rest : rank])


def _bits_of(places: Iterable[int]) -> int:
    bits = 0
    for place in places:
        bits |= 1 << place
    return bits
