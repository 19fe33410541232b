"""`Pace`: when changes of filters are passed on: at once, collected, or in the next turn."""

from __future__ import annotations

from typing import Final

__all__ = ["TURN_PAUSE_MS", "Pace"]

TURN_PAUSE_MS: Final = 1
"""Until the next turn of what is too much for one."""
AT_ONCE_MAX: Final = 8
"""Changes in a row that are passed on at once before those that follow are collected."""
CALM_MS: Final = 50
"""Without a change for so long, the next ones are passed on at once again."""


class Pace:
    """Whether a timer runs, has just fired, and how much has changed lately.

    Args:
        burst_ms: how long changes that follow many others are collected; 0 for not at all.
    """

    __slots__ = ("_burst_ms", "_calm_from_ms", "_left_at_once", "is_time", "is_waiting")

    def __init__(self, burst_ms: int) -> None:
        self._burst_ms = burst_ms
        self._calm_from_ms = 0
        self._left_at_once = AT_ONCE_MAX
        self.is_waiting = False
        """Whether the timer runs."""
        self.is_time = False
        """Whether it has fired since the last flush."""

    def fire(self) -> None:
        """The timer has fired."""
        self.is_waiting = False
        self.is_time = True

    def is_burst(self, now_ms: int) -> bool:
        """Whether so much has changed lately that further changes are collected first."""
        if not self._burst_ms or self.is_waiting:
            return self.is_waiting
        if now_ms >= self._calm_from_ms:
            self._left_at_once = AT_ONCE_MAX
        self._calm_from_ms = now_ms + CALM_MS
        self._left_at_once -= 1
        return self._left_at_once < 0
