"""Changes: all that can be asked of a store. A submission is a sequence of them, kept as a whole.

The protocol's own records (`KeepRecord`) and what the driver knows beyond them: which subscriptions
are durable, how far their consumers are, what is kept for other nodes, what is staged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from peersub.filters.filter import Filter
from peersub.overlays.core.mirror_facts import HeldBatch
from peersub.overlays.core.publication import Publication
from peersub.overlays.core.records import EventStored, Record
from peersub.overlays.core.store_marks import StoreMark

__all__ = [
    "AbandonStaged",
    "AppendToLog",
    "Change",
    "CommitStaged",
    "CommitsLost",
    "DurableAbandoned",
    "DurableRemoved",
    "DurableStored",
    "KeepRecord",
    "DroppedTold",
    "GapNoted",
    "LossesTold",
    "MirrorRemoved",
    "MirrorStored",
    "MoveCursor",
    "NameNode",
    "ReleaseEvents",
    "RetainBatch",
    "RetainEvent",
    "StagePublications",
    "StagedPublished",
    "bytes_of",
]

_CHANGE_BYTES: Final = 200
"""What a change weighs besides its event, roughly."""


@dataclass(frozen=True, slots=True)
class NameNode:
    """The node is known to others by this name."""

    name: str


@dataclass(frozen=True, slots=True)
class KeepRecord:
    """A record of the protocol.

    EventStored goes into the history, is kept until EventHandedOver, and is logged for those of its
    subscriptions that are durable. SubscriptionStored and SubscriptionRemoved change nothing: which
    subscriptions outlive their consumer, only the driver knows (DurableStored, DurableRemoved).
    """

    record: Record


@dataclass(frozen=True, slots=True)
class AppendToLog:
    """An event for these subscriptions; those that are not durable are passed over.

    The log has each event once for each subscription: what it has already is not appended again.
    """

    publication: Publication
    subscriptions: tuple[str, ...]
    at_ms: int
    hops: int = 0


@dataclass(frozen=True, slots=True)
class MoveCursor:
    """The consumer has taken all up to this position. Back only if said so: it reads again."""

    subscription: str
    position: int
    may_go_back: bool = False


@dataclass(frozen=True, slots=True)
class DurableStored:
    """A durable subscription; one of this name gets the filter, and keeps its cursor and log."""

    name: str
    filter: Filter
    created_ms: int


@dataclass(frozen=True, slots=True)
class DurableAbandoned:
    """A durable subscription has no consumer since then; 0 says that it has one again."""

    name: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class DurableRemoved:
    """A durable subscription has ended, and its part of the log with it."""

    name: str


@dataclass(frozen=True, slots=True)
class GapNoted:
    """Events of a durable subscription were kept by nobody for a while: its consumer is told."""

    subscription: str


@dataclass(frozen=True, slots=True)
class LossesTold:
    """The consumer has heard of so many events and gaps in all that it lost."""

    subscription: str
    trimmed: int
    gaps: int


@dataclass(frozen=True, slots=True)
class CommitsLost:
    """The disk was once as far as this mark, and is not any more: the log begins a new epoch.

    It goes on after all positions of the mark. A mark that the store has reached changes nothing.
    Without a mark others are sure of the loss, and how far the disk was is not known.
    """

    mark: StoreMark | None


@dataclass(frozen=True, slots=True)
class MirrorStored:
    """Look after a durable subscription of another node; `options` are the driver's."""

    home: str
    name: str
    filter: Filter
    options: bytes
    created_ms: int


@dataclass(frozen=True, slots=True)
class MirrorRemoved:
    """No longer look after it, nor retain events for it. None means all of that home."""

    home: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class DroppedTold:
    """The home knows which events were cut off: count anew."""

    home: str


@dataclass(frozen=True, slots=True)
class RetainEvent:
    """Keep an event for these subscriptions of another node until it is released.

    Names that are not mirrored here are passed over; an event is retained once for each.
    """

    home: str
    publication: Publication
    names: tuple[str, ...]
    at_ms: int
    hops: int = 0


@dataclass(frozen=True, slots=True)
class RetainBatch:
    """`RetainEvent` for events of a batch."""

    home: str
    held: HeldBatch
    at_ms: int


@dataclass(frozen=True, slots=True)
class ReleaseEvents:
    """The home has these events now: for these subscriptions, or (None) for all of its own."""

    home: str
    event_ids: tuple[str, ...]
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class StagePublications:
    """Add publications to what waits under the key; an event that waits there already is one.

    Refused with ALREADY_COMMITTED if the key was committed.
    """

    key: str
    publications: tuple[Publication, ...]


@dataclass(frozen=True, slots=True)
class CommitStaged:
    """All that waits under the key is to be published, now or after a restart.

    Refused with ALREADY_COMMITTED if it was said before, with NOTHING_STAGED for an unknown key.
    """

    key: str


@dataclass(frozen=True, slots=True)
class AbandonStaged:
    """Forget what waits under the key. A committed one is past that: ALREADY_COMMITTED."""

    key: str


@dataclass(frozen=True, slots=True)
class StagedPublished:
    """What was committed under the key is published; the key is remembered for a while."""

    key: str


Change: TypeAlias = (
    NameNode
    | KeepRecord
    | AppendToLog
    | MoveCursor
    | DurableStored
    | DurableAbandoned
    | DurableRemoved
    | GapNoted
    | LossesTold
    | CommitsLost
    | MirrorStored
    | MirrorRemoved
    | DroppedTold
    | RetainEvent
    | RetainBatch
    | ReleaseEvents
    | StagePublications
    | CommitStaged
    | AbandonStaged
    | StagedPublished
)


def bytes_of(change: Change) -> int:
    """How much memory the change holds while it waits, roughly: its events."""
    if isinstance(change, KeepRecord):
        record = change.record
        return _weight(record.publication) if isinstance(record, EventStored) else _CHANGE_BYTES
    if isinstance(change, AppendToLog | RetainEvent):
        return _weight(change.publication)
    if isinstance(change, RetainBatch):
        return _CHANGE_BYTES + change.held.batch.size
    if isinstance(change, StagePublications):
        return _CHANGE_BYTES + sum(map(_weight, change.publications))
    return _CHANGE_BYTES


def _weight(publication: Publication) -> int:
    # Whoever takes events from users seals them: the attributes are packed already.
    return _CHANGE_BYTES + len(publication.packed or b"") + len(publication.body or b"")
