"""The parts of a report, from DataFrames: aggregations and first rows, so that they stay small."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as sql

from peersub.pipeline.metrics import causes_counted, fan_out
from peersub.pipeline.report.content import (
    CAUSES_SHOWN_MAX,
    FINDINGS_SHOWN_MAX,
    REASONS_SHOWN_MAX,
    CauseCount,
    FindingShown,
    MatchFigures,
    ReasonCount,
)

__all__ = ["cause_counts", "findings_shown", "match_figures", "reason_counts"]

# What is worst is shown first.
_ORDER = ("missed", "spurious", "duplicate", "excused")


def reason_counts(quarantine: Any, at_most: int = REASONS_SHOWN_MAX) -> tuple[ReasonCount, ...]:
    """The most frequent reasons of QUARANTINE."""
    rows = sql.sum(sql.coalesce("rows", sql.lit(1))).alias("rows")
    counted = quarantine.groupBy("dataset", "reason").agg(rows)
    first = counted.orderBy(sql.desc("rows"), "dataset", "reason").limit(at_most).collect()
    return tuple(ReasonCount(row["dataset"], row["reason"], int(row["rows"])) for row in first)


def match_figures(deliveries: Any, *, events: int, subscriptions: int) -> MatchFigures:
    """What DELIVERIES say, of so many events and subscriptions."""
    spreads = [
        tuple((int(row[0]), int(row[1])) for row in fan_out(deliveries, column).collect())
        for column in ("event_id", "subscription_id")
    ]
    return MatchFigures(events, subscriptions, deliveries.count(), spreads[0], spreads[1])


def cause_counts(
    overlay: str, findings: Any, at_most: int = CAUSES_SHOWN_MAX
) -> tuple[CauseCount, ...]:
    """The most frequent causes of FINDINGS."""
    return tuple(
        CauseCount(overlay, row["finding"], row["cause"], int(row["findings"]), int(row["copies"]))
        for row in causes_counted(findings).limit(at_most).collect()
    )


def findings_shown(
    overlay: str, findings: Any, at_most: int = FINDINGS_SHOWN_MAX
) -> tuple[FindingShown, ...]:
    """The first FINDINGS, the worst kinds first."""
    rank = sql.array_position(sql.array(*(sql.lit(kind) for kind in _ORDER)), sql.col("finding"))
    first = findings.orderBy(rank, "event_id", "subscription_id", "node").limit(at_most).collect()
    return tuple(
        FindingShown(overlay, *(row[name] for name in FindingShown.__slots__[1:])) for row in first
    )
