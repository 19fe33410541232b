"""Acknowledged events that a node cannot take yet: its histories have no room to remember them.

What was taken is not forgotten before its publisher has stopped repeating it, or a repetition would
be handed over again. So what is new waits. Events that are published here wait here; for those of
others their delegator asks again. After `room_wait_ms` a publication fails, and says where room is
missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from peersub.overlays.core.batch import Batch
from peersub.overlays.core.effects import Drop
from peersub.overlays.core.history import History
from peersub.overlays.core.home import Home
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.outbox import Outbox
from peersub.overlays.core.publication import Publication
from peersub.overlays.routing.batch_routing import BatchRouting
from peersub.overlays.routing.delegations import Delegations, Task, TaskKey
from peersub.overlays.routing.messages import Confirm, Notify, NotifyBatch
from peersub.overlays.routing.topology import Scope, Topology

__all__ = ["Intake"]

REFUSED_MAX: Final = 100_000
"""Tasks of others that could not be taken on, and of which it is known since when."""

REFUSED_AT_ONCE: Final = 1_024
"""Events that there is no room for, before the others wait unasked: each has to be matched."""


class Intake:
    """What waits for room at one node.

    `serve(task, scope, now_ms)` is called for a task of this node when there is room for its event.
    """

    def __init__(
        self,
        me: PeerId,
        home: Home,
        topology: Topology,
        batches: BatchRouting,
        delegations: Delegations,
        out: Outbox,
        serve: Callable[[Task, Scope, int], None],
    ) -> None:
        self._me = me
        self._settings = home.settings
        self._home = home
        self._topology = topology
        self._batches = batches
        self._delegations = delegations
        self._out = out
        self._serve = serve
        self._waiting: dict[TaskKey, Task] = {}
        """Tasks of this node's publishers."""
        self._refused: History[TaskKey] = History(REFUSED_MAX, home.settings.history_horizon_ms)
        """Tasks of others that were not taken on, since when."""

    def takes(self, task: Task, now_ms: int) -> bool:
        """Whether there is room for what is published here; else the task waits."""
        if task.control or task.key[0] is not None or self._has_room(task, now_ms):
            return True
        task.waits_for_home = True
        self._waiting[task.key] = task
        return False

    def _has_room(self, task: Task, now_ms: int) -> bool:
        content, source = task.publication, task.source
        if not self._home.admit(content, source, now_ms):
            return False
        is_for_me = self._topology.holds_me(task.scope)
        return not (is_for_me and self._lacks_room(content, source, now_ms))

    def _lacks_room(self, content: Publication | Batch, source: str, now_ms: int) -> bool:
        if not self._home.lacks_room(content, source, now_ms):
            return False
        return not isinstance(content, Batch) or bool(self._batches.at_home(content))

    def retry(self, now_ms: int) -> None:
        """Take what is published here and has waited, as far as there is room, or give it up."""
        waiting, self._waiting = self._waiting, {}
        refused: dict[TaskKey, Task] = {}
        for key, task in waiting.items():
            if key not in self._delegations:
                continue
            is_asked = len(refused) < REFUSED_AT_ONCE
            if is_asked and self._has_room(task, now_ms):
                task.waits_for_home = False
                self._serve(task, task.scope, now_ms)
            elif now_ms - task.began_ms >= self._settings.room_wait_ms:
                self._delegations.on_home_stored(task, now_ms, self._no_room())
            else:
                (refused if is_asked else self._waiting)[key] = task
        self._waiting.update(refused)  # Those that were not asked about come first next time.

    def must_wait(
        self,
        peer: PeerId,
        message: Notify | NotifyBatch,
        content: Publication | Batch,
        now_ms: int,
    ) -> bool:
        """Whether a task of a peer cannot be taken on yet; the peer asks again."""
        key = (peer, message.delegation)
        if (
            key in self._delegations
            or (isinstance(message, Notify) and message.control)
            or not self._topology.holds_me(message.scope)
            or not self._lacks_room(content, peer.node, now_ms)
        ):
            return False
        self._out.emit(Drop("no room to remember it yet", content.id, peer))
        is_first = self._refused.add(key, now_ms)
        if not is_first and now_ms - self._refused.time_of(key) >= self._settings.room_wait_ms:
            self._out.send(peer, Confirm(content.id, message.delegation, self._no_room()))
        return True

    def _no_room(self) -> str:
        settings = self._settings
        return (
            f"{self._me.node} has no room to remember more acknowledged events: it remembers "
            f"those of {settings.history_horizon_ms // 1_000:,} s, in "
            f"{settings.history_bytes_max:,} bytes; publish more slowly, or give it a larger "
            "history_bytes_max"
        )
