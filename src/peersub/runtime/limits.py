"""What a node grants to its clients, each of them and all together; `peersub node --limit` sets it.

Where a file of permissions names a limit of one client, that one holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["DEFAULT_LIMITS", "ServingLimits"]

_MEGABYTE: Final = 1_024 * 1_024


@dataclass(frozen=True, slots=True)
class ServingLimits:
    """Limits of what clients take of a node. A client is an identity, over all its connections."""

    subscriptions_max: int = 200_000
    """Of the node, those that are not durable."""
    durable_max: int = 10_000
    """Of the node, those that nobody consumes included; not those of its own program."""
    filter_units_max: int = 32_768
    """Units of the filters of all clients (`filters.price`), plain ones left out: what they may
    cost each event that the node sees."""
    queued_bytes_max: int = 512 * _MEGABYTE
    """Of the events that wait for all clients."""
    publishing_bytes_max: int = 256 * _MEGABYTE
    """Of the publications of all clients that have not ended."""

    client_subscriptions_max: int = 100_000
    client_filter_units_max: int = 16_384
    """Units of the filters of one client, plain ones left out."""
    client_bytes_max: int = 64 * _MEGABYTE
    """Of the events that wait for one client, and likewise of its publications."""


DEFAULT_LIMITS: Final = ServingLimits()
