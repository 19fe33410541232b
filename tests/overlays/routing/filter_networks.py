"""Small networks of `FilterMaintenance` objects, and what their tables must be at rest.

A `FilterNetwork` delivers messages in an order drawn by a generator, first in first out per link.
The oracles know arcs as sets of keys and trees as sets of nodes, and work out each table from
scratch: edges by decreasing label, F*(u -> v) = local(v) and all F*(v -> w) whose arcs overlap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from random import Random

from peersub.filters.filter import Filter
from peersub.overlays.chord.messages import RingMember
from peersub.overlays.chord.topology import ChordTopology
from peersub.overlays.core.effects import Drop, Effect, Send, SetTimer, SubscriptionReady
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication
from peersub.overlays.routing.maintenance import (
    FLUSH_TIMER,
    FilterMaintenance,
    MaintenanceSettings,
)
from peersub.overlays.routing.messages import (
    FilterConfirmed,
    FilterMismatch,
    FilterUpdate,
    ResponsibilityChange,
)
from peersub.overlays.routing.rows import Rows
from peersub.overlays.routing.strategies import Strategy, StrategySettings
from peersub.overlays.routing.topology import Topology
from peersub.overlays.tree.topology import TreeTopology

BITS = 8
SIZE = 1 << BITS


class FilterNetwork:
    """Peers with filter maintenance, and links between all of them."""

    def __init__(
        self,
        topologies: Mapping[PeerId, Topology],
        strategy: StrategySettings,
        random: Random,
        coalesce_ms: int = 0,
        **slices: int,
    ) -> None:
        shared = Strategy(strategy)
        settings = MaintenanceSettings(coalesce_ms, strategy, **slices)
        self.random = random
        self.now_ms = 0
        self.topologies = dict(topologies)
        self.peers = {
            peer: FilterMaintenance(peer, topology, settings, shared)
            for peer, topology in topologies.items()
        }
        self.links: dict[tuple[PeerId, PeerId], deque[Message]] = {}
        self.timers: dict[PeerId, None] = {}
        self.ready: list[tuple[PeerId, str]] = []
        self.drops: list[Drop] = []
        self.sent: dict[type, int] = {}
        self.on_ready: Callable[[PeerId, str], None] = lambda peer, name: None
        self.on_message: Callable[[PeerId, PeerId, Message], None] = lambda a, b, message: None

    def connect_all(self) -> None:
        for peer, maintenance in self.peers.items():
            for other in self.peers:
                if other != peer:
                    maintenance.peer_connected(other)
        self.refresh_edges()

    def refresh_edges(self) -> None:
        for peer in self.peers:
            self.peers[peer].edges_changed({}, {})
            self.flush(peer)

    def flush(self, peer: PeerId) -> None:
        for effect in self.peers[peer].flush(self.now_ms):
            self._take(peer, effect)

    def _take(self, peer: PeerId, effect: Effect) -> None:
        match effect:
            case Send(other, messages):
                self.links.setdefault((peer, other), deque()).extend(messages)
                for message in messages:
                    self.sent[type(message)] = self.sent.get(type(message), 0) + 1
                    self.on_message(peer, other, message)
            case SubscriptionReady(name):
                self.ready.append((peer, name))
                self.on_ready(peer, name)
            case Drop():
                self.drops.append(effect)
            case SetTimer(timer, _):
                assert timer == FLUSH_TIMER
                self.timers[peer] = None
            case _:
                raise AssertionError(effect)

    def subscribe(self, peer: PeerId, name: str, wanted: Filter) -> None:
        self.peers[peer].subscribe(name, wanted)
        self.flush(peer)

    def unsubscribe(self, peer: PeerId, name: str) -> None:
        self.peers[peer].unsubscribe(name)
        self.flush(peer)

    def step(self) -> bool:
        """Deliver a few messages of one link, or let a timer fire; False if all is at rest."""
        waiting = [link for link, queue in self.links.items() if queue]
        if self.timers and (not waiting or self.random.random() < 0.1):
            peer = self.random.choice(list(self.timers))
            del self.timers[peer]
            self.peers[peer].on_timer()
            self.flush(peer)
            return True
        if not waiting:
            return False
        link = self.random.choice(waiting)
        queue = self.links[link]
        for _ in range(self.random.randint(1, 3)):
            if queue:
                self.deliver(link[1], link[0], queue.popleft())
        self.flush(link[1])
        return True

    def deliver(self, receiver: PeerId, sender: PeerId, message: Message) -> None:
        maintenance = self.peers[receiver]
        match message:
            case FilterUpdate():
                maintenance.on_filter_update(sender, message)
            case FilterConfirmed():
                maintenance.on_filter_confirmed(sender, message)
            case FilterMismatch():
                maintenance.on_filter_mismatch(sender, message)
            case ResponsibilityChange():
                maintenance.on_responsibility_change(sender, message)
            case _:
                raise AssertionError(message)

    def run(self, steps_max: int = 200_000) -> None:
        for _ in range(steps_max):
            if not self.step():
                return
        raise AssertionError("the network does not come to rest")

    def cut(self, one: PeerId, other: PeerId) -> None:
        """The link breaks: what is on it is lost, and both sides notice."""
        for sender, receiver in ((one, other), (other, one)):
            self.links.pop((sender, receiver), None)
            if receiver in self.peers:
                self.peers[receiver].publisher_lost(sender)

    def crash(self, peer: PeerId) -> None:
        """The peer is gone, with its links; its neighbours' topologies are theirs to change."""
        self.timers.pop(peer, None)
        del self.topologies[peer]
        gone = self.peers.pop(peer)
        assert gone.me == peer
        for other in self.peers:
            self.cut(peer, other)

    def reached(self, publisher: PeerId, publication: Publication) -> dict[PeerId, None]:
        """The peers that an event comes to, by the tables as they are now."""
        seen: dict[PeerId, None] = {}
        waiting = [(publisher, self.topologies[publisher].whole(), None)]
        while waiting:
            peer, scope, sender = waiting.pop()
            assert peer not in seen, "an event comes to nobody twice"
            seen[peer] = None
            for other, part in self.topologies[peer].parts(scope, sender):
                if other in self.peers and self.peers[peer].matches(other, publication, part):
                    waiting.append((other, part, peer))
        return seen

    def tables(self) -> dict[tuple[PeerId, PeerId], Rows]:
        return {
            (peer, edge): maintenance.told(edge)
            for peer, maintenance in self.peers.items()
            for edge in self.topologies[peer].edges()
        }


# --- topologies --------------------------------------------------------------------------------


def ring(keys: Iterable[int]) -> dict[PeerId, ChordTopology]:
    """A Chord ring in which everyone knows everyone."""
    members = [RingMember(key, PeerId(f"n{key}")) for key in keys]
    topologies = {}
    for member in members:
        topologies[member.peer] = topology = ChordTopology(member.peer, member.key, BITS)
        topology.know([other for other in members if other != member])
    return topologies


def random_tree(count: int, random: Random) -> dict[PeerId, TreeTopology]:
    peers = [PeerId(f"n{number}") for number in range(count)]
    topologies = {peer: TreeTopology() for peer in peers}
    for number in range(1, count):
        parent = peers[random.randrange(number)]
        topologies[parent].add(peers[number])
        topologies[peers[number]].add(parent)
    return topologies


# --- the oracle --------------------------------------------------------------------------------

Subscriptions = Mapping[PeerId, Mapping[str, Filter]]
Table = tuple[tuple[str, str], ...]
"""Names and texts of filters, sorted."""


def table_of(rows: Rows) -> Table:
    return tuple(sorted((entry.name, entry.filter.text) for entry in rows.entries))


def oracle_rows(strategy: str, tables: list[list[tuple[str, Filter]]]) -> list[tuple[str, Filter]]:
    """What a publisher should be sent, given the local table and those of the served edges."""
    union = {(name, wanted.text): wanted for table in tables for name, wanted in table}
    if strategy in ("simple", "identity"):
        return [(name, wanted) for (name, _), wanted in sorted(union.items())]
    if strategy == "covering":
        return [("", wanted) for wanted in union.values() if not _is_covered(wanted, union)]
    assert strategy == "perfect"
    rows: list[Filter] = []
    for table in tables:
        for wanted in sorted((wanted for _, wanted in table), key=lambda one: one.digest):
            rows = _merged_in(rows, wanted)
    return [("", wanted) for wanted in rows]


def _merged_in(rows: list[Filter], wanted: Filter) -> list[Filter]:
    """A merged table with one conjunction more: two fuse if their disjunction is one."""
    if any(row.covers(wanted) for row in rows):
        return rows
    rows = sorted((row for row in rows if not wanted.covers(row)), key=lambda row: row.digest)
    for row in rows:
        either = Filter(f"({row.text}) OR ({wanted.text})")
        if len(either.boxes) == 1:
            return _merged_in([other for other in rows if other != row], either)
    return [*rows, wanted]


def _is_covered(wanted: Filter, union: Mapping[tuple[str, str], Filter]) -> bool:
    return any(
        other.covers(wanted) and (not wanted.covers(other) or other.digest < wanted.digest)
        for other in union.values()
        if other != wanted
    )


def local_table(
    strategy: str, peer: PeerId, subscriptions: Subscriptions
) -> list[tuple[str, Filter]]:
    found = {
        name: wanted
        for name, wanted in subscriptions.get(peer, {}).items()
        if not wanted.is_nothing
    }
    if strategy == "simple":
        return [(f"{peer}/{name}", wanted) for name, wanted in found.items()]
    return [("", wanted) for wanted in found.values()]


def ring_oracle(
    strategy: str, keys: list[int], subscriptions: Subscriptions
) -> dict[tuple[PeerId, PeerId], Table]:
    """The fixpoint on a ring, with arcs as sets of keys."""
    order = sorted(keys)
    edges: dict[tuple[int, int], tuple[int, set[int]]] = {}
    for key in order:
        labels: dict[int, int] = {}
        for k in range(1, BITS + 1):
            found = next(
                (
                    (key + distance) % SIZE
                    for distance in range(SIZE >> k, SIZE)
                    if (key + distance) % SIZE in keys
                ),
                None,
            )
            if found is not None:
                labels.setdefault(found, k)
        clockwise = sorted(labels, key=lambda other: (other - key) % SIZE)
        for place, other in enumerate(clockwise):
            end = clockwise[place + 1] if place + 1 < len(clockwise) else key
            length = (end - other) % SIZE
            edges[key, other] = (labels[other], {(other + step) % SIZE for step in range(length)})
    tables: dict[tuple[int, int], list[tuple[str, Filter]]] = {}
    for u, v in sorted(edges, key=lambda edge: -edges[edge][0]):
        served = [
            edge
            for edge in sorted(edges, key=lambda edge: (edge[1] - edge[0]) % SIZE)
            if edge[0] == v and edges[edge][1] & edges[u, v][1]
        ]
        local = local_table(strategy, PeerId(f"n{v}"), subscriptions)
        tables[u, v] = oracle_rows(strategy, [local, *(tables[edge] for edge in served)])
    return {(PeerId(f"n{u}"), PeerId(f"n{v}")): _as_table(rows) for (u, v), rows in tables.items()}


def tree_oracle(
    strategy: str, topologies: Mapping[PeerId, TreeTopology], subscriptions: Subscriptions
) -> dict[tuple[PeerId, PeerId], Table]:
    """The fixpoint on a tree, by walking into it."""

    def rows(u: PeerId, v: PeerId) -> list[tuple[str, Filter]]:
        behind = [rows(v, w) for w in sorted(topologies[v].edges()) if w != u]
        return oracle_rows(strategy, [local_table(strategy, v, subscriptions), *behind])

    return {(u, v): _as_table(rows(u, v)) for u in topologies for v in topologies[u].edges()}


def _as_table(rows: list[tuple[str, Filter]]) -> Table:
    return tuple(sorted((name, wanted.text) for name, wanted in rows))
