"""The structure of the containment tree, against brute force and against naive twins."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peersub.filters.filter import Filter
from peersub.overlays.containment.structure import (
    EdgeKind,
    Member,
    TreeShape,
    canonical_parents,
    canonical_shape,
    contains,
    level_in_bounded_tree,
    place_above,
    predicted_receivers,
    proven_containers,
    route,
)

STEPS = ("a", "b", "*")
patterns = st.lists(
    st.tuples(st.sampled_from(("/", "//")), st.sampled_from(STEPS), st.sampled_from(("", "[b]"))),
    min_size=1,
    max_size=3,
).map(lambda steps: Filter.xpath("".join("".join(step) for step in steps)))
ranges = st.tuples(st.integers(0, 6), st.integers(0, 6), st.sampled_from("xy")).map(
    lambda drawn: Filter(f"{drawn[2]} >= {min(drawn[:2])} AND {drawn[2]} <= {max(drawn[:2])}")
)
unions = st.lists(ranges, min_size=1, max_size=2).map(
    lambda parts: Filter(" OR ".join(f"({part.text})" for part in parts))
)
wishes = st.one_of(patterns, ranges, unions, st.sampled_from([Filter("TRUE"), Filter("FALSE")]))
member_lists = st.lists(st.tuples(st.integers(0, 9), wishes), min_size=1, max_size=25).map(
    lambda drawn: [Member(f"n{node}", slot, wanted) for slot, (node, wanted) in enumerate(drawn, 1)]
)
events: list[object] = [
    *({"x": x, "y": y} for x in range(0, 7, 2) for y in range(0, 7, 3)),
    *({"x": x} for x in range(7)),
    *("<a/>", "<b/>", "<a><b/></a>", "<b><a><b/></a></b>", "<a><a><b/><c><b/></c></a></a>"),
]


# --- bounded trees -------------------------------------------------------------------------------


class PassingMember:
    """Rule of bounded trees, one member at a time."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.below: list[PassingMember] = []
        self.passed_on = 0

    def take(self, newcomer: PassingMember, degree: int) -> tuple[int, int]:
        if len(self.below) < degree:
            self.below.append(newcomer)
            return self.number, 1
        child = self.below[self.passed_on % degree]
        self.passed_on += 1
        above, level = child.take(newcomer, degree)
        return above, level + 1


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 7])
def test_places_in_a_bounded_tree_are_those_of_passing_on(degree: int) -> None:
    root = PassingMember(0)
    for number in range(1, 200):
        above, level = root.take(PassingMember(number), degree)
        assert place_above(number, degree) == above
        assert level_in_bounded_tree(number, degree) == level


# --- proofs --------------------------------------------------------------------------------------


@given(st.lists(wishes, max_size=30, unique_by=lambda wanted: wanted.digest))
def test_proven_containers_are_those_of_all_pairs(filters: list[Filter]) -> None:
    naive = [
        [other for other, one in enumerate(filters) if other != number and contains(one, wanted)]
        for number, wanted in enumerate(filters)
    ]
    bits = [
        sum(1 << place for place, event in enumerate(events) if wanted.matches(event))  # type: ignore[arg-type]
        for wanted in filters
    ]
    assert proven_containers(filters) == naive
    assert proven_containers(filters, bits) == naive


def test_homomorphism_proves_less_than_distances() -> None:
    one, other = Filter.xpath("/a/*/*"), Filter.xpath("/a//b/c")
    assert one.covers(other)
    assert not contains(one, other)


# --- parents -------------------------------------------------------------------------------------

orders = st.integers(1, 9).flatmap(
    lambda count: st.lists(
        st.frozensets(st.integers(0, 5), max_size=4), min_size=count, max_size=count, unique=True
    )
)
"""Sets, of which a larger one is the more special: strict inclusion is their order."""


def containers_of(sets: list[frozenset[int]]) -> list[list[int]]:
    return [[other for other, one in enumerate(sets) if one < own] for own in sets]


def longest_chain(sets: list[frozenset[int]], last: frozenset[int]) -> int:
    return 1 + max((longest_chain(sets, one) for one in sets if one < last), default=0)


@given(orders)
def test_by_the_rule_of_depth_depth_is_the_longest_chain(sets: list[frozenset[int]]) -> None:
    digests = [bytes([number]) for number in range(len(sets))]
    parents, depths = canonical_parents(containers_of(sets), digests)
    assert depths == [longest_chain(sets, one) for one in sets]
    for number, parent in enumerate(parents):
        above = containers_of(sets)[number]
        assert (parent == -1) == (not above)
        if above:
            deepest = max(depths[each] for each in above)
            assert parent == min(each for each in above if depths[each] == deepest)


@given(orders, st.data())
def test_every_class_has_its_best_parent(sets: list[frozenset[int]], data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(0, 3), min_size=len(sets), max_size=len(sets)))
    digests = [bytes([200 - number]) for number in range(len(sets))]
    containers = containers_of(sets)
    parents, depths = canonical_parents(containers, digests, counts)
    for number, parent in enumerate(parents):
        if containers[number]:
            keys = [(counts[each], -depths[each], digests[each]) for each in containers[number]]
            assert (counts[parent], -depths[parent], digests[parent]) == min(keys)
            assert depths[number] == depths[parent] + 1
        else:
            assert (parent, depths[number]) == (-1, 1)


def test_a_circle_of_proofs_gives_no_circle_of_parents() -> None:
    parents, _ = canonical_parents([[2], [0], [1]], [b"a", b"b", b"c"])
    assert sorted(parents) != [0, 1, 2]
    for number in range(3):
        seen = {number}
        while parents[number] >= 0:
            number = parents[number]
            assert number not in seen
            seen.add(number)


# --- the whole tree ------------------------------------------------------------------------------


def crown_of(shape: TreeShape) -> int:
    (crown,) = (number for number, above in enumerate(shape.parents) if above < 0)
    return crown


@given(member_lists, st.sampled_from(["depth", "selectivity"]), st.integers(1, 3))
def test_the_invariants_of_the_canonical_tree(
    members: list[Member], rule: str, degree: int
) -> None:
    shape = canonical_shape(
        members,
        rule=rule,  # type: ignore[arg-type]
        count=lambda wanted: sum(map(wanted.matches, events)),  # type: ignore[arg-type]
        equal_degree=degree,
        top_degree=degree,
    )
    crown = crown_of(shape)
    for number, member in enumerate(members):
        above, kind, root = shape.parents[number], shape.kinds[number], shape.roots[number]
        assert shape.roots[root] == root
        assert contains(members[root].wanted, member.wanted)
        assert contains(member.wanted, members[root].wanted)
        assert (kind is EdgeKind.EQUAL) == (root != number)
        assert (kind is EdgeKind.CROWN) == (number == crown)
        if kind is EdgeKind.CHILD:
            assert contains(members[above].wanted, member.wanted)
            assert not contains(member.wanted, members[above].wanted)
            assert shape.roots[above] == above
        for of_kind in (EdgeKind.EQUAL, EdgeKind.TOP):
            of_this = [each for each in shape.below[number] if shape.kinds[each] is of_kind]
            assert len(of_this) <= degree
        steps = 0
        while number != crown:
            number, steps = shape.parents[number], steps + 1
            assert steps <= len(members)
    assert sorted(each for below in shape.below for each in below) == sorted(
        set(range(len(members))) - {crown}
    )


def test_the_canonical_tree_does_not_depend_on_the_order_of_members() -> None:
    texts = ["/a", "/a/b", "//b", "/a", "/a/b[c]"]
    members = [Member(f"n{n}", 1, Filter.xpath(text)) for n, text in enumerate(texts)]
    trees = set()
    for order in permutations(members):
        shape = canonical_shape(order)
        trees.add(
            frozenset(
                (order[n].node, order[above].node if above >= 0 else "", shape.kinds[n])
                for n, above in enumerate(shape.parents)
            )
        )
    assert len(trees) == 1


def test_selectivity_needs_counts() -> None:
    with pytest.raises(ValueError, match="needs counts"):
        canonical_shape([Member("n0", 1, Filter("x > 1"))], rule="selectivity")


@given(member_lists, st.data())
def test_events_reach_whom_the_law_says(members: list[Member], data: st.DataObject) -> None:
    shape = canonical_shape(members, equal_degree=2, top_degree=2)
    event = data.draw(st.sampled_from(events))
    matching = frozenset(
        number
        for number, member in enumerate(members)
        if member.wanted.matches(event)  # type: ignore[arg-type]
    )
    publisher = data.draw(st.integers(0, len(members) - 1))
    found = route(shape, publisher, matching)
    assert matching <= found.keys()
    assert found.keys() == predicted_receivers(shape, publisher, matching)
    for number, (sender, edges) in found.items():
        if number == publisher:
            assert (sender, edges) == (-1, 0)
        else:
            assert edges == found[sender].edges + 1
            assert shape.parents[number] == sender or shape.parents[sender] == number


def test_an_event_climbs_from_a_publisher_that_does_not_match() -> None:
    texts = ["/a", "/a/b", "/a/b/c", "/a/d"]
    members = [Member(f"n{n}", 1, Filter.xpath(text)) for n, text in enumerate(texts)]
    shape = canonical_shape(members)
    matching = frozenset({0})
    assert route(shape, 0, matching).keys() == {0, 1, 3}
    assert route(shape, 2, matching).keys() == {0, 1, 2, 3}
    assert route(shape, 2, frozenset()).keys() == {0, 1, 2}
