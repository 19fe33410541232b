"""The meter: what a run costs, counted while it goes on.

It observes steps and keeps totals by phase; of each event it keeps one bit per node that received
it and one per node that wanted it. Definitions:

* a *data message* carries an event that somebody published, or many; all others are *control*,
  also notifications by which an overlay tells its own peers something (`control-notify`);
* a *copy* of an event is a message that carries it: one that carries many is a copy of each;
* what a link carries counts as what it is: a repeated message counts again, a tunnelled one once
  for each link that it goes over;
* a *receiver* of an event is a node, other than its publisher, that got a copy of it as its
  target; it *matches* if a subscription on it was handed the event;
* the *load* of a node is the number of messages that it received.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from peersub.overlays.core.batch import Batch
from peersub.overlays.core.causes import (
    Join,
    Leave,
    Publish,
    Received,
    Start,
    Subscribe,
    Unsubscribe,
)
from peersub.overlays.core.effects import Deliver, Send
from peersub.overlays.core.link_messages import BetweenSlots, Carried, Tunnelled
from peersub.overlays.core.messages import Message, content_of, message_kind
from peersub.trace.interest import NumberSet
from peersub.trace.schema import Fault, FaultKind, Given, Phase, Step, TraceRecord

__all__ = ["EventTotals", "Meter", "PhaseMeter"]

EVENTS_METERED_MAX: Final = 100_000
"""Events of which the receivers are known one by one; older ones are in the totals."""


@dataclass(slots=True)
class EventTotals:
    """Sums over events: how many nodes received them, and who of those wanted them."""

    events: int = 0
    copies: int = 0
    receivers: int = 0
    matching_receivers: int = 0
    false_positive_shares: float = 0.0
    """The sum of each event's share of all living nodes that received it in vain."""

    def add(self, other: EventTotals) -> None:
        """Count the other's too."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class PhaseMeter:
    """What happened in a phase, and what was sent in it."""

    begun_ms: int = 0
    sent: dict[str, int] = field(default_factory=dict)
    """Messages by kind."""
    data: dict[str, int] = field(default_factory=dict)
    """Of these, data messages."""
    causes: dict[str, int] = field(default_factory=dict)
    """How many joins, leaves, crashes, subscribes, unsubscribes, publishes."""
    node_ms: int = 0
    """How long nodes lived in it, added up."""
    totals: EventTotals = field(default_factory=EventTotals)
    """Of the events that were published in it."""
    latency_ms: dict[int, int] = field(default_factory=dict)
    """How many deliveries came so long after the publication."""

    @property
    def messages(self) -> int:
        """Messages sent."""
        return sum(self.sent.values())


@dataclass(slots=True)
class _Metered:
    """An event that may still be received."""

    published_ms: int
    publisher: int
    living: int
    phase: PhaseMeter
    copies: int = 0
    receivers: NumberSet = field(default_factory=NumberSet)
    wanting: NumberSet = field(default_factory=NumberSet)


_WRAPPERS: Final = (Carried, Tunnelled, BetweenSlots)
_COUNTED: Final[Mapping[type, str]] = {
    Join: "join",
    Leave: "leave",
    Start: "join",
    Subscribe: "subscribe",
    Unsubscribe: "unsubscribe",
}


class Meter:
    """Counts what a run costs."""

    def __init__(self) -> None:
        self.phases: dict[str, PhaseMeter] = {}
        self.received: list[int] = []
        """Messages received, by node; nodes in the order in which they appeared."""
        self.received_events: list[int] = []
        """Of these, data messages."""
        self.messages_received = 0
        self.now_ms = 0
        self._phase = PhaseMeter()
        self._numbers: dict[str, int] = {}
        self._living: dict[int, None] = {}
        self._since_ms = 0
        self._events: dict[str, _Metered] = {}
        self._kinds: dict[type, str] = {}

    # --- observing -----------------------------------------------------------------------------

    def observe(self, record: TraceRecord) -> None:
        """Count what the record tells."""
        self.now_ms = record.now_ms
        if isinstance(record, Step):
            self._on_step(record)
        elif isinstance(record, Phase):
            self._pass_time()
            self._phase = self.phases.setdefault(record.name, PhaseMeter(record.now_ms))
        elif isinstance(record, Fault):
            if record.kind is FaultKind.CRASH:
                for node in record.nodes:
                    self._lives(self._number(node), alive=False)
                    self._count("crash")
        else:
            assert isinstance(record, Given)
            self._lives(self._number(record.node), alive=True)

    def finish(self) -> None:
        """No more records come: put the events that are still metered into the totals."""
        self._pass_time()
        for event in self._events.values():
            _fold(event)
        self._events.clear()

    def _on_step(self, step: Step) -> None:
        cause = step.cause
        kind = type(cause)
        number = self._numbers.get(step.node)
        if number is None:
            number = self._number(step.node)
        if kind is Received:
            self._on_received(number, step.node, cause.messages)
        elif kind is Publish:
            self._on_publish(number, cause)
        elif kind in _COUNTED:
            self._count(_COUNTED[kind])
            if kind is Join or kind is Start:
                self._lives(number, alive=True)
            elif kind is Leave:
                self._lives(number, alive=False)
        for effect in step.effects:
            kind = type(effect)
            if kind is Send:
                self._on_send(effect.messages)
            elif kind is Deliver:
                self._on_deliver(number, effect)

    def _on_received(self, number: int, node: str, messages: Sequence[Message]) -> None:
        count = len(messages)
        self.received[number] += count
        self.messages_received += count
        for message in messages:
            inner: Any = message
            is_target = True
            while isinstance(inner, _WRAPPERS):
                if type(inner) is Tunnelled and inner.target != node:
                    is_target = False
                inner = inner.message
            carried = self._carried(inner)
            if not carried:
                continue
            self.received_events[number] += 1
            for event in carried:
                if is_target and number != event.publisher:
                    event.receivers.add(number)

    def _on_publish(self, number: int, cause: Publish) -> None:
        for publication in cause.publications:
            self._count("publish")
            if publication.id in self._events:
                continue
            if len(self._events) >= EVENTS_METERED_MAX:
                _fold(self._events.pop(next(iter(self._events))))
            self._events[publication.id] = _Metered(
                self.now_ms, number, len(self._living), self._current()
            )

    def _on_send(self, messages: Sequence[Message]) -> None:
        phase = self._current()
        sent = phase.sent
        for message in messages:
            inner: Any = message
            while isinstance(inner, _WRAPPERS):
                inner = inner.message
            kind = type(inner)
            name = self._kinds.get(kind)
            if name is None:
                name = self._kinds[kind] = message_kind(inner)
            if _copies(kind):
                carried = self._carried(inner)
                if not carried:
                    name = f"control-{name}"
                else:
                    for event in carried:
                        event.copies += 1
                    phase.data[name] = phase.data.get(name, 0) + 1
            sent[name] = sent.get(name, 0) + 1

    def _on_deliver(self, number: int, effect: Deliver) -> None:
        event = self._events.get(effect.publication.id)
        if event is None:
            return
        event.wanting.add(number)
        latency_ms = self.now_ms - event.published_ms
        counts = event.phase.latency_ms
        counts[latency_ms] = counts.get(latency_ms, 0) + len(effect.subscriptions)

    # --- small things --------------------------------------------------------------------------

    def _carried(self, message: Any) -> list[_Metered]:
        """The events that a message brings, if they are metered."""
        content: Any = content_of(message) if _copies(type(message)) else None
        if isinstance(content, Batch):
            names = map(content.event_id, range(len(content)))
            return [self._events[name] for name in names if name in self._events]
        event = None if content is None else self._events.get(content.id)
        return [] if event is None else [event]

    def _number(self, node: str) -> int:
        number = self._numbers.get(node)
        if number is None:
            number = self._numbers[node] = len(self.received)
            self.received.append(0)
            self.received_events.append(0)
        return number

    def _current(self) -> PhaseMeter:
        if not self.phases:
            self.phases[""] = self._phase
        return self._phase

    def _count(self, what: str) -> None:
        causes = self._current().causes
        causes[what] = causes.get(what, 0) + 1

    def _lives(self, number: int, *, alive: bool) -> None:
        """A node begins to live, or ends; who takes leave may crash before it is gone."""
        self._pass_time()
        if alive:
            self._living[number] = None
        else:
            self._living.pop(number, None)

    def _pass_time(self) -> None:
        self._phase.node_ms += len(self._living) * (self.now_ms - self._since_ms)
        self._since_ms = self.now_ms


def _copies(kind: type[Message]) -> bool:
    """Whether messages of a class bring events; one inside of another is on its way to a place."""
    return kind.brings not in ("", "message")


def _fold(event: _Metered) -> None:
    """Put the event into the totals of its phase."""
    receivers = len(event.receivers)
    matching = sum(number in event.wanting for number in event.receivers)
    event.phase.totals.add(
        EventTotals(
            events=1,
            copies=event.copies,
            receivers=receivers,
            matching_receivers=matching,
            false_positive_shares=(receivers - matching) / max(event.living, 1),
        )
    )
