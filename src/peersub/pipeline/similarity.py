"""Similarity: for each class the filters most like its own, by f_s on the sample's events.

Classes that match the same events have one *profile*, and similarity 1 with each other: they are
linked in a ring in the order of their digests, each to those that follow it. Where such a group is
smaller than the number of neighbours asked for, the nearest other profiles fill up. These come from
look-up tables that bound what is looked at (`kernels.profiles`), and are exact in what is said of
them (`kernels.neighbours`). Classes that match no event of the sample have no measurable
similarity: they get no neighbours.

Order: similarity, largest first. Among equals: in a group the digests that follow one's own; else
profiles of fewer events, then by digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from peersub.pipeline.kernels.neighbours import (
    NEIGHBOURS,
    TASKS,
    exact_similarities,
    neighbours_kernel,
    recall,
    round_kernel,
)
from peersub.pipeline.kernels.profiles import write_part
from peersub.pipeline.organise import class_tasks
from peersub.pipeline.staging import Keep

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["SimilaritySettings", "measured_recall", "similar_of", "unmeasured_count"]

PARTS = 32
"""Files of profiles; written by as many tasks, at most."""
TASKS_MAX = 8


@dataclass(frozen=True, slots=True)
class SimilaritySettings:
    """How neighbours are looked for.

    Args:
        neighbours: how many for each class.
        rounds: how often neighbours of neighbours are looked at; each finds more of the nearest.
        tasks: into how many tasks the search is cut.
        keep: writes a frame that is read more than once.
    """

    neighbours: int = 5
    rounds: int = 2
    tasks: int = TASKS_MAX
    keep: Keep | None = None

    @classmethod
    def fit(cls, classes: int, neighbours: int, keep: Keep | None = None) -> SimilaritySettings:
        """For so many classes: in fewer tasks where they are few."""
        return cls(neighbours, tasks=class_tasks(classes, TASKS_MAX), keep=keep)


def unmeasured_count(classes: DataFrame) -> int:
    """How many classes match no event of the sample, and so have no neighbours."""
    from pyspark.sql import functions as sql

    return int(classes.filter(sql.col("sampled") == 0).count())


def similar_of(classes: DataFrame, folder: str, settings: SimilaritySettings) -> DataFrame:
    """SIMILAR from CLASSES; profiles are written below a folder that all workers share."""
    grouped = _grouped(classes, settings.neighbours)
    if settings.keep is not None:
        grouped = settings.keep("grouped", grouped)
    outside = _outside(grouped, folder, settings)
    inside = _ring(grouped, settings.neighbours)
    return inside.unionByName(_filled_up(grouped, outside, settings.neighbours))


def _grouped(classes: DataFrame, neighbours: int) -> DataFrame:
    """Classes with their place in the group of their profile, and those that follow there."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    in_group: Any = Window.partitionBy("profile")
    ordered: Any = in_group.orderBy("digest")
    following = (sql.lead("digest", step).over(ordered) for step in range(1, neighbours + 1))
    return classes.filter(sql.col("sampled") > 0).select(
        "digest",
        "profile",
        sql.row_number().over(ordered).alias("place"),
        sql.count("*").over(in_group).alias("members"),
        sql.first("digest").over(ordered).alias("first_member"),
        sql.array(*following).alias("following"),
    )


def _first_members(grouped: DataFrame, neighbours: int) -> DataFrame:
    """Per profile the first of its classes."""
    from pyspark.sql import functions as sql

    first = grouped.filter(sql.col("place") <= neighbours)
    return first.groupBy("profile").agg(
        sql.first("first_member").alias("first_member"),
        sql.sort_array(sql.collect_list("digest")).alias("first_members"),
        sql.first("members").alias("members"),
    )


def _ring(grouped: DataFrame, neighbours: int) -> DataFrame:
    """Neighbours within a group: those that follow, after the last the first again."""
    from pyspark.sql import functions as sql

    first = _first_members(grouped, neighbours).select("profile", "first_members")
    # Only the last of a group need its first ones.
    several = grouped.filter(sql.col("members") > 1)
    is_late = sql.col("place") + neighbours > sql.col("members")
    late = several.filter(is_late).join(first, "profile")
    early = several.filter(~is_late).withColumn("first_members", sql.array().cast("array<binary>"))
    around = sql.filter(sql.col("following"), lambda digest: digest.isNotNull())
    neighbour = sql.slice(
        sql.concat(around, "first_members"),
        1,
        sql.least(sql.lit(neighbours), sql.col("members") - 1),
    )
    linked = early.unionByName(late).select(
        "digest", sql.posexplode(neighbour).alias("rank", "neighbour")
    )
    return linked.select("digest", "neighbour", "rank", sql.lit(1.0).alias("similarity"))


def _outside(grouped: DataFrame, folder: str, settings: SimilaritySettings) -> DataFrame:
    """The nearest classes outside of each profile that has not enough members of its own."""
    from pyspark.sql import functions as sql

    neighbours, rounds, shares = settings.neighbours, settings.rounds, settings.tasks

    def write(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        import pyarrow as pa

        part = key[0].as_py()
        rows = write_part(table, part, folder)
        return pa.table({"part": pa.array([part], pa.int32()), "rows": pa.array([rows])})

    def search(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return neighbours_kernel(batches, folder, rounds, neighbours)

    first = _first_members(grouped, neighbours)
    parts = first.withColumn("part", sql.pmod(sql.xxhash64("profile"), sql.lit(PARTS)).cast("int"))
    written = parts.groupBy("part").applyInArrow(write, "part int, rows long")
    done = written.groupBy().agg(sql.sort_array(sql.collect_list("part")).alias("parts"))
    for number in range(rounds + 1):
        tasks = _tasks(done, shares).mapInArrow(_round(folder, number), _spark(TASKS))
        done = tasks.groupBy().agg(sql.first("parts").alias("parts"))
    return _tasks(done, shares).mapInArrow(search, _spark(NEIGHBOURS))


def _tasks(done: DataFrame, shares: int) -> DataFrame:
    """The tasks of the next round, out of one row that is there when the round before has ended."""
    from pyspark.sql import functions as sql

    share = sql.explode(sql.sequence(sql.lit(0), sql.lit(shares - 1))).alias("share")
    # Where nothing matches the sample there are no profiles, and nothing is to be done.
    any_parts = done.filter(sql.coalesce(sql.size("parts"), sql.lit(0)) > 0)
    return any_parts.select(share, sql.lit(shares).alias("shares"), "parts").repartition(
        shares, "share"
    )


def _round(
    folder: str, number: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def kernel(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return round_kernel(batches, folder, number)

    return kernel


def _spark(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def _filled_up(grouped: DataFrame, outside: DataFrame, neighbours: int) -> DataFrame:
    """Neighbours from outside of the group, behind those within."""
    from pyspark.sql import functions as sql

    small = grouped.filter(sql.col("members") <= neighbours)
    rank = (sql.col("members") - 1 + sql.col("position")).cast("int")
    joined = small.join(outside, "first_member")
    found = joined.select("digest", "neighbour", rank.alias("rank"), "similarity")
    return found.filter(sql.col("rank") < neighbours)


def measured_recall(
    classes: DataFrame, similar: DataFrame, settings: SimilaritySettings, drawn: int = 200
) -> float:
    """The share of the true nearest neighbours of some drawn classes that SIMILAR has.

    The drawn classes, those with the smallest keyed hashes, are compared with all others. Both
    datasets are read: give it ones that are stored.
    """
    import numpy as np
    from pyspark.sql import functions as sql

    measurable = classes.filter(sql.col("sampled") > 0).select("digest", "profile")
    chosen = measurable.orderBy(sql.xxhash64(sql.lit(1), "digest"), "digest").limit(drawn)
    rows = chosen.collect()
    if not rows:
        return 1.0
    wanted = settings.neighbours
    asked = _words([bytes(row.profile) for row in rows])

    def nearest(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            everyone = _words(batch["profile"].to_pylist())
            # One more: each of the drawn is among all, and nearest to itself.
            best = exact_similarities(asked, everyone, wanted + 1)
            place, column = np.nonzero(best)
            arrays = [pa.array(place), pa.array(best[place, column])]
            yield pa.record_batch(arrays, names=["place", "similarity"])

    exact = measurable.mapInArrow(nearest, "place long, similarity double")
    largest = sql.slice(sql.sort_array(sql.collect_list("similarity"), asc=False), 2, wanted)
    per_class = exact.groupBy("place").agg(largest.alias("similarities")).collect()
    truth = np.zeros((len(rows), wanted))
    for row in per_class:
        truth[row.place, : len(row.similarities)] = row.similarities
    place_of = {bytes(row.digest): place for place, row in enumerate(rows)}
    found = np.zeros((len(rows), wanted))
    listed = similar.join(sql.broadcast(chosen.select("digest")), "digest").collect()
    for row in listed:
        found[place_of[bytes(row.digest)], row.rank] = row.similarity
    return recall(found, truth)


def _words(profiles: list[bytes]) -> np.ndarray:
    import numpy as np

    width = len(profiles[0]) if profiles else 8
    return np.frombuffer(b"".join(profiles), np.uint64).reshape(-1, width // 8)
