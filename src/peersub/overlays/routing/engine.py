"""`RoutingEngine`: the generalised routing algorithm over a topology (sections 3.1, 4.3, 5).

It ties together what a node of such a network does: its home (subscriptions, handing over once),
the filters on its edges (`maintenance`), the parts it owes a confirmation for (`delegations`), and
the routing of notifications itself. Of the network it knows a `Topology` and nothing else.

Publishing (section 4.3): an event enters with a scope, the whole network for a publisher. If this
node lies in the scope, its subscribers get the event; each part of the scope goes to the edge that
serves it, if a filter on that edge wants the event. Parts are disjoint, so nobody gets an event
twice, however old a table is; a doubled message is recognised by the event's identifier.

Departures from the paper: a scope need not begin at the node that serves it, because a part whose
peer has died is delegated anew, as it is, to whoever is responsible now; and a node outside of the
scope passes such an event on without taking it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Any

from peersub.filters.filter import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.causes import (
    Cause,
    ConsumerAcked,
    PeerConnected,
    PeerHeard,
    PeerInDoubt,
    PeerResumed,
    Persisted,
    PersistFailed,
    Publish,
    PublishBatch,
    Restored,
    Subscribe,
    Timer,
    TimerFired,
    Unsubscribe,
)
from peersub.overlays.core.effects import (
    Drop,
    Effect,
    PublishCompleted,
    PublishFailed,
    Send,
    SetTimer,
    SubscriptionReady,
)
from peersub.overlays.core.home import Home
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.outbox import Outbox
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.core.records import Record
from peersub.overlays.core.versions import BATCHES_FEATURE
from peersub.overlays.routing.batch_routing import BatchRouting
from peersub.overlays.routing.delegations import Delegations, Part, Task
from peersub.overlays.routing.intake import Intake
from peersub.overlays.routing.maintenance import FilterMaintenance
from peersub.overlays.routing.messages import (
    Confirm,
    FilterConfirmed,
    FilterMismatch,
    FilterUpdate,
    Notify,
    NotifyBatch,
    ResponsibilityChange,
)
from peersub.overlays.routing.replays import Replays
from peersub.overlays.routing.rows import Rows
from peersub.overlays.routing.settings import RoutingSettings
from peersub.overlays.routing.topology import NOWHERE, Scope, Topology

__all__ = ["RoutingEngine"]

_RETRY = Timer("routing/retry")
_FLUSH = Timer("routing/flush")
_REPLAY = Timer("routing/replay")
_REPEAT = Timer("routing/repeat")
DESCRIBED_MAX = 1_000
"""Subscriptions that are named to people."""


class RoutingEngine:
    """What a peer of `tree` or `chord` is, apart from the shape of its network.

    Args:
        me: the peer.
        topology: the shape; when it changes, `edges_changed` must be called.
        settings: bounds and promises.
        on_control: takes the control notifications that the filters set by `set_control` want.
    """

    def __init__(
        self,
        me: PeerId,
        topology: Topology,
        settings: RoutingSettings,
        on_control: Callable[[Publication, int], None] | None = None,
    ) -> None:
        self.me = me
        self.settings = settings
        self._topology = topology
        self._on_control = on_control
        self._out = Outbox()
        self.home = Home(settings.home, self._out.emit)
        self.maintenance = FilterMaintenance(me, topology, settings.maintenance)
        self.delegations = Delegations(
            settings.delegations,
            self._out.send,
            self._spread_task,
            self._detour,
            self._serve,
            self._on_published,
        )
        self._batches = BatchRouting(self.maintenance, self.home)
        self._linked: dict[PeerId, None] = {}
        self._takes_batches: dict[PeerId, None] = {}
        self._in_doubt: dict[PeerId, None] = {}
        self._control: dict[str, Filter] = {}
        self._stored_subscriptions: dict[str, None] = {}
        self._told_ready: dict[str, None] = {}
        self._replays = Replays(
            settings.replay_events_max, settings.replay_horizon_ms, settings.replay_slice
        )
        self._intake = Intake(
            me, self.home, topology, self._batches, self.delegations, self._out, self._serve
        )
        self._retrying = self._repeating = False
        self._redelegate = False

    # --- causes --------------------------------------------------------------------------------

    def handle_cause(self, cause: Cause, now_ms: int) -> bool:
        """Take in what concerns events and subscriptions; False if it is the topology's."""
        match cause:
            case Publish(publications, source):
                for publication in publications:
                    self._publish(publication, source, now_ms)
            case PublishBatch(batch, source):
                self._publish_batch(batch, source, now_ms)
            case PeerConnected(peer, _, features):
                self.peer_offers(peer, features)
                return False
            case PeerInDoubt(peer):
                self._peer_in_doubt(peer, now_ms)
            case PeerHeard(peer):
                self._in_doubt.pop(peer, None)
            case PeerResumed(peer):
                self._in_doubt.pop(peer, None)
                self.delegations.repeat(peer, now_ms)
            case Subscribe(name, wanted, _, durable):
                self._subscribe(name, wanted, durable=durable)
            case Unsubscribe(name):
                self._unsubscribe(name)
            case Persisted(token):
                self.home.on_persisted(token)
            case PersistFailed(token, reason):
                self.home.on_persist_failed(token, reason)
            case Restored(records):
                self._restore(records, now_ms)
            case ConsumerAcked():
                pass
            case TimerFired(timer) if timer == _RETRY:
                self._retrying = False
                self._intake.retry(now_ms)
                self.delegations.on_retry(now_ms, linked=self._linked.__contains__)
            case TimerFired(timer) if timer == _REPEAT:
                self._repeating = False
                self.delegations.on_repeat(now_ms)
            case TimerFired(timer) if timer == _REPLAY:
                self._replay_slice(now_ms)
            case TimerFired(timer) if timer == _FLUSH:
                self.maintenance.on_timer()
            case _:
                return False
        return True

    def on_message(self, peer: PeerId, message: Message, now_ms: int) -> bool:
        """Take in a message of the routing algorithm; False if it is another's."""
        match message:
            case Notify():
                self._on_notify(peer, message, now_ms)
            case NotifyBatch():
                self._on_notify_batch(peer, message, now_ms)
            case Confirm():
                self.delegations.on_confirm(peer, message, now_ms)
            case FilterUpdate():
                self.maintenance.on_filter_update(peer, message)
            case FilterConfirmed():
                self.maintenance.on_filter_confirmed(peer, message)
            case FilterMismatch():
                self.maintenance.on_filter_mismatch(peer, message)
            case ResponsibilityChange():
                self.maintenance.on_responsibility_change(peer, message)
            case _:
                return False
        return True

    def flush(self, now_ms: int) -> list[Effect]:
        """All effects since the last time; work that several causes share is done here, once."""
        if self._redelegate:
            self._redelegate = False
            self.delegations.redelegate(now_ms)
        for effect in self.maintenance.flush(now_ms):
            match effect:
                case Send(peer, messages):
                    for message in messages:
                        self._out.send(peer, message)
                case SubscriptionReady(name):
                    self._told_ready[name] = None
                    self._say_ready(name)
                case _:
                    self._out.emit(effect)
        if len(self.delegations) and not self._retrying:
            self._retrying = True
            self._out.emit(SetTimer(_RETRY, self.settings.delegations.retry_ms))
        if self.delegations.has_repeats and not self._repeating:
            self._repeating = True
            self._out.emit(SetTimer(_REPEAT, self.settings.delegations.repeat_after_ms))
        return self._out.take()

    def emit(self, effect: Effect) -> None:
        """Add an effect, in order."""
        self._out.emit(effect)

    def send(self, peer: PeerId, message: Message) -> None:
        """Add a message to a linked peer, in order."""
        self._out.send(peer, message)

    # --- links and topology --------------------------------------------------------------------

    def peer_connected(self, peer: PeerId) -> None:
        """A link to the peer is up."""
        self._linked[peer] = None
        self.maintenance.peer_connected(peer)

    def peer_offers(self, peer: PeerId, features: tuple[str, ...]) -> None:
        """What the node at the other end of a link named in HELLO."""
        if BATCHES_FEATURE in features:
            self._takes_batches[peer] = None
        else:
            self._takes_batches.pop(peer, None)

    def _peer_in_doubt(self, peer: PeerId, now_ms: int) -> None:
        """The peer may be gone: whom it serves under a promise is served by others as well."""
        if peer in self._linked:
            self._in_doubt[peer] = None
            self.delegations.relieve(peer, now_ms)

    def peer_gone(self, peer: PeerId) -> None:
        """The peer cannot be reached any more. The topology says next who takes its place."""
        self._takes_batches.pop(peer, None)
        self._in_doubt.pop(peer, None)
        if self._linked.pop(peer, ...) is ...:
            return
        self._out.forget(peer)
        self.maintenance.publisher_lost(peer)
        self.delegations.peer_gone(peer)
        self._redelegate = True

    def edges_changed(
        self,
        heirs: Mapping[PeerId, PeerId | None],
        copies: Mapping[PeerId, PeerId | None],
    ) -> None:
        """The topology changed: lost edges and their heirs, new ones and whose rows they copy."""
        self.maintenance.edges_changed(heirs, copies)
        self._redelegate = True

    def publishers(self) -> Mapping[PeerId, Scope]:
        """Who holds this peer responsible, and for what."""
        return self.maintenance.publishers()

    def is_linked(self, peer: PeerId) -> bool:
        """Whether messages can be sent to the peer."""
        return peer in self._linked

    # --- subscriptions -------------------------------------------------------------------------

    def _subscribe(self, name: str, wanted: Filter, *, durable: bool) -> None:
        stored = partial(self._on_subscription_stored, name)
        if not self.home.subscribe(name, wanted, stored, durable=durable):
            self._out.emit(Drop(f"the subscription {name} exists already, or there are too many"))
            return
        self.maintenance.subscribe(name, wanted)

    def _on_subscription_stored(self, name: str) -> None:
        if name in self.home.subscriptions:
            self._stored_subscriptions[name] = None
            self._say_ready(name)

    def _say_ready(self, name: str) -> None:
        """Ready: on disk here, and confirmed by everyone whose events must find the way."""
        if name in self._told_ready and name in self._stored_subscriptions:
            self._out.emit(SubscriptionReady(name))

    def _unsubscribe(self, name: str) -> None:
        if self.home.unsubscribe(name):
            self._stored_subscriptions.pop(name, None)
            self._told_ready.pop(name, None)
            self.maintenance.unsubscribe(name)

    def _restore(self, records: tuple[Record, ...], now_ms: int) -> None:
        self.home.restore(records, now_ms)
        for name, wanted in self.home.subscriptions.items():
            self._stored_subscriptions[name] = None
            self.maintenance.subscribe(name, wanted)

    # --- events --------------------------------------------------------------------------------

    def _publish(self, publication: Publication, source: str, now_ms: int) -> None:
        scope = self._topology.whole()
        if publication.delivery is Delivery.BEST_EFFORT:
            if self.home.see(publication.key, now_ms):
                self._route(publication, scope, 0, None)
            self._out.emit(PublishCompleted.of(publication))
            return
        self._promise(publication, source, now_ms)

    def _promise(self, publication: Publication | Batch, source: str, now_ms: int) -> None:
        """Publish at least once, if this overlay can promise that."""
        if not self.settings.promise_at_least_once:
            reason = "this overlay promises best effort only: use chord for at-least-once"
            self._out.emit(PublishFailed.of(publication, reason))
            return
        if self._replays.keep(publication, now_ms):
            self._out.emit(Drop("an acknowledged event is not kept for a split: others are large"))
        task = self.delegations.own(publication, self._topology.whole(), now_ms)
        if task is None:
            reason = "too many publications are unconfirmed: wait for some to complete"
            self._out.emit(PublishFailed.of(publication, reason))
            return
        task.source = source
        self._serve(task, task.scope, now_ms)

    def _publish_batch(self, batch: Batch, source: str, now_ms: int) -> None:
        scope = self._topology.whole()
        if batch.delivery is Delivery.BEST_EFFORT or not len(batch):
            new = self.home.see_batch(batch, now_ms)
            if len(new):
                self._route_batch(new, scope, 0, None)
            self._out.emit(PublishCompleted.of(batch))
        else:
            self._promise(batch, source, now_ms)

    def _on_published(self, task: Task) -> None:
        """A task of this node's publishers has ended."""
        published = task.publication
        if task.control:
            return
        if self._replays.under_way.get(published.key) == task.key:
            del self._replays.under_way[published.key]
        elif task.failure:
            self._out.emit(PublishFailed.of(published, task.failure))
        else:
            self._out.emit(PublishCompleted.of(published))

    def _on_notify(self, peer: PeerId, message: Notify, now_ms: int) -> None:
        publication = message.publication
        complaint = self._topology.parse_scope(message.scope)
        if complaint is None and not publication.is_sound:
            complaint = "its attributes cannot be read"
        if complaint is not None:
            self._out.emit(Drop(complaint, publication.id, peer))
            return
        if message.delegation:
            self._take_on(peer, message, publication, now_ms)
        elif not self.home.see(publication.key, now_ms):
            self._out.emit(Drop("seen before", publication.id, peer))
        elif message.control:
            self._route_control(message, peer, now_ms)
        else:
            self._route(publication, message.scope, message.hops, peer)

    def _take_on(
        self, peer: PeerId, message: Notify | NotifyBatch, content: Publication | Batch, now_ms: int
    ) -> None:
        """Serve what a peer has delegated, unless it has to wait."""
        if self._intake.must_wait(peer, message, content, now_ms):
            return
        task = self.delegations.take_on(peer, message, now_ms)
        if task is None:
            self._out.emit(Drop("is being served, or was", content.id, peer))
        else:
            self._serve(task, message.scope, now_ms)

    def _route(
        self, publication: Publication, scope: Scope, hops: int, sender: PeerId | None
    ) -> None:
        """Serve the scope, best effort."""
        if self._topology.holds_me(scope):
            self.home.hand_over(publication, hops)
        for peer, part in self._topology.parts(scope, sender):
            if self.maintenance.matches(peer, publication, part):
                self._out.send(peer, Notify(publication, part, hops + 1))

    def _on_notify_batch(self, peer: PeerId, message: NotifyBatch, now_ms: int) -> None:
        batch = message.batch
        complaint = self._topology.parse_scope(message.scope)
        if complaint is None and not batch.is_sound:
            complaint = "its events cannot be read"
        if complaint is not None:
            self._out.emit(Drop(complaint, batch.id, peer))
        elif message.delegation:
            self._take_on(peer, message, batch, now_ms)
        else:
            new = self.home.see_batch(batch, now_ms)
            if len(new) < len(batch):
                self._out.emit(Drop("seen before", batch.id, peer))
            if len(new):
                self._route_batch(new, message.scope, message.hops, peer)

    def _route_batch(self, batch: Batch, scope: Scope, hops: int, sender: PeerId | None) -> None:
        """Serve the scope, best effort."""
        if self._topology.holds_me(scope):
            self.home.hand_over_batch(batch, self._batches.at_home(batch), hops)
        parts = self._topology.parts(scope, sender)
        if not parts:
            return
        wanted = self._batches.match(batch)
        for peer, part in parts:
            its = self._batches.for_edge(wanted, batch, peer, part)
            if its is None:
                continue
            if peer in self._takes_batches:
                self._out.send(peer, NotifyBatch(its, part, hops + 1))
            else:
                for publication in its.publications():
                    self._out.send(peer, Notify(publication, part, hops + 1))

    def _serve(self, task: Task, scope: Scope, now_ms: int) -> None:
        """Serve the scope, and wait until all of it is served."""
        content = task.publication
        if not self._intake.takes(task, now_ms):
            return
        if self._topology.holds_me(scope):
            end = partial(self.delegations.on_home_stored, task, now_ms)
            about = (task.hops, now_ms, end, end, task.source)
            if isinstance(content, Batch):
                wanted = self._batches.at_home(content)
                task.waits_for_home = self.home.store_batch(content, wanted, *about)
            elif not task.control:
                task.waits_for_home = self.home.store(content, *about)
            elif self.home.see(content.key, now_ms):
                self._take_control(task.control, content, now_ms)
        self._spread_task(task, scope, now_ms)
        self.delegations.check(task, now_ms)

    def _spread_task(self, task: Task, scope: Scope, now_ms: int) -> None:
        content = task.publication
        if isinstance(content, Batch):
            self._spread_batch(task, content, scope, now_ms)
            return
        for peer, part in self._topology.parts(scope, None):
            if self.maintenance.matches(peer, content, part, task.control):
                self._delegate(task, peer, part, content, now_ms)

    def _spread_batch(self, task: Task, batch: Batch, scope: Scope, now_ms: int) -> None:
        parts = self._topology.parts(scope, None)
        if not parts:
            return
        wanted = self._batches.match(batch)
        for peer, part in parts:
            its = self._batches.for_edge(wanted, batch, peer, part)
            if its is not None:
                self._delegate(task, peer, part, its, now_ms)

    def _delegate(
        self, task: Task, peer: PeerId, scope: Scope, content: Publication | Batch, now_ms: int
    ) -> None:
        """Let the peer at the end of an edge serve the part, or others if it is in doubt."""
        if peer not in self._in_doubt:
            self._delegate_to(task, peer, scope, content, now_ms)
            return
        for other, part in self._topology.parts_around(scope, self._in_doubt):
            self._delegate_to(task, other, part, content, now_ms)

    def _delegate_to(
        self, task: Task, peer: PeerId, scope: Scope, content: Publication | Batch, now_ms: int
    ) -> None:
        alone = peer in self._in_doubt
        if isinstance(content, Batch) and peer not in self._takes_batches:
            for publication in content.publications():
                self.delegations.delegate(task, peer, scope, now_ms, publication, is_place=alone)
        else:
            self.delegations.delegate(task, peer, scope, now_ms, content, is_place=alone)

    def _detour(self, task: Task, owed: Part, now_ms: int) -> Scope:
        """Let others serve what a peer in doubt owes; what only the peer itself can serve.

        Who wants the event there is not known, only that somebody does.
        """
        place = NOWHERE
        for peer, part in self._topology.parts_around(owed.scope, self._in_doubt):
            if peer == owed.peer:
                place = part
            else:
                self._delegate_to(task, peer, part, owed.content, now_ms)
        return place

    # --- control notifications and replay ------------------------------------------------------

    def set_control(self, name: str, wanted: Filter | None) -> None:
        """The control notifications that this peer wants under a reserved name."""
        if wanted is None:
            self._control.pop(name, None)
        else:
            self._control[name] = wanted
        self.maintenance.set_control(name, wanted)

    def publish_control(self, name: str, publication: Publication, now_ms: int) -> None:
        """Publish a control notification: an ordinary one, for the overlay's own filters.

        It travels under the promise that the publication names.
        """
        if publication.delivery is Delivery.AT_LEAST_ONCE:
            task = self.delegations.own(publication, self._topology.whole(), now_ms, name)
            if task is None:
                self._out.emit(Drop("too much is unconfirmed for a promise", publication.id))
            else:
                self._serve(task, task.scope, now_ms)
        elif self.home.see(publication.key, now_ms):
            notify = Notify(publication, self._topology.whole(), 0, control=name)
            self._route_control(notify, None, now_ms)

    def _route_control(self, notify: Notify, sender: PeerId | None, now_ms: int) -> None:
        publication, control = notify.publication, notify.control
        if self._topology.holds_me(notify.scope):
            self._take_control(control, publication, now_ms)
        for peer, part in self._topology.parts(notify.scope, sender):
            if self.maintenance.matches(peer, publication, part, control):
                self._out.send(peer, Notify(publication, part, notify.hops + 1, control=control))

    def _take_control(self, control: str, publication: Publication, now_ms: int) -> None:
        wanted = self._control.get(control)
        if wanted is not None and publication.matches(wanted) and self._on_control:
            self._on_control(publication, now_ms)

    def replay(self, now_ms: int, since_ms: int = 0) -> None:
        """Publish the acknowledged events from a time on again: a split has healed."""
        self._replays.begin(now_ms, since_ms)
        self._replay_slice(now_ms)

    def _replay_slice(self, now_ms: int) -> None:
        for publication, before in self._replays.next_slice():
            if before is not None:
                self.delegations.cancel(before)
            task = self.delegations.own(publication, self._topology.whole(), now_ms)
            if task is not None:
                self._replays.under_way[publication.key] = task.key
                self._serve(task, self._topology.whole(), now_ms)
        if self._replays.is_waiting:
            self._out.emit(SetTimer(_REPLAY, self.settings.replay_pause_ms))

    # --- a start in a state that is set --------------------------------------------------------

    def install(
        self,
        *,
        told: Mapping[PeerId, Rows],
        sent: Mapping[PeerId, tuple[Scope, Rows]],
        connected: Iterable[PeerId],
    ) -> None:
        """Be in the state that joins and subscribes would have led to (`maintenance`)."""
        links = list(connected)
        self._linked = dict.fromkeys(links)
        self.maintenance.install_converged(told=told, sent=sent, connected=links)
        for name in self.home.subscriptions:
            self._stored_subscriptions[name] = None
            self._told_ready[name] = None

    # --- for people and checkers ---------------------------------------------------------------

    def describe(self) -> Mapping[str, Any]:
        """The state as plain values."""
        return {
            "filters": self.maintenance.describe(),
            "subscriptions": sorted(islice(self.home.subscriptions, DESCRIBED_MAX)),
            "unfinished_tasks": len(self.delegations),
        }
