"""The link between a client and a node in the same process: no socket, no bytes, the same protocol.

What the node says comes in a later turn of the loop, as it would over a socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from peersub.client.session import Session
from peersub.runtime.client_door import ClientDoor
from peersub.runtime.client_gate import ClientGate
from peersub.wire.client_messages import Message

__all__ = ["LocalLink"]


class LocalLink:
    """Both ends of the link: the session's, and the door's."""

    identity = ""
    """Whoever runs a node may do on it what the node may."""

    def __init__(
        self,
        session: Session,
        gate: ClientGate,
        on_lost: Callable[[str], None] | None = None,
    ) -> None:
        self._session = session
        self._on_lost = on_lost or session.on_lost
        self._gate = gate
        self._is_closed = False
        self._node_end = _NodeEnd(self)
        self._door: ClientDoor = gate.open(self._node_end)

    def send(self, messages: Sequence[Message]) -> None:
        """What the client says."""
        if not self._is_closed:
            self._door.on_messages(messages)

    def close(self, reason: str) -> None:
        """The client goes away."""
        if not self._is_closed:
            self._is_closed = True
            self._gate.forget(self._door, reason)

    def lose(self, reason: str) -> None:
        """The node has closed the link."""
        if not self._is_closed:
            self.close(reason)
            self._on_lost(reason)

    def receive(self, messages: Sequence[Message]) -> None:
        """What the node says."""
        self._session.on_messages(messages)


class _NodeEnd:
    """What the door sees of the link."""

    identity = ""

    def __init__(self, link: LocalLink) -> None:
        self._link = link

    def send(self, messages: Sequence[Message]) -> None:
        asyncio.get_running_loop().call_soon(self._link.receive, messages)

    def close(self, reason: str) -> None:
        asyncio.get_running_loop().call_soon(self._link.lose, reason)

    def is_full(self) -> bool:
        return False  # Credit bounds what the client has not taken.

    def when_relieved(self, then: Callable[[], None]) -> None:
        then()

    def hold_reading(self, *, hold: bool) -> None:
        """The number of publications that have not ended bounds what comes."""
