"""`peersub bench pipeline`: options to settings, results to tables or JSON."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from peersub.cli.failures import CommandError
from peersub.cli.output import print_json

__all__ = ["run_bench_pipeline"]


def run_bench_pipeline(options: Mapping[str, Any]) -> int:
    """Run the benchmark with the knobs of the command line; 1 if results differ."""
    from peersub.bench import pipeline_report
    from peersub.bench.harness import stderr_progress
    from peersub.bench.pipeline import run_pipeline

    result = run_pipeline(_settings(options), progress=stderr_progress())
    if options["as_json"]:
        print_json(pipeline_report.as_json(result))
    else:
        pipeline_report.show(result)
    return pipeline_report.exit_code(result)


def _settings(options: Mapping[str, Any]) -> Any:
    from peersub.bench.pipeline import PipelineSettings
    from peersub.workloads import WorkloadSettings

    subscriptions = options["subscriptions"]
    try:
        return PipelineSettings(
            processors=options["processors"] or os.cpu_count() or 1,
            join_subscriptions=min(options["join_subscriptions"], subscriptions),
            shards=options["shards"],
            repeats=options["repeats"],
            joins=tuple(filter(None, (name.strip() for name in options["joins"].split(",")))),
            workload=WorkloadSettings(
                subscriptions=subscriptions,
                events=options["events"],
                share_matched=options["share"],
                skew=options["skew"],
                seed=options["seed"],
            ),
        )
    except ValueError as error:
        raise CommandError(f"{error}.") from None
