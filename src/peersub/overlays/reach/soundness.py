"""What the wire cannot know of a message: whether its places and identifiers fit this network.

The wire checks types. A place longer than identifiers are, or with bits beyond its length, or an
interest with filters for other wishes than it has would fail the node later on, far from the link
that it came over: so such a message is dropped before anything is done with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from peersub.overlays.core.messages import Message
from peersub.overlays.reach.identifiers import Place
from peersub.overlays.reach.messages import (
    CopyDropped,
    CopyEnded,
    CopyHeard,
    CopyTold,
    Detour,
    EntriesGiven,
    Entry,
    Handed,
    Interest,
    InterestAsked,
    InterestChanged,
    InterestHeard,
    InterestTold,
    LeaveAgreed,
    LeaveAsked,
    NearTold,
    PlaceSought,
    Rendezvous,
    RenewalWanted,
    Routed,
    SeatGiven,
    SeatsTold,
    SeatTaken,
    Spread,
    StoreAsked,
    UnstoreAsked,
)

__all__ = ["CLAIM_MAX", "Soundness"]

CLAIM_MAX = 1 << 62
"""Claims grow by one with each change of a place: a higher one would leave no room to outdo it."""


class Soundness:
    """Which messages make sense where identifiers have so many bits."""

    def __init__(self, identifier_bits: int) -> None:
        self._bits = identifier_bits

    def holds(self, message: Message) -> bool:
        """Whether all places, identifiers and claims in a message can be."""
        match message:
            case Rendezvous(_, bits):
                return self._fit((bits,))
            case Spread(_, bits, place) | Detour(_, bits, place):
                return self._fit((bits,), (place,))
            case Handed(_, bits, place, identifiers):
                return self._fit((bits, *identifiers), (place,))
            case Routed(target, _, inner):
                return self._fit((target,)) and self._is_asked(target, inner)
            case InterestTold(below, above, interest):
                return self._fit((), (below, above)) and self._is_interest(interest)
            case InterestChanged(below, above, _, _, _, begun):
                return self._fit((), (below, above)) and self._is_interest(begun)
            case InterestAsked(below, above) | InterestHeard(below, above):
                return self._fit((), (below, above))
            case _:
                return self._is_structure(message)

    def _is_structure(self, message: Message) -> bool:
        match message:
            case SeatsTold(seats):
                places = [fact.place for fact in seats]
                return self._fit((), places) and all(fact.claim < CLAIM_MAX for fact in seats)
            case SeatGiven(place, claim) | RenewalWanted(place, claim) | SeatTaken(place, claim):
                return self._fit((), (place,)) and claim < CLAIM_MAX
            case EntriesGiven(place, entries):
                return self._fit((), (place,)) and self._are_kept(place, entries)
            case CopyTold(place, claim, _, entries):
                return (
                    self._fit((), (place,)) and claim < CLAIM_MAX and self._are_kept(place, entries)
                )
            case CopyEnded(place, ended):
                return self._fit((ended.identifier,), (place,))
            case NearTold(place, near):
                return self._fit((), (place, *(each for each, _ in near)))
            case CopyDropped(place) | CopyHeard(place) | LeaveAsked(place) | LeaveAgreed(place):
                return self._fit((), (place,))
            case _:
                return True

    def _fit(self, identifiers: Iterable[int], places: Iterable[Place] = ()) -> bool:
        return not any(each >> self._bits for each in identifiers) and all(
            place.length <= self._bits and not place.bits >> place.length for place in places
        )

    def _are_kept(self, place: Place, entries: Iterable[Entry]) -> bool:
        return all(
            place.hosts(entry.identifier) and not entry.identifier >> self._bits
            for entry in entries
        )

    def _is_asked(self, target: int, message: Message) -> bool:
        """Whether a message to a host is about an identifier that it hosts: the target."""
        match message:
            case StoreAsked(entry):
                return entry.identifier == target
            case UnstoreAsked(identifier) | PlaceSought(identifier):
                return identifier == target
            case _:
                return True  # The host says that it does not expect it.

    def _is_interest(self, interest: Interest) -> bool:
        return (
            interest.shortest <= self._bits
            and self._fit(interest.identifiers)
            and len(interest.filters) in (0, len(interest.identifiers))
        )
