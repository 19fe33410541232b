"""How a node treats mirrors: its own, and those that it is for others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["MirrorSettings"]

_DAY_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """Times of mirrors."""

    tick_ms: int = 1_000
    """How often to look after what is due, and to try to reach a partner that is not linked."""
    lost_ms: int = 10_000
    """How long a mirror may be out of reach before another is chosen."""
    grace_ms: int = 3_000
    """How long a node that has come back waits for its former mirror before it chooses one."""
    ready_ms: int = 10_000
    """The most that a durable subscription waits for its mirror before it is ready without."""
    answer_ms: int = 30_000
    """How long to wait for an answer before a question is asked again."""
    recheck_ms: int = 600_000
    """How often a mirror asks about all that it retains, also what was asked about before."""
    horizon_ms: int = 7 * _DAY_MS
    """How long a mirror looks after subscriptions of a home that nobody sees any more."""
