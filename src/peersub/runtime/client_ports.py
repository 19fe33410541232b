"""What a client's door needs of others: of the node, of the connection, and of the rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from peersub.filters.filter import Filter
from peersub.filters.price import FILTER_PRICE_MAX
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication
from peersub.runtime.body_reading import BodyReader
from peersub.runtime.limits import DEFAULT_LIMITS, ServingLimits
from peersub.runtime.open_publications import OnEnded
from peersub.runtime.sinks import DurableOptions, Sink
from peersub.wire.limits import FRAME_BYTES_MAX

__all__ = [
    "ClientConnection",
    "ClientRules",
    "DoorLimits",
    "NetworkName",
    "OpenRules",
    "ServingNode",
]


@dataclass(frozen=True, slots=True)
class DoorLimits:
    """What one client may ask for."""

    subscriptions_max: int = DEFAULT_LIMITS.client_subscriptions_max
    """Of its identity, over all of its connections at the node."""
    queue_max: int = 1_000_000
    """Events that wait for one subscription; a client that asks for more gets this."""
    credit_max: int = 65_536
    publications_open_max: int = 65_536
    """Publications that have not ended; further ones fail."""
    durable_name_bytes_max: int = 128
    filter_price_max: int = FILTER_PRICE_MAX
    """Units of one filter (`filters.price`)."""
    price_max: int = DEFAULT_LIMITS.client_filter_units_max
    """Units of all filters of the client at the node."""
    frame_bytes_max: int = FRAME_BYTES_MAX

    @classmethod
    def of(cls, limits: ServingLimits) -> DoorLimits:
        """What a node with these limits grants to one client."""
        return cls(
            subscriptions_max=limits.client_subscriptions_max,
            price_max=limits.client_filter_units_max,
        )


@dataclass(frozen=True, slots=True)
class NetworkName:
    """What a client is told of the network."""

    overlay: str
    network: str


class ServingNode(Protocol):
    """What a door needs of a node (`LiveNode`)."""

    @property
    def name(self) -> str:
        """Its address."""
        ...

    def publish(
        self,
        publications: Sequence[Publication],
        on_ended: OnEnded | None = None,
        source: str = "",
    ) -> None:
        """Publish for a source: those of the node share what it remembers."""
        ...

    @property
    def takes_batches(self) -> bool:
        """Whether events may be published in columns."""
        ...

    @property
    def proposes_moves(self) -> bool:
        """Whether its overlay proposes to subscriptions to move to other nodes."""
        ...

    def publish_batch(
        self, batch: Batch, on_ended: OnEnded | None = None, source: str = ""
    ) -> None:
        """Publish many events, which end together."""
        ...

    def tell_revocation(self, statement: bytes) -> str | None:
        """Let all nodes know that a certificate was taken back; why not, if it is not believed."""
        ...

    @property
    def bodies(self) -> BodyReader:
        """Reads large bodies before they are published."""
        ...

    def is_congested(self) -> bool:
        """Whether whoever publishes should hold back."""
        ...

    async def relief(self) -> None:
        """Wait until it is not."""
        ...

    def subscribe(
        self,
        name: str,
        wanted: Filter,
        sink: Sink,
        *,
        durable: DurableOptions | None = None,
        moved: bool = False,
    ) -> None:
        """Subscribe, here because another node said so or not; a ValueError says why not."""
        ...

    def detach(self, name: str) -> None:
        """The consumer is gone; a durable subscription goes on."""
        ...

    def unsubscribe(self, name: str) -> None:
        """The subscription ends."""
        ...

    def change_filter(self, name: str, wanted: Filter) -> None:
        """A subscription that is not durable gets other events from now on."""
        ...

    async def narrow_durables(self) -> None:
        """What owners of durable subscriptions may see is another now."""
        ...

    def acknowledge(self, name: str, position: int) -> None:
        """All up to this position was taken."""
        ...

    def waiting_on(self, name: str) -> tuple[str, ...]:
        """Nodes that have not answered yet."""
        ...

    def status(self) -> dict[str, Any]:
        """Plain values."""
        ...


class ClientConnection(Protocol):
    """What a door needs of a connection. No call waits."""

    @property
    def identity(self) -> str:
        """Who the client is, as its certificate says; empty if nobody knows."""
        ...

    def send(self, messages: Sequence[Message]) -> None:
        """Send."""
        ...

    def close(self, reason: str) -> None:
        """Close once all is sent."""
        ...

    def is_full(self) -> bool:
        """Whether enough waits to be taken by the client."""
        ...

    def when_relieved(self, then: Callable[[], None]) -> None:
        """Call once when it is not full any more."""
        ...

    def hold_reading(self, *, hold: bool) -> None:
        """Stop, or go on, taking what the client says."""
        ...


class ClientRules(Protocol):
    """What clients may do, by who they are."""

    def permit_subscribe(self, identity: str, wanted: Filter) -> Filter:
        """The filter, narrowed to what the client may see; a ValueError says that it is nothing."""
        ...

    def bound(self, identity: str) -> Filter | None:
        """What the client may see at all; None if that is everything."""
        ...

    def permit_publish(self, identity: str, publication: Publication) -> str | None:
        """Why the client may not publish the event; None if it may."""
        ...

    def bounds_publishing(self, identity: str) -> bool:
        """Whether each event of the client has to be looked at."""
        ...

    def limits(self, identity: str) -> DoorLimits:
        """What the client may ask for."""
        ...

    def refusal(self, identity: str) -> str | None:
        """Why the client is not taken at all; None if it is."""
        ...

    def may_observe(self, identity: str) -> bool:
        """Whether the client may know of other clients, other nodes, and of the node itself."""
        ...


class OpenRules:
    """Everything is permitted, within the given limits."""

    def __init__(self, limits: DoorLimits | None = None) -> None:
        self._limits = limits or DoorLimits()

    def permit_subscribe(self, identity: str, wanted: Filter) -> Filter:
        """The filter as it is."""
        return wanted

    def bound(self, identity: str) -> Filter | None:
        """There is none."""
        return None

    def permit_publish(self, identity: str, publication: Publication) -> str | None:
        """Nothing speaks against it."""
        return None

    def bounds_publishing(self, identity: str) -> bool:
        """No event has to be looked at."""
        return False

    def limits(self, identity: str) -> DoorLimits:
        """The same for all."""
        return self._limits

    def refusal(self, identity: str) -> str | None:
        """Everybody is taken."""
        return None

    def may_observe(self, identity: str) -> bool:
        """Everybody may."""
        return True
