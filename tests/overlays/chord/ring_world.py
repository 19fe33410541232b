"""Rings under a virtual clock, and who was handed what: for the tests of the Chord overlay.

The oracle for deliveries is brute force over the subscriptions; the one for the ring is the sorted
list of keys (`naive_ring`).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from peersub.filters.filter import Filter
from peersub.overlays.chord.converged import converge
from peersub.overlays.chord.invariants import check_quiet, check_step
from peersub.overlays.chord.peer import ChordPeer
from peersub.overlays.chord.settings import ChordSettings
from peersub.overlays.core.causes import Publish, Subscribe, Unsubscribe
from peersub.overlays.core.effects import Deliver, PublishCompleted, SubscriptionReady
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.link import LinkSettings
from peersub.overlays.core.node import Node
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.settings import settings_from
from peersub.simulator.engine import Simulation
from peersub.simulator.hosts import BareNode
from peersub.simulator.settings import NetworkSettings
from peersub.trace.schema import Step, TraceRecord


class World:
    """A network of Chord nodes."""

    def __init__(
        self,
        seed: int,
        network: NetworkSettings | None = None,
        links: LinkSettings | None = None,
        **settings: Any,
    ) -> None:
        self.random = Random(seed)
        self.settings: ChordSettings = settings_from(ChordSettings, {"key_bits": 20, **settings})
        self.subscriptions: dict[str, tuple[str, Filter]] = {}
        self.ready: dict[str, int] = {}
        self.completed: dict[str, int] = {}
        self.delivered: dict[str, list[str]] = {}
        self.complaints: list[str] = []
        self._events = 0
        self._names = 0

        def make(name: str, incarnation: int) -> Any:
            peer = ChordPeer(PeerId(name, incarnation), self.settings, seed)
            return BareNode(peer) if links is None else Node(peer, network="test", settings=links)

        self.simulation = Simulation(seed, make, network, [self])

    # --- watching ------------------------------------------------------------------------------

    def observe(self, record: TraceRecord) -> None:
        if not isinstance(record, Step):
            return
        self.complaints += check_step(self.peer(record.node), record.cause, record.effects)
        for effect in record.effects:
            match effect:
                case Deliver(publication, names):
                    self.delivered.setdefault(publication.id, []).extend(names)
                case SubscriptionReady(name):
                    self.ready[name] = record.now_ms
                case PublishCompleted(event_id):
                    self.completed[event_id] = record.now_ms

    def peer(self, node: str) -> ChordPeer:
        found: ChordPeer = self.simulation.hosts[node].overlay
        return found

    @property
    def nodes(self) -> list[str]:
        return [host.name for host in self.simulation.living()]

    @property
    def peers(self) -> list[ChordPeer]:
        return [self.peer(node) for node in self.nodes]

    # --- acting --------------------------------------------------------------------------------

    def grow(self, count: int, *, pause_ms: int = 400) -> None:
        """Nodes join one after the other, or, without a pause, all at once over the first."""
        for _ in range(count):
            name = f"n{len(self.simulation.hosts)}"
            living = self.nodes
            if not living:
                self.simulation.start(name)
                continue
            contact = self.random.choice(living) if pause_ms else living[0]
            self.simulation.join(name, [contact])
            self.simulation.run_for(pause_ms)

    def converge(self, count: int) -> None:
        """So many nodes with a subscription each, as if all had joined and subscribed."""
        peers = [self.simulation.add(f"n{place}").overlay for place in range(count)]
        given: dict[str, dict[str, Filter]] = {}
        for peer in peers:
            self._names += 1
            wanted = Filter(random_filter(self.random))
            self.subscriptions[f"s{self._names}"] = (peer.me.node, wanted)
            given[peer.me.node] = {f"s{self._names}": wanted}
        converge(peers, given)
        self.simulation.link_all()

    def settle(self, limit_ms: int = 600_000) -> None:
        """Let everything come to rest; then every invariant of a ring at rest holds."""
        assert self.simulation.run_until_quiet(limit_ms), self.simulation.obligations()[:5]
        assert self.complaints == []
        assert check_quiet(self.peers) == []
        assert naive_ring_complaints(self.peers) == []

    def subscribe(self, node: str, text: str) -> str:
        self._names += 1
        name = f"s{self._names}"
        wanted = Filter(text)
        self.subscriptions[name] = (node, wanted)
        self.simulation.cause(node, Subscribe(name, wanted))
        return name

    def unsubscribe(self, name: str) -> None:
        node, _ = self.subscriptions.pop(name)
        self.simulation.cause(node, Unsubscribe(name))

    def publish(
        self, node: str, attributes: dict[str, Any], delivery: Delivery = Delivery.BEST_EFFORT
    ) -> str:
        self._events += 1
        event_id = f"e{self._events}"
        publication = Publication(event_id, attributes, delivery=delivery)
        self.simulation.cause(node, Publish((publication,)))
        return event_id

    def expected(self, attributes: dict[str, Any]) -> list[str]:
        """Brute force: the subscriptions on living nodes that want it."""
        living = self.nodes
        return sorted(
            name
            for name, (node, wanted) in self.subscriptions.items()
            if node in living and wanted.matches(attributes)
        )

    def check_deliveries(self, count: int, delivery: Delivery = Delivery.BEST_EFFORT) -> None:
        """Events from random nodes reach exactly whom they should, once."""
        for _ in range(count):
            attributes = {"x": self.random.randrange(100), "y": self.random.randrange(4)}
            wanted = self.expected(attributes)
            event_id = self.publish(self.random.choice(self.nodes), attributes, delivery)
            self.simulation.run_for(2_000)
            assert sorted(self.delivered.get(event_id, [])) == wanted
            assert event_id in self.completed

    def subscribe_all(self) -> None:
        """One random interval per node."""
        for node in self.nodes:
            self.subscribe(node, random_filter(self.random))


def random_filter(random: Random) -> str:
    low = random.randrange(100)
    text = f"x BETWEEN {low} AND {low + random.randrange(20)}"
    return text if random.random() < 0.7 else f"{text} AND y = {random.randrange(4)}"


def naive_ring_complaints(peers: Sequence[ChordPeer]) -> list[str]:
    """The ring by sorting all keys, and each finger by looking at every node."""
    complaints = []
    by_key = sorted((peer.key, peer.me) for peer in peers)
    for place, (key, name) in enumerate(by_key):
        peer = next(peer for peer in peers if peer.me == name)
        size = peer.settings.size
        following = by_key[(place + 1) % len(by_key)][1]
        successor = peer.topology.successor
        if (successor.peer if successor else name) != following:
            complaints.append(f"{name}: successor")
        fingers: dict[PeerId, None] = {}
        for k in range(1, peer.settings.key_bits + 1):
            distances = sorted(
                ((other - key) % size, who)
                for other, who in by_key
                if (other - key) % size >= size >> k
            )
            if distances:
                fingers[distances[0][1]] = None
        if sorted(fingers) != sorted(peer.topology.edges()):
            complaints.append(f"{name}: fingers")
    return complaints
