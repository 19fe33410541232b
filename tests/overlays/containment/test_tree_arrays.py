"""The tree as arrays against the tree member by member."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlays.containment.test_structure import events, member_lists
from peersub.overlays.containment.structure import (
    Classes,
    Member,
    ParentRule,
    canonical_parents,
    canonical_shape,
    place_above,
    route,
)
from peersub.overlays.containment.tree_arrays import (
    TreeArrays,
    class_parents,
    places_above,
    seated,
)
from peersub.overlays.semantic.bulk_members import node_receipts, outcome_of
from strategies import examples


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 7])
def test_places_in_bounded_trees(degree: int) -> None:
    places = np.arange(300)
    expected = [-1] + [place_above(place, degree) for place in range(1, 300)]
    assert places_above(places, degree).tolist() == expected


relations = st.integers(1, 12).flatmap(
    lambda count: st.tuples(
        st.lists(
            st.sets(st.integers(0, count - 1), max_size=4).map(sorted),
            min_size=count,
            max_size=count,
        ),
        st.permutations(range(count)),
        st.one_of(st.none(), st.lists(st.integers(0, 3), min_size=count, max_size=count)),
    )
)


@examples(300)
@given(relations)
def test_parents_are_the_canonical_ones_also_where_proofs_are_not_transitive(
    drawn: tuple[list[list[int]], list[int], list[int] | None],
) -> None:
    containers, ranks, counts = drawn
    containers = [[each for each in some if each != own] for own, some in enumerate(containers)]
    digests = [bytes([rank]) for rank in ranks]
    expected = canonical_parents(containers, digests, counts)
    starts = np.cumsum([0, *map(len, containers)])
    found = class_parents(
        starts,
        np.array([each for some in containers for each in some], np.int64),
        np.array(ranks),
        None if counts is None else np.array(counts),
    )
    assert (found[0].tolist(), found[1].tolist()) == expected


def test_lists_that_are_cut_off_give_the_same_chain() -> None:
    """Of a chain of 50, each class knows the three that contain it most closely."""
    containers = [list(range(max(0, own - 3), own)) for own in range(50)]
    starts = np.cumsum([0, *map(len, containers)])
    flat = np.array([each for some in containers for each in some])
    ranks = np.random.default_rng(1).permutation(50)
    parents, depths = class_parents(starts, flat, ranks, is_complete=False)
    assert parents.tolist() == list(range(-1, 49))
    assert depths.tolist() == list(range(1, 51))


def test_circles_of_proofs_that_are_cut_off_end() -> None:
    starts, flat = np.array([0, 1, 2, 3, 3]), np.array([1, 2, 0])
    parents, _ = class_parents(starts, flat, np.arange(4), is_complete=False)
    assert parents.tolist() == [-1, 2, 0, -1]


def arrays_of(
    members: list[Member], rule: ParentRule, counts: list[int] | None
) -> tuple[TreeArrays, list[int], np.ndarray]:
    """The arrays, the members in their order, and where each lives."""
    order = sorted(range(len(members)), key=lambda each: members[each][:2])
    found = Classes.among([members[each].wanted for each in order])
    starts = np.cumsum([0, *map(len, found.containers)])
    flat = np.array([each for some in found.containers for each in some], np.int64)
    digests = sorted({wanted.digest for wanted in found.filters})
    ranks = np.array([digests.index(wanted.digest) for wanted in found.filters])
    chosen = None if counts is None else np.array(counts)
    parents, _ = class_parents(starts, flat, ranks, chosen)
    nodes = np.array([int(members[each].node[1:]) for each in order])
    tree = seated(nodes, np.array(found.of), parents, ranks, equal_degree=2, top_degree=3)
    return tree, order, nodes


@pytest.mark.parametrize("rule", ["depth", "selectivity"])
@examples(60)
@given(members=member_lists, data=st.data())
def test_ways_are_those_of_the_structure(
    rule: ParentRule, members: list[Member], data: st.DataObject
) -> None:
    def count(wanted: object) -> int:
        return sum(wanted.matches(event) for event in events)  # type: ignore[attr-defined]

    in_order = sorted(range(len(members)), key=lambda each: members[each][:2])
    filters = Classes.among([members[each].wanted for each in in_order]).filters
    counts = [count(wanted) for wanted in filters] if rule == "selectivity" else None
    tree, order, homes = arrays_of(members, rule, counts)
    shape = canonical_shape(members, rule=rule, count=count, equal_degree=2, top_degree=3)
    number_of = {member: number for number, member in enumerate(order)}
    above = [tree.above[tree.seats[number_of[member]]] for member in range(len(members))]
    assert [-1 if seat < 0 else order[tree.members[seat]] for seat in above] == list(shape.parents)
    kinds = [tree.kinds[tree.seats[number_of[member]]] for member in range(len(members))]
    assert kinds == list(shape.kinds)
    event = data.draw(st.sampled_from(events))
    publisher = data.draw(st.integers(0, len(members) - 1))
    hops = data.draw(st.integers(0, 1))
    matching = frozenset(
        number for number, member in enumerate(members) if member.wanted.matches(event)
    )
    expected = route(shape, publisher, matching)
    passages = tree.passages(
        number_of[publisher], hops, np.array([number_of[each] for each in matching], np.int64)
    )
    found = {
        order[member]: (order[sender] if sender >= 0 else -1)
        for member, sender in zip(passages.members, passages.senders, strict=True)
    }
    assert found == {member: passage.sender for member, passage in expected.items()}
    links = {publisher: hops}
    messages = {publisher: hops}
    for member, passage in expected.items():
        if passage.sender >= 0:
            messages[member] = int(members[member].node != members[passage.sender].node)
            links[member] = links[passage.sender] + messages[member]
    assert {
        order[member]: (each, some)
        for member, each, some in zip(
            passages.members, passages.hops, passages.messages, strict=True
        )
    } == {member: (links[member], messages[member]) for member in links}
    check_nodes(members, order, homes, publisher, links, messages, passages, found)
    outcome = outcome_of(
        passages, np.array([number_of[each] for each in matching], np.int64), len(members)
    )
    assert outcome.matching_receivers == outcome.matching == len(matching)
    assert outcome.receivers == len(expected)
    assert outcome.messages == sum(messages.values())


def check_nodes(members, order, homes, publisher, links, messages, passages, senders):  # type: ignore[no-untyped-def]
    # Who publishes at a hop's distance from the entry is a node of its own.
    own = int(members[publisher].node[1:]) if not links[publisher] else 10
    received = node_receipts(passages, homes, own, 11)
    nodes = {int(members[member].node[1:]) for member in links}
    assert received[0].tolist() == sorted(nodes | {own})
    for node, sender, hops, some in zip(*received, strict=True):
        there = [each for each in links if members[each].node == f"n{node}"]
        assert hops == (0 if node == own else min(links[each] for each in there))
        assert some == sum(messages[each] for each in there)
        first = min(
            (each for each in there if messages[each]),
            key=lambda each: (links[each], order.index(each)),
            default=-1,
        )
        if node == own:
            assert sender == -1
        else:
            above = senders[first]
            assert sender == (own if above < 0 else int(members[above].node[1:]))
