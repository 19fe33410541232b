"""Turns: work that is too much for one turn of the loop is done in parts, with pauses in between.

A client may ask for thousands of subscriptions at once, and thousands end when it is lost. Between
the parts of such work everybody else has a turn, and after each part the node rests for longer than
the part took: most of a processor stays for events and signs of life.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

__all__ = ["Turns", "Work"]

PAUSE_SHARE: Final = 2.0
"""How long to rest after a part of the work, of the time that it took."""
PAUSE_S_MAX: Final = 0.05

Work: TypeAlias = Callable[[], bool]
"""Does a part of some work; whether more is left."""


class Turns:
    """Those who have more to do than fits into one turn, served in order, one part each."""

    def __init__(self) -> None:
        self._waiting: deque[Work] = deque()
        self._is_planned = False

    def ask(self, work: Work) -> None:
        """Do the rest of some work, part by part, until none is left."""
        self._waiting.append(work)
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        work = self._waiting.popleft()
        try:
            if work():
                self._waiting.append(work)
        finally:
            # What goes wrong with one's work must not end the turns of all.
            self._is_planned = bool(self._waiting)
            if self._is_planned:
                pause_s = min(PAUSE_SHARE * (loop.time() - begun_s), PAUSE_S_MAX)
                loop.call_later(pause_s, self._next)
