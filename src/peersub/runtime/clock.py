"""The clock of a live node.

Milliseconds since 1970 that never go back: the wall clock is read once, when the node starts, and
only elapsed time is added. What the node keeps on disk (when an event came home) can so be compared
after a restart, and a change of the wall clock while it runs fires no timer.
"""

from __future__ import annotations

import time

__all__ = ["Clock"]


class Clock:
    """Time as protocols want it."""

    __slots__ = ("_begin",)

    def __init__(self) -> None:
        self._begin = time.time() - time.monotonic()

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return int((self._begin + time.monotonic()) * 1_000)
