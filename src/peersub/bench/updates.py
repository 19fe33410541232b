"""Single inserts and deletes into a large matcher, timed one by one and checked.

The workload has more subscriptions than the matcher starts with: the surplus is inserted one
at a time, in turn with deletes of random older ones. A check in the middle and one at the end
compare what events match with the baseline's pairs, less those of subscriptions that are not
there. Parsing a filter is timed on its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from peersub.bench.baselines import OverBatches
from peersub.bench.numpy_baselines import PrefixBitsets
from peersub.bench.pairs import Pairs, difference, sorted_keys
from peersub.workloads import Workload, filter_texts, subscription_ids


@dataclass(frozen=True, slots=True)
class Latency:
    """Statistics of single operations, in microseconds."""

    count: int
    mean_us: float
    p50_us: float
    p99_us: float
    max_us: float


@dataclass(frozen=True, slots=True)
class UpdateMeasure:
    """What single changes cost in a matcher of this size; `mismatch` is None if all is right."""

    subscriptions: int
    parse: Latency
    insert: Latency
    delete: Latency
    mismatch: str | None


def measure_updates(
    workload: Workload,
    initial: int,
    matcher: Any,
    *,
    clock: Callable[[], float],
    threads: int = 1,
) -> UpdateMeasure:
    """Insert the subscriptions after `initial`, each followed by a delete of an older one."""
    from peersub.filters.filter import Filter

    total = workload.subscriptions.count
    added = np.arange(initial, total)
    generator = np.random.default_rng(workload.settings.seed)
    removed = generator.choice(initial, min(len(added), initial), replace=False)
    texts = filter_texts(workload.attributes, workload.subscriptions.select(added)).to_pylist()
    names = subscription_ids(initial, total).to_pylist()
    filters: list[Filter] = []
    parse: list[float] = []
    for text in texts:
        start = clock()
        wanted = Filter(text)
        parse.append(clock() - start)
        filters.append(wanted)
    expected = PrefixBitsets(workload).match(workload.events)
    inserts: list[float] = []
    deletes: list[float] = []
    mismatches = []
    for step, (name, wanted) in enumerate(zip(names, filters, strict=True)):
        inserts.append(_timed(clock, partial(matcher.add, name, wanted)))
        if step < len(removed):
            deletes.append(_timed(clock, partial(matcher.remove, f"s{removed[step]}")))
        if step + 1 in (len(names) // 2, len(names)):
            there = np.ones(total, bool)
            there[initial + step + 1 :] = False
            there[removed[: step + 1]] = False
            mismatches.append(_mismatch(matcher, workload, expected, there, threads))
    return UpdateMeasure(
        subscriptions=initial,
        parse=_latency(parse),
        insert=_latency(inserts),
        delete=_latency(deletes),
        mismatch=next((found for found in mismatches if found is not None), None),
    )


def _mismatch(
    matcher: Any,
    workload: Workload,
    expected: Pairs,
    there: npt.NDArray[np.bool_],
    threads: int,
) -> str | None:
    held = there[expected.subscription_rows]
    wanted = Pairs(expected.event_rows[held], expected.subscription_rows[held])
    door = OverBatches(matcher, threads)
    actual = door.pairs(door.run(workload.events))
    return difference(sorted_keys(wanted), sorted_keys(actual))


def _timed(clock: Callable[[], float], operation: Callable[[], object]) -> float:
    start = clock()
    operation()
    return clock() - start


def _latency(seconds: list[float]) -> Latency:
    if not seconds:
        return Latency(0, 0.0, 0.0, 0.0, 0.0)
    us = np.array(seconds) * 1e6
    p50, p99 = np.percentile(us, [50, 99])
    return Latency(len(us), float(us.mean()), float(p50), float(p99), float(us.max()))
