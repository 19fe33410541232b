"""Containment trees as structures, of peers with one interest each."""

from __future__ import annotations

from papers.interests import Interest
from peersub.overlays.containment.structure import EdgeKind, Member, TreeShape, canonical_shape

__all__ = ["interested_in", "parent_of", "tree_of"]


def tree_of(interests: list[Interest], **settings: int) -> TreeShape:
    """The tree of peers that have one interest each, once everybody has its best parent."""
    members = [Member(f"n{place:03}", 1, each.filter) for place, each in enumerate(interests)]
    return canonical_shape(members, **settings)


def interested_in(message: float, interests: list[Interest]) -> frozenset[int]:
    return frozenset(peer for peer, each in enumerate(interests) if message in each.wants)


def parent_of(shape: TreeShape, peer: int) -> int | None:
    """The root of the class above a peer's own; None at the top level."""
    root = shape.roots[peer]
    return shape.parents[root] if shape.kinds[root] is EdgeKind.CHILD else None
