"""`Acquaintances`: which other nodes a node knows of, to find its way into the tree, or back.

* Those that were *named* when it was to join are asked until it has.
* *Contacts* take part as far as is known: they came up in what members above said, in refusals, in
  greetings. A newcomer counts everybody as one who sets up a link to it: whom it was told of may
  all be gone, and whoever comes knows more, by and by.
* Nodes that were *lost* are tried again for a while: they may be in another part of the network.
"""

from __future__ import annotations

from collections.abc import Iterable

from peersub.overlays.containment.seat import KEEPER_SLOT
from peersub.overlays.containment.settings import ContainmentSettings
from peersub.overlays.core.identity import PeerId
from peersub.overlays.semantic.hosting import ANY_LIFE

__all__ = ["Acquaintances", "names_in"]

LOST_NODES_MAX = 64
"""Nodes that were lost and are tried again."""
TRIED_MAX = 8
"""Nodes that are tried at a time."""
ANSWERS = 3
"""How often a node that was lost answers before it counts as found."""
CONTACTS_MAX = 32
"""Nodes that are known to take part."""
CONTACTS_TOLD = 16
"""Of these, how many a newcomer is told."""


def names_in(greeting: bytes) -> list[str]:
    r"""The nodes that a greeting names.

    >>> names_in(b"n1\nn2"), names_in(b"")
    (['n1', 'n2'], [])
    """
    return [name for name in greeting.decode("utf-8", "replace").split("\n") if name]


class Acquaintances:
    """What one node knows of others."""

    def __init__(self, node: str, settings: ContainmentSettings) -> None:
        self._node = node
        self._settings = settings
        self._named: tuple[str, ...] = ()
        self._contacts: dict[str, None] = {}
        """Those told of last come last."""
        self._lost: dict[str, list[int]] = {}
        """When it was, and how often they are to answer yet."""

    # --- contacts ------------------------------------------------------------------------------

    def name(self, nodes: tuple[str, ...]) -> None:
        """Take part where these do."""
        self._named = nodes
        self.learn(nodes)

    def learn(self, nodes: Iterable[str]) -> None:
        """These nodes take part."""
        for node in nodes:
            if node != self._node:
                self._contacts.pop(node, None)
                self._contacts[node] = None
        while len(self._contacts) > CONTACTS_MAX:
            del self._contacts[next(iter(self._contacts))]

    def keepers(self, *, is_joining: bool) -> list[PeerId]:
        """Whom to ask."""
        named = self._named if is_joining else ()
        nodes = dict.fromkeys((*named, *self._contacts))
        return [PeerId(node, ANY_LIFE, KEEPER_SLOT) for node in nodes if node != self._node]

    def some(self, linked: Iterable[str]) -> tuple[str, ...]:
        """What a newcomer is told: this node before all, then those with links."""
        first = (self._node, *list(linked)[:CONTACTS_TOLD])
        return tuple(dict.fromkeys((*first, *reversed(self._contacts))))[:CONTACTS_TOLD]

    def greeting(self, linked: Iterable[str]) -> bytes:
        """The same, with the first word on a link: this node may crash before it says more."""
        return "\n".join(self.some(linked)[1:]).encode()

    # --- nodes that were lost ------------------------------------------------------------------

    def lost(self) -> tuple[str, ...]:
        """The nodes that are looked for."""
        return tuple(self._lost)

    def remember(self, node: str, now_ms: int) -> None:
        """A node was lost: try it again later."""
        if node == self._node or not self._settings.probe_ms:
            return
        self._lost.pop(node, None)
        self._lost[node] = [now_ms, ANSWERS]
        while len(self._lost) > LOST_NODES_MAX:
            del self._lost[next(iter(self._lost))]

    def to_try(self, now_ms: int) -> list[str]:
        """Those that were tried longest ago; who was lost too long ago is forgotten."""
        oldest_ms = now_ms - self._settings.former_horizon_ms
        for node in [node for node, (lost_ms, _) in self._lost.items() if lost_ms < oldest_ms]:
            del self._lost[node]
        tried = list(self._lost)[:TRIED_MAX]
        for node in tried:
            self._lost[node] = self._lost.pop(node)
        return tried

    def answered(self, node: str) -> None:
        """A node that was lost is there; after some more answers it counts as found."""
        lost = self._lost.get(node)
        if lost is not None:
            lost[1] -= 1
            if not lost[1]:
                del self._lost[node]
