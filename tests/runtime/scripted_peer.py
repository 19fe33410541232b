"""A node that is a script: a socket, on which a test says what it likes and reads what comes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import msgspec

from peersub.overlays.core.link_messages import Heartbeat, LinkAccepted, LinkOpen
from peersub.wire import FrameDecoder, encode

PATIENCE_S = 20.0


def changed(frame: bytes, **changes: Any) -> bytes:
    """A frame with some fields of its list, by their places `at_N`, set to other values."""
    fields = msgspec.msgpack.decode(frame[6:])
    for place, value in changes.items():
        fields[int(place.removeprefix("at_"))] = value
    payload = bytes(2) + msgspec.msgpack.encode(fields)
    return len(payload).to_bytes(4, "big") + payload


class ScriptedPeer:
    """One connection to a node. Use as an async context manager."""

    def __init__(self, node: str, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._host, _, port = node.rpartition(":")
        self._port = int(port)
        self._decoder = FrameDecoder()
        self._waiting: list[Any] = []
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> ScriptedPeer:
        self._reader, self._writer = await asyncio.open_connection(
            self._host, self._port, ssl=self._tls
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()

    def say(self, data: bytes) -> None:
        self._writer.write(data)

    async def open_as(self, node: str, incarnation: int) -> LinkAccepted:
        """Say which node this is; the answer."""
        self.say(encode(LinkOpen(node, incarnation, 1)))
        return await self.hear(LinkAccepted)

    async def hear(self, kind: type, holds: Callable[[Any], bool] = lambda _: True) -> Any:
        """The next message of a kind; what comes before it is dropped."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                while self._waiting:
                    message = self._waiting.pop(0)
                    if isinstance(message, kind) and holds(message):
                        return message
                data = await self._reader.read(65_536)
                assert data, f"the node closed the connection before it said {kind.__name__}"
                self.say(encode(Heartbeat()))
                self._waiting += self._decoder.feed(data)

    async def closed(self) -> None:
        """Wait until the node has closed the connection."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    if not await self._reader.read(65_536):
                        return
                except ConnectionError:
                    return
