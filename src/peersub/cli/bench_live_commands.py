"""`peersub bench hostile`, `churn` and `operations`: what a live network withstands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.table import Table

from peersub.bench.harness import Finished, Trial, plain_table, report, run_trials
from peersub.cli.failures import CommandError

if TYPE_CHECKING:
    from peersub.bench.churn import ChurnResult
    from peersub.bench.hostile import HostileResult
    from peersub.bench.operations.checking import Verdict

__all__ = ["run_bench_churn", "run_bench_hostile", "run_bench_operations"]


def _check_machine() -> None:
    from peersub.bench.process_figures import can_look

    if not can_look():
        raise CommandError("This benchmark reads /proc, which this machine does not have.")


def run_bench_hostile(options: Mapping[str, Any]) -> int:
    """Attack; 1 if something was missed, not counted, or left behind."""
    from peersub.bench.hostile import HostileSettings, run_hostile

    _check_machine()
    settings = HostileSettings(
        frames=options["frames"],
        frames_per_second=options["frames_per_second"],
        nodes=options["nodes"],
        rate=options["rate"],
        overlay=options["overlay"],
        seed=options["seed"],
    )
    trial = Trial("hostile", settings.seed, lambda say: run_hostile(settings, say))
    (finished,) = run_trials([trial])
    shown = partial(_show_hostile, finished.outcome)
    return report([finished], as_json=options["as_json"], tables=shown)


def _show_hostile(result: HostileResult) -> Iterator[Table | str]:
    title = f"{result.frames:,} hostile frames, {result.acts.total():,} connections"
    table = plain_table(title, ("counted as",), ("times",))
    for reason, count in result.counted.items():
        table.add_row(reason, f"{count:,}")
    yield table
    shown = result.as_dict()
    for name in ("calm", "elsewhere", "attacked"):
        yield f"latency, {name}: {shown[f'latency_ms_{name}']}"
    for name in ("latency_ratios", "resident_kb", "descriptors"):
        yield f"{name.replace('_', ' ')}: {shown[name]}"


def run_bench_churn(options: Mapping[str, Any]) -> int:
    """Let nodes come and go; 1 if something was missed, or grows."""
    from peersub.bench.churn import ChurnSettings, run_churn

    _check_machine()
    settings = ChurnSettings(
        nodes=options["nodes"],
        seconds=options["minutes"] * 60,
        changes_per_second=options["per_second"],
        rate=options["rate"],
        seed=options["seed"],
    )
    trial = Trial("churn", settings.seed, lambda say: run_churn(settings, say))
    (finished,) = run_trials([trial])
    shown = partial(_show_churn, finished.outcome)
    return report([finished], as_json=options["as_json"], tables=shown)


def _show_churn(result: ChurnResult) -> Iterator[Table | str]:
    title = f"{result.changes.total():,} changes; nodes that stayed, first and last"
    table = plain_table(title, ("node",), [name.replace("_", " ") for name in result.measures])
    for node, growths in result.growths.items():
        shown = [f"{each.first:,.0f} to {each.last:,.0f}" for each in growths.values()]
        table.add_row(node, *shown)
    yield table
    yield f"changes: {dict(result.changes)}"
    yield f"deliveries: {result.judgement.as_dict()}"


def run_bench_operations(options: Mapping[str, Any]) -> int:
    """Play weeks; 1 if something was lost, doubled, or seen by who may not."""
    from peersub.bench.operations.week import WeekSettings, run_week

    def trial(seed: int) -> Trial[Verdict]:
        settings = WeekSettings(options["minutes"], options["nodes"], options["rate"], seed)
        return Trial("week", seed, partial(run_week, settings))

    first, seeds = options["first"], options["seeds"]
    finished = run_trials([trial(seed) for seed in range(first, first + seeds)])
    tables = partial(_show_weeks, finished)
    return report(finished, as_json=options["as_json"], tables=tables, facts={})


def _show_weeks(finished: Sequence[Finished[Verdict]]) -> Iterator[Table]:
    shown = [each.as_dict() for each in finished]
    columns = [name for name in shown[0] if name not in ("trial", "broken")]
    table = plain_table("Weeks of operations", (), columns)
    for each in shown:
        table.add_row(*(f"{each[name]:,}" for name in columns))
    yield table
