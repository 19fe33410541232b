"""A report with something in every part, and hostile text wherever text comes from data."""

from peersub.pipeline.metrics import DeliveryFigures, LoadFigures, Measures, RoutingFigures
from peersub.pipeline.report.content import (
    CauseCount,
    FindingShown,
    InputCount,
    MatchFigures,
    ReasonCount,
    Report,
    StepTaken,
)
from peersub.simulator.summary import spread_of

HOSTILE = "<script>alert('x')</script>&\"'"


def measures(overlay, messages, receivers, hops, curve, gini, missed=0):
    return Measures(
        overlay=overlay,
        deliveries=DeliveryFigures(93_120, 93_120 - missed, missed, 2, 3, excused=41),
        routing=RoutingFigures(10_000, 256, messages, receivers, 81_733, 0.31, 93_120 - missed),
        load=LoadFigures(256, messages / 256, round(messages / 100), gini, 1 - gini / 2, curve),
        hops=spread_of(hops),
        hops_histogram=tuple(sorted(hops.items())),
    )


def example_report(hostile=HOSTILE):
    curves = [tuple((n / 20, (n / 20) ** power) for n in range(1, 21)) for power in (1.2, 2, 3.5)]
    overlays = (
        measures(
            "flood", 2_541_223, 2_550_000, {0: 500, 1: 9_000, 2: 60_000, 3: 23_620}, curves[0], 0.09
        ),
        measures(
            "tree", 402_001, 402_001, {n: 12_000 - 700 * n for n in range(15)}, curves[2], 0.62, 118
        ),
        measures(
            "chord", 141_871, 140_900, {n: 900 * n * (9 - n) for n in range(10)}, curves[1], 0.33, 7
        ),
    )
    findings = tuple(
        FindingShown(
            "tree",
            "missed" if n else "spurious",
            f"e{n}{hostile}",
            f"s{n * 7}",
            f"n{n}",
            None if n else 2,
            f"n{n} sent it to n{n + 1} at {n * 17} ms, and it never arrived",
        )
        for n in range(40)
    )
    return Report(
        title=f"peersub pipeline: stocks {hostile}",
        settings=(("nodes", "256"), ("seed", "1"), ("overlays", "flood, tree, chord")),
        reproduce=("peersub pipeline run --events events.jsonl --out out --nodes 256 --seed 1",),
        steps=(StepTaken("match", 93_120, 12.25), StepTaken("route chord", 140_900)),
        inputs=(
            InputCount("events", f"events.jsonl{hostile}", 10_004, 10_000, 4),
            InputCount("subscriptions", "subscriptions.jsonl", 20_011, 20_000, 11),
        ),
        reasons=(
            ReasonCount("subscriptions", f"the filter cannot be read: {hostile}", 11),
            ReasonCount("events", "not JSON", 4),
        ),
        match=MatchFigures(
            10_000,
            20_000,
            93_120,
            tuple((1 << n, 400 + 300 * n - 20 * n * n) for n in range(12)),
            tuple((1 << n, 3_000 - 290 * n) for n in range(10)),
        ),
        overlays=overlays,
        causes=(
            CauseCount(
                "tree", "missed", "a node sent it to another at … ms, and it never arrived", 118, 0
            ),
            CauseCount("flood", "spurious", f"its filter does not match {hostile}", 1, 2),
        ),
        findings=findings,
        findings_count=164,
    )
