"""The benchmark of Reach: against simulated peers, and against bounds that can break."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from peersub.bench.reach import report
from peersub.bench.reach.measure import QUENCHINGS, Network, Quenching, Replication
from peersub.bench.reach.run import ReachBenchSettings, ReachResult, run_reach
from peersub.bench.reach.telling import Telling, floor_visited
from peersub.bench.reach.workload import ReachWorkload, draw_reach_workload, map_text
from peersub.cli.bench_reach_command import run_bench_reach
from peersub.cli.failures import CommandError
from peersub.overlays.core.causes import Publish, Received, Subscribe
from peersub.overlays.core.effects import Deliver
from peersub.overlays.core.identity import PeerId, numbered_node
from peersub.overlays.core.publication import Publication
from peersub.overlays.reach.converged import converge
from peersub.overlays.reach.identifiers import Place
from peersub.overlays.reach.messages import (
    InterestChanged,
    InterestTold,
    Notified,
    Rendezvous,
    Spread,
)
from peersub.overlays.reach.peer import ReachPeer
from peersub.overlays.reach.settings import ReachSettings
from peersub.simulator.engine import Simulation
from peersub.simulator.hosts import BareNode
from peersub.simulator.settings import NetworkSettings
from peersub.trace.schema import Step, TraceRecord
from peersub.wire import encode

NODES = 64
BITS = 32
SUMMARY = 24


@pytest.fixture(scope="module")
def workload() -> ReachWorkload:
    return draw_reach_workload(
        subscriptions=2 * NODES, events=40, share_matched=0.01, skew="uniform", seed=1
    )


class Watcher:
    """Counts what peers send, and who gets which event."""

    def __init__(self) -> None:
        self.visits: dict[str, Counter[Place]] = {}
        self.ways: Counter[str] = Counter()
        self.notified: Counter[str] = Counter()
        self.delivered: dict[str, Counter[str]] = {}
        self.told: list[int] = []
        """Bytes of the messages with interest."""

    def observe(self, record: TraceRecord) -> None:
        if not isinstance(record, Step):
            return
        if isinstance(record.cause, Received):
            for message in record.cause.messages:
                if isinstance(message, Spread):
                    self.visits.setdefault(message.publication.id, Counter())[message.place] += 1
                elif isinstance(message, Rendezvous):
                    self.ways[message.publication.id] += 1
                elif isinstance(message, Notified):
                    self.notified[message.publication.id] += 1
                elif isinstance(message, InterestTold | InterestChanged):
                    self.told.append(len(encode(message)))
        for effect in record.effects:
            if isinstance(effect, Deliver):
                found = self.delivered.setdefault(effect.publication.id, Counter())
                found.update(effect.subscriptions)


def converged(
    network: Network, workload: ReachWorkload, settings: ReachSettings, left_out: int = -1
) -> tuple[Simulation, Watcher]:
    """The same network of peers, under the simulator's clock."""
    watcher = Watcher()

    def make(name: str, incarnation: int) -> Any:
        return BareNode(ReachPeer(PeerId(name, incarnation), settings, network.seed))

    steady = NetworkSettings(latency_ms=10, jitter_ms=0)
    simulation = Simulation(network.seed, make, steady, [watcher])
    names = [numbered_node(number) for number in range(NODES)]
    peers: list[Any] = [simulation.add(name).overlay for name in names]
    given: dict[str, dict[str, Any]] = {name: {} for name in names}
    for number, wanted in enumerate(workload.filters):
        if number != left_out:
            given[names[number % NODES]][str(number)] = wanted
    converge(peers, given)
    simulation.link_all()
    return simulation, watcher


def simulated(network: Network, workload: ReachWorkload, settings: ReachSettings) -> Watcher:
    """What peers do with all events."""
    simulation, watcher = converged(network, workload, settings)
    for number, event in enumerate(workload.events):
        publication = Publication(event.id, event.attributes)
        publisher = numbered_node(network.publisher(number))
        simulation.cause(publisher, Publish((publication,)))
        assert simulation.run_until_quiet(60_000)
    return watcher


@pytest.mark.parametrize("quenching", QUENCHINGS)
def test_structure_alone_says_what_simulated_peers_do(
    workload: ReachWorkload, quenching: Quenching
) -> None:
    attributes = map_text("chosen", workload, BITS, 6)
    network = Network(
        workload, nodes=NODES, identifier_bits=BITS, attributes=attributes, summary=SUMMARY, seed=3
    )
    settings = ReachSettings(
        identifier_bits=BITS,
        attributes=attributes,
        quench=quenching != "none",
        summary=0 if quenching == "bit" else SUMMARY,
        summary_filters=quenching == "filters",
        orders=0,
        answer_share=0,
        renew_ms=0,
    )
    watcher = simulated(network, workload, settings)
    outcome = network.run(quenching)
    assert outcome.wrong == []
    messages = 0
    for number, event in enumerate(workload.events):
        visits = network.visits(number, quenching)
        below = Counter(visit.place for visit in visits if visit.parent is not None)
        assert watcher.visits.get(event.id, Counter()) == below
        assert watcher.ways[event.id] == len(network.way(number))
        wanted = Counter(
            str(each) for each, one in enumerate(workload.filters) if one.matches(event)
        )
        assert watcher.delivered.get(event.id, Counter()) == wanted
        messages += below.total() + watcher.ways[event.id] + watcher.notified[event.id]
    assert messages == outcome.messages


@pytest.mark.parametrize("quenching", ["bit", "identifiers", "filters"])
def test_as_much_is_told_as_simulated_peers_tell(
    workload: ReachWorkload, quenching: Quenching
) -> None:
    """A subscription begins in the network of all others: messages, and their bytes."""
    network = Network(
        workload, nodes=NODES, identifier_bits=BITS, attributes="", summary=SUMMARY, seed=3
    )
    settings = ReachSettings(
        identifier_bits=BITS,
        summary=0 if quenching == "bit" else SUMMARY,
        summary_filters=quenching == "filters",
        renew_ms=0,
    )
    for number in (0, 50, 100):
        simulation, watcher = converged(network, workload, settings, left_out=number)
        assert simulation.run_until_quiet(60_000)
        watcher.told.clear()
        begun = Subscribe(str(number), workload.filters[number])
        simulation.cause(numbered_node(number % NODES), begun)
        assert simulation.run_until_quiet(60_000)
        assert (len(watcher.told), sum(watcher.told)) == (
            Telling(network, quenching).cost_of(number)
        )


def test_quenching_visits_what_it_must_and_no_fewer(workload: ReachWorkload) -> None:
    """With room for all wishes hardly more; and where nothing is wanted, only the host."""
    for attributes in ("", map_text("chosen", workload, BITS, 6)):
        wide, narrow = (
            Network(
                workload,
                nodes=NODES,
                identifier_bits=BITS,
                attributes=attributes,
                summary=summary,
                seed=1,
            )
            for summary in (1_000, 4)
        )
        floor = floor_visited(wide) * len(workload.events)
        visited = wide.run("filters").visited
        assert floor <= visited < 1.1 * floor
        assert floor == floor_visited(narrow) * len(workload.events)
        assert narrow.run("filters").visited > visited
    assert floor_visited(network_of_nothing(workload)) == 1


def network_of_nothing(workload: ReachWorkload) -> Network:
    nothing = replace(workload, wanted=tuple(() for _ in workload.events))
    return Network(nothing, nodes=NODES, identifier_bits=BITS, attributes="", summary=9, seed=1)


def test_balanced_or_not_everybody_gets_the_same(workload: ReachWorkload) -> None:
    """The index says who, and asks no place."""
    network = Network(
        workload,
        nodes=NODES,
        identifier_bits=BITS,
        attributes=map_text("chosen", workload, BITS, 6),
        summary=64,
        seed=1,
    )
    plain = network.run("filters")
    moved = network.pushes(plain)
    assert moved
    pushed = network.run("filters", moved=moved)
    replicated = network.run("filters", replication=Replication())
    assert plain.wrong == pushed.wrong == replicated.wrong == []
    assert plain.deliveries == pushed.deliveries == replicated.deliveries
    assert pushed.load_max < plain.load_max
    assert replicated.load_max < plain.load_max
    assert replicated.visited < plain.visited
    assert replicated.gini < plain.gini


def test_a_delivery_that_is_missed_is_found(workload: ReachWorkload) -> None:
    network = Network(
        workload, nodes=NODES, identifier_bits=BITS, attributes="", summary=64, seed=1
    )
    (fullest, kept) = max(network.kept.items(), key=lambda each: len(each[1]))
    del network.kept[fullest]
    assert kept
    assert any("missed" in text for text in network.run("none").wrong)


@pytest.fixture(scope="module")
def small() -> ReachResult:
    return run_reach(ReachBenchSettings(sizes=(16, 64), events=60, seeds=(1, 2), simulate=(64,)))


def test_the_bounds_hold_on_the_default_workload(small: ReachResult) -> None:
    assert small.wrong == []
    assert report.exit_code(small) == 0
    for point in small.points:
        visited = {name: each.visited for name, each in point.quenched.items()}
        assert visited["filters"] <= visited["identifiers"] <= visited["bit"] <= visited["none"]
    assert len(list(small.figures())) == 2 * 3


def test_simulated_peers_have_the_loads_that_the_structure_says(small: ReachResult) -> None:
    """Answers are drawn by the event; who is pushed to whom depends on what was heard when."""
    (point,) = [point for point in small.points if point.simulated]
    assert (point.nodes, point.map, point.seed) == (64, "chosen", 1)
    for name in ("none", "replicate", "heirs"):
        found, expected = point.simulated[name], point.balanced[name]
        assert found.load_max == expected.load_max
        assert found.gini == pytest.approx(expected.gini)
        assert found.messages == round(expected.messages * small.settings.events)
    assert point.simulated["replicate"].load_max < point.simulated["none"].load_max


def test_a_broken_bound_and_a_wrong_delivery_are_reported(small: ReachResult) -> None:
    chosen = next(number for number, each in enumerate(small.points) if each.map == "chosen")
    point = small.points[chosen]
    loose = {**point.quenched, "filters": point.quenched["none"]}
    for broken in (replace(point, wrong=("event 1",)), replace(point, quenched=loose)):
        points = (*small.points[:chosen], broken, *small.points[chosen + 1 :])
        result = replace(small, points=points)
        assert len(result.wrong) == 1
        assert report.exit_code(result) == 1
        out = io.StringIO()
        report.show(result, Console(file=out, width=118))
        assert "WRONG" in out.getvalue()


def test_the_result_as_data_and_in_files(small: ReachResult, tmp_path: Path) -> None:
    data = report.as_json(small)
    assert data["ok"]
    assert {point["map"] for point in data["points"]} == set(small.settings.maps)
    names = [path.name for path in report.write(small, tmp_path)]
    assert names == ["reach-visited.svg", "reach.json", "reach.txt"]
    assert "simulated peers" in (tmp_path / "reach.txt").read_text("utf-8")
    assert "Loads balanced" in (tmp_path / "reach.txt").read_text("utf-8")


def test_the_command_says_what_is_wrong_with_its_options() -> None:
    options = {"sizes": "16", "subscriptions": 1, "events": 1, "share": 0.1, "skew": "uniform"}
    more = {"bits": 32, "summary": 8, "orders": 2, "depth": 1, "answer": 0.5}
    more |= {"seeds": "1", "simulate": ""}
    for wrong in (
        {"sizes": "x"},
        {"sizes": "0"},
        {"skew": "odd"},
        {"bits": 4},
        {"share": 0.0},
        {"seeds": "a"},
        {"simulate": "x"},
    ):
        with pytest.raises(CommandError):
            run_bench_reach({**options, **more, "out": None, "as_json": True, **wrong})
