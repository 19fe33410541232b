"""The benchmark of the anonymous overlay: small sizes, and bounds that can break."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from peersub.bench.dag import report
from peersub.bench.dag.run import DagResult, DagSettings, run_dag
from peersub.cli.bench_dag_commands import run_bench_dag
from peersub.cli.failures import CommandError


@pytest.fixture(scope="module")
def small() -> DagResult:
    return run_dag(DagSettings(sizes=(20, 50), degrees=(4,), nodes=30, events=5))


def test_a_small_network_keeps_its_bounds(small: DagResult) -> None:
    assert small.wrong == []
    assert report.exit_code(small) == 0
    (network,) = small.networks
    assert network.expected == 5 * 30
    assert network.copies_max == 2 * network.edges - 29
    assert network.crashed == 9
    assert network.repaired_expected == 5 * 21
    assert network.hops is not None
    assert network.hops.mean > 1
    assert 0 < network.idle_share < 0.01
    first, second = small.layers
    assert first.rounds_mean < second.rounds_mean <= 13.6
    assert second.turns_gap == 1


def test_a_broken_bound_is_reported(small: DagResult) -> None:
    (network,) = small.networks
    layer = small.layers[1]
    for broken in (
        replace(small, networks=(replace(network, missed=1),)),
        replace(small, networks=(replace(network, repaired_missed=2),)),
        replace(small, networks=(replace(network, copies_max=network.copies_max + 1),)),
        replace(small, networks=(replace(network, idle_messages_per_second=1e9),)),
        replace(small, networks=(replace(network, violations=("not-quiet: for ever",)),)),
        replace(small, layers=(replace(layer, rounds_mean=14.0),)),
        replace(small, layers=(replace(layer, skipping_copies_over=1),)),
        replace(small, layers=(replace(layer, turns_gap=2),)),
        replace(small, layers=(replace(layer, missed=1),)),
    ):
        assert len(broken.wrong) == 1
        assert report.exit_code(broken) == 1
        out = io.StringIO()
        report.show(broken, Console(file=out, width=110))
        assert "WRONG" in out.getvalue()


def test_the_result_as_data(small: DagResult) -> None:
    data = report.as_json(small)
    assert data["ok"]
    assert len(data["figures"]) == 2 * 4 + 1 + 4
    assert data["networks"][0]["idle_share"] < 0.01


def test_the_command_says_what_is_wrong_with_its_options() -> None:
    options = {"sizes": "20", "degrees": "4", "nodes": 0, "events": 1, "crash": 0.3}
    for wrong in ({"sizes": "1"}, {"degrees": "x"}, {"crash": 1.0}, {"nodes": 1}, {"events": 0}):
        with pytest.raises(CommandError):
            run_bench_dag({**options, "seeds": 1, "seed": 1, "as_json": True, **wrong})
