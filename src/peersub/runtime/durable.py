"""Durable subscriptions of a node: on disk, fed from the log, acknowledged by position.

What a durable subscription matches goes into the log first, and from there to its consumer, in the
order of the log, whether it came a moment or a week ago. The consumer acknowledges positions; the
cursor follows, and the next consumer begins there. At most `UNACKNOWLEDGED_MAX` events are ahead of
the acknowledgements: a slow consumer is not flooded, and what it does not take stays in the log.

Whatever the protocol asks to persist passes here as well: of events, only those that a durable
subscription wants need a disk; a subscription that ends with its consumer has nothing to remember.
A disk that refuses is asked again until it does not (`RETRY_S`): until then nobody is promised
anything.

On disk is the filter that was asked for. The overlay, and mirrors, know what its owner may see of
it by the permissions in force (`DurableRules`): it is narrowed when the node starts, and anew when
permissions change. An event that is in the log, and that the owner may not see by now, is passed
over when it would be handed over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from peersub.filters.filter import Filter
from peersub.overlays.core.effects import Deliver, DeliverBatch
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.core.records import DurableSubscriptionStored, Record
from peersub.runtime.counters import Counters
from peersub.runtime.durable_shares import DurableShares
from peersub.runtime.filter_budget import FilterBudget, FilterTurns
from peersub.runtime.handed_events import HORIZON_MS
from peersub.runtime.limits import DEFAULT_LIMITS
from peersub.runtime.logs import NodeLog
from peersub.runtime.record_keeping import OnPersisted, RecordKeeping
from peersub.runtime.since import parse_since
from peersub.runtime.sinks import (
    DurableOptions,
    DurableRules,
    OpenDurables,
    Sink,
    SubscriptionRefusedError,
)
from peersub.runtime.store import (
    Cut,
    FailureKind,
    LoggedEvent,
    Losses,
    MemoryStore,
    Since,
    Store,
    StoreError,
    StoreFailure,
)
from peersub.runtime.store.changes import (
    AppendToLog,
    Change,
    DurableAbandoned,
    DurableRemoved,
    DurableStored,
    LossesTold,
    MoveCursor,
)
from peersub.runtime.store_questions import RETRY_S, StoreQuestions

if TYPE_CHECKING:
    import numpy as np

__all__ = ["DurableSubscriptions"]

_log = NodeLog(__name__)

UNACKNOWLEDGED_MAX: Final = 4_096
"""Events that a consumer was given and has not acknowledged."""
READ_AT_ONCE: Final = 256
READ_BYTES: Final = 4 * 1_024 * 1_024
"""Of events that are read from the log in one go."""
OnReleased = Callable[[str, Sequence[str]], None]
"""Takes a durable subscription, and the events that its consumer has taken."""
OnKept = Callable[[str, Filter], None]
"""Takes a durable subscription that is on disk, and its filter."""


class _Given(NamedTuple):
    """An event that a consumer was given, or that it was passed over for."""

    position: int
    name: str
    is_hidden: bool
    """Its owner may not see it: it counts as taken as soon as all before it are."""


@dataclass(slots=True)
class _Feed:
    """A consumer that is there, and how far it has been served."""

    sink: Sink
    sent: int | None = None
    """None until it is known where to begin."""
    unacknowledged: deque[_Given] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None
    is_woken: bool = False


@dataclass(slots=True)
class _Durable:
    asked: Filter
    """What the consumer asked for."""
    wanted: Filter
    """What of it the owner may see."""
    abandoned_ms: int
    """Since when it has no consumer, if it has none."""
    is_noted: bool = False
    """Whether that is on disk."""
    is_stored: bool = False
    """Whether it is on disk."""
    is_ready: bool = False
    told: Losses | None = None
    """What its consumers have heard of its losses; None if that is what the disk says."""
    acknowledged: int = 0
    """How far its consumers have come; the disk may not know yet, or be full."""
    feed: _Feed | None = None
    consumer: Sink | None = None
    """The last one, also if it has let go for a while."""
    sent: int = 0
    """The last position that any consumer was given."""
    sent_before: int = 0
    """The last one that a consumer before this one may have been given."""
    unsure_until_ms: int = -1
    """What is logged until then may have been given in a life that the disk has forgotten."""


class DurableSubscriptions:
    """What a node keeps for its durable subscriptions, and for those who consume them.

    Args:
        store: where.
        now_ms: the clock.
        counters: of what the disk refused.
        rules: what the owners of the subscriptions may see.
        budget: what their filters may cost the node.
        durable_max: how many clients may have.

    Attributes:
        on_kept, on_removed: hear which durable subscriptions there are.
        on_released: hears which events a consumer has taken.
    """

    def __init__(
        self,
        store: Store | MemoryStore,
        now_ms: Callable[[], int],
        counters: Counters,
        rules: DurableRules | None = None,
        budget: FilterBudget | None = None,
        durable_max: int = DEFAULT_LIMITS.durable_max,
    ) -> None:
        self.on_kept: OnKept | None = None
        self.on_removed: Callable[[str], None] | None = None
        self.on_released: OnReleased | None = None
        self._store = store
        self._now_ms = now_ms
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._records = RecordKeeping(self.__contains__, self.submit, self._loop)
        self._questions = StoreQuestions(self._loop, counters)
        self._is_ended = False
        store.on_cut = self._on_cut
        self._rules = rules or OpenDurables()
        self._durables: dict[str, _Durable] = {}
        self._shares = DurableShares(self._rules, budget or FilterBudget(), durable_max)
        last = store.last_position()
        for each in store.durable_subscriptions():
            durable = self._add(each.name, each.filter, each.abandoned_ms or None)
            durable.sent = last  # Nobody knows how far its consumer was when the node ended.
            durable.is_stored = True
            durable.is_noted = each.abandoned_ms > 0
        if not store.is_complete:
            self.note_loss(self._durables)

    def _add(self, name: str, asked: Filter, abandoned_ms: int | None = None) -> _Durable:
        wanted = self._rules.narrow_durable(name, asked)
        (self._shares.change if name in self._durables else self._shares.begin)(name, wanted)
        since_ms = self._now_ms() if abandoned_ms is None else abandoned_ms
        former = self._durables.get(name)
        durable = self._durables[name] = _Durable(asked, wanted, since_ms)
        if former is not None:
            durable.sent = former.sent
            durable.unsure_until_ms = former.unsure_until_ms
        return durable

    def narrow_records(self, records: Iterable[Record]) -> tuple[Record, ...]:
        """What the disk held, as the overlay is to know it: filters as owners may use them now."""
        return tuple(
            replace(record, filter=self._durables[record.subscription].wanted)
            if isinstance(record, DurableSubscriptionStored)
            and record.subscription in self._durables
            else record
            for record in records
        )

    def __contains__(self, name: str) -> bool:
        return name in self._durables

    def filters(self) -> dict[str, Filter]:
        """All, by name."""
        return {name: durable.wanted for name, durable in self._durables.items()}

    def is_attached(self, name: str) -> bool:
        """Whether a consumer is there."""
        return name in self._durables and self._durables[name].feed is not None

    # --- consumers -----------------------------------------------------------------------------

    def attach(
        self,
        name: str,
        wanted: Filter,
        sink: Sink,
        options: DurableOptions,
        subscribe: Callable[[Filter], None],
    ) -> None:
        """A consumer takes a durable subscription, which is made if it is not there.

        `subscribe` tells the overlay of a filter that it does not know yet, once it is on disk.

        Raises:
            SubscriptionRefusedError: the place to begin is no such place, or somebody consumes it.
        """
        try:
            since = parse_since(options.since)
        except ValueError as error:
            raise SubscriptionRefusedError(str(error)) from None
        if isinstance(since, int) and since > (last := self._store.last_position()):
            raise SubscriptionRefusedError(f"the log ends at {last}: there is no position {since}")
        durable = self._durables.get(name)
        if durable is not None and durable.feed is not None:
            raise SubscriptionRefusedError(f"the durable subscription {name!r} has a consumer")
        if durable is None:
            self._shares.check(name)
        elif durable.is_noted:
            durable.is_noted = False
            self.submit([DurableAbandoned(name, 0)])
        is_known = durable is not None and durable.asked.digest == wanted.digest
        if durable is None or not is_known:
            taken = 0 if durable is None else durable.acknowledged
            durable = self._add(name, wanted)
            durable.acknowledged = taken
        feed = durable.feed = _Feed(sink)
        if options.was_elsewhere:
            durable.sent = self._store.last_position()  # As far as anybody can know.
        if sink is not durable.consumer:
            durable.consumer, durable.sent_before = sink, durable.sent

        def stored() -> None:
            durable.is_stored = True
            if not is_known and not self._is_ended:
                self._say_kept(name, durable.wanted)
                subscribe(durable.wanted)
            self._begin(name, feed, since)

        if is_known and durable.is_ready:
            sink.ready()
        if is_known and durable.is_stored:
            stored()
        else:
            self.submit([DurableStored(name, wanted, self._now_ms())], stored)

    def recreate(self, name: str, wanted: Filter, subscribe: Callable[[Filter], None]) -> None:
        """A subscription that a former life of the node had, without a consumer for now."""
        if name in self._durables:
            return
        durable = self._add(name, wanted)
        self.note_loss([name])

        def stored() -> None:
            durable.is_stored = True
            if name in self._durables and not self._is_ended:
                self._say_kept(name, durable.wanted)
                subscribe(durable.wanted)

        self.submit([DurableStored(name, wanted, self._now_ms())], stored)

    def _say_kept(self, name: str, wanted: Filter) -> None:
        if self.on_kept is not None:
            self.on_kept(name, wanted)

    def _begin(self, name: str, feed: _Feed, since: Since) -> None:
        """Find out where a consumer begins, and what was lost before."""

        def ask() -> tuple[int | None, Losses | None]:
            return self._store.position_for(name, since), self._store.losses(name)

        def begin(found: tuple[int | None, Losses | None]) -> None:
            durable, (position, losses) = self._durables.get(name), found
            if durable is None or durable.feed is not feed or position is None:
                return
            if since is None:
                position = max(position, durable.acknowledged)
            feed.sent = durable.acknowledged = position
            self._say_losses(name, losses)
            if since is not None:
                self.submit([MoveCursor(name, position, may_go_back=True)])
            self.wake(name)

        self._questions.ask(("begin", name), ask, begin)

    # --- losses --------------------------------------------------------------------------------

    def note_loss(self, names: Iterable[str]) -> None:
        """The disk has forgotten which events these had: publishers may repeat them yet."""
        until_ms = self._now_ms() + HORIZON_MS
        for name in names:
            self._durables[name].unsure_until_ms = until_ms

    def note_returning(self, names: Iterable[str]) -> None:
        """Other nodes give back now what these lack: they may have had it before a loss."""
        now_ms = self._now_ms()
        for durable in filter(None, map(self._durables.get, names)):
            if durable.unsure_until_ms >= 0 or not self._store.is_complete:
                durable.unsure_until_ms = max(durable.unsure_until_ms, now_ms)

    def _on_cut(self, cuts: Sequence[Cut]) -> None:
        """On the writer's thread: the log had no room for some events."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take_cuts, cuts)

    def _take_cuts(self, cuts: Sequence[Cut]) -> None:
        for cut in cuts:
            self._counters.add("events that the log had no room for", len(cut.event_ids))
            if self.on_released is not None:
                # Nobody is to bring them back.
                self.on_released(cut.subscription, cut.event_ids)
            self.tell_losses(cut.subscription)

    def tell_losses(self, name: str) -> None:
        """Tell the consumer, if it is there, what was lost since it last heard of it."""
        if self.is_attached(name):
            question = partial(self._store.losses, name)
            self._questions.ask(("losses", name), question, partial(self._say_losses, name))

    def _say_losses(self, name: str, losses: Losses | None) -> None:
        durable = self._durables.get(name)
        feed = None if durable is None else durable.feed
        if durable is None or feed is None or feed.sent is None or losses is None:
            return
        told = durable.told or Losses(losses.trimmed_told, 0, 0, losses.gaps_told, 0)
        durable.told = losses
        count, gaps = losses.trimmed - told.trimmed, losses.gaps - told.gaps
        if count or gaps:
            feed.sink.lost(count, losses.through, gaps)
            self.submit([LossesTold(name, losses.trimmed, losses.gaps)])

    def detach(self, name: str) -> None:
        """The consumer is gone; the subscription goes on."""
        durable = self._durables.get(name)
        if durable is not None and durable.feed is not None:
            feed, durable.feed = durable.feed, None
            if feed.task is not None:
                feed.task.cancel()
                # One that has not begun never comes to its end, and would hold the consumer.
                feed.task = None
            durable.abandoned_ms = self._now_ms()

    def remove(self, name: str) -> None:
        """The subscription ends, and its part of the log."""
        self.detach(name)
        if self._durables.pop(name, None) is not None:
            self._shares.end(name)
            self.submit([DurableRemoved(name)])
            if self.on_removed is not None:
                self.on_removed(name)

    def acknowledge(self, name: str, position: int) -> None:
        """The consumer has taken all up to this position."""
        durable = self._durables.get(name)
        if durable is None:
            return
        feed = durable.feed
        given = deque[_Given]() if feed is None else feed.unacknowledged
        # A client may say any number: nobody has taken more than was given.
        position = min(position, max(durable.sent, 0 if feed is None else feed.sent or 0))
        taken: list[str] = []
        while given and (given[0].position <= position or given[0].is_hidden):
            position = max(position, given[0].position)
            taken.append(given.popleft().name)
        if position > durable.acknowledged:
            # Whoever says the same again and again must not keep the disk from others.
            durable.acknowledged = position
            self.submit([MoveCursor(name, position)])
        if taken:
            if self.on_released is not None:
                self.on_released(name, taken)
            self.wake(name)

    def ready(self, name: str) -> None:
        """The overlay keeps its promise for the subscription."""
        durable = self._durables.get(name)
        if durable is None or durable.is_ready:
            return
        durable.is_ready = True
        if durable.feed is not None:
            durable.feed.sink.ready()

    def end(self, reason: str) -> None:
        """The node ends: consumers hear of it, subscriptions stay on disk."""
        self._is_ended = True
        self._questions.end()
        for name, durable in self._durables.items():
            if durable.feed is not None:
                sink = durable.feed.sink
                self.detach(name)
                sink.ended(reason)

    # --- feeding -------------------------------------------------------------------------------

    def wake(self, name: str) -> None:
        """There may be something new in the log."""
        durable = self._durables.get(name)
        feed = None if durable is None else durable.feed
        if feed is None or feed.sent is None or self._is_ended:
            return
        feed.is_woken = True
        if feed.task is None:
            feed.task = self._loop.create_task(self._serve(name, feed))

    async def _serve(self, name: str, feed: _Feed) -> None:
        try:
            while feed.is_woken:
                feed.is_woken = False
                while True:
                    room = UNACKNOWLEDGED_MAX - len(feed.unacknowledged)
                    if room <= 0:
                        break
                    limit = min(READ_AT_ONCE, room)
                    after = feed.sent or 0
                    read_log = self._store.read_log
                    events = await asyncio.to_thread(read_log, name, after, limit, READ_BYTES)
                    if not events:
                        break
                    self._hand_over(name, feed, events)
        except StoreError as error:
            self._questions.failed(error, self.wake, name)
        finally:
            feed.task = None

    def _hand_over(self, name: str, feed: _Feed, events: Sequence[LoggedEvent]) -> None:
        """Give the consumer those of the events that its owner may see; others count as taken."""
        bound, durable = self._rules.durable_bound(name), self._durables[name]
        for event in events:
            is_hidden = bound is not None and not event.publication.matches(bound)
            feed.sent = event.position
            feed.unacknowledged.append(_Given(event.position, event.publication.name, is_hidden))
            if is_hidden:
                self._counters.add("an event in the log that its subscriber may not see any more")
            else:
                event.publication.again = (
                    event.position <= durable.sent_before or event.at_ms <= durable.unsure_until_ms
                )
                durable.sent = max(durable.sent, event.position)
                feed.sink.deliver(event.publication, event.hops, event.position)
        if feed.unacknowledged and feed.unacknowledged[0].is_hidden:
            self.acknowledge(name, feed.unacknowledged[0].position)

    # --- permissions ---------------------------------------------------------------------------

    async def narrow_again(self, resubscribe: Callable[[str, Filter], None]) -> None:
        """Permissions are others now: let the overlay and the mirrors know what follows.

        What is handed over follows them already. `resubscribe` tells the overlay of a filter in
        place of another.
        """
        turns = FilterTurns()
        for name, durable in list(self._durables.items()):
            asked = durable.asked
            await turns.before(asked, partial(self._rules.narrow_durable, name, asked))
            if self._durables.get(name) is not durable or self._is_ended:
                continue
            wanted = self._rules.narrow_durable(name, asked)
            if wanted.digest != durable.wanted.digest:
                if wanted.is_nothing:
                    _log.warning("durable subscription %s: permissions leave nothing of it", name)
                durable.is_ready = durable.is_ready and durable.wanted.covers(wanted)
                durable.wanted = wanted
                self._shares.change(name, wanted)
                if durable.is_stored:
                    self._say_kept(name, wanted)
                    resubscribe(name, wanted)

    def abandoned(self, names: Iterable[str]) -> list[str]:
        """Those of them that have had no consumer for longer than their owners' permissions allow.

        Since when they have none is noted on disk meanwhile: it counts over restarts.
        """
        now_ms = self._now_ms()
        found: list[str] = []
        noted: list[Change] = []
        for name in names:
            durable = self._durables.get(name)
            age_max = self._rules.abandoned_ms_max(name)
            if durable is None or durable.feed is not None or age_max is None:
                continue
            if now_ms - durable.abandoned_ms > age_max:
                found.append(name)
            elif not durable.is_noted:
                durable.is_noted = True
                noted.append(DurableAbandoned(name, durable.abandoned_ms))
        if noted:
            self.submit(noted)
        return found

    # --- what comes home -----------------------------------------------------------------------

    def take(self, effect: Deliver, names: Sequence[str]) -> None:
        """An event for durable subscriptions.

        One under a promise is on disk already.
        """
        if effect.publication.delivery is Delivery.AT_LEAST_ONCE:
            for name in names:
                self.wake(name)
        else:
            self._append([(effect.publication, tuple(names), effect.hops)])

    def take_batch(self, effect: DeliverBatch, wanted: Sequence[tuple[str, np.ndarray]]) -> None:
        """Events of a batch for durable subscriptions."""
        if effect.batch.delivery is Delivery.AT_LEAST_ONCE:
            for name, _ in wanted:
                self.wake(name)
            return
        names_of: dict[int, list[str]] = {}
        for name, rows in wanted:
            for row in rows.tolist():
                names_of.setdefault(row, []).append(name)
        events = list(effect.batch.publications())
        self._append(
            [(events[row], tuple(names), effect.hops) for row, names in sorted(names_of.items())]
        )

    def _append(self, events: Sequence[tuple[Publication, tuple[str, ...], int]]) -> None:
        """Events that came without a promise, each with those that want it and its hops."""
        now_ms = self._now_ms()
        changes: list[Change] = []
        logged: dict[str, None] = {}
        for event, names, hops in events:
            durable = tuple([name for name in names if name in self._durables])
            if durable:
                changes.append(AppendToLog(event, durable, now_ms, hops))
                logged.update(dict.fromkeys(durable))

        def stored() -> None:
            for name in logged:
                self.wake(name)

        if changes:
            self.submit(changes, stored)

    # --- what the protocol persists ------------------------------------------------------------

    def persist(self, records: Sequence[tuple[int, Record]], then: OnPersisted) -> None:
        """Keep what of the records needs a disk (`record_keeping`)."""
        self._records.persist(records, then)

    # --- the disk ------------------------------------------------------------------------------

    def submit(
        self,
        changes: Sequence[Change],
        then: Callable[[], None] | None = None,
        refused: Callable[[str], None] | None = None,
    ) -> None:
        """Write changes; `then` runs on the loop's thread when they are on disk.

        A disk that is full or slow is asked again. What it will never take is logged, and `refused`
        hears why.
        """

        def on_done(failure: StoreFailure | None) -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(done, failure)

        def done(failure: StoreFailure | None) -> None:
            if failure is None:
                if then is not None:
                    then()
                return
            self._counters.add(f"the disk refused: {failure.kind.value}")
            if failure.kind in (FailureKind.INVALID, FailureKind.BOUND):
                _log.warning("the disk refused: %s", failure.reason)
                if refused is not None:
                    refused(failure.reason)
            elif not self._is_ended:
                self._loop.call_later(RETRY_S, self.submit, changes, then, refused)

        self._store.submit(changes, on_done)
