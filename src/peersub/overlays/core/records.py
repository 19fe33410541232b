"""Records: what a node keeps on disk, appended one by one and read back when it starts again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from peersub.filters.filter import Filter
from peersub.overlays.core.publication import Publication

__all__ = [
    "EventHandedOver",
    "EventSeen",
    "EventStored",
    "IdentityStored",
    "Record",
    "SubscriptionRemoved",
    "SubscriptionStored",
]


@dataclass(frozen=True, slots=True)
class IdentityStored:
    """The place of the node in its overlay, kept over restarts; its meaning is the overlay's."""

    identity: bytes


@dataclass(frozen=True, slots=True)
class SubscriptionStored:
    """A subscription of this node."""

    subscription: str
    filter: Filter


@dataclass(frozen=True, slots=True)
class SubscriptionRemoved:
    """A subscription of this node has ended."""

    subscription: str


@dataclass(frozen=True, slots=True)
class EventStored:
    """An event under an acknowledged promise has come home, for these subscriptions.

    It is part of the deduplication history from now on; `at_ms` tells when it may be forgotten.
    """

    publication: Publication
    subscriptions: tuple[str, ...]
    at_ms: int
    hops: int = 0


@dataclass(frozen=True, slots=True)
class EventHandedOver:
    """The stored event was handed to its subscriptions."""

    event_id: str


@dataclass(frozen=True, slots=True)
class EventSeen:
    """An event came home at that time, and was handed over: all that a store still knows of it."""

    event_id: str
    at_ms: int


Record: TypeAlias = (
    IdentityStored
    | SubscriptionStored
    | SubscriptionRemoved
    | EventStored
    | EventHandedOver
    | EventSeen
)
