"""`Recent`: the newest subscriptions of a matcher, in a small index in plain Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peersub.filters.filter import Filter
from peersub.matching.shared_entries import SharedEntries
from peersub.matching.small_index import Probe, SmallIndex

if TYPE_CHECKING:
    from peersub.matching.segment import Segment

__all__ = ["Recent"]


class Recent:
    """Subscriptions that are not compiled yet; equal filters share an entry of the index."""

    __slots__ = ("_compiled", "_entries", "_index")

    def __init__(self) -> None:
        self._entries = SharedEntries()
        self._index = SmallIndex()
        self._compiled: Segment | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, subscription_id: str) -> bool:
        return subscription_id in self._entries

    def items(self) -> list[tuple[str, Filter]]:
        """All subscriptions as of now, in the order in which they came."""
        return list(self._entries.items())

    def add(self, subscription_id: str, wanted: Filter) -> None:
        """Add a subscription under a new id."""
        entry = self._entries.add(subscription_id, wanted)
        if entry is not None:
            self._index.add(entry, wanted.boxes)
        self._compiled = None

    def remove(self, subscription_id: str) -> None:
        """Remove a subscription, which is there."""
        entry = self._entries.remove(subscription_id)
        if entry is not None:
            self._index.remove(entry)
        self._compiled = None

    def match(self, probe: Probe) -> list[str]:
        """The ids of the subscriptions that want an event."""
        return [name for entry in self._index.match(probe) for name in self._entries.ids(entry)]

    def matches_any(self, probe: Probe) -> bool:
        """Whether there is a subscription that wants an event."""
        return self._index.matches_any(probe)

    def compiled(self) -> Segment:
        """All of them as a segment, made anew when they have changed."""
        from peersub.matching.segment import Segment

        if self._compiled is None:
            self._compiled = Segment.of_filters(self._entries.items())
        return self._compiled
