"""`peersub bench matching`: options to settings, results to a table or JSON."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from peersub.cli.failures import CommandError
from peersub.cli.output import print_json

__all__ = ["run_bench_matching"]

Number = TypeVar("Number", int, float)


def run_bench_matching(options: Mapping[str, Any]) -> int:
    """Run the benchmark with the knobs of the command line; 1 if results differ."""
    from peersub.bench import report
    from peersub.bench.harness import stderr_progress
    from peersub.bench.matching import run_matching

    result = run_matching(_settings(options), progress=stderr_progress())
    if options["as_json"]:
        print_json(report.as_json(result))
    else:
        report.show(result)
    return report.exit_code(result)


def _settings(options: Mapping[str, Any]) -> Any:
    from peersub.bench.matching import BASELINE_ENGINES, MATCHER_ENGINES, BenchSettings

    engines = options["engines"]
    try:
        return BenchSettings(
            sizes=_numbers("sizes", options["sizes"], int),
            shares=_numbers("shares", options["shares"], float),
            skews=_words(options["skews"]),
            events=options["events"],
            engines=_words(engines) if engines else (*MATCHER_ENGINES, *BASELINE_ENGINES),
            threads=options["threads"] or os.cpu_count() or 1,
            budget_s=options["budget"],
            prepare_budget_s=options["prepare_budget"],
            memory=options["memory"],
            updates=options["updates"],
            workload=_workload(options),
        )
    except ValueError as error:
        raise CommandError(f"{error}.") from None


def _workload(options: Mapping[str, Any]) -> Any:
    from peersub.workloads.settings import CATEGORICAL_CARDINALITIES, WorkloadSettings

    cardinalities = options["categorical_cardinalities"]
    least_attributes, most_attributes = _pair(options, "attributes_per_event")
    least_predicates, most_predicates = _pair(options, "predicates_per_subscription")
    for skew in _words(options["skews"]):
        WorkloadSettings(skew=skew)  # refuses what is no skew
    return WorkloadSettings(
        numeric_attributes=options["numeric_attributes"],
        float_attributes=options["float_attributes"],
        numeric_values=options["numeric_values"],
        categorical_cardinalities=CATEGORICAL_CARDINALITIES
        if cardinalities is None
        else _numbers("categorical-cardinalities", cardinalities, int),
        attributes_per_event_min=least_attributes,
        attributes_per_event_max=most_attributes,
        predicates_per_subscription_min=least_predicates,
        predicates_per_subscription_max=most_predicates,
        values_per_in_max=options["values_per_in"],
        operators=_operators(options["operators"]),
        duplicates_share=options["duplicates"],
        opaque_share=options["opaque"],
        seed=options["seed"],
    )


def _operators(text: str | None) -> Any:
    from dataclasses import fields

    from peersub.workloads.settings import OperatorMix

    weights: dict[str, float] = {}
    known = [knob.name for knob in fields(OperatorMix)]
    for part in _words(text or ""):
        name, equals, weight = part.partition("=")
        if not equals or name not in known:
            raise ValueError(f"--operators: {part!r} is not understood; write {known[0]}=0.5")
        weights[name] = _numbers("operators", weight, float)[0]
    return OperatorMix(**weights)


def _words(text: str) -> tuple[Any, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def _numbers(option: str, text: str, kind: Callable[[str], Number]) -> tuple[Number, ...]:
    try:
        numbers = tuple(kind(part.replace("_", "")) for part in _words(text))
    except ValueError:
        numbers = ()
    if not numbers:
        raise ValueError(f"--{option}: {text!r} is no list of numbers; write them as 1,2,3")
    return numbers


def _pair(options: Mapping[str, Any], name: str) -> tuple[int, int]:
    numbers = _numbers(name.replace("_", "-"), options[name], int)
    if len(numbers) != 2:
        raise ValueError(f"--{name.replace('_', '-')}: write the least and the greatest: 2,5")
    return numbers[0], numbers[1]
