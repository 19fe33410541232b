"""Durable subscriptions in a simulation: what their disks hold, and consumers that take it.

What `runtime/mirroring` does with a store is done here with the simulated disk of a host: all that
is kept is an entry of one list, in the order of writing, and the state is what these entries say,
up to the last one that is on disk. So a crash, a disk that is lost and one that lies about its last
writes reach mirrors as they reach the overlay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from peersub.filters.filter import Filter
from peersub.overlays.core.causes import MirrorNews, Start, Subscribe, Unsubscribe
from peersub.overlays.core.effects import HAS_LEFT
from peersub.overlays.core.mirror_facts import (
    DurableEnded,
    DurableKept,
    DurableServed,
    DurableTaken,
    EventsRetained,
    Held,
    HeldCopy,
    HeldRead,
    HoldsChecked,
    LookedAfter,
    MirrorFact,
    StoreMarked,
)
from peersub.overlays.core.mirror_tasks import (
    CheckHeld,
    ForgetDropped,
    LetGo,
    LookAfter,
    MirrorTask,
    NameLoss,
    NoteGap,
    ReadDropped,
    ReadHeld,
    ReadMark,
    RecreateDurables,
    ReleaseRetained,
    RetainEvents,
    SayReady,
)
from peersub.overlays.core.mirrors import MIRROR_SLOT, Mirrored, MirrorSettings, host_mirrors
from peersub.overlays.core.publication import Publication
from peersub.overlays.core.records import (
    BatchStored,
    DurableSubscriptionStored,
    EventStored,
    Record,
)
from peersub.overlays.core.store_marks import LIVES_MAX, Life
from peersub.simulator.hosts import Host
from peersub.trace.checkers import Rule, Violation
from peersub.trace.durable_checker import DurableChecker
from peersub.trace.schema import Fault, TraceRecord

if TYPE_CHECKING:
    from peersub.simulator.engine import Simulation

__all__ = ["Durables", "HeldDisk"]

FAULT_FORGOTTEN_MS = 400_000
"""For so long after a fault nobody counts copies: longer than a publication lasts. What a part of a
split network acknowledges reaches the others when it heals."""
CHUNK_EVENTS = 8
"""Events that are compared at once: few, so that a walk has steps."""


@dataclass(frozen=True, slots=True)
class DurableMade:
    """A durable subscription of the host."""

    name: str
    filter: Filter


@dataclass(frozen=True, slots=True)
class DurableGone:
    """It has ended."""

    name: str


@dataclass(frozen=True, slots=True)
class CursorMoved:
    """Its consumer has taken the event."""

    name: str
    event: str


Entry: TypeAlias = (
    Record
    | DurableMade
    | DurableGone
    | CursorMoved
    | Life
    | LookAfter
    | LetGo
    | RetainEvents
    | ReleaseRetained
)
"""What may be on the disk of a host."""


@dataclass(slots=True)
class HeldDisk:
    """What the entries on a disk say about durable subscriptions."""

    me: str
    durables: dict[str, Filter] = field(default_factory=dict)
    log: dict[str, dict[str, HeldCopy]] = field(default_factory=dict)
    """Per durable subscription its events, in order, each once."""
    taken: dict[str, set[str]] = field(default_factory=dict)
    mirrored: dict[tuple[str, str], Mirrored] = field(default_factory=dict)
    retained: dict[str, dict[str, tuple[int, HeldCopy]]] = field(default_factory=dict)
    number: int = 0
    commits: int = 0
    lives: list[Life] = field(default_factory=list)

    def apply(self, entry: Entry) -> list[str]:
        """Take in an entry; the durable subscriptions whose logs have grown."""
        self.commits += 1
        match entry:
            case Life():
                self.lives = [*self.lives[1 - LIVES_MAX :], entry]
            case DurableMade(name, wanted):
                self.durables[name] = wanted
                self.log.setdefault(name, {})
                self.taken.setdefault(name, set())
            case DurableGone(name):
                self.durables.pop(name, None)
                self.log.pop(name, None)
                self.taken.pop(name, None)
            case CursorMoved(name, event):
                if name in self.taken:
                    self.taken[name].add(event)
            case EventStored(publication, names, _, hops):
                return self._append(publication, names, hops)
            case BatchStored():
                return self._append_batch(entry)
            case LookAfter(home, epoch, subscriptions, stores, suspended_ms):
                for each in subscriptions:
                    mirrored = Mirrored(home, epoch, each.name, each.filter, stores, suspended_ms)
                    self.mirrored[home, each.name] = mirrored
            case LetGo(home, names):
                for name in names:
                    self.mirrored.pop((home, name), None)
                    self._release(home, name, list(self.retained.get(home, ())))
            case RetainEvents(home, events):
                return self._retain(home, events)
            case ReleaseRetained(home, name, event_ids):
                self._release(home, name, event_ids)
            case _:
                pass
        return []

    def _append(self, publication: Publication, names: Sequence[str], hops: int) -> list[str]:
        grown = []
        for name in names:
            log = self.log.get(name)
            if log is not None and publication.name not in log:
                log[publication.name] = HeldCopy(publication, (name,), hops)
                grown.append(name)
        return grown

    def _append_batch(self, record: BatchStored) -> list[str]:
        names_of: dict[int, list[str]] = {}
        for name, numbers in record.wanted:
            for number in numbers:
                names_of.setdefault(number, []).append(name)
        grown: list[str] = []
        events = record.batch.publications()
        for number, event in zip(record.batch.numbers.tolist(), events, strict=True):
            grown += self._append(event, names_of.get(number, ()), record.hops)
        return grown

    def _retain(self, home: str, events: Sequence[Held]) -> list[str]:
        grown: list[str] = []
        for each in (one for held in events for one in held.one_by_one()):
            if home == self.me:
                grown += self._append(each.publication, each.names, each.hops)
                continue
            names = {name for name in each.names if (home, name) in self.mirrored}
            events_of = self.retained.setdefault(home, {})
            key = each.publication.name
            number, before = events_of.get(key, (0, None))
            if not number:
                self.number += 1
                number = self.number
            names.update(() if before is None else before.names)
            if names:
                copy = HeldCopy(each.publication, tuple(sorted(names)), each.hops)
                events_of[key] = (number, copy)
        return grown

    def _release(self, home: str, name: str, event_ids: Sequence[str]) -> None:
        events = self.retained.get(home, {})
        for event_id in event_ids:
            if event_id in events:
                number, copy = events[event_id]
                left = tuple(each for each in copy.names if each != name)
                if left:
                    events[event_id] = number, HeldCopy(copy.publication, left, copy.hops)
                else:
                    del events[event_id]

    def held(self) -> Iterator[tuple[str, str, str]]:
        """All events on the disk, each with a subscription that it is held for, and its home."""
        for name, log in self.log.items():
            yield from ((self.me, name, event) for event in log)
        for home, events in self.retained.items():
            for event, (_, copy) in events.items():
                yield from ((home, name, event) for name in copy.names)

    def knows(self, home: str, name: str) -> bool:
        """Whether the disk has a subscription of a home."""
        return name in self.durables if home == self.me else (home, name) in self.mirrored

    def has(self, home: str, name: str, event: str) -> bool:
        """Whether the disk has an event for a subscription of a home."""
        if home == self.me:
            return event in self.log.get(name, ())
        held = self.retained.get(home, {}).get(event)
        return held is not None and name in held[1].names


class Durables:
    """The durable subscriptions of all hosts of a simulation.

    Args:
        settings: of mirrors.
        checker: judges what consumers take.
    """

    def __init__(self, settings: MirrorSettings, checker: DurableChecker) -> None:
        self.checker = checker
        checker.on_disks, checker.is_known = self._on_disks, self._is_known
        self._fault_ms = -FAULT_FORGOTTEN_MS
        self._settings = settings
        self._simulation: Simulation = None  # type: ignore[assignment]
        self._disks: dict[str, HeldDisk] = {}
        self._epochs: dict[str, int] = {}
        self.losses_named = 0
        """How often a node heard that its disk had lost something."""
        self._homes: dict[str, str] = {}
        """Where each durable subscription lives."""
        self._ever: set[str] = set()
        self._feeding: dict[str, int] = {}
        """Per subscription the life of its home in which its consumer is about to take."""
        self._given: dict[str, set[str]] = {}
        """Per subscription, what its consumer may have got before its home started again."""
        self._known: dict[str, set[str]] = {}
        """Per host the durable subscriptions that it has, on disk or about to be."""
        self._served_ms: dict[str, int] = {}
        """Since when subscriptions are served, in this life of their home."""
        self._recreated: set[tuple[str, str]] = set()
        """Homes, and their subscriptions of former lives whose disk was lost: whatever
        comes for them may have been taken before."""
        self._did: dict[type, Callable[[Host, Any], None]] = {
            SayReady: self._say_ready,
            NoteGap: self._note_gap,
            NameLoss: self._name_loss,
            ReadMark: lambda host, task: self._mark_later(host),
            RecreateDurables: self._recreate,
            ReadDropped: lambda host, task: None,  # Simulated disks have room for all.
            ForgetDropped: lambda host, task: None,
            LookAfter: self._look_after,
            LetGo: lambda host, task: self._write(host, task),
            ReleaseRetained: lambda host, task: self._write(host, task),
            RetainEvents: self._retain,
            ReadHeld: self._read,
            CheckHeld: self._check,
        }

    def attach(self, simulation: Simulation) -> None:
        """Be part of a simulation."""
        self._simulation = simulation
        simulation.durables = self

    def judges(self, violation: Violation) -> bool:
        """Whether what a checker of deliveries missed is another checker's affair.

        What others hold for a durable subscription reaches its consumer past the overlay.
        """
        missed = (Rule.MISSED, Rule.PROMISE, Rule.REPLAY)
        return violation.rule in missed and violation.subscription in self._ever

    def observe(self, record: TraceRecord) -> None:
        """Take in what a driver tells: when the last fault was."""
        if isinstance(record, Fault):
            self._fault_ms = record.now_ms

    def may_fail(self, node: str, reason: str, is_parted: bool) -> bool:
        """Whether there are too few nodes for as many copies as are promised.

        And whoever is told to leave while it cannot reach those whom it wants to join says so.
        """
        if reason == HAS_LEFT:
            return is_parted
        host = self._simulation.hosts[node]
        can_talk = self._simulation.network.can_talk
        there = [each for each in self._simulation.living() if can_talk(host, each)]
        return "on the disks of" in reason and len(there) < self._settings.copies

    # --- hosts ---------------------------------------------------------------------------------

    def begin(self, host: Host, entries: Sequence[Any] = (), *, is_lost: bool = False) -> None:
        """A node was made, with these entries on its disk."""
        if is_lost or host.name not in self._epochs:
            self._epochs[host.name] = self._epochs.get(host.name, 0) + 1
        disk = self._disks[host.name] = HeldDisk(host.name)
        for entry in entries:
            disk.apply(entry)
        self._known[host.name] = set(disk.durables)
        for name, home in self._homes.items():
            if disk.knows(home, name):
                self.checker.adopted(name)
        life = Life(host.incarnation, disk.commits)
        lives = (*disk.lives, life)
        mirrored = disk.mirrored.values()
        host_mirrors(host.node, self._epoch(host), self._settings, mirrored, lives)
        self._write(host, life)

    def _epoch(self, host: Host) -> str:
        return f"{host.name}/{self._epochs[host.name]}"

    def _mark(self, host: Host) -> StoreMarked:
        return StoreMarked(self._epoch(host), self._disks[host.name].commits)

    def _mark_later(self, host: Host) -> None:
        self._simulation.later(host, self._answer, (host, host.incarnation, self._mark(host)))

    def records(self, host: Host, entries: Sequence[Any]) -> tuple[Record, ...]:
        """Of the entries on a disk, those that are the overlay's.

        A durable subscription is one row of a store: the overlay and mirrors know it, or neither.
        """
        own = [each for each in entries if isinstance(each, Record)]
        durables = self._disks[host.name].durables.items()
        return (
            *(each for each in own if not isinstance(each, DurableSubscriptionStored)),
            *(DurableSubscriptionStored(name, wanted) for name, wanted in durables),
        )

    def restored(self, host: Host) -> None:
        """The overlay of a node knows what its disk held."""
        disk = self._disks[host.name]
        for name in [name for name, home in self._homes.items() if home == host.name]:
            self._served_ms.pop(name, None)
        for name, wanted in disk.durables.items():
            self._given[name] = set(disk.log[name])
            self._tell(host, DurableKept(name, wanted, restored=True))
            self._feed(host, name)
        self._simulation.tell(host, Start(), MIRROR_SLOT)

    def _on_disks(self, name: str, event: str) -> int | None:
        """How many disks have an event; None after faults, when nobody can tell."""
        home, simulation = self._homes[name], self._simulation
        is_calm = all(host.is_on and not host.is_leaving for host in simulation.hosts.values())
        if simulation.now_ms - self._fault_ms < FAULT_FORGOTTEN_MS or not is_calm:
            return None
        return sum(disk.has(home, name, event) for disk in self._disks.values())

    def _is_known(self, name: str, node: str) -> bool:
        """Whether a node is linked, over others perhaps, to one that knows of a subscription."""
        home, hosts = self._homes[name], self._simulation.hosts
        can_talk = self._simulation.network.can_talk
        reached, ahead = {node}, [node]
        while ahead:
            host = hosts[ahead.pop()]
            if self._disks[host.name].knows(home, name):
                return True
            linked = [hosts[other] for other in host.links if other not in reached]
            near = [each.name for each in linked if each.is_on and can_talk(host, each)]
            reached.update(near)
            ahead += near
        return False

    def stopped(self, host: Host) -> None:
        """A node is off: of which subscriptions knows nobody any more?"""
        disks, hosts = self._disks, self._simulation.hosts.values()
        living = [disks[each.name] for each in hosts if each.is_on]
        for name, home in self._homes.items():
            is_last = not any(disk.knows(home, name) for disk in living)
            if is_last and disks[host.name].knows(home, name):
                self.checker.orphaned(name)

    def lost(self, host: Host, before: Sequence[Any]) -> None:
        """A disk lost entries."""
        was = HeldDisk(host.name)
        for entry in before:
            was.apply(entry)
        # What it knew of deliveries may be lost as well.
        self._recreated.update((host.name, name) for name in was.durables)
        now = self._disks[host.name]
        for home, name, event in was.held():
            if not now.has(home, name, event):
                self.checker.lost(name, event, host.name)
        for name, home in self._homes.items():
            if not any(disk.knows(home, name) for disk in self._disks.values()):
                self.checker.ended(name)

    # --- subscriptions -------------------------------------------------------------------------

    def make(self, host: Host, name: str, wanted: Filter) -> None:
        """A durable subscription is wanted on a host."""
        self._homes[name] = host.name
        self._ever.add(name)
        self.checker.made(name, wanted)
        host.open_subscriptions[name] = None
        self._make(host, name, wanted)

    def _make(self, host: Host, name: str, wanted: Filter) -> None:
        self._known[host.name].add(name)

        def stored() -> None:
            self._tell(host, self._mark(host))
            self._tell(host, DurableKept(name, wanted))
            if host.is_on:
                self._simulation.cause(host.name, Subscribe(name, wanted, durable=True))

        self._write(host, DurableMade(name, wanted), stored)

    def __contains__(self, name: str) -> bool:
        return name in self._homes

    def end(self, host: Host, name: str) -> None:
        """It is wanted no more."""
        del self._homes[name]
        self._known[host.name].discard(name)
        self.checker.ended(name)
        host.open_subscriptions.pop(name, None)
        self._write(host, DurableGone(name))
        self._tell(host, DurableEnded(name))
        if host.is_on:
            self._simulation.cause(host.name, Unsubscribe(name))

    def ready(self, host: Host, name: str) -> None:
        """The overlay serves a subscription."""
        if name in self._homes:
            # Not at once: the effects of this step come first.
            fact = DurableServed(name)
            self._simulation.later(host, self._answer, (host, host.incarnation, fact))

    # --- disks ---------------------------------------------------------------------------------

    def _tell(self, host: Host, fact: MirrorFact) -> None:
        self._simulation.tell(host, MirrorNews(fact), MIRROR_SLOT)

    def _write(self, host: Host, entry: Any, then: Callable[[], None] | None = None) -> None:
        self._simulation.write(host, entry, then)

    def synced(self, host: Host, entry: Any) -> None:
        """An entry is on disk."""
        for name in self._disks[host.name].apply(entry):
            self._feed(host, name)
        if isinstance(entry, DurableMade):
            self.checker.adopted(entry.name)
        elif isinstance(entry, LookAfter):
            for each in entry.subscriptions:
                self.checker.adopted(each.name)

    def _feed(self, host: Host, name: str) -> None:
        """The consumer takes what there is, one event after the other."""
        if self._feeding.get(name) != host.incarnation:
            self._feeding[name] = host.incarnation
            self._simulation.later(host, self._take, (host, host.incarnation, name))

    def _take(self, host: Host, incarnation: int, name: str) -> None:
        disk = self._disks[host.name]
        self._feeding.pop(name, None)
        log, taken = disk.log.get(name), disk.taken.get(name, set())
        event = None if log is None else next((e for e in log if e not in taken), None)
        if log is None or event is None:
            return
        self._feeding[name] = incarnation
        self._simulation.activity += 1
        again = event in self._given.get(name, ())
        again = again or (host.name, name) in self._recreated
        event_id = log[event].publication.id
        self.checker.took(self._simulation.now_ms, name, event_id, again=again)

        def stored() -> None:
            self._feeding.pop(name, None)
            self._tell(host, DurableTaken(name, (event,)))
            self._feed(host, name)

        self._write(host, CursorMoved(name, event), stored)

    def owed(self) -> list[str]:
        """What consumers whose homes live have not taken."""
        found = []
        for name, home in self._homes.items():
            host = self._simulation.hosts[home]
            if host.is_on:
                disk = self._disks[home]
                left = [e for e in disk.log.get(name, ()) if e not in disk.taken[name]]
                found += [f"{home}: {name} takes {event}" for event in left[:1]]
        return found

    def finish(self) -> None:
        """The run is over: a consumer whose home is not there takes nothing, nor gives who is."""
        for name, home in self._homes.items():
            if not self._simulation.hosts[home].is_on:
                self.checker.ended(name)
        for node, disk in self._disks.items():
            if not self._simulation.hosts[node].is_on:
                for _, name, event in disk.held():
                    self.checker.lost(name, event, node)

    # --- what mirror peers ask -----------------------------------------------------------------

    def work(self, host: Host, task: MirrorTask) -> None:
        """Do what a mirror peer asks for."""
        self._did[type(task)](host, task)

    def _say_ready(self, host: Host, task: SayReady) -> None:
        self._served_ms[task.name] = self._simulation.now_ms
        self.checker.ready(self._simulation.now_ms, task.name)

    def _note_gap(self, host: Host, task: NoteGap) -> None:
        for name in task.names:
            self.checker.gap(name, task.since_ms, self._served_ms.get(name))

    def _name_loss(self, host: Host, task: NameLoss) -> None:
        self.losses_named += 1
        self._epochs[host.name] += 1
        self._mark_later(host)

    def _recreate(self, host: Host, task: RecreateDurables) -> None:
        for each in task.subscriptions:
            if self._homes.get(each.name) == host.name:
                self._recreated.add((host.name, each.name))
                self._make(host, each.name, each.filter)

    def _look_after(self, host: Host, task: LookAfter) -> None:
        names = tuple(each.name for each in task.subscriptions)
        self._write(host, task, lambda: self._tell(host, LookedAfter(task.home, names)))

    def _retain(self, host: Host, task: RetainEvents) -> None:
        fact = EventsRetained(task.home, task.events)
        self._write(host, task, lambda: self._tell(host, fact))

    def _read(self, host: Host, task: ReadHeld) -> None:
        disk = self._disks[host.name]
        held: list[tuple[int, HeldCopy]]
        if task.name:
            taken = disk.taken.get(task.name, set())
            log = disk.log.get(task.name, {})
            held = [(n, log[e]) for n, e in enumerate(log, 1) if e not in taken]
        else:
            held = sorted(disk.retained.get(task.home, {}).values(), key=lambda each: each[0])
        chunk = [each for each in held if each[0] > task.after][:CHUNK_EVENTS]
        number = chunk[-1][0] if chunk else task.after
        events = tuple([copy for _, copy in chunk])
        read = HeldRead(task.partner, task.home, task.name, task.after, number, events)
        self._simulation.later(host, self._answer, (host, host.incarnation, read))

    def _check(self, host: Host, task: CheckHeld) -> None:
        copies = tuple(HeldCopy(c.publication, c.names, c.hops) for c in task.copies)

        def look() -> None:
            fact = self._looked(host, task)
            self._simulation.later(host, self._answer, (host, host.incarnation, fact))

        if copies:
            self._write(host, RetainEvents(task.holds.home, copies), look)
        else:
            look()

    def _looked(self, host: Host, task: CheckHeld) -> HoldsChecked:
        disk, holds = self._disks[host.name], task.holds
        missing: dict[str, None] = {}
        taken: dict[str, list[str]] = {}
        for each in holds.held:
            for name in each.names:
                if holds.home == host.name and name not in self._known[host.name]:
                    continue  # One that is about to be on disk misses all.
                if not disk.has(holds.home, name, each.event_id):
                    missing[each.event_id] = None
                elif each.event_id in disk.taken.get(name, ()):
                    taken.setdefault(name, []).append(each.event_id)
        done = tuple((name, tuple(ids)) for name, ids in taken.items())
        return HoldsChecked(
            task.partner, holds.home, holds.name, holds.number, tuple(missing), done
        )

    def _answer(self, host: Host, incarnation: int, fact: MirrorFact) -> None:
        self._tell(host, fact)
