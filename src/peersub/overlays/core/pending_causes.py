"""`PendingCauses`: what the peers of a node are still to hear, in order.

Links change while a batch is opened, and the peers are told afterwards. Until a peer has heard that
a link is lost, all it says and does is about that one, and is lost with it: the link that took its
place must not carry it. So whoever takes what a peer says asks `is_behind` first.
"""

from __future__ import annotations

from collections import deque

from peersub.overlays.core.causes import Cause, PeerLost

__all__ = ["PendingCauses"]


class PendingCauses:
    """Causes, each for the peer in a slot."""

    __slots__ = ("_queue", "_unheard")

    def __init__(self) -> None:
        self._queue: deque[tuple[int, Cause]] = deque()
        self._unheard: dict[tuple[int, str], int] = {}
        """Per slot and node, the losses of a link that the peer has not heard of yet."""

    def __bool__(self) -> bool:
        return bool(self._queue)

    def add(self, slot: int, cause: Cause) -> None:
        """The peer in the slot is to hear of something, after all before it."""
        self._queue.append((slot, cause))
        if isinstance(cause, PeerLost):
            key = slot, cause.peer.node
            self._unheard[key] = self._unheard.get(key, 0) + 1

    def take(self) -> tuple[int, Cause]:
        """The next that a peer is to hear, which it hears now."""
        slot, cause = self._queue.popleft()
        if isinstance(cause, PeerLost):
            key = slot, cause.peer.node
            self._unheard[key] -= 1
            if not self._unheard[key]:
                del self._unheard[key]
        return slot, cause

    def clear(self) -> None:
        """Nobody is to hear what is left."""
        self._queue.clear()
        self._unheard.clear()

    def is_behind(self, slot: int, node: str) -> bool:
        """Whether the peer has not heard yet that its link to the node was lost."""
        return bool(self._unheard) and (slot, node) in self._unheard
