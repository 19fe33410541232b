"""Shrinking: what is left is small, and fails as before."""

from dataclasses import replace

from peersub.overlays.core.shell import Shell
from peersub.simulator import actions as do
from peersub.simulator.activities import CrashActivity, PublishActivity, SubscriptionChurnActivity
from peersub.simulator.content import SmallContent
from peersub.simulator.running import run_scenario
from peersub.simulator.scenario import Scenario, ScenarioPhase
from peersub.simulator.schedule import schedule_of
from peersub.simulator.settings import NetworkSettings
from peersub.simulator.shrink import shrink, without
from peersub.trace.checkers import Violation

SCENARIO = Scenario(
    nodes=12,
    subscriptions=24,
    through_wire=True,
    network=NetworkSettings(loss=0.01, latency_ms=5),
    phases=(
        ScenarioPhase(name="one", steps=(PublishActivity(count=20, every_ms=5),)),
        ScenarioPhase(
            name="two",
            steps=(
                PublishActivity(count=20, every_ms=5),
                SubscriptionChurnActivity(duration_ms=1_000, per_second=20),
                CrashActivity(at_ms=500, count=3),
            ),
        ),
        ScenarioPhase(name="three", steps=(PublishActivity(count=20),)),
    ),
)
SCHEDULE = schedule_of(SCENARIO, SmallContent(SCENARIO.seed, SCENARIO.workload))


def found(rule):
    return [Violation(0, rule, "planted")]


def test_two_actions_that_fail_only_together_are_found_among_many():
    actions = [t.action for phase in SCHEDULE.phases for t in phase.actions]
    events = [action for action in actions if isinstance(action, do.PublishEvent)]
    guilty = {events[3].event.id, events[47].event.id}
    runs = []

    def rerun(scenario, schedule):
        runs.append(schedule)
        there = {
            t.action.event.id
            for phase in schedule.phases
            for t in phase.actions
            if isinstance(t.action, do.PublishEvent)
        }
        return found("missed") if guilty <= there else []

    shrunk = shrink(SCENARIO, SCHEDULE, found("missed"), rerun)
    left = [t.action for phase in shrunk.schedule.phases for t in phase.actions]
    assert SCHEDULE.actions > 100
    assert {action.event.id for action in left} == guilty and len(left) == 2
    assert shrunk.reruns == len(runs) < 150
    assert not shrunk.scenario.through_wire and not shrunk.scenario.network.loss


def test_what_the_failure_needs_of_the_settings_stays():
    def rerun(scenario, schedule):
        return found("missed") if scenario.network.loss and scenario.through_wire else []

    shrunk = shrink(SCENARIO, SCHEDULE, found("missed"), rerun)
    assert shrunk.scenario.network.loss == 0.01 and shrunk.scenario.through_wire
    assert shrunk.schedule.actions == 0


def test_another_failure_is_not_the_same():
    def rerun(scenario, schedule):
        return found("twice")

    shrunk = shrink(SCENARIO, SCHEDULE, found("missed"), rerun)
    assert shrunk.schedule == SCHEDULE and shrunk.scenario == SCENARIO


def test_the_number_of_reruns_is_bounded():
    runs = []

    def rerun(scenario, schedule):
        runs.append(schedule)
        return found("missed") if len(runs) % 2 else []

    shrunk = shrink(SCENARIO, SCHEDULE, found("missed"), rerun, reruns_max=10)
    assert len(runs) == shrunk.reruns == 10


def test_actions_are_counted_over_all_phases():
    one, two, three = (
        do.SchedulePhase(name, (do.TimedAction(0, do.Heal()),) * 2) for name in ("1", "2", "3")
    )
    fewer = without(do.Schedule((one, two, three)), 1, 4)
    assert [(p.name, len(p.actions)) for p in fewer.phases] == [("1", 1), ("3", 2)]


def test_a_planted_mistake_shrinks_to_few_actions_that_replay_from_their_text(monkeypatch):
    original = Shell.forward

    def forgetful(self, events, hops, sender, now_ms):
        if self.me.node == "n7" and sender is not None:
            return
        original(self, events, hops, sender, now_ms)

    monkeypatch.setattr(Shell, "forward", forgetful)
    scenario = replace(SCENARIO, network=NetworkSettings())
    outcome = run_scenario(scenario)
    assert {violation.rule for violation in outcome.violations} == {"missed"}
    shrunk = shrink(
        scenario,
        outcome.schedule,
        outcome.violations,
        lambda scenario, schedule: run_scenario(scenario, schedule=schedule).violations,
    )
    kinds = [type(t.action) for phase in shrunk.schedule.phases for t in phase.actions]
    # Somebody else must be there to publish, and n7 to be missed.
    assert kinds == [do.JoinNode, do.JoinNode, do.SubscribeAt, do.PublishEvent]
    again = run_scenario(Scenario.from_toml(shrunk.to_toml()))
    assert [(v.rule, v.event_id) for v in again.violations] == [
        (v.rule, v.event_id) for v in shrunk.violations
    ]
