"""What an overlay costs, and how well it serves: the figures of the report.

Definitions, the same for every overlay and those of `simulator.summary`:

* a *receiver* of an event is a node, other than its publisher, to which it came; it *matches* if a
  subscription there wants it, else it is a relay;
* false-positive ratio: receivers that do not match, as a share of all nodes, the mean over events.
  False-negative ratio: missed / expected deliveries; hit ratio: 1 minus it. Relay share: receivers
  that do not match / receivers;
* messages per event: data messages / events; per delivery: data messages / deliveries to
  subscriptions; copies per receiver: data messages / matching receivers (best: 1);
* hops: links that a delivery came over: mean, p50, p99, largest;
* load: data messages received per node: Gini coefficient, largest / mean, Jain's index.

The steps are aggregations, DataFrame to DataFrame, whose results are small whatever the data: one
row, a row per number of hops, at most LORENZ_POINTS rows of load, a row per power of two. Only
`measured` brings them to the driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as sql

from peersub.simulator.summary import Spread, spread_of

__all__ = [
    "LORENZ_POINTS",
    "DeliveryFigures",
    "LoadFigures",
    "Measures",
    "RoutingFigures",
    "causes_counted",
    "delivery_totals",
    "fan_out",
    "hop_counts",
    "load_curve",
    "load_totals",
    "measured",
    "receipt_totals",
    "reported_hops",
]

LORENZ_POINTS: Final = 100
HOPS_SHOWN_MAX: Final = 10_000
"""Deliveries over more links than this count as over so many: the histogram is bounded."""


@dataclass(frozen=True, slots=True)
class DeliveryFigures:
    """What became of deliveries; the unit is one event for one subscription."""

    expected: int
    delivered: int
    missed: int
    spurious: int
    duplicates: int
    excused: int = 0
    repeated: int = 0
    late: int = 0

    @property
    def false_negative_ratio(self) -> float:
        """Missed / expected."""
        return self.missed / self.expected if self.expected else 0.0

    @property
    def hit_ratio(self) -> float:
        """1 - the false-negative ratio."""
        return 1.0 - self.false_negative_ratio


@dataclass(frozen=True, slots=True)
class RoutingFigures:
    """Who received events, and in how many messages."""

    events: int
    nodes: int
    messages: int
    receivers: int
    matching_receivers: int
    false_positive_ratio: float
    deliveries: int

    @property
    def relay_share(self) -> float:
        """Receivers that do not match / receivers."""
        in_vain = self.receivers - self.matching_receivers
        return in_vain / self.receivers if self.receivers else 0.0

    @property
    def messages_per_event(self) -> float:
        """Data messages / events."""
        return self.messages / self.events if self.events else 0.0

    @property
    def messages_per_delivery(self) -> float:
        """Data messages / deliveries to subscriptions."""
        return self.messages / self.deliveries if self.deliveries else 0.0

    @property
    def copies_per_receiver(self) -> float:
        """Data messages / matching receivers; 1 is best."""
        return self.messages / self.matching_receivers if self.matching_receivers else 0.0

    @property
    def repeated_receipts(self) -> int:
        """Messages that brought a node what it had."""
        return max(0, self.messages - self.receivers)


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """How messages are spread over nodes; `curve` is the Lorenz curve, as shares of the whole."""

    nodes: int
    mean: float
    largest: int
    gini: float
    jain: float
    curve: tuple[tuple[float, float], ...] = ()

    @property
    def largest_over_mean(self) -> float:
        """The load of the busiest node / the mean."""
        return self.largest / self.mean if self.mean else 0.0


@dataclass(frozen=True, slots=True)
class Measures:
    """All figures of one overlay; what was not measured is None."""

    overlay: str
    deliveries: DeliveryFigures | None = None
    routing: RoutingFigures | None = None
    load: LoadFigures | None = None
    hops: Spread | None = None
    hops_histogram: tuple[tuple[int, int], ...] = ()


# --- steps ---------------------------------------------------------------------------------------


def delivery_totals(judgements: Any) -> Any:
    """One row: the counts of JUDGEMENTS, named as the fields of `DeliveryFigures`."""

    def total(name: str) -> Any:
        return sql.coalesce(sql.sum(name), sql.lit(0)).cast("bigint").alias(name)

    flags = ("expected", "delivered", "missed", "excused", "late")
    return judgements.agg(
        *(sql.count_if(name).alias(name) for name in flags),
        *(total(name) for name in ("spurious", "duplicates", "repeated")),
    )


def causes_counted(findings: Any) -> Any:
    """How often each cause was found, numbers and names of nodes left out; the most frequent first.

    Rows: finding, cause, findings, copies.
    """
    # "n3 dropped it at 17 ms: full" and "n4 dropped it at 20 ms: full" are one cause.
    plain = sql.regexp_replace(sql.coalesce("cause", sql.lit("")), r"\b\d+ ms", "… ms")
    for pattern, shown in (
        (r"^(on its way, )?\S+ sent it to \S+", "$1a node sent it to another"),
        (r"^\S+ (dropped|received|handed|never had) ", "a node $1 "),
        (r"its node \S+ (crashed|took)", "its node $1"),
        (r": \S+ and the publisher \S+ were", ": the subscriber's node and the publisher were"),
    ):
        plain = sql.regexp_replace(plain, pattern, shown)
    counted = findings.groupBy("finding", plain.alias("cause")).agg(
        sql.count("*").alias("findings"),
        sql.coalesce(sql.sum("copies"), sql.lit(0)).alias("copies"),
    )
    return counted.orderBy(sql.desc("findings"), "finding", "cause")


def receipt_totals(receipts: Any, nodes: int) -> Any:
    """One row of RECEIPTS: events, messages, receivers, matching_receivers, false_positive_ratio.

    A publisher's own row has the sender -1, or says so in a column `is_publisher`. A row without
    hops is that of a node which only relayed messages to others, and is no receiver.
    """
    is_publisher = _is_publisher(receipts)
    is_receiver = ~is_publisher & sql.col("hops").isNotNull()
    receivers = sql.count_if(is_receiver)
    matching = sql.count_if(is_receiver & sql.col("wanted"))
    events = sql.count_if(is_publisher)
    in_vain = (receivers - matching) / sql.lit(max(nodes, 1))
    return receipts.agg(
        events.alias("events"),
        sql.coalesce(sql.sum("messages"), sql.lit(0)).cast("bigint").alias("messages"),
        receivers.alias("receivers"),
        matching.alias("matching_receivers"),
        sql.when(events > 0, in_vain / events).otherwise(0.0).alias("false_positive_ratio"),
    )


def _is_publisher(receipts: Any) -> Any:
    if "is_publisher" in receipts.columns:
        return sql.col("is_publisher")
    return sql.col("sender") == -1


def hop_counts(deliveries: Any) -> Any:
    """Rows (hops, deliveries) of OVERLAY_DELIVERIES or of what JUDGEMENTS say was delivered."""
    hops = sql.least("hops", sql.lit(HOPS_SHOWN_MAX)).alias("hops")
    known = deliveries.where("hops IS NOT NULL")
    return known.groupBy(hops).agg(sql.count("*").alias("deliveries")).orderBy("hops")


def _values_of_load(receipts: Any, nodes: int) -> Any:
    """Rows (load, nodes, places, weight): nodes of a load, and of it or less, and what they bear.

    Nodes that received nothing come first.
    """
    loads = receipts.groupBy("node").agg(sql.sum("messages").cast("bigint").alias("load"))
    values = loads.where("load > 0").groupBy("load").agg(sql.count("*").alias("nodes"))
    busy = sql.sum("nodes").over(Window.partitionBy())
    # Loads that differ are fewer than nodes: one task sums them up.
    passed = sql.sum("nodes").over(Window.orderBy("load"))
    weight = sql.sum(sql.col("load") * sql.col("nodes")).over(Window.orderBy("load"))
    idle = sql.greatest(sql.lit(nodes) - busy, sql.lit(0))
    return values.select(
        "load", "nodes", (passed + idle).alias("places"), weight.alias("weight"), idle.alias("idle")
    )


def load_totals(receipts: Any, nodes: int) -> Any:
    """One row: nodes, idle ones, total, largest, weighted = Σ(2i - N - 1)·x_i, squares = Σx²."""
    first = sql.col("places") - sql.col("nodes") + 1
    # Nodes of equal load have consecutive places, whose sum is that of the first and last times
    # half their number.
    count = sql.col("idle") + sql.sum("nodes").over(Window.partitionBy())
    values = _values_of_load(receipts, nodes).withColumn("count", count)
    ranks = sql.col("nodes") * (first + sql.col("places") - sql.col("count") - 1)
    load = sql.col("load")

    def real(column: Any) -> Any:
        return sql.coalesce(sql.sum(column.cast("double")), sql.lit(0.0))

    return values.agg(
        sql.coalesce(sql.max("count"), sql.lit(nodes)).cast("bigint").alias("nodes"),
        sql.coalesce(sql.max("idle"), sql.lit(nodes)).cast("bigint").alias("idle"),
        sql.coalesce(sql.sum(load * sql.col("nodes")), sql.lit(0)).cast("bigint").alias("total"),
        sql.coalesce(sql.max(load), sql.lit(0)).cast("bigint").alias("largest"),
        real(ranks * load).alias("weighted"),
        real(load * load * sql.col("nodes")).alias("squares"),
    )


def load_curve(receipts: Any, nodes: int) -> Any:
    """Rows (nodes, load): points of the Lorenz curve as shares, at most LORENZ_POINTS of them.

    The least busy come first, idle nodes before them all; the last point is (1, 1).
    """
    values = _values_of_load(receipts, nodes)
    everything = Window.partitionBy()
    shares = values.select(
        (sql.col("places") / sql.max("places").over(everything)).alias("nodes"),
        (sql.col("weight") / sql.max("weight").over(everything)).alias("load"),
    )
    step = sql.ceil(sql.col("nodes") * LORENZ_POINTS)
    return (
        shares.groupBy(step)
        .agg(sql.max("nodes").alias("nodes"), sql.max("load").alias("load"))
        .select("nodes", "load")
        .orderBy("nodes")
    )


def fan_out(deliveries: Any, column: str) -> Any:
    """Rows (at_least, members): how many values of the column have so many rows, by powers of two.

    `fan_out(deliveries, "event_id")` says how many events go to 1, to 2 or 3, to 4 to 7
    subscriptions, and so on. Those with none are in no row.
    """
    counts = deliveries.groupBy(column).agg(sql.count("*").alias("rows"))
    # Digits in base two: a logarithm may fall a hair short of a whole number.
    at_least = sql.pow(sql.lit(2.0), sql.length(sql.bin("rows")) - 1).cast("bigint")
    return (
        counts.groupBy(at_least.alias("at_least"))
        .agg(sql.count("*").alias("members"))
        .orderBy("at_least")
    )


# --- figures -------------------------------------------------------------------------------------


def measured(
    overlay: str,
    nodes: int,
    *,
    judgements: Any = None,
    receipts: Any = None,
    deliveries: Any = None,
) -> Measures:
    """The figures of an overlay, from whichever of the datasets there are.

    Args:
        overlay: its name.
        nodes: how many nodes there are; those that received nothing count too.
        judgements: JUDGEMENTS of the audit.
        receipts: RECEIPTS of the route step, or of a trace (`trace_reading.receipts_in`).
        deliveries: OVERLAY_DELIVERIES; by default, what the judgements say was delivered.
    """
    counts = None
    if judgements is not None:
        counts = DeliveryFigures(**_row(delivery_totals(judgements)))
        if deliveries is None:
            deliveries = judgements.where("delivered")
    histogram: tuple[tuple[int, int], ...] = ()
    if deliveries is not None:
        histogram = tuple((row[0], row[1]) for row in hop_counts(deliveries).collect())
    handed_over = counts.delivered if counts else sum(count for _, count in histogram)
    routing = load = None
    if receipts is not None:
        totals = _row(receipt_totals(receipts, nodes))
        routing = RoutingFigures(nodes=nodes, deliveries=handed_over, **totals)
        load = _load_figures(receipts, nodes)
    return Measures(
        overlay=overlay,
        deliveries=counts,
        routing=routing,
        load=load,
        hops=spread_of(dict(histogram)),
        hops_histogram=histogram,
    )


def _row(frame: Any) -> dict[str, Any]:
    found: dict[str, Any] = frame.first().asDict()
    return found


def _load_figures(receipts: Any, nodes: int) -> LoadFigures:
    row = _row(load_totals(receipts, nodes))
    total, count = row["total"], row["nodes"]
    points = [(point[0], point[1]) for point in load_curve(receipts, nodes).collect()]
    if row["idle"] and points:
        # The curve stays on the ground for as long as nodes bear nothing.
        points.insert(0, (row["idle"] / count, 0.0))
    return LoadFigures(
        nodes=count,
        mean=total / count if count else 0.0,
        largest=row["largest"],
        gini=row["weighted"] / (count * total) if total else 0.0,
        jain=total**2 / (count * row["squares"]) if row["squares"] else 1.0,
        curve=tuple(points),
    )


def reported_hops(measures: Measures) -> str:
    """Hops in one line: mean, middle, one in a hundred, largest.

    >>> reported_hops(Measures("flood", hops=Spread(1.5, 1, 3, 4)))
    'mean 1.50, p50 1, p99 3, max 4'
    """
    spread = measures.hops
    if spread is None:
        return "–"
    return f"mean {spread.mean:.2f}, p50 {spread.p50}, p99 {spread.p99}, max {spread.largest}"
