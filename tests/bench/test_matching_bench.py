"""The benchmark around the engines: budgets, checks, updates, reports."""

import io
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from peersub.bench import matching
from peersub.bench.baselines import (
    OverBatches,
    OverDicts,
    baseline_engines,
    event_dicts,
    subscription_rows,
)
from peersub.bench.matching import BenchResult, BenchSettings, Cell, EngineResult, run_matching
from peersub.bench.pairs import Pairs, difference, sorted_keys
from peersub.bench.report import as_json, exit_code, show
from peersub.bench.resident import measure_build
from peersub.bench.timing import run_within_budget
from peersub.bench.updates import measure_updates
from peersub.workloads import OperatorMix, Workload, WorkloadSettings, generate

TINY = WorkloadSettings(
    subscriptions=300,
    events=60,
    share_matched=0.02,
    numeric_attributes=6,
    categorical_cardinalities=(3, 8, 20),
    attributes_per_event_min=4,
    attributes_per_event_max=8,
)
# Every subscription has a match, so that one too many or too few shows.
EVERYONE_MATCHES = replace(
    TINY,
    share_matched=1.0,
    categorical_cardinalities=(2, 3),
    attributes_per_event_min=7,
    predicates_per_subscription_min=1,
    predicates_per_subscription_max=1,
    operators=OperatorMix(numeric_equal=0),
)
BASELINES = ("numpy-columns", "numpy", "duckdb-counting", "duckdb")


class FakeClock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class TextMatcher:
    """A matcher for these tests: remembers its subscriptions, matches by the columnar rows."""

    def __init__(self, workload: Workload, count: int) -> None:
        self.workload = workload
        self.ids = {f"s{row}" for row in range(count)}

    def add(self, name: str, wanted: object) -> None:
        assert name not in self.ids
        self.ids.add(name)

    def remove(self, name: str) -> None:
        self.ids.remove(name)

    def match_batch(self, events: pa.Table, threads: int) -> pa.Table:
        pairs = brute_force(self.workload)
        kept = [f"s{row}" in self.ids for row in pairs.subscription_rows]
        names = pa.array([f"s{row}" for row in pairs.subscription_rows[kept]], pa.string())
        return pa.table(
            {"event_row": pairs.event_rows[kept], "subscription_id": names.dictionary_encode()}
        )


def brute_force(workload: Workload) -> Pairs:
    """Filter texts asked one by one, in DuckDB's place a plain reading of the columns."""
    table, found = workload.subscriptions, []
    for event, row in enumerate(workload.event_codes):
        for subscription in range(table.count):
            span = range(table.offsets[subscription], table.offsets[subscription + 1])
            if all(_holds(table, predicate, row[table.attribute[predicate]]) for predicate in span):
                found.append((event, subscription))
    events, subscriptions = zip(*found, strict=True)
    return Pairs(np.array(events), np.array(subscriptions))


def _holds(table: Any, predicate: int, value: int) -> bool:
    number = table.value_list[predicate]
    if number < 0:
        return bool(table.low[predicate] <= value <= table.high[predicate])
    values = table.list_values[table.list_offsets[number] : table.list_offsets[number + 1]]
    return bool(value in values)


@pytest.mark.parametrize(
    ("cost_s", "budget_s", "events_run", "runs"),
    [
        (0.0, 1.0, 1_000, [10, 80, 640, 1_000, 1_000, 1_000]),
        (0.001, 10.0, 1_000, [10, 80, 640, 1_000, 1_000, 1_000]),
        (1 / 128, 8.0, 640, [10, 80, 640]),
        (1 / 128, 4.0, 422, [10, 80, 422]),
        (1.0, 5.0, 10, [10]),
    ],
)
def test_the_budget_decides_how_many_events_run(
    cost_s: float, budget_s: float, events_run: int, runs: list[int]
) -> None:
    clock, seen = FakeClock(), []

    def prepare(count: int) -> Callable[[], int]:
        clock.now += 100.0

        def run() -> int:
            seen.append(count)
            clock.now += cost_s * count
            return count

        return run

    timed = run_within_budget(
        prepare, events=1_000, first_events=10, budget_s=budget_s, clock=clock
    )
    assert seen == runs
    assert timed.events == timed.result == events_run
    assert timed.us_per_event == pytest.approx(cost_s * 1e6)


def test_the_quickest_of_the_largest_runs_counts() -> None:
    clock, costs = FakeClock(), [5.0, 3.0, 4.0]

    def prepare(count: int) -> Callable[[], float]:
        def run() -> float:
            cost = costs.pop(0)
            clock.now += cost
            return cost

        return run

    timed = run_within_budget(prepare, events=8, first_events=8, budget_s=100.0, clock=clock)
    assert (timed.seconds, timed.result, costs) == (3.0, 3.0, [])


def test_the_baselines_agree_in_a_run_and_all_is_reported() -> None:
    settings = BenchSettings(
        sizes=(200, 300),
        shares=(0.02,),
        skews=("uniform", "zipf"),
        events=60,
        engines=BASELINES,
        threads=1,
        budget_s=2.0,
        memory=False,
        updates=0,
        workload=TINY,
    )
    messages: list[str] = []
    result = run_matching(settings, progress=messages.append)
    assert [(cell.subscriptions, cell.skew) for cell in result.cells] == [
        (200, "uniform"),
        (200, "zipf"),
        (300, "uniform"),
        (300, "zipf"),
    ]
    assert all([engine.name for engine in cell.engines] == list(BASELINES) for cell in result.cells)
    assert all(engine.us_per_event > 0 for cell in result.cells for engine in cell.engines)
    assert exit_code(result) == 0
    assert any("zipf" in message for message in messages)
    data = json.loads(json.dumps(as_json(result)))
    assert data["ok"] is True
    assert "GROUP BY event, subscription" in data["sources"]["duckdb-counting"]
    printed = io.StringIO()
    show(result, Console(file=printed, width=110))
    for text in ("DuckDB access join", "200 subscriptions", "JOIN listed", "class PrefixBitsets"):
        assert text in printed.getvalue()


def test_a_wrong_engine_is_found_named_and_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from peersub.bench import duckdb_baselines

    honest = duckdb_baselines.AccessJoin.match

    def drops_one(self: Any, events: pa.Table) -> Pairs:
        pairs = honest(self, events)
        return Pairs(pairs.event_rows[1:], pairs.subscription_rows[1:])

    monkeypatch.setattr(duckdb_baselines.AccessJoin, "match", drops_one)
    settings = BenchSettings(
        sizes=(300,),
        shares=(0.02,),
        skews=("uniform",),
        engines=("numpy", "duckdb"),
        events=60,
        threads=1,
        budget_s=1.0,
        memory=False,
        updates=0,
        workload=TINY,
    )
    result = run_matching(settings)
    assert exit_code(result) == 1
    assert len(result.mismatches) == 1
    assert "DuckDB access join at 300" in result.mismatches[0]
    assert "1 missing, first: event row" in result.mismatches[0]
    printed = io.StringIO()
    show(result, Console(file=printed, width=110))
    assert "MISMATCH" in printed.getvalue()


def test_an_engine_too_slow_to_build_is_not_run() -> None:
    workload = generate(TINY)
    [naive] = [one for one in baseline_engines(1, FakeClock()) if one.name == "naive"]
    slow = replace(naive, estimate_s=lambda workload: (500.0, "a guess"))
    settings = BenchSettings(engines=("naive",), prepare_budget_s=120.0)
    result, source = matching._run_engine(slow, workload, np.empty(0), settings, FakeClock())
    assert result.not_run == "not run: estimated 500 s to build, from a guess"
    assert source == ""


def test_unknown_engines_are_refused() -> None:
    with pytest.raises(ValueError, match="no engine 'polars'"):
        BenchSettings(engines=("polars",))


def test_ids_become_rows_plain_chunked_and_encoded() -> None:
    plain = pa.array(["s3", "s0", "s3"])
    assert subscription_rows(plain).tolist() == [3, 0, 3]
    assert subscription_rows(plain.dictionary_encode()).tolist() == [3, 0, 3]
    chunked = pa.chunked_array([plain, pa.array(["s12"])])
    assert subscription_rows(chunked).tolist() == [3, 0, 3, 12]


def test_dicts_leave_out_what_an_event_lacks() -> None:
    table = pa.table({"a": pa.array([1, None]), "b": pa.array(["x", "y"])})
    assert event_dicts(table) == [{"a": 1, "b": "x"}, {"b": "y"}]


def test_the_doors_of_a_matcher_give_the_same_pairs() -> None:
    workload = generate(TINY)
    expected = sorted_keys(brute_force(workload))
    batches = OverBatches(TextMatcher(workload, TINY.subscriptions), 1)
    assert difference(expected, sorted_keys(batches.pairs(batches.run(workload.events)))) is None
    pairs = brute_force(workload)
    listed = [
        [f"s{row}" for row in pairs.subscription_rows[pairs.event_rows == event]]
        for event in range(TINY.events)
    ]
    assert difference(expected, sorted_keys(OverDicts(None).pairs(listed))) is None


@pytest.mark.parametrize("fault", [None, "forgets a delete", "forgets an insert"])
def test_updates_are_timed_one_by_one_and_checked(fault: str | None) -> None:
    workload = generate(EVERYONE_MATCHES)
    pairs = brute_force(workload)
    assert len(set(pairs.subscription_rows.tolist())) == EVERYONE_MATCHES.subscriptions
    matcher = TextMatcher(workload, 250)
    if fault == "forgets a delete":
        matcher.remove = lambda name: None  # type: ignore[method-assign]
    if fault == "forgets an insert":
        matcher.add = lambda name, wanted: None  # type: ignore[method-assign]
    measured = measure_updates(workload, 250, matcher, clock=time.perf_counter)
    assert measured.insert.count == measured.delete.count == measured.parse.count == 50
    assert 0 < measured.insert.p50_us <= measured.insert.p99_us <= measured.insert.max_us
    assert (measured.mismatch is None) == (fault is None)


def test_the_report_tells_ratio_memory_and_what_was_not_run() -> None:
    engines = [
        EngineResult("arrow", "matcher, Arrow", 4_096, 2.0, 5e6, 1.0, 1.0),
        EngineResult("duckdb", "DuckDB access join", 512, 50.0, 2e5, 0.5, 25.0),
        EngineResult("naive", "naive twin", not_run="not run: estimated 900 s to build"),
    ]
    cell = Cell(10_000, 0.001, 0.001, "uniform", 4_096, 10.0, engines)
    build = matching.BuildMeasure(10_000, 1.5, 2_500_000)
    result = BenchResult(BenchSettings(), [cell], [build], None, {})
    printed = io.StringIO()
    show(result, Console(file=printed, width=110))
    for text in ("25.0x", "250", "naive twin: not run: estimated 900 s to build", "4,096"):
        assert text in printed.getvalue()
    assert as_json(result)["builds"][0]["bytes_per_subscription"] == 250


def test_the_matcher_is_measured_next_to_the_baselines() -> None:
    settings = BenchSettings(
        sizes=(300,),
        shares=(0.02,),
        skews=("zipf",),
        events=60,
        engines=(*matching.MATCHER_ENGINES, "naive", "numpy"),
        threads=2,
        budget_s=5.0,
        memory=True,
        updates=20,
        workload=TINY,
    )
    result = run_matching(settings)
    assert result.mismatches == []
    [cell] = result.cells
    assert [engine.name for engine in cell.engines] == list(settings.engines)
    assert all(engine.ratio is not None for engine in cell.engines)
    assert [build.subscriptions for build in result.builds] == [300]
    assert result.updates is not None
    assert result.updates.insert.count == result.updates.delete.count == 20


def test_a_build_that_fails_says_why(tmp_path: Path) -> None:
    path = tmp_path / "broken.parquet"
    path.write_bytes(b"no parquet")
    with pytest.raises(RuntimeError, match=r"building from broken\.parquet failed"):
        measure_build(path)
