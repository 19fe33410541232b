"""Company: which layers the neighbours need, and where a subscriber would be in better company.

Neighbours on the layer of everybody tell each other which layers their subscriptions need: all when
their edge comes up, then the changes. That is about membership, which is not anonymous, and says
nothing of events. When a subscriber comes, or changes its mind, the node compares (`placement`),
and may propose that it moves to a neighbour (§4.3.1).

What the node does meanwhile does not depend on the answer: it joins the layers, and leaves those
that nobody needs after a while (`departures`). So a subscriber that stays is served as any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from peersub.overlays.core.effects import ProposeMove
from peersub.overlays.core.identity import PeerId
from peersub.overlays.dag.messages import LayersTold
from peersub.overlays.dag.placement import proposed_node
from peersub.overlays.dag.topics import EVERYBODY

if TYPE_CHECKING:
    from peersub.overlays.dag.peer import DagPeer

__all__ = ["NEEDED_KEPT_MAX", "Company"]

NEEDED_KEPT_MAX: Final = 1_024
"""Layers that are remembered of a neighbour."""
TOLD_MAX: Final = 256
"""Layers in one message."""


class Company:
    """What a peer knows of its neighbours' layers."""

    def __init__(self, peer: DagPeer) -> None:
        self._peer = peer
        self._near: dict[PeerId, dict[str, None]] = {}
        self._changed: dict[str, bool] = {}
        """Layers that are needed, or not any more, and of which the neighbours were not told."""

    def propose(self, subscription: str, layers: tuple[str, ...]) -> None:
        """A subscriber to these layers has come: would it be in better company elsewhere?"""
        if not self._peer.settings.clusters or self._peer.is_leaving:
            return
        near = {other.node: needed for other, needed in self._near.items()}
        node = proposed_node(layers, self._peer.membership.needed(), near)
        if node is not None:
            self._peer.emit(ProposeMove(subscription, node))

    def changed(self, layer: str, *, is_needed: bool) -> None:
        """A first subscription needs the layer, or the last one does no more."""
        if self._changed.pop(layer, is_needed) == is_needed:
            self._changed[layer] = is_needed

    def tell(self) -> None:
        """Let the neighbours know what has changed."""
        if self._changed:
            for other in self._peer.layers[EVERYBODY].edges:
                self._tell(other, self._changed)
            self._changed.clear()

    def _tell(self, other: PeerId, changes: dict[str, bool]) -> None:
        names = list(changes)
        for start in range(0, len(names), TOLD_MAX):
            part = names[start : start + TOLD_MAX]
            needed = tuple(name for name in part if changes[name])
            unneeded = tuple(name for name in part if not changes[name])
            self._peer.send(other, LayersTold(needed, unneeded))

    def edge_up(self, other: PeerId) -> None:
        """A new neighbour: what it needs it tells us, and we tell it."""
        self._near[other] = {}
        # What has changed just now it hears with the others.
        needed = self._peer.membership.needed()
        self._tell(other, {name: True for name in needed if name not in self._changed})

    def edge_gone(self, other: PeerId) -> None:
        """A neighbour no more."""
        self._near.pop(other, None)

    def install(self, other: PeerId, needed: list[str]) -> None:
        """A neighbour that needs these: for a start that is set."""
        self._near[other] = dict.fromkeys(needed)

    def on_layers_told(self, sender: PeerId, message: LayersTold) -> None:
        """A neighbour needs other layers than before."""
        near = self._near.get(sender)
        if near is None:
            return
        for name in message.unneeded:
            near.pop(name, None)
        for name in message.needed:
            if len(near) < NEEDED_KEPT_MAX:
                near[name] = None
