"""What becomes of a client's connection, for programs that want to hear of it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["ConnectionEvent", "ConnectionEvents"]

KEPT_MAX: Final = 256
"""Events that wait for somebody who follows them; older ones make room."""


@dataclass(frozen=True, slots=True)
class ConnectionEvent:
    """The connection to a node was made, was lost, or there will be none any more.

    Attributes:
        kind: `connected`, `disconnected` (another follows, to this node or another), or `closed`.
        node: the address of the node.
        reason: why it was lost or closed; empty if the program wanted it so.
    """

    kind: Literal["connected", "disconnected", "closed"]
    node: str
    reason: str = ""


class ConnectionEvents:
    """Tells all who listen, in the order in which it happens."""

    def __init__(self) -> None:
        self._listeners: dict[int, Callable[[ConnectionEvent], object]] = {}
        self._number = 0
        self._is_over = False

    def listen(self, listener: Callable[[ConnectionEvent], object]) -> Callable[[], None]:
        """Call it at each event, on the loop's thread; what is returned ends that."""
        self._number += 1
        number = self._number
        self._listeners[number] = listener
        return lambda: self._listeners.pop(number, None) and None

    def tell(self, event: ConnectionEvent) -> None:
        """Something has happened; what a listener raises concerns nobody else."""
        self._is_over = event.kind == "closed"
        for listener in list(self._listeners.values()):
            try:
                listener(event)
            except Exception as error:
                context = {"message": "a listener to a connection failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)

    def follow(self) -> AsyncIterator[ConnectionEvent]:
        """The events from now on; it ends when there will be none any more."""
        waiting: deque[ConnectionEvent] = deque(maxlen=KEPT_MAX)
        news = asyncio.Event()

        def note(event: ConnectionEvent) -> None:
            waiting.append(event)
            news.set()

        return self._following(waiting, news, self.listen(note))

    async def _following(
        self, waiting: deque[ConnectionEvent], news: asyncio.Event, end: Callable[[], None]
    ) -> AsyncIterator[ConnectionEvent]:
        try:
            while waiting or not self._is_over:
                while waiting:
                    yield waiting.popleft()
                if not self._is_over:
                    news.clear()
                    await news.wait()
        finally:
            end()
