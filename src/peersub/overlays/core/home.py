"""Home: where a subscription lives. Matching on this node, and once for each event.

Best-effort events are handed over at once; the history of seen identifiers is in memory. Events
under an acknowledged promise are stored first (EventStored), handed over when the record is on
disk, and are part of a persisted history from then on: whoever repeats one is told that it is here.
After a crash, what was stored and is not known to be handed over is handed over again, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from peersub.filters.filter import Filter
from peersub.matching.matcher import Matcher
from peersub.overlays.core.effects import Deliver, Effect, Persist
from peersub.overlays.core.history import History
from peersub.overlays.core.publication import Publication
from peersub.overlays.core.records import (
    EventHandedOver,
    EventSeen,
    EventStored,
    Record,
    SubscriptionRemoved,
    SubscriptionStored,
)

__all__ = ["Home", "HomeSettings"]

MATCHER_FROM = 16
"""Subscriptions from which an index pays: below, each filter is asked."""


@dataclass(frozen=True, slots=True)
class HomeSettings:
    """Bounds of what a home remembers."""

    seen_events_max: int = 65_536
    """Events whose repetition is noticed."""
    history_horizon_ms: int = 600_000
    """How long; longer than a publisher repeats an event."""
    subscriptions_max: int = 1_000_000


@dataclass(slots=True)
class _Storing:
    """An event on its way to disk, and who waits for it to be there."""

    publication: Publication
    subscriptions: tuple[str, ...]
    hops: int
    waiting: list[Callable[[], None]] = field(default_factory=list)


class Home:
    """The subscriptions of a peer, and what was handed to them.

    `emit` takes the effects. Tokens of Persist are this home's: an overlay that persists records of
    its own asks `persist`.
    """

    def __init__(self, settings: HomeSettings, emit: Callable[[Effect], None]) -> None:
        self.subscriptions: dict[str, Filter] = {}
        self._settings = settings
        self._emit = emit
        self._matcher: Matcher | None = None
        self._seen: History[str] = History(settings.seen_events_max, settings.history_horizon_ms)
        self._stored: History[str] = History(settings.seen_events_max, settings.history_horizon_ms)
        self._storing: dict[str, _Storing] = {}
        self._tokens = 0
        self._then: dict[int, Callable[[], None]] = {}

    # --- subscriptions -------------------------------------------------------------------------

    def subscribe(self, name: str, wanted: Filter, then: Callable[[], None] | None = None) -> bool:
        """A subscription moves in; `then` runs when it is on disk. False if the name is taken."""
        if (
            name in self.subscriptions
            or len(self.subscriptions) >= self._settings.subscriptions_max
        ):
            return False
        self._move_in(name, wanted)
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
        if self._matcher is not None:
            self._matcher.add(name, wanted)

    def _move_out(self, name: str) -> None:
        del self.subscriptions[name]
        if self._matcher is not None:
            self._matcher.remove(name)

    def matching(self, publication: Publication) -> tuple[str, ...]:
        """The subscriptions that want the event, sorted by name."""
        if len(self.subscriptions) < MATCHER_FROM:
            found = [n for n, wanted in self.subscriptions.items() if publication.matches(wanted)]
        else:
            if self._matcher is None:
                self._matcher = Matcher()
                for name, wanted in self.subscriptions.items():
                    self._matcher.add(name, wanted)
            found = list(self._matcher.match(publication.event))
        return tuple(sorted(found))

    # --- handing over --------------------------------------------------------------------------

    def see(self, event_id: str, now_ms: int) -> bool:
        """Whether a best-effort event is new here; it is seen from now on."""
        return self._seen.add(event_id, now_ms)

    def hand_over(self, publication: Publication, hops: int) -> None:
        """Give a best-effort event, which was not seen before, to those who want it."""
        wanting = self.matching(publication)
        if wanting:
            self._emit(Deliver(publication, wanting, hops))

    def store(
        self, publication: Publication, hops: int, now_ms: int, then: Callable[[], None]
    ) -> bool:
        """Take an acknowledged event home. False if nothing is to wait for; else `then` runs."""
        event_id = publication.id
        storing = self._storing.get(event_id)
        if storing is not None:
            storing.waiting.append(then)
            return True
        if event_id in self._stored:
            return False
        wanting = self.matching(publication)
        if not wanting:
            return False
        self._storing[event_id] = _Storing(publication, wanting, hops, [then])
        self._stored.add(event_id, now_ms)
        record = EventStored(publication, wanting, now_ms, hops)
        self.persist(record, lambda: self._on_stored(event_id))
        return True

    def _on_stored(self, event_id: str) -> None:
        storing = self._storing.pop(event_id)
        # A subscription may have ended while the disk was busy.
        wanting = tuple(name for name in storing.subscriptions if name in self.subscriptions)
        if wanting:
            self._emit(Deliver(storing.publication, wanting, storing.hops))
        self.persist(EventHandedOver(event_id))
        for then in storing.waiting:
            then()

    # --- the disk ------------------------------------------------------------------------------

    def persist(self, record: Record, then: Callable[[], None] | None = None) -> None:
        """Ask for a record to be kept; `then` runs when it is."""
        self._tokens += 1
        if then is not None:
            self._then[self._tokens] = then
        self._emit(Persist(self._tokens, record))

    def on_persisted(self, token: int) -> None:
        """A record is on disk."""
        then = self._then.pop(token, None)
        if then is not None:
            then()

    def restore(self, records: Iterable[Record], now_ms: int) -> None:
        """Remember what the disk knows; hand over again what may not have been."""
        unsure: dict[str, EventStored] = {}
        for record in records:
            if isinstance(record, SubscriptionStored):
                if record.subscription in self.subscriptions:
                    self._move_out(record.subscription)
                self._move_in(record.subscription, record.filter)
            elif isinstance(record, SubscriptionRemoved):
                if record.subscription in self.subscriptions:
                    self._move_out(record.subscription)
            elif isinstance(record, EventStored):
                self._stored.add(record.publication.id, record.at_ms)
                unsure[record.publication.id] = record
            elif isinstance(record, EventSeen):
                self._stored.add(record.event_id, record.at_ms)
            elif isinstance(record, EventHandedOver):
                unsure.pop(record.event_id, None)
        self._stored.forget(now_ms)
        for event_id, stored in unsure.items():
            wanting = tuple(n for n in stored.subscriptions if n in self.subscriptions)
            if wanting:
                self._emit(Deliver(stored.publication, wanting, stored.hops, again=True))
            self.persist(EventHandedOver(event_id))
