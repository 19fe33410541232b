"""What the doors of a node share: who holds which durable subscription, and what an identity uses.

Limits are an identity's, over all of its connections at the node: a client gains nothing by
connecting more often. Other nodes do not know of it: at N nodes an identity has N times as much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from peersub.runtime.byte_budget import ByteBudget, ByteShare
from peersub.runtime.limits import DEFAULT_LIMITS, ServingLimits

if TYPE_CHECKING:
    from peersub.runtime.client_queue import QueuedConsumer

__all__ = [
    "DurableHolders",
    "Usage",
    "Usages",
    "client_of",
    "describe_durable",
    "durable_name",
    "node_identity",
    "owner_of",
]

_DURABLE: Final = "durable"
_NODE: Final = "node:"
"""Begins the identity of a node that acts as a client; no name in a certificate has a colon."""


def node_identity(name: str) -> str:
    """The identity of a node that acts as a client: never that of a client of the same name.

    >>> node_identity("n1")
    'node:n1'
    """
    return f"{_NODE}{name}"


def durable_name(identity: str, name: str) -> str:
    """What a node calls a durable subscription: nobody takes what another identity has.

    >>> durable_name("ann", "orders/new")
    'durable/ann/orders/new'
    """
    return f"{_DURABLE}/{identity}/{name}"


def owner_of(durable: str) -> str:
    """The client that has a durable subscription; empty where no permission binds its owner.

    >>> owner_of("durable/ann/orders/new"), owner_of("durable/node:n1/orders"), owner_of("audit")
    ('ann', '', '')
    """
    client = client_of(durable) or ""
    return "" if client.startswith(_NODE) else client


def client_of(durable: str) -> str | None:
    """The identity that a durable subscription was made for, None if a node's own program did.

    >>> client_of("durable/node:n1/orders"), client_of("durable//orders"), client_of("audit")
    ('node:n1', '', None)
    """
    kind, _, rest = durable.partition("/")
    client, slash, _ = rest.partition("/")
    return client if kind == _DURABLE and slash else None


def describe_durable(durable: str) -> str:
    """A durable subscription as people call it.

    >>> describe_durable("durable/ann/orders"), describe_durable("durable//a/b")
    ('orders of ann', 'a/b')
    """
    client = client_of(durable)
    if client is None:
        return durable
    name = durable.removeprefix(f"{_DURABLE}/{client}/")
    return f"{name} of {client}" if client else name


class DurableHolders:
    """Who holds which durable subscription of a node: the last one that asked.

    A client that comes back before the loss of its connection was noticed takes its own place.
    """

    def __init__(self) -> None:
        self._consumers: dict[str, QueuedConsumer] = {}

    def take(self, consumer: QueuedConsumer) -> None:
        """The consumer holds the subscription from now on; who held it hears of it."""
        former = self._consumers.get(consumer.name)
        if former is not None and former is not consumer:
            former.taken_over()
        self._consumers[consumer.name] = consumer

    def give_up(self, consumer: QueuedConsumer) -> None:
        """The consumer does not hold it any more."""
        if self._consumers.get(consumer.name) is consumer:
            del self._consumers[consumer.name]


class Usage:
    """What one identity uses of a node, over all of its connections."""

    __slots__ = ("connections", "publishing", "queued", "subscriptions")

    def __init__(self, queued: ByteShare, publishing: ByteShare) -> None:
        self.connections = 0
        self.subscriptions = 0
        self.queued = queued
        """Events that wait for its clients."""
        self.publishing = publishing
        """Publications of its clients that have not ended."""


class Usages:
    """By identity, as long as it has a connection; who has none is one of its own each time.

    Those without one share what is shared out fairly by their addresses.
    """

    def __init__(self, limits: ServingLimits = DEFAULT_LIMITS) -> None:
        self.queued = ByteBudget(limits.queued_bytes_max, limits.client_bytes_max)
        self.publishing = ByteBudget(limits.publishing_bytes_max, limits.client_bytes_max)
        self._used: dict[str, Usage] = {}

    def connect(self, identity: str, address: str = "") -> Usage:
        """A connection of this identity begins, from this address."""
        used = self._used.get(identity)
        if used is None:
            origin = identity or address
            used = Usage(self.queued.share(origin), self.publishing.share(origin))
            if identity:
                self._used[identity] = used
        used.connections += 1
        return used

    def disconnect(self, identity: str, used: Usage) -> None:
        """It has ended."""
        used.connections -= 1
        if not used.connections and self._used.get(identity) is used:
            del self._used[identity]
