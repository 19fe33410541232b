"""The flood as a plan: the graph alone, whose edges are open for everything."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from peersub.overlays.bulk import Plan, Subscriptions
from peersub.overlays.bulk_building import edges_of, no_keys
from peersub.overlays.bulk_routing import flood as route
from peersub.overlays.flood.converged import linked_places
from peersub.overlays.flood.router import FloodSettings

__all__ = ["needs_subscriptions", "plan", "route"]


def needs_subscriptions(settings: FloodSettings) -> bool:
    """Never: everything goes everywhere."""
    return False


def plan(
    nodes: Sequence[str],
    seed: int,
    settings: FloodSettings,
    *,
    keys: Sequence[int] | None = None,
    subscriptions: Subscriptions | None = None,
) -> Plan:
    """The random graph. A node sends to its neighbours in the order of their names."""
    no_keys("flood", keys)
    linked = linked_places(nodes, seed, [settings.degree] * len(nodes))
    targets = [sorted(places, key=nodes.__getitem__) for places in linked]
    starts = np.cumsum([0, *map(len, targets)])
    return Plan(
        overlay="flood",
        names=tuple(nodes),
        keys=None,
        edges=edges_of(starts, [target for places in targets for target in places]),
        sources=None,
    )
