"""What a publisher keeps of its acknowledged events, to publish them again after a split.

Many go in slices, each when those before it are confirmed: a busy network replays slowly.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice

from peersub.overlays.core.batch import Batch
from peersub.overlays.core.history import History
from peersub.overlays.core.publication import Publication
from peersub.overlays.routing.delegations import TaskKey

__all__ = ["Replays"]


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
        self._waiting: dict[bytes, None] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether there is more to replay than is under way."""
        return bool(self._waiting)

    def keep(self, publication: Publication | Batch, now_ms: int) -> None:
        """It is published now, under a promise."""
        self._published.add(publication.key, now_ms)
        if publication.key not in self._kept:
            self._kept_events += _event_count(publication)
        self._kept[publication.key] = publication
        self._forget(now_ms)

    def _forget(self, now_ms: int) -> None:
        self._published.forget(now_ms)
        while self._kept:
            key = next(iter(self._kept))
            # What was published last is kept, also a batch of more events than that.
            is_too_much = self._kept_events > self._events_max and len(self._kept) > 1
            if key in self._published and not is_too_much:
                break
            self._kept_events -= _event_count(self._kept.pop(key))

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
