"""The selectivity rule, with samples and what they tell going through bytes."""

import pytest

from overlays.containment.worlds import World
from peersub.events.envelope import Event
from peersub.filters.filter import Filter

PERIODS_MS = 40_000


def world_with_events(**settings):
    """Nodes that know of events only by what one of them has published."""
    world = World(7, through_wire=True, period_ms=5_000, **settings)
    for place, bound in enumerate((0, 2, 4)):
        world.subscribe(f"n{place}", f"s{place}", Filter(f"a > {bound}"))
    world.subscribe("n3", "half", Filter("b = 0"))
    for number in range(8):
        world.publish("n5", Event(f"x{number}", {"a": 5, "b": number % 2}))
    return world


def parent_of_leaf(world):
    (leaf,) = [each for each in world.members().values() if each.me.node == "n4"]
    return leaf.seat.up.peer.node


@pytest.mark.parametrize("reorganise", ["never", "local", "always", "sometimes", "periodic"])
@pytest.mark.parametrize(("rule", "expected"), [("depth", "n2"), ("selectivity", "n3")])
def test_all_candidates_count_the_same_events_whoever_published_them(rule, expected, reorganise):
    world = world_with_events(rule=rule, reorganise=reorganise)
    world.simulation.run_for(PERIODS_MS)
    world.subscribe("n4", "leaf", Filter("a > 4 AND b = 0"))
    assert parent_of_leaf(world) == expected
    world.check("n6", Event("e", {"a": 5, "b": 0}))


def test_samples_reach_every_node_that_has_a_member_or_a_link_to_one():
    world = world_with_events(rule="selectivity", reorganise="never")
    world.simulation.run_for(PERIODS_MS)
    assert {len(peer.sample) for peer in world.peers()} == {8}
    assert len({peer.sample.digest for peer in world.peers()}) == 1


def test_the_depth_rule_sends_no_samples():
    world = world_with_events(rule="depth", reorganise="never")
    world.simulation.run_for(PERIODS_MS)
    assert not [kind for kind in world.notes.sent if kind.startswith("Sample")]


@pytest.mark.parametrize("reorganise", ["periodic", "needed"])
def test_a_member_moves_when_events_show_another_parent_to_be_more_selective(reorganise):
    world = world_with_events(rule="selectivity", reorganise=reorganise, share=1.0)
    world.simulation.run_for(PERIODS_MS)
    world.subscribe("n4", "leaf", Filter("a > 4 AND b = 0"))
    assert parent_of_leaf(world) == "n3"
    for number in range(30):
        world.publish("n6", Event(f"y{number}", {"a": 1, "b": 0}))
    world.simulation.run_for(3 * PERIODS_MS)
    world.settle()
    assert parent_of_leaf(world) == "n2"
    world.check("n6", Event("e", {"a": 5, "b": 0}))
