"""Which events were seen before, in a stated number of bytes.

Single events are remembered by half of their keys, in one of 16,384 buckets: ten bytes each. Those
of a batch are a flag each, of one byte. An event of a batch may also come alone: its key has its
number (`event_keys`), and both ways lead to the same entry. All of a batch is forgotten together,
when nothing of it has come for as long as the horizon; single events are forgotten in slices of a
sixteenth of the horizon.

A history that is full forgets the oldest, unless its owner asks before it adds (`has_room`). Then
what is young is never forgotten, and room is shared out among *sources* (publishers, or links): one
that has taken more than twice what is still free gets no more. So the first source can take two
thirds, whoever comes later finds room, and a source that floods waits for its own events to age.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

from peersub.overlays.core.batch import Batch
from peersub.overlays.core.event_keys import BATCH_ROWS_MAX, PREFIX_BYTES, number_of

if TYPE_CHECKING:
    import numpy as np

__all__ = ["BATCH_BYTES", "EVENT_BYTES", "EventHistory", "bytes_of"]

EVENT_BYTES: Final = 10
"""What a single event takes: eight bytes of its key, and two for the slice of time."""
BATCH_BYTES: Final = 128
"""What a batch takes besides a byte for each of its events."""
SHARE_OF_FREE: Final = 2
"""What a source may hold, as a multiple of what is free."""
SLICES: Final = 16
_BUCKET_MASK: Final = 0x3FFF
"""By Python's own hash, which differs from process to process: nobody can fill one bucket."""
_NO_NUMBER: Final = BATCH_ROWS_MAX >> 8
"""From here on the byte after the prefix is of an event of no batch (`event_keys.number_of`)."""
_SLICE_MASK: Final = 0xFFFF


def bytes_of(batch: Batch) -> int:
    """What a history needs to remember the events of a batch."""
    return BATCH_BYTES + batch.total


class _Seen:
    """What was seen of one batch."""

    __slots__ = ("alone", "at_ms", "flags", "source")

    def __init__(self, at_ms: int, source: str) -> None:
        self.at_ms = at_ms
        self.source = source
        self.flags = bytearray()
        self.alone: set[int] = set()
        """Numbers beyond the flags."""

    def __contains__(self, number: int) -> bool:
        return bool(self.flags[number]) if number < len(self.flags) else number in self.alone

    @property
    def size(self) -> int:
        """In bytes."""
        return BATCH_BYTES + len(self.flags) + EVENT_BYTES * len(self.alone)


class _Slice:
    """Single events that came one after the other, and are forgotten together."""

    __slots__ = ("last_ms", "mark", "size", "size_of", "until_ms")

    def __init__(self, begin_ms: int, until_ms: int, mark: bytes) -> None:
        self.last_ms = begin_ms
        self.until_ms = until_ms
        self.mark = mark
        """The number of the slice, as entries have it."""
        self.size = 0
        self.size_of: dict[str, int] = {}
        """In bytes, by source, if it has a name."""


class EventHistory:
    """Events that were seen, each for `horizon_ms` or a sixteenth of it longer.

    >>> from peersub.overlays.core.event_keys import key_of_id
    >>> history = EventHistory(bytes_max=1_000, horizon_ms=1_000)
    >>> [history.add(key_of_id(name), 0) for name in ("e1", "e1", "b/3", "b/3")]
    [True, False, True, False]
    """

    __slots__ = (
        *("_batches", "_buckets", "_bytes_max", "_first", "_horizon_ms", "_slice_bytes"),
        *("_slices", "_used", "_used_by"),
    )

    def __init__(self, bytes_max: int, horizon_ms: int) -> None:
        self._bytes_max = bytes_max
        self._horizon_ms = horizon_ms
        self._slice_bytes = bytes_max // SLICES
        self._buckets: dict[int, bytearray] = {}
        self._slices: deque[_Slice] = deque()
        self._first = 0
        """The number of the oldest slice."""
        self._batches: OrderedDict[bytes, _Seen] = OrderedDict()
        self._used = 0
        self._used_by: dict[str, int] = {}

    # --- room ----------------------------------------------------------------------------------

    @property
    def used(self) -> int:
        """Bytes that are taken."""
        return self._used

    def has_room(self, size: int, source: str, now_ms: int) -> bool:
        """Whether a source may add so many bytes, and nothing young is forgotten for it."""
        if self._fits(size, source):
            return True
        self.forget(now_ms)
        return self._fits(size, source)

    def _fits(self, size: int, source: str) -> bool:
        free = self._bytes_max - self._used - size
        return free >= 0 and self._used_by.get(source, 0) <= SHARE_OF_FREE * free

    def _take(self, size: int, source: str) -> None:
        self._used += size
        if source:
            self._used_by[source] = self._used_by.get(source, 0) + size

    def _give_back(self, size: int, source: str) -> None:
        if source:
            left = self._used_by[source] - size
            if left:
                self._used_by[source] = left
            else:
                del self._used_by[source]

    # --- adding and asking ---------------------------------------------------------------------

    def add(self, key: bytes, now_ms: int, source: str = "") -> bool:
        """Remember an event that came from a source; whether it was new."""
        if key[PREFIX_BYTES] >= _NO_NUMBER:
            return self._add_single(key, now_ms, source)
        number = number_of(key) or 0
        seen = self._seen_now(key[:PREFIX_BYTES], now_ms, source)
        if number in seen:
            return False
        if number < len(seen.flags):
            seen.flags[number] = 1
        else:
            seen.alone.add(number)
            self._take(EVENT_BYTES, seen.source)
            self._make_room(seen)
        return True

    def _add_single(self, key: bytes, now_ms: int, source: str) -> bool:
        at, tag = hash(key) & _BUCKET_MASK, key[:8]
        bucket = self._buckets.get(at)
        if bucket is not None and self._has(bucket, tag):
            return False
        current = self._slices[-1] if self._slices else None
        if current is None or now_ms > current.until_ms or current.size >= self._slice_bytes:
            current = self._begin_slice(now_ms)
            bucket = self._buckets.get(at)
        elif now_ms > current.last_ms:
            current.last_ms = now_ms
        if bucket is None:
            bucket = self._buckets[at] = bytearray()
        bucket += tag
        bucket += current.mark
        current.size += EVENT_BYTES
        self._used += EVENT_BYTES
        if source:
            current.size_of[source] = current.size_of.get(source, 0) + EVENT_BYTES
            self._used_by[source] = self._used_by.get(source, 0) + EVENT_BYTES
        if self._used > self._bytes_max:
            self._make_room(current)
        return True

    def add_batch(self, batch: Batch, now_ms: int, source: str = "") -> np.ndarray:
        """Remember the events of a batch; the places in it of those that were new."""
        import numpy as np

        prefix = batch.key[:PREFIX_BYTES]
        flags = np.frombuffer(self._grown(prefix, batch.total, now_ms, source), np.uint8)
        new = np.flatnonzero(flags[batch.numbers] == 0)
        flags[batch.numbers[new]] = 1
        return new

    def __contains__(self, key: bytes) -> bool:
        if key[PREFIX_BYTES] >= _NO_NUMBER:
            bucket = self._buckets.get(hash(key) & _BUCKET_MASK)
            return bucket is not None and self._has(bucket, key[:8])
        seen = self._batches.get(key[:PREFIX_BYTES])
        return seen is not None and (number_of(key) or 0) in seen

    def knows(self, batch: Batch) -> bool:
        """Whether something of the batch was seen: then its other events need no more room."""
        seen = self._batches.get(batch.key[:PREFIX_BYTES])
        return seen is not None and len(seen.flags) >= batch.total

    def discard(self, key: bytes) -> None:
        """An event was not taken after all: it is new when it comes again. Its room stays taken."""
        if key[PREFIX_BYTES] >= _NO_NUMBER:
            bucket = self._buckets.get(hash(key) & _BUCKET_MASK)
            at = -1 if bucket is None else self._find(bucket, key[:8])
            if bucket is not None and at >= 0:
                bucket[at : at + 8] = bytes(8)
            return
        seen, number = self._batches.get(key[:PREFIX_BYTES]), number_of(key) or 0
        if seen is not None and number < len(seen.flags):
            seen.flags[number] = 0
        elif seen is not None and number in seen.alone:
            seen.alone.remove(number)
            self._used -= EVENT_BYTES
            self._give_back(EVENT_BYTES, seen.source)

    def _has(self, bucket: bytearray, tag: bytes) -> bool:
        """Whether a bucket holds the tag in a slice that is not forgotten."""
        first, count = self._first, len(self._slices)
        while bucket and ((bucket[8] << 8 | bucket[9]) - first) & _SLICE_MASK >= count:
            del bucket[:EVENT_BYTES]  # Those that came first stand first.
        return self._find(bucket, tag) >= 0

    def _find(self, bucket: bytearray, tag: bytes) -> int:
        """Where the entry with a tag begins; less than 0 if there is none."""
        at = bucket.find(tag)
        while at > 0 and at % EVENT_BYTES:
            at = bucket.find(tag, at + 1)
        return at

    # --- forgetting ----------------------------------------------------------------------------

    def forget(self, now_ms: int) -> None:
        """Let go of what is older than the horizon."""
        oldest_ms = now_ms - self._horizon_ms
        while self._slices and self._slices[0].last_ms < oldest_ms:
            self._drop_slice()
        while self._batches and next(iter(self._batches.values())).at_ms < oldest_ms:
            self._drop_batch()

    def _make_room(self, newest: _Seen | _Slice) -> None:
        """Let go of the oldest if there is too much; what was added last stays."""
        while self._used > self._bytes_max:
            batch = next(iter(self._batches.values()), None)
            singles = self._slices[0] if self._slices else None
            if singles is newest:
                singles = None
            if batch is newest:
                batch = None
            if batch is not None and (singles is None or batch.at_ms < singles.last_ms):
                self._drop_batch()
            elif singles is not None:
                self._drop_slice()
            else:
                return

    def _drop_slice(self) -> None:
        dropped = self._slices.popleft()
        self._first += 1
        self._used -= dropped.size
        for source, size in dropped.size_of.items():
            self._give_back(size, source)
        if not self._slices:
            self._buckets.clear()

    def _drop_batch(self) -> None:
        _, seen = self._batches.popitem(last=False)
        self._used -= seen.size
        self._give_back(seen.size, seen.source)

    def _begin_slice(self, now_ms: int) -> _Slice:
        """A slice takes what comes for a while, or until it is large."""
        self.forget(now_ms)
        place = (self._first + len(self._slices)) & _SLICE_MASK
        begun = _Slice(now_ms, now_ms + self._horizon_ms // SLICES, place.to_bytes(2, "big"))
        self._slices.append(begun)
        return begun

    def _seen_now(self, batch: bytes, now_ms: int, source: str) -> _Seen:
        """What was seen of a batch, of which something comes now."""
        seen = self._batches.get(batch)
        if seen is None:
            self.forget(now_ms)
            seen = self._batches[batch] = _Seen(now_ms, source)
            self._take(BATCH_BYTES, source)
            self._make_room(seen)
        else:
            seen.at_ms = now_ms
            self._batches.move_to_end(batch)
        return seen

    def _grown(self, batch: bytes, size: int, now_ms: int, source: str) -> bytearray:
        """The flags of a batch, of which something comes now, at least so many."""
        assert size <= BATCH_ROWS_MAX
        seen = self._seen_now(batch, now_ms, source)
        missing = size - len(seen.flags)
        if missing > 0:
            before = seen.size
            # A view of the old flags may still be around: they are copied, not resized.
            seen.flags = seen.flags + bytes(missing)
            for number in [number for number in seen.alone if number < size]:
                seen.flags[number] = 1
                seen.alone.remove(number)
            self._take(seen.size - before, seen.source)
            self._make_room(seen)
        return seen.flags
