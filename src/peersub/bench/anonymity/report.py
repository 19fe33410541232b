"""What observers find out, for people and for programs: a table, plots, JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table

from peersub.bench.anonymity.inference import Clock
from peersub.bench.anonymity.run import CLOCKS, AnonymityResult
from peersub.bench.semantic.plots import Series, line_plot

__all__ = ["as_json", "exit_code", "figures", "show", "write"]

_WIDTH: Final = 110
_PLOTTED: Final[tuple[tuple[str, str, Clock, bool, str], ...]] = (
    ("dag", "alone", "time", True, "dag: spies alone"),
    ("flood", "alone", "time", True, "flood: spies alone"),
    ("dag", "together", "time", True, "dag: together, with the graph"),
    ("flood", "together", "time", True, "flood: together, with the graph"),
    ("dag", "together", "time", False, "dag: together, without the graph"),
    ("flood", "together", "time", False, "flood: together, without the graph"),
    ("dag, relayed", "together", "time", True, "dag, relayed: together, with the graph"),
)


def exit_code(result: AnonymityResult) -> int:
    """1 if a check failed."""
    return 1 if result.wrong else 0


def as_json(result: AnonymityResult) -> dict[str, Any]:
    """The result as plain data, ready for `json.dumps`."""
    return {
        "settings": asdict(result.settings),
        "rows": [asdict(row) for row in result.rows],
        "rest": [asdict(point) for point in result.rest],
        "wrong": list(result.wrong),
        "ok": not result.wrong,
    }


def figures(result: AnonymityResult) -> dict[str, str]:
    """The plots, by the names of their files."""
    shares = result.settings.shares
    guessed, entropies = [], []
    for number, (overlay, kind, clock, graph, name) in enumerate(_PLOTTED):
        found = [result.row(overlay, share, kind, clock, graph=graph) for share in shares]
        percent = [100 * share for share in shares]
        colour, dash = number % 2, number // 2
        right = tuple(zip(percent, (100 * each.guessed for each in found), strict=True))
        bits = tuple(zip(percent, (each.entropy_bits for each in found), strict=True))
        guessed.append(Series(name, right, colour, dash))
        entropies.append(Series(name, bits, colour, dash))
    axis = "spies, % of the members"
    return {
        "anonymity-guessed.svg": line_plot(
            "How often spies with clocks guess the publisher",
            guessed,
            x_axis=axis,
            y_axis="right guesses, % of all events",
        ),
        "anonymity-entropy.svg": line_plot(
            "What spies with clocks do not know about the publisher",
            entropies,
            x_axis=axis,
            y_axis="entropy, bits",
        ),
    }


def write(result: AnonymityResult, folder: Path) -> list[Path]:
    """Write the plots, the table and the JSON to a folder, which is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {**figures(result), "anonymity.json": json.dumps(as_json(result), indent=1) + "\n"}
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    with (folder / "anonymity.txt").open("w", encoding="utf-8") as stream:
        show(result, Console(file=stream, width=_WIDTH, no_color=True, highlight=False))
    return [folder / name for name in (*texts, "anonymity.txt")]


def show(result: AnonymityResult, console: Console | None = None) -> None:
    """Print the tables, and what the checks found."""
    out = console or Console(highlight=False, width=_WIDTH)
    settings = result.settings
    out.print(
        f"{settings.nodes:,} members of degree {settings.degree}, {settings.graphs} graphs, seed "
        f"{settings.seed}. Entropy in bits of what spies do not know; members that may have "
        "published; events whose publisher spies guess right, and those whose publisher is certain."
    )
    for knows_graph in (True, False):
        out.print(_table(result, knows_graph=knows_graph))
    if result.rest:
        out.print(_rest(result))
    for each in result.wrong:
        out.print(f"WRONG {each}", markup=False)


def _table(result: AnonymityResult, *, knows_graph: bool) -> Table:
    title = "Spies who know the graph" if knows_graph else "Spies who know only their neighbours"
    table = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False)
    for column in ("overlay", "spies", "clock"):
        table.add_column(column, no_wrap=True)
    for column in ("share", "entropy", "of", "set", "guessed", "certain"):
        table.add_column(column, justify="right", no_wrap=True)
    rows = [row for row in result.rows if row.knows_graph is knows_graph]
    places = {clock: place for place, clock in enumerate(CLOCKS)}
    for row in sorted(rows, key=lambda row: (row.overlay, row.observers, places[row.clock])):
        found = row.anonymity
        table.add_row(
            row.overlay,
            row.observers,
            row.clock,
            f"{row.share:.0%}",
            f"{found.entropy_bits:.2f}",
            f"{found.entropy_bits_max:.2f}",
            f"{found.set_mean:,.1f}",
            f"{found.guessed:.1%}",
            f"{found.certain:.1%}",
        )
    return table


def _rest(result: AnonymityResult) -> Table:
    title = f"Simulated peers at rest, {result.settings.rest_nodes:,} nodes: spies with one clock"
    table = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False)
    table.add_column("overlay", no_wrap=True)
    for column in ("share", "events", "suspected by any message", "by the first copy"):
        table.add_column(column, justify="right", no_wrap=True)
    for point in result.rest:
        shares = f"{point.by_any_message:.1%}", f"{point.by_copy:.1%}"
        table.add_row(point.overlay, f"{point.share:.0%}", f"{point.events}", *shares)
    return table
