"""The checker of clients: what each subscriber took, wherever its subscription lived meanwhile.

`DeliveryChecker` judges subscriptions of nodes. A subscriber that follows a proposal to move is for
a while on two nodes under one name, and gets events on both: for nodes that is in order. For the
subscriber it must be as if it had never moved: each event once, none missed. This checker sees each
subscriber as a node of its own, on which a single subscription lives from the moment the subscriber
first has one until it has none any more, and lets a `DeliveryChecker` judge that.

It takes where subscriptions are, and when they are ready, from the trace, and what subscribers took
from whoever plays them (`took`). A subscriber that leaves the old node too early has no excuse: it
is served by promise as long as it is anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from peersub.filters.filter import Filter
from peersub.trace.checkers import DeliveryChecker, Violation
from peersub.trace.facts import (
    Completed,
    Delivered,
    Disturbed,
    Fact,
    Failed,
    Left,
    MoveProposed,
    Ready,
    Remembered,
    Revived,
    Stopped,
    Subscribed,
    Unsubscribed,
    facts_of,
)
from peersub.trace.schema import Disk, TraceRecord

__all__ = ["ClientChecker"]


@dataclass(slots=True)
class _Client:
    """Where the subscriber is, as the trace has it."""

    filter: Filter
    nodes: dict[str, None] = field(default_factory=dict)


class ClientChecker:
    """Judges what subscribers took.

    Args:
        checker: judges, as it would subscriptions; one that sees nothing else.
    """

    def __init__(self, checker: DeliveryChecker | None = None) -> None:
        self.checker = checker or DeliveryChecker()
        self._clients: dict[str, _Client] = {}

    @property
    def violations(self) -> list[Violation]:
        """What was not in order."""
        return self.checker.violations

    def observe(self, record: TraceRecord) -> None:
        """Take in what a driver tells."""
        for fact in facts_of(record):
            self._take(fact)

    def took(self, now_ms: int, name: str, event_id: str) -> None:
        """The subscriber of this name took an event: the first time, as far as it knows."""
        self.checker.take(Delivered(now_ms, _place(name), event_id, (name,), 0, False))

    def finish(self, now_ms: int, *, settled: bool = True) -> None:
        """The run is over."""
        self.checker.finish(now_ms, settled=settled)

    # --- facts ---------------------------------------------------------------------------------

    def _take(self, fact: Fact) -> None:
        match fact:
            case Subscribed(now_ms, node, name, wanted):
                self._on_subscribed(now_ms, node, name, wanted)
            case Ready(now_ms, node, name):
                if name in self._clients and node in self._clients[name].nodes:
                    self.checker.take(Ready(now_ms, _place(name), name))
            case Unsubscribed(now_ms, node, name):
                if self._left_alone(name, node):
                    del self._clients[name]
                    self.checker.take(Unsubscribed(now_ms, _place(name), name))
            case Stopped(now_ms, node):
                self.checker.take(Disturbed(now_ms))
                for name in self._on_node(node):
                    if self._left_alone(name, node):
                        self.checker.take(Stopped(now_ms, _place(name)))
            case Left(now_ms, node):
                for name in self._on_node(node):
                    # Where it is alone, what is under way may still be handed over.
                    if len(self._clients[name].nodes) == 1:
                        self.checker.take(Left(now_ms, _place(name)))
                    else:
                        self._left_alone(name, node)
            case Remembered(now_ms, node, subscriptions):
                for name, wanted in subscriptions:
                    self._on_remembered(now_ms, node, name, wanted)
            case Delivered() | Completed() | Failed() | Revived() | MoveProposed():
                pass
            case _:
                self.checker.take(fact)

    def _on_subscribed(self, now_ms: int, node: str, name: str, wanted: Filter) -> None:
        client = self._clients.get(name)
        if client is None or not client.nodes:
            client = self._clients[name] = _Client(wanted)
            self.checker.take(Subscribed(now_ms, _place(name), name, wanted))
        client.nodes[node] = None

    def _on_remembered(self, now_ms: int, node: str, name: str, wanted: Filter) -> None:
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = _Client(wanted)
        if not client.nodes:
            # Its only node has come back: so has the subscriber.
            self.checker.take(Revived(now_ms, _place(name), Disk.KEPT))
            self.checker.take(Remembered(now_ms, _place(name), ((name, wanted),)))
        client.nodes[node] = None

    def _on_node(self, node: str) -> list[str]:
        return [name for name, client in self._clients.items() if node in client.nodes]

    def _left_alone(self, name: str, node: str) -> bool:
        """The subscriber is on this node no more; whether it is nowhere now."""
        client = self._clients.get(name)
        if client is None or node not in client.nodes:
            return False
        del client.nodes[node]
        return not client.nodes


def _place(name: str) -> str:
    """The node that the subscriber is seen as."""
    return f"client/{name}"
