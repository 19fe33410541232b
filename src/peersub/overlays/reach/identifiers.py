"""The geometry of Reach: places, who is next to whom, and the way to a place or down the subsets.

An *identifier* is a set of attributes as the bits of a number (§2). A *place* is a bit string: it
hosts every identifier that ends in it, seen from the low-order bits. The places of a network form a
complete suffix code: each identifier has one host. A network of one has the empty place, which
hosts all; there is no need of the 2^m nodes that §3.3 begins with.

Places of one length are the corners of a hypercube, and the paper describes those. For places of
different lengths it says that everything goes on "exactly in the same manner" (§3.3). It does not:

- the way to an identifier takes the bits above a place's own length from the *target* (`via`): a
  neighbouring region may be split, and only the target says which half is meant;
- down the subsets each place has one *canonical parent* (`parent_identifier`), a neighbour that it
  and everybody else can compute. Clearing bits one by one would miss one half of a split region,
  or reach a short place from several long ones.

Laws, for the places of any complete suffix code:

- `via` leads to a neighbour, and the distance to the target falls with each step;
- the canonical parents of the places that an event must visit are a tree, whose root is the host of
  the event's identifier, and whose edges are neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from peersub.overlays.core.draws import draw, draw_below

__all__ = [
    "EMPTY_PLACE",
    "IDENTIFIER_BITS_MAX",
    "Order",
    "Place",
    "are_neighbours",
    "differing_bit",
    "distance",
    "event_order",
    "fixed_order",
    "is_above",
    "is_parent",
    "is_visited",
    "low_bits",
    "missing_parts",
    "parent_identifier",
    "set_bits",
    "via",
]

IDENTIFIER_BITS_MAX = 60
"""Identifiers travel as numbers of one word; a network uses as many bits as its size has."""

_WORD = (1 << 64) - 1


def low_bits(length: int) -> int:
    """The number whose low-order bits, so many of them, are set.

    >>> low_bits(3)
    7
    """
    return (1 << length) - 1


def set_bits(number: int) -> Iterator[int]:
    """The positions of the bits that are set, lowest first.

    >>> list(set_bits(0b1010))
    [1, 3]
    """
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest


class Place(NamedTuple):
    """A node's identifier: it hosts all identifiers whose low-order bits are these."""

    length: int
    bits: int

    def hosts(self, identifier: int) -> bool:
        """Whether the identifier is at home here.

        >>> Place(2, 0b01).hosts(0b1101), Place(2, 0b01).hosts(0b1110)
        (True, False)
        """
        return identifier & low_bits(self.length) == self.bits

    def contains(self, other: Place) -> bool:
        """Whether this place hosts all that the other one does."""
        return other.length >= self.length and self.hosts(other.bits)

    def overlaps(self, other: Place) -> bool:
        """Whether there is an identifier that both host; never so for two of one network."""
        return (self.bits ^ other.bits) & low_bits(min(self.length, other.length)) == 0

    @property
    def halves(self) -> tuple[Place, Place]:
        """The places that it splits into: without and with the next bit (§3.3)."""
        length = self.length + 1
        return Place(length, self.bits), Place(length, self.bits | 1 << self.length)

    @property
    def whole(self) -> Place:
        """The place that it is a half of."""
        assert self.length
        return Place(self.length - 1, self.bits & low_bits(self.length - 1))

    @property
    def sibling(self) -> Place:
        """The other half of the whole."""
        assert self.length
        return Place(self.length, self.bits ^ 1 << (self.length - 1))

    def flipped(self, bit: int) -> Place:
        """The region that this place borders on in one of its bits."""
        assert 0 <= bit < self.length
        return Place(self.length, self.bits ^ 1 << bit)

    def nearest(self, identifier: int) -> int:
        """The identifier nearest to this one that is hosted here: the bits above are kept."""
        return identifier & ~low_bits(self.length) | self.bits

    def __str__(self) -> str:
        """
        >>> str(Place(4, 0b11)), str(EMPTY_PLACE)
        ('0011', '*')
        """
        return f"{self.bits:0{self.length}b}" if self.length else "*"


EMPTY_PLACE = Place(0, 0)
"""The place of a node that is alone: it hosts every identifier."""


# --- neighbours (§3.1) ---------------------------------------------------------------------------


def differing_bit(one: Place, other: Place) -> int | None:
    """The bit in which neighbours differ; None for places that are not neighbours.

    >>> differing_bit(Place(4, 0b1011), Place(3, 0b001)), differing_bit(Place(2, 0), Place(2, 3))
    (1, None)
    """
    difference = (one.bits ^ other.bits) & low_bits(min(one.length, other.length))
    if not difference or difference & (difference - 1):
        return None
    return difference.bit_length() - 1


def are_neighbours(one: Place, other: Place) -> bool:
    """Whether identifiers that they host differ in one bit, and they are not one place.

    The suffixes of their common length differ in exactly one bit.
    """
    return differing_bit(one, other) is not None


def is_above(one: Place, other: Place) -> bool:
    """Whether they are neighbours, and the bit in which they differ is set in the first.

    The relation has no cycles. Of the places of one take the shortest, and of all of them only as
    many bits as it has: each step down clears one of these bits or changes none, and the step from
    the shortest clears one. So the way never comes back to it.
    """
    bit = differing_bit(one, other)
    return bit is not None and bool(one.bits >> bit & 1)


# --- the way to an identifier (§3.1) -------------------------------------------------------------


def distance(place: Place, target: int) -> int:
    """The Hamming distance from a place to an identifier; 0 at its host."""
    return ((place.bits ^ target) & low_bits(place.length)).bit_count()


def via(place: Place, target: int, bit: int | None = None) -> int:
    """An identifier whose host is the next one on the way to the target; not asked of its host.

    `bit` is one in which place and target differ; by default the lowest.

    >>> f"{via(Place(3, 0b110), 0b1001):04b}"
    '1111'
    """
    difference = (place.bits ^ target) & low_bits(place.length)
    assert difference, "the target is hosted here"
    chosen = difference & -difference if bit is None else 1 << bit
    assert chosen & difference, "place and target agree in this bit"
    return place.nearest(target) ^ chosen


# --- down the subsets (§3.2) ---------------------------------------------------------------------


class Order(NamedTuple):
    """A permutation of the bits: the order in which they are cleared down the subsets."""

    seed: int

    def rank(self, bit: int) -> int:
        """Where a bit stands; no two bits stand at one place (the mixing is a bijection)."""
        mixed = (self.seed + bit * 0x9E3779B97F4A7C15) & _WORD
        mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _WORD
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _WORD
        return mixed ^ mixed >> 31

    def last(self, bits: int) -> int:
        """The one of some bits that stands last."""
        return max(set_bits(bits), key=self.rank)


def event_order(event_id: str, orders: int = 0) -> Order:
    """The order of an event: a public hash of its name (§3.2), the same at all nodes.

    With `orders` it is one of so many that are fixed: then a place has few parents in all.
    """
    if not orders:
        return Order(draw(0, "reach/order", event_id))
    return fixed_order(draw_below(orders, 0, "reach/order", event_id))


def fixed_order(number: int) -> Order:
    """The how-manieth of the orders that are fixed."""
    return Order(draw(0, "reach/fixed-order", number))


def is_visited(place: Place, event: int) -> bool:
    """Whether the place hosts a subset of the event's bits, so that a subscription may be there."""
    return place.bits & ~event == 0


def parent_identifier(place: Place, event: int, order: Order) -> int | None:
    """An identifier whose host sends the event to this place; None for the host of the event.

    Of all subsets of the event that are hosted here, take the largest; of the bits that it lacks,
    add the one that stands last. The bit is one of the place's own length, so the parent is a
    neighbour, and it lacks fewer bits: the chain of parents ends at the host of the event.
    """
    lacking = event & low_bits(place.length) & ~place.bits
    if not lacking:
        return None
    return place.nearest(event) | 1 << order.last(lacking)


def is_parent(place: Place, other: Place, event: int, order: Order) -> bool:
    """Whether the place is the one that sends the event to the other one."""
    if not is_visited(other, event):
        return False
    identifier = parent_identifier(other, event, order)
    return identifier is not None and place.hosts(identifier)


# --- regions -------------------------------------------------------------------------------------


def missing_parts(region: Place, places: Iterable[Place]) -> list[Place]:
    """The largest places within a region that none of these overlaps, in order.

    >>> [str(part) for part in missing_parts(Place(1, 1), [Place(3, 0b011), Place(2, 0b00)])]
    ['01', '111']
    """
    within = [place for place in places if place.overlaps(region)]
    if not within:
        return [region]
    if any(place.contains(region) for place in within):
        return []
    return [part for half in region.halves for part in missing_parts(half, within)]
