"""Clients: subscribers, some of whom follow an overlay's proposals to move to another node.

A client is the subscriber of one subscription. Told that it would be in better company elsewhere
(`ProposeMove`), it subscribes there under the same name. When that is ready, and what was under way
to the old node has had time to arrive, it unsubscribes at the old one. Events that come on both
ways it takes once, by their ids. A node that is gone before the client is ready there changes
nothing.

To the simulation this is an observer, and one that acts: later, and through the same doors as a
schedule.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from peersub.filters.filter import Filter
from peersub.overlays.core.causes import Subscribe, Unsubscribe
from peersub.overlays.core.history import History
from peersub.trace.checkers import HORIZON_MS
from peersub.trace.client_checker import ClientChecker
from peersub.trace.facts import (
    Delivered,
    Fact,
    Left,
    MoveProposed,
    Ready,
    Remembered,
    Stopped,
    Subscribed,
    Unsubscribed,
    facts_of,
)
from peersub.trace.schema import TraceRecord

if TYPE_CHECKING:
    from peersub.simulator.engine import Simulation

__all__ = ["Clients"]

TAKEN_KEPT_MAX: Final = 16_384
"""Events of a client whose second coming is noticed, as at a live one."""
TAKEN_HORIZON_MS: Final = 600_000


def _no_events() -> History[str]:
    return History(TAKEN_KEPT_MAX, TAKEN_HORIZON_MS)


@dataclass(slots=True)
class _Client:
    """A subscriber, where it is, and what it took."""

    name: str
    filter: Filter
    follows: bool
    nodes: dict[str, None] = field(default_factory=dict)
    going: str | None = None
    """The node that it moves to."""
    taken: History[str] = field(default_factory=_no_events)


class Clients:
    """All subscribers of a simulation.

    Args:
        seed: of the simulation.
        share: of the clients that follow proposals; the others refuse.
        checker: is told what clients take.
        overlap_ms: how long a client stays on the old node when the new one is ready.
    """

    def __init__(
        self,
        seed: int,
        share: float = 1.0,
        checker: ClientChecker | None = None,
        *,
        overlap_ms: int = HORIZON_MS,
    ) -> None:
        self.proposed = 0
        self.refused = 0
        self.moved = 0
        self.given_up = 0
        """Moves that ended where they began: the proposed node was gone, or the client."""
        self._seed = seed
        self._share = share
        self._checker = checker
        self._overlap_ms = overlap_ms
        self._clients: dict[str, _Client] = {}
        self._simulation: Simulation | None = None

    def attach(self, simulation: Simulation) -> None:
        """The simulation in which the clients act; it observes through this object."""
        self._simulation = simulation

    def nodes_of(self, name: str) -> list[str]:
        """The nodes on which the client has a subscription: two while it moves."""
        client = self._clients.get(name)
        return [] if client is None else list(client.nodes)

    def end(self, name: str) -> None:
        """The client wants nothing any more, wherever it is."""
        client = self._clients.get(name)
        if client is not None:
            self._stay(client)
            for node in list(client.nodes):
                self._unsubscribe(client, node)

    def observe(self, record: TraceRecord) -> None:
        """Take in what happened."""
        for fact in facts_of(record):
            self._take(fact)

    # --- what happens ----------------------------------------------------------------------------

    def _take(self, fact: Fact) -> None:
        match fact:
            case Delivered(now_ms, node, event_id, names):
                for name in names:
                    self._on_event(now_ms, node, name, event_id)
            case Subscribed(_, node, name, wanted):
                self._here(node, name, wanted)
            case Unsubscribed(_, node, name):
                self._gone(node, name)
            case MoveProposed(_, node, name, to):
                self._on_proposed(node, name, to)
            case Ready(now_ms, node, name):
                client = self._clients.get(name)
                if client is not None and client.going == node:
                    due_ms = now_ms + self._overlap_ms
                    self._running.at(due_ms, self._arrive, client, node)
            case Stopped(_, node):
                self._on_node_gone(node, stays=False)
            case Left(_, node):
                # What is under way may still be handed over while the node takes leave.
                self._on_node_gone(node, stays=True)
            case Remembered(now_ms, node, subscriptions):
                for name, wanted in subscriptions:
                    self._on_remembered(now_ms, node, name, wanted)
            case _:
                pass

    def _on_event(self, now_ms: int, node: str, name: str, event_id: str) -> None:
        client = self._clients.get(name)
        if client is None or node not in client.nodes:
            return
        if client.taken.add(event_id, now_ms) and self._checker is not None:
            self._checker.took(now_ms, name, event_id)

    def _here(self, node: str, name: str, wanted: Filter) -> None:
        client = self._clients.get(name)
        if client is None:
            follows = Random(f"{self._seed}/moves/{name}").random() < self._share
            client = self._clients[name] = _Client(name, wanted, follows)
        client.filter = wanted
        client.nodes[node] = None

    def _gone(self, node: str, name: str) -> None:
        client = self._clients.get(name)
        if client is not None:
            client.nodes.pop(node, None)
            if not client.nodes:
                # What it took is still known, should it want something else at once.
                self._stay(client)

    def _on_node_gone(self, node: str, *, stays: bool) -> None:
        for client in self._clients.values():
            if client.going == node:
                self._stay(client)
            if node in client.nodes and not (stays and len(client.nodes) == 1):
                del client.nodes[node]

    def _on_remembered(self, now_ms: int, node: str, name: str, wanted: Filter) -> None:
        """A node found the subscription on its disk; the client may have moved meanwhile."""
        client = self._clients.get(name)
        if client is None or not client.nodes:
            self._here(node, name, wanted)
        else:
            client.nodes[node] = None
            self._running.at(now_ms, self._unsubscribe, client, node)

    # --- moving ----------------------------------------------------------------------------------

    @property
    def _running(self) -> Simulation:
        assert self._simulation is not None, "the clients are not attached"
        return self._simulation

    def _on_proposed(self, node: str, name: str, to: str) -> None:
        client = self._clients.get(name)
        if client is None or node not in client.nodes:
            return
        self.proposed += 1
        if not client.follows or client.going is not None or to in client.nodes:
            self.refused += 1
            return
        client.going = to
        self._running.errands[name] = f"{name} moves from {node} to {to}"
        at_ms = self._running.now_ms + self._running.settings.consumer_ms
        self._running.at(at_ms, self._set_out, client, to)

    def _set_out(self, client: _Client, to: str) -> None:
        if client.going != to:
            return
        if self._takes_part(to):
            self._running.cause(to, Subscribe(client.name, client.filter, moved=True))
        else:
            self._stay(client)

    def _arrive(self, client: _Client, to: str) -> None:
        if client.going != to:
            return
        client.going = None
        self._running.errands.pop(client.name, None)
        self.moved += 1
        for node in [node for node in client.nodes if node != to]:
            self._unsubscribe(client, node)

    def _stay(self, client: _Client) -> None:
        """The move is given up, if there is one."""
        if client.going is None:
            return
        to, client.going = client.going, None
        self.given_up += 1
        self._running.errands.pop(client.name, None)
        if to in client.nodes and len(client.nodes) > 1:
            self._running.at(self._running.now_ms, self._unsubscribe, client, to)

    def _unsubscribe(self, client: _Client, node: str) -> None:
        if node not in client.nodes:
            return
        if self._takes_part(node):
            self._running.cause(node, Unsubscribe(client.name))
        else:
            client.nodes.pop(node, None)

    def _takes_part(self, node: str) -> bool:
        host = self._running.hosts.get(node)
        return host is not None and host.is_on and not host.is_leaving
