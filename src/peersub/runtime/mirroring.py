"""The driver's part of mirrors: their disk, and their subscriptions in the overlay.

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
from peersub.overlays.core.causes import MirrorNews, Start, Subscribe, Unsubscribe
from peersub.overlays.core.mirror_facts import (
    DurableEnded,
    DurableKept,
    DurableServed,
    DurableTaken,
    HeldCopy,
    HeldRead,
    HoldsChecked,
    MirrorFact,
    MirrorServed,
)
from peersub.overlays.core.mirror_messages import MirrorCopy, MirrorHolds, NamedFilter
from peersub.overlays.core.mirror_walks import WalkKey
from peersub.overlays.core.mirrors import (
    MIRROR_SLOT,
    Mirrored,
    MirrorSettings,
    host_mirrors,
)
from peersub.overlays.core.records import SubscriptionStored
from peersub.runtime.driver import Driver
from peersub.runtime.durable import DurableSubscriptions
from peersub.runtime.store import MemoryStore, Store, StoreError
from peersub.runtime.store.changes import (
    AppendToLog,
    Change,
    MirrorRemoved,
    MirrorStored,
    ReleaseEvents,
    RetainEvent,
)

__all__ = ["CHUNK_EVENTS", "Mirroring"]

CHUNK_EVENTS: Final = 128
"""Events that are compared at once."""
CHUNK_BYTES: Final = 1_024 * 1_024
"""Of these events, roughly; one that is larger goes alone."""
RELEASE_S: Final = 0.02
"""How long what a consumer took is collected before the mirror is told."""


class Mirroring:
    """Looks after subscriptions of others, and lets others look after those of this node.

    Made before the node has links. `records` are for `Restored`, `begin` comes after it.
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
        self._names = durables.mirrored
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._reading: set[asyncio.Task[None]] = set()
        self._copies: dict[str, list[Change]] = {}
        """Events that were missing here, until whoever sent them asks whether they arrived."""
        self._released: dict[str, list[str]] = {}
        """Events that consumers took a moment ago."""
        mirrored = store.mirrored_subscriptions()
        known = [
            Mirrored(each.home, each.options.decode(), each.name, each.filter) for each in mirrored
        ]
        self.records = tuple(
            SubscriptionStored(self._names.add(each.home, each.name), each.filter) for each in known
        )
        """The mirrors' own subscriptions, as the overlay is to restore them."""
        self._filters = {(each.home, each.name): each.filter for each in known}
        self.peer = host_mirrors(driver.node, store.log_epoch, self, settings, known)
        durables.on_kept = lambda name, wanted: self._tell(DurableKept(name, wanted))
        durables.on_removed = lambda name: self._tell(DurableEnded(name))
        durables.on_released = self._on_released

    def begin(self) -> None:
        """The node has been told what its disk held."""
        for name, wanted in self._durables.filters().items():
            self._tell(DurableKept(name, wanted, restored=True))
        # Nothing else would start the clock of a mirror that has come back.
        self._driver.tell(Start(), MIRROR_SLOT)

    def end(self) -> None:
        """The node ends."""
        for task in list(self._reading):
            task.cancel()

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
        """The overlay serves a durable subscription, or one of a mirror."""
        place = self._names.get(subscription)
        if place is not None:
            self._tell(MirrorServed(*place))
        else:
            self._tell(DurableServed(subscription))

    def waiting_on(self, name: str) -> tuple[str, ...]:
        """The node whose answer a subscription needs to be ready, if it waits for its mirror."""
        node = self.peer.home.waits_for(name)
        return () if node is None else (node,)

    def status(self) -> dict[str, Any]:
        """Plain values for people."""
        return dict(self.peer.describe())

    def _tell(self, fact: MirrorFact) -> None:
        self._loop.call_soon(self._driver.tell, MirrorNews(fact), MIRROR_SLOT)

    # --- for the durable subscriptions of this node --------------------------------------------

    def ready(self, name: str) -> None:
        """It is served, and mirrored where that is possible."""
        self._loop.call_soon(self._durables.ready, name)

    def recreate(self, subscriptions: Sequence[NamedFilter]) -> None:
        """A former life of this node had these."""
        for each in subscriptions:
            self._durables.recreate(each.name, each.filter, partial(self._subscribe_own, each.name))

    def _subscribe_own(self, name: str, wanted: Filter) -> None:
        self._driver.tell(Subscribe(name, wanted))

    # --- for those of others -------------------------------------------------------------------

    def look_after(self, home: str, epoch: str, subscriptions: Sequence[NamedFilter]) -> None:
        """Keep these on disk and subscribe."""
        now_ms = self._now_ms()
        fresh = [
            each
            for each in subscriptions
            if (known := self._filters.get((home, each.name))) is None
            or known.digest != each.filter.digest
        ]

        def stored() -> None:
            for each in fresh:
                self._subscribe(home, each.name, each.filter)

        self._durables.submit(
            [
                MirrorStored(home, each.name, each.filter, epoch.encode(), now_ms)
                for each in subscriptions
            ],
            stored,
        )

    def _subscribe(self, home: str, name: str, wanted: Filter) -> None:
        if not self.peer.duties.looks_after(home):
            return  # Given up while the disk was busy.
        is_known = (home, name) in self._filters
        self._filters[home, name] = wanted
        here = self._names.add(home, name)
        if is_known:
            self._driver.tell(Unsubscribe(here))
        self._driver.tell(Subscribe(here, wanted))

    def let_go(self, home: str, names: Sequence[str]) -> None:
        """Forget these, and what is retained for them."""
        for name in names:
            self._filters.pop((home, name), None)
            here = self._names.remove(home, name)
            if here is not None:
                self._loop.call_soon(self._driver.tell, Unsubscribe(here))
        self._durables.submit([MirrorRemoved(home, name) for name in names])

    def release(self, home: str, name: str, event_ids: Sequence[str]) -> None:
        """The consumer has these events."""
        self._durables.submit([ReleaseEvents(home, tuple(event_ids), (name,))])

    # --- for both ------------------------------------------------------------------------------

    def read(self, walk: WalkKey, after: int) -> None:
        """Read the next events that are held."""
        self._ask(partial(self._read, walk, after))

    def _read(self, walk: WalkKey, after: int) -> MirrorFact:
        partner, home, name = walk
        held: list[tuple[int, HeldCopy]] = []
        if name:
            begin = max(after, self._store.cursor(name) or 0)
            for logged in self._store.read_log(name, begin, CHUNK_EVENTS):
                copy = HeldCopy(logged.publication, (name,), logged.hops)
                held.append((logged.position, copy))
        else:
            for retained in self._store.retained_events(home, after, CHUNK_EVENTS):
                copy = HeldCopy(retained.publication, retained.names, retained.hops)
                held.append((retained.number, copy))
        chunk = held[: _length_of_chunk([copy for _, copy in held])]
        number = chunk[-1][0] if chunk else after
        return HeldRead(partner, home, name, after, number, tuple([copy for _, copy in chunk]))

    def take(self, partner: str, copy: MirrorCopy) -> None:
        """Store an event that was missing here, together with those that come with it."""
        now_ms = self._now_ms()
        copies = self._copies.setdefault(partner, [])
        if copy.home == self._driver.node.me.node:
            copies.append(AppendToLog(copy.publication, copy.names, now_ms, copy.hops))
        else:
            change = RetainEvent(copy.home, copy.publication, copy.names, now_ms, copy.hops)
            copies.append(change)

    def check(self, partner: str, holds: MirrorHolds) -> None:
        """See what is missing here once what came is on disk."""
        copies = self._copies.pop(partner, [])
        look: Callable[[], MirrorFact] = partial(self._missed_there, partner, holds)
        if holds.home == self._driver.node.me.node:
            # One that is not on disk yet, because it was just made anew, misses all.
            durable = frozenset(
                name for each in holds.held for name in each.names if name in self._durables
            )
            look = partial(self._missed_here, partner, holds, durable)

        def stored() -> None:
            for change in copies:
                if isinstance(change, AppendToLog):
                    for name in change.subscriptions:
                        self._durables.wake(name)
            self._ask(look)

        if copies:
            self._durables.submit(copies, stored)
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
        """What is not retained for a subscription of another node."""
        event_ids = [each.event_id for each in holds.held]
        found = self._store.retained_among(holds.home, holds.name, event_ids)
        missing = tuple([event_id for event_id in event_ids if event_id not in found])
        return HoldsChecked(partner, holds.home, holds.name, holds.number, missing)

    def _ask(self, question: Callable[[], MirrorFact]) -> None:
        """Ask the disk on another thread, and tell the peer what it says."""

        async def ask() -> None:
            # A disk that does not answer is asked again later: the other side waits.
            with suppress(StoreError):
                self._tell(await asyncio.to_thread(question))

        task = self._loop.create_task(ask())
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)


def _length_of_chunk(held: Sequence[HeldCopy]) -> int:
    """How many of the events, from the first on, go together."""
    size = 0
    for place, copy in enumerate(held):
        event = copy.publication
        size += len(event.packed or b"") + len(event.body or b"") + sum(map(len, copy.names))
        if size > CHUNK_BYTES:
            return max(place, 1)
    return len(held)
