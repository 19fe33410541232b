"""The result of `peersub bench pipeline`, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from peersub.bench.harness import stdout_console
from peersub.bench.pipeline import MEMORY_BYTES_MAX, RATIO_MIN, PipelineResult
from peersub.bench.report import machine

__all__ = ["as_json", "exit_code", "show"]


def as_json(result: PipelineResult) -> dict[str, Any]:
    """The result as plain data, ready for `json.dumps`."""
    return {
        "machine": machine(result.settings.processors),
        "settings": asdict(result.settings),
        "phases_s": result.phases,
        "end_to_end_s": result.end_to_end_s,
        "index_bytes": result.index.bytes,
        "bytes_per_subscription": result.index.bytes / max(result.index.subscriptions, 1),
        "matching": [asdict(run) for run in result.runs],
        "joins": [asdict(join) for join in result.joins],
        "ratio": result.ratio,
        "ratio_min": RATIO_MIN,
        "memory": asdict(result.memory),
        "memory_bytes_max": MEMORY_BYTES_MAX,
        "mismatches": result.mismatches,
        "ok": not result.mismatches,
    }


def show(result: PipelineResult, console: Console | None = None) -> None:
    """Print the tables and the verdict."""
    out = console or stdout_console()
    workload = result.settings.workload
    out.print(
        f"{workload.subscriptions:,} subscriptions x {workload.events:,} events at "
        f"{workload.share_matched:.4%}, {result.settings.processors} processors: "
        f"{result.whole.found.count:,} deliveries"
    )
    out.print(_phases(result))
    out.print(_matching(result))
    out.print(_joins(result))
    memory = result.memory
    out.print(
        f"memory of driver, Java and {memory.processes} processes in all: "
        f"{memory.proportional_bytes / 1e9:.2f} GB at most, shared pages counted once "
        f"({memory.resident_bytes / 1e9:.2f} GB if counted for each)"
    )
    out.print(f"{result.ratio:,.0f} times the pairs per second of the quickest cross join")
    for mismatch in result.mismatches:
        out.print(f"MISMATCH {mismatch}", markup=False)
    if not result.mismatches:
        out.print("all forms found the same deliveries, by count and checksum")


def _phases(result: PipelineResult) -> Table:
    table = Table(title="end to end", title_justify="left")
    table.add_column("phase")
    table.add_column("seconds", justify="right")
    for name, seconds in result.phases.items():
        table.add_row(name, f"{seconds:,.2f}")
    table.add_row("all", f"{result.end_to_end_s:,.2f}")
    return table


def _matching(result: PipelineResult) -> Table:
    table = Table(
        title=f"matching, index of {result.index.bytes / 1e6:,.0f} MB built", title_justify="left"
    )
    for column in ("index", "events", "seconds", "first run", "pairs/s", "deliveries"):
        table.add_column(column, justify="left" if column == "index" else "right")
    for run in result.runs:
        table.add_row(
            run.form,
            f"{run.events:,}",
            f"{run.seconds:,.2f}",
            f"{run.first_s:,.2f}",
            f"{run.pairs_per_s:,.3g}",
            f"{run.found.count:,}",
        )
    return table


def _joins(result: PipelineResult) -> Table:
    count = result.settings.join_subscriptions
    table = Table(title=f"Spark's own joins, {count:,} subscriptions", title_justify="left")
    for column in ("join", "pairs", "seconds", "pairs/s", "ratio", "equal"):
        table.add_column(column, justify="left" if column == "join" else "right")
    for join in result.joins:
        table.add_row(
            join.title,
            f"{join.pairs:,.2g}",
            f"{join.seconds:,.2f}",
            f"{join.pairs_per_s:,.3g}",
            f"{join.ratio:,.1f}x",
            "yes" if join.is_equal else "NO",
        )
    return table


def exit_code(result: PipelineResult) -> int:
    """0 if all forms agreed, 1 if not."""
    return 1 if result.mismatches else 0
