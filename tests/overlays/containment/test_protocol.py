"""Joins, moves, leave and repair, each on a small network under a virtual clock."""

import pytest

from overlays.containment.worlds import World
from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.containment.building import Building, BuildSettings
from peersub.overlays.containment.invariants import check_quiet
from peersub.overlays.containment.structure import Classes, EdgeKind, canonical_shape
from peersub.overlays.containment.structure import Member as PlacedMember
from peersub.simulator.content import WorkloadChoice, content_for
from peersub.simulator.running import run_scenario
from peersub.simulator.scenario import Scenario

NODES = 5


def joined(seed, count, **settings):
    """Filters that joined one after the other, each when all was quiet."""
    content = content_for(WorkloadChoice(values=6, xpath_share=0.3), seed, count)
    world = World(NODES, seed, **settings)
    filters = []
    for number in range(count):
        name, wanted = content.subscription(number)
        taken = {peer.me.node for peer in world.peers() if wanted.digest in peer._of_filter}
        node = next((f"n{n}" for n in range(NODES) if f"n{n}" not in taken), None)
        if node is None:
            continue
        filters.append(wanted)
        world.subscribe(node, name, wanted)
    return world, filters


def parents_by_digest(world):
    """Of each class, by the digests of all its members, the digests of the one above it."""
    members = world.members()
    found = {}
    for address, member in members.items():
        up = member.seat.up
        if up is None or up.kind is not EdgeKind.EQUAL:
            above = members[up.peer] if up is not None and up.kind is EdgeKind.CHILD else None
            found[_class_of(world, address)] = None if above is None else _class_of(world, above.me)
    return found


def _class_of(world, address):
    members = world.members()
    digests = {members[address].seat.wanted.digest}
    ahead = [address]
    for each in ahead:
        for below in members[each].seat.below(EdgeKind.EQUAL):
            digests.add(members[below].seat.wanted.digest)
            ahead.append(below)
    return frozenset(digests)


@pytest.mark.parametrize("ties", ["children", "digest"])
@pytest.mark.parametrize("seed", range(3))
def test_sequential_joins_give_the_tree_of_the_model(seed, ties):
    world, filters = joined(seed, 14, reorganise="never", ties=ties)
    classes = Classes.among(filters)
    model = Building(classes, BuildSettings(reorganisation="never", ties=ties))
    model.grow(len(filters))
    members = [set() for _ in classes.filters]
    for wanted, number in zip(filters, classes.of, strict=True):
        members[number].add(wanted.digest)
    named = [frozenset(each) for each in members]
    expected = {
        named[number]: None if above < 0 else named[above]
        for number, above in enumerate(model.parents)
    }
    assert parents_by_digest(world) == expected


@pytest.mark.parametrize("seed", range(3))
def test_always_ends_with_the_canonical_tree(seed):
    """Section 4.1: each has its deepest container, and the tree is as deep as the longest chain."""
    world, filters = joined(seed, 14, reorganise="always", ties="digest")
    placed = [PlacedMember(f"n{place}", 1, wanted) for place, wanted in enumerate(filters)]
    shape = canonical_shape(placed)
    named = {}
    for place, root in enumerate(shape.roots):
        named.setdefault(root, set()).add(filters[place].digest)
    expected = {
        frozenset(digests): frozenset(named[shape.roots[shape.parents[root]]])
        if shape.kinds[root] is EdgeKind.CHILD
        else None
        for root, digests in named.items()
    }
    assert parents_by_digest(world) == expected


def test_a_start_that_is_converged_keeps_all_invariants_and_stays_as_it_is():
    scenario = Scenario.from_toml(
        """
        overlay = "containment"
        nodes = 20
        seed = 5
        start = "converged"
        subscriptions = 60
        """
    )
    outcome = run_scenario(scenario)
    assert outcome.violations == []
    peers = [host.overlay for host in outcome.simulation.living()]
    assert check_quiet(peers) == []


def test_classes_are_trees_of_bounded_degree():
    world = World(8, equal_degree=2, reorganise="never")
    for number in range(8):
        world.subscribe(f"n{number}", f"s{number}", Filter("a > 1"))
    below = [len(m.seat.below(EdgeKind.EQUAL)) for m in world.members().values()]
    assert sorted(below) == [0, 0, 0, 0, 1, 2, 2, 2]
    world.check("n3", Event("e", {"a": 2}))


def chain(world, *bounds):
    """`a > bound` for each, on nodes of their own: each below the one before it."""
    for place, bound in enumerate(bounds):
        world.subscribe(f"n{place}", f"s{bound}", Filter(f"a > {bound}"))


def up_of(world, node):
    (member,) = [m for m in world.members().values() if m.me.node == node]
    return member.seat.up


def test_a_leaf_of_the_class_takes_the_place_of_one_that_leaves():
    world = World(6, equal_degree=1, reorganise="never")
    world.subscribe("n0", "top", Filter("a > 0"))
    for node in ("n1", "n2", "n3"):
        world.subscribe(node, f"s-{node}", Filter("a > 5"))
    world.subscribe("n4", "child", Filter("a > 9"))
    world.unsubscribe("n1", "s-n1")
    world.settle()
    # n3 was the leaf: now it is the root of the class, above the other and the child.
    assert up_of(world, "n3").peer.node == "n0"
    assert up_of(world, "n3").kind is EdgeKind.CHILD
    assert up_of(world, "n2").peer.node == "n3"
    assert up_of(world, "n4").peer.node == "n3"
    world.check("n5", Event("e", {"a": 10}))


def test_children_of_one_that_leaves_go_to_their_grandparent_and_miss_nothing():
    world = World(5, reorganise="never")
    chain(world, 0, 2, 4, 6)
    world.unsubscribe("n1", "s2")
    for number in range(60):
        world.simulation.run_for(100)
        world.publish("n0", Event(f"e{number}", {"a": 9}))
    world.settle()
    assert up_of(world, "n2").peer.node == "n0"
    for number in range(60):
        assert sorted(world.notes.got[f"e{number}"]) == ["s0", "s4", "s6"]


@pytest.mark.parametrize(
    ("crashed", "orphan", "found"),
    [(["n2"], "n3", "n1"), (["n1", "n2"], "n3", "n0"), (["n0"], "n1", None)],
)
def test_who_loses_those_above_asks_the_nearest_ancestor_that_lives(crashed, orphan, found):
    world = World(6, reorganise="never", ancestors=3)
    chain(world, 0, 2, 4, 6, 8)
    before = world.notes.sent.get("Probe", 0)
    world.simulation.crash(crashed)
    world.settle()
    up = up_of(world, orphan)
    assert (None if up is None else up.peer.node) == found
    # Confined to the part below the ancestor: nobody else was asked.
    assert world.notes.sent.get("Probe", 0) - before <= len(crashed)
    world.check("n5", Event("e", {"a": 9}))


def test_the_first_heir_takes_the_place_of_a_crown_that_crashes():
    world = World(6, reorganise="never")
    for number in range(5):
        world.subscribe(f"n{number}", f"s{number}", Filter(f"a = {number}"))
    world.simulation.crash(["n0"])
    world.settle()
    (crown,) = [m for m in world.members().values() if m.seat.is_crown]
    assert crown.me.node == "n1"
    world.check("n5", Event("e", {"a": 3}))


def test_two_halves_of_a_partition_become_one_tree_and_containers_take_the_contained():
    world = World(6, reorganise="never")
    for number in range(6):
        world.subscribe(f"n{number}", f"s{number}", Filter(f"a = {number} OR b > {number}"))
    world.simulation.partition([["n1", "n3", "n5"]])
    world.simulation.run_for(20_000)
    world.subscribe("n0", "wide", Filter("a > 0 OR b IS NOT NULL"), settle=False)
    world.simulation.run_for(20_000)
    world.simulation.heal()
    world.settle()
    assert len([m for m in world.members().values() if m.seat.is_crown]) == 1
    for number in range(6):
        world.check(f"n{number}", Event(f"e{number}", {"a": number, "b": number}))


@pytest.mark.parametrize("reorganise", ["local", "always"])
def test_a_newcomer_between_two_takes_the_contained_from_its_parent(reorganise):
    """Figure 2 of the paper."""
    world = World(5, reorganise=reorganise)
    chain(world, 0, 9)
    assert up_of(world, "n1").peer.node == "n0"
    world.subscribe("n2", "between", Filter("a > 5"))
    assert up_of(world, "n2").peer.node == "n0"
    assert up_of(world, "n1").peer.node == "n2"


@pytest.mark.parametrize("reorganise", ["local", "always", "periodic"])
def test_a_crown_goes_below_a_newcomer_that_contains_it(reorganise):
    world = World(5, reorganise=reorganise, period_ms=5_000, share=1.0)
    world.subscribe("n0", "narrow", Filter("a > 9"))
    world.subscribe("n1", "other", Filter("b = 1"))
    world.subscribe("n2", "wide", Filter("a > 0"))
    world.simulation.run_for(60_000)
    world.settle()
    assert up_of(world, "n0").peer.node == "n2"
    assert up_of(world, "n0").kind is EdgeKind.CHILD
    world.check("n4", Event("e", {"a": 10}))


def test_never_leaves_the_contained_where_they_are():
    world = World(4, reorganise="never")
    chain(world, 9, 5)
    assert up_of(world, "n1").kind is EdgeKind.TOP


def test_the_selectivity_rule_prefers_who_matches_fewer_events_of_the_sample():
    events = [Event(f"x{number}", {"a": 5, "b": number % 2}) for number in range(8)]
    for rule, expected in (("depth", "n2"), ("selectivity", "n3")):
        world = World(6, rule=rule, reorganise="never")
        for peer in world.peers():
            for event in events:
                from peersub.overlays.core.publication import Publication

                peer.sample.add(Publication.of(event))
        chain(world, 0, 2, 4)  # the third is the deepest; all of the sample match it
        world.subscribe("n3", "half", Filter("b = 0"))
        world.subscribe("n4", "leaf", Filter("a > 4 AND b = 0"))
        assert up_of(world, "n4").peer.node == expected


def test_equal_filters_of_one_node_share_a_member_until_the_last_ends():
    world = World(2)
    world.subscribe("n1", "s1", Filter("a > 1"))
    world.subscribe("n1", "s2", Filter("NOT (a <= 1) AND a > 1"))
    assert len(world.members()) == 1
    world.unsubscribe("n1", "s1")
    world.settle()
    world.check("n0", Event("e", {"a": 2}))
    world.unsubscribe("n1", "s2")
    world.settle()
    assert world.members() == {}


def test_a_confined_join_asks_only_the_part_below_the_one_it_asks():
    """Joins can be confined to a subtree: here that of the node's own member."""
    asked = {}
    for confine in (False, True):
        world = World(8, confine=confine, reorganise="never")
        world.subscribe("n0", "wide", Filter("a > 0"))
        for number in range(1, 6):
            world.subscribe(f"n{number}", f"s{number}", Filter(f"b = {number}"))
        before = world.notes.sent.get("Probe", 0)
        world.subscribe("n0", "mine", Filter("a > 3"))
        asked[confine] = world.notes.sent.get("Probe", 0) - before
        world.check("n7", Event("e", {"a": 4}))
    assert asked[True] == 0 < asked[False]
