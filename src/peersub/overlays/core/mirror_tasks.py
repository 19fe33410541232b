"""What a mirror peer asks of its driver: the disk, and the durable subscriptions of the node.

All of them are the content of one effect, `MirrorWork`. Where an answer follows, it is a
`MirrorNews`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from peersub.overlays.core.mirror_facts import Held
from peersub.overlays.core.mirror_messages import MirrorCopy, MirrorHolds, NamedFilter

__all__ = [
    "CheckHeld",
    "ForgetDropped",
    "LetGo",
    "LookAfter",
    "MirrorTask",
    "NameLoss",
    "NoteGap",
    "ReadDropped",
    "ReadHeld",
    "ReadMark",
    "RecreateDurables",
    "ReleaseRetained",
    "RetainEvents",
    "SayReady",
]


@dataclass(frozen=True, slots=True)
class SayReady:
    """A durable subscription of this node is served, and looked after where that is possible."""

    name: str


@dataclass(frozen=True, slots=True)
class RecreateDurables:
    """A former life of this node had these; `DurableKept` follows for each."""

    subscriptions: tuple[NamedFilter, ...]


@dataclass(frozen=True, slots=True)
class NoteGap:
    """Nobody kept events for these from that time on: tell their consumers."""

    names: tuple[str, ...]
    since_ms: int


@dataclass(frozen=True, slots=True)
class NameLoss:
    """The disk of this node lost transactions: tell people and consumers, and begin an epoch.

    `StoreMarked` follows, with the new epoch.
    """


@dataclass(frozen=True, slots=True)
class ReadMark:
    """See how far the disk is; `StoreMarked` follows."""


@dataclass(frozen=True, slots=True)
class LookAfter:
    """Keep on disk that this node looks after these of a home; `LookedAfter` follows."""

    home: str
    epoch: str
    subscriptions: tuple[NamedFilter, ...]
    stores: bool
    suspended_ms: int | None = None
    """Since when nobody waits for them, if that is to be told to the home."""


@dataclass(frozen=True, slots=True)
class LetGo:
    """Forget these of a home, and what is retained for them."""

    home: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadDropped:
    """See for which of a home events were cut off, for want of room; `DroppedRead` follows."""

    home: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class ForgetDropped:
    """The home was told of those, or has them itself: count anew."""

    home: str


@dataclass(frozen=True, slots=True)
class RetainEvents:
    """Store events for subscriptions of a home, which may be this node; `EventsRetained` follows.

    Storing one that is there already changes nothing.
    """

    home: str
    events: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class ReleaseRetained:
    """The consumer of a subscription of a home has these events."""

    home: str
    name: str
    event_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadHeld:
    """Read the next events that are held for a home: `HeldRead` follows, with the same names.

    With a name: those of a durable subscription of this node that its consumer has not taken.
    """

    partner: str
    home: str
    name: str
    after: int


@dataclass(frozen=True, slots=True)
class CheckHeld:
    """Store the copies, then see what of the held events is missing; `HoldsChecked` follows."""

    partner: str
    holds: MirrorHolds
    copies: tuple[MirrorCopy, ...]


MirrorTask: TypeAlias = (
    SayReady
    | RecreateDurables
    | NoteGap
    | NameLoss
    | ReadMark
    | LookAfter
    | LetGo
    | ReadDropped
    | ForgetDropped
    | RetainEvents
    | ReleaseRetained
    | ReadHeld
    | CheckHeld
)
