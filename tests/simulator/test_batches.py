"""Batches in simulated networks: seen event by event, delivered as if each had come alone."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest

from peersub.overlays.core.batch import Batch
from peersub.overlays.core.causes import Publish, PublishBatch
from peersub.overlays.core.effects import Deliver, DeliverBatch, PublishCompleted
from peersub.overlays.core.home import Home
from peersub.overlays.core.publication import Publication
from peersub.overlays.registry import overlay_kind
from peersub.overlays.routing.batch_routing import BatchRouting
from peersub.simulator import actions as do
from peersub.simulator.activities import (
    CrashActivity,
    HealActivity,
    PartitionActivity,
    PublishActivity,
    RestartActivity,
)
from peersub.simulator.batches import Batches
from peersub.simulator.content import WorkloadChoice
from peersub.simulator.meter import Meter
from peersub.simulator.running import run_scenario
from peersub.simulator.scenario import Scenario, ScenarioPhase
from peersub.simulator.settings import NetworkSettings
from peersub.simulator.swarm import BATCHES_FROM, swarm_scenario
from peersub.trace.explain import Verdict, explain
from peersub.trace.reading import check_trace, trace_forms
from peersub.trace.schema import Step
from peersub.trace.writing import TraceWriter


class _Watcher:
    """Keeps the steps."""

    def __init__(self):
        self.steps = []

    def observe(self, record):
        if isinstance(record, Step):
            self.steps.append(record)

    def effects(self, kind):
        return [effect for step in self.steps for effect in step.effects if type(effect) is kind]


def scenario_of(*steps, overlay="chord", share=1.0, **changes):
    """Nine nodes that publish in batches of five, unless other steps are given."""
    steps = steps or (PublishActivity(count=23, batch_events=5, every_ms=10),)
    return Scenario(
        overlay=overlay,
        nodes=9,
        subscriptions=20,
        batch_share=share,
        settle_ms=8_000,
        phases=(ScenarioPhase(name="publishing", steps=steps),),
        **changes,
    )


def expected_pairs(schedule):
    """Who should get what, in a run in which nobody comes or goes: each filter of each event."""
    actions = [timed.action for phase in schedule.phases for timed in phase.actions]
    wishes = [(each.subscription, each.filter) for each in actions if type(each) is do.SubscribeAt]
    wishes += [wish for _, given in schedule.given for wish in given]
    events = [event for each in actions if type(each) is do.PublishEvents for event in each.events]
    return sorted((e.id, name) for e in events for name, wanted in wishes if wanted.matches(e))


# --- what is delivered -------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["joined", "converged"])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("overlay", ["chord", "tree", "flood"])
def test_without_faults_everybody_gets_what_brute_force_says(overlay, share, start):
    watcher = _Watcher()
    scenario = scenario_of(
        overlay=overlay,
        share=share,
        start=start,
        through_wire=share == 0.5,
        workload=WorkloadChoice(xpath_share=0.3),
    )
    outcome = run_scenario(scenario, observers=[watcher])
    assert outcome.violations == []
    delivered = [
        (d.publication.id, name) for d in watcher.effects(Deliver) for name in d.subscriptions
    ]
    assert sorted(delivered) == expected_pairs(outcome.schedule) and len(delivered) > 20
    sent = outcome.simulation.counters.messages_by_kind()
    assert ("notify-batch" in sent) == (share > 0 and overlay != "flood")
    assert ("notify" in sent) == (share < 1 and overlay != "flood") or overlay == "chord"


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_promises_are_kept_whatever_happens(seed, share):
    publish = PublishActivity(count=20, batch_events=7, every_ms=60, delivery="at_least_once")
    steps = (
        publish,
        CrashActivity(at_ms=300, fraction=0.3),
        RestartActivity(at_ms=900),
        PartitionActivity(at_ms=2_000),
        replace(publish, at_ms=2_100),
        HealActivity(at_ms=9_000),
    )
    network = NetworkSettings(loss=0.05, duplicate=0.05, reorder=0.1, disk_ms=40)
    scenario = scenario_of(*steps, share=share, seed=seed, network=network)
    outcome = run_scenario(scenario)
    assert outcome.violations == []
    counts = outcome.checker.counts
    # A publisher that crashes takes its batches with it: what is not completed is not promised.
    assert counts.duplicate == counts.failed == 0 and counts.completed > 20 < counts.delivered


def test_a_message_that_comes_twice_is_recognised(monkeypatch):
    scenario = scenario_of(network=NetworkSettings(duplicate=0.3))
    assert run_scenario(scenario).violations == []
    # What came before counts as new.
    monkeypatch.setattr(Home, "see_batch", lambda self, batch, now_ms: batch)
    assert {violation.rule for violation in run_scenario(scenario).violations} == {"twice"}


def test_a_batch_of_more_events_than_are_kept_is_replayed_after_a_split():
    during = (
        PartitionActivity(),
        PublishActivity(at_ms=5_000, count=10, batch_events=10, delivery="at_least_once"),
    )
    scenario = replace(
        scenario_of(settings={"replay_events_max": 4}),
        phases=(
            ScenarioPhase(name="split", steps=during),
            ScenarioPhase(name="healed", steps=(HealActivity(),)),
        ),
    )
    outcome = run_scenario(scenario)
    assert outcome.violations == [] and outcome.checker.counts.delivered > 10


# --- what is seen ------------------------------------------------------------------------------


def test_observers_see_single_events():
    watcher = _Watcher()
    step = PublishActivity(count=23, batch_events=5, every_ms=10, delivery="at_least_once")
    outcome = run_scenario(scenario_of(step), observers=[watcher])
    assert outcome.violations == []
    causes = [step.cause for step in watcher.steps]
    assert not watcher.effects(DeliverBatch)
    assert not any(isinstance(cause, PublishBatch) for cause in causes)
    published = [
        each for cause in causes if isinstance(cause, Publish) for each in cause.publications
    ]
    assert len(published) == 23 and published[5].id == "batch-5/0"
    ended = [effect.event_id for effect in watcher.effects(PublishCompleted)]
    assert sorted(ended) == sorted(each.id for each in published)
    assert outcome.checker.counts.completed == 23


def test_a_message_with_many_events_is_one_message_and_a_copy_of_each():
    meter, single = Meter(), Meter()
    one = PublishActivity(count=20, batch_events=20)
    assert run_scenario(scenario_of(one, overlay="tree"), observers=[meter]).is_good
    run_scenario(scenario_of(one, overlay="tree", share=0.0), observers=[single])
    for each in (meter, single):
        each.finish()
    batch, alone = meter.phases["publishing"], single.phases["publishing"]
    assert batch.totals == alone.totals and batch.totals.events == 20
    assert alone.sent["notify"] == alone.totals.copies == batch.totals.copies
    assert batch.data == {"notify-batch": batch.sent["notify-batch"]}
    assert batch.sent["notify-batch"] <= 8 < batch.totals.copies
    assert sum(meter.received_events) == batch.sent["notify-batch"]


def test_a_trace_with_batches_is_checked_and_explained():
    written = io.StringIO()
    step = PublishActivity(count=23, batch_events=5, every_ms=10, delivery="mixed")
    scenario = scenario_of(step, start="converged", share=0.7)
    outcome = run_scenario(scenario, observers=[TraceWriter(written, overlay="chord", seed=1)])
    lines = written.getvalue().splitlines()
    checker = check_trace(lines)
    assert checker.violations == outcome.violations == []
    assert checker.counts == outcome.checker.counts
    forms = list(trace_forms(lines))
    far = [
        (effect["event_id"], name)
        for form in forms
        for effect in form.get("effects", ())
        if effect["kind"] == "deliver" and effect.get("hops", 0) >= 2
        for name in effect["subscriptions"]
    ]
    for event_id, name in far[:10]:
        found = explain(forms, event_id, name)
        assert found.verdict is Verdict.DELIVERED and len(found.path) >= 2
    kinds = {
        each["kind"]
        for form in forms
        for e in form.get("effects", ())
        for each in e.get("messages", ())
    }
    assert {"notify", "notify-batch"} <= kinds and far


def test_a_value_that_changes_on_the_way_is_found(monkeypatch):
    original = Batch.publications

    def publications(self):
        for each in original(self):
            changed = {**each.attributes, "a": str(each.attributes["a"])}
            yield Publication(each.id, changed, each.body, delivery=each.delivery)

    monkeypatch.setattr(Batch, "publications", publications)
    (violation,) = run_scenario(scenario_of()).violations
    assert violation.rule == "exception" and "came as" in violation.text


def test_nothing_is_told_otherwise_where_there_are_no_batches():
    assert not Batches()
    told = Batches().effects_told([PublishCompleted("e1")])
    assert told == [PublishCompleted("e1")]


# --- the swarm ---------------------------------------------------------------------------------


def test_seeds_before_do_not_know_of_batches_and_those_after_draw_them():
    before = [swarm_scenario(seed) for seed in range(50)]
    assert not any(scenario.batch_share for scenario in before)
    after = [swarm_scenario(BATCHES_FROM + seed) for seed in range(100)]
    assert {scenario.batch_share for scenario in after} == {0.0, 0.3, 0.7, 0.9, 1.0}
    steps = [step for each in after for phase in each.phases for step in phase.steps]
    sizes = {step.batch_events for step in steps if isinstance(step, PublishActivity)}
    assert sizes == {1, 2, 5, 20, 60}
    for scenario in after[:20]:
        assert Scenario.from_toml(scenario.to_toml()) == scenario


def plant_in_the_rows_of_an_edge(monkeypatch):
    """The last event that an edge wants is left out."""
    original = BatchRouting.for_edge

    def for_edge(self, wanted, batch, peer, part):
        its = original(self, wanted, batch, peer, part)
        return its if its is None or len(its) < 2 else its.part(np.arange(len(its) - 1))

    monkeypatch.setattr(BatchRouting, "for_edge", for_edge)


def plant_in_the_confirmation(monkeypatch):
    """Nobody waits for the disk."""
    original = Home.store_batch

    def store_batch(self, *arguments):
        original(self, *arguments)
        return False

    monkeypatch.setattr(Home, "store_batch", store_batch)


def plant_in_the_places_of_new_events(monkeypatch):
    """Each subscription gets what is at its places in the whole batch, not in the part."""
    original = Home._begin_storing

    def begin_storing(self, part, batch, wanted, hops, now_ms):
        storing = original(self, part, batch, wanted, hops, now_ms)
        storing.wanted = tuple((name, rows[rows < len(part)]) for name, rows in wanted)
        return storing

    monkeypatch.setattr(Home, "_begin_storing", begin_storing)


@pytest.mark.parametrize(
    "plant",
    [
        plant_in_the_rows_of_an_edge,
        plant_in_the_confirmation,
        plant_in_the_places_of_new_events,
    ],
)
def test_the_swarm_finds_what_is_planted(plant, monkeypatch):
    plant(monkeypatch)
    for seed in range(BATCHES_FROM, BATCHES_FROM + 60):
        scenario = swarm_scenario(seed, "chord")
        if scenario.nodes <= 9 and run_scenario(scenario).violations:
            monkeypatch.undo()
            assert run_scenario(scenario).violations == [], "it is the mistake that is found"
            return
    pytest.fail("not found with the first 60 seeds")


@pytest.mark.parametrize("overlay", ["chord", "tree", "flood"])
def test_one_seed_is_one_trace(overlay):
    traces = []
    for _ in range(2):
        written = io.StringIO()
        run_scenario(scenario_of(overlay=overlay, share=0.5), observers=[TraceWriter(written)])
        traces.append(written.getvalue())
    assert traces[0] == traces[1] and json.loads(traces[0].splitlines()[1])
    assert overlay_kind(overlay).name == overlay
