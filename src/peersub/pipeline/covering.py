"""Covering: for each class the filters that contain its own, the most selective first.

Most filters are one box of numbers and texts. Of these *plain* ones one worker writes arrays out of
the index, and all look coverings up in them (`kernels.plain_coverers`): no filter is parsed.

For the others, and for what they cover, `class_bands` writes the classes, in the order of their
selectivity on the sample, as folders with a compiled index each. Then `coverings_of` sends blocks
of classes through the bands (see `kernels.coverers`, which states what is found and what is given
up). Nowhere are all pairs looked at. `found_coverings` does all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from peersub.pipeline.kernels.class_bands import BandFolder, demanding_kernel, write_band
from peersub.pipeline.kernels.coverers import CoveringBounds, coverings_kernel
from peersub.pipeline.kernels.member_plans import read_columns
from peersub.pipeline.kernels.plain_coverers import (
    plain_coverings,
    split_classes,
    write_plain_classes,
)
from peersub.pipeline.organise import class_tasks
from peersub.pipeline.schemas import BANDS, COVERINGS
from peersub.pipeline.staging import Keep

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = [
    "CoveringSettings",
    "band_folders",
    "class_bands",
    "coverings_of",
    "found_coverings",
    "plain_coverings_of",
    "plain_count",
    "ranked_coverings",
    "split_by_plainness",
]

COMPLETE_CLASSES_MAX: Final = 2_048
"""Classes among which all coverers of each are found, though each may cover each."""
TASKS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class CoveringSettings:
    """How covering is looked for.

    Args:
        bounds: how far to search for one class.
        band_classes: classes in a band, about; a chain of coverings costs each class half a band
            of candidates, and each class may visit all bands.
        tasks: into how many tasks the search is cut.
    """

    bounds: CoveringBounds = field(default_factory=CoveringBounds)
    band_classes: int = 8_192
    tasks: int = TASKS_MAX
    is_complete: bool = False
    """Whether no bound can be reached."""
    keep: Keep | None = None
    """Writes a frame that is read more than once."""

    @classmethod
    def fit(cls, classes: int, keep: Keep | None = None) -> CoveringSettings:
        """For so many classes: without bounds where they are few."""
        if classes > COMPLETE_CLASSES_MAX:
            return cls(keep=keep)
        every = max(classes, 1)
        bounds = CoveringBounds(every, every, every)
        tasks = class_tasks(classes, TASKS_MAX)
        return cls(bounds, tasks=tasks, is_complete=True, keep=keep)


def class_bands(classes: DataFrame, folder: str, settings: CoveringSettings) -> DataFrame:
    """BANDS from CLASSES: write all classes below a folder that all workers share.

    Classes of one demanded attribute are together, in the order of their selectivity. Those that
    match equally many events of the sample are spread by their digests over the bands that these
    take up, so that no band is much larger than asked for.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    size = settings.band_classes

    def write(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        import pyarrow as pa

        demand, band = (each.as_py() for each in key)
        written = write_band(table, band, folder, demand)
        return pa.Table.from_pylist([asdict(written)], schema=BANDS.arrow)

    columns = ("digest", "language", "text", "sampled")
    asked = classes.select(*columns).repartition(settings.tasks, "digest")
    demanding = asked.mapInArrow(
        demanding_kernel, "digest binary, language string, text string, sampled int, demand string"
    )
    if settings.keep is not None:
        demanding = settings.keep("demanding", demanding)
    # A row per attribute and number of events: few.
    per_count = demanding.groupBy("demand", "sampled").agg(sql.count("*").alias("classes"))
    growing: Any = Window.partitionBy("demand").orderBy("sampled")
    below = sql.sum("classes").over(growing) - sql.col("classes")
    per_demand = per_count.groupBy("demand").agg(sql.ceil(sql.sum("classes") / size).alias("bands"))
    before = sql.sum("bands").over(Window.orderBy("demand")) - sql.col("bands")
    first = per_demand.select("demand", before.alias("first"))
    starts = per_count.withColumn("below", below).join(first, "demand")
    place = sql.col("below") + sql.pmod(sql.xxhash64("digest"), sql.col("classes"))
    banded = demanding.join(sql.broadcast(starts), ["demand", "sampled"]).select(
        *columns,
        "demand",
        (sql.col("first") + sql.floor(place / size)).cast("int").alias("band"),
    )
    return banded.groupBy("demand", "band").applyInArrow(write, BANDS.spark)


def band_folders(bands: DataFrame) -> tuple[BandFolder, ...]:
    """The rows of BANDS, one per some thousand classes, brought to the driver."""
    rows = bands.orderBy("band").collect()
    return tuple(BandFolder(**row.asDict()) for row in rows)


def coverings_of(
    classes: DataFrame, bands: Sequence[BandFolder], settings: CoveringSettings
) -> DataFrame:
    """COVERINGS from CLASSES and the bands that were written of them."""
    folders, bounds = tuple(bands), settings.bounds

    def kernel(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return coverings_kernel(batches, folders, bounds)

    asked = classes.select("digest", "language", "text", "sampled")
    return asked.repartition(settings.tasks, "digest").mapInArrow(kernel, COVERINGS.spark)


# --- plain classes -------------------------------------------------------------------------------


def found_coverings(
    classes: DataFrame,
    place: str,
    shards: Sequence[str],
    scratch: str,
    settings: CoveringSettings,
) -> DataFrame:
    """COVERINGS of all classes.

    Args:
        classes: CLASSES, stored.
        place: the folder where they are stored.
        shards: the folders of the index of all subscriptions.
        scratch: a folder for files that workers share.
        settings: how far to look.
    """
    spark, folder = classes.sparkSession, f"{scratch}/plain"
    count = plain_count(spark, place, shards, folder)
    among_plain = plain_coverings_of(spark, folder, settings)
    if count == classes.count():
        return among_plain
    plain = split_by_plainness(classes, folder, is_plain=True)
    others = split_by_plainness(classes, folder, is_plain=False)
    bands_of_others = _written_bands(others, "others", scratch, settings)
    bands_of_plain = _written_bands(plain, "plain", scratch, settings)
    by_both = among_plain.unionByName(coverings_of(plain, bands_of_others, settings))
    return ranked_coverings(by_both, classes, settings).unionByName(
        coverings_of(others, (*bands_of_others, *bands_of_plain), settings)
    )


def _written_bands(
    classes: DataFrame, name: str, scratch: str, settings: CoveringSettings
) -> tuple[BandFolder, ...]:
    """Bands of some classes, each frame that is read more than once stored by a name of its own."""
    keep = settings.keep
    if keep is None:
        return band_folders(class_bands(classes, f"{scratch}/bands-{name}", settings))

    def keep_own(each: str, frame: DataFrame) -> DataFrame:
        return keep(f"{each}-{name}", frame)

    named = replace(settings, keep=keep_own)
    bands = class_bands(classes, f"{scratch}/bands-{name}", named)
    return band_folders(keep_own("band_list", bands))


def plain_count(spark: Any, place: str, shards: Sequence[str], folder: str) -> int:
    """Have one worker write the plain ones of the classes that are stored at a place; how many."""
    folders = list(shards)

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for _ in batches:
            written = write_plain_classes(read_columns(place, "digest", "sampled"), folders, folder)
            yield pa.record_batch([pa.array([written], pa.int64())], ["plain"])

    row = spark.range(1).repartition(1).mapInArrow(write, "plain long").first()
    return int(row.plain)


def plain_coverings_of(spark: Any, folder: str, settings: CoveringSettings) -> DataFrame:
    """COVERINGS among the plain classes that are written in a folder."""
    shares, bounds = settings.tasks, settings.bounds

    def kernel(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for share in batch["id"].to_pylist():
                yield from plain_coverings(folder, share, shares, bounds)

    found: DataFrame = spark.range(0, shares, 1, shares).mapInArrow(kernel, COVERINGS.spark)
    return found


def split_by_plainness(classes: DataFrame, folder: str, *, is_plain: bool) -> DataFrame:
    """The classes that are written in a folder as plain ones, or all others."""

    def kernel(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return split_classes(batches, folder, is_plain=is_plain)

    return classes.mapInArrow(kernel, classes.schema)


def ranked_coverings(found: DataFrame, classes: DataFrame, settings: CoveringSettings) -> DataFrame:
    """COVERINGS of pairs that were found in several ways, each pair in one of them."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    bounds = settings.bounds
    sampled = classes.select(sql.col("digest").alias("coverer"), "sampled")
    of_class: Any = Window.partitionBy("digest")
    rank = sql.row_number().over(of_class.orderBy("sampled", "coverer")) - 1
    coverers = sql.least(sql.count("*").over(of_class), sql.lit(bounds.proven_max))
    return (
        found.join(sampled, "coverer")
        .select(
            "digest",
            "coverer",
            rank.cast("int").alias("rank"),
            coverers.cast("int").alias("coverers"),
        )
        .where(sql.col("rank") < min(bounds.coverers_max, bounds.proven_max))
    )
