"""Ingest of events: files, or a user's own frame, to the datasets `events` and `quarantine`.

    slices ──► read_events ──► staged ──► repeated_events ──► repeats       mostly empty
                                  │                              │
                                  └──────────► events_of ◄───────┤
                                  └────► event_quarantine_of ◄───┘

Files are parsed once, by the workers (`kernels.reading`): what they give is written as the staging
dataset, and all else is derived from it. Every row of the input is in `events` or in `quarantine`.

Names are those of `peersub match`: the `id` of a row, else a hash of its content with `#k` for the
k-th equal row in the order of the input. Names must be unique here: of two events with one `id` the
first is kept. The search for repeated names is a group over names alone; blocks are opened again
only where a name in them is repeated.

`ingest_events` does all of it; `keep` writes a frame and reads it back. The steps may be called one
by one, but each that takes `staged` or `repeats` reads it more than once: give them what was
written, not what is yet to be computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from peersub.pipeline.kernels.reading import EventReading, read_event_slices, staged_frame_blocks
from peersub.pipeline.kernels.renaming import renamed_blocks, taken_events
from peersub.pipeline.schemas import EVENTS, QUARANTINE, REPEATED_EVENTS, STAGED_EVENTS
from peersub.pipeline.slices import EventInput, sliced
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
    "event_blocks",
    "event_counts_of",
    "event_quarantine_of",
    "events_of",
    "ingest_events",
    "ingest_frame",
    "read_events",
    "read_frame",
    "repeated_events",
]

BLOCK_SHIFT: Final = 32
"""A block's number has its slice above this bit, and its place within the slice below."""


def ingest_events(
    spark: Any, source: EventInput, keep: Keep, slice_bytes: int | None = None
) -> Ingested:
    """Events from files.

    Raises:
        FileError: there is no such input, or nothing in it can be read.
    """
    staged = keep(STAGED_EVENTS.name, read_events(spark, source, slice_bytes))
    check_readable(source.name, staged)
    return _ingested(staged, keep)


def ingest_frame(frame: DataFrame, keep: Keep, name: str = "frame") -> Ingested:
    """Events from a user's own frame; `name` is what it is called in reports."""
    return _ingested(keep(STAGED_EVENTS.name, read_frame(frame, name)), keep)


def _ingested(staged: DataFrame, keep: Keep) -> Ingested:
    repeats = without_rows(keep(REPEATED_EVENTS.name, repeated_events(staged)))
    return Ingested(
        events_of(staged, repeats),
        event_quarantine_of(staged, repeats),
        event_counts_of(staged, repeats),
    )


def read_events(spark: Any, source: EventInput, slice_bytes: int | None = None) -> DataFrame:
    """The files of an input as the staging dataset; reading begins when it is asked for.

    Raises:
        FileError: there is no such input, or it cannot be read as asked.
    """
    reading = EventReading(source.records, dict(source.schema))
    slices = sliced(spark, source, slice_bytes)
    return slices.mapInArrow(read_event_slices(reading), STAGED_EVENTS.spark)


def read_frame(frame: DataFrame, name: str = "frame") -> DataFrame:
    """A frame whose columns are attributes, as the staging dataset."""
    from pyspark.sql import functions as sql

    quoted = (f"`{column.replace('`', '``')}`" for column in frame.columns)
    events = frame.select(
        sql.monotonically_increasing_id().alias("number"), sql.struct(*quoted).alias("event")
    )
    return events.mapInArrow(staged_frame_blocks(name), STAGED_EVENTS.spark)


def event_blocks(frame: DataFrame) -> DataFrame:
    """A frame whose columns are attributes, as rows of `events`.

    It is for frames that give the same rows in the same order each time they are read, as those of
    files do: names are compared first, then blocks are made. Of rows with one `id` the first is
    kept; `ingest_frame` also tells of the others.
    """
    staged = read_frame(frame)
    return events_of(staged, repeated_events(staged))


# --- names -------------------------------------------------------------------------------------


def _base(name: Any) -> Any:
    """A name without the `#k` of equal rows: names of one base may come to be equal."""
    from pyspark.sql import functions as sql

    return sql.regexp_replace(name, "^([0-9a-f]{32})#[0-9]+$", "$1")


def repeated_events(staged: DataFrame) -> DataFrame:
    """The rows of blocks that do not keep the name they have there."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    blocks = of_kind(staged, "block")
    bases = blocks.select(sql.explode("names").alias("name")).select(_base(sql.col("name")))
    repeated = bases.toDF("base").groupBy("base").count().where("count > 1").select("base")
    rows = blocks.select(
        "slice",
        "sequence",
        "file",
        "unit",
        sql.posexplode(sql.arrays_zip("names", "given", "positions")).alias("row", "event"),
    ).select(
        "slice",
        "sequence",
        "file",
        "unit",
        "row",
        sql.col("event.names").alias("name"),
        sql.col("event.given").alias("given"),
        sql.col("event.positions").alias("position"),
        _base(sql.col("event.names")).alias("base"),
    )
    order = ("slice", "sequence", "row")
    equal = Window.partitionBy("name", "given").orderBy(*order)
    count = sql.row_number().over(equal) - 1
    number = sql.when(~sql.col("given") & (count > 0), sql.concat("name", sql.lit("#"), count))
    found = (
        rows.join(repeated, "base", "left_semi")
        .withColumn("new_name", sql.coalesce(number, "name"))
        .transform(placed, slice_starts(staged))
    )
    same = Window.partitionBy("new_name").orderBy(*order)
    is_first = sql.row_number().over(same) == 1
    changed = found.select(
        *order,
        "place",
        (sql.col("new_name") != sql.col("name")).alias("renamed"),
        sql.col("new_name").alias("name"),
        sql.when(~is_first, sql.first("file").over(same)).alias("first_file"),
        sql.when(~is_first, sql.first("place").over(same)).alias("first_place"),
    ).where("renamed or first_file is not null")
    return selected(changed, REPEATED_EVENTS)


def _changed_blocks(staged: DataFrame, repeats: DataFrame) -> DataFrame:
    """The blocks with a row in `repeats`, with those rows as `changes`."""
    from pyspark.sql import functions as sql

    key = ["slice", "sequence"]
    change = sql.struct("row", "name", "place", "first_file", "first_place")
    changes = repeats.groupBy(*key).agg(sql.collect_list(change).alias("changes"))
    concerned = _blocks(staged).join(
        sql.broadcast(repeats.select(*key).distinct()), key, "left_semi"
    )
    return concerned.join(changes, key).select("block", "file", "names", "table", "changes")


def _blocks(staged: DataFrame) -> DataFrame:
    from pyspark.sql import functions as sql

    number = sql.shiftleft("slice", BLOCK_SHIFT) + sql.col("sequence")
    return of_kind(staged, "block").withColumn("block", number)


# --- datasets ----------------------------------------------------------------------------------


def events_of(staged: DataFrame, repeats: DataFrame) -> DataFrame:
    """The dataset `events`: blocks as they were staged, or renamed."""
    from pyspark.sql import functions as sql

    key = ["slice", "sequence"]
    others = _blocks(staged).join(sql.broadcast(repeats.select(*key).distinct()), key, "left_anti")
    changed = _changed_blocks(staged, repeats).mapInArrow(renamed_blocks, EVENTS.spark)
    return selected(others, EVENTS).unionByName(changed)


def event_quarantine_of(staged: DataFrame, repeats: DataFrame) -> DataFrame:
    """The part of `quarantine` that is about events."""
    taken = repeats.where("first_file is not null")
    words = _changed_blocks(staged, taken).mapInArrow(taken_events, QUARANTINE.spark)
    return quarantined(staged, "events").unionByName(words)


def event_counts_of(staged: DataFrame, repeats: DataFrame) -> DataFrame:
    """The counts per file, as `ingest_counts`."""
    kept = of_kind(staged, "block").select("slice", "rows")
    taken = repeats.where("first_file is not null").selectExpr("slice", "1L as rows")
    return counted(staged, kept, taken)
