"""Timing an engine within a budget: start with few events, grow while time is left.

The figure that counts is the run over the most events; earlier, smaller runs are its warm-up
and the basis of the estimate that decides how far to grow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

_GROWTH = 8
_REPEATS_MAX = 3

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Timed(Generic[Result]):
    """The best run over the greatest number of events that the budget allowed."""

    events: int
    seconds: float
    result: Result

    @property
    def us_per_event(self) -> float:
        """Microseconds per event."""
        return self.seconds / max(self.events, 1) * 1e6


def run_within_budget(
    prepare: Callable[[int], Callable[[], Result]],
    *,
    events: int,
    first_events: int,
    budget_s: float,
    clock: Callable[[], float],
) -> Timed[Result]:
    """Run on `first_events`, then on more, up to `events`, while the budget lasts.

    `prepare(count)` is not timed; the function that it returns is. The largest run is repeated
    while the budget lasts, and the quickest repetition counts.
    """
    count, spent, repeats = min(first_events, events), 0.0, 0
    best: Timed[Result] | None = None
    while True:
        run = prepare(count)
        start = clock()
        result = run()
        seconds = clock() - start
        spent += seconds
        if best is None or count > best.events or seconds < best.seconds:
            best = Timed(count, seconds, result)
        repeats += count == events
        left = budget_s - spent
        if repeats >= _REPEATS_MAX or left <= 0:
            return best
        per_event = seconds / max(count, 1)
        affordable = events if per_event == 0 else int(left / per_event)
        following = min(events, count * _GROWTH, affordable)
        if following < count or following == count < events:
            return best
        count = following
