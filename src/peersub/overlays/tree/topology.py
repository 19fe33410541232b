"""The tree as a topology: everything behind an edge is one scope, whoever it came from excepted."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from peersub.overlays.core.identity import PeerId
from peersub.overlays.routing.topology import Reach, Scope

__all__ = ["TreeTopology"]

_WHOLE: Scope = (0,)
_BEHIND: Scope = (1,)
"""All that lies behind the edge, seen from the sender: which edge it is, the receiver knows."""


class TreeTopology:
    """The neighbours of a node in the tree, by name.

    >>> tree = TreeTopology()
    >>> for node in "abc":
    ...     tree.add(PeerId(node))
    >>> [str(peer) for peer, _ in tree.parts((1,), PeerId("b"))]
    ['a', 'c']
    """

    def __init__(self) -> None:
        self._edges: tuple[PeerId, ...] = ()

    def add(self, peer: PeerId) -> None:
        """An edge to the peer, and from it."""
        self._edges = tuple(sorted((*self._edges, peer)))

    def remove(self, peer: PeerId) -> None:
        """No edge any more."""
        self._edges = tuple(edge for edge in self._edges if edge != peer)

    def whole(self) -> Scope:
        """The entire tree."""
        return _WHOLE

    def holds_me(self, scope: Scope) -> bool:
        """Always: a part of the tree is only ever given to its first node."""
        return True

    def edges(self) -> Sequence[PeerId]:
        """The neighbours."""
        return self._edges

    def scope_of(self, peer: PeerId) -> Scope:
        """All behind the edge."""
        return _BEHIND

    def parts(self, scope: Scope, sender: PeerId | None) -> list[tuple[PeerId, Scope]]:
        """Every edge but the one it came over."""
        return [(edge, _BEHIND) for edge in self._edges if edge != sender]

    def parts_around(self, scope: Scope, avoided: Collection[PeerId]) -> list[tuple[PeerId, Scope]]:
        """The parts as they are: a tree has no way round, and nothing behind a lost edge."""
        return self.parts(scope, None)

    def serves(self, publisher: PeerId, scope: Scope) -> Sequence[PeerId]:
        """Every edge but the publisher's own."""
        return [edge for edge in self._edges if edge != publisher]

    def parse_scope(self, scope: Scope) -> str | None:
        """Only two scopes have a meaning here."""
        return None if scope in (_WHOLE, _BEHIND) else f"a tree has no scope {scope!r}"

    @property
    def reach(self) -> Reach | None:
        """None: there are no arcs."""
        return None
