"""What a live node counts: how often something was dropped, refused or lost, by reason."""

from __future__ import annotations

from collections import Counter

__all__ = ["REASONS_MAX", "Counters"]

REASONS_MAX = 256
"""Different reasons that are counted; a further one counts as `OTHER`."""

OTHER = "other reasons"


class Counters:
    """Numbers by reason; the number of reasons is bounded, whatever others send.

    >>> counters = Counters()
    >>> counters.add("said nothing")
    >>> counters.add("said nothing", 2)
    >>> counters.as_dict()
    {'said nothing': 3}
    """

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, reason: str, count: int = 1) -> None:
        """It happened, so often."""
        if reason not in self._counts and len(self._counts) >= REASONS_MAX:
            reason = OTHER
        self._counts[reason] += count

    def __getitem__(self, reason: str) -> int:
        return self._counts[reason]

    def as_dict(self) -> dict[str, int]:
        """All that was counted, by name."""
        return dict(sorted(self._counts.items()))
