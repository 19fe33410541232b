"""The checker of durable subscriptions: consumers take all that was acknowledged, once or marked.

An at-least-once publication that was acknowledged, and that began after a durable subscription was
ready, is taken by its consumer once all is quiet, whatever happened to nodes and disks meanwhile;
and what a consumer takes a second time says so. Whoever plays the nodes and disks tells of what
happened to them. An event may be missing for one of these reasons, and for no other:

* it was lost with as many disks as have to hold it, or is on disks of nodes that are not there;
* its consumer was told of a gap, and it was acknowledged after the gap began, and published before
  the subscription was served again;
* it was acknowledged where no node could be reached that knew of the subscription, in a part of a
  split network say, and its publisher, who would replay it, has not lived since;
* it was acknowledged when all nodes were gone that knew of the subscription, and none of them has
  come back to ask for it: as an event on the disks of nodes that are not there is lost, so is a
  subscription that they alone know, though its home may live on with an empty disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.trace.checkers import Violation
from peersub.trace.facts import Completed, Left, Published, Stopped, facts_of
from peersub.trace.schema import TraceRecord

__all__ = ["DurableChecker"]


@dataclass(slots=True)
class _Durable:
    filter: Filter
    ready_ms: int | None = None
    taken: set[str] = field(default_factory=set)
    lost: dict[str, set[str]] = field(default_factory=dict)
    """Per event, the nodes whose disks had it, and have it no more, or are not there."""
    gaps: list[_Gap] = field(default_factory=list)
    unknown: set[str] = field(default_factory=set)
    """Events that nobody could take who knew of the subscription."""
    is_orphaned: bool = False
    """Whether all who knew of it are gone."""
    orphans: set[str] = field(default_factory=set)
    """Events that were acknowledged since then."""


@dataclass(slots=True)
class _Gap:
    """What a consumer was told of: events may be missing from a time on."""

    since_ms: int
    until_ms: int | None = None
    """When the subscription was served again; None before that."""


@dataclass(frozen=True, slots=True)
class _Promised:
    """A publication under an acknowledged promise."""

    now_ms: int
    publisher: str
    event: Event


class DurableChecker:
    """Judges what consumers of durable subscriptions took.

    Args:
        copies: the disks on which an event is for each of them when it is acknowledged.
    """

    def __init__(self, copies: int = 1) -> None:
        self.on_disks: Callable[[str, str], int | None] | None = None
        """How many disks have an event for a subscription; None if that cannot be asked of it."""
        self.is_known: Callable[[str, str], bool] | None = None
        """Whether who knows of a subscription could be reached by a node now."""
        self._copies = copies
        self.violations: list[Violation] = []
        self.expected = 0
        self._durables: dict[str, _Durable] = {}
        self._published: dict[str, _Promised] = {}
        self._acknowledged: dict[str, int] = {}
        self._gone_ms: dict[str, int] = {}
        """When a node last stopped, or took leave."""

    def observe(self, record: TraceRecord) -> None:
        """Take in what a driver tells."""
        for fact in facts_of(record):
            if isinstance(fact, Published) and fact.promised:
                self._on_published(fact)
            elif isinstance(fact, Completed):
                self._on_completed(fact.now_ms, fact.event_id)
            elif isinstance(fact, Stopped | Left):
                self._gone_ms[fact.node] = fact.now_ms

    def _on_published(self, fact: Published) -> None:
        if fact.event.id not in self._published:
            self._published[fact.event.id] = _Promised(fact.now_ms, fact.node, fact.event)
            self._note_unknown(fact.event.id)

    def _on_completed(self, now_ms: int, event_id: str) -> None:
        if event_id in self._published and event_id not in self._acknowledged:
            self._acknowledged[event_id] = now_ms
            self._note_unknown(event_id)
            self._note_orphans(event_id)
            self._count_copies(now_ms, event_id)

    def _note_unknown(self, event_id: str) -> None:
        """An event begins, or is acknowledged: for whom can nobody take it?"""
        publisher, is_known = self._published[event_id].publisher, self.is_known
        if is_known is None:
            return
        for name, durable in self._durables.items():
            if self._concerns(durable, event_id) and not is_known(name, publisher):
                durable.unknown.add(event_id)

    def _note_orphans(self, event_id: str) -> None:
        """An event is acknowledged: for whom does nobody live who would have it replayed?"""
        for durable in self._durables.values():
            if durable.is_orphaned:
                durable.orphans.add(event_id)

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
        promised = self._published[event_id]
        is_ready = durable.ready_ms is not None and promised.now_ms >= durable.ready_ms
        return is_ready and durable.filter.matches(promised.event)

    def made(self, name: str, wanted: Filter) -> None:
        """There is a durable subscription."""
        self._durables[name] = _Durable(wanted)

    def ready(self, now_ms: int, name: str) -> None:
        """From now on it misses nothing."""
        durable = self._durables.get(name)
        if durable is not None:
            if durable.ready_ms is None:
                durable.ready_ms = now_ms
            for gap in durable.gaps:
                gap.until_ms = now_ms if gap.until_ms is None else gap.until_ms

    def gap(self, name: str, since_ms: int, until_ms: int | None) -> None:
        """Its consumer is told that events may be missing, until it was or is served again."""
        if name in self._durables:
            self._durables[name].gaps.append(_Gap(since_ms, until_ms))

    def ended(self, name: str) -> None:
        """It is no more."""
        self._durables.pop(name, None)

    def orphaned(self, name: str) -> None:
        """The last node that knew of it is gone.

        Not said where one that lives forgets it: nobody may do that while it is wanted.
        """
        if name in self._durables:
            self._durables[name].is_orphaned = True

    def adopted(self, name: str) -> None:
        """A node that lives knows of it, and has publishers replay what it may have missed."""
        durable = self._durables.get(name)
        if durable is not None:
            durable.is_orphaned = False
            durable.orphans.clear()

    def lost(self, name: str, event_id: str, node: str) -> None:
        """The disk of a node had the event, and has it no more, or is not there."""
        if name in self._durables:
            self._durables[name].lost.setdefault(event_id, set()).add(node)

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
                    if event_id not in durable.taken and not self._is_excused(durable, event_id):
                        found.append((name, event_id))
        return found

    def _is_excused(self, durable: _Durable, event_id: str) -> bool:
        promised, acknowledged_ms = self._published[event_id], self._acknowledged[event_id]
        return (
            len(durable.lost.get(event_id, ())) >= self._copies
            or event_id in durable.orphans
            or any(
                gap.since_ms <= acknowledged_ms
                and (gap.until_ms is None or promised.now_ms <= gap.until_ms)
                for gap in durable.gaps
            )
            or (
                event_id in durable.unknown
                and self._gone_ms.get(promised.publisher, -1) >= promised.now_ms
            )
        )

    def finish(self, now_ms: int) -> None:
        """The run is over, and all is quiet."""
        for name, event_id in self.missing():
            acknowledged_ms = self._acknowledged[event_id]
            text = f"{name} never took {event_id}, acknowledged at {acknowledged_ms} ms"
            self._complain(now_ms, "durable-missed", text)

    def _complain(self, now_ms: int, rule: str, text: str) -> None:
        self.violations.append(Violation(now_ms, rule, text))
