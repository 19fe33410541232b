"""What a node says of its work: since when it runs, how many events pass, what memory it takes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

__all__ = ["NodeFigures", "Rate", "resident_bytes"]

WINDOW_MS: Final = 60_000
"""Rates are of the last minute, or of the time since the node began."""
BUCKETS: Final = 12
_VERSION: Final = version("peersub")
_STATM: Final = Path("/proc/self/statm")


class Rate:
    """Events per second over the last while.

    >>> rate = Rate(0)
    >>> for at_ms in range(0, 10_000, 100): rate.add(1, at_ms)
    >>> rate.total, rate.per_second(10_000)
    (100, 10.0)
    """

    __slots__ = ("_begin_ms", "_buckets", "total")

    def __init__(self, now_ms: int) -> None:
        self.total = 0
        self._begin_ms = now_ms
        self._buckets: deque[tuple[int, int]] = deque(maxlen=BUCKETS + 1)
        """When a part of the window began, and the total then."""

    def add(self, count: int, now_ms: int) -> None:
        """So many more."""
        if not self._buckets or now_ms - self._buckets[-1][0] >= WINDOW_MS // BUCKETS:
            self._buckets.append((now_ms, self.total))
        self.total += count

    def per_second(self, now_ms: int) -> float:
        """How many there were per second, lately."""
        recent = [each for each in self._buckets if now_ms - each[0] <= WINDOW_MS]
        if not recent:
            return 0.0
        lasted_ms = max(1, min(now_ms - self._begin_ms, WINDOW_MS))
        return round((self.total - recent[0][1]) * 1_000 / lasted_ms, 1)


def resident_bytes() -> int | None:
    """The memory of this process, where the system says it."""
    try:
        pages = int(_STATM.read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


class NodeFigures:
    """Counts what passes through a node."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._begin_ms = now_ms()
        self._published = Rate(self._begin_ms)
        self._delivered = Rate(self._begin_ms)

    def published(self, count: int) -> None:
        """Programs on this node, or its clients, have published events."""
        self._published.add(count, self._now_ms())

    def delivered(self, count: int) -> None:
        """Events were handed to subscriptions of this node."""
        self._delivered.add(count, self._now_ms())

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        now_ms = self._now_ms()
        return {
            "version": _VERSION,
            "uptime_s": (now_ms - self._begin_ms) // 1_000,
            "events": {
                "published": self._published.total,
                "published_per_second": self._published.per_second(now_ms),
                "delivered": self._delivered.total,
                "delivered_per_second": self._delivered.per_second(now_ms),
            },
            "memory_bytes": resident_bytes(),
        }
