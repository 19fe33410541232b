"""What a member does by the clock: edges that it lacks, and whatever is to be tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from peersub.overlays.core.causes import Timer
from peersub.overlays.core.identity import PeerId
from peersub.overlays.dag.layer import Layer
from peersub.overlays.dag.messages import RequestVal
from peersub.overlays.dag.topics import EVERYBODY

if TYPE_CHECKING:
    from peersub.overlays.dag.peer import DagPeer

__all__ = ["TEND", "Tending"]

TEND: Final = "dag/tend"
SEARCHES_MAX: Final = 4
"""How often a member that lacks edges asks its neighbours for others, and nothing changes: in a
small layer there are none."""


class Tending:
    """Looks after the layers of a peer, each while there is something to do."""

    def __init__(self, peer: DagPeer) -> None:
        self._peer = peer
        self._waiting: dict[str, None] = {}
        """Layers whose timer is set."""

    def later(self, layer: Layer) -> None:
        """Look after the layer again in a while."""
        if layer.name not in self._waiting and not self._peer.is_leaving:
            self._waiting[layer.name] = None
            self._peer.set_timer(Timer(TEND, layer.name), self._peer.settings.tend_ms)

    def on_timer(self, layer_name: str) -> None:
        """The time has come."""
        self._waiting.pop(layer_name, None)
        layer = self._peer.layers.get(layer_name)
        if layer is not None and not self._peer.is_leaving:
            self._tend(layer)

    def _tend(self, layer: Layer) -> None:
        peer = self._peer
        peer.linking.expire(layer)
        if layer.name == EVERYBODY:
            peer.everybody.tend()
        else:
            peer.membership.tend(layer)
        peer.repair.tend(layer)
        peer.departures.tend(layer)
        if peer.layers.get(layer.name) is layer:
            self._search(layer)
            self.look(layer)

    def look(self, layer: Layer) -> None:
        """Set the timer, if there is something to do."""
        peer = self._peer
        if (
            layer.wishes
            or not layer.is_member
            or peer.repair.is_due(layer)
            or peer.membership.needs_tending(layer)
            or peer.departures.needs_tending(layer)
            or self._candidates(layer)
            or self._asks_around(layer)
        ):
            self.later(layer)

    def _lacking(self, layer: Layer) -> int:
        return self._peer.settings.degree_min - len(layer.edges) - len(layer.wishes)

    def _candidates(self, layer: Layer) -> list[PeerId]:
        """Whom to ask for an edge, if there are too few."""
        peer = self._peer
        if self._lacking(layer) <= 0 or not peer.takes_edges(layer):
            return []
        if peer.departures.stage(layer) is not None:
            return []
        return [
            other
            for other in layer.known
            if other not in layer.edges and other not in layer.wishes and other not in layer.forming
        ]

    def _asks_around(self, layer: Layer) -> bool:
        """Whether it lacks edges, knows nobody to ask, and its neighbours may."""
        peer = self._peer
        return (
            0 < len(layer.edges) < peer.settings.degree_min
            and layer.searches < SEARCHES_MAX
            and peer.takes_edges(layer)
            and peer.departures.stage(layer) is None
            and not self._candidates(layer)
        )

    def _search(self, layer: Layer) -> None:
        """Ask some of those who were not asked for a while, or let a neighbour find somebody."""
        peer = self._peer
        if self._asks_around(layer):
            if not layer.wishes and not layer.forming:
                layer.searches += 1
                near = {other.node: other for other in layer.edges}
                node = peer.repair.draw_order(near, "dag/asked")[0]
                peer.send(near[node], RequestVal(layer.name, peer.me, ()))
            return
        oldest_ms = peer.now_ms - peer.settings.wish_ms
        candidates = [other for other in self._candidates(layer) if layer.known[other] <= oldest_ms]
        by_node = {other.node: other for other in candidates}
        drawn = peer.repair.draw_order(by_node, "dag/neighbour") if by_node else []
        for node in drawn[: max(self._lacking(layer), 0)]:
            layer.known[by_node[node]] = peer.now_ms
            peer.linking.wish(layer, by_node[node])
