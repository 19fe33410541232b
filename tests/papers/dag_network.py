"""The anonymous overlay under the simulator's clock, watched in the terms of the paper.

Turns are read from the members' counters, edges from their state. The overlay's own checker of
whole networks looks at every step; what it says fails the test that caused it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.core.causes import Publish, Received, Subscribe, Unsubscribe
from peersub.overlays.core.effects import Deliver, Send, SubscriptionReady
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.link_messages import unwrapped
from peersub.overlays.core.messages import Message
from peersub.overlays.core.node import Node
from peersub.overlays.core.publication import Publication
from peersub.overlays.dag.invariants import NetworkChecker, check_quiet
from peersub.overlays.dag.layer import Layer
from peersub.overlays.dag.peer import DagPeer
from peersub.overlays.dag.settings import DagSettings
from peersub.overlays.settings import settings_from
from peersub.simulator.engine import Simulation
from peersub.simulator.settings import NetworkSettings
from peersub.trace.schema import Step, TraceRecord

__all__ = ["STEADY", "DagNetwork", "Said", "Turned", "layer_of"]

STEADY = NetworkSettings(latency_ms=10, jitter_ms=5)
REST_MS_MAX = 300_000


def layer_of(topic: str) -> str:
    """The layer of a topic that is a text."""
    return f"string:{topic}"


@dataclass(frozen=True, slots=True)
class Turned:
    """A member took a turn, among these neighbours."""

    now_ms: int
    node: str
    layer: str
    neighbours: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Said:
    """A message that left a node, in a step in which it took these turns."""

    now_ms: int
    sender: str
    receiver: str
    message: Message
    turns: tuple[str, ...]
    """The layers."""


class DagNetwork:
    """Nodes of one network; a topic is what the attribute `symbol` says."""

    def __init__(
        self, seed: int = 1, *, network: NetworkSettings = STEADY, **settings: Any
    ) -> None:
        self.seed = seed
        self.settings = settings_from(DagSettings, settings)
        self.simulation = Simulation(seed, self._make_node, network, [self])
        self.checker = NetworkChecker(self._peer_at)
        self.turned: list[Turned] = []
        self.said: list[Said] = []
        self.delivered: dict[str, Counter[str]] = {}
        """Per event, the subscriptions that got it, and how often."""
        self.delivered_ms: dict[tuple[str, str], int] = {}
        self.ready: dict[str, int] = {}
        """Subscriptions, and when each became ready."""
        self.filters: dict[str, tuple[str, Filter]] = {}
        """Subscriptions that there are, with the node and the filter of each."""
        self._counted: dict[tuple[PeerId, str], int] = {}
        self._published = 0

    @classmethod
    def of(cls, interests: Mapping[str, str], seed: int = 1, **more: Any) -> DagNetwork:
        """Nodes that joined one after the other, each with a filter, or none, by its name."""
        made = cls(seed, **more)
        for node in interests:
            made.join(node)
        made.rest()
        for node, wanted in interests.items():
            if wanted:
                made.subscribe(node, wanted)
        made.rest()
        return made

    def _make_node(self, name: str, incarnation: int) -> Node:
        return Node(DagPeer(PeerId(name, incarnation), self.settings, self.seed), network="paper")

    def _peer_at(self, node: str) -> DagPeer | None:
        host = self.simulation.hosts.get(node)
        return None if host is None or host.node is None else host.overlay

    # --- what is done --------------------------------------------------------------------------

    def join(self, node: str) -> None:
        """A new node; it knows those that came before it."""
        known = [host.name for host in self.simulation.living() if not host.is_leaving]
        if known:
            self.simulation.join(node, known[-2:])
        else:
            self.simulation.start(node)
        self.simulation.run_for(300)

    def subscribe(self, node: str, wanted: str, name: str = "") -> str:
        """A client of the node, which is named after it, wants this."""
        name = name or f"{node}/s"
        self.filters[name] = (node, Filter(wanted))
        self.simulation.cause(node, Subscribe(name, Filter(wanted)))
        return name

    def unsubscribe(self, name: str) -> None:
        """It wants it no more."""
        node, _ = self.filters.pop(name)
        self.simulation.cause(node, Unsubscribe(name))

    def publish(self, node: str, **attributes: Any) -> str:
        """A client of the node publishes this; the name of the event."""
        self._published += 1
        event = Event(f"e{self._published}", attributes)
        self.delivered[event.id] = Counter()
        self.simulation.cause(node, Publish((Publication.of(event),)))
        return event.id

    def gone(self, *nodes: str) -> None:
        """Their subscriptions are no more."""
        self.filters = {n: each for n, each in self.filters.items() if each[0] not in nodes}

    def rest(self) -> None:
        """Until all is quiet, which must be sound."""
        quiet = self.simulation.run_until_quiet(REST_MS_MAX)
        assert quiet, self.simulation.obligations()
        sides: dict[int, list[DagPeer]] = {}
        for host in self.simulation.living():
            sides.setdefault(host.group, []).append(host.overlay)
        for peers in sides.values():
            assert check_quiet(peers) == []

    # --- what there is -------------------------------------------------------------------------

    def peer(self, node: str) -> DagPeer:
        found = self._peer_at(node)
        assert found is not None
        return found

    def members(self, layer: str) -> dict[str, Layer]:
        """The members of a layer, by node."""
        return {
            host.name: host.overlay.layers[layer]
            for host in self.simulation.living()
            if layer in host.overlay.layers
        }

    def edges(self, layer: str) -> set[tuple[str, str]]:
        """The edges of a layer, once each."""
        return {
            (node, other.node)
            for node, member in self.members(layer).items()
            for other in member.edges
            if node < other.node
        }

    def matching(self, **attributes: Any) -> Counter[str]:
        """The subscriptions that want an event, each once: by brute force."""
        return Counter(n for n, (_, wanted) in self.filters.items() if wanted.matches(attributes))

    def turns_of(self, layer: str, since_ms: int = 0) -> list[Turned]:
        return [t for t in self.turned if t.layer == layer and t.now_ms >= since_ms]

    def sent(self, *kinds: type[Message], since_ms: int = 0) -> list[Said]:
        return [s for s in self.said if isinstance(s.message, kinds) and s.now_ms >= since_ms]

    # --- watching ------------------------------------------------------------------------------

    def observe(self, record: TraceRecord) -> None:
        if not isinstance(record, Step):
            return
        peer = self.peer(record.node)
        complaints = self.checker.check_step(peer, record.cause, record.effects)
        assert complaints == [], complaints
        turns = tuple(self._turns_in(record, peer))
        for effect in record.effects:
            if isinstance(effect, Deliver):
                for subscription in effect.subscriptions:
                    about = (effect.publication.id, subscription)
                    self.delivered[about[0]][subscription] += 1
                    self.delivered_ms.setdefault(about, record.now_ms)
            elif isinstance(effect, SubscriptionReady):
                self.ready[effect.subscription] = record.now_ms
            elif isinstance(effect, Send):
                to = effect.peer.node
                self.said += [
                    Said(record.now_ms, record.node, to, unwrapped(each), turns)
                    for each in effect.messages
                ]

    def _turns_in(self, step: Step, peer: DagPeer) -> Iterable[str]:
        for name, layer in peer.layers.items():
            before = self._counted.get((peer.me, name), 0)
            self._counted[peer.me, name] = layer.turns
            if layer.turns > before:
                near = tuple(sorted(other.node for other in layer.edges))
                self.turned.append(Turned(step.now_ms, step.node, name, near))
                yield name

    def received(self, step: Step) -> list[Message]:
        """What came in a step."""
        if not isinstance(step.cause, Received):
            return []
        return [unwrapped(message) for message in step.cause.messages]
