"""The link between a client and a node elsewhere: one TCP connection, made again when it is lost.

The same `Connection` as between nodes, with its heartbeats: a node that says nothing for too long
is given up. Where there are several nodes, the others are tried at once, and the lost one last.
Then all are tried again, with pauses that grow (`BACKOFF_S`), until the client is closed, all nodes
say that they do not want it, or its patience ends.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Final

from peersub.client.errors import ConnectError
from peersub.client.session import Session
from peersub.runtime.addresses import split_address
from peersub.runtime.clock import Clock
from peersub.runtime.connection import Connection, ConnectionSettings
from peersub.runtime.counters import Counters
from peersub.runtime.liveness import FOR_CLIENTS
from peersub.runtime.tasks import end_tasks
from peersub.wire.client_messages import ClientRefused, Message

__all__ = ["RemoteLink"]

BACKOFF_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.0)
"""How long to wait after the first, second, … attempt in a row that failed, about."""
DIAL_TIMEOUT_S: Final = 5.0
"""How long an attempt may take, the node's answer included."""


class RemoteLink:
    """Keeps a session connected to a node.

    Args:
        session: what is to be kept connected.
        addresses: of the nodes, in the order in which they are tried.
        tls: makes what to dial with, if with TLS; asked for each connection, since certificates
            are renewed.
        reconnect: whether to dial again when the connection is lost.
        give_up_after: seconds without a connection, after which the session is closed.
    """

    def __init__(
        self,
        session: Session,
        addresses: Sequence[str],
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        *,
        reconnect: bool = True,
        give_up_after: float | None = None,
    ) -> None:
        self.address = addresses[0]
        """The node that it is connected to, or that is tried."""
        self._addresses = tuple(dict.fromkeys(addresses))
        self._give_up_after = give_up_after
        self._session = session
        self._tls = tls
        self._reconnect = reconnect
        self._settings = ConnectionSettings(liveness=FOR_CLIENTS)
        self._counters = Counters()
        self._now_ms = Clock().now_ms
        self._connection: Connection | None = None
        self._is_established = False
        self._is_refused = False
        self._is_closed = False
        self._ticker: asyncio.Task[None] | None = None
        self._redialler: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect for the first time.

        Raises:
            ConnectError: no node can be reached, or takes the client.
        """
        failure, _ = await self._dial_any()
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Close, and dial no more."""
        self._is_closed = True
        connection = self._connection
        if connection is not None:
            connection.close("the client was closed")
        await end_tasks(*filter(None, (self._ticker, self._redialler)))
        if connection is not None:
            await self._closed(connection)

    async def _closed(self, connection: Connection) -> None:
        """Wait until what was sent is through, within reason."""
        deadline_ms = self._now_ms() + DIAL_TIMEOUT_S * 1_000
        while connection.is_closing:
            if self._now_ms() > deadline_ms:
                connection.abort("the client was closed")
                return
            await asyncio.sleep(0.001)

    # --- dialling --------------------------------------------------------------------------------

    async def _dial_any(self) -> tuple[ConnectError | None, bool]:
        """Try all nodes in turn; what the last one said, and whether all of them refuse."""
        failures: list[ConnectError] = []
        refusals = 0
        for address in self._addresses:
            self.address, self._is_refused = address, False
            try:
                await self._dial()
            except ConnectError as error:
                failures.append(error)
                refusals += self._is_refused
            else:
                # After a loss the others come first.
                self._addresses = (*(each for each in self._addresses if each != address), address)
                return None, False
        return failures[-1], refusals == len(failures)

    async def _dial(self) -> None:
        host, port = split_address(self.address)
        connection = Connection(self, self._settings, self._counters, self._now_ms)
        loop = asyncio.get_running_loop()
        tls = self._tls()
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                await loop.create_connection(
                    lambda: connection,
                    host,
                    port,
                    ssl=tls,
                    server_hostname=host if tls else None,
                )
                self._connection = connection
                connection.trust()
                self._ticker = loop.create_task(self._tick(connection))
                await self._session.greet(_Sending(connection))
        except TimeoutError:
            connection.abort("nobody answers")
            raise self._unreachable("nobody answers") from None
        except (OSError, ConnectError) as error:
            connection.abort(str(error))
            if self._is_refused:
                raise ConnectError(f"{self.address} does not take this client: {error}") from None
            hangs_up = tls is None and isinstance(error, ConnectError)
            wish = "; does it want a certificate, --tls FILE?" if hangs_up else ""
            raise self._unreachable(_words(error) + wish) from None
        if self._connection is not connection:
            raise self._unreachable("the connection was lost at once")
        self._is_established = True

    def _unreachable(self, reason: str) -> ConnectError:
        return ConnectError(
            f"no node can be reached at {self.address} ({reason}). Is it running? "
            f"Start one with: peersub node --listen {self.address}"
        )

    async def _dial_again(self) -> None:
        # Another node can be tried at once; one that was lost needs a moment.
        failures = -1 if len(self._addresses) > 1 else 0
        failure: ConnectError | None = None
        try:
            async with asyncio.timeout(self._give_up_after):
                while True:
                    pause_s = BACKOFF_S[min(failures, len(BACKOFF_S) - 1)] if failures >= 0 else 0
                    # Clients that lost the same node do not come back all at once.
                    await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
                    try:
                        failure, all_refuse = await self._dial_any()
                    except ValueError as error:
                        # Files of a certificate that cannot be used may be mended, too.
                        failure, all_refuse = ConnectError(str(error)), False
                    if failure is None:
                        return
                    failures += 1
                    if all_refuse:
                        break
        except TimeoutError:
            reason = f"no connection for {self._give_up_after} s"
            failure = ConnectError(f"{reason}: {failure}" if failure else reason)
        self._session.close(str(failure))

    async def _tick(self, connection: Connection) -> None:
        """Heartbeats, and the end of a node that says nothing."""
        interval_ms = self._settings.liveness.heartbeat_ms / 2
        last_ms = self._now_ms()
        valid_until_s = _valid_until_s(connection)
        while connection.is_closing:
            await asyncio.sleep(interval_ms / 1_000)
            now_ms = self._now_ms()
            late_ms = now_ms - last_ms - interval_ms
            last_ms = now_ms
            reason = connection.tick(now_ms, late_ms if late_ms > interval_ms else 0)
            if reason is None and connection.is_suspect(now_ms):
                reason = "the node says nothing"
            elif reason is None and time.time() > valid_until_s:
                reason = "the certificate of the node has expired"
            if reason is not None:
                connection.abort(reason)

    # --- what the connection says ----------------------------------------------------------------

    def on_opened(self, connection: Connection) -> None:
        """The session greets when the task that dials goes on."""

    def on_messages(self, connection: Connection, messages: Sequence[Message]) -> None:
        """What the node says."""
        if connection is self._connection:
            if not self._is_established and isinstance(messages[0], ClientRefused):
                self._is_refused = True
            try:
                self._session.on_messages(messages)
            except (IndexError, ValueError) as error:
                connection.abort(f"what the node says cannot be read: {error}")

    def on_closed(self, connection: Connection, reason: str) -> None:
        """The connection is gone."""
        if connection is not self._connection:
            return
        self._connection = None
        was_established, self._is_established = self._is_established, False
        if self._is_closed or self._session.is_closed:
            return
        self._session.on_lost(reason)
        if not was_established:
            return
        if self._reconnect:
            self._redialler = asyncio.get_running_loop().create_task(self._dial_again())
        else:
            self._session.close(f"the connection to {self.address} was lost: {reason}")

    def on_relieved(self, connection: Connection) -> None:
        """Whoever publishes waits for publications to end, not for the connection."""


def _words(error: Exception) -> str:
    """What the system says, without what asyncio adds to it."""
    if isinstance(error, ssl.SSLError):
        from peersub.runtime.security.tls import handshake_failure

        return handshake_failure(error)
    number = getattr(error, "errno", None)
    if isinstance(number, int) and number > 0:
        return os.strerror(number)
    return str(error) or type(error).__name__


def _valid_until_s(connection: Connection) -> float:
    """When the certificate of the node expires."""
    secured = connection.extra("ssl_object")
    shown = None if secured is None else secured.getpeercert()
    return ssl.cert_time_to_seconds(shown["notAfter"]) if shown else math.inf


class _Sending:
    """What the session sees of a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, messages: Sequence[Message]) -> None:
        self._connection.send(messages)

    def close(self, reason: str) -> None:
        self._connection.close(reason)
