"""What holds of Reach, always and at rest: for checkers outside of the protocol.

Always, looked at after each step of each node (`StepChecker`):

- no two places of a node overlap, nor what it has given and not handed over yet; what is kept at a
  place is at home there;
- a table has neighbours only, which do not overlap, and says of all other regions next to a place
  that they are missed;
- a place that a node gives up is on its way to another, or another one holds it, as far as the
  node knows: no identifier loses its host by what somebody does;
- an event is sent to places only that host subsets of its bits (§3.2);
- who answers for another (`deputies`) notifies, or sends the event back, and nothing else; no
  identifier has two deputies, and each deputy is a neighbour or passed over;
- in the network as a whole, what `watching` says of identifiers and of events.

At rest (`check_quiet`): each identifier has one host; tables are those of the rule, on both sides;
lengths of neighbours differ by at most one; the way from each place to each host is no longer than
the Hamming distance; the canonical parents of the places that an event must visit lead to all of
them, once; every subscription is kept at the hosts of its identifiers, and by heirs; and each place
knows what those below want.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from peersub.overlays.core.causes import Cause, Received
from peersub.overlays.core.checks import Checks
from peersub.overlays.core.effects import Effect, Send
from peersub.overlays.core.identity import PeerId
from peersub.overlays.reach.balancing import TAKERS_MAX
from peersub.overlays.reach.identifiers import (
    EMPTY_PLACE,
    Place,
    are_neighbours,
    distance,
    event_order,
    is_parent,
    is_visited,
    low_bits,
    missing_parts,
)
from peersub.overlays.reach.messages import Detour, Handed, Rendezvous, Spread
from peersub.overlays.reach.peer import ReachPeer
from peersub.overlays.reach.seats import Seat
from peersub.overlays.reach.structure import GAP_MAX
from peersub.overlays.reach.watching import NetworkWatch, PeerAt

__all__ = ["CHECKS", "StepChecker", "check_quiet", "global_gap", "step_checker"]

WAYS_MAX: Final = 512
"""Ways that are walked in a network at rest: all of them, if it is small."""
EVENTS_MAX: Final = 32
"""Events whose visits are worked out in a network at rest."""


# --- always --------------------------------------------------------------------------------------


def step_checker(peer_at: PeerAt) -> Callable[[ReachPeer, Cause, Sequence[Effect]], list[str]]:
    """What checks one network, step after step; it looks at peers, and changes nothing."""
    own, whole = StepChecker(), NetworkWatch(peer_at)

    def check(peer: ReachPeer, cause: Cause, effects: Sequence[Effect]) -> list[str]:
        return [*own.check(peer, cause, effects), *whole.check(peer, cause, effects)]

    return check


class StepChecker:
    """What the nodes held before their last steps."""

    def __init__(self) -> None:
        self._held: dict[PeerId, tuple[Place, ...]] = {}

    def check(self, peer: ReachPeer, cause: Cause, effects: Sequence[Effect]) -> list[str]:
        """Complaints about a step."""
        return [
            *_wrong_places(peer),
            *_wrong_rows(peer),
            *self._lost_places(peer),
            *_wrong_visits(peer, effects),
            *_wrong_deputies(peer, cause, effects),
        ]

    def _lost_places(self, peer: ReachPeer) -> Iterator[str]:
        holdings = peer.holdings
        before = self._held.get(peer.me, ())
        self._held[peer.me] = tuple(holdings.seats)
        if before == self._held[peer.me] or (holdings.leaving and not _stays_somebody(peer)):
            return
        known = [
            *holdings.seats,
            *holdings.given,
            *(fact.place for _, fact in holdings.directory.facts()),
        ]
        for place in before:
            for part in missing_parts(place, known):
                yield f"{peer.me} gave {part} up, and nobody has it"


def _wrong_visits(peer: ReachPeer, effects: Sequence[Effect]) -> Iterator[str]:
    for effect in effects:
        for message in effect.messages if isinstance(effect, Send) else ():
            if isinstance(message, Spread) and not is_visited(message.place, message.bits):
                event = message.publication.id
                yield f"{peer.me} sends {event} to {message.place}, which hosts no subset"


def _wrong_deputies(peer: ReachPeer, cause: Cause, effects: Sequence[Effect]) -> Iterator[str]:
    for place, seat in peer.holdings.seats.items():
        handed = [each for deputy in seat.deputies.values() for each in deputy.identifiers]
        if len(handed) != len({*handed}) or not all(map(place.hosts, handed)):
            yield f"{peer.me} at {place} has handed something out twice, or what is not its own"
        if len(seat.deputies) > TAKERS_MAX or peer.me in seat.deputies:
            yield f"{peer.me} at {place} has deputies that it must not have"
    messages = cause.messages if isinstance(cause, Received) else ()
    if not messages or not all(isinstance(each, Handed) for each in messages):
        return
    if any(isinstance(each, Handed) and each.is_returned for each in messages):
        return
    events = {each.publication.id for each in messages if isinstance(each, Handed)}
    for effect in effects:
        for sent in effect.messages if isinstance(effect, Send) else ():
            if isinstance(sent, Handed) and sent.is_returned:
                continue
            if isinstance(sent, Spread | Rendezvous | Detour | Handed):
                event = sent.publication.id
                if event in events:
                    yield f"{peer.me} was to answer for another, and sends {event} on"


def _stays_somebody(peer: ReachPeer) -> bool:
    holdings = peer.holdings
    return any(holdings.takes(other) for other, _ in holdings.directory.facts())


def _wrong_places(peer: ReachPeer) -> Iterator[str]:
    places = [*peer.holdings.seats, *peer.holdings.given]
    for number, place in enumerate(places):
        for other in places[:number]:
            if place.overlaps(other):
                yield f"{peer.me} has {place} and {other}, which overlap"
    for place, seat in peer.holdings.seats.items():
        if place != seat.place or not all(place.hosts(each) for each in seat.identifiers()):
            yield f"{peer.me} keeps at {place} what is not at home there"


def _wrong_rows(peer: ReachPeer) -> Iterator[str]:
    for place, seat in peer.holdings.seats.items():
        near = list(seat.near)
        if not all(are_neighbours(place, other) for other in near):
            yield f"{peer.me} at {place} has one in its table that is no neighbour"
        if any(one.overlaps(two) for at, one in enumerate(near) for two in near[:at]):
            yield f"{peer.me} at {place} has places in its table that overlap"
        around = [
            part for bit in range(place.length) for part in missing_parts(place.flipped(bit), near)
        ]
        if set(around) != set(seat.gone) or not {*around} <= {*peer.holdings.missing}:
            yield f"{peer.me} at {place} does not know what it misses"


# --- at rest -------------------------------------------------------------------------------------


def global_gap(peers: Sequence[ReachPeer]) -> int:
    """The largest difference between the lengths of places (§3.3)."""
    lengths = [place.length for peer in peers for place in peer.holdings.seats]
    return max(lengths, default=0) - min(lengths, default=0)


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
        complaints += _wrong_copies(peers, held)
    if not complaints:
        by_place = {place: peer for peer in peers for place in peer.holdings.seats}
        complaints += [*_wrong_ways(by_place), *_wrong_trees(by_place)]
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


def _wrong_copies(peers: Sequence[ReachPeer], held: dict[Place, tuple[PeerId, Seat]]) -> list[str]:
    """Heirs have what is kept at a place, and know its neighbours; what is old shows as such."""
    complaints = []
    by_name = {peer.me: peer for peer in peers}
    for place, (holder, seat) in held.items():
        kept = {*seat.entries()}
        wanted = by_name[holder].copies.keepers_of(seat)
        for peer in peers:
            copy = peer.holdings.copies.get((holder, place))
            if copy is None or copy.seat.claim < seat.claim:
                if peer.me in wanted:
                    complaints.append(f"{peer.me} has no copy of {place}")
            elif {*copy.seat.entries()} != kept:
                complaints.append(f"{peer.me} has another copy of {place} than {holder} keeps")
            elif copy.seat.near != seat.near:
                complaints.append(f"{peer.me} does not know who is next to {place}")
    return complaints


def _wrong_ways(peers: dict[Place, ReachPeer]) -> Iterator[str]:
    """§3.1: from each place to the host of each place's bits, in no more steps than bits differ."""
    pairs = [(start, target) for start in peers for target in peers]
    for start, target in pairs[:: max(1, len(pairs) // WAYS_MAX)]:
        here, sender, steps = peers[start], None, 0
        while here.holdings.seat_of(target.bits) is None and steps <= start.length:
            node = here.journeys.next_on_the_way(target.bits, "check", sender)
            found = [peer for peer in peers.values() if peer.me.node == node]
            if not found:
                break
            here, sender, steps = found[0], here.me, steps + 1
        if here is not peers[target] or steps > distance(start, target.bits):
            yield f"the way from {start} to {target} ends at {here.me} after {steps} steps"


def _wrong_trees(peers: dict[Place, ReachPeer]) -> Iterator[str]:
    """§3.2: whoever sends an event on by its table, all places with subsets are visited once."""
    everything = low_bits(max(place.length for place in peers)) if peers else 0
    events = [everything, 0, *(place.bits for place in peers)]
    for event in events[:: max(1, len(events) // EVENTS_MAX)]:
        order = event_order(f"check/{event}")
        ahead = [place for place in peers if place.hosts(event)]
        for place in ahead:
            if len(ahead) > len(peers):
                break
            near = peers[place].holdings.seats[place].near
            ahead += [other for other in near if is_parent(place, other, event, order)]
        if sorted(ahead) != sorted(place for place in peers if is_visited(place, event)):
            yield f"an event with the bits {event:b} visits {', '.join(map(str, ahead))}"


CHECKS: Final = Checks(quiet=check_quiet, watch=step_checker)
