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
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from peersub.client import entrances
from peersub.client.connection_events import ConnectionEvent
from peersub.client.entrances import Entrance
from peersub.client.node_client import NodeClient, PublishSummary
from peersub.client.options import Delivery
from peersub.client.outgoing import Publishable
from peersub.client.subscription import TAKEN_AT_ONCE, Subscription
from peersub.events.envelope import Event
from peersub.filters.filter import Filter

__all__ = ["SyncNodeClient", "SyncSubscription", "connect", "join"]

T = TypeVar("T")


class _Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._is_stopping = False
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="peersub client", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine. If the caller is interrupted, so is the coroutine."""
        if self._is_stopping:
            work.close()
            raise RuntimeError("the client was closed")
        return self._result(work)

    def _result(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError("the client was closed") from None
        except BaseException:
            future.cancel()
            raise

    async def _cancel_others(self) -> None:
        """Whoever waits in another thread hears that nothing comes."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def stop(self) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            self._result(self._cancel_others())
            self._result(self._loop.shutdown_asyncgens())
            self._result(self._loop.shutdown_default_executor())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


def _same(cls: type, name: str) -> Any:
    """The attribute of this name of what a facade stands for."""

    def get(facade: Any) -> Any:
        return getattr(facade._inner, name)

    described = getattr(cls, name, None)
    return property(get, doc=getattr(described, "__doc__", None))


class SyncSubscription:
    """A `Subscription` whose calls wait. A context manager, and an iterator of events."""

    filter = _same(Subscription, "filter")
    dropped = _same(Subscription, "dropped")
    gaps = _same(Subscription, "gaps")
    lost_through = _same(Subscription, "lost_through")
    name = _same(Subscription, "name")
    node = _same(Subscription, "node")
    detail = _same(Subscription, "detail")
    is_durable = _same(Subscription, "is_durable")
    is_ready = _same(Subscription, "is_ready")
    is_over = _same(Subscription, "is_over")
    auto_acknowledges = _same(Subscription, "auto_acknowledges")

    def __init__(self, loop: _Loop, subscription: Subscription) -> None:
        self._loop = loop
        self._inner = subscription
        self._taken: deque[Delivery] = deque()
        self._handed: Delivery | None = None
        self._handed_before: Delivery | None = None

    @property
    def waiting(self) -> int:
        """Events that have come and wait to be taken."""
        return self._inner.waiting + len(self._taken)

    def accepted(self) -> None:
        """Wait until the node has taken it; raises what `Subscription.accepted` does."""
        self._loop.run(self._inner.accepted())

    def ready(self, timeout: float | None = None) -> None:
        """Wait until it has reached every publisher; raises what `Subscription.ready` does."""
        self._loop.run(self._inner.ready(timeout))

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
            self._taken.extend(self._loop.run(self._inner.take(timeout=timeout)))
        return self._hand_out() if self._taken else None

    def _hand_out(self) -> Delivery:
        self._handed_before, self._handed = self._handed, self._taken.popleft()
        return self._handed

    def take(self, count: int = TAKEN_AT_ONCE, timeout: float | None = None) -> list[Delivery]:
        """What has come, up to `count`; waits for the first one only, as `Subscription.take`."""
        first = self.next_delivery(timeout)
        taken = [] if first is None else [first]
        while self._taken and len(taken) < count:
            taken.append(self._hand_out())
        return taken

    def deliveries(self) -> Iterator[Delivery]:
        """The events with their hops and positions; raises what `next` does."""
        while (delivery := self.next_delivery()) is not None:
            yield delivery

    def drain(self, timeout: float | None = None) -> None:
        """Want nothing new, and end when all was taken; as `Subscription.drain`.

        What this side has taken from the other thread already still comes from `next`.
        """
        self._loop.run(self._inner.drain(timeout))

    def __iter__(self) -> Iterator[Event]:
        while (event := self.next()) is not None:
            yield event

    def change(self, filter: str | Filter, timeout: float | None = None) -> None:  # noqa: A002
        """Want something else from now on; raises what `Subscription.change` does."""
        self._loop.run(self._inner.change(filter, timeout))

    def acknowledge(self, last: Delivery | Event | None = None) -> None:
        """All up to this event was taken, or all that was handed out here; raises what
        `Subscription.acknowledge` does.
        """
        last = self._handed if last is None else last
        if last is not None:
            self._loop.run(self._inner.acknowledge(last))

    def status(self) -> dict[str, object]:
        """Plain values about it."""
        return self._inner.status()

    def close(self, *, forget: bool = False) -> None:
        """End it; a durable one goes on at the node, unless it is to `forget` it."""
        with suppress(RuntimeError):
            self._loop.run(self._inner.close(forget=forget))

    def __enter__(self) -> Self:
        self.accepted()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        last = self._handed if error_type is None else self._handed_before
        if last is not None and self._inner.auto_acknowledges:
            with suppress(RuntimeError, ValueError):
                self.acknowledge(last)
        self.close()


class SyncNodeClient:
    """A `NodeClient` whose calls wait. A context manager."""

    node = _same(NodeClient, "node")
    overlay = _same(NodeClient, "overlay")
    network = _same(NodeClient, "network")
    is_connected = _same(NodeClient, "is_connected")

    def __init__(self, entrance: Entrance) -> None:
        self._loop = _Loop()
        try:
            self._inner: NodeClient = self._loop.run(_entered(entrance))
        except BaseException:
            self._loop.stop()
            raise

    def publish(self, event: Publishable, **options: Any) -> str:
        """Publish an event; options, result and errors are those of `NodeClient.publish`."""
        return self._loop.run(self._inner.publish(event, **options))

    def publish_many(self, events: Iterable[Publishable] | Any, **options: Any) -> PublishSummary:
        """As `NodeClient.publish_many`. The iterable runs in the other thread."""
        return self._loop.run(self._inner.publish_many(events, **options))

    def subscribe(self, filter: str | Filter, **options: Any) -> SyncSubscription:  # noqa: A002
        """Subscribe; options and errors are those of `NodeClient.subscribe`."""

        async def made() -> Subscription:
            return self._inner.subscribe(filter, **options)

        return SyncSubscription(self._loop, self._loop.run(made()))

    def on_connection(self, listener: Callable[[ConnectionEvent], object]) -> Callable[[], None]:
        """Call `listener`, in the other thread, as `NodeClient.on_connection` does."""

        async def listen() -> Callable[[], None]:
            return self._inner.on_connection(listener)

        return self._loop.run(listen())

    def connection_events(self) -> Iterator[ConnectionEvent]:
        """What becomes of the connection, from now on; it ends after `closed`."""

        async def followed() -> AsyncIterator[ConnectionEvent]:
            return self._inner.connection_events()

        return self._each(self._loop.run(followed()))

    def _each(self, events: AsyncIterator[ConnectionEvent]) -> Iterator[ConnectionEvent]:
        async def following() -> ConnectionEvent | None:
            return await anext(events, None)

        while (event := self._loop.run(following())) is not None:
            yield event
            if event.kind == "closed":
                return

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all publications have ended; raises what `NodeClient.flush` does."""
        self._loop.run(self._inner.flush(timeout))

    def drain(self, timeout: float | None = None) -> None:
        """Take and publish what there is, and close; raises what `NodeClient.drain` does."""
        try:
            self._loop.run(self._inner.drain(timeout))
        finally:
            self.close()

    def introduce(self) -> tuple[str, ...]:
        """Addresses by which others can join; raises what `NodeClient.introduce` does."""
        return self._loop.run(self._inner.introduce())

    def tell_revocation(self, statement: bytes) -> None:
        """A certificate was taken back; raises what `NodeClient.tell_revocation` does."""
        self._loop.run(self._inner.tell_revocation(statement))

    def status(self) -> dict[str, Any]:
        """The node's view of itself."""
        return self._loop.run(self._inner.status())

    def close(self) -> None:
        """End the connection; a node that this client started leaves its network."""
        with suppress(RuntimeError):
            self._loop.run(self._inner.close())
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


def connect(address: str | Sequence[str] = "127.0.0.1:7001", **options: Any) -> SyncNodeClient:
    """Be a light client of a running node; as `peersub.connect`."""
    return SyncNodeClient(entrances.connect(address, **options))


def join(address: str | Iterable[str] = (), **options: Any) -> SyncNodeClient:
    """Start a node in this process; as `peersub.join`."""
    contacts = address if isinstance(address, str) else tuple(address)
    return SyncNodeClient(entrances.join(contacts, **options))
