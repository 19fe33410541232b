"""Newcomers whose contacts are gone, cut off, or newcomers themselves."""

from itertools import pairwise

import pytest

from overlays.containment.worlds import World
from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.containment.acquaintances import CONTACTS_MAX, Acquaintances, names_in
from peersub.overlays.containment.moving import Purpose
from peersub.overlays.containment.peer import ContainmentPeer
from peersub.overlays.containment.settings import ContainmentSettings
from peersub.overlays.containment.structure import EdgeKind
from peersub.overlays.core.causes import (
    ConnectFailed,
    Join,
    Leave,
    PeerConnected,
    Timer,
    TimerFired,
)
from peersub.overlays.core.effects import Connect, SetTimer
from peersub.overlays.core.identity import PeerId

NOBODY = "nobody"
"""A name that no node has."""
NOTHING = TimerFired(Timer("test/nothing"))


def world_of(nodes):
    world = World(nodes)
    world.subscribe("n0", "s0", Filter("a > 0"))
    return world


def takes_part(world, node):
    return world.simulation.hosts[node].overlay.takes_part


def crowns(world):
    return [
        member.me
        for peer in world.peers()
        for member in peer.hosting.members.values()
        if member.seat.is_crown
    ]


def test_a_newcomer_whose_contacts_are_gone_asks_whoever_asks_it():
    world = world_of(2)
    world.simulation.join("n2", [NOBODY])
    world.simulation.run_for(60_000)
    assert not takes_part(world, "n2")
    world.simulation.join("n3", ["n2", "n0"])
    world.settle()
    assert takes_part(world, "n2") and takes_part(world, "n3")
    world.check("n2", Event("e", {"a": 1}))


def test_a_refusal_names_nodes_that_may_know_more():
    """n2 cannot reach the only node that it was told of, but can tell n3 of it."""
    world = world_of(2)
    world.simulation.break_edges([("n2", "n0")])
    world.simulation.join("n2", ["n0"])
    world.simulation.run_for(5_000)
    world.simulation.join("n3", ["n2"])
    world.simulation.run_for(60_000)
    assert takes_part(world, "n3") and not takes_part(world, "n2")
    world.simulation.mend_edges()
    world.settle()
    assert takes_part(world, "n2")


def test_who_takes_leave_still_names_others_to_a_newcomer():
    """The newcomer's link may come up when the leaver has no place any more."""
    world = world_of(3)
    leaver = world.simulation.hosts["n2"].overlay
    leaver.handle(Leave(), world.simulation.now_ms)
    assert not leaver.takes_part
    assert "n0" in names_in(leaver.greeting())


def test_newcomers_that_know_only_each_other_begin_no_network_and_wait_for_one():
    """As in Chord: who is alone and who is cut off look alike, and two networks would be worse."""
    world = world_of(2)
    before = crowns(world)
    world.simulation.join("n2", ["n3"])
    world.simulation.join("n3", ["n2"])
    world.simulation.run_for(200_000)
    assert crowns(world) == before and not takes_part(world, "n2")
    world.simulation.join("n4", ["n3", "n0"])
    world.settle()
    assert takes_part(world, "n2") and takes_part(world, "n3")
    world.check("n3", Event("e", {"a": 1}))


def test_newcomers_that_a_split_cuts_off_join_the_one_tree_when_it_heals():
    world = world_of(3)
    world.simulation.join("n3", ["n0", "n4"])
    world.simulation.join("n4", ["n0", "n3"])
    world.simulation.partition([["n3", "n4"]])
    world.simulation.run_for(100_000)
    assert not takes_part(world, "n3") and not takes_part(world, "n4")
    world.simulation.heal()
    world.settle()
    assert len(crowns(world)) == 1
    world.check("n4", Event("e", {"a": 1}))


def test_a_greeting_names_nodes_before_anything_was_asked():
    """The contact crashes right after the first words on the link."""
    world = world_of(3)
    simulation = world.simulation
    simulation.join("n3", ["n1"])
    newcomer = simulation.hosts["n3"].overlay
    assert simulation.run_until(lambda: newcomer.hosting.is_linked("n1"), 1_000)
    assert not newcomer.takes_part
    simulation.crash(["n1"])
    world.settle()
    assert newcomer.takes_part


def test_a_newcomer_that_nobody_takes_asks_less_and_less_often_but_goes_on():
    """Pauses double up to 16 seconds."""
    peer = ContainmentPeer(PeerId("me", 0), ContainmentSettings(), seed=1)
    now_ms, asked_ms = 0, []
    cause = Join((NOBODY,))
    while now_ms < 200_000:
        effects = peer.handle(cause, now_ms)
        timers = [effect for effect in effects if isinstance(effect, SetTimer)]
        if Connect(NOBODY) in effects:
            asked_ms.append(now_ms)
            cause, now_ms = ConnectFailed(NOBODY, "nobody answers"), now_ms + 300
        else:
            cause, now_ms = TimerFired(timers[-1].timer), now_ms + timers[-1].delay_ms
    pauses_ms = [later - sooner - 300 for sooner, later in pairwise(asked_ms)]
    assert pauses_ms[:5] == [1_000, 2_000, 4_000, 8_000, 16_000]
    assert set(pauses_ms[5:]) == {16_000}


def test_contacts_that_were_named_are_asked_until_the_node_has_joined_however_many_it_hears_of():
    known = Acquaintances("me", ContainmentSettings())
    known.name(("given",))
    known.learn(f"n{number}" for number in range(2 * CONTACTS_MAX))
    assert known.keepers(is_joining=True)[0].node == "given"
    assert len(known.keepers(is_joining=True)) == CONTACTS_MAX + 1
    assert "given" not in [keeper.node for keeper in known.keepers(is_joining=False)]


def test_a_member_of_the_network_does_not_take_everybody_for_a_contact():
    peer = ContainmentPeer(PeerId("n0", 0), ContainmentSettings(), seed=1)
    peer.handle(PeerConnected(PeerId("early", 0), b"other"), 0)
    assert [keeper.node for keeper in peer.contacts()] == ["n0"]


@pytest.mark.parametrize("greeting", [b"", b"\n\n", b"\xff\xfe"])
def test_a_greeting_of_another_version_does_no_harm(greeting):
    assert [name for name in names_in(greeting) if not name] == []


def test_a_member_that_is_about_to_leave_the_top_level_says_so():
    """Else a network in which all wait for it would count as quiet."""
    world = World(3, reorganise="never")
    world.subscribe("n0", "narrow", Filter("a > 9"))
    world.subscribe("n1", "other", Filter("b = 1"))
    (member,) = [each for each in world.members().values() if each.me.node == "n0"]
    before = member.describe()["state"]
    member.moving.vacate()
    assert before != member.describe()["state"] == "vacating 0"


def test_one_that_comes_below_a_member_that_vacates_is_handed_over_as_well():
    """It was on its way before: who vacates asks again, and the time for it is not over."""
    world = World(5, reorganise="never")
    for number in range(4):
        world.subscribe(f"n{number}", f"s{number}", Filter(f"a = {number}"))
    world.subscribe("n4", "wide", Filter("a < 9"))
    place = {each.me.node: each for each in world.members().values()}
    crown, leaver, late = place["n0"], place["n1"], place["n2"]
    assert crown.seat.is_crown
    leaver.moving.vacate()
    late.moving.move_below(leaver.me, EdgeKind.TOP, Purpose.HANDED)
    leaver.seat.is_vacating = False  # as it was when it was asked
    world.simulation.cause("n2", NOTHING)
    world.simulation.run_for(100)
    assert late.me in leaver.seat.below(EdgeKind.TOP)
    leaver.seat.is_vacating = True
    world.settle()
    assert leaver.seat.up.kind is EdgeKind.CHILD and leaver.seat.up.peer.node == "n4"


def test_a_member_without_a_place_keeps_its_network_from_being_quiet():
    world = World(4, reorganise="never")
    world.subscribe("n0", "top", Filter("a > 0"))
    world.subscribe("n1", "below", Filter("a > 1"))
    world.subscribe("n2", "lowest", Filter("a > 2"))
    world.simulation.crash(["n0", "n1"])
    overlay = world.simulation.hosts["n2"].overlay
    assert world.simulation.run_until(lambda: overlay.is_mending, 1_000)
    assert "n2: a place" in world.simulation.obligations()
    world.settle()
    assert not overlay.is_mending
