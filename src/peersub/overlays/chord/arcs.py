"""Arcs of the key circle (section 4.1), as a start and a length.

A key is a whole number from 0 to size - 1, where the circle's size is a power of two. An arc
`(start, length)` holds `start` and the `length - 1` keys that follow it clockwise, and
1 <= length <= size.

Departure from the paper: it writes arcs as `[a, b)`, in which `[a, a)` is both "all" and "nothing",
and its very first one, the arc of a publisher, is that. A length has no such doubt.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

__all__ = ["Arc", "bounded", "clockwise", "contains", "intersection", "overlap", "united", "within"]

Arc: TypeAlias = tuple[int, int]


def clockwise(start: int, end: int, size: int) -> int:
    """How far `end` lies clockwise of `start`: from 0 to size - 1.

    >>> clockwise(3, 5, 16), clockwise(5, 3, 16), clockwise(7, 7, 16)
    (2, 14, 0)
    """
    return (end - start) % size


def contains(arc: Arc, key: int, size: int) -> bool:
    """Whether the key lies on the arc.

    >>> contains((14, 4), 1, 16), contains((14, 4), 2, 16), contains((7, 16), 6, 16)
    (True, False, True)
    """
    return (key - arc[0]) % size < arc[1]


def overlap(one: Arc, other: Arc, size: int) -> bool:
    """Whether some key lies on both: the start of one of them does.

    >>> overlap((14, 4), (1, 3), 16), overlap((14, 4), (2, 12), 16), overlap((5, 16), (9, 1), 16)
    (True, False, True)
    """
    return (other[0] - one[0]) % size < one[1] or (one[0] - other[0]) % size < other[1]


def intersection(one: Arc, other: Arc, size: int) -> list[Arc]:
    """The keys on both, as at most two arcs, clockwise from the start of `one`.

    >>> intersection((0, 10), (4, 10), 16), intersection((0, 10), (8, 14), 16)
    ([(4, 6)], [(0, 6), (8, 2)])
    >>> intersection((0, 4), (4, 12), 16)
    []
    """
    start, length = one
    offset = (other[0] - start) % size
    pieces: list[Arc] = []
    # What of the other lies before its own start, seen from the start of this one, has gone round.
    wrapped = offset + other[1] - size
    if wrapped > 0:
        pieces.append((start, min(wrapped, length)))
    if offset < length:
        inside: Arc = (other[0] % size, min(other[1], length - offset, size - offset))
        if pieces and wrapped >= offset:
            return [(start, min(length, max(wrapped, offset + inside[1])))]
        pieces.append(inside)
    return pieces


def within(inner: Arc, outer: Arc, size: int) -> bool:
    """Whether every key of the first lies on the second.

    >>> within((15, 2), (14, 4), 16), within((15, 4), (14, 4), 16), within((3, 16), (5, 16), 16)
    (True, False, True)
    """
    if outer[1] >= size:
        return True
    return (inner[0] - outer[0]) % size + inner[1] <= outer[1]


def united(arcs: Iterable[Arc], size: int) -> list[Arc]:
    """The keys on any of them, as disjoint arcs that do not touch, by their start.

    >>> united([(2, 3), (12, 6), (4, 2)], 16), united([(0, 8), (8, 8)], 16)
    ([(12, 10)], [(0, 16)])
    >>> united([(9, 1), (3, 2)], 16), united([], 16)
    ([(3, 2), (9, 1)], [])
    """
    joined: list[list[int]] = []
    for start, length in sorted((start % size, length) for start, length in arcs):
        if joined and start <= joined[-1][0] + joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], start + length - joined[-1][0])
        else:
            joined.append([start, length])
    # The last ones may run over the end of the circle and swallow or meet the first ones.
    while len(joined) > 1 and joined[-1][0] + joined[-1][1] >= size + joined[0][0]:
        first = joined.pop(0)
        joined[-1][1] = max(joined[-1][1], first[0] + size + first[1] - joined[-1][0])
    if len(joined) == 1 and joined[0][1] >= size:
        return [(0, size)]
    return [(start, length) for start, length in joined]


def bounded(disjoint: list[Arc], count_max: int, size: int) -> list[Arc]:
    """At most so many arcs that hold all of these, as `united` gives them: small gaps are closed.

    Of equal gaps the one that comes later on the circle is closed first.

    >>> bounded([(0, 1), (3, 1), (9, 2)], 2, 16), bounded([(2, 1), (12, 3)], 1, 16)
    ([(0, 4), (9, 2)], [(12, 7)])
    """
    if len(disjoint) <= count_max:
        return disjoint
    gaps = [
        ((following[0] - start - length) % size, place)
        for place, ((start, length), following) in enumerate(
            zip(disjoint, [*disjoint[1:], disjoint[0]], strict=True)
        )
    ]
    kept = sorted(place for _, place in sorted(gaps, key=lambda gap: (-gap[0], gap[1]))[:count_max])
    found: list[Arc] = []
    for before, last in zip([kept[-1], *kept[:-1]], kept, strict=True):
        start = disjoint[(before + 1) % len(disjoint)][0]
        end, length = disjoint[last]
        found.append((start, (end - start) % size + length))
    return sorted(found)
