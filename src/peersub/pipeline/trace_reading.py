"""Traces and delivery files as DataFrames.

A trace is JSON Lines (`trace.schema`): a file, a compressed one, or a folder. `trace_lines` reads
it, `trace_facts` turns lines into *facts*: rows of the dataset TRACE_FACTS, of which
`trace.facts` is the small form. Spark parses only lines that can hold a fact, and of them only the
fields that matter; nothing passes through Python. Whoever needs facts more than once writes them to
Parquet first, since otherwise the trace is parsed again.

============================ ===================================================================
subscribed, ready,           `subscription_id` on `node`
unsubscribed
remembered, forgotten        `subscription_id` was on the disk of a `node` that starts again, or was
                             on it and is removed further on
published                    `event_id` on `node`; `flag` if it must reach all, `text` says how
completed, failed            its publisher was told so; `text` is the reason of a failure
delivered                    `event_id` to `subscription_id` on `node` over `hops` links; `flag` if
                             it is said to be a repetition
sent, received               a message with `event_id` between `node` and `peer`; `flag` if the
                             receiving end is meant itself, and does not only relay
dropped                      `node` did not use `event_id` from `peer`; `text` is the reason
stopped, left, revived       `node` crashed, began to take leave, lives again; `text` is its disk
parted, healed               the network is in `groups`, or whole again
edge-failed, edge-mended,    between `node` and `peer`
lost
phase                        `text` begins; `flag` if it is disturbed
header, unreadable           `text` is the line, cut to LINE_SHOWN_MAX characters if unreadable
============================ ===================================================================
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import functions as sql

from peersub.pipeline.schemas import TRACE_FACTS
from peersub.trace.explain import PEER_DETAILS
from peersub.trace.schema import TRACE_VERSION

__all__ = [
    "LINE_SHOWN_MAX",
    "delivered_in",
    "deliveries_of",
    "drops_in",
    "faults_in",
    "publications_in",
    "receipts_in",
    "subscription_changes_in",
    "trace_facts",
    "trace_lines",
]

LINE_SHOWN_MAX: Final = 160

# A line without any of these words holds no fact: most lines of a trace are such.
_WORDS_OF_FACTS: Final = (
    *('"event_id"', '"subscription"', '"subscriptions"', '"leave"', '"restored"', '"given"'),
    *('"fault"', '"phase"', '"trace"'),
)

# Events travel inside of few envelopes: carried, tunnelled, between slots, and a spare.
_ENVELOPES_MAX: Final = 4
_MESSAGE_FIELDS: Final = "kind STRING, event_id STRING, hops INT, control STRING, target STRING"
_MESSAGE: Final = (
    _MESSAGE_FIELDS
    + "".join(f", message STRUCT<{_MESSAGE_FIELDS}" for _ in range(_ENVELOPES_MAX))
    + ">" * _ENVELOPES_MAX
)
_SUBSCRIPTION_RECORD: Final = "STRUCT<kind STRING, subscription STRING>"
_LINE: Final = (
    "trace INT, ms BIGINT, node STRING, "
    "cause STRUCT<kind STRING, peer STRING, subscription STRING, "
    "publications ARRAY<STRUCT<event_id STRING, delivery STRING>>, "
    f"records ARRAY<{_SUBSCRIPTION_RECORD}>, messages ARRAY<STRUCT<{_MESSAGE}>>>, "
    "effects ARRAY<STRUCT<kind STRING, peer STRING, event_id STRING, reason STRING, hops INT, "
    "again BOOLEAN, subscription STRING, subscriptions ARRAY<STRING>, "
    f"messages ARRAY<STRUCT<{_MESSAGE}>>>>, "
    f"given ARRAY<{_SUBSCRIPTION_RECORD}>, "
    "fault STRING, nodes ARRAY<STRING>, pairs ARRAY<ARRAY<STRING>>, groups ARRAY<ARRAY<STRING>>, "
    "disk STRING, phase STRING, disturbed BOOLEAN"
)
_FACT_FIELDS: Final = {
    "fact": "string",
    "place": "int",
    "node": "string",
    "peer": "string",
    "event_id": "string",
    "subscription_id": "string",
    "hops": "int",
    "flag": "boolean",
    "text": "string",
    "groups": "array<array<string>>",
}
_FACTS: Final = (
    "array<struct<" + ",".join(f"{name}:{kind}" for name, kind in _FACT_FIELDS.items()) + ">>"
)
# Places of effects follow those of what the cause brings.
_EFFECTS_BEGIN: Final = 1_000_000


def trace_lines(spark: Any, path: str) -> Any:
    """The lines of a trace with their places: `value`, `block` (of the file), `line`.

    Rows of one block come in the order of the file, and `line` grows with them.
    """
    return (
        spark.read.text(path)
        .select("value", sql.col("_metadata.file_block_start").alias("block"))
        .withColumn("line", sql.monotonically_increasing_id())
    )


def trace_facts(lines: Any) -> Any:
    """TRACE_FACTS of the lines of a trace."""
    value = sql.trim("value")
    is_whole = value.startswith("{") & value.endswith("}")
    may_tell = sql.lit(False)
    for word in _WORDS_OF_FACTS:
        may_tell = may_tell | sql.contains(value, sql.lit(word))
    parsed = lines.where((value != "") & (may_tell | ~is_whole)).withColumn(
        "record", sql.from_json(value, _LINE)
    )
    facts = parsed.select("block", "line", "record.ms", sql.explode(_facts_of(value)).alias("one"))
    moment = sql.struct(sql.coalesce("ms", sql.lit(0)).alias("ms"), "block", "line", "one.place")
    rest = [f"one.{name}" for name in _FACT_FIELDS if name not in ("fact", "place")]
    return facts.select("one.fact", moment.alias("moment"), *rest).to(TRACE_FACTS.spark)


def _facts_of(line: Any) -> Any:
    """The facts of a parsed record, as an array."""
    record = sql.col
    cause, effects = record("record.cause"), record("record.effects")
    unreadable = sql.array(_fact("unreadable", text=sql.left(line, sql.lit(LINE_SHOWN_MAX))))
    return (
        sql.when(record("record.trace") == TRACE_VERSION, sql.array(_fact("header", text=line)))
        .when(record("record.ms").isNull(), unreadable)
        .when(cause.isNotNull(), sql.concat(_cause_facts(cause), _effect_facts(effects)))
        .when(record("record.given").isNotNull(), _given_facts())
        .when(record("record.fault").isNotNull(), _fault_facts())
        .when(
            record("record.phase").isNotNull(),
            sql.array(
                _fact(
                    "phase",
                    flag=sql.coalesce("record.disturbed", sql.lit(False)),
                    text=record("record.phase"),
                )
            ),
        )
        .otherwise(unreadable)
    )


def _fact(fact: str | Any, *, place: Any = None, **fields: Any) -> Any:
    """A fact with these fields, null elsewhere; it is about the record's own node unless told."""
    fields["fact"] = sql.lit(fact) if isinstance(fact, str) else fact
    fields["place"] = sql.lit(0) if place is None else place
    fields.setdefault("node", sql.col("record.node"))
    return sql.struct(
        *(
            fields.get(name, sql.lit(None)).cast(kind).alias(name)
            for name, kind in _FACT_FIELDS.items()
        )
    )


def _none() -> Any:
    return sql.array().cast(_FACTS)


def _several(array: Any, fact_of: Any) -> Any:
    """A fact for each item of an array that may be missing."""
    return sql.coalesce(sql.transform(array, fact_of), _none())


def _cause_facts(cause: Any) -> Any:
    kind, name = cause["kind"], cause["subscription"]

    def published(each: Any, place: Any) -> Any:
        promised = each["delivery"].isNotNull()
        return _fact(
            "published",
            place=place,
            event_id=each["event_id"],
            flag=promised,
            text=each["delivery"],
        )

    def stored(each: Any, place: Any) -> Any:
        fact = sql.when(each["kind"] == "subscription-stored", "remembered").otherwise("forgotten")
        return _fact(fact, place=place, subscription_id=each["subscription"])

    kept = sql.filter(
        cause["records"],
        lambda each: each["kind"].isin("subscription-stored", "subscription-removed"),
    )
    return (
        sql.when(kind == "publish", _several(cause["publications"], published))
        .when(kind == "subscribe", sql.array(_fact("subscribed", subscription_id=name)))
        .when(kind == "unsubscribe", sql.array(_fact("unsubscribed", subscription_id=name)))
        .when(kind == "leave", sql.array(_fact("left")))
        .when(kind == "restored", _several(kept, stored))
        .when(
            kind == "received",
            _message_facts("received", cause, sql.col("record.node"), sql.lit(0)),
        )
        .otherwise(_none())
    )


def _effect_facts(effects: Any) -> Any:
    def facts(effect: Any, number: Any) -> Any:
        kind, place = effect["kind"], number + _EFFECTS_BEGIN

        def delivered(name: Any) -> Any:
            return _fact(
                "delivered",
                place=place,
                event_id=effect["event_id"],
                subscription_id=name,
                hops=sql.coalesce(effect["hops"], sql.lit(0)),
                flag=sql.coalesce(effect["again"], sql.lit(False)),
            )

        about_event = {"place": place, "event_id": effect["event_id"], "text": effect["reason"]}
        dropped = _fact("dropped", **about_event, peer=_node_of(effect["peer"]))
        ready = _fact("ready", place=place, subscription_id=effect["subscription"])
        peer = _node_of(effect["peer"])
        return (
            sql.when(kind == "deliver", _several(effect["subscriptions"], delivered))
            .when(kind == "send", _message_facts("sent", effect, peer, place))
            .when((kind == "drop") & effect["event_id"].isNotNull(), sql.array(dropped))
            .when(kind == "subscription-ready", sql.array(ready))
            .when(kind == "publish-completed", sql.array(_fact("completed", **about_event)))
            .when(kind == "publish-failed", sql.array(_fact("failed", **about_event)))
            .otherwise(_none())
        )

    return sql.coalesce(sql.flatten(sql.transform(effects, facts)), _none())


def _message_facts(fact: str, holder: Any, receiver: Any, place: Any) -> Any:
    """The messages with events of a cause or effect, whatever envelopes they are in."""

    def opened(message: Any) -> Any:
        """The event inside and its hops, null if it brings none, and whether it is meant here."""
        inside, meant, layer = [], sql.lit(True), message
        for depth in range(_ENVELOPES_MAX + 1):
            brings = layer["hops"].isNotNull() & layer["control"].isNull()
            inside.append(sql.when(brings, sql.struct(layer["event_id"], layer["hops"])))
            elsewhere = (layer["kind"] == "tunnelled") & (layer["target"] != receiver)
            meant = meant & ~sql.coalesce(elsewhere, sql.lit(False))
            if depth < _ENVELOPES_MAX:
                layer = layer["message"]
        return sql.struct(sql.coalesce(*inside).alias("event"), meant.alias("meant"))

    def passage(one: Any) -> Any:
        event = one["event"]
        return _fact(
            fact,
            place=place,
            peer=_node_of(holder["peer"]),
            event_id=event["event_id"],
            hops=event["hops"],
            flag=one["meant"],
        )

    with_events = sql.filter(
        sql.transform(holder["messages"], opened), lambda one: one["event"]["event_id"].isNotNull()
    )
    return _several(with_events, passage)


def _node_of(peer: Any) -> Any:
    """The node that a peer lives on, as `trace.explain.node_of` says."""
    return sql.regexp_replace(peer, PEER_DETAILS, "")


def _given_facts() -> Any:
    """Subscriptions that a node begins with are ready at once."""
    given = sql.col("record.given")
    both = sql.transform(
        given,
        lambda each: sql.array(
            _fact("subscribed", subscription_id=each["subscription"]),
            _fact("ready", place=sql.lit(1), subscription_id=each["subscription"]),
        ),
    )
    return sql.coalesce(sql.flatten(both), _none())


def _fault_facts() -> Any:
    kind = sql.col("record.fault")
    nodes, pairs = sql.col("record.nodes"), sql.col("record.pairs")

    def of_nodes(fact: str, text: Any) -> Any:
        return _several(nodes, lambda node: _fact(fact, node=node, text=text))

    def of_pairs(fact: str) -> Any:
        return _several(pairs, lambda pair: _fact(fact, node=pair[0], peer=pair[1]))

    groups = sql.coalesce("record.groups", sql.array().cast("array<array<string>>"))
    return (
        sql.when(kind == "crash", of_nodes("stopped", sql.lit(None)))
        .when(kind == "restart", of_nodes("revived", sql.coalesce("record.disk", sql.lit("lost"))))
        .when(kind == "partition", sql.array(_fact("parted", groups=groups)))
        .when(kind == "heal", sql.array(_fact("healed")))
        .when(kind == "edge-failure", of_pairs("edge-failed"))
        .when(kind == "edge-heal", of_pairs("edge-mended"))
        .when(kind == "messages-lost", of_pairs("lost"))
        .otherwise(_none())
    )


# --- views ---------------------------------------------------------------------------------------


def delivered_in(facts: Any) -> Any:
    """Each copy that was delivered, as `audit` takes it, with its moment."""
    return facts.where(sql.col("fact") == "delivered").select(
        "event_id", "subscription_id", "node", "hops", sql.col("flag").alias("again"), "moment"
    )


def publications_in(facts: Any) -> Any:
    """Each publication, repeated ones too: event_id, node, ms, delivery."""
    delivery = sql.coalesce("text", sql.lit("best_effort")).alias("delivery")
    return facts.where(sql.col("fact") == "published").select(
        "event_id", "node", sql.col("moment.ms").alias("ms"), delivery
    )


def subscription_changes_in(facts: Any) -> Any:
    """What became of subscriptions when: subscription_id, node, ms, change."""
    changes = ("subscribed", "ready", "unsubscribed", "remembered", "forgotten")
    return facts.where(sql.col("fact").isin(*changes)).select(
        "subscription_id", "node", sql.col("moment.ms").alias("ms"), sql.col("fact").alias("change")
    )


def drops_in(facts: Any) -> Any:
    """What nodes did not use, and why: event_id, node, peer, ms, reason."""
    return facts.where(sql.col("fact") == "dropped").select(
        "event_id",
        "node",
        "peer",
        sql.col("moment.ms").alias("ms"),
        sql.col("text").alias("reason"),
    )


def faults_in(facts: Any) -> Any:
    """What broke or was mended when: fault, ms, node, peer, groups."""
    kinds = ("stopped", "revived", "parted", "healed", "edge-failed", "edge-mended", "lost")
    return facts.where(sql.col("fact").isin(*kinds)).select(
        sql.col("fact").alias("fault"), sql.col("moment.ms").alias("ms"), "node", "peer", "groups"
    )


def receipts_in(facts: Any) -> Any:
    """RECEIPTS of a trace, nodes by their names: who received which event how often, and wanted it.

    A message that its receiver only relays in a tunnel counts as a message, and makes no receipt:
    a row that stands for such messages only has no hops.
    """
    told = facts.where(sql.col("fact").isin("published", "received", "delivered"))
    fact, is_receipt = sql.col("fact"), (sql.col("fact") == "received") & sql.col("flag")
    when_received = sql.when(is_receipt, sql.col("moment"))
    found = told.groupBy("event_id", "node").agg(
        sql.max(fact == "published").alias("is_publisher"),
        sql.min_by("peer", when_received).alias("sender"),
        sql.min_by("hops", when_received).alias("hops"),
        sql.count_if(fact == "received").cast("int").alias("messages"),
        sql.max(fact == "delivered").alias("wanted"),
    )
    # Notifications of the overlay itself were published by nobody.
    published = told.where(fact == "published").select("event_id").distinct()
    return found.join(published, "event_id", "left_semi").select(
        "event_id",
        "node",
        sql.when(~sql.col("is_publisher"), sql.col("sender")).alias("sender"),
        sql.when(sql.col("is_publisher"), 0).otherwise(sql.col("hops")).alias("hops"),
        "messages",
        "wanted",
        "is_publisher",
    )


# --- deliveries without a trace ------------------------------------------------------------------


def deliveries_of(frame: Any) -> Any:
    """Rows of a deliveries file, or of OVERLAY_DELIVERIES, as `audit` takes them.

    Columns that a file may lack (`node`, `hops`) are null then.

    Raises:
        ValueError: there is no column event_id or subscription_id.
    """
    missing = [name for name in ("event_id", "subscription_id") if name not in frame.columns]
    if missing:
        raise ValueError(
            f"deliveries need columns event_id and subscription_id: {' and '.join(missing)} "
            f"missing among {', '.join(frame.columns)}"
        )
    kinds = {"event_id": "string", "subscription_id": "string", "node": "string", "hops": "int"}
    columns = [
        (sql.col(name) if name in frame.columns else sql.lit(None)).cast(kind).alias(name)
        for name, kind in kinds.items()
    ]
    moment = sql.lit(None).cast(TRACE_FACTS.spark["moment"].dataType)
    return frame.select(*columns, sql.lit(False).alias("again"), moment.alias("moment"))
