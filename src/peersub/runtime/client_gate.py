"""The gate: gives each client that connects to a node a door of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from peersub.overlays.core.messages import Message
from peersub.runtime.byte_budget import ByteShare
from peersub.runtime.client_door import ClientDoor
from peersub.runtime.client_ports import (
    ClientConnection,
    ClientRules,
    DoorLimits,
    NetworkName,
    OpenRules,
    ServingNode,
)
from peersub.runtime.client_renewal import renew, renew_bound
from peersub.runtime.client_rules import PermittedRules
from peersub.runtime.client_shares import DurableHolders, Usage, Usages, durable_name, node_identity
from peersub.runtime.connection import Connection, Handler
from peersub.runtime.filter_budget import FilterBudget
from peersub.runtime.limits import DEFAULT_LIMITS, ServingLimits
from peersub.runtime.liveness import FOR_CLIENTS
from peersub.runtime.logs import NodeLog
from peersub.runtime.security.identity import PeerIdentity, Role
from peersub.runtime.security.permissions import Permissions, PermissionsError
from peersub.runtime.turns import Turns
from peersub.wire.client_messages import ClientHello, ClientRefused

if TYPE_CHECKING:
    from peersub.runtime.node_security import NodeSecurity

__all__ = ["ClientGate"]

FULL_BYTES: Final = 1_024 * 1_024
"""What may wait for a client on its connection; the rest waits in the queues of subscriptions."""
FULL_BYTES_LEAST: Final = 64 * 1_024
ALL_BYTES: Final = 256 * FULL_BYTES
"""What may wait so for all clients; where there are many, less for each."""
LOOK_AGAIN_S: Final = 0.01
"""How often it is looked whether a full connection has room."""
STALLED_MS_MAX: Final = 10_000
"""A client that takes nothing for so long is hung up on while others need the room."""


_log = NodeLog(__name__)


class ClientGate:
    """Takes connections of clients: it is the `on_client_connection` of a `LiveNode`.

    Args:
        node: the node that serves the clients.
        network: what clients are told of its network.
        rules: what clients may do; nodes that act as clients, and clients in the node's own
            process, may do everything.
        security: decides who is taken, where certificates do.
        limits: what clients may take of the node.
        budget: what their filters have taken, durable ones of the node's earlier lives included.
    """

    def __init__(
        self,
        node: ServingNode,
        network: NetworkName,
        rules: ClientRules | None = None,
        security: NodeSecurity | None = None,
        limits: ServingLimits = DEFAULT_LIMITS,
        budget: FilterBudget | None = None,
    ) -> None:
        self._node = node
        self._network = network
        self._open_rules = OpenRules(DoorLimits.of(limits))
        self._rules = rules or self._open_rules
        self._reloading = asyncio.Lock()
        self.permissions_file: Path | None = None
        """Where `reload` reads what clients may do."""
        self._security = security
        self._holders = DurableHolders()
        self._usages = Usages(limits)
        self._budget = budget or FilterBudget(limits.filter_units_max)
        self._numbers = count(1)
        self._doors: dict[ClientDoor, Usage] = {}
        self._ended: str | None = None

    def __call__(self, connection: Connection, messages: Sequence[Message]) -> bool:
        """Serve whoever says that it is a client; False if the first message is another."""
        if not isinstance(messages[0], ClientHello):
            return False
        if self._ended is not None:
            connection.close(self._ended)
            return True
        refusal = None if self._security is None else self._security.client_refusal(connection)
        identity = connection.peer_identity
        is_node = isinstance(identity, PeerIdentity) and identity.role is Role.NODE
        rules = self._open_rules if is_node else self._rules
        if refusal is None:
            refusal = rules.refusal(_identity_of(connection))
        if refusal is not None:
            _log.warning("client refused: %s", refusal)
            connection.send((ClientRefused(refusal),))
            connection.close(refusal)
            return True
        adapter = _TcpClient(connection, self)
        connection.trust(FOR_CLIENTS)
        connection.read_in_turns(Turns.of_running_loop(), in_order=True)
        connection.bound_frames(rules.limits(adapter.identity).frame_bytes_max)
        adapter.door = self.open(adapter, rules, connection.host)
        usage = self._doors[adapter.door]
        adapter.hold_frames(usage.publishing)
        adapter.queued = usage.queued
        adapter.door.on_messages(messages)
        return True

    def open(
        self, connection: ClientConnection, rules: ClientRules | None = None, address: str = ""
    ) -> ClientDoor:
        """A door for a client; whoever made the connection tells it what the client says."""
        rules = rules or self._open_rules
        identity = connection.identity
        usage = self._usages.connect(identity, address)
        door = ClientDoor(
            self._node,
            connection,
            self._network,
            label=f"client-{next(self._numbers)}",
            rules=rules,
            holders=self._holders,
            usage=usage,
            budget=self._budget,
            status=_StatusFor(self, identity, rules),
        )
        self._doors[door] = usage
        return door

    @property
    def full_bytes(self) -> int:
        """What may wait for a client on its connection."""
        return min(FULL_BYTES, max(FULL_BYTES_LEAST, ALL_BYTES // max(1, len(self._doors))))

    def forget(self, door: ClientDoor, reason: str) -> None:
        """A client is gone."""
        usage = self._doors.pop(door, None)
        door.on_lost(reason)
        if usage is not None:
            self._usages.disconnect(door.identity, usage)

    def end(self, reason: str) -> None:
        """The node has ended: what clients say from now on is for the next."""
        self._ended = reason
        for door in list(self._doors):
            door.on_node_ended(reason)

    async def use(self, permissions: Permissions) -> None:
        """Go by these permissions from now on, also for all that clients have asked for before.

        When it returns, subscriptions are narrowed anew, or have ended with the reason. From the
        first moment nothing is handed over any more that the permissions forbid.

        Raises:
            PermissionsError: the node was started without permissions.
        """
        rules = self._rules
        if not isinstance(rules, PermittedRules):
            raise PermissionsError("the node was started without permissions: start it again")
        rules.use(permissions)
        bound = [door for door in self._doors if door.rules is rules]
        for door in bound:
            renew_bound(door)
        for door in bound:
            await renew(door, self._node)
        await self._node.narrow_durables()

    async def reload(self) -> None:
        """Read the file of permissions again, and go by it; if it cannot be used, as before.

        Raises:
            PermissionsError: it cannot be used, or the node was started without one.
        """
        if self.permissions_file is None:
            raise PermissionsError("the node was started without a file of permissions")
        async with self._reloading:
            # A file may be large, and dear to read.
            permissions = await asyncio.to_thread(Permissions.load, self.permissions_file)
            await self.use(permissions)

    def status(self) -> dict[str, Any]:
        """The node and its clients as plain values."""
        clients = {door.label: door.status() for door in self._doors}
        node = self._node.status()
        links = node.get("connections", {}).get("links", {})
        return {
            **node,
            "filters": self._budget.status(),
            "clients": clients,
            "behind": {
                "clients": [label for label, each in clients.items() if each["queued_events"]],
                "links": [name for name, each in links.items() if each["is_behind"]],
            },
        }

    def status_for(self, identity: str, rules: ClientRules) -> dict[str, Any]:
        """What of the status a client may know: what is its own, unless it may observe."""
        if rules.may_observe(identity):
            return self.status()
        clients = {door.label: door.status() for door in self._doors if door.identity == identity}
        own = durable_name(identity, "")
        durable = self._node.status().get("durable_subscriptions", ())
        return {
            "node": self._node.name,
            "network": self._network.network,
            "overlay": {"name": self._network.overlay},
            "subscriptions": sum(each["subscriptions"] for each in clients.values()),
            "publications_under_way": sum(
                each["publications_under_way"] for each in clients.values()
            ),
            "durable_subscriptions": [name for name in durable if name.startswith(own)],
            "clients": clients,
        }


@dataclass(frozen=True, slots=True)
class _StatusFor:
    """What clients of an identity are told; equal for all of its connections."""

    gate: ClientGate
    identity: str
    rules: ClientRules

    def __call__(self) -> dict[str, Any]:
        return self.gate.status_for(self.identity, self.rules)


def _identity_of(connection: Connection) -> str:
    """Who is at the other end, as its certificate says; empty if there is none."""
    identity = connection.peer_identity
    if not isinstance(identity, PeerIdentity):
        return ""
    return node_identity(identity.name) if identity.role is Role.NODE else identity.name


class _TcpClient:
    """A client at the other end of a TCP connection: what its door, and the connection, need."""

    def __init__(self, connection: Connection, gate: ClientGate) -> None:
        self.door: ClientDoor | None = None
        self.identity = _identity_of(connection)
        self.queued: ByteShare | None = None
        """Where it counts what waits on a connection that is full."""
        self._is_counted = False
        self._holds = 0
        self._share: ByteShare | None = None
        self._held_frame = False
        self._connection = connection
        self._gate = gate
        self._transport: Handler = connection.handler
        connection.handler = self

    # --- for the door ----------------------------------------------------------------------------

    def send(self, messages: Sequence[Message]) -> None:
        """Send."""
        self._connection.send(messages)

    def close(self, reason: str) -> None:
        """Close once all is sent."""
        self._connection.close(reason)

    def is_full(self) -> bool:
        """Whether enough waits to be taken by the client."""
        return self._connection.queued_bytes > self._gate.full_bytes

    def _is_in_the_way(self) -> bool:
        is_scarce = self.queued is not None and self.queued.is_scarce
        return is_scarce and self._connection.stalled_ms > STALLED_MS_MAX

    @property
    def _label(self) -> str:
        return "a client" if self.door is None else self.door.label

    def _count_queued(self, size: int) -> None:
        if self.queued is None:
            return
        if self._is_counted:
            self.queued.drop(self)
        self._is_counted = size > 0
        if size:
            self.queued.hold(self, size)

    def when_relieved(self, then: Callable[[], None]) -> None:
        """Call once when it is not full any more, if it ever is."""
        if not self._connection.is_open:
            return
        is_full = self.is_full()
        self._count_queued(self._connection.queued_bytes if is_full else 0)
        if is_full and self._is_in_the_way():
            _log.warning("%s (%s): hung up on: it takes nothing", self._label, self.identity)
            self._connection.abort("it takes nothing, and others need the room")
        elif is_full:
            asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self.when_relieved, then)
        else:
            then()

    def hold_reading(self, *, hold: bool) -> None:
        """Stop, or go on, taking what the client says; each stop needs its go."""
        self._holds += 1 if hold else -1
        if self._holds:
            self._connection.pause_reading()
        else:
            self._connection.resume_reading()

    # --- for the connection ----------------------------------------------------------------------

    def hold_frames(self, share: ByteShare) -> None:
        """Count what has come of large frames as what the client publishes."""
        self._share = share
        self._connection.hold_frame = self._hold_frame

    def _hold_frame(self, size: int) -> bool:
        share = self._share
        assert share is not None
        if self._held_frame:
            share.drop(self)
        self._held_frame = size > 0 and share.has_room(self, size)
        if self._held_frame:
            share.hold(self, size)
        return self._held_frame or not size

    def on_opened(self, connection: Connection) -> None:
        """It was open before there was a door."""

    def on_messages(self, connection: Connection, messages: Sequence[Message]) -> None:
        """What the client says."""
        assert self.door is not None
        self.door.on_messages(messages)

    def on_closed(self, connection: Connection, reason: str) -> None:
        """It is gone; the transport hears of it, too."""
        if self.door is not None:
            if self._share is not None:
                self._hold_frame(0)
            self._count_queued(0)
            self._gate.forget(self.door, reason)
            self.door = None
        self._transport.on_closed(connection, reason)

    def on_relieved(self, connection: Connection) -> None:
        """The transport knows who waits."""
        self._transport.on_relieved(connection)
