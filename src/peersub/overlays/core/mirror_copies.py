"""Copies: when is an event on the disks of enough nodes, for each durable subscription it matches?

Each home has a *group*: itself, its mirrors and its witnesses (`mirrors`). All of them get its
events as subscribers of the overlay, and none confirms one to the publisher before it is *safe*: on
the disks of `MirrorSettings.copies` nodes. They find that out in a star:

    holder ── MirrorKept(ids): on my disk ──►  leader  ── MirrorSafe(ids): on enough disks ──► all

The leader is the home, or while it is out of reach the first of the group that is not. What is said
after one disk commit is one message. An event that is not safe for `push_ms` is sent to whoever
should have it (`MirrorKeep`): a member to its leader, the leader to the holders. So nobody depends
on the way that the event takes in the overlay, and a message that is lost costs time only.

Events of a batch stay together: what is known of them is a set of rows for each subscription
(`row_sets`), and so is what is said (`MirrorRowsKept`, `MirrorRowsSafe`, `MirrorKeepBatch`). An
event that is alone is a batch of one row. Nodes of earlier versions hear of each event by its name.

What was safe is remembered for a while (`SAFE_BYTES_MAX`): who asks late is answered. Forgetting
costs a repetition, and no promise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from peersub.overlays.core.causes import Persisted, PersistFailed
from peersub.overlays.core.effects import Effect, MirrorWork, Notice, TellOverlay
from peersub.overlays.core.event_keys import unit_of
from peersub.overlays.core.messages import Message
from peersub.overlays.core.mirror_facts import EventsRetained, Held, HeldBatch
from peersub.overlays.core.mirror_links import MirrorLinks
from peersub.overlays.core.mirror_messages import (
    KeptFor,
    KeptRows,
    MirrorKeep,
    MirrorKeepBatch,
    MirrorKept,
    MirrorRowsKept,
    MirrorRowsSafe,
    MirrorSafe,
    NamedRows,
)
from peersub.overlays.core.mirror_rows import (
    RememberedRows,
    add_ids,
    add_to,
    only,
    packed_rows,
    said_rows,
    sets_of,
    union,
    without,
)
from peersub.overlays.core.mirror_settings import MirrorSettings
from peersub.overlays.core.mirror_tasks import RetainEvents
from peersub.overlays.core.row_sets import NamedSets, pack_rows, rows_on
from peersub.overlays.core.versions import BATCH_COPIES_FEATURE, BATCHES_FEATURE

__all__ = ["Copies", "Group"]

OPEN_MAX: Final = 100_000
"""Events that are not safe yet; more are refused."""
SAFE_BYTES_MAX: Final = 16 * 1_024 * 1_024
"""Of what is known to be safe."""
EARLY_BYTES_MAX: Final = 16 * 1_024 * 1_024
"""Of what others have said to hold, and that did not come here yet."""
ASKED_MAX: Final = 3
"""How often a leader or a holder is sent an event that it says nothing about before it is none."""
PUSH_MS_MAX: Final = 4_000
"""The longest pause before an event that is not safe is sent again: answers are light, and a bad
link may lose several before the publisher's time is up."""
PUSHED_AT_ONCE: Final = 512
"""Messages with events that are sent again at a tick, or to a node that holds from now on."""
PUSHED_BYTES_MAX: Final = 4 * 1_024 * 1_024
"""Of these events; what is larger goes alone."""
IDS_PER_MESSAGE_MAX: Final = 4_096
ROWS_PER_MESSAGE_MAX: Final = 64
"""Sets of rows that are said in one message: each takes up to 2 KB."""
FORGOTTEN_MS: Final = 600_000
"""After this long nobody looks after an event that no publisher waits for any more."""

_Key = tuple[str, str]
"""A home, and the unit of an event (`event_keys`)."""


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
    """How often one is asked that says nothing."""
    former: frozenset[str] = frozenset()
    """Nodes that may forget what they hold at any time."""

    def counts(self, node: str) -> bool:
        """Whether what a node has on its disk is a copy."""
        return node not in self.former


@dataclass(slots=True)
class _Open:
    """Events of a batch, or one that is alone, that are not known to be safe."""

    since_ms: int
    """Since when somebody waits."""
    pushed_ms: int
    pause_ms: int
    """How long to wait before they are sent again; the pause doubles each time."""
    held: list[Held] = field(default_factory=list)
    wanted: NamedSets = field(default_factory=dict)
    """By subscription, the rows that are not safe for it."""
    count: int = 0
    """How many rows that are."""
    tokens: dict[int, int] = field(default_factory=dict)
    """The rows that each token of the overlay waits for."""
    on_disk: dict[str, NamedSets] = field(default_factory=dict)
    """By node, what it has."""
    askers: dict[str, int] = field(default_factory=dict)
    """Nodes that sent rows here, and wait for an answer."""
    asked: dict[str, int] = field(default_factory=dict)
    """How often they were sent to a leader or a holder, which has not answered."""

    @property
    def rows(self) -> int:
        """All that is not safe."""
        return union(self.wanted.values())

    def missing_at(self, node: str) -> NamedSets:
        """What a node is not known to have."""
        return without(self.wanted, self.on_disk.get(node, {}))

    def nodes(self) -> int:
        """How many nodes have what fewest have."""
        disks = self.on_disk.values()
        count = 0
        while count < len(disks) and all(
            not rows & ~rows_on(count + 1, sets_of(name, disks))
            for name, rows in self.wanted.items()
        ):
            count += 1
        return count


@dataclass(slots=True)
class _Slice:
    """What may be sent in one turn."""

    messages: int = 0
    bytes: int = 0

    def takes(self, size: int) -> bool:
        """Whether there is room for a message of so many bytes, which goes then."""
        is_full = self.messages >= PUSHED_AT_ONCE or self.bytes + size > PUSHED_BYTES_MAX
        if is_full and self.messages:
            return False
        self.messages += 1
        self.bytes += size
        return True


class Copies:
    """What this node knows of the copies of events that are not safe.

    Args:
        me: the name of this node.
        group_of: the group of a home; None if this node does not belong to it.
        forget: takes a home and a node that was asked again and again: it is none of the group.
        send: takes messages for nodes that can be reached.
        links: to these nodes.
    """

    def __init__(
        self,
        me: str,
        settings: MirrorSettings,
        group_of: Callable[[str], Group | None],
        forget: Callable[[str, str], None],
        send: Callable[[str, Message], None],
        emit: Callable[[Effect], None],
        links: MirrorLinks,
    ) -> None:
        self._forget = forget
        self._me = me
        self._settings = settings
        self._group_of = group_of
        self._send = send
        self._emit = emit
        self._links = links
        self._open: dict[_Key, _Open] = {}
        self._open_rows = 0
        self._tokens: dict[int, int] = {}
        """Per token of the overlay, how many batches it waits for."""
        self._safe = RememberedRows(SAFE_BYTES_MAX)
        self._early = RememberedRows(EARLY_BYTES_MAX)
        self._leaders: dict[str, str] = {}
        self._kept: dict[tuple[str, str], dict[str, NamedSets]] = {}
        """What is to be said next, by receiver and home."""
        self._said_safe: dict[tuple[str, str], dict[str, NamedSets]] = {}

    def __len__(self) -> int:
        return self._open_rows

    # --- what the overlay asks -----------------------------------------------------------------

    def secure(self, token: int, events: Sequence[tuple[str, Held]], now_ms: int) -> None:
        """Let the overlay know when all of these are safe, each for names of a home."""
        waiting: dict[_Key, NamedSets] = {}
        retain: dict[str, list[Held]] = {}
        for home, held in events:
            group = self._group_of(home)
            if group is None:
                continue
            if home != self._me and group.stores:
                retain.setdefault(home, []).append(held)
            unit, rows = held.place
            key = home, unit
            wanted = without(rows, self._safe.get(key))
            if not wanted:
                continue
            if self._open_rows >= OPEN_MAX:
                self._emit(TellOverlay(PersistFailed(token, "too many events wait for copies")))
                return
            known = self._open_for(key, held, wanted, now_ms)
            if not known.tokens:
                known.since_ms = now_ms
            known.tokens[token] = known.tokens.get(token, 0) | union(wanted.values())
            add_to(waiting.setdefault(key, {}), wanted)
        for home, copies in retain.items():
            self._emit(MirrorWork(RetainEvents(home, tuple(copies))))
        if not waiting:
            self._emit(TellOverlay(Persisted(token)))
            return
        self._tokens[token] = len(waiting)
        for key, wanted in waiting.items():
            # What the home has in its log was on disk before the overlay asked.
            self._note(key, self._me if key[0] == self._me else "", wanted)

    def _open_for(self, key: _Key, held: Held, wanted: NamedSets, now_ms: int) -> _Open:
        known = self._open.get(key)
        if known is None:
            known = self._open[key] = _Open(now_ms, now_ms, self._settings.push_ms)
            known.on_disk = self._early.pop(key)
        if without(wanted, known.wanted):
            known.held.append(held)
            add_to(known.wanted, wanted)
            self._count(known, known.rows)
        return known

    def _count(self, known: _Open, rows: int) -> None:
        """So much of it is open from now on."""
        count = rows.bit_count()
        self._open_rows += count - known.count
        known.count = count

    # --- what disks have -----------------------------------------------------------------------

    def retained(self, fact: EventsRetained) -> None:
        """Events are on the disk of this node."""
        home = fact.home
        group = self._group_of(home)
        for held in fact.events:
            unit, had = held.place
            known = self._open.get((home, unit))
            if known is None:
                continue
            listeners = dict(known.askers)
            if group is not None:
                listeners[group.leader] = -1
            for node, rows in listeners.items():
                if node != self._me:
                    self._queue(self._kept, node, home, unit, only(had, rows))
            self._note((home, unit), self._me, had)

    def note(self, home: str, node: str, event_id: str, names: Iterable[str]) -> None:
        """A node has the event on its disk, as it turned out."""
        unit, number = unit_of(event_id)
        group = self._group_of(home)
        if (home, unit) in self._open and (group is None or group.counts(node)):
            self._note((home, unit), node, dict.fromkeys(names, 1 << number))

    def _note(self, key: _Key, node: str, had: NamedSets) -> None:
        known = self._open[key]
        group = self._group_of(key[0])
        if node:
            add_to(known.on_disk.setdefault(node, {}), had)
        elif group is not None and not known.on_disk:
            return
        if group is None:
            self._settle(key, None)
            return
        disks = known.on_disk.values()
        safe = {
            name: rows & rows_on(group.copies, sets_of(name, disks))
            for name, rows in known.wanted.items()
        }
        self._close(key, safe, group)

    def _settle(self, key: _Key, group: Group | None) -> None:
        """All of it is safe."""
        self._close(key, dict(self._open[key].wanted), group)

    def _close(self, key: _Key, safe: NamedSets, group: Group | None) -> None:
        """These rows of what was open are safe."""
        known = self._open[key]
        safe = {name: rows for name, rows in safe.items() if rows}
        if not safe:
            return
        known.wanted = without(known.wanted, safe)
        left = known.rows
        self._count(known, left)
        self._safe.add(key, safe)
        home, unit = key
        for token in [each for each, rows in known.tokens.items() if not rows & left]:
            del known.tokens[token]
            self._one_less(token)
        told = dict(known.askers)
        if group is not None and group.leader == self._me:
            told.update(dict.fromkeys(group.members, -1))
        for node, rows in told.items():
            self._queue(self._said_safe, node, home, unit, only(safe, rows))
        known.askers = {node: rows & left for node, rows in known.askers.items() if rows & left}
        if not left:
            del self._open[key]
            for node, had in known.on_disk.items():
                early = without(had, self._safe.get(key))
                if early:
                    self._early.add(key, early, node)

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

    def on_kept(self, node: str, message: MirrorKept | MirrorRowsKept) -> None:
        """A holder has stored events."""
        home = message.home
        group = self._group_of(home)
        if group is None or not group.counts(node):
            return
        for unit, had in said_rows(message):
            key = home, unit
            safe = self._safe.get(key)
            answered = {name: rows & safe.get(name, 0) for name, rows in had.items()}
            self._queue(self._said_safe, node, home, unit, answered)
            new = without(had, safe)
            if not new:
                continue
            if key in self._open:
                self._open[key].asked.pop(node, None)
                self._note(key, node, new)
            else:
                self._early.add(key, new, node)

    def on_safe(self, message: MirrorSafe | MirrorRowsSafe) -> None:
        """Events are on enough disks."""
        home = message.home
        group = self._group_of(home)
        for unit, had in said_rows(message):
            key = home, unit
            known = self._open.get(key)
            self._safe.add(key, had)
            if known is None:
                self._early.pop(key)
            else:
                safe = {name: rows & had.get(name, 0) for name, rows in known.wanted.items()}
                self._close(key, safe, group)

    def on_keep(self, node: str, home: str, held: Held, names: Iterable[str], now_ms: int) -> None:
        """Somebody sends events that should be here; `names` are those that are looked after."""
        unit, rows = held.place
        key = home, unit
        group = self._group_of(home)
        wanted = without({name: rows[name] for name in names}, self._safe.get(key))
        if group is None or not wanted:
            # Nothing is owed to those names that have ended, nor to a home that is suspended: who
            # still watches for it has not heard of that.
            self._queue(self._said_safe, node, home, unit, rows)
        elif group.stores and self._open_rows < OPEN_MAX:
            missing = held.within(wanted)
            assert missing is not None
            known = self._open_for(key, missing, wanted, now_ms)
            known.askers[node] = known.askers.get(node, 0) | union(wanted.values())
            self._emit(MirrorWork(RetainEvents(home, (missing,))))

    # --- when the group changes ----------------------------------------------------------------

    def hold_all(self, home: str) -> None:
        """Hold from now on, after having been a witness."""
        copies = [
            part
            for key, known in self._open.items()
            if key[0] == home
            for held in known.held
            if (part := held.within(known.wanted)) is not None
        ]
        if copies:
            self._emit(MirrorWork(RetainEvents(home, tuple(copies))))

    def hold_none(self, home: str) -> None:
        """Only watch from now on: what was on the disk of this node is not any more."""
        for key, known in self._open.items():
            if key[0] == home:
                known.on_disk.pop(self._me, None)

    def push_all(self, home: str, node: str) -> None:
        """A node holds from now on: it gets what is not safe, some at once, the rest by ticks."""
        slice_ = _Slice()
        for key, known in self._open.items():
            if key[0] == home and not self._push(home, known, node, known.wanted, slice_):
                known.pause_ms = 0

    def linked_anew(self, node: str) -> None:
        """A node may be in another life, without its disk: it says anew what is there."""
        self._early.forget(node)
        for known in self._open.values():
            known.on_disk.pop(node, None)

    def regroup(self) -> None:
        """Links have changed: a new leader hears what is on the disk of this node."""
        for home in dict.fromkeys(key[0] for key in self._open):
            group = self._group_of(home)
            leader = self._me if group is None else group.leader
            if self._leaders.get(home, home) != leader and leader != self._me:
                for key, known in self._open.items():
                    if key[0] == home and self._me in known.on_disk:
                        self._queue(self._kept, leader, home, key[1], known.on_disk[self._me])
            self._leaders[home] = leader

    def ended(self, home: str, names: Iterable[str] = ()) -> None:
        """Nobody wants these any more; none means all of a home."""
        gone = set(names)
        for key, known in list(self._open.items()):
            if key[0] == home:
                ended = {n: rows for n, rows in known.wanted.items() if not gone or n in gone}
                self._close(key, ended, None)
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
                self._count(known, 0)
                del self._open[key]
                continue
            if now_ms - known.pushed_ms < known.pause_ms:
                continue
            group = self._group_of(key[0])
            if group is None:
                self._settle(key, None)
            elif self._push_due(key[0], known, group, slice_):
                pause_ms = max(2 * known.pause_ms, self._settings.push_ms)
                known.pushed_ms, known.pause_ms = now_ms, min(pause_ms, PUSH_MS_MAX)

    def _push_due(self, home: str, known: _Open, group: Group, slice_: _Slice) -> bool:
        """Send events to those who should have them; whether there was room for it."""
        if group.leader == self._me:
            has_room = True
            for node in group.holders:
                what = known.missing_at(node)
                has_room = self._push_to(home, known, node, what, group, slice_) and has_room
            return has_room
        if _is_silent(home, known, group.leader, group):
            self._forget(home, group.leader)
            known.pause_ms = 0  # The next one is asked at the next tick.
            return False
        return self._push_to(home, known, group.leader, known.wanted, group, slice_)

    def _push_to(
        self,
        home: str,
        known: _Open,
        node: str,
        what: NamedSets,
        group: Group,
        slice_: _Slice,
    ) -> bool:
        """Send a leader or a holder some events; who never says anything about them is none."""
        if not what:
            return True
        if _is_silent(home, known, node, group):
            self._forget(home, node)
        elif not self._push(home, known, node, what, slice_):
            return False
        else:
            known.asked[node] = known.asked.get(node, 0) + 1
        return True

    def _push(self, home: str, known: _Open, node: str, what: NamedSets, slice_: _Slice) -> bool:
        """Send a node some of the events; whether there was room for all of it."""
        for held in known.held:
            part = held.within(what)
            if part is None:
                continue
            if isinstance(part, HeldBatch) and self._takes_batches(node):
                if not slice_.takes(part.batch.size):
                    return False
                rows = tuple([NamedRows(name, pack_rows(its)) for name, its in part.wanted])
                self._send(node, MirrorKeepBatch(home, rows, part.hops, part.part))
                continue
            for copy in part.one_by_one():
                if not slice_.takes(copy.publication.size):
                    return False
                self._send(node, MirrorKeep(home, copy.names, copy.hops, copy.publication))
        return True

    def _takes_batches(self, node: str) -> bool:
        offers = self._links.offers
        return offers(node, BATCHES_FEATURE) and offers(node, BATCH_COPIES_FEATURE)

    def _fail(self, home: str, known: _Open) -> None:
        group = self._group_of(home)
        copies = 1 if group is None else group.copies
        # It travels to the publisher, who is not to learn whose subscriptions there are.
        reason = (
            f"it is on the disks of {known.nodes()} of {copies} nodes for a "
            "durable subscription, and may have reached some: "
            f"start more nodes with --data, or begin all with --copies {copies - 1 or 1}"
        )
        self._emit(Notice("events have too few copies for durable subscriptions of", home))
        for token in known.tokens:
            if self._tokens.pop(token, None) is not None:
                self._emit(TellOverlay(PersistFailed(token, reason)))
        known.tokens.clear()

    # --- what is said together -----------------------------------------------------------------

    def _queue(
        self,
        queue: dict[tuple[str, str], dict[str, NamedSets]],
        node: str,
        home: str,
        unit: str,
        sets: NamedSets,
    ) -> None:
        some = {name: rows for name, rows in sets.items() if rows}
        if some:
            add_to(queue.setdefault((node, home), {}).setdefault(unit, {}), some)

    @property
    def has_news(self) -> bool:
        """Whether there is something to say."""
        return bool(self._kept or self._said_safe)

    def flush(self) -> None:
        """Say what has come together."""
        for queue, by_ids, by_rows in (
            (self._kept, MirrorKept, MirrorRowsKept),
            (self._said_safe, MirrorSafe, MirrorRowsSafe),
        ):
            for (node, home), units in queue.items():
                rows: list[KeptRows] = []
                ids: dict[tuple[str, ...], list[str]] = {}
                takes_rows = self._links.offers(node, BATCH_COPIES_FEATURE)
                for unit, sets in units.items():
                    if takes_rows and union(sets.values()).bit_count() > 1:
                        rows += packed_rows(unit, sets)
                    else:
                        add_ids(ids, unit, sets)
                for start in range(0, len(rows), ROWS_PER_MESSAGE_MAX):
                    part = rows[start : start + ROWS_PER_MESSAGE_MAX]
                    self._send(node, by_rows(home, tuple(part)))
                for names, event_ids in ids.items():
                    for start in range(0, len(event_ids), IDS_PER_MESSAGE_MAX):
                        some = tuple(event_ids[start : start + IDS_PER_MESSAGE_MAX])
                        self._send(node, by_ids(home, (KeptFor(names, some),)))
            queue.clear()


def _is_silent(home: str, known: _Open, node: str, group: Group) -> bool:
    """Whether a node was asked often enough about events, and has said nothing of them."""
    return known.asked.get(node, 0) >= group.asked_max and node != home
