"""What a client was handed over connections that are gone: it may come again over the next one.

A node remembers on disk what durable subscriptions took, and of others nothing: when it starts
again, or when the client is connected with another node, an event that its publisher repeats is new
there. So the client remembers the events itself, for as long as anybody repeats them. If it had no
room for all of them, nothing that comes within that time is known to be new.
"""

from __future__ import annotations

from typing import Final

from peersub.overlays.core.batch import Batch
from peersub.overlays.core.event_history import EventHistory

__all__ = ["HandedEvents"]

BYTES_MAX: Final = 8 * 1_024 * 1_024
"""Of what is remembered: ten bytes for an event, one for an event that came in columns."""
HORIZON_MS: Final = 600_000
"""As long as nodes recognise an event: longer than anybody repeats it."""
CROWDED_PART: Final = 7 / 8
"""A history that is fuller has, perhaps, forgotten something young."""


class HandedEvents:
    """The events of one client, as they come over one connection after the other."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._all = EventHistory(bytes_max, HORIZON_MS)
        self._since_loss = EventHistory(bytes_max, HORIZON_MS)
        self._again: set[bytes] = set()
        """Those of them that came before the loss, too: other subscriptions may get them yet."""
        self._matters_until_ms = -1
        self._is_crowded = False

    def on_lost(self, now_ms: int) -> None:
        """The connection is gone."""
        was_crowded = self._is_crowded and now_ms <= self._matters_until_ms
        self._is_crowded = was_crowded or self._all.used > self._bytes_max * CROWDED_PART
        self._matters_until_ms = now_ms + HORIZON_MS
        self._since_loss = EventHistory(self._bytes_max, HORIZON_MS)
        self._again.clear()

    def add(self, key: bytes, now_ms: int) -> bool:
        """An event comes: whether it may have come over a connection that is gone."""
        if now_ms > self._matters_until_ms:
            self._all.add(key, now_ms)
            return False
        is_known = not self._all.add(key, now_ms)
        if self._since_loss.add(key, now_ms) and is_known:
            self._again.add(key)
        return self._is_crowded or key in self._again

    def add_batch(self, batch: Batch, now_ms: int) -> list[bool]:
        """The events of a batch come: which of them may have come before."""
        if now_ms > self._matters_until_ms:
            self._all.add_batch(batch, now_ms)
            return [False] * len(batch)
        return [self.add(key, now_ms) for key in batch.row_keys()]
