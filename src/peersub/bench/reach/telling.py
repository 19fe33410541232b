"""What quenching costs, and how much there is to gain.

*Telling*: a subscription that begins changes what its host tells the places above, and what these
tell those above them, until one does not change. All messages with interest are counted, and their
bytes on the wire.

*The floor*: the places that any quenching has to visit, however much is told: those that keep
something that wants the event, and those that the event passes on the way there. It is found from
the matches and the parents alone, without asking what places tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from typing import Final

from peersub.bench.reach.measure import Network, Quenching
from peersub.overlays.reach.differences import Wish, telling
from peersub.overlays.reach.identifiers import Place, is_above, parent_identifier
from peersub.overlays.reach.interest import merged, own_wishes
from peersub.overlays.reach.messages import Interest
from peersub.wire import encode

__all__ = ["CHANGES", "Telling", "Told", "floor_visited"]

CHANGES: Final = 16
"""Subscriptions that begin, one by one, each in the network of all others."""


@dataclass(frozen=True, slots=True)
class Told:
    """Means per subscription that begins."""

    messages: float
    bytes: float


class Telling:
    """Who tells whom what, when a subscription begins."""

    def __init__(self, network: Network, quenching: Quenching) -> None:
        self._network = network
        self._summary = 0 if quenching == "bit" else network.summary
        self._with_filters = quenching == "filters"
        self._told = network.interests(quenching)

    def costs(self, changes: int = CHANGES) -> Told:
        """What some of the subscriptions cost, spread over all."""
        count = len(self._network.workload.filters)
        chosen = range(0, count, max(count // changes, 1))
        messages = size = 0
        for number in chosen:
            more, bytes_more = self.cost_of(number)
            messages += more
            size += bytes_more
        return Told(messages / len(chosen), size / len(chosen))

    def cost_of(self, number: int) -> tuple[int, int]:
        """Messages and bytes, if all but one are there and this one begins."""
        before = self._without(number)
        messages = size = 0
        for place, interest in before.items():
            for above in self._above[place]:
                messages += 1
                size += len(encode(telling(place, above, (interest, 1), (self._told[place], 2))))
        return messages, size

    def _without(self, number: int) -> dict[Place, Interest]:
        """What places told without a subscription, if it is another than with it.

        From its hosts upwards: a place is worked out after all below it.
        """
        layout = self._network.layout
        changed: dict[Place, Interest] = {}
        ahead: list[tuple[int, Place]] = []
        for identifier in self._network.identifiers(number):
            host = layout.host(identifier)
            heappush(ahead, (self._ranks[host], host))
        seen: set[Place] = set()
        while ahead:
            _, place = heappop(ahead)
            if place in seen:
                continue
            seen.add(place)
            kept = self._kept(place, number)
            own = own_wishes(place, kept, self._summary, with_filters=self._with_filters)
            parts = [changed.get(below, self._told[below]) for below in self._below[place]]
            interest = merged(place, own, parts, self._summary)
            if interest != self._told[place]:
                changed[place] = interest
                for above in self._above[place]:
                    heappush(ahead, (self._ranks[above], above))
        return changed

    def _kept(self, place: Place, left_out: int) -> Sequence[Wish]:
        filters = self._network.workload.filters
        return [
            (identifier, filters[number])
            for identifier, numbers in self._network.kept.get(place, {}).items()
            for number in numbers
            if number != left_out
        ]

    @cached_property
    def _below(self) -> dict[Place, list[Place]]:
        near = self._network.layout.near
        return {
            place: [other for other in others if is_above(place, other)]
            for place, others in near.items()
        }

    @cached_property
    def _above(self) -> dict[Place, list[Place]]:
        near = self._network.layout.near
        return {
            place: [other for other in others if is_above(other, place)]
            for place, others in near.items()
        }

    @cached_property
    def _ranks(self) -> dict[Place, int]:
        """By place the length of the longest way down: more than that of any place below."""
        ranks: dict[Place, int] = {}

        def rank(place: Place) -> int:
            if place not in ranks:
                ranks[place] = 1 + max(map(rank, self._below[place]), default=0)
            return ranks[place]

        for place in self._network.layout.held:
            rank(place)
        return ranks


def floor_visited(network: Network) -> float:
    """Places per event that any quenching must visit."""
    layout = network.layout
    visited = 0
    for event, wanted in enumerate(network.workload.wanted):
        bits, order = network.event_bits(event), network.order(event)
        needed = {layout.host(bits)}
        for number in wanted:
            identifier = next(each for each in network.identifiers(number) if each & ~bits == 0)
            place = layout.host(identifier)
            while place not in needed:
                needed.add(place)
                parent = parent_identifier(place, bits, order)
                assert parent is not None, "only the host of the event has none"
                place = layout.host(parent)
        visited += len(needed)
    return visited / max(len(network.workload.wanted), 1)
