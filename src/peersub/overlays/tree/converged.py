"""A tree that is already there: balanced, each node below the one its place in the list gives it.

Joins lead to a random tree of the same degree; the filters on its edges are what subscriptions
lead to on this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from peersub.filters.filter import Filter
from peersub.overlays.core.identity import PeerId
from peersub.overlays.routing.combination import Combination
from peersub.overlays.routing.rows import Rows
from peersub.overlays.tree.peer import TreePeer

__all__ = ["converge", "parent_place"]


def converge(
    peers: Sequence[TreePeer],
    subscriptions: Mapping[str, Mapping[str, Filter]],
    progress: Callable[[], None] = lambda: None,
) -> None:
    """Make the peers one tree with the first as its root, and fill the tables of all edges."""
    for place, peer in enumerate(peers):
        progress()
        wide = peer.settings.children_max
        parent = peers[parent_place(place, wide)] if place else None
        children = peers[place * wide + 1 : place * wide + wide + 1]
        peer.install(parent, [child.me for child in children])
        peer.engine.home.install(subscriptions.get(peer.me.node, {}))
        for name, wanted in subscriptions.get(peer.me.node, {}).items():
            peer.engine.maintenance.subscribe(name, wanted)
    tables = _tables(peers)
    for peer in peers:
        edges = peer.topology.edges()
        peer.engine.install(
            told={edge: tables[(peer.me, edge)] for edge in edges},
            sent={edge: (peer.topology.scope_of(edge), tables[(edge, peer.me)]) for edge in edges},
            connected=edges,
        )


def parent_place(place: int, children_max: int) -> int:
    """The place in the list of the parent of the node at this one, which is not the root's.

    >>> [parent_place(place, 2) for place in range(1, 7)]
    [0, 0, 1, 1, 2, 2]
    """
    return (place - 1) // children_max


def _tables(peers: Sequence[TreePeer]) -> dict[tuple[PeerId, PeerId], Rows]:
    """The rows on each edge, (publisher, peer): first towards the root, then away from it."""
    by_name = {peer.me: peer for peer in peers}
    tables: dict[tuple[PeerId, PeerId], Rows] = {}

    combinations = {peer.me: _combination(peer) for peer in peers}

    def work_out(publisher: PeerId, me: PeerId) -> None:
        topology = by_name[me].topology
        scope = topology.scope_of(publisher)
        rows = combinations[me].rows(topology.serves(publisher, scope), scope)
        tables[(publisher, me)] = rows
        combinations[publisher].replace(me, rows)

    for peer in reversed(peers):
        if peer.parent is not None:
            work_out(peer.parent, peer.me)
    for peer in peers:
        for child in peer.children:
            work_out(child, peer.me)
    return tables


def _combination(peer: TreePeer) -> Combination:
    maintenance = peer.engine.maintenance
    combination = maintenance.strategy.combination()
    combination.replace(None, maintenance.local_rows())
    return combination
