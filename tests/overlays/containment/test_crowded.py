"""Members that many come to at once: a grandparent that takes the children of one that is gone."""

import pytest

from overlays.containment.worlds import World
from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.containment.structure import EdgeKind
from peersub.overlays.core.effects import Send
from peersub.overlays.core.link_messages import unwrapped
from peersub.trace.schema import Step

CHILDREN = 12
NODES = 7


def family(**settings):
    """A grandparent with children of its own, a parent with as many, on other nodes."""
    world = World(NODES, reorganise="never", **settings)
    world.subscribe("n0", "grandparent", Filter("a IS NOT NULL"))
    world.subscribe("n1", "parent", Filter("a >= 100"))
    for number in range(CHILDREN):
        node = f"n{2 + number % (NODES - 2)}"
        world.subscribe(node, f"own{number}", Filter(f"a = {number}"), settle=False)
        world.subscribe(node, f"of-parent{number}", Filter(f"a = {100 + number}"), settle=False)
    world.settle()
    return world


def member_of(world, node):
    (member,) = [each for each in world.members().values() if each.me.node == node]
    return member


def go(world, how):
    if how == "crash":
        world.simulation.crash(["n1"])
    elif how == "leave":
        world.simulation.leave("n1")
    else:
        world.unsubscribe("n1", "parent")
    world.settle()


@pytest.mark.parametrize("threshold", [0, 4])
@pytest.mark.parametrize("how", ["crash", "leave", "unsubscribe"])
def test_a_grandparent_takes_all_children_of_one_that_is_gone_however_many_it_has(how, threshold):
    world = family(sibling_threshold=threshold)
    assert len(member_of(world, "n1").seat.below(EdgeKind.CHILD)) == CHILDREN
    probes = world.notes.sent.get("Probe", 0)
    go(world, how)
    grandparent = member_of(world, "n0")
    assert len(grandparent.seat.below(EdgeKind.CHILD)) == 2 * CHILDREN
    # Each asks only the grandparent, and that only those right below it.
    assert world.notes.sent.get("Probe", 0) - probes <= CHILDREN * (2 * CHILDREN + 1)
    for number in (0, 5, 100, 111):
        world.check("n0", Event(f"e{number}", {"a": number}))


def test_a_grandparent_with_too_many_children_gives_events_to_one_of_them():
    world = family(sibling_threshold=4)
    go(world, "crash")
    assert member_of(world, "n0").siblings.has_list
    sent = []

    class FromTheGrandparent:
        def observe(self, record):
            if isinstance(record, Step) and record.node == "n0":
                sent.extend(
                    effect.peer
                    for effect in record.effects
                    if isinstance(effect, Send)
                    for message in effect.messages
                    if type(unwrapped(message)).__name__ == "Forwarded"
                )

    world.simulation._observers += (FromTheGrandparent(),)
    world.check("n0", Event("e", {"a": 103}))
    assert len(sent) == 1


def test_children_of_a_class_root_go_to_its_heir_when_the_class_is_a_chain():
    """Degree 1: the class has no room beside its root, and the children come to the leaf."""
    world = World(NODES, reorganise="never", equal_degree=1, ancestors=1)
    world.subscribe("n0", "top", Filter("a IS NOT NULL"))
    for node in ("n1", "n2", "n3"):
        world.subscribe(node, f"class-{node}", Filter("a > 5"))
    for number in range(6):
        world.subscribe(f"n{4 + number % 3}", f"child{number}", Filter(f"a = {6 + number}"))
    world.simulation.crash(["n1"])
    world.settle()
    for number in range(6):
        world.check("n4", Event(f"e{number}", {"a": 6 + number}))


@pytest.mark.parametrize("crashed", [[], ["n1"], ["n1", "n2"]])
def test_keepers_that_one_member_has_no_room_for_stand_below_others(crashed):
    world = World(12, reorganise="never", visitors_max=2)
    world.subscribe("n0", "wide", Filter("a > 0"))
    for number in range(1, 4):
        world.subscribe(f"n{number}", f"s{number}", Filter(f"a > {number}"))
    for number in range(12, 20):
        world.simulation.join(f"n{number}", ["n0"])
    world.settle()
    world.simulation.crash(crashed)
    world.settle()
    assert all(peer.takes_part for peer in world.peers())
    world.check("n19", Event("e", {"a": 9}))


def test_newcomers_without_subscriptions_are_dealt_out_once_a_member_has_its_visitors():
    world = World(1, reorganise="never", visitors_max=2)
    world.subscribe("n0", "wide", Filter("a > 0"))
    world.subscribe("n0", "narrow", Filter("a > 1"))
    for number in range(1, 5):
        world.simulation.join(f"n{number}", ["n0"])
        world.settle()
    visitors = sorted(len(m.seat.below(EdgeKind.VISIT)) for m in world.members().values())
    assert visitors == [2, 3]  # five keepers; the last member of all takes whoever is left


def test_a_top_level_that_loses_its_middle_stays_within_its_degree():
    world = World(9, reorganise="never", top_degree=2, ancestors=1)
    for number in range(9):
        world.subscribe(f"n{number}", f"s{number}", Filter(f"a = {number}"))
    world.simulation.crash(["n1", "n2"])
    world.settle()
    assert max(len(m.seat.below(EdgeKind.TOP)) for m in world.members().values()) <= 2
    for number in range(9):
        world.check("n0", Event(f"e{number}", {"a": number}))
