"""Doubts about links: told once, and taken back, or followed by the loss."""

from overlays.core.link_world import PLAIN, TUNNELLED, Toy, World
from peersub.overlays.core.causes import (
    PeerHeard,
    PeerInDoubt,
    PeerLost,
    PeerResumed,
    Timer,
    TimerFired,
)
from peersub.overlays.core.effects import Connect
from peersub.overlays.core.identity import PeerId

A, B, C = PeerId("a"), PeerId("b"), PeerId("c")


def full(settings=TUNNELLED) -> World:
    world = World(settings, "abc")
    world.link(("a", "b"), ("a", "c"), ("b", "c"))
    for toy in world.toys.values():
        toy.heard.clear()
    return world


def told(toy: Toy) -> list[object]:
    kinds = (PeerInDoubt, PeerHeard, PeerResumed, PeerLost)
    return [cause for cause in toy.heard if isinstance(cause, kinds)]


def test_a_silence_is_told_and_taken_back():
    for settings in (PLAIN, TUNNELLED):
        world = full(settings)
        connection = world.connection_of("a", "b")
        world.fall_silent(connection, "a")
        assert told(world.toys["a"]) == [PeerInDoubt(B)]
        world.be_heard(connection, "a")
        assert told(world.toys["a"]) == [PeerInDoubt(B), PeerHeard(B)]
        assert told(world.toys["b"]) == []


def test_a_link_without_a_path_is_in_doubt_until_there_is_one():
    world = full()
    world.block("a", "b")
    world.notice(world.connection_of("a", "b"), "a")
    assert told(world.toys["a"]) == [PeerInDoubt(B)]
    world.settle()
    assert told(world.toys["a"]) == [PeerInDoubt(B), PeerResumed(B)]


def test_who_is_not_found_is_lost():
    world = full()
    world.crash("b")
    world.settle()
    assert [type(cause) for cause in told(world.toys["a"])] == [PeerInDoubt, PeerLost]


def test_a_silent_relay_puts_all_it_carries_in_doubt():
    world = full()
    world.block("a", "b")
    world.settle()
    assert world.nodes["a"].path_to("b") == "c"
    world.toys["a"].heard.clear()
    connection = world.connection_of("a", "c")
    world.fall_silent(connection, "a")
    assert sorted(told(world.toys["a"]), key=str) == [PeerInDoubt(B), PeerInDoubt(C)]
    world.be_heard(connection, "a")
    assert sorted(told(world.toys["a"])[2:], key=str) == [PeerHeard(B), PeerHeard(C)]


def test_a_silent_connection_that_breaks_is_doubted_no_twice():
    world = full()
    connection = world.connection_of("a", "b")
    world.fall_silent(connection, "a")
    world.block("a", "b")
    world.settle()
    assert told(world.toys["a"]) == [PeerInDoubt(B), PeerResumed(B)]
    world.unblock("a", "b")
    world.pass_time(TUNNELLED.direct_retry_ms)
    assert world.nodes["a"].path_to("b") == "b"
    assert told(world.toys["a"]) == [PeerInDoubt(B), PeerResumed(B)]


def test_who_asks_for_a_link_in_doubt_hears_of_the_doubt_unless_it_knows():
    world = full()
    world.fall_silent(world.connection_of("a", "b"), "a")
    world.ask("a", Connect("b"))
    assert told(world.toys["a"]) == [PeerInDoubt(B)]
    lodger = Toy(PeerId("a", 0, 1))
    world.nodes["a"].host(lodger)
    begin = TimerFired(Timer("begin"))
    lodger.answers.append((begin, [Connect("b")]))
    world.tell("a", TimerFired(Timer("slot", (1, begin.timer))))
    assert told(lodger) == [PeerInDoubt(B)]
