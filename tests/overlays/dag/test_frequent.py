"""Super-peers that publish often on a layer join it, and leave it again (§4.3.2)."""

import pytest

from peersub import Filter
from peersub.events.envelope import Event
from peersub.overlays.dag.messages import Relay
from peersub.overlays.dag.topics import EVERYBODY
from peersub.simulator import actions as do
from peersub.simulator.running import run_scenario
from peersub.simulator.scenario import Scenario
from peersub.trace.schema import Step

LAYER = "string:A"


class Relays:
    """When events were handed to a member, and when the layers of n3 were looked at."""

    def __init__(self):
        self.count = 0

    def observe(self, record):
        if isinstance(record, Step):
            for effect in record.effects:
                for message in getattr(effect, "messages", ()):
                    self.count += isinstance(getattr(message, "message", message), Relay)


def outcome_of(events, *, every_ms=100, joins=5, after_ms=0, wanted="symbol = 'A'"):
    """Two members, n0 and n1; n3 publishes."""
    published = tuple(
        do.TimedAction(
            number * every_ms, do.PublishEvent("n3", Event(f"e{number}", {"symbol": "A"}))
        )
        for number in range(events)
    )
    phases = [do.SchedulePhase("publishing", published)]
    if after_ms:
        phases.append(do.SchedulePhase("after", (), duration_ms=after_ms))
    given = {"n0": (("s0", Filter(wanted)),), "n1": (("s1", Filter(wanted)),)}
    schedule = do.Schedule(
        tuple(phases), tuple((f"n{number}", given.get(f"n{number}", ())) for number in range(5))
    )
    settings = {"publish_joins": joins, "publish_window_ms": 20_000, "linger_ms": 1_000}
    scenario = Scenario(overlay="dag", settings=settings, nodes=5, start="converged")
    relays = Relays()
    outcome = run_scenario(scenario, schedule=schedule, observers=[relays])
    assert outcome.violations == []
    assert outcome.checker.counts.delivered == (2 * events if wanted == "symbol = 'A'" else 0)
    return outcome.simulation.hosts["n3"].overlay, relays.count


@pytest.mark.parametrize("joins", [5, 0])
def test_who_publishes_often_becomes_a_member(joins):
    peer, relayed = outcome_of(40, joins=joins)
    if joins:
        assert sorted(peer.layers) == [EVERYBODY, LAYER]
        assert peer.layers[LAYER].is_member
        assert joins <= relayed < 40
    else:
        assert (sorted(peer.layers), relayed) == ([EVERYBODY], 40)
    assert peer.describe()["subscriptions"] == []


def test_who_publishes_seldom_does_not():
    peer, relayed = outcome_of(12, every_ms=6_000)
    assert (sorted(peer.layers), relayed) == ([EVERYBODY], 12)


def test_who_publishes_no_more_leaves():
    peer, _ = outcome_of(10, after_ms=90_000)
    assert sorted(peer.layers) == [EVERYBODY]


def test_nobody_joins_a_layer_without_members():
    peer, relayed = outcome_of(20, wanted="symbol = 'B'")
    assert (sorted(peer.layers), relayed) == ([EVERYBODY], 0)
