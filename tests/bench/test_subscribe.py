"""The benchmark of subscribing, small: its workload, its judgement, and one run."""

import asyncio
from io import StringIO
from random import Random

import pytest
from rich.console import Console

from peersub.bench.harness import Finished, Trial
from peersub.bench.process_figures import can_look
from peersub.bench.subscribe.trial import Point, SubscribeResult, SubscribeSettings, run_subscribe
from peersub.bench.subscribe.workload import draw_event, draw_filters
from peersub.cli.bench_live_commands import _show_subscribing
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


def shown(points):
    """What the command prints on a terminal of 100 columns."""
    result = SubscribeResult(16, 10, points)
    trial = Trial("16 nodes, 10 clients", 1, lambda say: None)
    printed = StringIO()
    console = Console(width=100, file=printed)
    for part in _show_subscribing([Finished(trial, result)]):
        console.print(part, soft_wrap=isinstance(part, str))
    return printed.getvalue()


def test_the_tables_fit_a_terminal_and_say_nothing_of_what_was_not_compared():
    p99 = {"p99": 1_234.56}
    few, many = (
        Point(n, 123.4, 12_345.6, 1_234.5, 1.234, 12_345, 123.4, 12_345, p99, p99, p99, 600, 600)
        for n in (1_000, 100_000)
    )
    one, both = shown([few]), shown([few, many])
    for text in ("16 nodes, 10 clients", "100,000", "12,346", "1.234", "1234.56"):
        assert text in both
    assert "…" not in both
    assert "times that of the fewest" in both
    assert "times that of the fewest" not in one


@pytest.mark.skipif(not can_look(), reason="needs /proc")
def test_all_become_ready_and_get_exactly_what_they_want():
    settings = SubscribeSettings((300,), clients=2, nodes=3, rate=20, calm_s=0.5)
    result = asyncio.run(run_subscribe(settings, lambda _: None))
    (point,) = result.points
    assert point.check["expected"] >= 20
    assert point.check["missed"] == point.check["too_many"] == 0
    assert point.failed == point.gaps == 0
    assert point.ready_s > 0
