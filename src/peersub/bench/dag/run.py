"""`peersub bench dag`: what is measured, and the bounds that it is held to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from peersub.bench.dag.layers import LayerPoint, measure_layer
from peersub.bench.dag.network import NetworkPoint, NetworkTrial, measure_network

__all__ = ["DagResult", "DagSettings", "Figure", "run_dag"]

ROUNDS_MEAN_MAX: Final = {(50, 4): 13.6, (200, 4): 17.9, (1_000, 4): 22.0, (1_000, 8): 34.3}
"""By members and degree: what was measured with random lids."""
IDLE_SHARE_MAX: Final = 0.01
TURNS_GAP_MAX: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DagSettings:
    """The knobs of the benchmark.

    Args:
        sizes: of the layers that go through rounds.
        degrees: of these.
        nodes: of the simulated network; 0 leaves it out.
        events: that it gets, twice.
        crashed_share: of its nodes.
        seeds: graphs per size and degree, and networks.
        seed: the first one.

    Raises:
        ValueError: a knob is out of range; the message names it.
    """

    sizes: tuple[int, ...] = (50, 200, 1_000)
    degrees: tuple[int, ...] = (4, 8)
    nodes: int = 1_000
    events: int = 50
    crashed_share: float = 0.3
    seeds: int = 1
    seed: int = 1

    def __post_init__(self) -> None:
        if min(self.degrees, default=2) < 2 or min(self.sizes, default=2) < 2:
            raise ValueError("degrees and sizes are at least 2")
        if not 1 <= self.events <= 1_000:
            raise ValueError(f"events are from 1 to 1,000, not {self.events}")
        if not 0 <= self.crashed_share < 1:
            raise ValueError(f"the share that crashes is below 1, not {self.crashed_share}")
        if self.nodes and self.nodes < 2:
            raise ValueError("nodes are at least 2, or 0")


@dataclass(frozen=True, slots=True)
class Figure:
    """One number, and its bound."""

    what: str
    found: float
    bound: float
    is_good: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DagResult:
    """All that was measured."""

    settings: DagSettings
    layers: tuple[LayerPoint, ...]
    networks: tuple[NetworkPoint, ...]

    def figures(self) -> Iterator[Figure]:
        """Each figure that has a bound."""
        for layer in self.layers:
            yield from _of_layer(layer)
        for network in self.networks:
            yield from _of_network(network)

    @property
    def wrong(self) -> list[str]:
        """The bounds that are broken, and what the simulator's checkers found."""
        broken = [
            f"{figure.what}: {figure.found:g}, bound {figure.bound:g}"
            for figure in self.figures()
            if not figure.is_good
        ]
        return broken + [text for network in self.networks for text in network.violations]


def run_dag(settings: DagSettings, progress: Callable[[str], None] = lambda _: None) -> DagResult:
    """Measure layers in rounds, and networks in the simulator."""
    seeds = range(settings.seed, settings.seed + settings.seeds)
    layers = []
    for size in settings.sizes:
        for degree in settings.degrees:
            progress(f"layers of {size:,} members, degree {degree}")
            layers.append(measure_layer(size, degree, seeds))
    networks = []
    for seed in seeds if settings.nodes else ():
        progress(f"a network of {settings.nodes:,} nodes, seed {seed}")
        trial = NetworkTrial(
            nodes=settings.nodes,
            events=settings.events,
            crashed_share=settings.crashed_share,
            seed=seed,
        )
        networks.append(measure_network(trial))
    return DagResult(settings=settings, layers=tuple(layers), networks=tuple(networks))


def _at_most(what: str, found: float, bound: float) -> Figure:
    return Figure(what, found, bound, found <= bound)


def _of_layer(point: LayerPoint) -> Iterator[Figure]:
    about = f"{point.members:,} members, degree {point.degree}"
    bound = ROUNDS_MEAN_MAX.get((point.members, point.degree))
    if bound is not None:
        yield _at_most(f"{about}: rounds to reach all, mean", point.rounds_mean, bound)
    yield _at_most(f"{about}: members not reached", point.missed, 0)
    yield _at_most(f"{about}: copies beyond 2·edges", point.copies_over, 0)
    what = f"{about}: copies beyond 2·edges - (members - 1)"
    yield _at_most(what, point.skipping_copies_over, 0)
    yield _at_most(f"{about}: neighbours' turns apart", point.turns_gap, TURNS_GAP_MAX)


def _of_network(point: NetworkPoint) -> Iterator[Figure]:
    trial = point.trial
    about = f"{trial.nodes:,} nodes simulated, seed {trial.seed}"
    yield _at_most(f"{about}: members not reached", point.missed, 0)
    bound = 2 * point.edges - (trial.nodes - 1)
    yield _at_most(f"{about}: copies of an event, most", point.copies_max, bound)
    found = point.idle_share
    is_good = found < IDLE_SHARE_MAX
    yield Figure(f"{about}: idle messages / busy ones", found, IDLE_SHARE_MAX, is_good)
    what = f"{about}: not reached after {trial.crashed_share:.0%} crashed"
    yield _at_most(what, point.repaired_missed, 0)
