"""The engine: nodes driven by causes under a virtual clock, and their effects carried out.

One thing happens at a time: the clock takes the next planned action, a node handles one cause, and
its effects become planned actions. All draws come from the seed, each from what it is about, so one
seed is one run. Observers are told every step; without any nothing is built for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

from peersub.overlays.core.causes import (
    Cause,
    ConsumerAcked,
    Join,
    Leave,
    Persisted,
    Publish,
    Restored,
    Start,
    Subscribe,
    Timer,
    TimerFired,
    Unsubscribe,
)
from peersub.overlays.core.effects import (
    CancelTimer,
    Connect,
    Deliver,
    Disconnect,
    Drop,
    Effect,
    MirrorWork,
    Notice,
    Persist,
    ProposeMove,
    PublishCompleted,
    PublishFailed,
    Send,
    SetTimer,
    SubscriptionPending,
    SubscriptionReady,
)
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Delivery, Publication
from peersub.simulator.batches import Batches
from peersub.simulator.clock import Clock
from peersub.simulator.counters import Counters
from peersub.simulator.hosts import Driven, Host
from peersub.simulator.network import Network
from peersub.simulator.quiescence import SETTLE_MS, run_until_quiet
from peersub.simulator.settings import NetworkSettings
from peersub.trace.schema import Disk as DiskFate
from peersub.trace.schema import Fault, FaultKind, Given, Observer, Phase, Step, TraceRecord

if TYPE_CHECKING:
    from peersub.simulator.durables import Durables

__all__ = ["MakeNode", "RunawayError", "Simulation"]

MakeNode: TypeAlias = Callable[[str, int], Driven]
"""From a node's name and incarnation to the node."""

STEPS_MAX = 1_000_000_000
PROGRESS_EVERY_STEPS = 4_096


class RunawayError(RuntimeError):
    """More steps than a run may take: most likely messages that cause each other for ever."""


class Simulation:
    """A network of nodes.

    Args:
        seed: the only source of randomness.
        make_node: makes a node of a name in an incarnation.
        network: how links, disks and consumers behave.
        observers: are told what happens, in order.
        through_wire: what a receiver reads of messages; None passes them by reference.
        steps_max: ends a run that would never end.
        progress: is called now and then with the simulation.
    """

    def __init__(
        self,
        seed: int,
        make_node: MakeNode,
        network: NetworkSettings | None = None,
        observers: Sequence[Observer] = (),
        *,
        through_wire: Callable[[tuple[Message, ...]], tuple[Message, ...]] | None = None,
        steps_max: int = STEPS_MAX,
        progress: Callable[[Simulation], None] | None = None,
    ) -> None:
        self.seed = seed
        self.settings = network or NetworkSettings()
        self.counters = Counters()
        self.activity = 0
        """Grows when something happens that matters to users or to the shape of the network."""
        self.errands: dict[str, str] = {}
        """What subscribers are about to do by themselves, by their names: to move, say."""
        self.durables: Durables | None = None
        """The durable subscriptions of all hosts, where nodes have mirrors."""
        self._make_node = make_node
        self._observers = tuple(observers)
        self._clock = Clock()
        self._steps_max = steps_max
        self._progress = progress
        self._timers = 0
        self._under_way = 0
        self._batches = Batches()
        self.network = Network(
            self._clock,
            self.settings,
            seed,
            self.counters,
            self._tell,
            through_wire,
        )
        self.hosts: Mapping[str, Host] = self.network.hosts
        self._carry_out: dict[type, Callable[[Host, Any], None]] = {
            Send: self.network.send,
            SetTimer: self._set_timer,
            CancelTimer: self._cancel_timer,
            Deliver: self._deliver,
            Persist: self._persist,
            MirrorWork: self._mirror_work,
            Connect: self._connect,
            Disconnect: self._disconnect,
            SubscriptionReady: self._subscription_ready,
            SubscriptionPending: _nothing,
            ProposeMove: _nothing,
            PublishCompleted: self._publish_ended,
            PublishFailed: self._publish_ended,
            Drop: _nothing,
            Notice: _nothing,
        }

    # --- the state -----------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """The virtual time."""
        return self._clock.now_ms

    @property
    def in_flight(self) -> int:
        """All that is under way except timers: messages, connections, writes, consumers."""
        return self.network.in_flight + self._under_way

    @property
    def next_ms(self) -> int | None:
        """When the next planned action is due, or None if nothing will ever happen by itself."""
        return self._clock.next_ms

    def living(self) -> list[Host]:
        """The hosts that are on, in the order in which they were added."""
        return [host for host in self.network.hosts.values() if host.node is not None]

    def is_on(self, name: str) -> bool:
        """Whether there is a node of this name, and it lives."""
        host = self.network.hosts.get(name)
        return host is not None and host.node is not None

    def obligations(self) -> list[str]:
        """What living nodes still owe: a join, a place, subscriptions to be ready, events."""
        owed: list[str] = list(self.errands.values())
        if self.durables is not None:
            owed += self.durables.owed()
        for host in self.living():
            if host.overlay.is_joining:
                owed.append(f"{host.name}: join")
            elif host.overlay.is_mending:
                owed.append(f"{host.name}: a place")
            owed += [
                f"{host.name}: finding {node}"
                for node in host.overlay.missing_nodes or ()
                if self._is_there(host, node)
            ]
            owed += [f"{host.name}: publication {name}" for name in host.open_publications]
            owed += [f"{host.name}: subscription {name}" for name in host.open_subscriptions]
        return owed

    def _is_there(self, host: Host, node: str) -> bool:
        """Whether a node that another looks for lives, and could be found."""
        other = self.network.hosts.get(node)
        return (
            other is not None
            and other.is_on
            and not other.is_leaving
            and self.network.can_talk(host, other)
        )

    # --- causes from outside -------------------------------------------------------------------

    def add(self, name: str) -> Host:
        """A host with a node that has not started yet."""
        assert name not in self.network.hosts, f"{name} exists"
        host = Host(name)
        self.network.hosts[name] = host
        host.node = self._make_node(name, 0)
        if self.durables is not None:
            self.durables.begin(host)
        return host

    def start(self, name: str) -> None:
        """A new node begins a network of its own."""
        self._tell(self.add(name), Start())

    def join(self, name: str, contacts: Sequence[str]) -> None:
        """A new node joins the network of the contacts."""
        self._tell(self.add(name), Join(tuple(contacts)))

    def cause(self, name: str, cause: Cause) -> None:
        """Something happens to a living node: Subscribe, Unsubscribe, Publish, …"""
        host = self.network.hosts[name]
        assert host.node is not None, f"{name} is off"
        match cause:
            case Subscribe(subscription):
                host.open_subscriptions[subscription] = None
            case Unsubscribe(subscription):
                host.open_subscriptions.pop(subscription, None)
            case Publish(publications):
                for publication in publications:
                    if publication.delivery is Delivery.AT_LEAST_ONCE:
                        host.open_publications[publication.id] = None
            case _:
                pass
        self._tell(host, cause)

    def publish_batch(self, name: str, batch_id: str, publications: Sequence[Publication]) -> None:
        """A publisher on a living node hands over events of one promise together."""
        host = self.network.hosts[name]
        if publications[0].delivery is Delivery.AT_LEAST_ONCE:
            host.open_publications.update((each.id, None) for each in publications)
        self.cause(name, self._batches.published(batch_id, publications))

    def leave(self, name: str) -> None:
        """The node takes leave, and is off once it has closed its links, or its time is up."""
        host = self.network.hosts[name]
        assert host.node is not None, f"{name} is off"
        host.is_leaving = True
        limit_ms = self.now_ms + self.settings.leave_limit_ms
        self._under_way += 1
        self._clock.plan(limit_ms, self._leave_is_up, (host, host.incarnation))
        self._tell(host, Leave())

    def _leave_is_up(self, host: Host, incarnation: int) -> None:
        self._under_way -= 1
        if host.is_leaving and host.incarnation == incarnation:
            for channel in list(host.links.values()):
                self.network.close(channel, "left")
            self._switch_off(host)

    def _switch_off(self, host: Host) -> None:
        self.network.switch_off(host)
        if self.durables is not None:
            self.durables.stopped(host)

    # --- faults --------------------------------------------------------------------------------

    def crash(self, names: Sequence[str]) -> None:
        """These nodes lose their memory at once; records on their way to disk are lost in part."""
        self._observe(Fault(self.now_ms, FaultKind.CRASH, nodes=tuple(names)))
        for name in names:
            host = self.network.hosts[name]
            assert host.node is not None, f"{name} is off"
            self._switch_off(host)
            host.disk.crash(self._disk_random(host))
        self.activity += 1

    def _disk_random(self, host: Host) -> Random:
        return Random(f"{self.seed}/disk/{host.name}/{host.incarnation}")

    def restart(
        self, name: str, contacts: Sequence[str] = (), disk: DiskFate = DiskFate.KEPT
    ) -> None:
        """A node that is off begins a new life; without contacts, as a network of its own."""
        host = self.network.hosts[name]
        assert host.node is None, f"{name} is on"
        self._observe(Fault(self.now_ms, FaultKind.RESTART, nodes=(name,), disk=disk))
        if not contacts and self.living() and not self.network.is_partitioned:
            # Two networks from now on, which can find each other.
            self._observe(Fault(self.now_ms, FaultKind.HEAL, detail=f"{name} begins alone"))
        host.incarnation += 1
        host.disk_free_ms = 0
        host.node = self._make_node(name, host.incarnation)
        before = tuple(host.disk.records)
        records = host.disk.restored(disk, self._disk_random(host))
        durables = self.durables
        if durables is not None:
            durables.begin(host, records, is_lost=disk is DiskFate.LOST)
            if disk is not DiskFate.KEPT:
                durables.lost(host, before)
            records = durables.records(host, records)
        if disk is not DiskFate.LOST:
            self._tell(host, Restored(records))
        if durables is not None:
            durables.restored(host)
        self._tell(host, Join(tuple(contacts)) if contacts else Start())
        self.activity += 1

    def stall(self, names: Sequence[str], duration_ms: int) -> None:
        """These nodes stand still for a while: they live, and do nothing."""
        self._observe(Fault(self.now_ms, FaultKind.STALL, nodes=tuple(names)))
        for name in names:
            host = self.network.hosts[name]
            assert host.node is not None, f"{name} is off"
            self.network.stand_still(host, duration_ms)
            self._under_way += 1
            self._clock.plan(self.now_ms + duration_ms, self._stall_is_over, (host,))
        self.activity += 1

    def _stall_is_over(self, host: Host) -> None:
        self._under_way -= 1
        if host.still_until_ms is not None and host.still_until_ms <= self.now_ms:
            self._observe(Fault(self.now_ms, FaultKind.STALL_OVER, nodes=(host.name,)))
            self.network.go_on(host)
            self.activity += 1

    def partition(self, groups: Sequence[Sequence[str]]) -> None:
        """Nodes of different groups can no longer talk; those in none are a group of their own."""
        shown = tuple(tuple(names) for names in groups)
        self._observe(Fault(self.now_ms, FaultKind.PARTITION, groups=shown))
        self.network.partition(groups)
        self.activity += 1

    def heal(self) -> None:
        """The partition ends."""
        self._observe(Fault(self.now_ms, FaultKind.HEAL))
        self.network.heal()
        self.activity += 1

    def break_edges(self, pairs: Sequence[tuple[str, str]]) -> None:
        """These pairs of nodes cannot talk to each other any more, while both live."""
        self._observe(Fault(self.now_ms, FaultKind.EDGE_FAILURE, pairs=tuple(pairs)))
        self.network.block(pairs)
        self.activity += 1

    def mend_edges(self, pairs: Sequence[tuple[str, str]] | None = None) -> None:
        """These pairs, or all, can talk to each other again."""
        mended = self.network.blocked_pairs() if pairs is None else list(pairs)
        self._observe(Fault(self.now_ms, FaultKind.EDGE_HEAL, pairs=tuple(mended)))
        self.network.unblock(mended)
        self.activity += 1

    # --- a start in a state that was set -------------------------------------------------------

    def link_all(self) -> int:
        """Make the connections that the overlays' `links()` name, without messages; how many.

        Both nodes are told by `adopt_link(peer)`, which changes nothing in the overlay.
        """
        made = 0
        for host in self.living():
            for peer in host.overlay.links():
                other = self.network.hosts[peer.node]
                if self.network.link(host, other):
                    made += 1
                    for one, two in ((host, other), (other, host)):
                        one.node.adopt_link(two.peer, features=two.node.features)
        return made

    def give(self, name: str, subscriptions: Iterable[tuple[str, Any]]) -> None:
        """Tell observers that a node begins with these subscriptions, ready."""
        if self._observers:
            self._observe(Given(self.now_ms, name, tuple(subscriptions)))

    def carry_out(self, name: str, effects: Iterable[Effect]) -> None:
        """Carry out effects that a state which was set from outside asks for, such as timers."""
        host = self.network.hosts[name]
        for effect in effects:
            self._carry_out[type(effect)](host, effect)

    def mark(self, phase: str, *, disturbed: bool = False) -> None:
        """A part of the plan begins; in one that is disturbed, best effort may miss someone."""
        self._observe(Phase(self.now_ms, phase, disturbed))

    # --- time ----------------------------------------------------------------------------------

    def run_for(self, duration_ms: int) -> None:
        """Let this much time pass."""
        self._clock.advance(self.now_ms + duration_ms)

    def run_until(self, stop: Callable[[], bool], limit_ms: int) -> bool:
        """Let time pass until the condition holds, asked after each action; False at the limit."""
        return stop() or self._clock.advance(self.now_ms + limit_ms, stop)

    def run_until_idle(self, limit_ms: int) -> bool:
        """Let time pass until nothing is planned, timers included; False at the limit."""
        return self._clock.advance_until_idle(self.now_ms + limit_ms)

    def run_until_quiet(self, limit_ms: int, settle_ms: int = SETTLE_MS) -> bool:
        """Let time pass until only maintenance that changes nothing goes on (`quiescence`)."""
        return run_until_quiet(self, limit_ms, settle_ms)

    def at(self, at_ms: int, action: Callable[..., None], *arguments: Any) -> None:
        """Call a function at a time to come."""
        self._clock.plan(at_ms, action, arguments)

    # --- one step ------------------------------------------------------------------------------

    def tell(self, host: Host, cause: Cause, slot: int) -> None:
        """Something happens to a peer beside the overlay of a living node."""
        if host.node is not None:
            self._tell(host, cause, slot)

    def _tell(self, host: Host, cause: Cause, slot: int = 0) -> None:
        counters = self.counters
        counters.steps += 1
        if not counters.steps % PROGRESS_EVERY_STEPS:
            self.report_progress()
        now_ms = self._clock.now_ms
        node = host.node
        effects = node.handle(cause, now_ms, slot) if slot else node.handle(cause, now_ms)
        if self._batches:
            cause = self._batches.cause_told(cause)
            effects = self._batches.effects_told(effects)
        if self._observers:
            self._observe(Step(now_ms, host.name, cause, effects))
        carry_out = self._carry_out
        for effect in effects:
            carry_out[type(effect)](host, effect)
        if host.is_leaving and not host.links:
            self._switch_off(host)

    def _observe(self, record: TraceRecord) -> None:
        for observer in self._observers:
            observer.observe(record)

    def report_progress(self) -> None:
        """Say that something goes on, to who asked for that; a run that never ends ends here."""
        if self.counters.steps > self._steps_max:
            raise RunawayError(f"more than {self._steps_max:,} steps by {self.now_ms} ms")
        if self._progress is not None:
            self._progress(self)

    # --- effects -------------------------------------------------------------------------------

    def _connect(self, host: Host, effect: Connect) -> None:
        self.network.connect(host, effect.node)

    def _disconnect(self, host: Host, effect: Disconnect) -> None:
        self.network.disconnect(host, effect)

    def _set_timer(self, host: Host, effect: SetTimer) -> None:
        self._timers += 1
        host.timers[effect.timer] = self._timers
        at_ms = self._clock.now_ms + max(effect.delay_ms, 0)
        self._clock.plan(at_ms, self._fire, (host, effect.timer, self._timers))

    def _cancel_timer(self, host: Host, effect: CancelTimer) -> None:
        host.timers.pop(effect.timer, None)

    def _fire(self, host: Host, timer: Timer, number: int) -> None:
        if host.is_put_off(self._fire, host, timer, number):
            return
        if host.timers.get(timer) == number:
            del host.timers[timer]
            self._tell(host, TimerFired(timer))

    def _persist(self, host: Host, effect: Persist) -> None:
        self.write(host, effect.record, lambda: self._tell(host, Persisted(effect.token)))

    def _mirror_work(self, host: Host, effect: MirrorWork) -> None:
        assert self.durables is not None, "there are no mirrors without durable subscriptions"
        self.durables.work(host, effect.task)

    def write(self, host: Host, entry: Any, then: Callable[[], None] | None = None) -> None:
        """Keep an entry on the disk of a host; `then` runs when it would survive a crash."""
        host.disk.write(entry)
        host.disk_free_ms = max(host.disk_free_ms, self._clock.now_ms + self.settings.disk_ms)
        self._under_way += 1
        arguments = (host, host.incarnation, entry, then)
        self._clock.plan(host.disk_free_ms, self._written, arguments)

    def _written(
        self, host: Host, incarnation: int, entry: Any, then: Callable[[], None] | None
    ) -> None:
        if host.is_put_off(self._written, host, incarnation, entry, then):
            return
        self._under_way -= 1
        if host.node is not None and host.incarnation == incarnation:
            host.disk.sync()
            if self.durables is not None:
                self.durables.synced(host, entry)
            if then is not None:
                then()

    def later(self, host: Host, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Call a function of a host's life when its consumers take something the next time."""
        self._under_way += 1
        at_ms = self._clock.now_ms + self.settings.consumer_ms
        self._clock.plan(at_ms, self._do_later, (host, host.incarnation, action, arguments))

    def _do_later(
        self, host: Host, incarnation: int, action: Callable[..., None], arguments: tuple[Any, ...]
    ) -> None:
        if host.is_put_off(self._do_later, host, incarnation, action, arguments):
            return
        self._under_way -= 1
        if host.node is not None and host.incarnation == incarnation:
            action(*arguments)

    def _deliver(self, host: Host, effect: Deliver) -> None:
        self.activity += 1
        self.counters.delivered += len(effect.subscriptions)
        if effect.publication.delivery is Delivery.AT_LEAST_ONCE:
            at_ms = self._clock.now_ms + self.settings.consumer_ms
            self._under_way += 1
            self._clock.plan(at_ms, self._consumed, (host, host.incarnation, effect))

    def _consumed(self, host: Host, incarnation: int, effect: Deliver) -> None:
        if host.is_put_off(self._consumed, host, incarnation, effect):
            return
        self._under_way -= 1
        for subscription in effect.subscriptions:
            if host.node is not None and host.incarnation == incarnation:
                self._tell(host, ConsumerAcked(subscription, effect.publication.id))

    def _subscription_ready(self, host: Host, effect: SubscriptionReady) -> None:
        self.activity += 1
        host.open_subscriptions.pop(effect.subscription, None)
        if self.durables is not None:
            self.durables.ready(host, effect.subscription)

    def _publish_ended(self, host: Host, effect: PublishCompleted | PublishFailed) -> None:
        self.activity += 1
        host.open_publications.pop(effect.event_id, None)


def _nothing(host: Host, effect: Effect) -> None:
    """For effects that concern observers only."""
