"""The comparison of routing strategies, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from math import inf, log10
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from peersub.bench.harness import stdout_console
from peersub.bench.routing import MEASURES, BeyondRow, RoutingResult, Standing
from peersub.bench.routing_costs import CostLine, Span, cheapest, crossover, crossovers
from peersub.bench.routing_trials import TrialResult

__all__ = ["as_json", "chart", "cheaper_at", "exit_code", "in_words", "show"]

_WIDTH = 120
_BASE = "covering"
"""The default strategy: others are compared with it."""
_LARGE = 100_000
"""Totals from here on are shown in thousands."""
_CHART_WIDTH = 81
_CHART_HEIGHT = 13
_CHART_FACTOR_MAX = 10.0
"""Contenders that cost more than so many times the cheapest are off the chart."""
_SYMBOLS = "0123456789abcdefghijklmnopqrstuvwxyz"


def exit_code(result: RoutingResult) -> int:
    """0 if every delivery was right and the arithmetic holds, 1 if not."""
    return 0 if result.is_good else 1


# --- for programs --------------------------------------------------------------------------------


def as_json(result: RoutingResult) -> dict[str, Any]:
    """The result as plain data, ready for `json.dumps`."""
    return {
        "settings": asdict(result.settings),
        "standings": [_standing_json(each, result.settings.ratios) for each in result.standings],
        "crossovers": [
            {
                "subscriptions": subscription_skew,
                "events": event_skew,
                "measure": measure,
                "over": over,
                "cheapest": [_span_json(span) for span in cheapest(lines)],
                "crossovers": [asdict(each) for each in crossovers(lines)],
            }
            for subscription_skew, event_skew in _pairs(result)
            for measure in MEASURES
            for over, lines in _fields(result, subscription_skew, event_skew, measure)
        ],
        "mixed": [
            asdict(mix) | {"deviation": mix.deviation, "ok": mix.is_good} for mix in result.mixes
        ],
        "beyond_the_paper": [_beyond_json(row) for row in result.beyond],
        "checks": _checks(result.trials),
        "ok": result.is_good,
    }


def _standing_json(standing: Standing, ratios: Sequence[float]) -> dict[str, Any]:
    messages, in_bytes = standing.line("messages"), standing.line("bytes")
    changes = max(standing.result.changes, 1)
    return {
        "name": standing.name,
        "overlay": standing.result.trial.contender.overlay,
        "settings": dict(standing.result.trial.contender.settings),
        "subscriptions": standing.subscription_skew,
        "events": standing.event_skew,
        "updates_per_change": messages.per_change,
        "confirmations_per_change": standing.result.confirmations / changes,
        "bytes_per_change": in_bytes.per_change,
        "notifications_per_event": messages.per_event,
        "bytes_per_event": in_bytes.per_event,
        **_reached_json(standing.result, standing.events),
        "totals": [
            {"ratio": ratio, "messages": messages.at(ratio), "bytes": in_bytes.at(ratio)}
            for ratio in ratios
        ],
    }


def _reached_json(result: TrialResult, events: Any) -> dict[str, Any]:
    return {
        "relay_share": events.relay_share,
        "interested_per_event": events.matching_receivers / max(events.events, 1),
        "depth_mean": events.depth_mean,
        "depth_max": events.depth_max,
        "table_bytes_per_node": result.table_bytes_mean,
        "table_bytes_max": result.table_bytes_max,
        "rows_per_edge": result.rows_per_edge,
        "load_max_over_mean": result.load_max_over_mean,
    }


def _beyond_json(row: BeyondRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "world": row.world,
        "share": row.share,
        "notifications_per_event": row.events.notifications / max(row.events.events, 1),
        "updates_per_change": row.result.updates / max(row.result.changes, 1),
        **_reached_json(row.result, row.events),
    }


def _span_json(span: Span) -> dict[str, Any]:
    """JSON has no infinity."""
    return {"name": span.name, "from": span.start, "to": None if span.end == inf else span.end}


def _checks(trials: Sequence[TrialResult]) -> dict[str, Any]:
    totals: dict[str, Any] = {
        name: sum(getattr(trial, name) for trial in trials)
        for name in ("expected", "missed", "spurious", "duplicate", "invariant_checks")
    }
    wrong = [
        {"trial": trial.trial.title, "violations": list(trial.violations)}
        for trial in trials
        if not trial.is_good
    ]
    return {"trials": len(trials), **totals, "wrong": wrong}


def _pairs(result: RoutingResult) -> Iterator[tuple[str, str]]:
    for subscription_skew in result.settings.skews:
        for event_skew in result.settings.skews:
            yield subscription_skew, event_skew


def _fields(
    result: RoutingResult, subscription_skew: str, event_skew: str, measure: str
) -> Iterator[tuple[str, list[CostLine]]]:
    """The strategies over Chord among themselves, and all contenders."""
    lines = result.lines(subscription_skew, event_skew, measure)
    over_chord = [each.name for each in result.settings.chosen if each.overlay == "chord"]
    yield "chord", [line for line in lines if line.name in over_chord]
    if len(over_chord) < len(lines):
        yield "all", lines


# --- for people ----------------------------------------------------------------------------------


def show(result: RoutingResult, console: Console | None = None) -> None:
    """Print the tables, who is cheapest where, a chart, and what the checks found."""
    out = console or stdout_console(_WIDTH)
    settings = result.settings
    out.print(
        f"{settings.nodes} nodes, {settings.subscriptions} subscriptions, seed {settings.seed}; "
        f"{settings.changes} changes and {settings.events} events per trial. A change is an "
        f"unsubscribe and a subscribe."
    )
    out.print(_strategies_table(result))
    if _BASE in [each.name for each in settings.chosen]:
        out.print(_crossovers_table(result))
    for subscription_skew, event_skew in _pairs(result):
        out.print(f"[bold]{subscription_skew} subscriptions, {event_skew} events[/bold]")
        for measure in MEASURES:
            for over, lines in _fields(result, subscription_skew, event_skew, measure):
                field = "over Chord" if over == "chord" else "of all"
                text = f"  cheapest {field}, in {measure}: {in_words(cheapest(lines))}"
                out.print(text, markup=False, soft_wrap=True)
    first = next(_pairs(result))
    out.print(f"\n[bold]messages per change, {first[0]} subscriptions, {first[1]} events[/bold]")
    out.print(chart(result.lines(*first, "messages")), markup=False, soft_wrap=True)
    if result.mixes:
        out.print(_mixes_table(result))
    if result.beyond:
        out.print(_beyond_table(result))
    _show_verdict(result, out)


def _strategies_table(result: RoutingResult) -> Table:
    ratios = result.settings.ratios
    table = Table(
        title="Filter updates against notifications; on the right both added up, per change, at "
        "each ratio of\nevents to changes (* least over Chord)",
        caption="A section is a distribution of subscriptions × one of events.",
        caption_justify="left",
        title_justify="left",
        box=box.SIMPLE,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("strategy", no_wrap=True)
    columns = ("updates/\nchange", "KB/\nchange", "notify/\nevent", "relay\nshare")
    for column in (*columns, "table\nKB/node", "rows/\nedge", "busiest/\nmean"):
        table.add_column(column, justify="right", no_wrap=True)
    for ratio in ratios:
        table.add_column(f"{ratio:g}:1", justify="right", no_wrap=True)
    for subscription_skew, event_skew in _pairs(result):
        table.add_section()
        table.add_row(f"[bold]{subscription_skew} × {event_skew}[/bold]")
        _, over_chord = next(_fields(result, subscription_skew, event_skew, "messages"))
        least = [min((line.at(ratio) for line in over_chord), default=0.0) for ratio in ratios]
        names = [line.name for line in over_chord]
        for standing in result.standings:
            if (standing.subscription_skew, standing.event_skew) == (subscription_skew, event_skew):
                is_ranked = standing.name in names
                table.add_row(*_standing_cells(standing, ratios, least if is_ranked else []))
    return table


def _standing_cells(
    standing: Standing, ratios: Sequence[float], least: Sequence[float]
) -> Iterator[str]:
    messages, result, events = standing.line("messages"), standing.result, standing.events
    yield standing.name
    yield f"{messages.per_change:,.1f}"
    yield f"{standing.line('bytes').per_change / 1000:,.1f}"
    yield f"{messages.per_event:,.1f}"
    yield f"{events.relay_share:.0%}"
    yield f"{result.table_bytes_mean / 1000:,.1f}"
    yield f"{result.rows_per_edge:,.1f}"
    yield f"{result.load_max_over_mean:.1f}"
    for place, ratio in enumerate(ratios):
        total = messages.at(ratio)
        mark = "*" if least and total <= least[place] else ""
        yield mark + (f"{total / 1000:,.0f}k" if total >= _LARGE else f"{total:,.0f}")


def _crossovers_table(result: RoutingResult) -> Table:
    table = Table(
        title=f"Events per change at which a row is cheaper than {_BASE}",
        caption="Columns: messages, bytes; a distribution of subscriptions × one of events.",
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("strategy", no_wrap=True)
    columns: list[dict[str, CostLine]] = []
    for measure in MEASURES:
        for subscription_skew, event_skew in _pairs(result):
            heading = f"{measure}\n{subscription_skew}\n× {event_skew}"
            table.add_column(heading, justify="right", no_wrap=True)
            lines = result.lines(subscription_skew, event_skew, measure)
            columns.append({line.name: line for line in lines})
    for contender in result.settings.chosen:
        if contender.name != _BASE:
            cells = [cheaper_at(lines[contender.name], lines[_BASE]) for lines in columns]
            table.add_row(contender.name, *cells)
    return table


def cheaper_at(line: CostLine, base: CostLine) -> str:
    """At which ratios the one costs less than the other.

    >>> cheaper_at(CostLine("merging", 50.0, 30.0), CostLine("covering", 100.0, 20.0))
    '< 5'
    >>> cheaper_at(CostLine("simple", 300.0, 20.0), CostLine("covering", 100.0, 20.0))
    'never'
    """
    found = crossover(line, base)
    if found is not None:
        return f"{'<' if found.below == line.name else '>'} {found.ratio:.3g}"
    return "always" if line.at(1) < base.at(1) else "never"


def in_words(spans: Sequence[Span]) -> str:
    """Who is cheapest up to which ratio.

    >>> in_words([Span("flood", 0.0, 0.25), Span("covering", 0.25, inf)])
    'flood up to 0.25 events per change, then covering'
    """
    if not spans:
        return "nobody"
    parts = [f"{span.name} up to {span.end:.3g}" for span in spans[:-1]]
    if not parts:
        return f"{spans[-1].name} at every ratio"
    parts[0] += " events per change"
    return ", then ".join([*parts, spans[-1].name])


def chart(lines: Sequence[CostLine], low: float = 0.01, high: float = 1000.0) -> str:
    """Each contender's cost over the ratio, as a multiple of the cheapest; both scales log.

    A digit stands for a contender; the one that is listed first is on top where two meet.
    """
    shown = [line for line in lines if line.per_change or line.per_event]
    if not shown:
        return ""
    grid = [[" "] * _CHART_WIDTH for _ in range(_CHART_HEIGHT)]
    span = log10(high / low)
    for column in range(_CHART_WIDTH):
        ratio = low * 10 ** (span * column / (_CHART_WIDTH - 1))
        least = min(line.at(ratio) for line in shown)
        for number, line in reversed(list(enumerate(shown))):
            factor = line.at(ratio) / least
            if factor <= _CHART_FACTOR_MAX:
                row = round(log10(factor) / log10(_CHART_FACTOR_MAX) * (_CHART_HEIGHT - 1))
                grid[row][column] = _SYMBOLS[number % len(_SYMBOLS)]
    step = log10(_CHART_FACTOR_MAX) / (_CHART_HEIGHT - 1)
    rows = [
        f"{10 ** (step * row):4.1f}x |{''.join(grid[row]).rstrip()}"
        for row in range(_CHART_HEIGHT - 1, -1, -1)
    ]
    marks = [" "] * (_CHART_WIDTH + 8)
    power = round(log10(low))
    while power <= log10(high) + 1e-9:
        column = round((power - log10(low)) / span * (_CHART_WIDTH - 1))
        text = f"{10.0**power:g}"
        marks[column : column + len(text)] = text
        power += 1
    names = [f"{_SYMBOLS[n % len(_SYMBOLS)]} {line.name}" for n, line in enumerate(shown)]
    legend = "\n       ".join("   ".join(names[n : n + 5]) for n in range(0, len(names), 5))
    axis = "      +" + "-" * _CHART_WIDTH
    return "\n".join(
        [*rows, axis, f"       {''.join(marks).rstrip()}  events per change", f"       {legend}"]
    )


def _mixes_table(result: RoutingResult) -> Table:
    table = Table(
        title="Changes and events at the same time: messages per change",
        title_justify="left",
        box=box.SIMPLE,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("strategy", no_wrap=True)
    for column in ("events:changes", "predicted", "measured", "deviation", "within"):
        table.add_column(column, justify="right")
    for mix in result.mixes:
        table.add_row(
            mix.name,
            f"{mix.ratio:g}:1",
            f"{mix.predicted:,.1f}",
            f"{mix.measured:,.1f}",
            f"{mix.deviation:+.1%}",
            f"{mix.tolerance:.0%}" if mix.is_good else "NO",
        )
    return table


def _beyond_table(result: RoutingResult) -> Table:
    table = Table(
        title="Beyond the paper: exact sub-arcs on rows, keys placed by interest (covering, one "
        "subscription per node)",
        title_justify="left",
        box=box.SIMPLE,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("option", no_wrap=True)
    for column in (
        "wanted by",
        "notify/\nevent",
        "relay\nshare",
        "depth\nmean",
        "depth\nmax",
        "table\nKB/node",
        "updates/\nchange",
        "busiest/\nmean",
    ):
        table.add_column(column, justify="right")
    world = None
    for row in result.beyond:
        if world != (row.world, row.share):
            world = (row.world, row.share)
            table.add_section()
            table.add_row(f"[bold]{row.share:.1%} interest, {row.world}[/bold]")
        events, trial = row.events, row.result
        count = max(events.events, 1)
        table.add_row(
            row.name,
            f"{events.matching_receivers / count:.1f}",
            f"{events.notifications / count:.1f}",
            f"{events.relay_share:.0%}",
            f"{events.depth_mean:.1f}",
            f"{events.depth_max}",
            f"{trial.table_bytes_mean / 1000:,.1f}",
            f"{trial.updates / max(trial.changes, 1):,.0f}",
            f"{trial.load_max_over_mean:.1f}",
        )
    return table


def _show_verdict(result: RoutingResult, out: Console) -> None:
    checks = _checks(result.trials)
    out.print(
        "{trials} trials, {expected:,} deliveries expected: {missed} missed, {spurious} spurious, "
        "{duplicate} duplicate".format(**checks)
    )
    for wrong in checks["wrong"]:
        out.print(f"WRONG {wrong['trial']}", markup=False)
        for violation in wrong["violations"]:
            out.print(f"  {violation}", markup=False)
    for mix in result.mixes:
        if not mix.is_good:
            text = f"WRONG {mix.name} at {mix.ratio:g}:1 is {mix.deviation:+.1%} off the arithmetic"
            out.print(text, markup=False)
