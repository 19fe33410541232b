"""Organise: from subscriptions and a sample of events to classes of equal filters.

The sample is what filters are compared by: as many events as the settings say, drawn by a keyed
hash of their ids, so that the same events give the same sample however they are split. Classes
carry what they match of it; `covering` and `similarity` build on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from peersub.pipeline.kernels.sample_bits import picked_kernel, sampled_kernel
from peersub.pipeline.schemas import CLASSES, SAMPLE, SAMPLED

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = [
    "EVENTS_STEP",
    "SampleSettings",
    "class_tasks",
    "classes_of",
    "drawn_sample",
    "sampled_matches",
]

EVENTS_STEP: Final = 64
"""The bits of a word: a profile is a whole number of words."""
CLASSES_PER_TASK: Final = 128
"""A task takes longer to begin than to search for fewer."""


def class_tasks(classes: int, most: int) -> int:
    """In how many tasks to search for something of each class.

    >>> [class_tasks(classes, most=8) for classes in (0, 128, 129, 1_000_000)]
    [1, 1, 2, 8]
    """
    return min(-(-max(classes, 1) // CLASSES_PER_TASK), most)


@dataclass(frozen=True, slots=True)
class SampleSettings:
    """The sample that filters are compared by.

    Args:
        events: how many events, a multiple of 64; an estimated share has a standard error of at
            most 0.5 / sqrt(events).
        seed: another one draws other events.
        body_column: the attribute with the XML document that patterns read.

    Raises:
        ValueError: the number of events is no positive multiple of 64.
    """

    events: int = 1_024
    seed: int = 1
    body_column: str = "body"

    def __post_init__(self) -> None:
        if self.events <= 0 or self.events % EVENTS_STEP:
            raise ValueError(
                f"the sample must have a multiple of {EVENTS_STEP} events, got {self.events}"
            )


def drawn_sample(events: DataFrame, settings: SampleSettings) -> DataFrame:
    """SAMPLE from EVENTS: the events with the smallest keyed hashes of their ids."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    named = events.select("block", sql.posexplode("names").alias("row", "name"))
    order = [
        sql.xxhash64(sql.lit(settings.seed), "name"),
        sql.col("name"),
        sql.col("block"),
        sql.col("row"),
    ]
    # Both sort no more than the sample.
    drawn = named.orderBy(*order).limit(settings.events)
    placed = drawn.withColumn("place", sql.row_number().over(Window.orderBy(*order)) - 1)
    picks = placed.groupBy("block").agg(
        sql.sort_array(sql.collect_list(sql.struct("row", "place"))).alias("picks")
    )
    picked = events.join(sql.broadcast(picks), "block").select("block", "names", "table", "picks")
    return picked.mapInArrow(picked_kernel, SAMPLE.spark)


def sampled_matches(
    sample: DataFrame, shards: Sequence[str], settings: SampleSettings
) -> DataFrame:
    """SAMPLED from SAMPLE and the folders of an index of all subscriptions, one or several.

    A task opens one shard and matches the whole sample against it.
    """
    from pyspark.sql import functions as sql

    events, body_column = settings.events, settings.body_column

    def kernel(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return sampled_kernel(batches, events, body_column)

    # The sample is one row: it is bounded, and each task needs all of it.
    whole = sample.groupBy().agg(
        sql.sort_array(sql.collect_list(sql.struct("block", "places", "table"))).alias("sample")
    )
    folders = sql.array(*(sql.lit(folder) for folder in shards))
    tasks = whole.select("sample", sql.explode(folders).alias("folder"))
    return tasks.repartition(max(1, len(shards)), "folder").mapInArrow(kernel, SAMPLED.spark)


def classes_of(subscriptions: DataFrame, matches: DataFrame) -> DataFrame:
    """CLASSES from SUBSCRIPTIONS and SAMPLED: a row per digest, its first subscription's text."""
    from pyspark.sql import functions as sql

    first: Any = sql.min(sql.struct("number", "subscription_id", "language", "text")).alias("first")
    members = subscriptions.groupBy("digest").agg(first, sql.count("*").alias("members"))
    classes = members.select("digest", "first.*", "members").join(
        matches, "subscription_id", "left"
    )
    return classes.withColumn("sampled", sql.coalesce("sampled", sql.lit(0))).select(
        *(sql.col(name) for name in CLASSES.arrow.names)
    )
