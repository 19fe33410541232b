"""Plans: converged networks as arrays, over which all events are routed at once.

A plan is the network that `converged` sets peer by peer: the same graph, keys and edges, without
the peers. Nodes are numbered in the order of their names. Beside the edges a plan has *sources*:
whose interest opens an edge. There are six kinds:

* `NodeRuns`, where an edge wants what the nodes behind it want, no more and no less. That is so
  under every strategy whose tables are exact: simple, identity, covering and perfect merging. The
  nodes behind an edge stand next to each other on a circle, so they are a start and a length.
* `RowSources`, where an edge wants what the rows of its table want: under imperfect merging, which
  lets more pass, and where rows say whom they reach.
* `MemberSources`, where nodes host members, one for each filter: edges lead between members then,
  and what a member wants itself opens those that leave it.
* `LayerSources`, where nodes are members of layers: edges lead between *seats*, a node in a layer,
  and an event goes to all of the layers that it is published on.
* `PlaceSources`, where nodes hold places, and filters and the bits of events decide which of these
  an event comes to.
* None, where edges are always open.

Where nodes host very many members a plan says in `MemberTree` or `MemberGraph` who is linked with
whom, and has no other edges (`semantic.bulk_members`).

Laws of an overlay's `bulk` module (`BulkOverlay`): `plan` is a function of its arguments, and the
receipts of `route` are those of the simulator on the same network, started converged, without
faults and with one latency for all links: the same receivers, first senders, hops and messages.

An overlay joins by having a module `bulk` in its folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

import numpy as np

from peersub.filters.filter import Filter
from peersub.overlays.core.draws import draw_below
from peersub.overlays.registry import overlay_kind
from peersub.overlays.settings import SettingsError

__all__ = [
    "BulkOverlay",
    "Edges",
    "LayerSources",
    "MemberGraph",
    "MemberSources",
    "MemberTree",
    "Members",
    "NodeRuns",
    "PlaceSources",
    "Plan",
    "Receipts",
    "RowSources",
    "Sets",
    "Sources",
    "Subscriptions",
    "bulk_overlay",
    "publishers_of",
]

Subscriptions: TypeAlias = Mapping[str, Mapping[str, Filter]]
"""Per node the filters of its subscriptions, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """All directed edges, those of node u from `starts[u]` up to `starts[u + 1]`.

    Where a part of the network is handed on with an event (Chord's arcs), distances are counted in
    nodes: an event that comes to u with a span of s is for u and the s - 1 nodes that follow it on
    the circle. An edge gets the part of the span from its offset on, at most its own span. The
    edges of a node are sorted by offset. Elsewhere offsets are 0 and spans the number of nodes.
    """

    starts: np.ndarray
    targets: np.ndarray
    offsets: np.ndarray
    spans: np.ndarray
    labels: np.ndarray
    """Section 4.4 of the Chord overlay's paper; 0 where edges have none."""
    arcs: np.ndarray
    """Per edge the start and the length of its arc in keys, for readers; 0 and 0 if none."""

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def origins(self) -> np.ndarray:
        """Per edge the node that it leaves."""
        return np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), np.diff(self.starts))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRuns:
    """Sources are nodes: `places[node]` is a node's place on a circle of all nodes.

    Edge e is opened by the `lengths[e]` nodes from the place `starts[e]` on.
    """

    places: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSources:
    """Sources are the distinct filters of all tables, in their wire form.

    Filter r is a row of the edges `edges[starts[r]:starts[r + 1]]`; the first node that the row
    reaches is `nearest` places after the edge's end. It opens the edge for parts that hold it.
    """

    filters: tuple[bytes, ...]
    starts: np.ndarray
    edges: np.ndarray
    nearest: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Who takes part where a node hosts a member per filter, in the order of (node, slot)."""

    nodes: np.ndarray
    """Per member its node."""
    slots: np.ndarray
    """Per member its slot there."""

    def __len__(self) -> int:
        return len(self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTree:
    """A containment tree: classes of members, each below another or at the top level."""

    members: Members
    classes: np.ndarray
    """Per member its class."""
    parents: np.ndarray
    """Per class its parent; -1 at the top level."""
    ranks: np.ndarray
    """Per class the place of its first member's filter in the order of digests."""
    equal_degree: int
    top_degree: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberGraph:
    """A similarity graph: the links of member m are those from `starts[m]` to `starts[m + 1]`."""

    members: Members
    starts: np.ndarray
    targets: np.ndarray
    """Per link who is at its other end, in the order of members; each link is there twice."""
    is_near: np.ndarray
    """Per link whether one of its ends made it for what the other wants; else it is random."""
    places: np.ndarray
    """uint64 per member: the draw by which members are told apart."""
    counts: np.ndarray
    """Per member how many events of the sample it matches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSources:
    """Sources are the distinct filters of members, in their wire form.

    The plan's edges lead between members, which are numbered by node and slot. What the labels of
    edges mean is the overlay's affair.
    """

    filters: tuple[bytes, ...]
    nodes: np.ndarray
    """Per member the node that it lives on."""
    wants: np.ndarray
    """Per member its filter."""
    entrances: np.ndarray
    """Per node the member at which begins what none of its own members matches; -1 if there is no
    member at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSources:
    """Sources are layers. The plan's edges lead between seats, which are numbered layer by layer.

    The seats of layer l are those from `starts[l]` to `starts[l + 1]`, in the order of nodes. The
    label of an edge is 1 if the seat that it leaves holds its token.
    """

    names: tuple[str, ...]
    starts: np.ndarray
    nodes: np.ndarray
    """Per seat its node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceSources:
    """Sources are the distinct filters, in their wire form, and after them the bits of events.

    Which bits an event has is the overlay's affair.
    """

    filters: tuple[bytes, ...]
    lengths: np.ndarray
    bits: np.ndarray
    """Per node its place: how many bits it has, and which are set."""
    identifiers: Sets
    """Per filter the identifiers under which it is kept, int64."""
    homes: Sets
    """Per filter the nodes with a subscription to it."""
    quench: bool
    summary: int
    summary_filters: bool
    """What places tell of their interest, as the settings have it."""
    copies: int
    orders: int
    replicas: int
    answer_share: float
    """Who answers for places below, and how often, as the settings have it."""


Sources: TypeAlias = (
    NodeRuns
    | RowSources
    | MemberSources
    | MemberTree
    | MemberGraph
    | LayerSources
    | PlaceSources
    | None
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A converged network."""

    overlay: str
    names: tuple[str, ...]
    keys: np.ndarray | None
    """Where nodes have keys, those."""
    edges: Edges
    sources: Sources


@dataclass(frozen=True, slots=True)
class Sets:
    """Per event a set of numbers: those of event k are `numbers[starts[k]:starts[k + 1]]`.

    A number may be there more than once.
    """

    starts: np.ndarray
    numbers: np.ndarray

    @classmethod
    def of(cls, sets: Sequence[Sequence[int]], kind: type[np.integer[Any]] = np.int32) -> Sets:
        """The sets of a list.

        >>> Sets.of([[3, 1], [], [2]]).starts.tolist()
        [0, 2, 2, 3]
        """
        starts = np.zeros(len(sets) + 1, np.int64)
        np.cumsum([len(each) for each in sets], out=starts[1:])
        numbers = [number for each in sets for number in each]
        return cls(starts, np.array(numbers, kind))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def part(self, start: int, end: int) -> Sets:
        """The sets of the events from `start` up to `end`."""
        starts = self.starts[start : end + 1]
        return Sets(starts - starts[0], self.numbers[starts[0] : starts[-1]])

    def rows(self) -> np.ndarray:
        """Per number the event that it belongs to."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipts:
    """Who received which event; a row for each event and node, its publisher included."""

    events: np.ndarray
    """The event's place among those that were routed."""
    nodes: np.ndarray
    senders: np.ndarray
    """From whom it came first; -1 where it was published."""
    hops: np.ndarray
    messages: np.ndarray
    """All messages with the event that came to the node."""
    wanted: np.ndarray

    def __len__(self) -> int:
        return len(self.events)


class BulkOverlay(Protocol):
    """The module `bulk` of an overlay. Its laws are those of this module."""

    def needs_subscriptions(self, settings: Any) -> bool:
        """Whether a plan under these settings depends on what is subscribed."""
        ...

    def plan(
        self,
        nodes: Sequence[str],
        seed: int,
        settings: Any,
        *,
        keys: Sequence[int] | None = None,
        subscriptions: Subscriptions | None = None,
    ) -> Plan:
        """The network that these nodes converge to.

        Args:
            nodes: their names, at least one.
            seed: the network's, on which keyed draws depend.
            settings: of the overlay's settings class, the same for all nodes.
            keys: given keys, in the order of nodes; None draws them.
            subscriptions: what nodes want; needed if `needs_subscriptions`.

        Raises:
            SettingsError: the overlay's nodes have no keys, or subscriptions are missing.
        """
        ...

    def route(
        self, plan: Plan, publishers: np.ndarray, interested: Sets, wanted: Sets
    ) -> Iterator[Receipts]:
        """Route events, some at once so that memory is bounded; receipts come in parts.

        Args:
            plan: of this overlay.
            publishers: per event the node that publishes it.
            interested: per event the sources that want it: nodes, rows or filters of the plan, or
                the layers that it is published on.
            wanted: per event the nodes with a subscription that matches it.
        """
        ...


def bulk_overlay(name: str) -> BulkOverlay:
    """The bulk form of the overlay of this name.

    Raises:
        SettingsError: there is no such overlay, or it cannot be planned.
    """
    kind = overlay_kind(name)
    if not kind.is_planned:
        raise SettingsError(f"the overlay {name!r} cannot be planned: it has no bulk form")
    return cast(BulkOverlay, kind.part("bulk"))


def publishers_of(event_ids: Sequence[str], seed: int, nodes: int) -> np.ndarray:
    """Per event the node that publishes it: a keyed draw of the seed and the event's identifier."""
    return np.fromiter(
        (draw_below(nodes, seed, "publisher", event_id) for event_id in event_ids),
        np.int32,
        len(event_ids),
    )
