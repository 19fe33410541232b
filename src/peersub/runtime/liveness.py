"""Is the other side alive? A failure detector whose time-out follows the link.

Both ends of a connection say something at least every `heartbeat_ms`. The gaps between arrivals are
averaged, and so is how far they stray (as TCP does for its retransmissions); a silence of the mean
plus `DEVIATIONS` times that is a suspicion. The bounds keep a quiet, regular link from being too
nervous, and a wild one from never giving up.

Long before that a silence is a doubt: it ends nothing, but lets others stand in meanwhile. So a
doubt may be wrong often, and a suspicion, which costs a living node its place, need not be quick.

A process that was itself not run for a while must not suspect everyone: whoever checks tells how
late it is, and that much is forgiven (`forgive`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["DEVIATIONS", "FOR_CLIENTS", "Liveness", "LivenessSettings"]

DEVIATIONS = 6.0
DOUBT_DEVIATIONS = 3.0
_MEAN_WEIGHT = 1 / 8
_DEVIATION_WEIGHT = 1 / 4


@dataclass(frozen=True, slots=True)
class LivenessSettings:
    """How often to say something, and how long a silence may last."""

    heartbeat_ms: int = 100
    """How long a node stays silent on a connection at most."""
    doubt_ms_min: int = 250
    """A shorter silence is not even a doubt."""
    doubt_ms_max: int = 750
    """A longer one always is."""
    silence_ms_min: int = 750
    """A shorter silence is never a suspicion."""
    silence_ms_max: int = 3_000
    """A longer one always is."""

    def __post_init__(self) -> None:
        if self.heartbeat_ms < 1:
            raise ValueError("heartbeat_ms is at least 1")
        if not self.heartbeat_ms <= self.doubt_ms_min <= self.doubt_ms_max:
            raise ValueError("doubt_ms_min is from heartbeat_ms to doubt_ms_max")
        if self.silence_ms_min < 2 * self.heartbeat_ms:
            raise ValueError("silence_ms_min is at least twice heartbeat_ms")
        if self.silence_ms_max < self.silence_ms_min:
            raise ValueError("silence_ms_max is at least silence_ms_min")


FOR_CLIENTS: Final = LivenessSettings(
    heartbeat_ms=1_000,
    doubt_ms_min=5_000,
    doubt_ms_max=5_000,
    silence_ms_min=5_000,
    silence_ms_max=15_000,
)
"""Between a client and its node, both ways. Programs that are not written for a network hold up
their event loop for seconds at times, and no other node waits for them."""


class Liveness:
    """What is known about the arrivals on one connection.

    >>> liveness = Liveness(LivenessSettings(), now_ms=0)
    >>> for at_ms in range(100, 2_000, 100): liveness.heard(at_ms)
    >>> liveness.is_in_doubt(2_000), liveness.is_in_doubt(2_200)
    (False, True)
    >>> liveness.is_suspect(2_200), liveness.is_suspect(2_800)
    (False, True)
    """

    __slots__ = ("_deviation_ms", "_last_ms", "_mean_ms", "_settings")

    def __init__(self, settings: LivenessSettings, now_ms: float) -> None:
        self._settings = settings
        self._last_ms = now_ms
        self._mean_ms = float(settings.heartbeat_ms)
        self._deviation_ms = settings.heartbeat_ms / 2

    def heard(self, now_ms: float) -> None:
        """Something arrived. Of a burst, only the gap before it counts."""
        gap = now_ms - self._last_ms
        if gap * 4 < self._settings.heartbeat_ms:
            return
        self._last_ms = now_ms
        stray = gap - self._mean_ms
        self._mean_ms += stray * _MEAN_WEIGHT
        self._deviation_ms += (abs(stray) - self._deviation_ms) * _DEVIATION_WEIGHT

    def forgive(self, late_ms: float) -> None:
        """The one who checks was away for so long: what came meanwhile was not seen."""
        self._last_ms += late_ms

    @property
    def doubt_ms(self) -> float:
        """How long a silence is a doubt, now."""
        settings = self._settings
        usual = self._mean_ms + DOUBT_DEVIATIONS * self._deviation_ms
        return min(max(usual, settings.doubt_ms_min), settings.doubt_ms_max)

    @property
    def silence_ms(self) -> float:
        """How long a silence is a suspicion, now."""
        settings = self._settings
        # The clock of the last arrival lags by up to a quarter of a heartbeat within a burst.
        patience = self._mean_ms + DEVIATIONS * self._deviation_ms
        return min(max(patience, settings.silence_ms_min), settings.silence_ms_max)

    def is_in_doubt(self, now_ms: float) -> bool:
        """Whether the silence is longer than usual."""
        return now_ms - self._last_ms >= self.doubt_ms

    def is_suspect(self, now_ms: float) -> bool:
        """Whether the silence has lasted too long."""
        return now_ms - self._last_ms >= self.silence_ms

    def is_silent(self, now_ms: float) -> bool:
        """Whether it has lasted longer than any may."""
        return now_ms - self._last_ms >= self._settings.silence_ms_max
