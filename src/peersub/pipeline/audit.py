"""Audit: what was delivered, against what match says should have been.

`judged` compares every pair of event and subscription that is wanted, or was delivered: one
shuffle by the pair, which spreads well whatever the skew of events or subscriptions. `findings`
lists the differences, with their causes where a trace is given. The two are apart because
judgements are worth keeping: `metrics` counts them.

========= ==========================================================================================
missed    wanted and not delivered; with a trace: the subscription was ready when the event was
          published and stayed so until the event's time was up, and nothing came until then
excused   wanted and not delivered, and nobody promised it: only a trace can show this. The event
          was never published, or the subscription was not ready yet, or had ended, or ended
          meanwhile
spurious  delivered and not wanted; with a trace also: to a subscription that has ended, on a node
          that never had it, or of an event that was never published
duplicate delivered once more; with a trace, a node that started again may repeat once per life what
          it cannot remember, and that is counted as `repeated`, not as a duplicate
========= ==========================================================================================

With a trace these are the rules of `trace.checkers`, and the counts agree with the checker's. The
name of a subscription counts as one subscription, on whichever node it lives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import functions as f

from peersub.pipeline.causes import explained
from peersub.pipeline.evidence import Evidence, event_times, node_revivals, subscription_states
from peersub.pipeline.schemas import FINDINGS, JUDGEMENTS

__all__ = ["Population", "audited", "findings", "judged"]

_NOT_WANTED: Final = "its filter does not match the event"
_NO_SUBSCRIPTION: Final = "there is no such subscription"
_NO_EVENT: Final = "there is no such event"
_NOT_PUBLISHED: Final = "the event was never published"
_NEVER_THERE: Final = "the trace shows no such subscription"

_PAIR: Final = ("event_id", "subscription_id")


@dataclass(frozen=True, slots=True)
class Population:
    """The events (event_id) and subscriptions (subscription_id) that exist: each id once.

    With it, spurious deliveries to names that nobody has are told from those nobody wanted.
    """

    events: Any
    subscriptions: Any


def audited(
    expected: Any,
    delivered: Any,
    evidence: Evidence | None = None,
    population: Population | None = None,
) -> Any:
    """FINDINGS: each difference between DELIVERIES and what was delivered.

    Args:
        expected: DELIVERIES, each pair once.
        delivered: what came, each copy a row (`trace_reading.delivered_in`, `deliveries_of`).
        evidence: the trace of the run; without one, only spurious deliveries have a cause.
        population: which ids exist; a trace tells it by itself.
    """
    return findings(judged(expected, delivered, evidence, population), evidence)


# --- judging -------------------------------------------------------------------------------------


def judged(
    expected: Any,
    delivered: Any,
    evidence: Evidence | None = None,
    population: Population | None = None,
) -> Any:
    """JUDGEMENTS: what became of each pair that is wanted or was delivered."""
    copies = delivered.select(
        *_PAIR, f.lit(False).alias("wanted"), "node", "hops", "again", "moment"
    )
    empty = [
        f.lit(None).cast(copies.schema[name].dataType).alias(name)
        for name in ("node", "hops", "again", "moment")
    ]
    rows = expected.select(*_PAIR, f.lit(True).alias("wanted"), *empty).unionByName(copies)
    rows = _with_no_evidence(rows) if evidence is None else _with_evidence(rows, evidence)
    judgements = _judgements(rows)
    if population is not None and evidence is None:
        judgements = _named(judgements, population)
    columns = [f.col(field.name).cast(field.dataType) for field in JUDGEMENTS.spark]
    return judgements.select(*columns)


def _with_no_evidence(rows: Any) -> Any:
    """Whatever is wanted is due, whatever came is in order if it is wanted."""
    nothing = f.lit(None).cast("string")
    return rows.withColumns(
        {
            "ready": f.col("wanted"),
            "due": f.col("wanted"),
            "home": nothing,
            "excuse": nothing,
            "fault": nothing,
            "in_time": f.lit(True),
            "life": f.lit(None).cast("int"),
        }
    )


def _with_evidence(rows: Any, evidence: Evidence) -> Any:
    """What the trace says about each row: was it due, is the copy in order, may it be repeated."""
    told = (
        rows.join(event_times(evidence), "event_id", "left")
        .join(subscription_states(evidence), "subscription_id", "left")
        .join(f.broadcast(node_revivals(evidence)), "node", "left")
    )
    wanted, moment = f.col("wanted"), f.col("moment")
    state = f.when(wanted, _state_at(f.col("published"))).alias("state")
    told = told.withColumn("state", state)
    ready = f.coalesce(f.col("state.ready"), f.lit(False))
    lasts = f.col("state.until").isNull() | (f.col("state.until") > f.col("deadline"))
    due = ready & lasts
    return told.select(
        *_PAIR,
        "wanted",
        "node",
        "hops",
        "moment",
        (wanted & ready).alias("ready"),
        (wanted & due).alias("due"),
        f.when(wanted, f.coalesce("state.node", _first_home())).alias("home"),
        f.when(wanted & ~due, _excuse(ready)).alias("excuse"),
        f.when(~wanted, _fault_of_copy()).alias("fault"),
        (~wanted & (moment.isNull() | (moment <= f.col("deadline")))).alias("in_time"),
        f.when(~wanted, _life_of_repetition()).alias("life"),
    )


def _state_at(moment: Any) -> Any:
    """The subscription's state at a moment; of several nodes with that name, one that is ready."""
    then = f.filter(
        "states",
        lambda state: (
            (state["since"] <= moment) & (state["until"].isNull() | (state["until"] > moment))
        ),
    )
    return f.array_max(
        f.transform(
            then,
            lambda state: f.struct(
                *(state[name].alias(name) for name in ("ready", "present", "until", "end", "node"))
            ),
        )
    )


def _first_home() -> Any:
    return f.get("states", f.lit(0))["node"]


def _ending(end: Any, node: Any, at_ms: Any) -> Any:
    how = (
        f.when(end == "stopped", f.format_string("its node %s crashed", node))
        .when(end == "left", f.format_string("its node %s took leave", node))
        .otherwise(f.lit("it was unsubscribed"))
    )
    return f.format_string("%s at %d ms", how, at_ms)


def _excuse(ready: Any) -> Any:
    """Why nobody promised that the event would come."""
    published = f.col("published")
    ended = f.filter(
        "states", lambda s: s["present"] & s["until"].isNotNull() & (s["until"] <= published)
    )
    last = f.try_element_at(ended, f.lit(-1))
    later = f.filter("states", lambda s: s["ready"] & (s["since"] > published))
    promise_ms = f.get(later, f.lit(0))["since"]["ms"]
    not_ready = f.when(
        promise_ms.isNotNull(),
        f.format_string("the subscription was ready only at %d ms", promise_ms),
    ).otherwise(f.lit("the subscription was never ready after that"))
    return (
        f.when(published.isNull(), f.lit(_NOT_PUBLISHED))
        .when(f.col("states").isNull(), f.lit(_NEVER_THERE))
        .when(
            ready,
            f.concat(
                f.lit("it was under way when "),
                _ending(f.col("state.end"), f.col("state.node"), f.col("state.until.ms")),
            ),
        )
        .when(f.coalesce(f.col("state.present"), f.lit(False)), not_ready)
        .when(
            last.isNotNull(),
            f.concat(
                f.lit("the subscription had ended: "),
                _ending(last["end"], last["node"], last["until"]["ms"]),
            ),
        )
        .otherwise(f.concat(f.lit("it did not exist yet: "), not_ready))
    )


def _fault_of_copy() -> Any:
    """What is wrong with a copy that came, whoever wants it; null if nothing is."""
    moment, node = f.col("moment"), f.col("node")

    def is_here(state: Any) -> Any:
        return node.isNull() | (state["node"] == node)

    def is_now(state: Any) -> Any:
        runs = (state["since"] <= moment) & (state["until"].isNull() | (state["until"] > moment))
        return moment.isNull() | runs

    there = f.filter("states", lambda state: is_here(state) & state["present"])
    ended_ms = f.try_element_at(there, f.lit(-1))["until"]["ms"]
    return (
        f.when(f.col("published").isNull(), f.lit(_NOT_PUBLISHED))
        .when(f.col("states").isNull(), f.lit(_NEVER_THERE))
        .when(f.size(there) == 0, f.format_string("%s never had this subscription", node))
        .when(
            ~f.exists(there, is_now),
            f.when(
                ended_ms.isNotNull() & (ended_ms <= moment["ms"]),
                f.format_string("the subscription had ended at %d ms", ended_ms),
            ).otherwise(f.lit("the subscription did not exist at that time")),
        )
    )


def _life_of_repetition() -> Any:
    """The life of the node in which this copy may be a repetition; null if it may not be one.

    Of events of best effort a node remembers in memory only which ones it has seen; of others it
    forgets what its disk lost. What it says to be a repetition may follow any start.
    """
    before = f.filter("revivals", lambda revival: revival["moment"] <= f.col("moment"))
    forgetful = f.filter(before, lambda revival: revival["disk"] != "kept")
    counts = f.when(f.col("again") | ~f.col("promised"), before).otherwise(forgetful)
    since_ms = f.try_element_at(counts, f.lit(-1))["moment"]["ms"]
    kept = f.filter(before, lambda revival: revival["disk"] != "lost")
    return f.when(since_ms >= f.col("published.ms"), f.size(kept))


def _judgements(rows: Any) -> Any:
    """The verdict on each pair, from all that is known about its rows."""
    is_copy, in_order = ~f.col("wanted"), ~f.col("wanted") & f.col("fault").isNull()
    order = f.struct(f.col("moment.ms").alias("ms"), "moment", "node")
    first = f.when(in_order, f.struct("node", "hops", "life", f.col("moment.ms").alias("ms")))
    pairs = rows.groupBy(*_PAIR).agg(
        f.max("wanted").alias("wanted"),
        f.max("ready").alias("ready"),
        f.max("due").alias("due"),
        f.max("home").alias("home"),
        f.max("excuse").alias("excuse"),
        f.count_if(in_order).alias("good"),
        f.count_if(is_copy).alias("copies"),
        f.max(in_order & f.col("in_time")).alias("in_time"),
        f.min_by(first, f.when(in_order, order)).alias("first"),
        f.max(f.when(in_order, f.col("moment.ms"))).alias("last_ms"),
        # Lives are starts of one node: few.
        f.collect_set(f.when(in_order, f.col("life"))).alias("lives"),
        f.count(f.when(in_order, f.col("life"))).alias("in_lives"),
        f.min("fault").alias("fault"),
        f.min(f.when(is_copy & f.col("fault").isNotNull(), f.col("node"))).alias("fault_node"),
    )
    return _with_verdicts(pairs)


def _with_verdicts(pairs: Any) -> Any:
    good, wanted = f.col("good"), f.col("wanted")
    in_time = f.col("in_time") & wanted
    delivered = wanted & (good > 0)
    missed = f.col("due") & ~in_time
    # Of each life one copy may be a repetition, but the first copy of all is none.
    first_alone = f.col("first.life").isNotNull() & (f.col("in_lives") == f.size("lives"))
    repeated = f.when(wanted, f.size("lives") - first_alone.cast("int")).otherwise(0)
    unwanted = f.when(wanted, 0).otherwise(good)
    spurious = f.col("copies") - good + unwanted
    excused = wanted & ~delivered & ~missed
    spurious_cause = f.coalesce("fault", f.when(unwanted > 0, f.lit(_NOT_WANTED)))
    return pairs.select(
        *_PAIR,
        f.coalesce("first.node", "home").alias("node"),
        f.col("first.hops").alias("hops"),
        (f.col("ready") & (in_time | f.col("due"))).alias("expected"),
        delivered.alias("delivered"),
        missed.alias("missed"),
        excused.alias("excused"),
        (delivered & ~in_time).alias("late"),
        f.when(delivered, good - 1 - repeated).otherwise(0).alias("duplicates"),
        repeated.alias("repeated"),
        spurious.alias("spurious"),
        f.when(spurious > 0, f.coalesce("fault_node", "first.node")).alias("spurious_node"),
        f.col("first.ms").alias("first_ms"),
        f.col("last_ms"),
        f.when(excused, f.col("excuse")).alias("excuse"),
        f.when(spurious > 0, spurious_cause).alias("fault"),
    )


def _named(judgements: Any, population: Population) -> Any:
    """Tell deliveries of or to names that do not exist from those that nobody wanted."""
    known = ("known_event", "known_subscription")
    named = judgements.join(
        population.events.select("event_id").distinct().withColumn(known[0], f.lit(True)),
        "event_id",
        "left",
    ).join(
        population.subscriptions.select("subscription_id")
        .distinct()
        .withColumn(known[1], f.lit(True)),
        "subscription_id",
        "left",
    )
    fault = (
        f.when((f.col("spurious") > 0) & f.col(known[1]).isNull(), f.lit(_NO_SUBSCRIPTION))
        .when((f.col("spurious") > 0) & f.col(known[0]).isNull(), f.lit(_NO_EVENT))
        .otherwise(f.col("fault"))
    )
    return named.withColumn("fault", fault)


# --- findings ------------------------------------------------------------------------------------


def findings(judgements: Any, evidence: Evidence | None = None) -> Any:
    """FINDINGS: the judgements that are not simply in order, with causes where a trace is given."""
    again = f.when(
        f.col("last_ms").isNotNull(),
        f.format_string("%s handed it over again, last at %d ms", "node", "last_ms"),
    )
    differing = judgements.where("missed OR excused OR duplicates > 0 OR spurious > 0")
    none = f.lit(None).cast("bigint")

    def one(name: str, condition: Any, node: str, copies: Any, cause: Any) -> Any:
        finding = f.struct(
            f.lit(name).alias("finding"),
            f.col(node).alias("node"),
            copies.alias("copies"),
            cause.cast("string").alias("cause"),
        )
        return f.when(condition, finding)

    listed = f.array_compact(
        f.array(
            one("missed", f.col("missed"), "node", none, f.lit(None)),
            one("excused", f.col("excused"), "node", none, f.col("excuse")),
            one("duplicate", f.col("duplicates") > 0, "node", f.col("duplicates"), again),
            one(
                "spurious",
                f.col("spurious") > 0,
                "spurious_node",
                f.col("spurious"),
                f.col("fault"),
            ),
        )
    )
    rows = differing.select(*_PAIR, "first_ms", f.explode(listed).alias("one"))
    rows = rows.select(*_PAIR, "first_ms", "one.*")
    if evidence is not None:
        is_missed = f.col("finding") == "missed"
        rows = explained(rows.where(is_missed), evidence).unionByName(rows.where(~is_missed))
    columns = [f.col(field.name).cast(field.dataType) for field in FINDINGS.spark]
    return rows.select(*columns)
