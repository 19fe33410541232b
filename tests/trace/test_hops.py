"""Hops from the trace against the hops that overlays say themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peersub.overlays.core.causes import Publish, Received
from peersub.overlays.core.effects import Deliver
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.link_messages import BetweenSlots, Carried, Tunnelled
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication
from peersub.overlays.flood.messages import Flooded
from peersub.simulator.activities import PublishActivity
from peersub.simulator.running import run_scenario
from peersub.simulator.scenario import Scenario, ScenarioPhase
from peersub.trace import hops as traced
from peersub.trace.hops import HOPS_MAX, HopCounter, TracedHops
from peersub.trace.schema import Step, TraceRecord

PHASES = (ScenarioPhase(name="publish", steps=(PublishActivity(count=20),)),)
EVENT = Publication("e1", {"a": 1})


class Silent:
    """Takes the hops out of deliveries, and compares what comes back with what was there."""

    def __init__(self) -> None:
        self.traced = TracedHops([self.Reader(self)])
        self.told: list[int] = []
        self.counted: list[int] = []

    def observe(self, record: TraceRecord) -> None:
        if isinstance(record, Step):
            deliveries = [each for each in record.effects if isinstance(each, Deliver)]
            self.told += [each.hops for each in deliveries]
            silent = [
                replace(each, hops=0) if isinstance(each, Deliver) else each
                for each in record.effects
            ]
            record = replace(record, effects=silent)
        self.traced.observe(record)

    class Reader:
        """Reads what is passed on."""

        def __init__(self, silent: Silent) -> None:
            self.silent = silent

        def observe(self, record: TraceRecord) -> None:
            effects = getattr(record, "effects", ())
            self.silent.counted += [each.hops for each in effects if isinstance(each, Deliver)]


@pytest.mark.parametrize("overlay", ["flood", "tree", "chord"])
def test_counted_hops_are_those_that_the_overlay_says(overlay: str) -> None:
    silent = Silent()
    scenario = Scenario(
        seed=3, overlay=overlay, nodes=40, subscriptions=60, start="converged", phases=PHASES
    )
    outcome = run_scenario(scenario, observers=[silent])
    assert outcome.is_good
    assert silent.told
    assert max(silent.told) > 1
    assert silent.counted == silent.told


def received(node: str, sender: str, message: Message) -> Step:
    return Step(1, node, Received(PeerId(sender), (message,)), [])


def test_an_event_is_counted_from_its_publisher_on_its_first_way() -> None:
    counter = HopCounter()
    counter.observe(Step(0, "n0", Publish((EVENT,)), []))
    counter.observe(received("n1", "n0", Flooded(EVENT, 9)))
    counter.observe(
        received("n2", "n1", Carried(1, 2, 3, 0, BetweenSlots(0, 1, Flooded(EVENT, 9))))
    )
    counter.observe(received("n2", "n0", Flooded(EVENT, 9)))
    counter.observe(received("n0", "n2", Flooded(EVENT, 9)))
    assert [counter.hops_of("e1", f"n{number}") for number in range(4)] == [0, 1, 2, None]
    assert counter.hops_of("e2", "n0") is None
    counter.observe(received("n3", "n4", Flooded(EVENT, 9)))
    assert counter.hops_of("e1", "n3") is None, "nobody knows how n4 came by it"


def test_a_tunnel_is_one_link_and_its_relay_gets_nothing() -> None:
    counter = HopCounter()
    counter.observe(Step(0, "n0", Publish((EVENT,)), []))
    tunnelled = Tunnelled("n2", PeerId("n0"), Flooded(EVENT, 1))
    counter.observe(received("n1", "n0", tunnelled))
    counter.observe(received("n2", "n1", tunnelled))
    assert [counter.hops_of("e1", f"n{number}") for number in range(3)] == [0, None, 1]


def test_old_events_are_forgotten_and_long_ways_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced, "EVENTS_COUNTED_MAX", 2)
    counter = HopCounter()
    for number in range(3):
        counter.observe(Step(0, "n0", Publish((Publication(f"e{number}", {}),)), []))
    assert [counter.hops_of(f"e{number}", "n0") for number in range(3)] == [None, 0, 0]
    for number in range(300):
        message = Flooded(Publication("e2", {}), 1)
        counter.observe(received(f"n{number + 1}", f"n{number}", message))
    assert counter.hops_of("e2", "n254") == counter.hops_of("e2", "n300") == HOPS_MAX


def test_the_names_are_those_of_the_protocols() -> None:
    assert {"target", "source", "message"} <= set(Tunnelled.__slots__)
    wrappers = (Carried, Tunnelled, BetweenSlots)
    assert all("message" in each.__slots__ for each in wrappers)
