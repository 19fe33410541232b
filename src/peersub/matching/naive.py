"""The naive twin of the matcher: each filter asked one by one. Slow, and obviously right."""

from __future__ import annotations

from peersub.filters.filter import Filter, Matchable

__all__ = ["NaiveMatcher"]


class NaiveMatcher:
    """The matcher's contract in its plainest form; the compiled index is tested against it."""

    def __init__(self) -> None:
        self._filters: dict[str, Filter] = {}

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, subscription_id: str) -> bool:
        return subscription_id in self._filters

    def add(self, subscription_id: str, wanted: Filter) -> None:
        """Add a subscription under a new id."""
        if subscription_id in self._filters:
            raise ValueError(f"subscription {subscription_id!r} is there already: remove it first")
        self._filters[subscription_id] = wanted

    def remove(self, subscription_id: str) -> None:
        """Remove a subscription; KeyError if there is none of that id."""
        del self._filters[subscription_id]

    def match(self, event: Matchable) -> list[str]:
        """The ids of the subscriptions that want the event, in the order in which they came."""
        return [name for name, wanted in self._filters.items() if wanted.matches(event)]
