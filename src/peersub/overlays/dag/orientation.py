"""Which way the edges of a layer point, and how they turn (Datta et al. 2003, section 3).

Each member of a layer has a *value* from 0 to 2 and a *lid*, a number that no neighbour of it has.
Both together give every edge a direction (`points_at`). A member that all its edges point at is a
*sink*: it is on turn, and afterwards turns all its edges outwards (`turned`). Everything here is a
function of its arguments; a neighbour is its value and its lid.

Laws:

* On an edge with different lids exactly one of the ends is pointed at.
* A sink of value v has neighbours of value v with larger lids, and of value v + 1, and no others.
* After `turned` every edge points away from the member that was the sink. A cycle cannot lead
  through it, and no other edge has changed: what was acyclic still is (Lemma 3.1).
* So the ends of an edge take turns strictly in turn: the numbers of turns of two members differ by
  at most their distance. Nobody starves (Lemma 3.2).
* An edge that points at a sink closes no cycle, whatever the values at its other end (Lemma 3.3).
* Values that were not reached by these rules may have no sink at all: 0, 1, 2 on a triangle (the
  sentence after Definition 3.3 is false in general). Layers begin with one member.

Where this departs from the paper:

* R2 of Module 1 takes the numeric maximum of the neighbours' values. The values go round: for
  {2, 0} the larger one is 0. With the numeric maximum edges stay as they are, and members starve.
* `chooseid` compares with the value from before R2's assignment, which stands above it.
* A member without neighbours is a sink, and would execute R1 for ever: `turned` leaves it alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

__all__ = [
    "VALUES",
    "Neighbour",
    "first_free_lid",
    "is_sink",
    "newcomer_value",
    "points_at",
    "precedes",
    "succeeding",
    "turned",
]

VALUES: Final = 3
"""A member's value is below this."""

Neighbour: TypeAlias = tuple[int, int]
"""The value and the lid of the other end of an edge."""


def succeeding(value: int) -> int:
    """The one value that this one precedes.

    >>> [succeeding(value) for value in range(3)]
    [1, 2, 0]
    """
    return (value + 1) % VALUES


def precedes(x: int, y: int) -> bool:
    """Whether y comes right after x on the circle of values (Definition 3.1): no order.

    >>> precedes(0, 1), precedes(2, 0), precedes(0, 2), precedes(1, 1)
    (True, True, False, False)
    """
    return y == succeeding(x)


def points_at(val_p: int, lid_p: int, val_q: int, lid_q: int) -> bool:
    """Whether the edge between p and q points from q to p (Definition 3.2): p is the smaller end.

    If the lids differ: points_at(p, q) != points_at(q, p).

    >>> points_at(0, 7, 1, 3), points_at(2, 7, 0, 3), points_at(1, 3, 1, 7), points_at(0, 1, 2, 5)
    (True, True, True, False)
    """
    return precedes(val_p, val_q) or (val_p == val_q and lid_p < lid_q)


def is_sink(val: int, lid: int, neighbours: Iterable[Neighbour]) -> bool:
    """Whether every edge points at the member (Definition 3.3); so it is without any edge.

    >>> is_sink(1, 4, [(1, 5), (2, 0)]), is_sink(1, 4, [(1, 3)]), is_sink(1, 4, [(0, 9), (2, 0)])
    (True, False, False)
    >>> is_sink(0, 0, [])
    True
    """
    return all(points_at(val, lid, other_val, other_lid) for other_val, other_lid in neighbours)


def turned(val: int, lid: int, neighbours: Iterable[Neighbour]) -> Neighbour:
    """The value and lid of a sink after its turn: every edge points away from it (Module 1, LLRO).

    Its new value succeeds the old one, in R1 and R2 alike. In R2, where some neighbours have that
    value already, its new lid is the first one above theirs that no neighbour has.

    >>> turned(0, 4, [(0, 5), (0, 6)])  # R1
    (1, 4)
    >>> turned(2, 4, [(2, 5), (0, 3), (0, 7), (2, 8)])  # R2, with the round of values in it
    (0, 9)
    >>> turned(0, 4, [])
    (0, 4)
    """
    around = list(neighbours)
    assert is_sink(val, lid, around), "only a sink takes a turn"
    if not around:
        return val, lid
    after = succeeding(val)
    ahead = [other_lid for other_val, other_lid in around if other_val == after]
    if not ahead:
        return after, lid
    return after, first_free_lid((other_lid for _, other_lid in around), above=max(ahead))


def first_free_lid(taken: Iterable[int], *, above: int = -1) -> int:
    """The smallest lid above the given one that is not taken.

    Where all values are equal small lids make short ways: lids drawn at random would order a layer
    into long chains, and a member waits for all the chain below it. Edges that come up one by one
    point at sinks, whatever the lids.

    >>> first_free_lid([0, 1, 3]), first_free_lid([0, 1, 3, 4], above=2), first_free_lid([])
    (2, 5, 0)
    """
    there = frozenset(taken)
    lid = above + 1
    while lid in there:
        lid += 1
    return lid


def newcomer_value(val: int, lid: int, newcomer_lid: int) -> int:
    """The value a sink gives to a newcomer that has no edge yet, so that the new edge points at the
    sink (Module 3). Whoever has edges takes no value: its other edges would turn with it.

    >>> newcomer_value(2, 5, newcomer_lid=3), newcomer_value(2, 5, newcomer_lid=7)
    (0, 2)
    """
    assert lid != newcomer_lid, "neighbours have different lids"
    return succeeding(val) if newcomer_lid < lid else val
