"""The arithmetic of the comparison: what each contender costs at a ratio of events to changes.

A network in which subscriptions come and go at some rate, and r events are published per change,
costs `per_change + r * per_event` per change. So each contender is a line over r, two lines cross
at one ratio at most, and the cheapest at each ratio are the lower envelope of all lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

__all__ = ["CostLine", "Crossover", "Span", "cheapest", "crossover", "crossovers"]


@dataclass(frozen=True, slots=True)
class CostLine:
    """What a contender costs: per change of a subscription, and per event."""

    name: str
    per_change: float
    per_event: float

    def at(self, ratio: float) -> float:
        """The cost per change, with so many events for each change.

        >>> CostLine("covering", 100.0, 20.0).at(10)
        300.0
        """
        return self.per_change + ratio * self.per_event


@dataclass(frozen=True, slots=True)
class Crossover:
    """Below the ratio the one is cheaper, above it the other."""

    ratio: float
    below: str
    above: str


@dataclass(frozen=True, slots=True)
class Span:
    """From one ratio up to another, this contender is the cheapest of all."""

    name: str
    start: float
    end: float


def crossover(one: CostLine, other: CostLine) -> Crossover | None:
    """Where two lines cross; None if one of them is never dearer than the other.

    >>> crossover(CostLine("merging", 50.0, 30.0), CostLine("covering", 100.0, 20.0))
    Crossover(ratio=5.0, below='merging', above='covering')
    >>> crossover(CostLine("simple", 300.0, 20.0), CostLine("covering", 100.0, 20.0)) is None
    True
    """
    if one.per_event == other.per_event:
        return None
    flat, steep = sorted((one, other), key=lambda line: line.per_event)
    ratio = (flat.per_change - steep.per_change) / (steep.per_event - flat.per_event)
    return Crossover(ratio, steep.name, flat.name) if ratio > 0 else None


def crossovers(lines: Sequence[CostLine]) -> list[Crossover]:
    """All of them, the smallest ratio first."""
    found = (
        crossover(one, other) for place, one in enumerate(lines) for other in lines[place + 1 :]
    )
    return sorted((each for each in found if each is not None), key=lambda each: each.ratio)


def cheapest(lines: Iterable[CostLine]) -> list[Span]:
    """Who is cheapest at which ratios, from 0 on; of equal ones the first.

    >>> lines = CostLine("flood", 0.0, 99.0), CostLine("filters", 490.0, 50.0)
    >>> [(span.name, span.start, span.end) for span in cheapest(lines)]
    [('flood', 0.0, 10.0), ('filters', 10.0, inf)]
    """
    left = list(lines)
    if not left:
        return []
    here = min(left, key=lambda line: (line.per_change, line.per_event))
    spans: list[Span] = []
    start = 0.0
    while True:
        # Only a flatter line can become cheaper; among those that do at once, the flattest stays.
        ahead = [
            ((line.per_change - here.per_change) / (here.per_event - line.per_event), line)
            for line in left
            if line.per_event < here.per_event
        ]
        if not ahead:
            return [*spans, Span(here.name, start, inf)]
        end, following = min(ahead, key=lambda each: (each[0], each[1].per_event))
        if end > start:
            spans.append(Span(here.name, start, end))
        here, start = following, end
