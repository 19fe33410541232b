"""`peersub bench routing`: the knobs arrive where they belong."""

import json
import os

import pytest

from peersub.bench import routing


def test_a_small_run_prints_json(run):
    done = run(
        "bench", "routing", "--nodes", "8", "--changes", "1", "--events", "2", "--skews", "uniform",
        "--strategies", "covering,flood", "--placement-shares", "", "--tolerance", "1",
        "--jobs", "1", "--json",
    )  # fmt: skip
    assert done.code == 0, done
    result = json.loads(done.out)
    assert result["ok"] and [each["name"] for each in result["standings"]] == ["covering", "flood"]
    assert result["checks"]["trials"] == 4 and "4/4 covering" in done.err


def test_the_knobs_are_passed_on(run, monkeypatch):
    seen = []
    monkeypatch.setattr(routing, "run_routing", lambda found, **_: seen.append(found))
    run(
        "bench", "routing", "--nodes", "10", "--subscriptions", "30", "--changes", "4",
        "--events", "40", "--share", "0.1", "--ratios", "1,5", "--skews", "zipf", "--strategies",
        "imperfect 10 %, flood", "--placement-shares", "0.2", "--tolerance", "0.3", "--seed", "9",
        "--jobs", "3",
    )  # fmt: skip
    assert seen == [
        routing.RoutingSettings(
            nodes=10,
            subscriptions=30,
            changes=4,
            events=40,
            share=0.1,
            ratios=(1, 5),
            skews=("zipf",),
            placement_shares=(0.2,),
            contenders=("imperfect 10 %", "flood"),
            tolerance=0.3,
            seed=9,
            jobs=3,
        )
    ]


def test_defaults_are_those_of_the_benchmark(run, monkeypatch):
    seen = []
    monkeypatch.setattr(routing, "run_routing", lambda found, **_: seen.append(found))
    run("bench", "routing")
    assert seen == [routing.RoutingSettings(jobs=os.cpu_count() or 1)]


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("--ratios", "many", "'many' is no list of numbers"),
        ("--skews", "normal", "uniform and zipf"),
        ("--strategies", "best", "there is no contender 'best'"),
    ],
)
def test_wrong_knobs_are_refused(run, option, value, complaint):
    done = run("bench", "routing", option, value)
    assert done.code == 2 and complaint in done.err
