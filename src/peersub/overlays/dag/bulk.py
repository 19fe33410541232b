"""Layers as a plan, over which each event is routed as the first one of a network at rest.

Whose turn it is when an event comes depends on all events before it. So the law is stated for
events that are published one at a time, each into the network as it was converged: the receivers,
the copies that each gets and the deliveries are those of the simulator (one latency for all links,
no faults, no hold that ends meanwhile). So are first senders and hops of events whose layers share
no member. Who is on two layers of an event gets it first where fewer ticks pass, and if these are
equal on the layer of the topic; the simulator also looks at the order within a tick, and at the
time that a publisher needs to dial the member that relays for it.

Hops are counted as in a trace (`trace.hops`): one more than those of whom the event came from
first, on whichever layer that got it. A publisher outside a layer hands the event to the first
member, which publishes it as its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from peersub.overlays.bulk import LayerSources, Plan, Receipts, Sets, Subscriptions
from peersub.overlays.bulk_building import edges_of, no_keys, subscriptions_needed
from peersub.overlays.bulk_routing import CELLS_MAX, wanted_by, within
from peersub.overlays.dag.cascade import LayerEdges, cascades
from peersub.overlays.dag.graph import layer_graph
from peersub.overlays.dag.settings import DagSettings
from peersub.overlays.dag.topics import CATCH_ALL, layers_of, topic_path

__all__ = ["needs_subscriptions", "plan", "plan_of_layers", "route"]


def needs_subscriptions(settings: DagSettings) -> bool:
    """Always: layers are made of those who want their events."""
    return True


def plan(
    nodes: Sequence[str],
    seed: int,
    settings: DagSettings,
    *,
    keys: Sequence[int] | None = None,
    subscriptions: Subscriptions | None = None,
) -> Plan:
    """The layers that these nodes form. A member sends to its neighbours by their names."""
    no_keys("dag", keys)
    given = subscriptions_needed("dag", subscriptions)
    path = topic_path(settings.topic)
    members: dict[str, list[int]] = {}
    for number, node in enumerate(nodes):
        layers = {
            layer: None
            for wanted in given.get(node, {}).values()
            for layer in layers_of(wanted, path)
        }
        for layer in layers:
            members.setdefault(layer, []).append(number)
    return plan_of_layers(nodes, seed, settings, sorted(members.items()))


def plan_of_layers(
    nodes: Sequence[str],
    seed: int,
    settings: DagSettings,
    members: Iterable[tuple[str, Sequence[int]]],
) -> Plan:
    """The plan of layers whose members are known.

    Args:
        nodes: their names.
        seed: the network's.
        settings: of the overlay.
        members: layers in the order of their names, each with its nodes in their order.
    """
    names: list[str] = []
    seats: list[int] = []
    starts, edge_starts = [0], [0]
    targets: list[int] = []
    tokens: list[bool] = []
    for name, its in members:
        graph = layer_graph(seed, name, [nodes[number] for number in its], settings.degree)
        first = len(seats)
        for member, others in enumerate(graph.neighbours):
            targets += [first + other for other in others]
            tokens += [graph.holds_token(member, other) for other in others]
            edge_starts.append(len(targets))
        names.append(name)
        seats += its
        starts.append(len(seats))
    edges = edges_of(np.array(edge_starts), np.array(targets, np.int32))
    edges.labels[:] = tokens
    return Plan(
        overlay="dag",
        names=tuple(nodes),
        keys=None,
        edges=edges,
        sources=LayerSources(
            names=tuple(names),
            starts=np.array(starts, np.int64),
            nodes=np.array(seats, np.int32),
        ),
    )


def route(plan: Plan, publishers: np.ndarray, interested: Sets, wanted: Sets) -> Iterator[Receipts]:
    """Route events on the layers that they are published on (`interested`)."""
    ways = _Ways(plan)
    ahead = _Entries(ways, publishers, interested)
    # Events that enter by the same seats stand together, so that their ways are worked out once.
    order = np.lexsort((ahead.first_entries, publishers))
    totals = np.cumsum(ahead.rows[order])
    start = 0
    while start < len(order):
        before = totals[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(totals, before + CELLS_MAX, side="right")))
        yield ways.receipts(order[start:end], publishers, ahead, wanted)
        start = end


class _Entries:
    """By which seats events enter their layers: an entry for each event and layer."""

    def __init__(self, ways: _Ways, publishers: np.ndarray, interested: Sets) -> None:
        self.starts = interested.starts
        layers = interested.numbers.astype(np.int64)
        nodes = publishers.astype(np.int64)[interested.rows()]
        keys = layers * ways.nodes + nodes
        seats = np.minimum(np.searchsorted(ways.seat_keys, keys), len(ways.seat_keys) - 1)
        self.is_relayed = ways.seat_keys[seats] != keys if len(keys) else np.zeros(0, np.bool_)
        self.seats = np.where(self.is_relayed, ways.sources.starts[layers], seats)
        """The publisher's own, or that of the member that it hands the event to."""
        self.layers = layers
        sizes = np.append(0, np.cumsum(np.diff(ways.sources.starts)[layers]))
        self.rows = sizes[self.starts[1:]] - sizes[self.starts[:-1]] + 1
        """Per event how many rows it makes."""
        has_some = np.diff(self.starts) > 0
        self.first_entries = np.full(len(publishers), -1)
        self.first_entries[has_some] = self.seats[self.starts[:-1][has_some]]


class _Ways:
    """The layers of a plan, and how events spread on them."""

    def __init__(self, plan: Plan) -> None:
        assert isinstance(plan.sources, LayerSources)
        edges = plan.edges
        self.sources = plan.sources
        self.nodes = len(plan.names)
        self.edges = LayerEdges.of(edges.starts, edges.targets, edges.labels == 1)
        sizes = np.diff(self.sources.starts)
        layer_of = np.repeat(np.arange(len(sizes)), sizes)
        self.seat_keys = layer_of * self.nodes + self.sources.nodes
        """Ascending: layer by layer, and there by node."""
        self.is_catch_all = np.array([name == CATCH_ALL for name in self.sources.names], np.bool_)

    def receipts(
        self, events: np.ndarray, publishers: np.ndarray, ahead: _Entries, wanted: Sets
    ) -> Receipts:
        """The receipts of some events."""
        counts = np.diff(ahead.starts)[events]
        entries = np.repeat(ahead.starts[events], counts) + within(counts)
        rows = self._rows(
            entries, ahead, publishers[events], np.repeat(np.arange(len(events)), counts)
        )
        firsts, cells = rows.firsts(self.nodes)
        owners, nodes = cells // self.nodes, cells % self.nodes
        senders = rows.senders[firsts]
        return Receipts(
            events=events[owners],
            nodes=nodes.astype(np.int32),
            senders=senders.astype(np.int32),
            hops=_hops(
                cells, np.where(senders < 0, -1, owners * self.nodes + senders), rows.ticks[firsts]
            ),
            messages=np.add.reduceat(rows.copies, firsts).astype(np.int32),
            wanted=wanted_by(
                wanted, self.nodes, events, np.bincount(owners, minlength=len(events)), nodes
            ),
        )

    def _rows(
        self, entries: np.ndarray, ahead: _Entries, publishers: np.ndarray, owners: np.ndarray
    ) -> _Rows:
        """What comes to nodes on each of the layers, and that publishers have their events."""
        seats, places = np.unique(ahead.seats[entries], return_inverse=True)
        layers = np.searchsorted(self.sources.starts, seats, side="right") - 1
        firsts, ends = self.sources.starts[layers], self.sources.starts[layers + 1]
        parts = list(cascades(self.edges, firsts, ends, seats))
        sizes = ends - firsts
        begins = np.cumsum(sizes) - sizes
        counts = sizes[places]
        taken = np.repeat(begins[places], counts) + within(counts)
        whose = np.repeat(np.arange(len(entries)), counts)
        found_seats, senders, ticks, copies = (
            np.concatenate([getattr(part, name) for part in parts] or [np.zeros(0, np.int64)])[
                taken
            ]
            for name in ("seats", "senders", "ticks", "copies")
        )
        is_relayed = ahead.is_relayed[entries][whose]
        begins_here = senders < 0
        relays = np.where(is_relayed, publishers[owners][whose], -1)
        count = len(publishers)
        return _Rows(
            owners=np.concatenate([np.arange(count), owners[whose]]),
            nodes=np.concatenate([publishers, self.sources.nodes[found_seats]]).astype(np.int64),
            senders=np.concatenate(
                [
                    np.full(count, -1),
                    np.where(begins_here, relays, self.sources.nodes[senders]),
                ]
            ),
            ticks=np.concatenate([np.full(count, -1), ticks + is_relayed]),
            copies=np.concatenate([np.zeros(count, np.int64), copies + (begins_here & is_relayed)]),
            ranks=np.concatenate(
                [np.zeros(count, np.int64), self.is_catch_all[ahead.layers[entries]][whose]]
            ),
        )


@dataclass(slots=True)
class _Rows:
    """Events at nodes, layer by layer: the same event may be at a node several times."""

    owners: np.ndarray
    nodes: np.ndarray
    senders: np.ndarray
    ticks: np.ndarray
    copies: np.ndarray
    ranks: np.ndarray

    def firsts(self, nodes: int) -> tuple[np.ndarray, np.ndarray]:
        """Sort the rows; where those of each event and node begin, and their cells."""
        cells = self.owners * nodes + self.nodes
        order = np.lexsort((self.ranks, self.ticks, cells))
        for name in self.__slots__:
            setattr(self, name, getattr(self, name)[order])
        cells = cells[order]
        firsts = np.flatnonzero(np.diff(cells, prepend=-1))
        return firsts, cells[firsts]


def _hops(cells: np.ndarray, sender_cells: np.ndarray, ticks: np.ndarray) -> np.ndarray:
    """Per cell one hop more than its sender's, which got the event at an earlier tick."""
    hops = np.zeros(len(cells), np.int32)
    before = np.searchsorted(cells, np.maximum(sender_cells, 0))
    order = np.argsort(ticks, kind="stable")
    bounds = np.flatnonzero(np.diff(ticks[order], prepend=-2))
    for start, end in pairwise([*bounds.tolist(), len(order)]):
        those = order[start:end]
        those = those[sender_cells[those] >= 0]
        hops[those] = hops[before[those]] + 1
    return hops
