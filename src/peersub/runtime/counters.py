"""What a live node counts: how often something was dropped, refused or lost, by reason.

The log says so as well (`logs`): a node that counts something has met with something unusual.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from peersub.runtime.logs import NodeLog

__all__ = ["REASONS_MAX", "Counters"]

REASONS_MAX = 256
"""Different reasons that are counted; a further one counts as `OTHER`."""

OTHER = "other reasons"

_GRAVE: Final = (
    "the disk refused",
    "the disk lost",
    "events that the log had no room for",
    "an event dropped because a link's queue is full",
    "a silent link that was given up",
    "most links were silent at once",
)
"""How reasons begin that somebody should look into."""

_log = NodeLog(__name__)


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
        say = _log.warning if reason.startswith(_GRAVE) else _log.info
        say("counted: %s", reason, thing=reason)

    def __getitem__(self, reason: str) -> int:
        return self._counts[reason]

    def as_dict(self) -> dict[str, int]:
        """All that was counted, by name."""
        return dict(sorted(self._counts.items()))
