"""Answers to a client that asks how its node is: one at a time, and no faster than they are read.

An answer is many times as large as the question. So the next one waits until the connection has
room, and for as long as its size asks for; a client that asks on and on without waiting is refused.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from peersub.runtime.client_ports import ClientConnection
from peersub.wire.client_messages import StatusGiven
from peersub.wire.limits import OPAQUE_BYTES_MAX

__all__ = ["STATUS_WAITING_MAX", "StatusAnswers"]

STATUS_WAITING_MAX: Final = 64
"""Questions of a client that wait for their answers."""
STATUS_BYTES_PER_S: Final = 1_024 * 1_024
"""Of the answers to one client."""
STATUS_PAUSE_S: Final = 0.02
"""Between two answers, however short they are."""


class StatusAnswers:
    """Answers one client.

    Args:
        connection: to the client.
        status: what there is to say.
    """

    def __init__(self, connection: ClientConnection, status: Callable[[], dict[str, Any]]) -> None:
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
            self._answer()
        return True

    def end(self) -> None:
        """The client is gone."""
        self._waiting.clear()

    def _answer(self) -> None:
        number = self._waiting.popleft()
        content = json.dumps(self._status(), default=str).encode()
        starts = range(0, len(content), OPAQUE_BYTES_MAX)
        self._connection.send(
            [
                StatusGiven(
                    number, content[start : start + OPAQUE_BYTES_MAX], last=start == starts[-1]
                )
                for start in starts
            ]
        )
        self._is_pausing = True
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
            self._answer()
