"""Who receives an event: exactly those whom the law names, each once, with and without lists."""

import pytest

from overlays.containment.worlds import World
from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.containment.structure import EdgeKind
from peersub.simulator.content import WorkloadChoice, content_for

NODES = 6
SUBSCRIPTIONS = 16
EVENTS = 10


def grown(seed, *, subscriptions=SUBSCRIPTIONS, **settings):
    """A network with subscriptions of all nodes but the last, made at once."""
    choice = WorkloadChoice(values=5, xpath_share=0.3)
    content = content_for(choice, seed, subscriptions)
    world = World(NODES, seed, **settings)
    for number in range(subscriptions):
        name, wanted = content.subscription(number)
        world.subscribe(f"n{number % (NODES - 1)}", name, wanted, settle=False)
    world.settle()
    return world, content


@pytest.mark.parametrize("sibling_threshold", [0, 1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_receivers_are_those_of_the_law_each_once(seed, sibling_threshold):
    world, content = grown(seed, sibling_threshold=sibling_threshold, reorganise="never")
    for number in range(EVENTS):
        world.check(f"n{number % NODES}", content.event(number))


@pytest.mark.parametrize("reorganise", ["local", "always", "periodic", "sometimes"])
@pytest.mark.parametrize("rule", ["depth", "selectivity"])
def test_reorganised_trees_keep_the_law(rule, reorganise):
    world, content = grown(
        7, rule=rule, reorganise=reorganise, share=0.5, period_ms=9_000, sibling_threshold=2
    )
    # Long enough for all to have looked for a better place, and to have found none.
    world.simulation.run_for(200_000)
    world.settle()
    for number in range(EVENTS):
        world.check(f"n{number % NODES}", content.event(number))


def nested(threshold):
    """`a > 0`, ten classes below it, one of them with an equivalent member, and another top."""
    world = World(4, sibling_threshold=threshold, reorganise="never")
    world.subscribe("n0", "all", Filter("a > 0"))
    world.subscribe("n1", "equal", Filter("NOT a <= 0 AND a IS NOT NULL"))
    for number in range(10):
        world.subscribe(f"n{number % 3}", f"s{number}", Filter(f"a > 0 AND b = {number}"))
    world.subscribe("n1", "again", Filter("b IN (3) AND a > 0"))
    world.subscribe("n2", "other", Filter("c = 1"))
    return world


def member_of(world, name):
    for peer in world.peers():
        if name in peer.home.subscriptions:
            return peer._of_filter[peer.home.subscriptions[name].digest]
    raise AssertionError(name)


def test_equal_members_and_lists_are_where_they_are_meant_to_be():
    world = nested(4)
    parent = member_of(world, "all")
    assert len(parent.seat.below(EdgeKind.CHILD)) == 10
    assert member_of(world, "equal").seat.up.kind is EdgeKind.EQUAL
    assert parent.siblings.has_list
    assert not nested(10).members()[parent.me].siblings.has_list


@pytest.mark.parametrize("threshold", [0, 4])
def test_what_a_child_publishes_reaches_the_equals_of_its_parent(threshold):
    """Hole (a): UP must serve the equivalence tree as well."""
    world = nested(threshold)
    for number in range(10):
        world.check(f"n{number % 3}", Event(f"e{number}", {"a": 1, "b": number}))
    assert all("equal" in world.notes.got[f"e{number}"] for number in range(10))


def test_siblings_behind_one_that_was_climbed_over_get_the_event():
    """Hole (b): who has seen an event passes it along its list all the same."""
    world = World(5, sibling_threshold=2, reorganise="never")
    world.subscribe("n0", "all", Filter("a > 0"))
    for number in range(1, 5):
        # Each on a node of its own: the publisher's only member does not match.
        world.subscribe(f"n{number}", f"s{number}", Filter(f"a > 0 AND b = {number}"))
    for number in range(1, 5):
        for other in range(1, 5):
            event = Event(f"e{number}-{other}", {"a": 1, "b": other})
            world.publish(f"n{number}", event)
            assert sorted(world.notes.got[event.id]) == ["all", f"s{other}"]
            assert len(world.received(event.id)) == 5


def test_an_event_that_nobody_wants_stays_at_the_top_level():
    """Corrections 1 and 2: it goes over all of the top level, and to whom it climbs over."""
    world = World(4, top_degree=1, reorganise="never")
    for number in range(4):
        world.subscribe(f"n{number}", f"s{number}", Filter(f"a = {number}"))
    world.subscribe("n0", "below", Filter("a = 2 AND b = 1"))
    event = Event("e", {"a": 7})
    world.check("n3", event)
    assert len(world.received("e")) == 4
    world.check("n3", Event("f", {"a": 0}))
    world.check("n0", Event("g", {"a": 3}))


def test_a_publisher_without_subscriptions_reaches_all():
    world, content = grown(3)
    for number in range(EVENTS):
        event = content.event(number)
        world.check(f"n{NODES - 1}", event)


def test_a_list_costs_a_parent_one_message_for_all_children():
    world = nested(4)
    parent = member_of(world, "all")
    before = world.notes.sent.get("Forwarded", 0)
    world.publish("n3", Event("x", {"a": 1, "b": 77}))
    with_list = world.notes.sent["Forwarded"] - before
    assert len(world.received("x")) == 13
    assert parent.siblings.has_list
    assert with_list <= 14
