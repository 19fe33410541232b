"""The result that every engine must agree on: pairs of event row and subscription row.

Engines return pairs in any order. Sorting and comparing happen outside of their timing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

RowArray = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Matches as two parallel arrays."""

    event_rows: RowArray
    subscription_rows: RowArray

    @property
    def count(self) -> int:
        """How many matches there are."""
        return len(self.event_rows)


NO_PAIRS = Pairs(np.empty(0, np.int64), np.empty(0, np.int64))


def concatenate(parts: list[Pairs]) -> Pairs:
    """All pairs of the parts, in order."""
    if not parts:
        return NO_PAIRS
    return Pairs(
        np.concatenate([part.event_rows for part in parts]),
        np.concatenate([part.subscription_rows for part in parts]),
    )


def shifted(pairs: Pairs, event_rows: int) -> Pairs:
    """The same matches, `event_rows` events later."""
    return Pairs(pairs.event_rows + event_rows, pairs.subscription_rows)


def sorted_keys(pairs: Pairs) -> npt.NDArray[np.int64]:
    """One number per pair, ascending: equal arrays are equal results, repeats included."""
    keys = pairs.event_rows.astype(np.int64) << 32
    keys |= pairs.subscription_rows.astype(np.int64)
    keys.sort()
    return keys


def first_events(keys: npt.NDArray[np.int64], events: int) -> npt.NDArray[np.int64]:
    """The sorted keys of the first `events` event rows."""
    return keys[: np.searchsorted(keys, np.int64(events) << 32)]


def difference(expected: npt.NDArray[np.int64], actual: npt.NDArray[np.int64]) -> str | None:
    """Where two sorted results part, in words; None if they are equal."""
    if np.array_equal(expected, actual):
        return None
    distinct, repeats = np.unique(actual, return_counts=True)
    findings = []
    for label, keys in (
        ("missing", np.setdiff1d(expected, actual)),
        ("unexpected", np.setdiff1d(actual, expected)),
        ("repeated", distinct[repeats > 1]),
    ):
        if len(keys):
            event, subscription = int(keys[0]) >> 32, int(keys[0]) & 0xFFFFFFFF
            findings.append(
                f"{len(keys)} {label}, first: event row {event} with subscription s{subscription}"
            )
    return "; ".join(findings)
