"""Copies: when is an event on the disks of enough nodes, for each durable subscription it matches?

Each home has a *group*: itself, its mirrors and its witnesses (`mirrors`). All of them get its
events as subscribers of the overlay, and none confirms one to the publisher before it is *safe*: on
the disks of `MirrorSettings.copies` nodes. They find that out in a star:

    holder ── MirrorKept(ids): on my disk ──►  leader  ── MirrorSafe(ids): on enough disks ──► all

The leader is the home, or while it is out of reach the first of the group that is not. What is said
after one disk commit is one message. An event that is not safe for `push_ms` is sent to whoever
should have it (`MirrorKeep`): a member to its leader, the leader to the holders. So nobody depends
on the way that the event takes in the overlay, and a message that is lost costs time only.

What was safe is remembered for a while (`SAFE_MAX`): who asks late is answered. Forgetting costs a
repetition, and no promise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from peersub.overlays.core.causes import Persisted, PersistFailed
from peersub.overlays.core.effects import Effect, MirrorWork, Notice, TellOverlay
from peersub.overlays.core.messages import Message
from peersub.overlays.core.mirror_facts import EventsRetained, HeldCopy
from peersub.overlays.core.mirror_messages import KeptFor, MirrorKeep, MirrorKept, MirrorSafe
from peersub.overlays.core.mirror_settings import MirrorSettings
from peersub.overlays.core.mirror_tasks import RetainEvents

__all__ = ["Copies", "Group"]

OPEN_MAX: Final = 100_000
"""Events that are not safe yet; more are refused."""
SAFE_MAX: Final = 65_536
"""Events that are known to be safe."""
EARLY_MAX: Final = 65_536
"""Events that others have said to hold, and that did not come here yet."""
ASKED_MAX: Final = 3
"""How often a leader is sent an event that it says nothing about before it is none."""
PUSH_MS_MAX: Final = 8_000
"""The longest pause before an event that is not safe is sent again."""
PUSHED_AT_ONCE: Final = 512
"""Events that are sent again at a tick, or to a node that holds from now on."""
PUSHED_BYTES_MAX: Final = 4 * 1_024 * 1_024
"""Of these events; one that is larger goes alone."""
IDS_PER_MESSAGE_MAX: Final = 4_096
FORGOTTEN_MS: Final = 600_000
"""After this long nobody looks after an event that no publisher waits for any more."""

_NOTHING: Final[frozenset[str]] = frozenset()
_Key = tuple[str, str]
"""A home, and the identifier of an event."""


class Group(NamedTuple):
    """Who looks after the subscriptions of a home, as this node sees it."""

    leader: str
    stores: bool
    """Whether this node holds events, or only watches."""
    holders: tuple[str, ...] = ()
    """Other nodes that hold, and can be reached."""
    members: tuple[str, ...] = ()
    """All other nodes of the group that can be reached."""
    copies: int = 1
    """Disks on which an event must be."""
    asked_max: int = ASKED_MAX
    """How often a leader is asked that says nothing."""
    former: frozenset[str] = _NOTHING
    """Nodes that may forget what they hold at any time."""

    def counts(self, node: str) -> bool:
        """Whether what a node has on its disk is a copy."""
        return node not in self.former


@dataclass(slots=True)
class _Open:
    """An event that is not known to be safe."""

    copy: HeldCopy
    since_ms: int
    """Since when somebody waits."""
    pushed_ms: int
    pause_ms: int
    """How long to wait before it is sent again; the pause doubles each time."""
    tokens: list[int] = field(default_factory=list)
    on_disk: dict[str, frozenset[str]] = field(default_factory=dict)
    """Nodes that have it, and for which names."""
    askers: dict[str, None] = field(default_factory=dict)
    """Nodes that sent it here, and wait for an answer."""
    asked: dict[str, int] = field(default_factory=dict)
    """How often it was sent to a leader, which has not answered."""

    def nodes(self, names: Iterable[str]) -> int:
        """How many nodes have it, for the name that fewest have it for."""
        return min(sum(name in had for had in self.on_disk.values()) for name in names)


@dataclass(slots=True)
class _Slice:
    """What may be sent in one turn."""

    events: int = 0
    bytes: int = 0

    def takes(self, size: int) -> bool:
        """Whether there is room for an event of so many bytes, which goes then."""
        is_full = self.events >= PUSHED_AT_ONCE or self.bytes + size > PUSHED_BYTES_MAX
        if is_full and self.events:
            return False
        self.events += 1
        self.bytes += size
        return True


class Copies:
    """What this node knows of the copies of events that are not safe.

    Args:
        me: the name of this node.
        group_of: the group of a home; None if this node does not belong to it.
        forget: takes a home and a node that was asked again and again: it is none of the group.
        send: takes messages for nodes that can be reached.
    """

    def __init__(
        self,
        me: str,
        settings: MirrorSettings,
        group_of: Callable[[str], Group | None],
        forget: Callable[[str, str], None],
        send: Callable[[str, Message], None],
        emit: Callable[[Effect], None],
    ) -> None:
        self._forget = forget
        self._me = me
        self._settings = settings
        self._group_of = group_of
        self._send = send
        self._emit = emit
        self._open: dict[_Key, _Open] = {}
        self._tokens: dict[int, int] = {}
        """Per token of the overlay, how many events it waits for."""
        self._safe: dict[_Key, frozenset[str]] = {}
        self._early: dict[_Key, dict[str, frozenset[str]]] = {}
        self._leaders: dict[str, str] = {}
        self._kept: dict[tuple[str, str], dict[frozenset[str], list[str]]] = {}
        """What is to be said next, by receiver and home."""
        self._said_safe: dict[tuple[str, str], dict[frozenset[str], list[str]]] = {}

    def __len__(self) -> int:
        return len(self._open)

    # --- what the overlay asks -----------------------------------------------------------------

    def secure(self, token: int, events: Sequence[tuple[str, HeldCopy]], now_ms: int) -> None:
        """Let the overlay know when all of these are safe, each for names of a home."""
        waiting: list[tuple[_Key, frozenset[str]]] = []
        retain: dict[str, list[HeldCopy]] = {}
        for home, copy in events:
            group = self._group_of(home)
            if group is None:
                continue
            if home != self._me and group.stores:
                retain.setdefault(home, []).append(copy)
            key, names = (home, copy.publication.name), frozenset(copy.names)
            if names <= self._safe.get(key, _NOTHING):
                continue
            if len(self._open) >= OPEN_MAX:
                self._emit(TellOverlay(PersistFailed(token, "too many events wait for copies")))
                return
            known = self._open_for(home, copy, now_ms)
            if not known.tokens:
                known.since_ms = now_ms
            known.tokens.append(token)
            waiting.append((key, names))
        for home, copies in retain.items():
            self._emit(MirrorWork(RetainEvents(home, tuple(copies))))
        if not waiting:
            self._emit(TellOverlay(Persisted(token)))
            return
        self._tokens[token] = len(waiting)
        for key, names in waiting:
            # What the home has in its log was on disk before the overlay asked.
            self._note(key, self._me if key[0] == self._me else "", names)

    def _open_for(self, home: str, copy: HeldCopy, now_ms: int) -> _Open:
        key = home, copy.publication.name
        known = self._open.get(key)
        if known is None:
            known = self._open[key] = _Open(copy, now_ms, now_ms, self._settings.push_ms)
            known.on_disk = self._early.pop(key, {})
        elif not set(copy.names) <= set(known.copy.names):
            names = tuple(sorted({*known.copy.names, *copy.names}))
            known.copy = HeldCopy(copy.publication, names, copy.hops)
        return known

    # --- what disks have -----------------------------------------------------------------------

    def retained(self, fact: EventsRetained) -> None:
        """Events are on the disk of this node."""
        home = fact.home
        group = self._group_of(home)
        for names, event_id in fact.kept:
            known = self._open.get((home, event_id))
            if known is None:
                continue
            told = frozenset(names)
            listeners = dict.fromkeys(known.askers)
            if group is not None:
                listeners[group.leader] = None
            for node in listeners:
                if node != self._me:
                    self._queue(self._kept, node, home, told, event_id)
            self._note((home, event_id), self._me, told)

    def note(self, home: str, node: str, event_id: str, names: Iterable[str]) -> None:
        """A node has the event on its disk, as it turned out."""
        group = self._group_of(home)
        if (home, event_id) in self._open and (group is None or group.counts(node)):
            self._note((home, event_id), node, frozenset(names))

    def _note(self, key: _Key, node: str, names: frozenset[str]) -> None:
        known = self._open[key]
        if node:
            known.on_disk[node] = known.on_disk.get(node, _NOTHING) | names
        group = self._group_of(key[0])
        if group is None or known.nodes(known.copy.names) >= group.copies:
            self._settle(key, group)

    def _settle(self, key: _Key, group: Group | None) -> None:
        """An event is safe."""
        known = self._open.pop(key)
        home, event_id = key
        names = frozenset(known.copy.names)
        self._remember(key, names)
        for token in known.tokens:
            self._one_less(token)
        told = dict.fromkeys(known.askers)
        if group is not None and group.leader == self._me:
            told.update(dict.fromkeys(group.members))
        for node in told:
            self._queue(self._said_safe, node, home, names, event_id)

    def _remember(self, key: _Key, names: frozenset[str]) -> None:
        self._safe[key] = self._safe.pop(key, _NOTHING) | names
        if len(self._safe) > SAFE_MAX:
            del self._safe[next(iter(self._safe))]

    def _one_less(self, token: int) -> None:
        left = self._tokens.get(token)
        if left is None:
            return  # It has failed before.
        if left > 1:
            self._tokens[token] = left - 1
        else:
            del self._tokens[token]
            self._emit(TellOverlay(Persisted(token)))

    # --- what others say -----------------------------------------------------------------------

    def on_kept(self, node: str, message: MirrorKept) -> None:
        """A holder has stored events."""
        home = message.home
        group = self._group_of(home)
        if group is None or not group.counts(node):
            return
        for each in message.kept:
            names = frozenset(each.names)
            for event_id in each.event_ids:
                key = home, event_id
                if key in self._open:
                    self._open[key].asked.pop(node, None)
                    self._note(key, node, names)
                elif names <= self._safe.get(key, _NOTHING):
                    self._queue(self._said_safe, node, home, names, event_id)
                else:
                    early = self._early.setdefault(key, {})
                    early[node] = early.get(node, _NOTHING) | names
        while len(self._early) > EARLY_MAX:
            del self._early[next(iter(self._early))]

    def on_safe(self, message: MirrorSafe) -> None:
        """Events are on enough disks."""
        home = message.home
        group = self._group_of(home)
        for each in message.kept:
            names = frozenset(each.names)
            for event_id in each.event_ids:
                key = home, event_id
                known = self._open.get(key)
                self._early.pop(key, None)
                if known is None:
                    self._remember(key, names)
                elif names.issuperset(known.copy.names):
                    self._settle(key, group)

    def on_keep(self, node: str, message: MirrorKeep, names: tuple[str, ...], now_ms: int) -> None:
        """Somebody sends an event that should be here; `names` are those that are looked after."""
        home, event_id = message.home, message.publication.name
        group = self._group_of(home)
        if group is None and home != self._me:
            return
        if group is None or set(names) <= self._safe.get((home, event_id), _NOTHING):
            # Nothing is owed to those names that have ended.
            self._queue(self._said_safe, node, home, frozenset(message.names), event_id)
        elif group.stores and len(self._open) < OPEN_MAX:
            copy = HeldCopy(message.publication, names, message.hops)
            self._open_for(home, copy, now_ms).askers[node] = None
            self._emit(MirrorWork(RetainEvents(home, (copy,))))

    # --- when the group changes ----------------------------------------------------------------

    def hold_all(self, home: str) -> None:
        """Hold from now on, after having been a witness."""
        copies = tuple([known.copy for key, known in self._open.items() if key[0] == home])
        if copies:
            self._emit(MirrorWork(RetainEvents(home, copies)))

    def hold_none(self, home: str) -> None:
        """Only watch from now on: what was on the disk of this node is not any more."""
        for key, known in self._open.items():
            if key[0] == home:
                known.on_disk.pop(self._me, None)

    def push_all(self, home: str, node: str) -> None:
        """A node holds from now on: it gets what is not safe, some at once, the rest by ticks."""
        slice_ = _Slice()
        for key, known in self._open.items():
            if key[0] == home:
                if slice_.takes(known.copy.publication.size):
                    self._push(home, known, node)
                else:
                    known.pause_ms = 0

    def regroup(self) -> None:
        """Links have changed: a new leader hears what is on the disk of this node."""
        for home in dict.fromkeys(key[0] for key in self._open):
            group = self._group_of(home)
            leader = self._me if group is None else group.leader
            if self._leaders.get(home, home) != leader and leader != self._me:
                for key, known in self._open.items():
                    if key[0] == home and self._me in known.on_disk:
                        had = known.on_disk[self._me]
                        self._queue(self._kept, leader, home, had, key[1])
            self._leaders[home] = leader

    def ended(self, home: str, names: Iterable[str] = ()) -> None:
        """Nobody wants these any more; none means all of a home."""
        gone = set(names)
        for key, known in list(self._open.items()):
            if key[0] != home:
                continue
            left = tuple(name for name in known.copy.names if gone and name not in gone)
            if not left:
                self._settle(key, None)
            elif len(left) < len(known.copy.names):
                known.copy = HeldCopy(known.copy.publication, left, known.copy.hops)
                self._note(key, "", _NOTHING)
        if not gone:
            self._leaders.pop(home, None)

    # --- time ----------------------------------------------------------------------------------

    def on_tick(self, now_ms: int) -> None:
        """Send what should be elsewhere by now; keep no publisher waiting for ever."""
        slice_ = _Slice()
        for key, known in list(self._open.items()):
            if known.tokens and now_ms - known.since_ms >= self._settings.copies_wait_ms:
                self._fail(key[0], known)
            if not known.tokens and now_ms - known.since_ms >= FORGOTTEN_MS:
                del self._open[key]
                continue
            if now_ms - known.pushed_ms < known.pause_ms:
                continue
            group = self._group_of(key[0])
            if group is None:
                self._settle(key, None)
                continue
            if not slice_.takes(known.copy.publication.size):
                continue
            pause_ms = max(2 * known.pause_ms, self._settings.push_ms)
            known.pushed_ms, known.pause_ms = now_ms, min(pause_ms, PUSH_MS_MAX)
            if group.leader == self._me:
                for node in group.holders:
                    if not frozenset(known.copy.names) <= known.on_disk.get(node, _NOTHING):
                        self._push(key[0], known, node)
            else:
                self._ask(key[0], known, group)

    def _ask(self, home: str, known: _Open, group: Group) -> None:
        """Send an event to the leader, which says nothing about it."""
        leader = group.leader
        times = known.asked[leader] = known.asked.get(leader, 0) + 1
        if times > group.asked_max and leader != home:
            self._forget(home, leader)
        else:
            self._push(home, known, leader)

    def _push(self, home: str, known: _Open, node: str) -> None:
        copy = known.copy
        self._send(node, MirrorKeep(home, copy.names, copy.hops, copy.publication))

    def _fail(self, home: str, known: _Open) -> None:
        group = self._group_of(home)
        copies = 1 if group is None else group.copies
        # It travels to the publisher, who is not to learn whose subscriptions there are.
        reason = (
            f"it is on the disks of {known.nodes(known.copy.names)} of {copies} nodes for a "
            "durable subscription, and may have reached some: "
            f"start more nodes, or begin all with --copies {copies - 1 or 1}"
        )
        self._emit(Notice("events have too few copies for durable subscriptions of", home))
        for token in known.tokens:
            if self._tokens.pop(token, None) is not None:
                self._emit(TellOverlay(PersistFailed(token, reason)))
        known.tokens.clear()

    # --- what is said together -----------------------------------------------------------------

    def _queue(
        self,
        queue: dict[tuple[str, str], dict[frozenset[str], list[str]]],
        node: str,
        home: str,
        names: frozenset[str],
        event_id: str,
    ) -> None:
        queue.setdefault((node, home), {}).setdefault(names, []).append(event_id)

    @property
    def has_news(self) -> bool:
        """Whether there is something to say."""
        return bool(self._kept or self._said_safe)

    def flush(self) -> None:
        """Say what has come together."""
        for queue, message in ((self._kept, MirrorKept), (self._said_safe, MirrorSafe)):
            for (node, home), by_names in queue.items():
                for names, event_ids in by_names.items():
                    told = tuple(sorted(names))
                    for start in range(0, len(event_ids), IDS_PER_MESSAGE_MAX):
                        part = tuple(event_ids[start : start + IDS_PER_MESSAGE_MAX])
                        self._send(node, message(home, (KeptFor(told, part),)))
            queue.clear()
