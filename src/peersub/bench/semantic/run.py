"""`peersub bench semantic`: what is measured, and the whole result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from peersub.bench.semantic.graphs import GRAPHS, GraphPoint, measure_graphs
from peersub.bench.semantic.trees import (
    REORGANISATIONS,
    RULES,
    TreePoint,
    broadcast_metrics,
    grow_tree,
)
from peersub.bench.semantic.workload import SemanticWorkload, draw_workload
from peersub.overlays.containment.building import BuildSettings, Reorganisation
from peersub.overlays.containment.structure import ParentRule
from peersub.overlays.semantic.metrics import RoutingMetrics
from peersub.workloads.xml import Schema

__all__ = ["SemanticResult", "SemanticSettings", "run_semantic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticSettings:
    """The knobs of the benchmark.

    Args:
        peers: sizes of the networks, growing; each peer has one pattern.
        documents: how many are measured.
        sample: documents by which peers judge filters; others than those that are measured.
        always_max: the largest network in which everybody reorganises after every join.
        rules: parent rules of the containment tree.
        reorganisations: ways to reorganise it.
        graphs: names of settings of the similarity graph, out of `GRAPHS`.
        seed: of patterns, documents and all draws.

    Raises:
        ValueError: a knob is out of range; the message names it.
    """

    peers: tuple[int, ...] = (1_000, 2_000, 5_000, 10_000, 20_000)
    documents: int = 1_000
    sample: int = 256
    always_max: int = 20_000
    rules: tuple[ParentRule, ...] = RULES
    reorganisations: tuple[Reorganisation, ...] = REORGANISATIONS
    graphs: tuple[str, ...] = tuple(GRAPHS)
    seed: int = 1

    def __post_init__(self) -> None:
        if not self.peers or min(self.peers) < 1:
            raise ValueError("peers are numbers from 1 on, and there is at least one")
        if list(self.peers) != sorted(set(self.peers)):
            raise ValueError("peers are numbers that grow: 1000,2000,5000")
        for name in ("documents", "sample"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1, not {getattr(self, name)}")
        choices: tuple[tuple[str, tuple[str, ...]], ...] = (
            ("rules", RULES),
            ("reorganisations", REORGANISATIONS),
            ("graphs", tuple(GRAPHS)),
        )
        for name, known in choices:
            for each in getattr(self, name):
                if each not in known:
                    raise ValueError(f"{name} are {', '.join(known)}, not {each!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticResult:
    """All that was measured."""

    settings: SemanticSettings
    schema: str
    workload: SemanticWorkload
    broadcast: tuple[tuple[int, RoutingMetrics], ...]
    trees: tuple[TreePoint, ...]
    graphs: tuple[GraphPoint, ...]

    @property
    def wrong(self) -> list[str]:
        """What the checks found."""
        points: tuple[TreePoint | GraphPoint, ...] = (*self.trees, *self.graphs)
        return [
            *(f"lxml says otherwise: {each}" for each in self.workload.disagreements),
            *(
                f"{point.name}, {point.peers:,} peers: {each}"
                for point in points
                for each in point.wrong
            ),
        ]


def run_semantic(
    schema: Schema,
    schema_name: str,
    settings: SemanticSettings,
    progress: Callable[[str], None] = lambda _: None,
) -> SemanticResult:
    """Draw the workload, and measure both overlays on it."""
    workload = draw_workload(
        schema,
        peers=settings.peers[-1],
        documents=settings.documents,
        sample=settings.sample,
        seed=settings.seed,
        progress=progress,
    )
    trees: list[TreePoint] = []
    for rule in settings.rules:
        for how in settings.reorganisations:
            largest = settings.always_max if how == "always" else settings.peers[-1]
            sizes = [size for size in settings.peers if size <= largest]
            built = BuildSettings(rule=rule, reorganisation=how, seed=settings.seed)
            trees += grow_tree(workload, built, sizes, progress)
    graphs: list[GraphPoint] = []
    for name in settings.graphs:
        graphs += measure_graphs(
            workload, name, GRAPHS[name], settings.peers, settings.seed, progress
        )
    return SemanticResult(
        settings=settings,
        schema=schema_name,
        workload=workload,
        broadcast=tuple((size, broadcast_metrics(workload, size)) for size in settings.peers),
        trees=tuple(trees),
        graphs=tuple(graphs),
    )
