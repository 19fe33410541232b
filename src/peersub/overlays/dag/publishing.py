"""Publishing (Module 5, §4.3.2): an event leaves on each of its layers, and is handed over once.

An event that comes over two layers goes on over both, and reaches each subscription of the node
once. The publisher treats its own event like one that came to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from peersub.overlays.core.batch import Batch
from peersub.overlays.core.effects import Drop, PublishCompleted, PublishFailed
from peersub.overlays.core.history import History
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.dag.layer import Layer
from peersub.overlays.dag.messages import Passed
from peersub.overlays.dag.topics import layers_of_event

if TYPE_CHECKING:
    from peersub.overlays.dag.peer import DagPeer

__all__ = ["Publishing"]

_BEST_EFFORT_ONLY: Final = "dag promises best effort only: use chord for at-least-once"


class Publishing:
    """The events that begin at a node, or come to it on its layers."""

    def __init__(self, peer: DagPeer) -> None:
        self._peer = peer
        settings = peer.settings
        self._passed: History[tuple[str, bytes]] = History(
            settings.passed_events_max, settings.passed_horizon_ms
        )
        """Per layer, the events that were passed on, or wait for a turn."""

    def publish(self, publication: Publication) -> None:
        """A publisher on this node hands over an event."""
        if publication.delivery is Delivery.AT_LEAST_ONCE:
            self._peer.emit(PublishFailed.of(publication, _BEST_EFFORT_ONLY))
            return
        self._begin(publication)
        self._peer.emit(PublishCompleted.of(publication))

    def publish_batch(self, batch: Batch) -> None:
        """Events travel one by one, and end together.

        Their identifiers name the batch and a number: whoever sees several knows that they have one
        publisher, and their order. Who minds publishes single events.
        """
        if batch.delivery is Delivery.AT_LEAST_ONCE:
            self._peer.emit(PublishFailed.of(batch, _BEST_EFFORT_ONLY))
            return
        for publication in batch.publications():
            self._begin(publication)
        self._peer.emit(PublishCompleted.of(batch))

    def _begin(self, publication: Publication) -> None:
        peer = self._peer
        self.hand_over(publication)
        for name in layers_of_event(publication.attributes, peer.topic):
            peer.frequent.published(name)
            layer = peer.layers.get(name)
            if layer is not None and layer.is_member:
                self.publish_on(layer, publication, None)
            else:
                peer.relaying.relay(name, publication)

    def hand_over(self, publication: Publication) -> None:
        """Give an event that was not seen before to the subscriptions here that want it."""
        home = self._peer.home
        if home.see(publication.key, self._peer.now_ms):
            home.hand_over(publication, 0)

    def publish_on(self, layer: Layer, publication: Publication, sender: PeerId | None) -> None:
        """An event leaves with the next turn, if the member has not passed it on before."""
        peer = self._peer
        if not self._passed.add((layer.name, publication.key), peer.now_ms):
            peer.emit(Drop("seen before", publication.id, sender))
        elif not layer.queue(publication, sender):
            peer.emit(Drop("too many events wait for a turn", publication.id, sender))
        else:
            peer.touch(layer)

    def on_passed(self, layer: Layer, sender: PeerId, message: Passed) -> None:
        """A neighbour passes an event on."""
        publication = message.publication
        layer.is_pressed = True
        self._peer.touch(layer)
        if (layer.name, publication.key) in self._passed:
            self._peer.emit(Drop("seen before", publication.id, sender))
            return
        if not publication.is_sound:
            self._peer.emit(Drop("its attributes cannot be read", publication.id, sender))
            return
        self.hand_over(publication)
        self.publish_on(layer, publication, sender)
