"""`peersub bench network`: options to settings, results to tables or JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peersub.cli.failures import CommandError
from peersub.cli.output import print_json

__all__ = ["run_bench_network"]

_QUICK: dict[str, Any] = {
    "shares": "0.001",
    "payloads": "100",
    "repeats": 1,
    "latency": 2.0,
    "scale": 0.5,
}
"""What `--quick` sets, unless it is given."""
_FULL: dict[str, Any] = {
    "shares": "0.001,0.01,0.1",
    "payloads": "100,1024",
    "repeats": 2,
    "latency": 5.0,
    "scale": 1.0,
}


def run_bench_network(options: Mapping[str, Any]) -> int:
    """Run the benchmark with the knobs of the command line; 1 if a delivery was wrong."""
    from peersub.bench.harness import stderr_progress
    from peersub.bench.network import report
    from peersub.bench.network.processes import ProcessFailedError
    from peersub.bench.network.run import run_network

    try:
        result = run_network(_settings(options), progress=stderr_progress())
    except ProcessFailedError as error:
        raise CommandError(f"{error}") from None
    if options["as_json"]:
        print_json(report.as_json(result))
    else:
        report.show(result)
    return report.exit_code(result)


def _settings(options: Mapping[str, Any]) -> Any:
    from peersub.bench.network.run import NetworkSettings

    given = _QUICK if options["quick"] else _FULL
    chosen = {
        name: value if options[name] is None else options[name] for name, value in given.items()
    }
    try:
        return NetworkSettings(
            systems=_listed("systems", options["systems"], str),
            kinds=_listed("workloads", options["workloads"], str),
            shares=_listed("shares", chosen["shares"], float),
            payloads=_listed("payloads", chosen["payloads"], int),
            subscribers=options["subscribers"],
            hosts=options["hosts"],
            repeats=chosen["repeats"],
            scale=chosen["scale"],
            latency_s=chosen["latency"],
            seed=options["seed"],
        )
    except ValueError as error:
        raise CommandError(f"{error}.") from None


def _listed(option: str, text: str, kind: Callable[[str], Any]) -> tuple[Any, ...]:
    parts = [part.strip() for part in text.split(",")]
    try:
        return tuple(kind(part) for part in parts if part)
    except ValueError:
        raise ValueError(f"--{option}: {text!r} is no list of numbers; write 100,1024") from None
