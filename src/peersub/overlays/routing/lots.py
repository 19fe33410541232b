"""`Lots`: which subscriptions and updates are confirmed with the rows that are worked out now.

Changes are worked out in lots. What comes meanwhile belongs to the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from itertools import takewhile

from peersub.overlays.core.identity import PeerId

__all__ = ["Lots"]


class Lots:
    """What waits for the next lot, and what is in the present one."""

    __slots__ = ("_arrived", "_names", "_taken_arrived", "_taken_names")

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._arrived: dict[PeerId, int] = {}
        self._taken_names: dict[str, None] = {}
        self._taken_arrived: dict[PeerId, int] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether something waits for the next lot."""
        return bool(self._names or self._arrived)

    def add_name(self, name: str) -> None:
        """A subscription is new."""
        self._names[name] = None

    def add_update(self, peer: PeerId, number: int) -> None:
        """The peer has told its rows up to this number."""
        self._arrived[peer] = number

    def name_gone(self, name: str) -> None:
        """The subscription has ended."""
        self._names.pop(name, None)
        self._taken_names.pop(name, None)

    def peer_gone(self, peer: PeerId) -> None:
        """The peer waits for no confirmation any more."""
        self._arrived.pop(peer, None)
        self._taken_arrived.pop(peer, None)

    def take(
        self, is_in: Callable[[str], bool] | None = None, behind: Container[PeerId | None] = ()
    ) -> None:
        """All is in the present lot; of the names only the first of which `is_in` holds, and no
        update of peers that are behind: some of their rows belong to the next.
        """
        for peer in [peer for peer in self._arrived if peer not in behind]:
            self._taken_arrived[peer] = self._arrived.pop(peer)
        for name in tuple(self._names if is_in is None else takewhile(is_in, self._names)):
            del self._names[name]
            self._taken_names[name] = None

    def end(self) -> tuple[dict[PeerId, int], dict[str, None]]:
        """What is to be confirmed with the present lot, which has been told."""
        taken = self._taken_arrived, self._taken_names
        self._taken_arrived, self._taken_names = {}, {}
        return taken
