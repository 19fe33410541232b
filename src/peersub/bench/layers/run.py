"""The benchmark: rates of churn, with clusters and without, each for several seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from peersub.bench.layers.trial import LayersPoint, LayersTrial, run_trial
from peersub.simulator.summary import Spread, spread_of

__all__ = ["LayersResult", "LayersSettings", "Row", "run_layers"]

RATE_MAX = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersSettings:
    """What is measured.

    Args:
        nodes: super-peers at the begin.
        clients: that come to them.
        rates: of churn, in changes per second; 0 is none.
        seconds: how long nodes come and go, in simulated time.
        events_per_second: that are published meanwhile.
        seeds: networks per rate.
        seed: the first one.

    Raises:
        ValueError: a knob is out of its range.
    """

    nodes: int = 100
    clients: int = 400
    rates: tuple[float, ...] = (0.0, 0.1, 0.5, 1.0, 2.0)
    seconds: int = 60
    events_per_second: int = 4
    seeds: int = 3
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("nodes", "clients", "seconds", "events_per_second", "seeds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1, not {getattr(self, name)}")
        if not self.rates or not all(0 <= rate <= RATE_MAX for rate in self.rates):
            raise ValueError(f"rates are from 0 to {RATE_MAX:g} changes per second")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """All networks of one rate, with clusters or without."""

    rate: float
    clusters: bool
    delay_ms: Spread | None
    turns: Spread | None
    expected: int
    missed: int
    layers_mean: float
    """Per super-peer, when the clients have gathered."""
    layers_max: int
    moved: int
    messages_per_event: float
    """All messages of the trial, control included, per event that was published under churn."""

    @property
    def missed_share(self) -> float:
        """Of what clients should have got under churn."""
        return self.missed / max(self.expected, 1)


@dataclass(frozen=True, slots=True)
class LayersResult:
    """What was measured."""

    settings: LayersSettings
    points: tuple[LayersPoint, ...]

    @property
    def rows(self) -> list[Row]:
        """By rate, without clusters first."""
        rates = dict.fromkeys(self.settings.rates)
        return [self._row(rate, clusters) for rate in rates for clusters in (False, True)]

    def _row(self, rate: float, clusters: bool) -> Row:
        points = [
            point
            for point in self.points
            if point.trial.changes_per_second == rate and point.trial.clusters == clusters
        ]
        layers = [count for point in points for count in point.layers]
        events = sum(point.trial.seconds * point.trial.events_per_second for point in points)
        return Row(
            rate=rate,
            clusters=clusters,
            delay_ms=spread_of(_together(point.delay_ms for point in points)),
            turns=spread_of(_together(point.turns for point in points)),
            expected=sum(point.expected for point in points),
            missed=sum(point.missed for point in points),
            layers_mean=fmean(layers) if layers else 0.0,
            layers_max=max(layers, default=0),
            moved=sum(point.moved for point in points),
            messages_per_event=sum(point.messages for point in points) / max(events, 1),
        )

    @property
    def wrong(self) -> list[str]:
        """What was violated, and where."""
        found: list[str] = []
        for point in self.points:
            trial = point.trial
            where = f"rate {trial.changes_per_second:g}, seed {trial.seed}"
            where += ", clusters" if trial.clusters else ""
            found += [f"{where}: {each}" for each in point.violations]
            if not trial.changes_per_second and point.missed:
                found.append(f"{where}: {point.missed} deliveries missed without churn")
            if not point.delay_ms or not point.after_expected:
                found.append(f"{where}: nothing was delivered")
        return found


def _together(histograms: Iterable[Mapping[int, int]]) -> Counter[int]:
    total: Counter[int] = Counter()
    for each in histograms:
        total.update(each)
    return total


def run_layers(
    settings: LayersSettings, progress: Callable[[str], None] = lambda _: None
) -> LayersResult:
    """Run all trials, one after the other."""
    points: list[LayersPoint] = []
    for rate in dict.fromkeys(settings.rates):
        for clusters in (False, True):
            for number in range(settings.seeds):
                trial = LayersTrial(
                    nodes=settings.nodes,
                    clients=settings.clients,
                    changes_per_second=rate,
                    seconds=settings.seconds,
                    events_per_second=settings.events_per_second,
                    clusters=clusters,
                    seed=settings.seed + number,
                )
                points.append(run_trial(trial))
                how = "with clusters" if clusters else "without clusters"
                progress(
                    f"{rate:g} changes per second, {how}, seed {trial.seed}: "
                    f"{points[-1].seconds:.1f} s"
                )
    return LayersResult(settings, tuple(points))
