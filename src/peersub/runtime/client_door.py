"""The door: a node's side of the protocol with one client (`wire.client_messages`).

A door turns what a client says into calls of the node, and what the node says into messages. Events
for several subscriptions of the client that come in one turn of the loop leave as one message, and
answers about publications are collected in the same way. When the connection is lost, subscriptions
end, and durable ones are left to go on without their consumer.

A client may ask for thousands of subscriptions at once, and end as many: they wait for their turns
(`client_inbox`). What has become of them is told for many at once, to clients that say `PHASES`.

Nothing here waits for the client: beyond its credit events queue in bounds (`client_queue`), and
what it publishes while the node's links are congested is held back by not reading from it.

What a client may do is asked of `ClientRules` (`client_ports`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from peersub.filters.filter import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.messages import Message, message_kind
from peersub.overlays.core.publication import Publication
from peersub.runtime.client_inbox import ClientInbox
from peersub.runtime.client_outbox import NUMBERS_PER_MESSAGE_MAX, ClientOutbox, phase_messages
from peersub.runtime.client_ports import (
    ClientConnection,
    ClientRules,
    NetworkName,
    OpenRules,
    ServingNode,
)
from peersub.runtime.client_publications import ClientPublications
from peersub.runtime.client_queue import QueuedConsumer, Waiting
from peersub.runtime.client_shares import DurableHolders, Usage, Usages, durable_name
from peersub.runtime.client_status import StatusAnswers
from peersub.runtime.client_texts import client_named, narrowing_of, text_of
from peersub.runtime.filter_budget import FilterBudget, permit_filter
from peersub.runtime.logs import NodeLog
from peersub.runtime.sinks import DurableOptions
from peersub.runtime.turns import Turns
from peersub.wire.client_messages import (
    BATCHES,
    CLIENT_VERSION,
    ELSEWHERE,
    KEYS,
    LOSSES,
    MOVES,
    PHASES,
    REDELIVERIES,
    TOKENS,
    Acknowledged,
    Answered,
    ClientHello,
    ClientRefused,
    ClientWelcome,
    ConsumedElsewhere,
    Credit,
    DurableLosses,
    MoveFollowed,
    MoveProposed,
    PublishBatchWanted,
    PublishWanted,
    RevocationTold,
    StateWanted,
    StatusWanted,
    SubscribeWanted,
    SubscriptionPhase,
    SubscriptionState,
    UnsubscribeWanted,
)

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ClientDoor"]

SEND_BYTES: Final = 256 * 1_024
"""Events that have come together are sent at once from here on, and not at the end of the turn."""


_log = NodeLog(__name__)


class ClientDoor:
    """Serves one client.

    Args:
        node: the node.
        connection: to the client.
        network: what the client is told of the network.
        label: names the client among those of the node, and is in the names of its subscriptions.
        rules: what it may do.
        holders: of the node's durable subscriptions, shared by all of its doors.
        usage: what the client's identity uses, shared by all of its doors.
        budget: what filters may cost the node, shared by all of its doors.
        status: what the client is told about the node, if more than the node says itself.
    """

    def __init__(
        self,
        node: ServingNode,
        connection: ClientConnection,
        network: NetworkName,
        *,
        label: str,
        rules: ClientRules | None = None,
        holders: DurableHolders | None = None,
        usage: Usage | None = None,
        budget: FilterBudget | None = None,
        status: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        self.label = label
        self.client_name = ""
        self._node = node
        self._connection = connection
        self._network = network
        self.rules: ClientRules = rules or OpenRules()
        self._limits = self.rules.limits(connection.identity)
        self.bound: Filter | None = None
        """What the client may see, if that has changed since it came."""
        self._holders = holders or DurableHolders()
        self._usage = usage or Usages().connect(connection.identity)
        self._budget = budget or FilterBudget()
        self._status_answers = StatusAnswers(connection, status or node.status)
        self._inbox = ClientInbox(connection, self.rules, self._take)
        self._consumers: dict[int, QueuedConsumer] = {}
        self._phases: dict[int, SubscriptionPhase] = {}
        """What is to be told about subscriptions, by their numbers."""
        self._outbox = ClientOutbox()
        self._publications = ClientPublications(
            node, connection, self.rules, self._usage.publishing, self._plan_flush, label
        )
        self._takes_columns = False
        self._takes_phases = False
        self._hears_moves = False
        self._hears_losses = False
        self._followed: int | None = None
        """The number of the subscription that follows another node's proposal, if it is next."""
        self._from_elsewhere: int | None = None
        """The number of the subscription whose consumer was with another node, if it is next."""
        self._flush_planned = False
        self._is_holding = False
        self._is_greeted = False
        self._is_lost = False
        self._handlers: dict[type, Callable[[Any], None]] = {
            SubscribeWanted: self._on_subscribe_wanted,
            UnsubscribeWanted: self._on_unsubscribe_wanted,
            StateWanted: self._on_state_wanted,
            Credit: self._on_credit,
            Acknowledged: self._on_acknowledged,
            MoveFollowed: self._on_move_followed,
            ConsumedElsewhere: self._on_consumed_elsewhere,
            StatusWanted: self._on_status_wanted,
            RevocationTold: self._on_revocation_told,
            PublishBatchWanted: self._publications.publish_batch,
        }

    @property
    def consumers(self) -> list[QueuedConsumer]:
        """Those of its subscriptions, as they are now."""
        return list(self._consumers.values())

    def has(self, consumer: QueuedConsumer) -> bool:
        """Whether its subscription lasts."""
        return self._consumers.get(consumer.number) is consumer

    def renew_limits(self) -> None:
        """Rules are others now: go by them."""
        self._limits = self.rules.limits(self.identity)
        self.bound = self.rules.bound(self.identity)

    @property
    def identity(self) -> str:
        """Who the client is; empty if nobody knows."""
        return self._connection.identity

    @property
    def is_holding(self) -> bool:
        """Whether the connection has enough to do."""
        return self._is_holding

    # --- what the client says --------------------------------------------------------------------

    def on_messages(self, messages: Sequence[Message]) -> None:
        """Messages of the client, in order; nobody hears what it says after it was refused."""
        if self._is_lost:
            return
        self._inbox.add(messages)

    def _take(self, messages: Sequence[Message]) -> None:
        """Handle messages whose turn has come."""
        wanted: list[PublishWanted] = []
        for message in messages:
            if self._is_lost:
                return
            if not self._is_greeted:
                self._on_first(message)
            elif isinstance(message, PublishWanted):
                wanted.append(message)
            else:
                # A subscription that was asked for after an event does not get it.
                self._publications.publish(wanted)
                wanted = []
                handler = self._handlers.get(type(message))
                if handler is None:
                    self.refuse(f"a client does not say {message_kind(message)}")
                else:
                    handler(message)
        if not self._is_lost:
            self._publications.publish(wanted)

    def _on_first(self, message: Message) -> None:
        if not isinstance(message, ClientHello):
            self.refuse("a client begins with client-hello")
        elif message.version[0] != CLIENT_VERSION[0]:
            spoken, known = ".".join(map(str, message.version)), ".".join(map(str, CLIENT_VERSION))
            self.refuse(
                f"the client speaks version {spoken}, this node {known}: install the same release"
            )
        else:
            self._is_greeted = True
            self._takes_columns = BATCHES in message.features
            self._takes_phases = PHASES in message.features
            self._hears_moves = MOVES in message.features
            self._hears_losses = LOSSES in message.features
            self._outbox.tells_again = REDELIVERIES in message.features
            self._outbox.tells_tokens = TOKENS in message.features
            self._publications.tells_seen = KEYS in message.features
            self.client_name = message.name
            network = self._network
            features: tuple[str, ...] = (ELSEWHERE, KEYS)
            features += (BATCHES,) if self._publications.takes_batches else ()
            features += self._publications.bounds
            features += (MOVES,) if self._node.proposes_moves else ()
            welcome = ClientWelcome(
                self._node.name, CLIENT_VERSION, network.overlay, network.network, features
            )
            self._connection.send((welcome,))

    def refuse(self, reason: str) -> None:
        """End the connection, and say why."""
        self._connection.send((ClientRefused(reason),))
        self._connection.close(reason)
        self.on_lost(reason)

    def on_lost(self, reason: str) -> None:
        """The connection is gone: subscriptions end, durable ones go on without this consumer."""
        if self._is_lost:
            return
        self._is_lost = True
        self._inbox.end()
        self._usage.subscriptions -= len(self._consumers)
        self._outbox.taken()
        self._publications.end()
        self._status_answers.end()
        self._handlers.clear()
        for consumer in self.consumers:
            if consumer.is_durable:
                # Its next consumer must not wait until the others have ended.
                self._release(self._consumers.pop(consumer.number))
            elif consumer.wanted.price.surplus:
                # Nor must the client, which may be back at once, wait for its budget.
                self._budget.release(consumer.name)
            consumer.is_held = False
            consumer.clear()
        if self._end_one():
            Turns.of_running_loop().ask(self._end_one)

    def _end_one(self) -> bool:
        """End a subscription that nobody holds any more; whether more are left."""
        if self._consumers:
            _, consumer = self._consumers.popitem()
            self._release(consumer)
            self._node.detach(consumer.name)
        return bool(self._consumers)

    # --- subscriptions ---------------------------------------------------------------------------

    def _on_subscribe_wanted(self, message: SubscribeWanted) -> None:
        number = message.number
        if number in self._consumers:
            self.refuse(f"the client has a subscription {number} already")
            return
        try:
            consumer = self._consumer_of(message)
            moved, self._followed = self._followed == number, None
            was_elsewhere, self._from_elsewhere = self._from_elsewhere == number, None
            durable = DurableOptions(message.since or None, was_elsewhere)
            self._subscribe(consumer, durable, moved=moved)
        except ValueError as error:
            self._forget(number)
            _log.warning("%s (%s): subscription refused: %s", self.label, self.identity, str(error))
            ended = SubscriptionState(number, SubscriptionPhase.ENDED, text_of(error))
            self._connection.send((ended,))
            return
        if consumer.number in self._consumers:
            consumer.is_announced = True
            self._tell(consumer)

    def _consumer_of(self, message: SubscribeWanted) -> QueuedConsumer:
        limits, identity = self._limits, self._connection.identity
        if self._usage.subscriptions >= limits.subscriptions_max:
            raise ValueError(
                f"{client_named(identity)} may have {limits.subscriptions_max:,} subscriptions at "
                "a node, over all of its connections"
            )
        if len(message.durable.encode()) > limits.durable_name_bytes_max:
            raise ValueError(
                f"the name of a durable subscription has up to {limits.durable_name_bytes_max} "
                "bytes"
            )
        wanted = permit_filter(self.rules, identity, message.filter)
        if message.durable:
            name = durable_name(identity, message.durable)
        else:
            name = f"{self.label}/{message.number}"
        consumer = QueuedConsumer(
            self,
            message.number,
            name,
            wanted,
            self._usage.queued,
            is_durable=bool(message.durable),
            overflow=message.overflow,
            asked=message.filter,
            queue_max=max(1, min(message.queue_max, limits.queue_max)),
            credit=min(message.credit, limits.credit_max),
        )
        consumer.detail = narrowing_of(message.filter, wanted)
        return consumer

    def _on_move_followed(self, message: MoveFollowed) -> None:
        self._followed = message.number

    def _on_consumed_elsewhere(self, message: ConsumedElsewhere) -> None:
        self._from_elsewhere = message.number

    def _subscribe(
        self, consumer: QueuedConsumer, options: DurableOptions, *, moved: bool = False
    ) -> None:
        durable = options if consumer.is_durable else None
        former = self.take_share(consumer)
        if durable is not None:
            self._holders.take(consumer)
        if consumer.number not in self._consumers:
            self._consumers[consumer.number] = consumer
            self._usage.subscriptions += 1
        consumer.is_held = True
        try:
            # The node narrows a durable one by itself, and anew whenever it starts.
            wanted = consumer.wanted if durable is None else consumer.asked
            self._node.subscribe(consumer.name, wanted, consumer, durable=durable, moved=moved)
        except ValueError:
            self._holders.give_up(consumer)
            self._budget.restore(consumer.name, former)
            raise

    def take_share(self, consumer: QueuedConsumer) -> tuple[str, int] | None:
        """Count what its filter costs; what it cost until now, if so. Raises as the budget does."""
        # Who has no identity shares durable subscriptions with others who have none.
        client = self.identity if consumer.is_durable else self.identity or self.label
        return self._budget.take(client, consumer.name, consumer.wanted, self._limits.price_max)

    def _forget(self, number: int) -> QueuedConsumer | None:
        consumer = self._consumers.pop(number, None)
        if consumer is not None:
            self._usage.subscriptions -= 1
        return consumer

    def _on_unsubscribe_wanted(self, message: UnsubscribeWanted) -> None:
        consumer = self._forget(message.number)
        if consumer is None:
            return
        if message.forget and consumer.is_durable:
            self._holders.give_up(consumer)
            self._budget.release(consumer.name)
            self._node.unsubscribe(consumer.name)
            consumer.is_held = False
        else:
            self._release(consumer)
        consumer.phase, consumer.detail = SubscriptionPhase.ENDED, ""
        self._tell(consumer)

    def _release(self, consumer: QueuedConsumer) -> None:
        """The consumer is gone; a durable subscription goes on without it."""
        self._holders.give_up(consumer)
        consumer.clear()
        if not consumer.is_durable:
            self._budget.release(consumer.name)
        if consumer.is_held:
            consumer.is_held = False
            self._node.detach(consumer.name)

    def _on_state_wanted(self, message: StateWanted) -> None:
        consumer = self._consumers.get(message.number)
        if consumer is not None:
            self._tell(consumer, with_waiting=True)

    def _on_credit(self, message: Credit) -> None:
        consumer = self._consumers.get(message.number)
        if consumer is not None:
            consumer.grant(message.count, self._limits.credit_max)
            if consumer.news_of_drops():
                self._tell(consumer)

    def _on_acknowledged(self, message: Acknowledged) -> None:
        consumer = self._consumers.get(message.number)
        if consumer is not None and consumer.is_durable:
            self._node.acknowledge(consumer.name, message.position)

    def _tell(self, consumer: QueuedConsumer, *, with_waiting: bool = False) -> None:
        waiting_on: tuple[str, ...] = ()
        is_pending = consumer.phase is SubscriptionPhase.PENDING
        if with_waiting and is_pending and self.rules.may_observe(self.identity):
            waiting_on = self._node.waiting_on(consumer.name)[:NUMBERS_PER_MESSAGE_MAX]
        if self._takes_phases and not (with_waiting or consumer.detail or consumer.dropped):
            self._phases[consumer.number] = consumer.phase
            self._plan_flush()
            return
        self._flush()
        self._connection.send(
            (
                SubscriptionState(
                    consumer.number, consumer.phase, consumer.detail, waiting_on, consumer.dropped
                ),
            )
        )

    # --- what consumers say ----------------------------------------------------------------------

    def on_changed(self, consumer: QueuedConsumer) -> None:
        """The phase of a subscription has changed."""
        if consumer.is_announced and not self._is_lost:
            self._tell(consumer)

    def tell_losses(self, consumer: QueuedConsumer, through: int, gaps: int) -> None:
        """A durable subscription lost events before they were read."""
        if self._hears_losses and not self._is_lost:
            self._connection.send((DurableLosses(consumer.number, through, gaps),))

    def propose_move(self, consumer: QueuedConsumer, node: str) -> None:
        """Another node suits the subscription better; clients that cannot follow hear nothing."""
        if self._hears_moves and not self._is_lost:
            self._connection.send((MoveProposed(consumer.number, node),))

    def let_go(self, consumer: QueuedConsumer) -> None:
        """Take nothing from the node for a durable subscription whose queue is full."""
        self._node.detach(consumer.name)

    def take_hold(self, consumer: QueuedConsumer) -> None:
        """Its queue has room again: go on after what was acknowledged."""
        try:
            self._subscribe(consumer, DurableOptions())
        except ValueError as error:
            consumer.is_held = False
            self.end(consumer, text_of(error))

    def end(self, consumer: QueuedConsumer, reason: str) -> None:
        """A subscription is over, and not because the client wanted it."""
        if self._is_lost or self._forget(consumer.number) is None:
            return
        self._holders.give_up(consumer)
        if not consumer.is_durable:
            self._budget.release(consumer.name)
            self._node.unsubscribe(consumer.name)
        consumer.phase, consumer.detail = SubscriptionPhase.ENDED, reason
        consumer.clear()
        self._flush()
        self._tell(consumer)

    def on_node_ended(self, reason: str) -> None:
        """The node ends. Subscriptions do not: their client may ask for them when it is back."""
        if not self._is_lost:
            self._flush()
            self._connection.close(reason)
            self.on_lost(reason)

    def send_event(self, consumer: QueuedConsumer, waiting: Waiting) -> None:
        """An event for one subscription; those of others in the same turn join it."""
        self._outbox.add(consumer.number, waiting)
        if self._outbox.size >= SEND_BYTES:
            self._flush()
        else:
            self._plan_flush()

    def events_of(self, batch: Batch, rows: np.ndarray) -> list[Publication]:
        """The events at these places of a batch, made once for all subscriptions."""
        if batch is not self._outbox.batch:
            self._flush()  # What came before stays before these.
        self._plan_flush()
        return self._outbox.events_of(batch, rows)

    @property
    def takes_columns(self) -> bool:
        """Whether the client takes events in columns."""
        return self._takes_columns

    def send_rows(
        self, consumer: QueuedConsumer, batch: Batch, rows: np.ndarray, hops: int
    ) -> None:
        """The events at these places of a batch for one subscription, in columns."""
        if batch is not self._outbox.batch:
            self._flush()  # What came before stays before these.
        self._outbox.add_rows(consumer.number, batch, rows, hops)
        self._plan_flush()

    def before_queued(self) -> None:
        """Events that have waited follow: what is on its way stays before them."""
        if self._outbox.batch is not None:
            self._flush()

    # --- revocations -----------------------------------------------------------------------------

    def _on_revocation_told(self, message: RevocationTold) -> None:
        failure = self._node.tell_revocation(message.statement)
        self._connection.send((Answered(message.number, failure or ""),))

    # --- status ----------------------------------------------------------------------------------

    def _on_status_wanted(self, message: StatusWanted) -> None:
        if not self._status_answers.want(message.number):
            self.refuse("a client asks for the status again when it has got its answers")

    def status(self) -> dict[str, Any]:
        """The client as plain values."""
        consumers = self._consumers.values()
        return {
            "name": self.client_name,
            "identity": self._connection.identity,
            "subscriptions": len(consumers),
            "queued_events": sum(map(len, consumers)),
            "queued_bytes": self._usage.queued.used,
            "dropped_events": sum(consumer.dropped for consumer in consumers),
            "publications_under_way": len(self._publications),
        }

    # --- sending ---------------------------------------------------------------------------------

    def _plan_flush(self) -> None:
        if not self._flush_planned:
            self._flush_planned = True
            asyncio.get_running_loop().call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._flush_planned = False
        self._flush()

    def _flush(self) -> None:
        if self._is_lost:
            return
        phases, self._phases = self._phases, {}
        # What has ended said so after its last event, and what began does so before its first.
        messages: list[Message] = [
            *phase_messages(phases, SubscriptionPhase.PENDING, SubscriptionPhase.READY),
            *self._outbox.taken(),
            *phase_messages(phases, SubscriptionPhase.ENDED),
            *self._publications.answers(),
        ]
        if not messages:
            return
        self._connection.send(messages)
        if not self._is_holding and self._connection.is_full():
            self._is_holding = True
            self._connection.when_relieved(self._on_relieved)

    def _on_relieved(self) -> None:
        if self._is_lost:
            return
        self._is_holding = False
        for consumer in list(self._consumers.values()):
            consumer.pump()
            if self._is_holding:
                return
