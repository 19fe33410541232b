"""`peersub bench hostile` and `peersub bench churn`: what a live network withstands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from peersub.cli.failures import CommandError
from peersub.cli.output import print_json

__all__ = ["run_bench_churn", "run_bench_hostile"]


def _teller() -> Callable[[str], None]:
    console = Console(stderr=True)

    def say(line: str) -> None:
        console.print(f"  {line}", style="dim", highlight=False, markup=False)

    return say


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
    result = asyncio.run(run_hostile(settings, _teller()))
    if options["as_json"]:
        print_json(result.as_dict())
        return 1 if result.problems else 0
    table = Table(title=f"{result.frames:,} hostile frames, {result.acts.total():,} connections")
    table.add_column("counted as")
    table.add_column("times", justify="right")
    for reason, count in result.counted.items():
        table.add_row(reason, f"{count:,}")
    console = Console()
    console.print(table)
    shown = result.as_dict()
    for name in ("calm", "elsewhere", "attacked"):
        console.print(f"latency, {name}: {shown[f'latency_ms_{name}']}", highlight=False)
    for name in ("latency_ratios", "resident_kb", "descriptors"):
        console.print(f"{name.replace('_', ' ')}: {shown[name]}", highlight=False)
    return _verdict(console, result.problems)


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
    result = asyncio.run(run_churn(settings, _teller()))
    if options["as_json"]:
        print_json(result.as_dict())
        return 1 if result.problems else 0
    table = Table(title=f"{result.changes.total():,} changes; nodes that stayed, first and last")
    table.add_column("node")
    for name in result.measures:
        table.add_column(name.replace("_", " "), justify="right")
    for node, growths in result.growths.items():
        shown = [f"{each.first:,.0f} to {each.last:,.0f}" for each in growths.values()]
        table.add_row(node, *shown)
    console = Console()
    console.print(table)
    console.print(f"changes: {dict(result.changes)}", highlight=False)
    console.print(f"deliveries: {result.judgement.as_dict()}", highlight=False)
    return _verdict(console, result.problems)


def _verdict(console: Console, problems: list[str]) -> int:
    for problem in problems:
        console.print(problem, style="bold red", highlight=False, markup=False)
    return 1 if problems else 0
