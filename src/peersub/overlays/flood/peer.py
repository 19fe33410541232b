"""`FloodPeer`: forward every event to every neighbour, once.

The graph: a node keeps links to `degree` nodes of its choice, and whatever links others make to it.
It chooses by keyed draws among the nodes that its neighbours name. When it has fewer than it wants
it asks again, and tries former neighbours, so that parts of a split network find each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from peersub.filters.filter import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.causes import (
    Cause,
    ConnectFailed,
    Join,
    Leave,
    PeerConnected,
    PeerLost,
    Persisted,
    Publish,
    PublishBatch,
    Received,
    Restored,
    Start,
    Subscribe,
    Timer,
    TimerFired,
    Unsubscribe,
)
from peersub.overlays.core.draws import draw
from peersub.overlays.core.effects import (
    Connect,
    Disconnect,
    Drop,
    Effect,
    PublishCompleted,
    PublishFailed,
    SetTimer,
    SubscriptionReady,
)
from peersub.overlays.core.home import Home, HomeSettings
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.outbox import Outbox
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.flood.messages import Flooded, Neighbours, NeighboursWanted

__all__ = ["FloodPeer", "FloodSettings"]

_SEARCH = Timer("flood/search")
_PROBE = Timer("flood/probe")


@dataclass(frozen=True, slots=True)
class FloodSettings:
    """How many links a node keeps, and how it looks for them."""

    degree: int = 4
    """Links that a node makes by itself."""
    search_ms: int = 2_000
    """How often it looks for more while it has too few; 0 for never."""
    known_nodes_max: int = 64
    """Nodes that it has heard of and may connect to."""
    probe_ms: int = 5_000
    """How often it tries to reach one of its former neighbours; 0 for never."""
    home: HomeSettings = field(default_factory=HomeSettings)


_BEST_EFFORT_ONLY = "flood promises best effort only: use chord for at-least-once"


class FloodPeer:
    """A node's part in the flood."""

    name = "flood"

    def __init__(self, me: PeerId, settings: FloodSettings, seed: int) -> None:
        self.me = me
        self.settings = settings
        self.seed = seed
        self._out = Outbox()
        self.home = Home(settings.home, self._out.emit)
        self._neighbours: dict[str, PeerId] = {}
        self._known: dict[str, None] = {}
        self._connecting: dict[str, None] = {}
        self._former: dict[str, None] = {}
        self._searching = False
        self._probing = False
        self._leaving = False
        self._contacts: tuple[str, ...] = ()
        self._awaited: dict[str, None] = {}
        """Contacts of which it is not known yet whether they are there."""

    # --- the interface -------------------------------------------------------------------------

    def handle(self, cause: Cause, now_ms: int) -> list[Effect]:
        """Take the cause in, and say what is to be done."""
        match cause:
            case Received(peer, messages):
                for message in messages:
                    self._on_message(peer, message, now_ms)
            case Publish(publications):
                for publication in publications:
                    self._publish(publication, now_ms)
            case PublishBatch(batch):
                self._publish_batch(batch, now_ms)
            case Subscribe(name, wanted):
                if not self.home.subscribe(name, wanted, lambda: self._ready(name)):
                    self._out.emit(Drop(f"the subscription {name} exists already"))
            case Unsubscribe(name):
                self.home.unsubscribe(name)
            case Persisted(token):
                self.home.on_persisted(token)
            case Restored(records):
                self.home.restore(records, now_ms)
                for name in self.home.subscriptions:
                    self._ready(name)
            case _:
                self._on_change_of_links(cause, now_ms)
        return self._out.take()

    def greeting(self) -> bytes:
        """Nothing that others need to know."""
        return b""

    def shared_settings(self) -> Mapping[str, str]:
        """Nothing that all must agree on."""
        return {}

    def links(self) -> Iterable[PeerId]:
        """The neighbours, by name."""
        return [self._neighbours[node] for node in sorted(self._neighbours)]

    @property
    def takes_part(self) -> bool:
        """Whether it is linked to the network that it was to join, or has begun one.

        One whose contacts are not there goes on trying them: a link makes two networks one.
        """
        return bool(self._neighbours) or not self._awaited

    def describe(self) -> Mapping[str, Any]:
        """The state as plain values."""
        return {
            "neighbours": sorted(self._neighbours),
            "subscriptions": sorted(self.home.subscriptions),
        }

    def install(
        self,
        neighbours: Iterable[PeerId],
        subscriptions: Mapping[str, Filter],
        told: Iterable[str] = (),
    ) -> None:
        """Be in this state, having been told of some nodes: for a start that is set."""
        self._neighbours = {peer.node: peer for peer in neighbours}
        for node in told:
            self._learn(node)
        self.home.install(subscriptions)

    # --- events --------------------------------------------------------------------------------

    def _publish(self, publication: Publication, now_ms: int) -> None:
        if publication.delivery is Delivery.AT_LEAST_ONCE:
            self._out.emit(PublishFailed.of(publication, _BEST_EFFORT_ONLY))
            return
        self._spread(publication, 0, None, now_ms)
        self._out.emit(PublishCompleted.of(publication))

    def _publish_batch(self, batch: Batch, now_ms: int) -> None:
        """Flooding looks at no content: its events travel one by one, and end together."""
        if batch.delivery is Delivery.AT_LEAST_ONCE:
            self._out.emit(PublishFailed.of(batch, _BEST_EFFORT_ONLY))
            return
        for publication in batch.publications():
            self._spread(publication, 0, None, now_ms)
        self._out.emit(PublishCompleted.of(batch))

    def _on_flooded(self, peer: PeerId, message: Flooded, now_ms: int) -> None:
        if not message.publication.is_sound:
            self._out.emit(Drop("its attributes cannot be read", message.publication.id, peer))
            return
        self._spread(message.publication, message.hops, peer, now_ms)

    def _spread(
        self, publication: Publication, hops: int, sender: PeerId | None, now_ms: int
    ) -> None:
        if not self.home.see(publication.key, now_ms):
            self._out.emit(Drop("seen before", publication.id, sender))
            return
        self.home.hand_over(publication, hops)
        flooded = Flooded(publication, hops + 1)
        for neighbour in self._neighbours.values():
            if neighbour != sender:
                self._out.send(neighbour, flooded)

    def _ready(self, name: str) -> None:
        if name in self.home.subscriptions:
            self._out.emit(SubscriptionReady(name))

    # --- the graph -----------------------------------------------------------------------------

    def _on_change_of_links(self, cause: Cause, now_ms: int) -> None:
        match cause:
            case Start():
                pass
            case Join(contacts):
                new = [node for node in contacts if node not in (self.me.node, *self._contacts)]
                self._contacts = (*self._contacts, *new)
                self._awaited.update(dict.fromkeys(new))
                for node in new:
                    self._learn(node)
                self._search(at_least=len(new))
            case PeerConnected(peer):
                self._on_connected(peer)
            case PeerLost(peer):
                if self._neighbours.get(peer.node) == peer:
                    self._on_lost(peer)
            case ConnectFailed(node, _, refused):
                self._connecting.pop(node, None)
                if node in self._contacts and not refused:
                    self._awaited.pop(node, None)
                    self._former[node] = None
                    self._probe_later()
                self._search_later()
            case TimerFired(timer) if timer == _SEARCH:
                self._searching = False
                self._search()
            case TimerFired(timer) if timer == _PROBE:
                self._probing = False
                self._probe()
            case Leave():
                self._leaving = True
                for peer in self.links():
                    self._out.emit(Disconnect(peer, "leaves"))
                self._neighbours.clear()
            case _:
                pass

    def _on_connected(self, peer: PeerId) -> None:
        self._connecting.pop(peer.node, None)
        self._known.pop(peer.node, None)
        self._former.pop(peer.node, None)
        self._neighbours[peer.node] = peer
        self._out.send(peer, NeighboursWanted())

    def _on_lost(self, peer: PeerId) -> None:
        del self._neighbours[peer.node]
        self._former[peer.node] = None
        while len(self._former) > self.settings.known_nodes_max:
            del self._former[next(iter(self._former))]
        # One more than it had: what is left of the graph grows together at other places.
        self._search(at_least=1)
        self._probe_later()

    def _on_message(self, peer: PeerId, message: object, now_ms: int) -> None:
        if isinstance(message, Flooded):
            self._on_flooded(peer, message, now_ms)
        elif isinstance(message, NeighboursWanted):
            nodes = [node for node in sorted(self._neighbours) if node != peer.node]
            self._out.send(peer, Neighbours(tuple(nodes[: self.settings.known_nodes_max])))
        elif isinstance(message, Neighbours):
            for node in message.nodes:
                self._learn(node)
            self._search()
        else:
            self._out.emit(Drop(f"flood does not know {type(message).__name__}", None, peer))

    def _learn(self, node: str) -> None:
        if node == self.me.node or node in self._neighbours:
            return
        self._known.pop(node, None)
        self._known[node] = None
        while len(self._known) > self.settings.known_nodes_max:
            del self._known[next(iter(self._known))]

    def _probe(self) -> None:
        """Try the former neighbour that was tried longest ago."""
        if self._former and not self._leaving:
            node = next(iter(self._former))
            self._former[node] = self._former.pop(node)
            if node not in self._connecting:
                self._connecting[node] = None
                self._out.emit(Connect(node))
        self._probe_later()

    def _probe_later(self) -> None:
        if self._former and not self._probing and not self._leaving and self.settings.probe_ms:
            self._probing = True
            self._out.emit(SetTimer(_PROBE, self.settings.probe_ms))

    def _search(self, at_least: int = 0) -> None:
        """Connect to nodes heard of until there are enough links; look again later if not."""
        if self._leaving:
            return
        missing = self.settings.degree - len(self._neighbours) - len(self._connecting)
        missing = max(missing, at_least)
        if missing <= 0:
            return
        candidates = [n for n in self._known if n not in self._connecting]
        candidates.sort(key=lambda node: draw(self.seed, "flood/neighbour", self.me.node, node))
        for node in candidates[:missing]:
            self._connecting[node] = None
            self._out.emit(Connect(node))
        self._search_later()

    def _search_later(self) -> None:
        """A timer only while something is missing and someone is known: it ends by itself."""
        wanting = len(self._neighbours) < self.settings.degree
        if self._searching or self._leaving or not wanting or not self.settings.search_ms:
            return
        if self._known or self._connecting:
            self._searching = True
            self._out.emit(SetTimer(_SEARCH, self.settings.search_ms))
