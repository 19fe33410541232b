"""`Subscription`: what a subscriber holds: an async iterator of events, and what to ask about it.

Events that came wait here until they are asked for, never more than the credit that the node was
granted (`CREDIT_MAX`); credit is granted anew as events are taken. The rest waits at the node.

A durable subscription is acknowledged: by default an event is, when the next one is asked for, or
when the subscription is left in good order. After a reconnection the node begins with what was not
acknowledged; events that are here already are passed over. They are known by what tells them from
others of the same id (`wire.client_messages.TOKENS`): publishers may use the same ids.

A subscription that is not durable may move to another node (`moving`), and change its filter. It
then has a second *leg* for a while (`leg`), and events that come on both are handed out once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Final, Self

from peersub.client.arguments import filter_of
from peersub.client.errors import ClientError, NotReadyError, SubscriptionEndedError
from peersub.client.leg import Leg
from peersub.client.moving import Moves
from peersub.client.options import Delivery, SubscriptionOptions
from peersub.client.session import Session
from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.wire.client_messages import (
    Acknowledged,
    Publication,
    StateWanted,
    SubscribeWanted,
    SubscriptionPhase,
    SubscriptionState,
    UnsubscribeWanted,
)

__all__ = ["Subscription"]

CREDIT_MAX: Final = 8_192
"""Events that wait on the client's side of a subscription."""
REMEMBERED_MAX: Final = 16_384
"""The last events of a subscription that is durable or may move."""
TAKEN_AT_ONCE: Final = 1_024
"""Events that `take` gives, unless it is told otherwise."""
ACKNOWLEDGE_EVERY: Final = 64
"""Events that are acknowledged together, while more of them wait."""
STATE_ANSWER_S: Final = 1.0
"""How long the node may take to say who has not answered."""


class Subscription:
    """Events that match a filter, as they come.

    An async context manager, which ends the subscription, and an async iterator of events. Made by
    `NodeClient.subscribe`.

    Attributes:
        filter: what is wanted; `change` replaces it.
        dropped: events that were dropped at the node because too many waited; for a durable
            subscription, that its log had no room for before they were read.
        gaps: how often the connection was lost so that events may be missing; for a durable
            subscription, how often the node's disk lost events.
        lost_through: the position of the last event that the log had no room for, or 0.
    """

    def __init__(
        self,
        session: Session,
        wanted: Filter,
        options: SubscriptionOptions,
        moves: Moves | None = None,
    ) -> None:
        self.filter = wanted
        self.dropped = 0
        self.gaps = 0
        self.lost_through = 0
        self._home = session
        self._options = options
        self._moves = None if options.durable else moves
        self._window = max(1, min(CREDIT_MAX, options.queue_max))
        self._leg = Leg(self, session, wanted, self._window)
        self._coming: Leg | None = None
        """The leg that is to take the place of the first."""
        self._dropped_before = 0
        """What was dropped on connections that are gone."""
        self._queue: deque[tuple[Publication, int, int | None, Leg]] = deque()
        self._news = asyncio.Event()
        self._changed = asyncio.Event()
        self._is_over = False
        self._is_draining = False
        self._failure: str | None = None
        self._has_begun = False
        self._seen: dict[bytes, None] = {}
        """The keys of the last events."""
        self._unacknowledged: dict[bytes, tuple[str, int]] = {}
        """Events that came and were not acknowledged, in order: their keys, ids and positions."""
        self._handed: bytes | None = None
        """The last event that was handed out."""
        self._taken: bytes | None = None
        """The last event that counts as taken, if the node has not heard of it."""
        self._handed_count = 0
        self._leg.stand()

    # --- for subscribers -------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Its name, for people; or that of the durable subscription."""
        return self._options.durable or self._options.name or f"subscription {self._leg.number}"

    @property
    def is_durable(self) -> bool:
        """Whether the node goes on with it while its consumer is away."""
        return bool(self._options.durable)

    @property
    def auto_acknowledges(self) -> bool:
        """Whether an event of a durable subscription counts as taken when the next is asked for."""
        return self._options.auto_acknowledge

    @property
    def is_ready(self) -> bool:
        """Whether it has reached every publisher."""
        return self._leg.is_ready

    @property
    def node(self) -> str:
        """The address of the node that it is subscribed at: the client's, unless it has moved."""
        welcome = self._leg.session.welcome
        return "" if welcome is None else welcome.node

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes, but for what waits to be taken."""
        return self._is_over

    @property
    def waiting(self) -> int:
        """Events that have come and wait to be taken."""
        return len(self._queue)

    @property
    def detail(self) -> str:
        """What the node says about it: that it was narrowed to what its owner may see."""
        return "" if self._leg.state is None else self._leg.state.detail

    async def __aenter__(self) -> Self:
        await self.accepted()
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error_type is None:
            self._count_as_taken()
        await self.close()

    async def accepted(self) -> None:
        """Wait until the node has taken the subscription.

        Raises:
            SubscriptionEndedError: it has not.
        """
        await self._until(lambda: self._leg.state is not None and not self._is_over)

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until the subscription has reached every publisher.

        Args:
            timeout: seconds without progress; None waits for as long as it takes. As long as more
                of the client's subscriptions become ready, this one has its turn still to come.

        Raises:
            NotReadyError: no progress in time; it names the nodes that have not answered.
            SubscriptionEndedError: it has ended.
        """
        least = self._leg.session.unready
        while not self.is_ready:
            try:
                async with asyncio.timeout(timeout):
                    await self._until(lambda: self.is_ready)
            except TimeoutError:
                left = self._leg.session.unready
                if left >= least:
                    raise await self._not_ready(timeout) from None
                least = left

    async def _not_ready(self, timeout: float | None) -> NotReadyError:
        self._changed.clear()
        self._leg.session.send((StateWanted(self._leg.number),))
        waiting_on: tuple[str, ...] = ()
        try:
            async with asyncio.timeout(STATE_ANSWER_S):
                await self._changed.wait()
        except TimeoutError:
            reason = "its own node does not answer"
        else:
            waiting_on = self._leg.state.waiting_on if self._leg.state is not None else ()
            reason = f"no answer yet from {', '.join(waiting_on) or 'the network'}"
        return NotReadyError(f"{self.name} is not ready after {timeout} s: {reason}", waiting_on)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            if self._is_over:
                raise SubscriptionEndedError(self._failure or "it was closed")
            self._changed.clear()
            await self._changed.wait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        delivery = await self._next()
        if delivery is None:
            raise StopAsyncIteration
        return delivery.event

    async def deliveries(self) -> AsyncIterator[Delivery]:
        """The events with their hops and positions.

        Raises:
            SubscriptionEndedError: the node ended the subscription.
        """
        while (delivery := await self._next()) is not None:
            yield delivery

    async def take(
        self, count: int = TAKEN_AT_ONCE, timeout: float | None = None
    ) -> list[Delivery]:
        """What has come, up to `count`; waits for the first one only.

        Args:
            count: how many at most.
            timeout: seconds to wait for the first; after that the list is empty, as it is when the
                subscription was closed.

        Raises:
            SubscriptionEndedError: the node ended the subscription.
        """
        try:
            async with asyncio.timeout(timeout):
                first = await self._next()
        except TimeoutError:
            return []
        taken = [] if first is None else [first]
        while self._queue and len(taken) < count:
            taken.append(self._hand_out())
        return taken

    async def acknowledge(self, last: Delivery | Event | None = None) -> None:
        """All up to this event was taken and need not come again; None is all that was handed out.

        Only a durable subscription remembers it.

        Raises:
            ValueError: the event is not one that came, or it was acknowledged before.
        """
        if not self.is_durable:
            return
        key = self._handed if last is None else self._key_waiting(last)
        if key is not None:
            self._acknowledge_up_to(key)

    def _key_waiting(self, last: Delivery | Event) -> bytes:
        """Of an event that is to be acknowledged; of several with its id, of the first."""
        event = last.event if isinstance(last, Delivery) else last
        at = last.position if isinstance(last, Delivery) else None
        # Over another connection the same event may have come with another position.
        for exactly in (True, False):
            for key, (event_id, position) in self._unacknowledged.items():
                if event_id == event.id and (not exactly or at in (None, position)):
                    return key
        raise ValueError(f"the event {event.id!r} does not wait to be acknowledged")

    async def close(self, *, forget: bool = False) -> None:
        """End the subscription. A durable one goes on at the node, unless it is to `forget` it."""
        if self._moves is not None:
            await self._moves.stay(self)
        if not self._is_over:
            self._acknowledge_taken()
            if self._coming is not None:
                self.step_back(self._coming)
            self._leg.leave(forget=forget)
            self._end(None)

    async def drain(self, timeout: float | None = None) -> None:
        """Want nothing new; returns when all that has come was taken, and ends the subscription.

        Whoever reads its events goes on until there are no more. A durable subscription goes on
        at the node, after what was taken.

        Args:
            timeout: seconds; None waits for as long as it takes.

        Raises:
            TimeoutError: not all was taken in time; the subscription has ended all the same.
        """
        self._is_draining = True
        if not self.is_durable and not self._is_over:
            self._leg.session.send((UnsubscribeWanted(self._leg.number),))
        self._news.set()
        try:
            async with asyncio.timeout(timeout):
                while self._queue:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"{len(self._queue):,} events of {self.name} wait still") from None
        finally:
            self._count_as_taken()
            await self.close()

    async def change(self, filter: str | Filter, timeout: float | None = None) -> None:  # noqa: A002
        """Want something else from now on; returns when that has reached every publisher.

        Until then the events of the old filter come as well. What matches both comes once, and
        none of it is missed.

        Args:
            filter: SQL text, or a `Filter`.
            timeout: seconds; None waits for as long as it takes. After that all is as it was.

        Raises:
            FilterError: the text is not a filter.
            NotReadyError: not in time.
            SubscriptionEndedError: it has ended, or the node does not grant the new filter.
            ValueError: the subscription is durable, or is being changed already.
        """
        wanted = filter_of(filter)
        if self.is_durable:
            raise ValueError("a durable subscription keeps its filter: make another one")
        if self._moves is not None:
            await self._moves.stay(self)
        if self._coming is not None:
            raise ValueError("the subscription is being changed already")
        if self._is_over:
            raise SubscriptionEndedError(self._failure or "it was closed")
        leg = self._begin_leg(self._leg.session, wanted)
        try:
            async with asyncio.timeout(timeout):
                await self._until(lambda: leg.is_ready or not self._is_coming(leg))
        except TimeoutError:
            raise NotReadyError(f"{self.name} is not ready after {timeout} s: {wanted}") from None
        else:
            if not self._is_coming(leg):
                detail = leg.state.detail if leg.state is not None else ""
                raise SubscriptionEndedError(detail or "the connection was lost")
            self.filter = wanted
            self.settle_on(leg)
        finally:
            self.step_back(leg)

    def _is_coming(self, leg: Leg) -> bool:
        return self._coming is leg

    def status(self) -> dict[str, object]:
        """Plain values about it, as far as this side knows."""
        state = self._leg.state
        phase = SubscriptionPhase.PENDING if state is None else state.phase
        return {
            "name": self.name,
            "filter": self.filter.text,
            "durable": self.is_durable,
            "phase": (SubscriptionPhase.ENDED if self._is_over else phase).name.lower(),
            "waiting": self.waiting,
            "dropped": self.dropped,
            "gaps": self.gaps,
            "lost_through": self.lost_through,
        }

    # --- taking ----------------------------------------------------------------------------------

    async def _next(self) -> Delivery | None:
        """The next event; None if the subscription was closed."""
        self._count_as_taken()
        while not self._queue:
            self._changed.set()  # For who drains it.
            if self._is_over:
                if self._failure is not None:
                    raise SubscriptionEndedError(self._failure)
                return None
            self._news.clear()
            await self._news.wait()
        return self._hand_out()

    def _hand_out(self) -> Delivery:
        publication, hops, position, leg = self._queue.popleft()
        leg.waiting -= 1
        if position is not None:
            self._handed = publication.key
            self._handed_count += 1
        leg.owe()
        return Delivery(publication.event, hops, position)

    def _count_as_taken(self) -> None:
        """All that was handed out is taken; the node hears of it now or soon."""
        if self._handed is not None and self._options.auto_acknowledge:
            self._taken = self._handed
            if not self._queue or self._handed_count >= ACKNOWLEDGE_EVERY:
                self._acknowledge_taken()

    def _acknowledge_taken(self) -> None:
        if self._taken is not None:
            self._acknowledge_up_to(self._taken)
            self._taken = None

    def _acknowledge_up_to(self, key: bytes) -> None:
        if key not in self._unacknowledged:
            return
        position = -1
        for each in list(self._unacknowledged):
            position = max(position, self._unacknowledged.pop(each)[1])
            if each == key:
                break
        if key == self._handed:
            self._handed = None
        self._handed_count = 0
        self._acknowledge(position)

    def _acknowledge(self, position: int) -> None:
        self._leg.session.send((Acknowledged(self._leg.number, position),))

    # --- what its legs say -------------------------------------------------------------------

    def wish(self, leg: Leg, credit: int) -> SubscribeWanted:
        """What asks a node for the subscription."""
        options = self._options
        since = "" if self._has_begun else options.since
        return SubscribeWanted(
            leg.number,
            leg.filter,
            options.name,
            options.durable,
            since,
            options.overflow,
            options.queue_max,
            credit,
        )

    def on_event(self, leg: Leg, publication: Publication, hops: int, position: int | None) -> None:
        """An event; one that has come before, on another leg or connection, is passed over."""
        if position is not None and self._is_draining:
            return  # It stays in the log, for who comes next.
        if position is not None:
            is_new = self._is_new(publication, position)
        else:
            may_double = self._coming is not None or leg.session.hears_moves
            is_new = not may_double or self._remember(publication.key)
        if not is_new:
            leg.owe()
            return
        leg.waiting += 1
        self._queue.append((publication, hops, position, leg))
        self._news.set()

    def _remember(self, key: bytes) -> bool:
        """Whether the event is new; it is known from now on."""
        is_new = key not in self._seen
        self._seen[key] = None
        if len(self._seen) > REMEMBERED_MAX:
            del self._seen[next(iter(self._seen))]
        return is_new

    def _is_new(self, publication: Publication, position: int) -> bool:
        key = publication.key
        if not self._remember(key):
            if key in self._unacknowledged:
                self._unacknowledged[key] = (publication.id, position)
            elif not self._unacknowledged:
                self._acknowledge(position)
            return False
        self._unacknowledged[key] = (publication.id, position)
        if len(self._unacknowledged) > REMEMBERED_MAX:
            # Later ones stand for it: what is acknowledged, is up to a position.
            del self._unacknowledged[next(iter(self._unacknowledged))]
        return True

    def on_state(self, leg: Leg, state: SubscriptionState) -> None:
        """What has become of it at a node."""
        self._has_begun = True
        if leg is self._leg:
            self.dropped = self._dropped_before + state.dropped
        if state.phase is SubscriptionPhase.ENDED:
            leg.session.remove(leg.number)
            if leg is self._leg:
                self._end(None if self._is_draining else state.detail or "the node ended it")
            else:
                self._coming = None
        self._changed.set()

    def on_losses(self, leg: Leg, through: int, gaps: int) -> None:
        """The node lost events before they were read."""
        self.lost_through = max(self.lost_through, through)
        self.gaps += gaps

    def on_move_proposed(self, leg: Leg, node: str) -> None:
        """The node thinks that another one suits it better."""
        if self._moves is not None and leg is self._leg and self._coming is None:
            self._moves.propose(self, node)

    def on_lost(self, leg: Leg) -> None:
        """The connection is lost; the session asks for the leg again on the next one."""
        if leg is not self._leg:
            return
        self._dropped_before = self.dropped
        if not self.is_durable:
            self.gaps += 1
        if self._coming is not None and self._coming.is_ready:
            # What was under way to the old node is lost: that is the gap.
            self.settle_on(self._coming)

    def on_other_node(self, leg: Leg) -> None:
        """The client is connected with another node, whose log has other positions."""
        if self.is_durable:
            self.gaps += 1
            self._unacknowledged.clear()
            self._handed = self._taken = None

    def on_closed(self, leg: Leg, reason: str | None) -> None:
        """Nothing more comes on a leg; without a reason, because nobody wants it."""
        if leg is not self._leg:
            self._coming = None
            self._changed.set()
        elif reason is None or (self._coming is None and self._home.is_closed):
            self._end(reason)
        else:
            self.on_lost(leg)
            if leg is self._leg:
                self._go_home()

    def _go_home(self) -> None:
        """The node that it had moved to is gone: stand where the client is connected."""
        if self._home.is_closed:
            self._end("the connection to the node was lost")
            return
        self._leg = Leg(self, self._home, self.filter, self._window)
        self._leg.stand()
        self._changed.set()

    def _end(self, reason: str | None) -> None:
        if not self._is_over:
            self._is_over = True
            self._failure = reason
            self._news.set()
            self._changed.set()

    # --- moving ----------------------------------------------------------------------------------

    def step(self, session: Session) -> Leg | None:
        """Subscribe at another node as well; None if it is there already, or over, or changing."""
        if self._is_over or self._coming is not None or session is self._leg.session:
            return None
        return self._begin_leg(session, self.filter, follows=True)

    def _begin_leg(self, session: Session, wanted: Filter, *, follows: bool = False) -> Leg:
        leg = Leg(self, session, wanted, self._window, follows=follows)
        leg.stand()
        self._coming = leg
        return leg

    async def stands_on(self, leg: Leg) -> None:
        """Wait until the coming leg is as good as the first; raises ClientError if it is not."""
        await self._until(lambda: not self._is_coming(leg) or (leg.is_ready and self.is_ready))
        if not self._is_coming(leg):
            raise ClientError("the other node does not take the subscription")
        if leg.state is not None and leg.state.detail != self.detail:
            raise ClientError("the other node grants something else")

    def settle_on(self, leg: Leg) -> None:
        """The coming leg takes the place of the first one, which ends."""
        if not self._is_coming(leg) or self._is_over:
            return
        old, self._leg, self._coming = self._leg, leg, None
        old.leave()
        self._dropped_before = self.dropped
        self._changed.set()

    def step_back(self, leg: Leg) -> None:
        """The coming leg is not wanted; nothing if it has taken the place of the first one."""
        if self._is_coming(leg):
            self._coming = None
            leg.leave()
        if not self.is_durable and not leg.session.hears_moves:
            self._seen.clear()
