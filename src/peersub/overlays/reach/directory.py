"""`Directory`: who holds which places, as the holders themselves have said.

A node alone says which places it holds, to all that it is linked with, and again when that changes.
So nobody need agree on anything before a place splits, merges or moves: tables are what the holders
last said, and a node sees by itself whether its own table is whole, because the places next to each
of its bits must fill the region there (`missing_parts`). What is missing is looked for.

Two may claim one place, if one of them was taken for dead. The higher claim counts, and among equal
ones the name; both ends decide alike, and who has lost gives the place up. They may not know each
other: whoever hears both names the one to the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from peersub.overlays.core.identity import PeerId
from peersub.overlays.reach.identifiers import Place, are_neighbours, missing_parts
from peersub.overlays.reach.messages import SeatFact, SeatsTold

__all__ = ["DEPARTED_MAX", "Departed", "Directory", "claim_key", "missing_near"]

DEPARTED_MAX = 256
"""Places that were held by somebody who does not hold them any more, as far as is known."""


class Departed(NamedTuple):
    """Who held a place last."""

    claim: int
    node: str


class Directory:
    """What others have said of the places that they hold."""

    def __init__(self) -> None:
        self.told: dict[PeerId, SeatsTold] = {}
        self.departed: dict[Place, Departed] = {}
        self.rivals: dict[tuple[str, str], None] = {}
        """Nodes that claim the same, as `near` found: the one with the higher claim first."""

    def tell(self, peer: PeerId, said: SeatsTold) -> None:
        """A peer says which places it holds."""
        kept = {fact.place: None for fact in said.seats}
        self._depart(peer, (fact for fact in self._facts(peer) if fact.place not in kept))
        self.told[peer] = said
        for place in [p for p in self.departed if any(each.contains(p) for each in kept)]:
            del self.departed[place]

    def lose(self, peer: PeerId) -> None:
        """The link to a peer is gone, and what it holds is not known any more."""
        self._depart(peer, self._facts(peer))
        self.told.pop(peer, None)

    def _facts(self, peer: PeerId) -> tuple[SeatFact, ...]:
        said = self.told.get(peer)
        return () if said is None else said.seats

    def _depart(self, peer: PeerId, facts: Iterable[SeatFact]) -> None:
        for fact in facts:
            self.departed.pop(fact.place, None)
            self.departed[fact.place] = Departed(fact.claim, peer.node)
        while len(self.departed) > DEPARTED_MAX:
            del self.departed[next(iter(self.departed))]

    def leaves(self, peer: PeerId) -> bool:
        """Whether a peer is about to leave."""
        said = self.told.get(peer)
        return said is not None and said.leaves

    def claim(self, peer: PeerId, place: Place) -> int | None:
        """By which claim a peer holds a place; None if it does not."""
        return next((fact.claim for fact in self._facts(peer) if fact.place == place), None)

    def holds_any(self, peer: PeerId) -> bool:
        """Whether a peer holds a place."""
        return bool(self._facts(peer))

    def facts(self) -> Iterator[tuple[PeerId, SeatFact]]:
        """All that was said."""
        for peer, said in self.told.items():
            for fact in said.seats:
                yield peer, fact

    def near(self, places: Iterable[Place]) -> dict[Place, tuple[PeerId, SeatFact]]:
        """The places next to some; of those that overlap the one with the higher claim."""
        mine = list(places)
        found = [
            (peer, fact)
            for peer, fact in self.facts()
            if any(are_neighbours(fact.place, place) for place in mine)
        ]
        found.sort(key=lambda each: claim_key(each[1].claim, each[0]), reverse=True)
        accepted: dict[Place, tuple[PeerId, SeatFact]] = {}
        self.rivals = {}
        for peer, fact in found:
            before = [place for place in accepted if place.overlaps(fact.place)]
            for place in before:
                self.rivals[accepted[place][0].node, peer.node] = None
            if not before:
                accepted[fact.place] = (peer, fact)
        return accepted

    def last_holder(self, region: Place) -> tuple[Place, Departed] | None:
        """The place that a missing region was part of, if that is known, and who held it."""
        found = [item for item in self.departed.items() if item[0].contains(region)]
        return max(found, key=lambda item: (item[1].claim, item[0]), default=None)


def claim_key(claim: int, peer: PeerId) -> tuple[int, str, int]:
    """Of two who claim one identifier, the one with the higher key has it."""
    return claim, peer.node, peer.incarnation


def missing_near(place: Place, near: Iterable[Place]) -> list[Place]:
    """The regions next to a place of which no holder is known."""
    known = list(near)
    return [
        part for bit in range(place.length) for part in missing_parts(place.flipped(bit), known)
    ]
