"""At-least-once: who still owes a confirmation for which part of the network.

An acknowledged event makes a *task* at each node that it passes: serve a scope, then confirm to
whoever delegated it. A task is done when the event is on disk at home (if it is wanted there) and
each part that was delegated further is confirmed. A part is repeated until it is (light messages
may be lost), and delegated anew, to whoever serves its scope now, when its peer is gone (section 5:
retransmission over the redundant edges; no bound on how many edges fail one after the other).
Nobody waits for that to be certain: while a peer is in doubt, others serve what it should have
(`relieve`), and it is left with its own place alone, for which nobody else can answer.

A repetition is recognised by delegator and number: it is confirmed again if the task is done and
ignored while it is not. An event that comes home by several ways is handed over once (`home`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from peersub.overlays.core.batch import Batch
from peersub.overlays.core.history import History
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Publication
from peersub.overlays.routing.messages import Confirm, Notify, NotifyBatch
from peersub.overlays.routing.topology import NOWHERE, Scope

__all__ = ["DelegationSettings", "Delegations", "Part", "Task", "TaskKey"]

TaskKey = tuple[PeerId | None, int]

LOST_SOMEBODY = "somebody who wants it was lost on the way: publish it again"
"""The failure by which a delegator learns that a scope is served, but for who was lost in it.

The publisher's node publishes the event again, to whoever holds for the lost by then; one of an
earlier version says to the publisher that the event failed."""


@dataclass(frozen=True, slots=True)
class DelegationSettings:
    """How long, how often and how much is repeated."""

    retry_ms: int = 2_000
    """After this long without confirmation a part is repeated; the pause doubles each time."""
    retry_ms_max: int = 20_000
    give_up_ms: int = 300_000
    """After this long a publication has failed."""
    repeat_after_ms: int = 1_000
    """So long after a member of the network was lost events that were published meanwhile are
    published again before they count as confirmed: whoever stands in for it has begun by then."""
    tasks_max: int = 100_000
    """Unfinished tasks of a node; more are refused."""


@dataclass(slots=True)
class Part:
    """A scope that was delegated to a peer, or is about to be (no peer yet)."""

    peer: PeerId | None
    scope: Scope
    content: Publication | Batch
    due_ms: int = 0
    pause_ms: int = 0
    is_place: bool = False
    """Whether nobody but the peer itself is in the scope: a part that ends with the peer."""


@dataclass(slots=True)
class Task:
    """An event, or a batch, to be served in a scope, and what is missing until it is."""

    key: TaskKey
    publication: Publication | Batch
    scope: Scope
    hops: int
    began_ms: int
    waits_for_home: bool = False
    source: str = ""
    """Whose it is, in the histories of this node: a publisher here, or the link it came over."""
    parts: dict[int, Part] = field(default_factory=dict)
    failure: str = ""
    lost_somebody: bool = False
    """Whether somebody who wanted it was lost before it confirmed: others may hold for it now."""
    repeats_ms: int | None = None
    """When it is published again, for that reason."""
    is_repeated: bool = False
    control: str = ""
    """The reserved name of a control notification."""

    def notify(self, part: Part, number: int) -> Notify | NotifyBatch:
        """The message that delegates a part."""
        if isinstance(part.content, Batch):
            return NotifyBatch(part.content, part.scope, self.hops + 1, number)
        return Notify(part.content, part.scope, self.hops + 1, number, self.control)


class Delegations:
    """The unfinished tasks of a node.

    `spread(task, scope, now_ms)` is called to split a scope among the present edges, and
    `detour(task, part, now_ms)` to split a part among others than its peer; both answer with
    `delegate`, and the latter says what only the peer can serve. `serve` takes a scope that holds
    this node as well. `send` takes messages, `finished` takes the tasks of this node's publishers.
    """

    def __init__(
        self,
        settings: DelegationSettings,
        send: Callable[[PeerId, Notify | NotifyBatch | Confirm], None],
        spread: Callable[[Task, Scope, int], None],
        detour: Callable[[Task, Part, int], Scope],
        serve: Callable[[Task, Scope, int], None],
        finished: Callable[[Task], None],
    ) -> None:
        self._settings = settings
        self._send = send
        self._spread = spread
        self._detour = detour
        self._serve = serve
        self._finished = finished
        self._tasks: dict[TaskKey, Task] = {}
        self._done: History[TaskKey] = History(settings.tasks_max, settings.give_up_ms)
        self._owners: dict[int, Task] = {}
        self._numbers = 0
        self._lost_ms = -settings.repeat_after_ms - 1
        """When a member of the network was lost last."""
        self.has_repeats = False
        """Whether some of this node's events are to be published again."""

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, key: TaskKey) -> bool:
        """Whether the task is being done, or was."""
        return key in self._tasks or key in self._done

    # --- taking on -----------------------------------------------------------------------------

    def own(
        self, publication: Publication | Batch, scope: Scope, now_ms: int, control: str = ""
    ) -> Task | None:
        """A task for an event that is published here; None if there are too many."""
        self._numbers += 1
        task = Task((None, self._numbers), publication, scope, 0, now_ms, control=control)
        return self._open(task)

    def take_on(self, delegator: PeerId, notify: Notify | NotifyBatch, now_ms: int) -> Task | None:
        """A task for an event that was delegated to this node; None if there is nothing to do."""
        key = (delegator, notify.delegation)
        if key in self._tasks:
            return None
        content: Publication | Batch
        if isinstance(notify, NotifyBatch):
            content, control = notify.batch, ""
        else:
            content, control = notify.publication, notify.control
        if key in self._done:
            self._send(delegator, Confirm(content.id, notify.delegation))
            return None
        task = Task(key, content, notify.scope, notify.hops, now_ms, control=control)
        task.source = delegator.node
        # Refused for want of room: the delegator asks again later.
        return self._open(task)

    def _open(self, task: Task) -> Task | None:
        if len(self._tasks) >= self._settings.tasks_max:
            return None
        self._tasks[task.key] = task
        return task

    def cancel(self, key: TaskKey) -> None:
        """Wait no more for what a task has spread; nothing if it has ended."""
        task = self._tasks.get(key)
        if task is not None:
            self._abandon(task)

    def delegate(
        self,
        task: Task,
        peer: PeerId,
        scope: Scope,
        now_ms: int,
        content: Publication | Batch,
        *,
        is_place: bool = False,
    ) -> None:
        """Let the peer serve a part of the task's scope; `content` is what it wants of a batch."""
        self._numbers += 1
        pause_ms = self._settings.retry_ms
        self._owners[self._numbers] = task
        part = Part(peer, scope, content, now_ms + pause_ms, pause_ms, is_place)
        task.parts[self._numbers] = part
        self._send(peer, task.notify(part, self._numbers))

    # --- what becomes of them ------------------------------------------------------------------

    def on_confirm(self, peer: PeerId, confirm: Confirm, now_ms: int) -> None:
        """A part is served; the confirmation of a part that was delegated anew is no news."""
        task = self._owners.get(confirm.delegation)
        if task is None:
            return
        part = task.parts[confirm.delegation]
        if part.peer != peer:
            return
        self._close_part(task, confirm.delegation)
        if confirm.failure == LOST_SOMEBODY:
            task.lost_somebody = True
            self.member_lost(now_ms)
        else:
            task.failure = task.failure or confirm.failure
        self.check(task, now_ms)

    def on_home_stored(self, task: Task, now_ms: int, failure: str = "") -> None:
        """What the task was to bring home is on disk, or on too few."""
        task.waits_for_home = False
        task.failure = task.failure or failure
        self.check(task, now_ms)

    def check(self, task: Task, now_ms: int) -> None:
        """Finish the task if nothing is missing any more."""
        if task.waits_for_home or task.parts or task.key not in self._tasks:
            return
        if task.repeats_ms is not None:
            return
        delegator, number = task.key
        failure = task.failure
        if delegator is None and self._is_owed_again(task):
            task.lost_somebody, task.is_repeated = False, True
            task.repeats_ms = max(now_ms, self._lost_ms + self._settings.repeat_after_ms)
            self.has_repeats = True
            return
        if task.lost_somebody and not failure and not task.control:
            failure = LOST_SOMEBODY
        del self._tasks[task.key]
        if delegator is None:
            self._finished(task)
            return
        if not failure:
            self._done.add(task.key, now_ms)
        self._send(delegator, Confirm(task.publication.id, number, failure))

    def member_lost(self, now_ms: int) -> None:
        """A member of the network was lost: its subscriptions may be nobody's for a while."""
        self._lost_ms = now_ms

    def _is_owed_again(self, task: Task) -> bool:
        """Whether an event of this node may have passed by who wants it, or stands in for that."""
        if task.failure or task.control:
            return False
        is_near = task.began_ms - self._lost_ms <= self._settings.repeat_after_ms
        return task.lost_somebody or (is_near and not task.is_repeated)

    def on_repeat(self, now_ms: int) -> None:
        """Serve all of the network again: who got it confirms at once, who holds now gets it."""
        waiting = [task for task in self._tasks.values() if task.repeats_ms is not None]
        self.has_repeats = False
        for task in waiting:
            assert task.repeats_ms is not None
            if task.repeats_ms <= now_ms:
                task.repeats_ms = None
                self._serve(task, task.scope, now_ms)
            else:
                self.has_repeats = True

    def _close_part(self, task: Task, number: int) -> None:
        del task.parts[number]
        del self._owners[number]

    # --- when links fail -----------------------------------------------------------------------

    def relieve(self, peer: PeerId, now_ms: int) -> None:
        """The peer is in doubt: let others serve its parts, and leave it its own place."""
        for task in list(self._tasks.values()):
            owed = [
                number
                for number, part in task.parts.items()
                if part.peer == peer and not part.is_place
            ]
            for number in owed:
                part = task.parts[number]
                place = self._detour(task, part, now_ms)
                if place == NOWHERE:
                    self._close_part(task, number)
                else:
                    part.scope, part.is_place = place, True
            if owed:
                self.check(task, now_ms)

    def peer_gone(self, peer: PeerId) -> None:
        """Parts of the peer are nobody's until `redelegate`; tasks from it are nobody's wish."""
        for task in list(self._tasks.values()):
            if task.key[0] == peer:
                self._abandon(task)
                continue
            for part in task.parts.values():
                if part.peer == peer:
                    part.peer = None

    def _abandon(self, task: Task) -> None:
        # The delegator's side delegates the scope anew; what is under way here goes on unasked.
        for number in list(task.parts):
            self._close_part(task, number)
        del self._tasks[task.key]

    def redelegate(self, now_ms: int) -> None:
        """Spread what is nobody's among the present edges."""
        for task in list(self._tasks.values()):
            orphans = [number for number, part in task.parts.items() if part.peer is None]
            # Events of a batch that went to a peer one by one share its scope.
            scopes = dict.fromkeys(
                task.parts[number].scope for number in orphans if not task.parts[number].is_place
            )
            for number in orphans:
                self._close_part(task, number)
            for scope in scopes:
                self._spread(task, scope, now_ms)
            if orphans:
                task.lost_somebody = True
                self.member_lost(now_ms)
                self.check(task, now_ms)

    def on_retry(self, now_ms: int, *, linked: Callable[[PeerId], bool]) -> None:
        """Repeat the parts whose confirmation is overdue; give up tasks that are too old."""
        for task in list(self._tasks.values()):
            if now_ms - task.began_ms > self._settings.give_up_ms:
                self._give_up(task)
                continue
            for number, part in task.parts.items():
                if part.peer is None or part.due_ms > now_ms or not linked(part.peer):
                    continue
                part.pause_ms = min(2 * part.pause_ms, self._settings.retry_ms_max)
                part.due_ms = now_ms + part.pause_ms
                self._send(part.peer, task.notify(part, number))

    def repeat(self, peer: PeerId, now_ms: int) -> None:
        """What was on its way to the peer may be lost: say it again."""
        for task in list(self._tasks.values()):
            for number, part in task.parts.items():
                if part.peer == peer:
                    part.due_ms = now_ms + part.pause_ms
                    self._send(peer, task.notify(part, number))

    def _give_up(self, task: Task) -> None:
        waiting = sorted({str(part.peer) for part in task.parts.values()})
        task.failure = f"not confirmed in time by {', '.join(waiting) or 'the disk of this node'}"
        self._abandon(task)
        if task.key[0] is None:
            self._finished(task)
