"""Layers that a node often publishes on, though none of its subscriptions needs them (§4.3.2).

The paper: a super-peer that is not connected to an event's layer "can decide to subscribe" to it,
"even if no peer is interested in the topic", which pays if its clients often publish there.
Otherwise it hands events to a member (`relaying`). A node that published `publish_joins` events on
such a layer within `publish_window_ms` joins it, and publishes by turns like any member. It leaves
when it published less than half as many in such a while.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from peersub.overlays.core.causes import Timer

if TYPE_CHECKING:
    from peersub.overlays.dag.peer import DagPeer

__all__ = ["FREQUENT", "Frequent"]

FREQUENT: Final = "dag/frequent"
LAYERS_COUNTED_MAX: Final = 1_024
"""Layers on which a node's publications are counted at a time."""
_WHO: Final = "\0publishers"
"""Stands for the node's publishers among the subscriptions that need a layer."""


class Frequent:
    """What a peer publishes, by layer."""

    def __init__(self, peer: DagPeer) -> None:
        self._peer = peer
        self._counts: dict[str, int] = {}
        """Events of the present while."""
        self._joined: dict[str, None] = {}

    def wants(self, layer: str) -> bool:
        """Whether the node is in the layer to publish there."""
        return layer in self._joined

    def published(self, layer: str) -> None:
        """A publisher here has an event for the layer."""
        peer, counts = self._peer, self._counts
        joins = peer.settings.publish_joins
        if not joins or (layer not in self._joined and peer.membership.needs(layer)):
            return
        count = counts.get(layer, 0)
        if not count and layer not in self._joined:
            if len(counts) >= LAYERS_COUNTED_MAX or layer not in peer.directory:
                return
            peer.set_timer(Timer(FREQUENT, layer), peer.settings.publish_window_ms)
        counts[layer] = count + 1
        if count + 1 >= joins and layer not in self._joined and not peer.is_leaving:
            self._joined[layer] = None
            peer.membership.subscribe(_name(layer), (layer,))

    def on_timer(self, layer: str) -> None:
        """A while is over: is the layer still worth being in?"""
        peer = self._peer
        count = self._counts.pop(layer, 0)
        if layer not in self._joined:
            return
        if count * 2 < peer.settings.publish_joins:
            del self._joined[layer]
            peer.membership.unsubscribe(_name(layer), (layer,))
        else:
            peer.set_timer(Timer(FREQUENT, layer), peer.settings.publish_window_ms)


def _name(layer: str) -> str:
    return f"{_WHO}/{layer}"
