"""`Shell`: what every overlay needs around its `Router`, once for all of them.

* **Life.** A node is idle, joins, is a member, has left (`Phase`). A member is linked to the
  network that it was told to join, or has begun one since none of its contacts is there, and its
  router says that it is whole. Publications wait until then.
* **Membership.** Contacts and former neighbours are probed for ever, ever more rarely (`Probing`):
  parts of a network that can reach each other become one again.
* **Events.** An event is handed to the subscriptions of this node once, and is given to the router
  once, whichever way it came. What the overlay cannot promise is refused.
* **Subscriptions** are ready when they are on disk here and the router has confirmed them.

The router forwards; it holds no link, no subscription and no history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Final

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
    PersistFailed,
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
from peersub.overlays.core.effects import (
    HAS_LEFT,
    Connect,
    Disconnect,
    Drop,
    Effect,
    Notice,
    PublishCompleted,
    PublishFailed,
    SetTimer,
    SubscriptionReady,
)
from peersub.overlays.core.home import Home, HomeSettings
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message, message_kind
from peersub.overlays.core.outbox import Outbox
from peersub.overlays.core.probing import Probing
from peersub.overlays.core.protocol import Overlay
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.core.router import Router

__all__ = ["PUBLICATIONS_HELD_MAX", "Phase", "Shell", "ShellSettings"]

PUBLICATIONS_HELD_MAX: Final = 1_024
"""Events that wait for the node to be a member."""
_PROBE: Final = Timer("shell/probe")


class Phase(Enum):
    """Where a node is in its life."""

    IDLE = "idle"
    JOINING = "joining"
    MEMBER = "member"
    LEAVING = "leaving"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class ShellSettings:
    """What all overlays let people set."""

    probe_ms: int = 5_000
    """What pauses between attempts to reach contacts and former neighbours are measured by; 0 for
    no attempts."""
    home: HomeSettings = field(default_factory=HomeSettings)


class Shell(Overlay):
    """A peer of an overlay: its router, and all that is not the router's.

    Args:
        me: the peer.
        router: decides who forwards what to whom.
        settings: for all overlays.
        seed: what keyed draws depend on; the network's, not the node's.

    Attributes:
        linked: the peers to which a link is up, by node.
        home: the subscriptions of this node, and what was handed to them.
    """

    def __init__(self, me: PeerId, router: Router, settings: ShellSettings, seed: int) -> None:
        self.me = me
        self.name = router.name
        self.router = router
        self.seed = seed
        self.phase = Phase.IDLE
        self.linked: dict[str, PeerId] = {}
        self._out = Outbox()
        self.home = Home(settings.home, self._out.emit)
        self._probing = Probing(me, seed, _PROBE, settings.probe_ms, self._out.emit)
        self._dialled: dict[str, None] = {}
        self._contacts: dict[str, None] = {}
        self._awaited: dict[str, None] = {}
        """Contacts of which it is not known yet whether they are there."""
        self._held: list[Publication] = []
        self._stored: dict[str, None] = {}
        self._confirmed: dict[str, None] = {}
        router.attach(self)

    # --- for the driver ------------------------------------------------------------------------

    def handle(self, cause: Cause, now_ms: int) -> list[Effect]:
        """Take the cause in, and say what is to be done."""
        match cause:
            case Received(peer, messages):
                for message in messages:
                    self._on_message(peer, message, now_ms)
            case Publish(publications):
                self._publish(publications, now_ms)
            case PublishBatch(batch):
                self._publish_batch(batch, now_ms)
            case Subscribe(name, wanted):
                self._subscribe(name, wanted)
            case Unsubscribe(name):
                self._unsubscribe(name)
            case Persisted(token):
                self.home.on_persisted(token)
            case PersistFailed(token, reason):
                self.home.on_persist_failed(token, reason)
            case Restored(records):
                self.home.restore(records, now_ms)
                for name, wanted in self.home.subscriptions.items():
                    self._stored[name] = None
                    self.router.subscribe(name, wanted)
            case _:
                self._on_life(cause, now_ms)
        if self.phase is Phase.JOINING:
            self._look_for_membership(now_ms)
        return self._out.take()

    @property
    def takes_part(self) -> bool:
        """Whether it is a member."""
        return self.phase is Phase.MEMBER

    def links(self) -> Iterable[PeerId]:
        """The linked peers, by name."""
        return [self.linked[node] for node in sorted(self.linked)]

    def greeting(self) -> bytes:
        """The router's."""
        return self.router.greeting()

    def shared_settings(self) -> Mapping[str, str]:
        """The router's."""
        return self.router.shared_settings()

    def waiting_on(self, subscription: str) -> tuple[PeerId, ...]:
        """Asks the router."""
        return self.router.waits_for(subscription)

    def relays_for(self, node: str) -> Iterable[PeerId]:
        """Asks the router."""
        return self.router.relays_for(node)

    def describe(self) -> Mapping[str, Any]:
        """The state as plain values."""
        return {
            **self.router.describe(),
            "neighbours": sorted(self.linked),
            "subscriptions": sorted(self.home.subscriptions),
        }

    def install(self, linked: Iterable[PeerId], subscriptions: Mapping[str, Filter]) -> None:
        """Be a member with these links and subscriptions: for a start that is set."""
        self.phase = Phase.MEMBER
        self.linked = {peer.node: peer for peer in linked}
        self.home.install(subscriptions)

    # --- for the router ------------------------------------------------------------------------

    def send(self, peer: PeerId, message: Message) -> None:
        """Say something to a linked peer."""
        self._out.send(peer, message)

    def dial(self, node: str) -> None:
        """Have a link to the node: `link_up` or `dial_failed` follows, unless there is one."""
        if node != self.me.node and node not in self.linked and node not in self._dialled:
            self._dialled[node] = None
            self._out.emit(Connect(node))

    @property
    def dialled(self) -> Mapping[str, None]:
        """The nodes that are being dialled."""
        return self._dialled

    @property
    def is_leaving(self) -> bool:
        """Whether the node takes leave, or has left: no link is made any more."""
        return self.phase in (Phase.LEAVING, Phase.LEFT)

    def close(self, peer: PeerId, reason: str) -> None:
        """Give up a link."""
        if self.linked.pop(peer.node, None) is not None:
            self._out.emit(Disconnect(peer, reason))

    def set_timer(self, timer: Timer, delay_ms: int) -> None:
        """Have `tick` called after so long."""
        self._out.emit(SetTimer(timer, delay_ms))

    def drop(self, reason: str, event_id: str | None = None, peer: PeerId | None = None) -> None:
        """Something ends here, and why."""
        self._out.emit(Drop(reason, event_id, peer))

    def confirm(self, name: str) -> None:
        """Events find the way to a subscription from now on."""
        self._confirmed[name] = None
        self._say_ready(name)

    def forward(
        self, events: Sequence[Publication], hops: int, sender: PeerId | None, now_ms: int
    ) -> None:
        """Hand events to those who want them here, and let the router route those that are new."""
        new = []
        for event in events:
            if not event.is_sound:
                self.drop("its attributes cannot be read", event.id, sender)
            elif not self.home.see(event.key, now_ms):
                self.drop("seen before", event.id, sender)
            else:
                self.home.hand_over(event, hops)
                new.append(event)
        if new:
            self.router.route(new, hops, sender)

    # --- events --------------------------------------------------------------------------------

    def _publish(self, publications: Sequence[Publication], now_ms: int) -> None:
        for publication in publications:
            refusal = self._refusal(publication)
            if refusal is not None:
                self._out.emit(PublishFailed.of(publication, refusal))
            elif self.phase is Phase.MEMBER:
                self.forward((publication,), 0, None, now_ms)
                self._out.emit(PublishCompleted.of(publication))
            else:
                self._held.append(publication)

    def _publish_batch(self, batch: Batch, now_ms: int) -> None:
        """No router takes columns yet: events travel one by one, and end together."""
        refusal = self._refusal(batch)
        if refusal is None and self.phase is not Phase.MEMBER:
            # Who publishes so much can wait, and try again.
            refusal = "the node is not a member of the network: publish when it is"
        if refusal is None:
            self.forward(list(batch.publications()), 0, None, now_ms)
            self._out.emit(PublishCompleted.of(batch))
        else:
            self._out.emit(PublishFailed.of(batch, refusal))

    def _refusal(self, content: Publication | Batch) -> str | None:
        if content.delivery is Delivery.AT_LEAST_ONCE:
            return f"{self.name} promises best effort only: use chord for at-least-once"
        if self.is_leaving:
            return HAS_LEFT
        if len(self._held) >= PUBLICATIONS_HELD_MAX:
            return "the node has not joined yet, and too much waits for that"
        return None

    def _on_message(self, peer: PeerId, message: Message, now_ms: int) -> None:
        if self.linked.get(peer.node) != peer:
            self.drop(f"{message_kind(message)} from a peer that is not linked", None, peer)
        elif not self.router.on_message(peer, message, now_ms):
            self.drop(f"{self.name} does not know {message_kind(message)}", None, peer)

    # --- subscriptions -------------------------------------------------------------------------

    def _subscribe(self, name: str, wanted: Filter) -> None:
        if not self.home.subscribe(name, wanted, partial(self._on_stored, name)):
            self.drop(f"the subscription {name} exists already, or there are too many")
            return
        self.router.subscribe(name, wanted)

    def _on_stored(self, name: str) -> None:
        if name in self.home.subscriptions:
            self._stored[name] = None
            self._say_ready(name)

    def _say_ready(self, name: str) -> None:
        if self.phase is Phase.MEMBER and name in self._stored and name in self._confirmed:
            self._out.emit(SubscriptionReady(name))

    def _unsubscribe(self, name: str) -> None:
        if self.home.unsubscribe(name):
            self._stored.pop(name, None)
            self._confirmed.pop(name, None)
            self.router.unsubscribe(name)

    # --- life ----------------------------------------------------------------------------------

    def _on_life(self, cause: Cause, now_ms: int) -> None:
        match cause:
            case Start():
                self.phase = Phase.JOINING
            case Join(contacts):
                self._join(contacts, now_ms)
            case PeerConnected(peer, greeting):
                self._on_connected(peer, greeting, now_ms)
            case PeerLost(peer, reason):
                if self.linked.get(peer.node) == peer:
                    del self.linked[peer.node]
                    self._out.forget(peer)
                    self._probing.lost(peer, now_ms)
                    self.router.link_down(peer, reason)
            case ConnectFailed(node, _, refused):
                self._dialled.pop(node, None)
                if not refused:
                    self._awaited.pop(node, None)
                self.router.dial_failed(node)
            case TimerFired(timer) if timer == _PROBE:
                if not self.is_leaving:
                    for node in self._probing.take_due(now_ms):
                        self.dial(node)
            case TimerFired(timer):
                self.router.tick(timer, now_ms)
            case Leave():
                self._leave()
            case _:
                pass

    def _join(self, contacts: Sequence[str], now_ms: int) -> None:
        if self.phase is Phase.IDLE:
            self.phase = Phase.JOINING
        named = [node for node in contacts if node not in (self.me.node, *self._contacts)]
        new = dict.fromkeys(named)
        self._contacts.update(new)
        self._awaited.update(new)
        self._probing.add_contacts(new, now_ms)
        for node in new:
            self.dial(node)
        self.router.contacts_named(tuple(new))

    def _on_connected(self, peer: PeerId, greeting: bytes, now_ms: int) -> None:
        if self.is_leaving:
            return  # Somebody else on the node needs the link: the overlay goes on without it.
        self._dialled.pop(peer.node, None)
        self.linked[peer.node] = peer
        self._probing.found(peer.node, now_ms)
        self.router.link_up(peer, greeting)

    def _look_for_membership(self, now_ms: int) -> None:
        """A node is a member when it has a place beside others, or when nobody is there to join."""
        if not self.linked and self._awaited:
            return
        if not self.router.is_whole():
            return
        if self._contacts and not self.linked:
            self._out.emit(Notice("nobody to join was found: this node begins a network"))
        self.phase = Phase.MEMBER
        for name in self._stored:
            self._say_ready(name)
        held, self._held = self._held, []
        self._publish(held, now_ms)

    def _leave(self) -> None:
        if self.is_leaving:
            return
        self.phase = Phase.LEAVING
        self.router.leave()
        self.phase = Phase.LEFT
        for publication in self._held:
            self._out.emit(PublishFailed.of(publication, HAS_LEFT))
        self._held = []
        for peer in self.links():
            self.close(peer, "leaves")
