"""Everything that may have happened to one event, as an observer who knows the graph sees it.

The model. A layer has its converged graph and goes through synchronous rounds (`dag.rounds`). One
event is published: by any member with the same probability, after any round of a window with the
same probability. A *hypothesis* is a publisher and a time; it decides who sends the event to whom
in which round. Publishing at any time between two turns of a member comes to the same, so these are
one hypothesis with a weight. Nobody sends the event back to whom it came from first.

`turns_of` is the overlay dag; `flood_of` is flooding on the same graph in the same rounds:
everybody who got the event in one round sends it in the next, without waiting for a turn. How a
flood spreads does not depend on when it begins, so its times count from the first copy that an
observer sees, and one hypothesis per publisher is enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from peersub.overlays.dag.graph import LayerGraph
from peersub.overlays.dag.rounds import NEVER, LayerRounds, Spreading, spread

__all__ = ["Hypotheses", "flood_of", "turns_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypotheses:
    """All hypotheses about one event in one layer."""

    members: int
    publishers: np.ndarray
    """Per hypothesis who published."""
    weights: np.ndarray
    """Per hypothesis in how many rounds of the window that member may have published so."""
    origins: np.ndarray
    targets: np.ndarray
    """Per directed edge who sends to whom."""
    when: np.ndarray
    """Per hypothesis (rows) and directed edge the round of the event's copy; `NEVER` if none."""
    times_are_relative: bool
    """Whether rounds mean something only against each other."""

    def __len__(self) -> int:
        return len(self.publishers)


class _EverybodysTurn(LayerRounds):
    """Flooding: in each round everybody sends what it has got in the round before."""

    def take_turns(self) -> np.ndarray:
        self.rounds += 1
        return np.arange(self.members)


def flood_of(graph: LayerGraph) -> Hypotheses:
    """Flooding on this graph."""
    layer = _EverybodysTurn(graph)
    publishers = np.arange(layer.members)
    found = spread(layer, publishers, np.zeros(layer.members, np.int64), layer.members + 1)
    weights = np.ones(layer.members, np.int64)
    return _hypotheses(layer, publishers, weights, found, times_are_relative=True)


def turns_of(graph: LayerGraph, *, begins: int, window: int) -> Hypotheses:
    """Turns on this graph; the event is published in the `window` rounds after so many rounds."""
    publishers, times, weights = _distinct(graph, begins, window)
    layer = LayerRounds(graph)
    for _ in range(begins):
        layer.take_turns()
    # Each member waits for at most as many rounds as the longest way of the orientation.
    found = spread(layer, publishers, times, begins + window + layer.members * layer.members)
    return _hypotheses(layer, publishers, weights, found, times_are_relative=False)


def _distinct(
    graph: LayerGraph, begins: int, window: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Publishers and times that come to different things, and how many rounds each stands for."""
    layer = LayerRounds(graph)
    for _ in range(begins):
        layer.take_turns()
    before = []
    for _ in range(window):
        before.append(layer.turns.copy())
        layer.take_turns()
    # Turns taken before the event was published: equal numbers wait for the same turn.
    taken = np.array(before)
    publishers, times, weights = [], [], []
    for member in range(layer.members):
        _, firsts, counts = np.unique(taken[:, member], return_index=True, return_counts=True)
        publishers.append(np.full(len(firsts), member))
        times.append(begins + firsts)
        weights.append(counts)
    return np.concatenate(publishers), np.concatenate(times), np.concatenate(weights)


def _hypotheses(
    layer: LayerRounds,
    publishers: np.ndarray,
    weights: np.ndarray,
    found: Spreading,
    *,
    times_are_relative: bool,
) -> Hypotheses:
    assert (found.rounds != NEVER).all(), "an event must reach everybody"
    came_from_there = found.senders[layer.origins] == layer.targets[:, np.newaxis]
    when = np.where(came_from_there, NEVER, found.sent[layer.origins])
    return Hypotheses(
        members=layer.members,
        publishers=publishers,
        weights=weights,
        origins=layer.origins,
        targets=layer.targets,
        when=np.ascontiguousarray(when.T.astype(np.int32)),
        times_are_relative=times_are_relative,
    )
