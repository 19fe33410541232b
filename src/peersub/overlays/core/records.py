"""Records: what a node keeps on disk, appended one by one and read back when it starts again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from peersub.filters.filter import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.publication import Publication

__all__ = [
    "BatchHandedOver",
    "BatchStored",
    "DurableSubscriptionStored",
    "EventHandedOver",
    "EventSeen",
    "EventStored",
    "IdentityStored",
    "NeighboursStored",
    "Record",
    "SubscriptionRemoved",
    "SubscriptionStored",
]


@dataclass(frozen=True, slots=True)
class IdentityStored:
    """The place of the node in its overlay, kept over restarts; its meaning is the overlay's."""

    identity: bytes


@dataclass(frozen=True, slots=True)
class NeighboursStored:
    """Whom the node is linked with now: nodes to turn to when it starts again."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscriptionStored:
    """A subscription of this node."""

    subscription: str
    filter: Filter


@dataclass(frozen=True, slots=True)
class DurableSubscriptionStored:
    """A subscription of this node whose acknowledged events are on the disks of several nodes."""

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
    """The stored event of this name was handed to its subscriptions."""

    event_id: str


@dataclass(frozen=True, slots=True)
class BatchStored:
    """Events under an acknowledged promise have come home together.

    Of `EventStored` for each event; `wanted` has, per subscription, the numbers of its events.
    """

    batch: Batch
    wanted: tuple[tuple[str, tuple[int, ...]], ...]
    at_ms: int
    hops: int = 0


@dataclass(frozen=True, slots=True)
class BatchHandedOver:
    """The stored events of a batch with these numbers were handed to their subscriptions."""

    batch_id: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EventSeen:
    """An event came home at that time, and was handed over: all that a store still knows of it.

    `event_id` is its key as a name (`event_keys`); nodes of earlier versions kept the id.
    """

    event_id: str
    at_ms: int


Record: TypeAlias = (
    IdentityStored
    | NeighboursStored
    | SubscriptionStored
    | DurableSubscriptionStored
    | SubscriptionRemoved
    | EventStored
    | EventHandedOver
    | EventSeen
    | BatchStored
    | BatchHandedOver
)
