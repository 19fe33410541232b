"""Which events of a subscription have come: doubles are known after a reconnection, or on another
node, by their ids.

Several publishers may use the same ids. Over one connection a node's log gives each event once, in
the order of positions: so a later one of the same id there is another event.
"""

from __future__ import annotations

from typing import Final, TypeAlias

__all__ = ["REMEMBERED_MAX", "EventName", "SeenEvents"]

REMEMBERED_MAX: Final = 16_384
"""The last events of a subscription that is durable or may move."""

EventName: TypeAlias = tuple[str, int]
"""The id of an event, and 0; its position if one with the same id came before it."""


class SeenEvents:
    """The events that a subscription remembers.

    >>> seen = SeenEvents()
    >>> [seen.add(seen.name_of("e", position)) for position in (7, 8)]
    [True, True]
    >>> seen.on_lost()
    >>> [seen.add(seen.name_of("e", position)) for position in (7, 8, 9)]
    [False, False, True]
    """

    def __init__(self) -> None:
        self._connection_of: dict[EventName, int] = {}
        """Over which connection each came last."""
        self._connection = 0
        self._last_position = -1
        """Over this connection."""

    def on_lost(self) -> None:
        """The next events come over another connection, perhaps from the log of another node."""
        self._connection += 1
        self._last_position = -1

    def name_of(self, event_id: str, position: int) -> EventName:
        """What the event at this position of the log is remembered by."""
        is_later = position > self._last_position
        self._last_position = max(position, self._last_position)
        name, other = (event_id, 0), (event_id, position)
        is_other = is_later and self._connection_of.get(name) == self._connection
        return other if is_other or other in self._connection_of else name

    def add(self, name: EventName) -> bool:
        """Whether the event is new; it is known from now on."""
        is_new = name not in self._connection_of
        self._connection_of[name] = self._connection
        if len(self._connection_of) > REMEMBERED_MAX:
            del self._connection_of[next(iter(self._connection_of))]
        return is_new

    def clear(self) -> None:
        """None has come."""
        self._connection_of.clear()
