"""Figure 3: false positives of the containment tree against the number of peers.

One network per parent rule and way of reorganisation grows by sequential joins and is measured at
each size. A peer has one pattern, so peers are members. Documents are injected at the root, as in
the paper: at the crown. By the law of receivers, those are the peers that match, the class roots
right below a class that matches, and the top-level roots; the way of an event from the crown is the
path in the tree. So all documents are measured with tables of flags; that the law holds is checked
by following some documents edge by edge, and that nobody misses anything by looking at all edges
and all documents: whoever matches has a parent that does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from time import process_time
from typing import Final

import numpy as np

from peersub.bench.semantic.workload import SemanticWorkload
from peersub.overlays.containment.building import (
    Building,
    BuildSettings,
    Messages,
    Reorganisation,
)
from peersub.overlays.containment.structure import EdgeKind, ParentRule, TreeShape, route
from peersub.overlays.semantic.metrics import DocumentOutcome, RoutingMetrics, RoutingTotals

__all__ = ["REORGANISATIONS", "RULES", "TreePoint", "broadcast_metrics", "grow_tree"]

RULES: Final[tuple[ParentRule, ...]] = ("depth", "selectivity")
REORGANISATIONS: Final[tuple[Reorganisation, ...]] = (
    *("never", "local", "sometimes", "periodic", "always"),
)
FOLLOWED_MAX: Final = 8
"""Documents that are followed edge by edge at each size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePoint:
    """One network at one size.

    Attributes:
        messages: of the joins since the size before.
        joins: how many those were.
        seconds: processor time of all joins so far, once containment is known.
        wrong: what the checks found.
    """

    rule: ParentRule
    reorganisation: Reorganisation
    peers: int
    metrics: RoutingMetrics
    classes: int
    top_level: int
    depth: int
    fan_out: int
    messages: Messages
    joins: int
    seconds: float
    wrong: tuple[str, ...]

    @property
    def name(self) -> str:
        """Of the series that it belongs to."""
        return f"{self.rule}, {self.reorganisation}"

    @property
    def messages_per_join(self) -> float:
        """Of the joins since the size before."""
        return self.messages.total / self.joins


def grow_tree(
    workload: SemanticWorkload,
    settings: BuildSettings,
    sizes: Sequence[int],
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[TreePoint]:
    """Let a network grow, and measure it at each size."""
    building = Building(workload.classes, settings, workload.counts)
    seconds, before, joined = 0.0, Messages(), 0
    for size in sizes:
        started = process_time()
        building.grow(size)
        seconds += process_time() - started
        sent = building.messages.minus(Messages())
        point = _measured(workload, building, sent.minus(before), size - joined, seconds)
        before, joined = sent, size
        verdict = f", WRONG: {point.wrong[0]}" if point.wrong else ""
        progress(
            f"tree, {point.name}, {size:,} peers: false positives "
            f"{point.metrics.false_positive_ratio:.2%}, {seconds:.1f} s{verdict}"
        )
        yield point


def _measured(
    workload: SemanticWorkload, building: Building, messages: Messages, joins: int, seconds: float
) -> TreePoint:
    depths = np.array(building.depths)
    present = np.flatnonzero(depths)
    parents = np.array(building.parents)[present]
    sizes = np.array(building.sizes)[present]
    matches = workload.matches[:, present]
    is_below = parents >= 0
    has_parent = workload.matches[:, np.maximum(parents, 0)]
    receives = matches | ~is_below | has_parent
    shape = building.shape()
    levels = _levels(shape)
    numbers = np.array(workload.classes.of[: building.size])
    level_sums = np.bincount(numbers, levels, len(depths))[present]
    level_tops = np.zeros(len(depths), np.int64)
    np.maximum.at(level_tops, numbers, levels)
    in_vain = (receives & ~matches).sum(axis=1)
    matching = matches @ sizes
    hops = matches @ level_sums
    farthest = (matches * level_tops[present]).max(axis=1)
    totals = RoutingTotals()
    for document in range(len(matches)):
        receivers = int(matching[document] + in_vain[document])
        totals.add(
            DocumentOutcome(
                members=building.size,
                matching=int(matching[document]),
                receivers=receivers,
                matching_receivers=int(matching[document]),
                messages=receivers - 1,
                hops=int(hops[document]),
                hops_max=int(farthest[document]),
            )
        )
    missed = int((matches & is_below & ~has_parent).sum())
    return TreePoint(
        rule=building.settings.rule,
        reorganisation=building.settings.reorganisation,
        peers=building.size,
        metrics=totals.metrics(),
        classes=len(present),
        top_level=int((~is_below).sum()),
        depth=int(depths.max()),
        fan_out=max(map(len, building.below)),
        messages=messages,
        joins=joins,
        seconds=seconds,
        wrong=(
            *([f"{missed} classes match what their parent does not"] if missed else []),
            *_followed(workload, shape, levels, matching + in_vain),
        ),
    )


def _levels(shape: TreeShape) -> np.ndarray:
    """Per member how many edges it is below the crown."""
    levels = np.full(len(shape), -1, np.int64)
    levels[shape.kinds.index(EdgeKind.CROWN)] = 0
    for member in range(len(shape)):
        path = []
        while levels[member] < 0:
            path.append(member)
            member = shape.parents[member]
        for steps, each in enumerate(reversed(path), 1):
            levels[each] = levels[member] + steps
    return levels


def _followed(
    workload: SemanticWorkload, shape: TreeShape, levels: np.ndarray, receivers: np.ndarray
) -> Iterator[str]:
    """Follow some documents, and say where that differs from the law."""
    crown = shape.kinds.index(EdgeKind.CROWN)
    of = workload.classes.of
    documents = range(len(workload.matches))
    for document in Random(len(shape)).sample(documents, min(FOLLOWED_MAX, len(documents))):
        flags = workload.matches[document]
        matching = frozenset(member for member in range(len(shape)) if flags[of[member]])
        passages = route(shape, crown, matching)
        if not matching <= passages.keys():
            yield f"document {document} misses {len(matching - passages.keys())} peers"
        if len(passages) != receivers[document]:
            yield f"document {document} reaches {len(passages)}, not {receivers[document]}"
        if any(passage.edges != levels[member] for member, passage in passages.items()):
            yield f"document {document} takes another way than the tree's"


def broadcast_metrics(workload: SemanticWorkload, peers: int) -> RoutingMetrics:
    """What sending every document to every peer comes to; hops are not known."""
    sizes = np.bincount(workload.classes.of[:peers], minlength=len(workload.classes.filters))
    totals = RoutingTotals()
    for matching in (workload.matches @ sizes).tolist():
        totals.add(
            DocumentOutcome(
                members=peers,
                matching=matching,
                receivers=peers,
                matching_receivers=matching,
                messages=peers - 1,
            )
        )
    return totals.metrics()
