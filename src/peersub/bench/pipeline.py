"""`peersub bench pipeline`: a million subscriptions and twenty thousand events through Spark.

One run measures, on the same generated workload:

- end to end: events to blocks, texts to arrays, arrays to the index, deliveries to Parquet;
- matching with the index built, for a quarter, a half and all of the events;
- the same with the index in shards;
- the joins that a skilled Spark user would write (`spark_joins`), on fewer subscriptions, so that
  they end: at least 10^9 pairs by default;
- the peak of the memory of the driver, Java and the Python workers together.

Results are compared by count and by a checksum that does not depend on order. Every measured query
ends in that count and checksum, ours and theirs alike.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from peersub.bench.process_memory import MemoryPeak, MemorySampler
from peersub.bench.spark_joins import JOINS, Join, register_views, write_inputs
from peersub.matching.parallel import return_free_memory
from peersub.pipeline.index import Index, SubscriptionSizes, build_index, parsed
from peersub.pipeline.kernels.blocks import cut, packed
from peersub.pipeline.kernels.warming import warm_up
from peersub.pipeline.match import EventSizes, MatchPlan, matched
from peersub.pipeline.schemas import EVENTS, SUBSCRIPTIONS
from peersub.pipeline.session import SessionSettings, spark_session
from peersub.workloads import Workload, WorkloadSettings, generate

__all__ = [
    "Checked",
    "JoinResult",
    "MatchRun",
    "PipelineResult",
    "PipelineSettings",
    "run_pipeline",
]

RATIO_MIN: Final = 30.0
MEMORY_BYTES_MAX: Final = 12_000_000_000
REPEATS_S_MAX: Final = 60.0
"""A query that took longer is not repeated."""
_PARTITIONS_PER_PROCESSOR: Final = 3
_TEXT_ROWS: Final = 100_000

Progress = Callable[[str], None]
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    """What to measure.

    Args:
        processors: `local[N]`.
        join_subscriptions: how many of the subscriptions the joins get.
        shards: of the sharded form; 0 leaves it out.
        repeats: runs of each query; the quickest counts, and the first is told apart.
        joins: the names of the joins to compare with; at least one must look at all pairs.
        workload: subscriptions, events, the share that matches, and the other knobs.
    """

    processors: int = 2
    join_subscriptions: int = 50_000
    shards: int = 4
    repeats: int = 3
    joins: tuple[str, ...] = tuple(join.name for join in JOINS)
    workload: WorkloadSettings = field(
        default_factory=lambda: WorkloadSettings(
            subscriptions=1_000_000, events=20_000, share_matched=0.0001
        )
    )

    def __post_init__(self) -> None:
        if not 0 < self.join_subscriptions <= self.workload.subscriptions:
            raise ValueError("join_subscriptions must be at least 1, and no more than there are")
        if self.repeats < 1 or self.processors < 1 or self.shards < 0:
            raise ValueError("repeats and processors must be at least 1, shards at least 0")
        known = {join.name: join for join in JOINS}
        unknown = next((name for name in self.joins if name not in known), None)
        if unknown is not None:
            raise ValueError(f"there is no join {unknown!r}; there are: {', '.join(known)}")
        if not any(known[name].is_cross_join for name in self.joins):
            raise ValueError("at least one of the joins must be a cross join")


@dataclass(frozen=True, slots=True)
class Checked:
    """A result in two numbers: how many deliveries, and a sum over them that ignores order."""

    count: int
    checksum: int


@dataclass(frozen=True, slots=True)
class MatchRun:
    """Matching with the index built; `seconds` is the quickest run, `first_s` the first."""

    form: str
    events: int
    seconds: float
    first_s: float
    pairs_per_s: float
    found: Checked


@dataclass(frozen=True, slots=True)
class JoinResult:
    """A join of Spark; `ratio` is how many times as many pairs per second ours looks at."""

    name: str
    title: str
    is_cross_join: bool
    pairs: int
    seconds: float
    pairs_per_s: float
    ratio: float
    is_equal: bool


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """A whole run."""

    settings: PipelineSettings
    phases: dict[str, float]
    index: Index
    runs: list[MatchRun]
    joins: list[JoinResult]
    memory: MemoryPeak
    mismatches: list[str]

    @property
    def whole(self) -> MatchRun:
        """All events against the whole index."""
        return next(
            run
            for run in self.runs
            if run.form == "whole" and run.events == self.settings.workload.events
        )

    @property
    def ratio(self) -> float:
        """Pairs per second, to those of the quickest cross join."""
        return min(join.ratio for join in self.joins if join.is_cross_join)

    @property
    def end_to_end_s(self) -> float:
        """From events and texts to deliveries on disk."""
        return sum(self.phases.values())


def run_pipeline(
    settings: PipelineSettings,
    *,
    session: Any = None,
    progress: Progress = lambda message: None,
    clock: Clock = time.perf_counter,
) -> PipelineResult:
    """Run the benchmark, in a temporary folder.

    Args:
        settings: what to measure.
        session: a Spark session to use; one of its own is started, and stopped, unless given.
        progress: told what is being done.
        clock: seconds, monotonic.
    """
    with tempfile.TemporaryDirectory(prefix="peersub-bench-") as name, MemorySampler() as sampler:
        bench = _Bench(settings, Path(name), progress, clock)
        bench.prepare()
        with _session(settings, session, Path(name), progress) as bench.session:
            bench.run()
        memory = sampler.peak
    return PipelineResult(
        settings, bench.phases, bench.index, bench.runs, bench.joins, memory, bench.mismatches
    )


@contextmanager
def _session(
    settings: PipelineSettings, given: Any, folder: Path, progress: Progress
) -> Iterator[Any]:
    if given is not None:
        yield given
        return
    progress("starting Spark")
    more = {"spark.local.dir": str(folder), "spark.sql.shuffle.partitions": "8"}
    session = spark_session(SessionSettings(f"local[{settings.processors}]", more, "peersub bench"))
    # Java's code and the Python workers start with the first query.
    session.range(1).mapInArrow(_same, "id long").count()
    try:
        yield session
    finally:
        session.stop()


class _Bench:
    """One run: its folder, its session, and what has been measured so far."""

    def __init__(
        self, settings: PipelineSettings, folder: Path, progress: Progress, clock: Clock
    ) -> None:
        self.settings, self.folder, self.clock = settings, folder, clock
        self.progress = progress
        self.phases: dict[str, float] = {}
        self.runs: list[MatchRun] = []
        self.joins: list[JoinResult] = []
        self.mismatches: list[str] = []
        self.index = Index("", ())
        self.session: Any = None

    # --- inputs ---------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Compile the matcher and write the inputs: nothing of this is measured."""
        self.progress("compiling the matcher, if it is not yet")
        warm_up()
        workload = self.settings.workload
        self.progress(f"generating {workload.subscriptions:,} subscriptions")
        generated = generate(workload)
        self._write_subscriptions(generated)
        pq.write_table(generated.events, self.folder / "typed-events.parquet")
        write_inputs(generated, self.settings.join_subscriptions, self.folder)
        del generated
        return_free_memory()

    def _write_subscriptions(self, workload: Workload) -> None:
        texts = workload.texts()
        with pq.ParquetWriter(self.folder / "texts.parquet", _TEXTS) as writer:
            for start in range(0, texts.num_rows, _TEXT_ROWS):
                part = texts.slice(start, _TEXT_ROWS)
                number = pa.array(range(start, start + part.num_rows), pa.int64())
                columns = [number, part["id"].combine_chunks(), part["filter"].combine_chunks()]
                writer.write_table(pa.table(columns, schema=_TEXTS))

    def _subscriptions(self) -> Any:
        # Ingest gives the digest of the normal form; that of the text serves to place equal texts.
        return self.session.read.parquet(str(self.folder / "texts.parquet")).selectExpr(
            *("number", "subscription_id", "'sql' AS language", "text"),
            "unhex(md5(text)) AS digest",
        )

    # --- phases ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Measure everything."""
        with self._phase("events to blocks"):
            all_events = self._write_blocks()
        with self._phase("texts to arrays"):
            sizes = SubscriptionSizes.of(self._subscriptions())
            chunks = parsed(self._subscriptions(), tasks=sizes.parsing_tasks)
            chunks.write.parquet(str(self.folder / "parsed"))
        with self._phase("arrays to the index"):
            chunks = self.session.read.parquet(str(self.folder / "parsed"))
            self.index = build_index(chunks, self.folder / "index")
        with self._phase("deliveries to Parquet"):
            deliveries = self._matched(self.index, self._events(all_events))
            deliveries.write.parquet(str(self.folder / "deliveries"))
        total = self.settings.workload.events
        for events in sorted({max(1, total // 4), max(1, total // 2), total}):
            self._measure("whole", self.index, events)
        if self.settings.shards:
            self._measure_sharded()
        self._measure_joins()

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        self.progress(name)
        started = self.clock()
        yield
        self.phases[name] = self.clock() - started
        self.progress(f"  {self.phases[name]:,.2f} s")

    def _write_blocks(self, count: int | None = None) -> Path:
        """Typed events, all or the first of them, to a file of blocks."""
        path = self.folder / f"events-{'all' if count is None else count}.parquet"
        events = pq.read_table(self.folder / "typed-events.parquet").slice(0, count)
        start = 0
        with pq.ParquetWriter(path, EVENTS.arrow) as writer:
            for number, part in enumerate(cut(events)):
                names = [f"e{row}" for row in range(start, start + part.num_rows)]
                block = {"block": number, "rows": part.num_rows, "names": names}
                row = block | {"table": packed(part)}
                writer.write_table(pa.Table.from_pylist([row], EVENTS.arrow))
                start += part.num_rows
        return path

    def _events(self, path: Path) -> Any:
        return self.session.read.parquet(str(path))

    def _matched(self, index: Index, events: Any) -> Any:
        plan = MatchPlan.of(
            EventSizes.of(events),
            processors=self.settings.processors,
            shards=len(index.shards),
        )
        return matched(events, index, plan)

    def _measure(self, form: str, index: Index, events: int) -> MatchRun:
        self.progress(f"matching {events:,} events, {form}")
        blocks = self._events(self._write_blocks(events))
        times, found = self._timed(lambda: self._matched(index, blocks))
        pairs = events * index.subscriptions
        run = MatchRun(form, events, min(times), times[0], pairs / min(times), found)
        self.runs.append(run)
        return run

    def _measure_sharded(self) -> None:
        shards = self.settings.shards
        self.progress(f"building the index in {shards} shards")
        tasks = SubscriptionSizes.of(self._subscriptions()).parsing_tasks
        chunks = parsed(self._subscriptions(), shards=shards, tasks=tasks)
        index = build_index(chunks, self.folder / "sharded", shards=shards)
        whole = self.runs[-1]
        run = self._measure(f"{shards} shards", index, whole.events)
        if run.found != whole.found:
            self.mismatches.append(f"{run.form} gave {run.found}, the whole index {whole.found}")

    def _measure_joins(self) -> None:
        ours = self.runs[-1] if not self.settings.shards else self.runs[-2]
        expected = self._expected()
        queries = register_views(
            self.session, self.folder, _PARTITIONS_PER_PROCESSOR * self.settings.processors
        )
        for join in (join for join in JOINS if join.name in self.settings.joins):
            self.progress(join.title)
            self._measure_join(join, queries[join.name], ours, expected)

    def _expected(self) -> Checked:
        """Our deliveries to the subscriptions that the joins get, from the file."""
        deliveries = self.session.read.parquet(str(self.folder / "deliveries"))
        number = "CAST(substr(subscription_id, 2) AS INT)"
        return _checked(deliveries.where(f"{number} < {self.settings.join_subscriptions}"))

    def _measure_join(self, join: Join, query: str, ours: MatchRun, expected: Checked) -> None:
        times, found = self._timed(lambda: self.session.sql(query))
        pairs = self.settings.workload.events * self.settings.join_subscriptions
        rate = pairs / min(times)
        self.joins.append(
            JoinResult(
                *(join.name, join.title, join.is_cross_join, pairs, min(times), rate),
                ratio=ours.pairs_per_s / rate,
                is_equal=found == expected,
            )
        )
        if found != expected:
            self.mismatches.append(f"{join.title} gave {found}, the index {expected}")

    def _timed(self, query: Callable[[], Any]) -> tuple[list[float], Checked]:
        times: list[float] = []
        found = Checked(0, 0)
        while len(times) < self.settings.repeats and sum(times) < REPEATS_S_MAX:
            started = self.clock()
            found = _checked(query())
            times.append(self.clock() - started)
        # Told at once, so that a run that is ended early was not in vain.
        self.progress(f"  {min(times):,.2f} s, {found.count:,} deliveries")
        return times, found


_TEXTS: Final = pa.schema(
    [SUBSCRIPTIONS.arrow.field(name) for name in ("number", "subscription_id", "text")]
)


def _checked(deliveries: Any) -> Checked:
    """Count and checksum; halves of the hash, so that no sum overflows."""
    row = (
        deliveries.selectExpr("xxhash64(event_id, subscription_id) AS hash")
        .selectExpr("count(*) AS count", "coalesce(sum(hash & 4294967295), 0) AS checksum")
        .first()
    )
    return Checked(row["count"], row["checksum"])


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches
