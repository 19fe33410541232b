"""`peersub bench semantic`: options to settings, results to tables, plots or JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peersub.cli.failures import CommandError
from peersub.cli.output import print_json
from peersub.cli.workload_command import SchemaChoice

__all__ = ["folder_of", "run_bench_semantic"]


def run_bench_semantic(options: Mapping[str, Any]) -> int:
    """Run the benchmark with the knobs of the command line; 1 if a check failed."""
    from peersub.bench.harness import stderr_progress
    from peersub.bench.semantic import report
    from peersub.bench.semantic.run import SemanticSettings, run_semantic

    file = options["schema"]
    schema = SchemaChoice(file, options["root"]).schema()
    name = "the project's news schema" if file is None else Path(file).name
    try:
        settings = SemanticSettings(
            peers=_sizes(options["peers"]),
            documents=options["documents"],
            sample=options["sample"],
            always_max=options["always_max"],
            seed=options["seed"],
        )
    except ValueError as error:
        raise CommandError(f"{error}.") from None
    folder = folder_of(options["out"])
    progress = stderr_progress()
    result = run_semantic(schema, name, settings, progress)
    if folder is not None:
        for path in report.write(result, folder):
            progress(f"written: {path}")
    if options["as_json"]:
        print_json(report.as_json(result))
    else:
        report.show(result)
    return report.exit_code(result)


def folder_of(name: str | None) -> Path | None:
    """Where results are to be written; made beforehand, since the run takes a while."""
    if name is None:
        return None
    try:
        Path(name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"{name}: cannot be written ({error.strerror}).") from None
    return Path(name)


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(f"--peers: {text!r} is no list of numbers; write 1000,5000") from None
