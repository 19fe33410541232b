"""The same API for programs without asyncio: calls that wait, on a loop in a thread of its own.

    with connect("127.0.0.1:7001") as node:
        node.publish({"symbol": "ACME", "price": 12.5})
        with node.subscribe("price > 10") as subscription:
            subscription.ready(timeout=5)
            for event in subscription:
                print(event)

A client may be used by several threads, a subscription by one at a time.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from peersub.client import entrances
from peersub.client.entrances import Entrance
from peersub.client.node_client import NodeClient, PublishSummary
from peersub.client.outgoing import Publishable
from peersub.client.subscription import Delivery, Subscription
from peersub.events.envelope import Event
from peersub.filters.filter import Filter

__all__ = ["SyncNodeClient", "SyncSubscription", "connect", "join"]

T = TypeVar("T")


class _Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="peersub client", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine. If the caller is interrupted, so is the coroutine."""
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("the client was closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        if not self._loop.is_closed():
            self.run(self._loop.shutdown_asyncgens())
            self.run(self._loop.shutdown_default_executor())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class SyncSubscription:
    """A `Subscription` whose calls wait. A context manager, and an iterator of events."""

    def __init__(self, loop: _Loop, subscription: Subscription) -> None:
        self._loop = loop
        self._subscription = subscription
        self._taken: deque[Delivery] = deque()
        self._handed: Delivery | None = None
        self._handed_before: Delivery | None = None

    @property
    def dropped(self) -> int:
        """Events that were dropped at the node because too many waited."""
        return self._subscription.dropped

    @property
    def gaps(self) -> int:
        """How often events may be missing: a connection was lost, or the node's disk lost some."""
        return self._subscription.gaps

    @property
    def lost_through(self) -> int:
        """The position of the last event that a durable one's log had no room for, or 0."""
        return self._subscription.lost_through

    def ready(self, timeout: float | None = None) -> None:
        """Wait until it has reached every publisher; raises what `Subscription.ready` does."""
        self._loop.run(self._subscription.ready(timeout))

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event; None if none came in so many seconds, or the subscription was closed.

        Raises:
            SubscriptionEndedError: the node ended the subscription.
        """
        delivery = self.next_delivery(timeout)
        return None if delivery is None else delivery.event

    def next_delivery(self, timeout: float | None = None) -> Delivery | None:
        """As `next`, with hops and position."""
        if not self._taken:
            # Many at a time: a turn of the other thread for each event would cost too much.
            self._taken.extend(self._loop.run(self._subscription.take(timeout=timeout)))
        self._handed_before = self._handed
        self._handed = self._taken.popleft() if self._taken else None
        return self._handed

    def __iter__(self) -> Iterator[Event]:
        while (event := self.next()) is not None:
            yield event

    def change(self, filter: str | Filter, timeout: float | None = None) -> None:  # noqa: A002
        """Want something else from now on; raises what `Subscription.change` does."""
        self._loop.run(self._subscription.change(filter, timeout))

    def acknowledge(self, last: Delivery | Event) -> None:
        """All up to this event was taken; raises what `Subscription.acknowledge` does."""
        self._loop.run(self._subscription.acknowledge(last))

    def status(self) -> dict[str, object]:
        """Plain values about it."""
        return self._subscription.status()

    def close(self, *, forget: bool = False) -> None:
        """End it; a durable one goes on at the node, unless it is to `forget` it."""
        with suppress(RuntimeError):
            self._loop.run(self._subscription.close(forget=forget))

    def __enter__(self) -> Self:
        self._loop.run(self._subscription.accepted())
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        last = self._handed if error_type is None else self._handed_before
        if last is not None and self._subscription.auto_acknowledges:
            with suppress(RuntimeError, ValueError):
                self.acknowledge(last)
        self.close()


class SyncNodeClient:
    """A `NodeClient` whose calls wait. A context manager."""

    def __init__(self, entrance: Entrance) -> None:
        self._loop = _Loop()
        try:
            self._client: NodeClient = self._loop.run(_entered(entrance))
        except BaseException:
            self._loop.stop()
            raise

    @property
    def node(self) -> str:
        """The address of the node."""
        return self._client.node

    def publish(self, event: Publishable, **options: Any) -> str:
        """Publish an event; options, result and errors are those of `NodeClient.publish`."""
        return self._loop.run(self._client.publish(event, **options))

    def publish_many(self, events: Iterable[Publishable] | Any, **options: Any) -> PublishSummary:
        """As `NodeClient.publish_many`. The iterable runs in the other thread."""
        return self._loop.run(self._client.publish_many(events, **options))

    def subscribe(self, filter: str | Filter, **options: Any) -> SyncSubscription:  # noqa: A002
        """Subscribe; options and errors are those of `NodeClient.subscribe`."""

        async def made() -> Subscription:
            return self._client.subscribe(filter, **options)

        return SyncSubscription(self._loop, self._loop.run(made()))

    def status(self) -> dict[str, Any]:
        """The node's view of itself."""
        return self._loop.run(self._client.status())

    def close(self) -> None:
        """End the connection; a node that this client started leaves its network."""
        with suppress(RuntimeError):
            self._loop.run(self._client.close())
        self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


async def _entered(entrance: Entrance) -> NodeClient:
    return await entrance


def connect(address: str = "127.0.0.1:7001", **options: Any) -> SyncNodeClient:
    """Be a light client of a running node; as `peersub.connect`."""
    return SyncNodeClient(entrances.connect(address, **options))


def join(address: str | Iterable[str] = (), **options: Any) -> SyncNodeClient:
    """Start a node in this process; as `peersub.join`."""
    contacts = address if isinstance(address, str) else tuple(address)
    return SyncNodeClient(entrances.join(contacts, **options))
