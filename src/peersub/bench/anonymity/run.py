"""`peersub bench anonymity`: which observers are measured, and the whole result.

For each overlay and each share of spies, drawn anew on each graph: what they find out alone and
together, with and without a common clock, knowing the graph or not. Means over graphs, and for
spies alone over spies as well. Beside members that publish themselves, `relayed` are publishers
outside the layer: they hand their events to its steward, the member that all nodes know of, which
publishes them as its own. If that is a spy, it knows; else spies can at best find out that it was
the steward's turn, and suspect all who are outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from math import log2
from typing import Final

import numpy as np

from peersub.bench.anonymity.hypotheses import Hypotheses, flood_of, turns_of
from peersub.bench.anonymity.inference import (
    Anonymity,
    Clock,
    Posteriors,
    anonymity_of,
    anonymity_of_suspicion,
    observed,
    posteriors,
    suspicion,
)
from peersub.bench.anonymity.rest import RestPoint, measure_rest
from peersub.overlays.core.draws import draw
from peersub.overlays.core.identity import numbered_node
from peersub.overlays.dag.graph import LayerGraph, layer_graph

__all__ = [
    "CLOCKS",
    "AnonymityResult",
    "AnonymityRow",
    "AnonymitySettings",
    "relayed",
    "run_anonymity",
]

CLOCKS: Final[tuple[Clock, ...]] = ("order", "time")
ROUNDS_BEFORE: Final = 64
"""Rounds before the event may be published, so that the layer is not at its start."""
WINDOW_ROUNDS: Final = 32
"""Rounds in any of which it is published: more than any member waits for its turn."""
LEARNING_SEED: Final = 1_000_003
"""Added to the seed for the graph from which observers without a graph learn."""
CHECKED: Final = 25
"""Events of each row whose posterior is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnonymitySettings:
    """The knobs of the benchmark.

    Args:
        nodes: members of the layer.
        degree: neighbours of each.
        shares: shares of the members that are spies.
        graphs: how many graphs are drawn.
        spies_alone: how many spies of a share are looked at one by one.
        rest_nodes: of the simulated networks at rest; 0 leaves them out.
        rest_events: that travel through each.
        seed: of all draws.

    Raises:
        ValueError: a knob is out of range; the message names it.
    """

    nodes: int = 1_000
    degree: int = 4
    shares: tuple[float, ...] = (0.01, 0.05, 0.1, 0.3)
    graphs: int = 3
    spies_alone: int = 20
    rest_nodes: int = 300
    rest_events: int = 100
    seed: int = 1

    def __post_init__(self) -> None:
        if self.nodes < self.degree + 2 or self.degree < 2:
            raise ValueError("nodes are at least degree + 2, and the degree is at least 2")
        if not self.shares or not all(0 < share < 1 for share in self.shares):
            raise ValueError("shares are above 0 and below 1: 0.01,0.1")
        for name in ("graphs", "spies_alone", "rest_events"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnonymityRow:
    """What one kind of observer finds out."""

    overlay: str
    share: float
    observers: str
    """`alone` or `together`."""
    clock: Clock
    knows_graph: bool
    anonymity: Anonymity


@dataclass(frozen=True, slots=True, kw_only=True)
class AnonymityResult:
    """All that was measured, and what the checks found."""

    settings: AnonymitySettings
    rows: tuple[AnonymityRow, ...]
    rest: tuple[RestPoint, ...]
    """Real peers at rest."""
    wrong: tuple[str, ...]

    def row(self, overlay: str, share: float, kind: str, clock: Clock, *, graph: bool) -> Anonymity:
        """One of the rows."""
        (found,) = (
            each.anonymity
            for each in self.rows
            if (each.overlay, each.share, each.observers, each.clock, each.knows_graph)
            == (overlay, share, kind, clock, graph)
        )
        return found


def run_anonymity(
    settings: AnonymitySettings, progress: Callable[[str], None] = lambda _: None
) -> AnonymityResult:
    """Measure all observers."""
    found: dict[tuple[str, float, str, Clock, bool], list[Anonymity]] = {}
    wrong: list[str] = []
    learning = _both(_graph(settings, settings.seed + LEARNING_SEED))
    for number in range(settings.graphs):
        seed = settings.seed + number
        progress(f"graph {number + 1} of {settings.graphs}")
        worlds = _both(_graph(settings, seed))
        for share in settings.shares:
            spies = _spies(settings, share, seed)
            for overlay, those in worlds.items():
                learned = learning[overlay]
                for key, anonymity in _measured(
                    settings, overlay, share, spies, those, learned, wrong
                ):
                    found.setdefault(key, []).append(anonymity)
    rows = tuple(
        AnonymityRow(
            overlay=key[0],
            share=key[1],
            observers=key[2],
            clock=key[3],
            knows_graph=key[4],
            anonymity=_mean(each),
        )
        for key, each in found.items()
    )
    rest: list[RestPoint] = []
    for overlay in ("dag", "flood") if settings.rest_nodes else ():
        progress(f"{overlay} at rest, {settings.rest_nodes:,} nodes")
        rest += measure_rest(
            overlay, settings.rest_nodes, settings.rest_events, settings.shares, settings.seed
        )
    return AnonymityResult(settings=settings, rows=rows, rest=tuple(rest), wrong=tuple(wrong))


def _graph(settings: AnonymitySettings, seed: int) -> LayerGraph:
    names = [numbered_node(number) for number in range(settings.nodes)]
    return layer_graph(seed, "anonymity", names, settings.degree)


def _both(graph: LayerGraph) -> dict[str, Hypotheses]:
    return {
        "dag": turns_of(graph, begins=ROUNDS_BEFORE, window=WINDOW_ROUNDS),
        "flood": flood_of(graph),
    }


def _spies(settings: AnonymitySettings, share: float, seed: int) -> np.ndarray:
    count = max(1, round(share * settings.nodes))
    order = sorted(range(settings.nodes), key=lambda number: draw(seed, "anonymity/spy", number))
    return np.array(order[:count])


_Key = tuple[str, float, str, Clock, bool]


def _measured(
    settings: AnonymitySettings,
    overlay: str,
    share: float,
    spies: np.ndarray,
    those: Hypotheses,
    learning: Hypotheses,
    wrong: list[str],
) -> Iterator[tuple[_Key, Anonymity]]:
    """One overlay on one graph, watched by these spies."""
    alone = [np.array([spy]) for spy in spies[: settings.spies_alone]]
    for clock in CLOCKS:
        for kind, groups in (("alone", alone), ("together", [spies])):
            known = [concluded(those, each, clock) for each in groups]
            for posterior, each in zip(known, groups, strict=True):
                about = f"{overlay}, {share:.0%} {kind}, {clock}"
                wrong += [f"{about}: {text}" for text in checked(those, each, posterior)]
            candidates = settings.nodes - len(groups[0])
            yield (
                (overlay, share, kind, clock, True),
                _mean([anonymity_of(each, candidates) for each in known]),
            )
            learned = float(np.mean([suspicion(learning, each, clock) for each in groups]))
            measured = float(np.mean([suspicion(those, each, clock) for each in groups]))
            yield (
                (overlay, share, kind, clock, False),
                anonymity_of_suspicion(learned, measured, candidates),
            )
    if overlay == "dag":
        # As many nodes outside the layer as inside, and the same share of spies among them.
        key: _Key = ("dag, relayed", share, "together", "time", True)
        yield key, relayed(settings.nodes - len(spies), len(spies) / settings.nodes)


def concluded(those: Hypotheses, spies: np.ndarray, clock: Clock) -> Posteriors:
    """What spies who know the graph conclude from every event that they may see."""
    weights = np.where(np.isin(those.publishers, spies), 0, those.weights)
    seen = observed(those, spies, clock)
    return posteriors(seen, those.publishers, weights, those.members)


def checked(those: Hypotheses, spies: np.ndarray, found: Posteriors) -> Iterator[str]:
    """Look at some events: is the true publisher possible, and do probabilities sum to 1?"""
    honest = np.flatnonzero(~np.isin(those.publishers, spies))
    for hypothesis in honest[:: max(1, len(honest) // CHECKED)].tolist():
        posterior = found.of(hypothesis)
        if not posterior.get(int(those.publishers[hypothesis])):
            yield f"the publisher of event {hypothesis} is ruled out"
        if abs(sum(posterior.values()) - 1) > 1e-9:
            yield f"the posterior of event {hypothesis} sums to {sum(posterior.values())}"


def relayed(outside: int, spies_share: float) -> Anonymity:
    """So many publishers outside the layer, no spies, who hand their events to its steward.

    A steward that is a spy sees who it is. Else the best that spies can do is to find the steward,
    behind which each of the publishers is as likely as the others.
    """
    bits = log2(outside)
    return Anonymity(
        entropy_bits=(1 - spies_share) * bits,
        entropy_bits_max=bits,
        set_mean=spies_share + (1 - spies_share) * outside,
        guessed=spies_share + (1 - spies_share) / outside,
        certain=spies_share,
    )


def _mean(those: list[Anonymity]) -> Anonymity:
    names = [each.name for each in fields(Anonymity)]
    return Anonymity(**{name: float(np.mean([getattr(a, name) for a in those])) for name in names})
