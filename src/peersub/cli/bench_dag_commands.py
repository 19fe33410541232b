"""`peersub bench dag`, `anonymity` and `layers`: options to settings, results to tables or JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from peersub.cli.bench_routing_command import listed
from peersub.cli.bench_semantic_command import folder_of
from peersub.cli.failures import CommandError
from peersub.cli.output import print_json

__all__ = ["run_bench_anonymity", "run_bench_dag", "run_bench_layers", "told"]


def run_bench_anonymity(options: Mapping[str, Any]) -> int:
    """Run the benchmark with the knobs of the command line; 1 if a check failed."""
    from peersub.bench.anonymity import report
    from peersub.bench.anonymity.run import AnonymitySettings, run_anonymity
    from peersub.bench.harness import stderr_progress

    try:
        settings = AnonymitySettings(
            nodes=options["nodes"],
            degree=options["degree"],
            shares=listed("shares", options["shares"], float),
            graphs=options["seeds"],
            seed=options["seed"],
        )
    except ValueError as error:
        raise CommandError(f"{error}.") from None
    folder = folder_of(options["out"])
    progress = stderr_progress()
    result = run_anonymity(settings, progress)
    return told(report, result, options, folder, progress)


def run_bench_dag(options: Mapping[str, Any]) -> int:
    """Run the benchmark with the knobs of the command line; 1 if a bound is broken."""
    from peersub.bench.dag import report
    from peersub.bench.dag.run import DagSettings, run_dag
    from peersub.bench.harness import stderr_progress

    try:
        settings = DagSettings(
            sizes=listed("sizes", options["sizes"], int),
            degrees=listed("degrees", options["degrees"], int),
            nodes=options["nodes"],
            events=options["events"],
            crashed_share=options["crash"],
            seeds=options["seeds"],
            seed=options["seed"],
        )
    except ValueError as error:
        raise CommandError(f"{error}.") from None
    progress = stderr_progress()
    return told(report, run_dag(settings, progress), options, None, progress)


def run_bench_layers(options: Mapping[str, Any]) -> int:
    """Run the benchmark with the knobs of the command line; 1 if a delivery was wrong."""
    from peersub.bench.harness import stderr_progress
    from peersub.bench.layers import report
    from peersub.bench.layers.run import LayersSettings, run_layers

    try:
        settings = LayersSettings(
            nodes=options["nodes"],
            clients=options["clients"],
            rates=listed("rates", options["rates"], float),
            seconds=options["seconds"],
            events_per_second=options["events"],
            seeds=options["seeds"],
            seed=options["seed"],
        )
    except ValueError as error:
        raise CommandError(f"{error}.") from None
    folder = folder_of(options["out"])
    progress = stderr_progress()
    result = run_layers(settings, progress)
    return told(report, result, options, folder, progress)


def told(
    report: Any,
    result: Any,
    options: Mapping[str, Any],
    folder: Path | None,
    progress: Callable[[str], None],
) -> int:
    """Write the result to the folder, if there is one, and to standard output; the exit code."""
    if folder is not None:
        for path in report.write(result, folder):
            progress(f"written: {path}")
    if options["as_json"]:
        print_json(report.as_json(result))
    else:
        report.show(result)
    code: int = report.exit_code(result)
    return code
