"""Layers in synchronous rounds: how many rounds until everybody has an event, and at what cost.

Events are published by members in turn, in the rounds after the layer's start and, by half of them,
later, when all have taken turns. The digest's table is of random lids, whose layers are slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from peersub.overlays.core.identity import numbered_node
from peersub.overlays.dag.graph import layer_graph
from peersub.overlays.dag.rounds import LayerRounds, Spreading, spread

__all__ = ["LayerPoint", "measure_layer"]

EVENTS: Final = 100
"""Per graph and time of publication."""
LATER_ROUNDS: Final = 200
"""After so many rounds the second half of the events is published."""
WINDOW_ROUNDS: Final = 16
"""They are published in so many rounds, one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPoint:
    """Layers of one size and degree; means and extremes over graphs and events."""

    members: int
    degree: int
    edges_mean: float
    rounds_mean: float
    rounds_max: int
    sinks_share: float
    copies_over: int
    """By how much the costliest event exceeds 2 * edges copies, everybody sending to all."""
    skipping_copies_over: int
    """By how much it exceeds 2 * edges - (members - 1), nobody sending it back."""
    copies_mean: float
    """Nobody sending it back."""
    turns_gap: int
    """The largest difference of neighbours' numbers of turns, ever."""
    missed: int
    """Members that some event did not reach."""


def measure_layer(members: int, degree: int, seeds: Sequence[int]) -> LayerPoint:
    """Measure layers of this size, one for each seed."""
    names = [numbered_node(number) for number in range(members)]
    edges: list[int] = []
    spreads: list[Spreading] = []
    gaps: list[int] = []
    for seed in seeds:
        graph = layer_graph(seed, "bench", names, degree)
        layer = LayerRounds(graph)
        publishers = (np.arange(EVENTS) * members) // EVENTS
        for begin in (0, LATER_ROUNDS):
            while layer.rounds < begin:
                layer.take_turns()
                gaps.append(_turns_gap(layer))
            begins = layer.rounds + np.arange(EVENTS) % WINDOW_ROUNDS
            spreads.append(spread(layer, publishers, begins, layer.rounds + members * members))
            edges.append(graph.edges)
            gaps.append(_turns_gap(layer))
    rounds = np.concatenate([each.rounds for each in spreads])
    skipping = [each.copies_without_senders for each in spreads]
    return LayerPoint(
        members=members,
        degree=degree,
        edges_mean=float(np.mean(edges)),
        rounds_mean=float(rounds.mean()),
        rounds_max=int(rounds.max()),
        sinks_share=float(np.mean([each.sinks_share for each in spreads])),
        copies_over=max(
            int(each.copies.max()) - 2 * count for each, count in zip(spreads, edges, strict=True)
        ),
        skipping_copies_over=max(
            int(each.max()) - (2 * count - (members - 1))
            for each, count in zip(skipping, edges, strict=True)
        ),
        copies_mean=float(np.mean(skipping)),
        turns_gap=max(gaps),
        missed=sum(int((each.arrivals < 0).sum()) for each in spreads),
    )


def _turns_gap(layer: LayerRounds) -> int:
    return int(np.abs(layer.turns[layer.origins] - layer.turns[layer.targets]).max(initial=0))
