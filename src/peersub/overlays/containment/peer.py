"""`ContainmentPeer`: a node's part in the containment tree. It hosts the members of the node.

Slot 1 is the node's *keeper*: a member that wants nothing and stands below any member, at best one
of the same node. Events are published through it where no member of the node matches them, and
newcomers of the node ask it the way. So a node without subscriptions takes part as well, and costs
the tree nothing.

A subscription is handed to the member of its filter; equal filters of one node share one. A member
gives events to its own subscriptions only: each must be reached by the tree itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from peersub.filters.filter import Filter
from peersub.overlays.containment.acquaintances import Acquaintances, names_in
from peersub.overlays.containment.member import Member
from peersub.overlays.containment.messages import CrownFound, CrownSought
from peersub.overlays.containment.moving import Purpose
from peersub.overlays.containment.publishing import Publishing
from peersub.overlays.containment.seat import KEEPER_SLOT
from peersub.overlays.containment.settings import PERIODICAL, ContainmentSettings
from peersub.overlays.containment.structure import EdgeKind, need_share
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
    Deliver,
    Drop,
    Effect,
    SetTimer,
    SubscriptionReady,
)
from peersub.overlays.core.history import History
from peersub.overlays.core.home import Home
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.outbox import Outbox
from peersub.overlays.core.protocol import Overlay
from peersub.overlays.core.publication import Publication
from peersub.overlays.semantic.hosting import ANY_LIFE, IDLE, Hosting
from peersub.overlays.semantic.messages import LinkNeeded
from peersub.overlays.semantic.sample import SharedSample
from peersub.overlays.semantic.sample_messages import SampleEvents, SampleKeys, SampleOffered

__all__ = ["ContainmentPeer"]

_MEMBER = "containment/member"
_PERIOD = Timer("containment/period")
_FORMER = Timer("containment/former")
_SAMPLE_MESSAGES = (SampleOffered, SampleKeys, SampleEvents)


class ContainmentPeer(Overlay):
    """A node's part in the tree."""

    name = "containment"

    def __init__(self, me: PeerId, settings: ContainmentSettings, seed: int) -> None:
        self.me = me
        self.settings = settings
        self.seed = seed
        self.now_ms = 0
        self._out = Outbox()
        self.home = Home(settings.home, self._out.emit)
        self.hosting: Hosting[Member] = Hosting(me, settings.hosting, self._out, self._is_needed)
        self.sample = SharedSample(settings.sampling)
        self._of_filter: dict[bytes, Member] = {}
        self._stored: dict[str, None] = {}
        """Subscriptions that are on disk."""
        self._told_ready: dict[str, None] = {}
        self.acquaintances = Acquaintances(me.node, settings)
        self._is_trying_former = False
        self._is_period_set = False
        self._periods = 0
        self._seen: History[tuple[int, bytes, str]] = History(
            settings.home.seen_events_max, settings.home.history_horizon_ms
        )
        self._is_leaving = False
        self._farewell = b""
        self._has_begun = False
        self._is_installed = False
        """It begins in a state that was set, in which children know nothing of lists yet."""
        self.keeper = self._new_member(None)
        self._publishing = Publishing(settings, self.hosting, self.keeper, self.sample, self._out)

    # --- the interface -------------------------------------------------------------------------

    def handle(self, cause: Cause, now_ms: int) -> list[Effect]:
        """Take the cause in, and say what is to be done."""
        self.now_ms = now_ms
        match cause:
            case Received(peer, messages):
                for message in messages:
                    self._on_message(peer, message)
            case Publish(publications):
                for publication in publications:
                    self._publishing.publish(publication)
            case PublishBatch(batch):
                self._publishing.publish_batch(batch)
            case Subscribe(name, wanted):
                self._subscribe(name, wanted)
            case Unsubscribe(name):
                self._unsubscribe(name)
            case Persisted(token):
                self.home.on_persisted(token)
            case Restored(records):
                self.home.restore(records, now_ms)
                for name, wanted in self.home.subscriptions.items():
                    self._stored[name] = None
                    self._move_in(name, wanted)
            case _:
                self._on_other_cause(cause)
        if self._is_installed:
            self._is_installed = False
            for member in self.hosting.members.values():
                member.siblings.arrange()
        self.hosting.run(now_ms)
        self._look_after_timers()
        return self._out.take()

    def _on_other_cause(self, cause: Cause) -> None:
        match cause:
            case TimerFired(timer):
                self._on_timer(timer)
            case PeerConnected(peer, greeting):
                if self.is_joining:
                    self.learn((*names_in(greeting), peer.node))
                self.hosting.on_connected(peer, self.now_ms)
            case PeerLost(peer):
                self.hosting.on_lost(peer, self.now_ms)
            case ConnectFailed(node):
                self.hosting.on_connect_failed(node, self.now_ms)
            case Start():
                self._has_begun = True
                self.keeper.seat.become_crown()
            case Join(contacts):
                self._has_begun = True
                self.acquaintances.name(contacts)
                self.keeper.moving.join()
            case Leave():
                self._leave()
            case _:
                pass

    def greeting(self) -> bytes:
        """Some nodes that take part: a newcomer may need them before it has asked anything.

        One that leaves names those it knew: it may be all that a newcomer ever hears from it.
        """
        if self._is_leaving:
            return self._farewell
        return self.acquaintances.greeting(self._linked()) if self.takes_part else b""

    def shared_settings(self) -> Mapping[str, str]:
        """What all members must agree on."""
        return {"rule": self.settings.rule, "ties": self.settings.ties}

    def links(self) -> Iterable[PeerId]:
        """The nodes that edges of members lead to, by name."""
        found = {
            peer.node: peer._replace(slot=0)
            for member in self.hosting.members.values()
            for peer in member.seat.neighbours()
            if peer.node != self.me.node
        }
        return [found[node] for node in sorted(found)]

    @property
    def takes_part(self) -> bool:
        """Whether its keeper has a place."""
        return self.keeper.seat.is_seated

    @property
    def is_joining(self) -> bool:
        """Whether it is still on its way into the network."""
        return self._has_begun and not self._is_leaving and not self.keeper.seat.was_seated

    @property
    def is_mending(self) -> bool:
        """Whether a member of it looks for a place, and gets no events meanwhile."""
        return any(
            not member.seat.is_seated and not member.seat.is_leaving
            for member in self.hosting.members.values()
        )

    def waiting_on(self, subscription: str) -> tuple[PeerId, ...]:
        """Nobody in particular: a subscription is ready when its member has a place."""
        return ()

    def describe(self) -> Mapping[str, Any]:
        """The state as plain values."""
        return {
            "members": {
                str(slot): member.describe() for slot, member in self.hosting.members.items()
            },
            "subscriptions": sorted(self.home.subscriptions),
        }

    def peer_offers(self, peer: PeerId, features: tuple[str, ...]) -> None:
        """A link is set up from outside."""
        self.hosting.adopt(peer)

    # --- a start that is set -------------------------------------------------------------------

    def install(
        self, subscriptions: Mapping[str, Filter], contacts: Iterable[str]
    ) -> list[tuple[PeerId, Filter]]:
        """Have these subscriptions; the members that they have, without places yet."""
        self.learn(contacts)
        self._has_begun = self._is_installed = True
        self.home.install(subscriptions)
        for name, wanted in subscriptions.items():
            member = self._of_filter.get(wanted.digest)
            if member is None:
                member = self._of_filter[wanted.digest] = self._new_member(wanted)
            member.subscriptions[name] = None
            self._stored[name] = self._told_ready[name] = None
        return [
            (member.me, member.seat.wanted)
            for member in self.hosting.members.values()
            if member.seat.wanted is not None
        ]

    def install_member(
        self,
        address: PeerId,
        place: tuple[PeerId, EdgeKind] | None,
        hosts: Mapping[PeerId, ContainmentPeer],
    ) -> None:
        """Give a member its place below one that has its own, or make it the crown."""
        seat = self.hosting.members[address.slot].seat
        if place is None:
            seat.install(None, EdgeKind.CROWN)
        else:
            above, kind = place
            seat.install(hosts[above].hosting.members[above.slot].seat, kind)

    # --- what members ask of their host --------------------------------------------------------

    def send(self, to: PeerId, message: Message) -> None:
        """Say something to another member."""
        self.hosting.send(to, message, self.now_ms)

    def reach(self, peer: PeerId) -> None:
        """See to it that there is a link to a member, before there is anything to say."""
        if peer.node != self.me.node and not self.hosting.is_linked(peer.node):
            self.hosting.send(peer, LinkNeeded(), self.now_ms)

    def set_timer(self, purpose: str, member: PeerId, delay_ms: int) -> None:
        """The member hears of it after so long."""
        self._out.emit(SetTimer(Timer(_MEMBER, (member.slot, purpose)), delay_ms))

    def deliver(self, member: PeerId, publication: Publication, hops: int) -> None:
        """Hand an event to the subscriptions of a member."""
        names = tuple(sorted(self.hosting.members[member.slot].subscriptions))
        if names:
            self._out.emit(Deliver(publication, names, hops))

    def is_new(self, member: PeerId, publication: Publication, *, expected: bool) -> bool:
        """Whether a member sees the event for the first time."""
        if self._seen.add((member.slot, publication.key, ""), self.now_ms):
            return True
        if not expected:
            self._out.emit(Drop("seen before", publication.id))
        return False

    def is_new_in_list(self, member: PeerId, parent: PeerId, publication: Publication) -> bool:
        """Whether a member passes an event along the list of a parent for the first time."""
        return self._seen.add((member.slot, publication.key, str(parent)), self.now_ms)

    def receivers(self, key: bytes) -> list[PeerId]:
        """The members of this node that have got an event; its keeper is none of them."""
        return [
            member.me
            for slot, member in self.hosting.members.items()
            if (slot, key, "") in self._seen and member is not self.keeper
        ]

    def remember(self, node: str) -> None:
        """A node was lost: try it again later."""
        if not self._is_leaving:
            self.acquaintances.remember(node, self.now_ms)

    def learn(self, nodes: Iterable[str]) -> None:
        """These nodes take part."""
        self.acquaintances.learn(nodes)

    def known_nodes(self) -> tuple[str, ...]:
        """Some nodes that take part."""
        return self.acquaintances.some(self._linked())

    def _linked(self) -> list[str]:
        return [peer.node for peer in self.hosting.links()]

    def losses_of_leaver(self) -> tuple[str, ...]:
        """The nodes that this one lost, if it takes leave."""
        return self.acquaintances.lost() if self._is_leaving else ()

    def contacts(self) -> tuple[PeerId, ...]:
        """Whom a member may turn to: others of this node, then the nodes it was told of."""
        keepers = self.acquaintances.keepers(is_joining=self.is_joining)
        return (*self._seated_members(), self.keeper.me, *keepers)

    def _seated_members(self) -> list[PeerId]:
        return [
            member.me
            for member in self.hosting.members.values()
            if member.seat.is_seated and not member.seat.is_keeper and not member.seat.is_leaving
        ]

    def matches(self, wanted: Filter) -> int:
        """How many events of the sample the filter matches."""
        return self.sample.matches_in_sample(wanted) or 0

    def seated(self, member: PeerId) -> None:
        """A member has a place: its subscriptions are ready, and others may follow it."""
        found = self.hosting.members[member.slot]
        for name in found.subscriptions:
            self._tell_if_ready(name)
        if found is self.keeper:
            self._publishing.publish_held()
        elif self.keeper.seat.up is None or self.keeper.seat.up.peer.node != self.me.node:
            self._bring_keeper_home(member)
        for other in list(self.hosting.members.values()):
            if other.moving.purpose is Purpose.JOIN and not other.seat.is_seated:
                other.moving.join()

    def _bring_keeper_home(self, member: PeerId) -> None:
        """The keeper stands best below a member of its own node: that takes no link."""
        keeper = self.keeper
        if keeper.seat.up is not None and not keeper.seat.is_leaving:
            keeper.moving.move_below(member, EdgeKind.VISIT, Purpose.IMPROVE)

    def crowned(self, member: PeerId) -> None:
        """A member has become a crown: another one of this node may be one too."""
        is_keeper = member == self.keeper.me
        for other in self.hosting.members.values():
            to, up = other.me, other.seat.up
            if other.seat.is_seated and to != member and (up is None or up.peer != member):
                self.send(to, CrownFound(to.slot, member.slot, member, is_keeper))

    def _is_apart(self, crown: Member) -> bool:
        """Whether a member is a crown, and the keeper perhaps in another tree."""
        if not crown.seat.is_crown or crown is self.keeper:
            return False
        return self.keeper.seat.up is None or self.keeper.seat.up.peer != crown.me

    def keeper_address(self) -> PeerId | None:
        """The keeper, unless the node takes leave."""
        return None if self._is_leaving else self.keeper.me

    def gone(self, member: PeerId) -> None:
        """A member has left."""
        self.hosting.remove(member)
        if self._is_leaving and not self.hosting.members:
            self.hosting.close("leaves")

    # --- subscriptions -------------------------------------------------------------------------

    def _new_member(self, wanted: Filter | None) -> Member:
        address = self.hosting.new_address()
        member = Member(address, wanted, self)
        self.hosting.add(address, member)
        return member

    def _subscribe(self, name: str, wanted: Filter) -> None:
        if not self.home.subscribe(name, wanted, lambda: self._on_stored(name)):
            self._out.emit(Drop(f"the subscription {name} exists already"))
            return
        self._move_in(name, wanted)

    def _on_stored(self, name: str) -> None:
        if name in self.home.subscriptions:
            self._stored[name] = None
            self._tell_if_ready(name)

    def _move_in(self, name: str, wanted: Filter) -> None:
        member = self._of_filter.get(wanted.digest)
        if member is None:
            member = self._of_filter[wanted.digest] = self._new_member(wanted)
            member.moving.join()
        member.subscriptions[name] = None

    def _tell_if_ready(self, name: str) -> None:
        member = self._of_filter[self.home.subscriptions[name].digest]
        if name in self._stored and name not in self._told_ready and member.seat.was_seated:
            self._told_ready[name] = None
            self._out.emit(SubscriptionReady(name))

    def _unsubscribe(self, name: str) -> None:
        wanted = self.home.subscriptions.get(name)
        if wanted is None:
            return
        self.home.unsubscribe(name)
        self._stored.pop(name, None)
        self._told_ready.pop(name, None)
        member = self._of_filter[wanted.digest]
        del member.subscriptions[name]
        if not member.subscriptions:
            del self._of_filter[wanted.digest]
            member.leaving.begin()

    def _leave(self) -> None:
        self._farewell = self.greeting()
        self._is_leaving = True
        for member in list(self.hosting.members.values()):
            member.leaving.begin()
        if not self.hosting.members:
            self.hosting.close("leaves")

    # --- messages and timers -------------------------------------------------------------------

    def _on_message(self, peer: PeerId, message: Any) -> None:
        if isinstance(message, _SAMPLE_MESSAGES):
            for answer in self.sample.answers(message):
                self._out.send(peer, answer)
            return
        self.hosting.on_message(peer, message, self.now_ms)

    def _on_timer(self, timer: Timer) -> None:
        if timer == IDLE:
            self.hosting.on_idle_timer(self.now_ms)
        elif timer == _PERIOD:
            self._is_period_set = False
            self._on_period()
        elif timer == _FORMER:
            self._is_trying_former = False
            self._try_former()
        elif timer.purpose == _MEMBER:
            slot, purpose = timer.about
            member = self.hosting.members.get(slot)
            if member is not None:
                member.on_timer(purpose)

    def _look_after_timers(self) -> None:
        self.hosting.look_after_links()
        if self._is_leaving:
            return
        is_apart = any(self._is_apart(member) for member in self.hosting.members.values())
        if (
            (self.acquaintances.lost() or is_apart)
            and not self._is_trying_former
            and self.settings.probe_ms
        ):
            self._is_trying_former = True
            self._out.emit(SetTimer(_FORMER, self.settings.probe_ms))
        is_periodic = self.settings.reorganise in PERIODICAL or self.settings.needs_sample
        if is_periodic and not self._is_period_set and self._of_filter:
            self._is_period_set = True
            self._out.emit(SetTimer(_PERIOD, self.settings.period_ms))

    def _on_period(self) -> None:
        """Some of the members look for a better place; the sample goes round."""
        self._periods += 1
        me = self.me
        moves = self.settings.reorganise in PERIODICAL
        for slot, member in list(self.hosting.members.items()) if moves else ():
            about = (me.node, me.incarnation, slot, self._periods)
            if draw_share(self.seed, "containment/period", *about) < self.share_of(member):
                member.moving.improve()
        if self.settings.needs_sample:
            for peer in self.hosting.links():
                self._out.send(peer, self.sample.offer())

    def share_of(self, member: Member) -> float:
        """How probably a member looks for a better place in a period."""
        share, seat = self.settings.share, member.seat
        if self.settings.reorganise != "needed" or seat.wanted is None:
            return share
        above = None
        if seat.up is not None and seat.up.kind is not EdgeKind.TOP:
            if seat.up.kind is not EdgeKind.CHILD or seat.up.wanted is None:
                return share
            above = self.matches(seat.up.wanted)
        return need_share(self.matches(seat.wanted), above, len(self.sample), share)

    # --- nodes that were lost ------------------------------------------------------------------

    def _try_former(self) -> None:
        """Ask nodes that were tried longest ago for their crown; show a crown to the keeper."""
        for member in self.hosting.members.values():
            if member.seat.is_crown:
                self.crowned(member.me)
        for node in self.acquaintances.to_try(self.now_ms):
            to = PeerId(node, ANY_LIFE, KEEPER_SLOT)
            self.send(to, CrownSought(to.slot, KEEPER_SLOT, self.keeper.me, node))

    def answered(self, node: str) -> None:
        """A node that was lost is there; after some more answers it counts as found."""
        self.acquaintances.answered(node)

    def _is_needed(self, node: str) -> bool:
        return any(member.needs(node) for member in self.hosting.members.values())
