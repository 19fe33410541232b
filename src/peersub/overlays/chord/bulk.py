"""The Chord overlay as a plan.

Fingers, arcs and labels are those of `topology`, with distances counted in nodes: arcs begin and
end at nodes, so an arc is a number of nodes that follow each other.

The sources of an edge are a run of the ring. F*(u -> v) is v and the sources of the fingers of v
that stand within r_u(v) (section 4.4). By induction from the largest label down, the sources of
each of them are a run that begins at the finger and goes at least to the end of its arc, where the
next finger stands; so together with v, which is alone up to its first finger, they are a run that
begins at v, and its end is the farthest of theirs. It may lie beyond the arc, which is why an event
sometimes visits a node for the sake of others that it is not for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from peersub.overlays.bulk import Edges, NodeRuns, Plan, Sources, Subscriptions
from peersub.overlays.bulk_building import routing_peers, row_sources, subscriptions_needed
from peersub.overlays.bulk_routing import spread as route
from peersub.overlays.chord.arcs import contains
from peersub.overlays.chord.converged import converge, finger_turns, free_keys
from peersub.overlays.chord.peer import ChordPeer
from peersub.overlays.chord.settings import ChordSettings
from peersub.overlays.routing.topology import Scope
from peersub.overlays.settings import SettingsError

__all__ = ["needs_subscriptions", "plan", "route"]


def needs_subscriptions(settings: ChordSettings) -> bool:
    """If what an edge lets pass depends on how filters were merged, or on whom they reach."""
    return not settings.routing.maintenance.strategy.is_union


def plan(
    nodes: Sequence[str],
    seed: int,
    settings: ChordSettings,
    *,
    keys: Sequence[int] | None = None,
    subscriptions: Subscriptions | None = None,
) -> Plan:
    """The ring with all fingers right."""
    if keys is not None and len(keys) != len(nodes):
        raise SettingsError(f"{len(keys):,} keys are given for {len(nodes):,} nodes")
    given = [settings] * len(nodes) if keys is None else [replace(settings, key=k) for k in keys]
    placed = free_keys(zip(nodes, given, strict=True), seed)
    clockwise = np.argsort(np.array(placed, np.int64))
    turns = np.empty(len(nodes), np.int32)
    turns[clockwise] = np.arange(len(nodes))
    ring = sorted(placed)
    edges = _edges(ring, clockwise, turns, settings.key_bits)
    sources: Sources
    if needs_subscriptions(settings):
        peers = routing_peers(ChordPeer, nodes, given, seed)
        converge(peers, subscriptions_needed("chord", subscriptions))
        sources = row_sources(peers, edges, _Nearest(ring, edges, settings.size))
    else:
        lengths = _run_lengths(edges)
        sources = NodeRuns(places=turns, starts=turns[edges.targets], lengths=lengths)
    return Plan(
        overlay="chord",
        names=tuple(nodes),
        keys=np.array(placed, np.int64),
        edges=edges,
        sources=sources,
    )


def _edges(ring: list[int], clockwise: np.ndarray, turns: np.ndarray, bits: int) -> Edges:
    """The fingers of all nodes: of each node clockwise, nodes by their number."""
    count, size = len(ring), 1 << bits
    starts = [0]
    found: list[tuple[int, int, int, int, int]] = []
    for turn in turns.tolist():
        fingers = finger_turns(turn, ring, bits)
        offsets = sorted((other - turn) % count for other in fingers)
        for offset, end in zip(offsets, [*offsets, count][1:], strict=True):
            other, after = (turn + offset) % count, (turn + end) % count
            length = (ring[after] - ring[other]) % size
            found.append((other, offset, end - offset, fingers[other], length))
        starts.append(len(found))
    table = np.array(found, np.int64).reshape(-1, 5)
    others = table[:, 0]
    return Edges(
        starts=np.array(starts, np.int64),
        targets=clockwise[others].astype(np.int32),
        offsets=table[:, 1].astype(np.int32),
        spans=table[:, 2].astype(np.int32),
        labels=table[:, 3].astype(np.int32),
        arcs=np.stack([np.array(ring, np.int64)[others], table[:, 4]], axis=1),
    )


def _run_lengths(edges: Edges) -> np.ndarray:
    """How many nodes open each edge, from the largest label down: labels fall along updates."""
    count = len(edges.starts) - 1
    lengths = np.ones(len(edges), np.int32)
    degrees = np.diff(edges.starts)
    columns = np.arange(len(edges)) - np.repeat(edges.starts[:-1], degrees)
    origins = edges.origins
    offsets = np.full((count, int(degrees.max(initial=0))), count, np.int32)
    offsets[origins, columns] = edges.offsets
    ends = np.ones_like(offsets)
    """Per node and finger where the finger's run ends, in places after the node."""
    for label in np.unique(edges.labels)[::-1]:
        these = np.flatnonzero(edges.labels == label)
        targets = edges.targets[these]
        # Fingers within the arc have larger labels: their ends are known.
        is_served = offsets[targets] < edges.spans[these, None]
        longest = np.where(is_served, ends[targets], 1).max(axis=1)
        lengths[these] = np.minimum(longest, count)
        ends[origins[these], columns[these]] = edges.offsets[these] + lengths[these]
    return lengths


class _Nearest:
    """How many places after an edge's end the first node stands that a row reaches.

    Arcs of a reach begin at nodes. One that holds the edge's end is met by every part of the edge.
    """

    def __init__(self, ring: list[int], edges: Edges, size: int) -> None:
        self._ring = ring
        self._starts: list[int] = edges.arcs[:, 0].tolist()
        self._size = size

    def __call__(self, edge: int, reach: Scope) -> int:
        key = self._starts[edge]
        arcs = list(zip(reach[::2], reach[1::2], strict=True))
        if not arcs or any(contains(arc, key, self._size) for arc in arcs):
            return 0
        turn, ring = bisect_left(self._ring, key), self._ring
        return min((bisect_left(ring, start) - turn) % len(ring) for start, _ in arcs)
