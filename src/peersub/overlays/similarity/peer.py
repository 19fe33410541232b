"""`SimilarityPeer`: a node's part in the similarity graph. It hosts the node's members.

Slot 0 is the *desk* of the node: it finds members elsewhere for newcomers and for publications of
a node without members, keeps the shared sample, and looks for nodes that were lost. A node without
members keeps a link to nodes that it knows, and is told of members there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from peersub.overlays.core.draws import draw_share
from peersub.overlays.core.effects import (
    Drop,
    Effect,
    PublishCompleted,
    PublishFailed,
    SetTimer,
    SubscriptionReady,
)
from peersub.overlays.core.home import Home
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.outbox import Outbox
from peersub.overlays.core.protocol import Overlay
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.semantic.hosting import IDLE, Hosting
from peersub.overlays.semantic.sample import SharedSample
from peersub.overlays.similarity.desk import PROBE, Desk
from peersub.overlays.similarity.member import SimilarityMember
from peersub.overlays.similarity.messages import Routed, Sought
from peersub.overlays.similarity.routing import Routing
from peersub.overlays.similarity.settings import SimilaritySettings

__all__ = ["SimilarityPeer"]

_TICK = Timer("similarity/tick")
_BEST_EFFORT_ONLY: Final = (
    "similarity promises best effort only: use chord for at-least-once; it may miss subscribers"
)


class SimilarityPeer(Overlay):
    """The members of a node, and its desk."""

    name = "similarity"

    def __init__(self, me: PeerId, settings: SimilaritySettings, seed: int) -> None:
        self.me = me
        self.settings = settings
        self.seed = seed
        self.sample = SharedSample(settings.sampling)
        self.is_leaving = False
        self._out = Outbox()
        self.home = Home(settings.home, self._out.emit)
        self.hosting: Hosting[Any] = Hosting(me, settings.hosting, self._out, self.is_needed)
        self.desk = Desk(self, self._out.emit)
        self.hosting.add(me, self.desk)
        self._routing = Routing(self)
        self._by_filter: dict[bytes, SimilarityMember] = {}
        self._names: dict[bytes, dict[str, None]] = {}
        """Per filter, the subscriptions that share its member."""
        self._now_ms = 0
        self._published: list[Publication] = []
        """Since the last tick, as many as a sample has; more would hardly get in."""
        self._is_ticking = False
        self._ticks = 0

    # --- the interface -------------------------------------------------------------------------

    def handle(self, cause: Cause, now_ms: int) -> list[Effect]:
        """Take the cause in, and say what is to be done."""
        self._now_ms = now_ms
        match cause:
            case Received(peer, messages):
                for message in messages:
                    if isinstance(message, Routed | Sought):
                        self._routing.stand_in(message, now_ms)
                    self.hosting.on_message(peer, message, now_ms)
            case Publish(publications):
                for publication in publications:
                    self._publish(publication, now_ms)
            case PublishBatch(batch):
                self._publish_batch(batch, now_ms)
            case Subscribe(name, wanted):
                self._subscribe(name, wanted)
            case Unsubscribe(name):
                self._unsubscribe(name)
            case Persisted(token):
                self.home.on_persisted(token)
            case Restored(records):
                self.home.restore(records, now_ms)
                for name, wanted in self.home.subscriptions.items():
                    self._move_in(name, wanted)
                    self._ready_later(name, wanted)
            case _:
                self._on_change_of_links(cause, now_ms)
        self.hosting.run(now_ms)
        self._tick_later()
        return self._out.take()

    def shared_settings(self) -> Mapping[str, str]:
        """What all nodes must agree on: what is in the sample, and what a summary means."""
        sampling = self.settings.sampling
        return {
            "sample_event_bytes_max": str(sampling.sample_event_bytes_max),
            "sample_events": str(sampling.sample_events),
            "summary_bytes": str(self.settings.summary_bytes),
        }

    def links(self) -> Iterable[PeerId]:
        """The nodes that there are links to, by name."""
        return self.hosting.links()

    @property
    def takes_part(self) -> bool:
        """Whether it has begun a network, or a node of the one that it joins has answered."""
        return self.desk.takes_part

    @property
    def missing_nodes(self) -> list[str]:
        """Nodes that should be in the network, and are looked for."""
        return self.desk.probing.missing

    def waiting_on(self, subscription: str) -> tuple[PeerId, ...]:
        """The members whose answer a subscription needs to be ready."""
        wanted = self.home.subscriptions.get(subscription)
        member = None if wanted is None else self._by_filter.get(wanted.digest)
        return () if member is None else member.waiting_on()

    def describe(self) -> Mapping[str, Any]:
        """The state as plain values."""
        return {
            "members": {
                str(member.me): {
                    "chosen_by": sorted(map(str, member.choosers)),
                    "filter": member.wanted.text,
                    "near": sorted(map(str, member.near)),
                    "random": sorted(map(str, member.drawn)),
                }
                for member in self.members()
            },
            "promise": "approximate: events may miss subscribers, and come to none twice",
            "sample": {"digest": self.sample.digest.hex(), "events": len(self.sample)},
            "subscriptions": sorted(self.home.subscriptions),
        }

    @property
    def is_cold(self) -> bool:
        """Whether the sample is too small to choose by."""
        return self.settings.is_cold(len(self.sample))

    # --- what members and the desk ask of their node -------------------------------------------

    def members(self) -> list[SimilarityMember]:
        """The members that live here, in the order of their slots."""
        return list(self._by_filter.values())

    def hosts(self, peer: PeerId) -> bool:
        """Whether this member lives here."""
        return peer._replace(slot=0) == self.me and peer.slot in self.hosting.members

    def send(self, to: PeerId, message: Message) -> None:
        """Say something to a member, or a desk."""
        self.hosting.send(to, message, self._now_ms)

    def drop(self, reason: str, peer: PeerId | None = None, event_id: str | None = None) -> None:
        """Something ends here."""
        self._out.emit(Drop(reason, event_id, peer))

    def on_routed(
        self, member: SimilarityMember, sender: PeerId, message: Routed, now_ms: int
    ) -> None:
        """A copy of an event comes to a member."""
        self._routing.on_routed(member, sender, message, now_ms)

    def on_sought(self, member: SimilarityMember, message: Sought, now_ms: int) -> None:
        """An event that looks for somebody who matches it comes to a member."""
        self._routing.on_sought(member, message, now_ms)

    def contact(self) -> PeerId | None:
        """A member elsewhere, for a node that has none."""
        return self.desk.contact()

    def is_needed(self, node: str) -> bool:
        """Whether the link to a node is needed here."""
        return self.desk.needs(node) or any(member.needs(node) for member in self.members())

    # --- subscriptions -------------------------------------------------------------------------

    def _subscribe(self, name: str, wanted: Filter) -> None:
        if not self.home.subscribe(name, wanted, lambda: self._ready_later(name, wanted)):
            self._out.emit(Drop(f"the subscription {name} exists already"))
            return
        self._move_in(name, wanted)

    def _move_in(self, name: str, wanted: Filter) -> None:
        self._names.setdefault(wanted.digest, {})[name] = None
        if wanted.digest in self._by_filter:
            return
        address = self.hosting.new_address()
        member = SimilarityMember(self, address, wanted)
        self._by_filter[wanted.digest] = member
        self.hosting.add(address, member)
        self.desk.introduce(member, self._now_ms)

    def _ready_later(self, name: str, wanted: Filter) -> None:
        member = self._by_filter.get(wanted.digest)
        if member is not None:
            member.when_ready(lambda: self._ready(name))

    def _ready(self, name: str) -> None:
        if name in self.home.subscriptions:
            self._out.emit(SubscriptionReady(name))

    def _unsubscribe(self, name: str) -> None:
        wanted = self.home.subscriptions.get(name)
        if wanted is None or not self.home.unsubscribe(name):
            return
        names = self._names[wanted.digest]
        names.pop(name, None)
        if not names:
            del self._names[wanted.digest]
            member = self._by_filter.pop(wanted.digest)
            member.leave()
            self.desk.remember_contacts(member)
            self.hosting.remove(member.me)

    # --- events --------------------------------------------------------------------------------

    def _publish(self, publication: Publication, now_ms: int) -> None:
        if publication.delivery is Delivery.AT_LEAST_ONCE:
            self._out.emit(PublishFailed.of(publication, _BEST_EFFORT_ONLY))
            return
        self._begin(publication, now_ms)
        self._out.emit(PublishCompleted.of(publication))

    def _publish_batch(self, batch: Batch, now_ms: int) -> None:
        """Each event finds its own way: they travel one by one, and end together."""
        if batch.delivery is Delivery.AT_LEAST_ONCE:
            self._out.emit(PublishFailed.of(batch, _BEST_EFFORT_ONLY))
            return
        for publication in batch.publications():
            self._begin(publication, now_ms)
        self._out.emit(PublishCompleted.of(batch))

    def _begin(self, publication: Publication, now_ms: int) -> None:
        self._routing.publish(publication, now_ms)
        sampling = self.settings.sampling
        if sampling.sample_learns and len(self._published) < sampling.sample_events:
            self._published.append(publication)

    # --- links and time ------------------------------------------------------------------------

    def _on_change_of_links(self, cause: Cause, now_ms: int) -> None:
        match cause:
            case Start():
                self.desk.start(now_ms)
            case Join(contacts):
                self.desk.join(contacts, now_ms)
            case PeerConnected(peer):
                self.hosting.on_connected(peer, now_ms)
            case PeerLost(peer):
                self.hosting.on_lost(peer, now_ms)
            case ConnectFailed(node):
                self.hosting.on_connect_failed(node, now_ms)
            case TimerFired(timer) if timer == _TICK:
                self._is_ticking = False
                self._tick(now_ms)
            case TimerFired(timer) if timer == PROBE:
                self.desk.on_probe_timer(now_ms)
            case TimerFired(timer) if timer == IDLE:
                self.hosting.on_idle_timer(now_ms)
            case Leave():
                self._leave()
            case _:
                pass

    def _tick(self, now_ms: int) -> None:
        if self.is_leaving:
            return
        self._learn()
        self.desk.tick(now_ms)
        for member in self.members():
            member.tick(now_ms)

    def _learn(self) -> None:
        """Put what was published into the sample: all at once, since members judge anew then."""
        published, self._published = self._published, []
        self.sample.merge(published)

    def _tick_later(self) -> None:
        if not self._is_ticking and not self.is_leaving and self.desk.is_awake:
            self._is_ticking = True
            self._ticks += 1
            # Not all at once, nor in step with anything else: between half and one and a half.
            drawn = draw_share(self.seed, "similarity/tick", *self.me, self._ticks)
            delay_ms = max(int((0.5 + drawn) * self.settings.exchange_ms), 1)
            self._out.emit(SetTimer(_TICK, delay_ms))

    def _leave(self) -> None:
        for member in self.members():
            member.leave()
        self.is_leaving = True
        self.hosting.run(self._now_ms)
        self.hosting.close("leaves")

    # --- a start that is set -------------------------------------------------------------------

    def install(self, subscriptions: Mapping[str, Filter]) -> list[SimilarityMember]:
        """Have these subscriptions from the start; the members that they share."""
        self.home.install(subscriptions)
        for name, wanted in subscriptions.items():
            self._names.setdefault(wanted.digest, {})[name] = None
            if wanted.digest not in self._by_filter:
                address = self.hosting.new_address()
                member = SimilarityMember(self, address, wanted)
                self._by_filter[wanted.digest] = member
                self.hosting.add(address, member)
        self.desk.takes_part = True
        return self.members()

    def install_links(self, peers: Iterable[SimilarityPeer]) -> None:
        """Have links to the nodes of all neighbours; a node without members to a contact's."""
        living = {peer.me.node: peer for peer in peers if peer is not self}
        nodes = {peer.node: None for member in self.members() for peer in member.neighbours()}
        for node in sorted(nodes):
            self.hosting.adopt(living[node].me)
        self.desk.install(list(living.values()))
