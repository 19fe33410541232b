"""The benchmark of the anonymous overlay, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table

from peersub.bench.dag.layers import LayerPoint
from peersub.bench.dag.network import NetworkPoint
from peersub.bench.dag.run import DagResult

__all__ = ["as_json", "exit_code", "show"]

_WIDTH: Final = 110


def exit_code(result: DagResult) -> int:
    """1 if something was missed or a bound is broken."""
    return 1 if result.wrong else 0


def as_json(result: DagResult) -> dict[str, Any]:
    """The result as plain data, ready for `json.dumps`."""
    return {
        "settings": asdict(result.settings),
        "layers": [asdict(point) for point in result.layers],
        "networks": [
            {**asdict(point), "idle_share": point.idle_share} for point in result.networks
        ],
        "figures": [asdict(figure) for figure in result.figures()],
        "wrong": result.wrong,
        "ok": not result.wrong,
    }


def show(result: DagResult, console: Console | None = None) -> None:
    """Print what was measured, and each figure beside its bound."""
    out = console or Console(highlight=False, width=_WIDTH)
    if result.layers:
        out.print(_layers(result.layers))
    if result.networks:
        out.print(_networks(result.networks))
    table = _table("Bounds", ("figure",), ("found", "bound", ""))
    for figure in result.figures():
        verdict = "" if figure.is_good else "BROKEN"
        table.add_row(figure.what, f"{figure.found:.4g}", f"{figure.bound:.4g}", verdict)
    out.print(table)
    for each in result.wrong:
        out.print(f"WRONG {each}", markup=False)


def _table(title: str, first: Sequence[str], columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False)
    for column in first:
        table.add_column(column, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _layers(points: Sequence[LayerPoint]) -> Table:
    table = _table(
        "Layers in synchronous rounds: all sinks take their turns at once",
        (),
        ("members", "degree", "edges", "rounds mean", "max", "sinks", "copies", "turns apart"),
    )
    for point in points:
        table.add_row(
            f"{point.members:,}",
            f"{point.degree}",
            f"{point.edges_mean:,.0f}",
            f"{point.rounds_mean:.1f}",
            f"{point.rounds_max}",
            f"{point.sinks_share:.2f}",
            f"{point.copies_mean:,.0f}",
            f"{point.turns_gap}",
        )
    return table


def _networks(points: Sequence[NetworkPoint]) -> Table:
    table = _table(
        "Simulated networks of one layer: idle, busy, and after a crash",
        (),
        (
            *("nodes", "seed", "reached", "delay ms", "hops", "idle/s", "busy/s", "crashed"),
            *("at rest s", "reached", "CPU s"),
        ),
    )
    for point in points:
        table.add_row(
            f"{point.trial.nodes:,}",
            f"{point.trial.seed}",
            _reached(point.expected, point.missed),
            "" if point.delay_ms is None else f"{point.delay_ms.mean:.0f}",
            "" if point.hops is None else f"{point.hops.mean:.1f}",
            f"{point.idle_messages_per_second:,.0f}",
            f"{point.busy_messages_per_second:,.0f}",
            f"{point.crashed:,}",
            f"{point.repaired_ms / 1000:.0f}",
            _reached(point.repaired_expected, point.repaired_missed),
            f"{point.seconds:.0f}",
        )
    return table


def _reached(expected: int, missed: int) -> str:
    return f"{(expected - missed) / max(expected, 1):.2%}"
