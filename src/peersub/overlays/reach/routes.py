"""`Layout`: where events go in a network at rest, from its places alone, without any peers.

The ways, the trees and the interest are those of peers that `converged` sets up in the same places:
the same functions are asked (`identifiers`, `interest`). Only the messages are left out, so that
networks of thousands of nodes take seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from peersub.overlays.core.draws import draw_below
from peersub.overlays.reach.identifiers import (
    EMPTY_PLACE,
    Order,
    Place,
    distance,
    is_above,
    low_bits,
    parent_identifier,
    set_bits,
    via,
)
from peersub.overlays.reach.interest import Wish, merged, own_wishes
from peersub.overlays.reach.messages import Interest
from peersub.overlays.reach.structure import Places

__all__ = ["WAYS", "Layout", "Visit", "way_of"]

WAYS = 64
"""Draws by which events take different ways to one host."""


def way_of(event_id: str, seed: int) -> int:
    """The draw by which an event chooses among the bits in which a place and its host differ."""
    return draw_below(WAYS, seed, "reach/way", event_id)


class Visit(NamedTuple):
    """An event at a place, and the place that sent it down to there; None at its host."""

    place: Place
    parent: Place | None
    steps: int
    """From the host of the event."""


class Layout:
    """The places of a network, one for each of its nodes.

    Args:
        held: a complete suffix code, in the order of the nodes.
    """

    def __init__(self, held: Sequence[Place]) -> None:
        self.held = tuple(held)
        self.numbers = {place: number for number, place in enumerate(held)}
        """By place the number of its node."""
        self.length_min = min(place.length for place in held)
        self.length_max = max(place.length for place in held)
        places = Places.of(held)
        self.near = {place: places.near(place) for place in held}

    def host(self, identifier: int) -> Place:
        """The host of an identifier."""
        for length in range(self.length_min, self.length_max + 1):
            place = Place(length, identifier & low_bits(length))
            if place in self.numbers:
                return place
        raise AssertionError("the code is not complete")

    def way(self, start: Place, target: int, first: int) -> list[Place]:
        """The places after `start` on the way to the host of an identifier (§3.1).

        `first` says with which of the bits that differ each of them begins.
        """
        passed = []
        place = start
        while distance(place, target):
            bits = list(set_bits((place.bits ^ target) & low_bits(place.length)))
            place = self.host(via(place, target, bits[first % len(bits)]))
            passed.append(place)
        return passed

    def subsets(self, event: int) -> list[Place]:
        """All places that host a subset of the event's bits: V(e) of §3.2."""
        found = []
        ahead = [EMPTY_PLACE]
        while ahead:
            place = ahead.pop()
            if place in self.numbers:
                found.append(place)
                continue
            without, with_it = place.halves
            ahead.append(without)
            if event >> place.length & 1:
                ahead.append(with_it)
        return found

    def visits(
        self, event: int, order: Order, is_wanted: Callable[[Place], bool] = lambda _: True
    ) -> list[Visit]:
        """The event down the subsets, from its host on; nothing goes down to what is not wanted."""
        below: dict[Place, list[Place]] = {}
        for place in self.subsets(event):
            parent = parent_identifier(place, event, order)
            if parent is not None:
                below.setdefault(self.host(parent), []).append(place)
        found = [Visit(self.host(event), None, 0)]
        for place, _, steps in found:
            found += [
                Visit(child, place, steps + 1)
                for child in sorted(below.get(place, ()))
                if is_wanted(child)
            ]
        return found

    def interests(
        self, kept: Mapping[Place, Iterable[Wish]], summary: int, *, with_filters: bool
    ) -> dict[Place, Interest]:
        """What each place tells those above it, when all have told (§4.5)."""
        told: dict[Place, Interest] = {}

        def tell(place: Place) -> Interest:
            # Going down clears bits: as deep as the longest place has.
            if place not in told:
                own = own_wishes(place, kept.get(place, ()), summary, with_filters=with_filters)
                parts = [tell(other) for other in self.near[place] if is_above(place, other)]
                told[place] = merged(place, own, parts, summary)
            return told[place]

        for place in self.held:
            tell(place)
        return told
