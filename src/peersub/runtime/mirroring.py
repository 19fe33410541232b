"""The driver's part of mirrors: their disk, and the consumers of durable subscriptions.

What to do is decided in `overlays.core.mirrors`; here it is done. Answers come back as
`MirrorNews`, in a later turn of the loop: the node is never called from within itself. What only
reads the disk is done on another thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from peersub.filters.filter import Filter
from peersub.overlays.core.causes import MirrorNews, Start, Subscribe
from peersub.overlays.core.mirror_facts import (
    DroppedRead,
    DurableEnded,
    DurableKept,
    DurableServed,
    DurableTaken,
    EventsRetained,
    Held,
    HeldBatch,
    HeldCopy,
    HeldRead,
    HoldsChecked,
    LookedAfter,
    MirrorFact,
    StoreMarked,
)
from peersub.overlays.core.mirror_messages import MirrorHolds
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
from peersub.overlays.core.mirrors import (
    MIRROR_SLOT,
    Mirrored,
    MirrorSettings,
    host_mirrors,
)
from peersub.runtime.driver import Driver
from peersub.runtime.durable import DurableSubscriptions
from peersub.runtime.store import MemoryStore, Store, StoreError
from peersub.runtime.store.changes import (
    AppendToLog,
    Change,
    CommitsLost,
    DroppedTold,
    GapNoted,
    MirrorRemoved,
    MirrorStored,
    ReleaseEvents,
    RetainBatch,
    RetainEvent,
)

__all__ = ["CHUNK_EVENTS", "Mirroring"]

CHUNK_EVENTS: Final = 128
"""Events that are compared at once."""
CHUNK_BYTES: Final = 1_024 * 1_024
"""Of these events, roughly; one that is larger goes alone."""
RELEASE_S: Final = 0.02
"""How long what a consumer took is collected before the mirror is told."""
_WITNESS: Final = b"\0witness"
"""Follows the epoch of a home on disk where its subscriptions are only watched."""
_SUSPENDED: Final = b"\0suspended "
"""Follows that, with the time, where nobody waits for them any more."""


class Mirroring:
    """Looks after subscriptions of others, and lets others look after those of this node.

    Made before the node has links; `begin` comes after `Restored`, and before it has any.
    """

    def __init__(
        self,
        driver: Driver,
        store: Store | MemoryStore,
        durables: DurableSubscriptions,
        now_ms: Callable[[], int],
        settings: MirrorSettings,
    ) -> None:
        self._driver = driver
        self._store = store
        self._durables = durables
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._reading: set[asyncio.Task[None]] = set()
        self._released: dict[str, list[str]] = {}
        """Events that consumers took a moment ago."""
        known = [
            Mirrored(each.home, epoch, each.name, each.filter, stores, suspended_ms)
            for each in store.mirrored_subscriptions()
            for epoch, stores, suspended_ms in [_read_options(each.options)]
        ]
        self.peer = host_mirrors(
            driver.node,
            store.log_epoch,
            settings,
            known,
            store.lives,
            in_memory=isinstance(store, MemoryStore),
        )
        self._work: dict[type, Callable[[Any], None]] = {
            SayReady: self._say_ready,
            RecreateDurables: self._recreate,
            NoteGap: self._note_gap,
            NameLoss: self._name_loss,
            ReadMark: lambda _: self._ask(self._mark),
            LookAfter: self._look_after,
            LetGo: self._let_go,
            ReadDropped: lambda task: self._ask(partial(self._dropped, task)),
            ForgetDropped: lambda task: self._durables.submit([DroppedTold(task.home)]),
            RetainEvents: self._retain,
            ReleaseRetained: self._release_retained,
            ReadHeld: self._read_held,
            CheckHeld: self._check_held,
        }
        durables.on_kept = self._on_kept
        durables.on_removed = lambda name: self._tell_now(DurableEnded(name))
        durables.on_released = self._on_released

    def begin(self) -> None:
        """The node has been told what its disk held."""
        for name, wanted in self._durables.filters().items():
            self._tell_now(DurableKept(name, wanted, restored=True))
        self._driver.tell(Start(), MIRROR_SLOT)

    def end(self) -> None:
        """The node ends."""
        for task in list(self._reading):
            task.cancel()

    def _on_kept(self, name: str, wanted: Filter) -> None:
        """A durable subscription is on disk: whoever looks after it knows how far that is."""
        with suppress(StoreError):
            self._tell_now(self._mark())
        self._tell_now(DurableKept(name, wanted))

    def _mark(self) -> StoreMarked:
        mark = self._store.mark
        return StoreMarked(mark.epoch, mark.commits)

    def _on_released(self, name: str, event_ids: Sequence[str]) -> None:
        """A consumer has taken events; a mirror hears of many at once."""
        if not self._released:
            self._loop.call_later(RELEASE_S, self._release)
        self._released.setdefault(name, []).extend(event_ids)

    def _release(self) -> None:
        released, self._released = self._released, {}
        for name, event_ids in released.items():
            self._tell(DurableTaken(name, tuple(event_ids)))

    def on_ready(self, subscription: str) -> None:
        """The overlay serves a durable subscription."""
        self._tell(DurableServed(subscription))

    def waiting_on(self, name: str) -> tuple[str, ...]:
        """The node whose answer a subscription needs to be ready, if it waits for its mirror."""
        node = self.peer.home.waits_for(name)
        return () if node is None else (node,)

    def status(self) -> dict[str, Any]:
        """Plain values for people."""
        return dict(self.peer.describe())

    def _tell(self, fact: MirrorFact) -> None:
        self._loop.call_soon(self._tell_now, fact)

    def _tell_now(self, fact: MirrorFact) -> None:
        self._driver.tell(MirrorNews(fact), MIRROR_SLOT)

    def work(self, task: MirrorTask) -> None:
        """Do what the mirror peer asks for."""
        self._work[type(task)](task)

    # --- for the durable subscriptions of this node --------------------------------------------

    def _say_ready(self, task: SayReady) -> None:
        self._loop.call_soon(self._durables.ready, task.name)

    def _recreate(self, task: RecreateDurables) -> None:
        for each in task.subscriptions:
            self._durables.recreate(each.name, each.filter, partial(self._subscribe_own, each.name))

    def _subscribe_own(self, name: str, wanted: Filter) -> None:
        self._driver.tell(Subscribe(name, wanted, durable=True))

    def _note_gap(self, task: NoteGap) -> None:
        for name in task.names:
            self._durables.submit([GapNoted(name)], partial(self._durables.tell_losses, name))

    def _name_loss(self, task: NameLoss) -> None:
        self._durables.note_loss(self._durables.filters())

        def noted() -> None:
            for name in self._durables.filters():
                self._durables.tell_losses(name)
            self._ask(self._mark)

        self._durables.submit([CommitsLost(None)], noted)

    # --- for those of others -------------------------------------------------------------------

    def _look_after(self, task: LookAfter) -> None:
        options = _written_options(task)
        now_ms = self._now_ms()
        names = tuple(each.name for each in task.subscriptions)
        self._durables.submit(
            [
                MirrorStored(task.home, each.name, each.filter, options, now_ms)
                for each in task.subscriptions
            ],
            lambda: self._tell_now(LookedAfter(task.home, names)),
        )

    def _let_go(self, task: LetGo) -> None:
        self._durables.submit([MirrorRemoved(task.home, name) for name in task.names])

    def _dropped(self, task: ReadDropped) -> MirrorFact:
        known = self._store.mirrored_subscriptions(task.home)
        names = tuple(each.name for each in known if each.dropped)
        return DroppedRead(task.home, names, task.since_ms)

    def _release_retained(self, task: ReleaseRetained) -> None:
        self._durables.submit([ReleaseEvents(task.home, task.event_ids, (task.name,))])

    # --- for both ------------------------------------------------------------------------------

    def _retain(self, task: RetainEvents) -> None:
        def stored() -> None:
            self._wake(task.home, task.events)
            self._tell_now(EventsRetained(task.home, task.events))

        self._durables.submit(self._changes(task.home, task.events), stored)

    def _changes(self, home: str, events: Sequence[Held]) -> list[Change]:
        """What the disk is to keep of events for subscriptions of a home."""
        now_ms = self._now_ms()
        if home != self._driver.node.me.node:
            return [
                RetainBatch(home, held, now_ms)
                if isinstance(held, HeldBatch)
                else RetainEvent(home, held.publication, held.names, now_ms, held.hops)
                for held in events
            ]
        return [
            AppendToLog(each.publication, each.names, now_ms, each.hops)
            for held in events
            for each in held.one_by_one()
        ]

    def _wake(self, home: str, events: Sequence[Held]) -> None:
        if home == self._driver.node.me.node:
            for name in {name: None for each in events for name in each.names}:
                self._durables.wake(name)

    def _read_held(self, task: ReadHeld) -> None:
        self._ask(partial(self._read, task))

    def _read(self, task: ReadHeld) -> MirrorFact:
        held: list[tuple[int, HeldCopy]] = []
        if task.name:
            begin = max(task.after, self._store.cursor(task.name) or 0)
            for logged in self._store.read_log(task.name, begin, CHUNK_EVENTS):
                copy = HeldCopy(logged.publication, (task.name,), logged.hops)
                held.append((logged.position, copy))
        else:
            for retained in self._store.retained_events(task.home, task.after, CHUNK_EVENTS):
                copy = HeldCopy(retained.publication, retained.names, retained.hops)
                held.append((retained.number, copy))
        chunk = held[: _length_of_chunk([copy for _, copy in held])]
        number = chunk[-1][0] if chunk else task.after
        events = tuple([copy for _, copy in chunk])
        return HeldRead(task.partner, task.home, task.name, task.after, number, events)

    def _check_held(self, task: CheckHeld) -> None:
        """See what is missing here once what came is on disk."""
        partner, holds = task.partner, task.holds
        look: Callable[[], MirrorFact] = partial(self._missed_there, partner, holds)
        if holds.home == self._driver.node.me.node:
            # One that is not on disk yet, because it was just made anew, misses all.
            durable = frozenset(
                name for each in holds.held for name in each.names if name in self._durables
            )
            look = partial(self._missed_here, partner, holds, durable)
        copies = [HeldCopy(each.publication, each.names, each.hops) for each in task.copies]

        def stored() -> None:
            self._wake(holds.home, copies)
            self._ask(look)

        if copies:
            changes = self._changes(holds.home, copies)
            if holds.home == self._driver.node.me.node:
                self._durables.note_returning({name for each in copies for name in each.names})
            self._durables.submit(changes, stored)
        else:
            self._ask(look)

    def _missed_here(self, partner: str, holds: MirrorHolds, durable: frozenset[str]) -> MirrorFact:
        """What the logs of this node's durable subscriptions lack."""
        ids_of: dict[str, list[str]] = {}
        for each in holds.held:
            for name in filter(durable.__contains__, each.names):
                ids_of.setdefault(name, []).append(each.event_id)
        missing: dict[str, None] = {}
        taken: list[tuple[str, tuple[str, ...]]] = []
        for name, event_ids in ids_of.items():
            cursor = self._store.cursor(name) or 0
            places = self._store.log_positions(name, event_ids)
            missing.update((event_id, None) for event_id in event_ids if event_id not in places)
            done = tuple([event_id for event_id in places if places[event_id] <= cursor])
            if done:
                taken.append((name, done))
        return HoldsChecked(
            partner, holds.home, holds.name, holds.number, tuple(missing), tuple(taken)
        )

    def _missed_there(self, partner: str, holds: MirrorHolds) -> MirrorFact:
        """What is not retained for subscriptions of another node."""
        ids_of: dict[str, list[str]] = {}
        for each in holds.held:
            for name in each.names:
                ids_of.setdefault(name, []).append(each.event_id)
        missing: dict[str, None] = {}
        for name, event_ids in ids_of.items():
            found = self._store.retained_among(holds.home, name, event_ids)
            missing.update((event_id, None) for event_id in event_ids if event_id not in found)
        return HoldsChecked(partner, holds.home, holds.name, holds.number, tuple(missing))

    def _ask(self, question: Callable[[], MirrorFact]) -> None:
        """Ask the disk on another thread, and tell the peer what it says."""

        async def ask() -> None:
            # A disk that does not answer is asked again later: the other side waits.
            with suppress(StoreError):
                self._tell(await asyncio.to_thread(question))

        task = self._loop.create_task(ask())
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)


def _written_options(task: LookAfter) -> bytes:
    """What the disk keeps with subscriptions that are looked after."""
    suspended_ms = task.suspended_ms
    suspended = b"" if suspended_ms is None else _SUSPENDED + str(suspended_ms).encode()
    return task.epoch.encode() + (b"" if task.stores else _WITNESS) + suspended


def _read_options(options: bytes) -> tuple[str, bool, int | None]:
    """The epoch of the home, whether events are held, and since when nobody waits."""
    rest, _, suspended = options.partition(_SUSPENDED)
    epoch = rest.removesuffix(_WITNESS).decode()
    return epoch, not rest.endswith(_WITNESS), int(suspended) if suspended else None


def _length_of_chunk(held: Sequence[HeldCopy]) -> int:
    """How many of the events, from the first on, go together."""
    size = 0
    for place, copy in enumerate(held):
        event = copy.publication
        size += len(event.packed or b"") + len(event.body or b"") + sum(map(len, copy.names))
        if size > CHUNK_BYTES:
            return max(place, 1)
    return len(held)
