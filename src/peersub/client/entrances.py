"""`join` and `connect`, the two ways into a network: to be awaited, or used with `async with`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from peersub.client.errors import ConnectError
from peersub.client.local import LocalLink
from peersub.client.moving import Moves
from peersub.client.node_client import NodeClient
from peersub.client.publisher import Publisher
from peersub.client.remote import RemoteLink
from peersub.client.session import Session
from peersub.runtime.addresses import split_address
from peersub.runtime.serving import served_node
from peersub.runtime.settings import MirrorSettings, NodeSettings

if TYPE_CHECKING:
    import ssl

    from peersub.runtime.security.permissions import Permissions
    from peersub.runtime.security.settings import TlsSettings

__all__ = ["Entrance", "connect", "join"]


class Entrance:
    """Gives a `NodeClient`: `await` it and close it yourself, or use it with `async with`."""

    def __init__(self, enter: Callable[[], Awaitable[NodeClient]]) -> None:
        self._enter = enter
        self._client: NodeClient | None = None

    def __await__(self) -> Generator[Any, None, NodeClient]:
        return self._enter().__await__()

    async def __aenter__(self) -> NodeClient:
        self._client = await self._enter()
        return self._client

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._client is not None:
            await self._client.close()


def join(
    address: str | Sequence[str] = (),
    *,
    listen: str = "127.0.0.1:0",
    advertise: str = "",
    overlay: str = "chord",
    network: str = "peersub",
    data: str | Path | None = None,
    copies: int = 2,
    tls: TlsSettings | None = None,
    permissions: Permissions | str | Path | None = None,
    insecure: bool = False,
    settings: Mapping[str, object] | None = None,
    name: str = "",
    publisher: Publisher | str | None = None,
) -> Entrance:
    """Start a node in this process, and take part in a network with it.

    >>> async def main() -> None:
    ...     async with join("127.0.0.1:7001", overlay="chord") as node:
    ...         await node.publish({"symbol": "ACME", "price": 12.5})

    Args:
        address: nodes of the network to join; without any, the node begins a network of its own.
        listen: where other nodes and clients reach this one; port 0 takes a free one.
        advertise: the address by which others reach it, if not where it listens.
        overlay: one of those of `peersub node --overlay`; the same for all nodes of a network.
        network: the name of the network; nodes of other networks are refused.
        data: the folder in which the node keeps its word over restarts.
        copies: nodes on whose disks an event is for each durable subscription before it is
            acknowledged; a node that is alone needs 1.
        tls: the files of the node's certificate; without, everybody who reaches it is let in, so
            it listens on loopback alone.
        permissions: what clients of the node may do, or a file that says so. Without, a node with
            `tls` takes no clients but this one and nodes; `Permissions.unbounded()` takes all that
            have a certificate.
        insecure: lets a node without `tls` listen where other machines reach it.
        settings: settings of the overlay, by name.
        name: of this client, for people.
        publisher: whose events this client publishes, as for `connect`.

    Raises:
        SecurityError: when entered: the files of `tls` cannot be used, or there are none, and other
            machines could reach the node.
        PermissionsError: when entered: the file of permissions cannot be used.
        ValueError: there are permissions, and no `tls`: they go by the names in certificates.
        StartError: when entered: the address cannot be used, or nobody lets the node in.
        SettingsError: when entered: there is no such overlay or setting.
    """
    if permissions is not None and tls is None:
        raise ValueError("permissions go by the names in certificates: give tls= as well")
    contacts = (address,) if isinstance(address, str) else tuple(address)
    chosen = NodeSettings(
        listen=listen,
        advertise=advertise,
        join=contacts,
        overlay=overlay,
        overlay_settings=dict(settings or {}),
        network=network,
        data=None if data is None else Path(data),
        mirrors=MirrorSettings(copies=copies),
    )

    async def enter() -> NodeClient:
        return await client_of(chosen, name, tls, permissions, publisher, insecure=insecure)

    return Entrance(enter)


async def client_of(
    settings: NodeSettings,
    name: str = "",
    tls: TlsSettings | None = None,
    permissions: Permissions | str | Path | None = None,
    publisher: Publisher | str | None = None,
    *,
    insecure: bool = False,
) -> NodeClient:
    """Start a node, and be its first client; closing the client ends the node."""
    if isinstance(permissions, str):
        permissions = Path(permissions)
    elif permissions is None and tls is not None:
        from peersub.runtime.security.permissions import Permissions as Granted

        permissions = Granted.nobody()
    session = Session(name, publisher=_publisher(publisher), reconnects=False)
    node, gate = served_node(settings, tls, permissions, insecure=insecure)
    await node.start()
    await session.greet(LocalLink(session, gate, on_lost=session.close))
    return NodeClient(session, node.stop)


def connect(
    address: str | Sequence[str] | NodeClient = "127.0.0.1:7001",
    *,
    tls: TlsSettings | None = None,
    reconnect: bool = True,
    give_up_after: float | None = None,
    name: str = "",
    moves: bool = True,
    publisher: Publisher | str | None = None,
) -> Entrance:
    """Be a light client of a running node: one connection, however many subscriptions.

    When the connection is lost it is made again, to the same node or to another of those named:
    durable subscriptions go on where they stopped, others are made anew and count a gap, and
    acknowledged publications are sent again. A durable subscription belongs to the log of its node:
    at another node it counts a gap, and what the first one holds waits there.

    Args:
        address: of the node; of several, the first that answers, and the others when it is lost;
            or another client, which introduces this one to its node, or to one that its node is
            linked with.
        tls: the files of the client's certificate, if the node asks for one.
        reconnect: whether to dial again when the connection is lost.
        give_up_after: seconds without a connection after which the client is closed, and whoever
            waits for something hears of it; None tries for ever.
        name: of this client, for people.
        moves: whether subscriptions follow when the node proposes another one to them, where
            others want the same. Whoever reads their events does not notice.
        publisher: whose events this client publishes: a `Publisher`, or a name whose secret this
            machine keeps. An event of the same publisher with the same id is the same event, also
            after a restart and through another node. By default nobody who was there before.

    Raises:
        ConnectError: when entered: the node cannot be reached, or does not take the client.
        SecurityError: when entered: the files of `tls` cannot be used.
        ValueError: the address is none; when entered: the publisher's name or file is none.
    """
    session_name = name
    chosen: Publisher | None = None

    async def dial(nodes: Sequence[str], *, redial: bool = False) -> tuple[Session, RemoteLink]:
        session = Session(session_name, moves=moves, publisher=chosen, reconnects=redial)
        link = RemoteLink(
            session,
            nodes,
            lambda: _dialling(tls),
            reconnect=redial,
            give_up_after=give_up_after,
        )
        try:
            await link.open()
        except BaseException:
            await link.close()
            raise
        return session, link

    async def dial_away(node: str) -> tuple[Session, Callable[[], Awaitable[None]]]:
        try:
            session, link = await dial((node,))
        except ValueError as error:
            raise ConnectError(str(error)) from None  # An address that is none.
        return session, link.close

    async def enter() -> NodeClient:
        nonlocal chosen
        chosen = _publisher(publisher)
        nodes = await address.introduce() if isinstance(address, NodeClient) else address
        session, link = await dial(_in_order(nodes), redial=reconnect)
        following = Moves(session, dial_away) if moves else None
        return NodeClient(session, link.close, following)

    if not isinstance(address, NodeClient):
        _in_order(address)
    return Entrance(enter)


def _in_order(nodes: str | Sequence[str]) -> Sequence[str]:
    """The addresses to try; a ValueError if there is none, or one that cannot be one."""
    listed = (nodes,) if isinstance(nodes, str) else tuple(nodes)
    if not listed:
        raise ValueError("there is no address to connect to")
    for node in listed:
        split_address(node)
    return listed


def _publisher(given: Publisher | str | None) -> Publisher | None:
    return Publisher.named(given) if isinstance(given, str) else given


def _dialling(tls: TlsSettings | None) -> ssl.SSLContext | None:
    if tls is None:
        return None
    from peersub.runtime.security.tls import client_context

    return client_context(tls)
