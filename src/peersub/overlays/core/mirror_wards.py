"""Wards: what a node knows of another, a home, whose durable subscriptions it looks after."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from peersub.filters.filter import Filter
from peersub.overlays.core.mirror_messages import NamedFilter
from peersub.overlays.core.store_marks import LifeMark

__all__ = ["Duty", "Mirrored", "Ward"]

DIAL_TICKS_MAX: Final = 4
"""The longest pause, in ticks, before a home that is out of reach is dialled again."""


@dataclass(frozen=True, slots=True)
class Mirrored:
    """A subscription of another node that is looked after here."""

    home: str
    epoch: str
    """As the home said it: how far its disk was when it had the subscription."""
    name: str
    filter: Filter
    stores: bool = True
    """Whether its events are held here, or only watched."""
    suspended_ms: int | None = None
    """Since when nobody waits for it any more, if its home has not been told that."""


@dataclass(slots=True)
class Duty:
    """What is done for one subscription."""

    mirrored: Mirrored
    is_served: bool = False
    in_overlay: Filter | None = None
    """The filter that the overlay was told."""


@dataclass(slots=True)
class Ward:
    """What is done for one home."""

    stores: bool
    duties: dict[str, Duty] = field(default_factory=dict)
    in_memory: bool = False
    """Whether the home has no disk, so that copies in memory are as good as its own."""
    counts: bool = True
    """Whether the home counts copies: one of an earlier version does not."""
    holders: tuple[str, ...] = ()
    witnesses: tuple[str, ...] = ()
    """The helpers of the home, this node included, as last told."""
    askers: tuple[str, ...] = ()
    """Nodes that nobody has named here, and that asked about events: they may only watch."""
    silent: tuple[str, ...] = ()
    """Nodes that were taken for helpers and said nothing of the events that they were sent."""
    recruiter: str = ""
    """Who is to hear what is ready: the home, or who stands in for it."""
    is_reserve: bool = False
    """Whether the subscriptions are only known here, as long as others look after them."""
    lingers_ms: int | None = None
    """Until when a reserve goes on watching, since others have begun to only now."""
    is_let_go: bool = False
    """Whether nothing is to be done any more after that."""
    alone_ms: int | None = None
    """Since when none of those can be reached."""
    unwatched_ms: int | None = None
    """Since when perhaps nobody watched, until publishers have been asked to replay."""
    is_unsure: bool = False
    """Whether this node has started since, and does not know whether anybody watched before."""
    away_ms: int | None = None
    back_ms: int | None = None
    """Since when the home is back, until it has surely noted what it was told."""
    unseen_ms: int | None = None
    """Since when a reserve has no link to the home."""
    suspended_ms: int | None = None
    """Since when nobody waits for the subscriptions any more; on disk, until the home was told."""
    told_ms: int | None = None
    """Since when they are served again: the home is told, or another has seen it since."""
    dial_ms: int = 0
    pause_ms: int = 0
    mark: str = ""
    """How far the disk of the home is, as it last said."""

    @property
    def is_suspended(self) -> bool:
        """Whether nobody waits for the subscriptions."""
        return self.suspended_ms is not None and self.told_ms is None

    @property
    def asking(self) -> tuple[str, ...]:
        """Who wants to hear what is safe, besides the helpers that are known."""
        known = (*self.holders, *self.witnesses)
        return tuple([node for node in self.askers if node not in known])

    def by_life(self) -> list[tuple[str, list[NamedFilter]]]:
        """The subscriptions, by the life of the home that told of them, and its last mark."""
        marks: dict[tuple[str, int], LifeMark] = {}
        named: dict[tuple[str, int], list[NamedFilter]] = {}
        for name, duty in self.duties.items():
            mark = LifeMark.read(duty.mirrored.epoch)
            key = mark.epoch, mark.life
            marks[key] = max(mark, marks.get(key, mark))
            named.setdefault(key, []).append(NamedFilter(name, duty.mirrored.filter))
        return [(str(marks[key]), named[key]) for key in named]

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time to dial the home."""
        return now_ms >= self.dial_ms

    def put_off(self, now_ms: int, tick_ms: int) -> None:
        """Dial ever more rarely."""
        self.pause_ms = min(2 * self.pause_ms or tick_ms, DIAL_TICKS_MAX * tick_ms)
        self.dial_ms = now_ms + self.pause_ms
