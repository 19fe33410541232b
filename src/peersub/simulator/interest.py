"""Who wants an event, for a checker with many subscriptions: the matcher in place of each filter.

The checker of deliveries judges overlays. Matching has oracles of its own, so from some thousand
subscriptions on it may stand in for brute force here.
"""

from __future__ import annotations

from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.matching.matcher import Matcher
from peersub.trace.interest import Interest, NaiveInterest

__all__ = ["NAIVE_UP_TO", "MatcherInterest", "interest_for"]

NAIVE_UP_TO = 4_000
"""Subscriptions up to which each filter is asked about each event."""


def interest_for(subscriptions: int) -> Interest:
    """Brute force, or the matcher where that would take too long."""
    return NaiveInterest() if subscriptions <= NAIVE_UP_TO else MatcherInterest()


class MatcherInterest:
    """Numbered filters in a matcher."""

    def __init__(self) -> None:
        self._matcher = Matcher()

    def add(self, number: int, wanted: Filter) -> None:
        """The filter counts from now on."""
        self._matcher.add(str(number), wanted)

    def remove(self, number: int) -> None:
        """The filter of this number, which was added, counts no more."""
        self._matcher.remove(str(number))

    def matching(self, event: Event) -> list[int]:
        """The numbers of the filters that match, sorted: a matcher has no order."""
        return sorted(map(int, self._matcher.match(event)))
