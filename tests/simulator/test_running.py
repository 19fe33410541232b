"""Runs: phases, quiescence, checks, and what becomes of mistakes."""

from dataclasses import replace
from itertools import pairwise

import pytest

from peersub import Filter
from peersub.events.envelope import Event
from peersub.overlays.chord.settings import PLACEMENTS
from peersub.overlays.core.causes import Leave, Publish, Timer, TimerFired
from peersub.overlays.core.checks import Checks
from peersub.overlays.core.draws import draw
from peersub.overlays.core.effects import SetTimer
from peersub.overlays.core.shell import Shell
from peersub.overlays.flood import invariants
from peersub.overlays.registry import OVERLAYS, overlay_kind
from peersub.overlays.settings import SettingsError
from peersub.simulator import running
from peersub.simulator.activities import (
    CrashActivity,
    HealActivity,
    JoinActivity,
    LeaveActivity,
    PartitionActivity,
    PublishActivity,
    RestartActivity,
    StallActivity,
)
from peersub.simulator.content import ListedContent
from peersub.simulator.engine import Simulation
from peersub.simulator.nodes import SAMPLE_EVENTS
from peersub.simulator.quiescence import run_until_quiet
from peersub.simulator.running import run_scenario
from peersub.simulator.scenario import Scenario, ScenarioPhase
from peersub.simulator.settings import NetworkSettings
from peersub.trace.schema import Given, Phase
from simulator.toys import Toy

EVENTS = PublishActivity(count=20, every_ms=5)


def scenario_with(*steps, **changes):
    phases = (
        ScenarioPhase(name="during", steps=steps),
        ScenarioPhase(name="after", steps=(EVENTS,)),
    )
    return Scenario(**{"nodes": 12, "subscriptions": 24, "phases": phases, **changes})


@pytest.mark.parametrize(
    "steps",
    [
        (EVENTS,),
        (CrashActivity(fraction=0.3), EVENTS, RestartActivity(at_ms=400)),
        (PartitionActivity(), EVENTS, HealActivity(at_ms=3_000)),
        (StallActivity(fraction=0.3, duration_ms=2_000), EVENTS),
        (JoinActivity(count=4), EVENTS, LeaveActivity(at_ms=20, count=3)),
    ],
    ids=["calm", "crash", "partition", "stall", "come-and-go"],
)
@pytest.mark.parametrize("through_wire", [False, True], ids=["by-reference", "through-wire"])
def test_a_flood_reaches_everybody_after_whatever_happened(steps, through_wire):
    outcome = run_scenario(scenario_with(*steps, through_wire=through_wire))
    assert outcome.violations == []
    after = outcome.checker.phases["after"]
    assert after.delivered == after.expected > 20 and after.missed == 0
    assert [phase.is_quiet for phase in outcome.phases] == [True] * 4
    assert (outcome.simulation.counters.wire_bytes > 0) == through_wire


def test_phases_say_whether_they_are_disturbed():
    seen = []

    class Phases:
        def observe(self, record):
            if isinstance(record, Phase):
                seen.append((record.name, record.disturbed))

    run_scenario(scenario_with(CrashActivity(count=1)), observers=[Phases()])
    assert seen == [
        ("joining", True),
        ("subscribing", False),
        ("during", True),
        ("after", False),
    ]
    seen.clear()
    run_scenario(scenario_with(EVENTS, network=NetworkSettings(loss=0.1)), observers=[Phases()])
    assert all(disturbed for _, disturbed in seen)


def test_an_exception_of_a_protocol_is_a_violation(monkeypatch):
    def fails(self, publications, now_ms):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(Shell, "_publish", fails)
    outcome = run_scenario(scenario_with(EVENTS))
    (violation,) = outcome.violations
    assert violation.rule == "exception" and "planted" in violation.text


def test_an_event_that_goes_nowhere_is_a_violation(monkeypatch):
    monkeypatch.setattr(Shell, "forward", lambda self, events, hops, sender, now_ms: None)
    outcome = run_scenario(scenario_with(EVENTS))
    assert {violation.rule for violation in outcome.violations} == {"missed"}


def test_a_subscription_that_never_gets_ready_is_a_violation(monkeypatch):
    monkeypatch.setattr(Shell, "_say_ready", lambda self, name: None)
    outcome = run_scenario(scenario_with(quiet_limit_ms=20_000))
    assert outcome.violations[0].rule == "not-quiet"
    assert "n0: subscription s0" in outcome.violations[0].text
    assert "and 19 more" in outcome.violations[0].text


@pytest.mark.parametrize("overlay", sorted(OVERLAYS))
def test_a_converged_start_is_a_network_that_works(overlay):
    seen = []

    class Records:
        def observe(self, record):
            seen.append(record)

    # Who answers for another node in Reach links itself to subscribers when it first does.
    settings = {"answer_share": 0.0} if overlay == "reach" else {}
    scenario = scenario_with(EVENTS, overlay=overlay, start="converged", settings=settings)
    outcome = run_scenario(scenario, observers=[Records()])
    assert outcome.violations == []
    assert outcome.checker.counts.expected == outcome.checker.counts.delivered > 40
    has_invariants = overlay_kind(overlay).part("invariants") is not None
    assert outcome.invariant_checks >= 3 * has_invariants and not outcome.invariant_failures
    given = [record for record in seen if isinstance(record, Given)]
    assert sum(len(record.subscriptions) for record in given) == 24
    # No HELLO was needed: the links are there.
    assert "hello" not in outcome.simulation.counters.messages_by_kind()


def test_invariants_are_asked_when_all_is_quiet_and_at_each_step(monkeypatch):
    asked = []

    def check_quiet(peers):
        asked.append(sorted(peer.me.node for peer in peers))
        return ["planted"] if len(asked) == 3 else []

    def check_step(peer, cause, effects):
        return ["planted at a step"] if isinstance(cause, Leave) else []

    monkeypatch.setattr(invariants, "CHECKS", Checks(check_quiet, step=check_step))
    outcome = run_scenario(scenario_with(LeaveActivity(count=1), nodes=4))
    assert [(v.rule, v.text) for v in outcome.violations] == [
        ("invariant", "planted at a step"),
        ("invariant", "planted"),
    ]
    assert [len(names) for names in asked] == [4, 4, 3, 3]
    assert outcome.invariant_checks > 100 and outcome.invariant_failures == 2


def test_a_checker_of_whole_networks_sees_all_nodes_that_are_on_at_each_step(monkeypatch):
    steps = []

    def step_checker(peer_at):
        def check(peer, cause, effects):
            assert peer_at(peer.me.node) is peer
            steps.append([number for number in range(5) if peer_at(f"n{number}") is not None])
            return ["planted in the network"] if isinstance(cause, Leave) else []

        return check

    monkeypatch.setattr(invariants, "CHECKS", replace(invariants.CHECKS, watch=step_checker))
    outcome = run_scenario(scenario_with(LeaveActivity(count=1), nodes=4))
    assert [(v.rule, v.text) for v in outcome.violations] == [
        ("invariant", "planted in the network")
    ]
    assert steps[0] == [0]
    assert max(map(len, steps)) == 4
    assert len(steps[-1]) == 3, "one has left"


def test_each_side_of_a_partition_is_checked_by_itself(monkeypatch):
    asked = []
    checks = Checks(lambda peers: asked.append(len(peers)) or [])
    monkeypatch.setattr(invariants, "CHECKS", checks)
    run_scenario(scenario_with(PartitionActivity(sides=3)))
    assert asked == [12, 12, 4, 4, 4, 4, 4, 4]


def test_of_a_large_network_some_nodes_are_checked_others_each_time(monkeypatch):
    asked = []

    def check_sample(peers, sample):
        assert all(peer in peers for peer in sample)
        asked.append((len(peers), sorted(peer.me.node for peer in sample)))
        return []

    monkeypatch.setattr(running, "INVARIANT_NODES_MAX", 11)
    monkeypatch.setattr(running, "INVARIANT_SAMPLE", 5)
    monkeypatch.setattr(invariants, "CHECKS", replace(invariants.CHECKS, sample=check_sample))
    outcome = run_scenario(scenario_with(LeaveActivity(count=1)))
    assert outcome.violations == []
    assert outcome.invariant_sample == 5
    assert [count for count, _ in asked] == [12, 12], "11 nodes are few enough to check all"
    assert all(len(dict.fromkeys(names)) == 5 for _, names in asked)
    assert asked[0] != asked[1]


def test_a_stopwatch_says_what_was_spent_on_what():
    ticks = iter(range(1_000_000))
    scenario = scenario_with(EVENTS, start="converged")
    outcome = run_scenario(scenario, stopwatch=lambda: float(next(ticks)))
    assert list(outcome.seconds) == ["setting_up", "running", "checking"]
    assert sum(outcome.seconds.values()) == next(ticks) - 1
    assert run_scenario(scenario).seconds == {}


def test_all_nodes_share_one_strategy_with_a_sample_of_the_events():
    scenario = scenario_with(EVENTS, overlay="tree", settings={"strategy": "imperfect"})
    simulation = run_scenario(scenario).simulation
    strategies = [host.overlay.engine.maintenance.strategy for host in simulation.living()]
    assert all(strategy is strategies[0] for strategy in strategies)
    sample = strategies[0].settings.sample
    assert len(sample) == SAMPLE_EVENTS and all("a" in attributes for attributes in sample)


@pytest.mark.parametrize("start", ["joined", "converged"])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_keys_are_placed_by_what_nodes_want_at_first(placement, start):
    """Nodes 3 and 15 want the same, and so on; whoever joins later draws its key."""
    wanted = [Filter(f"n BETWEEN {low} AND {low + 9}") for low in range(0, 120, 10)]
    content = ListedContent(
        [(f"s{number}", wanted[number % 12]) for number in range(24)],
        [Event(f"e{number}", {"n": number}) for number in range(120)],
    )
    scenario = Scenario(
        overlay="chord",
        settings={"placement": placement},
        nodes=24,
        subscriptions=24,
        start=start,
        phases=(ScenarioPhase(name="later", steps=(EVENTS, JoinActivity(count=1))),),
    )
    outcome = run_scenario(scenario, content=content)
    assert outcome.is_good
    peers = {host.name: host.overlay for host in outcome.simulation.living()}
    assert len(peers) == 25
    newcomer = peers.pop("n24")
    assert newcomer.key == draw(scenario.seed, "key", "n24") % newcomer.settings.size
    in_order = sorted(peers, key=lambda name: peers[name].key)
    pairs = sum(
        int(one[1:]) % 12 == int(next_one[1:]) % 12
        for one, next_one in pairwise([*in_order, in_order[0]])
    )
    distances = {
        (peers[following].key - peers[name].key) % newcomer.settings.size >> 20
        for name, following in pairwise(in_order)
    }
    assert (pairs == 12) is (placement in ("interest", "all-interests"))
    assert (len(distances) == 1) is (placement in ("evenly", "all-interests"))


def test_more_nodes_than_keys_cannot_be_placed():
    settings = {"placement": "evenly", "key_bits": 3}
    with pytest.raises(SettingsError, match="12 nodes do not fit"):
        run_scenario(scenario_with(EVENTS, overlay="chord", settings=settings))


class Ticking(Toy):
    """A timer for ever, and a state that changes as often as it is told to."""

    changes = 0

    def handle(self, cause, now_ms):
        if isinstance(cause, Publish):
            self.changes = 5
        if isinstance(cause, TimerFired) and self.changes:
            self.changes -= 1
        return [SetTimer(Timer("tick"), 1_000)]

    def describe(self):
        return {"changes": self.changes}


def test_quiet_is_when_maintenance_changes_nothing():
    simulation = Simulation(1, Ticking)
    simulation.start("a")
    assert run_until_quiet(simulation, 100_000, settle_ms=2_500)
    assert simulation.now_ms == 2_500
    simulation.cause("a", Publish(()))
    assert run_until_quiet(simulation, 100_000, settle_ms=2_500)
    assert simulation.hosts["a"].node.changes == 0
    assert 7_500 <= simulation.now_ms <= 12_500


def test_a_network_that_never_rests_is_not_quiet():
    class Changing(Ticking):
        asked = 0

        def describe(self):
            self.asked += 1
            return {"asked": self.asked}

    simulation = Simulation(1, Changing)
    simulation.start("a")
    assert not run_until_quiet(simulation, 50_000, settle_ms=2_500)
    assert simulation.now_ms == 50_000


def test_a_network_with_nothing_planned_is_quiet_at_once():
    simulation = Simulation(1, Toy)
    simulation.start("a")
    assert run_until_quiet(simulation, 50_000) and simulation.now_ms == 0


def test_links_that_wait_for_an_answer_are_not_quiet():
    class Waiting(Ticking):
        def waiting_links(self):
            return ["b"] if self.simulation.now_ms < 20_000 else []

    simulation = Simulation(1, Waiting)
    Waiting.simulation = simulation
    simulation.start("a")
    assert run_until_quiet(simulation, 100_000, settle_ms=2_500)
    assert simulation.now_ms >= 20_000
