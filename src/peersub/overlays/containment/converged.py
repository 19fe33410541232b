"""A tree that is already there: the canonical one of `structure`, which joins converge to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from peersub.filters.filter import Filter
from peersub.overlays.containment.peer import ContainmentPeer
from peersub.overlays.containment.structure import EdgeKind, TreeShape, canonical_shape
from peersub.overlays.containment.structure import Member as PlacedMember
from peersub.overlays.core.draws import draw_below
from peersub.overlays.core.identity import PeerId

__all__ = ["converge"]

CONTACTS = 16
"""Nodes that each node knows; they are drawn."""


def converge(
    peers: Sequence[ContainmentPeer],
    subscriptions: Mapping[str, Mapping[str, Filter]],
    progress: Callable[[], None] = lambda: None,
) -> None:
    """Give each filter its member, and each member its place; keepers stand below one of them."""
    members: list[PlacedMember] = []
    addresses: list[PeerId] = []
    hosts: dict[PeerId, ContainmentPeer] = {}
    for peer in peers:
        progress()
        about = (peer.seed, "containment/contact", peer.me.node)
        known = [peers[draw_below(len(peers), *about, turn)].me.node for turn in range(CONTACTS)]
        for address, wanted in peer.install(subscriptions.get(peer.me.node, {}), known):
            members.append(PlacedMember(address.node, address.slot, wanted))
            addresses.append(address)
            hosts[address] = peer
    if not members:
        _seat_keepers(peers, None)
        return
    settings = peers[0].settings
    shape = canonical_shape(
        members,
        rule="selectivity" if settings.rule == "selectivity" else "depth",
        count=peers[0].matches,
        equal_degree=settings.equal_degree,
        top_degree=settings.top_degree,
    )
    for number in _from_the_top(shape):
        progress()
        above = shape.parents[number]
        address = addresses[number]
        place = None if above < 0 else (addresses[above], shape.kinds[number])
        hosts[address].install_member(address, place, hosts)
    _seat_keepers(peers, hosts, addresses[shape.parents.index(-1)])


def _from_the_top(shape: TreeShape) -> list[int]:
    """Each member after the one above it, those below one in the order in which they came."""
    order = [shape.parents.index(-1)]
    for number in order:
        order += shape.below[number]
    return order


def _seat_keepers(
    peers: Sequence[ContainmentPeer],
    hosts: Mapping[PeerId, ContainmentPeer] | None,
    crown: PeerId | None = None,
) -> None:
    """A keeper stands below a member of its node, else below the crown."""
    known = dict(hosts or {})
    known |= {peer.keeper.me: peer for peer in peers}
    for peer in peers:
        own = [slot for slot in peer.hosting.members if slot != peer.keeper.me.slot]
        above = peer.me._replace(slot=own[0]) if own else crown
        place = None if above is None else (above, EdgeKind.VISIT)
        peer.install_member(peer.keeper.me, place, known)
        crown = crown or peer.keeper.me
    if crown is not None:
        _tell_heirs(crown, known)


def _tell_heirs(crown: PeerId, hosts: Mapping[PeerId, ContainmentPeer]) -> None:
    """Who follows the crown is known once all below it are there."""
    ahead = [crown]
    for address in ahead:
        seat = hosts[address].hosting.members[address.slot].seat
        for below, edge in seat.down.items():
            edge.told = told = seat.told(below)
            hosts[below].hosting.members[below.slot].seat.heirs = told.heirs
            ahead.append(below)
