"""The driver: causes go to the node, its effects are carried out on sockets, clock and disk.

Everything happens on one event loop, one cause after the other. What an effect brings about at once
(a connection that is refused) comes as a cause of its own, later in the same turn of the loop: the
node is never called from within itself.

Records are written in groups: all that a turn of the loop asks to persist is one submission to the
store, and `Persisted` follows when it is on disk. A record that could not be written is not said to
be: whoever waits for it is not promised anything, and asks again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from peersub.overlays.core.causes import (
    Cause,
    ConnectFailed,
    PeerConnected,
    PeerHeard,
    PeerInDoubt,
    PeerLost,
    Persisted,
    PersistFailed,
    Publish,
    PublishBatch,
    Received,
    Timer,
    TimerFired,
)
from peersub.overlays.core.effects import (
    CancelTimer,
    Connect,
    Deliver,
    DeliverBatch,
    Disconnect,
    Drop,
    Effect,
    MirrorWork,
    Notice,
    Persist,
    ProposeMove,
    PublishCompleted,
    PublishFailed,
    Send,
    SetTimer,
    SubscriptionPending,
    SubscriptionReady,
)
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.mirror_tasks import MirrorTask
from peersub.overlays.core.node import Node
from peersub.overlays.core.records import Record
from peersub.runtime.body_reading import BodyReader
from peersub.runtime.connection import Connection
from peersub.runtime.counters import Counters
from peersub.runtime.logs import NodeLog
from peersub.runtime.record_keeping import OnPersisted
from peersub.runtime.transport import Transport
from peersub.runtime.turns import Turns

__all__ = ["Driver", "Outside"]

_PEERS_KEPT_MAX: Final = 65_536
FAILURES_KEPT_MAX: Final = 64
"""Nodes of which is remembered why they could not be reached."""


WORK_MS: Final = 1
"""A timer that is set for no longer goes on with work: it has its turn with all other work."""
_EVENTS: Final = frozenset({Publish, PublishBatch})


_log = NodeLog(__name__)


class _Turn:
    """A timer that fires when its turn has come."""

    __slots__ = ("_fire", "_timer")

    def __init__(self, fire: Callable[[Timer], None], timer: Timer) -> None:
        self._fire: Callable[[Timer], None] | None = fire
        self._timer = timer

    def cancel(self) -> None:
        """It does not fire."""
        self._fire = None

    def __call__(self) -> bool:
        if self._fire is not None:
            self._fire(self._timer)
        return False


class Outside(Protocol):
    """What the driver does not do itself: subscribers, publishers, the disk, clients."""

    def on_deliver(self, effect: Deliver) -> None:
        """An event for subscriptions of this node."""
        ...

    def on_deliver_batch(self, effect: DeliverBatch) -> None:
        """Many events for subscriptions of this node."""
        ...

    def on_ready(self, subscription: str) -> None:
        """The overlay keeps its promise for the subscription."""
        ...

    def on_move_proposed(self, subscription: str, node: str) -> None:
        """The overlay proposes that the subscription moves to another node."""
        ...

    def on_published(self, name: str, failure: str | None) -> None:
        """A publication has ended."""
        ...

    def persist(self, records: Sequence[tuple[int, Record]], then: OnPersisted) -> None:
        """Keep the records; `then` runs for each, on the loop's thread."""
        ...

    def on_mirror_work(self, task: MirrorTask) -> None:
        """The mirror peer needs the disk, or a durable subscription."""
        ...

    def on_client(self, connection: Connection, messages: Sequence[Message]) -> bool:
        """Somebody who is no node has connected; False if it is nobody at all."""
        ...

    def on_relieved(self) -> None:
        """Congestion has ended."""
        ...

    def on_name_found(self, address: str, name: str) -> None:
        """The node at an address has this name."""
        ...


Observer = Callable[[int, Cause, list[Effect]], None]
"""Is told each cause with its time and effects: the trace."""


class Driver:
    """Drives one node on an asyncio loop.

    `transport` is set right after construction: the two know each other.
    """

    def __init__(
        self,
        node: Node,
        outside: Outside,
        counters: Counters,
        now_ms: Callable[[], int],
        observer: Observer | None = None,
        bodies: BodyReader | None = None,
    ) -> None:
        self.node = node
        self._bodies = bodies or BodyReader()
        self._behind: dict[str, deque[Message]] = {}
        """What has come from nodes of which an event is being read, by node."""
        self._readings: set[asyncio.Task[None]] = set()
        self.transport: Transport = None  # type: ignore[assignment]
        self.failures: dict[str, str] = {}
        """Why a node could not be reached when it was last tried."""
        self._outside = outside
        self._counters = counters
        self._now_ms = now_ms
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self._turns = Turns.of_running_loop()
        self._timers: dict[Timer, asyncio.TimerHandle | _Turn] = {}
        self._records: list[tuple[int, Record]] = []
        self._persist_planned = False
        self._peers: dict[str, PeerId] = {}
        self._is_ended = False
        self._carry_out: dict[type, Callable[[Any], None]] = {
            Send: self._send,
            SetTimer: self._set_timer,
            CancelTimer: self._cancel_timer,
            Deliver: outside.on_deliver,
            DeliverBatch: outside.on_deliver_batch,
            Persist: self._persist,
            MirrorWork: lambda effect: outside.on_mirror_work(effect.task),
            Connect: self._connect,
            Disconnect: self._disconnect,
            SubscriptionReady: lambda effect: outside.on_ready(effect.subscription),
            SubscriptionPending: _nothing,
            ProposeMove: lambda effect: outside.on_move_proposed(effect.subscription, effect.node),
            PublishCompleted: lambda effect: outside.on_published(
                effect.name or effect.event_id, None
            ),
            PublishFailed: lambda effect: outside.on_published(
                effect.name or effect.event_id, effect.reason
            ),
            Drop: self._drop,
            Notice: self._notice,
        }

    @property
    def timer_count(self) -> int:
        """Timers that are set."""
        return len(self._timers)

    def tell(self, cause: Cause, slot: int = 0) -> None:
        """Something happens to the node."""
        if self._is_ended:
            return
        if type(cause) in _EVENTS:
            self._turns.give_way()
        now_ms = self._now_ms()
        effects = self.node.handle(cause, now_ms, slot)
        if self._observer is not None:
            self._observer(now_ms, cause, effects)
        carry_out = self._carry_out
        for effect in effects:
            carry_out[type(effect)](effect)

    def end(self) -> None:
        """Nothing more happens: timers stop, and what arrives is for nobody."""
        self._is_ended = True
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()

    # --- effects -------------------------------------------------------------------------------

    def _send(self, effect: Send) -> None:
        self.transport.send(effect.peer.node, effect.messages)

    def _connect(self, effect: Connect) -> None:
        self.transport.connect(effect.node)

    def _disconnect(self, effect: Disconnect) -> None:
        node = effect.peer.node
        if self.node.refusals.get(node) == effect.reason:
            _log.warning("%s and this node do not fit together: %s", node, effect.reason)
        self.transport.disconnect(node, effect.reason)

    def _set_timer(self, effect: SetTimer) -> None:
        self._cancel(effect.timer)
        if effect.delay_ms <= WORK_MS:
            turn = self._timers[effect.timer] = _Turn(self._fire, effect.timer)
            self._turns.ask(turn)
        else:
            handle = self._loop.call_later(effect.delay_ms / 1_000, self._fire, effect.timer)
            self._timers[effect.timer] = handle

    def _cancel_timer(self, effect: CancelTimer) -> None:
        self._cancel(effect.timer)

    def _cancel(self, timer: Timer) -> None:
        handle = self._timers.pop(timer, None)
        if handle is not None:
            handle.cancel()

    def _fire(self, timer: Timer) -> None:
        del self._timers[timer]
        self.tell(TimerFired(timer))

    def _persist(self, effect: Persist) -> None:
        self._records.append((effect.token, effect.record))
        if not self._persist_planned:
            self._persist_planned = True
            self._loop.call_soon(self._write_records)

    def _write_records(self) -> None:
        self._persist_planned = False
        records, self._records = self._records, []

        def then(token: int, refusal: str | None) -> None:
            self.tell(Persisted(token) if refusal is None else PersistFailed(token, refusal))

        self._outside.persist(records, then)

    def _notice(self, effect: Notice) -> None:
        _log.info("%s %s", effect.text, effect.about)

    def _drop(self, effect: Drop) -> None:
        self._counters.add(_kind_of_reason(effect))

    # --- what the transport says ---------------------------------------------------------------

    def _peer(self, node: str) -> PeerId:
        peer = self._peers.get(node)
        if peer is None:
            if len(self._peers) >= _PEERS_KEPT_MAX:
                self._peers.clear()
            peer = self._peers[node] = PeerId(node)
        return peer

    def on_link_up(self, node: str) -> None:
        """There is a connection to the node."""
        self.failures.pop(node, None)
        _log.info("linked with %s", node)
        self.tell(PeerConnected(self._peer(node)))

    def on_link_failed(self, node: str, reason: str, *, refused: bool = False) -> None:
        """There is none to be had."""
        if node not in self.failures and len(self.failures) >= FAILURES_KEPT_MAX:
            del self.failures[next(iter(self.failures))]
        self.failures[node] = reason
        if refused:
            _log.warning("no link with %s: %s", node, reason)
        self.tell(ConnectFailed(node, reason, refused))

    def on_name_found(self, address: str, name: str) -> None:
        """The node at an address that was dialled has this name; there is no link yet."""
        if not self._is_ended:
            self._outside.on_name_found(address, name)

    def on_link_lost(self, node: str, reason: str) -> None:
        """It is gone."""
        self._behind.pop(node, None)
        _log.warning("the link with %s is lost: %s", node, reason)
        self.tell(PeerLost(self._peer(node), reason))

    def on_link_doubt(self, node: str, *, in_doubt: bool) -> None:
        """Nothing is heard over the connection, or something is again."""
        peer = self._peer(node)
        if in_doubt:
            _log.info("%s is in doubt: nothing is heard of it", node)
        else:
            _log.info("%s is heard again", node)
        self.tell(PeerInDoubt(peer) if in_doubt else PeerHeard(peer))

    def on_link_messages(self, node: str, messages: Sequence[Message]) -> None:
        """Messages of the node, in order; what is behind a large body waits until it is read."""
        behind = self._behind.get(node)
        if behind is not None:
            behind.extend(messages)
            return
        must_read = self._bodies.must_read_first
        if self._bodies.reads and any(must_read(message) is not None for message in messages):
            self._behind[node] = deque(messages)
            reading = self._loop.create_task(self._read_and_tell(node))
            self._readings.add(reading)
            reading.add_done_callback(self._readings.discard)
            return
        self.tell(Received(self._peer(node), tuple(messages)))

    async def _read_and_tell(self, node: str) -> None:
        """Tell what has come from a node, each large body when it is read."""
        behind = self._behind[node]
        self.transport.hold(node, hold=True)
        while behind and self._behind.get(node) is behind:
            ready: list[Message] = []
            while behind and self._bodies.must_read_first(behind[0]) is None:
                ready.append(behind.popleft())
            if ready:
                self.tell(Received(self._peer(node), tuple(ready)))
            if behind:
                publication = self._bodies.must_read_first(behind[0])
                await self._bodies.read(() if publication is None else (publication,))
        if self._behind.get(node) is behind:
            del self._behind[node]
            self.transport.hold(node, hold=False)

    def on_relieved(self) -> None:
        """A connection was congested, and is no more."""
        self._outside.on_relieved()

    def on_other(self, connection: Connection, messages: Sequence[Message]) -> bool:
        """Somebody who is no node has connected."""
        return self._outside.on_client(connection, messages)


def _kind_of_reason(effect: Drop) -> str:
    """A reason without the names and values in it: others can make up as many as they like.

    >>> _kind_of_reason(Drop("there is no link to n7", None, PeerId("n7")))
    'there is no link to a peer'
    >>> _kind_of_reason(Drop("network differs: 'a' here, 'b' at n7", None, PeerId("n7")))
    'network differs'
    """
    reason = effect.reason.partition(": ")[0]
    return reason if effect.peer is None else reason.replace(str(effect.peer), "a peer")


def _nothing(effect: Effect) -> None:
    """For effects that concern observers only."""
