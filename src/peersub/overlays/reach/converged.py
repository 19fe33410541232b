"""A network that is already there: the places that joins one by one lead to, set at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from peersub.filters.filter import Filter
from peersub.overlays.core.draws import draw
from peersub.overlays.reach.holdings import Copy
from peersub.overlays.reach.identifiers import Place
from peersub.overlays.reach.messages import SeatFact, SeatsTold
from peersub.overlays.reach.peer import ReachPeer
from peersub.overlays.reach.seats import Copied, Seat, Told
from peersub.overlays.reach.structure import Places

__all__ = ["converge", "grown_places"]


def grown_places(nodes: Sequence[str], seed: int, identifier_bits: int) -> list[Place]:
    """The place of each node, when they have joined in this order, each by a keyed draw."""
    places = Places()
    held: dict[Place, int] = {}
    for number, node in enumerate(nodes):
        if not number:
            held[next(iter(places))] = number
            continue
        place = places.to_split(places.host(draw(seed, "reach/entry", node)), seed, node)
        assert place.length < identifier_bits, "there are more nodes than places"
        kept, new = places.split(place)
        held[kept] = held.pop(place)
        held[new] = number
    return sorted(held, key=lambda place: held[place])


def converge(
    peers: Sequence[ReachPeer],
    subscriptions: Mapping[str, Mapping[str, Filter]],
    progress: Callable[[], None] = lambda: None,
) -> None:
    """Give the peers their places, who is next to them, and their subscriptions to hosts."""
    if not peers:
        return
    bits = peers[0].settings.identifier_bits
    held = grown_places([peer.me.node for peer in peers], peers[0].seed, bits)
    places = Places.of(held)
    holder = dict(zip(held, peers, strict=True))
    near = {place: places.near(place) for place in held}
    seats = {place: Seat(place, 1) for place in held}
    facts = {
        place: SeatFact(place, 1, max((each.length for each in near[place]), default=0))
        for place in held
    }
    linked = {place: dict.fromkeys(near[place]) for place in held}
    for own, peer in holder.items():
        for entry in peer.install_subscriptions(subscriptions.get(peer.me.node, {})):
            host = places.host(entry.identifier)
            seats[host].store(entry, peer.bits, 0)
            # A host has confirmed what it keeps: there is a link, unless it has too many.
            if host != own and max(len(linked[own]), len(linked[host])) < peer.settings.links_max:
                linked[own][host] = linked[host][own] = None
    for place, peer in holder.items():
        progress()
        told = {holder[each].me: SeatsTold((facts[each],)) for each in linked[place]}
        peer.install(seats[place], told)
        around = [holder[each] for other in near[place] for each in near[other]]
        peer.acquaintances.learn(each.me.node for each in around)
    _spread_interest(seats, holder)
    _copy_to_heirs(seats, holder)


def _spread_interest(seats: Mapping[Place, Seat], holder: Mapping[Place, ReachPeer]) -> None:
    """All know what places below want, as if they had told each other: from the lowest up."""
    unheard = {place: len(seat.below()) for place, seat in seats.items()}
    ahead = [place for place, count in unheard.items() if not count]
    while ahead:
        place = ahead.pop()
        seat, peer = seats[place], holder[place]
        if not peer.settings.quench:
            return
        seat.wanted = peer.interests.wanted(seat)
        for above in seat.above():
            seats[above].interest[place] = seat.wanted
            seat.told[above] = Told(holder[above].me, seat.wanted, 0)
            unheard[above] -= 1
            if not unheard[above]:
                ahead.append(above)


def _copy_to_heirs(seats: Mapping[Place, Seat], holder: Mapping[Place, ReachPeer]) -> None:
    """The heirs of each place have what is kept there."""
    by_name = {peer.me: peer for peer in holder.values()}
    for place, seat in seats.items():
        peer = holder[place]
        for heir in peer.copies.keepers_of(seat):
            seat.copied[heir] = Copied(0, near=seat.near)
            copy = Seat(place, seat.claim, seat.near)
            copy.take_entries(seat, peer.bits)
            by_name[heir].holdings.copies[peer.me, place] = Copy(peer.me, copy)
