"""Why an expected event did not come: the nearest to the subscriber that the trace shows.

For each missed pair, the first of these that holds:

1. it came, but late;
2. the subscriber's node dropped it, for a reason other than having it already;
3. the network was split, with the publisher and the subscriber's node in different parts;
4. the subscriber's node received it and handed it to nobody;
5. it was sent to the subscriber's node and never arrived;
6. another node dropped it;
7. it was sent to another node and never arrived there;
8. the network was disturbed while it was under way;
9. the trace does not show why.

Only what the trace tells about events that were missed is looked at.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

from pyspark.sql import functions as sql

from peersub.pipeline.evidence import Evidence, disturbances, event_times, node_sides, splits

__all__ = ["UNKNOWN_CAUSE", "explained"]

UNKNOWN_CAUSE: Final = "the trace does not show why"

# A node that has an event drops further copies of it: that is no place where it ended.
_REPETITION_REASONS: Final = ("seen before", "is being served, or was")


def explained(missed: Any, evidence: Evidence) -> Any:
    """The missed pairs with what the trace shows about each: its home first, then the way there."""
    of_missed = missed.select("event_id").distinct()
    way = evidence.of("sent", "received", "dropped").join(of_missed, "event_id", "left_semi")
    at_home, elsewhere = _ends(way)
    publishers = node_sides(evidence).select(
        sql.col("node").alias("publisher"), sql.col("sides").alias("publisher_sides")
    )
    told = (
        missed.join(event_times(evidence), "event_id", "left")
        .join(at_home, ["event_id", "node"], "left")
        .join(elsewhere, "event_id", "left")
        .join(node_sides(evidence), "node", "left")
        .join(publishers, "publisher", "left")
        .crossJoin(sql.broadcast(splits(evidence)))
        .crossJoin(sql.broadcast(disturbances(evidence)))
    )
    return told.withColumn("cause", _cause_of_miss()).select(missed.columns)


def _ends(way: Any) -> tuple[Any, Any]:
    """Where events ended: per event and node what happened there, per event the first place."""
    fact, ms = sql.col("fact"), sql.col("moment.ms")
    is_sent = fact == "sent"
    passages = (
        way.where(fact != "dropped")
        .withColumn("sender", sql.when(is_sent, sql.col("node")).otherwise(sql.col("peer")))
        .withColumn("receiver", sql.when(is_sent, sql.col("peer")).otherwise(sql.col("node")))
        .groupBy("event_id", "sender", "receiver")
        .agg(
            sql.min(sql.when(is_sent, ms)).alias("sent_ms"),
            sql.max(fact == "received").alias("arrived"),
        )
    )
    is_end = ~sql.coalesce(sql.col("text").isin(*_REPETITION_REASONS), sql.lit(False))
    drops = way.where((fact == "dropped") & is_end).select(
        "event_id", "node", sql.struct(ms.alias("ms"), "node", "text").alias("drop")
    )
    none_lost = sql.lit(None).cast("struct<ms:bigint,sender:string,receiver:string>")
    none_dropped = sql.lit(None).cast("struct<ms:bigint,node:string,text:string>")
    lost = sql.when(
        ~sql.col("arrived"), sql.struct(sql.col("sent_ms").alias("ms"), "sender", "receiver")
    ).alias("lost")
    places = passages.select(
        "event_id", sql.col("receiver").alias("node"), "arrived", lost, none_dropped.alias("drop")
    ).unionByName(
        drops.select(
            "event_id", "node", sql.lit(False).alias("arrived"), none_lost.alias("lost"), "drop"
        )
    )
    at_home = places.groupBy("event_id", "node").agg(
        sql.max("arrived").alias("home_received"),
        sql.min("lost").alias("home_lost"),
        sql.min("drop").alias("home_drop"),
    )
    elsewhere = (
        at_home.where(~sql.col("home_received") | sql.col("home_drop").isNotNull())
        .groupBy("event_id")
        .agg(
            sql.min(sql.when(~sql.col("home_received"), sql.col("home_lost"))).alias("lost"),
            sql.min("home_drop").alias("drop"),
        )
    )
    return at_home, elsewhere


def _cause_of_miss() -> Any:
    """The nearest to the subscriber that the trace shows."""
    begin, end = sql.col("published"), sql.col("deadline")

    def overlaps(span: Any) -> Any:
        return (span["since"] <= end) & (span["until"].isNull() | (span["until"] > begin))

    def parts(span: Any) -> Any:
        ms = span["since"]["ms"]
        home = sql.coalesce(sql.try_element_at("sides", ms), sql.lit(-1))
        publisher = sql.coalesce(sql.try_element_at("publisher_sides", ms), sql.lit(-1))
        return overlaps(span) & (home != publisher)

    disturbed = sql.get(sql.filter("disturbances", overlaps), sql.lit(0))["phase"]
    phase = sql.when(disturbed != "", sql.format_string(" (%s)", disturbed)).otherwise(sql.lit(""))
    late_ms = sql.col("first_ms") - begin["ms"]
    lost_text = "%s sent it to %s at %d ms, and it never arrived"
    drop_text = "%s dropped it at %d ms: %s"
    home_lost, lost = sql.col("home_lost"), sql.col("lost")
    home_drop, drop = sql.col("home_drop"), sql.col("drop")
    candidates = [
        (
            sql.col("first_ms").isNotNull(),
            sql.format_string("it came late, %d ms after it was published", late_ms),
        ),
        (
            home_drop.isNotNull(),
            sql.format_string(drop_text, home_drop["node"], home_drop["ms"], home_drop["text"]),
        ),
        (
            sql.coalesce(sql.exists("splits", parts), sql.lit(False)),
            sql.format_string(
                "the network was split: %s and the publisher %s were in different parts",
                "node",
                "publisher",
            ),
        ),
        (
            sql.coalesce(sql.col("home_received"), sql.lit(False)),
            sql.format_string("%s received it and handed it to nobody", "node"),
        ),
        (
            home_lost.isNotNull(),
            sql.format_string(
                lost_text, home_lost["sender"], home_lost["receiver"], home_lost["ms"]
            ),
        ),
        (drop.isNotNull(), sql.format_string(drop_text, drop["node"], drop["ms"], drop["text"])),
        (
            lost.isNotNull(),
            sql.format_string(
                f"on its way, {lost_text}", lost["sender"], lost["receiver"], lost["ms"]
            ),
        ),
        (
            disturbed.isNotNull(),
            sql.concat(sql.lit("it was published while the network was disturbed"), phase),
        ),
    ]
    return reduce(
        lambda otherwise, one: sql.when(one[0], one[1]).otherwise(otherwise),
        reversed(candidates),
        sql.lit(UNKNOWN_CAUSE),
    )
