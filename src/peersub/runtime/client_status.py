"""Answers to clients that ask how their node is: no faster than they are read and it can bear.

An answer is many times as large as the question. So the next one waits until the connection has
room, and for as long as its size asks for; a client that asks on and on without waiting is refused.

To look at all that a node has takes its time as well, however many clients ask. So answers are made
one after the other, each for all who ask the same meanwhile, and take no more than a stated share
of the loop (`StatusTurns`). Nobody gets an answer that was made before the question.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from peersub.runtime.client_ports import ClientConnection
from peersub.runtime.turns import Turns
from peersub.wire.client_messages import StatusGiven
from peersub.wire.limits import OPAQUE_BYTES_MAX

__all__ = ["STATUS_WAITING_MAX", "StatusAnswers", "StatusTurns"]

STATUS_WAITING_MAX: Final = 64
"""Questions of a client that wait for their answers."""
STATUS_BYTES_PER_S: Final = 1_024 * 1_024
"""Of the answers to one client."""
STATUS_PAUSE_S: Final = 0.02
"""Between two answers, however short they are."""
STATUS_REST_SHARE: Final = 19.0
"""How long nothing is made after an answer, of the time that it took: a twentieth is spent so."""

Status: TypeAlias = Callable[[], dict[str, Any]]
"""Says how a node is. Equal ones say the same, and are asked once for all who wait."""
_Take: TypeAlias = Callable[[bytes], None]


class StatusTurns:
    """Makes the answers of an event loop.

    Args:
        now_s: the clock by which rests are measured.
        spent_s: the clock of what answers cost.
    """

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        spent_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._now_s = now_s
        self._spent_s = spent_s
        self._asking: dict[Status, list[_Take]] = {}
        self._told: deque[_Take] = deque()
        """Who is told what was made last, and was not yet."""
        self._content = b""
        self._rested_s = 0.0
        self._is_planned = False

    @classmethod
    def of_running_loop(cls) -> StatusTurns:
        """Those of the loop that runs now."""
        loop = asyncio.get_running_loop()
        turns = _TURNS.get(loop)
        if turns is None:
            turns = _TURNS[loop] = cls()
        return turns

    def ask(self, status: Status, take: _Take) -> None:
        """Let `take` have the answer as JSON: at once, if nothing was made for a while."""
        self._asking.setdefault(status, []).append(take)
        if self._is_planned:
            return
        self._is_planned = True
        if self._now_s() < self._rested_s:
            self._plan()
        elif self._do_some():
            Turns.of_running_loop().ask(self._do_some)

    def _plan(self) -> None:
        """Go on when enough time has passed, and it is our turn."""
        wait_s = max(0.0, self._rested_s - self._now_s())
        turns = Turns.of_running_loop()
        asyncio.get_running_loop().call_later(wait_s, turns.ask, self._do_some)

    def _do_some(self) -> bool:
        """Make an answer, or tell it to one who asked; whether more is to be told."""
        begun_s = self._spent_s()
        try:
            self._tell_one()
        finally:
            rested_s = max(self._now_s(), self._rested_s)
            self._rested_s = rested_s + STATUS_REST_SHARE * (self._spent_s() - begun_s)
            if not self._told:
                self._content = b""
                self._is_planned = bool(self._asking)
                if self._is_planned:
                    self._plan()
        return bool(self._told)

    def _tell_one(self) -> None:
        if not self._told:
            status = next(iter(self._asking))
            asking = self._asking.pop(status)
            self._content = json.dumps(status(), default=str).encode()
            self._told.extend(asking)
        self._told.popleft()(self._content)


class StatusAnswers:
    """Answers one client.

    Args:
        connection: to the client.
        status: what there is to say.
    """

    def __init__(self, connection: ClientConnection, status: Status) -> None:
        self._connection = connection
        self._status = status
        self._waiting: deque[int] = deque()
        self._is_pausing = False

    def want(self, number: int) -> bool:
        """The client asks, under this number; False if too many of its questions wait."""
        if len(self._waiting) >= STATUS_WAITING_MAX:
            return False
        self._waiting.append(number)
        if not self._is_pausing:
            self._ask()
        return True

    def end(self) -> None:
        """The client is gone."""
        self._waiting.clear()

    def _ask(self) -> None:
        self._is_pausing = True
        StatusTurns.of_running_loop().ask(self._status, self._answer)

    def _answer(self, content: bytes) -> None:
        if not self._waiting:
            return
        number = self._waiting.popleft()
        starts = range(0, len(content), OPAQUE_BYTES_MAX)
        self._connection.send(
            [
                StatusGiven(
                    number, content[start : start + OPAQUE_BYTES_MAX], last=start == starts[-1]
                )
                for start in starts
            ]
        )
        pause_s = max(STATUS_PAUSE_S, len(content) / STATUS_BYTES_PER_S)
        asyncio.get_running_loop().call_later(pause_s, self._go_on)

    def _go_on(self) -> None:
        self._is_pausing = False
        if not self._waiting:
            return
        if self._connection.is_full():
            self._is_pausing = True
            self._connection.when_relieved(self._go_on)
        else:
            self._ask()


_TURNS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, StatusTurns]] = WeakKeyDictionary()
