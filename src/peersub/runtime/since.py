"""Where a durable subscription begins, as users say it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from peersub.runtime.store import LogTime, Since

__all__ = ["POSITION_MAX", "parse_since"]

POSITION_MAX: Final = 2**63 - 1
"""The last position that a log could ever have."""


def parse_since(since: int | str | None) -> Since:
    """Where to begin, as users say it: a position, a time (ISO 8601), "earliest".

    >>> parse_since("17"), parse_since("earliest"), parse_since("2026-01-01T00:00:00Z")
    (17, 'earliest', LogTime(at_ms=1767225600000))

    Raises:
        ValueError: it is none of these.
    """
    if isinstance(since, str) and since.isascii() and since.isdigit():
        # Python would refuse to read more digits than any position has, with words of its own.
        since = int(since) if len(since) <= len(str(POSITION_MAX)) else POSITION_MAX + 1
    if isinstance(since, int) and not 0 <= since <= POSITION_MAX:
        raise ValueError(f"a position is between 0 and {POSITION_MAX:,}")
    if since is None or isinstance(since, int):
        return since
    if since == "earliest":
        return "earliest"
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        raise ValueError(
            f"{since!r} is neither a position, nor a time such as 2026-01-31T12:00:00Z, "
            'nor "earliest"'
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return LogTime(int(moment.timestamp() * 1_000))
