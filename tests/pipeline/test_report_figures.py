"""Figures by Spark, against the simulator's summary and figures worked out in plain Python."""

from collections import Counter
from random import Random

import pytest

from audit_runs import deliveries_wanted, traced_run
from peersub.simulator.activities import PublishActivity
from peersub.simulator.scenario import Scenario, ScenarioPhase
from peersub.simulator.summary import load_figures

pytestmark = pytest.mark.spark

RECEIPTS_COLUMNS = "event_id string, node int, sender int, hops int, messages int, wanted boolean"


@pytest.mark.parametrize("idle", [0, 13])
def test_load_is_that_of_the_simulator(spark, idle):
    from peersub.pipeline.metrics import LORENZ_POINTS, measured

    random = Random(idle)
    loads = [random.choice((1, 2, 2, 3, 50, 700)) for _ in range(300)]
    rows = [("e", node, 0, 1, load, True) for node, load in enumerate(loads)]
    receipts = spark.createDataFrame(rows, RECEIPTS_COLUMNS)
    load = measured("x", 300 + idle, receipts=receipts).load
    wanted = load_figures([0] * idle + loads)
    assert (load.nodes, load.largest) == (300 + idle, wanted["max"])
    assert load.gini == pytest.approx(wanted["gini"], abs=1e-6)
    assert load.jain == pytest.approx(wanted["jain"], abs=1e-6)
    assert load.largest_over_mean == pytest.approx(wanted["max_over_mean"], abs=1e-6)
    assert len(load.curve) <= LORENZ_POINTS + 1
    assert ((idle / (300 + idle), 0.0) in load.curve) == bool(idle)
    assert load.curve[-1] == (1.0, 1.0)
    ordered = sorted([0] * idle + loads)
    for share, borne in load.curve:
        count = round(share * len(ordered))
        assert borne == pytest.approx(sum(ordered[:count]) / sum(ordered))


def test_receipts_worked_out_by_hand(spark):
    from peersub.pipeline.metrics import measured

    receipts = spark.createDataFrame(
        [
            ("e1", 0, -1, 0, 1, True),  # the publisher wants it itself, and gets one copy back
            ("e1", 1, 0, 1, 1, False),
            ("e1", 2, 1, 2, 3, True),
            ("e2", 3, -1, 0, 0, False),
            ("e2", 2, 3, 1, 1, False),
        ],
        RECEIPTS_COLUMNS,
    )
    deliveries = spark.createDataFrame(
        [("e1", "s1", "0", 0), ("e1", "s2", "2", 2), ("e1", "s3", "2", 2)],
        "event_id string, subscription_id string, node string, hops int",
    )
    measures = measured("x", 5, receipts=receipts, deliveries=deliveries)
    routing = measures.routing
    assert (routing.events, routing.messages) == (2, 6)
    assert (routing.receivers, routing.matching_receivers) == (3, 1)
    assert routing.false_positive_ratio == pytest.approx((1 / 5 + 1 / 5) / 2)
    assert routing.relay_share == pytest.approx(2 / 3)
    assert (routing.messages_per_event, routing.messages_per_delivery) == (3, 2)
    assert (routing.copies_per_receiver, routing.repeated_receipts) == (6, 3)
    assert measures.hops_histogram == ((0, 1), (2, 2))
    assert (measures.hops.p50, measures.hops.largest) == (2, 2)


def test_nothing_gives_no_figures_and_no_error(spark):
    from peersub.pipeline.metrics import measured

    measures = measured(
        "x",
        3,
        receipts=spark.createDataFrame([], RECEIPTS_COLUMNS),
        deliveries=spark.createDataFrame([], "event_id string, subscription_id string, hops int"),
    )
    assert (measures.load.gini, measures.load.jain, measures.load.nodes) == (0.0, 1.0, 3)
    assert (measures.routing.events, measures.routing.relay_share, measures.hops) == (0, 0.0, None)


@pytest.mark.slow
@pytest.mark.parametrize("overlay", ["flood", "chord"])
@pytest.mark.usefixtures("settings_of_real_jobs")
def test_figures_of_a_trace_are_those_of_the_run(spark, tmp_path, overlay):
    from peersub.pipeline.audit import judged
    from peersub.pipeline.evidence import Evidence
    from peersub.pipeline.metrics import measured
    from peersub.pipeline.trace_reading import delivered_in, receipts_in, trace_facts, trace_lines

    publishing = ScenarioPhase(name="calm", steps=(PublishActivity(count=15, every_ms=50),))
    run = traced_run(
        Scenario(overlay=overlay, nodes=12, subscriptions=14, seed=5, phases=(publishing,))
    )
    (tmp_path / "trace.ndjson").write_text("\n".join(run.lines))
    trace_facts(trace_lines(spark, str(tmp_path))).write.parquet(str(tmp_path / "facts"))
    facts = spark.read.parquet(str(tmp_path / "facts"))
    wanted = spark.createDataFrame(
        deliveries_wanted(run.lines), "event_id string, subscription_id string"
    )
    judgements = judged(wanted, delivered_in(facts), Evidence(facts))
    measures = measured(overlay, 12, judgements=judgements, receipts=receipts_in(facts))
    summary, routing = run.summary, measures.routing
    assert measures.deliveries.delivered == summary["delivered"] > 0
    assert routing.false_positive_ratio == pytest.approx(summary["false_positive_ratio"], abs=1e-6)
    assert routing.relay_share == pytest.approx(summary["relay_share"], abs=1e-6)
    assert routing.messages == summary["messages"]["data"]
    assert routing.messages_per_event == pytest.approx(summary["messages"]["per_event"], abs=1e-6)
    assert routing.copies_per_receiver == pytest.approx(
        summary["messages"]["copies_per_receiver"], abs=1e-6
    )
    assert {str(h): n for h, n in measures.hops_histogram} == summary["hops_histogram"]
    assert measures.load.gini == pytest.approx(summary["event_load"]["gini"], abs=1e-6)
    assert measures.load.jain == pytest.approx(summary["event_load"]["jain"], abs=1e-6)


def test_parts_of_the_report_are_counted_and_bounded(spark):
    from peersub.pipeline.report.content import ReasonCount
    from peersub.pipeline.report.gathering import (
        cause_counts,
        findings_shown,
        match_figures,
        reason_counts,
    )
    from peersub.pipeline.schemas import FINDINGS, QUARANTINE

    random = Random(7)
    drawn = ((random.randrange(9), int(random.random() ** 3 * 40)) for _ in range(200))
    pairs = sorted({(f"e{event}", f"s{subscription}") for event, subscription in drawn})
    deliveries = spark.createDataFrame(pairs, "event_id string, subscription_id string")
    figures = match_figures(deliveries, events=10, subscriptions=50)
    for place, spread in ((0, figures.by_event), (1, figures.by_subscription)):
        sizes = Counter(
            1 << (n.bit_length() - 1) for n in Counter(p[place] for p in pairs).values()
        )
        assert spread == tuple(sorted(sizes.items()))
    assert figures.events_unwanted == 10 - len({event for event, _ in pairs})

    rows = [("events", "a", "line 1", "not JSON", "x", 1)] * 3
    rows += [("events", "b", "", "it is cut off", "", None), ("events", "b", "", "it ends", "", 7)]
    quarantine = spark.createDataFrame(rows, QUARANTINE.spark)
    assert reason_counts(quarantine, 2) == (
        ReasonCount("events", "it ends", 7),
        ReasonCount("events", "not JSON", 3),
    )

    rows = [("excused", "e0", "s1", None, None, "the event was never published")]
    lost = "n{0} sent it to n1{0} at {0} ms, and it never arrived"
    rows += [("missed", f"e{n}", "s1", "n1", None, lost.format(n)) for n in range(5)]
    dropped = "n{0} dropped it at {0} ms: full"
    rows += [("missed", "e9", f"s{n}", "n1", None, dropped.format(n)) for n in range(2)]
    findings = spark.createDataFrame(rows, FINDINGS.spark)
    counted = [(each.finding, each.cause, each.findings) for each in cause_counts("tree", findings)]
    assert counted == [
        ("missed", "a node sent it to another at … ms, and it never arrived", 5),
        ("missed", "a node dropped it at … ms: full", 2),
        ("excused", "the event was never published", 1),
    ]
    shown = findings_shown("tree", findings, 3)
    assert [(each.finding, each.event_id) for each in shown] == [
        ("missed", "e0"),
        ("missed", "e1"),
        ("missed", "e2"),
    ]
