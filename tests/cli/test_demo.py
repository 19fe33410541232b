"""The demo: it does what it says, checks itself, and notices when something is wrong."""

import json

import pytest

from peersub import Filter
from peersub.demo import run as demo_run
from peersub.demo.market import draw_market
from peersub.demo.verification import differences


def test_the_report(run):
    done = run("demo", "--no-pipeline", "--subscriptions", 200, "--events", 300)
    assert done.code == 0, done
    assert "All as it should be" in done.out
    assert "200  subscriptions" in done.out and "300  events" in done.out


def test_the_result_as_json(run):
    done = run(
        "demo", "--no-pipeline", "--subscriptions", 200, "--events", 300, "--seed", 7, "--json"
    )
    result = json.loads(done.out)
    market = draw_market(200, 300, 7)
    filters = [Filter(text) for text in market.filters.values()]
    counted = sum(one.matches(event) for one in filters for event in market.events)
    assert result["ok"] is True and result["differences"] == []
    assert result["deliveries"] == counted > 0
    assert result["events_checked"] == 100
    assert all(result["document_deliveries"].values())


def test_a_wrong_delivery_is_noticed(run, monkeypatch):
    def without_one(lines):
        found = original(lines)
        event = next(name for name, wanted in found.items() if wanted)
        found[event] = set()
        return found

    original = demo_run.deliveries_by_event
    monkeypatch.setattr(demo_run, "deliveries_by_event", without_one)
    monkeypatch.setattr(demo_run, "CHECKED_EVENTS", 300)
    done = run("demo", "--no-pipeline", "--subscriptions", 200, "--events", 300)
    assert done.code == 1 and "Something is wrong" in done.out and "did not get it" in done.out


def test_differences_name_both_directions():
    filters = {"a": Filter("x > 1"), "b": Filter("x > 5")}
    events = [{"id": "e", "x": 3}]
    assert differences(events, filters, {"e": {"a"}}) == []
    assert differences(events, filters, {"e": {"b"}}) == [
        "e: a did not get it",
        "e: b should not get it",
    ]


def test_one_seed_is_one_market():
    assert draw_market(50, 50, 3) == draw_market(50, 50, 3)
    assert draw_market(50, 50, 3) != draw_market(50, 50, 4)


@pytest.mark.parametrize("seed", range(3))
def test_every_wish_is_a_filter(seed):
    for text in draw_market(300, 1, seed).filters.values():
        assert not Filter(text).is_nothing
