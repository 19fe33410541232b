"""The benchmark of Reach, for people and for programs: tables, a plot, JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from peersub.bench.harness import plain_table
from peersub.bench.reach.measure import QUENCHINGS, Quenching
from peersub.bench.reach.run import (
    BALANCED_MAP,
    BALANCINGS,
    SEVERAL_SEEDS_NODES_MAX,
    MapPoint,
    ReachResult,
)
from peersub.bench.reach.simulated import OVERLOADED, ROUNDS_BEFORE
from peersub.bench.reach.telling import CHANGES
from peersub.bench.reach.workload import MapKind
from peersub.bench.semantic.plots import Series, line_plot

__all__ = ["as_json", "exit_code", "show", "write"]

_WIDTH: Final = 118
_PLOTTED: Final[tuple[Quenching, ...]] = ("none", "filters")
_PLOTTED_MAPS: Final[tuple[MapKind, ...]] = ("hashed", "shuffled", "chosen", "chosen, idle bits")


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


def _mean(points: Sequence[MapPoint], of: Callable[[MapPoint], float]) -> float:
    """Over the seeds."""
    return sum(map(of, points)) / len(points)


def _range(points: Sequence[MapPoint], of: Callable[[MapPoint], float]) -> str:
    """The least and the largest, if they differ as they are shown."""
    least, largest = (f"{each(map(of, points)):.2f}" for each in (min, max))
    return least if least == largest else f"{least}-{largest}"


def _visited(quenching: Quenching) -> Callable[[MapPoint], float]:
    return lambda point: point.quenched[quenching].visited


def _rows(result: ReachResult) -> Iterator[list[MapPoint]]:
    """The networks of each size under each map."""
    for size in result.settings.sizes:
        for kind in result.settings.maps:
            yield result.of(size, kind)


def _visited_plot(result: ReachResult) -> str:
    series = [
        Series(
            f"{kind}, quenched by {quenching}" if quenching != "none" else f"{kind}, not quenched",
            tuple(
                (size, _mean(result.of(size, kind), _visited(quenching)))
                for size in result.settings.sizes
            ),
            number,
            dash,
        )
        for number, kind in enumerate(
            kind for kind in _PLOTTED_MAPS if kind in result.settings.maps
        )
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
        f"network; {settings.identifier_bits} bits; up to {settings.summary} wishes are told; "
        f"means over seeds {', '.join(map(str, settings.seeds))}, above "
        f"{SEVERAL_SEEDS_NODES_MAX:,} nodes of the first."
    )
    out.print(_visits(result))
    out.print(_messages(result))
    out.print(_telling(result))
    if any(point.balanced for point in result.points):
        out.print(_balance(result))
    if any(point.simulated for point in result.points):
        out.print(_simulated(result))
    table = plain_table("Bounds", ("figure",), ("found", "bound", ""))
    for figure in result.figures():
        verdict = "" if figure.is_good else "BROKEN"
        table.add_row(figure.what, f"{figure.found:.3f}", f"{figure.bound:.4g}", verdict)
    out.print(table)
    for each in result.wrong:
        out.print(f"WRONG {each}", markup=False)


def _visits(result: ReachResult) -> Table:
    table = plain_table(
        "Places visited per event, by what places tell of their interest",
        ("bits",),
        (
            *("nodes", "hops", "used", "fullest\nplace"),
            *("none", "bit", "identi-\nfiers", "filters", "floor"),
            *("filters/\nnone", "range", "floor/\nnone"),
        ),
        "hops: to the host of the event. used: places at which something is kept. fullest: the "
        "share of all\nsubscriptions that one place keeps. floor: the places that any quenching "
        "must visit.",
    )
    for points in _rows(result):
        visited = [_mean(points, _visited(quenching)) for quenching in QUENCHINGS]
        table.add_row(
            points[0].map,
            f"{points[0].nodes:,}",
            f"{_mean(points, lambda point: point.hops):.2f}",
            f"{_mean(points, lambda point: point.places_used):,.0f}",
            f"{_mean(points, lambda point: point.fullest_share):.0%}",
            *(f"{each:.2f}" for each in visited),
            f"{_mean(points, lambda point: point.floor):.2f}",
            f"{_mean(points, lambda point: point.share_left):.2f}",
            _range(points, lambda point: point.share_left),
            f"{_mean(points, lambda point: point.floor / point.quenched['none'].visited):.2f}",
        )
    return table


def _messages(result: ReachResult) -> Table:
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
    for points in _rows(result):
        measured = [[point.quenched[quenching] for point in points] for quenching in QUENCHINGS]
        table.add_row(
            points[0].map,
            f"{points[0].nodes:,}",
            f"{_mean(points, lambda point: point.deliveries):.1f}",
            *(f"{fmean(one.messages_per_delivery for one in each):.2f}" for each in measured),
            *(f"{fmean(one.gini for one in each):.3f}" for each in measured),
        )
    return table


def _telling(result: ReachResult) -> Table:
    kinds = [quenching for quenching in QUENCHINGS if quenching != "none"]
    table = plain_table(
        "Messages with interest, when a subscription begins",
        ("bits",),
        (
            "nodes",
            *(f"messages\n{quenching}" for quenching in kinds),
            *(f"bytes\n{quenching}" for quenching in kinds),
            "CPU s",
        ),
        f"In the network of all others; means of {CHANGES} subscriptions. Each message is answered."
        "\nCPU s: of all that is measured under the map.",
    )
    for points in _rows(result):
        told = [[point.told[quenching] for point in points] for quenching in kinds]
        table.add_row(
            points[0].map,
            f"{points[0].nodes:,}",
            *(f"{fmean(one.messages for one in each):,.1f}" for each in told),
            *(f"{fmean(one.bytes for one in each):,.0f}" for each in told),
            f"{sum(point.seconds for point in points):.0f}",
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
        f"parents answer {replication.share:.0%} of what they may.\nheirs: only who has a copy "
        "should the holder crash answers.",
    )
    for points in _rows(result):
        for name in BALANCINGS if points[0].balanced else ():
            measured = [point.balanced[name] for point in points]
            table.add_row(
                name,
                f"{points[0].nodes:,}",
                f"{fmean(each.gini for each in measured):.3f}",
                f"{fmean(each.load_max for each in measured):,.0f}",
                f"{fmean(each.visited for each in measured):.2f}",
                f"{fmean(each.messages_per_delivery for each in measured):.2f}",
                f"{fmean(each.pushed for each in measured):,.0f}",
                f"{fmean(each.copies for each in measured):,.0f}",
            )
    return table


def _simulated(result: ReachResult) -> Table:
    table = plain_table(
        f"The same of simulated peers: what the protocol does; bits {BALANCED_MAP}",
        ("balancing",),
        ("nodes", "Gini", "busiest\nnode", "messages", "deputies", "control\nmessages"),
        f"After {ROUNDS_BEFORE} rounds of the same events. Overloaded is who handles "
        f"{OVERLOADED:g} times as many messages as the mean.\ncontrol: other messages in all "
        "rounds, for loads, copies and links.",
    )
    for point in result.points:
        for name, measured in point.simulated.items():
            table.add_row(
                name,
                f"{point.nodes:,}",
                f"{measured.gini:.3f}",
                f"{measured.load_max:,}",
                f"{measured.messages:,}",
                f"{measured.deputies:,}",
                f"{measured.control:,}",
            )
    return table
