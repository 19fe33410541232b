"""`peersub bench reach`: what is measured, and the bounds that it is held to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import process_time
from typing import Final

from peersub.bench.reach.measure import QUENCHINGS, Network, Outcome, Quenching, Replication
from peersub.bench.reach.simulated import SimulatedLoads, simulated_loads
from peersub.bench.reach.telling import Telling, Told, floor_visited
from peersub.bench.reach.workload import MAPS, MapKind, ReachWorkload, draw_reach_workload, map_text
from peersub.overlays.reach.identifiers import IDENTIFIER_BITS_MAX
from peersub.overlays.reach.settings import ReachSettings
from peersub.workloads.settings import Skew

__all__ = ["BALANCINGS", "Figure", "MapPoint", "ReachBenchSettings", "ReachResult", "run_reach"]

BALANCED_MAP: Final[MapKind] = "chosen"
"""The map under which loads are balanced, and quenching is held to its bound."""
QUENCHED_SHARE_MAX: Final = 0.5
"""Of the places visited: what wishes with filters leave."""
CHOSEN_SHARE_MAX: Final = 1.05
"""Places visited by the sample under a map that was chosen by it / under another one."""
SEVERAL_SEEDS_NODES_MAX: Final = 1_024
"""Larger networks take minutes, and vary less."""
BALANCINGS: Final = ("none", "push", "replicate", "both", "heirs")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachBenchSettings:
    """The knobs of the benchmark.

    Args:
        sizes: of the networks, in nodes.
        subscriptions: per node.
        events: per network.
        share_matched: mean share of the subscriptions that an event matches.
        skew: of attributes and values: uniform or zipf.
        maps: of attributes.
        identifier_bits: n.
        summary: wishes that a place tells.
        replication: how parents answer for children.
        simulate: those of the sizes at which loads of simulated peers are measured, too, for the
            first seed.
        seeds: of all draws; networks of more than `SEVERAL_SEEDS_NODES_MAX` nodes have the first.

    Raises:
        ValueError: a knob is out of range; the message names it.
    """

    sizes: tuple[int, ...] = (64, 256, 1_024, 4_096)
    subscriptions: int = 2
    events: int = 200
    share_matched: float = 0.01
    skew: Skew = "uniform"
    maps: tuple[MapKind, ...] = MAPS
    identifier_bits: int = 32
    summary: int = ReachSettings().summary
    replication: Replication = field(default_factory=Replication)
    simulate: tuple[int, ...] = ()
    seeds: tuple[int, ...] = (1, 2, 3)

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError("sizes are numbers from 1 on, and there is at least one")
        if not self.seeds:
            raise ValueError("there is at least one seed")
        if not 1 <= self.identifier_bits <= IDENTIFIER_BITS_MAX:
            raise ValueError(f"identifiers have 1 to {IDENTIFIER_BITS_MAX} bits")
        if max(self.sizes) > 1 << self.identifier_bits - 1:
            raise ValueError(f"{self.identifier_bits} bits are too few for so many nodes")
        for name in ("subscriptions", "events", "summary"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1, not {getattr(self, name)}")
        if not 0 < self.share_matched <= 1:
            raise ValueError(f"the share matched is a share up to 1, not {self.share_matched}")
        if self.skew not in ("uniform", "zipf"):
            raise ValueError(f"skew is uniform or zipf, not {self.skew!r}")
        for each in self.maps:
            if each not in MAPS:
                raise ValueError(f"maps are {', '.join(MAPS)}, not {each!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Means per event, and how loads are spread over nodes."""

    visited: float
    messages: float
    messages_per_delivery: float
    gini: float
    load_max: int
    copies: int
    pushed: int

    @classmethod
    def of(cls, outcome: Outcome) -> Measured:
        """From sums to means."""
        return cls(
            visited=outcome.visited / outcome.events,
            messages=outcome.messages / outcome.events,
            messages_per_delivery=outcome.messages / max(outcome.deliveries, 1),
            gini=outcome.gini,
            load_max=outcome.load_max,
            copies=outcome.copies,
            pushed=outcome.pushed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MapPoint:
    """Networks of one size under one map."""

    nodes: int
    map: MapKind
    seed: int
    places_used: int
    """Places at which something is kept."""
    fullest_share: float
    """Of the subscriptions, at the place that keeps most of them."""
    sample_visited: float
    """Places visited per event of the sample, by which maps are chosen; nothing is quenched."""
    floor: float
    """Places per event that any quenching must visit."""
    told: dict[Quenching, Told]
    """What is told of interest when a subscription begins."""
    hops: float
    deliveries: float
    quenched: dict[Quenching, Measured]
    balanced: dict[str, Measured]
    """With wishes that have filters; empty for maps under which loads are not balanced."""
    simulated: dict[str, SimulatedLoads]
    """The same of simulated peers, at some sizes."""
    wrong: tuple[str, ...]
    seconds: float

    @property
    def share_left(self) -> float:
        """Of the visits, with wishes that have filters."""
        return self.quenched["filters"].visited / self.quenched["none"].visited


@dataclass(frozen=True, slots=True)
class Figure:
    """One number, and its bound."""

    what: str
    found: float
    bound: float

    @property
    def is_good(self) -> bool:
        """Whether the bound holds."""
        return self.found <= self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachResult:
    """All that was measured."""

    settings: ReachBenchSettings
    points: tuple[MapPoint, ...]

    def figures(self) -> Iterator[Figure]:
        """Each figure that has a bound; of several seeds the worst."""
        for size in self.settings.sizes:
            # The bound is for the default workload: with popular attributes a chosen map has few
            # visits, and quenching less to do.
            if BALANCED_MAP in self.settings.maps and self.settings.skew == "uniform":
                found = max(point.share_left for point in self.of(size, BALANCED_MAP))
                what = f"{size:,} nodes: places visited, quenched / not"
                yield Figure(what, found, QUENCHED_SHARE_MAX)
            pairs: tuple[tuple[MapKind, MapKind], ...] = (
                ("chosen", "shuffled"),
                ("chosen, idle bits", "hashed"),
            )
            for chosen, other in pairs:
                if {chosen, other} <= set(self.settings.maps):
                    both = zip(self.of(size, chosen), self.of(size, other), strict=True)
                    found = max(one.sample_visited / two.sample_visited for one, two in both)
                    what = f"{size:,} nodes: places visited by the sample, {chosen} / {other}"
                    yield Figure(what, found, CHOSEN_SHARE_MAX)

    def of(self, nodes: int, kind: MapKind) -> list[MapPoint]:
        """The networks of one size under one map, by seed."""
        return [point for point in self.points if point.nodes == nodes and point.map == kind]

    @property
    def wrong(self) -> list[str]:
        """Deliveries that were not as the index says, and bounds that are broken."""
        return [
            *(
                f"{point.nodes:,} nodes, {point.map}, seed {point.seed}: {each}"
                for point in self.points
                for each in point.wrong
            ),
            *(
                f"{figure.what}: {figure.found:.3g}, bound {figure.bound:g}"
                for figure in self.figures()
                if not figure.is_good
            ),
        ]


def run_reach(
    settings: ReachBenchSettings, progress: Callable[[str], None] = lambda _: None
) -> ReachResult:
    """Measure networks of all sizes under all maps."""
    points = []
    for size in settings.sizes:
        several = size <= SEVERAL_SEEDS_NODES_MAX
        for seed in settings.seeds if several else settings.seeds[:1]:
            what = f"{size:,} nodes, seed {seed}"
            progress(f"{what}: subscriptions and events")
            workload = draw_reach_workload(
                subscriptions=settings.subscriptions * size,
                events=settings.events,
                share_matched=settings.share_matched,
                skew=settings.skew,
                seed=seed,
            )
            for kind in settings.maps:
                progress(f"{what}: bits {kind}")
                started = process_time()
                network = _network(settings, workload, size, kind, seed)
                points.append(_measured(network, kind, settings, started))
    return ReachResult(settings=settings, points=tuple(points))


def _network(
    settings: ReachBenchSettings, workload: ReachWorkload, size: int, kind: MapKind, seed: int
) -> Network:
    # Fine bits come beyond those that places have: they change no route.
    bits = IDENTIFIER_BITS_MAX if kind == "chosen, fine bits" else settings.identifier_bits
    return Network(
        workload,
        nodes=size,
        identifier_bits=bits,
        attributes=map_text(kind, workload, bits, (size - 1).bit_length()),
        summary=settings.summary,
        seed=seed,
    )


def _measured(
    network: Network, kind: MapKind, settings: ReachBenchSettings, started: float
) -> MapPoint:
    outcomes = {quenching: network.run(quenching) for quenching in QUENCHINGS}
    balanced = _balanced(network, outcomes["filters"], settings) if kind == BALANCED_MAP else {}
    simulates = network.nodes in settings.simulate and network.seed == settings.seeds[0]
    simulated = simulated_loads(network, settings.replication) if balanced and simulates else {}
    plain = outcomes["none"]
    wrong = [text for outcome in (*outcomes.values(), *balanced.values()) for text in outcome.wrong]
    wrong += [text for loads in simulated.values() for text in loads.wrong]
    return MapPoint(
        nodes=network.nodes,
        map=kind,
        seed=network.seed,
        floor=floor_visited(network),
        told={
            quenching: Telling(network, quenching).costs()
            for quenching in QUENCHINGS
            if quenching != "none"
        },
        places_used=len(network.kept),
        fullest_share=network.fullest_share,
        sample_visited=network.sample_visited,
        hops=plain.hops / plain.events,
        deliveries=plain.deliveries / plain.events,
        quenched={name: Measured.of(outcome) for name, outcome in outcomes.items()},
        balanced={name: Measured.of(outcome) for name, outcome in balanced.items()},
        simulated=simulated,
        wrong=tuple(wrong[:5]),
        seconds=process_time() - started,
    )


def _balanced(
    network: Network, before: Outcome, settings: ReachBenchSettings
) -> dict[str, Outcome]:
    """Balanced in each way; what is pushed follows from the loads before."""
    heirs = Replication(orders=0, depth=0, share=settings.replication.share)
    replicated = network.run("filters", replication=settings.replication)
    return {
        "none": before,
        "push": network.run("filters", moved=network.pushes(before)),
        "replicate": replicated,
        "both": network.run(
            "filters", moved=network.pushes(replicated), replication=settings.replication
        ),
        "heirs": network.run("filters", replication=heirs),
    }
