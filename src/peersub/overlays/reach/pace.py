"""`Pace`: so many changes of places until neighbours have said again what they hold (§3.3).

Tables are told when they change, not in heartbeats, so a node that is whole has new ones. The limit
is for networks that grow or shrink by many at once.
"""

from __future__ import annotations

__all__ = ["Pace"]


class Pace:
    """The changes of a node's places in the present beat; without a limit there are no beats."""

    def __init__(self, changes_per_beat: int, beat_ms: int) -> None:
        self._changes_max = changes_per_beat
        self._beat_ms = beat_ms
        self._began_ms = 0
        self._changes = 0

    @property
    def is_limited(self) -> bool:
        """Whether changes may have to wait."""
        return bool(self._changes_max)

    def allows(self, now_ms: int) -> bool:
        """Whether there may be another change. A beat begins with its first one."""
        self._end_beat(now_ms)
        return not self._changes_max or self._changes < self._changes_max

    def count(self, now_ms: int) -> None:
        """There is a change."""
        self._end_beat(now_ms)
        if not self._changes:
            self._began_ms = now_ms
        self._changes += 1

    def _end_beat(self, now_ms: int) -> None:
        if now_ms - self._began_ms >= self._beat_ms:
            self._changes = 0
