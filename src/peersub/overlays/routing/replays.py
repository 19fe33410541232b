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
        self.under_way: dict[str, TaskKey] = {}
        """Per event that is being replayed, the task that does it."""
        self._events_max = events_max
        self._slice_max = slice_max
        self._published: History[str] = History(events_max, horizon_ms)
        self._kept: OrderedDict[str, Publication | Batch] = OrderedDict()
        self._kept_events = 0
        self._waiting: dict[str, None] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether there is more to replay than is under way."""
        return bool(self._waiting)

    def keep(self, publication: Publication | Batch, now_ms: int) -> None:
        """It is published now, under a promise."""
        self._published.add(publication.id, now_ms)
        if publication.id not in self._kept:
            self._kept_events += _event_count(publication)
        self._kept[publication.id] = publication
        self._forget(now_ms)

    def _forget(self, now_ms: int) -> None:
        self._published.forget(now_ms)
        while self._kept:
            event_id = next(iter(self._kept))
            # What was published last is kept, also a batch of more events than that.
            is_too_much = self._kept_events > self._events_max and len(self._kept) > 1
            if event_id in self._published and not is_too_much:
                break
            self._kept_events -= _event_count(self._kept.pop(event_id))

    def begin(self, now_ms: int, since_ms: int) -> None:
        """What was published from a time on is to be replayed."""
        self._forget(now_ms)
        times = self._published
        for event_id in self._kept:
            if times.time_of(event_id) >= since_ms:
                self._waiting[event_id] = None

    def next_slice(self) -> Iterator[tuple[Publication | Batch, TaskKey | None]]:
        """What may go now, each with the task of an earlier replay that is still under way.

        That one went by older filters: the new one takes its place.
        """
        room = max(0, self._slice_max - len(self.under_way))
        for event_id in list(islice(self._waiting, room)):
            del self._waiting[event_id]
            publication = self._kept.get(event_id)
            if publication is not None:
                yield publication, self.under_way.pop(event_id, None)


def _event_count(publication: Publication | Batch) -> int:
    return len(publication) if isinstance(publication, Batch) else 1
