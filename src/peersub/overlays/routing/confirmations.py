"""Who waits for whose confirmation before an update, or a subscription, counts as confirmed.

A FILTER of edge w (number n) is confirmed to w once every update that it caused further up is
(digest row 13). What it caused goes to the publishers that w serves. If the rows of such a
publisher did not change, because others cover the new ones, then those others may still be on their
way: so the wait is for *everything* that was sent to these publishers up to now, caused by this
update or not. A subscription of this peer waits likewise, for all publishers; and so does the
knowledge that responsibilities which were changed are in use wherever they matter.

A *wave* is one such wait. Per publisher it holds the number that must be confirmed; numbers grow
and confirmations are cumulative, so the last number stands for all before it.

Termination: labels fall along every chain of updates (section 4.4), so in a topology at rest waits
form no circle. While scopes change they might; `reconsider` drops waits for publishers that are no
longer served, and a circle cannot outlast the change that made it.

The order in which an edge's waves end is that of their numbers: a later one waits for at least as
much.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from peersub.overlays.core.identity import PeerId
from peersub.overlays.routing.combination import Source

__all__ = ["Confirmations", "Wave"]


class Wave:
    """An update of an edge, or some subscriptions, and the publishers that have to confirm."""

    __slots__ = ("names", "number", "source", "version", "waits")

    def __init__(
        self,
        source: Source,
        number: int,
        names: dict[str, None],
        waits: dict[PeerId, int],
        version: int = 0,
    ) -> None:
        self.source: Final = source
        self.number: Final = number
        """The update to confirm to the source; 0 for subscriptions."""
        self.names: Final = names
        """The subscriptions that become ready."""
        self.waits: Final = waits
        """Per publisher the number up to which it must have confirmed."""
        self.version: Final = version
        """The responsibilities that all edges have answered; 0 if the wave is not about that."""


class Confirmations:
    """All waves of a peer that have not ended, and those that ended since they were last taken."""

    __slots__ = ("_begun", "_ended", "_queues", "_wave_of", "_waves")

    def __init__(self) -> None:
        self._begun = 0
        self._waves: dict[int, Wave] = {}
        # Per publisher the waves that wait for it. Later ones wait for later numbers.
        self._queues: dict[PeerId, deque[int]] = {}
        self._ended: list[Wave] = []
        # Per subscription that is not ready, the wave that it waits for.
        self._wave_of: dict[str, Wave] = {}

    def __len__(self) -> int:
        return len(self._waves)

    def begin(self, wave: Wave) -> None:
        """Wait; a wave without waits ends at once."""
        self._wave_of.update(dict.fromkeys(wave.names, wave))
        if not wave.waits:
            self._ended.append(wave)
            return
        self._begun += 1
        self._waves[self._begun] = wave
        self._enqueue(self._begun, wave)

    def _enqueue(self, place: int, wave: Wave) -> None:
        for publisher in wave.waits:
            self._queues.setdefault(publisher, deque()).append(place)

    def take_ended(self) -> list[Wave]:
        """The waves that ended, in the order in which they did."""
        ended, self._ended = self._ended, []
        return ended

    def confirmed(self, publisher: PeerId, number: int) -> None:
        """The publisher confirmed everything up to the number."""
        queue = self._queues.get(publisher)
        while queue:
            wave = self._waves.get(queue[0])
            if wave is not None and wave.waits[publisher] > number:
                return
            self._release(queue.popleft(), publisher)
        self._queues.pop(publisher, None)

    def publisher_lost(self, publisher: PeerId) -> None:
        """The publisher is not waited for any more."""
        for place in self._queues.pop(publisher, ()):
            self._release(place, publisher)

    def _release(self, place: int, publisher: PeerId) -> None:
        wave = self._waves.get(place)
        if wave is None:
            return
        del wave.waits[publisher]
        if not wave.waits:
            self._ended.append(self._waves.pop(place))

    def source_lost(self, source: PeerId) -> None:
        """The edge is gone: nobody is there to be told."""
        for place in [place for place, wave in self._waves.items() if wave.source == source]:
            del self._waves[place]
        self._ended = [wave for wave in self._ended if wave.source != source]

    def name_gone(self, name: str) -> None:
        """The subscription is ready, or has ended before it was."""
        wave = self._wave_of.pop(name, None)
        if wave is not None:
            wave.names.pop(name, None)

    def reconsider(self, waits_of: Callable[[Source], Mapping[PeerId, int]]) -> None:
        """Scopes have changed: each wave waits for the publishers that its source serves now."""
        waves, self._waves = self._waves, {}
        self._queues.clear()
        for place, wave in waves.items():
            wave.waits.clear()
            wave.waits.update(waits_of(wave.source))
            if wave.waits:
                self._waves[place] = wave
                self._enqueue(place, wave)
            else:
                self._ended.append(wave)

    def waiting_on(self, name: str) -> tuple[PeerId, ...]:
        """The publishers whose confirmation the subscription lacks."""
        wave = self._wave_of.get(name)
        return () if wave is None else tuple(sorted(wave.waits))
