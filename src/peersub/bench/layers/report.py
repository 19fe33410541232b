"""The benchmark of delays and clusters, for people and for programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table

from peersub.bench.layers.run import LayersResult, Row
from peersub.bench.semantic.plots import Series, line_plot
from peersub.simulator.summary import Spread

__all__ = ["as_json", "exit_code", "show", "write"]

_WIDTH: Final = 118


def exit_code(result: LayersResult) -> int:
    """1 if a delivery was wrong, or nothing was delivered."""
    return 1 if result.wrong else 0


def as_json(result: LayersResult) -> dict[str, Any]:
    """The result as plain data, ready for `json.dumps`."""
    return {
        "settings": asdict(result.settings),
        "rows": [_row_json(row) for row in result.rows],
        "trials": [
            {
                "rate": point.trial.changes_per_second,
                "clusters": point.trial.clusters,
                "seed": point.trial.seed,
                "layers_mean": sum(point.layers) / max(len(point.layers), 1),
                "expected": point.expected,
                "missed": point.missed,
                "after_expected": point.after_expected,
                "proposed": point.proposed,
                "moved": point.moved,
                "messages": point.messages,
            }
            for point in result.points
        ],
        "wrong": result.wrong,
        "ok": not result.wrong,
    }


def _row_json(row: Row) -> dict[str, Any]:
    plain = asdict(row)
    for name in ("delay_ms", "turns"):
        spread: Spread | None = getattr(row, name)
        plain[name] = None if spread is None else spread.as_json()
    return {**plain, "missed_share": row.missed_share}


def show(result: LayersResult, console: Console | None = None) -> None:
    """Print what was measured."""
    out = console or Console(highlight=False, width=_WIDTH)
    settings = result.settings
    title = (
        f"From publication to reception: {settings.nodes:,} super-peers, {settings.clients:,} "
        f"clients, {settings.seeds} networks per line"
    )
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for name in ("changes/s", "clusters"):
        table.add_column(name)
    names = ("ms mean", "p50", "p99", "max", "turns mean", "p99", "max", "missed")
    for name in (*names, "layers mean", "max", "moved"):
        table.add_column(name, justify="right")
    for row in result.rows:
        table.add_row(f"{row.rate:g}", "yes" if row.clusters else "no", *_cells(row))
    out.print(table)
    for each in result.wrong:
        out.print(f"WRONG {each}", markup=False)


def _cells(row: Row) -> list[str]:
    delay, turns = row.delay_ms, row.turns
    timed = ["-"] * 7
    if delay is not None and turns is not None:
        timed = [f"{delay.mean:.0f}", str(delay.p50), str(delay.p99), str(delay.largest)]
        timed += [f"{turns.mean:.2f}", str(turns.p99), str(turns.largest)]
    missed = f"{row.missed_share:.2%}"
    return [*timed, missed, f"{row.layers_mean:.2f}", str(row.layers_max), str(row.moved)]


def write(result: LayersResult, folder: Path) -> list[Path]:
    """Write the figures and the plot into the folder; the files."""
    data = folder / "layers.json"
    data.write_text(json.dumps(as_json(result), indent=1) + "\n", encoding="utf-8")
    plot = folder / "layers-delay.svg"
    plot.write_text(_plot(result), encoding="utf-8")
    return [data, plot]


def _plot(result: LayersResult) -> str:
    series: list[Series] = []
    still: list[str] = []
    for dash, clusters in enumerate((False, True)):
        rows = [row for row in result.rows if row.clusters == clusters and row.delay_ms]
        how = "clusters" if clusters else "random placement"
        for colour, (name, value) in enumerate((("mean", _mean), ("p99", _p99))):
            # The scale is logarithmic: what there is without churn is told in the title.
            points = tuple((row.rate, value(row)) for row in rows if row.rate)
            series.append(Series(f"{name}, {how}", points, colour, dash))
        still += [f"{_mean(row):.0f} ms with {how}" for row in rows if not row.rate]
    quiet = f" (mean without churn: {', '.join(still)})" if still else ""
    return line_plot(
        f"Delay from publication to reception{quiet}",
        series,
        x_axis="nodes that come, go or crash, per second",
        y_axis="simulated ms",
    )


def _mean(row: Row) -> float:
    return 0.0 if row.delay_ms is None else row.delay_ms.mean


def _p99(row: Row) -> float:
    return 0.0 if row.delay_ms is None else float(row.delay_ms.p99)
