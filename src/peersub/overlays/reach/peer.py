"""`ReachPeer`: a node's part in Reach.

Subscriptions are kept at the hosts of their identifiers (`registrations`, `seats`). Events go to
the hosts of their bits, and down the subsets (`journeys`). Places split, merge and move as nodes
come and go (`holdings`); heirs have copies (`copies`); interest is told upwards (`interest`).

Where it departs from the paper, beyond what those modules say: a node that publishes hands the
event to its own subscriptions at once; a node takes each event once, whichever of its subscriptions
it was sent for, and asks all of its filters itself.

At-least-once is refused: while a host is missing, nobody can tell who else should get an event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from peersub.filters.filter import Filter
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
from peersub.overlays.core.draws import draw_below
from peersub.overlays.core.effects import (
    Drop,
    Effect,
    PublishCompleted,
    PublishFailed,
    SetTimer,
)
from peersub.overlays.core.home import Home
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.outbox import Outbox
from peersub.overlays.core.protocol import Overlay
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.reach.acquaintances import PROBE, Acquaintances
from peersub.overlays.reach.answering import Answering
from peersub.overlays.reach.attributes import AttributeMap
from peersub.overlays.reach.copies import Copies
from peersub.overlays.reach.deputies import Deputies
from peersub.overlays.reach.holdings import HOPS_MAX, Holdings
from peersub.overlays.reach.interest import Interests
from peersub.overlays.reach.journeys import Journeys
from peersub.overlays.reach.leaving import LEAVE_LOOK_MS, Leaving
from peersub.overlays.reach.messages import (
    CopyDropped,
    CopyEnded,
    CopyHeard,
    CopyTold,
    Detour,
    EntriesGiven,
    Entry,
    Handed,
    InterestAsked,
    InterestChanged,
    InterestHeard,
    InterestTold,
    JoinAsked,
    LeaveAgreed,
    LeaveAsked,
    LoadAsked,
    LoadTold,
    NearTold,
    NodesTold,
    Notified,
    PlaceSought,
    Rendezvous,
    RenewalWanted,
    RivalNamed,
    Routed,
    SeatGiven,
    SeatsTold,
    SeatTaken,
    Spread,
    StoreAsked,
    Stored,
    UnstoreAsked,
    Unstored,
)
from peersub.overlays.reach.post import Post
from peersub.overlays.reach.registrations import Registrations
from peersub.overlays.reach.renewals import Renewals
from peersub.overlays.reach.seats import Seat
from peersub.overlays.reach.settings import ReachSettings
from peersub.overlays.reach.soundness import Soundness

__all__ = ["ReachPeer"]

_TICK = Timer("reach/tick")
_RENEW = Timer("reach/renew")
RENEWALS_MISSED = 4
"""After so many renewals that did not come a host forgets a subscription."""
CONTACTS_LINKED_MAX = 3
"""Contacts that a newcomer links itself with; the others only if it needs them."""
ROUNDS_MAX = 10_000
"""Messages of a peer to itself, in answer to one cause."""

_BEST_EFFORT_ONLY = "reach promises best effort only: use chord for at-least-once"


class ReachPeer(Overlay):
    """A node's part in the network."""

    name = "reach"

    def __init__(self, me: PeerId, settings: ReachSettings, seed: int) -> None:
        self.me = me
        self.settings = settings
        self.seed = seed
        self.bits = AttributeMap(settings.identifier_bits, settings.attributes)
        self._soundness = Soundness(settings.identifier_bits)
        self._out = Outbox()
        self.home = Home(settings.home, self._out.emit)
        self.post = Post(me, self._out, settings.links_max)
        self.holdings = Holdings(me, settings, seed, self.bits, self.post)
        self.interests = Interests(
            self.holdings,
            self.post,
            quench=settings.quench,
            summary=settings.summary,
            with_filters=settings.summary_filters,
        )
        self.copies = Copies(self.holdings, self.post, self.bits)
        self.answering = Answering(self.holdings, self.interests, settings)
        self.deputies = Deputies(self.holdings, self.copies, self.post)
        self.leaving = Leaving(self.holdings, self.post)
        self.acquaintances = Acquaintances(me, self.post, self._out, settings.probe_ms)
        self.journeys = Journeys(
            self.holdings,
            self.interests,
            self.answering,
            self.deputies,
            self.bits,
            seed,
            self.post,
            self._out,
            self._take_home,
        )
        self.registrations = Registrations(me, self.bits, self._route, self._out.emit)
        self.renewals = Renewals(self.holdings, self.registrations, self.post, self._out)
        self._is_on = False
        self._left = False
        self._ticking = False
        self._renewing = False
        self._due: dict[str, int] = {}
        self._turns = 0
        self._now_ms = 0

    # --- the interface -------------------------------------------------------------------------

    def handle(self, cause: Cause, now_ms: int) -> list[Effect]:
        """Take the cause in, and say what is to be done."""
        self._now_ms = self.journeys.now_ms = self.holdings.now_ms = now_ms
        match cause:
            case Received(peer, messages):
                for message in messages:
                    if self._soundness.holds(message):
                        self._on_message(peer, message)
                    else:
                        reason = f"a {type(message).__name__} that does not fit the network"
                        self._out.emit(Drop(reason, None, peer))
            case Publish(publications):
                for publication in publications:
                    self._publish(publication)
            case PublishBatch(batch):
                if batch.delivery is Delivery.AT_LEAST_ONCE:
                    self._out.emit(PublishFailed.of(batch, _BEST_EFFORT_ONLY))
                else:
                    for publication in batch.publications():
                        self.journeys.begin(publication)
                    self._out.emit(PublishCompleted.of(batch))
            case Subscribe(name, wanted):
                if self.home.subscribe(name, wanted, lambda: self.registrations.on_disk(name)):
                    self.registrations.add(name, wanted, now_ms)
                else:
                    self._out.emit(Drop(f"the subscription {name} exists already"))
            case Unsubscribe(name):
                if self.home.unsubscribe(name):
                    self.registrations.remove(name)
            case Persisted(token):
                self.home.on_persisted(token)
            case Restored(records):
                self.home.restore(records, now_ms)
                for name, wanted in self.home.subscriptions.items():
                    self.registrations.add(name, wanted, now_ms)
                    self.registrations.on_disk(name)
            case _:
                self._on_change_of_links(cause)
        self._settle()
        return self._out.take()

    def shared_settings(self) -> Mapping[str, str]:
        """What bits stand for, in which order they are cleared, and when what is kept gets old.

        All must agree: a host forgets who renews more seldom than it expects.
        """
        return {
            "attributes": self.settings.attributes,
            "identifier_bits": str(self.settings.identifier_bits),
            "orders": str(self.settings.orders),
            "quench": str(self.settings.quench).lower(),
            "renew_ms": str(self.settings.renew_ms),
        }

    def links(self) -> Iterable[PeerId]:
        """Neighbours, and others with whom there was something to talk about, by name."""
        return sorted(self.post.linked.values())

    @property
    def takes_part(self) -> bool:
        """Whether it has a place."""
        return bool(self.holdings.seats)

    @property
    def is_joining(self) -> bool:
        """Whether it is on its way into the network."""
        return self._is_on and not self.holdings.seats and not self._left

    @property
    def is_mending(self) -> bool:
        """Whether it misses neighbours, or has more places than one."""
        return not self._left and (
            not self.holdings.is_whole or self.interests.is_open or self.registrations.is_open
        )

    def waiting_on(self, subscription: str) -> tuple[PeerId, ...]:
        """Who has to answer for a subscription to be ready, as far as this node knows."""
        pending = self.registrations.pending(subscription)
        if not any(self.holdings.seat_of(identifier) for identifier in pending):
            return ()
        return tuple(self.interests.waiting_for())

    def state_bytes(self) -> int:
        """Bytes of the filters that it keeps for others."""
        copied = (copy.seat for copy in self.holdings.copies.values())
        return sum(seat.state_bytes() for seat in (*self.holdings.seats.values(), *copied))

    def describe(self) -> Mapping[str, Any]:
        """The state as plain values."""
        return {
            "missing": [str(part) for part in sorted(self.holdings.missing)],
            "places": {
                str(place): {
                    "deputies": sorted(map(str, seat.deputies)),
                    "interested": bool(seat.wanted.identifiers),
                    "near": {str(each): str(peer) for each, peer in sorted(seat.near.items())},
                    "subscriptions": sum(1 for _ in seat.entries()),
                }
                for place, seat in sorted(self.holdings.seats.items())
            },
            "subscriptions": sorted(self.home.subscriptions),
        }

    # --- links ---------------------------------------------------------------------------------

    def _on_change_of_links(self, cause: Cause) -> None:
        match cause:
            case Start():
                self._is_on = True
                self.holdings.begin()
                self._renew_later()
            case Join(contacts):
                self.acquaintances.learn(contacts)
                self._is_on = True
                self._ask_for_a_place()
                for node in contacts[:CONTACTS_LINKED_MAX]:
                    self.post.connect(node)  # They name others, should the one that was asked go.
                self._renew_later()
            case PeerConnected(peer):
                if self.post.linked.get(peer.node) not in (None, peer):
                    self.holdings.on_lost(self.post.linked[peer.node])
                    self.journeys.lost(peer.node)
                self.post.connected(peer, self.holdings.told())
                self.post.send(peer.node, self.acquaintances.named_to(peer.node))
            case PeerLost(peer):
                if self.post.lost(peer):
                    if self.holdings.directory.holds_any(peer):
                        self.acquaintances.lost(peer.node)
                    self.holdings.on_lost(peer)
                    self.journeys.lost(peer.node)
            case ConnectFailed(node):
                self.post.failed(node)
                self.journeys.lost(node)
                self.holdings.on_failed(node)
            case TimerFired(timer) if timer == _TICK:
                self._ticking = False
                self._tick()
            case TimerFired(timer) if timer == PROBE:
                self.acquaintances.probe()
            case TimerFired(timer) if timer == _RENEW:
                self._renewing = False
                self._renew()
            case Leave():
                self._leave()
            case _:
                pass

    def _leave(self) -> None:
        tick_ms = self._tick_ms
        self._left = True
        self._ticking = self._ticking and self._tick_ms == tick_ms  # Else it is set anew, sooner.
        self.acquaintances.is_leaving = True
        self.holdings.leaving = True
        for name in list(self.home.subscriptions):
            self.registrations.remove(name)
        self.holdings.announce()
        self._leave_further()

    def _leave_further(self) -> None:
        if self.leaving.leave():
            self._settle_messages()
            self.post.close_all()

    # --- what is done by and by ----------------------------------------------------------------

    def _settle(self) -> None:
        """All that follows from what has changed, until nothing does."""
        self._settle_messages()
        if self._left and self.post.linked and not self.holdings.seats and not self.holdings.given:
            self.post.close_all()
        for peer in self.post.close_unneeded(self._is_needed):
            self.holdings.on_lost(peer)
            self.journeys.forget(peer.node)
        if not self._ticking and self._has_duties():
            self._ticking = True
            self._out.emit(SetTimer(_TICK, self._tick_ms))

    @property
    def _tick_ms(self) -> int:
        find_ms = self.settings.find_ms
        return min(find_ms, LEAVE_LOOK_MS) if self._left else find_ms

    def _settle_messages(self) -> None:
        for _ in range(ROUNDS_MAX):
            if self.post.own:
                self._on_message(self.me, self.post.own.popleft())
                continue
            if self.holdings.changed:
                self.holdings.review()
                self.acquaintances.look_if_alone(self.holdings.is_alone)
                self.holdings.announce()
                self.copies.hand_on()
                self.copies.review()
                self.interests.changed = True
            if self.interests.changed or self.interests.heard:
                self.interests.review()
            if not self.post.own and not self.holdings.changed:
                self.journeys.send_again()
                self.holdings.serve_newcomer()
            if not self.post.own and not self.holdings.changed:
                return

    def _is_needed(self, peer: PeerId) -> bool:
        holdings = self.holdings
        return any(peer in seat.near.values() for seat in holdings.seats.values()) or any(
            given.node == peer.node for given in holdings.given.values()
        )

    def _has_duties(self) -> bool:
        if self._left:
            return bool(self.post.linked)
        return self.is_joining or self.is_mending or self._has_gap() or self.holdings.has_newcomers

    def _has_gap(self) -> bool:
        return any(seat.longest > seat.place.length + 1 for seat in self.holdings.seats.values())

    def _is_due(self, what: str, every_ms: int) -> bool:
        """Whether so long has passed since the last time; the first time is after so long."""
        due_ms = self._due.get(what)
        if due_ms is None or due_ms <= self._now_ms:
            spread_ms = draw_below(
                every_ms, self.seed, "reach/due", what, self.me.node, self._turns
            )
            self._turns += 1
            self._due[what] = self._now_ms + every_ms + spread_ms // 2
        return due_ms is not None and due_ms <= self._now_ms

    def _tick(self) -> None:
        settings = self.settings
        self.journeys.forget_old()
        if self._left:
            self._leave_further()
            return
        if self.is_joining and self._is_due("join", settings.join_ms):
            self._ask_for_a_place()
        if self.holdings.missing:
            self.holdings.find()
        if self._is_due("balance", settings.balance_ms):
            self.holdings.balance()
        if self._is_due("ask", settings.ask_ms):
            self.registrations.ask_again()
            self.interests.ask_again()

    def _ask_for_a_place(self) -> None:
        """Ask a node that has one; of those that are known, another each time."""
        known = [peer.node for peer, _ in self.holdings.directory.facts()]
        nodes = list(dict.fromkeys((*self.acquaintances.nodes, *sorted(known))))
        if nodes:
            self._turns += 1
            self.post.send(nodes[self._turns % len(nodes)], JoinAsked(self.me.node, 0))

    def _renew_later(self) -> None:
        if self.settings.renew_ms and not self._renewing and not self._left:
            self._renewing = True
            self._out.emit(SetTimer(_RENEW, self.settings.renew_ms))

    def _renew(self) -> None:
        if self._left:
            return
        self.journeys.forget_old()
        self.registrations.ask_again(all_of_them=True)
        oldest_ms = self._now_ms - RENEWALS_MISSED * self.settings.renew_ms
        for seat in self.holdings.seats.values():
            if seat.expire(oldest_ms):
                seat.copied.clear()
        self.copies.review()
        self.interests.changed = True
        self._renew_later()

    # --- the way to a host ---------------------------------------------------------------------

    def _route(self, target: int, message: Message) -> None:
        """Send a message to the host of an identifier."""
        self._forward(Routed(target, 0, message), None)

    def _forward(self, routed: Routed, sender: PeerId | None) -> None:
        seat = self.holdings.seat_of(routed.target)
        if seat is not None:
            self._on_arrived(seat, routed.message)
            return
        self._turns += 1
        about = f"{routed.target}/{self._turns}"
        node = self.journeys.next_on_the_way(routed.target, about, sender)
        if node is None or routed.hops >= HOPS_MAX:
            self._out.emit(Drop("there is no way to the host"))
            return
        self.post.send(node, Routed(routed.target, routed.hops + 1, routed.message))

    def _on_arrived(self, seat: Seat, message: Message) -> None:
        match message:
            case StoreAsked(entry):
                is_new = not seat.keeps(entry)
                if seat.store(entry, self.bits, self._now_ms):
                    if is_new:
                        self.interests.changed = True
                        self.copies.stored(seat, entry)
                    self.interests.heard = True
                    seat.wait(entry.subscriber, Stored(entry.name, entry.identifier, entry.number))
            case UnstoreAsked(identifier, subscriber, name, number):
                self.interests.changed = True
                seat.unstore(identifier, subscriber, name, number)
                self.copies.ended(seat, message)
                self.post.send(subscriber.node, Unstored(name, identifier, number))
            case PlaceSought(_, asker):
                self.post.connect(asker)
            case _:
                self._out.emit(Drop(f"no host expects {type(message).__name__}"))

    # --- events --------------------------------------------------------------------------------

    def _publish(self, publication: Publication) -> None:
        if publication.delivery is Delivery.AT_LEAST_ONCE:
            self._out.emit(PublishFailed.of(publication, _BEST_EFFORT_ONLY))
            return
        self.journeys.begin(publication)
        self._out.emit(PublishCompleted.of(publication))

    def _take_home(self, publication: Publication, hops: int, age_ms: int = 0) -> None:
        if self.home.see(publication.key, self._now_ms):
            younger = self.registrations.begun_after(self._now_ms - age_ms) if age_ms else ()
            self.home.hand_over(publication, hops, younger)

    # --- messages ------------------------------------------------------------------------------

    def _on_message(self, peer: PeerId, message: Message) -> None:
        match message:
            case Notified(publication, hops, age_ms):
                if self._is_sound(peer, publication):
                    self._take_home(publication, hops, age_ms)
            case Spread(publication):
                if self._is_sound(peer, publication):
                    self.journeys.on_spread(message)
            case Rendezvous(publication):
                if self._is_sound(peer, publication):
                    self.journeys.on_rendezvous(peer, message)
            case Detour(publication):
                if self._is_sound(peer, publication):
                    self.journeys.on_detour(message)
            case Handed(publication):
                if self._is_sound(peer, publication):
                    self.journeys.on_handed(peer, message)
            case Routed():
                self._forward(message, peer)
            case Stored():
                self.registrations.on_stored(message)
            case Unstored():
                self.registrations.on_unstored(message)
            case InterestTold():
                self.interests.on_told(peer, message)
            case InterestChanged():
                self.interests.on_changed(peer, message)
            case InterestHeard():
                self.interests.on_heard(message)
            case InterestAsked():
                self.interests.on_asked(peer, message)
            case _:
                self._on_structure(peer, message)

    def _on_structure(self, peer: PeerId, message: Message) -> None:
        match message:
            case SeatsTold():
                self.holdings.on_told(peer, message)
            case JoinAsked(newcomer, hops):
                if not hops:
                    self.post.send(newcomer, self.acquaintances.named_to_newcomer(newcomer))
                self.holdings.on_join(message)
            case CopyTold():
                self.copies.on_told(peer, message, self._now_ms)
            case NearTold():
                self.copies.on_near(peer, message)
            case CopyDropped():
                self.copies.on_dropped(peer, message)
                self.interests.heard = True
            case CopyEnded():
                self.copies.on_ended(peer, message)
            case CopyHeard():
                self.copies.on_heard(peer, message)
                self.interests.heard = True
            case LoadAsked():
                self.deputies.on_asked(peer)
            case LoadTold():
                self.deputies.on_told(peer, message)
            case RivalNamed(node):
                self.post.connect(node)
            case RenewalWanted():
                self.renewals.on_wanted(peer, message)
            case NodesTold(nodes):
                self.acquaintances.learn(nodes)
            case EntriesGiven():
                self.holdings.on_entries(peer, message)
            case SeatGiven(place):
                self.leaving.on_given(peer, place)
                self.holdings.on_given(peer, message)
            case LeaveAsked():
                self.leaving.on_asked(peer, message)
            case LeaveAgreed():
                self.leaving.on_agreed(peer, message)
                if self._left:
                    self.leaving.leave()
            case SeatTaken():
                self.holdings.on_taken(peer, message)
            case _:
                self._out.emit(Drop(f"reach does not know {type(message).__name__}", None, peer))

    def _is_sound(self, peer: PeerId, publication: Publication) -> bool:
        if publication.is_sound:
            return True
        self._out.emit(Drop("its attributes cannot be read", publication.id, peer))
        return False

    # --- a start in a state that is set --------------------------------------------------------

    def install(self, seat: Seat, told: Mapping[PeerId, SeatsTold]) -> None:
        """Hold this place, having been told of those next to it."""
        self._is_on = True
        self.holdings.adopt(seat, told)
        for peer in told:
            self.post.linked[peer.node] = peer
        self._renew_later()

    def install_subscriptions(self, subscriptions: Mapping[str, Filter]) -> list[Entry]:
        """These have always been here: what the hosts of their identifiers have of them."""
        self.home.install(subscriptions)
        return self.registrations.install(subscriptions)
