"""What a publisher keeps of its acknowledged events, to publish them again after a split.

Many go in slices, each when those before it are confirmed: a busy network replays slowly.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Final

from peersub.overlays.core.batch import Batch
from peersub.overlays.core.history import History
from peersub.overlays.core.publication import Publication
from peersub.overlays.routing.delegations import TaskKey

__all__ = ["BYTES_MAX", "Replays"]

BYTES_MAX: Final = 64 * 1_024 * 1_024
"""Of the events that a node keeps; older ones make room."""


class Replays:
    """The events that one node published at least once, and what of them is being replayed.

    Args:
        events_max: how many are kept, and at least what was published last.
        horizon_ms: for how long.
        slice_max: how many are under way again at once.
    """

    def __init__(self, events_max: int, horizon_ms: int, slice_max: int) -> None:
        self.under_way: dict[bytes, TaskKey] = {}
        """Per event that is being replayed, the task that does it."""
        self._events_max = events_max
        self._slice_max = slice_max
        self._published: History[bytes] = History(events_max, horizon_ms)
        self._kept: OrderedDict[bytes, Publication | Batch] = OrderedDict()
        self._kept_events = 0
        self._sizes: dict[bytes, int] = {}
        self._kept_bytes = 0
        self._waiting: dict[bytes, None] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether there is more to replay than is under way."""
        return bool(self._waiting)

    def keep(self, publication: Publication | Batch, now_ms: int) -> int:
        """It is published now, under a promise; how many others had to make room for its bytes."""
        key = publication.key
        self._published.add(key, now_ms)
        if key not in self._kept:
            self._kept_events += _event_count(publication)
            self._sizes[key] = publication.size
            self._kept_bytes += publication.size
        self._kept[key] = publication
        return self._forget(now_ms)

    def _forget(self, now_ms: int) -> int:
        """Let go of what is too old or too much; how many had to go for their bytes alone."""
        self._published.forget(now_ms)
        cut = 0
        while self._kept:
            key = next(iter(self._kept))
            # What was published last is kept, also a batch of more events than that.
            is_too_many = self._kept_events > self._events_max and len(self._kept) > 1
            is_too_large = self._kept_bytes > BYTES_MAX and len(self._kept) > 1
            is_young = key in self._published
            if is_young and not is_too_many and not is_too_large:
                break
            count = _event_count(self._kept.pop(key))
            self._kept_events -= count
            self._kept_bytes -= self._sizes.pop(key)
            cut += count if is_young and not is_too_many else 0
        return cut

    def begin(self, now_ms: int, since_ms: int) -> None:
        """What was published from a time on is to be replayed."""
        self._forget(now_ms)
        times = self._published
        for key in self._kept:
            if times.time_of(key) >= since_ms:
                self._waiting[key] = None

    def next_slice(self) -> Iterator[tuple[Publication | Batch, TaskKey | None]]:
        """What may go now, each with the task of an earlier replay that is still under way.

        That one went by older filters: the new one takes its place.
        """
        room = max(0, self._slice_max - len(self.under_way))
        for key in list(islice(self._waiting, room)):
            del self._waiting[key]
            publication = self._kept.get(key)
            if publication is not None:
                yield publication, self.under_way.pop(key, None)


def _event_count(publication: Publication | Batch) -> int:
    return len(publication) if isinstance(publication, Batch) else 1
