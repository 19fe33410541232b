"""The churn benchmark, small: what stays flat, and that growth is seen."""

import asyncio

import pytest

from peersub.bench.churn import ChurnResult, ChurnSettings, growth_of, run_churn
from peersub.bench.process_figures import can_look
from peersub.bench.resilience.judging import Judgement


@pytest.mark.skipif(not can_look(), reason="needs /proc")
def test_nodes_that_stay_while_others_come_and_go_miss_nothing():
    settings = ChurnSettings(nodes=4, seconds=4.0, changes_per_second=8, rate=20)
    result = asyncio.run(run_churn(settings, lambda _: None))
    assert result.judgement.is_clean
    assert result.judgement.failed == 0
    assert result.judgement.acknowledged >= 20
    assert result.changes.total() >= 4
    assert len(result.growths) == 2
    # So short a run is all warm-up: memory may still grow, what is counted one by one may not.
    counted = ("descriptors", "tasks", "files")
    grown = [
        (node, name, growth)
        for node, growths in result.growths.items()
        for name, growth in growths.items()
        if name in counted and not growth.is_flat
    ]
    assert grown == []


def test_growth_is_told_from_noise():
    noisy = [70_000 + 2_000 * (place % 3) for place in range(60)]
    leaking = [70_000 + 400 * place for place in range(60)]
    assert growth_of(noisy, "resident_kb").is_flat
    assert not growth_of(leaking, "resident_kb").is_flat


def test_what_grows_is_named():
    growths = {"n1": {"tasks": growth_of([float(place) for place in range(60)], "tasks")}}
    missed = Judgement(missed=[("s", "e")])
    result = ChurnResult(growths=growths, judgement=missed)
    (deliveries, grown) = result.problems
    assert "'missed': 1" in deliveries
    assert grown.startswith("n1: tasks has grown from ")
