"""The virtual clock: actions at whole milliseconds, in the order in which they were planned.

Actions of one millisecond are a list, and a heap holds the milliseconds that have one: most actions
cost an append. Two runs that plan the same actions in the same order do the same.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

__all__ = ["Clock"]


class Clock:
    """A calendar of actions, and the time.

    >>> clock, seen = Clock(), []
    >>> clock.plan(5, seen.append, ("later",)); clock.plan(2, seen.append, ("sooner",))
    >>> _ = clock.advance(until_ms=10); seen, clock.now_ms
    (['sooner', 'later'], 10)
    """

    __slots__ = ("_at", "_planned", "_times", "now_ms", "taken")

    def __init__(self) -> None:
        self.now_ms = 0
        self.taken = 0
        """Actions that were carried out."""
        self._planned: dict[int, list[tuple[Callable[..., Any], tuple[Any, ...]]]] = {}
        self._times: list[int] = []
        self._at = 0

    def plan(self, at_ms: int, action: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Carry the action out at this time, after all that is planned for the same time."""
        assert at_ms >= self.now_ms, "nothing happens in the past"
        planned = self._planned.get(at_ms)
        if planned is None:
            self._planned[at_ms] = [(action, arguments)]
            heappush(self._times, at_ms)
        else:
            planned.append((action, arguments))

    @property
    def next_ms(self) -> int | None:
        """When the next action is due, or None."""
        return self._times[0] if self._times else None

    def advance(self, until_ms: int, stop: Callable[[], bool] | None = None) -> bool:
        """Carry out what is due up to and including this time; whether `stop` said to stop.

        `stop` is asked after each action. If it did not stop, the time is `until_ms` afterwards.
        """
        times, planned = self._times, self._planned
        while times and times[0] <= until_ms:
            time = times[0]
            self.now_ms = time
            # The list may grow while it is worked off, and work may stop in the middle of it.
            actions = planned[time]
            while self._at < len(actions):
                action, arguments = actions[self._at]
                self._at += 1
                self.taken += 1
                action(*arguments)
                if stop is not None and stop():
                    return True
            self._at = 0
            del planned[time]
            heappop(times)
        self.now_ms = max(self.now_ms, until_ms)
        return False

    def advance_until_idle(self, until_ms: int) -> bool:
        """Carry out what is due up to this time; True, and no later, if nothing is planned then."""
        while self._times and self._times[0] <= until_ms:
            self.advance(self._times[0])
        if self._times:
            self.now_ms = max(self.now_ms, until_ms)
        return not self._times
