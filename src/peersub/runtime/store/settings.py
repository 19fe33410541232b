"""The bounds of a node's store: nothing in it grows without end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["StoreSettings"]

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_MEGABYTE: Final = 1_024 * 1_024


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What a store keeps at most, and for how long. Where a bound cuts, the oldest goes first."""

    backlog_changes_max: int = 100_000
    """Changes that wait for the disk; a submission that finds no room fails at once."""
    backlog_bytes_max: int = 64 * _MEGABYTE
    """Of the events in them."""
    group_changes_max: int = 8_192
    """Changes in one transaction, unless one submission has more."""

    history_events_max: int = 131_072
    """Events whose repetition is noticed after a restart, of those that publishers may not repeat
    any more."""
    history_retry_ms: int = 600_000
    """For how long publishers may repeat them: none is forgotten before. A home bounds how many."""
    history_horizon_ms: int = _HOUR_MS
    """How long; longer than a home does, and than a publisher repeats an event."""
    kept_events_max: int = 1_000_000
    """Events that came home and are not handed over yet; no more are taken then."""

    log_bytes_max: int = 1_024 * _MEGABYTE
    """Of events of durable subscriptions; whoever has most of them unread loses the oldest."""
    log_bytes_per_client_max: int = 256 * _MEGABYTE
    """Of events that one client has not read, over its durable subscriptions (without certificates:
    one subscription); beyond, it loses the oldest of its own."""
    log_age_ms_max: int = 30 * _DAY_MS

    mirror_subscriptions_max: int = 100_000
    """Durable subscriptions of other nodes that this one looks after; no more are taken then."""
    mirror_bytes_max: int = 1_024 * _MEGABYTE
    """Of events that are retained for other nodes."""
    mirror_bytes_per_client_max: int = 256 * _MEGABYTE
    """Of these, for one client of one node; as much as its own node keeps for it."""

    staged_bytes_max: int = 1_024 * _MEGABYTE
    """Of publications that are staged and not yet published; no more are taken then."""
    staged_age_ms_max: int = 7 * _DAY_MS
    """After so long, what was staged and never committed is abandoned."""
    keys_max: int = 100_000
    """Keys of published stages that are remembered, so that a repetition is noticed."""
    keys_horizon_ms: int = 7 * _DAY_MS

    fsync: bool = True
    """Whether what is acknowledged is on the disk itself. Without, it is with the operating system:
    a killed process loses nothing, a machine without power loses the last seconds."""
    file_bytes_max: int | None = None
    """Of the database; None leaves it to the disk. What does not fit fails as on a full disk."""
    busy_ms_max: int = 5_000
    """How long to wait for another program that looks into the file."""
