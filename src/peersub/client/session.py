"""The client's side of the protocol with a node (`wire.client_messages`), without any socket.

A session keeps what outlives a connection: subscriptions, and publications that have not ended.
When a new connection takes the place of a lost one, subscriptions are made again (a durable one
goes on where it stopped), and acknowledged publications are sent again under the same id, which
their homes turn back into once; after `SEND_AGAIN_MS` they fail, since homes may have forgotten
them. Best-effort publications that were under way have failed: nobody knows how far they came, and
at most once is their promise. Events that may have come over a connection that is gone say so.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from itertools import count
from typing import Any, Final, Literal, NamedTuple, Protocol

from peersub.client.connection_events import ConnectionEvent, ConnectionEvents
from peersub.client.errors import ClientError, ConnectError
from peersub.client.publisher import Publisher
from peersub.runtime.client_outbox import PLACE_TYPE
from peersub.runtime.client_texts import HAS_LEFT, too_large
from peersub.runtime.clock import Clock
from peersub.runtime.handed_events import HandedEvents
from peersub.wire.client_messages import (
    BATCHES,
    BYTES,
    CLIENT_VERSION,
    ELSEWHERE,
    KEYS,
    LOSSES,
    MOVES,
    PHASES,
    REDELIVERIES,
    TOKENS,
    Answered,
    Batch,
    ClientHello,
    ClientRefused,
    ClientWelcome,
    Delivered,
    DeliveredAgain,
    DeliveredBatch,
    Delivery,
    DurableLosses,
    Message,
    MoveProposed,
    Publication,
    PublishBatchWanted,
    PublishedBefore,
    PublishEnded,
    PublishWanted,
    RevocationTold,
    StatusGiven,
    StatusWanted,
    SubscriptionPhase,
    SubscriptionPhases,
    SubscriptionState,
    in_network,
)

__all__ = ["Consumer", "Link", "PublishOwner", "Session"]

SUBSCRIPTIONS_ASKED_MAX: Final = 1_024
"""Subscriptions that the node was asked for and has not answered; further ones wait for that."""
PUBLICATIONS_OPEN_MAX: Final = 4_096
"""Publications that have not ended; whoever publishes more waits."""
PUBLICATIONS_OPEN_BYTES_MAX: Final = 2 * 1_024 * 1_024
"""Of the same; it must stay below what a connection queues before it drops events."""

SEND_AGAIN_MS: Final = 180_000
"""So long after it was sent first a publication is sent again: nodes, which recognise it for
`HORIZON_MS`, repeat it for five minutes from then on, and may replay it for two more."""


class Link(Protocol):
    """A connection to the node; no call waits."""

    def send(self, messages: Sequence[Message]) -> None:
        """Send."""
        ...

    def close(self, reason: str) -> None:
        """Close once all is sent."""
        ...


class Consumer(Protocol):
    """A subscription, as its session sees it."""

    def begin(self) -> Sequence[Message]:
        """What asks the node for it, now that there is a connection."""
        ...

    def on_event(self, publication: Publication, hops: int, position: int | None) -> None:
        """An event."""
        ...

    def on_state(self, state: SubscriptionState) -> None:
        """What has become of it."""
        ...

    def on_losses(self, through: int, gaps: int) -> None:
        """Events were lost before they were read."""
        ...

    def on_move_proposed(self, node: str) -> None:
        """It would be in better company on this node."""
        ...

    def on_lost(self) -> None:
        """The connection is lost; another may follow."""
        ...

    def on_other_node(self) -> None:
        """The connection that follows is with another node."""
        ...

    def on_closed(self, reason: str | None) -> None:
        """Nothing more comes; None if that is what its owner wanted."""
        ...


class PublishOwner(Protocol):
    """Who waits for publications to end."""

    def ended(self, published: Publication | Batch, failure: str | None, seen: int = 0) -> None:
        """An event, or a batch of them, has ended; so many of them the node had seen before."""
        ...


class _Open(NamedTuple):
    published: Publication | Batch
    owner: PublishOwner
    size: int
    sent_ms: int | None
    """When it was sent first, if it was."""

    def wanted(self, number: int, *, takes_keys: bool) -> Message:
        """What asks the node to publish it.

        A node of an earlier version gets the key as nodes that make it from the hash would: it is
        the same event wherever it is published.
        """
        published = self.published
        if isinstance(published, Batch):
            batch = published if takes_keys else in_network(published).with_short_name()
            return PublishBatchWanted(batch, number)
        event = published if takes_keys else in_network(published).with_short_name()
        return PublishWanted(event, number)


class Session:
    """What a client has asked of its node.

    Args:
        reconnects: whether another connection follows when one is lost.

    Attributes:
        name: of the client, for people who look at the status of the node.
        welcome: what the node said of itself, last time.
        moves: whether proposals to move to other nodes are wanted.
        publisher: whose events are published, over all connections.
        on_unused: is called when there are no subscriptions any more.
        connection_events: tells who wants to hear of connections.
    """

    def __init__(
        self,
        name: str = "",
        *,
        moves: bool = False,
        publisher: Publisher | None = None,
        reconnects: bool = True,
    ) -> None:
        self.name = name
        self.publisher = publisher or Publisher.random()
        self.moves = moves
        self.on_unused: Callable[[], None] | None = None
        self.connection_events = ConnectionEvents()
        self.welcome: ClientWelcome | None = None
        self._link: Link | None = None
        self._is_greeted = False
        self._closed_reason: str | None = None
        self._greeting: asyncio.Future[ClientWelcome] | None = None
        self._numbers = count(1)
        self._consumers: dict[int, Consumer] = {}
        self._to_ask: deque[int] = deque()
        """Subscriptions that the node has not been asked for yet, in order."""
        self._asked_for: dict[int, None] = {}
        """Those that it has not answered yet."""
        self._unready: dict[int, None] = {}
        self._handed = HandedEvents() if reconnects else None
        """Those of subscriptions that are not durable: their nodes remember none of them."""
        self._now_ms = Clock().now_ms
        self._open: dict[int, _Open] = {}
        self._bytes_max: int | None = None
        """The largest event that the node takes; None, and it takes what can travel."""
        self._seen: dict[int, int] = {}
        """Of those that end next, how many of their events were not new."""
        self._sent_again: set[int] = set()
        """Of these, those that went over more than one connection."""
        self._open_bytes = 0
        self._open_events = 0
        self._room = asyncio.Event()
        self._status: dict[int, tuple[list[bytes], asyncio.Future[dict[str, Any]]]] = {}
        self._asked: dict[int, asyncio.Future[str]] = {}

    # --- connections -----------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """Whether the node listens."""
        return self._is_greeted

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is said."""
        return self._closed_reason is not None

    async def greet(self, link: Link) -> ClientWelcome:
        """Begin on a new connection; returns when the node has welcomed the client.

        Raises:
            ConnectError: the node refuses, or the connection is lost.
        """
        self._link = link
        greeting: asyncio.Future[ClientWelcome] = asyncio.get_running_loop().create_future()
        self._greeting = greeting
        features: tuple[str, ...] = (KEYS, LOSSES, PHASES, REDELIVERIES, TOKENS)
        features += (BATCHES,) if _has_columns() else ()
        features += (MOVES,) if self.moves else ()
        link.send((ClientHello(CLIENT_VERSION, features, self.name),))
        return await greeting

    def on_lost(self, reason: str) -> None:
        """The connection is gone; `greet` may bring another."""
        self._link = None
        was_greeted, self._is_greeted = self._is_greeted, False
        self._refuse_greeting(reason)
        for _, answer in self._status.values():
            if not answer.done():
                answer.set_exception(ConnectError(f"the connection was lost: {reason}"))
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(ConnectError("the connection was lost"))
        self._asked.clear()
        self._status.clear()
        for number, each in list(self._open.items()):
            if each.published.delivery is Delivery.BEST_EFFORT:
                self._end(number, f"the connection was lost on the way: {reason}")
        self._to_ask.clear()
        self._asked_for.clear()
        if was_greeted:
            if self._handed is not None:
                self._handed.on_lost(self._now_ms())
            for consumer in list(self._consumers.values()):
                consumer.on_lost()
            self._say("disconnected", reason)

    def close(self, reason: str | None = None) -> None:
        """Say nothing more; None if the owner wants it so."""
        if self.is_closed:
            return
        self._closed_reason = reason or "the client was closed"
        self._is_greeted = False
        for consumer in list(self._consumers.values()):
            consumer.on_closed(reason)
        self._consumers.clear()
        if self.on_unused is not None:
            self.on_unused()
        for number in list(self._open):
            self._end(number, self._closed_reason)
        link, self._link = self._link, None
        if link is not None:
            link.close(self._closed_reason)
        self.on_lost(self._closed_reason)
        self._room.set()
        self._say("closed", reason or "")

    def _refuse_greeting(self, reason: str) -> None:
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_exception(ConnectError(reason))
        self._greeting = None

    def _on_welcome(self, welcome: ClientWelcome) -> None:
        if self._greeting is None or self._greeting.done():
            return
        is_other = self.welcome is not None and self.welcome.node != welcome.node
        bounds = [each for each in welcome.features if each.startswith(BYTES)]
        self._bytes_max = int(bounds[0].removeprefix(BYTES)) if bounds else None
        self.welcome = welcome
        self._is_greeted = True
        self._greeting.set_result(welcome)
        if is_other:
            for consumer in self._consumers.values():
                consumer.on_other_node()
        self._to_ask.extend(self._consumers)
        self._unready = dict.fromkeys(self._consumers)
        self._ask_for_more()
        self._send_open()
        self._say("connected")

    def _send_open(self) -> None:
        """Send what has not ended: again, if it was sent, as long as nodes recognise it."""
        now_ms, takes_keys = self._now_ms(), self._takes_keys
        wanted: list[Message] = []
        for number, each in list(self._open.items()):
            refusal = self._refusal_of(each.published)
            if refusal is not None:
                self._end(number, refusal)
                continue
            if each.sent_ms is None:
                self._open[number] = each._replace(sent_ms=now_ms)
            elif now_ms - each.sent_ms <= SEND_AGAIN_MS:
                self._sent_again.add(number)
            else:
                self._end(number, "the connection was lost for too long: it may have reached some")
                continue
            wanted.append(each.wanted(number, takes_keys=takes_keys))
        self.send(wanted)

    def _say(self, kind: Literal["connected", "disconnected", "closed"], reason: str = "") -> None:
        node = "" if self.welcome is None else self.welcome.node
        self.connection_events.tell(ConnectionEvent(kind, node, reason))

    # --- talking ---------------------------------------------------------------------------------

    def send(self, messages: Sequence[Message]) -> None:
        """Say something; nothing if there is no connection."""
        if self._link is not None and self._is_greeted and messages:
            self._link.send(messages)

    def on_messages(self, messages: Sequence[Message]) -> None:
        """What the node says, in order."""
        consumers = self._consumers
        for message in messages:
            if isinstance(message, Delivered | DeliveredAgain):
                publication, hops = message.publication, message.hops
                positions = message.positions or (None,) * len(message.numbers)
                publication.again = isinstance(message, DeliveredAgain)
                if None in positions and self._may_have_come(publication.key):
                    publication.again = True
                for number, position in zip(message.numbers, positions, strict=False):
                    consumer = consumers.get(number)
                    if consumer is not None:
                        consumer.on_event(publication, hops, position)
            elif isinstance(message, DeliveredBatch):
                self._on_delivered_batch(message)
            elif isinstance(message, PublishEnded):
                for number in message.numbers:
                    self._end(number, None, self._seen.get(number, 0))
                self._seen = {}
                for number, reason in message.failures:
                    if reason != HAS_LEFT or not self._waits_for_another(number):
                        self._end(number, reason)
            elif isinstance(message, PublishedBefore):
                self._seen = dict(message.counts)
            elif isinstance(message, SubscriptionState):
                self._on_state(message)
            elif isinstance(message, SubscriptionPhases):
                for number in message.numbers:
                    self._on_state(SubscriptionState(number, message.phase))
            elif isinstance(message, DurableLosses):
                consumer = consumers.get(message.number)
                if consumer is not None:
                    consumer.on_losses(message.through, message.gaps)
            elif isinstance(message, MoveProposed):
                consumer = consumers.get(message.number)
                if consumer is not None:
                    consumer.on_move_proposed(message.node)
            elif isinstance(message, ClientWelcome):
                self._on_welcome(message)
            elif isinstance(message, ClientRefused):
                self._refuse_greeting(message.reason)
            elif isinstance(message, StatusGiven):
                self._on_status_given(message)
            elif isinstance(message, Answered):
                asked = self._asked.pop(message.number, None)
                if asked is not None and not asked.done():
                    asked.set_result(message.failure)

    def _may_have_come(self, key: bytes) -> bool:
        """Whether an event may have come over a connection that is gone."""
        return self._handed is not None and self._handed.add(key, self._now_ms())

    def _on_delivered_batch(self, message: DeliveredBatch) -> None:
        import numpy as np

        events = list(message.batch.publications())
        if self._handed is not None:
            may_have_come = self._handed.add_batch(message.batch, self._now_ms())
            for event, again in zip(events, may_have_come, strict=True):
                event.again = again
        for number, places in message.wanted:
            consumer = self._consumers.get(number)
            if consumer is not None:
                for place in np.frombuffer(places, PLACE_TYPE).tolist():
                    consumer.on_event(events[place], message.hops, None)

    # --- subscriptions ---------------------------------------------------------------------------

    def new_number(self) -> int:
        """For a subscription or a publication."""
        return next(self._numbers)

    def add(self, number: int, consumer: Consumer) -> None:
        """A subscription begins."""
        self.check_open()
        self._consumers[number] = consumer
        self._unready[number] = None
        if self._is_greeted:
            self._to_ask.append(number)
            self._ask_for_more()

    def _ask_for_more(self) -> None:
        """Ask the node for further subscriptions, while it has not too many to answer."""
        wanted: list[Message] = []
        while self._to_ask and len(self._asked_for) < SUBSCRIPTIONS_ASKED_MAX:
            number = self._to_ask.popleft()
            consumer = self._consumers.get(number)
            if consumer is not None:
                self._asked_for[number] = None
                wanted += consumer.begin()
        self.send(wanted)

    def _on_state(self, state: SubscriptionState) -> None:
        self._asked_for.pop(state.number, None)
        if state.phase is not SubscriptionPhase.PENDING:
            self._unready.pop(state.number, None)
        consumer = self._consumers.get(state.number)
        if consumer is not None:
            consumer.on_state(state)
        if self._to_ask:
            self._ask_for_more()

    @property
    def unready(self) -> int:
        """Subscriptions that are not ready yet: as long as they get fewer, the node goes on."""
        return len(self._unready)

    def remove(self, number: int) -> None:
        """A subscription is over."""
        self._consumers.pop(number, None)
        self._unready.pop(number, None)
        self._asked_for.pop(number, None)
        self._ask_for_more()
        if not self._consumers and self.on_unused is not None:
            self.on_unused()

    @property
    def is_used(self) -> bool:
        """Whether there are subscriptions."""
        return bool(self._consumers)

    def check_open(self) -> None:
        """Raises ClientError if nothing more can be said."""
        if self._closed_reason is not None:
            raise ClientError(self._closed_reason)

    # --- publishing ------------------------------------------------------------------------------

    @property
    def hears_moves(self) -> bool:
        """Whether the node proposes to subscriptions to move, and they may."""
        return self.moves and self.welcome is not None and MOVES in self.welcome.features

    @property
    def tells_elsewhere(self) -> bool:
        """Whether the node wants to hear of subscriptions that were consumed at another."""
        return self.welcome is not None and ELSEWHERE in self.welcome.features

    @property
    def takes_batches(self) -> bool:
        """Whether the node takes events in columns."""
        return self.welcome is not None and BATCHES in self.welcome.features

    async def room_for(self, size: int) -> None:
        """Wait until so much more may be under way."""
        while self._open and (
            self._open_events >= PUBLICATIONS_OPEN_MAX
            or self._open_bytes + size > PUBLICATIONS_OPEN_BYTES_MAX
        ):
            self._room.clear()
            await self._room.wait()
        self.check_open()

    async def flush(self) -> int:
        """Wait until all that is under way has ended; how many that were."""
        count = len(self._open)
        last = next(reversed(self._open), 0)
        while self._open and next(iter(self._open)) <= last:
            self._room.clear()
            await self._room.wait()
        return count

    def publish(
        self, published: Iterable[tuple[Publication | Batch, int]], owner: PublishOwner
    ) -> None:
        """Publish events and batches, of these sizes; the owner hears of the end of each."""
        wanted: list[Message] = []
        sent_ms = self._now_ms() if self._is_greeted else None
        for each, size in published:
            if not self._is_greeted and each.delivery is Delivery.BEST_EFFORT:
                owner.ended(each, "there is no connection to the node at the moment")
                continue
            refusal = self._refusal_of(each)
            if refusal is not None:
                owner.ended(each, refusal)
                continue
            number = next(self._numbers)
            entry = self._open[number] = _Open(self.publisher.identify(each), owner, size, sent_ms)
            self._open_bytes += size
            self._open_events += _events_of(each)
            if self._is_greeted:
                wanted.append(entry.wanted(number, takes_keys=self._takes_keys))
        self.send(wanted)

    def _refusal_of(self, published: Publication | Batch) -> str | None:
        """Why the node will never take it: it is larger than all that it takes of a client."""
        if self._bytes_max is None or published.size <= self._bytes_max:
            return None
        return too_large(published.size, self._bytes_max)

    @property
    def _takes_keys(self) -> bool:
        return self.welcome is not None and KEYS in self.welcome.features

    def _waits_for_another(self, number: int) -> bool:
        """Whether a publication is sent again over the next connection: its node takes leave."""
        entry = self._open.get(number)
        return entry is not None and entry.published.delivery is Delivery.AT_LEAST_ONCE

    def _end(self, number: int, failure: str | None, seen: int = 0) -> None:
        entry = self._open.pop(number, None)
        if entry is not None:
            if number in self._sent_again:
                # The node may have seen it because this session had sent it: nobody knows.
                self._sent_again.discard(number)
                seen = 0
            self._open_bytes -= entry.size
            self._open_events -= _events_of(entry.published)
            self._room.set()
            entry.owner.ended(entry.published, failure, seen)

    # --- status ----------------------------------------------------------------------------------

    async def status(self) -> dict[str, Any]:
        """What the node says of itself; raises ConnectError if it cannot be asked."""
        if not self._is_greeted:
            raise ConnectError("there is no connection to the node at the moment")
        if not self._status:
            number = next(self._numbers)
            answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
            self._status[number] = ([], answer)
            self.send((StatusWanted(number),))
        # Whoever asks meanwhile gets the same answer, and none is cancelled with another.
        ((_, awaited),) = self._status.values()
        return await asyncio.shield(awaited)

    async def tell_revocation(self, statement: bytes) -> str:
        """Let the node know of a certificate that was taken back; why it does not believe it."""
        if not self._is_greeted:
            raise ConnectError("there is no connection to the node at the moment")
        number = next(self._numbers)
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self.send((RevocationTold(number, statement),))
        return await answer

    def _on_status_given(self, message: StatusGiven) -> None:
        parts, answer = self._status.get(message.number, ([], None))
        parts.append(message.content)
        if message.last and answer is not None:
            del self._status[message.number]
            if not answer.done():
                answer.set_result(json.loads(b"".join(parts)))


def _has_columns() -> bool:
    """Whether this installation can take events in columns."""
    return all(find_spec(name) is not None for name in ("numpy", "pyarrow"))


def _events_of(published: Publication | Batch) -> int:
    return len(published) if isinstance(published, Batch) else 1
