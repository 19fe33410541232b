"""The containment tree as arrays: a million members, and the ways of many events among them.

`structure` states the rules, member by member; here the same tree is built and used at once for
all. Members have numbers in the order of (node, slot), classes in any order. For routing members
get *seats*, their numbers in preorder: all that is below seat s are the seats from s + 1 up to
`ends[s]`. So what the path from a publisher to the crown cuts the seats into are runs, and the hops
to all seats of a run differ from their depths by one number: an event costs a few passes over its
receivers, however they are spread.

Laws: `class_parents` is `canonical_parents`; `seated` with its parents is `canonical_shape`;
`TreeArrays.passages` is `route`, with hops counted as links between nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from peersub.overlays.containment.structure import EdgeKind
from peersub.overlays.semantic.bulk_members import Passages, grouped, spread_out

__all__ = ["TreeArrays", "class_parents", "places_above", "seated"]


# --- parents of classes --------------------------------------------------------------------------


def class_parents(
    starts: np.ndarray,
    containers: np.ndarray,
    ranks: np.ndarray,
    counts: np.ndarray | None = None,
    *,
    is_complete: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Per class its parent, -1 at the top level, and its depth.

    Args:
        starts: the classes that strictly contain class c are
            `containers[starts[c]:starts[c + 1]]`.
        containers: see above.
        ranks: per class its place in the order of digests.
        counts: per class how many events of the sample match; None for the rule of depth.
        is_complete: whether all containers are listed. Proofs are not quite transitive; which of
            them count is then decided as in `canonical_parents`, by how many containers there are.
    """
    count = len(starts) - 1
    sizes = np.diff(starts)
    owners = np.repeat(np.arange(count), sizes)
    if is_complete:
        order = np.empty(count, np.int64)
        order[np.lexsort((np.arange(count), sizes))] = np.arange(count)
        kept = order[containers] < order[owners]
        owners, containers = owners[kept], containers[kept]
    weights = np.zeros(count, np.int64) if counts is None else counts.astype(np.int64)
    parents = np.full(count, -1, np.int32)
    depths = np.ones(count, np.int32)
    above = grouped(owners, containers, count)
    below = grouped(containers, owners, count)
    waiting = np.diff(above[0])
    is_done = np.zeros(count, np.bool_)
    ready = np.flatnonzero(waiting == 0)
    while len(ready):
        _choose_parents(ready, above, (weights, depths, ranks), is_done, parents)
        has_parent = ready[parents[ready] >= 0]
        depths[has_parent] = depths[parents[has_parent]] + 1
        is_done[ready] = True
        told, times = np.unique(spread_out(*below, ready)[1], return_counts=True)
        waiting[told] -= times
        ready = told[(waiting[told] == 0) & ~is_done[told]]
        if not len(ready) and not is_done.all():
            # A circle of proofs, which only lists that are cut off can have: one is left out.
            ready = np.flatnonzero(~is_done)[:1]
    return parents, depths


def _choose_parents(
    ready: np.ndarray,
    above: tuple[np.ndarray, np.ndarray],
    preference: tuple[np.ndarray, np.ndarray, np.ndarray],
    is_done: np.ndarray,
    parents: np.ndarray,
) -> None:
    """Set the parents of classes all of whose containers are done."""
    weights, depths, ranks = preference
    place, found = spread_out(*above, ready)
    kept = is_done[found]
    place, found = place[kept], found[kept]
    order = np.lexsort((ranks[found], -depths[found], weights[found], place))
    place, found = place[order], found[order]
    firsts = np.flatnonzero(np.diff(place, prepend=-1))
    parents[ready[place[firsts]]] = found[firsts]


# --- seats ---------------------------------------------------------------------------------------


def places_above(places: np.ndarray, degree: int) -> np.ndarray:
    """`place_above` for many places at once; the root, 0, has -1.

    >>> places_above(np.arange(11), 2).tolist()
    [-1, 0, 0, 1, 2, 1, 2, 3, 4, 5, 6]
    """
    if degree == 1:
        return places - 1
    found = np.full(len(places), -1, np.int64)
    begins, wide = 0, 1
    left = np.flatnonzero(places > 0)
    while len(left):
        is_next = places[left] < begins + wide * (degree + 1)
        here = left[is_next]
        found[here] = begins + (places[here] - begins - wide) % wide
        left = left[~is_next]
        begins, wide = begins + wide, wide * degree
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeArrays:
    """A tree of members by their seats. The crown has seat 0."""

    members: np.ndarray
    """Per seat the member's number."""
    seats: np.ndarray
    """Per member its seat."""
    nodes: np.ndarray
    """Per seat the member's node."""
    classes: np.ndarray
    """Per seat the member's class."""
    above: np.ndarray
    """Per seat the seat above; -1 above the crown."""
    kinds: np.ndarray
    """Per seat the kind of the edge up."""
    ends: np.ndarray
    """Per seat the first seat behind those below it."""
    depths: np.ndarray
    """Per seat how many links between nodes are above it."""
    is_top: np.ndarray
    """Per seat whether it is a top-level class root."""
    below_starts: np.ndarray
    """The roots of the classes right below class c have the seats
    `below[below_starts[c]:below_starts[c + 1]]`."""
    below: np.ndarray

    def __len__(self) -> int:
        return len(self.members)

    def passages(self, entry: int, hops: int, matching: np.ndarray) -> Passages:
        """How an event comes to its receivers.

        Args:
            entry: the member where it begins.
            hops: the links between nodes that it took to there.
            matching: the members that match.
        """
        path = self._path(int(self.seats[entry]))
        is_received = self.is_top.copy()
        is_received[path] = True
        matched = self.seats[matching]
        is_received[matched] = True
        own = np.unique(self.classes[matched])
        is_received[spread_out(self.below_starts, self.below, own)[1]] = True
        seats = np.flatnonzero(is_received)
        found = self.depths[seats] + self._offsets(path, seats) + np.int32(hops)
        senders = self.above[seats]
        is_far = self.nodes[seats] != self.nodes[senders]
        # On the path the event goes up.
        on_path = np.searchsorted(seats, path)
        senders[on_path[1:]] = path[:-1]
        senders[on_path[0]] = -1
        is_far[on_path[1:]] = self.nodes[path[1:]] != self.nodes[path[:-1]]
        is_far[on_path[0]] = hops > 0
        sent = np.where(senders < 0, -1, self.members[senders])
        return Passages(self.members[seats], found, sent, is_far.astype(np.int32))

    def _path(self, seat: int) -> np.ndarray:
        """The seats from one up to the crown."""
        path = [seat]
        while self.above[path[-1]] >= 0:
            path.append(int(self.above[path[-1]]))
        return np.array(path, np.int64)

    def _offsets(self, path: np.ndarray, seats: np.ndarray) -> np.ndarray:
        """What to add to the depth of each seat, in growing order, for its way from the first of
        the path: that of the last seat which both ways up have, subtracted twice.
        """
        cuts = np.concatenate([path[::-1], self.ends[path[:-1]]])
        shared = np.concatenate([path[::-1], path[1:]])
        lengths = np.diff(np.append(np.searchsorted(seats, cuts), len(seats)))
        offsets = self.depths[path[0]] - 2 * self.depths[shared]
        found: np.ndarray = np.repeat(offsets, lengths)
        return found


def seated(
    nodes: np.ndarray,
    classes: np.ndarray,
    parents: np.ndarray,
    ranks: np.ndarray,
    *,
    equal_degree: int,
    top_degree: int,
) -> TreeArrays:
    """The tree of members, given the parents of their classes.

    Args:
        nodes: per member its node; members are in the order of nodes and slots.
        classes: per member its class; each has a member.
        parents: per class its parent, -1 at the top level.
        ranks: per class the place of its root's filter in the order of digests.
        equal_degree: members of a class right below one of them, at most.
        top_degree: top-level roots right below one of them, at most.
    """
    above, kinds, roots = _edges_up(classes, parents, ranks, equal_degree, top_degree)
    order, ends = _preorder(above)
    seats = np.empty(len(order), np.int32)
    seats[order] = np.arange(len(order), dtype=np.int32)
    above_seats = np.where(above[order] < 0, -1, seats[above[order]]).astype(np.int32)
    seat_nodes = nodes[order]
    is_far = (seat_nodes != seat_nodes[above_seats]) & (above_seats >= 0)
    contained = np.flatnonzero(parents >= 0)
    below_starts, below = grouped(parents[contained], seats[roots[contained]], len(parents))
    kinds = kinds[order]
    return TreeArrays(
        members=order.astype(np.int32),
        seats=seats,
        nodes=seat_nodes.astype(np.int32),
        classes=classes[order].astype(np.int32),
        above=above_seats,
        kinds=kinds,
        ends=ends[order].astype(np.int32),
        depths=_links_above(is_far, ends[order]),
        is_top=np.isin(kinds, (EdgeKind.CROWN, EdgeKind.TOP)),
        below_starts=below_starts,
        below=below,
    )


def _edges_up(
    classes: np.ndarray,
    parents: np.ndarray,
    ranks: np.ndarray,
    equal_degree: int,
    top_degree: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per member who is above it and over which kind of edge, and per class its root."""
    count = len(classes)
    starts, own = grouped(classes, np.arange(count), len(parents))
    roots = own[starts[:-1]]
    places = np.arange(count) - np.repeat(starts[:-1], np.diff(starts))
    firsts = np.repeat(starts[:-1], np.diff(starts))
    above = np.full(count, -1, np.int64)
    kinds = np.full(count, EdgeKind.EQUAL, np.int8)
    above[own] = own[firsts + np.maximum(places_above(places, equal_degree), 0)]
    contained = np.flatnonzero(parents >= 0)
    above[roots[contained]] = roots[parents[contained]]
    kinds[roots[contained]] = EdgeKind.CHILD
    top = np.flatnonzero(parents < 0)
    top = roots[top[np.argsort(ranks[top])]]
    above[top] = np.where(
        np.arange(len(top)) == 0, -1, top[places_above(np.arange(len(top)), top_degree)]
    )
    kinds[top] = EdgeKind.TOP
    kinds[top[:1]] = EdgeKind.CROWN
    return above, kinds, roots


def _levels(above: np.ndarray) -> list[np.ndarray]:
    """Members by how many are above them, the crown first."""
    children = np.flatnonzero(above >= 0)
    below = grouped(above[children], children, len(above))
    levels = [np.flatnonzero(above < 0)]
    while len(levels[-1]):
        levels.append(spread_out(*below, levels[-1])[1])
    return levels[:-1]


def _preorder(above: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Members in preorder, and per member where the seats below it end."""
    levels = _levels(above)
    assert sum(map(len, levels)) == len(above), "a tree has no circles"
    sizes = np.ones(len(above), np.int64)
    for level in reversed(levels[1:]):
        np.add.at(sizes, above[level], sizes[level])
    starts = np.zeros(len(above), np.int64)
    for level in levels[1:]:
        # Those below one stand together.
        before = np.cumsum(sizes[level]) - sizes[level]
        is_first = np.diff(above[level], prepend=-1) != 0
        firsts = np.flatnonzero(is_first)
        within = before - np.repeat(before[firsts], np.diff(np.append(firsts, len(level))))
        starts[level] = starts[above[level]] + 1 + within
    order = np.empty(len(above), np.int64)
    order[starts] = np.arange(len(above))
    return order, starts + sizes


def _links_above(is_far: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Per seat how many of the edges above it are links: each counts for all seats below it."""
    ended = np.bincount(ends[is_far], minlength=len(is_far) + 1)[:-1]
    found: np.ndarray = np.cumsum(is_far.astype(np.int32) - ended.astype(np.int32), dtype=np.int32)
    return found
