"""Match: the events dataset and the index to the deliveries dataset.

Whole, the index is opened by every task, and the blocks of events are dealt to the tasks. Sharded,
each block goes to one task per shard, and a task opens one shard only. Either way each pair of
event and subscription is found once, since a subscription is in one shard and an event in one
block.

`MatchPlan.of` decides from sizes how many tasks there are. Few blocks are cut smaller, so that all
processors have work: one event against a million subscriptions stays one task, a thousand do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from peersub.pipeline.index import Index
from peersub.pipeline.kernels.blocks import BLOCK_ROWS_MAX
from peersub.pipeline.kernels.matching import GATHERED_ROWS_MAX, Matching, cutting, matching
from peersub.pipeline.schemas import DELIVERIES, EVENTS

__all__ = ["EventSizes", "MatchPlan", "matched"]

TASKS_PER_PROCESSOR: Final = 3
"""So that a slow task leaves the others something to do; more only cost their start."""
BLOCK_ROWS_MIN: Final = 256
"""The index is read once per batch of events, whatever its size: smaller ones waste it."""


@dataclass(frozen=True, slots=True)
class EventSizes:
    """How many events there are, and in how many blocks."""

    events: int
    blocks: int

    @classmethod
    def of(cls, events: Any) -> EventSizes:
        """The sizes of an events dataset; a pass over one narrow column."""
        row = events.selectExpr("coalesce(sum(rows), 0) AS events", "count(*) AS blocks").first()
        return cls(row["events"], row["blocks"])


@dataclass(frozen=True, slots=True)
class MatchPlan:
    """How to spread the work.

    Attributes:
        tasks: tasks per shard.
        block_rows: blocks are cut to so many events; None leaves them as they are.
    """

    tasks: int
    block_rows: int | None = None

    @classmethod
    def of(cls, sizes: EventSizes, *, processors: int, shards: int = 1) -> MatchPlan:
        """A plan that keeps all processors busy, with as few batches of events as that allows.

        >>> MatchPlan.of(EventSizes(1_000_000, 489), processors=2)
        MatchPlan(tasks=6, block_rows=None)
        >>> MatchPlan.of(EventSizes(2_048, 1), processors=2)
        MatchPlan(tasks=2, block_rows=1024)
        >>> MatchPlan.of(EventSizes(1, 1), processors=64)
        MatchPlan(tasks=1, block_rows=None)
        """
        lanes = max(1, -(-processors // max(1, shards)))
        batches = -(-sizes.events // GATHERED_ROWS_MAX)
        tasks = lanes * min(TASKS_PER_PROCESSOR, max(1, batches // lanes))
        if sizes.blocks >= 2 * tasks:
            return cls(tasks)
        rows = max(BLOCK_ROWS_MIN, -(-sizes.events // tasks))
        tasks = max(1, min(tasks, -(-sizes.events // rows)))
        return cls(tasks, rows if tasks > 1 and rows < BLOCK_ROWS_MAX else None)


def matched(events: Any, index: Index, plan: MatchPlan, *, body_column: str = "body") -> Any:
    """Who wants which event: rows of the deliveries dataset, each pair once.

    Args:
        events: the events dataset.
        index: where the subscriptions are.
        plan: how to spread the work.
        body_column: the column with the XML document of each event, for XPath patterns.
    """
    from pyspark.sql import functions as sql

    if not index.shards:
        nothing = events.selectExpr("'' AS event_id", "'' AS subscription_id").where("false")
        return nothing.to(DELIVERIES.spark)
    if plan.block_rows is not None:
        events = events.mapInArrow(cutting(plan.block_rows), EVENTS.spark)
    blocks = events.select("names", "table")
    if len(index.shards) == 1:
        dealt = blocks.repartition(plan.tasks)
        dealt = dealt.withColumn("shard", sql.lit(index.shards[0].shard))
    else:
        numbers = sql.array(*(sql.lit(shard.shard) for shard in index.shards))
        dealt = blocks.withColumn("turn", sql.pmod(sql.xxhash64("names"), plan.tasks))
        dealt = dealt.withColumn("shard", sql.explode(numbers))
        task = (sql.col("shard") * plan.tasks + sql.col("turn")).cast("int")
        last = index.shards[-1].shard
        dealt = dealt.repartitionById((last + 1) * plan.tasks, task)
    settings = Matching(index.folder, body_column)
    blocks = dealt.select("shard", "names", "table")
    return blocks.mapInArrow(matching(settings), DELIVERIES.spark)
