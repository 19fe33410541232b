"""Figure 4: false positives and false negatives of the similarity graph, by the number of peers.

Networks are converged: each peer has the neighbours that it would choose if it knew everybody, by
the bits of a sample. A document begins at a peer drawn among those that match it; one that nobody
matches goes nowhere. Who receives it is worked out in bulk; some documents are followed peer by
peer as well, and the outcome must be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from time import process_time
from typing import Final

import numpy as np

from peersub.bench.semantic.workload import SemanticWorkload
from peersub.overlays.core.draws import draw_below
from peersub.overlays.semantic.metrics import RoutingMetrics
from peersub.overlays.similarity.bulk import Routed, SimilarityGraph, route, similarity_graph
from peersub.overlays.similarity.forwarding import STOPPED, event_draw, forward_share, left_of
from peersub.overlays.similarity.settings import PAPER, SimilaritySettings

__all__ = ["GRAPHS", "GraphPoint", "measure_graphs"]

GRAPHS: Final[dict[str, SimilaritySettings]] = {
    "paper, ρ = 100 %": PAPER,
    "paper, ρ = 50 %": replace(PAPER, random_forward=0.5),
    "ours": SimilaritySettings(),
}
"""The paper's two settings, and what the overlay does by default."""
FOLLOWED_MAX: Final = 4
"""Documents that are followed peer by peer at each size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPoint:
    """One network at one size.

    Attributes:
        degree_mean: neighbours of a peer, chosen and choosing.
        build_seconds: processor time until everybody has its neighbours.
        wrong: what the checks found.
    """

    name: str
    peers: int
    metrics: RoutingMetrics
    degree_mean: float
    degree_max: int
    build_seconds: float
    route_seconds: float
    wrong: tuple[str, ...]


def measure_graphs(
    workload: SemanticWorkload,
    name: str,
    settings: SimilaritySettings,
    sizes: Sequence[int],
    seed: int,
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[GraphPoint]:
    """Measure a network of each size."""
    for size in sizes:
        started = process_time()
        classes = np.array(workload.classes.of[:size])
        graph = similarity_graph(workload.sampled[:, classes].T, settings, seed)
        built = process_time()
        matches = workload.matches[:, classes]
        names = [f"d{number}" for number in range(len(matches))]
        origins = _origins(matches, names, seed)
        routed = route(graph, matches, origins, settings, seed, names)
        metrics = routed.totals(matches).metrics()
        point = GraphPoint(
            name=name,
            peers=size,
            metrics=metrics,
            degree_mean=float(graph.degrees.mean()),
            degree_max=int(graph.degrees.max()),
            build_seconds=built - started,
            route_seconds=process_time() - built,
            wrong=tuple(_followed(graph, matches, origins, settings, seed, names, routed)),
        )
        verdict = f", WRONG: {point.wrong[0]}" if point.wrong else ""
        progress(
            f"graph, {name}, {size:,} peers: false positives {metrics.false_positive_ratio:.2%}, "
            f"false negatives {metrics.false_negative_ratio:.2%}, "
            f"{process_time() - started:.1f} s{verdict}"
        )
        yield point


def _origins(matches: np.ndarray, names: Sequence[str], seed: int) -> np.ndarray:
    """Per document a peer that matches it; -1 if there is none."""
    origins = np.full(len(matches), -1, np.int64)
    for number, name in enumerate(names):
        matching = np.flatnonzero(matches[number])
        if len(matching):
            origins[number] = matching[draw_below(len(matching), seed, "origin", name)]
    return origins


def _followed(
    graph: SimilarityGraph,
    matches: np.ndarray,
    origins: np.ndarray,
    settings: SimilaritySettings,
    seed: int,
    names: Sequence[str],
    routed: Routed,
) -> Iterator[str]:
    """Follow some documents, and say where the outcome differs."""
    for number in Random(len(graph)).sample(range(len(names)), min(FOLLOWED_MAX, len(names))):
        rows = slice(*np.searchsorted(routed.events, [number, number + 1]))
        found = dict(zip(routed.members[rows].tolist(), routed.hops[rows].tolist(), strict=True))
        drawn = event_draw(seed, names[number])
        if found != _hops_of(graph, matches[number], int(origins[number]), settings, drawn):
            yield f"document {number} reaches others than by following it"


def _hops_of(
    graph: SimilarityGraph,
    matches: np.ndarray,
    origin: int,
    settings: SimilaritySettings,
    drawn: int,
) -> dict[int, int]:
    """Who receives a document, and after how many hops: one peer after the other."""
    hops: dict[int, int] = {}
    passed_with: dict[int, int] = {}
    copies = [] if origin < 0 else [(origin, -1, settings.indulgence, 0)]
    for member, sender, indulgence, hop in copies:
        hops.setdefault(member, hop)
        left = left_of(indulgence, bool(matches[member]) or graph.is_cold)
        if left <= passed_with.get(member, STOPPED):
            continue
        passed_with[member] = left
        spreads = graph.is_cold or (hop == 0 and settings.origin_spreads)
        for edge in range(graph.starts[member], graph.starts[member + 1]):
            other = int(graph.targets[edge])
            places = int(graph.places[member]), int(graph.places[other])
            if other != sender and (
                graph.is_near[edge]
                or spreads
                or forward_share(drawn, *places) < settings.random_forward
            ):
                copies.append((other, member, left, hop + 1))
    return hops
