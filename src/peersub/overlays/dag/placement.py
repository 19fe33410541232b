"""Placement: which super-peer a subscriber should be with (§4.3.1).

The paper: a super-peer "computes the common set" of the subscriber's topics with its own and its
neighbours' and, if a neighbour has more of them, proposes that the subscriber joins its cluster;
each change of what the subscriber wants renews the proposal. So who wants the same meets on few
super-peers, and these are members of few layers.

The law: a proposed node has more of the subscriber's layers than this one has, and no neighbour has
more. A tie with this node is no reason to move.

Where the paper is silent: among neighbours with equally many, a draw decides that depends on the
layers and the node alone, so that all super-peers send those who want the same to the same place.
A subscriber that comes by a proposal gets none: nobody is sent round in circles.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from peersub.overlays.core.draws import draw

__all__ = ["proposed_node"]


def proposed_node(
    wanted: Collection[str],
    own: Collection[str],
    neighbours: Mapping[str, Collection[str]],
) -> str | None:
    """The neighbour that a subscriber to these layers should move to; None if it is well here.

    >>> proposed_node(["A", "B"], ["A"], {"n1": ["A", "B"], "n2": ["A", "C"]})
    'n1'
    >>> proposed_node(["A", "B"], ["A"], {"n1": ["B"], "n2": []}) is None
    True
    """
    most = _common(wanted, own)
    best: list[str] = []
    for node in sorted(neighbours):
        common = _common(wanted, neighbours[node])
        if common > most:
            most, best = common, [node]
        elif common == most and best:
            best.append(node)
    if not best:
        return None
    company = "\n".join(sorted(wanted))
    return max(best, key=lambda node: draw(0, "dag/placement", company, node))


def _common(wanted: Collection[str], layers: Collection[str]) -> int:
    return sum(layer in layers for layer in wanted)
