"""Tunnels: an edge that fails is not a node that fails (digest, row 18)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlays.core.link_world import (
    ACKNOWLEDGED,
    TUNNELLED,
    Chaos,
    Light,
    Numbered,
    World,
)
from peersub.overlays.core import links as links_module
from peersub.overlays.core import tunnels as tunnels_module
from peersub.overlays.core.causes import ConnectFailed, PeerConnected, PeerLost, Received
from peersub.overlays.core.effects import Connect, Disconnect, Send
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.link_messages import (
    Goodbye,
    Hello,
    LinkWanted,
    TunnelAnswer,
    TunnelBroken,
    Tunnelled,
    TunnelRequest,
    unwrapped,
)
from strategies import examples

A, B, C = PeerId("a"), PeerId("b"), PeerId("c")


def pairs(names: str) -> list[tuple[str, str]]:
    return [(one, other) for one in names for other in names if one < other]


def full(names: str, **options) -> World:
    world = World(TUNNELLED, names, **options)
    world.link(*pairs(names))
    return world


def links_heard(world: World, name: str) -> list[object]:
    kinds = (PeerConnected, PeerLost, ConnectFailed)
    return [cause for cause in world.toys[name].heard if isinstance(cause, kinds)]


def said(world: World, kind: type) -> list[tuple[str, object]]:
    """Who said messages of a kind, with the messages themselves."""
    return [
        (name, unwrapped(message))
        for name, send in world.sends
        for message in send.messages
        if isinstance(unwrapped(message), kind)
    ]


# --- the way round -----------------------------------------------------------------------------


def test_a_broken_edge_between_living_nodes_goes_unnoticed():
    world = full("abc")
    before = {name: links_heard(world, name) for name in "abc"}
    world.numbered("a", "b", 3)  # Under way when the edge breaks, and lost.
    world.numbered("b", "a", 3)
    world.block("a", "b")
    world.numbered("a", "b", 2)  # Sent before a notices.
    for connection, name in world.to_notice():
        world.notice(connection, name)
    world.numbered("a", "b", 2)  # Sent while there is no path.
    world.numbered("b", "a", 1)
    world.run()  # No time passes: nothing waits for a timer.
    world.check_all_arrived()
    assert {name: links_heard(world, name) for name in "abc"} == before
    assert world.nodes["a"].path_to("b") == "c"
    assert world.nodes["b"].path_to("a") == "c"
    world.numbered("a", "b", 4)
    world.run()
    world.check_all_arrived()


def test_light_messages_use_the_tunnel_too_and_wait_for_it_within_a_bound(monkeypatch):
    monkeypatch.setattr(links_module, "HELD_LIGHT_MAX", 2)
    world = full("abc")
    world.block("a", "b")
    (connection,) = [c for c in world.connections if c.is_broken]
    world.notice(connection, "a")
    for text in "123":
        world.ask("a", Send(B, (Light(text),)))
    world.settle()
    world.ask("a", Send(B, (Light("4"),)))
    world.run()
    assert world.toys["b"].light == [("a", text) for text in "234"]
    assert [drop.reason for drop in world.drops] == ["too much waits for a path"]


def test_the_direct_way_is_taken_back_when_it_works():
    world = full("abc")
    before = links_heard(world, "a")
    world.block("a", "b")
    world.settle()
    world.pass_time(5 * TUNNELLED.direct_retry_ms)
    assert world.nodes["a"].path_to("b") == "c"
    world.unblock("a", "b")
    world.numbered("a", "b", 3)
    world.pass_time(TUNNELLED.direct_retry_ms)
    assert world.nodes["a"].path_to("b") == "b"
    assert world.nodes["b"].path_to("a") == "a"
    world.numbered("a", "b", 3)
    world.settle()
    world.check_all_arrived()
    assert links_heard(world, "a") == before
    count = len(said(world, Hello))
    world.pass_time(5 * TUNNELLED.direct_retry_ms)  # And nothing is tried any more.
    assert len(said(world, Hello)) == count


def test_a_connection_that_breaks_for_a_moment_is_mended_directly():
    world = World(TUNNELLED, "abc")
    world.link(*pairs("abc"))
    world.numbered("a", "b", 3)
    world.sever(world.connection_of("a", "b"))
    world.settle()
    world.pass_time(TUNNELLED.direct_retry_ms)
    world.check_all_arrived()
    assert world.nodes["a"].path_to("b") == "b"
    assert world.toys["a"].losses == world.toys["b"].losses == []


def test_a_node_that_could_not_be_connected_to_is_reached_over_another():
    world = World(TUNNELLED, "abc")
    world.link(("a", "c"), ("b", "c"))
    world.block("a", "b")
    world.ask("a", Connect("b"))
    world.settle()
    assert links_heard(world, "a")[-1] == PeerConnected(B, b"I am b")
    assert links_heard(world, "b")[-1] == PeerConnected(A, b"I am a")
    world.numbered("a", "b", 3)
    world.numbered("b", "a", 3)
    world.settle()
    world.check_all_arrived()


def test_another_relay_takes_over_when_one_crashes():
    world = full("abcd")
    world.block("a", "b")
    world.settle()
    relay = world.nodes["a"].path_to("b")
    other = {"c": "d", "d": "c"}[relay]
    world.numbered("a", "b", 3)
    world.crash(relay)
    world.numbered("a", "b", 3)
    world.settle()
    world.check_all_arrived()
    assert world.nodes["a"].path_to("b") == other
    assert [peer.node for peer, _ in world.toys["a"].losses] == [relay]


def test_another_relay_takes_over_when_one_loses_the_target():
    world = full("abcd")
    world.block("a", "b")
    world.settle()
    relay = world.nodes["a"].path_to("b")
    world.numbered("a", "b", 3)
    world.block(relay, "b")
    world.settle()
    world.check_all_arrived()
    assert world.nodes["a"].path_to("b") not in (None, relay, "b")
    assert world.toys["a"].losses == world.toys["b"].losses == world.toys[relay].losses == []
    assert TunnelBroken("b") in [message for name, message in said(world, TunnelBroken)]


def test_a_relay_that_said_yes_in_error_is_passed_over():
    """c has not noticed yet that it lost b, too: d is the one."""
    world = full("abcd")
    world.block("a", "b")
    world.block("c", "b")
    connection = world.connection_of("a", "b")
    world.notice(connection, "a")
    for connection, name in world.flying():
        if name in "cd":
            world.deliver(connection, name)
    for connection, name in world.flying():
        if name == "a":
            world.deliver(connection, name)  # Both said yes.
    world.settle()
    assert world.nodes["a"].path_to("b") == "d"
    assert world.toys["a"].losses == []


def test_the_end_that_has_not_noticed_uses_the_tunnel_once_it_does():
    world = full("abc")
    world.block("a", "b")
    connection = world.connection_of("a", "b")
    world.notice(connection, "a")
    while world.flying():
        world.deliver(*world.flying()[0])
    assert (world.nodes["a"].path_to("b"), world.nodes["b"].path_to("a")) == ("c", "a")
    world.numbered("b", "a", 2)  # Into the void.
    requests = len(said(world, TunnelRequest))
    world.notice(connection, "b")
    while world.flying():
        world.deliver(*world.flying()[0])
    assert world.nodes["b"].path_to("a") == "c"
    assert len(said(world, TunnelRequest)) == requests  # It knew whom to use.
    world.settle()
    world.check_all_arrived()


# --- the end of hope ---------------------------------------------------------------------------


def test_a_node_that_nobody_reaches_is_lost():
    world = full("abcd")
    world.crash("b")
    world.settle()
    for name in "acd":
        ((peer, reason),) = world.toys[name].losses
        assert peer == B
        assert reason == "it cannot be reached, neither directly nor over another node"
    assert all(node.is_settled for node in world.nodes.values())


def test_the_end_of_a_tunnel_learns_at_once_that_the_other_is_gone():
    world = full("abc")
    world.block("a", "b")
    world.settle()
    world.crash("b")
    world.run()
    assert [peer for peer, _ in world.toys["a"].losses] == [B]


def test_an_end_that_has_forgotten_the_link_is_found_out():
    world = full("abc")
    world.block("a", "b")
    world.settle()
    world.toys["b"].current.pop("a")
    world.ask("b", Disconnect(A, "leaves"))
    while "a" in world.nodes["b"].describe()["links"]:
        for connection, name in world.flying():
            connection.flying[name].clear()
        assert world.fire()
    assert world.toys["a"].losses == []
    world.pass_time(TUNNELLED.direct_retry_ms)
    assert [peer for peer, _ in world.toys["a"].losses] == [B]


def test_late_frames_of_an_earlier_session_are_dropped():
    world = full("abc")
    world.block("a", "b")
    world.settle()
    world.numbered("a", "b", 2)
    late = tuple(world.connection_of("a", "c").flying["c"])
    assert len(late) == 2
    world.connection_of("a", "c").flying["c"].clear()
    for name, other in (("a", B), ("b", A)):
        world.toys[name].current.pop(other.node)
        world.ask(name, Disconnect(other, "and again"))
    world.settle()
    world.ask("a", Connect("b"))
    world.settle()
    world.tell("b", Received(C, late))
    assert world.toys["b"].current["a"].received == []
    world.numbered("a", "b", 1)
    world.tell("b", Received(C, late))
    world.settle()
    world.check_all_arrived()


def test_without_other_links_a_broken_one_is_lost_at_once():
    world = full("ab")
    world.block("a", "b")
    world.run()
    assert world.toys["a"].losses == [(B, "broke")]
    world.ask("a", Connect("b"))
    world.run()
    assert world.toys["a"].failures == [("b", "nobody answers")]


def test_a_search_ends_in_time():
    world = World(replace(TUNNELLED, tunnel_timeout_ms=500), "abc")
    world.link(*pairs("abc"))
    world.block("a", "b")
    connection = world.connection_of("a", "b")
    world.notice(connection, "a")
    for flying, name in world.flying():  # No question ever gets through.
        flying.flying[name].clear()
    silent = [c for c in world.connections if "c" in c.flying]
    while not world.toys["a"].losses:
        assert world.fire()
        for connection in silent:
            connection.flying["c"].clear()
    assert world.toys["a"].losses[0] == (B, "no way to it was found in time")
    assert world.now_ms == 500


def test_a_greeting_that_outlives_its_link_makes_no_half_of_one():
    """Both ends search; one gives up, and only then its greeting arrives over the relay."""
    world = World(replace(TUNNELLED, tunnel_timeout_ms=500), "abc")
    world.link(*pairs("abc"))
    world.block("a", "b")
    broken = world.connection_of("a", "b")
    to_relay, to_end = world.connection_of("a", "c"), world.connection_of("b", "c")
    world.notice(broken, "a")
    world.deliver(to_relay, "c")
    world.deliver(to_relay, "a", count=9)
    world.deliver(to_relay, "c", count=9)
    greeting = to_end.flying["b"]
    assert [type(unwrapped(message)) for message in greeting] == [Hello]
    late, to_end.flying["b"] = list(greeting), []
    while not world.toys["a"].losses:
        assert world.fire()
        world.connection_of("a", "c").flying["c"].clear()
    world.notice(broken, "b")
    world.tell("b", Received(C, tuple(late)))
    assert world.nodes["b"].path_to("a") == "c"
    world.run()
    assert [peer for peer, _ in world.toys["b"].losses] == [A]
    world.check_all_arrived()


def test_a_goodbye_is_no_failure():
    world = full("abc")
    world.toys["b"].current.pop("a")
    world.ask("b", Disconnect(A, "leaves"))
    world.settle()
    assert world.toys["a"].losses == [(B, "leaves")]
    assert said(world, TunnelRequest) == []


def test_a_goodbye_gets_through_a_tunnel():
    world = full("abc")
    world.block("a", "b")
    world.settle()
    world.numbered("b", "a", 2)
    world.toys["b"].current.pop("a")
    world.ask("b", Disconnect(A, "leaves"))
    world.run()
    assert len(world.toys["a"].stays[0].received) == 2
    assert world.toys["a"].losses == [(B, "leaves")]
    assert list(world.nodes["b"].describe()["links"]) == ["c"]  # It knows that it was heard.


def test_a_goodbye_under_way_when_the_edge_breaks_is_fetched():
    world = full("abc")
    world.toys["b"].current.pop("a")
    world.ask("b", Disconnect(A, "leaves"))
    world.block("a", "b")
    world.settle()
    assert world.toys["a"].losses == [(B, "leaves")]
    assert "a" not in world.toys["b"].current


def test_a_refusal_is_not_tunnelled():
    world = World(TUNNELLED, "ac")
    world.start("b", network="other")
    world.link(("a", "c"))
    world.ask("a", Connect("b"))
    world.settle()
    assert world.toys["a"].failures == [("b", "network differs: '' here, 'other' at b")]
    assert said(world, TunnelRequest) == []


def test_a_refusal_comes_through_a_tunnel():
    """The relay links to both, as it never compares their settings with each other's."""
    world = World(TUNNELLED, "abc")
    world.link(("a", "c"), ("b", "c"))
    world.toys["b"].name = "changed its mind"
    world.block("a", "b")
    world.ask("a", Connect("b"))
    world.settle()
    reason = "overlay differs: 'toy' here, 'changed its mind' at b"
    assert world.toys["a"].failures == [("b", reason)]


def test_a_node_that_began_a_new_life_is_another_peer():
    world = full("abc")
    world.block("a", "b")
    world.settle()
    world.numbered("a", "b", 2)
    world.crash("b")
    world.start("b", 1)
    world.ask("b", Connect("c"))
    world.settle()
    world.pass_time(2 * TUNNELLED.direct_retry_ms)
    new = PeerId("b", 1)
    heard = links_heard(world, "a")[-2:]
    if "b" in world.toys["a"].current:
        assert [type(cause) for cause in heard] == [PeerLost, PeerConnected]
        assert [cause.peer for cause in heard] == [B, new]
    else:
        assert [(type(cause), cause.peer) for cause in heard[-1:]] == [(PeerLost, B)]
    world.ask("a", Connect("b"))
    world.settle()
    assert world.toys["a"].current["b"].peer == new
    world.numbered("a", "b", 1)
    world.settle()
    world.check_all_arrived()


def test_the_greeting_over_the_tunnel_shows_the_new_life():
    world = full("abc")
    world.crash("b")
    world.start("b", 1)
    world.block("a", "b")
    world.notice(world.connection_of("c", "b"), "c")
    world.ask("b", Connect("c"))
    while ("b", "c") in world.dials:
        world.dial(world.dials.index(("b", "c")))
    while world.flying():
        world.deliver(*world.flying()[0])
    assert "b" in world.toys["c"].current
    world.notice(world.connection_of("a", "b"), "a")
    world.settle()
    assert [cause.peer for cause in links_heard(world, "a")[-2:]] == [B, PeerId("b", 1)]
    assert world.nodes["a"].path_to("b") == "c"


def test_late_light_messages_of_a_former_life_are_dropped():
    """What was said on a connection that has not been noticed to be broken, say."""
    world = full("abc")
    world.ask("b", Send(A, (Light("late"),)))
    late = tuple(world.connection_of("b", "a").flying["a"])
    assert late == (Light("late"),)
    world.crash("b")
    world.start("b", 1)
    world.block("a", "b")
    world.notice(world.connection_of("c", "b"), "c")
    world.ask("b", Connect("c"), Connect("a"))
    while world.nodes["a"].path_to("b") != "c":
        assert world.step()
    world.tell("a", Received(B, late))
    assert world.toys["a"].light == []
    world.settle()
    world.ask("b", Send(A, (Light("new"),)))
    world.settle()
    assert world.toys["a"].light == [("b", "new")]


# --- being asked -------------------------------------------------------------------------------


def test_a_relay_without_a_link_gets_one_and_the_overlays_hear_nothing():
    world = World(TUNNELLED, "abcd")
    world.link(("a", "b"), ("a", "c"), ("b", "d"))
    before = {name: links_heard(world, name) for name in "abcd"}
    world.block("a", "b")
    world.numbered("a", "b", 3)
    world.settle()
    world.check_all_arrived()
    assert world.nodes["a"].path_to("b") in ("c", "d")
    assert {name: links_heard(world, name) for name in "abcd"} == before
    assert len(world.nodes["c"].describe()["links"]) == 2
    world.pass_time(10 * TUNNELLED.direct_retry_ms)
    assert world.nodes["a"].path_to("b") in ("c", "d")  # It is in use, and stays.
    world.unblock("a", "b")
    world.pass_time(10 * TUNNELLED.direct_retry_ms)
    links = {name: sorted(world.nodes[name].describe()["links"]) for name in "abcd"}
    assert links == {"a": ["b", "c"], "b": ["a", "d"], "c": ["a"], "d": ["b"]}
    assert {name: links_heard(world, name) for name in "abcd"} == before


def test_a_node_without_other_links_loses_the_link_and_gets_it_back():
    """It cannot ask anybody; the other end can, and finds it without memory of the link."""
    world = World(TUNNELLED, "abc")
    world.link(("a", "b"), ("a", "c"))
    world.block("a", "b")
    world.settle()
    world.pass_time(2 * TUNNELLED.direct_retry_ms)
    assert [type(cause) for cause in links_heard(world, "b")[1:]] == [PeerLost, PeerConnected]
    world.numbered("a", "b", 3)
    world.settle()
    world.check_all_arrived()


def test_an_overlay_may_want_the_relays_own_link():
    world = World(TUNNELLED, "abc")
    world.link(("a", "b"), ("a", "c"))
    world.block("a", "b")
    world.settle()
    connections = len(world.connections)
    world.ask("b", Connect("c"))
    world.settle()
    assert len(world.connections) == connections
    assert links_heard(world, "b")[-1] == PeerConnected(C, b"I am c")
    assert links_heard(world, "c")[-1] == PeerConnected(B, b"I am b")
    world.numbered("b", "c", 2)
    world.settle()
    world.unblock("a", "b")
    world.pass_time(10 * TUNNELLED.direct_retry_ms)
    world.check_all_arrived()
    assert "c" in world.toys["b"].current


def test_each_side_hears_that_the_other_overlay_wants_the_link():
    """The other side began anew in the middle of the greeting, and forgot that it was wanted."""
    world = World(TUNNELLED, "ab")
    node = world.nodes["a"]
    (_, greeted) = node.handle(PeerConnected(B), 0)
    (mine,) = greeted.messages
    first = replace(mine, peer=B, epoch=4, wanted=True)
    second = replace(first, epoch=5, heard=mine.epoch, wanted=False)
    effects = node.handle(Received(B, (first, second)), 0)
    assert world.toys["a"].heard == [PeerConnected(B, b"I am a")]
    sent = [unwrapped(m) for effect in effects if isinstance(effect, Send) for m in effect.messages]
    assert LinkWanted() in sent


def test_one_attempt_serves_all_who_ask():
    world = World(TUNNELLED, "abcr")
    world.link(("a", "r"), ("b", "r"), ("a", "c"), ("b", "c"))
    for name in "ab":
        world.block(name, "c")
    dialled = []
    for _ in range(200):
        if not world.step():
            break
        dialled += [dial for dial in world.dials if dial == ("r", "c")]
    assert world.nodes["a"].path_to("c") == world.nodes["b"].path_to("c") == "r"
    answers = [name for name, message in said(world, TunnelAnswer)]
    assert answers.count("r") >= 2
    assert len([c for c in world.connections if set(c.flying) == {"r", "c"}]) == 1


def test_questions_are_bounded(monkeypatch):
    monkeypatch.setattr(tunnels_module, "ASKERS_MAX", 0)
    world = World(TUNNELLED, "abc")
    world.link(("a", "b"), ("a", "c"))
    world.block("a", "b")
    world.settle()
    assert ("c", TunnelAnswer("b", reachable=False)) in said(world, TunnelAnswer)
    assert [peer for peer, _ in world.toys["a"].losses] == [B]


def test_so_many_are_asked_and_the_overlays_choice_first():
    names = [f"n{number:02}" for number in range(TUNNELLED.tunnel_candidates + 8)]
    world = World(TUNNELLED, ["a", "b", *names])
    world.link(("a", "b"), *[("a", name) for name in names])
    world.toys["a"].relays_for = lambda node: [PeerId(names[-1]), PeerId(node), PeerId("unknown")]
    world.block("a", "b")
    world.notice(world.connection_of("a", "b"), "a")
    asked = [
        send.peer.node
        for name, send in world.sends
        if name == "a" and any(unwrapped(m) == TunnelRequest("b") for m in send.messages)
    ]
    assert asked == [names[-1], *names[: TUNNELLED.tunnel_candidates - 1]]


def test_nodes_without_the_feature_are_not_asked():
    world = World(TUNNELLED, "ab")
    world.settings = ACKNOWLEDGED
    world.start("c")
    world.link(("a", "b"), ("a", "c"), ("b", "c"))
    world.block("a", "b")
    world.settle()
    assert said(world, TunnelRequest) == []
    assert world.toys["a"].losses == [(B, "broke")]


def test_there_is_one_relay_between_two_nodes():
    """a - c - d - b would do, but nobody may pass on what comes over a relay."""
    world = World(TUNNELLED, "abcd")
    world.link(("a", "b"), ("a", "c"), ("c", "d"), ("d", "b"))
    for one, other in ("ab", "cb", "ad"):
        world.block(one, other)
    world.settle()
    assert world.toys["a"].losses[0][0] == B
    inner = Tunnelled("b", A, Light("x"))
    effects = world.nodes["d"].handle(Received(C, (inner,)), world.now_ms)
    (drop,) = effects
    assert "relayed again" in drop.reason


def test_what_a_relay_cannot_pass_on_is_reported():
    world = full("abc")
    world.tell("c", Received(A, (Tunnelled("nowhere", A, Light("x")),)))
    world.settle()
    assert ("c", TunnelBroken("nowhere")) in said(world, TunnelBroken)


def test_strangers_say_nothing_but_hello_through_a_tunnel():
    world = full("abc")
    stranger = PeerId("stranger")
    for message in (Light("x"), Goodbye(1, 1), Numbered((stranger, 1), 1)):
        world.tell("c", Received(A, (Tunnelled("c", stranger, message),)))
    world.tell("c", Received(A, (Tunnelled("c", PeerId("b", 9), Light("another life")),)))
    assert world.toys["c"].light == []


def test_a_node_without_tunnels_takes_nothing_from_a_relay():
    world = World(ACKNOWLEDGED, "ab")
    world.link(("a", "b"))
    world.tell("b", Received(A, (Tunnelled("b", C, Light("x")),)))
    assert world.drops[-1].peer == C


# --- under every kind of fault -----------------------------------------------------------------

happening = st.tuples(st.integers(0, 99), st.integers(0, 7), st.integers(0, 7))
happenings = st.lists(happening, max_size=40) | st.lists(happening, min_size=60, max_size=120)


@pytest.mark.parametrize("names", ["abc", "abcd"])
@examples(80)
@given(steps=happenings)
def test_links_keep_their_promise_under_faults(names, steps):
    world = full(names)
    chaos = Chaos(world, is_lossy=True, may_block=True)
    for step in steps:
        chaos.happen(*step)
    world.blocked = []
    world.settle()
    # A tunnel's ends find out by themselves whether the other still knows the link.
    world.pass_time(20 * TUNNELLED.direct_retry_ms)
    world.settle()
    world.check_all_arrived()
    for name, toy in world.toys.items():
        paths = {node: link["path"] for node, link in world.nodes[name].describe()["links"].items()}
        assert paths == {node: node for node in sorted(toy.current)}


def test_sessions_survive_any_one_path_change():
    """The edge breaks and heals after each number of steps."""
    for steps in range(40):
        world = full("abc")
        world.numbered("a", "b", 2)
        world.block("a", "b")
        for _ in range(steps):
            world.step() or world.fire()
        world.numbered("a", "b", 2)
        world.unblock("a", "b")
        for _ in range(steps):
            world.step() or world.fire()
        world.numbered("b", "a", 2)
        world.settle()
        world.check_all_arrived()
        assert world.toys["a"].losses == world.toys["b"].losses == []


def test_an_unanswered_connection_is_given_up_for_a_tunnel():
    """The driver thinks it works, and it carries nothing."""
    world = World(replace(TUNNELLED, resends_max=2), "abc")
    world.link(*pairs("abc"))
    world.numbered("a", "b", 2)
    connection = world.connection_of("a", "b")
    for _ in range(50):
        for flying in connection.flying.values():
            flying.clear()
        if not connection.ends.get("a"):
            break
        for found, name in world.flying():
            world.deliver(found, name)
        world.fire()
    world.block("a", "b")
    world.settle()
    world.check_all_arrived()
    assert world.nodes["a"].path_to("b") == "c"
    assert world.toys["a"].losses == []


def test_the_number_of_links_over_relays_is_bounded(monkeypatch):
    monkeypatch.setattr(links_module, "LINKS_MAX", 2)
    world = World(TUNNELLED, "abc")
    world.link(("a", "c"), ("b", "c"))
    world.start("d")
    world.link(("b", "d"))
    world.block("c", "d")
    world.ask("d", Connect("c"))
    world.settle()
    assert "there are too many links" in [drop.reason for drop in world.drops]
    assert "d" not in world.toys["c"].current
