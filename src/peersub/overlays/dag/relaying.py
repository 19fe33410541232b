"""Publishing on a layer that the node is no member of: through one that is (§4.3.2).

The member publishes the event as its own. It knows who sent it; nobody else does. Whoever gets an
event to relay and has left the layer passes it on to another member, each event once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from peersub.overlays.core.effects import Drop
from peersub.overlays.core.history import History
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Publication
from peersub.overlays.dag.messages import Relay

if TYPE_CHECKING:
    from peersub.overlays.dag.peer import DagPeer

__all__ = ["WAITING_MAX", "Relaying"]

WAITING_MAX: Final = 4_096
"""Events for one member that wait until the link to it is up."""


class Relaying:
    """The events that a peer hands to members of layers."""

    def __init__(self, peer: DagPeer) -> None:
        self._peer = peer
        self._waiting: dict[PeerId, list[Relay]] = {}
        """Per member, what was said before the link was up: it may turn out to be gone."""
        settings = peer.settings
        self._passed_on: History[tuple[str, bytes]] = History(
            settings.passed_events_max, settings.passed_horizon_ms
        )

    def relay(self, layer: str, publication: Publication) -> None:
        """Let a member publish the event; nothing if the layer has none."""
        self._send(Relay(layer, publication))

    def _send(self, message: Relay) -> None:
        peer = self._peer
        contact = next(
            (each for each in peer.directory.contacts(message.layer) if each != peer.me), None
        )
        if contact is None:
            return
        if not peer.hosting.is_linked_to(contact):
            waiting = self._waiting.setdefault(contact, [])
            if len(waiting) >= WAITING_MAX:
                peer.emit(Drop("too much waits for a link", message.publication.id, contact))
                return
            waiting.append(message)
        else:
            self._waiting.pop(contact, None)  # it is the same link again that was to be closed
        peer.send(contact, message)

    def on_relay(self, sender: PeerId, message: Relay) -> None:
        """Publish somebody's event."""
        peer = self._peer
        publication = message.publication
        if not publication.is_sound:
            peer.emit(Drop("its attributes cannot be read", publication.id, sender))
            return
        layer = peer.layers.get(message.layer)
        if layer is not None and layer.is_member:
            peer.publishing.hand_over(publication)
            peer.publishing.publish_on(layer, publication, None)
        elif self._passed_on.add((message.layer, publication.key), peer.now_ms):
            self._send(message)
        else:
            peer.emit(Drop("relayed before", publication.id, sender))

    def connected(self, peer: PeerId) -> None:
        """What waited for this link has left."""
        self._waiting.pop(peer, None)

    def lost(self, peer: PeerId) -> None:
        """What waited for a link goes to another member, if one is known."""
        for message in self._waiting.pop(peer, ()):
            self._peer.directory.forget(message.layer, peer)
            self._send(message)
