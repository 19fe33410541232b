"""What a trace says about each event, subscription and node: the frames that `audit` joins with.

All of them are made from TRACE_FACTS, have one row per key, and hold arrays only of what happens to
one subscription or one node, or to the network as a whole (phases, splits): never of events or
deliveries. Moments compare as things happened.

The rules are those of `trace.checkers`:

* a subscription is *present* from the moment it is made until it ends or its node crashes, and
  again when its node finds it on its disk; it is *ready* from the overlay's promise until it ends
  or its node crashes or begins to leave;
* an event's time is up `horizon_ms` after it was published; if it was promised to reach all, at
  the moment its publisher was told so, or if the network was split meanwhile, at the trace's end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from peersub.trace.checkers import HORIZON_MS, MERGE_MS

__all__ = [
    "Evidence",
    "disturbances",
    "event_times",
    "node_revivals",
    "node_sides",
    "splits",
    "subscription_states",
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
        return self.facts.where(f.col("fact").isin(*kinds))


def _moment(ms: Any, others: tuple[int, ...] = _FAR[1:]) -> Any:
    """The last moment of a millisecond."""
    block, line, place = others
    return f.struct(
        ms.cast("bigint").alias("ms"),
        f.lit(block).cast("bigint").alias("block"),
        f.lit(line).cast("bigint").alias("line"),
        f.lit(place).cast("int").alias("place"),
    )


def event_times(evidence: Evidence) -> Any:
    """Per event: event_id, publisher, published (moment), promised, deadline (moment)."""
    fact = f.col("fact")
    told = evidence.of("published", "completed", "failed")
    published, completed, failed = (
        f.when(fact == kind, f.col("moment")) for kind in ("published", "completed", "failed")
    )
    # A publisher repeats what was not completed: the first time counts.
    events = (
        told.groupBy("event_id")
        .agg(
            f.min(published).alias("published"),
            f.min_by("node", published).alias("publisher"),
            f.min_by("flag", published).alias("promised"),
            f.min(completed).alias("completed"),
            f.min(failed).alias("failed"),
        )
        .where("published IS NOT NULL")
        .crossJoin(f.broadcast(_split_moments(evidence)))
    )
    never = _moment(f.lit(_FAR[0]))
    settled = f.when(
        f.col("completed").isNotNull() & ~_is_parted(evidence.merge_ms, never), f.col("completed")
    ).otherwise(f.coalesce("failed", never))
    in_time = _moment(f.col("published.ms") + evidence.horizon_ms)
    deadline = f.when(f.col("promised"), settled).otherwise(in_time)
    return events.select(
        "event_id", "publisher", "published", "promised", deadline.alias("deadline")
    )


def _split_moments(evidence: Evidence) -> Any:
    """One row: `changes`, when the network was split and when it was whole again."""
    change = f.struct("moment", (f.col("fact") == "parted").alias("parted"))
    return evidence.of("parted", "healed").agg(
        f.sort_array(f.collect_list(change)).alias("changes")
    )


def _is_parted(merge_ms: int, never: Any) -> Any:
    """Whether the network was split, or growing together, while the event was under way."""
    begin, end = f.col("published"), f.coalesce("completed", never)
    before = f.filter("changes", lambda change: change["moment"] < begin)
    last = f.try_element_at(before, f.lit(-1))
    merging = ~last["parted"] & (begin["ms"] - last["moment"]["ms"] < merge_ms)
    meanwhile = f.exists(
        "changes", lambda change: (change["moment"] >= begin) & (change["moment"] <= end)
    )
    return meanwhile | f.coalesce(last["parted"] | merging, f.lit(False))


def subscription_states(evidence: Evidence) -> Any:
    """Per subscription: subscription_id, states (since, until, node, present, ready, end).

    A state lasts from `since` to before `until`, or to the end; `end` is the fact that ended it.
    """
    own = evidence.of("subscribed", "ready", "unsubscribed", "remembered", "forgotten").select(
        "subscription_id", "node", "moment", "fact"
    )
    of_node = evidence.of("stopped", "left", "revived").select("node", "moment", "fact")
    homes = own.select("subscription_id", "node").distinct()
    inherited = homes.join(of_node, "node").select("subscription_id", "node", "moment", "fact")

    history = Window.partitionBy("subscription_id", "node").orderBy("moment")
    fact, ms = f.col("fact"), f.col("moment.ms")
    present = (
        f.when(fact.isin("subscribed", "remembered"), True)
        .when(fact.isin("unsubscribed", "stopped", "forgotten"), False)
        .otherwise(None)
    )
    gone_ms = f.max(f.when(fact.isin("stopped", "left"), ms)).over(history)
    revived_ms = f.max(f.when(fact == "revived", ms)).over(history)
    changes = own.unionByName(inherited).select(
        "subscription_id",
        "node",
        "moment",
        "fact",
        f.coalesce(f.last(present, True).over(history), f.lit(False)).alias("present"),
        # Who takes leave is promised nothing any more.
        (f.coalesce(gone_ms, f.lit(-1)) <= f.coalesce(revived_ms, f.lit(-1))).alias("stays"),
    )
    promise = (
        f.when((fact == "ready") & f.col("present") & f.col("stays"), True)
        .when(fact.isin("unsubscribed", "stopped", "left", "forgotten"), False)
        .otherwise(None)
    )
    states = changes.withColumn(
        "ready", f.coalesce(f.last(promise, True).over(history), f.lit(False))
    )
    before = f.struct(f.lag("present").over(history), f.lag("ready").over(history))
    now = f.struct("present", "ready")
    turns = states.withColumn("turns", ~now.eqNullSafe(before)).where("turns")
    spans = turns.select(
        "subscription_id",
        f.struct(
            f.col("moment").alias("since"),
            f.lead("moment").over(history).alias("until"),
            "node",
            "present",
            "ready",
            f.lead("fact").over(history).alias("end"),
        ).alias("span"),
    )
    return spans.groupBy("subscription_id").agg(
        f.sort_array(f.collect_list("span")).alias("states")
    )


def node_revivals(evidence: Evidence) -> Any:
    """Per node that started again: node, revivals: array of (moment, disk)."""
    revival = f.struct("moment", f.col("text").alias("disk"))
    return (
        evidence.of("revived")
        .groupBy("node")
        .agg(f.sort_array(f.collect_list(revival)).alias("revivals"))
    )


def splits(evidence: Evidence) -> Any:
    """One row: `splits`, array of (since, until): while the network was in certain parts."""
    span = f.struct(f.col("moment").alias("since"), "until")
    return _split_spans(evidence).agg(f.sort_array(f.collect_list(span)).alias("splits"))


def node_sides(evidence: Evidence) -> Any:
    """Per node that a split names: node, sides: from the ms of a split to the node's group in it.

    Nodes that a split does not name are a group together.
    """
    named = _split_spans(evidence).select(
        f.col("moment.ms").alias("ms"), f.posexplode("groups").alias("group", "members")
    )
    members = named.select("ms", "group", f.explode("members").alias("node")).distinct()
    once = members.groupBy("node", "ms").agg(f.min("group").alias("group"))
    return once.groupBy("node").agg(
        f.map_from_entries(f.collect_list(f.struct("ms", "group"))).alias("sides")
    )


def _split_spans(evidence: Evidence) -> Any:
    # Splits of a whole network are few: one task may look at all.
    order = Window.orderBy("moment")
    changes = evidence.of("parted", "healed").withColumn("until", f.lead("moment").over(order))
    return changes.where(f.col("fact") == "parted")


def disturbances(evidence: Evidence) -> Any:
    """One row: `disturbances`, array of (since, until, phase): while best effort may miss.

    A phase is disturbed from its begin if it says so, else from the first fault in it.
    """
    faults = ("stopped", "parted", "healed", "edge-failed", "lost")
    lost_ms = f.when(f.col("fact") == "lost", f.floor(f.col("moment.ms") / _LOST_EVERY_MS))
    lost = evidence.of(*faults, "phase").withColumn("lost", lost_ms)
    alone = f.when(f.col("fact") != "lost", f.col("moment"))
    told = lost.groupBy("fact", "text", "flag", "lost", alone.alias("alone")).agg(
        f.min("moment").alias("moment")
    )
    order = Window.orderBy("moment")
    is_phase = f.col("fact") == "phase"
    told = told.select(
        "moment",
        f.when(is_phase, f.col("flag")).otherwise(True).alias("disturbed"),
        f.last(f.when(is_phase, f.col("text")), True).over(order).alias("phase"),
    )
    now = f.struct("disturbed", "phase")
    before = f.struct(f.lag("disturbed").over(order), f.lag("phase").over(order))
    turns = told.withColumn("turns", ~now.eqNullSafe(before)).where("turns")
    spans = turns.withColumn("until", f.lead("moment").over(order)).where("disturbed")
    span = f.struct(
        f.col("moment").alias("since"), "until", f.coalesce("phase", f.lit("")).alias("phase")
    )
    return spans.agg(f.sort_array(f.collect_list(span)).alias("disturbances"))
