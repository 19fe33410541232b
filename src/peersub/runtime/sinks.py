"""What a node asks of those who consume its subscriptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from peersub.overlays.core.batch import Batch
from peersub.overlays.core.publication import Publication

if TYPE_CHECKING:
    import numpy as np

__all__ = ["DurableOptions", "Sink", "SubscriptionRefusedError"]


class SubscriptionRefusedError(ValueError):
    """The subscription cannot be made: the text says why."""


@dataclass(frozen=True, slots=True)
class DurableOptions:
    """How a durable subscription begins."""

    since: int | str | None = None
    """A position, a time, or "earliest"; None goes on where the consumer stopped."""


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

    def move_proposed(self, node: str) -> None:
        """The subscription would be in better company on this node."""
        ...

    def ended(self, reason: str) -> None:
        """Nothing more comes."""
        ...
