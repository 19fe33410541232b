"""Hops from the trace, for overlays whose messages do not say them.

An anonymous overlay may not count hops: a number that grows with the distance from the publisher
tells where it is. Whoever sees the whole trace can count all the same: where an event is published
it has come over no link, and who gets it first from a node has it over one link more than that
node. `TracedHops` stands between a driver and its observers and writes the hops into deliveries;
everything else it passes on as it is.

The protocols may not be imported here: messages are known by the names of their fields, wrappers by
having a `message` inside, those over a relay by `target` and `source` (`core.link_messages`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from peersub.trace.schema import Observer, Step, TraceRecord

__all__ = ["HopCounter", "TracedHops", "event_ids_in"]

EVENTS_COUNTED_MAX: Final = 100_000
"""Events whose hops are known; older ones are forgotten."""
HOPS_MAX: Final = 254
"""More are shown as so many: a byte for each node and event."""
_UNKNOWN: Final = 255
_FIELDS: Final = ("publication", "publications", "batch")


class HopCounter:
    """Over how many links events came to nodes, on the way on which they came first."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._hops: dict[str, bytearray] = {}

    def observe(self, record: TraceRecord) -> None:
        """Count what the record tells."""
        if not isinstance(record, Step):
            return
        match type(record.cause).__name__:
            case "Received":
                for message in record.cause.messages:
                    self._on_message(record.node, record.cause.peer.node, message)
            case "Publish":
                for publication in record.cause.publications:
                    self._begin(publication.id, record.node)
            case _:
                pass

    def hops_of(self, event_id: str, node: str) -> int | None:
        """Over how many links the event came to the node; None if it did not, or is forgotten."""
        counted = self._hops.get(event_id)
        number = self._numbers.get(node)
        if counted is None or number is None or number >= len(counted):
            return None
        hops = counted[number]
        return None if hops == _UNKNOWN else hops

    def _begin(self, event_id: str, node: str) -> None:
        if event_id not in self._hops:
            if len(self._hops) >= EVENTS_COUNTED_MAX:
                del self._hops[next(iter(self._hops))]
            self._hops[event_id] = bytearray()
            self._set(event_id, node, 0)

    def _on_message(self, node: str, sender: str, message: Any) -> None:
        while (inner := getattr(message, "message", None)) is not None:
            if hasattr(message, "source") and isinstance(getattr(message, "target", None), str):
                if message.target != node:
                    return  # A relay's part: the event is none of its business.
                sender = message.source.node
            message = inner
        for event_id in event_ids_in(message):
            if self.hops_of(event_id, node) is None:
                before = self.hops_of(event_id, sender)
                if before is not None:
                    self._set(event_id, node, min(before + 1, HOPS_MAX))

    def _set(self, event_id: str, node: str, hops: int) -> None:
        number = self._numbers.setdefault(node, len(self._numbers))
        counted = self._hops[event_id]
        if number >= len(counted):
            counted.extend(bytes([_UNKNOWN]) * (number + 1 - len(counted)))
        counted[number] = hops


class TracedHops:
    """An observer that tells others the same, with the hops in every delivery."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.counter = HopCounter()
        self._observers = tuple(observers)

    def observe(self, record: TraceRecord) -> None:
        """Count, and pass on."""
        self.counter.observe(record)
        if isinstance(record, Step) and any(map(_is_delivery, record.effects)):
            effects = [self._counted(record.node, effect) for effect in record.effects]
            record = replace(record, effects=effects)
        for observer in self._observers:
            observer.observe(record)

    def _counted(self, node: str, effect: Any) -> Any:
        if not _is_delivery(effect):
            return effect
        hops = self.counter.hops_of(effect.publication.id, node)
        return effect if hops is None else replace(effect, hops=hops)


def event_ids_in(message: Any) -> Sequence[str]:
    """The identifiers of the events that a message brings, itself no wrapper."""
    for field in _FIELDS:
        carried = getattr(message, field, None)
        if carried is None:
            continue
        match field:
            case "publication":
                return (carried.id,)
            case "publications":
                return [each.id for each in carried]
            case _:
                return [carried.event_id(row) for row in range(len(carried))]
    return ()


def _is_delivery(effect: Any) -> bool:
    return type(effect).__name__ == "Deliver"
