"""Subscriptions with equal filters share one entry: the filter once, the ids as they came."""

from __future__ import annotations

from collections.abc import Iterator

from peersub.filters.filter import Filter

__all__ = ["SharedEntries"]


class SharedEntries:
    """Ids by filter, filters by id; each distinct filter has a number while someone wants it."""

    __slots__ = ("_entry_of_filter", "_entry_of_id", "_filters", "_ids", "_next")

    def __init__(self) -> None:
        self._next = 0
        self._entry_of_id: dict[str, int] = {}
        self._entry_of_filter: dict[Filter, int] = {}
        self._filters: dict[int, Filter] = {}
        self._ids: dict[int, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._entry_of_id)

    def __contains__(self, subscription_id: str) -> bool:
        return subscription_id in self._entry_of_id

    def add(self, subscription_id: str, wanted: Filter) -> int | None:
        """Add an id. The number of its entry if the filter is new here, else None."""
        entry = self._entry_of_filter.get(wanted)
        is_new = entry is None
        if entry is None:
            entry = self._next
            self._next += 1
            self._entry_of_filter[wanted] = entry
            self._filters[entry] = wanted
            self._ids[entry] = {}
        self._entry_of_id[subscription_id] = entry
        self._ids[entry][subscription_id] = None
        return entry if is_new else None

    def remove(self, subscription_id: str) -> int | None:
        """Remove an id. The number of its entry if nobody else wants the filter, else None."""
        entry = self._entry_of_id.pop(subscription_id)
        ids = self._ids[entry]
        del ids[subscription_id]
        if ids:
            return None
        del self._ids[entry]
        del self._entry_of_filter[self._filters.pop(entry)]
        return entry

    def ids(self, entry: int) -> Iterator[str]:
        """Who wants the filter of this entry."""
        return iter(self._ids[entry])

    def items(self) -> Iterator[tuple[str, Filter]]:
        """All subscriptions, in the order in which they came."""
        for subscription_id, entry in self._entry_of_id.items():
            yield subscription_id, self._filters[entry]
