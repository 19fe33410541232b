"""The containment tree as a structure: which tree members form, and which way events take in it.

Chand and Felber, "Semantic peer-to-peer overlays for publish/subscribe networks" (Euro-Par 2005),
sections 3 and 4. A *member* is one filter on one node. Members with equivalent filters are a
*class*; the first of them is its *root*. There is one tree with three kinds of edges (`EdgeKind`).
The protocol, its `converged` state and the bulk form share the rules below, and tests hold them to
each other. Everything here is a function of its arguments, in plain Python.

Rules:

* *Proof.* A tree edge stands on a proof that is transitive: plain homomorphism between patterns,
  covering between SQL filters (`contains`). So whoever contains a filter is found by walking down
  from the top through those that contain it.
* *Parents.* The parent of a class is the first of its strict containers in the order of the
  parent rule (`ParentRule`). "depth" is the paper's: the deepest; "selectivity" is ours: the one
  that matches fewest events of a sample, then the deepest. Ties go to the smallest digest.
* *Depth.* 1 at the top level, else one more than that of the parent's class. A class is one level.
* *Bounded trees.* The members of a class, and the top-level class roots, form a tree of bounded
  degree: who has room takes the newcomer, else passes it to each of its children in turn. The
  place of the n-th is a function of n (`place_above`), and the tree is balanced.

Where this departs from the paper: its top level is a ring or list of siblings, whose length is the
delay of an event; here it is a bounded tree as well, with edges that forward unconditionally (an
edge that a member's own interest could close would cut off all that is behind it).

Routing: a member that gets an event for the first time forwards it, never back:

* over TOP edges always;
* over CHILD and EQUAL edges, up and down, if its own filter matches;
* up if neither it nor anybody below it on the way matched: the event still climbs from a publisher
  that does not match it to the first member that does, or to the top level.

Law of receivers: those who match, the class roots right below a class that matches, the top-level
class roots, and those whom the event climbed over (`predicted_receivers`). Each exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal, NamedTuple

from peersub.filters.covering_index import CoveringIndex, Summary
from peersub.filters.filter import Filter
from peersub.filters.xpath.containment import General, Specific, maps_into
from peersub.filters.xpath.xpath_filter import XPathFilter

__all__ = [
    "Classes",
    "EdgeKind",
    "Member",
    "ParentRule",
    "Passage",
    "TreeShape",
    "canonical_parents",
    "canonical_shape",
    "contains",
    "level_in_bounded_tree",
    "need_share",
    "place_above",
    "predicted_receivers",
    "proven_containers",
    "route",
]

ParentRule = Literal["depth", "selectivity"]


class EdgeKind(IntEnum):
    """What the edge up from a member is."""

    CROWN = 0
    """There is none: the member is the root of the whole tree."""
    CHILD = 1
    """From a class root to the root of a class that strictly contains it."""
    EQUAL = 2
    """Within a class."""
    TOP = 3
    """Between class roots that nobody contains."""
    VISIT = 4
    """From the keeper of a node, which wants nothing, to any member: no event goes down there."""


class Member(NamedTuple):
    """One filter on one node."""

    node: str
    slot: int
    wanted: Filter


class Passage(NamedTuple):
    """How an event came to a member."""

    sender: int
    """The member that it came from; -1 where it was published."""
    edges: int
    """Over so many edges."""


@dataclass(frozen=True, slots=True)
class TreeShape:
    """A tree of members, which are numbers from 0 on."""

    parents: tuple[int, ...]
    """The member above; -1 above the crown."""
    kinds: tuple[EdgeKind, ...]
    """Of the edge up."""
    roots: tuple[int, ...]
    """The root of the member's class."""
    below: tuple[tuple[int, ...], ...]
    """All members right below, in the order in which they came: those of the class, then the
    contained classes, then top-level ones."""

    @classmethod
    def of(
        cls, parents: Sequence[int], kinds: Sequence[EdgeKind], roots: Sequence[int]
    ) -> TreeShape:
        """The shape with these edges; members below one come in the order of their numbers."""
        below: list[list[int]] = [[] for _ in parents]
        for kind in (EdgeKind.EQUAL, EdgeKind.CHILD, EdgeKind.TOP):
            for member, above in enumerate(parents):
                if kinds[member] is kind:
                    below[above].append(member)
        return cls(tuple(parents), tuple(kinds), tuple(roots), tuple(map(tuple, below)))

    def __len__(self) -> int:
        return len(self.parents)


# --- proofs --------------------------------------------------------------------------------------


def contains(general: Filter, specific: Filter) -> bool:
    """Whether it is proven, by a proof that is transitive, that the one contains the other.

    >>> contains(Filter.xpath("//p"), Filter.xpath("/nitf/body//p"))
    True
    """
    if isinstance(general, XPathFilter) and isinstance(specific, XPathFilter):
        return general.covers(specific, "homomorphism")
    return general.covers(specific)


class _Proven(Summary):
    """A filter among many, prepared for proofs.

    A pattern that misses a sample event which another one matches cannot contain it: comparing the
    bits of both costs next to nothing, and is asked first.
    """

    __slots__ = ("bits", "general", "number", "specific")

    def __init__(self, wanted: Filter, number: int, bits: int) -> None:
        super().__init__(wanted)
        self.number = number
        self.bits = bits
        self.general: General | None = None
        self.specific: Specific | None = None
        if isinstance(wanted, XPathFilter) and wanted.pattern is not None:
            self.general = General(wanted.pattern, with_distances=False)
            self.specific = Specific(wanted.pattern)

    def covers(self, other: Summary) -> bool:
        assert isinstance(other, _Proven)
        if other.bits & ~self.bits:
            return False
        if self.general is not None and other.specific is not None:
            return maps_into(self.general, other.specific)
        return super().covers(other)


def proven_containers(
    filters: Sequence[Filter], bits: Sequence[int] | None = None
) -> list[list[int]]:
    """Per filter the others that contain it, equivalent ones among them; filters are distinct.

    Args:
        filters: no two with the same digest.
        bits: per filter one bit for each event of a sample, set if it matches; the result is the
            same without them, and later.
    """
    sampled = [0] * len(filters) if bits is None else bits
    index: CoveringIndex[_Proven] = CoveringIndex()
    for number, wanted in enumerate(filters):
        index.add(_Proven(wanted, number, sampled[number]))
    return [
        sorted(other.number for other in index.coverers(one) if other is not one) for one in index
    ]


@dataclass(frozen=True, slots=True)
class Classes:
    """Filters in some order, by equivalence. The first of a class stands for it."""

    of: tuple[int, ...]
    """Per filter its class; classes are numbered in the order of their first filters."""
    filters: tuple[Filter, ...]
    """Per class its first filter."""
    containers: tuple[tuple[int, ...], ...]
    """Per class the classes that strictly contain it."""

    @classmethod
    def among(cls, filters: Sequence[Filter], bits: Mapping[bytes, int] | None = None) -> Classes:
        """The classes of these filters.

        Args:
            filters: in the order in which they came, equal ones among them.
            bits: by digest one bit for each event of a sample; see `proven_containers`.
        """
        distinct: dict[bytes, Filter] = {}
        for wanted in filters:
            distinct.setdefault(wanted.digest, wanted)
        sampled = None if bits is None else [bits[digest] for digest in distinct]
        known = list(distinct.values())
        containing = [frozenset(each) for each in proven_containers(known, sampled)]
        first_of: list[int] = []
        for number, above in enumerate(containing):
            equals = (each for each in above if each < number and number in containing[each])
            first = min((each for each in equals if first_of[each] == each), default=number)
            first_of.append(first)
        standing = [number for number, first in enumerate(first_of) if number == first]
        class_of = {number: place for place, number in enumerate(standing)}
        by_digest = {
            digest: class_of[first] for digest, first in zip(distinct, first_of, strict=True)
        }
        return cls(
            tuple(by_digest[wanted.digest] for wanted in filters),
            tuple(known[number] for number in standing),
            tuple(
                tuple(sorted(class_of[other] for other in containing[number] if other in class_of))
                for number in standing
            ),
        )


# --- bounded trees -------------------------------------------------------------------------------


def place_above(place: int, degree: int) -> int:
    """Below whom the member with this number stands in a bounded tree; the root's number is 0.

    Who has fewer than `degree` below it takes the newcomer; else it passes it to its children in
    turn. So each level is full before the next one begins, and within a level the first digit of
    a place, in the base of the degree, says below which child of the root it is.

    >>> [place_above(place, 2) for place in range(1, 11)]
    [0, 0, 1, 2, 1, 2, 3, 4, 5, 6]
    """
    assert place > 0
    begins, wide = 0, 1
    while place >= begins + wide * (degree + 1):
        begins, wide = begins + wide, wide * degree
    return begins + (place - begins - wide) % wide


def level_in_bounded_tree(place: int, degree: int) -> int:
    """How many edges are between the root of a bounded tree and the member with this number.

    >>> [level_in_bounded_tree(place, 2) for place in (0, 1, 2, 3, 6, 7)]
    [0, 1, 1, 2, 2, 3]
    """
    level, ends, wide = 0, 1, 1
    while place >= ends:
        wide *= degree
        ends += wide
        level += 1
    return level


# --- the canonical tree --------------------------------------------------------------------------


def canonical_parents(
    containers: Sequence[Sequence[int]],
    digests: Sequence[bytes],
    counts: Sequence[int] | None = None,
) -> tuple[list[int], list[int]]:
    """Per class its parent (-1 at the top level) and its depth, once every class has its best.

    The best parent of a class depends on the depths of its containers only, which contain fewer
    classes above them: so there is one such tree, whatever the order of joins.

    Args:
        containers: per class all classes that strictly contain it; transitive.
        digests: per class that of its root's filter.
        counts: per class how many events of the sample match; None for the rule of depth.
    """
    parents, depths = [-1] * len(containers), [0] * len(containers)

    def preference(number: int) -> tuple[int, int, bytes]:
        return counts[number] if counts else 0, -depths[number], digests[number]

    # Whoever contains a class has fewer containers than it: they are a part of its own. Covering
    # of SQL filters is not always proven: where the order is not quite one, what would close a
    # circle does not count.
    for number in sorted(range(len(containers)), key=lambda each: len(containers[each])):
        best = min(
            (each for each in containers[number] if depths[each]), key=preference, default=-1
        )
        parents[number] = best
        depths[number] = depths[best] + 1 if best >= 0 else 1
    return parents, depths


def canonical_shape(
    members: Sequence[Member],
    *,
    rule: ParentRule = "depth",
    count: Callable[[Filter], int] | None = None,
    equal_degree: int = 4,
    top_degree: int = 4,
) -> TreeShape:
    """The tree that members converge to.

    Members of a class are in the order of their nodes and slots, the first being its root.
    Top-level classes are in the order of the digests of their roots' filters; the first is the
    crown.

    Args:
        members: in any order; the shape's numbers are their places here.
        rule: which container is the parent.
        count: how many events of the sample a filter matches; for the rule of selectivity.
        equal_degree: members of a class right below one of them, at most.
        top_degree: top-level roots right below one of them, at most.
    """
    if rule == "selectivity" and count is None:
        raise ValueError("the rule of selectivity needs counts of a sample")
    order = sorted(range(len(members)), key=lambda each: members[each][:2])
    found = Classes.among([members[each].wanted for each in order])
    classes: list[list[int]] = [[] for _ in found.filters]
    for member, number in zip(order, found.of, strict=True):
        classes[number].append(member)
    counts = [count(each) for each in found.filters] if count and rule == "selectivity" else None
    digests = [wanted.digest for wanted in found.filters]
    above, _ = canonical_parents(found.containers, digests, counts)
    parents, kinds = [-1] * len(members), [EdgeKind.CROWN] * len(members)
    roots = [0] * len(members)
    for number, own in enumerate(classes):
        for place, member in enumerate(own):
            roots[member] = own[0]
            if place:
                parents[member] = own[place_above(place, equal_degree)]
                kinds[member] = EdgeKind.EQUAL
        if above[number] >= 0:
            parents[own[0]] = classes[above[number]][0]
            kinds[own[0]] = EdgeKind.CHILD
    top = sorted(
        (number for number in range(len(classes)) if above[number] < 0), key=digests.__getitem__
    )
    for place, number in enumerate(top):
        if place:
            parents[classes[number][0]] = classes[top[place_above(place, top_degree)]][0]
            kinds[classes[number][0]] = EdgeKind.TOP
    return _in_canonical_order(TreeShape.of(parents, kinds, roots), members)


def _in_canonical_order(shape: TreeShape, members: Sequence[Member]) -> TreeShape:
    """Below each member: its class by node and slot, then others by the digests of filters."""

    def order(member: int) -> tuple[bool, bytes, str, int]:
        node, slot, wanted = members[member]
        is_other = shape.kinds[member] is not EdgeKind.EQUAL
        return is_other, wanted.digest if is_other else b"", node, slot

    below = tuple(tuple(sorted(each, key=order)) for each in shape.below)
    return TreeShape(shape.parents, shape.kinds, shape.roots, below)


# --- reorganisation by need ----------------------------------------------------------------------

LEAST_NEED_SHARE: Final = 0.1
"""How often a member that needs no other place looks for one, as a part of the common share."""


def need_share(own: int, parent: int | None, events: int, share: float) -> float:
    """How probably a class root looks for another place: by what it receives in vain.

    That is the share of the sample's events that its parent matches and it does not, since it is
    contained in the parent. Who receives next to nothing in vain looks too, but rarely.

    >>> need_share(10, 60, 100, 0.1), need_share(10, None, 100, 0.1), need_share(9, 9, 100, 0.1)
    (0.5, 0.9, 0.010000000000000002)

    Args:
        own: events that it matches.
        parent: events that its parent matches; None at the top level, where all events come.
        events: of the sample; none let everybody look with the common share.
        share: the common share.
    """
    if not events:
        return share
    in_vain = (events if parent is None else parent) - own
    return max(in_vain / events, LEAST_NEED_SHARE * share)


# --- the way of an event -------------------------------------------------------------------------


def route(shape: TreeShape, publisher: int, matching: frozenset[int]) -> dict[int, Passage]:
    """How an event comes to each member that receives it, the publisher included."""
    passages = {publisher: Passage(-1, 0)}
    # A member, and whether the event still climbs when it comes there.
    arrived = [(publisher, True)]
    for member, is_climbing in arrived:
        came_from, edges = passages[member]
        for other, climbs in _forwards(shape, member, matching, is_climbing):
            if other != came_from:
                assert other not in passages, "an event comes to a member once"
                passages[other] = Passage(member, edges + 1)
                arrived.append((other, climbs))
    return passages


def _forwards(
    shape: TreeShape, member: int, matching: frozenset[int], is_climbing: bool
) -> Iterator[tuple[int, bool]]:
    """To whom a member passes an event on, and whether it climbs there."""
    is_matching = member in matching
    above, kind = shape.parents[member], shape.kinds[member]
    if kind is EdgeKind.TOP or (above >= 0 and (is_matching or is_climbing)):
        yield above, is_climbing and not is_matching and kind is not EdgeKind.TOP
    for other in shape.below[member]:
        if is_matching or shape.kinds[other] is EdgeKind.TOP:
            yield other, False


def predicted_receivers(
    shape: TreeShape, publisher: int, matching: frozenset[int]
) -> frozenset[int]:
    """The law: whom an event reaches, said without following it.

    A class matches as a whole. Of one that does not, only the root hears of the event, from the
    class above.
    """
    receivers = set(matching)
    for root in set(shape.roots):
        kind = shape.kinds[root]
        if kind is not EdgeKind.CHILD or shape.parents[root] in matching:
            receivers.add(root)
    climbed = publisher
    receivers.add(climbed)
    while climbed not in matching and shape.kinds[climbed] in (EdgeKind.CHILD, EdgeKind.EQUAL):
        climbed = shape.parents[climbed]
        receivers.add(climbed)
    return frozenset(receivers)
