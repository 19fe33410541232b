"""Overlays whose nodes host a member per distinct filter: members, their plans, their routes.

Members are numbered in the order of the names of their nodes, so that a plan's numbers are those
that the simulator's `converged` goes by. A subscription belongs to the member of its filter on its
node. A plan is made by one worker (`kernels.member_plans`) from what `organise` found; events are
routed by all of them (`kernels.member_routing`), each event by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sql

from peersub.overlays.bulk import Plan
from peersub.overlays.containment.planning import FIRST_SLOT, tree_plan
from peersub.overlays.core.identity import NUMBERED_NODE_PREFIX
from peersub.overlays.semantic.bulk_members import member_overlay
from peersub.overlays.similarity.planning import graph_plan
from peersub.pipeline.kernels.member_graphs import (
    EXACT_MEMBERS_MAX,
    exact_graph,
    joined_graph,
    link_share,
    write_society,
)
from peersub.pipeline.kernels.member_plans import TreeSettings, planned_tree, read_columns
from peersub.pipeline.kernels.member_routing import route_members
from peersub.pipeline.kernels.plan_files import write_plan
from peersub.pipeline.plans import PlanSettings
from peersub.pipeline.schemas import OUTCOMES, PLANNED, RECEIPTS, ROUTED

__all__ = [
    "Organised",
    "deliveries_of_members",
    "members_of",
    "membership_of",
    "outcomes_of",
    "planned",
    "receipts_of",
    "routed_among_members",
    "summary_of",
]

GRAPH_TASKS: Final = 16
"""Into how many tasks the linking of a graph is cut."""
_MEMBER_COLUMNS: Final = ("member", "node", "place", "digest")


def members_of(subscriptions: DataFrame, nodes: int) -> DataFrame:
    """`MEMBERS` from `SUBSCRIPTIONS`, dealt to so many nodes."""
    homes = subscriptions.select("number", "digest", _node(nodes).alias("node"))
    members = homes.groupBy("node", "digest").agg(sql.min("number").alias("first"))
    on_node: Any = Window.partitionBy("node").orderBy("first")
    placed = members.withColumn("place", sql.row_number().over(on_node) - 1)
    # One row per node: only these are put in one order.
    counts = members.groupBy("node").agg(sql.count("*").alias("members"))
    name = sql.concat(sql.lit(NUMBERED_NODE_PREFIX), sql.col("node").cast("string"))
    before = sql.sum("members").over(Window.orderBy(name)) - sql.col("members")
    starts = counts.select("node", before.alias("start"))
    return placed.join(sql.broadcast(starts), "node").select(
        (sql.col("start") + sql.col("place")).cast("int").alias("member"),
        "node",
        sql.col("place").cast("int").alias("place"),
        "digest",
    )


def membership_of(subscriptions: DataFrame, members: DataFrame, nodes: int) -> DataFrame:
    """`MEMBERSHIP` from `SUBSCRIPTIONS` and the `MEMBERS` that were made of them."""
    homes = subscriptions.select("subscription_id", "digest", _node(nodes).alias("node"))
    return homes.join(members, ["node", "digest"]).select("subscription_id", "member")


def _node(nodes: int) -> Any:
    return (sql.col("number") % nodes).cast("int")


# --- plans ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Organised:
    """Where the datasets lie that a plan is made of, and what is known of them.

    Args:
        members: the folder of `MEMBERS`.
        classes: of `CLASSES`.
        coverings: of `COVERINGS`.
        similar: of `SIMILAR`.
        scratch: a folder for files that workers share while a plan is made.
        members_count: how many members there are.
        is_complete: whether the coverings list all containers of each class.
    """

    members: str
    classes: str
    coverings: str
    similar: str
    scratch: str
    members_count: int
    is_complete: bool


def planned(spark: Any, settings: PlanSettings, organised: Organised, folder: str) -> DataFrame:
    """A row of `PLANNED`; when it is asked for, workers make the plan and write the folder.

    Raises:
        SettingsError: plans cannot have these settings.
    """
    overlay = member_overlay(settings.overlay)
    assert overlay is not None, "the overlay's nodes host members"
    overlay.check(settings.overlay_settings)
    if settings.overlay == "containment":
        return _planned_tree(spark, settings, organised, folder)
    return _planned_graph(spark, settings, organised, folder)


def _planned_tree(
    spark: Any, settings: PlanSettings, organised: Organised, folder: str
) -> DataFrame:
    own = settings.overlay_settings
    tree = TreeSettings(
        by_selectivity=own.rule == "selectivity",
        is_complete=organised.is_complete,
        equal_degree=own.equal_degree,
        top_degree=own.top_degree,
        first_slot=FIRST_SLOT,
    )

    def make() -> Plan:
        found = planned_tree(
            read_columns(organised.members, *_MEMBER_COLUMNS),
            read_columns(organised.classes, "digest", "sampled"),
            read_columns(organised.coverings, "digest", "coverer"),
            tree,
        )
        return tree_plan(settings.names, found)

    return _by_one_worker(_one_row(spark), make, folder)


def _planned_graph(
    spark: Any, settings: PlanSettings, organised: Organised, folder: str
) -> DataFrame:
    own, seed, scratch = settings.overlay_settings, settings.seed, organised.scratch
    shares = GRAPH_TASKS

    def exact() -> Plan:
        members = read_columns(organised.members, *_MEMBER_COLUMNS)
        classes = read_columns(organised.classes, "digest", "profile")
        return graph_plan(settings.names, exact_graph(members, classes, seed, own))

    def prepare(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            write_society(
                read_columns(organised.members, *_MEMBER_COLUMNS),
                read_columns(organised.classes, "digest", "profile"),
                read_columns(organised.similar, "digest", "neighbour", "rank"),
                seed,
                scratch,
            )
            yield batch

    def link(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            links = [
                link_share(scratch, share, shares, seed, own)
                for share in batch["share"].to_pylist()
            ]
            yield pa.record_batch([batch["share"], pa.array(links, pa.int64())], ["share", "links"])

    if organised.members_count <= EXACT_MEMBERS_MAX:
        return _by_one_worker(_one_row(spark), exact, folder)
    prepared = _one_row(spark).mapInArrow(prepare, "id long")
    numbers = sql.explode(sql.sequence(sql.lit(0), sql.lit(shares - 1))).alias("share")
    # Each step begins when the one before has ended: there is a shuffle between them.
    tasks = prepared.select(numbers).repartition(shares, "share")
    linked = tasks.mapInArrow(link, "share int, links long")
    done = linked.agg(sql.sum("links").alias("id"))
    return _by_one_worker(
        done, lambda: graph_plan(settings.names, joined_graph(scratch, shares)), folder
    )


def _one_row(spark: Any) -> DataFrame:
    found: DataFrame = spark.range(1).repartition(1)
    return found


def _by_one_worker(start: DataFrame, make: Callable[[], Plan], folder: str) -> DataFrame:
    """A frame of one row; when it is asked for, one worker makes the plan."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield write_plan(make(), folder)

    return start.mapInArrow(write, PLANNED.spark)


# --- routes --------------------------------------------------------------------------------------


def routed_among_members(
    events: DataFrame,
    deliveries: DataFrame,
    membership: DataFrame,
    settings: PlanSettings,
    folder: str,
    tasks: int,
) -> DataFrame:
    """`ROUTED`: the way of each event over the plan in the folder, in so many tasks.

    The publisher of an event is drawn by the seed of the settings and the event's identifier.
    """
    seed, own = settings.seed, settings.overlay_settings

    def route(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return route_members(batches, folder, seed, own)

    matching = deliveries.join(membership, "subscription_id").groupBy("event_id")
    found = matching.agg(sql.sort_array(sql.collect_set("member")).alias("matching"))
    every = events.select(sql.explode("names").alias("event_id"))
    known = every.join(found, "event_id", "left").repartition(tasks, "event_id")
    return known.mapInArrow(route, ROUTED.spark)


def receipts_of(routed: DataFrame) -> DataFrame:
    """`RECEIPTS`: what nodes received."""
    columns = ("nodes", "senders", "node_hops", "node_messages", "wanted")
    rows = routed.select("event_id", sql.explode(sql.arrays_zip(*columns)).alias("row"))
    named = zip(RECEIPTS.arrow.names[1:], columns, strict=True)
    return rows.select("event_id", *(sql.col(f"row.{old}").alias(new) for new, old in named))


def outcomes_of(routed: DataFrame) -> DataFrame:
    """`OUTCOMES`: what became of each event."""
    return routed.select(*OUTCOMES.arrow.names)


def deliveries_of_members(
    routed: DataFrame, membership: DataFrame, placement: DataFrame
) -> DataFrame:
    """`OVERLAY_DELIVERIES`: what members that were reached hand to their subscriptions."""
    reached = routed.select(
        "event_id", sql.explode(sql.arrays_zip("reached", "reached_hops")).alias("row")
    ).select("event_id", sql.col("row.reached").alias("member"), sql.col("row.reached_hops"))
    homes = membership.join(placement, "subscription_id")
    return reached.join(homes, "member").select(
        "event_id",
        "subscription_id",
        sql.concat(sql.lit(NUMBERED_NODE_PREFIX), sql.col("node").cast("string")).alias("node"),
        sql.col("reached_hops").alias("hops"),
    )


def summary_of(outcomes: DataFrame) -> dict[str, Any]:
    """Averages over events; ratios that are not defined for an event are left out."""
    row = outcomes.agg(
        sql.max("members").alias("members"),
        sql.sum("receivers").alias("receivers"),
        sql.sum("matching_receivers").alias("deliveries"),
        sql.sum("messages").alias("messages"),
        sql.avg("false_positive_ratio").alias("false_positive_ratio"),
        sql.avg("false_negative_ratio").alias("false_negative_ratio"),
        sql.avg("precision").alias("precision"),
        (sql.sum("messages") / sql.sum("matching_receivers")).alias("messages_per_delivery"),
        (sql.sum("hops") / sql.sum("matching_receivers")).alias("hops"),
        sql.max("hops_max").alias("hops_max"),
    ).first()
    found = {} if row is None else row.asDict()
    return {
        name: round(value, 6) if isinstance(value, float) else value or 0
        for name, value in found.items()
    }
