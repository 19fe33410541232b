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
from peersub.runtime.byte_budget import ByteShare
from peersub.runtime.logs import NodeLog
from peersub.wire.client_messages import Overflow, SubscriptionPhase

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ConsumerOwner", "QueuedConsumer", "Waiting"]

ROWS_AT_ONCE: Final = 64
"""Rows of a batch that are made into events before it is looked whether the connection is full."""
COLUMNS_FROM: Final = 8
"""Fewer rows that have waited leave one by one: a message in columns costs as much as some."""
SHARED_PART: Final = 4
"""Where fewer than this part of a batch's events wait, they are copied, and the batch let go."""


_log = NodeLog(__name__)


class Waiting(NamedTuple):
    """An event that waits for credit."""

    publication: Publication
    hops: int
    position: int | None


class _WaitingRows:
    """Events of a batch that wait for credit."""

    __slots__ = ("batch", "hops", "rows")

    def __init__(self, batch: Batch, rows: np.ndarray, hops: int) -> None:
        self.batch = batch
        self.rows = rows
        self.hops = hops


class ConsumerOwner(Protocol):
    """Who sends on what a consumer gets: the door of its client."""

    @property
    def is_holding(self) -> bool:
        """Whether the connection has enough to do."""
        ...

    @property
    def bound(self) -> Filter | None:
        """What the client may see, if that has changed since it came."""
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

    def tell_losses(self, consumer: QueuedConsumer, through: int, gaps: int) -> None:
        """The client is to hear where a durable subscription lost events."""
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
        asked: what the client asked for.
        wanted: what of it the client may see.
        name: by which the node does.
        dropped: events that there was no room for.
        phase: how far the subscription is.
        is_held: whether the node delivers here; a full durable one lets go for a while.
    """

    __slots__ = (
        "_count",
        "_dropped_told",
        "_last_position",
        "_owner",
        "_queue",
        "_sent_position",
        "_share",
        "asked",
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
        share: ByteShare,
        *,
        asked: Filter | None = None,
        is_durable: bool,
        overflow: Overflow,
        queue_max: int,
        credit: int,
    ) -> None:
        self.number = number
        self.name = name
        self.asked = wanted if asked is None else asked
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
        self._queue: deque[Waiting | _WaitingRows] = deque()
        self._count = 0
        self._share = share
        self._dropped_told = 0
        self._last_position = -1
        self._sent_position = -1

    # --- what the node says ----------------------------------------------------------------------

    def deliver(self, publication: Publication, hops: int, position: int | None) -> None:
        """An event: to the client if it has granted credit, else into the queue."""
        bound = self._owner.bound
        if not self.is_held or (bound is not None and not publication.matches(bound)):
            return
        if position is not None and position <= self._last_position:
            return  # From before the queue was full.
        waiting = Waiting(publication, hops, position)
        if self.credit > 0 and not self._queue and not self._owner.is_holding:
            self._send(waiting)
        elif not self._enqueue(waiting):
            return
        if position is not None:
            self._last_position = position

    def _send(self, waiting: Waiting) -> None:
        self.credit -= 1
        if waiting.position is not None:
            self._sent_position = waiting.position
        self._owner.send_event(self, waiting)

    def deliver_batch(self, batch: Batch, rows: np.ndarray, hops: int) -> None:
        """The events at these places of a batch: as many in columns as can go, others wait."""
        if not self.is_held:
            return
        owner = self._owner
        if owner.bound is not None:
            rows = _rows_within(owner.bound, batch, rows)
        while len(rows) and self.credit > 0 and not self._queue and not owner.is_holding:
            count = self.credit if owner.takes_columns else min(self.credit, ROWS_AT_ONCE)
            self._send_rows(batch, rows[:count], hops, in_columns=owner.takes_columns)
            rows = rows[count:]
        if len(rows):
            self._enqueue_rows(batch, rows, hops)

    def _send_rows(self, batch: Batch, rows: np.ndarray, hops: int, *, in_columns: bool) -> None:
        """Send events of a batch, for all of which there is credit."""
        owner = self._owner
        self.credit -= len(rows)
        if in_columns:
            owner.send_rows(self, batch, rows, hops)
            return
        for publication in owner.events_of(batch, rows):
            owner.send_event(self, Waiting(publication, hops, None))

    def ready(self) -> None:
        """The overlay keeps its promise."""
        if self.phase is SubscriptionPhase.PENDING:
            self.phase = SubscriptionPhase.READY
            self._owner.on_changed(self)

    def lost(self, count: int, through: int, gaps: int) -> None:
        """The log had no room for so many events, or its disk lost some."""
        self.dropped += count
        self._dropped_told = self.dropped
        self._owner.on_changed(self)
        self._owner.tell_losses(self, through, gaps)

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
        return self._count

    def _enqueue(self, waiting: Waiting) -> bool:
        """Whether the event waits now, or has taken the place of others."""
        publication = waiting.publication
        size = publication.size
        if not self._make_room(publication, size, 1):
            return False
        self._share.hold(publication, size)
        # What it was unpacked to, or parsed, may take many times as much.
        publication.forget_unpacked()
        self._queue.append(waiting)
        self._count += 1
        return True

    def _enqueue_rows(self, batch: Batch, rows: np.ndarray, hops: int) -> None:
        import numpy as np

        is_newest = self.overflow is Overflow.DROP_NEWEST
        room = self.queue_max - (self._count if is_newest else 0)
        excess = len(rows) - room
        if excess > 0 and self.overflow is not Overflow.END:
            self.dropped += excess
            rows = rows[:room] if is_newest else rows[excess:]
            if not len(rows):
                return
        if len(rows) * SHARED_PART < len(batch):
            batch, rows = batch.part(rows), np.arange(len(rows))
        size = batch.size
        if self._make_room(batch, size, len(rows)):
            self._share.hold(batch, size)
            self._queue.append(_WaitingRows(batch, rows, hops))
            self._count += len(rows)

    def _make_room(self, content: Publication | Batch, size: int, count: int) -> bool:
        """Whether there is room, at the cost of others where the overflow says so."""
        if self._has_room(content, size, count):
            return True
        _log.warning("the consumer of %s is slow: %s events wait for it", self.name, self._count)
        if self.is_durable:
            # It stays in the log: whoever takes hold again gets it.
            self.is_held = False
            self._owner.let_go(self)
            return False
        if self.overflow is Overflow.DROP_OLDEST:
            self._drop_oldest(self._count + count - self.queue_max)
            while self._queue and not self._has_room(content, size, count):
                self._drop_oldest(_events_in(self._queue[0]))
            if self._has_room(content, size, count):
                return True
        self.dropped += count
        if self.overflow is Overflow.END:
            self.is_held = False
            self._owner.end(self, f"its queue of {self.queue_max:,} events was full")
        return False

    def _has_room(self, content: Publication | Batch, size: int, count: int) -> bool:
        return self._count + count <= self.queue_max and self._share.has_room(content, size)

    def _drop_oldest(self, count: int) -> None:
        while count > 0 and self._queue:
            first = self._queue[0]
            taken = min(count, _events_in(first))
            if isinstance(first, _WaitingRows):
                self._take_rows(first, taken)
            else:
                self._take(first)
            self.dropped += taken
            count -= taken

    def _take(self, first: Waiting) -> None:
        self._queue.popleft()
        self._count -= 1
        self._share.drop(first.publication)

    def _take_rows(self, first: _WaitingRows, count: int) -> np.ndarray:
        rows, first.rows = first.rows[:count], first.rows[count:]
        self._count -= len(rows)
        if not len(first.rows):
            self._queue.popleft()
            self._share.drop(first.batch)
        return rows

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
            first = self._queue[0]
            if isinstance(first, _WaitingRows):
                in_columns = (
                    owner.takes_columns and min(self.credit, len(first.rows)) >= COLUMNS_FROM
                )
                rows = self._take_rows(
                    first, self.credit if in_columns else min(self.credit, ROWS_AT_ONCE)
                )
                self._send_rows(first.batch, rows, first.hops, in_columns=in_columns)
            else:
                self._take(first)
                self._send(first)
        if self._has_let_go and self._count <= self.queue_max // 2:
            owner.take_hold(self)

    @property
    def _has_let_go(self) -> bool:
        is_over = self.phase is SubscriptionPhase.ENDED
        return self.is_durable and not self.is_held and not is_over

    def news_of_drops(self) -> bool:
        """Whether more was dropped than the client has been told; it is told now."""
        told, self._dropped_told = self._dropped_told, self.dropped
        return self.dropped > told

    def withdraw(self, bound: Filter) -> None:
        """What waits, and what the client may not see by now, is not sent any more.

        A durable subscription takes all that was not sent from the log again, which passes over
        what may not be seen, and counts it as taken.
        """
        if self.is_durable:
            self.clear()
            self._last_position = self._sent_position
            if self.is_held:
                self.is_held = False
                self._owner.let_go(self)
                self._owner.take_hold(self)
            return
        waiting, self._queue = self._queue, deque()
        for each in waiting:
            if isinstance(each, _WaitingRows):
                each.rows = _rows_within(bound, each.batch, each.rows)
                is_kept = len(each.rows) > 0
            else:
                is_kept = each.publication.matches(bound)
            if is_kept:
                self._queue.append(each)
            else:
                self._share.drop(_content_of(each))
        self._count = sum(map(_events_in, self._queue))

    def clear(self) -> None:
        """Nobody takes what waits."""
        for each in self._queue:
            self._share.drop(_content_of(each))
        self._queue.clear()
        self._count = 0


def _events_in(entry: Waiting | _WaitingRows) -> int:
    return len(entry.rows) if isinstance(entry, _WaitingRows) else 1


def _content_of(entry: Waiting | _WaitingRows) -> Publication | Batch:
    return entry.batch if isinstance(entry, _WaitingRows) else entry.publication


def _rows_within(bound: Filter, batch: Batch, rows: np.ndarray) -> np.ndarray:
    """Those of the places of a batch whose events match."""
    events = batch.part(rows).publications()
    return rows[[place for place, event in enumerate(events) if event.matches(bound)]]
