"""The Python API of a live network.

`join` starts a node in this process, `connect` makes a light client of a running one. Both give a
`NodeClient` with the same methods, and speak the same protocol with the node: over TCP (`remote`),
or within the process (`local`). `session` is that protocol, `subscription` what a subscriber holds.
`sync` is the same for programs without asyncio.
"""

from peersub.client.connection_events import ConnectionEvent
from peersub.client.entrances import Entrance, connect, join
from peersub.client.errors import (
    ClientError,
    ConnectError,
    NotReadyError,
    PublishFailedError,
    PublishTimedOutError,
    SubscriptionEndedError,
)
from peersub.client.node_client import NodeClient, Published, PublishSummary
from peersub.client.options import Delivery
from peersub.client.publisher import Publisher
from peersub.client.subscription import Subscription

__all__ = [
    "ClientError",
    "ConnectError",
    "ConnectionEvent",
    "Delivery",
    "Entrance",
    "NodeClient",
    "NotReadyError",
    "PublishFailedError",
    "PublishSummary",
    "PublishTimedOutError",
    "Published",
    "Publisher",
    "Subscription",
    "SubscriptionEndedError",
    "connect",
    "join",
]
