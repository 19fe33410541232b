"""Finding intervals that contain, or lie within, a given one, without asking all of them.

All values that an attribute can have stand on one *line*: first "absent", then the values of each
class in their order, last those that do not compare. A *place* is a cut on that line. The *span* of
a domain goes from its first place to its last; gaps do not show. If one domain holds another, so do
their spans.

A `SpanIndex` keeps named spans in blocks, sorted by where they begin, and of each block the least
and the greatest end. Whether a block has a span that ends far enough, or early enough, is seen
without looking into it: but for the blocks at both ends of a question, each block that is looked
into has a span that is an answer. With n spans and k answers, a question looks at the ends of
n / BLOCK_MAX blocks and at no more than BLOCK_MAX * (k + 2) spans; a change moves those of a block.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

from peersub.events.kinds import comparable, is_missing
from peersub.filters.boxes import Path
from peersub.filters.domains import Domain
from peersub.filters.intervals import GREATEST, LEAST, Cut

__all__ = [
    "SPANNED_MIN",
    "WHOLE_LINE",
    "Answers",
    "Domains",
    "Place",
    "Span",
    "SpanIndex",
    "span_of_value",
    "span_at",
    "span_of",
    "spans_of",
]

BLOCK_MAX: Final = 128
"""Spans of a block, before it is divided."""
INTERVALS_MAX: Final = 64
"""Cuts of a domain up to which each of its intervals is looked up by itself."""

SPANNED_MIN: Final = 32
"""Filters up to which asking each is cheaper than keeping their spans."""

Domains = Mapping[Path, Domain]
Place = tuple[float, Any, int]
"""A cut: the class, then the cut in its order."""
_BESIDE: Final = 0.25
Span = tuple[Place, Place]

_ABSENT: Final[Span] = ((-1, 0, 0), (-1, 1, 0))
_OTHER: Final[Span] = ((5, 0, 0), (5, 1, 0))
WHOLE_LINE: Final[Span] = (_ABSENT[0], _OTHER[1])


def span_of(domain: Domain) -> Span:
    """From the first place of a domain that is not empty to its last.

    >>> from peersub.filters.filter import Filter
    >>> span_of(Filter("a > 5 AND a < 7 OR a = 9").boxes[0].domains[("a",)])
    ((0, 5, 1), (0, 9, 1))
    """
    filled = [number for number, cuts in enumerate(domain.sets) if cuts]
    if domain.absent:
        lower = _ABSENT[0]
    else:
        lower = _place(filled[0], domain.sets[filled[0]][0]) if filled else _OTHER[0]
    if domain.other:
        upper = _OTHER[1]
    else:
        upper = _place(filled[-1], domain.sets[filled[-1]][-1]) if filled else _ABSENT[1]
    return lower, upper


def span_at(domains: Domains, path: Path) -> Span:
    """The span of an attribute; what is not constrained has the whole line."""
    domain = domains.get(path)
    return WHOLE_LINE if domain is None else span_of(domain)


def spans_of(domain: Domain) -> Iterator[Span]:
    """The intervals of a domain, which do not touch; its span alone if they are many.

    >>> from peersub.filters.filter import Filter
    >>> list(spans_of(Filter("a < 7 AND a > 5 OR a = 9").boxes[0].domains[("a",)]))
    [((0, 5, 1), (0, 7, 0)), ((0, 9, 0), (0, 9, 1))]
    """
    if sum(map(len, domain.sets)) > INTERVALS_MAX:
        yield span_of(domain)
        return
    if domain.absent:
        yield _ABSENT
    for number, cuts in enumerate(domain.sets):
        for at in range(0, len(cuts), 2):
            yield _place(number, cuts[at]), _place(number, cuts[at + 1])
    if domain.other:
        yield _OTHER


def _place(number: int, cut: Cut) -> Place:
    # The ends of a class stand beside it: a number takes long to see that an end is none.
    if cut[0] is LEAST[0]:
        return (number - _BESIDE, 0, 0)
    return (number + _BESIDE, 0, 0) if cut[0] is GREATEST[0] else (number, *cut)


def span_of_value(value: object) -> Span:
    """Where a value, None or NaN standing for absent, begins: both ends are that place."""
    found = comparable(value)
    if found is not None:
        place: Place = (*found, 0)
    else:
        place = _ABSENT[0] if is_missing(value) else _OTHER[0]
    return place, place


Name = TypeVar("Name", int, bytes)


class _Block(Generic[Name]):
    """Spans that begin next to each other; the ends stand in the order of the beginnings."""

    __slots__ = ("begins", "ends", "greatest_end", "least_end")

    def __init__(self, begins: list[tuple[Place, Name]], ends: list[Place]) -> None:
        self.begins: list[tuple[Place, Name]] = begins
        self.ends = ends
        self.measure()

    def measure(self) -> None:
        self.least_end = min(self.ends)
        self.greatest_end = max(self.ends)


class Answers(Generic[Name]):
    """What a question has found, before the ends of the spans are compared one by one."""

    __slots__ = ("_end", "_is_least", "_stretches", "size")

    def __init__(
        self, stretches: list[tuple[_Block[Name], int, int]], end: Place, *, is_least: bool
    ) -> None:
        self._stretches: list[tuple[_Block[Name], int, int]] = stretches
        self._end = end
        self._is_least = is_least
        self.size: Final = sum(stop - start for _, start, stop in stretches)
        """How many names there are at most."""

    def names(self, names_max: int | None = None) -> Iterator[Name]:
        """The names, in no order that matters; of more than so many from both ends in turn."""
        if names_max is None or self.size <= names_max:
            return self._from(self._stretches, 1)
        last = self._from(reversed(self._stretches), -1)
        both = zip(self._from(self._stretches, 1), last, strict=True)
        return islice(chain.from_iterable(both), names_max)

    def _from(
        self, stretches: Iterable[tuple[_Block[Name], int, int]], step: int
    ) -> Iterator[Name]:
        """The names of the stretches, from the first place on or from the last."""
        end = self._end
        for block, start, stop in stretches:
            begins, ends = block.begins, block.ends
            places = range(start, stop)[::step]
            if self._is_least:
                yield from (begins[at][1] for at in places if ends[at] >= end)
            else:
                yield from (begins[at][1] for at in places if ends[at] <= end)


_begin: Final = itemgetter(0)


class SpanIndex(Generic[Name]):
    """Spans by name; a name may have several, and equal ones.

    >>> from peersub.filters.filter import Filter
    >>> index = SpanIndex[int]()
    >>> for name, text in enumerate(("a > 1 AND a < 9", "a >= 3 AND a < 5", "a > 4")):
    ...     index.add(span_of(Filter(text).boxes[0].domains[("a",)]), name)
    >>> list(index.containing(span_of(Filter("a = 4").boxes[0].domains[("a",)])).names())
    [0, 1]
    """

    __slots__ = ("_blocks", "_firsts")

    def __init__(self) -> None:
        self._blocks: list[_Block[Name]] = []
        # Where each block begins.
        self._firsts: list[tuple[Place, Name]] = []

    def __len__(self) -> int:
        return sum(len(block.begins) for block in self._blocks)

    def add(self, span: Span, name: Name) -> None:
        """Put a span in."""
        begin, end = (span[0], name), span[1]
        if not self._blocks:
            self._blocks.append(_Block([begin], [end]))
            self._firsts.append(begin)
            return
        number = max(bisect_right(self._firsts, begin) - 1, 0)
        block = self._blocks[number]
        at = bisect_right(block.begins, begin)
        block.begins.insert(at, begin)
        block.ends.insert(at, end)
        self._firsts[number] = block.begins[0]
        block.least_end = min(block.least_end, end)
        block.greatest_end = max(block.greatest_end, end)
        if len(block.begins) > BLOCK_MAX:
            self._divide(number)

    def _divide(self, number: int) -> None:
        block = self._blocks[number]
        half = len(block.begins) // 2
        second = _Block(block.begins[half:], block.ends[half:])
        del block.begins[half:], block.ends[half:]
        block.measure()
        self._blocks.insert(number + 1, second)
        self._firsts.insert(number + 1, second.begins[0])

    def discard(self, span: Span, name: Name) -> None:
        """Take a span out; it must be there."""
        begin, end = (span[0], name), span[1]
        # Equal beginnings of one name may go on into the next blocks.
        number = max(bisect_left(self._firsts, begin) - 1, 0)
        while True:
            block = self._blocks[number]
            at = bisect_left(block.begins, begin)
            while at < len(block.begins) and block.begins[at] == begin and block.ends[at] != end:
                at += 1
            if at < len(block.begins):
                break
            number += 1
        assert block.begins[at] == begin
        del block.begins[at], block.ends[at]
        self._tidy(number, end)

    def _tidy(self, number: int, end: Place) -> None:
        """Measure a block anew that lost a span with this end; join it with the next if small."""
        block = self._blocks[number]
        if number + 1 < len(self._blocks):
            following = self._blocks[number + 1]
            if len(block.begins) + len(following.begins) <= BLOCK_MAX // 2:
                block.begins += following.begins
                block.ends += following.ends
                del self._blocks[number + 1], self._firsts[number + 1]
                block.measure()
        if not block.begins:
            del self._blocks[number], self._firsts[number]
            return
        self._firsts[number] = block.begins[0]
        if end in (block.least_end, block.greatest_end):
            block.measure()

    def containing(self, span: Span) -> Answers[Name]:
        """The spans that hold the given one."""
        return self._reaching(span[0], span[1])

    def touching(self, span: Span) -> Answers[Name]:
        """The spans that have a place in common with the given one."""
        return self._reaching(span[1], span[0])

    def _reaching(self, begin_max: Place, end_min: Place) -> Answers[Name]:
        """The spans that begin no later than the one place, and end no earlier than the other."""
        last = bisect_right(self._firsts, begin_max, key=_begin) - 1
        stretches = [
            (block, 0, len(block.begins))
            for block in self._blocks[: max(last, 0)]
            if block.greatest_end >= end_min
        ]
        if last >= 0 and self._blocks[last].greatest_end >= end_min:
            block = self._blocks[last]
            stretches.append((block, 0, bisect_right(block.begins, begin_max, key=_begin)))
        return Answers(stretches, end_min, is_least=True)

    def within(self, spans: Iterable[Span], end_max: Place) -> Answers[Name]:
        """Those that begin in one of the spans, which do not touch, and end by the last place."""
        stretches = []
        for begin_min, begin_max in spans:
            first = max(bisect_left(self._firsts, begin_min, key=_begin) - 1, 0)
            last = bisect_right(self._firsts, begin_max, key=_begin) - 1
            for number in range(first, last + 1):
                block = self._blocks[number]
                if block.least_end > end_max:
                    continue
                begins, start, stop = block.begins, 0, len(block.begins)
                if number == first:
                    start = bisect_left(begins, begin_min, key=_begin)
                if number == last:
                    stop = bisect_right(begins, begin_max, key=_begin)
                stretches.append((block, start, stop))
        return Answers(stretches, end_max, is_least=False)
