"""The checker of durable subscriptions: consumers take all that was acknowledged, once or marked.

An at-least-once publication that was acknowledged, and that began after a durable subscription was
ready, is taken by its consumer once all is quiet, whatever happened to nodes and disks meanwhile;
and what a consumer takes a second time says so. Whoever plays the disks says which events no disk
has any more (`excuse`): what all of them lost is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.trace.checkers import Violation
from peersub.trace.facts import Completed, Published, facts_of
from peersub.trace.schema import TraceRecord

__all__ = ["DurableChecker"]


@dataclass(slots=True)
class _Durable:
    filter: Filter
    ready_ms: int | None = None
    taken: set[str] = field(default_factory=set)
    excused: set[str] = field(default_factory=set)


class DurableChecker:
    """Judges what consumers of durable subscriptions took.

    Args:
        copies: the disks on which an event is for each of them when it is acknowledged.
    """

    def __init__(self, copies: int = 1) -> None:
        self.on_disks: Callable[[str, str], int | None] | None = None
        """How many disks have an event for a subscription; None if that cannot be asked of it."""
        self._copies = copies
        self.violations: list[Violation] = []
        self.expected = 0
        self._durables: dict[str, _Durable] = {}
        self._published: dict[str, tuple[int, Event]] = {}
        self._acknowledged: dict[str, int] = {}

    def observe(self, record: TraceRecord) -> None:
        """Take in what a driver tells."""
        for fact in facts_of(record):
            if isinstance(fact, Published) and fact.promised:
                self._published.setdefault(fact.event.id, (fact.now_ms, fact.event))
            elif isinstance(fact, Completed):
                self._on_completed(fact.now_ms, fact.event_id)

    def _on_completed(self, now_ms: int, event_id: str) -> None:
        if event_id in self._published and event_id not in self._acknowledged:
            self._acknowledged[event_id] = now_ms
            self._count_copies(now_ms, event_id)

    def _count_copies(self, now_ms: int, event_id: str) -> None:
        """An event is acknowledged: by now it is on as many disks as promised."""
        for name, durable in self._durables.items():
            if self.on_disks is None or event_id in durable.taken:
                continue
            if self._concerns(durable, event_id):
                copies = self.on_disks(name, event_id)
                if copies is not None and copies < self._copies:
                    text = f"{event_id} is acknowledged with {copies} copies for {name}"
                    self._complain(now_ms, "durable-early", text)

    def _concerns(self, durable: _Durable, event_id: str) -> bool:
        began_ms, event = self._published[event_id]
        is_ready = durable.ready_ms is not None and began_ms >= durable.ready_ms
        return is_ready and durable.filter.matches(event)

    def made(self, name: str, wanted: Filter) -> None:
        """There is a durable subscription."""
        self._durables[name] = _Durable(wanted)

    def ready(self, now_ms: int, name: str) -> None:
        """From now on it misses nothing."""
        durable = self._durables.get(name)
        if durable is not None and durable.ready_ms is None:
            durable.ready_ms = now_ms

    def ended(self, name: str) -> None:
        """It is no more, or nobody waits for it any more."""
        self._durables.pop(name, None)

    def excuse(self, name: str, event_id: str) -> None:
        """No disk has the event any more."""
        if name in self._durables:
            self._durables[name].excused.add(event_id)

    def took(self, now_ms: int, name: str, event_id: str, *, again: bool) -> None:
        """A consumer took an event, which says whether it may have come before."""
        durable = self._durables.get(name)
        if durable is None:
            return
        if event_id in durable.taken and not again:
            self._complain(now_ms, "durable-twice", f"{name} took {event_id} twice, unmarked")
        durable.taken.add(event_id)

    def missing(self) -> list[tuple[str, str]]:
        """What was acknowledged, and not taken: subscription and event."""
        found: list[tuple[str, str]] = []
        self.expected = 0
        for name, durable in self._durables.items():
            for event_id in self._acknowledged:
                if self._concerns(durable, event_id):
                    self.expected += 1
                    if event_id not in durable.taken and event_id not in durable.excused:
                        found.append((name, event_id))
        return found

    def finish(self, now_ms: int) -> None:
        """The run is over, and all is quiet."""
        for name, event_id in self.missing():
            acknowledged_ms = self._acknowledged[event_id]
            text = f"{name} never took {event_id}, acknowledged at {acknowledged_ms} ms"
            self._complain(now_ms, "durable-missed", text)

    def _complain(self, now_ms: int, rule: str, text: str) -> None:
        self.violations.append(Violation(now_ms, rule, text))
