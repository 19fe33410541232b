"""`peersub match`: every event of a file against every subscription of another, in this process.

Events stream through in batches, so memory holds the subscriptions and one batch. Every row of both
files is either used or reported: without `--skip-bad` the first bad rows end the command before
anything is matched in vain; with it they go to quarantine and the exit code says so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from peersub.cli.failures import CommandError, ExitCode
from peersub.cli.output import note, print_json, warn
from peersub.cli.progress import Progress, progress_bar
from peersub.files.deliveries import Deliver, Deliveries, check_output, deliveries_to
from peersub.files.errors import BadRow, FileError, one_line
from peersub.files.formats import STANDARD_INPUT, Format, format_named

if TYPE_CHECKING:
    import pyarrow as pa

    from peersub import Matcher
    from peersub.events.arrow import Schema
    from peersub.files.events import EventSource
    from peersub.files.subscriptions import SubscriptionList

__all__ = ["MatchOptions", "Summary", "event_source", "match_files", "run_match"]

BAD_ROWS_SHOWN: Final = 5
BULK_FROM: Final = 4_096
"""From so many subscriptions on they are parsed and compiled in one go."""
EVENTS_AT_FIRST: Final = 1_024
EVENTS_AT_ONCE_MAX: Final = 1 << 16
EVENTS_FOR_A_RATE: Final = 10_000
SMALL_JOB_S: Final = 3.0
PAIRS_MAX: Final = 1 << 20
"""Deliveries that are held at once, about."""
LINTED_MAX: Final = 1_000
"""Subscriptions without a delivery that are looked at for the reason."""
WARNINGS_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchOptions:
    """The options of the command, as given."""

    subscriptions: str
    events: str
    out: str | None = None
    events_format: str | None = None
    subscriptions_format: str | None = None
    records: str | None = None
    schema: str | None = None
    body_column: str = "body"
    skip_bad: bool = False
    quarantine: str | None = None
    threads: int | None = None
    quiet: bool = False
    as_json: bool = False


@dataclass(slots=True)
class Summary:
    """What a run did; `seconds` is the time of matching, without building."""

    events: int = 0
    subscriptions: int = 0
    deliveries: int = 0
    bad_events: int = 0
    bad_subscriptions: int = 0
    build_seconds: float = 0.0
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)

    @property
    def code(self) -> ExitCode:
        """The exit code that tells what happened."""
        if self.bad_events or self.bad_subscriptions:
            return ExitCode.QUARANTINE
        return ExitCode.DONE if self.deliveries else ExitCode.NO_MATCH

    def as_dict(self) -> dict[str, Any]:
        """The summary for `--json`."""
        names = ("events", "subscriptions", "deliveries", "bad_events", "bad_subscriptions")
        counts = {name: getattr(self, name) for name in names}
        rate = self.events / self.seconds if self.seconds else None
        return counts | {
            "build_seconds": round(self.build_seconds, 3),
            "seconds": round(self.seconds, 3),
            "events_per_second": None if rate is None else round(rate),
            "warnings": self.warnings,
        }

    def line(self) -> str:
        """The summary in one line."""
        bad = self.bad_events + self.bad_subscriptions
        # Of a few events it would be the time of loading.
        known = self.seconds > 0 and self.events >= EVENTS_FOR_A_RATE
        rate = f", {self.events / self.seconds:,.0f} events/s" if known else ""
        return (
            f"{self.events:,} events x {self.subscriptions:,} subscriptions: "
            f"{self.deliveries:,} deliveries{rate}" + (f"; {bad:,} rows skipped" if bad else "")
        )


def chosen_format(name: str | None, option: str) -> Format | None:
    """The format that an option names."""
    if name is None:
        return None
    try:
        return format_named(name)
    except ValueError as error:
        raise CommandError(f"{option}: {error}.") from None


def event_source(
    name: str, events_format: str | None, records: str | None, schema: str | None
) -> EventSource:
    """Where the events come from, by the options that all commands share."""
    from peersub.files.events import EventSource, kinds_of_text

    try:
        kinds = kinds_of_text(schema or "")
    except ValueError as error:
        raise CommandError(f"--schema: {error}.") from None
    return EventSource(name, chosen_format(events_format, "--events-format"), records, kinds)


def run_match(options: MatchOptions) -> int:
    """Run the command; the result is its exit code."""
    summary = match_files(options)
    _report(options, summary)
    return summary.code


def match_files(options: MatchOptions) -> Summary:
    """Match the events of a file against the subscriptions of another; write the deliveries."""
    inputs = [options.subscriptions, options.events]
    if inputs.count(STANDARD_INPUT) > 1:
        raise CommandError("only one of --subscriptions and --events can be -. Name a file.")
    source = event_source(options.events, options.events_format, options.records, options.schema)
    check_output(options.out, inputs)
    summary = Summary()
    with _quarantine(options) as bad_row:
        subscriptions, matcher = _subscriptions(options, summary, bad_row)
        with deliveries_to(options.out, inputs) as deliver:
            matching = _Matching(options, summary, matcher, deliver)
            matching.run(source, _counted(summary, "bad_events", bad_row or _refuse_event))
    if not options.quiet:
        _warn_of_silence(summary, subscriptions, matching)
    return summary


def _report(options: MatchOptions, summary: Summary) -> None:
    if not options.as_json:
        if not options.quiet:
            note(f"peersub: {summary.line()}")
        return
    if options.out is None or options.out == STANDARD_INPUT:
        note(json.dumps(summary.as_dict()))
    else:
        print_json(summary.as_dict())


# --- bad rows ----------------------------------------------------------------------------------

Report = Callable[[BadRow], None]


@contextmanager
def _quarantine(options: MatchOptions) -> Iterator[Report | None]:
    """Where skipped rows go: to a file or to stderr; None if no row may be skipped."""
    if not options.skip_bad:
        if options.quarantine is not None:
            raise CommandError("--quarantine is for skipped rows. Add --skip-bad.")
        yield None
    elif options.quarantine is None:
        yield lambda row: note(f"peersub: skipped: {row.one_line()} | {one_line(row.original)}")
    else:
        with _quarantine_file(options) as report:
            yield report


@contextmanager
def _quarantine_file(options: MatchOptions) -> Iterator[Report]:
    name = options.quarantine
    assert name is not None
    if name in (options.subscriptions, options.events, options.out):
        raise FileError(name, "the quarantine is also an input or the output", "Name another file.")

    def report(row: BadRow) -> None:
        entry = {"file": row.name, "place": row.place, "reason": row.reason}
        stream.write(json.dumps(entry | {"original": row.original}) + "\n")

    try:
        with open(name, "w", encoding="utf-8") as stream:
            yield report
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileError(name, f"it cannot be written ({reason})", "Check --quarantine.") from None


def _refuse_event(row: BadRow) -> None:
    raise CommandError(f"{row.one_line()} {_SKIPPING}")


_SKIPPING = "(--skip-bad goes on without such rows.)"


@contextmanager
def _refusing() -> Iterator[Report]:
    """Collects some bad rows, to show more than one, and then ends the command."""
    found: list[BadRow] = []

    def report(row: BadRow) -> None:
        found.append(row)
        if len(found) == BAD_ROWS_SHOWN:
            raise _refusal(found)

    yield report
    if found:
        raise _refusal(found)


def _refusal(found: list[BadRow]) -> CommandError:
    for row in found[:-1]:
        note(f"peersub: error: {row.one_line()}")
    more = " There may be more." if len(found) == BAD_ROWS_SHOWN else ""
    return CommandError(f"{found[-1].one_line()} {_SKIPPING}{more}")


def _counted(summary: Summary, name: str, report: Report) -> Report:
    def counted(row: BadRow) -> None:
        setattr(summary, name, getattr(summary, name) + 1)
        report(row)

    return counted


# --- subscriptions -----------------------------------------------------------------------------


def _subscriptions(
    options: MatchOptions, summary: Summary, bad_row: Report | None
) -> tuple[SubscriptionList, Matcher]:
    from peersub.files.subscriptions import read_subscriptions

    started = time.perf_counter()
    given = chosen_format(options.subscriptions_format, "--subscriptions-format")
    # Bad subscriptions end the command before any event is read, unless they may be skipped.
    with _refusing() if bad_row is None else nullcontext(bad_row) as report:
        counted = _counted(summary, "bad_subscriptions", report)
        subscriptions = read_subscriptions(options.subscriptions, given, counted)
        with progress_bar("Subscriptions", quiet=options.quiet) as progress:
            matcher = build_matcher(subscriptions, counted, progress)
    summary.subscriptions = len(matcher)
    summary.build_seconds = time.perf_counter() - started
    return subscriptions, matcher


def build_matcher(subscriptions: SubscriptionList, report: Report, progress: Progress) -> Matcher:
    """A matcher of the subscriptions; those whose filter is refused are reported."""
    from peersub import Filter, FilterError, Matcher

    matcher = Matcher()
    sql = [row for row, language in enumerate(subscriptions.languages) if language == "sql"]
    if len(sql) >= BULK_FROM:
        matcher = _bulk_matcher(subscriptions, sql, report, progress)
        rest = [row for row, language in enumerate(subscriptions.languages) if language != "sql"]
    else:
        rest = list(range(len(subscriptions)))
    for row in rest:
        make = Filter.xpath if subscriptions.languages[row] == "xpath" else Filter
        try:
            matcher.add(subscriptions.ids[row], make(subscriptions.texts[row]))
        except FilterError as error:
            report(subscriptions.bad(row, error.one_line()))
    return matcher


def _bulk_matcher(
    subscriptions: SubscriptionList, rows: list[int], report: Report, progress: Progress
) -> Matcher:
    from peersub import Filter, FilterError, Matcher

    def build(chosen: list[int]) -> Matcher:
        return Matcher.from_texts(
            [subscriptions.ids[row] for row in chosen],
            [subscriptions.texts[row] for row in chosen],
            progress=lambda done: progress.update(done, len(chosen), f"{done:,} parsed"),
        )

    try:
        return build(rows)
    except FilterError:
        pass  # the first bad one; look at all of them
    good = []
    for row in rows:
        try:
            Filter(subscriptions.texts[row])
        except FilterError as error:
            report(subscriptions.bad(row, error.one_line()))
        else:
            good.append(row)
    return build(good)


# --- matching ----------------------------------------------------------------------------------


class _Matching:
    """Batch after batch: match, name the events that matched, write the deliveries."""

    def __init__(
        self, options: MatchOptions, summary: Summary, matcher: Matcher, deliver: Deliver
    ) -> None:
        from peersub.files.event_names import EventNames

        self.options, self.summary = options, summary
        self.matcher, self.deliver = matcher, deliver
        self.names = EventNames()
        self.delivered: set[str] = set()
        self.schema: Schema = {}
        self.step = EVENTS_AT_FIRST
        self.started = time.perf_counter()

    def run(self, source: EventSource, report: Report) -> None:
        from peersub.events.arrow import joined_schemas, schema_of_table
        from peersub.files.events import read_events

        self.started = time.perf_counter()
        with progress_bar("Events", quiet=self.options.quiet) as progress:
            for table in read_events(source, report):
                self.schema = joined_schemas((self.schema, schema_of_table(table)))
                start = 0
                while start < table.num_rows:
                    # A table without columns believes any length.
                    step = min(self.step, table.num_rows - start)
                    self.match(table.slice(start, step))
                    start += step
                    position, done = source.position, self.summary.events
                    progress.update(position.done, position.total, f"{done:,} events")
        self.summary.seconds = time.perf_counter() - self.started

    def match(self, table: pa.Table) -> None:
        found = self.matcher.match_batch(
            table, threads=self.options.threads, body_column=self.options.body_column
        )
        rows, deliveries = _ordered(found)
        try:
            names = self.names.names(table, rows)
        except ValueError as error:
            raise FileError(self.options.events, str(error)) from None
        count = len(deliveries.event_of)
        if count:
            self.deliver(replace(deliveries, events=names))
        self.delivered.update(deliveries.subscriptions)
        self.summary.events += table.num_rows
        self.summary.deliveries += count
        # Few events at a time where each has many deliveries, many where it has few.
        if count > PAIRS_MAX:
            self.step = max(1, self.step // 2)
        elif count < PAIRS_MAX // 4 and self.step < EVENTS_AT_ONCE_MAX and self.worth_compiling():
            self.step *= 2

    def worth_compiling(self) -> bool:
        """Whether large batches pay: the matcher compiles its index for them.

        On first use that takes longer than many a small job takes without.
        """
        compiled = self.summary.subscriptions >= BULK_FROM
        return compiled or time.perf_counter() - self.started > SMALL_JOB_S


def _ordered(found: pa.Table) -> tuple[list[int], Deliveries]:
    """The rows that matched, and who gets them: by event, then by subscription.

    The same deliveries are always the same file. The events are not named yet.
    """
    import numpy as np

    rows = found.column("event_row").to_numpy()
    column = found.column("subscription_id").unify_dictionaries().combine_chunks()
    used, places = np.unique(column.indices.to_numpy(), return_inverse=True)
    names = column.dictionary.take(used).to_pylist()
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = np.empty(len(names), np.int64)
    rank[order] = np.arange(len(names))
    keys = np.sort(rows * max(len(names), 1) + rank[places])
    matched, event_of = np.unique(keys // max(len(names), 1), return_inverse=True)
    subscription_of = keys % max(len(names), 1)
    ordered_names = [names[place] for place in order]
    return matched.tolist(), Deliveries(
        [], ordered_names, event_of.tolist(), subscription_of.tolist()
    )


# --- warnings ----------------------------------------------------------------------------------


def _warn_of_silence(
    summary: Summary, subscriptions: SubscriptionList, matching: _Matching
) -> None:
    """Name subscriptions that got nothing because they never can, given what the events hold."""
    if summary.events == 0:
        _warning(summary, "there were no events. Check --events.")
        return
    silent = [
        row
        for row, name in enumerate(subscriptions.ids)
        if name not in matching.delivered and subscriptions.languages[row] == "sql"
    ]
    found = [
        (subscriptions.ids[row], reason)
        for row in silent[:LINTED_MAX]
        for reason in never_matching(subscriptions.texts[row], matching.schema)[:1]
    ]
    for name, reason in found[:WARNINGS_SHOWN]:
        _warning(summary, f"subscription {name!r} can never match these events: {reason}")
    if len(found) > WARNINGS_SHOWN:
        _warning(summary, f"so can {len(found) - WARNINGS_SHOWN:,} more subscriptions.")


def never_matching(text: str, schema: Schema) -> list[str]:
    """Why a filter can never match events of this schema."""
    from peersub import FilterError
    from peersub.filters.lint import lint

    codes = ("unsatisfiable", "kind", "unknown-attribute")
    with suppress(FilterError):
        return [finding.message for finding in lint(text, schema) if finding.code in codes]
    return []


def _warning(summary: Summary, message: str) -> None:
    summary.warnings.append(message)
    warn(message)
