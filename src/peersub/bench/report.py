"""The benchmark's result, for people and for programs.

Tables and the queries of the baselines go to the console that is passed in, standard output by
default; `as_json` is the same content as plain data.
"""

from __future__ import annotations

import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rich.console import Console
from rich.table import Table

from peersub.bench.harness import stdout_console
from peersub.bench.matching import BenchResult, Cell, EngineResult

_PACKAGES = ("peersub", "numpy", "numba", "pyarrow", "duckdb")


def as_json(result: BenchResult) -> dict[str, Any]:
    """The result as plain data, ready for `json.dumps`."""
    return {
        "machine": machine(result.settings.threads),
        "settings": asdict(result.settings),
        "cells": [asdict(cell) for cell in result.cells],
        "builds": [
            asdict(build) | {"bytes_per_subscription": build.bytes_per_subscription}
            for build in result.builds
        ],
        "updates": asdict(result.updates) if result.updates is not None else None,
        "sources": result.sources,
        "mismatches": result.mismatches,
        "ok": not result.mismatches,
    }


def machine(threads: int) -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads": threads,
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def show(result: BenchResult, console: Console | None = None) -> None:
    """Print the tables, what was measured apart, the baselines' sources and any mismatch."""
    out = console or stdout_console()
    threads = result.settings.threads
    out.print(f"{threads} threads for the matcher from Arrow and for DuckDB; ratio: to the former")
    for cell in result.cells:
        out.print(_cell_table(cell, result))
        for engine in cell.engines:
            if engine.not_run:
                out.print(f"{engine.title}: {engine.not_run}")
    if result.builds:
        out.print(_build_table(result))
    if result.updates is not None:
        out.print(_updates_table(result))
    for name, source in result.sources.items():
        out.print(f"[bold]{name}[/bold]")
        out.print(source, markup=False, soft_wrap=True)
    _show_verdict(result, out)


def _cell_table(cell: Cell, result: BenchResult) -> Table:
    table = Table(
        title=(
            f"{cell.subscriptions:,} subscriptions, {cell.skew}, "
            f"{cell.matches_per_event:,.1f} matches per event ({cell.share_wanted:.2%} wanted)"
        ),
        title_justify="left",
    )
    table.add_column("engine", no_wrap=True)
    columns = ("events", "µs/event", "matches/s", "build s", "bytes/sub", "ratio", "equal")
    for column in columns:
        table.add_column(column, justify="right")
    for engine in cell.engines:
        if not engine.not_run:
            table.add_row(*_engine_row(engine, _bytes_of(engine, cell, result)))
    return table


def _engine_row(engine: EngineResult, memory: str) -> tuple[str, ...]:
    return (
        engine.title,
        f"{engine.events:,}",
        f"{engine.us_per_event:,.1f}",
        f"{engine.matches_per_s:,.0f}",
        f"{engine.build_s:,.2f}",
        memory,
        "–" if engine.ratio is None else f"{engine.ratio:,.1f}x",
        "yes" if engine.mismatch is None else "NO",
    )


def _bytes_of(engine: EngineResult, cell: Cell, result: BenchResult) -> str:
    """Only the matcher's memory is measured, once per size."""
    if engine.name not in ("dicts", "arrow-1", "arrow"):
        return "–"
    for build in result.builds:
        if build.subscriptions == cell.subscriptions:
            return f"{build.bytes_per_subscription:,.0f}"
    return "–"


def _build_table(result: BenchResult) -> Table:
    table = Table(
        title="from a Parquet file of texts to a ready matcher, in a fresh process",
        title_justify="left",
    )
    for column in ("subscriptions", "seconds", "resident MB", "bytes/sub"):
        table.add_column(column, justify="right")
    for build in result.builds:
        table.add_row(
            f"{build.subscriptions:,}",
            f"{build.seconds:,.1f}",
            f"{build.resident_bytes / 1e6:,.1f}",
            f"{build.bytes_per_subscription:,.0f}",
        )
    return table


def _updates_table(result: BenchResult) -> Table:
    updates = result.updates
    assert updates is not None
    table = Table(
        title=f"single changes to {updates.subscriptions:,} subscriptions, rebuilds included",
        title_justify="left",
    )
    table.add_column("operation")
    for column in ("count", "mean µs", "p50 µs", "p99 µs", "max µs"):
        table.add_column(column, justify="right")
    for name, latency in (
        ("parse the filter", updates.parse),
        ("insert", updates.insert),
        ("delete", updates.delete),
    ):
        table.add_row(
            name,
            f"{latency.count:,}",
            f"{latency.mean_us:,.1f}",
            f"{latency.p50_us:,.1f}",
            f"{latency.p99_us:,.1f}",
            f"{latency.max_us:,.0f}",
        )
    return table


def _show_verdict(result: BenchResult, out: Console) -> None:
    if not result.mismatches:
        out.print("all engines found the same pairs of event and subscription")
        return
    for mismatch in result.mismatches:
        out.print(f"MISMATCH {mismatch}", markup=False)


def exit_code(result: BenchResult) -> int:
    """0 if all engines agreed, 1 if not."""
    return 1 if result.mismatches else 0


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
