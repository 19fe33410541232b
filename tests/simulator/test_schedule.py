"""Schedules: what the seed draws for a scenario."""

from dataclasses import replace

import pytest

from peersub.simulator import actions as do
from peersub.simulator import activities as asked
from peersub.simulator.content import SmallContent, SymbolContent, WorkloadChoice
from peersub.simulator.scenario import Scenario, ScenarioPhase
from peersub.simulator.schedule import schedule_of
from peersub.simulator.shrink import explicit_scenario
from peersub.simulator.swarm import swarm_scenario


def drawn(scenario):
    return schedule_of(scenario, SmallContent(scenario.seed, scenario.workload))


def actions_of(schedule, kind=object):
    return [t.action for p in schedule.phases for t in p.actions if isinstance(t.action, kind)]


def phase_of(*steps, **scenario):
    """The actions of a phase with these steps, after a start of ten nodes."""
    made = Scenario(phases=(ScenarioPhase(name="x", steps=steps),), **{"nodes": 10, **scenario})
    return drawn(made).phases[-1]


def test_the_seed_draws_the_schedule():
    scenario = swarm_scenario(11, "flood")
    assert drawn(scenario) == drawn(scenario)
    assert drawn(scenario) != drawn(replace(scenario, seed=12))


def test_nodes_join_one_after_the_other_by_those_who_are_there():
    schedule = drawn(Scenario(nodes=5, subscriptions=7, join_every_ms=30))
    joining, subscribing = schedule.phases
    assert [timed.at_ms for timed in joining.actions] == [0, 30, 60, 90, 120]
    known = set()
    for timed in joining.actions:
        assert known.issuperset(timed.action.contacts) and bool(known) == bool(
            timed.action.contacts
        )
        known.add(timed.action.node)
    homes = [timed.action.node for timed in subscribing.actions]
    assert homes == ["n0", "n1", "n2", "n3", "n4", "n0", "n1"], "dealt in turn"


def test_a_converged_start_gives_nodes_and_subscriptions():
    schedule = drawn(Scenario(start="converged", nodes=3, subscriptions=4))
    assert [(node, len(given)) for node, given in schedule.given] == [
        ("n0", 2),
        ("n1", 1),
        ("n2", 1),
    ]
    assert not schedule.phases


def test_a_share_of_the_living_crashes_at_once():
    phase = phase_of(asked.CrashActivity(at_ms=5, fraction=0.5))
    (timed,) = phase.actions
    assert timed.at_ms == 5 and len(set(timed.action.nodes)) == 5


def test_nobody_publishes_while_it_stands_still():
    phase = phase_of(
        asked.StallActivity(fraction=0.5, duration_ms=100),
        asked.PublishActivity(at_ms=1, count=300, every_ms=1),
    )
    (stall, *published) = phase.actions
    assert stall.action.duration_ms == 100 and len(set(stall.action.nodes)) == 5
    for timed in published:
        assert timed.at_ms >= 100 or timed.action.node not in stall.action.nodes
    assert {timed.action.node for timed in published} > {*stall.action.nodes}


def test_the_last_node_never_goes():
    phase = phase_of(
        asked.CrashActivity(fraction=1.0), asked.LeaveActivity(at_ms=1, count=5), nodes=4
    )
    assert [type(timed.action) for timed in phase.actions] == [do.CrashNodes]
    assert len(phase.actions[0].action.nodes) == 3


def test_nobody_publishes_after_a_crash():
    phase = phase_of(
        asked.CrashActivity(at_ms=10, count=6), asked.PublishActivity(count=100, every_ms=1)
    )
    (crash,) = (t.action for t in phase.actions if isinstance(t.action, do.CrashNodes))
    late = [t.action.node for t in phase.actions if t.at_ms > 10]
    early = [t.action.node for t in phase.actions if t.at_ms < 10]
    assert len(early) == 10 and len(late) == 89
    assert not set(late) & set(crash.nodes) and set(early) & set(crash.nodes)


def test_who_starts_again_knows_somebody_on_its_side():
    phase = phase_of(
        asked.PartitionActivity(sides=2),
        asked.CrashActivity(at_ms=1, count=4),
        asked.RestartActivity(at_ms=2, disk="lost"),
        nodes=12,
    )
    ((side,),) = (t.action.groups for t in phase.actions if isinstance(t.action, do.Partition))
    restarts = [t.action for t in phase.actions if isinstance(t.action, do.RestartNode)]
    assert len(restarts) == 4
    for restart in restarts:
        assert {contact in side for contact in restart.contacts} == {restart.node in side}


def test_subscriptions_end_where_they_are():
    schedule = drawn(
        Scenario(
            nodes=3,
            subscriptions=9,
            phases=(ScenarioPhase(name="x", steps=(asked.UnsubscribeActivity(),)),),
        )
    )
    made = {(a.subscription, a.node) for a in actions_of(schedule, do.SubscribeAt)}
    ended = [(a.subscription, a.node) for a in actions_of(schedule, do.UnsubscribeAt)]
    assert len(ended) == 9 and set(ended) == made


def test_churn_goes_and_comes():
    phase = phase_of(asked.NodeChurnActivity(duration_ms=10_000, per_second=2), nodes=20)
    assert [timed.at_ms for timed in phase.actions] == [500 * number for number in range(20)]
    goes = [isinstance(t.action, do.CrashNodes | do.LeaveNode) for t in phase.actions]
    assert goes == [True, False] * 10 and phase.duration_ms == 10_000


@pytest.mark.parametrize("seed", range(20))
def test_the_explicit_scenario_of_a_schedule_has_that_schedule(seed):
    scenario = swarm_scenario(seed)
    schedule = drawn(scenario)
    explicit = Scenario.from_toml(explicit_scenario(scenario, schedule).to_toml())
    assert drawn(explicit) == schedule


def test_filters_about_symbols_cover_each_other_and_are_wanted_by_few():
    content = SymbolContent(3, WorkloadChoice(kind="symbols"))
    again = SymbolContent(3, WorkloadChoice(kind="symbols"))
    assert content.subscription(5) == again.subscription(5)
    assert content.event(7) == again.event(7) != content.event(8)
    wanted = [content.subscription(number)[1] for number in range(400)]
    events = [content.event(number) for number in range(100)]
    share = sum(one.matches(event) for one in wanted for event in events) / 40_000
    assert 0.01 < share < 0.1
    whole = {one for one in wanted if "AND" not in one.text}
    assert sum(any(one.covers(other) for one in whole) for other in wanted) > 300


def test_content_is_drawn_by_number():
    content = SmallContent(3, WorkloadChoice(xpath_share=0.5))
    again = SmallContent(3, WorkloadChoice(xpath_share=0.5))
    assert content.subscription(5) == again.subscription(5)
    assert content.event(7) == again.event(7) != content.event(8)
    wanted = [content.subscription(number)[1] for number in range(60)]
    events = [content.event(number) for number in range(60)]
    matched = sum(each.matches(event) for each in wanted for event in events)
    assert {each.language for each in wanted} == {"sql", "xpath"}
    assert 0.05 < matched / 3_600 < 0.8
