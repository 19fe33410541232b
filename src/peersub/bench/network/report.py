"""The result of `peersub bench network`, for people and for programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from peersub.bench.harness import stdout_console
from peersub.bench.network.members import COLUMNS, ONE_BY_ONE
from peersub.bench.network.run import DURABLE_SHARE, HOPS, NetworkResult
from peersub.bench.network.trials import TrialResult
from peersub.bench.report import machine

__all__ = ["Aim", "aims", "as_json", "exit_code", "show"]

_SMALL: Final = 100
_SHARE: Final = 0.001


@dataclass(frozen=True, slots=True)
class Aim:
    """What was to be reached, and what was measured; None if that was not run."""

    title: str
    wanted: str
    measured: float | None
    unit: str
    reached: bool | None


def aims(result: NetworkResult) -> list[Aim]:
    """The aims, each with what was seen."""

    def found(
        system: str, form: str, kind: str = "range", share: float = _SHARE, **more: Any
    ) -> TrialResult | None:
        size = min(result.settings.payloads)
        return result.find(system, kind=kind, share=share, payload_bytes=size, form=form, **more)

    ours = found("peersub", COLUMNS)
    zenoh = found("zenoh", ONE_BY_ONE)
    sym = found("peersub", COLUMNS, "sym")
    rates = [
        ("range 0.1 %, events/s, to Zenoh", 3.0, ours, zenoh),
        ("range 0.1 %, events/s, to NATS", 2.0, ours, found("nats", ONE_BY_ONE)),
        ("sym 0.1 %, events/s, to Zenoh", 8.0, sym, found("zenoh", ONE_BY_ONE, "sym")),
        ("3 hops to 1 hop, range 0.1 %", 0.5, found("peersub", COLUMNS, hops=HOPS), ours),
        (
            "at least once to best effort, range 0.1 %",
            1 / 3,
            found("peersub", COLUMNS, at_least_once=True),
            ours,
        ),
    ]
    for form in (ONE_BY_ONE, COLUMNS):
        two, one = (
            found("peersub", form, share=DURABLE_SHARE, at_least_once=True, copies=copies)
            for copies in (2, 1)
        )
        rates.append((f"on 2 disks to on 1, {form}", 0.5, two, one))
    listed = [_at_least(title, least, _ratio(one, to)) for title, least, one, to in rates]
    listed.insert(3, _fewer_bytes(ours, zenoh))
    latency = found("peersub", ONE_BY_ONE, share=result.settings.latency_share, latency=True)
    p50 = None if latency is None or latency.latencies is None else latency.latencies.p50_ms
    wanted = f"p50 at {result.settings.latency_per_second:g} events/s, 1 hop"
    listed.append(Aim(wanted, "< 1 ms", p50, " ms", None if p50 is None else p50 < 1))
    return listed


def _at_least(title: str, least: float, ratio: float | None) -> Aim:
    reached = None if ratio is None else ratio >= least
    return Aim(title, f">= {least:.2g}x", ratio, "x", reached)


def _fewer_bytes(ours: TrialResult | None, theirs: TrialResult | None) -> Aim:
    ratio = _quotient(ours, theirs, lambda result: result.loopback_bytes_per_event)
    reached = None if ratio is None else ratio <= 1 / 8
    return Aim("range 0.1 %, loopback bytes/event, to Zenoh", "<= 0.125x", ratio, "x", reached)


def _ratio(one: TrialResult | None, other: TrialResult | None) -> float | None:
    return _quotient(one, other, lambda result: result.events_per_s)


def _quotient(
    one: TrialResult | None,
    other: TrialResult | None,
    value: Callable[[TrialResult], float | None],
) -> float | None:
    if one is None or other is None:
        return None
    above, below = value(one), value(other)
    return above / below if above is not None and below else None


def as_json(result: NetworkResult) -> dict[str, Any]:
    """The result as plain data, ready for `json.dumps`."""
    return {
        "machine": machine(0),
        "settings": asdict(result.settings),
        "trials": [
            asdict(each) | {"ratios": _ratios(result, each), "title": each.trial.title}
            for each in result.trials
        ],
        "aims": [asdict(aim) for aim in aims(result)],
        "skipped": result.skipped,
        "idle_bytes_per_s_max": result.idle_bytes_per_s_max,
        "mismatches": result.mismatches,
        "ok": not result.mismatches,
    }


def _ratios(result: NetworkResult, ours: TrialResult) -> dict[str, float | None]:
    """Events per second and bytes, to those of the others with the same workload."""
    workload, copies = ours.trial.workload, ours.trial.copies
    ratios: dict[str, float | None] = {}
    for system in ("zenoh", "nats"):
        other = result.find(
            system,
            kind=workload.kind,
            share=workload.share,
            payload_bytes=workload.payload_bytes,
            form=ONE_BY_ONE,
            at_least_once=bool(copies),
            copies=min(copies, 1),
        )
        ratios[system] = _ratio(ours, other)
        ratios[f"{system}_cpu"] = _quotient(ours, other, lambda each: each.cpu_us_per_event)
        ratios[f"{system}_bytes"] = _quotient(
            ours, other, lambda each: each.loopback_bytes_per_event
        )
    return ratios


def show(result: NetworkResult, console: Console | None = None) -> None:
    """Print the tables, the aims and the verdict."""
    out = console or stdout_console()
    settings = result.settings
    out.print(
        f"{settings.subscribers:,} subscribers on {settings.hosts} hosts, the publisher in a "
        f"process of its own; best of {settings.repeats}, every delivery checked"
    )
    out.print(_throughput(result))
    if any(each.latencies for each in result.trials):
        out.print(_latency(result))
    out.print(_aims(result))
    for system, reason in result.skipped.items():
        out.print(f"{system} was skipped: {reason}", markup=False)
    out.print(
        "CPU: of all processes together, without the server of NATS; "
        "bytes: what the kernel counted on loopback, per event published; "
        f"up to {result.idle_bytes_per_s_max / 1e3:,.0f} kB/s were there without the benchmark's"
    )
    for mismatch in result.mismatches:
        out.print(f"MISMATCH {mismatch}", markup=False)
    if not result.mismatches:
        out.print("each subscriber got exactly its events in every run, by count and checksum")


def _throughput(result: NetworkResult) -> Table:
    table = Table(title="throughput", title_justify="left")
    for column in ("workload", "system"):
        table.add_column(column)
    for column in ("events/s", "to zenoh", "to nats", "CPU µs/event", "bytes/event", "to zenoh"):
        table.add_column(column, justify="right")
    before = None
    shown = [each for each in result.trials if each.trial.per_second is None]
    # By workload: payloads of one network were measured one after the other.
    order = {each.trial.workload: place for place, each in reversed(list(enumerate(shown)))}
    for each in sorted(shown, key=lambda each: order[each.trial.workload]):
        workload = each.trial.workload
        if before is not None and workload != before:
            table.add_section()
        ratios = _ratios(result, each)
        size = each.loopback_bytes_per_event
        table.add_row(
            "" if workload == before else workload.name,
            each.trial.title,
            f"{each.events_per_s:,.0f}" + (" MISMATCH" if each.mismatches else ""),
            _times(ratios["zenoh"]),
            _times(ratios["nats"]),
            f"{each.cpu_us_per_event:,.1f}",
            "" if size is None else f"{size:,.0f}",
            _times(ratios["zenoh_bytes"]),
        )
        before = workload
    return table


def _latency(result: NetworkResult) -> Table:
    title = f"latency at {result.settings.latency_per_second:g} events/s, publisher to subscriber"
    table = Table(title=title, title_justify="left")
    table.add_column("workload")
    table.add_column("system")
    for column in ("p50 ms", "p99 ms", "most ms", "publisher late by at most, ms"):
        table.add_column(column, justify="right")
    for each in result.trials:
        seen = each.latencies
        if seen is not None:
            numbers = (seen.p50_ms, seen.p99_ms, seen.max_ms, seen.publisher_late_ms)
            cells = [f"{number:,.2f}" for number in numbers]
            table.add_row(each.trial.workload.name, each.trial.title, *cells)
    return table


def _aims(result: NetworkResult) -> Table:
    table = Table(title="aims", title_justify="left")
    table.add_column("what")
    for column in ("aim", "measured", ""):
        table.add_column(column, justify="right")
    words = {True: "reached", False: "not reached", None: "not run"}
    for aim in aims(result):
        seen = "" if aim.measured is None else f"{aim.measured:,.3g}{aim.unit}"
        table.add_row(aim.title, aim.wanted, seen, words[aim.reached])
    return table


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:,.2g}x" if ratio < 10 else f"{ratio:,.0f}x"


def exit_code(result: NetworkResult) -> int:
    """0 if every subscriber got exactly its events, 1 if not."""
    return 1 if result.mismatches else 0
