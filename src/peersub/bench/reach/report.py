"""The benchmark of Reach, for people and for programs: tables, a plot, JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from peersub.bench.reach.measure import QUENCHINGS, Quenching
from peersub.bench.reach.run import BALANCED_MAP, BALANCINGS, MapPoint, ReachResult
from peersub.bench.semantic.plots import Series, line_plot
from peersub.bench.tables import plain_table

__all__ = ["as_json", "exit_code", "show", "write"]

_WIDTH: Final = 118
_PLOTTED: Final[tuple[Quenching, ...]] = ("none", "filters")


def exit_code(result: ReachResult) -> int:
    """1 if a delivery was wrong or a bound is broken."""
    return 1 if result.wrong else 0


def as_json(result: ReachResult) -> dict[str, Any]:
    """The result as plain data, ready for `json.dumps`."""
    return {
        "settings": asdict(result.settings),
        "points": [asdict(point) for point in result.points],
        "figures": [{**asdict(figure), "is_good": figure.is_good} for figure in result.figures()],
        "wrong": result.wrong,
        "ok": not result.wrong,
    }


def write(result: ReachResult, folder: Path) -> list[Path]:
    """Write the plot, the tables and the JSON to a folder, which is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "reach-visited.svg": _visited_plot(result),
        "reach.json": json.dumps(as_json(result), indent=1) + "\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    with (folder / "reach.txt").open("w", encoding="utf-8") as stream:
        show(result, Console(file=stream, width=_WIDTH, no_color=True, highlight=False))
    return [folder / name for name in (*texts, "reach.txt")]


def _visited_plot(result: ReachResult) -> str:
    series = [
        Series(
            f"{kind}, quenched by {quenching}" if quenching != "none" else f"{kind}, not quenched",
            tuple(
                (point.nodes, point.quenched[quenching].visited)
                for point in result.points
                if point.map == kind
            ),
            number,
            dash,
        )
        for number, kind in enumerate(result.settings.maps)
        for dash, quenching in enumerate(_PLOTTED)
    ]
    return line_plot(
        "Places that an event visits", series, x_axis="nodes", y_axis="places visited per event"
    )


def show(result: ReachResult, console: Console | None = None) -> None:
    """Print the tables, and each figure beside its bound."""
    out = console or Console(highlight=False, width=_WIDTH)
    settings = result.settings
    out.print(
        f"Standard workload, {settings.skew}; {settings.subscriptions} subscriptions per node, an "
        f"event matches {settings.share_matched:.1%} of them; {settings.events:,} events per "
        f"network; {settings.identifier_bits} bits; up to {settings.summary} wishes are told; seed "
        f"{settings.seed}."
    )
    out.print(_visits(result.points))
    out.print(_messages(result.points))
    if any(point.balanced for point in result.points):
        out.print(_balance(result))
    table = plain_table("Bounds", ("figure",), ("found", "bound", ""))
    for figure in result.figures():
        verdict = "" if figure.is_good else "BROKEN"
        table.add_row(figure.what, f"{figure.found:.3f}", f"{figure.bound:.4g}", verdict)
    out.print(table)
    for each in result.wrong:
        out.print(f"WRONG {each}", markup=False)


def _visits(points: Sequence[MapPoint]) -> Table:
    table = plain_table(
        "Places visited per event, by what places tell of their interest",
        ("bits",),
        ("nodes", "hops", "places\nused", "fullest\nplace", *QUENCHINGS, "filters/\nnone", "CPU s"),
        "hops: to the host of the event. used: places at which something is kept. fullest: the "
        "share of all\nsubscriptions that one place keeps.",
    )
    for point in points:
        visited = [point.quenched[quenching].visited for quenching in QUENCHINGS]
        table.add_row(
            point.map,
            f"{point.nodes:,}",
            f"{point.hops:.2f}",
            f"{point.places_used:,}",
            f"{point.fullest_share:.0%}",
            *(f"{each:.2f}" for each in visited),
            f"{visited[-1] / visited[0]:.2f}",
            f"{point.seconds:.0f}",
        )
    return table


def _messages(points: Sequence[MapPoint]) -> Table:
    table = plain_table(
        "Messages per delivery, and the Gini coefficient of loads",
        ("bits",),
        (
            *("nodes", "deliveries/\nevent"),
            *(f"messages\n{quenching}" for quenching in QUENCHINGS),
            *(f"Gini\n{quenching}" for quenching in QUENCHINGS),
        ),
        "A delivery is an event for one subscription. Load: messages that a node receives and "
        "sends for others.",
    )
    for point in points:
        measured = [point.quenched[quenching] for quenching in QUENCHINGS]
        table.add_row(
            point.map,
            f"{point.nodes:,}",
            f"{point.deliveries:.1f}",
            *(f"{each.messages_per_delivery:.2f}" for each in measured),
            *(f"{each.gini:.3f}" for each in measured),
        )
    return table


def _balance(result: ReachResult) -> Table:
    replication = result.settings.replication
    table = plain_table(
        f"Loads balanced; bits {BALANCED_MAP}, wishes with filters",
        ("balancing",),
        (
            *("nodes", "Gini", "busiest\nnode", "visited/\nevent", "messages/\ndelivery"),
            *("identifiers\npushed", "entries\ncopied"),
        ),
        f"replicate: {replication.orders} orders, copies {replication.depth} deep for each, "
        f"parents answer {replication.share:.0%} of what they may.\nheirs: who has a copy should "
        "the holder crash answers; no other copies.",
    )
    for point in result.points:
        for name in BALANCINGS if point.balanced else ():
            measured = point.balanced[name]
            table.add_row(
                name,
                f"{point.nodes:,}",
                f"{measured.gini:.3f}",
                f"{measured.load_max:,}",
                f"{measured.visited:.2f}",
                f"{measured.messages_per_delivery:.2f}",
                f"{measured.pushed:,}",
                f"{measured.copies:,}",
            )
    return table
