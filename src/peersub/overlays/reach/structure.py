"""How a suffix code grows and shrinks (§3.3): who splits, who merges, who takes over.

The rules speak of one place and the places next to it, so that a peer can follow them; `Places` is
a whole code, for networks that are set up at once.

- A join goes on to a shorter neighbour, and splits a place that has none. So lengths of neighbours
  differ by at most one, the *gap*.
- The paper lets a node that leaves hand its half to "the" node with the other one. Three rules are
  missing. That half may be split itself; merging may leave a gap of two, to neighbours of the one
  half or of the other; and then somebody else must merge, and take the place of the one who leaves.
  `longer` and `merges` are these rules: from any place, go on to longer neighbours, of the place or
  of its sibling, until there are none; that pair merges, and one of the two is free.
- Of crashes nothing is said (§4.3). `heirs` puts the neighbours of a place in an order in which
  they take it over: the host of its own bits with the top one flipped comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from peersub.overlays.core.draws import draw_below
from peersub.overlays.reach.identifiers import (
    EMPTY_PLACE,
    Place,
    differing_bit,
    low_bits,
)

__all__ = ["GAP_MAX", "Places", "heir_rank", "heirs", "longer", "merges", "shorter"]

GAP_MAX = 1
"""How much the lengths of neighbours may differ."""


def shorter(place: Place, near: Iterable[Place]) -> list[Place]:
    """The shortest neighbours, if they are shorter than the place: a join goes to one of them."""
    found = sorted(other for other in near if other.length < place.length)
    return [other for other in found if other.length == found[0].length]


def longer(place: Place, near: Iterable[Place]) -> list[Place]:
    """The longest neighbours, if they are longer than the place: one of them merges first."""
    found = sorted(other for other in near if other.length > place.length)
    return [other for other in found if other.length == found[-1].length]


def merges(place: Place, near: Iterable[Place], near_sibling: Iterable[Place]) -> bool:
    """Whether a place and its sibling may become one: no neighbour of either is longer."""
    return place.length > 0 and not longer(place, near) and not longer(place, near_sibling)


def heirs(place: Place) -> Iterator[int]:
    """Identifiers whose hosts take over the place of a node that is gone, first to last.

    All of them are neighbours: one bit of the place is flipped, the top one first, and the bits
    above are not set.
    """
    for bit in reversed(range(place.length)):
        yield place.bits ^ 1 << bit


def heir_rank(place: Place, neighbour: Place) -> int | None:
    """The how-manieth heir of a place a neighbour is, None if it is none."""
    bit = differing_bit(place, neighbour)
    if bit is None or not neighbour.hosts(place.bits ^ 1 << bit):
        return None
    return place.length - 1 - bit


class Places:
    """A complete suffix code that knows itself: `{*}`, and what splits and merges make of it."""

    def __init__(self) -> None:
        self._places: dict[Place, None] = {EMPTY_PLACE: None}
        self.length_max = 0

    @classmethod
    def of(cls, places: Iterable[Place]) -> Places:
        """A code that is complete already."""
        made = cls()
        made._places = dict.fromkeys(places)
        made.length_max = max(place.length for place in made)
        return made

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, place: Place) -> bool:
        return place in self._places

    def host(self, identifier: int) -> Place:
        """The host of an identifier."""
        for length in range(self.length_max + 1):
            place = Place(length, identifier & low_bits(length))
            if place in self._places:
                return place
        raise AssertionError("the code is not complete")

    def within(self, region: Place) -> list[Place]:
        """The places that host something of a region."""
        host = self.host(region.bits)
        if host.contains(region):
            return [host]
        return [place for half in region.halves for place in self.within(half)]

    def near(self, place: Place) -> list[Place]:
        """The neighbours of a place, sorted."""
        regions = [place.flipped(bit) for bit in range(place.length)]
        return sorted({other for region in regions for other in self.within(region)})

    def split(self, place: Place) -> tuple[Place, Place]:
        """A place becomes its halves."""
        del self._places[place]
        halves = place.halves
        self._places.update(dict.fromkeys(halves))
        self.length_max = max(self.length_max, halves[0].length)
        return halves

    def merge(self, place: Place) -> Place:
        """A place and its sibling become one."""
        del self._places[place], self._places[place.sibling]
        self._places[place.whole] = None
        return place.whole

    def to_split(self, place: Place, seed: int, about: str | int) -> Place:
        """Where a join that begins at a place ends: shorter and shorter ones, by keyed draws."""
        while choices := shorter(place, self.near(place)):
            place = choices[draw_below(len(choices), seed, "reach/join", about, place.length)]
        return place

    def to_merge(self, place: Place) -> Place:
        """Where a search for a pair that may merge ends: longer and longer places."""
        while True:
            choices = longer(place, self.near(place))
            if not choices and place.sibling in self._places:
                choices = longer(place, self.near(place.sibling))
            if not choices:
                return place
            place = choices[0]
