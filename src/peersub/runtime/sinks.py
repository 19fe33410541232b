"""What a node asks of those who consume its subscriptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from peersub.filters.filter import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.publication import Publication

if TYPE_CHECKING:
    import numpy as np

__all__ = ["DurableOptions", "DurableRules", "OpenDurables", "Sink", "SubscriptionRefusedError"]


class SubscriptionRefusedError(ValueError):
    """The subscription cannot be made: the text says why."""


@dataclass(frozen=True, slots=True)
class DurableOptions:
    """How a durable subscription begins."""

    since: int | str | None = None
    """A position, a time, or "earliest"; None goes on where the consumer stopped."""
    was_elsewhere: bool = False
    """Whether the consumer was with another node, which may have had the same events."""


class DurableRules(Protocol):
    """What the owners of durable subscriptions may see, now; asked by the subscription's name."""

    def narrow_durable(self, name: str, asked: Filter) -> Filter:
        """The filter that was asked for, narrowed to what the owner may see: perhaps nothing."""
        ...

    def durable_bound(self, name: str) -> Filter | None:
        """What the owner may see at all; None if that is everything."""
        ...

    def durable_max(self, name: str) -> int | None:
        """Durable subscriptions that the owner may have; None if nobody counts."""
        ...

    def abandoned_ms_max(self, name: str) -> int | None:
        """How long it lasts without a consumer; None for ever."""
        ...


class OpenDurables:
    """Everybody may see everything, for ever."""

    def narrow_durable(self, name: str, asked: Filter) -> Filter:
        """As it is."""
        return asked

    def durable_bound(self, name: str) -> Filter | None:
        """There is none."""
        return None

    def durable_max(self, name: str) -> int | None:
        """There is none."""
        return None

    def abandoned_ms_max(self, name: str) -> int | None:
        """There is none."""
        return None


class Sink(Protocol):
    """A consumer of one subscription. It is called on the loop's thread, and must not block."""

    def deliver(self, publication: Publication, hops: int, position: int | None) -> None:
        """An event; `position` is its place in the log if the subscription is durable."""
        ...

    def deliver_batch(self, batch: Batch, rows: np.ndarray, hops: int) -> None:
        """The events at these places of a batch; never for a durable subscription."""
        ...

    def ready(self) -> None:
        """The overlay keeps its promise for the subscription."""
        ...

    def lost(self, count: int, through: int, gaps: int) -> None:
        """A durable subscription lost so many events before they were read, the last one at this
        position; and so many times more events than anybody knows.
        """
        ...

    def move_proposed(self, node: str) -> None:
        """The subscription would be in better company on this node."""
        ...

    def ended(self, reason: str) -> None:
        """Nothing more comes."""
        ...
