"""From filters and events to bits: which attributes a filter demands, and which an event has.

The paper takes the bits for given (§2), and leaves open how content becomes bits (§4.1) and how
values are filtered (§4.2). Here each box of a filter's normal form demands what every event in it
has; that is an identifier of the filter, and the filter itself is what the host of the identifier
asks events. The law, for every map of attributes:

    whenever a filter matches an event, an identifier of the filter is a subset of the event's bits.

A box demands an attribute if no event without it lies in the box: a comparison demands it, a text
test too, IS NULL and `x > 1 OR x IS NULL` do not. An XPath pattern demands nothing: the empty
identifier, which every event visits.

All nodes share one *map*: a text of entries, `;` between them, each of which takes the next bits,
lowest first.

================== ============================================================================
`symbol`           one bit: the event has the attribute; dotted names reach into records
`price: 10, 20`    numbers in buckets, here three bits: below 10, from 10, from 20
`symbol # 8`       values in so many buckets by their hash, a bit for each
`price < 10`       any other predicate: one bit, set in the events that match it, and demanded by
                   the filters that it covers. Predicates that contain each other make a
                   hierarchy: coarse bits route, and the filter tells the fine ones (§4.1)
================== ============================================================================

Outermost names that have no entry are hashed to the bits that are left; where two meet in one bit,
events go to more places than they need, and nobody is missed. Of a name that leads into a record
its first part counts.

A box that lies in several buckets gives an identifier for each. Of all identifiers of a filter only
the smallest are kept: an event that has the larger one visits the host of the smaller one anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from math import isfinite
from typing import Any

from peersub.events.envelope import number_name
from peersub.events.kinds import KindClass, comparable, is_missing, value_at
from peersub.filters.boxes import UNDEFINED, Box, Path
from peersub.filters.domains import ABSENT, Domain, of_class, union_of
from peersub.filters.errors import FilterError
from peersub.filters.filter import Filter
from peersub.filters.intervals import GREATEST, LEAST, between, cut_before, single_points
from peersub.overlays.core.draws import draw_below
from peersub.overlays.reach.identifiers import IDENTIFIER_BITS_MAX

__all__ = [
    "IDENTIFIERS_PER_FILTER_MAX",
    "AttributeMap",
    "MapError",
    "chosen_map",
    "smallest",
]

IDENTIFIERS_PER_FILTER_MAX = 16
"""Places that a filter is kept at; what would need more is kept at the one of what all share."""
ALTERNATIVES_PER_BOX_MAX = 8
"""Identifiers that one box is split into by buckets; beyond, buckets are not asked."""
HASHED_VALUES_MAX = 64
"""Values that a box may name for their hash to be asked."""
HOT_SHARE = 0.5
"""An attribute that more events have than this is worth buckets, when a map is chosen."""
_SIGNS = ";:#"
"""What separates the parts of a map: a name that has one of them cannot be registered."""


class MapError(ValueError):
    """A text that is no map of attributes; the message says which part, and what can be."""


@dataclass(frozen=True, slots=True)
class _Presence:
    """A bit for the events that have an attribute."""

    path: Path
    first: int
    count: int = 1

    def event_bits(self, attributes: Mapping[str, Any]) -> int:
        return 0 if is_missing(value_at(attributes, self.path)) else 1 << self.first

    def alternatives(self, box: Box) -> list[int]:
        # What is in a record is there only if the record is.
        below = [path for path in _demanded(box) if path[: len(self.path)] == self.path]
        return [1 << self.first if below else 0]


@dataclass(frozen=True, slots=True)
class _Ranges:
    """A bit for each of some ranges of numbers; other values have none of them."""

    path: Path
    ranges: tuple[Domain, ...]
    first: int

    @property
    def count(self) -> int:
        return len(self.ranges)

    def event_bits(self, attributes: Mapping[str, Any]) -> int:
        value = value_at(attributes, self.path)
        for place, domain in enumerate(self.ranges):
            if domain.contains(value):
                return 1 << self.first + place
        return 0

    def alternatives(self, box: Box) -> list[int]:
        domain = box.domain(self.path)
        if not domain.is_subset(union_of(list(self.ranges))):
            return [0]
        return [
            1 << self.first + place
            for place, part in enumerate(self.ranges)
            if not domain.intersection(part).is_empty
        ]


@dataclass(frozen=True, slots=True)
class _Hashed:
    """A bit for each of some buckets, into which values that compare fall by their hash."""

    path: Path
    first: int
    count: int

    def event_bits(self, attributes: Mapping[str, Any]) -> int:
        place = comparable(value_at(attributes, self.path))
        return 0 if place is None else 1 << self.first + self._bucket(*place)

    def alternatives(self, box: Box) -> list[int]:
        domain = box.domain(self.path)
        if domain.absent or domain.other:
            return [0]
        buckets: dict[int, None] = {}
        for kind_class in KindClass:
            keys = single_points(kind_class, domain.sets[kind_class])
            if keys is None or len(keys) > HASHED_VALUES_MAX:
                return [0]
            buckets.update(dict.fromkeys(self._bucket(kind_class, key) for key in keys))
        return [1 << self.first + bucket for bucket in sorted(buckets)]

    def _bucket(self, kind_class: KindClass, key: Any) -> int:
        """The same for values that compare equal, whatever their kind."""
        text = number_name(key) if kind_class is KindClass.NUMBER else str(key)
        return draw_below(self.count, 0, "reach/bucket", int(kind_class), text)


@dataclass(frozen=True, slots=True)
class _Predicate:
    """A bit for the events that match a predicate."""

    predicate: Filter
    first: int
    count: int = 1

    def event_bits(self, attributes: Mapping[str, Any]) -> int:
        return 1 << self.first if self.predicate.matches(attributes) else 0

    def alternatives(self, box: Box) -> list[int]:
        return [1 << self.first if self.predicate.covers(Filter.from_boxes([box])) else 0]


_Entry = _Presence | _Ranges | _Hashed | _Predicate
"""What some bits stand for, `count` of them from `first` on.

`event_bits` are those that an event has; of the `alternatives` of a box each event in it has one,
[0] if nothing can be said.
"""


class AttributeMap:
    """The bits of a network: what nodes must agree on.

    >>> bits = AttributeMap(8, "symbol; price: 10")
    >>> [f"{each:b}" for each in bits.identifiers(Filter("symbol = 'A' AND price > 20"))]
    ['101']
    >>> f"{bits.event_bits({'symbol': 'A', 'price': 3}):b}"
    '11'

    Args:
        identifier_bits: how many there are: a network has at most 2 to this power places.
        entries: what the low-order bits stand for; see the module.

    Raises:
        MapError: the entries cannot be read, or need more bits.
    """

    def __init__(self, identifier_bits: int, entries: str = "") -> None:
        if not 1 <= identifier_bits <= IDENTIFIER_BITS_MAX:
            raise MapError(f"identifiers have 1 to {IDENTIFIER_BITS_MAX} bits")
        self.identifier_bits = identifier_bits
        self._entries: list[_Entry] = []
        self._named: dict[str, None] = {}
        used = 0
        for text in entries.split(";"):
            if text.strip():
                entry = _entry(text.strip(), used)
                self._entries.append(entry)
                used += entry.count
                if not isinstance(entry, _Predicate) and len(entry.path) == 1:
                    self._named[entry.path[0]] = None
        if used > identifier_bits:
            raise MapError(f"the entries take {used} bits, and identifiers have {identifier_bits}")
        self._used = used

    def event_bits(self, attributes: Mapping[str, Any]) -> int:
        """The identifier of an event: all that it has."""
        bits = 0
        for entry in self._entries:
            bits |= entry.event_bits(attributes)
        for name, value in attributes.items():
            if name not in self._named and not is_missing(value):
                bits |= self._hashed_bit(name)
        return bits

    def identifiers(self, wanted: Filter) -> tuple[int, ...]:
        """The identifiers of a filter, sorted; none if it can match nothing."""
        if wanted.is_nothing:
            return ()
        if wanted.language != "sql":
            return (0,)
        found: dict[int, None] = {}
        for box in wanted.boxes:
            found.update(dict.fromkeys(self._box_identifiers(box)))
        return smallest(found)

    def _box_identifiers(self, box: Box) -> list[int]:
        base = 0
        for path in _demanded(box):
            if path[0] not in self._named:
                base |= self._hashed_bit(path[0])
        identifiers = [base]
        for entry in self._entries:
            bits = entry.alternatives(box)
            if bits != [0] and len(identifiers) * len(bits) <= ALTERNATIVES_PER_BOX_MAX:
                identifiers = [known | each for known in identifiers for each in bits]
        return identifiers

    def _hashed_bit(self, name: str) -> int:
        free = self.identifier_bits - self._used
        if not free:
            return 0
        return 1 << self._used + draw_below(free, 0, "reach/attribute", name)


def smallest(identifiers: Iterable[int]) -> tuple[int, ...]:
    """Those that contain no other one, sorted; if they are too many, what all of them share.

    >>> smallest([0b110, 0b010, 0b101])
    (2, 5)
    """
    kept: list[int] = []
    for each in sorted(identifiers, key=lambda number: (number.bit_count(), number)):
        if not any(other & ~each == 0 for other in kept):
            kept.append(each)
    if len(kept) > IDENTIFIERS_PER_FILTER_MAX:
        shared = kept[0]
        for each in kept:
            shared &= each
        kept = [shared]
    return tuple(sorted(kept))


def _demanded(box: Box) -> list[Path]:
    """The attributes that all events in a box have."""
    paths = {path: None for path, domain in box.domains.items() if not domain.absent}
    paths.update({test.path: None for test, truth in box.tests.items() if not truth & UNDEFINED})
    return list(paths)


# --- reading a map -------------------------------------------------------------------------------


def _entry(text: str, first: int) -> _Entry:
    name, colon, bounds = text.partition(":")
    path = _path(name) if colon else None
    if path is not None:
        return _Ranges(path, _ranges(text, bounds), first)
    name, sign, count = text.partition("#")
    path = _path(name)
    if path is not None and sign:
        if not count.strip().isdigit() or not 1 <= int(count) <= IDENTIFIER_BITS_MAX:
            raise MapError(f"a number of buckets follows #, not as in {text!r}")
        return _Hashed(path, first, int(count))
    if path is not None:
        return _Presence(path, first)
    try:
        return _Predicate(Filter(text), first)
    except FilterError as error:
        raise MapError(f"{text!r} is no entry of a map: {error}") from None


def _path(name: str) -> Path | None:
    """The path that a name, written as in a filter, stands for; None if it is none."""
    try:
        boxes = Filter(f"{name} IS NULL").boxes
    except FilterError:
        return None
    if len(boxes) == 1 and not boxes[0].tests and list(boxes[0].domains.values()) == [ABSENT]:
        return next(iter(boxes[0].domains))
    return None


def _ranges(text: str, bounds: str) -> tuple[Domain, ...]:
    try:
        keys = [Decimal(part.strip()) for part in bounds.split(",")]
    except InvalidOperation:
        raise MapError(f"bounds are numbers, not as in {text!r}") from None
    if not all(key.is_finite() for key in keys) or keys != sorted(set(keys)):
        raise MapError(f"bounds rise, not as in {text!r}")
    cuts = [LEAST, *(cut_before(KindClass.NUMBER, _plain(key)) for key in keys), GREATEST]
    return tuple(
        of_class(KindClass.NUMBER, between(lower, upper)) for lower, upper in pairwise(cuts)
    )


def _plain(key: Decimal) -> Any:
    """The key of a number in the order of values."""
    place = comparable(key)
    assert place is not None
    return place[1]


# --- choosing a map ------------------------------------------------------------------------------


def chosen_map(
    events: Sequence[Mapping[str, Any]],
    filters: Iterable[Filter],
    identifier_bits: int,
    *,
    buckets: int = 0,
    fine: bool = False,
) -> str:
    """A map for a workload that these are a sample of: what few events have gets the low bits.

    An event visits as many places as there are subsets of its bits in the length of the places, so
    the bits that places have should seldom be set. Attributes that no filter demands get no bit.
    With `buckets`, an attribute that most events have gets so many bits for its values. With
    `fine`, the bits that are left tell the halves of numbers apart: places have the coarse bits
    before them, by which events are routed, and the fine ones keep filters from being asked.
    """
    demanded: Counter[str] = Counter()
    for wanted in filters:
        if wanted.language == "sql":
            names = {path[0]: None for box in wanted.boxes for path in _demanded(box)}
            demanded.update(names.keys())
    present: Counter[str] = Counter()
    for attributes in events:
        present.update(name for name in attributes if not is_missing(attributes[name]))
    entries: list[tuple[float, str, int]] = []
    for name in _writable(demanded):
        share = present[name] / max(len(events), 1)
        if buckets > 1 and share > HOT_SHARE:
            text = f"{_written(name)}{_split(name, events, buckets)}"
            entries.append((share / buckets, text, buckets))
        else:
            entries.append((share, _written(name), 1))
    entries.sort()
    if fine:
        often = sorted(_writable(demanded), key=lambda name: (-demanded[name], name))
        entries += [(1, half, 1) for name in often for half in _halves(name, events)]
    kept: list[str] = []
    free = identifier_bits
    for _, text, count in entries:
        if count <= free:
            kept.append(text)
            free -= count
    return "; ".join(kept)


def _writable(names: Iterable[str]) -> list[str]:
    """Names that can stand in a map; the others are hashed, like those that nobody registers."""
    return [name for name in names if not any(sign in name for sign in _SIGNS)]


def _written(name: str) -> str:
    """A name as it is written in a filter."""
    return Filter.from_boxes([Box({(name,): ABSENT}, {})]).text.removesuffix(" IS NULL")


def _split(name: str, events: Sequence[Mapping[str, Any]], buckets: int) -> str:
    """Ranges as the sample fills them alike, if most values are numbers; else hashed values."""
    bounds = _quantiles(name, events, buckets)
    if bounds:
        return f": {', '.join(map(number_name, bounds))}"
    return f" # {buckets}"


def _halves(name: str, events: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lower and the upper half of an attribute's numbers, as predicates."""
    return [
        f"{_written(name)} {sign} {number_name(middle)}"
        for middle in _quantiles(name, events, 2)
        for sign in ("<", ">=")
    ]


def _quantiles(name: str, events: Sequence[Mapping[str, Any]], parts: int) -> list[Any]:
    """What parts the values of the sample alike; none if most are no numbers, or too few differ."""
    places = [comparable(attributes.get(name)) for attributes in events]
    numbers = sorted(
        place[1]
        for place in places
        if place and place[0] is KindClass.NUMBER and isfinite(place[1])
    )
    bounds = {numbers[len(numbers) * part // parts] for part in range(1, parts) if numbers}
    if 2 * len(numbers) > len([place for place in places if place]) and len(bounds) == parts - 1:
        return sorted(bounds)
    return []
