"""Long ways with losses where the kernel has no netem: a proxy before each node, which is slow.

A node listens at one address and advertises that of its proxy, so every connection between nodes
goes through one. Bytes arrive 100 ms late, each way. For one segment in a hundred they stall for a
retransmission time-out, and all that follow wait, as they do under TCP; a segment may be lost
again, and the time-out doubles. The handshake takes a round trip. What this leaves out: a window
that shrinks after a loss, and a loss that is noticed sooner because later segments arrive.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Final

from peersub.bench.resilience.cluster import free_addresses
from peersub.bench.resilience.namespaces import SLOW_LOSS_PERCENT, SLOW_MS
from peersub.runtime.addresses import split_address

__all__ = ["SlowWays", "stall_s"]

SEGMENT_BYTES: Final = 1_448
TIMEOUT_MS: Final = 3 * SLOW_MS
"""Until a lost segment is sent again: a round trip, and half of one more for its variation."""
DOUBLINGS_MAX: Final = 6
WINDOW_BYTES: Final = 4 * 1_024 * 1_024
"""Bytes under way in one direction; then the sender waits."""
_APART_S: Final = 1e-6
"""Timers for one time fire in any order: this keeps bytes in theirs."""


def stall_s(count: int, drawn: random.Random) -> float:
    """How long so many bytes stall because segments of theirs are lost."""
    stalled_ms = 0
    for _ in range(-(-count // SEGMENT_BYTES)):
        losses = 0
        while losses < DOUBLINGS_MAX and drawn.random() * 100 < SLOW_LOSS_PERCENT:
            stalled_ms += TIMEOUT_MS << losses
            losses += 1
    return stalled_ms / 1_000


class _End(asyncio.Protocol):
    """One end of a connection through a proxy: what comes here is written to the other, late."""

    def __init__(self, ways: SlowWays, listen: str | None = None) -> None:
        self._ways = ways
        self._listen = listen
        """Where to connect to, at the end that was accepted."""
        self._other: _End | None = None
        self._due_s = 0.0
        self._under_way = 0
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ways.ends.add(self)
        if self._listen is not None:
            transport.pause_reading()
            self._ways.connect(self._connect(self._listen))

    async def _connect(self, listen: str) -> None:
        """Have the other end, after a handshake."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(2 * SLOW_MS / 1_000)
        host, port = split_address(listen)
        try:
            _, other = await loop.create_connection(lambda: _End(self._ways), host, port)
        except OSError:
            self.close()
            return
        self._other, other._other = other, self
        if self._transport.is_closing():
            other.close()
        else:
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Let it arrive at the other end when it is due."""
        stalled_s = stall_s(len(data), self._ways.random)
        self._under_way += len(data)
        if self._under_way > WINDOW_BYTES:
            self._transport.pause_reading()
        self._later(stalled_s, self._arrive, data)

    def _later(self, stalled_s: float, what: Callable[..., None], *arguments: object) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + SLOW_MS / 1_000 + stalled_s
        self._due_s = max(due_s, self._due_s + _APART_S)
        loop.call_at(self._due_s, what, *arguments)

    def _arrive(self, data: bytes) -> None:
        assert self._other is not None
        self._under_way -= len(data)
        if self._under_way <= WINDOW_BYTES and not self._transport.is_closing():
            self._transport.resume_reading()
        if not self._other._transport.is_closing():
            self._other._transport.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._ways.ends.discard(self)
        if self._other is not None:
            self._later(0.0, self._other.close)

    def close(self) -> None:
        """End this side of the connection."""
        self._transport.close()


class SlowWays:
    """The proxies of a network; an async context manager."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.ends: set[_End] = set()
        self._listens: dict[str, str] = {}
        self._servers: list[asyncio.Server] = []
        self._connecting: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> SlowWays:
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._connecting):
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)
        for end in list(self.ends):
            end.close()

    async def open(self) -> str:
        """The address of another proxy."""
        listen, advertised = free_addresses(2)
        self._listens[advertised] = listen
        host, port = split_address(advertised)
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_server(lambda: _End(self, listen), host, port))
        return advertised

    def listen_of(self, advertised: str) -> str:
        """Where the node listens whose proxy this is."""
        return self._listens[advertised]

    def connect(self, connecting: Coroutine[None, None, None]) -> None:
        """Make a connection meanwhile."""
        task = asyncio.create_task(connecting)
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
