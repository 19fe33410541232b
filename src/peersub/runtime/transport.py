"""All connections of a live node: at most one per other node, and those of clients.

The rules that `overlays.core.links` asks of a driver are kept here. Whoever dials says `LinkOpen`;
the other side answers `LinkAccepted`, and from then on the connection is the link of the two nodes,
on both sides. A TCP connection alone is no sign of life: the kernel of a stopped process makes it.

When two nodes dial each other at once, the connection that the node with the smaller name dialled
is kept. A node whose connection broke unnoticed on the other side dials again: the new connection
takes the place of the old one if its life and number are later, and is refused if not, so that
bytes which somebody recorded cannot push a link away.

A node may be dialled by another address than its name (`localhost`, an alias). Then it says its
name, and takes no link over that connection: links are made by names.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, Final

from peersub.overlays.core.identity import NODE_NAME_BYTES_MAX
from peersub.overlays.core.link_messages import LinkAccepted, LinkOpen, LinkRejected
from peersub.overlays.core.messages import Message
from peersub.runtime.accepting import MADE_ROOM, Acceptor, least_welcome
from peersub.runtime.addresses import split_address, words_of
from peersub.runtime.connection import Connection, ConnectionSettings
from peersub.runtime.counters import Counters
from peersub.runtime.dial_memory import DialMemory
from peersub.runtime.link_listener import LinkListener
from peersub.runtime.security.rate_limit import RateLimit
from peersub.runtime.tasks import end_tasks
from peersub.runtime.turns import Turns

__all__ = ["Transport", "TransportSettings"]

CROSSING: Final = "the two nodes dialled each other at once"
ENDED: Final = "the node has ended"


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """How a node treats its connections."""

    connections_max: int = 4_096
    """Of nodes and clients together; more are turned away."""
    unnamed_max: int = 256
    """Connections that have not said yet who they are."""
    strangers_per_second: float = 250
    """Callers that never say who they are, in the long run; others wait meanwhile to be taken."""
    dial_timeout_ms: int = 1_000
    """How long an attempt to reach a node may take, its answer included."""
    connection: ConnectionSettings = field(default_factory=ConnectionSettings)


@dataclass(slots=True)
class _Attempt:
    """A node that is being dialled."""

    number: int
    task: asyncio.Task[None] | None = None
    connection: Connection | None = None
    """None as soon as the other side's own connection, which crossed this one, has precedence."""
    answer: asyncio.Future[str | None] | None = None
    """Why there is no link, or None if there is."""
    is_rejected: bool = False
    """Whether the other side has said that it will not have the link."""
    name: str = ""
    """What the node is called that was found at the address, if that is no name of it."""


@dataclass(slots=True)
class _Link:
    """The connection to a node."""

    connection: Connection
    incarnation: int
    number: int
    """Of the dialling side's connections; 0 if this side dialled."""
    in_doubt: bool = False


class Transport:
    """The connections of a node.

    Args:
        name: of this node, as others dial it.
        incarnation: which life of it.
        settings: bounds and time-outs.
        counters: of what was refused and dropped.
        now_ms: the clock.
        server_tls: what to accept connections with, if with TLS.
        client_tls: what to dial with.
        check_peer: says why the other end may not be this node, by what its certificate says.
        expiry: says why a connection may not last any longer; it is asked all the time.
    """

    def __init__(
        self,
        name: str,
        incarnation: int,
        settings: TransportSettings,
        counters: Counters,
        now_ms: Callable[[], int],
        *,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
        check_peer: Callable[[Connection, str], str | None] | None = None,
        expiry: Callable[[Connection], str | None] | None = None,
    ) -> None:
        self.name = name
        self.links: dict[str, _Link] = {}
        self.listener: LinkListener = None  # type: ignore[assignment]
        """Hears of links; set before anything is dialled or accepted."""
        self._incarnation = incarnation
        self._settings = settings
        self._counters = counters
        self._now_ms = now_ms
        self._server_tls = server_tls
        self._client_tls = client_tls
        self._check_peer = check_peer
        self._expiry = expiry
        self._attempts: dict[str, _Attempt] = {}
        self._dial_memory = DialMemory(now_ms)
        self._open: dict[Connection, None] = {}
        """All that are not gone yet, those that were let go among them."""
        self._unnamed: dict[Connection, None] = {}
        self._others: dict[Connection, None] = {}
        self._node_of: dict[Connection, str] = {}
        self._dialled = 0
        self._acceptor: Acceptor | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._is_closed = False
        self._is_holding = False

    # --- begin and end -------------------------------------------------------------------------

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Accept connections; where. Raises OSError if that cannot be."""
        loop = asyncio.get_running_loop()
        settings = self._settings
        self._acceptor = Acceptor(
            self._new_connection,
            RateLimit(settings.strangers_per_second, settings.unnamed_max),
            self._counters,
            self._now_ms,
            tls=self._server_tls,
            handshake_ms=settings.connection.greeting_ms,
            taking_max=settings.unnamed_max,
        )
        bound = await self._acceptor.listen(host, port)
        self._ticker = loop.create_task(self._tick())
        return bound

    async def close(self) -> None:
        """Accept nothing more, and close all connections once what was sent is through."""
        self._is_closed = True
        if self._ticker is not None:
            await end_tasks(self._ticker)
        if self._acceptor is not None:
            await self._acceptor.close()
        for attempt in list(self._attempts.values()):
            if attempt.task is not None:
                attempt.task.cancel()
        for connection in list(self._open):
            connection.close(ENDED)
        deadline = self._now_ms() + self._settings.dial_timeout_ms
        while self._open:
            if self._now_ms() > deadline:
                for connection in list(self._open):
                    connection.abort(ENDED)
                await asyncio.sleep(0)
                break
            await asyncio.sleep(0.005)

    def _connections(self) -> list[Connection]:
        return [
            *(link.connection for link in self.links.values()),
            *self._unnamed,
            *self._others,
            *(each.connection for each in self._attempts.values() if each.connection is not None),
        ]

    # --- for the driver ------------------------------------------------------------------------

    def connect(self, node: str) -> None:
        """Reach a node; a link that is up, or an attempt under way, is enough."""
        if node in self.links or node in self._attempts or self._is_closed:
            return
        listener, call_soon = self.listener, asyncio.get_running_loop().call_soon
        name, failure = self._dial_memory.name(node), self._dial_memory.failure(node)
        if name in self.links:
            call_soon(partial(listener.on_link_failed, node, f"it is {name}", refused=False))
            return
        if failure is not None:
            refused = failure.is_refused
            call_soon(partial(listener.on_link_failed, node, failure.reason, refused=refused))
            return
        self._dialled += 1
        attempt = self._attempts[node] = _Attempt(self._dialled)
        attempt.task = asyncio.get_running_loop().create_task(self._dial(node, attempt))

    def name_of(self, address: str) -> str:
        """The name of the node at an address, as far as it is known."""
        return self._dial_memory.name(address)

    def disconnect(self, node: str, reason: str) -> None:
        """Close the link once what was sent is through; nobody hears of it here."""
        link = self.links.pop(node, None)
        if link is not None:
            self._node_of.pop(link.connection, None)
            link.connection.close(reason)

    def send(self, node: str, messages: Sequence[Message]) -> None:
        """Send messages on a link; if it is gone, nothing."""
        link = self.links.get(node)
        if link is not None:
            link.connection.send(messages)

    def is_congested(self) -> bool:
        """Whether a link has much to send, and moves: who publishes should hold back."""
        return any(link.connection.is_congested() for link in self.links.values())

    def hold(self, node: str, *, hold: bool) -> None:
        """Stop, or go on, taking what a node sends; congestion of others holds it as well."""
        link = self.links.get(node)
        if link is not None and hold:
            link.connection.pause_reading()
        elif link is not None and not self._is_holding:
            link.connection.resume_reading()

    def _hold_links(self, *, hold: bool) -> None:
        """Stop, or go on, taking what nodes send."""
        for link in self.links.values():
            if hold:
                link.connection.pause_reading()
            else:
                link.connection.resume_reading()

    def _go_on_if_relieved(self) -> None:
        if self._is_holding and not self.is_congested():
            self._is_holding = False
            self._hold_links(hold=False)

    def status(self) -> dict[str, Any]:
        """Plain values for people."""
        return {
            "links": {
                node: {
                    **link.connection.status(),
                    "is_behind": link.in_doubt or link.connection.is_congested(),
                }
                for node, link in sorted(self.links.items())
            },
            "dialling": sorted(self._attempts),
            "clients": len(self._others),
            "unnamed": len(self._unnamed),
        }

    def close_where(self, is_meant: Callable[[Connection], bool], reason: str) -> int:
        """End all connections of which something holds, such as a revoked certificate."""
        meant = [connection for connection in self._connections() if is_meant(connection)]
        for connection in meant:
            connection.abort(reason)
        return len(meant)

    # --- dialling ------------------------------------------------------------------------------

    async def _dial(self, node: str, attempt: _Attempt) -> None:
        connection = self._new_connection()
        connection.is_dialled = True
        attempt.connection = connection
        loop = asyncio.get_running_loop()
        attempt.answer = loop.create_future()
        refused = False
        try:
            host, port = split_address(node)
            async with asyncio.timeout(self._settings.dial_timeout_ms / 1_000):
                await loop.create_connection(
                    lambda: connection,
                    host,
                    port,
                    ssl=self._client_tls,
                    server_hostname=host if self._client_tls else None,
                )
                reason = self._refusal(connection, node)
                refused = reason is not None
                if reason is None:
                    opening = LinkOpen(self.name, self._incarnation, attempt.number, node)
                    connection.send((opening,))
                    reason = await attempt.answer
                    refused = attempt.is_rejected and reason != _is_itself(self.name)
        except TimeoutError:
            reason = "nobody answers"
        except (OSError, ValueError) as error:
            reason = words_of(error)
            refused = isinstance(error, ssl.SSLCertVerificationError)
            error.__traceback__ = None  # It leads back here: a circle with the connection in it.
        if reason and self._attempts.get(node) is attempt:
            del self._attempts[node]
            self._dial_memory.failed(node, reason, is_refused=refused)
            connection.abort(reason)
            self.listener.on_link_failed(node, reason, refused=refused)
            if attempt.name not in ("", self.name, self._dial_memory.name(node)):
                self._dial_memory.named(node, attempt.name)
                self.listener.on_name_found(node, attempt.name)

    def _refusal(self, connection: Connection, node: str) -> str | None:
        """Why the other end may not be taken for this node."""
        return None if self._check_peer is None else self._check_peer(connection, node)

    def _on_answer(self, node: str, attempt: _Attempt, message: Message) -> None:
        """The node that was dialled has said whether it takes the connection."""
        connection = attempt.connection
        assert connection is not None
        assert attempt.answer is not None
        name = _name_said(message)
        if name not in ("", node) and not attempt.answer.done():
            attempt.name = name
            attempt.answer.set_result(_is_itself(name) if name == self.name else f"it is {name}")
        elif isinstance(message, LinkAccepted):
            if self._attempts.get(node) is attempt:
                del self._attempts[node]
                attempt.answer.set_result(None)
                self._link(node, connection, message.incarnation, 0)
            else:
                connection.close(CROSSING)
        elif isinstance(message, LinkRejected) and message.crossing:
            # The other side's own connection is on its way; if it never comes, time is up.
            connection.close(CROSSING)
            attempt.connection = None
        elif not attempt.answer.done():
            attempt.is_rejected = isinstance(message, LinkRejected)
            reason = message.reason if isinstance(message, LinkRejected) else "it is no node"
            if not attempt.is_rejected:
                self._counters.add("an unexpected first message")
            attempt.answer.set_result(reason or "it does not want the link")

    # --- accepting -----------------------------------------------------------------------------

    def _new_connection(self) -> Connection:
        connection = Connection(self, self._settings.connection, self._counters, self._now_ms)
        connection.read_in_turns(Turns.of_running_loop())
        return connection

    def on_opened(self, connection: Connection) -> None:
        """A connection is there; one that was dialled is the attempt's."""
        self._open[connection] = None
        if self._is_closed:
            # It was accepted, or dialled, before the end, and handed over after it.
            connection.abort(ENDED)
            return
        if self._attempt_of(connection) is not None:
            return
        if connection.is_dialled:
            connection.abort(CROSSING)
            return
        settings = self._settings
        count = len(self.links) + len(self._others) + len(self._unnamed)
        is_full = count >= settings.connections_max
        if is_full and not self._unnamed:
            self._counters.add("a connection too many")
            connection.abort("there are too many connections")
            return
        if is_full or len(self._unnamed) >= settings.unnamed_max:
            # Never the newcomer, who may be about to say who it is.
            silent = least_welcome(self._unnamed, attrgetter("host"))
            del self._unnamed[silent]
            self._counters.add(MADE_ROOM)
            silent.abort("it said nothing, and others call")
        self._unnamed[connection] = None

    def _attempt_of(self, connection: Connection) -> tuple[str, _Attempt] | None:
        for node, attempt in self._attempts.items():
            if attempt.connection is connection:
                return node, attempt
        return None

    def on_messages(self, connection: Connection, messages: Sequence[Message]) -> None:
        """Messages on a connection, whoever is at its other end."""
        node = self._node_of.get(connection)
        if node is not None:
            self.listener.on_link_messages(node, messages)
            if not self._is_holding and self.is_congested():
                # What comes in goes out again: let those who send it wait, and not drop it here.
                self._is_holding = True
                self._hold_links(hold=True)
            return
        if connection in self._unnamed:
            self._on_first(connection, messages)
            return
        found = self._attempt_of(connection)
        if found is None:
            return
        self._on_answer(*found, messages[0])
        if len(messages) > 1 and connection in self._node_of:
            self.listener.on_link_messages(self._node_of[connection], messages[1:])

    def _on_first(self, connection: Connection, messages: Sequence[Message]) -> None:
        first = messages[0]
        if not isinstance(first, LinkOpen):
            del self._unnamed[connection]
            self._others[connection] = None
            connection.trust()
            if not self.listener.on_other(connection, messages):
                self._counters.add("an unexpected first message")
                del self._others[connection]
                connection.abort("it did not say who it is")
            elif connection.is_open:
                self._welcome()
            return
        reason = self._refusal(connection, first.node)
        if reason is None and not 0 < len(first.node.encode()) <= NODE_NAME_BYTES_MAX:
            reason = "the name of a node has 1 to 255 bytes"
        if reason is None and first.node == self.name:
            reason = _is_itself(self.name)
        if reason is not None:
            self._counters.add("a node that was refused")
            self._turn_away(connection, LinkRejected(reason))
        elif first.target not in ("", self.name):
            self._turn_away(connection, LinkRejected(f"it is {self.name}", name=self.name))
        elif self._may_replace(first):
            del self._unnamed[connection]
            self._welcome()
            self._take(connection, first)
            if len(messages) > 1 and connection in self._node_of:
                self.listener.on_link_messages(first.node, messages[1:])
        else:
            self._turn_away(connection, LinkRejected(CROSSING, crossing=True))

    def _welcome(self) -> None:
        """Whoever called is no stranger."""
        if self._acceptor is not None:
            self._acceptor.named()

    def _turn_away(self, connection: Connection, message: LinkRejected) -> None:
        connection.send((message,))
        connection.close(message.reason)

    def _may_replace(self, opened: LinkOpen) -> bool:
        """Whether a node's new connection takes the place of what there is."""
        attempt = self._attempts.get(opened.node)
        if attempt is not None and attempt.connection is not None:
            return opened.node < self.name
        link = self.links.get(opened.node)
        if link is None:
            return True
        if (opened.incarnation, opened.number) > (link.incarnation, link.number):
            return True
        self._counters.add("an old connection that was repeated")
        return False

    def _take(self, connection: Connection, opened: LinkOpen) -> None:
        node = opened.node
        attempt = self._attempts.pop(node, None)
        if attempt is not None:
            if attempt.answer is not None and not attempt.answer.done():
                attempt.answer.set_result(None)
            if attempt.connection is not None:
                attempt.connection.close(CROSSING)
        former = self.links.pop(node, None)
        if former is not None:
            self._node_of.pop(former.connection, None)
            former.connection.abort("another connection took its place")
            self.listener.on_link_lost(node, "another connection took its place")
        connection.send((LinkAccepted(self.name, self._incarnation),))
        self._link(node, connection, opened.incarnation, opened.number)

    def _link(self, node: str, connection: Connection, incarnation: int, number: int) -> None:
        connection.trust()
        self._dial_memory.linked(node)
        self.links[node] = _Link(connection, incarnation, number)
        self._node_of[connection] = node
        self.listener.on_link_up(node)

    # --- the end of connections ----------------------------------------------------------------

    def on_closed(self, connection: Connection, reason: str) -> None:
        """A connection is gone."""
        self._open.pop(connection, None)
        self._unnamed.pop(connection, None)
        self._others.pop(connection, None)
        node = self._node_of.pop(connection, None)
        if node is not None:
            link = self.links.get(node)
            if link is not None and link.connection is connection:
                del self.links[node]
                self.listener.on_link_lost(node, reason)
            return
        found = self._attempt_of(connection)
        if found is not None and found[1].answer is not None and not found[1].answer.done():
            found[1].answer.set_result(reason)

    def on_relieved(self, connection: Connection) -> None:
        """A connection was congested, and is no more."""
        self._go_on_if_relieved()
        self.listener.on_relieved()

    # --- time ----------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """Heartbeats, and the end of those that say nothing."""
        interval_ms = self._settings.connection.liveness.heartbeat_ms / 2
        last_ms = self._now_ms()
        while True:
            await asyncio.sleep(interval_ms / 1_000)
            now_ms = self._now_ms()
            late_ms = now_ms - last_ms - interval_ms
            last_ms = now_ms
            # A delay that is no more than the turn of a busy loop excuses nobody.
            late_ms = late_ms if late_ms > interval_ms else 0
            for connection in self._connections():
                reason = connection.tick(now_ms, late_ms)
                if reason is not None:
                    connection.abort(reason)
            self._end_expired()
            self._doubt_silent(now_ms)
            self._give_up_silent(now_ms)
            # A congested link that was lost, or has turned out to be slow, relieves as well.
            self._go_on_if_relieved()

    def _end_expired(self) -> None:
        """End the connections of those whose certificates have expired meanwhile."""
        if self._expiry is None:
            return
        for connection in self._connections():
            reason = self._expiry(connection)
            if reason is not None:
                self._counters.add("a connection with a certificate that has expired")
                connection.abort(reason)

    def _doubt_silent(self, now_ms: int) -> None:
        """Say over which connections nothing is heard just now, and where that is over.

        If that is most of them, no doubt is added: to send everything round everybody helps nobody
        where all are slow.
        """
        silent = [n for n, link in self.links.items() if link.connection.is_in_doubt(now_ms)]
        are_most = _are_most(len(silent), len(self.links))
        for node, link in list(self.links.items()):
            in_doubt = node in silent
            if in_doubt == link.in_doubt or (in_doubt and are_most):
                continue
            if self.links.get(node) is link:
                link.in_doubt = in_doubt
                if in_doubt:
                    self._counters.add("a link in doubt")
                self.listener.on_link_doubt(node, in_doubt=in_doubt)

    def _give_up_silent(self, now_ms: int) -> None:
        """End the connections over which nothing is heard.

        If that is most of them, this node, or the machine, is more likely to be the cause than they
        are: then only those go that have been silent for longer than any silence may last.
        """
        connections = [*(link.connection for link in self.links.values()), *self._others]
        suspects = [each for each in connections if each.is_suspect(now_ms)]
        if _are_most(len(suspects), len(connections)):
            self._counters.add("most links were silent at once")
            suspects = [each for each in suspects if each.is_silent(now_ms)]
        for connection in suspects:
            self._counters.add("a silent link that was given up")
            connection.abort("nothing was heard of it for too long")


def _name_said(message: Message) -> str:
    """What a node that was dialled says that it is called, if it does."""
    if isinstance(message, LinkAccepted):
        return message.node
    return message.name if isinstance(message, LinkRejected) else ""


def _is_itself(node: str) -> str:
    """Why a node does not link with the one that it has dialled by another of its own names."""
    return f"{node} is this node itself"


def _are_most(silent: int, of_all: int) -> bool:
    """Whether so many are silent that the cause is more likely to be here than there."""
    return silent > max(1, of_all // 2)
