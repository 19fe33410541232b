"""Which events were seen before: single ones by name, those of batches by batch and number.

An event of a batch may also come alone, as `BATCH/NUMBER`: both ways lead to the same entry.
Batches are remembered as a flag per event; all of a batch is forgotten together, when nothing of it
has come for as long as the horizon, or when there are too many flags.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from peersub.overlays.core.batch import BATCH_ROWS_MAX, Batch, split_event_id
from peersub.overlays.core.history import History

if TYPE_CHECKING:
    import numpy as np

__all__ = ["BATCH_FLAGS_MAX", "EventHistory"]

BATCH_FLAGS_MAX: Final = 4 * 1_024 * 1_024
"""Flags of all batches together, a byte each."""


class _Flags:
    """What was seen of one batch."""

    __slots__ = ("at_ms", "flags")

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms
        self.flags = bytearray()


class EventHistory:
    """Events that were seen; at most `size_max` single ones, none for longer than `horizon_ms`.

    >>> history = EventHistory(size_max=100, horizon_ms=1_000)
    >>> history.add("e1", 0), history.add("e1", 1), history.add("b/3", 2), history.add("b/3", 3)
    (True, False, True, False)
    """

    __slots__ = ("_batches", "_flags", "_horizon_ms", "_singles")

    def __init__(self, size_max: int, horizon_ms: int) -> None:
        self._singles: History[str] = History(size_max, horizon_ms)
        self._batches: OrderedDict[str, _Flags] = OrderedDict()
        self._flags = 0
        self._horizon_ms = horizon_ms

    def add(self, event_id: str, now_ms: int) -> bool:
        """Remember an event; whether it was new."""
        place = split_event_id(event_id)
        if place is None:
            return self._singles.add(event_id, now_ms)
        batch, number = place
        flags = self._grown(batch, number + 1, now_ms)
        if flags[number]:
            return False
        flags[number] = 1
        return True

    def add_batch(self, batch: Batch, now_ms: int) -> np.ndarray:
        """Remember the events of a batch; the places in it of those that were new."""
        import numpy as np

        flags = np.frombuffer(self._grown(batch.id, batch.total, now_ms), np.uint8)
        new = np.flatnonzero(flags[batch.numbers] == 0)
        flags[batch.numbers[new]] = 1
        return new

    def discard_batch(self, batch: Batch) -> None:
        """Forget the events of a batch."""
        import numpy as np

        known = self._batches.get(batch.id)
        if known is not None and len(known.flags) >= batch.total:
            np.frombuffer(known.flags, np.uint8)[batch.numbers] = 0

    def __contains__(self, event_id: str) -> bool:
        place = split_event_id(event_id)
        if place is None:
            return event_id in self._singles
        known = self._batches.get(place[0])
        return known is not None and place[1] < len(known.flags) and bool(known.flags[place[1]])

    def forget(self, now_ms: int) -> None:
        """Let go of what is older than the horizon."""
        self._singles.forget(now_ms)
        oldest_ms = now_ms - self._horizon_ms
        batches = self._batches
        while batches and (
            self._flags > BATCH_FLAGS_MAX or next(iter(batches.values())).at_ms < oldest_ms
        ):
            _, known = batches.popitem(last=False)
            self._flags -= len(known.flags)

    def _grown(self, batch: str, size: int, now_ms: int) -> bytearray:
        """The flags of a batch, of which something came now, with room for so many."""
        assert size <= BATCH_ROWS_MAX
        known = self._batches.get(batch)
        if known is None:
            known = self._batches[batch] = _Flags(now_ms)
        else:
            known.at_ms = now_ms
            self._batches.move_to_end(batch)
        missing = size - len(known.flags)
        if missing > 0:
            # A view of the old flags may still be around: they are copied, not resized.
            known.flags = known.flags + bytes(missing)
            self._flags += missing
            self.forget(now_ms)
        return known.flags
