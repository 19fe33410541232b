"""How a node treats mirrors: its own, and those that it is for others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["MirrorSettings"]

_DAY_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """Copies of what durable subscriptions want, and times of those who keep them."""

    copies: int = 2
    """Nodes on whose disks an event is for each durable subscription before it is acknowledged."""
    witnesses: int = 1
    """Nodes that watch besides, and hold as soon as others do not."""
    reserves: int = 2
    """Nodes that only know the subscriptions, and watch as soon as no other does."""
    tick_ms: int = 1_000
    """How often to look after what is due, and to try to reach a partner that is not linked."""
    lost_ms: int = 500
    """How long a mirror may be in doubt or out of reach before another is asked."""
    push_ms: int = 1_000
    """After this long an event that is not safe is sent to those who should have it."""
    copies_wait_ms: int = 30_000
    """The most that an acknowledgement waits for copies; then the publication has failed."""
    away_max_ms: int = _DAY_MS
    """After this long without its home a subscription is suspended: publishers wait no more."""
    linger_ms: int = 300_000
    """How long who is needed no more goes on watching: as long as a publisher repeats an event,
    which may reach nobody else, since it was published before the others watched."""
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

    def __post_init__(self) -> None:
        if self.copies < 1:
            raise ValueError(f"copies is at least 1, not {self.copies}")
        if self.away_max_ms < 1:
            raise ValueError("away_max is more than no time")
