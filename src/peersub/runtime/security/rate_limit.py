"""A token bucket: how much somebody may ask of a node now. The time is an argument."""

from __future__ import annotations

from math import ceil

__all__ = ["RateLimit"]


class RateLimit:
    """At most `per_second` in the long run, and at most `burst` at once.

    Law: in any time of t seconds no more than burst + t * per_second are permitted, or one batch in
    place of the burst if it is larger. A clock that goes backwards permits nothing more.

    >>> limit = RateLimit(per_second=10, burst=2)
    >>> [limit.wait_ms(0), limit.wait_ms(0), limit.wait_ms(0), limit.wait_ms(100)]
    [0, 0, 100, 0]
    """

    __slots__ = ("_burst", "_filled_at_ms", "_per_second", "_tokens")

    def __init__(self, per_second: float, burst: float | None = None) -> None:
        """`burst` is by default what may come in a second, and at least one."""
        assert per_second > 0, "a rate is more than zero"
        self._per_second = per_second
        self._burst = max(1.0, per_second if burst is None else burst)
        self._tokens = self._burst
        self._filled_at_ms: int | None = None

    def wait_ms(self, now_ms: int, count: int = 1) -> int:
        """Take so many if they are permitted now, and say 0; else take none, and say when to ask.

        More than the burst at once are permitted when the bucket is full: the bucket then owes.
        """
        if self._filled_at_ms is None or now_ms > self._filled_at_ms:
            passed_ms = 0 if self._filled_at_ms is None else now_ms - self._filled_at_ms
            filled = self._tokens + passed_ms * self._per_second / 1_000
            self._tokens = min(self._burst, filled)
            self._filled_at_ms = now_ms
        needed = min(float(count), self._burst)
        # What is missing by rounding alone is there.
        if self._tokens + 1e-9 >= needed:
            self._tokens -= count
            return 0
        return max(1, ceil((needed - self._tokens) * 1_000 / self._per_second))

    def give_back(self, count: int = 1) -> None:
        """So many of those that were taken do not count after all."""
        self._tokens = min(self._burst, self._tokens + count)
