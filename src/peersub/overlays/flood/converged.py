"""A flood that is already there: the random graph that joins lead to, set at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from peersub.filters.filter import Filter
from peersub.overlays.core.draws import draw_below
from peersub.overlays.core.identity import PeerId
from peersub.overlays.flood.peer import FloodPeer

__all__ = ["converge"]

_TRIES_PER_LINK = 8


def converge(
    peers: Sequence[FloodPeer],
    subscriptions: Mapping[str, Mapping[str, Filter]],
    progress: Callable[[], None] = lambda: None,
) -> None:
    """Link the peers, each to some before it by keyed draws, and give them their subscriptions."""
    linked: dict[PeerId, dict[PeerId, None]] = {peer.me: {} for peer in peers}
    for place, peer in enumerate(peers):
        progress()
        wanted = min(place, peer.settings.degree)
        for attempt in range(_TRIES_PER_LINK * wanted):
            if len(linked[peer.me]) >= wanted:
                break
            other = peers[draw_below(place, peer.seed, "flood/graph", peer.me.node, attempt)]
            linked[peer.me][other.me] = None
            linked[other.me][peer.me] = None
    for peer in peers:
        peer.install(sorted(linked[peer.me]), subscriptions.get(peer.me.node, {}))
