"""The audit: against a naive twin, against the simulator's checker, and on planted faults."""

import json
from collections import Counter
from random import Random

import pytest

from audit_runs import deliveries_wanted, traced_run
from peersub.filters.filter import Filter
from peersub.overlays.core.causes import Received, Start, Subscribe
from peersub.overlays.core.effects import Drop, ProposeMove, Send
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Publication
from peersub.overlays.routing.messages import Notify
from peersub.simulator.activities import (
    CrashActivity,
    HealActivity,
    PartitionActivity,
    PublishActivity,
    RestartActivity,
    SubscribeActivity,
)
from peersub.simulator.content import WorkloadChoice
from peersub.simulator.scenario import Scenario, ScenarioPhase
from peersub.simulator.settings import NetworkSettings
from peersub.simulator.swarm import swarm_scenario
from peersub.trace.checkers import DeliveryChecker
from peersub.trace.schema import FaultKind, header_line, record_line
from trace_steps import Story

pytestmark = pytest.mark.spark

PAIRS = "event_id string, subscription_id string"


def findings_of(spark, expected, delivered, evidence=None, population=None):
    from peersub.pipeline.audit import audited

    wanted = spark.createDataFrame(expected, PAIRS)
    return audited(wanted, delivered, evidence, population)


# --- without a trace -----------------------------------------------------------------------------


def naive_findings(expected, copies):
    came = Counter(copies)
    found = {("missed", *pair, None) for pair in expected if not came[pair]}
    for pair, count in came.items():
        if pair not in expected:
            found.add(("spurious", *pair, count))
        elif count > 1:
            found.add(("duplicate", *pair, count - 1))
    return found


@pytest.mark.usefixtures("settings_of_real_jobs")
def test_every_difference_is_found_once(spark):
    from peersub.pipeline.schemas import FINDINGS
    from peersub.pipeline.trace_reading import deliveries_of

    random = Random(1)
    pairs = [(f"e{e}", f"s{s}") for e in range(20) for s in range(20)]
    # One event that all want, and one subscription that wants all: keys are far from even.
    expected = {*random.sample(pairs, 120), *((f"e{0}", f"s{s}") for s in range(20))}
    copies = [*random.sample(sorted(expected), 90), *random.sample(pairs, 60)]
    copies += random.choices(copies, k=40)
    rows = spark.createDataFrame(copies, PAIRS)
    found = findings_of(spark, sorted(expected), deliveries_of(rows))
    columns = [(field.name, field.dataType) for field in FINDINGS.spark]
    assert [(field.name, field.dataType) for field in found.schema] == columns
    listed = found.collect()
    names = ("finding", "event_id", "subscription_id", "copies")
    told = {tuple(row[name] for name in names) for row in listed}
    assert told == naive_findings(expected, copies)
    assert len(listed) == len(told)
    assert all(row["cause"] is None for row in listed if row["finding"] != "spurious")


def test_names_that_do_not_exist_are_told_from_those_not_wanted(spark):
    from peersub.pipeline.audit import Population
    from peersub.pipeline.trace_reading import deliveries_of

    came = [("e1", "s1"), ("e1", "s2"), ("e1", "nobody"), ("never", "s1")]
    population = Population(
        spark.createDataFrame([("e1",)], "event_id string"),
        spark.createDataFrame([("s1",), ("s2",)], "subscription_id string"),
    )
    delivered = deliveries_of(spark.createDataFrame(came, PAIRS))
    found = findings_of(spark, [("e1", "s1")], delivered, population=population).collect()
    assert {(row["event_id"], row["subscription_id"]): row["cause"] for row in found} == {
        ("e1", "s2"): "its filter does not match the event",
        ("e1", "nobody"): "there is no such subscription",
        ("never", "s1"): "there is no such event",
    }


# --- runs of the simulator -----------------------------------------------------------------------


def calm_scenario(overlay):
    publishing = ScenarioPhase(name="calm", steps=(PublishActivity(count=12, every_ms=50),))
    return Scenario(overlay=overlay, nodes=10, subscriptions=25, seed=3, phases=(publishing,))


def faulty_scenario(overlay):
    """Messages are lost; nodes crash and start again; the network is split, and heals."""

    def phase(name, *steps):
        return ScenarioPhase(name=name, steps=(*steps, PublishActivity(count=12, every_ms=50)))

    return Scenario(
        overlay=overlay,
        nodes=10,
        subscriptions=25,
        seed=4,
        network=NetworkSettings(loss=0.03),
        phases=(
            phase("before"),
            phase("crash", CrashActivity(fraction=0.3, at_ms=300)),
            phase("restart", RestartActivity(at_ms=200)),
            phase("split", PartitionActivity()),
            phase("healed", HealActivity()),
        ),
    )


def audit_of(spark, tmp_path, lines):
    """Judgements and findings of a trace, read from Parquet as the pipeline does."""
    from peersub.pipeline.audit import findings, judged
    from peersub.pipeline.evidence import Evidence
    from peersub.pipeline.metrics import delivery_totals
    from peersub.pipeline.trace_reading import delivered_in, trace_facts, trace_lines

    (tmp_path / "trace.ndjson").write_text("\n".join(lines) + "\n")
    facts = tmp_path / "facts"
    trace_facts(trace_lines(spark, str(tmp_path / "trace.ndjson"))).write.parquet(str(facts))
    evidence = Evidence(spark.read.parquet(str(facts)))
    expected = spark.createDataFrame(deliveries_wanted(lines), PAIRS)
    judgements = tmp_path / "judgements"
    judged(expected, delivered_in(evidence.facts), evidence).write.parquet(str(judgements))
    kept = spark.read.parquet(str(judgements))
    return delivery_totals(kept).first().asDict(), findings(kept, evidence).collect()


SCENARIOS = {
    **{f"calm {overlay}": calm_scenario(overlay) for overlay in ("flood", "tree", "chord")},
    **{f"faulty {overlay}": faulty_scenario(overlay) for overlay in ("flood", "tree", "chord")},
    "a node that repeats after its restart": swarm_scenario(19, "tree"),
    "promised events that come late": swarm_scenario(22, "chord"),
}


def in_words_of_a_summary(counts):
    names = {"duplicate": "duplicates", "repeated_after_crash": "repeated"}
    told = ("expected", "delivered", "missed", "spurious", "duplicate", "repeated_after_crash")
    return {each: counts[names.get(each, each)] for each in (*told, "late")}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_audit_agrees_with_the_checker_of_the_run(spark, tmp_path, name):
    run = traced_run(SCENARIOS[name])
    counts, found = audit_of(spark, tmp_path, run.lines)
    told = in_words_of_a_summary(counts)
    assert told == {each: run.summary[each] for each in told}
    listed = Counter(row["finding"] for row in found)
    assert listed["missed"] == run.summary["missed"]
    assert bool(run.summary["missed"]) != name.startswith("calm")
    assert run.summary["expected"]
    assert all(row["cause"] and row["node"] for row in found)


# --- subscribers that move ------------------------------------------------------------------------


def test_what_comes_on_both_nodes_of_subscribers_that_move_is_in_order(spark, tmp_path):
    coming = (SubscribeActivity(count=24, every_ms=250), PublishActivity(count=40, every_ms=150))
    scenario = Scenario(
        overlay="dag",
        nodes=8,
        subscriptions=0,
        seed=1,
        workload=WorkloadChoice(kind="symbols"),
        settings={"linger_ms": 2_000},
        quiet_limit_ms=300_000,
        phases=(ScenarioPhase(name="coming", steps=coming),),
    )
    run = traced_run(scenario)
    pairs = [(event, name) for *_, event, names in delivering(run.lines) for name in names]
    assert len(pairs) > len(set(pairs))
    counts, found = audit_of(spark, tmp_path, run.lines)
    told = in_words_of_a_summary(counts)
    assert told == {each: run.summary[each] for each in told}
    assert counts["delivered"] == len(pairs)
    assert {row["finding"] for row in found} <= {"excused"}


def test_each_node_of_a_subscriber_that_moves_is_judged_by_itself(spark, tmp_path):
    def moves_to(node):
        return story.step(node, Subscribe("s", Filter("x > 0"), moved=True))

    def came(event, *nodes):
        story.publish("p", event, x=1)
        for node in nodes:
            story.deliver(node, event, "s")
        return story

    story = Story().phase("calm").subscribe("a", "s", "x > 0")
    came("before", "a").step("a", Start(), [ProposeMove("s", "b")])
    moves_to("b")
    came("not yet ready", "a", "b").ready("b", "s")
    came("on both", "a", "b")
    came("doubled", "a", "b", "b")
    came("on the old one", "a").wait(20_000)
    came("under way", "b").unsubscribe("a", "s")
    came("after", "b", "a").wait(20_000)
    moves_to("a").ready("a", "s")
    came("and back", "a", "b").unsubscribe("a", "s")
    moves_to("a").ready("a", "s").deliver("a", "and back", "s").unsubscribe("b", "s")
    came("alone", "a").wait(20_000)

    checker = DeliveryChecker()
    for record in story.records:
        checker.observe(record)
    checker.finish(story.now_ms)
    lines = [header_line(overlay="told"), *(record_line(record) for record in story.records)]
    counts, found = audit_of(spark, tmp_path, lines)
    for name in ("expected", "delivered", "missed", "excused", "spurious", "repeated", "late"):
        assert counts[name] == getattr(checker.counts, name), name
    assert counts["duplicates"] == checker.counts.duplicate
    assert {(row["finding"], row["event_id"], row["node"]) for row in found} == {
        ("duplicate", "doubled", "b"),
        ("missed", "on the old one", "b"),
        ("excused", "under way", "a"),
        ("spurious", "after", "a"),
    }


# --- planted faults ------------------------------------------------------------------------------


def delivering(lines):
    """The places of steps that deliver: line, effect, and the subscriptions of the effect."""
    for number, line in enumerate(lines):
        form = json.loads(line)
        for place, effect in enumerate(form.get("effects", ())):
            if effect["kind"] == "deliver":
                yield number, place, effect["event_id"], effect["subscriptions"]


def changed(lines, number, place, change):
    form = json.loads(lines[number])
    change(form["effects"], place)
    lines[number] = json.dumps(form)


@pytest.mark.slow
def test_deliveries_taken_out_put_in_and_doubled_are_found_and_named(spark, tmp_path):
    lines = list(traced_run(calm_scenario("chord")).lines)
    wanted = set(deliveries_wanted(lines))
    places = list(delivering(lines))
    removed, doubled, wrong, unknown, unpublished = (
        places[2],
        places[5],
        places[7],
        places[9],
        places[11],
    )
    unwanted = next(
        (each, other)
        for each in places
        for other in (name for place in places for name in place[3])
        if (each[2], other) not in wanted
    )
    expected = Counter()
    changed(lines, *removed[:2], lambda effects, place: effects.pop(place))
    expected.update(("missed", removed[2], name) for name in removed[3])
    changed(lines, *doubled[:2], lambda effects, place: effects.append(effects[place]))
    expected.update(("duplicate", doubled[2], name) for name in doubled[3])
    assert unwanted[0][0] != removed[0]
    changed(
        lines,
        *unwanted[0][:2],
        lambda effects, place: effects.append(effects[place] | {"subscriptions": [unwanted[1]]}),
    )
    expected["spurious", unwanted[0][2], unwanted[1]] += 1
    changed(
        lines,
        *unknown[:2],
        lambda effects, place: effects.append(effects[place] | {"subscriptions": ["nobody"]}),
    )
    expected["spurious", unknown[2], "nobody"] += 1
    changed(
        lines,
        *unpublished[:2],
        lambda effects, place: effects.append(effects[place] | {"event_id": "never"}),
    )
    expected.update(("spurious", "never", name) for name in unpublished[3])
    assert len({removed[0], doubled[0], wrong[0], unknown[0], unpublished[0]}) == 5

    _, found = audit_of(spark, tmp_path, lines)
    assert Counter((r["finding"], r["event_id"], r["subscription_id"]) for r in found) == expected
    causes = {(r["finding"], r["event_id"], r["subscription_id"]): r["cause"] for r in found}
    for name in removed[3]:
        cause = causes["missed", removed[2], name]
        assert cause.endswith("received it and handed it to nobody") or "does not show" in cause
    assert "handed it over again" in causes["duplicate", doubled[2], doubled[3][0]]
    assert causes["spurious", unknown[2], "nobody"] == "the trace shows no such subscription"
    assert causes["spurious", "never", unpublished[3][0]] == "the event was never published"


@pytest.mark.usefixtures("settings_of_real_jobs")
def test_every_cause_is_named(spark, tmp_path):
    """A story in which each event misses, or reaches, one subscription for another reason."""

    def notify(event):
        return (Notify(Publication(event, {}), (), 1),)

    def sent(event, *receivers):
        return story.step("p", Start(), [Send(PeerId(node), notify(event)) for node in receivers])

    story = Story().phase("calm").subscribe("a", "s1", "x > 0").subscribe("b", "s2", "x > 1")
    story.subscribe("c", "s3", "x > 2", ready=False)
    story.publish("p", "unknown", x=1).wait(20_000)
    story.publish("p", "in vain", x=1).step("a", Received(PeerId("p"), notify("in vain"))).wait(
        20_000
    )
    story.publish("p", "dropped", x=1)
    story.step(
        "a", Received(PeerId("p"), notify("dropped")), [Drop("full", "dropped", PeerId("p"))]
    )
    story.wait(20_000).publish("p", "dropped far away", x=1)
    story.step(
        "q", Start(), [Drop("full", "dropped far away"), Drop("seen before", "dropped far away")]
    )
    story.wait(20_000).publish("p", "lost", x=1)
    sent("lost", "a", "q").wait(20_000).publish("p", "lost far away", x=1)
    sent("lost far away", "q").wait(20_000).publish("p", "late", x=1).wait(15_000)
    story.deliver("a", "late", "s1").publish("p", "not ready", x=3).deliver("a", "not ready", "s1")
    story.deliver("b", "not ready", "s2").wait(20_000).ready("c", "s3").wait(20_000)
    story.unsubscribe("c", "s3").publish("p", "ended", x=3).deliver("a", "ended", "s1")
    story.deliver("b", "ended", "s2").deliver("c", "ended", "s3").wait(20_000)
    story.publish("p", "elsewhere", x=1).deliver("b", "elsewhere", "s1").wait(20_000)
    story.publish("p", "under way", x=2).deliver("a", "under way", "s1").crash("b").wait(20_000)
    story.phase("split").fault(FaultKind.PARTITION, groups=(("a",), ("b", "c")))
    story.publish("p", "split", x=1).wait(20_000).fault(FaultKind.HEAL).wait(200_000)
    story.phase("lossy", disturbed=True).publish("p", "disturbed", x=1).wait(20_000)
    lines = [header_line(overlay="told"), *(record_line(record) for record in story.records)]

    _, found = audit_of(spark, tmp_path, lines)
    told = {(r["finding"], r["event_id"], r["subscription_id"]): r["cause"] for r in found}
    at = {e["publications"][0]["event_id"]: ms for e, ms in _publications(lines)}
    dropped_far, lost = at["dropped far away"] + 1, at["lost"] + 1
    assert told == {
        ("missed", "unknown", "s1"): "the trace does not show why",
        ("missed", "in vain", "s1"): "a received it and handed it to nobody",
        ("missed", "dropped", "s1"): f"a dropped it at {at['dropped'] + 1} ms: full",
        ("missed", "dropped far away", "s1"): f"q dropped it at {dropped_far} ms: full",
        ("missed", "lost", "s1"): f"p sent it to a at {lost} ms, and it never arrived",
        ("missed", "lost far away", "s1"): (
            f"on its way, p sent it to q at {at['lost far away'] + 1} ms, and it never arrived"
        ),
        ("missed", "late", "s1"): "it came late, 15001 ms after it was published",
        ("excused", "not ready", "s3"): (
            f"the subscription was ready only at {at['ended'] - 20_002} ms"
        ),
        ("excused", "ended", "s3"): (
            f"the subscription had ended: it was unsubscribed at {at['ended'] - 1} ms"
        ),
        ("spurious", "ended", "s3"): f"the subscription had ended at {at['ended'] - 1} ms",
        ("missed", "elsewhere", "s1"): "the trace does not show why",
        ("spurious", "elsewhere", "s1"): "b never had this subscription",
        ("excused", "under way", "s2"): (
            f"it was under way when its node b crashed at {at['under way'] + 2} ms"
        ),
        ("missed", "split", "s1"): (
            "the network was split: a and the publisher p were in different parts"
        ),
        ("missed", "disturbed", "s1"): "it was published while the network was disturbed (lossy)",
    }


def _publications(lines):
    for line in lines:
        form = json.loads(line)
        if form.get("cause", {}).get("kind") == "publish":
            yield form["cause"], form["ms"]
