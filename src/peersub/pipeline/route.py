"""Route: every event over a plan, to who receives it, from whom, at which hop.

Each event is routed by itself, given who wants it. So `DELIVERIES` and `PLACEMENT` are grouped by
event, events that nobody wants are added (in a flood, and where tables let more pass than was asked
for, they cost messages as well), and workers route batches of events over the plan, which each of
them reads once. Where the sources of the plan are rows, workers first match the events against
these; where they are layers, they look at the topics of the events; where nodes hold places, they
match the events and look at their bits.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from peersub.overlays.core.identity import NUMBERED_NODE_PREFIX
from peersub.pipeline.kernels.layers import event_layers
from peersub.pipeline.kernels.places import event_words
from peersub.pipeline.kernels.routing import match_rows, route_batches
from peersub.pipeline.plans import PlanSettings
from peersub.pipeline.schemas import INTERESTED_ROWS, RECEIPTS

__all__ = ["overlay_deliveries", "receipts", "wanted_by_node"]


def wanted_by_node(deliveries: DataFrame, placement: DataFrame) -> DataFrame:
    """Per event that somebody wants, the nodes that do: `event_id`, `wanted`."""
    homes = deliveries.join(placement, "subscription_id").select("event_id", "node")
    return homes.groupBy("event_id").agg(sql.collect_set("node").alias("wanted"))


def receipts(
    events: DataFrame,
    deliveries: DataFrame,
    placement: DataFrame,
    settings: PlanSettings,
    folder: str,
    *,
    body_column: str = "body",
) -> DataFrame:
    """`RECEIPTS` of all events over the plan in the folder, which these settings made.

    The publisher of an event is drawn by the seed of the settings and the event's identifier.
    """
    has_rows, seed = settings.needs_subscriptions, settings.seed

    own = settings.overlay_settings

    def match(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return match_rows(batches, folder, body_column)

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return event_layers(batches, folder, own.topic)

    def match_and_look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return event_words(batches, folder, body_column, seed, own)

    def route(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return route_batches(batches, folder, seed)

    if has_rows:
        find = look if settings.has_layers else match_and_look if settings.has_places else match
        every = events.select("names", "table").mapInArrow(find, INTERESTED_ROWS.spark)
    else:
        every = events.select(sql.explode("names").alias("event_id"))
    known = every.join(wanted_by_node(deliveries, placement), "event_id", "left")
    return known.mapInArrow(route, RECEIPTS.spark)


def overlay_deliveries(
    receipts: DataFrame, deliveries: DataFrame, placement: DataFrame
) -> DataFrame:
    """`OVERLAY_DELIVERIES`: what each node that received an event hands to its subscriptions."""
    homes = deliveries.join(placement, "subscription_id")
    reached = receipts.where("wanted").select("event_id", "node", "hops")
    return homes.join(reached, ["event_id", "node"]).select(
        "event_id",
        "subscription_id",
        sql.concat(sql.lit(NUMBERED_NODE_PREFIX), sql.col("node").cast("string")).alias("node"),
        "hops",
    )
