"""Nodes and their links: HELLO, refusals, batches, slots, and links under every kind of fault."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlays.core.link_world import (
    ACKNOWLEDGED,
    PLAIN,
    Chaos,
    Heavy,
    Light,
    Numbered,
    Toy,
    World,
)
from peersub.overlays.core import node as node_module
from peersub.overlays.core import session as session_module
from peersub.overlays.core.causes import (
    ConnectFailed,
    PeerConnected,
    PeerLost,
    Persisted,
    Received,
    Start,
    Timer,
    TimerFired,
)
from peersub.overlays.core.effects import (
    CancelTimer,
    Connect,
    Disconnect,
    Drop,
    Persist,
    Send,
    SetTimer,
)
from peersub.overlays.core.event_keys import network_key
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.link import EARLY_LIGHT_MAX
from peersub.overlays.core.link_messages import (
    Acknowledgement,
    BetweenSlots,
    Carried,
    Goodbye,
    Hello,
    unwrapped,
)
from peersub.overlays.core.messages import Message
from peersub.overlays.core.node import LinkSettings, Node
from peersub.overlays.core.publication import Publication
from peersub.overlays.core.records import SubscriptionRemoved
from peersub.overlays.core.versions import PROTOCOL_VERSION
from peersub.overlays.flood.messages import Flooded
from strategies import examples

BOTH = pytest.mark.parametrize("settings", [PLAIN, ACKNOWLEDGED], ids=["plain", "acknowledged"])
A, B = PeerId("a"), PeerId("b")


def messages_of(world: World, name: str) -> list[object]:
    return [message for sender, send in world.sends if sender == name for message in send.messages]


# --- under every kind of fault -----------------------------------------------------------------

happening = st.tuples(st.integers(0, 99), st.integers(0, 7), st.integers(0, 7))
happenings = st.lists(happening, max_size=40) | st.lists(happening, min_size=60, max_size=120)


def check_chaos(settings: LinkSettings, names: str, steps: list[tuple[int, int, int]]) -> World:
    world = World(settings, names)
    world.link(*[(one, other) for one in names for other in names if one < other])
    chaos = Chaos(world, is_lossy=settings.acknowledge)
    for step in steps:
        chaos.happen(*step)
    world.settle()
    world.check_all_arrived()
    return world


@BOTH
@examples(100)
@given(steps=happenings)
def test_links_keep_their_promise_under_faults(settings, steps):
    """A prefix of each stream, in order, nothing twice; and all of it once the faults stop."""
    world = check_chaos(settings, "ab", steps)
    for name, toy in world.toys.items():
        assert list(world.nodes[name].describe()["links"]) == sorted(toy.current)


@BOTH
@examples(50)
@given(steps=happenings)
def test_three_nodes_keep_their_promise_under_faults(settings, steps):
    check_chaos(settings, "abc", steps)


# --- HELLO -------------------------------------------------------------------------------------


@BOTH
def test_peers_hear_of_a_link_once_both_greetings_are_there(settings):
    world = World(settings, "ab")
    world.ask("a", Connect("b"))
    world.dial()
    assert not world.toys["a"].current
    assert not world.toys["b"].current
    world.settle()
    assert PeerConnected(B, b"I am b") in world.toys["a"].heard
    assert PeerConnected(A, b"I am a") in world.toys["b"].heard
    hello = messages_of(world, "a")[0]
    assert isinstance(hello, Hello)
    assert (hello.peer, hello.version, hello.overlay) == (A, PROTOCOL_VERSION, "toy")


@BOTH
def test_simultaneous_connects_make_one_link(settings):
    world = World(settings, "ab")
    world.ask("a", Connect("b"))
    world.ask("b", Connect("a"))
    world.settle()
    for name in "ab":
        connected = [c for c in world.toys[name].heard if isinstance(c, PeerConnected)]
        assert len(connected) == 1
    world.numbered("a", "b")
    world.settle()
    world.check_all_arrived()


@BOTH
def test_a_connect_to_a_linked_node_is_answered_at_once(settings):
    world = World(settings, "ab")
    world.link(("a", "b"))
    before = len(world.sends)
    world.ask("a", Connect("b"))
    assert world.toys["a"].heard[-1] == PeerConnected(B, b"I am b")
    assert len(world.toys["a"].stays) == 1
    assert len(world.sends) == before
    assert not world.dials


def test_what_cannot_be_reached_is_reported():
    world = World(PLAIN, "a")
    world.ask("a", Connect("nowhere"))
    world.settle()
    assert world.toys["a"].failures == [("nowhere", "nobody answers")]
    world.ask("a", Connect("nowhere"))  # And may be tried again.
    assert world.dials == [("a", "nowhere")]


@BOTH
def test_a_node_does_not_connect_to_itself(settings):
    world = World(settings, "a")
    world.ask("a", Connect("a"))
    assert world.toys["a"].failures == [("a", "a node does not connect to itself")]
    assert not world.dials
    effects = world.nodes["a"].handle(PeerConnected(A), 0)
    assert [type(effect) for effect in effects] == [Disconnect]


REFUSALS = [
    ({"network": "n2"}, "network differs: 'n1' here, 'n2' at b"),
    ({"version": (2, 0)}, "protocol version differs: '1.1' here, '2.0' at b"),
    ({"shared": {"bits": "32", "x": "1"}}, "setting bits differs: '64' here, '32' at b"),
    ({"shared": {"x": "1"}}, "setting bits differs: '64' here, not set at b"),
    ({"shared": {"bits": "64", "x": "1", "z": "9"}}, "setting z differs: not set here, '9' at b"),
]


@BOTH
@pytest.mark.parametrize(("options", "reason"), REFUSALS, ids=lambda value: str(value)[:20])
def test_a_refusal_names_what_differs_and_both_values(settings, options, reason):
    world = World(settings, "", network="n1")
    world.start("a", shared={"bits": "64", "x": "1"})
    world.start("b", **{"shared": {"bits": "64", "x": "1"}, **options})
    world.ask("a", Connect("b"))
    world.settle()
    assert world.toys["a"].failures == [("b", reason)]
    # The other side did not ask: it only writes down why it closed the link.
    assert world.toys["b"].heard == []
    there = [drop for drop in world.drops if drop.peer == A]
    assert len(there) == 1 and "differs" in there[0].reason
    assert not any(connection.ends for connection in world.connections)
    assert all(node.is_settled for node in world.nodes.values())


def test_another_overlay_is_refused():
    world = World(PLAIN, "ab")
    world.toys["b"].name = "other"
    world.ask("a", Connect("b"))
    world.settle()
    assert world.toys["a"].failures == [("b", "overlay differs: 'toy' here, 'other' at b")]


def test_nodes_must_agree_on_acknowledging():
    world = World(PLAIN, "a")
    world.settings = ACKNOWLEDGED
    world.start("b")
    world.ask("a", Connect("b"))
    world.settle()
    reason = "setting links.acknowledge differs: 'false' here, 'true' at b"
    assert world.toys["a"].failures == [("b", reason)]


def test_a_node_that_calls_itself_otherwise_is_refused():
    world = World(PLAIN, "a")
    node = world.nodes["a"]
    node.handle(PeerConnected(PeerId("localhost:1")), 0)
    hello = replace(node._hello(node._links.table["localhost:1"]), peer=PeerId("127.0.0.1:1"))
    effects = node.handle(Received(PeerId("localhost:1"), (hello,)), 0)
    reason = "the node has another name: it is '127.0.0.1:1', not 'localhost:1': use that address"
    assert Drop(reason, None, PeerId("127.0.0.1:1")) in effects


@BOTH
def test_minor_versions_and_features_may_differ(settings):
    world = World(settings, "")
    world.start("a")
    world.start("b", version=(PROTOCOL_VERSION[0], 99), features=("from-the-future",))
    world.link(("a", "b"))


def test_a_refusal_gets_through_a_lossy_network():
    world = World(ACKNOWLEDGED, "")
    world.start("a", network="n1")
    world.start("b", network="n2")
    world.ask("a", Connect("b"))
    world.dial()
    for connection, name in world.flying():  # The first greetings of both are lost.
        connection.flying[name].clear()
    world.settle()
    assert world.toys["a"].failures == [("b", "network differs: 'n1' here, 'n2' at b")]
    assert not any(connection.ends for connection in world.connections)


def test_a_node_that_never_greets_is_given_up():
    world = World(ACKNOWLEDGED, "ab")
    world.ask("a", Connect("b"))
    world.dial()
    while world.connection_of("a", "b"):
        for connection, name in world.flying():
            connection.flying[name].clear()
        assert world.fire()
    assert world.toys["a"].failures == [("b", "no HELLO came back")]
    hellos = [message for message in messages_of(world, "a") if isinstance(message, Hello)]
    assert len(hellos) == ACKNOWLEDGED.resends_max + 1


# --- the life of a link ------------------------------------------------------------------------


@BOTH
def test_a_disconnect_comes_after_what_was_sent_and_says_why(settings):
    world = World(settings, "ab")
    world.link(("a", "b"))
    send = world.toys["a"].numbered("b", 2)
    world.toys["a"].current.pop("b")
    world.ask("a", send, Disconnect(B, "leaves"))
    world.settle()
    assert [type(cause) for cause in world.toys["b"].heard[-2:]] == [Received, PeerLost]
    assert world.toys["b"].losses == [(A, "leaves")]
    assert world.toys["a"].losses == []  # Who closes a link hears nothing of its end.
    assert not any(connection.ends for connection in world.connections)
    last = [unwrapped(message) for message in messages_of(world, "a")]
    assert [type(message) for message in last[-3:]] == [Numbered, Numbered, Goodbye]


@BOTH
def test_a_link_may_follow_a_goodbye_at_once(settings):
    world = World(settings, "ab")
    world.link(("a", "b"))
    world.toys["a"].current.pop("b")
    world.ask("a", Disconnect(B, "again"), Connect("b"))
    world.settle()
    assert world.toys["b"].losses == [(A, "again")]
    assert "b" in world.toys["a"].current
    world.numbered("a", "b")
    world.settle()
    world.check_all_arrived()


def test_a_goodbye_that_is_lost_is_said_again():
    world = World(ACKNOWLEDGED, "ab")
    world.link(("a", "b"))
    world.toys["a"].current.pop("b")
    world.ask("a", Disconnect(B, "leaves"))
    for connection, name in world.flying():
        connection.flying[name].clear()
    world.settle()
    assert world.toys["b"].losses == [(A, "leaves")]


@BOTH
def test_a_new_life_of_a_node_is_another_peer(settings):
    world = World(settings, "ab")
    world.link(("a", "b"))
    world.crash("b")
    world.start("b", 1)
    world.settle()
    world.ask("b", Connect("a"))
    world.settle()
    assert [stay.peer for stay in world.toys["a"].stays] == [B, PeerId("b", 1)]


def test_a_newer_epoch_of_the_other_side_is_a_new_link():
    """The other side began anew, and the driver noticed nothing."""
    world = World(PLAIN, "ab")
    world.link(("a", "b"))
    link = world.nodes["b"]._links.table["a"]
    hello = world.nodes["b"]._hello(link)
    world.tell("a", Received(B, (replace(hello, epoch=hello.epoch + 1),)))
    heard = [type(cause) for cause in world.toys["a"].heard[-2:]]
    assert heard == [PeerLost, PeerConnected]
    world.tell("a", Received(B, (hello,)))  # An old greeting, late.
    assert len(world.toys["a"].stays) == 2


@BOTH
@pytest.mark.parametrize("is_answered_by", ["a message", "a goodbye"])
def test_who_has_not_heard_yet_of_a_new_link_neither_uses_nor_ends_it(settings, is_answered_by):
    """In one batch: a message, to which the peer answers, and the greeting of a new link.

    What the answer is about is the link that was, and the new one must not carry it.
    """
    world = World(settings, "ab")
    world.link(("a", "b"))
    toy, link = world.toys["a"], world.nodes["b"]._links.table["a"]
    hello = world.nodes["b"]._hello(link)
    heavy: Message = Heavy("before")
    if link.session is not None:
        frame = link.session.carry(heavy, 0)
        assert frame is not None
        heavy = frame
    answer = Send(B, (Heavy("late"),)) if is_answered_by == "a message" else Disconnect(B, "late")
    toy.answers.append((Received(B, (Heavy("before"),), 0), [answer]))
    before = len(messages_of(world, "a"))
    world.tell("a", Received(B, (heavy, replace(hello, epoch=hello.epoch + 1))))
    assert [type(cause) for cause in toy.heard[-3:]][:2] == [Received, PeerLost]
    said = [unwrapped(message) for message in messages_of(world, "a")[before:]]
    assert not [message for message in said if isinstance(message, Heavy | Goodbye)]
    assert world.nodes["a"].describe()["links"].get("b", {}).get("state") == "up"
    assert world.connection_of("a", "b") is not None


def test_a_connection_that_takes_the_place_of_another_is_a_new_link():
    world = World(PLAIN, "ab")
    world.link(("a", "b"))
    world.nodes["a"].handle(PeerConnected(B), 0)
    assert [peer for peer, _ in world.toys["a"].losses] == [B]


def test_sends_without_a_link_are_dropped():
    world = World(PLAIN, "ab")
    world.ask("a", Send(B, (Light("x"),)))
    world.link(("a", "b"))
    world.ask("a", Send(PeerId("b", 7), (Light("y"),)))
    world.settle()
    assert [drop.peer for drop in world.drops] == [B, PeerId("b", 7)]
    assert world.toys["b"].light == []


@pytest.mark.parametrize("count", [1, EARLY_LIGHT_MAX + 1])
def test_what_overtakes_the_greeting_waits_until_the_link_is_up(count):
    world = World(ACKNOWLEDGED, "ab")
    world.ask("b", Connect("a"))
    while "b" not in world.toys["a"].current:
        assert world.step()
    assert "a" not in world.toys["b"].current
    for number in range(count):
        world.ask("a", Send(B, (Light(str(number)),)))
    ((connection, name),) = world.flying()
    assert name == "b"
    world.deliver(connection, name, len(connection.flying[name]) - count, count)
    assert world.toys["b"].light == []
    world.settle()
    kept = min(count, EARLY_LIGHT_MAX)
    assert world.toys["b"].light == [("a", str(number)) for number in range(kept)]
    assert len(world.drops) == count - kept


def test_a_full_queue_loses_the_link_on_both_sides(monkeypatch):
    monkeypatch.setattr(session_module, "UNACKNOWLEDGED_MAX", 10)
    world = World(ACKNOWLEDGED, "ab")
    world.link(("a", "b"))
    world.numbered("a", "b", 11)
    world.settle()
    assert "wait for an acknowledgement" in world.toys["a"].losses[0][1]
    assert world.toys["a"].losses[0][1] == world.toys["b"].losses[0][1]


def test_a_silent_link_is_lost_after_a_bounded_number_of_attempts():
    world = World(ACKNOWLEDGED, "ab")
    world.link(("a", "b"))
    world.numbered("a", "b")
    for _ in range(1_000):
        for connection, name in world.flying():
            connection.flying[name].clear()
        if world.toys["a"].losses or not world.fire():
            break
    assert world.toys["a"].losses == [(B, "no acknowledgement after 8 attempts")]
    carried = [m for m in messages_of(world, "a") if isinstance(unwrapped(m), Numbered)]
    assert len(carried) == 1 + ACKNOWLEDGED.resends_max


# --- batches -----------------------------------------------------------------------------------


@BOTH
def test_one_batch_is_one_cause_and_one_send(settings):
    world = World(settings, "ab")
    world.link(("a", "b"))
    before = len(world.sends)
    toy = world.toys["a"]
    light = Send(B, (Light("x"),))
    world.ask("a", toy.numbered("b", 2), light, toy.numbered("b", 1))
    assert len(world.sends) == before + 1
    world.run()
    received = world.toys["b"].heard[-1]
    assert isinstance(received, Received)
    assert [type(message) for message in received.messages] == [Numbered, Numbered, Light, Numbered]


def test_one_batch_has_one_acknowledgement():
    world = World(ACKNOWLEDGED, "ab")
    world.link(("a", "b"))
    world.numbered("a", "b", 5)
    before = len(world.sends)
    world.run()
    ((sender, send),) = world.sends[before:]
    assert sender == "b"
    assert [type(message) for message in send.messages] == [Acknowledgement]


def test_an_answer_carries_the_acknowledgement():
    world = World(ACKNOWLEDGED, "ab")
    world.link(("a", "b"))
    send = world.toys["a"].numbered("b", 2)
    world.toys["b"].answers.append((Received(A, send.messages), [world.toys["b"].numbered("a", 1)]))
    before = len(world.sends)
    world.ask("a", send)
    world.step()
    _, answer = world.sends[-1]
    assert len(world.sends) == before + 2
    (frame,) = answer.messages
    assert isinstance(frame, Carried) and frame.acknowledged == 2


def test_plain_links_pass_messages_as_they_are():
    """No frames, no timers: what a lossless driver carries costs nothing more."""
    world = World(PLAIN, "ab")
    world.link(("a", "b"))
    world.numbered("a", "b", 3)
    world.run()
    assert [type(message) for message in messages_of(world, "a")] == [Hello, *[Numbered] * 3]
    assert not world.timers


# --- links that are there from the start -------------------------------------------------------


@BOTH
def test_adopted_links_work_without_a_greeting(settings):
    world = World(settings, "ab")
    world.ask("a", Connect("b"))
    world.settle()
    fresh = World(settings, "ab")
    fresh.connections = world.connections
    for name, other in (("a", B), ("b", A)):
        fresh.nodes[name].adopt_link(other)
        fresh.toys[name]._on_connected(other)
    fresh.numbered("a", "b", 3)
    fresh.numbered("b", "a", 2)
    fresh.settle()
    fresh.check_all_arrived()
    assert fresh.nodes["a"].path_to("b") == "b"
    fresh.connections[0].is_broken = True
    fresh.settle()
    assert fresh.toys["a"].losses == [(B, "broke")]


# --- several peers on a node -------------------------------------------------------------------


def three_slots(settings: LinkSettings = PLAIN) -> tuple[World, dict[int, Toy]]:
    world = World(settings, "ab")
    toys = {0: world.toys["a"]}
    for slot in (1, 2):
        toys[slot] = Toy(PeerId("a", 0, slot))
        world.nodes["a"].host(toys[slot])
    return world, toys


def ask_slot(world: World, toy: Toy, *effects: object) -> list[object]:
    trigger = TimerFired(Timer("test", len(toy.heard)))
    toy.answers.append((trigger, list(effects)))
    slot = toy.me.slot
    timer = Timer("slot", (slot, trigger.timer)) if slot else trigger.timer
    effects = world.nodes["a"].handle(TimerFired(timer), world.now_ms)
    world.carry_out("a", effects)
    return effects


def test_peers_of_one_node_talk_without_a_link_and_in_order():
    world, toys = three_slots()
    for toy in toys.values():
        for peer in (A, PeerId("a", 0, 1), PeerId("a", 0, 2)):
            if peer != toy.me:
                toy.current[peer.node] = None
    ping = Light("ping")
    pong = [Send(A, (Light("pong 1"),)), Send(A, (Light("pong 2"),))]
    toys[2].answers.append((Received(A, (ping,), 2), pong))
    effects = ask_slot(world, toys[0], Send(PeerId("a", 0, 2), (ping,)), Send(B, (ping,)))
    assert toys[2].heard == [Received(A, (ping,), 2)]
    assert [cause.messages for cause in toys[0].heard[-2:]] == [
        (Light("pong 1"),),
        (Light("pong 2"),),
    ]
    assert all(cause.peer == PeerId("a", 0, 2) for cause in toys[0].heard[-2:])
    assert [type(effect) for effect in effects] == [Drop]  # Only b, which is not linked.
    assert toys[1].heard == []


def test_a_peer_that_does_not_live_here_gets_nothing():
    world, toys = three_slots()
    for peer in (PeerId("a", 0, 3), PeerId("a", 5, 1)):
        effects = ask_slot(world, toys[0], Send(peer, (Light("x"),)))
        assert effects == [Drop(f"{peer} does not live here", None, peer)]


def test_a_chain_without_end_is_cut_off(monkeypatch):
    monkeypatch.setattr(node_module, "CAUSES_MAX", 50)

    class Echo(Toy):
        def handle(self, cause, now_ms):
            self.heard.append(cause)
            other = self.me._replace(slot=1 - self.me.slot)
            return [Send(other, (Light("and back"),))]

    toys = [Echo(A), Echo(PeerId("a", 0, 1))]
    node = Node(toys[0])
    node.host(toys[1])
    effects = node.handle(Start(), 0)
    assert sum(len(toy.heard) for toy in toys) == 51
    assert [type(effect) for effect in effects] == [Drop]
    assert node.handle(TimerFired(Timer("link/resend", "b")), 1) == []  # Nothing is left over.


@BOTH
def test_slots_share_a_link_and_messages_name_them(settings):
    world, toys = three_slots(settings)
    ask_slot(world, toys[1], Connect("b"))
    world.settle()
    assert all(toy.heard[-1] == PeerConnected(B, b"I am b") for toy in toys.values())
    for slot, toy in toys.items():
        ask_slot(world, toy, Send(B, (Heavy("1"), Heavy("2"))), Send(B, (Light(f"from {slot}"),)))
    to_two = Send(PeerId("a", 0, 2), (Light("to two"), Heavy("to two")))
    world.ask("b", to_two)
    world.settle()
    received = [cause for cause in world.toys["b"].heard if isinstance(cause, Received)]
    assert [cause.peer.slot for cause in received] == [0, 1, 2]
    assert all(len(cause.messages) == 3 for cause in received)
    assert toys[2].heard[-1] == Received(B, to_two.messages, 2)
    wrapped = [m for m in messages_of(world, "b") if isinstance(m, BetweenSlots)]
    assert wrapped[0] == BetweenSlots(0, 2, Light("to two"))


def test_a_link_is_closed_when_no_slot_holds_it():
    world, toys = three_slots()
    ask_slot(world, toys[0], Connect("b"))
    world.settle()
    for slot in (1, 0):
        toys[slot].current.clear()
        ask_slot(world, toys[slot], Disconnect(B, f"{slot} is done"))
        world.settle()
        assert world.toys["b"].losses == []
    effects = ask_slot(world, toys[1], Send(B, (Light("gave it up"),)))
    assert [type(effect) for effect in effects] == [Drop]
    ask_slot(world, toys[2], Disconnect(B, "2 is done"))
    world.settle()
    assert world.toys["b"].losses == [(A, "2 is done")]


def test_timers_and_tokens_of_slots_find_their_way_back():
    world, toys = three_slots()
    node, timer, record = world.nodes["a"], Timer("mine"), SubscriptionRemoved("s")
    (set_timer, persist, cancel) = ask_slot(
        world, toys[2], SetTimer(timer, 5), Persist(7, record), CancelTimer(timer)
    )
    assert isinstance(set_timer, SetTimer) and set_timer.timer != timer
    assert cancel == CancelTimer(set_timer.timer)
    node.handle(TimerFired(set_timer.timer), 5)
    node.handle(Persisted(persist.token), 6)
    assert toys[2].heard[-2:] == [TimerFired(timer), Persisted(7)]
    effects = ask_slot(world, toys[0], SetTimer(timer, 5), Persist(7, record))
    assert effects == [SetTimer(timer, 5), Persist(7, record)]
    node.handle(Persisted(7), 6)
    assert toys[0].heard[-1] == Persisted(7)
    node.handle(Start(), 7, slot=1)
    assert toys[1].heard == [Start()]


# --- settings ----------------------------------------------------------------------------------


def test_tunnels_need_sessions():
    with pytest.raises(ValueError, match="tunnels need acknowledge"):
        LinkSettings(tunnels=True)
    with pytest.raises(ValueError, match="resend_ms is at least 1"):
        LinkSettings(resend_ms=0)
    with pytest.raises(ValueError, match="tunnel_candidates is from 1 to 32"):
        LinkSettings(tunnel_candidates=33)


def test_unexpected_causes_change_nothing():
    world = World(PLAIN, "a")
    node = world.nodes["a"]
    assert node.handle(PeerLost(B), 0) == []
    assert node.handle(ConnectFailed("b"), 0) == []
    (drop,) = node.handle(Received(B, (Light("x"),)), 0)
    assert isinstance(drop, Drop)
    drops = node.handle(Received(B, (Acknowledgement(1, 1, 1), Goodbye(1, 1))), 0)
    assert drops == 2 * [Drop("a frame of another session", None, B)]
    assert world.toys["a"].heard == []


@BOTH
def test_adopted_links_tell_the_overlay_what_the_other_side_offers(settings):
    world = World(settings, "ab")
    told: list[tuple[PeerId, tuple[str, ...]]] = []
    world.toys["a"].peer_offers = lambda peer, features: told.append((peer, features))
    world.nodes["a"].adopt_link(B, features=("batches",))
    world.nodes["b"].adopt_link(A)
    assert told == [(B, ("batches",))]
    assert world.nodes["a"]._links.table["b"].features == ("batches",)
    assert world.nodes["b"]._links.table["a"].features == world.nodes["b"].features


def test_an_earlier_version_gets_names_of_events_that_are_no_longer_than_ids():
    world = World(PLAIN, "ab")
    node = world.nodes["a"]
    node.adopt_link(B, features=())
    long, short = (Publication(name, {}, key=network_key(b"claim")) for name in (64 * "e", "e"))
    links = node._links
    links.send(0, Send(B, (Flooded(long, 1), Flooded(short, 1))))
    (send,) = links.take_effects()
    cut, same = (message.publication for message in send.messages)
    assert (cut.key, len(cut.name)) == (long.key, 64)
    assert (same.id, same.key) == ("e", short.key)
