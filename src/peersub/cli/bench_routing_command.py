"""`peersub bench routing`: options to settings, results to tables or JSON."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from peersub.cli.failures import CommandError
from peersub.cli.output import print_json

__all__ = ["listed", "run_bench_routing"]

Value = TypeVar("Value")


def run_bench_routing(options: Mapping[str, Any]) -> int:
    """Run the comparison with the knobs of the command line; 1 if a check failed."""
    from peersub.bench import routing_report
    from peersub.bench.harness import stderr_progress
    from peersub.bench.routing import run_routing

    result = run_routing(_settings(options), progress=stderr_progress())
    if options["as_json"]:
        print_json(routing_report.as_json(result))
    else:
        routing_report.show(result)
    return routing_report.exit_code(result)


def _settings(options: Mapping[str, Any]) -> Any:
    from peersub.bench.routing import RoutingSettings

    nodes = options["nodes"]
    try:
        return RoutingSettings(
            nodes=nodes,
            subscriptions=options["subscriptions"] or 2 * nodes,
            changes=options["changes"],
            events=options["events"],
            share=options["share"],
            ratios=listed("ratios", options["ratios"], float),
            skews=listed("skews", options["skews"], str),
            placement_shares=listed("placement-shares", options["placement_shares"], float),
            contenders=listed("strategies", options["strategies"], str),
            tolerance=options["tolerance"],
            seed=options["seed"],
            jobs=options["jobs"] or os.cpu_count() or 1,
        )
    except ValueError as error:
        raise CommandError(f"{error}.") from None


def listed(option: str, text: str, kind: Callable[[str], Value]) -> tuple[Any, ...]:
    """The values of an option that lists some.

    Raises:
        ValueError: one of them is none.
    """
    parts = [part.strip() for part in text.split(",")]
    try:
        return tuple(kind(part) for part in parts if part)
    except ValueError:
        raise ValueError(f"--{option}: {text!r} is no list of numbers; write 0.1,1,10") from None
