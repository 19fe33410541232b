"""What holds of Reach at rest: for checkers outside of the protocol.

Each identifier has one host; tables are those of the rule, on both sides; lengths of neighbours
differ by at most one; every subscription is kept at the hosts of its identifiers; and each place
knows what those below want.
"""

from __future__ import annotations

from collections.abc import Sequence

from peersub.overlays.core.identity import PeerId
from peersub.overlays.reach.identifiers import (
    EMPTY_PLACE,
    Place,
    are_neighbours,
    low_bits,
    missing_parts,
)
from peersub.overlays.reach.peer import ReachPeer
from peersub.overlays.reach.seats import Seat
from peersub.overlays.reach.structure import GAP_MAX

__all__ = ["check_quiet"]


def check_quiet(peers: Sequence[ReachPeer]) -> list[str]:
    """Complaints about a network at rest, all of whose nodes can reach each other."""
    complaints: list[str] = []
    held: dict[Place, tuple[PeerId, Seat]] = {}
    for peer in peers:
        if len(peer.holdings.seats) != 1:
            places = ", ".join(map(str, peer.holdings.seats))
            complaints.append(f"{peer.me} holds not one place: {places or 'none'}")
        for place, seat in peer.holdings.seats.items():
            for other, (holder, _) in held.items():
                if other.overlaps(place):
                    complaints.append(f"{peer.me} and {holder} both hold {place} or {other}")
            held[place] = (peer.me, seat)
    if peers:
        for part in missing_parts(EMPTY_PLACE, held):
            complaints.append(f"nobody hosts {part}")
    if not complaints:
        complaints += _wrong_tables(held)
        complaints += _wrong_interest(held, quench=bool(peers) and peers[0].settings.quench)
        complaints += _wrong_hosts(peers, held)
    return complaints


def _wrong_tables(held: dict[Place, tuple[PeerId, Seat]]) -> list[str]:
    complaints = []
    for place, (peer, seat) in held.items():
        near = {other: who for other, (who, _) in held.items() if are_neighbours(place, other)}
        if seat.near != near:
            wrong = [
                str(each) for each in {*near, *seat.near} if near.get(each) != seat.near.get(each)
            ]
            complaints.append(f"{peer} at {place} has a wrong table at {', '.join(sorted(wrong))}")
        for other in near:
            if abs(other.length - place.length) > GAP_MAX:
                complaints.append(f"the lengths of {place} and {other} differ by too much")
    return complaints


def _wrong_interest(held: dict[Place, tuple[PeerId, Seat]], *, quench: bool) -> list[str]:
    """Interest by its definition: what is kept at a place, and all that is further down.

    Whatever is kept must be told, itself or the low bits of it; and nothing if nothing is kept.
    """
    if not quench:
        return []
    kept = {place: {*seat.identifiers()} for place, (_, seat) in held.items()}
    for place in held:
        ahead, seen = [place], {place}
        while ahead:
            for above in held[ahead.pop()][1].above():
                if above not in seen:
                    seen.add(above)
                    ahead.append(above)
                    kept[above] = kept[above] | {*held[place][1].identifiers()}
    complaints = []
    for place, (peer, seat) in held.items():
        for below in seat.below():
            told = seat.interest.get(below)
            if told is None or bool(told.identifiers) != bool(kept[below]):
                complaints.append(f"{peer} at {place} does not know what {below} wants")
            elif not all(
                any(
                    each & ~identifier == 0 and (each ^ identifier) & low_bits(told.shortest) == 0
                    for each in told.identifiers
                )
                for identifier in kept[below]
            ):
                complaints.append(f"{peer} at {place} was not told all that {below} wants")
    return complaints


def _wrong_hosts(peers: Sequence[ReachPeer], held: dict[Place, tuple[PeerId, Seat]]) -> list[str]:
    complaints = []
    for peer in peers:
        for name, wanted in peer.home.subscriptions.items():
            for identifier in peer.bits.identifiers(wanted):
                (seat,) = [seat for place, (_, seat) in held.items() if place.hosts(identifier)]
                if not any(
                    entry.subscriber == peer.me and entry.name == name and entry.filter == wanted
                    for entry in seat.entries()
                    if entry.identifier == identifier
                ):
                    complaints.append(f"{seat.place} does not keep {name} of {peer.me}")
    return complaints
