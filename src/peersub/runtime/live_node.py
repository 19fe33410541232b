"""`LiveNode`: a node of a real network, as programs see it.

It ties together the protocol node, its driver, its connections and its store, and keeps what is
outside of all of them: who on this node subscribes, and who waits for a publication to end.
All methods are called on the loop that `start` ran on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from peersub.filters.filter import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.causes import (
    Join,
    Leave,
    Publish,
    PublishBatch,
    Start,
    Subscribe,
    Unsubscribe,
)
from peersub.overlays.core.effects import Deliver, DeliverBatch
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.node import Node
from peersub.overlays.core.publication import Publication
from peersub.overlays.core.records import Record
from peersub.overlays.core.versions import BATCHES_FEATURE
from peersub.overlays.registry import overlay_kind
from peersub.runtime.addresses import join_address, split_address
from peersub.runtime.clock import Clock, new_incarnation
from peersub.runtime.connection import Connection
from peersub.runtime.counters import Counters
from peersub.runtime.driver import Driver, Observer
from peersub.runtime.settings import NodeSettings, live_settings
from peersub.runtime.transport import Transport

if TYPE_CHECKING:
    import numpy as np

    from peersub.runtime.node_security import NodeSecurity

__all__ = [
    "DurableOptions",
    "LiveNode",
    "OnEnded",
    "Sink",
    "StartError",
    "SubscriptionRefusedError",
]

OnEnded: TypeAlias = Callable[[str, str | None], None]
"""Takes the id of a publication that has ended, and why it failed, or None."""

PUBLICATIONS_OPEN_MAX: Final = 100_000
"""Publications of this node that have not ended."""
SUBSCRIPTIONS_MAX: Final = 100_000


class StartError(RuntimeError):
    """The node cannot take part: the text says why, and what to do."""


class SubscriptionRefusedError(ValueError):
    """The subscription cannot be made: the text says why."""


@dataclass(frozen=True, slots=True)
class DurableOptions:
    """How a durable subscription begins."""

    since: int | str | None = None
    """A position, a time, or "earliest"; None goes on where the consumer stopped."""


class Sink(Protocol):
    """A consumer of one subscription. It is called on the loop's thread, and must not block."""

    def deliver(self, publication: Publication, hops: int, position: int | None) -> None:
        """An event; `position` is its place in the log if the subscription is durable."""
        ...

    def deliver_batch(self, batch: Batch, rows: np.ndarray, hops: int) -> None:
        """The events at these places of a batch; never for a durable subscription."""
        ...

    def ready(self) -> None:
        """The overlay keeps its promise for the subscription."""
        ...

    def ended(self, reason: str) -> None:
        """Nothing more comes."""
        ...


def _has_columns() -> bool:
    """Whether this installation can take events in columns."""
    return all(find_spec(name) is not None for name in ("numba", "numpy", "pyarrow"))


ClientHandler: TypeAlias = Callable[[Connection, Sequence[Message]], bool]
"""Takes a connection of somebody who is no node, and its first messages; False refuses it."""


class LiveNode:
    """A node on asyncio TCP.

    Args:
        settings: what it is told.
        observer: is told each cause with its effects, for a trace.
        on_client: takes connections of clients; none are taken without.
        security: its certificates, and how it judges those of others; none, and all is open.
    """

    def __init__(
        self,
        settings: NodeSettings,
        *,
        observer: Observer | None = None,
        on_client: ClientHandler | None = None,
        security: NodeSecurity | None = None,
    ) -> None:
        self.settings = settings
        self.security = security
        self.counters = Counters()
        self.on_client_connection = on_client
        self._clock = Clock()
        self._observer = observer
        self._overlay_settings = live_settings(settings.overlay, settings.overlay_settings)
        self._name = ""
        self._driver: Driver | None = None
        self._transport: Transport | None = None
        self._sinks: dict[str, Sink] = {}
        self._waiting: dict[str, OnEnded | None] = {}
        self._relieved: asyncio.Event | None = None
        self._held_reading = False

    # --- begin and end -------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The address by which others reach the node."""
        return self._name

    async def start(self) -> None:
        """Listen, and begin a network or join one; returns when the node takes part.

        Raises:
            StartError: the address cannot be used, or nobody lets the node in.
        """
        settings = self.settings
        kind = overlay_kind(settings.overlay)
        incarnation = new_incarnation()
        security = self.security
        transport = Transport(
            "",
            incarnation,
            settings.transport,
            self.counters,
            self._clock.now_ms,
            server_tls=None if security is None else security.server_tls,
            client_tls=None if security is None else security.client_tls,
            check_peer=None if security is None else security.node_refusal,
        )
        host, port = split_address(settings.listen)
        try:
            bound = await transport.listen(host, port)
        except OSError as error:
            raise StartError(
                f"cannot listen on {settings.listen}: {error.strerror or error}"
            ) from None
        self._name = settings.advertise or join_address(host, bound[1])
        transport.name = self._name
        overlay = kind.make(PeerId(self._name, incarnation), settings.seed, self._overlay_settings)
        features = (BATCHES_FEATURE,) if self.takes_batches else ()
        node = Node(overlay, network=settings.network, settings=settings.links, features=features)
        self._relieved = asyncio.Event()
        self._driver = Driver(node, self, self.counters, self._clock.now_ms, self._observer)
        self._driver.transport = self._transport = transport
        transport.listener = self._driver
        await self._take_part()

    async def _take_part(self) -> None:
        driver, settings = self._running(), self.settings
        contacts = tuple(contact for contact in settings.join if contact != self._name)
        driver.tell(Join(contacts) if contacts else Start())
        deadline = self._clock.now_ms() + settings.join_timeout_ms
        while not driver.node.overlay.takes_part:
            if self._clock.now_ms() > deadline:
                await self.stop(leave=False)
                raise StartError(
                    f"no way into the network by {', '.join(contacts)}: "
                    f"are these nodes running, with the overlay {settings.overlay} "
                    f"and the network {settings.network!r}?"
                )
            await asyncio.sleep(0.01)

    async def stop(self, *, leave: bool = True) -> None:
        """Take leave, hand over what others need, and close all; without `leave`, close at once."""
        driver, transport = self._driver, self._transport
        if driver is None or transport is None:
            return
        if leave:
            driver.tell(Leave())
            deadline = self._clock.now_ms() + self.settings.leave_timeout_ms
            while transport.links and self._clock.now_ms() < deadline:
                await asyncio.sleep(0.01)
        driver.end()
        self._driver = None
        await transport.close()
        for event_id, on_ended in list(self._waiting.items()):
            if on_ended is not None:
                on_ended(event_id, "the node has ended")
        self._waiting.clear()
        sinks, self._sinks = self._sinks, {}
        for sink in sinks.values():
            sink.ended("the node has ended")

    def _running(self) -> Driver:
        if self._driver is None:
            raise RuntimeError("the node is not running")
        return self._driver

    # --- publishing ----------------------------------------------------------------------------

    def publish(self, publications: Sequence[Publication], on_ended: OnEnded | None = None) -> None:
        """Publish; `on_ended` is called once for each publication."""
        driver = self._running()
        for publication in publications:
            self._waiting[publication.id] = on_ended
        driver.tell(Publish(tuple(publications)))

    @property
    def takes_batches(self) -> bool:
        """Whether events may be published in columns; who reads the trace wants to see each."""
        return self._observer is None and _has_columns()

    def publish_batch(self, batch: Batch, on_ended: OnEnded | None = None) -> None:
        """Publish many events at once; `on_ended` is called once, with the name of the batch."""
        driver = self._running()
        self._waiting[batch.id] = on_ended
        driver.tell(PublishBatch(batch))

    def is_congested(self) -> bool:
        """Whether whoever publishes should hold back (`relief`)."""
        return self._transport is not None and self._transport.is_congested()

    async def relief(self) -> None:
        """Wait until no link is congested."""
        assert self._relieved is not None
        while self.is_congested():
            self._relieved.clear()
            await self._relieved.wait()

    # --- subscribing ---------------------------------------------------------------------------

    def subscribe(
        self, name: str, wanted: Filter, sink: Sink, *, durable: DurableOptions | None = None
    ) -> None:
        """A consumer on this node wants the events that match.

        Raises:
            SubscriptionRefusedError: the name is taken, or there are too many.
        """
        driver = self._running()
        if durable is not None:
            raise SubscriptionRefusedError("this node keeps no log for durable subscriptions")
        if name in self._sinks:
            raise SubscriptionRefusedError(f"there is a subscription {name!r} on this node already")
        if len(self._sinks) >= SUBSCRIPTIONS_MAX:
            raise SubscriptionRefusedError(
                f"this node has {SUBSCRIPTIONS_MAX:,} subscriptions already"
            )
        self._sinks[name] = sink
        driver.tell(Subscribe(name, wanted))

    def detach(self, name: str) -> None:
        """The consumer is gone: a durable subscription goes on without it, another one ends."""
        self.unsubscribe(name)

    def unsubscribe(self, name: str) -> None:
        """The subscription ends, also a durable one."""
        if self._sinks.pop(name, None) is not None:
            self._running().tell(Unsubscribe(name))

    def acknowledge(self, name: str, position: int) -> None:
        """The consumer of a durable subscription has taken all up to this position."""

    def waiting_on(self, name: str) -> tuple[str, ...]:
        """The nodes that have not answered yet, of those that a subscription waits for."""
        ask = getattr(self._running().node.overlay, "waiting_on", None)
        return () if ask is None else tuple(str(peer.node) for peer in ask(name))

    # --- for people ----------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """The state of the node as plain values."""
        driver = self._running()
        assert self._transport is not None
        described = driver.node.describe()
        return {
            "node": self._name,
            "network": self.settings.network,
            "overlay": {"name": self.settings.overlay, **described["overlay"]},
            "links": described["links"],
            "connections": self._transport.status(),
            "subscriptions": len(self._sinks),
            "publications_under_way": len(self._waiting),
            "counters": self.counters.as_dict(),
        }

    # --- what the driver says ------------------------------------------------------------------

    def on_deliver(self, effect: Deliver) -> None:
        """An event for subscriptions of this node."""
        sinks, publication, hops = self._sinks, effect.publication, effect.hops
        for name in effect.subscriptions:
            sink = sinks.get(name)
            if sink is not None:
                sink.deliver(publication, hops, None)

    def on_deliver_batch(self, effect: DeliverBatch) -> None:
        """Many events for subscriptions of this node."""
        sinks, batch, hops = self._sinks, effect.batch, effect.hops
        for name, rows in effect.wanted:
            sink = sinks.get(name)
            if sink is not None:
                sink.deliver_batch(batch, rows, hops)

    def on_ready(self, subscription: str) -> None:
        """The overlay keeps its promise for the subscription."""
        sink = self._sinks.get(subscription)
        if sink is not None:
            sink.ready()

    def on_published(self, event_id: str, failure: str | None) -> None:
        """A publication has ended."""
        on_ended = self._waiting.pop(event_id, None)
        if on_ended is not None:
            on_ended(event_id, failure)

    def persist(self, records: Sequence[tuple[int, Record]], then: Callable[[bool], None]) -> None:
        """Keep the records."""
        asyncio.get_running_loop().call_soon(then, True)

    def on_client(self, connection: Connection, messages: Sequence[Message]) -> bool:
        """Somebody who is no node has connected."""
        take = self.on_client_connection
        return take is not None and take(connection, messages)

    def on_relieved(self) -> None:
        """Congestion has ended."""
        if self._relieved is not None:
            self._relieved.set()
