"""The benchmark of subscribing, small: its workload, its judgement, and one run."""

import asyncio
from random import Random

import pytest

from peersub.bench.process_figures import can_look
from peersub.bench.subscribe.trial import Point, SubscribeResult, SubscribeSettings, run_subscribe
from peersub.bench.subscribe.workload import draw_event, draw_filters
from peersub.filters import Filter


def test_filters_differ_and_events_are_wanted_by_theirs():
    texts = list(draw_filters(400, 1))
    filters = [Filter(text) for text in texts]
    assert len({each.digest for each in filters}) == 400
    random = Random(1)
    for text, wanted in zip(texts, filters, strict=True):
        assert wanted.matches(draw_event(text, random)), text


def test_what_costs_too_much_or_holds_up_others_is_named():
    few = Point(1_000, cpu_us=300, events=600, calm_ms={"p99": 2.0}, meanwhile_ms={"p99": 3.0})
    many = Point(100_000, cpu_us=900, events=600, calm_ms={"p99": 2.0}, meanwhile_ms={"p99": 9.0})
    many.check = {"expected": 20, "missed": 1, "too_many": 0}
    found = SubscribeResult(3, 1, [few, many]).problems
    assert len(found) == 3
    assert "3.0 times as much CPU" in found[0]
    assert "p99 of events between others is 4.5 times" in found[1]
    assert "missed" in found[2]
    assert SubscribeResult(3, 1, [few]).problems == []


@pytest.mark.skipif(not can_look(), reason="needs /proc")
def test_all_become_ready_and_get_exactly_what_they_want():
    settings = SubscribeSettings((300,), clients=2, nodes=3, rate=20, calm_s=0.5)
    result = asyncio.run(run_subscribe(settings, lambda _: None))
    (point,) = result.points
    assert point.check["expected"] >= 20
    assert point.check["missed"] == point.check["too_many"] == 0
    assert point.failed == point.gaps == 0
    assert point.ready_s > 0
