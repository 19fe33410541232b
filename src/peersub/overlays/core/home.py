"""Home: where a subscription lives. Matching on this node, and once for each event.

Best-effort events are handed over at once; the history of seen identifiers is in memory. Events
under an acknowledged promise are stored first (EventStored), handed over when the record is on
disk, and are part of a persisted history from then on: whoever repeats one is told that it is here.
What a durable subscription wants is confirmed only when it is on the disks of several nodes
(`Secure`); the subscriber need not wait for that.
After a crash, what was stored and is not known to be handed over is handed over again, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from peersub.filters.filter import Filter
from peersub.matching.matcher import Matcher
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.effects import Deliver, DeliverBatch, Effect, Persist, Secure
from peersub.overlays.core.event_history import EVENT_BYTES, EventHistory, bytes_of
from peersub.overlays.core.event_keys import (
    event_id_of,
    key_of_id,
    key_of_name,
    number_of,
    row_key,
    split_name,
)
from peersub.overlays.core.mirror_facts import Held, HeldBatch, HeldCopy
from peersub.overlays.core.publication import Publication
from peersub.overlays.core.records import (
    BatchHandedOver,
    BatchStored,
    DurableSubscriptionStored,
    EventHandedOver,
    EventSeen,
    EventStored,
    Record,
    SubscriptionRemoved,
    SubscriptionStored,
)
from peersub.overlays.core.row_sets import rows_of

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Home", "HomeSettings"]

MATCHER_FROM = 16
"""Conjunctions of all subscriptions from which an index pays: below, each filter is asked."""

_NO_COLUMN = ""
"""No attribute has this name: the documents of a batch are not among its columns."""


@dataclass(frozen=True, slots=True)
class HomeSettings:
    """Bounds of what a home remembers."""

    seen_events_max: int = 65_536
    """Best-effort events whose repetition is noticed by members that pass them on."""
    seen_bytes_max: int = 8 * 1_024 * 1_024
    """Of best-effort events whose repetition is noticed; where there are more, the oldest are
    forgotten."""
    history_bytes_max: int = 64 * 1_024 * 1_024
    """Of acknowledged events that were taken, none of which is forgotten before its time: where
    there is no room, others have to wait. Half as much is for events that are published here."""
    history_horizon_ms: int = 600_000
    """How long; longer than a publisher repeats an event."""
    room_wait_ms: int = 60_000
    """How long an acknowledged event waits for room in a history before it fails."""
    subscriptions_max: int = 1_000_000


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Who waits for an event to be on disk."""

    then: Callable[[], None]
    failed: Callable[[str], None] | None = None


@dataclass(slots=True)
class _Storing:
    """An event on its way to disk, here and elsewhere, and who waits for it to be there."""

    publication: Publication
    subscriptions: tuple[str, ...]
    hops: int
    waiting: list[_Waiting] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _StoringBatch:
    """Events on their way to disk together, the places that each subscription wants."""

    batch: Batch
    wanted: tuple[tuple[str, np.ndarray], ...]
    hops: int
    waiting: list[_Waiting] = field(default_factory=list)


class _Countdown:
    """Calls `then` when the last of several has called, or `failed` when one has failed."""

    __slots__ = ("_left", "_waiting")

    def __init__(self, left: int, waiting: _Waiting) -> None:
        self._left = left
        self._waiting = waiting

    def one_less(self) -> None:
        """One of them is done."""
        self._left -= 1
        if not self._left:
            self._waiting.then()

    def fail(self, reason: str) -> None:
        """One of them will not be done in time."""
        if self._left > 0 and self._waiting.failed is not None:
            self._left = 0
            self._waiting.failed(reason)


class Home:
    """The subscriptions of a peer, and what was handed to them.

    `emit` takes the effects. Tokens of Persist are this home's: an overlay that persists records of
    its own asks `persist`.
    """

    def __init__(self, settings: HomeSettings, emit: Callable[[Effect], None]) -> None:
        self.subscriptions: dict[str, Filter] = {}
        self.version = 0
        """Grows when a subscription comes or goes."""
        self.settings = settings
        self._emit = emit
        self._matcher: Matcher | None = None
        self._conjunctions = 0
        horizon_ms, bytes_max = settings.history_horizon_ms, settings.history_bytes_max
        self._seen = EventHistory(settings.seen_bytes_max, horizon_ms)
        self._stored = EventHistory(bytes_max, horizon_ms)
        self._published = EventHistory(bytes_max // 2, horizon_ms)
        self._former = EventHistory(bytes_max, horizon_ms)
        """What an earlier version of this node stored: it knew events by their ids alone."""
        self._storing: dict[bytes, _Storing] = {}
        self._storing_batches: list[_StoringBatch] = []
        self._tokens = 0
        self._then: dict[int, Callable[[], None]] = {}
        self._failed: dict[int, Callable[[str], None]] = {}
        self._durable: set[str] = set()
        """Subscriptions whose events must be on the disks of several nodes."""

    # --- subscriptions -------------------------------------------------------------------------

    def subscribe(
        self,
        name: str,
        wanted: Filter,
        then: Callable[[], None] | None = None,
        *,
        durable: bool = False,
    ) -> bool:
        """A subscription moves in; `then` runs when it is on disk. False if the name is taken."""
        if name in self.subscriptions or len(self.subscriptions) >= self.settings.subscriptions_max:
            return False
        self._move_in(name, wanted)
        if durable:
            self._durable.add(name)
            self.persist(DurableSubscriptionStored(name, wanted), then)
        else:
            self.persist(SubscriptionStored(name, wanted), then)
        return True

    def install(self, subscriptions: Mapping[str, Filter]) -> None:
        """These subscriptions have always been here: for a start in a state that is set."""
        for name, wanted in subscriptions.items():
            self._move_in(name, wanted)

    def unsubscribe(self, name: str) -> bool:
        """A subscription ends; False if there is none of this name."""
        if name not in self.subscriptions:
            return False
        self._move_out(name)
        self.persist(SubscriptionRemoved(name))
        return True

    def _move_in(self, name: str, wanted: Filter) -> None:
        self.subscriptions[name] = wanted
        self._conjunctions += _conjunctions_of(wanted)
        self.version += 1
        if self._matcher is not None:
            self._matcher.add(name, wanted)
        elif self._conjunctions >= MATCHER_FROM:
            # Now, and not with the first event: that would wait for all that come until then.
            self._matcher = Matcher()
            for known, filter_known in self.subscriptions.items():
                self._matcher.add(known, filter_known)

    def _move_out(self, name: str) -> None:
        self._conjunctions -= _conjunctions_of(self.subscriptions.pop(name))
        self._durable.discard(name)
        self.version += 1
        if self._matcher is not None:
            self._matcher.remove(name)

    def matching(self, publication: Publication) -> tuple[str, ...]:
        """The subscriptions that want the event, sorted by name."""
        if self._conjunctions < MATCHER_FROM:
            found = [n for n, wanted in self.subscriptions.items() if publication.matches(wanted)]
        else:
            assert self._matcher is not None
            found = self._matcher.match(publication.event, publication.probe)
        return tuple(sorted(found))

    def matching_batch(self, batch: Batch) -> tuple[tuple[str, np.ndarray], ...]:
        """Per subscription that wants events of a batch without bodies, sorted: their places."""
        import numpy as np

        assert self._matcher is not None
        found = self._matcher.match_batch(batch.table, threads=1, body_column=_NO_COLUMN)
        rows = found["event_row"].to_numpy()
        places: dict[str, list[int]] = {}
        for row, name in zip(rows.tolist(), found["subscription_id"].to_pylist(), strict=True):
            places.setdefault(name, []).append(row)
        return tuple((name, np.array(sorted(places[name]))) for name in sorted(places))

    # --- handing over --------------------------------------------------------------------------

    def see(self, key: bytes, now_ms: int) -> bool:
        """Whether a best-effort event is new here; it is seen from now on."""
        return self._seen.add(key, now_ms)

    def hand_over(self, publication: Publication, hops: int, younger: Container[str] = ()) -> None:
        """Give a best-effort event, which was not seen before, to those who want it.

        Not to subscriptions that are `younger` than the event.
        """
        wanting = tuple(name for name in self.matching(publication) if name not in younger)
        if wanting:
            self._emit(Deliver(publication, wanting, hops))

    def admit(self, content: Publication | Batch, source: str, now_ms: int) -> bool:
        """Whether a publisher on this node may publish it now, under an acknowledged promise.

        Publishers share out what the node remembers, so that one that floods does not take the
        room of another's events at every home that they share a way to.
        """
        published = self._published
        if isinstance(content, Batch):
            if not published.knows(content):
                if not published.has_room(bytes_of(content), source, now_ms):
                    return False
                published.add_batch(content, now_ms, source)
        elif content.key not in published:
            if not published.has_room(EVENT_BYTES, source, now_ms):
                return False
            published.add(content.key, now_ms, source)
        return True

    def lacks_room(self, content: Publication | Batch, source: str, now_ms: int) -> bool:
        """Whether an acknowledged event cannot be taken yet: it is wanted, and not remembered.

        Whether a batch is wanted here is for the caller to know.
        """
        stored = self._stored
        if isinstance(content, Batch):
            has_room = stored.has_room(bytes_of(content), source, now_ms)
            return not has_room and not stored.knows(content)
        if stored.has_room(EVENT_BYTES, source, now_ms) or content.key in stored:
            return False
        return bool(self.matching(content))

    def store(
        self,
        publication: Publication,
        hops: int,
        now_ms: int,
        then: Callable[[], None],
        failed: Callable[[str], None] | None = None,
        source: str = "",
    ) -> bool:
        """Take an acknowledged event home. False if nothing is to wait for; else `then` runs.

        `failed` runs instead if too few other nodes have stored the event in time. It comes from a
        source, which `lacks_room` was asked about.
        """
        key = publication.key
        waiting = _Waiting(then, failed)
        storing = self._storing.get(key)
        if storing is not None:
            storing.waiting.append(waiting)
            return True
        if publication.given_key is not None and key_of_id(publication.id) in self._former:
            return False
        is_known = key in self._stored
        if is_known:
            others = self._waiting_for_batch(key)
            if others is not None:
                others.append(waiting)
                return True
            if not self._durable:
                return False
        wanting = self.matching(publication)
        if is_known:
            wanting = tuple(filter(self._durable.__contains__, wanting))
        if not wanting:
            return False
        storing = self._storing[key] = _Storing(publication, wanting, hops, [waiting])
        if is_known:
            # It is on disk here. Whether it is on others is asked again: a crash forgot it.
            self._secure(storing)
            return True
        self._stored.add(key, now_ms, source)
        record = EventStored(publication, wanting, now_ms, hops)
        self.persist(record, lambda: self._on_stored(key), lambda why: self._on_refused(key, why))
        return True

    def _on_refused(self, key: bytes, reason: str) -> None:
        """The disk does not take an event: whoever publishes it again tries anew."""
        storing = self._storing.pop(key)
        self._stored.discard(key)
        _tell_failure(storing.waiting, reason)

    def _waiting_for_batch(self, key: bytes) -> list[_Waiting] | None:
        """Who waits for the batch that brings this event to disk; None if it is there."""
        number = number_of(key)
        if number is not None:
            for storing in self._storing_batches:
                if storing.batch.key == row_key(key, 0) and number in storing.batch.numbers:
                    return storing.waiting
        return None

    def _on_stored(self, key: bytes) -> None:
        storing = self._storing[key]
        # A subscription may have ended while the disk was busy.
        wanting = tuple(name for name in storing.subscriptions if name in self.subscriptions)
        if wanting:
            self._emit(Deliver(storing.publication, wanting, storing.hops))
        self.persist(EventHandedOver(storing.publication.name))
        self._secure(storing)

    def _secure(self, storing: _Storing) -> None:
        """Let those who wait know when the event is on enough disks, which this one may be."""
        durable = tuple(filter(self._durable.__contains__, storing.subscriptions))
        events: list[Held] = []
        if durable:
            events.append(HeldCopy(storing.publication, durable, storing.hops))
        key = storing.publication.key
        self._await_copies(events, storing.waiting, lambda: self._storing.pop(key))

    def _await_copies(
        self, events: list[Held], waiting: list[_Waiting], end: Callable[[], object]
    ) -> None:
        """Tell those who wait when the events are on enough disks, or that they are not."""

        def done() -> None:
            end()
            for each in waiting:
                each.then()

        def failed(reason: str) -> None:
            end()
            _tell_failure(waiting, reason)

        if events:
            self._tokens += 1
            self._then[self._tokens], self._failed[self._tokens] = done, failed
            self._emit(Secure(self._tokens, tuple(events)))
        else:
            done()

    # --- batches -------------------------------------------------------------------------------

    def see_batch(self, batch: Batch, now_ms: int) -> Batch:
        """What of a best-effort batch is new here; it is seen from now on."""
        return batch.part(self._seen.add_batch(batch, now_ms))

    def hand_over_batch(
        self, batch: Batch, wanted: tuple[tuple[str, np.ndarray], ...], hops: int
    ) -> None:
        """Give best-effort events, which were not seen before, to those who want them."""
        if wanted:
            self._emit(DeliverBatch(batch, wanted, hops))

    def store_batch(
        self,
        batch: Batch,
        wanted: tuple[tuple[str, np.ndarray], ...],
        hops: int,
        now_ms: int,
        then: Callable[[], None],
        failed: Callable[[str], None] | None = None,
        source: str = "",
    ) -> bool:
        """Take acknowledged events home, as `store` does. False if nothing is to wait for."""
        import numpy as np

        if not wanted:
            return False
        part = batch.part(np.unique(np.concatenate([rows for _, rows in wanted])))
        places = self._stored.add_batch(part, now_ms, source)
        new = part.part(places)
        waits: list[list[_Waiting]] = []
        if len(new) < len(part):
            waits = self._waiting_for_any(part)
            known = part.part(np.setdiff1d(np.arange(len(part)), places))
            again = self._secure_again(known, batch, wanted, hops)
            waits += [] if again is None else [again.waiting]
        if len(new):
            waits.append(self._begin_storing(new, batch, wanted, hops, now_ms).waiting)
        countdown = _Countdown(len(waits), _Waiting(then, failed))
        for waiting in waits:
            waiting.append(_Waiting(countdown.one_less, countdown.fail))
        return bool(waits)

    def _waiting_for_any(self, batch: Batch) -> list[list[_Waiting]]:
        """Who waits for events of the batch that came before, alone or in it, to be on disk."""
        waits = [each.waiting for each in self._storing_batches if each.batch.key == batch.key]
        if self._storing:
            alone = map(self._storing.get, batch.row_keys())
            waits += [storing.waiting for storing in alone if storing is not None]
        return waits

    def _secure_again(
        self, part: Batch, batch: Batch, wanted: tuple[tuple[str, np.ndarray], ...], hops: int
    ) -> _StoringBatch | None:
        """Ask again whether events that came before are on enough disks, unless it is asked."""
        import numpy as np

        durable = tuple(each for each in wanted if each[0] in self._durable)
        if not durable:
            return None
        asked = [
            each.batch.numbers for each in self._storing_batches if each.batch.key == batch.key
        ]
        alone = [key in self._storing for key in part.row_keys()]
        is_asked = np.array(alone, bool) | np.isin(part.numbers, np.concatenate([[], *asked]))
        named = _places_in(part.part(np.flatnonzero(~is_asked)), batch, durable)
        if not named:
            return None
        storing = _StoringBatch(part.part(np.flatnonzero(~is_asked)), named, hops)
        self._storing_batches.append(storing)
        self._secure_batch(storing)
        return storing

    def _begin_storing(
        self,
        part: Batch,
        batch: Batch,
        wanted: tuple[tuple[str, np.ndarray], ...],
        hops: int,
        now_ms: int,
    ) -> _StoringBatch:
        named = _places_in(part, batch, wanted)
        storing = _StoringBatch(part, named, hops)
        self._storing_batches.append(storing)
        numbers = tuple((name, tuple(part.numbers[its].tolist())) for name, its in named)
        record = BatchStored(part, numbers, now_ms, hops)

        def refused(reason: str) -> None:
            self._storing_batches.remove(storing)
            for key in storing.batch.row_keys():
                self._stored.discard(key)
            _tell_failure(storing.waiting, reason)

        self.persist(record, lambda: self._on_batch_stored(storing), refused)
        return storing

    def _on_batch_stored(self, storing: _StoringBatch) -> None:
        wanting = tuple(each for each in storing.wanted if each[0] in self.subscriptions)
        if wanting:
            self._emit(DeliverBatch(storing.batch, wanting, storing.hops))
        self.persist(BatchHandedOver(storing.batch.name, tuple(storing.batch.numbers.tolist())))
        self._secure_batch(storing)

    def _secure_batch(self, storing: _StoringBatch) -> None:
        numbers = storing.batch.numbers
        durable = tuple(
            [
                (name, rows_of(numbers[places].tolist()))
                for name, places in storing.wanted
                if name in self._durable
            ]
        )
        events: list[Held] = [HeldBatch(storing.batch, durable, storing.hops)] if durable else []
        self._await_copies(events, storing.waiting, lambda: self._storing_batches.remove(storing))

    # --- the disk ------------------------------------------------------------------------------

    def persist(
        self,
        record: Record,
        then: Callable[[], None] | None = None,
        refused: Callable[[str], None] | None = None,
    ) -> None:
        """Ask for a record to be kept; `then` runs when it is, `refused` when it never will be."""
        self._tokens += 1
        if then is not None:
            self._then[self._tokens] = then
        if refused is not None:
            self._failed[self._tokens] = refused
        self._emit(Persist(self._tokens, record))

    def on_persisted(self, token: int) -> None:
        """A record is on disk, or events are on enough disks."""
        self._failed.pop(token, None)
        then = self._then.pop(token, None)
        if then is not None:
            then()

    def on_persist_failed(self, token: int, reason: str) -> None:
        """Events are not on enough disks in time, or refused; they may be published again."""
        self._then.pop(token, None)
        failed = self._failed.pop(token, None)
        if failed is not None:
            failed(reason)

    def restore(self, records: Iterable[Record], now_ms: int) -> None:
        """Remember what the disk knows; hand over again what may not have been."""
        unsure: dict[str, EventStored] = {}
        for record in _one_by_one(records):
            if isinstance(record, SubscriptionStored | DurableSubscriptionStored):
                if record.subscription in self.subscriptions:
                    self._move_out(record.subscription)
                self._move_in(record.subscription, record.filter)
                if isinstance(record, DurableSubscriptionStored):
                    self._durable.add(record.subscription)
            elif isinstance(record, SubscriptionRemoved):
                if record.subscription in self.subscriptions:
                    self._move_out(record.subscription)
            elif isinstance(record, EventStored):
                self._stored.add(record.publication.key, record.at_ms)
                self._remember_former(record.publication.name, record.at_ms)
                unsure[record.publication.name] = record
            elif isinstance(record, EventSeen):
                self._stored.add(key_of_name(record.event_id), record.at_ms)
                self._remember_former(record.event_id, record.at_ms)
            elif isinstance(record, EventHandedOver):
                unsure.pop(record.event_id, None)
        self._stored.forget(now_ms)
        self._former.forget(now_ms)
        for name, stored in unsure.items():
            wanting = tuple(n for n in stored.subscriptions if n in self.subscriptions)
            if wanting:
                self._emit(Deliver(stored.publication, wanting, stored.hops, again=True))
            self.persist(EventHandedOver(name))

    def _remember_former(self, name: str, at_ms: int) -> None:
        key, event_id = split_name(name)
        if key is None:
            self._former.add(key_of_id(event_id), at_ms)


def _tell_failure(waiting: Iterable[_Waiting], reason: str) -> None:
    for each in waiting:
        if each.failed is not None:
            each.failed(reason)


def _conjunctions_of(wanted: Filter) -> int:
    return max(1, len(wanted.boxes)) if wanted.language == "sql" else 1


def _places_in(
    part: Batch, batch: Batch, wanted: tuple[tuple[str, np.ndarray], ...]
) -> tuple[tuple[str, np.ndarray], ...]:
    """For each subscription the places in the part of what it wants of the batch, if any."""
    import numpy as np

    place_of = np.full(batch.total, -1, np.int64)
    place_of[part.numbers] = np.arange(len(part))
    named: list[tuple[str, np.ndarray]] = []
    for name, rows in wanted:
        places = place_of[batch.numbers[rows]]
        places = places[places >= 0]
        if len(places):
            named.append((name, places))
    return tuple(named)


def _one_by_one(records: Iterable[Record]) -> Iterator[Record]:
    """The records, with those about batches as records about each of their events."""
    for record in records:
        if isinstance(record, BatchStored):
            wanting: dict[int, list[str]] = {}
            for name, numbers in record.wanted:
                for number in numbers:
                    wanting.setdefault(number, []).append(name)
            batch = record.batch
            for number, event in zip(batch.numbers.tolist(), batch.publications(), strict=True):
                names = tuple(wanting.get(number, ()))
                yield EventStored(event, names, record.at_ms, record.hops)
        elif isinstance(record, BatchHandedOver):
            for number in record.numbers:
                yield EventHandedOver(event_id_of(record.batch_id, number))
        else:
            yield record
