"""Turns: work that can wait, in slices of a fraction of a millisecond.

A client may ask for thousands of subscriptions at once, neighbours tell as many rows, and thousands
end when a client is lost. Whatever grows with their number is *work*: small parts, done one after
the other until a slice of time is used up. Then the loop sees to everything else. While events pass
through the node it also rests after each slice, for longer than that took: most of a processor
stays for events and signs of life. A slice that is due when an event has just passed waits a tick:
the event is written first, and whoever gets it may need the same processor. Whoever is woken late
shares its processor with others, whom it would hold up: it rests longer still. Without events
nobody waits for a rest.

What cannot be done in small parts, and touches nothing but what it is given, is done off the loop:
in a thread, one after the other, with rests in between as well.

There is one queue of work per event loop: its time is what they share. `LoopMonitor` tells how long
turns of the loop take.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import Future
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

__all__ = ["LoopMonitor", "Turns", "Work"]

SLICE_S: Final = 0.000_1
"""After so long no further part is begun before the loop has seen to everything else."""
REST_SHARE: Final = 4.0
"""How long to rest after a slice while events pass, of the time that it took, and of the time by
which it came too late."""
REST_S_MAX: Final = 0.01
"""No rest is longer: on a busy machine nobody is in time, and work must still get on."""
OFF_LOOP_REST_S_MAX: Final = 0.1
"""The same of a thread, whose work takes longer."""
TICK_S: Final = 0.001
"""No later than so counts as in time: clocks of loops have such steps."""
CALM_S: Final = 0.1
"""Without an event for so long, nobody rests."""

Work: TypeAlias = Callable[[], bool]
"""Does a small part of some work; whether more is left."""
OffLoop: TypeAlias = tuple[Callable[[], Any], Callable[[Any], None]]
"""What a thread does, and who is told on the loop when it is done: how, the future knows."""


class Turns:
    """The work of an event loop, served in order, one part each.

    Args:
        now_s: the clock by which slices are measured.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._waiting: deque[Work] = deque()
        self._is_planned = False
        self._event_s = -CALM_S
        self._has_waited = False
        """Whether the next slice has waited for an event."""
        self._rested_s = 0.0
        """When the last rest ends, or has ended."""
        self._off_loop: deque[OffLoop] = deque()
        self._is_thread_busy = False
        self._thread: ThreadPoolExecutor | None = None

    @classmethod
    def of_running_loop(cls) -> Turns:
        """Those of the loop that runs now."""
        loop = asyncio.get_running_loop()
        turns = _TURNS.get(loop)
        if turns is None:
            turns = _TURNS[loop] = cls()
        return turns

    def ask(self, work: Work) -> None:
        """Do some work, part by part, until none is left."""
        self._waiting.append(work)
        if not self._is_planned:
            self._plan_next()

    def run_off_loop(self, work: Callable[[], Any], on_done: Callable[[Any], None]) -> None:
        """Have a thread do some work in its turn; then `on_done` is called with its future."""
        self._off_loop.append((work, on_done))
        if not self._is_thread_busy:
            self._begin_off_loop()

    async def finish_off_loop(self, work: Callable[[], Any]) -> None:
        """Have a thread do some work in its turn, and wait until it is done."""
        done = asyncio.get_running_loop().create_future()
        self.run_off_loop(work, lambda future: None if done.done() else done.set_result(future))
        (await done).result()

    def _begin_off_loop(self) -> None:
        self._is_thread_busy = bool(self._off_loop)
        if not self._is_thread_busy:
            return
        work, on_done = self._off_loop.popleft()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "peersub-off-loop")
        future = asyncio.get_running_loop().run_in_executor(self._thread, work)
        future.add_done_callback(partial(self._end_off_loop, on_done, self._now_s()))

    def _end_off_loop(
        self, on_done: Callable[[Any], None], begun_s: float, future: Future[Any]
    ) -> None:
        now_s = self._now_s()
        rest_s = REST_SHARE * (now_s - begun_s) if self._gives_way_at(now_s) else 0.0
        asyncio.get_running_loop().call_later(
            min(rest_s, OFF_LOOP_REST_S_MAX), self._begin_off_loop
        )
        on_done(future)

    def _gives_way_at(self, now_s: float) -> bool:
        return now_s - self._event_s <= CALM_S

    def give_way(self) -> None:
        """An event passes: work rests in between for a while."""
        self._event_s = self._now_s()

    def _plan_next(self) -> None:
        self._is_planned = True
        loop, now_s = asyncio.get_running_loop(), self._now_s()
        if now_s < self._rested_s:
            loop.call_later(self._rested_s - now_s, self._next, self._rested_s)
        else:
            loop.call_soon(self._next, now_s)

    def _next(self, due_s: float) -> None:
        begun_s = now_s = self._now_s()
        if now_s - self._event_s < TICK_S and not self._has_waited:
            # Once per slice: however many events pass, work gets on.
            self._has_waited = True
            asyncio.get_running_loop().call_later(TICK_S, self._next, now_s + TICK_S)
            return
        self._has_waited = False
        waiting = self._waiting
        try:
            while waiting and now_s - begun_s < SLICE_S:
                work = waiting.popleft()
                if work():
                    waiting.append(work)
                now_s = self._now_s()
        finally:
            # What goes wrong with one's work must not end the turns of all.
            self._is_planned = False
            if self._gives_way_at(now_s):
                late_s = max(0.0, begun_s - due_s - TICK_S)
                rest_s = REST_SHARE * (now_s - begun_s + late_s)
                self._rested_s = now_s + min(rest_s, REST_S_MAX)
            if waiting:
                self._plan_next()


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
_TURNS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Turns]] = WeakKeyDictionary()
