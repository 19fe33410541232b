"""Chord networks under the simulator's clock, judged by `ideal_ring`.

Events are numbers, `x` from 0 to EVENTS - 1, so that a filter is the set of numbers it takes: a
mask of EVENTS bits. Subscriptions are kept here, by themselves: whoever should get an event, and
what an edge should want, is worked out from them and from the keys alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import Any

from papers.ideal_ring import Edge, IdealRing
from peersub.filters.filter import Filter
from peersub.overlays.chord.converged import converge
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

EVENTS = 64
LATENCY_MS = 10
STEADY = NetworkSettings(latency_ms=LATENCY_MS, jitter_ms=0)
"""Each message takes as long as any other: the time of a wave is its number of steps."""
UNATTENDED = {"stabilise_ms": 0, "probe_ms": 0}
"""Without periodic upkeep: only what is asked for happens, and then nothing."""

_masks: dict[bytes, int] = {}


def mask_of(wanted: Filter) -> int:
    """The numbers that the filter takes, as bits."""
    mask = _masks.get(wanted.digest)
    if mask is None:
        mask = sum(1 << x for x in range(EVENTS) if wanted.matches({"x": x}))
        _masks[wanted.digest] = mask
    return mask


def random_filter(random: Random) -> Filter:
    """An interval, now and then with a hole: many of them cover, meet and equal each other."""
    low = random.randrange(EVENTS)
    text = f"x BETWEEN {low} AND {low + random.randrange(EVENTS // 3)}"
    if random.random() < 0.3:
        text += f" AND x <> {low + 1}"
    return Filter(text)


class ChordNetwork:
    """Nodes `n0`, `n1`, ... of one ring."""

    def __init__(
        self,
        seed: int = 1,
        *,
        network: NetworkSettings = STEADY,
        links: LinkSettings | None = None,
        sample: tuple[Mapping[str, Any], ...] = (),
        **settings: Any,
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.settings = _with_sample(settings_from(ChordSettings, settings), sample)
        self.simulation = Simulation(seed, self._make_node, network, [self])
        self.subscriptions: dict[str, tuple[str, Filter]] = {}
        self.ready: dict[str, int] = {}
        """When each subscription was said to be ready."""
        self.completed: dict[str, int] = {}
        self.delivered: dict[str, list[str]] = {}
        """Per event the subscriptions that were handed it, as often as they were."""
        self.watchers: list[Callable[[Step], None]] = []
        self._links = links
        self._events = 0

    @classmethod
    def converged(
        cls, nodes: int, wanted: Sequence[Filter | None] = (), seed: int = 1, **more: Any
    ) -> ChordNetwork:
        """A ring at rest; the node of the same place in the list wants each of these."""
        made = cls(seed, **more)
        peers = [made.simulation.add(f"n{number}").overlay for number in range(nodes)]
        given: dict[str, dict[str, Filter]] = {}
        for number, one in enumerate(wanted):
            if one is not None:
                given[f"n{number}"] = {f"given{number}": one}
                made.subscriptions[f"given{number}"] = (f"n{number}", one)
        converge(peers, given)
        made.simulation.link_all()
        return made

    def _make_node(self, name: str, incarnation: int) -> Any:
        peer = ChordPeer(PeerId(name, incarnation), self.settings, self.seed)
        if self._links is None:
            return BareNode(peer)
        return Node(peer, network="paper", settings=self._links)

    def observe(self, record: TraceRecord) -> None:
        if not isinstance(record, Step):
            return
        for watch in self.watchers:
            watch(record)
        for effect in record.effects:
            match effect:
                case Deliver(publication, names):
                    self.delivered.setdefault(publication.id, []).extend(names)
                case SubscriptionReady(name):
                    self.ready.setdefault(name, record.now_ms)
                case PublishCompleted(event_id):
                    self.completed[event_id] = record.now_ms

    # --- who there is --------------------------------------------------------------------------

    @property
    def nodes(self) -> list[str]:
        return [host.name for host in self.simulation.living()]

    def peer(self, node: str) -> ChordPeer:
        found: ChordPeer = self.simulation.hosts[node].overlay
        return found

    @property
    def peers(self) -> list[ChordPeer]:
        return [self.peer(node) for node in self.nodes]

    @property
    def ring(self) -> IdealRing:
        """The ring that the living nodes should form."""
        return _ring(tuple(peer.key for peer in self.peers), self.settings.key_bits)

    @property
    def key_of(self) -> dict[PeerId, int]:
        return {peer.me: peer.key for peer in self.peers}

    @property
    def node_at(self) -> dict[int, str]:
        return {peer.key: peer.me.node for peer in self.peers}

    # --- what is done --------------------------------------------------------------------------

    def grow(self, nodes: int, *, pause_ms: int = 1_000) -> None:
        """Nodes join over a random one, one after the other, or all at once over the first."""
        for _ in range(nodes):
            name = f"n{len(self.simulation.hosts)}"
            living = self.nodes
            if living:
                contact = self.random.choice(living) if pause_ms else living[0]
                self.simulation.join(name, [contact])
            else:
                self.simulation.start(name)
            self.simulation.run_for(pause_ms)

    def crash(self, nodes: Iterable[str]) -> None:
        self.simulation.crash(list(nodes))

    def subscribe(self, node: str, wanted: Filter) -> str:
        name = f"s{len(self.subscriptions)}"
        self.subscriptions[name] = (node, wanted)
        self.simulation.cause(node, Subscribe(name, wanted))
        return name

    def unsubscribe(self, name: str) -> None:
        node, _ = self.subscriptions[name]
        # The name is not used again: it stays, and wants nothing.
        self.subscriptions[name] = (node, Filter("FALSE"))
        self.simulation.cause(node, Unsubscribe(name))

    def publish(self, node: str, x: int, delivery: Delivery = Delivery.BEST_EFFORT) -> str:
        self._events += 1
        event_id = f"e{self._events}"
        publication = Publication(event_id, {"x": x}, delivery=delivery)
        self.simulation.cause(node, Publish((publication,)))
        return event_id

    def rest(self, limit_ms: int = 600_000) -> None:
        """Until nothing will happen by itself any more; for networks that are `UNATTENDED`."""
        assert self.simulation.run_until_idle(limit_ms)

    def settle(self, limit_ms: int = 120_000, *, poll_ms: int = 1_000) -> None:
        """Until the network is the ideal one, with no promise open; and it stays so for a while."""
        simulation = self.simulation
        deadline_ms = simulation.now_ms + limit_ms
        while simulation.obligations() or self.complaints():
            if simulation.now_ms >= deadline_ms:
                raise AssertionError([*simulation.obligations(), *self.complaints()][:8])
            simulation.run_for(poll_ms)
        simulation.run_for(2 * self.settings.stabilise_ms)
        assert self.complaints() == []

    # --- what is expected ----------------------------------------------------------------------

    def interested(self, x: int) -> list[str]:
        """The subscriptions on living nodes that want the event."""
        living = set(self.nodes)
        return sorted(
            name
            for name, (node, wanted) in self.subscriptions.items()
            if node in living and wanted.matches({"x": x})
        )

    def wanted(self) -> dict[int, int]:
        """Per key what the node there wants itself."""
        keys = {peer.me.node: peer.key for peer in self.peers}
        found: dict[int, int] = {}
        for node, wanted in self.subscriptions.values():
            if node in keys:
                found[keys[node]] = found.get(keys[node], 0) | mask_of(wanted)
        return found

    def filters(self) -> dict[Edge, int]:
        """What the filters on the edges want, as the nodes have them."""
        keys = self.key_of
        return {
            (peer.key, keys[edge]): filter_mask(peer, edge)
            for peer in self.peers
            for edge in peer.topology.edges()
        }

    def complaints(self) -> list[str]:
        """How the network differs from the ideal one: its graph, arcs and filters."""
        ring = self.ring
        complaints = graph_complaints(self.peers, ring)
        if not complaints:
            filters, ideal = self.filters(), ring.least_filters(self.wanted())
            complaints = [
                f"{u:x} -> {v:x} wants {filters[u, v]:x}, not {mask:x}"
                for (u, v), mask in ideal.items()
                if filters[u, v] != mask
            ]
        return complaints

    def check_deliveries(self, count: int, delivery: Delivery = Delivery.BEST_EFFORT) -> None:
        """Events from random nodes come to exactly those who want them, once."""
        drawn = [self.random.randrange(EVENTS) for _ in range(count)]
        sent = {self.publish(self.random.choice(self.nodes), x, delivery): x for x in drawn}
        self.complete(sent)
        self.simulation.run_for(2_000)
        for event_id, x in sent.items():
            self.check_delivered(event_id, x)

    def complete(self, events: Iterable[str], limit_ms: int = 200_000) -> None:
        """Until the publishers of these events were told that their promises are kept."""
        open_events = list(events)
        while any(event_id not in self.completed for event_id in open_events):
            assert limit_ms > 0, "not completed"
            self.simulation.run_for(100)
            limit_ms -= 100

    def check_delivered(self, event_id: str, x: int) -> None:
        """The event came to all who want it, once."""
        assert sorted(self.delivered.get(event_id, [])) == self.interested(x), event_id


@lru_cache(maxsize=16)
def _ring(keys: tuple[int, ...], bits: int) -> IdealRing:
    return IdealRing(keys, bits)


def _with_sample(settings: ChordSettings, sample: tuple[Mapping[str, Any], ...]) -> ChordSettings:
    """The settings, with events by which a strategy measures what merging costs."""
    routing = settings.routing
    strategy = replace(routing.maintenance.strategy, sample=sample)
    maintenance = replace(routing.maintenance, strategy=strategy)
    return replace(settings, routing=replace(routing, maintenance=maintenance))


def filter_mask(peer: ChordPeer, edge: PeerId) -> int:
    mask = 0
    for entry in peer.engine.maintenance.told(edge).entries:
        mask |= mask_of(entry.filter)
    return mask


def graph_complaints(peers: Sequence[ChordPeer], ring: IdealRing) -> list[str]:
    """Fingers, labels, arcs, neighbours, and what the two ends of each edge hold of it."""
    keys = {peer.me: peer.key for peer in peers}
    complaints = []
    serving = {peer.key: peer.engine.publishers() for peer in peers}
    for peer in peers:
        key, topology = peer.key, peer.topology
        found = {edge.arc[0]: (edge.label, edge.arc) for edge in topology.fingers()}
        ideal = {v: (k, ring.arcs[key][v]) for v, k in ring.fingers[key].items()}
        if found != ideal or list(found) != list(ideal):
            complaints.append(f"{peer.me} has other fingers")
            continue
        listed = [member.key for member in peer.ring.successor_list()]
        # How long the list is, is a matter of estimates; with log N entries it is long enough.
        enough = min(len(peers) - 1, len(peers).bit_length())
        if len(listed) < enough or listed != ring.successors(key, len(listed)):
            complaints.append(f"{peer.me} has another successor list")
        if [member.key for member in topology.predecessors(1)] != [
            other for other in [ring.predecessor(key)] if other != key
        ]:
            complaints.append(f"{peer.me} has another predecessor")
        told = {keys[edge.peer]: edge.arc for edge in topology.fingers()}
        for other, arc in told.items():
            if serving[other].get(peer.me) != arc:
                complaints.append(f"{other:x} serves {peer.me} another arc")
        if len(serving[key]) != len(ring.publishers[key]):
            complaints.append(f"{peer.me} serves {len(serving[key])} publishers")
    return complaints
