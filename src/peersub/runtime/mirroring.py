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
        self._copies: list[Change] = []
        """Events that were missing here, until the other side asks whether they arrived."""
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
        durables.on_released = lambda name, ids: self._tell(DurableTaken(name, tuple(ids)))

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
            subscribe = partial(self._driver.tell, Subscribe(each.name, each.filter))
            self._durables.recreate(each.name, each.filter, subscribe)

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
        self._ask(self._read, walk, after)

    def _read(self, walk: WalkKey, after: int) -> MirrorFact:
        partner, home, name = walk
        copies: list[HeldCopy] = []
        number = after
        if name:
            cursor = self._store.cursor(name)
            if cursor is not None:
                for logged in self._store.read_log(name, max(after, cursor), CHUNK_EVENTS):
                    number = logged.position
                    copies.append(HeldCopy(logged.publication, (name,), logged.hops))
        else:
            for held in self._store.retained_events(home, after, CHUNK_EVENTS):
                number = held.number
                copies.append(HeldCopy(held.publication, held.names, held.hops))
        return HeldRead(partner, home, name, after, number, tuple(copies))

    def take(self, copy: MirrorCopy) -> None:
        """Store an event that was missing here, together with those that come with it."""
        now_ms = self._now_ms()
        if copy.home == self._driver.node.me.node:
            self._copies.append(AppendToLog(copy.publication, copy.names, now_ms, copy.hops))
        else:
            self._copies.append(
                RetainEvent(copy.home, copy.publication, copy.names, now_ms, copy.hops)
            )

    def check(self, partner: str, holds: MirrorHolds) -> None:
        """See what is missing here once what came is on disk."""
        copies, self._copies = self._copies, []
        look = self._missed_here if holds.home == self._driver.node.me.node else self._missed_there

        def stored() -> None:
            for change in copies:
                if isinstance(change, AppendToLog):
                    for name in change.subscriptions:
                        self._durables.wake(name)
            self._ask(look, partner, holds)

        if copies:
            self._durables.submit(copies, stored)
        else:
            self._ask(look, partner, holds)

    def _missed_here(self, partner: str, holds: MirrorHolds) -> MirrorFact:
        """What the logs of this node's durable subscriptions lack."""
        ids_of: dict[str, list[str]] = {}
        for each in holds.held:
            for name in each.names:
                ids_of.setdefault(name, []).append(each.event_id)
        missing: dict[str, None] = {}
        taken: list[tuple[str, tuple[str, ...]]] = []
        for name, event_ids in ids_of.items():
            cursor = self._store.cursor(name)
            if cursor is None:
                continue
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

    def _ask(self, question: Callable[..., MirrorFact], *about: object) -> None:
        """Ask the disk on another thread, and tell the peer what it says."""

        async def ask() -> None:
            # A disk that does not answer is asked again later: the other side waits.
            with suppress(StoreError):
                self._tell(await asyncio.to_thread(question, *about))

        task = self._loop.create_task(ask())
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)
