"""The broker tree as a plan.

On a circle that has each node before all that is below it, and subtrees one after the other, the
nodes below an edge are a run, and the nodes above it are the rest of the circle: a run as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from peersub.overlays.bulk import Edges, NodeRuns, Plan, Sources, Subscriptions
from peersub.overlays.bulk_building import (
    edges_of,
    no_keys,
    routing_peers,
    row_sources,
    subscriptions_needed,
)
from peersub.overlays.bulk_routing import spread as route
from peersub.overlays.tree.converged import converge, parent_place
from peersub.overlays.tree.peer import TreePeer, TreeSettings

__all__ = ["needs_subscriptions", "plan", "route"]


def needs_subscriptions(settings: TreeSettings) -> bool:
    """If what an edge lets pass depends on how filters were merged."""
    return not settings.routing.maintenance.strategy.is_union


def plan(
    nodes: Sequence[str],
    seed: int,
    settings: TreeSettings,
    *,
    keys: Sequence[int] | None = None,
    subscriptions: Subscriptions | None = None,
) -> Plan:
    """The balanced tree, the first node at its root."""
    no_keys("tree", keys)
    parents = np.array(
        [-1] + [parent_place(place, settings.children_max) for place in range(1, len(nodes))]
    )
    edges = _edges(parents)
    sources: Sources
    if needs_subscriptions(settings):
        sources = _rows(nodes, seed, settings, edges, subscriptions)
    else:
        sources = _runs(parents, edges)
    return Plan(overlay="tree", names=tuple(nodes), keys=None, edges=edges, sources=sources)


def _edges(parents: np.ndarray) -> Edges:
    """From each node to its parent and its children."""
    children = np.arange(1, len(parents))
    origins = np.concatenate([children, parents[1:]])
    targets = np.concatenate([parents[1:], children])
    order = np.lexsort((targets, origins))
    starts = np.searchsorted(origins[order], np.arange(len(parents) + 1))
    return edges_of(starts, targets[order])


def _runs(parents: np.ndarray, edges: Edges) -> NodeRuns:
    count = len(parents)
    sizes = np.ones(count, np.int32)
    for place in range(count - 1, 0, -1):
        sizes[parents[place]] += sizes[place]
    places = np.zeros(count, np.int32)
    free = np.zeros(count, np.int32)
    """Per node the places below it that its children have taken."""
    for place in range(1, count):
        above = parents[place]
        places[place] = places[above] + 1 + free[above]
        free[above] += sizes[place]
    origins, targets = edges.origins, edges.targets
    is_down = parents[targets] == origins
    below = np.where(is_down, targets, origins)
    return NodeRuns(
        places=places,
        starts=np.where(is_down, places[below], (places[below] + sizes[below]) % count).astype(
            np.int32
        ),
        lengths=np.where(is_down, sizes[below], count - sizes[below]).astype(np.int32),
    )


def _rows(
    nodes: Sequence[str],
    seed: int,
    settings: TreeSettings,
    edges: Edges,
    subscriptions: Subscriptions | None,
) -> Sources:
    given = subscriptions_needed("tree", subscriptions)
    peers = routing_peers(TreePeer, nodes, [settings] * len(nodes), seed)
    converge(peers, given)
    return row_sources(peers, edges, lambda _edge, _reach: 0)
