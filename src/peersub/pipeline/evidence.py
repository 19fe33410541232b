"""What a trace says about each event, subscription and node: the frames that `audit` joins with.

All of them are made from TRACE_FACTS, have one row per key, and hold arrays only of what happens to
one subscription or one node, or to the network as a whole (phases, splits): never of events or
deliveries. Moments compare as things happened.

The rules are those of `trace.checkers`:

* a subscription is *present* from the moment it is made until it ends or its node crashes, and
  again when its node finds it on its disk; it is *ready* from the overlay's promise until it ends
  or its node crashes or begins to leave;
* each node on which a name is subscribed is a *home* of its own, and so is each time that it is
  subscribed there after it ended: a subscriber that moves has two for a while;
* an event's time is up `horizon_ms` after it was published; if it was promised to reach all, at
  the moment its publisher was told so, or if the network was split meanwhile, at the trace's end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as sql

from peersub.trace.checkers import HORIZON_MS, MERGE_MS

__all__ = [
    "Evidence",
    "disturbances",
    "event_times",
    "node_revivals",
    "node_sides",
    "splits",
    "subscription_homes",
]

_FAR: Final = (1 << 62, 1 << 62, 1 << 62, (1 << 31) - 1)
_LOST_EVERY_MS: Final = 1_000
"""Lost messages count as disturbances once in so long: a trace may tell of millions."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A trace: its facts, best read from Parquet, and the waiting times of the checkers."""

    facts: Any
    horizon_ms: int = HORIZON_MS
    merge_ms: int = MERGE_MS

    def of(self, *kinds: str) -> Any:
        """The facts of these kinds."""
        return self.facts.where(sql.col("fact").isin(*kinds))


def _moment(ms: Any, others: tuple[int, ...] = _FAR[1:]) -> Any:
    """The last moment of a millisecond."""
    block, line, place = others
    return sql.struct(
        ms.cast("bigint").alias("ms"),
        sql.lit(block).cast("bigint").alias("block"),
        sql.lit(line).cast("bigint").alias("line"),
        sql.lit(place).cast("int").alias("place"),
    )


def event_times(evidence: Evidence) -> Any:
    """Per event: event_id, publisher, published (moment), promised, deadline (moment)."""
    fact = sql.col("fact")
    told = evidence.of("published", "completed", "failed")
    published, completed, failed = (
        sql.when(fact == kind, sql.col("moment")) for kind in ("published", "completed", "failed")
    )
    # A publisher repeats what was not completed: the first time counts.
    events = (
        told.groupBy("event_id")
        .agg(
            sql.min(published).alias("published"),
            sql.min_by("node", published).alias("publisher"),
            sql.min_by("flag", published).alias("promised"),
            sql.min(completed).alias("completed"),
            sql.min(failed).alias("failed"),
        )
        .where("published IS NOT NULL")
        .crossJoin(sql.broadcast(_split_moments(evidence)))
    )
    never = _moment(sql.lit(_FAR[0]))
    settled = sql.when(
        sql.col("completed").isNotNull() & ~_is_parted(evidence.merge_ms, never),
        sql.col("completed"),
    ).otherwise(sql.coalesce("failed", never))
    in_time = _moment(sql.col("published.ms") + evidence.horizon_ms)
    deadline = sql.when(sql.col("promised"), settled).otherwise(in_time)
    return events.select(
        "event_id", "publisher", "published", "promised", deadline.alias("deadline")
    )


def _split_moments(evidence: Evidence) -> Any:
    """One row: `changes`, when the network was split and when it was whole again."""
    change = sql.struct("moment", (sql.col("fact") == "parted").alias("parted"))
    return evidence.of("parted", "healed").agg(
        sql.sort_array(sql.collect_list(change)).alias("changes")
    )


def _is_parted(merge_ms: int, never: Any) -> Any:
    """Whether the network was split, or growing together, while the event was under way."""
    begin, end = sql.col("published"), sql.coalesce("completed", never)
    before = sql.filter("changes", lambda change: change["moment"] < begin)
    last = sql.try_element_at(before, sql.lit(-1))
    merging = ~last["parted"] & (begin["ms"] - last["moment"]["ms"] < merge_ms)
    meanwhile = sql.exists(
        "changes", lambda change: (change["moment"] >= begin) & (change["moment"] <= end)
    )
    return meanwhile | sql.coalesce(last["parted"] | merging, sql.lit(False))


def subscription_homes(evidence: Evidence) -> Any:
    """Per subscription: subscription_id, homes: array of (since, node, number, states).

    Homes are in the order of `since`, those on one node have numbers. Their states are arrays of
    (since, until, node, present, ready, end): a state lasts from `since` to before `until`, or to
    the end; `end` is the fact that ended it.
    """
    own = evidence.of("subscribed", "ready", "unsubscribed", "remembered", "forgotten").select(
        "subscription_id", "node", "moment", "fact"
    )
    of_node = evidence.of("stopped", "left", "revived").select("node", "moment", "fact")
    homes = own.select("subscription_id", "node").distinct()
    inherited = homes.join(of_node, "node").select("subscription_id", "node", "moment", "fact")

    history = Window.partitionBy("subscription_id", "node").orderBy("moment")
    fact, ms = sql.col("fact"), sql.col("moment.ms")
    present = (
        sql.when(fact.isin("subscribed", "remembered"), True)
        .when(fact.isin("unsubscribed", "stopped", "forgotten"), False)
        .otherwise(None)
    )
    gone_ms = sql.max(sql.when(fact.isin("stopped", "left"), ms)).over(history)
    revived_ms = sql.max(sql.when(fact == "revived", ms)).over(history)
    changes = own.unionByName(inherited).select(
        "subscription_id",
        "node",
        "moment",
        "fact",
        sql.coalesce(sql.last(present, True).over(history), sql.lit(False)).alias("present"),
        # Who takes leave is promised nothing any more.
        (sql.coalesce(gone_ms, sql.lit(-1)) <= sql.coalesce(revived_ms, sql.lit(-1))).alias(
            "stays"
        ),
    )
    promise = (
        sql.when((fact == "ready") & sql.col("present") & sql.col("stays"), True)
        .when(fact.isin("unsubscribed", "stopped", "left", "forgotten"), False)
        .otherwise(None)
    )
    # A name that is present is taken: the node refuses it.
    is_made = (fact == "subscribed") & ~sql.lag("present", 1, False).over(history)
    states = changes.withColumns(
        {
            "ready": sql.coalesce(sql.last(promise, True).over(history), sql.lit(False)),
            "is_made": is_made,
        }
    )
    before = sql.struct(sql.lag("present").over(history), sql.lag("ready").over(history))
    now = sql.struct("present", "ready")
    turns = states.withColumns(
        {
            "turns": ~now.eqNullSafe(before),
            "number": sql.count_if("is_made").over(history).cast("int"),
        }
    ).where("turns")
    spans = turns.select(
        "subscription_id",
        "node",
        "number",
        sql.struct(
            sql.col("moment").alias("since"),
            sql.lead("moment").over(history).alias("until"),
            "node",
            "present",
            "ready",
            sql.lead("fact").over(history).alias("end"),
        ).alias("span"),
    )
    homes = spans.groupBy("subscription_id", "node", "number").agg(
        sql.min("span.since").alias("since"),
        sql.sort_array(sql.collect_list("span")).alias("states"),
    )
    return homes.groupBy("subscription_id").agg(
        sql.sort_array(sql.collect_list(sql.struct("since", "node", "number", "states"))).alias(
            "homes"
        )
    )


def node_revivals(evidence: Evidence) -> Any:
    """Per node that started again: node, revivals: array of (moment, disk)."""
    revival = sql.struct("moment", sql.col("text").alias("disk"))
    return (
        evidence.of("revived")
        .groupBy("node")
        .agg(sql.sort_array(sql.collect_list(revival)).alias("revivals"))
    )


def splits(evidence: Evidence) -> Any:
    """One row: `splits`, array of (since, until): while the network was in certain parts."""
    span = sql.struct(sql.col("moment").alias("since"), "until")
    return _split_spans(evidence).agg(sql.sort_array(sql.collect_list(span)).alias("splits"))


def node_sides(evidence: Evidence) -> Any:
    """Per node that a split names: node, sides: from the ms of a split to the node's group in it.

    Nodes that a split does not name are a group together.
    """
    named = _split_spans(evidence).select(
        sql.col("moment.ms").alias("ms"), sql.posexplode("groups").alias("group", "members")
    )
    members = named.select("ms", "group", sql.explode("members").alias("node")).distinct()
    once = members.groupBy("node", "ms").agg(sql.min("group").alias("group"))
    return once.groupBy("node").agg(
        sql.map_from_entries(sql.collect_list(sql.struct("ms", "group"))).alias("sides")
    )


def _split_spans(evidence: Evidence) -> Any:
    # Splits of a whole network are few: one task may look at all.
    order = Window.orderBy("moment")
    changes = evidence.of("parted", "healed").withColumn("until", sql.lead("moment").over(order))
    return changes.where(sql.col("fact") == "parted")


def disturbances(evidence: Evidence) -> Any:
    """One row: `disturbances`, array of (since, until, phase): while best effort may miss.

    A phase is disturbed from its begin if it says so, else from the first fault in it.
    """
    faults = ("stopped", "parted", "healed", "edge-failed", "lost")
    lost_ms = sql.when(sql.col("fact") == "lost", sql.floor(sql.col("moment.ms") / _LOST_EVERY_MS))
    lost = evidence.of(*faults, "phase").withColumn("lost", lost_ms)
    alone = sql.when(sql.col("fact") != "lost", sql.col("moment"))
    told = lost.groupBy("fact", "text", "flag", "lost", alone.alias("alone")).agg(
        sql.min("moment").alias("moment")
    )
    order = Window.orderBy("moment")
    is_phase = sql.col("fact") == "phase"
    told = told.select(
        "moment",
        sql.when(is_phase, sql.col("flag")).otherwise(True).alias("disturbed"),
        sql.last(sql.when(is_phase, sql.col("text")), True).over(order).alias("phase"),
    )
    now = sql.struct("disturbed", "phase")
    before = sql.struct(sql.lag("disturbed").over(order), sql.lag("phase").over(order))
    turns = told.withColumn("turns", ~now.eqNullSafe(before)).where("turns")
    spans = turns.withColumn("until", sql.lead("moment").over(order)).where("disturbed")
    span = sql.struct(
        sql.col("moment").alias("since"), "until", sql.coalesce("phase", sql.lit("")).alias("phase")
    )
    return spans.agg(sql.sort_array(sql.collect_list(span)).alias("disturbances"))
