"""The story of a report: sections with a sentence, tables and plots, told once for every medium.

A table is texts only; `terminal` shows sections without plots, `page` with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from peersub.pipeline.metrics import Measures
from peersub.pipeline.report import plots
from peersub.pipeline.report.content import FilterFigures, MatchFigures, Report

__all__ = ["Headline", "Section", "Table", "headlines", "sections", "verdicts"]

NONE: Final = "–"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts; the columns from `numbers_from` on are numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers_from: int = 1
    numbers_to: int = 1_000
    rows_first: int = 24
    """Rows that a medium without room shows."""
    notes: tuple[str, ...] = ()
    """For each row, what it means; or nothing."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the story; each plot is an SVG text with its title, or stands beside a table."""

    title: str
    text: str = ""
    tables: tuple[Table, ...] = ()
    plots: tuple[tuple[str, str], ...] = ()
    lines: tuple[str, ...] = ()
    """Commands, shown as they are."""


@dataclass(frozen=True, slots=True)
class Headline:
    """A number that comes first, and what it is."""

    number: str
    label: str


def headlines(report: Report) -> Iterator[Headline]:
    """The numbers that come first."""
    if report.match is not None:
        yield Headline(f"{report.match.events:,}", "events")
        yield Headline(f"{report.match.subscriptions:,}", "subscriptions")
        yield Headline(f"{report.match.deliveries:,}", "deliveries wanted")
    quarantined = sum(each.quarantined for each in report.inputs)
    if report.inputs:
        yield Headline(f"{quarantined:,}", "rows in quarantine")
    if report.overlays:
        yield Headline(f"{len(report.overlays)}", _plural(len(report.overlays), "overlay"))
    if any(measures.deliveries for measures in report.overlays):
        yield Headline(f"{report.findings_count:,}", "findings of the audit")


def verdicts(report: Report) -> Iterator[str]:
    """A sentence for each overlay that was audited."""
    for measures in report.overlays:
        counts = measures.deliveries
        if counts is None:
            continue
        wrong = [
            f"{count:,} {what}"
            for count, what in (
                (counts.missed, "missed"),
                (counts.spurious, "spurious"),
                (counts.duplicates, "duplicate"),
            )
            if count
        ]
        outcome = ", ".join(wrong) if wrong else "nothing missed, spurious or duplicate"
        yield (
            f"{measures.overlay}: {counts.delivered:,} delivered of {counts.expected:,} expected; "
            f"{outcome}."
        )


def sections(report: Report) -> Iterator[Section]:
    """The sections that there is something to say in."""
    if report.inputs:
        yield _inputs(report)
    if report.match is not None:
        yield _matched(report.match)
    if report.filters is not None:
        yield _filters(report.filters)
    if report.overlays:
        yield _compared(report.overlays)
        if any(measures.hops_histogram for measures in report.overlays):
            yield _hops(report.overlays)
        if any(measures.load for measures in report.overlays):
            yield _load(report.overlays)
    if report.causes or report.findings:
        yield _findings(report)
    yield from _about(report)


# --- sections ------------------------------------------------------------------------------------


def _inputs(report: Report) -> Section:
    table = Table(
        "Rows of the inputs",
        ("input", "from", "read", "usable", "in quarantine"),
        tuple(
            (each.name, each.place, f"{each.rows:,}", f"{each.usable:,}", f"{each.quarantined:,}")
            for each in report.inputs
        ),
        numbers_from=2,
    )
    tables = [table]
    if report.reasons:
        rows = tuple((each.dataset, each.reason, f"{each.rows:,}") for each in report.reasons)
        tables.append(Table("Most frequent reasons", ("input", "reason", "rows"), rows, 2))
    text = "Every row that was read is either used or in quarantine with its reason."
    return Section("Inputs", text, tuple(tables))


def _matched(match: MatchFigures) -> Section:
    text = (
        f"{match.deliveries:,} of {match.events * match.subscriptions:,} pairs of event and "
        f"subscription match: {match.share_matched:.4%}. "
        f"{match.events_unwanted:,} events are wanted by nobody, "
        f"{match.subscriptions_idle:,} subscriptions want none of these events."
    )
    tables, drawn = [], []
    for members, each, spread, nobody in (
        ("events", "event", match.by_event, match.events_unwanted),
        ("subscriptions", "subscription", match.by_subscription, match.subscriptions_idle),
    ):
        values = [("0", nobody), *((_range(at_least), count) for at_least, count in spread)]
        title = f"Deliveries per {each}"
        rows = tuple((name, f"{count:,}") for name, count in values)
        tables.append(Table(title, ("deliveries", members), rows))
        # The axis has no room for ranges.
        begins = [("0", nobody), *((plots.compact_text(least), count) for least, count in spread)]
        svg = plots.columns(title, begins, axis=f"deliveries per {each}, at least")
        drawn.append((f"{title}: how many {members} have so many", svg))
    return Section("Match", text, tuple(tables), tuple(drawn))


def _filters(filters: FilterFigures) -> Section:
    rows = (
        ("distinct filters", f"{filters.classes:,}"),
        ("covered by another", f"{filters.covered:,}"),
        ("covered by none", f"{filters.uncovered:,}"),
        ("coverings listed", f"{filters.coverings:,}"),
        ("links to similar filters", f"{filters.neighbours:,}"),
        ("filters that match no event of the sample", f"{filters.unmeasured:,}"),
        ("recall of the nearest neighbours", f"{filters.recall:.1%}"),
    )
    notes = (
        "equal filters count once",
        "some other filter matches all that it matches",
        "what a network that covers has to know",
        "the most selective ones for each filter",
        "the most similar ones for each filter",
        "their similarity cannot be measured",
        "against all pairs, for some that were drawn",
    )
    text = "How the filters relate to each other, on a sample of the events."
    return Section("Filters", text, (Table("Filters", ("figure", "value"), rows, notes=notes),))


def _range(at_least: int) -> str:
    """From a power of two to before the next.

    >>> _range(1), _range(4)
    ('1', '4–7')
    """
    return str(at_least) if at_least == 1 else f"{at_least}–{2 * at_least - 1}"


_Figure = tuple[str, str, Callable[[Measures], float | None], str]
_FIGURES: Final[tuple[_Figure, ...]] = (
    ("expected", "deliveries that should have come", lambda m: _of(m, "expected"), ","),
    ("delivered", "deliveries that came to who wanted them", lambda m: _of(m, "delivered"), ","),
    ("missed", "expected, and did not come", lambda m: _of(m, "missed"), ","),
    ("spurious", "came to who did not want them", lambda m: _of(m, "spurious"), ","),
    ("duplicates", "came once more", lambda m: _of(m, "duplicates"), ","),
    ("excused", "wanted, but promised by nobody", lambda m: _of(m, "excused"), ","),
    ("hit ratio", "1 − missed / expected", lambda m: _of(m, "hit_ratio"), ".2%"),
    (
        "false-negative ratio",
        "missed / expected",
        lambda m: _of(m, "false_negative_ratio"),
        ".2%",
    ),
    (
        "false-positive ratio",
        "receivers that want nothing of it / all nodes, mean over events",
        lambda m: _of(m, "false_positive_ratio", "routing"),
        ".2%",
    ),
    (
        "relay share",
        "receivers that want nothing of it / receivers",
        lambda m: _of(m, "relay_share", "routing"),
        ".2%",
    ),
    ("hops, mean", "links per delivery", lambda m: _of(m, "mean", "hops"), ".2f"),
    ("hops, p50", "half of the deliveries need no more", lambda m: _of(m, "p50", "hops"), ","),
    ("hops, p99", "99 of 100 need no more", lambda m: _of(m, "p99", "hops"), ","),
    ("hops, largest", "", lambda m: _of(m, "largest", "hops"), ","),
    ("messages", "that carry events", lambda m: _of(m, "messages", "routing"), ","),
    (
        "messages per event",
        "messages / events",
        lambda m: _of(m, "messages_per_event", "routing"),
        ".2f",
    ),
    (
        "messages per delivery",
        "messages / deliveries to subscriptions",
        lambda m: _of(m, "messages_per_delivery", "routing"),
        ".3f",
    ),
    (
        "copies per receiver",
        "messages / nodes that want it; 1 is best",
        lambda m: _of(m, "copies_per_receiver", "routing"),
        ".2f",
    ),
    (
        "repeated receipts",
        "messages that brought a node what it had",
        lambda m: _of(m, "repeated_receipts", "routing"),
        ",",
    ),
    (
        "load, Gini",
        "0: all nodes alike; near 1: one bears all",
        lambda m: _of(m, "gini", "load"),
        ".3f",
    ),
    ("load, largest / mean", "", lambda m: _of(m, "largest_over_mean", "load"), ".2f"),
    ("load, Jain", "1: all nodes alike", lambda m: _of(m, "jain", "load"), ".3f"),
)


def _of(measures: Measures, name: str, part: str = "deliveries") -> float | None:
    figures = getattr(measures, part)
    return None if figures is None else getattr(figures, name)


def _compared(overlays: Sequence[Measures]) -> Section:
    rows, notes = [], []
    for label, note, value_of, form in _FIGURES:
        values = [value_of(measures) for measures in overlays]
        if all(value is None for value in values):
            continue
        rows.append((label, *(NONE if v is None else f"{v:{form}}" for v in values)))
        notes.append(note)
    names = tuple(measures.overlay for measures in overlays)
    table = Table("Overlays compared", ("figure", *names), tuple(rows), notes=tuple(notes))
    drawn = []
    for title, name, part, factor, unit in (
        ("Messages per event", "messages_per_event", "routing", 1, ""),
        ("Copies per receiver (best: 1)", "copies_per_receiver", "routing", 1, ""),
        ("Relay share", "relay_share", "routing", 100, " %"),
        ("False-positive ratio", "false_positive_ratio", "routing", 100, " %"),
        ("False-negative ratio", "false_negative_ratio", "deliveries", 100, " %"),
    ):
        figures = ((each.overlay, _of(each, name, part)) for each in overlays)
        known = [(overlay, value * factor) for overlay, value in figures if value is not None]
        if known:
            drawn.append((title, plots.bars(title, known, unit=unit)))
    title = "Overlays" if len(overlays) > 1 else "Overlay"
    return Section(title, "", (table,), tuple(drawn))


def _hops(overlays: Sequence[Measures]) -> Section:
    tables, drawn = [], []
    shown = [each for each in overlays if each.hops_histogram]
    largest = max(each.hops_histogram[-1][0] for each in shown)
    for number, measures in enumerate(overlays):
        if not measures.hops_histogram:
            continue
        counted = dict(measures.hops_histogram)
        values = [(str(hops), counted.get(hops, 0)) for hops in range(largest + 1)]
        title = f"Deliveries by hops: {measures.overlay}"
        drawn.append((title, plots.columns(title, values, series=number, axis="hops")))
    everybody = [dict(each.hops_histogram) for each in shown]
    hops_seen = sorted({hops for counts in everybody for hops in counts})
    rows = tuple(
        (str(hops), *(f"{counts.get(hops, 0):,}" for counts in everybody)) for hops in hops_seen
    )
    names = tuple(each.overlay for each in shown)
    tables.append(Table("Deliveries by hops", ("hops", *names), rows, 0))
    text = "Links that a delivery came over; 0 is a subscriber on the publisher's own node."
    return Section("Hops", text, tuple(tables), tuple(drawn))


def _load(overlays: Sequence[Measures]) -> Section:
    loads = [(each.overlay, each.load) for each in overlays if each.load is not None]
    title = "Load of nodes"
    curves = [(name, load.curve, load.gini) for name, load in loads]
    rows = tuple(
        (
            name,
            f"{load.nodes:,}",
            f"{load.mean:,.1f}",
            f"{load.largest:,}",
            f"{load.largest_over_mean:.2f}",
            f"{load.gini:.3f}",
            f"{load.jain:.3f}",
        )
        for name, load in loads
    )
    names = ("overlay", "nodes", "mean", "largest", "largest / mean", "Gini", "Jain")
    text = (
        "Messages with events that nodes receive. The curve shows which share of them the least "
        "busy nodes bear; on the straight line all nodes bear the same."
    )
    table = Table("Messages received per node", names, rows)
    return Section("Load", text, (table,), ((title, plots.lorenz_curves(title, curves)),))


def _findings(report: Report) -> Section:
    tables = []
    if report.causes:
        counted = tuple(
            (each.overlay, each.finding, each.cause or NONE, f"{each.findings:,}")
            for each in report.causes
        )
        columns = ("overlay", "finding", "cause", "findings")
        tables.append(Table("Causes, the most frequent first", columns, counted, 3))
    if report.findings:
        listed = tuple(
            (
                each.overlay,
                each.finding,
                each.event_id,
                each.subscription_id,
                each.node or NONE,
                NONE if each.copies is None else f"{each.copies:,}",
                each.cause or NONE,
            )
            for each in report.findings
        )
        names = ("overlay", "finding", "event", "subscription", "node", "copies", "cause")
        title = f"The first {len(listed):,} of {report.findings_count:,} findings"
        tables.append(Table(title, names, listed, 5, 6, rows_first=10))
    text = (
        "Missed: expected and not delivered. Spurious: delivered and not wanted. Duplicate: "
        "delivered once more. Excused: wanted and not delivered, when nobody had promised it."
    )
    return Section("Findings of the audit", text, tuple(tables))


def _about(report: Report) -> Iterator[Section]:
    tables = []
    if report.steps:
        rows = tuple(
            (
                step.name,
                NONE if step.rows is None else f"{step.rows:,}",
                NONE if step.seconds is None else f"{step.seconds:,.1f}",
            )
            for step in report.steps
        )
        tables.append(Table("Steps", ("step", "rows written", "seconds"), rows))
    if report.settings:
        tables.append(Table("Settings", ("setting", "value"), report.settings, 2))
    if tables:
        yield Section("How it was made", "", tuple(tables))
    if report.reproduce:
        text = "The same inputs and settings give the same datasets."
        yield Section("How to reproduce it", text, lines=report.reproduce)


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"
