"""What a mirror peer is told by its own node: news of subscriptions, and answers of the disk.

All of them are the content of one cause, `MirrorNews`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from peersub.filters.filter import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.event_keys import unit_of, unit_of_batch
from peersub.overlays.core.publication import Publication
from peersub.overlays.core.row_sets import NamedSets, numbers_in

__all__ = [
    "DroppedRead",
    "DurableEnded",
    "DurableKept",
    "DurableServed",
    "DurableTaken",
    "EventsRetained",
    "Held",
    "HeldBatch",
    "HeldCopy",
    "HeldRead",
    "HoldsChecked",
    "LookedAfter",
    "MirrorFact",
    "OverlayDelivered",
    "OverlayServes",
    "SecureAsked",
    "StoreMarked",
]


@dataclass(frozen=True, slots=True)
class DurableKept:
    """There is a durable subscription here, or it has another filter now.

    `restored` says that it was there before the node started: somebody may look after it already.
    """

    name: str
    filter: Filter
    restored: bool = False


@dataclass(frozen=True, slots=True)
class DurableEnded:
    """A durable subscription of this node has ended."""

    name: str


@dataclass(frozen=True, slots=True)
class DurableServed:
    """The overlay keeps its promise for a durable subscription of this node."""

    name: str


@dataclass(frozen=True, slots=True)
class DurableTaken:
    """The consumer of a durable subscription of this node has taken these events."""

    name: str
    event_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LookedAfter:
    """It is on disk that this node looks after these subscriptions of a home."""

    home: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DroppedRead:
    """Events for these of a home were cut off here since then."""

    home: str
    names: tuple[str, ...]
    since_ms: int


@dataclass(frozen=True, slots=True)
class OverlayServes:
    """The overlay keeps its promise for a subscription that the mirror peer has in it."""

    subscription: str


@dataclass(frozen=True, slots=True)
class HeldCopy:
    """An event on disk that is held for subscriptions."""

    publication: Publication
    names: tuple[str, ...]
    hops: int

    @property
    def place(self) -> tuple[str, NamedSets]:
        """The event as one of a batch, if it is of one: which batch, and which rows by name."""
        unit, number = unit_of(self.publication.name)
        return unit, dict.fromkeys(self.names, 1 << number)

    def renamed(self, names: Mapping[str, str]) -> HeldCopy:
        """The same for these of the subscriptions, under other names."""
        return HeldCopy(
            self.publication, tuple([names[n] for n in self.names if n in names]), self.hops
        )

    def within(self, wanted: NamedSets) -> HeldCopy | None:
        """What of it somebody wants."""
        rows = self.place[1]
        names = tuple([name for name in self.names if rows[name] & wanted.get(name, 0)])
        return HeldCopy(self.publication, names, self.hops) if names else None

    def one_by_one(self) -> Iterator[HeldCopy]:
        """The event."""
        yield self


@dataclass(frozen=True, slots=True)
class HeldBatch:
    """Events of a batch, or of a part of it, that are held for subscriptions."""

    batch: Batch
    wanted: tuple[tuple[str, int], ...]
    """Per subscription, the rows (`row_sets`)."""
    hops: int

    @property
    def names(self) -> tuple[str, ...]:
        """The subscriptions."""
        return tuple([name for name, _ in self.wanted])

    @property
    def place(self) -> tuple[str, NamedSets]:
        """Which batch, and which rows by name."""
        return unit_of_batch(self.batch.name), dict(self.wanted)

    def renamed(self, names: Mapping[str, str]) -> HeldBatch:
        """The same for these of the subscriptions, under other names."""
        wanted = tuple([(names[name], rows) for name, rows in self.wanted if name in names])
        return HeldBatch(self.batch, wanted, self.hops)

    def within(self, wanted: NamedSets) -> HeldBatch | None:
        """What of it somebody wants."""
        left = [(name, rows & wanted.get(name, 0)) for name, rows in self.wanted]
        some = tuple([each for each in left if each[1]])
        return HeldBatch(self.batch, some, self.hops) if some else None

    @property
    def part(self) -> Batch:
        """Those of the events that a subscription wants."""
        import numpy as np

        rows = 0
        for _, its in self.wanted:
            rows |= its
        return self.batch.part(np.flatnonzero(np.isin(self.batch.numbers, numbers_in(rows))))

    def one_by_one(self) -> Iterator[HeldCopy]:
        """The events, each with the subscriptions that want it."""
        names_of: dict[int, list[str]] = {}
        for name, rows in self.wanted:
            for number in numbers_in(rows):
                names_of.setdefault(number, []).append(name)
        part = self.part
        for number, publication in zip(part.numbers.tolist(), part.publications(), strict=True):
            yield HeldCopy(publication, tuple(names_of[number]), self.hops)


Held: TypeAlias = HeldCopy | HeldBatch


@dataclass(frozen=True, slots=True)
class OverlayDelivered:
    """Events without a promise, for subscriptions that the mirror peer has in the overlay."""

    event: Held


@dataclass(frozen=True, slots=True)
class SecureAsked:
    """The overlay waits until these events are on the disks of enough nodes: `effects.Secure`."""

    token: int
    events: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class EventsRetained:
    """Events are on the disk of this node, for subscriptions of a home."""

    home: str
    events: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class HeldRead:
    """The next events after a number, of those held for a home; `name` as in `MirrorHolds`."""

    partner: str
    home: str
    name: str
    after: int
    number: int
    """Of the last of them."""
    events: tuple[HeldCopy, ...]


@dataclass(frozen=True, slots=True)
class HoldsChecked:
    """What this node misses of the events that a partner holds, and which its consumers have."""

    partner: str
    home: str
    name: str
    number: int
    missing: tuple[str, ...]
    taken: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Per subscription of this node, the events that its consumer has taken."""


@dataclass(frozen=True, slots=True)
class StoreMarked:
    """How far the disk of this node is."""

    epoch: str
    commits: int


MirrorFact: TypeAlias = (
    DurableKept
    | DurableEnded
    | DurableServed
    | DurableTaken
    | LookedAfter
    | DroppedRead
    | OverlayServes
    | OverlayDelivered
    | SecureAsked
    | EventsRetained
    | HeldRead
    | HoldsChecked
    | StoreMarked
)
