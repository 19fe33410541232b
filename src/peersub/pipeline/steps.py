"""The steps of a run: each reads datasets of earlier ones and fills a folder with its own.

What a step computes is in the module that it is named after; here is where it comes from and where
it goes. A step returns counts for the record: the only numbers that come to this process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from peersub.files.errors import BadRow
from peersub.files.events import kinds_of_text
from peersub.files.formats import Format, format_named
from peersub.pipeline.options import PipelineOptions
from peersub.pipeline.workspace import Counts, Workspace

__all__ = ["Steps"]

SLOTS_MAX: Final = 10_000
"""More tasks than any cluster here runs at once."""
EXAMPLES_SHOWN: Final = 5
"""Entries of the quarantine that are told at the end of a run."""
FILES_SHOWN_MAX: Final = 1_000
"""Files of an input that the record counts one by one."""


_COUNTED: Final = ("rows_read", "rows_kept", "rows_quarantined", "unreadable")


def _sums(per_file: Sequence[Any]) -> Counts:
    return {"files": len(per_file)} | {
        column: sum(row[column] for row in per_file) for column in _COUNTED
    }


class Steps:
    """The steps of one run.

    Args:
        options: what is asked for.
        workspace: the folder of the run.
        session: gives the Spark session.
    """

    def __init__(
        self, options: PipelineOptions, workspace: Workspace, session: Callable[[], Any]
    ) -> None:
        self.options = options
        self.workspace = workspace
        self._session = session

    @property
    def spark(self) -> Any:
        """The session."""
        return self._session()

    # --- reading and writing datasets ------------------------------------------------------------

    def read(self, *place: str) -> Any:
        """A dataset of the run."""
        return self.spark.read.parquet(self.workspace.path(*place))

    def quarantine(self) -> Any:
        """The quarantine of both inputs."""
        return self.read("quarantine")

    def _written(self, frame: Any, place: Path, files: int | None = None) -> Any:
        """Write a frame as a dataset; the result reads what was written."""
        if files is not None:
            frame = frame.coalesce(files)
        frame.write.parquet(str(place))
        return self.spark.read.schema(frame.schema).parquet(str(place))

    def _keep(self, name: str, frame: Any) -> Any:
        """Write what only this step needs, so that it is computed once."""
        return self._written(frame, self.workspace.scratch(name))

    def _format(self, name: str | None) -> Format | None:
        return None if name is None else format_named(name)

    # --- ingest ----------------------------------------------------------------------------------

    def events(self, folder: Path) -> Counts:
        """Files to `events`, and what cannot be used to `quarantine`."""
        from peersub.pipeline.ingest import ingest_events
        from peersub.pipeline.slices import EventInput

        options = self.options
        assert options.events is not None
        source = EventInput(
            options.events,
            self._format(options.events_format),
            options.records,
            kinds_of_text(options.schema or ""),
        )
        return self._ingested(ingest_events(self.spark, source, self._keep), "events", folder)

    def subscriptions(self, folder: Path) -> Counts:
        """Files to `subscriptions`, and what cannot be used to `quarantine`."""
        from peersub.pipeline.slices import SubscriptionInput
        from peersub.pipeline.subscribe import ingest_subscriptions

        options = self.options
        assert options.subscriptions is not None
        given = self._format(options.subscriptions_format)
        source = SubscriptionInput(options.subscriptions, given)
        ingested = ingest_subscriptions(self.spark, source, self._keep)
        return self._ingested(ingested, "subscriptions", folder)

    def _ingested(self, ingested: Any, name: str, folder: Path) -> Counts:
        self._written(ingested.kept, folder / name)
        # The folder says which dataset a row is about, as Spark and others write partitions.
        place = folder / "quarantine" / f"dataset={name}"
        bad = self._written(ingested.quarantine.drop("dataset"), place, files=1)
        examples = bad.orderBy("file", "place").limit(EXAMPLES_SHOWN).collect()
        per_file = ingested.counts.orderBy("file").limit(FILES_SHOWN_MAX + 1).collect()
        total = _sums(per_file)
        if len(per_file) > FILES_SHOWN_MAX:
            sums = [f"sum({column}) AS {column}" for column in _COUNTED]
            total = ingested.counts.selectExpr("count(*) AS files", *sums).first().asDict()
        return {
            name: total["rows_kept"],
            "quarantined": total["rows_quarantined"],
            "unreadable": total["unreadable"],
            "rows": total["rows_read"],
            "files": total["files"],
            "entries": bad.count() if examples else 0,
            "examples": [
                BadRow(row["file"], row["place"] or "", row["reason"], "").one_line()
                for row in examples
            ],
            "by_file": [row.asDict() for row in per_file[:FILES_SHOWN_MAX]],
        }

    # --- match -----------------------------------------------------------------------------------

    def index(self, folder: Path) -> Counts:
        """`subscriptions` to the folder `index`."""
        from peersub.pipeline.index import SubscriptionSizes, build_index, parsed

        subscriptions = self.read("subscriptions")
        sizes = SubscriptionSizes.of(subscriptions)
        shards = self.options.shards or sizes.shards()
        chunks = parsed(subscriptions, shards=shards, tasks=sizes.parsing_tasks)
        chunks = self._keep("parsed", chunks)
        index = build_index(chunks, folder / "index", shards=shards)
        return {
            "subscriptions": index.subscriptions,
            "shards": len(index.shards),
            "bytes": index.bytes,
        }

    def match(self, folder: Path) -> Counts:
        """`events` and `index` to `deliveries`."""
        from peersub.pipeline.index import open_index
        from peersub.pipeline.match import EventSizes, MatchPlan, matched

        events = self.read("events")
        index = open_index(self.workspace.path("index"))
        plan = MatchPlan.of(
            EventSizes.of(events), processors=self.processors(), shards=len(index.shards)
        )
        found = matched(events, index, plan, body_column=self.options.body_column)
        return {"deliveries": self._written(found, folder / "deliveries").count()}

    def processors(self) -> int:
        """How many tasks run at once."""
        from pyspark.sql import functions as sql

        # By default a range has as many partitions; a Connect server tells it in no other way.
        parts = self.spark.range(SLOTS_MAX).select(sql.spark_partition_id())
        return max(1, int(parts.distinct().count()))

    # --- organise --------------------------------------------------------------------------------

    def organise(self, folder: Path) -> Counts:
        """`subscriptions`, `index` and a sample of `events` to classes, coverings, similar."""
        from peersub.pipeline import covering, organise, similarity
        from peersub.pipeline.index import open_index

        options = self.options
        words = -(-options.sample // organise.EVENTS_STEP)
        settings = organise.SampleSettings(
            words * organise.EVENTS_STEP, options.seed, options.body_column
        )
        sample = self._written(
            organise.drawn_sample(self.read("events"), settings), folder / "sample"
        )
        shards = open_index(self.workspace.path("index")).folders
        matches = self._keep("sampled", organise.sampled_matches(sample, shards, settings))
        found = organise.classes_of(self.read("subscriptions"), matches)
        classes = self._written(found, folder / "classes")
        class_count = classes.count()
        search = covering.CoveringSettings.fit(class_count, self._keep)
        covered = covering.found_coverings(
            classes,
            str(folder / "classes"),
            shards,
            str(self.workspace.scratch("covering")),
            search,
        )
        coverings = self._written(covered, folder / "coverings")
        near = similarity.SimilaritySettings.fit(class_count, options.neighbours, self._keep)
        found = similarity.similar_of(classes, str(self.workspace.scratch("profiles")), near)
        similar = self._written(found, folder / "similar")
        counts = coverings.selectExpr(
            "count_if(rank = 0) AS covered",
            f"count_if(rank = 0 AND coverers >= {search.bounds.proven_max}) AS cut_off",
            "count(*) AS coverings",
        ).first()
        return {
            "classes": class_count,
            "covered": counts.covered,
            "cut_off": counts.cut_off,
            "is_complete": search.is_complete,
            "coverings": counts.coverings,
            "neighbours": similar.count(),
            "unmeasured": similarity.unmeasured_count(classes),
            "recall": round(similarity.measured_recall(classes, similar, near), 4),
        }
