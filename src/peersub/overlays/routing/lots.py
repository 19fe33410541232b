"""`Lots`: which subscriptions and updates are confirmed with the rows that are worked out now.

Changes are worked out in lots. What comes meanwhile belongs to the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from itertools import takewhile
from math import inf

from peersub.overlays.core.identity import PeerId

__all__ = ["Lots"]


class Lots:
    """What waits for the next lot, and what is in the present one."""

    __slots__ = ("_arrived", "_names", "_taken_arrived", "_taken_names")

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._arrived: dict[PeerId, deque[tuple[int, int]]] = {}
        self._taken_names: dict[str, None] = {}
        self._taken_arrived: dict[PeerId, int] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether something waits for the next lot."""
        return bool(self._names or self._arrived)

    def add_name(self, name: str) -> None:
        """A subscription is new."""
        self._names[name] = None

    def add_update(self, peer: PeerId, number: int, version: int) -> None:
        """The peer has told its rows up to this number: since then they have this version."""
        self._arrived.setdefault(peer, deque()).append((number, version))

    def name_gone(self, name: str) -> None:
        """The subscription has ended."""
        self._names.pop(name, None)
        self._taken_names.pop(name, None)

    def peer_gone(self, peer: PeerId) -> None:
        """The peer waits for no confirmation any more."""
        self._arrived.pop(peer, None)
        self._taken_arrived.pop(peer, None)

    def take(
        self,
        is_in: Callable[[str], bool] | None = None,
        versions: Mapping[PeerId | None, int] | None = None,
    ) -> None:
        """All is in the present lot; of the names only the first of which `is_in` holds, and of
        the peers that have a version here the updates up to that: further rows belong to the next.
        """
        for peer, arrived in list(self._arrived.items()):
            version = inf if versions is None else versions.get(peer, inf)
            while arrived and arrived[0][1] <= version:
                self._taken_arrived[peer] = arrived.popleft()[0]
            if not arrived:
                del self._arrived[peer]
        for name in tuple(self._names if is_in is None else takewhile(is_in, self._names)):
            del self._names[name]
            self._taken_names[name] = None

    def end(self) -> tuple[dict[PeerId, int], dict[str, None]]:
        """What is to be confirmed with the present lot, which has been told."""
        taken = self._taken_arrived, self._taken_names
        self._taken_arrived, self._taken_names = {}, {}
        return taken
