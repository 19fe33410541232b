"""`NodeClient`: publish and subscribe, through a node in this process or elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakSet

from peersub.client.arguments import check_name, check_queue_max, filter_of, since_text
from peersub.client.connection_events import ConnectionEvent
from peersub.client.errors import PublishFailedError, PublishTimedOutError
from peersub.client.moving import Moves
from peersub.client.options import (
    QUEUE_MAX,
    OverflowPolicy,
    SubscriptionOptions,
    overflow_named,
)
from peersub.client.outgoing import (
    DeliveryPromise,
    Piece,
    Publishable,
    pieces_of,
    promise_named,
    publication_of,
)
from peersub.client.session import Session
from peersub.client.subscription import Subscription
from peersub.filters.filter import Filter
from peersub.wire.client_messages import Batch, Publication

__all__ = ["NodeClient", "PublishSummary", "Published"]

FAILURES_KEPT_MAX: Final = 100
"""Events that failed and are named with their reason; all are counted."""


class Published(str):
    """The id of an event that was published: a string that also says whether it was new.

    Attributes:
        already_seen: whether the node had published the same event before: this publisher's, with
            this id. Its subscribers got it once.
    """

    already_seen: bool

    def __new__(cls, event_id: str, *, already_seen: bool = False) -> Self:
        """The id, with what the node said."""
        made = super().__new__(cls, event_id)
        made.already_seen = already_seen
        return made

    @property
    def id(self) -> str:
        """The id alone."""
        return str(self)


@dataclass(slots=True)
class PublishSummary:
    """What has become of many events."""

    published: int = 0
    """Events whose promise was kept."""
    already_seen: int = 0
    """Of these, how many the node had published before: their subscribers got them once."""
    failed: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    """Ids and reasons of the first that failed."""


class NodeClient:
    """A node's services: what `join` and `connect` give. An async context manager.

    Args:
        session: the talk with the node.
        end: ends the connection, or the node.
        moves: lets subscriptions move to other nodes.
    """

    def __init__(
        self,
        session: Session,
        end: Callable[[], Awaitable[None]],
        moves: Moves | None = None,
    ) -> None:
        self._session = session
        self._end = end
        self._moves = moves
        self._is_closed = False
        self._subscriptions: WeakSet[Subscription] = WeakSet()

    @property
    def node(self) -> str:
        """The address of the node."""
        return "" if self._session.welcome is None else self._session.welcome.node

    @property
    def overlay(self) -> str:
        """The overlay that the network runs."""
        return "" if self._session.welcome is None else self._session.welcome.overlay

    @property
    def network(self) -> str:
        """The name of the network."""
        return "" if self._session.welcome is None else self._session.welcome.network

    @property
    def is_connected(self) -> bool:
        """Whether the node listens at the moment."""
        return self._session.is_connected

    # --- publishing ------------------------------------------------------------------------------

    async def publish(
        self,
        event: Publishable,
        *,
        id: str | None = None,  # noqa: A002 - as the field of an event
        body: bytes | None = None,
        delivery: DeliveryPromise = "best_effort",
        timeout: float | None = None,
    ) -> str:
        """Publish an event; returns its id when its promise is kept.

        Best effort: the node has sent it on its way. At least once: every node that has subscribers
        for it has stored or queued it.

        Args:
            event: attributes, or a whole event.
            id: by which the event is known; by default that of an `Event`, else random bits. What
                this publisher publishes again under an id counts as the same event.
            body: content that SQL filters do not look into, and XPath patterns read as XML.
            delivery: `best_effort` or `at_least_once`.
            timeout: seconds; None waits for as long as it takes.

        Raises:
            PublishFailedError: the promise was not kept, or cannot be given.
            PublishTimedOutError: not in time; the event may still arrive.
            TypeError: the event, its id or its body is of another type.
            ValueError: the event cannot travel.
        """
        publication = publication_of(event, promise_named(delivery), id, body)
        size = publication.size
        waiting = _OneWaiting(asyncio.get_running_loop().create_future())
        try:
            async with asyncio.timeout(timeout):
                await self._session.room_for(size)
                self._session.publish(((publication, size),), waiting)
                failure, seen = await waiting.answer
        except TimeoutError:
            raise PublishTimedOutError(
                f"the event {publication.id!r} was not confirmed within {timeout} s",
                [(publication.id, "time-out")],
            ) from None
        if failure is not None:
            raise PublishFailedError(
                f"the event {publication.id!r} was not published: {failure}",
                [(publication.id, failure)],
            )
        return Published(publication.id, already_seen=bool(seen))

    async def publish_many(
        self,
        events: Iterable[Publishable] | Any,
        *,
        delivery: DeliveryPromise = "best_effort",
        id_attribute: str | None = None,
    ) -> PublishSummary:
        """Publish many events, without waiting for each; returns when all promises are kept.

        Never more than a bounded number of events is under way: events are taken from the iterable
        as fast as the network takes them. Where they are alike and have no ids of their own, or are
        rows of a Table, they travel in columns, which is many times faster; their ids are then
        numbered.

        Args:
            events: an iterable of attributes or events, or a pyarrow Table.
            delivery: as of `publish`.
            id_attribute: the attribute that has the id of each event, which it keeps as data, too.

        Raises:
            PublishFailedError: some were not published; all the others were.
            ValueError: an event cannot travel; those before it were published.
        """
        session, waiting = self._session, _ManyWaiting()
        pieces = pieces_of(
            events,
            promise_named(delivery),
            with_batches=session.takes_batches,
            id_attribute=id_attribute,
        )
        try:
            for piece in pieces:
                await session.room_for(sum(size for _, size in piece))
                waiting.expect(piece)
                session.publish(piece, waiting)
                # Let the connection write, and others have their turn.
                await asyncio.sleep(0)
        finally:
            await waiting.all_ended()
        summary = waiting.summary
        if summary.failed:
            event_id, reason = summary.failures[0]
            raise PublishFailedError(
                f"{summary.failed:,} of {summary.failed + summary.published:,} events were not "
                f"published; {event_id!r}: {reason}",
                summary.failures,
                failed=summary.failed,
                published=summary.published,
                already_seen=summary.already_seen,
            )
        return summary

    # --- subscribing -----------------------------------------------------------------------------

    def subscribe(
        self,
        filter: str | Filter,  # noqa: A002 - what it is called everywhere
        *,
        name: str | None = None,
        durable: str | None = None,
        since: int | str | datetime | None = None,
        overflow: OverflowPolicy = "drop_oldest",
        queue_max: int = QUEUE_MAX,
        auto_acknowledge: bool = True,
    ) -> Subscription:
        """Subscribe to the events that match a filter.

        Args:
            filter: SQL text, or a `Filter`, such as one of `Filter.xpath`.
            name: for people, who see it in the status of the node.
            durable: a name under which the node goes on with the subscription while nobody takes
                its events; whoever subscribes under it again gets them.
            since: where a durable subscription begins: a position, a time, also in ISO form, or
                `earliest`; by default where it stopped, and if it is new, now.
            overflow: what happens when more than `queue_max` events wait at the node:
                `drop_oldest`, `drop_newest`, or `end`, which ends the subscription. A durable one
                drops nothing: what its queue cannot hold waits in the node's log.
            queue_max: events that wait at the node.
            auto_acknowledge: whether an event of a durable subscription counts as taken as soon as
                the next one is asked for; else `acknowledge` says so.

        Raises:
            FilterError: the text is not a filter.
            TypeError: an argument is of another type.
            ValueError: the options do not fit together, or one is out of its bounds.
        """
        if since is not None and not durable:
            raise ValueError("since is for durable subscriptions: give it a name with durable=")
        wanted = filter_of(filter)
        options = SubscriptionOptions(
            name=check_name("name", name),
            durable=check_name("durable", durable),
            since=since_text(since),
            overflow=overflow_named(overflow),
            queue_max=check_queue_max(queue_max),
            auto_acknowledge=auto_acknowledge,
        )
        made = Subscription(self._session, wanted, options, self._moves)
        self._subscriptions.add(made)
        return made

    # --- about the connection --------------------------------------------------------------------

    def on_connection(self, listener: Callable[[ConnectionEvent], object]) -> Callable[[], None]:
        """Call `listener` whenever the connection is made, lost or closed, on the loop's thread.

        What is returned, when called, ends that.
        """
        return self._session.connection_events.listen(listener)

    def connection_events(self) -> AsyncIterator[ConnectionEvent]:
        """The same as an async iterator, from now on; it ends after `closed`."""
        return self._session.connection_events.follow()

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until all publications that are under way have ended, whoever waits for them.

        Raises:
            PublishTimedOutError: not in time.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._session.flush()
        except TimeoutError:
            raise PublishTimedOutError(f"publications are under way after {timeout} s") from None

    async def drain(self, timeout: float | None = None) -> None:
        """End in good order: nothing new is wanted, all that has come is taken, all that was
        published ends; then close.

        Raises:
            TimeoutError: not in time; the client is closed all the same.
        """
        try:
            async with asyncio.timeout(timeout):
                await asyncio.gather(*(each.drain() for each in self._subscriptions))
                await self.flush()
        except TimeoutError:
            raise TimeoutError(f"something was under way or not taken after {timeout} s") from None
        finally:
            await self.close()

    # --- about the node --------------------------------------------------------------------------

    async def status(self) -> dict[str, Any]:
        """The node's view of itself: members, links, tables, queues, counters, clients.

        Raises:
            ConnectError: there is no connection at the moment.
        """
        return await self._session.status()

    async def introduce(self) -> tuple[str, ...]:
        """Addresses by which others can join through this client: `connect` takes them.

        First the node of this client, then those that its subscriptions have moved to, then those
        that its node is linked with.

        Raises:
            ConnectError: there is no connection at the moment.
        """
        status = await self._session.status()
        moved = () if self._moves is None else self._moves.nodes
        return tuple(dict.fromkeys((self.node, *moved, *status.get("links", ()))))

    async def tell_revocation(self, statement: bytes) -> None:
        """Let all nodes know that a certificate was taken back.

        Args:
            statement: what the authority signed, a line of its revocations.jsonl.

        Raises:
            ValueError: the node does not believe it.
            ConnectError: there is no connection at the moment.
        """
        failure = await self._session.tell_revocation(statement)
        if failure:
            raise ValueError(failure)

    async def close(self) -> None:
        """End the connection; a node that this client started leaves its network."""
        if not self._is_closed:
            self._is_closed = True
            self._session.close()
            if self._moves is not None:
                await self._moves.close()
            await self._end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class _OneWaiting:
    """Waits for one publication."""

    def __init__(self, answer: asyncio.Future[tuple[str | None, int]]) -> None:
        self.answer = answer

    def ended(self, published: Publication | Batch, failure: str | None, seen: int = 0) -> None:
        if not self.answer.done():
            self.answer.set_result((failure, seen))


class _ManyWaiting:
    """Waits for many."""

    def __init__(self) -> None:
        self.open = 0
        self.summary = PublishSummary()
        self._changed = asyncio.Event()

    def expect(self, piece: Piece) -> None:
        self.open += len(piece)

    def ended(self, published: Publication | Batch, failure: str | None, seen: int = 0) -> None:
        self.open -= 1
        summary = self.summary
        count = len(published) if isinstance(published, Batch) else 1
        if failure is None:
            summary.published += count
            summary.already_seen += seen
        else:
            summary.failed += count
            if len(summary.failures) < FAILURES_KEPT_MAX:
                summary.failures.append((published.id, failure))
        if not self.open:
            self._changed.set()

    async def all_ended(self) -> None:
        while self.open:
            self._changed.clear()
            await self._changed.wait()
