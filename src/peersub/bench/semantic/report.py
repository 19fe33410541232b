"""The benchmark of the semantic overlays, for people and for programs: tables, plots, JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypeVar

from rich.console import Console
from rich.table import Table

from peersub.bench.harness import plain_table, stdout_console
from peersub.bench.semantic.graphs import GraphPoint
from peersub.bench.semantic.plots import Series, line_plot
from peersub.bench.semantic.run import SemanticResult
from peersub.bench.semantic.trees import TreePoint

__all__ = ["as_json", "exit_code", "figures", "show", "write"]

_WIDTH: Final = 118

P = TypeVar("P", TreePoint, GraphPoint)


def exit_code(result: SemanticResult) -> int:
    """1 if a check failed."""
    return 1 if result.wrong else 0


# --- for programs --------------------------------------------------------------------------------


def as_json(result: SemanticResult) -> dict[str, Any]:
    """The result as plain data, ready for `json.dumps`."""
    workload = result.workload
    return {
        "settings": asdict(result.settings),
        "schema": result.schema,
        "workload": {
            "classes": len(workload.classes.filters),
            "tags_mean": workload.tags_mean,
            "seconds": workload.seconds,
            "pairs_checked_by_lxml": workload.checked,
        },
        "broadcast": [{"peers": size, **asdict(each)} for size, each in result.broadcast],
        "containment": [
            {
                **asdict(point),
                "messages_per_join": point.messages_per_join,
            }
            for point in result.trees
        ],
        "similarity": [asdict(point) for point in result.graphs],
        "wrong": result.wrong,
        "ok": not result.wrong,
    }


def figures(result: SemanticResult) -> dict[str, str]:
    """The plots, by the names of their files."""
    broadcast = tuple((size, 100 * each.false_positive_ratio) for size, each in result.broadcast)
    rules, ways = result.settings.rules, result.settings.reorganisations
    lines = [
        Series(
            name,
            tuple((point.peers, 100 * point.metrics.false_positive_ratio) for point in points),
            rules.index(points[0].rule),
            ways.index(points[0].reorganisation),
        )
        for name, points in _by_name(result.trees)
    ]
    costs = [
        Series(
            name,
            tuple((point.peers, point.messages_per_join) for point in points),
            rules.index(points[0].rule),
            ways.index(points[0].reorganisation),
        )
        for name, points in _by_name(result.trees)
    ]
    errors = []
    for number, (name, found) in enumerate(_by_name(result.graphs)):
        positives = tuple((each.peers, 100 * each.metrics.false_positive_ratio) for each in found)
        negatives = tuple((each.peers, 100 * each.metrics.false_negative_ratio) for each in found)
        errors.append(Series(f"{name}: false positives", positives, number))
        errors.append(Series(f"{name}: false negatives", negatives, number, 1))
    return {
        "figure4.svg": line_plot(
            "Figure 4: false positives and false negatives of the similarity graph",
            errors,
            x_axis="peers",
            y_axis="false positives, % of all peers; false negatives, % of the interested",
        ),
        "figure3.svg": line_plot(
            "Figure 3: false positives of the containment tree",
            [*lines, Series("broadcast", broadcast, 5)],
            x_axis="peers",
            y_axis="false positives, % of all peers",
        ),
        "figure3-tree-only.svg": line_plot(
            "Figure 3 without broadcast",
            lines,
            x_axis="peers",
            y_axis="false positives, % of all peers",
        ),
        "joins.svg": line_plot(
            "What a join costs", costs, x_axis="peers", y_axis="messages per join"
        ),
    }


def _by_name(points: Sequence[P]) -> Iterator[tuple[str, list[P]]]:
    for name in dict.fromkeys(point.name for point in points):
        yield name, [point for point in points if point.name == name]


def write(result: SemanticResult, folder: Path) -> list[Path]:
    """Write the plots, the tables and the JSON to a folder, which is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        **figures(result),
        "semantic.json": json.dumps(as_json(result), indent=1) + "\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    with (folder / "semantic.txt").open("w", encoding="utf-8") as stream:
        show(result, Console(file=stream, width=_WIDTH, no_color=True, highlight=False))
    return [folder / name for name in (*texts, "semantic.txt")]


# --- for people ----------------------------------------------------------------------------------


def show(result: SemanticResult, console: Console | None = None) -> None:
    """Print the tables, and what the checks found."""
    out = console or stdout_console(_WIDTH)
    settings, workload = result.settings, result.workload
    out.print(
        f"{result.schema}; seed {settings.seed}; {settings.documents:,} documents of "
        f"{workload.tags_mean:.0f} tag pairs on average, and {settings.sample:,} others as the "
        f"sample; {len(workload.classes.filters):,} classes among {settings.peers[-1]:,} peers."
    )
    out.print(
        "Processor seconds: "
        + ", ".join(f"{name} {value:.1f}" for name, value in workload.seconds.items())
        + ". Building comes on top."
    )
    out.print(_figure_3(result))
    out.print(_networks(result))
    out.print(_joins(result))
    if result.graphs:
        out.print(_figure_4(result))
        out.print(_graphs(result))
    _show_verdict(result, out)


def _figure_3(result: SemanticResult) -> Table:
    sizes = result.settings.peers
    table = plain_table(
        "Figure 3: false positives of the containment tree, share of all peers",
        ("parent rule", "reorganisation"),
        [f"{size:,}" for size in sizes],
        "False negatives: none. The rule of depth is the paper's.",
    )
    for _, points in _by_name(result.trees):
        by_size = {point.peers: point.metrics.false_positive_ratio for point in points}
        table.add_row(
            points[0].rule, points[0].reorganisation, *(_percent(by_size.get(s)) for s in sizes)
        )
    table.add_section()
    shares = [_percent(each.false_positive_ratio) for _, each in result.broadcast]
    table.add_row("broadcast", "", *shares)
    return table


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.2%}"


def _networks(result: SemanticResult) -> Table:
    largest = result.settings.peers[-1]
    table = plain_table(
        f"The networks of {largest:,} peers",
        ("parent rule", "reorganisation"),
        (
            *("classes", "top\nlevel", "depth", "fan-out\nmax", "precision", "hops\nmean"),
            *("hops\nmax", "messages/\ndelivery", "build\nseconds"),
        ),
    )
    for point in result.trees:
        if point.peers == largest:
            table.add_row(
                point.rule,
                point.reorganisation,
                f"{point.classes:,}",
                f"{point.top_level:,}",
                f"{point.depth}",
                f"{point.fan_out}",
                f"{point.metrics.precision:.1%}",
                f"{point.metrics.hops:.1f}",
                f"{point.metrics.hops_max}",
                f"{point.metrics.messages_per_delivery:.2f}",
                f"{point.seconds:.1f}",
            )
    table.add_section()
    (broadcast,) = (each for size, each in result.broadcast if size == largest)
    cells = [""] * 4 + [f"{broadcast.precision:.1%}", "", ""]
    table.add_row("broadcast", "", *cells, f"{broadcast.messages_per_delivery:.2f}")
    return table


def _joins(result: SemanticResult) -> Table:
    sizes = result.settings.peers
    kinds = ("joins", "probes", "answers", "attachments", "reorganisations", "moves")
    table = plain_table(
        "Messages per join, of the joins since the size before; on the right by kind, at the "
        "largest size",
        ("parent rule", "reorganisation"),
        [*(f"{size:,}" for size in sizes), "join", "probe", "answer", "attach", "ask", "move"],
    )
    for _, points in _by_name(result.trees):
        by_size = {point.peers: point.messages_per_join for point in points}
        last = points[-1]
        table.add_row(
            last.rule,
            last.reorganisation,
            *(f"{by_size[size]:,.0f}" if size in by_size else "" for size in sizes),
            *(f"{getattr(last.messages, kind) / last.joins:,.1f}" for kind in kinds),
        )
    return table


def _figure_4(result: SemanticResult) -> Table:
    sizes = result.settings.peers
    table = plain_table(
        "Figure 4: the similarity graph; false positives as a share of all peers, false negatives "
        "of the interested",
        ("setting", "false"),
        [f"{size:,}" for size in sizes],
        "The paper says, at 20,000 peers and ρ = 50 %: 14 % false positives, 5 % false negatives.",
    )
    for name, points in _by_name(result.graphs):
        metrics = [point.metrics for point in points]
        table.add_row(name, "positives", *(_percent(each.false_positive_ratio) for each in metrics))
        table.add_row("", "negatives", *(_percent(each.false_negative_ratio) for each in metrics))
    return table


def _graphs(result: SemanticResult) -> Table:
    largest = result.settings.peers[-1]
    table = plain_table(
        f"The graphs of {largest:,} peers",
        ("setting",),
        (
            *("degree\nmean", "degree\nmax", "precision", "hops\nmean", "hops\nmax"),
            *("duplicates/\npeer", "messages/\ndelivery", "build\nseconds", "route\nseconds"),
        ),
    )
    for point in result.graphs:
        if point.peers == largest:
            table.add_row(
                point.name,
                f"{point.degree_mean:.1f}",
                f"{point.degree_max:,}",
                f"{point.metrics.precision:.1%}",
                f"{point.metrics.hops:.1f}",
                f"{point.metrics.hops_max}",
                f"{point.metrics.duplicates_per_member:.2f}",
                f"{point.metrics.messages_per_delivery:.2f}",
                f"{point.build_seconds:.1f}",
                f"{point.route_seconds:.1f}",
            )
    return table


def _show_verdict(result: SemanticResult, out: Console) -> None:
    out.print(
        f"Checked: {result.workload.checked:,} matches by lxml; in {len(result.trees)} trees all "
        f"edges on all documents; some documents followed edge by edge, there and in "
        f"{len(result.graphs)} graphs."
    )
    for each in result.wrong:
        out.print(f"WRONG {each}", markup=False)
