"""The benchmark of delays and clusters: small networks, checked figures, mistakes that show."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from peersub.bench.layers import report
from peersub.bench.layers.run import LayersResult, LayersSettings, run_layers
from peersub.bench.layers.trial import Delays, MarketContent
from peersub.cli.bench_dag_commands import run_bench_layers
from peersub.cli.failures import CommandError
from peersub.events.envelope import Event
from peersub.overlays.core.causes import Publish, Start
from peersub.overlays.core.effects import Deliver
from peersub.overlays.core.publication import Publication
from peersub.trace.schema import Step


@pytest.fixture(scope="module")
def small() -> LayersResult:
    return run_layers(
        LayersSettings(nodes=12, clients=40, rates=(0.0, 0.5), seconds=10, seeds=1, seed=3)
    )


def test_a_small_network_is_measured_with_and_without_clusters(small: LayersResult) -> None:
    assert small.wrong == []
    assert report.exit_code(small) == 0
    assert [(row.rate, row.clusters) for row in small.rows] == [
        *((0.0, False), (0.0, True)),
        *((0.5, False), (0.5, True)),
    ]
    alone, gathered = small.rows[:2]
    assert alone.missed == gathered.missed == alone.moved == 0 < gathered.moved
    assert gathered.layers_mean < alone.layers_mean
    # What clients should get does not depend on where they are.
    assert alone.expected == gathered.expected > 20
    for row in small.rows:
        assert row.delay_ms is not None
        assert row.turns is not None
        assert 0 < row.delay_ms.p50 <= row.delay_ms.p99 <= row.delay_ms.largest
        assert row.turns.mean >= 1


def test_a_delay_is_from_publication_to_the_first_reception() -> None:
    delays = Delays(is_measuring=True)
    event = Publication.of(Event("e1", {}))
    delays.observe(Step(100, "n1", Publish((event,)), [Deliver(event, ("s1",), 0)]))
    delays.observe(Step(130, "n2", Start(), [Deliver(event, ("s1", "s2"), 2)]))
    delays.observe(Step(170, "n3", Start(), [Deliver(event, ("s2",), 3)]))
    assert (delays.delay_ms, delays.turns) == ({0: 1, 30: 1}, {0: 1, 2: 1})
    delays.is_measuring = False
    other = Publication.of(Event("e2", {}))
    delays.observe(Step(200, "n1", Publish((other,)), [Deliver(other, ("s1",), 0)]))
    assert sum(delays.delay_ms.values()) == 2


def test_mistakes_are_reported(small: LayersResult) -> None:
    first, *others = small.points
    for broken in (
        replace(first, missed=1),
        replace(first, violations=("twice: s1 on client/s1 gets e1 twice",)),
        replace(first, delay_ms={}),
        replace(first, after_expected=0),
    ):
        result = replace(small, points=(broken, *others))
        assert len(result.wrong) == 1
        assert report.exit_code(result) == 1
        out = io.StringIO()
        report.show(result, Console(file=out, width=118))
        assert "WRONG rate 0, seed 3" in out.getvalue()


def test_the_result_as_data_and_as_a_plot(small: LayersResult, tmp_path: Path) -> None:
    data, plot = report.write(small, tmp_path)
    written = json.loads(data.read_text())
    assert written == json.loads(json.dumps(report.as_json(small)))
    assert written["ok"]
    assert len(written["trials"]) == 4
    assert "p99, clusters" in plot.read_text()
    out = io.StringIO()
    report.show(small, Console(file=out, width=118))
    assert "12 super-peers, 40 clients" in out.getvalue()


def test_what_is_drawn_names_topics() -> None:
    content = MarketContent(1)
    for number in range(50):
        _, wanted = content.subscription(number)
        assert ("symbol",) in wanted.attributes
        assert set(content.event(number).attributes) == {"symbol", "price"}


def test_wrong_knobs_are_named() -> None:
    knobs = {"nodes": 4, "clients": 4, "seconds": 1, "events": 1, "seeds": 1, "seed": 1}
    for wrong in ({"rates": "-1"}, {"rates": "1", "nodes": 0}):
        with pytest.raises(CommandError):
            run_bench_layers({**knobs, **wrong, "out": None, "as_json": True})
