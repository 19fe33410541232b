"""A flood that is already there: the random graph that joins lead to, set at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from peersub.filters.filter import Filter
from peersub.overlays.core.draws import draw_below
from peersub.overlays.core.shell import Shell
from peersub.overlays.flood.router import FloodRouter

__all__ = ["converge", "linked_places"]

_TRIES_PER_LINK = 8


def converge(
    peers: Sequence[Shell],
    subscriptions: Mapping[str, Mapping[str, Filter]],
    progress: Callable[[], None] = lambda: None,
) -> None:
    """Link the peers, each to some before it by keyed draws, and give them their subscriptions."""
    if not peers:
        return
    nodes = [peer.me.node for peer in peers]
    routers = [peer.router for peer in peers if isinstance(peer.router, FloodRouter)]
    linked = linked_places(nodes, peers[0].seed, [each.settings.degree for each in routers])
    for peer, router, places in zip(peers, routers, linked, strict=True):
        progress()
        neighbours = sorted(peers[place].me for place in places)
        # As after joins: each neighbour has named its own.
        told = sorted({nodes[far] for place in places for far in linked[place]})
        peer.install(neighbours, subscriptions.get(peer.me.node, {}))
        router.learn(told)


def linked_places(nodes: Sequence[str], seed: int, degrees: Sequence[int]) -> list[list[int]]:
    """Per node, in the order of the list, those that it is linked to, from either side."""
    linked: list[dict[int, None]] = [{} for _ in nodes]
    for place, node in enumerate(nodes):
        wanted = min(place, degrees[place])
        for attempt in range(_TRIES_PER_LINK * wanted):
            if len(linked[place]) >= wanted:
                break
            other = draw_below(place, seed, "flood/graph", node, attempt)
            linked[place][other] = None
            linked[other][place] = None
    return [list(places) for places in linked]
