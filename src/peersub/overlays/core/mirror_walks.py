"""Walks: two nodes compare what they hold for durable subscriptions, and copy what one lacks.

Whoever holds events goes through them in chunks: it names what it holds (`MirrorHolds`), the other
side says what of that it misses (`MirrorMisses`), gets those (`MirrorCopy`) and is asked again,
until it misses nothing: then it has stored them, and the next chunk may come. So an event crosses
the link only if it is needed, a chunk is all that is under way, and it does not matter how often a
walk begins anew.

A mirror walks through all that it retains for a home, and waits at the end for more. A home walks
once through what the consumer of a subscription has not taken, when a mirror is new; who stands in
for a home through what it retains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from peersub.overlays.core.effects import Drop, Effect, MirrorWork
from peersub.overlays.core.messages import Message
from peersub.overlays.core.mirror_facts import HeldCopy, HeldRead
from peersub.overlays.core.mirror_messages import (
    HeldEvent,
    MirrorCopy,
    MirrorHolds,
    MirrorMisses,
)
from peersub.overlays.core.mirror_tasks import ReadHeld

__all__ = ["WALKS_AT_ONCE", "WalkKey", "Walks"]

WALKS_AT_ONCE: Final = 8
"""Walks with one partner that are under way; the others wait for their turn."""
ATTEMPTS_MAX: Final = 5
"""How often a chunk is asked about before those that the other side cannot store are left out."""


class WalkKey(NamedTuple):
    """With whom, for whose subscriptions, and through which of them: empty for all."""

    partner: str
    home: str
    name: str


class _State(Enum):
    QUEUED = "queued"
    READING = "reading"
    ASKING = "asking"
    AT_END = "at the end"


@dataclass(slots=True)
class _Walk:
    stays: bool
    """Whether it waits at the end for more."""
    state: _State = _State.QUEUED
    after: int = 0
    chunk: HeldRead | None = None
    attempts: int = 0
    since_ms: int = 0
    """When the state began."""
    begun_ms: int = 0
    told_end: int | None = None
    """The end that the other side was told of."""


@dataclass(slots=True)
class _Turns:
    """Walks with one partner that do not stay."""

    queued: dict[WalkKey, None] = field(default_factory=dict)
    active: dict[WalkKey, None] = field(default_factory=dict)


@dataclass(slots=True)
class Walks:
    """All walks of one node.

    `send` takes messages for a node that there is a link to. `found(partner, home, event)` hears
    what is on the disk of the other side.
    """

    send: Callable[[str, Message], None]
    emit: Callable[[Effect], None]
    found: Callable[[str, str, HeldCopy], None]
    answer_ms: int
    recheck_ms: int
    _walks: dict[WalkKey, _Walk] = field(default_factory=dict)
    _turns: dict[str, _Turns] = field(default_factory=dict)

    def __contains__(self, key: WalkKey) -> bool:
        return key in self._walks

    def is_busy(self, partner: str) -> bool:
        """Whether walks with a partner that do not stay are under way."""
        turns = self._turns.get(partner)
        return turns is not None and bool(turns.queued or turns.active)

    def begin(self, key: WalkKey, now_ms: int, *, stays: bool) -> None:
        """Go through all, from the first. One that stays takes nobody's turn."""
        walk = self._walks[key] = _Walk(stays, begun_ms=now_ms)
        if stays:
            self._read_on(key, walk, now_ms)
        else:
            turns = self._turns.setdefault(key.partner, _Turns())
            turns.active.pop(key, None)
            turns.queued[key] = None
            self._next_turn(key.partner, now_ms)

    def end(self, partner: str, home: str | None = None) -> None:
        """No more walks with a partner: all, or those of a home."""
        for key in list(self._walks):
            if key.partner == partner and home in (None, key.home):
                del self._walks[key]
                if partner in self._turns:
                    self._turns[partner].queued.pop(key, None)
                    self._turns[partner].active.pop(key, None)
        if home is None:
            self._turns.pop(partner, None)

    def end_home(self, home: str) -> None:
        """No more walks for the subscriptions of a home."""
        for partner in {key.partner: None for key in self._walks if key.home == home}:
            self.end(partner, home)

    # --- one step after the other --------------------------------------------------------------

    def _next_turn(self, partner: str, now_ms: int) -> None:
        """Begin those that wait, as far as there is room."""
        turns = self._turns[partner]
        while turns.queued and len(turns.active) < WALKS_AT_ONCE:
            key = next(iter(turns.queued))
            del turns.queued[key]
            turns.active[key] = None
            self._read_on(key, self._walks[key], now_ms)

    def _read_on(self, key: WalkKey, walk: _Walk, now_ms: int) -> None:
        walk.state, walk.since_ms, walk.chunk = _State.READING, now_ms, None
        self.emit(MirrorWork(ReadHeld(*key, walk.after)))

    def on_read(self, fact: HeldRead, now_ms: int) -> None:
        """The disk has answered."""
        key = WalkKey(fact.partner, fact.home, fact.name)
        walk = self._walks.get(key)
        if walk is None or walk.state is not _State.READING or fact.after != walk.after:
            return
        if fact.events:
            walk.chunk, walk.attempts = fact, 0
            self._ask(key, walk, now_ms)
            return
        if walk.told_end != walk.after:
            walk.told_end = walk.after
            self.send(key.partner, MirrorHolds(key.home, key.name, walk.after, ()))
        if walk.stays:
            walk.state, walk.since_ms = _State.AT_END, now_ms
        else:
            del self._walks[key]
            del self._turns[key.partner].active[key]
            self._next_turn(key.partner, now_ms)

    def _ask(self, key: WalkKey, walk: _Walk, now_ms: int) -> None:
        chunk = walk.chunk
        assert chunk is not None
        walk.state, walk.since_ms = _State.ASKING, now_ms
        walk.attempts += 1
        held = tuple([HeldEvent(each.publication.name, each.names) for each in chunk.events])
        self.send(key.partner, MirrorHolds(key.home, key.name, chunk.number, held))

    def on_misses(self, partner: str, message: MirrorMisses, now_ms: int) -> None:
        """The other side has looked."""
        key = WalkKey(partner, message.home, message.name)
        walk = self._walks.get(key)
        chunk = None if walk is None else walk.chunk
        if walk is None or chunk is None or chunk.number != message.number:
            return
        missing = frozenset(message.event_ids)
        wanted = [each for each in chunk.events if each.publication.name in missing]
        for each in chunk.events:
            if each.publication.name not in missing:
                self.found(partner, key.home, each)
        if wanted and walk.attempts < ATTEMPTS_MAX:
            for each in wanted:
                copy = MirrorCopy(key.home, each.names, each.hops, each.publication)
                self.send(partner, copy)
            self._ask(key, walk, now_ms)
            return
        for _ in wanted:
            self.emit(Drop("a mirrored event that the other side does not store"))
        walk.after = chunk.number
        self._read_on(key, walk, now_ms)

    def on_tick(self, now_ms: int) -> None:
        """See whether there is more, and ask again where an answer is overdue."""
        for key, walk in list(self._walks.items()):
            if walk.state is _State.AT_END:
                if now_ms - walk.begun_ms >= self.recheck_ms:
                    walk.after, walk.begun_ms, walk.told_end = 0, now_ms, None
                self._read_on(key, walk, now_ms)
            elif walk.state is not _State.QUEUED and now_ms - walk.since_ms >= self.answer_ms:
                self._read_on(key, walk, now_ms)
        for partner in self._turns:
            self._next_turn(partner, now_ms)  # Those before may have ended with their home.
