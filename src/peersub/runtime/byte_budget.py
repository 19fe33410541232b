"""Bytes that a node holds for its clients: bounded for each and for all, and shared fairly.

Each client has up to `client_max`, and all of them up to `node_max`, first come, first served.
Beyond that only those get more who hold less than an equal part of it, and the more parts there
are, the less than that: so a greedy client never takes another's room, and never more than twice
`node_max` is held. Clients of one *origin* (an address, where nobody knows who they are) share one
part: many connections gain nothing.

What several hold, or one several times, counts once for each who holds it, once for the node.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

__all__ = ["ENTRY_BYTES", "ByteBudget", "ByteShare"]

ENTRY_BYTES: Final = 128
"""What it takes to hold something, beside its own bytes."""
FRAME_BYTES: Final = 1_024
"""What may travel with something, beside its own bytes, and is held until all of it has come."""


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
        self._holders: Counter[str] = Counter()
        """How many clients of each origin hold something."""
        self._counts: dict[int, int] = {}
        """How many clients hold something, by its identity."""

    def share(self, origin: str = "") -> ByteShare:
        """For one more client of this origin."""
        return ByteShare(self, origin)


class ByteShare:
    """What one client holds.

    Attributes:
        used: bytes that are held.
    """

    __slots__ = ("_budget", "_held", "_origin", "used")

    def __init__(self, budget: ByteBudget, origin: str) -> None:
        self.used = 0
        self._budget = budget
        self._origin = origin
        self._held: dict[int, tuple[int, int]] = {}
        """How often something is held, and its size, by its identity."""

    @property
    def is_scarce(self) -> bool:
        """Whether all clients hold more than they may, but for those who have little."""
        return self._budget.used > self._budget.node_max

    @property
    def largest(self) -> int:
        """The size of what there is room for when nothing else is held, and of its frame."""
        return max(0, min(self._budget.client_max, self._budget.node_max) - FRAME_BYTES)

    def has_room(self, content: object, size: int) -> bool:
        """Whether the client may hold this, too."""
        budget, key = self._budget, id(content)
        after = self.used + ENTRY_BYTES + (0 if key in self._held else size)
        if after > budget.client_max:
            return False
        more = ENTRY_BYTES + (0 if key in budget._counts else size)
        if budget.used + more <= budget.node_max:
            return True
        beside, origins = budget._holders[self._origin], len(budget._holders)
        parts = (beside or 1) * origins if self.used else (beside + 1) * (origins + (not beside))
        # Equal parts, as they were when each was taken, would add up to several times the whole.
        parts *= max(1, parts.bit_length() - 1)
        return after * parts <= budget.node_max and budget.used + more <= 2 * budget.node_max

    def hold(self, content: object, size: int) -> None:
        """The client holds this, and keeps it until it is dropped as often as it was held."""
        budget, key = self._budget, id(content)
        times, known = self._held.get(key, (0, size))
        self._held[key] = (times + 1, known)
        if not self.used:
            budget._holders[self._origin] += 1
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
            budget._holders[self._origin] -= 1
            if not budget._holders[self._origin]:
                del budget._holders[self._origin]
