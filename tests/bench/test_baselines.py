"""The baselines against brute force: the pairs themselves, not their number."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from peersub.bench.duckdb_baselines import AccessJoin, CountingJoin
from peersub.bench.numpy_baselines import CountingColumns, PrefixBitsets
from peersub.bench.pairs import (
    NO_PAIRS,
    Pairs,
    concatenate,
    difference,
    first_events,
    shifted,
    sorted_keys,
)
from peersub.workloads import Workload, WorkloadSettings, generate

SETTINGS = WorkloadSettings(
    subscriptions=600,
    events=200,
    share_matched=0.01,
    numeric_attributes=6,
    float_attributes=2,
    numeric_values=5_000,
    categorical_cardinalities=(2, 7, 40, 300),
    attributes_per_event_min=3,
    attributes_per_event_max=9,
    duplicates_share=0.1,
    opaque_share=0.1,
)
ENGINES: dict[str, Callable[[Workload], Any]] = {
    "counting columns": CountingColumns,
    "prefix bitsets": PrefixBitsets,
    "prefix bitsets, two threads": lambda workload: PrefixBitsets(workload, threads=2),
    "counting join": CountingJoin,
    "access join": AccessJoin,
    "access join, narrow cells": lambda workload: AccessJoin(workload, threads=2, cells=500),
}


def brute_force(workload: Workload) -> Pairs:
    table = workload.subscriptions
    found: list[tuple[int, int]] = []
    for event, row in enumerate(workload.event_codes):
        values = row[table.attribute]
        holds = (values >= table.low) & (values <= table.high)
        for predicate in np.flatnonzero(table.value_list >= 0):
            number = table.value_list[predicate]
            span = slice(table.list_offsets[number], table.list_offsets[number + 1])
            holds[predicate] = values[predicate] in table.list_values[span]
        for subscription in range(table.count):
            if holds[table.offsets[subscription] : table.offsets[subscription + 1]].all():
                found.append((event, subscription))
    events, subscriptions = zip(*found, strict=True)
    return Pairs(np.array(events), np.array(subscriptions))


@pytest.fixture(scope="module", params=["uniform", "zipf"])
def checked(request: pytest.FixtureRequest) -> tuple[Workload, np.ndarray]:
    workload = generate(replace(SETTINGS, skew=request.param))
    return workload, sorted_keys(brute_force(workload))


@pytest.mark.parametrize("engine", ENGINES)
def test_every_baseline_equals_brute_force(
    engine: str, checked: tuple[Workload, np.ndarray]
) -> None:
    workload, expected = checked
    assert len(expected) > 200
    matched = ENGINES[engine](workload).match(workload.events)
    assert difference(expected, sorted_keys(matched)) is None


@pytest.fixture(scope="module")
def long() -> tuple[Workload, np.ndarray]:
    workload = generate(replace(SETTINGS, subscriptions=2_500, events=2_139, share_matched=0.002))
    return workload, sorted_keys(CountingColumns(workload).match(workload.events))


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "counting columns"])
def test_more_than_one_batch_and_an_odd_last_one(
    engine: str, long: tuple[Workload, np.ndarray]
) -> None:
    workload, expected = long
    matched = ENGINES[engine](workload).match(workload.events)
    assert difference(expected, sorted_keys(matched)) is None


@pytest.mark.parametrize("engine", ENGINES)
def test_no_events_and_one_predicate_each(engine: str) -> None:
    workload = generate(
        replace(
            SETTINGS,
            subscriptions=50,
            events=70,
            predicates_per_subscription_min=1,
            predicates_per_subscription_max=1,
            duplicates_share=0.0,
        )
    )
    prepared = ENGINES[engine](workload)
    assert prepared.match(workload.events.slice(0, 0)).count == 0
    expected = sorted_keys(brute_force(workload))
    assert difference(expected, sorted_keys(prepared.match(workload.events))) is None


def test_differences_are_told_by_place() -> None:
    expected = sorted_keys(Pairs(np.array([0, 2, 2]), np.array([7, 1, 3])))
    assert difference(expected, expected) is None
    lacking = sorted_keys(Pairs(np.array([2, 0]), np.array([1, 7])))
    assert difference(expected, lacking) == ("1 missing, first: event row 2 with subscription s3")
    moved = sorted_keys(Pairs(np.array([0, 2, 2]), np.array([7, 1, 4])))
    assert "1 unexpected, first: event row 2 with subscription s4" in str(
        difference(expected, moved)
    )
    twice = sorted_keys(Pairs(np.array([0, 2, 2, 2]), np.array([7, 1, 3, 3])))
    assert difference(expected, twice) == ("1 repeated, first: event row 2 with subscription s3")


def test_pairs_join_shift_and_cut() -> None:
    part = Pairs(np.array([0, 1]), np.array([5, 6]))
    joined = concatenate([part, shifted(part, 2)])
    assert joined.event_rows.tolist() == [0, 1, 2, 3]
    assert len(first_events(sorted_keys(joined), 3)) == 3
    assert concatenate([]) is NO_PAIRS
