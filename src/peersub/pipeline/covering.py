"""Covering: for each class the filters that contain its own, the most selective first.

First `class_bands` writes the classes, in the order of their selectivity on the sample, as folders
with a compiled index each. Then `coverings_of` sends blocks of classes through the bands (see
`kernels.coverers`, which states what is found and what is given up). Nowhere are all pairs looked
at, and no class looks at more than a bounded number of candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from peersub.pipeline.kernels.class_bands import BandFolder, demanding_kernel, write_band
from peersub.pipeline.kernels.coverers import CoveringBounds, coverings_kernel
from peersub.pipeline.schemas import BANDS, COVERINGS
from peersub.pipeline.staging import Keep

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["CoveringSettings", "band_folders", "class_bands", "coverings_of"]

COMPLETE_CLASSES_MAX: Final = 2_048
"""Classes among which all coverers of each are found, though each may cover each."""


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
    tasks: int = 16
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
        return cls(CoveringBounds(every, every, every), is_complete=True, keep=keep)


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
