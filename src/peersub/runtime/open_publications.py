"""The publications of a node's clients that have not ended, and which of them are not new."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from peersub.overlays.core.batch import Batch
from peersub.overlays.core.event_history import EventHistory
from peersub.overlays.core.publication import Publication

__all__ = ["OnEnded", "OpenPublications"]

OnEnded: TypeAlias = Callable[[str, str | None, int], None]
"""Takes the name of a publication, why it failed or None, and how many of its events this node had
published before."""
PUBLISHED_BYTES_MAX: Final = 8 * 1_024 * 1_024
"""Of events that clients published here, so that publishing one again is told from the first."""
PUBLISHED_HORIZON_MS: Final = 600_000


class OpenPublications:
    """Who waits for which publication to end; several may wait for one."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[OnEnded | None, int]]] = {}
        self._published = EventHistory(PUBLISHED_BYTES_MAX, PUBLISHED_HORIZON_MS)

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, content: Publication | Batch, on_ended: OnEnded | None, now_ms: int) -> None:
        """It is published now."""
        if isinstance(content, Batch):
            seen = len(content) - len(self._published.add_batch(content, now_ms))
        else:
            seen = 0 if self._published.add(content.key, now_ms) else 1
        self._waiting.setdefault(content.name, []).append((on_ended, seen))

    def end(self, name: str, failure: str | None) -> None:
        """It has ended."""
        for on_ended, seen in self._waiting.pop(name, ()):
            if on_ended is not None:
                on_ended(name, failure, seen)

    def end_all(self, failure: str) -> None:
        """None will end any more."""
        for name in list(self._waiting):
            self.end(name, failure)
