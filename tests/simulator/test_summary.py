"""The meter and the summary: a small run whose figures can be worked out by hand."""

import json

import pytest

from peersub.overlays.core.causes import Join, Publish, Received, Start
from peersub.overlays.core.effects import Deliver, Send
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.link_messages import Carried, Tunnelled
from peersub.overlays.core.protocol import Overlay
from peersub.overlays.core.publication import Publication
from peersub.overlays.registry import make_overlay
from peersub.overlays.routing.maintenance import FilterMaintenance
from peersub.overlays.routing.messages import FilterConfirmed, Notify
from peersub.simulator.meter import Meter
from peersub.simulator.summary import gini, spread_of, state_bytes_of, summarise
from peersub.trace.checkers import DeliveryChecker
from peersub.trace.schema import Given
from trace_steps import Story

EVENT = Publication("e1", {"price": 15})
CONTROL = Publication("control", {})
PEERS = [PeerId(f"n{number}") for number in range(5)]


def notify(publication=EVENT, hops=1):
    return Notify(publication, (), hops)


def carried(message):
    return Carried(1, 2, 3, 0, message)


def summary_of(story, **more):
    checker, meter = DeliveryChecker(), Meter()
    for record in story.records:
        checker.observe(record)
        meter.observe(record)
    checker.finish(story.now_ms)
    meter.finish()
    summary = summarise(checker, meter, about={"overlay": "test", "seed": 1}, **more)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    return summary


def small_run():
    """Five nodes. e1 goes from n0 to n1 (in vain) and over it to n2 and n3, where it is wanted."""
    story = Story().phase("join").step("n0", Start())
    for node in ("n1", "n2", "n3", "n4"):
        story.step(node, Join(("n0",)), [Send(PEERS[0], (carried(FilterConfirmed(1)),))])
    story.phase("subscribe")
    story.subscribe("n2", "s2", "price > 10").subscribe("n3", "s3", "price > 10")
    updates = [Send(PEERS[0], (carried(FilterConfirmed(1)), carried(FilterConfirmed(2))))]
    story.step("n1", Received(PEERS[2], (carried(FilterConfirmed(1)),)), updates)
    story.phase("publish")
    story.step("n0", Publish((EVENT,)), [Send(PEERS[1], (notify(), notify(CONTROL)))])
    forwarded = [Send(PEERS[2], (notify(hops=2),)), Send(PEERS[3], (notify(hops=2),))]
    story.step("n1", Received(PEERS[0], (notify(), notify(CONTROL))), forwarded)
    story.step("n2", Received(PEERS[1], (notify(hops=2),)), [Deliver(EVENT, ("s2",), 2)])
    return story.step("n3", Received(PEERS[1], (notify(hops=2),)), [Deliver(EVENT, ("s3",), 2)])


def test_deliveries_and_ratios():
    summary = summary_of(small_run(), state_bytes=[10, 30])
    assert [summary[name] for name in ("expected", "delivered", "missed")] == [2, 2, 0]
    assert summary["false_positive_ratio"] == pytest.approx(1 / 5)
    assert summary["relay_share"] == pytest.approx(1 / 3, abs=1e-6)
    assert summary["false_negative_ratio"] == 0
    assert summary["hops"] == {"mean": 2.0, "p50": 2, "p99": 2, "max": 2}
    assert summary["latency_ms"] == {"mean": 2.5, "p50": 2, "p99": 3, "max": 3}
    assert summary["state_bytes"] == {"mean": 20.0, "max": 30}


def test_messages():
    messages = summary_of(small_run())["messages"]
    assert messages["by_kind"] == {"control-notify": 1, "filter-confirmed": 6, "notify": 3}
    assert (messages["total"], messages["data"]) == (10, 3)
    assert (messages["per_event"], messages["per_delivery"]) == (3, 1.5)
    assert messages["copies_per_receiver"] == 1.5


def test_control_messages_per_change():
    control = summary_of(small_run())["control"]
    assert control["per_join"] == pytest.approx(4 / 5)
    assert control["per_subscribe"] == 1.0
    assert control["per_subscribe_by_kind"] == {"filter-confirmed": 1.0}
    assert control["per_leave"] is None
    # One control notification in a phase of 4 ms with five living nodes.
    assert control["background_per_node_second"] == pytest.approx(1 / (5 * 0.004))


def test_what_happens_together_is_no_cost_of_one():
    story = small_run().phase("mixed").subscribe("n4", "s4", "price > 99").crash("n1").leave("n2")
    control = summary_of(story)["control"]
    assert control["per_crash"] is None
    assert control["per_subscribe"] == 1.0


def test_load():
    summary = summary_of(small_run())
    assert summary["load"]["mean"] == pytest.approx(5 / 5)
    assert summary["load"]["max"] == 3
    assert summary["load"]["max_over_mean"] == 3.0
    assert summary["load"]["gini"] == pytest.approx(gini([0, 3, 1, 1, 0]))
    assert summary["event_load"]["max"] == 1


def test_phases_are_told_apart():
    phases = summary_of(small_run())["phases"]
    assert list(phases) == ["join", "subscribe", "publish"]
    assert phases["publish"]["delivered"] == 2
    assert phases["join"]["causes"] == {"join": 5}
    assert phases["subscribe"]["messages_by_kind"] == {"filter-confirmed": 2}


def test_the_dead_are_not_among_all_peers():
    story = Story().step("n0", Start()).step("n1", Join(("n0",))).step("n2", Join(("n0",)))
    story.crash("n2").step("n0", Publish((EVENT,)), [Send(PEERS[1], (notify(),))])
    story.step("n1", Received(PEERS[0], (notify(),)))
    assert summary_of(story)["false_positive_ratio"] == 0.5


def test_who_begins_in_a_state_that_was_set_lives():
    story = Story()
    story.records += [Given(0, f"n{number}") for number in range(4)]
    story.step("n0", Publish((EVENT,)), [Send(PEERS[1], (notify(),))])
    story.step("n1", Received(PEERS[0], (notify(),)))
    assert summary_of(story)["false_positive_ratio"] == 0.25


def test_a_relay_of_a_tunnel_is_no_receiver_and_a_publisher_neither():
    tunnelled = Tunnelled("n2", PEERS[0], notify())
    story = Story().subscribe("n2", "s2", "price > 10")
    story.step("n0", Publish((EVENT,)), [Send(PEERS[1], (tunnelled,))])
    story.step("n1", Received(PEERS[0], (tunnelled,)), [Send(PEERS[2], (tunnelled,))])
    story.step("n2", Received(PEERS[1], (tunnelled,)), [Deliver(EVENT, ("s2",), 1)])
    story.step("n0", Received(PEERS[2], (notify(),)))
    summary = summary_of(story)
    assert summary["relay_share"] == 0
    assert summary["messages"]["copies_per_receiver"] == 2.0


def test_percentiles():
    assert spread_of({}) is None
    spread = spread_of(dict.fromkeys(range(1, 101), 1))
    assert (spread.p50, spread.p99, spread.largest, spread.mean) == (50, 99, 100, 50.5)
    assert spread_of({7: 1}).p99 == 7


def test_state_of_an_overlay_is_links_and_tables():
    class Small(Overlay):
        def links(self):
            return PEERS[:3]

    class Large(Small):
        def state_bytes(self):
            return 1_000

    assert state_bytes_of(Large()) - state_bytes_of(Small()) == 1_000
    assert state_bytes_of(Small()) == 3 * 32


@pytest.mark.parametrize("name", ["tree", "chord"])
def test_tables_on_edges_are_state(name, monkeypatch):
    routed = make_overlay(name, PeerId("n1"), 1)
    monkeypatch.setattr(FilterMaintenance, "state_bytes", lambda self: 500)
    assert state_bytes_of(routed) == 500
