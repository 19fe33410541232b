"""What the plans of several overlays are built with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from peersub.overlays.bulk import Edges, RowSources, Subscriptions
from peersub.overlays.core.identity import PeerId
from peersub.overlays.routing.engine import RoutingEngine
from peersub.overlays.routing.topology import Scope
from peersub.overlays.settings import SettingsError

__all__ = ["edges_of", "no_keys", "row_sources", "routing_peers", "subscriptions_needed"]


class RoutingPeer(Protocol):
    """A peer of an overlay that has routing tables."""

    me: PeerId
    engine: RoutingEngine


P = TypeVar("P", bound=RoutingPeer)


def edges_of(starts: np.ndarray, targets: Sequence[int] | np.ndarray) -> Edges:
    """Edges of a network that has no parts: all that lies behind an edge is its own."""
    count = len(targets)
    return Edges(
        starts=starts.astype(np.int64),
        targets=np.asarray(targets, np.int32),
        offsets=np.zeros(count, np.int32),
        spans=np.full(count, len(starts) - 1, np.int32),
        labels=np.zeros(count, np.int32),
        arcs=np.zeros((count, 2), np.int64),
    )


def no_keys(overlay: str, keys: Sequence[int] | None) -> None:
    """Nodes of this overlay have no keys.

    Raises:
        SettingsError: some are given.
    """
    if keys is not None:
        raise SettingsError(f"nodes of {overlay} have no keys: keys go with chord")


def subscriptions_needed(overlay: str, subscriptions: Subscriptions | None) -> Subscriptions:
    """The subscriptions, which this plan cannot do without.

    Raises:
        SettingsError: there are none.
    """
    if subscriptions is None:
        raise SettingsError(f"what this {overlay} lets pass depends on its filters: give them")
    return subscriptions


def routing_peers(
    make: Callable[[PeerId, Any, int], P], nodes: Sequence[str], settings: Sequence[Any], seed: int
) -> list[P]:
    """Peers with these settings that share what they work out about filters."""
    peers = [make(PeerId(node), own, seed) for node, own in zip(nodes, settings, strict=True)]
    for peer in peers:
        peer.engine.maintenance.strategy = peers[0].engine.maintenance.strategy
    return peers


def row_sources(
    peers: Sequence[RoutingPeer], edges: Edges, nearest: Callable[[int, Scope], int]
) -> RowSources:
    """The rows on the edges of converged peers, which are in the order of the plan's nodes.

    Args:
        peers: the peers.
        edges: the plan's.
        nearest: from an edge and a row's reach to how many places after the edge's end the first
            node stands that the row reaches.
    """
    known: dict[bytes, int] = {}
    filters: list[bytes] = []
    rows_of: list[int] = []
    edges_of_rows: list[int] = []
    distances: list[int] = []
    for edge, (origin, target) in enumerate(
        zip(edges.origins.tolist(), edges.targets.tolist(), strict=True)
    ):
        on_edge: dict[int, int] = {}
        for entry in peers[origin].engine.maintenance.told(peers[target].me).entries:
            digest = entry.filter.digest
            row = known.get(digest)
            if row is None:
                row = known[digest] = len(filters)
                filters.append(entry.filter.to_bytes())
            distance = nearest(edge, entry.reach)
            on_edge[row] = min(distance, on_edge.get(row, distance))
        rows_of += on_edge
        edges_of_rows += [edge] * len(on_edge)
        distances += on_edge.values()
    numbers = np.array(rows_of, np.int64)
    order = np.argsort(numbers, kind="stable")
    return RowSources(
        filters=tuple(filters),
        starts=np.searchsorted(numbers[order], np.arange(len(filters) + 1)).astype(np.int64),
        edges=np.array(edges_of_rows, np.int32)[order],
        nearest=np.array(distances, np.int32)[order],
    )
