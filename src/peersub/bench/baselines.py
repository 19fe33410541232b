"""The engines of the matching benchmark: this project's matcher and what it is compared with.

An engine is prepared once per workload, which is its build time. It is then given events in the
form that is natural to it, which is not timed, and run, which is. Its raw result is turned into
pairs of rows afterwards, not timed either: ids would otherwise be paid for by some and not by
others. What the matcher's own run includes is making its result table, ids and all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from peersub.bench.pairs import NO_PAIRS, Pairs
from peersub.workloads import Workload, filter_texts

_ESTIMATE_FILTERS = 300


class Prepared(Protocol):
    """An engine that holds the subscriptions of a workload."""

    def load(self, events: pa.Table) -> Any:
        """The events in the form that the engine takes."""

    def run(self, events: Any) -> Any:
        """Match them all: the timed part."""

    def pairs(self, result: Any) -> Pairs:
        """The result as pairs of rows."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A way to match, by name.

    `estimate_s`, where it is given, tells how long preparing would take, and on what basis.
    `source` is the query or code that a reader should see, given the prepared engine.
    `build_s`, where it is given, is what was spent before on what `prepare` hands out.
    """

    name: str
    title: str
    prepare: Callable[[Workload], Prepared]
    source: Callable[[Any], str]
    first_events: int = 64
    estimate_s: Callable[[Workload], tuple[float, str]] | None = None
    build_s: float | None = None


class _TableMatch(Protocol):
    def match(self, events: pa.Table) -> Pairs: ...


@dataclass(frozen=True, slots=True)
class OverTables:
    """A baseline whose `match` takes an Arrow table and gives pairs."""

    inner: _TableMatch

    def load(self, events: pa.Table) -> pa.Table:
        """The table as it is."""
        return events

    def run(self, events: pa.Table) -> Pairs:
        """Match the table."""
        return self.inner.match(events)

    def pairs(self, result: Pairs) -> Pairs:
        """Pairs already."""
        return result


@dataclass(frozen=True, slots=True)
class OverDicts:
    """A matcher asked event by event, each a dict."""

    inner: Any

    def load(self, events: pa.Table) -> list[dict[str, Any]]:
        """A dict per event, without the attributes that it lacks."""
        return event_dicts(events)

    def run(self, events: list[dict[str, Any]]) -> list[list[str]]:
        """The ids that each event matches."""
        match = self.inner.match
        return [match(event) for event in events]

    def pairs(self, result: list[list[str]]) -> Pairs:
        """The ids as rows."""
        rows = np.repeat(np.arange(len(result)), [len(ids) for ids in result])
        ids = pa.array([name for ids in result for name in ids], pa.string())
        return Pairs(rows, subscription_rows(ids))


@dataclass(frozen=True, slots=True)
class OverBatches:
    """The matcher asked with Arrow tables."""

    inner: Any
    threads: int

    def load(self, events: pa.Table) -> pa.Table:
        """The table as it is."""
        return events

    def run(self, events: pa.Table) -> pa.Table:
        """Match the table into a table of event row and subscription id."""
        return self.inner.match_batch(events, threads=self.threads)

    def pairs(self, result: pa.Table) -> Pairs:
        """The ids as rows."""
        if not result.num_rows:
            return NO_PAIRS
        rows = result.column("event_row").to_numpy()
        return Pairs(rows, subscription_rows(result.column("subscription_id")))


def event_dicts(events: pa.Table) -> list[dict[str, Any]]:
    """Events as dicts, without the attributes that they lack."""
    return [
        {name: value for name, value in event.items() if value is not None}
        for event in events.to_pylist()
    ]


def subscription_rows(ids: pa.Array | pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The row numbers in the ids `s0`, `s1`, …, plain or dictionary-encoded."""
    if isinstance(ids, pa.ChunkedArray):
        parts = [subscription_rows(chunk) for chunk in ids.chunks]
        return np.concatenate([np.empty(0, np.int64), *parts])
    if pa.types.is_dictionary(ids.type):
        indices = ids.indices.to_numpy(zero_copy_only=False)
        return np.asarray(subscription_rows(ids.dictionary)[indices], dtype=np.int64)
    numbers = pc.cast(pc.utf8_slice_codeunits(ids, start=1), pa.int64())
    return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.int64)


def naive_matcher(workload: Workload) -> Any:
    """The naive twin, filled with the workload's filters."""
    from peersub.filters.filter import Filter
    from peersub.matching.naive import NaiveMatcher

    matcher = NaiveMatcher()
    texts = workload.texts()
    for name, text in zip(texts["id"].to_pylist(), texts["filter"].to_pylist(), strict=True):
        matcher.add(name, Filter(text))
    return matcher


def estimate_naive_s(workload: Workload, clock: Callable[[], float]) -> tuple[float, str]:
    """How long it would take to parse the filters of the workload, from parsing a few."""
    from peersub.filters.filter import Filter

    total = workload.subscriptions.count
    count = min(total, _ESTIMATE_FILTERS)
    sample = workload.subscriptions.select(np.arange(count))
    texts = filter_texts(workload.attributes, sample).to_pylist()
    start = clock()
    for text in texts:
        Filter(text)
    return (clock() - start) / max(count, 1) * total, f"parsing {count:,} of its filters"


def baseline_engines(threads: int, clock: Callable[[], float]) -> list[Engine]:
    """Everything that the matcher is compared with."""
    from peersub.bench.duckdb_baselines import AccessJoin, CountingJoin
    from peersub.bench.numpy_baselines import CountingColumns, PrefixBitsets

    def over_tables(make: Callable[[Workload], _TableMatch]) -> Callable[[Workload], Prepared]:
        return lambda workload: OverTables(make(workload))

    def code_of(kind: type) -> Callable[[Any], str]:
        return lambda prepared: inspect.getsource(kind)

    def query_of(prepared: OverTables) -> str:
        return str(getattr(prepared.inner, "query", ""))

    return [
        Engine(
            "naive",
            "naive twin",
            lambda workload: OverDicts(naive_matcher(workload)),
            lambda prepared: inspect.getsource(type(prepared.inner).match),
            first_events=1,
            estimate_s=partial(estimate_naive_s, clock=clock),
        ),
        Engine(
            "numpy-columns",
            "NumPy columns",
            over_tables(CountingColumns),
            code_of(CountingColumns),
        ),
        Engine(
            "numpy",
            "NumPy bitsets",
            over_tables(PrefixBitsets),
            code_of(PrefixBitsets),
        ),
        Engine(
            "duckdb-counting",
            "DuckDB counting join",
            over_tables(lambda workload: CountingJoin(workload, threads)),
            query_of,
            first_events=16,
        ),
        Engine(
            "duckdb",
            "DuckDB access join",
            over_tables(lambda workload: AccessJoin(workload, threads)),
            query_of,
        ),
    ]


def matcher_engines(threads: int, matcher: Any, build_s: float) -> list[Engine]:
    """One built matcher through each of its doors."""

    def call_of(prepared: Any) -> str:
        return inspect.getsource(type(prepared).run)

    doors: list[tuple[str, str, Prepared]] = [
        ("dicts", "matcher, dicts", OverDicts(matcher)),
        ("arrow-1", "matcher, Arrow, 1 thread", OverBatches(matcher, 1)),
        ("arrow", "matcher, Arrow", OverBatches(matcher, threads)),
    ]
    return [
        Engine(name, title, partial(_hand_out, door), call_of, build_s=build_s)
        for name, title, door in doors
    ]


def _hand_out(prepared: Prepared, workload: Workload) -> Prepared:
    return prepared
