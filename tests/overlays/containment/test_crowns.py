"""Two crowns in one place, and two trees that become one when a split heals."""

import pytest

from overlays.containment.worlds import QUIET_MS, SETTLE_MS, World
from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.containment.invariants import check_quiet
from peersub.overlays.containment.messages import Handed, Promote
from peersub.overlays.containment.peer import ContainmentPeer
from peersub.overlays.containment.seat import Above, Below
from peersub.overlays.containment.settings import ContainmentSettings
from peersub.overlays.containment.structure import EdgeKind
from peersub.overlays.core.causes import Start, Timer, TimerFired
from peersub.overlays.core.effects import Drop, Send
from peersub.overlays.core.identity import PeerId

NODES = 8
LEFT = ["n0", "n2", "n4", "n6"]
RIGHT = ["n1", "n3", "n5", "n7"]
NOTHING = TimerFired(Timer("test/nothing"))


def split_world(**settings):
    """A top level of eight members, one on each node, that is split in two halves."""
    world = World(NODES, reorganise="never", **settings)
    for number in range(NODES):
        world.subscribe(f"n{number}", f"s{number}", Filter(f"a = {number}"))
    world.simulation.partition([RIGHT])
    assert world.simulation.run_until_quiet(QUIET_MS, SETTLE_MS)
    return world


def side(world, nodes):
    return [peer for peer in world.peers() if peer.me.node in nodes]


def crown_of(peers):
    (crown,) = [
        member.me
        for peer in peers
        for member in peer.hosting.members.values()
        if member.seat.is_crown
    ]
    return crown


@pytest.mark.parametrize("top_degree", [1, 2, 4])
def test_each_side_of_a_split_is_a_tree_and_the_top_levels_merge_when_it_heals(top_degree):
    world = split_world(top_degree=top_degree)
    assert check_quiet(side(world, LEFT)) == check_quiet(side(world, RIGHT)) == []
    left, right = crown_of(side(world, LEFT)), crown_of(side(world, RIGHT))
    world.simulation.heal()
    world.settle()  # with the bounds on degrees, and all that members know of each other
    assert crown_of(world.peers()) == min(left, right)
    for number in range(NODES):
        world.check(f"n{(number + 3) % NODES}", Event(f"e{number}", {"a": number}))


def test_a_container_on_the_other_side_takes_the_top_level_members_that_it_contains():
    world = split_world()
    world.subscribe("n2", "wide", Filter("a >= 0 AND a < 8"), settle=False)
    world.simulation.run_for(10_000)
    world.simulation.heal()
    world.settle()
    (wide,) = [each for each in world.members().values() if each.seat.wanted.matches({"a": 0.5})]
    from_right = [each for each in world.members().values() if each.me.node in RIGHT]
    crown = crown_of(world.peers())
    assert [each.seat.up.kind for each in from_right] == [EdgeKind.CHILD] * len(from_right)
    assert {each.seat.up.peer for each in from_right} == {wide.me}
    assert crown.node in LEFT
    world.check("n7", Event("e", {"a": 3}))


def test_three_parts_become_one_tree():
    world = World(NODES, reorganise="never", top_degree=2)
    for number in range(NODES):
        world.subscribe(f"n{number}", f"s{number}", Filter(f"a = {number}"))
    world.simulation.partition([["n1", "n4", "n7"], ["n2", "n5"]])
    assert world.simulation.run_until_quiet(QUIET_MS, SETTLE_MS)
    world.simulation.heal()
    world.settle()
    for number in range(NODES):
        world.check(f"n{number}", Event(f"e{number}", {"a": (number + 1) % NODES}))


def test_what_is_published_during_a_split_reaches_all_of_that_side_and_is_not_sent_again():
    """The promise is best effort: who was cut off then misses it. Chord replays, this does not."""
    world = split_world()
    for node in ("n0", "n1"):
        world.subscribe(node, f"all-{node}", Filter("a IS NOT NULL"), settle=False)
    assert world.simulation.run_until_quiet(QUIET_MS, SETTLE_MS)
    world.publish("n2", Event("during", {"a": 6}))
    assert sorted(world.notes.got["during"]) == ["all-n0", "s6"]
    world.simulation.heal()
    world.settle()
    assert sorted(world.notes.got["during"]) == ["all-n0", "s6"]
    world.check("n3", Event("after", {"a": 6}))


def test_parts_that_lost_their_crown_nodes_during_the_split_merge_all_the_same():
    """Whoever remembered the other side may be gone: what it knew was passed on or is known."""
    world = split_world(top_degree=1)
    world.simulation.crash([crown_of(side(world, LEFT)).node])
    world.simulation.leave(crown_of(side(world, RIGHT)).node)
    assert world.simulation.run_until_quiet(QUIET_MS, SETTLE_MS)
    world.simulation.heal()
    world.settle()
    living = {peer.me.node for peer in world.peers()}
    assert len(living) == NODES - 2
    for number in range(NODES):
        world.check(min(living), Event(f"e{number}", {"a": number}))


def test_two_members_of_one_node_that_became_crowns_at_once_find_each_other():
    world = World(1)
    world.subscribe("n0", "s", Filter("a > 0"))
    (peer,) = world.peers()
    peer.keeper.seat.become_crown()  # its member is the crown already
    world.simulation.cause("n0", NOTHING)
    world.settle()
    world.check("n0", Event("e", {"a": 1}))


@pytest.mark.parametrize(("wanted", "is_named"), [(None, False), (Filter("a > 0"), True)])
def test_a_keeper_makes_members_the_crown_and_never_another_keeper(wanted, is_named):
    peer = ContainmentPeer(PeerId("n0", 0), ContainmentSettings(), seed=1)
    peer.handle(Start(), 0)
    other = PeerId("n1", 0, 1)
    peer.hosting.adopt(other._replace(slot=0))
    peer.keeper.seat.add_below(other, EdgeKind.TOP, wanted, 1)
    peer.keeper.crown.give_up()
    sent = [
        message
        for effect in peer.handle(NOTHING, 0)
        if isinstance(effect, Send)
        for message in effect.messages
    ]
    assert any(isinstance(message, Promote) for message in sent) == is_named


def test_two_that_leave_and_stand_below_each_other_hand_nobody_over_without_end():
    """The crown has made another one the crown, and its own edge from before is still there."""
    peer = ContainmentPeer(PeerId("n0", 0), ContainmentSettings(), seed=1)
    crown, former = (peer._new_member(Filter(f"{name} > 0")) for name in "ab")
    crown.seat.is_crown = True
    crown.seat.down[former.me] = Below(EdgeKind.TOP, former.seat.wanted)
    former.seat.up = Above(crown.me, EdgeKind.TOP, crown.seat.wanted, 1)
    former.seat.down[crown.me] = Below(EdgeKind.TOP, crown.seat.wanted)
    crown.seat.is_leaving = former.seat.is_leaving = True
    peer.send(crown.me, Handed(crown.me.slot, former.me.slot, PeerId("n1", 0, 2)))
    assert not any(isinstance(effect, Drop) for effect in peer.handle(NOTHING, 0))
