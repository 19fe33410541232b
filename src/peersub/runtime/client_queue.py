"""What waits for one subscription of a client: events beyond the client's credit, in bounds.

A queue never holds up a node. When it is full, an event is dropped, or the subscription ends, as
its `Overflow` says. Where the events are in the node's log anyway (a durable subscription), nothing
is lost: the consumer *lets go* of the node until its queue is half empty, and takes hold again; the
node then begins with what was not acknowledged, and what is here already is passed over.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from peersub.filters.filter import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.publication import Publication
from peersub.wire.client_messages import Overflow, SubscriptionPhase

if TYPE_CHECKING:
    import numpy as np

__all__ = ["QUEUE_BYTES_MAX", "ConsumerOwner", "QueuedConsumer", "Waiting", "event_bytes"]

QUEUE_BYTES_MAX: Final = 64 * 1_024 * 1_024
"""Of the events that wait for one subscription, however few they are."""


def event_bytes(publication: Publication) -> int:
    """About what an event takes, without packing what is not packed yet."""
    return len(publication.packed or b"") + len(publication.body or b"") + len(publication.id)


class Waiting(NamedTuple):
    """An event that waits for credit."""

    publication: Publication
    hops: int
    position: int | None


class ConsumerOwner(Protocol):
    """Who sends on what a consumer gets: the door of its client."""

    @property
    def is_holding(self) -> bool:
        """Whether the connection has enough to do."""
        ...

    def send_event(self, consumer: QueuedConsumer, waiting: Waiting) -> None:
        """Send an event; credit is taken."""
        ...

    def events_of(self, batch: Batch, rows: np.ndarray) -> list[Publication]:
        """The events at these places of a batch; the same objects for all consumers."""
        ...

    @property
    def takes_columns(self) -> bool:
        """Whether the client takes events in columns."""
        ...

    def send_rows(
        self, consumer: QueuedConsumer, batch: Batch, rows: np.ndarray, hops: int
    ) -> None:
        """Send the events at these places of a batch; credit is taken."""
        ...

    def before_queued(self) -> None:
        """Events that have waited follow."""
        ...

    def on_changed(self, consumer: QueuedConsumer) -> None:
        """The phase has changed: the client is to hear of it."""
        ...

    def propose_move(self, consumer: QueuedConsumer, node: str) -> None:
        """The client is to hear that another node suits the subscription better."""
        ...

    def let_go(self, consumer: QueuedConsumer) -> None:
        """Take nothing from the node for now."""
        ...

    def take_hold(self, consumer: QueuedConsumer) -> None:
        """Take what comes again."""
        ...

    def end(self, consumer: QueuedConsumer, reason: str) -> None:
        """The subscription is over."""
        ...

    def on_node_ended(self, reason: str) -> None:
        """Nothing more comes, for no subscription."""
        ...


class QueuedConsumer:
    """The sink of one subscription of a client.

    Attributes:
        number: by which the client knows the subscription.
        name: by which the node does.
        dropped: events that there was no room for.
        phase: how far the subscription is.
        is_held: whether the node delivers here; a full durable one lets go for a while.
    """

    __slots__ = (
        "_bytes",
        "_dropped_told",
        "_last_position",
        "_owner",
        "_queue",
        "credit",
        "detail",
        "dropped",
        "is_announced",
        "is_durable",
        "is_held",
        "name",
        "number",
        "overflow",
        "phase",
        "queue_max",
        "wanted",
    )

    def __init__(
        self,
        owner: ConsumerOwner,
        number: int,
        name: str,
        wanted: Filter,
        *,
        is_durable: bool,
        overflow: Overflow,
        queue_max: int,
        credit: int,
    ) -> None:
        self.number = number
        self.name = name
        self.wanted = wanted
        self.is_durable = is_durable
        self.overflow = overflow
        self.queue_max = queue_max
        self.credit = credit
        self.dropped = 0
        self.phase = SubscriptionPhase.PENDING
        self.detail = ""
        self.is_announced = False
        self.is_held = False
        self._owner = owner
        self._queue: deque[Waiting] = deque()
        self._bytes = 0
        self._dropped_told = 0
        self._last_position = -1

    # --- what the node says ----------------------------------------------------------------------

    def deliver(self, publication: Publication, hops: int, position: int | None) -> None:
        """An event: to the client if it has granted credit, else into the queue."""
        if not self.is_held:
            return
        if position is not None:
            if position <= self._last_position:
                return  # From before the queue was full.
            self._last_position = position
        waiting = Waiting(publication, hops, position)
        if self.credit > 0 and not self._queue and not self._owner.is_holding:
            self.credit -= 1
            self._owner.send_event(self, waiting)
        else:
            self._enqueue(waiting)

    def deliver_batch(self, batch: Batch, rows: np.ndarray, hops: int) -> None:
        """The events at these places of a batch: as many in columns as can go, others wait."""
        owner = self._owner
        if not self.is_held:
            return
        if owner.takes_columns and self.credit and not self._queue and not owner.is_holding:
            sent, rows = rows[: self.credit], rows[self.credit :]
            self.credit -= len(sent)
            owner.send_rows(self, batch, sent, hops)
            if not len(rows):
                return
        for publication in owner.events_of(batch, rows):
            self.deliver(publication, hops, None)

    def ready(self) -> None:
        """The overlay keeps its promise."""
        if self.phase is SubscriptionPhase.PENDING:
            self.phase = SubscriptionPhase.READY
            self._owner.on_changed(self)

    def move_proposed(self, node: str) -> None:
        """The overlay proposes another node; a durable subscription stays where its log is."""
        if not self.is_durable:
            self._owner.propose_move(self, node)

    def ended(self, reason: str) -> None:
        """The node ends."""
        self.is_held = False
        self._owner.on_node_ended(reason)

    def taken_over(self) -> None:
        """Another consumer holds the durable subscription from now on."""
        if self.is_held:
            self.is_held = False
            self._owner.let_go(self)
        self._owner.end(self, "another consumer has taken over the durable subscription")

    # --- the queue -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._queue)

    def _enqueue(self, waiting: Waiting) -> None:
        size = event_bytes(waiting.publication)
        if not self._has_room(size):
            if self.is_durable:
                # This one is passed on, too: the node may count it as delivered already.
                self._append(waiting, size)
                self.is_held = False
                self._owner.let_go(self)
                return
            self.dropped += 1
            if self.overflow is Overflow.END:
                self.is_held = False
                self._owner.end(self, f"its queue of {self.queue_max:,} events was full")
                return
            if self.overflow is Overflow.DROP_NEWEST:
                return
            self._take()
            while self._queue and not self._has_room(size):
                self._take()
                self.dropped += 1
        self._append(waiting, size)

    def _has_room(self, size: int) -> bool:
        # One event always has room, however large it is.
        return not self._queue or (
            len(self._queue) < self.queue_max and self._bytes + size <= QUEUE_BYTES_MAX
        )

    def _append(self, waiting: Waiting, size: int) -> None:
        self._queue.append(waiting)
        self._bytes += size

    def _take(self) -> Waiting:
        waiting = self._queue.popleft()
        self._bytes -= event_bytes(waiting.publication)
        return waiting

    def grant(self, count: int, credit_max: int) -> None:
        """The client takes so many more."""
        self.credit = min(self.credit + count, credit_max)
        self.pump()

    def pump(self) -> None:
        """Send what waits, as far as credit and the connection allow."""
        owner = self._owner
        if self._queue:
            owner.before_queued()
        while self._queue and self.credit > 0 and not owner.is_holding:
            self.credit -= 1
            owner.send_event(self, self._take())
        if self._has_let_go and len(self._queue) <= self.queue_max // 2:
            owner.take_hold(self)

    @property
    def _has_let_go(self) -> bool:
        is_over = self.phase is SubscriptionPhase.ENDED
        return self.is_durable and not self.is_held and not is_over

    def news_of_drops(self) -> bool:
        """Whether more was dropped than the client has been told; it is told now."""
        told, self._dropped_told = self._dropped_told, self.dropped
        return self.dropped > told

    def clear(self) -> None:
        """Nobody takes what waits."""
        self._queue.clear()
        self._bytes = 0
