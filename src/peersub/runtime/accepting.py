"""The door of a node: it takes those who call one by one, and strangers no faster than it can bear.

Whoever calls costs work before it is known who that is. So the node takes at most one caller in a
turn of the event loop, between which the links of its neighbours are served; and callers that never
say who they are use up a budget (`RateLimit`). While it is used up, callers wait in the kernel's
queue, where they cost nothing. A caller that names itself gives its share back, so that a thousand
clients that return at once are not taken for an attack.

The loop's own server is not used: it takes up to its whole backlog in one turn, and a connection
that it took in the turn before its end is never closed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterable
from errno import EMFILE, ENFILE, ENOBUFS, ENOMEM
from typing import Final, TypeVar

from peersub.runtime.connection import Connection
from peersub.runtime.counters import Counters
from peersub.runtime.security.rate_limit import RateLimit

__all__ = ["MADE_ROOM", "Acceptor", "least_welcome"]

BACKLOG: Final = 512
"""Callers that may wait in the kernel's queue."""
EXHAUSTED: Final = frozenset({EMFILE, ENFILE, ENOBUFS, ENOMEM})
EXHAUSTED_PAUSE_MS: Final = 200
"""How long nobody is taken when the machine has no descriptor or memory left for it."""


MADE_ROOM: Final = "a silent caller that made room for another"

Caller = TypeVar("Caller")


def least_welcome(callers: Iterable[Caller], address_of: Callable[[Caller], str]) -> Caller:
    """Who has waited longest among those of the address that most of them call from.

    So whoever keeps many callers silent makes room for newcomers with its own.

    >>> least_welcome(["a1", "b1", "b2", "c1"], lambda caller: caller[0])
    'b1'
    """
    by_address: dict[str, list[Caller]] = {}
    for caller in callers:
        by_address.setdefault(address_of(caller), []).append(caller)
    return max(by_address.values(), key=len)[0]


class Acceptor:
    """Takes connections on an address.

    Args:
        make: the protocol of a new connection.
        strangers: how fast callers may come that have not said yet who they are.
        counters: of what went wrong.
        now_ms: the clock.
        tls: what to accept connections with, if with TLS.
        handshake_ms: how long TLS may take to agree.
        taking_max: callers with which TLS may be about to agree at once; one more takes the
            place of another (`least_welcome`).
    """

    def __init__(
        self,
        make: Callable[[], Connection],
        strangers: RateLimit,
        counters: Counters,
        now_ms: Callable[[], int],
        *,
        tls: ssl.SSLContext | None = None,
        handshake_ms: int,
        taking_max: int,
    ) -> None:
        self._make = make
        self._strangers = strangers
        self._counters = counters
        self._now_ms = now_ms
        self._tls = tls
        self._handshake_ms = handshake_ms
        self._taking_max = taking_max
        self._sockets: list[socket.socket] = []
        self._taking: dict[asyncio.Task[object], socket.socket] = {}
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Begin; the address. Raises OSError if it cannot be used."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                self._sockets.append(_listening(family, address))
        except OSError:
            self._close_sockets()
            raise
        for each in self._sockets:
            loop.add_reader(each, self._take_one, each)
        bound = self._sockets[0].getsockname()
        return bound[0], bound[1]

    def named(self) -> None:
        """A caller has said who it is."""
        self._strangers.give_back()

    async def close(self) -> None:
        """Take nobody more, and wait until those who were taken are connected, or gone."""
        loop = asyncio.get_running_loop()
        for each in self._sockets:
            loop.remove_reader(each)
        for pause in self._pauses.values():
            pause.cancel()
        self._close_sockets()
        if self._taking:
            if self._tls is not None:
                for task in self._taking:
                    task.cancel()
            await asyncio.wait(self._taking)

    def _close_sockets(self) -> None:
        for each in self._sockets:
            each.close()
        self._sockets.clear()

    def _take_one(self, listening: socket.socket) -> None:
        """Somebody calls; whoever calls after it has its turn in the next turn of the loop."""
        wait_ms = self._strangers.wait_ms(self._now_ms())
        if wait_ms:
            self._counters.add("a pause because too many strangers call")
            self._pause(listening, wait_ms)
            return
        try:
            caller, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            self._strangers.give_back()
            return
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
            self._counters.add("a caller for whom no descriptor or memory was left")
            self._pause(listening, EXHAUSTED_PAUSE_MS)
            return
        if len(self._taking) >= self._taking_max:
            self._counters.add(MADE_ROOM)
            least_welcome(self._taking, self._address_of).cancel()
        loop = asyncio.get_running_loop()
        handshake_s = self._handshake_ms / 1_000 if self._tls else None
        task: asyncio.Task[object] = loop.create_task(
            loop.connect_accepted_socket(
                self._make, caller, ssl=self._tls, ssl_handshake_timeout=handshake_s
            )
        )
        self._taking[task] = caller
        task.add_done_callback(self._taken)

    def _address_of(self, task: asyncio.Task[object]) -> str:
        try:
            return str(self._taking[task].getpeername()[0])
        except (OSError, IndexError):
            return ""

    def _taken(self, task: asyncio.Task[object]) -> None:
        """A caller is connected, or will never be: it hung up, or no TLS could be agreed on."""
        caller = self._taking.pop(task)
        failure = None if task.cancelled() else task.exception()
        if failure is None and not task.cancelled():
            return
        caller.close()
        self._counters.add("a connection that was never made")
        if isinstance(failure, OSError):
            # Its frames hold the future that holds it: a circle (`collecting`).
            failure.__traceback__ = None
        elif failure is not None:
            raise failure

    def _pause(self, listening: socket.socket, wait_ms: int) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        self._pauses[listening] = loop.call_later(wait_ms / 1_000, self._go_on, listening)

    def _go_on(self, listening: socket.socket) -> None:
        asyncio.get_running_loop().add_reader(listening, self._take_one, listening)


def _listening(family: int, address: tuple[object, ...]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # The same port of IPv4 is an address of its own.
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen(BACKLOG)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made
