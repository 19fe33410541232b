"""Bytes that a node holds for its clients: bounded for each and for all, and shared fairly.

Each client has up to `client_max`, and all of them up to `node_max`, first come, first served.
Beyond that only those get more who hold less than an equal part of it: so a greedy client never
takes another's room, and less than twice `node_max` is ever held.

What several hold, or one several times, counts once for each who holds it, once for the node.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ENTRY_BYTES", "ByteBudget", "ByteShare"]

ENTRY_BYTES: Final = 128
"""What it takes to hold something, beside its own bytes."""


class ByteBudget:
    """What all clients of a node hold together.

    Attributes:
        used: bytes that are held.
    """

    __slots__ = ("_counts", "_holders", "client_max", "node_max", "used")

    def __init__(self, node_max: int, client_max: int) -> None:
        self.node_max = node_max
        self.client_max = client_max
        self.used = 0
        self._holders = 0
        self._counts: dict[int, int] = {}
        """How many clients hold something, by its identity."""

    def share(self) -> ByteShare:
        """For one more client."""
        return ByteShare(self)


class ByteShare:
    """What one client holds.

    Attributes:
        used: bytes that are held.
    """

    __slots__ = ("_budget", "_held", "used")

    def __init__(self, budget: ByteBudget) -> None:
        self.used = 0
        self._budget = budget
        self._held: dict[int, tuple[int, int]] = {}
        """How often something is held, and its size, by its identity."""

    def has_room(self, content: object, size: int) -> bool:
        """Whether the client may hold this, too."""
        budget, key = self._budget, id(content)
        after = self.used + ENTRY_BYTES + (0 if key in self._held else size)
        if after > budget.client_max:
            return False
        more = ENTRY_BYTES + (0 if key in budget._counts else size)
        if budget.used + more <= budget.node_max:
            return True
        holders = budget._holders if self.used else budget._holders + 1
        return after * holders <= budget.node_max

    def hold(self, content: object, size: int) -> None:
        """The client holds this, and keeps it until it is dropped as often as it was held."""
        budget, key = self._budget, id(content)
        times, known = self._held.get(key, (0, size))
        self._held[key] = (times + 1, known)
        if not self.used:
            budget._holders += 1
        self.used += ENTRY_BYTES
        budget.used += ENTRY_BYTES
        if not times:
            self.used += size
            holders = budget._counts.get(key, 0)
            budget._counts[key] = holders + 1
            if not holders:
                budget.used += size

    def drop(self, content: object) -> None:
        """The client does not hold this any more, or once less."""
        budget, key = self._budget, id(content)
        times, size = self._held[key]
        self.used -= ENTRY_BYTES
        budget.used -= ENTRY_BYTES
        if times > 1:
            self._held[key] = (times - 1, size)
            return
        del self._held[key]
        self.used -= size
        budget._counts[key] -= 1
        if not budget._counts[key]:
            del budget._counts[key]
            budget.used -= size
        if not self.used:
            budget._holders -= 1
