"""What a mirror peer is told by its own node: news of subscriptions, and answers of the disk.

All of them are the content of one cause, `MirrorNews`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from peersub.filters.filter import Filter
from peersub.overlays.core.publication import Publication

__all__ = [
    "DurableEnded",
    "DurableKept",
    "DurableServed",
    "DurableTaken",
    "EventsRetained",
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
class OverlayServes:
    """The overlay keeps its promise for a subscription that the mirror peer has in it."""

    subscription: str


@dataclass(frozen=True, slots=True)
class HeldCopy:
    """An event on disk that is held for subscriptions."""

    publication: Publication
    names: tuple[str, ...]
    hops: int


@dataclass(frozen=True, slots=True)
class OverlayDelivered:
    """An event without a promise, for subscriptions that the mirror peer has in the overlay."""

    event: HeldCopy


@dataclass(frozen=True, slots=True)
class SecureAsked:
    """The overlay waits until these events are on the disks of enough nodes: `effects.Secure`."""

    token: int
    events: tuple[HeldCopy, ...]


@dataclass(frozen=True, slots=True)
class EventsRetained:
    """Events are on the disk of this node, for subscriptions of a home."""

    home: str
    kept: tuple[tuple[tuple[str, ...], str], ...]
    """The names, and the identifier, of each."""


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
    | OverlayServes
    | OverlayDelivered
    | SecureAsked
    | EventsRetained
    | HeldRead
    | HoldsChecked
    | StoreMarked
)
