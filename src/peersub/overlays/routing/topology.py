"""What routing and filter maintenance may know of the shape of the network (figure 3, section 7).

A *scope* names a part of the network, in numbers that only the topology understands: an arc of the
key circle in Chord, everything behind an edge in a tree. A topology splits a scope among the peers
that it has edges to. Whoever brings another substrate brings a topology.

Laws:

* `parts(scope)` are disjoint, lie within the scope, and together with this peer itself hold every
  peer of the scope that the topology can reach;
* each part goes to a peer in `edges()`, and lies within `scope_of(peer)`;
* `parts_around(scope, avoided)` are disjoint, lie within the scope, and hold what `parts` hold; an
  avoided peer gets its own place, and nothing else;
* `serves(publisher)` are the edges whose scope meets the one that the publisher holds this peer
  responsible for: f(publisher -> me) must cover the filters on exactly these, and the local one;
* the edges that depend on each other by `serves` form no cycle over the network (section 4.4).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, TypeAlias

from peersub.overlays.core.identity import PeerId

__all__ = ["NOWHERE", "Reach", "Scope", "Topology", "reach_of"]

Scope: TypeAlias = tuple[int, ...]
NOWHERE: Scope = ()
"""The empty scope: a publisher that sends it takes the responsibility back."""


class Topology(Protocol):
    """Peers, and a partition of responsibility."""

    def whole(self) -> Scope:
        """The scope of an event that is published here: the entire network."""
        ...

    def holds_me(self, scope: Scope) -> bool:
        """Whether this peer itself lies in the scope."""
        ...

    def edges(self) -> Sequence[PeerId]:
        """The publishing edges p(u), without the loopback, in the topology's order."""
        ...

    def scope_of(self, peer: PeerId) -> Scope:
        """What this peer holds the peer at the end of an edge responsible for: r_u(v)."""
        ...

    def parts(self, scope: Scope, sender: PeerId | None) -> list[tuple[PeerId, Scope]]:
        """The scope split among the edges, largest part first; what came from `sender` if any."""
        ...

    def parts_around(self, scope: Scope, avoided: Collection[PeerId]) -> list[tuple[PeerId, Scope]]:
        """The scope split among other linked peers, where edges lead to peers that may be gone."""
        ...

    def serves(self, publisher: PeerId, scope: Scope) -> Sequence[PeerId]:
        """The edges that meet the scope that the publisher gave this peer, in the order of edges.

        For Chord this is a prefix of `edges()`: arcs begin at this peer.
        """
        ...

    def parse_scope(self, scope: Scope) -> str | None:
        """Why the scope cannot be understood, or None: it came over the wire."""
        ...

    @property
    def reach(self) -> Reach | None:
        """The arithmetic of reaches, if its scopes have one."""
        ...


class Reach(Protocol):
    """What a topology offers so that rows can say where the owners of their filters are.

    A reach is a scope, or a union of a few: numbers that only the topology understands, in one
    canonical form. The empty one means "unknown": it meets everything, and lies within nothing but
    itself. A reach may always be larger than the truth, never smaller.
    """

    def own_reach(self) -> Scope:
        """Where the local filters are: this peer alone."""
        ...

    def meets(self, reach: Scope, scope: Scope) -> bool:
        """Whether some peer may lie in both; False only if none does."""
        ...

    def united(self, first: Scope, second: Scope) -> Scope:
        """A reach that holds both; the smallest, as far as its bound on parts allows."""
        ...

    def clipped(self, reach: Scope, scope: Scope) -> Scope | None:
        """The part of the reach that lies in the scope; None if none does."""
        ...

    def within(self, inner: Scope, outer: Scope) -> bool:
        """Whether the outer reach holds all of the inner one."""
        ...


def reach_of(topology: Topology) -> Reach:
    """The arithmetic of reaches of a topology.

    Raises:
        ValueError: it has none.
    """
    if topology.reach is None:
        raise ValueError("exact_reach is not offered by this overlay: its topology has no arcs")
    return topology.reach
