"""What both kinds of staged input have in common: places, quarantine, counts.

A staged row knows its place within its slice. The ends of slices, one small row each, tell how many
lines and rows came before a slice, and so where in its file a row stands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from peersub.files.errors import FileError
from peersub.pipeline.schemas import INGEST_COUNTS, QUARANTINE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "Ingested",
    "Keep",
    "check_readable",
    "counted",
    "of_kind",
    "placed",
    "quarantined",
    "selected",
    "slice_starts",
    "without_rows",
]

Keep = Callable[[str, "DataFrame"], "DataFrame"]
"""Writes a frame under a name and gives what it wrote, so that it is computed once."""


@dataclass(frozen=True, slots=True)
class Ingested:
    """What came of an input: usable rows, quarantine, and counts per file (`INGEST_COUNTS`)."""

    kept: DataFrame
    quarantine: DataFrame
    counts: DataFrame


def of_kind(staged: DataFrame, kind: str) -> DataFrame:
    """The staged rows of one kind."""
    return staged.where(f"kind = '{kind}'")


def selected(frame: DataFrame, schema: Any) -> DataFrame:
    """The columns of a dataset, in its order and with its types."""
    from pyspark.sql import functions as sql

    columns = [sql.col(column.name).cast(column.dataType) for column in schema.spark]
    names = [column.name for column in schema.spark]
    return frame.select(*(one.alias(name) for one, name in zip(columns, names, strict=True)))


def slice_starts(staged: DataFrame) -> DataFrame:
    """For each slice: its file, and the lines of that file and the rows of all before it."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    ends = of_kind(staged, "end").select("slice", "file", "rows", "lines")
    before = (Window.unboundedPreceding, -1)
    in_file = Window.partitionBy("file").orderBy("slice").rowsBetween(*before)
    # One partition, but of one small row per slice.
    in_all = Window.partitionBy(sql.lit(0)).orderBy("slice").rowsBetween(*before)
    return ends.select(
        "slice",
        sql.col("file").alias("slice_file"),
        sql.coalesce(sql.sum("lines").over(in_file), sql.lit(0)).alias("lines_before"),
        sql.coalesce(sql.sum("rows").over(in_all), sql.lit(0)).alias("rows_before"),
    )


def placed(frame: DataFrame, starts: DataFrame) -> DataFrame:
    """The frame with `place`, as `line 7`, and the columns of `slice_starts`."""
    from pyspark.sql import functions as sql

    number = (sql.col("position") + sql.col("lines_before")).cast("string")
    place = sql.concat_ws(" ", sql.nullif(sql.col("unit"), sql.lit("")), number)
    return frame.join(sql.broadcast(starts), "slice").withColumn("place", place)


def _bad(staged: DataFrame) -> DataFrame:
    """The bad rows and parts.

    What is wrong with a file as a whole is found by the worker of each of its slices, and counts
    once.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    bad = of_kind(staged, "bad").select(
        "slice", "file", "unit", "position", "rows", "reason", "original"
    )
    rows = bad.where("rows is not null")
    same = Window.partitionBy("file", "unit", "position", "reason").orderBy("slice")
    parts = bad.where("rows is null").withColumn("turn", sql.row_number().over(same))
    return rows.unionByName(parts.where("turn = 1").drop("turn"))


def quarantined(staged: DataFrame, dataset: str) -> DataFrame:
    """The bad rows and parts as rows of `quarantine`."""
    from pyspark.sql import functions as sql

    bad = placed(_bad(staged), slice_starts(staged)).withColumn("dataset", sql.lit(dataset))
    return selected(bad, QUARANTINE)


def counted(staged: DataFrame, kept: DataFrame, taken_out: DataFrame) -> DataFrame:
    """The counts per file.

    Args:
        staged: the staging dataset.
        kept: `slice, rows` of what staging kept.
        taken_out: `slice, rows` of what was kept there and is in quarantine all the same.
    """
    from pyspark.sql import functions as sql

    bad = _bad(staged)
    zero = sql.lit(0)
    none = sql.lit(None).cast("string")
    columns = ("slice", "rows_kept", "rows_quarantined", "unreadable", "remark")
    rows = sql.col("rows")
    parts = [
        kept.select("slice", rows, zero, zero, none),
        taken_out.select("slice", -rows, rows, zero, none),
        bad.select("slice", zero, sql.coalesce(rows, zero), rows.isNull().cast("long"), none),
        of_kind(staged, "end").select("slice", zero, zero, zero, "remark"),
    ]
    together = parts[0].toDF(*columns)
    for part in parts[1:]:
        together = together.unionByName(part.toDF(*columns))
    files = of_kind(staged, "end").select("slice", "file")
    sums = [sql.sum(name).alias(name) for name in columns[1:4]]
    found = (
        together.join(sql.broadcast(files), "slice")
        .groupBy("file")
        .agg(*sums, sql.max("remark").alias("remark"))
        .withColumn("rows_read", sql.col("rows_kept") + sql.col("rows_quarantined"))
    )
    return selected(found, INGEST_COUNTS)


def without_rows(frame: DataFrame) -> DataFrame:
    """The frame, or one that Spark knows to be empty: joins with that cost nothing.

    What it is given is stored, and mostly empty: looking once is less work than joining in vain.
    """
    if not frame.isEmpty():
        return frame
    return frame.sparkSession.createDataFrame([], frame.schema)


def check_readable(name: str, staged: DataFrame) -> None:
    """Refuse an input of which nothing at all can be read; one small row is looked at.

    Raises:
        FileError: with the first reason.
    """
    from pyspark.sql import functions as sql

    is_part = "kind = 'bad' and (rows is null or rows = 0)"
    found = staged.agg(
        sql.sum(sql.expr("if(kind in ('block', 'row') or kind = 'bad' and rows > 0, 1, 0)")),
        sql.sum(sql.expr(f"if({is_part}, 1, 0)")),
        sql.min(sql.expr(f"if({is_part}, struct(slice, file, reason), null)")),
    ).first()
    read, unreadable, first = found or (0, 0, None)
    if not read and unreadable and first is not None:
        if first.file == name:
            raise FileError(name, first.reason)
        more = f" (and {unreadable - 1:,} more)" if unreadable > 1 else ""
        raise FileError(name, f"nothing in it can be read: {first.file}: {first.reason}{more}")
