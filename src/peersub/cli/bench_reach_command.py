"""`peersub bench reach`: options to settings, results to tables, a plot or JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peersub.cli.bench_dag_commands import told
from peersub.cli.bench_routing_command import listed
from peersub.cli.bench_semantic_command import folder_of
from peersub.cli.failures import CommandError

__all__ = ["run_bench_reach"]


def run_bench_reach(options: Mapping[str, Any]) -> int:
    """Run the benchmark with the knobs of the command line; 1 if a check failed."""
    from peersub.bench.harness import stderr_progress
    from peersub.bench.reach import report
    from peersub.bench.reach.measure import Replication
    from peersub.bench.reach.run import ReachBenchSettings, run_reach

    try:
        settings = ReachBenchSettings(
            sizes=listed("sizes", options["sizes"], int),
            subscriptions=options["subscriptions"],
            events=options["events"],
            share_matched=options["share"],
            skew=options["skew"],
            identifier_bits=options["bits"],
            summary=options["summary"],
            replication=Replication(
                orders=options["orders"], depth=options["depth"], share=options["answer"]
            ),
            simulate=listed("simulate", options["simulate"], int) if options["simulate"] else (),
            seeds=listed("seeds", options["seeds"], int),
        )
    except ValueError as error:
        raise CommandError(f"{error}.") from None
    folder = folder_of(options["out"])
    progress = stderr_progress()
    return told(report, run_reach(settings, progress), options, folder, progress)
