"""How much of a node's time strangers may take: a share, in slices, so that nobody else waits.

What a connection has to say is read and handled in slices. `Pace` is the share of all clients of a
node together that their filters may take: reading, narrowing and telling them is work that
strangers choose. A bucket of time fills at `SHARE` and holds `BURST_S`; who wants to go on while it
is empty waits. `LoopMonitor` tells how long turns of the event loop take.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

__all__ = ["LoopMonitor", "Pace"]

SHARE: Final = 0.5
"""Of the time: what filters of clients may take."""
BURST_S: Final = 0.010
"""What they may take at once; a filter that is begun is handled to its end."""


class Pace:
    """The bucket. Time is that of `now_s`.

    >>> clock = iter([0.0, 0.0, 0.0, 0.1])
    >>> pace = Pace(lambda: next(clock))
    >>> pace.wait_s(), pace.spend(0.030), round(pace.wait_s(), 3), pace.wait_s()
    (0.0, None, 0.04, 0.0)
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._left_s = BURST_S
        self._at_s = now_s()

    def _fill(self) -> None:
        now_s = self._now_s()
        self._left_s = min(BURST_S, self._left_s + SHARE * (now_s - self._at_s))
        self._at_s = now_s

    def wait_s(self) -> float:
        """How long to wait before going on; 0 if there is no need."""
        self._fill()
        return max(0.0, -self._left_s / SHARE)

    def spend(self, seconds: float) -> None:
        """So much was taken."""
        self._left_s -= seconds


class LoopMonitor:
    """The longest turn of an event loop, in time of its thread's processor.

    A turn is what the loop does between two calls of its selector: all callbacks that were ready.

    Attributes:
        turn_cpu_s_max: of all turns since it is watched.
    """

    def __init__(self, selector: Any) -> None:
        self.turn_cpu_s_max = 0.0
        self._select = selector.select
        self._woke_s = time.thread_time()
        selector.select = self._selected

    @classmethod
    def of_running_loop(cls) -> LoopMonitor | None:
        """The one of the loop that runs now, for all of its nodes; None if it has no selector."""
        loop = asyncio.get_running_loop()
        selector = getattr(loop, "_selector", None)
        if loop not in _MONITORS and selector is not None:
            _MONITORS[loop] = cls(selector)
        return _MONITORS.get(loop)

    def _selected(self, timeout: float | None = None) -> Any:
        turn_s = time.thread_time() - self._woke_s
        if turn_s > self.turn_cpu_s_max:
            self.turn_cpu_s_max = turn_s
        ready = self._select(timeout)
        self._woke_s = time.thread_time()
        return ready

    def status(self) -> dict[str, Any]:
        """Plain values."""
        return {"turn_cpu_ms_max": round(1_000 * self.turn_cpu_s_max, 1)}


_MONITORS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, LoopMonitor]] = WeakKeyDictionary()
