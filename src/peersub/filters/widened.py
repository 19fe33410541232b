"""Cheaper filters in place of dear ones: they match whatever the dear one matches, and more.

A home matches a subscription exactly. Others only need to know where events may be wanted, so what
they are told of a dear filter is `widen(filter)`, which costs at most ROW_PRICE_MAX. At worst that
is everything, which each subscriber may ask for anyway. It is told in parts (`parts_of`), of which
each is a row by itself: no node works with more than PART_PRICE_MAX in one go.

What comes over a link and costs more than a filter may is not read at all: it is an `UnreadFilter`,
known by its bytes. A client is refused with it; in a routing table it counts as wanting everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import add
from typing import TYPE_CHECKING, Final, cast

from peersub.filters.boxes import UNIVERSE, Box, Path
from peersub.filters.domains import Domain
from peersub.filters.filter import Filter
from peersub.filters.intervals import IntervalSet
from peersub.filters.price import PART_PRICE_MAX, ROW_PRICE_MAX, Price, price_of_boxes
from peersub.filters.summary import bounding_domains
from peersub.filters.wire_form import boxes_to_bytes, digest_of

if TYPE_CHECKING:
    from peersub.filters.xpath.pattern import PatternNode

__all__ = ["UnreadFilter", "parts_of", "widen"]

HULLS_MAX: Final = 16
"""Boxes of a widened filter."""
CONSTRAINTS_PER_HULL_MAX: Final = 8
TEXT_CHARACTERS_MAX: Final = 256
"""Characters of the texts in one constraint of a widened filter; one with more is left out."""
PARTS_MAX: Final = 24
"""Rows that others are told of one filter."""
DIVIDED_CUTS: Final = 64
"""Ends of the intervals that an attribute keeps in one part of a box that is divided."""
CONSTRAINT_UNITS_MIN: Final = 2
"""Units of a conjunction with one constraint, at least."""
PATTERN_DEPTHS: Final = (4, 2, 1)
"""How many steps of a dear tree pattern are tried, in turn."""


def widen(wanted: Filter, price_max: int = ROW_PRICE_MAX) -> Filter:
    """The filter itself if it costs at most `price_max`, else a cheaper one that covers it.

    >>> widen(Filter("a = 1 OR b = 2")).text
    'a = 1 OR b = 2'
    """
    if wanted.language != "sql" or wanted.price.units <= price_max:
        return wanted
    boxes = wanted.boxes
    step = -(-len(boxes) // HULLS_MAX)
    # Boxes are sorted by the names of their attributes: near ones constrain the same.
    groups = (boxes[start : start + step] for start in range(0, len(boxes), step))
    return Filter.from_boxes(map(_hull, groups))


def _hull(boxes: tuple[Box, ...]) -> Box:
    """A box of few constraints, without text tests, that holds all of the boxes."""
    domains = bounding_domains(boxes)
    short = [path for path in sorted(domains) if _is_short(domains[path])]
    return Box({path: domains[path] for path in short[:CONSTRAINTS_PER_HULL_MAX]}, {})


def _is_short(domain: Domain) -> bool:
    keys = [key for cuts in domain.sets for key, _ in cuts]
    texts = sum(len(key) for key in keys if isinstance(key, str))
    return len(keys) <= TEXT_CHARACTERS_MAX and texts <= TEXT_CHARACTERS_MAX


# --- parts -----------------------------------------------------------------------------------


def parts_of(wanted: Filter, price_max: int = PART_PRICE_MAX) -> tuple[Filter, ...]:
    """Filters of at most `price_max` each that together cover the filter; itself if it is cheap.

    Together they match no more than `widen(filter)` does, unless a single conjunction costs more.
    """
    if wanted.price.units <= price_max:
        return (wanted,)
    # Kept as long as the filter: a node works them out off its loop, before it tells them.
    known: tuple[int, tuple[Filter, ...]] | None = wanted.__dict__.get("_parts")
    if known is None or known[0] != price_max:
        known = wanted.__dict__["_parts"] = price_max, _made_parts(wanted, price_max)
    return known[1]


def _made_parts(wanted: Filter, price_max: int) -> tuple[Filter, ...]:
    if wanted.language != "sql":
        return (_shallow(wanted, price_max),)
    boxes = [part for box in widen(wanted).boxes for part in _divided(box, price_max)]
    parts = _joined(boxes, price_max)
    if len(parts) <= PARTS_MAX:
        return parts
    hulls = widen(wanted, price_max=0).boxes
    return _joined([_trimmed(box, price_max) for box in hulls], price_max)


def _units(*boxes: Box) -> int:
    return price_of_boxes(boxes, len(boxes_to_bytes(boxes))).units


def _joined(boxes: Iterable[Box], price_max: int) -> tuple[Filter, ...]:
    """The boxes, as many in a filter as it may cost."""
    groups: list[list[Box]] = []
    so_far = price_of_boxes(())
    for box in boxes:
        # Of parts that have patterns in common the sum is more than they cost together.
        price = price_of_boxes((box,), len(boxes_to_bytes((box,))))
        so_far = Price(*map(add, so_far, price))
        if not groups or so_far.units > price_max:
            groups.append([])
            so_far = price
        groups[-1].append(box)
    return tuple(dict.fromkeys(map(Filter.from_boxes, groups)))


def _divided(box: Box, price_max: int) -> Iterator[Box]:
    """Boxes of at most such a price that together hold the box; more than it if need be."""
    if _units(box) <= price_max:
        yield box
        return
    path = max(box.domains, key=lambda path: _cuts(box.domains[path]), default=None)
    if path is None or _cuts(box.domains[path]) <= DIVIDED_CUTS:
        yield _trimmed(box, price_max)
        return
    for domain in _portions(box.domains[path]):
        yield from _divided(Box({**box.domains, path: domain}, box.tests), price_max)


def _cuts(domain: Domain) -> int:
    return max(map(len, domain.sets))


def _portions(domain: Domain) -> Iterator[Domain]:
    """The domain in parts, of at most so many intervals of the class that has most of them."""
    largest = max(range(len(domain.sets)), key=lambda number: len(domain.sets[number]))
    cuts = domain.sets[largest]
    for start in range(0, len(cuts), DIVIDED_CUTS):
        few: IntervalSet = cuts[start : start + DIVIDED_CUTS]
        sets = [few if n == largest else () if start else s for n, s in enumerate(domain.sets)]
        number, string, boolean, date, timestamp = sets
        is_first = start == 0
        yield Domain(
            domain.absent and is_first,
            domain.other and is_first,
            (number, string, boolean, date, timestamp),
        )


def _trimmed(box: Box, price_max: int) -> Box:
    """The box with as many of its constraints as may be, in their order; text tests come last."""
    domains: dict[Path, Domain] = {}
    left = price_max - _units(UNIVERSE)
    for path in sorted(box.domains):
        if left <= CONSTRAINT_UNITS_MIN:
            break  # Boxes may have thousands of them.
        units = _units(Box({path: box.domains[path]}, {}))
        if units < left:
            domains[path] = box.domains[path]
            left -= units
    trimmed = Box(domains, {})
    for test, truth in sorted(box.tests.items()):
        more = Box(domains, {**trimmed.tests, test: truth})
        if test.path in domains and _units(more) <= price_max:
            trimmed = more
    return trimmed


def _shallow(wanted: Filter, price_max: int) -> Filter:
    """A tree pattern with fewer steps; the root's label alone if nothing else is cheap enough."""
    from peersub.filters.xpath.conditions import ANY_TEXT
    from peersub.filters.xpath.xpath_filter import XPathFilter

    pattern = cast("XPathFilter", wanted).pattern
    assert pattern is not None, "what matches nothing is cheap"
    for depth in PATTERN_DEPTHS:
        made = XPathFilter.from_pattern(_cut_off(pattern, depth))
        if made.price.units <= price_max:
            return made
    bare = replace(pattern, attributes=(), texts=(), branches=(), value=ANY_TEXT)
    return XPathFilter.from_pattern(bare)


def _cut_off(node: PatternNode, depth: int) -> PatternNode:
    """The pattern without what lies below so many steps: it matches no less."""
    branches = node.branches if depth > 1 else ()
    return replace(node, branches=tuple(_cut_off(each, depth - 1) for each in branches))


class UnreadFilter(Filter):
    """A filter of which only the bytes are known; it is taken to match everything.

    It covers nothing but itself: whoever reads it may find that it wants less.

    Args:
        data: its bytes.
        refusal: why it was not read, for people.
    """

    is_read = False

    def __init__(self, data: bytes, refusal: str) -> None:
        self.refusal = refusal
        self.source = ""
        self.boxes = (UNIVERSE,)
        self._data = data
        # As cached properties hold them.
        self.__dict__.update(digest=digest_of(data), text="TRUE", price=Price(1, 0, 0, 0, 0, 0))

    def to_bytes(self) -> bytes:
        """The bytes as they came."""
        return self._data

    @property
    def is_everything(self) -> bool:
        """Not proven."""
        return False

    def covers(self, other: Filter) -> bool:
        """Only what has the same bytes."""
        return self.digest == other.digest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnreadFilter) and self._data == other._data

    def __hash__(self) -> int:
        return hash(self.digest)
