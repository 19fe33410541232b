"""`peersub bench matching`: all engines on the same workloads, in one run, results compared.

For every size, share and skew a workload is generated and each engine is prepared and run
within a time budget; a slow engine gets fewer events and the report says how many. Every
engine's pairs are compared with those of the NumPy bitsets, which share no code with the
matcher. Memory and build time from Parquet are measured once per size, in a fresh process;
single inserts and deletes once, into the largest size.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from peersub.bench.baselines import Engine, baseline_engines, matcher_engines
from peersub.bench.numpy_baselines import PrefixBitsets
from peersub.bench.pairs import difference, first_events, sorted_keys
from peersub.bench.resident import BuildMeasure, measure_build
from peersub.bench.timing import run_within_budget
from peersub.bench.updates import UpdateMeasure, measure_updates
from peersub.pipeline.kernels.warming import warm_up
from peersub.workloads import (
    Skew,
    Workload,
    WorkloadSettings,
    expected_share,
    generate,
    subscription_texts,
)

SIZES = (10_000, 100_000, 1_000_000)
SHARES = (0.0001, 0.001, 0.01)
SKEWS: tuple[Skew, ...] = ("uniform", "zipf")
REFERENCE = "arrow"
MATCHER_ENGINES = ("dicts", "arrow-1", "arrow")
BASELINE_ENGINES = ("naive", "numpy-columns", "numpy", "duckdb-counting", "duckdb")

_PAIRS_MAX = 20_000_000
_UPDATES = 2_000
_UPDATE_EVENTS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSettings:
    """What to measure.

    Args:
        sizes: numbers of subscriptions.
        shares: mean shares of the subscriptions that an event matches.
        skews: distributions.
        events: events of a workload; fewer where so many would match that memory runs short.
        engines: names out of `MATCHER_ENGINES` and `BASELINE_ENGINES`.
        threads: threads of the engines that use several.
        budget_s: matching time that each engine gets per workload.
        prepare_budget_s: an engine whose preparation is estimated to take longer is not run.
        memory: measure build time and memory in a fresh process, once per size.
        updates: single inserts, and as many deletes, into the largest size; 0 for none.
        workload: the other knobs of the generator, seed included.
    """

    sizes: tuple[int, ...] = SIZES
    shares: tuple[float, ...] = SHARES
    skews: tuple[Skew, ...] = SKEWS
    events: int = 4_096
    engines: tuple[str, ...] = (*MATCHER_ENGINES, *BASELINE_ENGINES)
    threads: int = field(default_factory=lambda: os.cpu_count() or 1)
    budget_s: float = 20.0
    prepare_budget_s: float = 120.0
    memory: bool = True
    updates: int = _UPDATES
    workload: WorkloadSettings = field(default_factory=WorkloadSettings)

    def __post_init__(self) -> None:
        known = (*MATCHER_ENGINES, *BASELINE_ENGINES)
        unknown = [name for name in self.engines if name not in known]
        if unknown:
            raise ValueError(f"no engine {unknown[0]!r}; there are {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class EngineResult:
    """One engine on one workload; `not_run` says why there are no figures."""

    name: str
    title: str
    events: int = 0
    us_per_event: float = 0.0
    matches_per_s: float = 0.0
    build_s: float = 0.0
    ratio: float | None = None
    mismatch: str | None = None
    not_run: str | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """All engines on one workload."""

    subscriptions: int
    share_wanted: float
    share_expected: float
    skew: Skew
    events: int
    matches_per_event: float
    engines: list[EngineResult]


@dataclass(frozen=True, slots=True)
class BenchResult:
    """A whole run."""

    settings: BenchSettings
    cells: list[Cell]
    builds: list[BuildMeasure]
    updates: UpdateMeasure | None
    sources: dict[str, str]

    @property
    def mismatches(self) -> list[str]:
        """Every place where an engine disagreed."""
        found = [
            f"{engine.title} at {cell.subscriptions:,} subscriptions, share "
            f"{cell.share_wanted:g}, {cell.skew}: {engine.mismatch}"
            for cell in self.cells
            for engine in cell.engines
            if engine.mismatch is not None
        ]
        if self.updates is not None and self.updates.mismatch is not None:
            found.append(f"after inserts and deletes: {self.updates.mismatch}")
        return found


def run_matching(
    settings: BenchSettings,
    *,
    progress: Callable[[str], None] = lambda message: None,
    clock: Callable[[], float] = time.perf_counter,
) -> BenchResult:
    """Run the benchmark.

    Args:
        settings: what to measure.
        progress: told what is being done.
        clock: seconds, monotonic.
    """
    uses_matcher = any(name in MATCHER_ENGINES for name in settings.engines)
    if uses_matcher:
        progress("loading and compiling the matcher")
        warm_up()
    builds = _measure_builds(settings, progress) if settings.memory and uses_matcher else []
    cells: list[Cell] = []
    sources: dict[str, str] = {}
    for workload in _workloads(settings, progress):
        cell, cell_sources = _run_cell(settings, workload, progress, clock)
        cells.append(cell)
        sources |= cell_sources
    updates = None
    if settings.updates and uses_matcher and settings.sizes:
        updates = _run_updates(settings, progress, clock)
    return BenchResult(settings, cells, builds, updates, sources)


def _workloads(settings: BenchSettings, progress: Callable[[str], None]) -> Iterator[Workload]:
    for size in settings.sizes:
        for skew in settings.skews:
            for share in settings.shares:
                progress(f"generating {size:,} subscriptions, share {share:g}, {skew}")
                events = min(settings.events, max(1, int(_PAIRS_MAX / max(size * share, 1))))
                yield generate(
                    replace(
                        settings.workload,
                        subscriptions=size,
                        events=events,
                        share_matched=share,
                        skew=skew,
                    )
                )


def _run_cell(
    settings: BenchSettings,
    workload: Workload,
    progress: Callable[[str], None],
    clock: Callable[[], float],
) -> tuple[Cell, dict[str, str]]:
    expected = sorted_keys(PrefixBitsets(workload).match(workload.events))
    results: list[EngineResult] = []
    sources: dict[str, str] = {}
    for engine in _engines(settings, workload, clock):
        progress(f"{workload.subscriptions.count:,} subscriptions: {engine.title}")
        result, source = _run_engine(engine, workload, expected, settings, clock)
        results.append(result)
        if source:
            sources[engine.name] = source
    reference = next((one for one in results if one.name == REFERENCE and not one.not_run), None)
    if reference is not None:
        results = [
            one if one.not_run else replace(one, ratio=one.us_per_event / reference.us_per_event)
            for one in results
        ]
    present = workload.event_codes >= 0
    cell = Cell(
        subscriptions=workload.subscriptions.count,
        share_wanted=workload.settings.share_matched,
        share_expected=expected_share(workload.subscriptions, present[:256]),
        skew=workload.settings.skew,
        events=workload.events.num_rows,
        matches_per_event=len(expected) / max(workload.events.num_rows, 1),
        engines=results,
    )
    return cell, sources


def _engines(
    settings: BenchSettings, workload: Workload, clock: Callable[[], float]
) -> list[Engine]:
    """The engines to run, in the order of the report; the matcher is built once for its doors."""
    engines = baseline_engines(settings.threads, clock)
    if any(name in MATCHER_ENGINES for name in settings.engines):
        from peersub.matching.matcher import Matcher

        texts = workload.texts()
        start = clock()
        matcher = Matcher.from_texts(texts["id"], texts["filter"])
        engines = [*matcher_engines(settings.threads, matcher, clock() - start), *engines]
    return [engine for engine in engines if engine.name in settings.engines]


def _run_engine(
    engine: Engine,
    workload: Workload,
    expected: npt.NDArray[np.int64],
    settings: BenchSettings,
    clock: Callable[[], float],
) -> tuple[EngineResult, str]:
    if engine.estimate_s is not None:
        estimate, basis = engine.estimate_s(workload)
        if estimate > settings.prepare_budget_s:
            reason = f"not run: estimated {estimate:,.0f} s to build, from {basis}"
            return EngineResult(engine.name, engine.title, not_run=reason), ""
    start = clock()
    prepared = engine.prepare(workload)
    build_s = clock() - start if engine.build_s is None else engine.build_s

    def prepare(count: int) -> Callable[[], Any]:
        loaded = prepared.load(workload.events.slice(0, count))
        return lambda: prepared.run(loaded)

    timed = run_within_budget(
        prepare,
        events=workload.events.num_rows,
        first_events=engine.first_events,
        budget_s=settings.budget_s,
        clock=clock,
    )
    keys = sorted_keys(prepared.pairs(timed.result))
    result = EngineResult(
        name=engine.name,
        title=engine.title,
        events=timed.events,
        us_per_event=timed.us_per_event,
        matches_per_s=len(keys) / timed.seconds if timed.seconds else 0.0,
        build_s=build_s,
        mismatch=difference(first_events(expected, timed.events), keys),
    )
    return result, engine.source(prepared)


def _measure_builds(settings: BenchSettings, progress: Callable[[str], None]) -> list[BuildMeasure]:
    """Build time and memory of each size, at the middle share and the first skew."""
    measures = []
    share = sorted(settings.shares)[len(settings.shares) // 2]
    for size in settings.sizes:
        progress(f"building {size:,} subscriptions from Parquet in a fresh process")
        workload = generate(
            replace(
                settings.workload,
                subscriptions=size,
                events=0,
                share_matched=share,
                skew=settings.skews[0],
            )
        )
        with tempfile.TemporaryDirectory(prefix="peersub-bench-") as folder:
            path = Path(folder) / "subscriptions.parquet"
            pq.write_table(subscription_texts(workload.attributes, workload.subscriptions), path)
            measures.append(measure_build(path))
    return measures


def _run_updates(
    settings: BenchSettings, progress: Callable[[str], None], clock: Callable[[], float]
) -> UpdateMeasure:
    from peersub.matching.matcher import Matcher

    size = max(settings.sizes)
    progress(f"{settings.updates:,} single inserts and deletes into {size:,} subscriptions")
    workload = generate(
        replace(
            settings.workload,
            subscriptions=size + settings.updates,
            events=_UPDATE_EVENTS,
            share_matched=sorted(settings.shares)[len(settings.shares) // 2],
            skew=settings.skews[0],
        )
    )
    texts = workload.texts().slice(0, size)
    matcher = Matcher.from_texts(texts["id"], texts["filter"])
    return measure_updates(workload, size, matcher, clock=clock, threads=settings.threads)
