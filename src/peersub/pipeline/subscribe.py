"""Ingest of subscriptions: files to the datasets `subscriptions` and `quarantine`.

As with events (`ingest`), files are read and filters are parsed once, by the workers
(`kernels.subscribing`); all else is derived from the staging dataset that they give. Every row of
the input is in `subscriptions` or in `quarantine`.

Of subscriptions with one id the first in the order of the input counts, as for `peersub match`:
also if its filter does not parse, so that a mistake in a filter never brings another to life.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peersub.files.errors import FileError
from peersub.pipeline.kernels.subscribing import read_subscription_slices, taken_subscriptions
from peersub.pipeline.schemas import (
    QUARANTINE,
    REPEATED_SUBSCRIPTIONS,
    STAGED_SUBSCRIPTIONS,
    SUBSCRIPTIONS,
)
from peersub.pipeline.slices import SubscriptionInput, sliced
from peersub.pipeline.staging import (
    Ingested,
    Keep,
    check_readable,
    counted,
    of_kind,
    placed,
    quarantined,
    selected,
    slice_starts,
    without_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "ingest_subscriptions",
    "read_subscriptions",
    "repeated_subscriptions",
    "subscription_counts_of",
    "subscription_quarantine_of",
    "subscriptions_of",
]

_KEY = ["slice", "sequence"]


def ingest_subscriptions(
    spark: Any, source: SubscriptionInput, keep: Keep, slice_bytes: int | None = None
) -> Ingested:
    """Subscriptions from files.

    Raises:
        FileError: there is no such input, nothing in it can be read, or it holds no row.
    """
    staged = keep(STAGED_SUBSCRIPTIONS.name, read_subscriptions(spark, source, slice_bytes))
    check_readable(source.name, staged)
    if staged.where("kind != 'end'").isEmpty():
        shape = 'Write {"id": "s1", "filter": "price > 10"}, one per line.'
        raise FileError(source.name, "there are no subscriptions in it", shape)
    repeats = without_rows(keep(REPEATED_SUBSCRIPTIONS.name, repeated_subscriptions(staged)))
    return Ingested(
        subscriptions_of(staged, repeats),
        subscription_quarantine_of(staged, repeats),
        subscription_counts_of(staged, repeats),
    )


def read_subscriptions(
    spark: Any,
    source: SubscriptionInput,
    slice_bytes: int | None = None,
) -> DataFrame:
    """The files of an input as the staging dataset; reading begins when it is asked for.

    Args:
        spark: the session.
        source: the input.
        slice_bytes: about the bytes of a slice.

    Raises:
        FileError: there is no such input, or it cannot be read as asked.
    """
    slices = sliced(spark, source, slice_bytes)
    return slices.mapInArrow(read_subscription_slices, STAGED_SUBSCRIPTIONS.spark)


def repeated_subscriptions(staged: DataFrame) -> DataFrame:
    """The staged rows whose id an earlier row has."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    rows = of_kind(staged, "row").select(*_KEY, "subscription_id", "file", "unit", "position")
    repeated = rows.groupBy("subscription_id").count().where("count > 1").select("subscription_id")
    same = Window.partitionBy("subscription_id").orderBy(*_KEY)
    found = (
        rows.join(repeated, "subscription_id", "left_semi")
        .transform(placed, slice_starts(staged))
        .select(
            *_KEY,
            sql.row_number().over(same).alias("turn"),
            sql.first("file").over(same).alias("first_file"),
            sql.first("place").over(same).alias("first_place"),
        )
        .where("turn > 1")
    )
    return selected(found, REPEATED_SUBSCRIPTIONS)


def _not_taken(staged: DataFrame, repeats: DataFrame) -> DataFrame:
    return of_kind(staged, "row").join(repeats.select(*_KEY), _KEY, "left_anti")


def _numbered(frame: DataFrame, starts: DataFrame) -> DataFrame:
    from pyspark.sql import functions as sql

    return placed(frame, starts).withColumn("number", sql.col("rows_before") + sql.col("sequence"))


def subscriptions_of(staged: DataFrame, repeats: DataFrame) -> DataFrame:
    """The dataset `subscriptions`: the rows that can be used."""
    usable = _not_taken(staged, repeats).where("reason is null")
    return selected(_numbered(usable, slice_starts(staged)), SUBSCRIPTIONS)


def subscription_quarantine_of(staged: DataFrame, repeats: DataFrame) -> DataFrame:
    """The part of `quarantine` that is about subscriptions."""
    from pyspark.sql import functions as sql

    starts = slice_starts(staged)
    wrong = placed(_not_taken(staged, repeats).where("reason is not null"), starts)
    wrong = selected(wrong.withColumn("dataset", sql.lit("subscriptions")), QUARANTINE)
    taken = placed(of_kind(staged, "row").join(repeats, _KEY), starts)
    words = taken.select(
        "file", "place", "subscription_id", "language", "text", "first_file", "first_place"
    ).mapInArrow(taken_subscriptions, QUARANTINE.spark)
    return quarantined(staged, "subscriptions").unionByName(wrong).unionByName(words)


def subscription_counts_of(staged: DataFrame, repeats: DataFrame) -> DataFrame:
    """The counts per file, as `ingest_counts`."""
    kept = of_kind(staged, "row").select("slice", "rows")
    wrong = _not_taken(staged, repeats).where("reason is not null").select("slice", "rows")
    taken = repeats.selectExpr("slice", "1L as rows")
    return counted(staged, kept, wrong.unionByName(taken))
