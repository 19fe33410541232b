"""Layers that are already there: the graphs that joins lead to, set at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from peersub.filters.filter import Filter
from peersub.overlays.core.draws import draw_below
from peersub.overlays.dag.directory import Directory
from peersub.overlays.dag.graph import layer_graph
from peersub.overlays.dag.layer import Edge
from peersub.overlays.dag.messages import Entry, Label
from peersub.overlays.dag.peer import DagPeer
from peersub.overlays.dag.topics import EVERYBODY

__all__ = ["HEARD_OF", "converge"]

HEARD_OF: Final = 8
"""Members that each has heard of beside its neighbours and theirs."""
LID_BITS: Final = 24
"""Lids are those of the graph with so many bits that are drawn: members that have the same one in
the graph may become neighbours later."""


def converge(
    peers: Sequence[DagPeer],
    subscriptions: Mapping[str, Mapping[str, Filter]],
    progress: Callable[[], None] = lambda: None,
) -> None:
    """Make the peers members of their layers, all of one graph each, and of the directory."""
    if not peers:
        return
    members: dict[str, list[DagPeer]] = {EVERYBODY: list(peers)}
    for peer in peers:
        progress()
        for name in peer.install(subscriptions.get(peer.me.node, {})):
            members.setdefault(name, []).append(peer)
    directory = Directory(peers[0].settings.layers_known_max)
    for name, its in members.items():
        progress()
        _link(name, its)
        if name != EVERYBODY:
            directory.note(Entry(name, Label(1, its[0].me)))
    needed = {peer.me: peer.membership.needed() for peer in peers}
    for peer in peers:
        progress()
        peer.install_links(directory)
        for other in peer.layers[EVERYBODY].edges:
            peer.company.install(other, needed[other])


def _link(name: str, members: Sequence[DagPeer]) -> None:
    """The edges of one layer; its first member is the steward."""
    nodes = [peer.me.node for peer in members]
    graph = layer_graph(members[0].seed, name, nodes, members[0].settings.degree)
    label = Label(1, members[0].me)
    lids = [
        (lid << LID_BITS) + draw_below(1 << LID_BITS, peer.seed, "dag/lid", name, *peer.me)
        for peer, lid in zip(members, graph.lids, strict=True)
    ]
    for place, peer in enumerate(members):
        layer = peer.layers[name]
        layer.label = label
        layer.lid = lids[place]
        layer.is_member = layer.is_announced = True
        for other in graph.neighbours[place]:
            holds_token = graph.holds_token(place, other)
            layer.edges[members[other].me] = Edge(0, lids[other], holds_token, 0)
        # As after joins: each neighbour has named its own, and requests and waves others.
        heard = {far: None for other in graph.neighbours[place] for far in graph.neighbours[other]}
        for number in range(HEARD_OF):
            about = (name, peer.me.node, number)
            heard[draw_below(len(members), peer.seed, "dag/heard", *about)] = None
        peer.learn(layer, (members[other].me for other in (*graph.neighbours[place], *heard)))
