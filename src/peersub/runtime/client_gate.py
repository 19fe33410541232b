"""The gate: gives each client that connects to a node a door of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from peersub.overlays.core.messages import Message
from peersub.runtime.client_door import ClientDoor, DurableHolders
from peersub.runtime.client_ports import (
    ClientConnection,
    ClientRules,
    NetworkName,
    OpenRules,
    ServingNode,
)
from peersub.runtime.connection import Connection, Handler
from peersub.runtime.liveness import FOR_CLIENTS
from peersub.runtime.security.identity import PeerIdentity, Role
from peersub.wire.client_messages import ClientHello, ClientRefused

if TYPE_CHECKING:
    from peersub.runtime.node_security import NodeSecurity

__all__ = ["ClientGate"]

FULL_BYTES: Final = 1_024 * 1_024
"""What may wait for a client on its connection; the rest waits in the queues of subscriptions."""
LOOK_AGAIN_S: Final = 0.01
"""How often it is looked whether a full connection has room."""


class ClientGate:
    """Takes connections of clients: it is the `on_client_connection` of a `LiveNode`.

    Args:
        node: the node that serves the clients.
        network: what clients are told of its network.
        rules: what clients may do; nodes that act as clients, and clients in the node's own
            process, may do everything.
        security: decides who is taken, where certificates do.
    """

    def __init__(
        self,
        node: ServingNode,
        network: NetworkName,
        rules: ClientRules | None = None,
        security: NodeSecurity | None = None,
    ) -> None:
        self._node = node
        self._network = network
        self._rules = rules or OpenRules()
        self._security = security
        self._holders = DurableHolders()
        self._numbers = count(1)
        self._doors: dict[ClientDoor, None] = {}

    def __call__(self, connection: Connection, messages: Sequence[Message]) -> bool:
        """Serve whoever says that it is a client; False if the first message is another."""
        if not isinstance(messages[0], ClientHello):
            return False
        refusal = None if self._security is None else self._security.client_refusal(connection)
        if refusal is not None:
            connection.send((ClientRefused(refusal),))
            connection.close(refusal)
            return True
        identity = connection.peer_identity
        is_node = isinstance(identity, PeerIdentity) and identity.role is Role.NODE
        adapter = _TcpClient(connection, self._doors)
        rules = OpenRules() if is_node else self._rules
        connection.trust(FOR_CLIENTS)
        connection.bound_frames(rules.limits(adapter.identity).frame_bytes_max)
        adapter.door = self.open(adapter, rules)
        adapter.door.on_messages(messages)
        return True

    def open(self, connection: ClientConnection, rules: ClientRules | None = None) -> ClientDoor:
        """A door for a client; whoever made the connection tells it what the client says."""
        door = ClientDoor(
            self._node,
            connection,
            self._network,
            label=f"client-{next(self._numbers)}",
            rules=rules,
            holders=self._holders,
            status=self.status,
        )
        self._doors[door] = None
        return door

    def forget(self, door: ClientDoor, reason: str) -> None:
        """A client is gone."""
        self._doors.pop(door, None)
        door.on_lost(reason)

    def status(self) -> dict[str, Any]:
        """The node and its clients as plain values."""
        clients = {door.label: door.status() for door in self._doors}
        return {**self._node.status(), "clients": clients}


class _TcpClient:
    """A client at the other end of a TCP connection: what its door, and the connection, need."""

    def __init__(self, connection: Connection, doors: dict[ClientDoor, None]) -> None:
        self.door: ClientDoor | None = None
        self._connection = connection
        self._doors = doors
        self._transport: Handler = connection.handler
        connection.handler = self

    # --- for the door ----------------------------------------------------------------------------

    @property
    def identity(self) -> str:
        """Who the client is, as its certificate says."""
        return str(getattr(self._connection.peer_identity, "name", ""))

    def send(self, messages: Sequence[Message]) -> None:
        """Send."""
        self._connection.send(messages)

    def close(self, reason: str) -> None:
        """Close once all is sent."""
        self._connection.close(reason)

    def is_full(self) -> bool:
        """Whether enough waits to be taken by the client."""
        return self._connection.queued_bytes > FULL_BYTES

    def when_relieved(self, then: Callable[[], None]) -> None:
        """Call once when it is not full any more, if it ever is."""
        if not self._connection.is_open:
            return
        if self.is_full():
            asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self.when_relieved, then)
        else:
            then()

    def hold_reading(self, *, hold: bool) -> None:
        """Stop, or go on, taking what the client says."""
        if hold:
            self._connection.pause_reading()
        else:
            self._connection.resume_reading()

    # --- for the connection ----------------------------------------------------------------------

    def on_opened(self, connection: Connection) -> None:
        """It was open before there was a door."""

    def on_messages(self, connection: Connection, messages: Sequence[Message]) -> None:
        """What the client says."""
        assert self.door is not None
        self.door.on_messages(messages)

    def on_closed(self, connection: Connection, reason: str) -> None:
        """It is gone; the transport hears of it, too."""
        if self.door is not None:
            self._doors.pop(self.door, None)
            self.door.on_lost(reason)
        self._transport.on_closed(connection, reason)

    def on_relieved(self, connection: Connection) -> None:
        """The transport knows who waits."""
        self._transport.on_relieved(connection)
