"""Which events were seen before: single ones by key, those of batches by batch and number.

An event of a batch may also come alone: its key has its number (`event_keys`), and both ways lead
to the same entry. Events that came in a batch are remembered as a flag each, and those that came
alone by their numbers: a key that only looks like one of a batch costs no more than any other. All
of a batch is forgotten together, when nothing of it has come for as long as the horizon, or when
there is too much.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from peersub.overlays.core.batch import Batch
from peersub.overlays.core.event_keys import BATCH_ROWS_MAX, PREFIX_BYTES, number_of
from peersub.overlays.core.history import History

if TYPE_CHECKING:
    import numpy as np

__all__ = ["BATCH_FLAGS_MAX", "EventHistory"]

BATCH_FLAGS_MAX: Final = 4 * 1_024 * 1_024
"""Flags of all batches together, a byte each."""


class _Seen:
    """What was seen of one batch."""

    __slots__ = ("alone", "at_ms", "flags")

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms
        self.flags = bytearray()
        self.alone: set[int] = set()
        """Numbers beyond the flags."""

    def __contains__(self, number: int) -> bool:
        return bool(self.flags[number]) if number < len(self.flags) else number in self.alone


class EventHistory:
    """Events that were seen, none for longer than `horizon_ms`.

    At most `size_max` single ones, as many events of batches that came alone, and as many batches,
    of `BATCH_FLAGS_MAX` events together.

    >>> history = EventHistory(size_max=100, horizon_ms=1_000)
    >>> from peersub.overlays.core.event_keys import key_of_id
    >>> keys = map(key_of_id, ("e1", "e1", "b/3", "b/3"))
    >>> [history.add(key, 0) for key in keys]
    [True, False, True, False]
    """

    __slots__ = ("_alone", "_batches", "_flags", "_horizon_ms", "_singles", "_size_max")

    def __init__(self, size_max: int, horizon_ms: int) -> None:
        self._singles: History[bytes] = History(size_max, horizon_ms)
        self._batches: OrderedDict[bytes, _Seen] = OrderedDict()
        self._flags = 0
        self._alone = 0
        self._size_max = size_max
        self._horizon_ms = horizon_ms

    def add(self, key: bytes, now_ms: int) -> bool:
        """Remember an event; whether it was new."""
        number = number_of(key)
        if number is None:
            return self._singles.add(key, now_ms)
        seen = self._seen_now(key[:PREFIX_BYTES], now_ms)
        if number in seen:
            return False
        if number < len(seen.flags):
            seen.flags[number] = 1
        else:
            seen.alone.add(number)
            self._alone += 1
            self.forget(now_ms)
        return True

    def add_batch(self, batch: Batch, now_ms: int) -> np.ndarray:
        """Remember the events of a batch; the places in it of those that were new."""
        import numpy as np

        flags = np.frombuffer(self._grown(batch.key[:PREFIX_BYTES], batch.total, now_ms), np.uint8)
        new = np.flatnonzero(flags[batch.numbers] == 0)
        flags[batch.numbers[new]] = 1
        return new

    def __contains__(self, key: bytes) -> bool:
        number = number_of(key)
        if number is None:
            return key in self._singles
        seen = self._batches.get(key[:PREFIX_BYTES])
        return seen is not None and number in seen

    def forget(self, now_ms: int) -> None:
        """Let go of what is older than the horizon, and of what is too much."""
        self._singles.forget(now_ms)
        oldest_ms = now_ms - self._horizon_ms
        batches = self._batches
        while batches and (
            next(iter(batches.values())).at_ms < oldest_ms
            or self._flags > BATCH_FLAGS_MAX
            or max(self._alone, len(batches)) > self._size_max
        ):
            _, seen = batches.popitem(last=False)
            self._flags -= len(seen.flags)
            self._alone -= len(seen.alone)

    def _seen_now(self, batch: bytes, now_ms: int) -> _Seen:
        """What was seen of a batch, of which something comes now."""
        seen = self._batches.get(batch)
        if seen is None:
            seen = self._batches[batch] = _Seen(now_ms)
        else:
            seen.at_ms = now_ms
            self._batches.move_to_end(batch)
        return seen

    def _grown(self, batch: bytes, size: int, now_ms: int) -> bytearray:
        """The flags of a batch, of which something comes now, at least so many."""
        assert size <= BATCH_ROWS_MAX
        seen = self._seen_now(batch, now_ms)
        missing = size - len(seen.flags)
        if missing > 0:
            # A view of the old flags may still be around: they are copied, not resized.
            seen.flags = seen.flags + bytes(missing)
            self._flags += missing
            for number in [number for number in seen.alone if number < size]:
                seen.flags[number] = 1
                seen.alone.remove(number)
                self._alone -= 1
            self.forget(now_ms)
        return seen.flags
