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

With a trace these are the rules of `trace.checkers`, and the counts agree with the checker's. As
there, a subscription is one on each of its homes (`evidence`): a subscriber that moves has it on
two nodes for a while, each owes it the event, and what comes on both is no duplicate. That the
subscriber takes it once is its own business, and in no trace. So a pair is judged once for each
node on which the subscription was ready when the event was published, and wherever else it came;
where it was ready nowhere, once. Expected pairs become as many rows as their subscription has homes
then or later: one, unless it moved.

Without a trace nothing tells of homes: the name is one subscription, on whichever node. In both
cases it has one filter, that of match: what came while a name stood for another filter is spurious.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import functions as sql

from peersub.pipeline.causes import explained
from peersub.pipeline.evidence import Evidence, event_times, node_revivals, subscription_homes
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
        *_PAIR, sql.lit(False).alias("wanted"), "node", "hops", "again", "moment"
    )
    empty = [
        sql.lit(None).cast(copies.schema[name].dataType).alias(name)
        for name in ("node", "hops", "again", "moment")
    ]
    rows = expected.select(*_PAIR, sql.lit(True).alias("wanted"), *empty).unionByName(copies)
    rows = _with_no_evidence(rows) if evidence is None else _with_evidence(rows, evidence)
    judgements = _judgements(rows)
    if population is not None and evidence is None:
        judgements = _named(judgements, population)
    columns = [sql.col(field.name).cast(field.dataType) for field in JUDGEMENTS.spark]
    return judgements.select(*columns)


def _with_no_evidence(rows: Any) -> Any:
    """Whatever is wanted is due, whatever came is in order if it is wanted."""
    nothing = sql.lit(None).cast("string")
    return rows.withColumns(
        {
            "home": nothing,
            "number": sql.lit(None).cast("int"),
            "stands": sql.col("wanted"),
            "ready": sql.col("wanted"),
            "due": sql.col("wanted"),
            "excuse": nothing,
            "fault": nothing,
            "in_time": sql.lit(True),
            "life": sql.lit(None).cast("int"),
        }
    )


def _with_evidence(rows: Any, evidence: Evidence) -> Any:
    """What the trace says about each row: was it due, is the copy in order, may it be repeated.

    What is wanted becomes a row for each home of the subscription that may get it: mostly one.
    """
    wanted, moment, at = sql.col("wanted"), sql.col("moment"), sql.col("at")
    told = (
        rows.join(event_times(evidence), "event_id", "left")
        .join(subscription_homes(evidence), "subscription_id", "left")
        .join(sql.broadcast(node_revivals(evidence)), "node", "left")
        .withColumn("fault", sql.when(~wanted, _fault_of_copy()))
        .withColumn(
            "at", sql.explode_outer(sql.when(wanted, _homes_wanting()).otherwise(_reached()))
        )
    )
    told = told.withColumn("state", sql.when(wanted, _state_at(at, sql.col("published"))))
    ready = sql.coalesce(sql.col("state.ready"), sql.lit(False))
    lasts = sql.col("state.until").isNull() | (sql.col("state.until") > sql.col("deadline"))
    due = ready & lasts
    stands = wanted & (ready | at["since"].eqNullSafe(_stand_in()["since"]))
    return told.select(
        *_PAIR,
        sql.coalesce(at["node"], "node").alias("home"),
        at["number"].alias("number"),
        stands.alias("stands"),
        "wanted",
        "node",
        "hops",
        "moment",
        ready.alias("ready"),
        due.alias("due"),
        sql.when(stands & ~due, _excuse(ready)).alias("excuse"),
        "fault",
        (~wanted & (moment.isNull() | (moment <= sql.col("deadline")))).alias("in_time"),
        sql.when(~wanted, _life_of_repetition()).alias("life"),
    )


def _lasts_at(state: Any, moment: Any) -> Any:
    return (state["since"] <= moment) & (state["until"].isNull() | (state["until"] > moment))


def _state_at(home: Any, moment: Any) -> Any:
    """The state of a home at a moment; null if it was not yet, or is no more."""
    then = sql.filter(home["states"], lambda state: _lasts_at(state, moment))
    return sql.get(then, sql.lit(0))


def _open_homes() -> Any:
    """The homes that the event may come to: those that last when it is published, or are later."""
    published = sql.col("published")

    def is_open(state: Any) -> Any:
        return state["present"] & (state["until"].isNull() | (state["until"] > published))

    return sql.filter("homes", lambda home: sql.exists(home["states"], is_open))


def _homes_wanting() -> Any:
    """The homes for which a wanted pair is judged; the last one if all have ended."""
    found = _open_homes()
    return sql.when(sql.size(found) > 0, found).otherwise(sql.slice("homes", -1, 1))


def _stand_in() -> Any:
    """The home at which it shows that a pair was promised nowhere; null if it was somewhere."""
    found, published = _open_homes(), sql.col("published")

    def had(name: str) -> Any:
        return sql.filter(found, lambda home: _state_at(home, published)[name])

    chosen = sql.coalesce(
        sql.get(had("present"), sql.lit(0)),
        sql.get(found, sql.lit(0)),
        sql.try_element_at("homes", sql.lit(-1)),
    )
    return sql.when(sql.size(had("ready")) == 0, chosen)


def _reached() -> Any:
    """The home that a copy came to, alone in an array; none if the copy is not in order.

    Where the node is not told it is one that was ready for the event, if any was.
    """
    moment, node, published = sql.col("moment"), sql.col("node"), sql.col("published")

    def is_it(home: Any) -> Any:
        now = sql.exists(
            home["states"], lambda s: s["present"] & (moment.isNull() | _lasts_at(s, moment))
        )
        return (node.isNull() | (home["node"] == node)) & now

    found = sql.filter("homes", is_it)
    ready = sql.filter(found, lambda home: _state_at(home, published)["ready"])
    best = sql.when(sql.size(ready) > 0, ready).otherwise(found)
    return sql.when(sql.col("fault").isNull(), sql.slice(best, 1, 1))


def _states() -> Any:
    """The states of all homes, one home after the other."""
    return sql.flatten(sql.col("homes.states"))


def _ending(end: Any, node: Any, at_ms: Any) -> Any:
    how = (
        sql.when(end == "stopped", sql.format_string("its node %s crashed", node))
        .when(end == "left", sql.format_string("its node %s took leave", node))
        .otherwise(sql.lit("it was unsubscribed"))
    )
    return sql.format_string("%s at %d ms", how, at_ms)


def _excuse(ready: Any) -> Any:
    """Why nobody promised that the event would come."""
    published = sql.col("published")
    ended = sql.filter(
        _states(), lambda s: s["present"] & s["until"].isNotNull() & (s["until"] <= published)
    )
    # States compare by their begin.
    last = sql.array_max(ended)
    later = sql.filter(_states(), lambda s: s["ready"] & (s["since"] > published))
    promise_ms = sql.array_min(later)["since"]["ms"]
    not_ready = sql.when(
        promise_ms.isNotNull(),
        sql.format_string("the subscription was ready only at %d ms", promise_ms),
    ).otherwise(sql.lit("the subscription was never ready after that"))
    return (
        sql.when(published.isNull(), sql.lit(_NOT_PUBLISHED))
        .when(sql.col("homes").isNull(), sql.lit(_NEVER_THERE))
        .when(
            ready,
            sql.concat(
                sql.lit("it was under way when "),
                _ending(sql.col("state.end"), sql.col("state.node"), sql.col("state.until.ms")),
            ),
        )
        .when(sql.coalesce(sql.col("state.present"), sql.lit(False)), not_ready)
        .when(
            last.isNotNull(),
            sql.concat(
                sql.lit("the subscription had ended: "),
                _ending(last["end"], last["node"], last["until"]["ms"]),
            ),
        )
        .otherwise(sql.concat(sql.lit("it did not exist yet: "), not_ready))
    )


def _fault_of_copy() -> Any:
    """What is wrong with a copy that came, whoever wants it; null if nothing is."""
    moment, node = sql.col("moment"), sql.col("node")

    def is_here(state: Any) -> Any:
        return node.isNull() | (state["node"] == node)

    def is_now(state: Any) -> Any:
        return moment.isNull() | _lasts_at(state, moment)

    there = sql.filter(_states(), lambda state: is_here(state) & state["present"])
    ended_ms = sql.array_max(there)["until"]["ms"]
    return (
        sql.when(sql.col("published").isNull(), sql.lit(_NOT_PUBLISHED))
        .when(sql.col("homes").isNull(), sql.lit(_NEVER_THERE))
        .when(sql.size(there) == 0, sql.format_string("%s never had this subscription", node))
        .when(
            ~sql.exists(there, is_now),
            sql.when(
                ended_ms.isNotNull() & (ended_ms <= moment["ms"]),
                sql.format_string("the subscription had ended at %d ms", ended_ms),
            ).otherwise(sql.lit("the subscription did not exist at that time")),
        )
    )


def _life_of_repetition() -> Any:
    """The life of the node in which this copy may be a repetition; null if it may not be one.

    Of events of best effort a node remembers in memory only which ones it has seen; of others it
    forgets what its disk lost. What it says to be a repetition may follow any start.
    """
    before = sql.filter("revivals", lambda revival: revival["moment"] <= sql.col("moment"))
    forgetful = sql.filter(before, lambda revival: revival["disk"] != "kept")
    counts = sql.when(sql.col("again") | ~sql.col("promised"), before).otherwise(forgetful)
    since_ms = sql.try_element_at(counts, sql.lit(-1))["moment"]["ms"]
    kept = sql.filter(before, lambda revival: revival["disk"] != "lost")
    return sql.when(since_ms >= sql.col("published.ms"), sql.size(kept))


def _judgements(rows: Any) -> Any:
    """The verdict on each pair at each home, from all that is known about its rows."""
    is_copy, in_order = ~sql.col("wanted"), ~sql.col("wanted") & sql.col("fault").isNull()
    order = sql.struct(sql.col("moment.ms").alias("ms"), "moment", "node")
    first = sql.when(in_order, sql.struct("node", "hops", "life", sql.col("moment.ms").alias("ms")))
    pairs = rows.groupBy(*_PAIR, "home", "number").agg(
        sql.max("wanted").alias("wanted"),
        sql.max("ready").alias("ready"),
        sql.max("due").alias("due"),
        sql.max("stands").alias("stands"),
        sql.max("excuse").alias("excuse"),
        sql.count_if(in_order).alias("good"),
        sql.count_if(is_copy).alias("copies"),
        sql.max(in_order & sql.col("in_time")).alias("in_time"),
        sql.min_by(first, sql.when(in_order, order)).alias("first"),
        sql.max(sql.when(in_order, sql.col("moment.ms"))).alias("last_ms"),
        # Lives are starts of one node: few.
        sql.collect_set(sql.when(in_order, sql.col("life"))).alias("lives"),
        sql.count(sql.when(in_order, sql.col("life"))).alias("in_lives"),
        sql.min("fault").alias("fault"),
        sql.min(sql.when(is_copy & sql.col("fault").isNotNull(), sql.col("node"))).alias(
            "fault_node"
        ),
    )
    return _with_verdicts(pairs.where("stands OR copies > 0"))


def _with_verdicts(pairs: Any) -> Any:
    good, wanted = sql.col("good"), sql.col("wanted")
    in_time = sql.col("in_time") & wanted
    delivered = wanted & (good > 0)
    missed = sql.col("due") & ~in_time
    # Of each life one copy may be a repetition, but the first copy of all is none.
    first_alone = sql.col("first.life").isNotNull() & (sql.col("in_lives") == sql.size("lives"))
    repeated = sql.when(wanted, sql.size("lives") - first_alone.cast("int")).otherwise(0)
    unwanted = sql.when(wanted, 0).otherwise(good)
    spurious = sql.col("copies") - good + unwanted
    excused = wanted & ~delivered & ~missed
    spurious_cause = sql.coalesce("fault", sql.when(unwanted > 0, sql.lit(_NOT_WANTED)))
    return pairs.select(
        *_PAIR,
        sql.coalesce("first.node", "home").alias("node"),
        sql.col("first.hops").alias("hops"),
        (sql.col("ready") & (in_time | sql.col("due"))).alias("expected"),
        delivered.alias("delivered"),
        missed.alias("missed"),
        excused.alias("excused"),
        (delivered & ~in_time).alias("late"),
        sql.when(delivered, good - 1 - repeated).otherwise(0).alias("duplicates"),
        repeated.alias("repeated"),
        spurious.alias("spurious"),
        sql.when(spurious > 0, sql.coalesce("fault_node", "first.node")).alias("spurious_node"),
        sql.col("first.ms").alias("first_ms"),
        sql.col("last_ms"),
        sql.when(excused, sql.col("excuse")).alias("excuse"),
        sql.when(spurious > 0, spurious_cause).alias("fault"),
    )


def _named(judgements: Any, population: Population) -> Any:
    """Tell deliveries of or to names that do not exist from those that nobody wanted."""
    known = ("known_event", "known_subscription")
    named = judgements.join(
        population.events.select("event_id").distinct().withColumn(known[0], sql.lit(True)),
        "event_id",
        "left",
    ).join(
        population.subscriptions.select("subscription_id")
        .distinct()
        .withColumn(known[1], sql.lit(True)),
        "subscription_id",
        "left",
    )
    fault = (
        sql.when((sql.col("spurious") > 0) & sql.col(known[1]).isNull(), sql.lit(_NO_SUBSCRIPTION))
        .when((sql.col("spurious") > 0) & sql.col(known[0]).isNull(), sql.lit(_NO_EVENT))
        .otherwise(sql.col("fault"))
    )
    return named.withColumn("fault", fault)


# --- findings ------------------------------------------------------------------------------------


def findings(judgements: Any, evidence: Evidence | None = None) -> Any:
    """FINDINGS: the judgements that are not simply in order, with causes where a trace is given."""
    again = sql.when(
        sql.col("last_ms").isNotNull(),
        sql.format_string("%s handed it over again, last at %d ms", "node", "last_ms"),
    )
    differing = judgements.where("missed OR excused OR duplicates > 0 OR spurious > 0")
    none = sql.lit(None).cast("bigint")

    def one(name: str, condition: Any, node: str, copies: Any, cause: Any) -> Any:
        finding = sql.struct(
            sql.lit(name).alias("finding"),
            sql.col(node).alias("node"),
            copies.alias("copies"),
            cause.cast("string").alias("cause"),
        )
        return sql.when(condition, finding)

    listed = sql.array_compact(
        sql.array(
            one("missed", sql.col("missed"), "node", none, sql.lit(None)),
            one("excused", sql.col("excused"), "node", none, sql.col("excuse")),
            one("duplicate", sql.col("duplicates") > 0, "node", sql.col("duplicates"), again),
            one(
                "spurious",
                sql.col("spurious") > 0,
                "spurious_node",
                sql.col("spurious"),
                sql.col("fault"),
            ),
        )
    )
    rows = differing.select(*_PAIR, "first_ms", sql.explode(listed).alias("one"))
    rows = rows.select(*_PAIR, "first_ms", "one.*")
    if evidence is not None:
        is_missed = sql.col("finding") == "missed"
        rows = explained(rows.where(is_missed), evidence).unionByName(rows.where(~is_missed))
    columns = [sql.col(field.name).cast(field.dataType) for field in FINDINGS.spark]
    return rows.select(*columns)
