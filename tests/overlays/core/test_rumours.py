"""Rumours: they reach all nodes over the links that are there, and nothing unproven does."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlays.core.link_world import ACKNOWLEDGED, PLAIN, Light, Toy, World
from peersub.overlays.core import rumours as rumours_module
from peersub.overlays.core.causes import PeerConnected, PeerLost, Received, Start, Tell
from peersub.overlays.core.effects import Connect, Disconnect, Drop, Send
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.link import LinkSettings
from peersub.overlays.core.link_messages import unwrapped
from peersub.overlays.core.node import Node
from peersub.overlays.core.rumour_messages import Rumour, RumourNames, Rumours, RumourSet
from peersub.overlays.core.rumours import RUMOUR_SLOT, RumourPeer, spread_rumours
from strategies import examples

BOTH = pytest.mark.parametrize("settings", [PLAIN, ACKNOWLEDGED], ids=["plain", "acknowledged"])


def rumour(key: str, payload: bytes = b"true") -> Rumour:
    return Rumour("test", key, payload)


def is_true(told: Rumour) -> bool:
    return told.payload == b"true"


class RumourWorld(World):
    """A world in which each node also spreads rumours; what is on its disk outlives it."""

    def __init__(self, settings: LinkSettings, names: str) -> None:
        self.peers: dict[str, RumourPeer] = {}
        self.news: dict[str, list[Rumour]] = {name: [] for name in names}
        super().__init__(settings, names)

    def start(self, name: str, incarnation: int = 0, **options: Any) -> Node:
        node = super().start(name, incarnation, **options)
        news = self.news[name]
        self.peers[name] = spread_rumours(node, is_true, news.append, tuple(news))
        return node

    def tell_rumour(self, name: str, told: Rumour) -> None:
        effects = self.nodes[name].handle(Tell(told), self.now_ms, slot=RUMOUR_SLOT)
        self.carry_out(name, effects)

    def keys(self, name: str) -> list[str]:
        """What a node knows; and it heard of each, once."""
        known = sorted(told.key for told in self.peers[name].known)
        assert sorted(told.key for told in self.news[name]) == known
        return known

    def messages(self, kind: type) -> list[Any]:
        return [
            unwrapped(message)
            for _, send in self.sends
            for message in send.messages
            if isinstance(unwrapped(message), kind)
        ]


def ring(names: str) -> list[tuple[str, str]]:
    return [(one, names[(place + 1) % len(names)]) for place, one in enumerate(names)]


@BOTH
def test_a_rumour_reaches_all_and_crosses_no_link_more_than_twice(settings):
    world = RumourWorld(settings, "abcdef")
    world.link(*ring("abcdef"), ("a", "d"))
    world.tell_rumour("b", rumour("1"))
    world.settle()
    assert all(world.keys(name) == ["1"] for name in "abcdef")
    assert len(world.messages(Rumours)) <= 2 * 7
    before = len(world.sends)
    world.tell_rumour("e", rumour("1"))  # No news: nothing is said.
    assert len(world.sends) == before


@BOTH
def test_one_that_joins_learns_what_was_told_before(settings):
    world = RumourWorld(settings, "abc")
    world.link(("a", "b"))
    for key in "123":
        world.tell_rumour("a", rumour(key))
    world.tell_rumour("c", rumour("4"))
    world.settle()
    world.link(("b", "c"))
    assert all(world.keys(name) == ["1", "2", "3", "4"] for name in "abc")


def test_who_knows_the_same_says_so_in_one_digest():
    world = RumourWorld(PLAIN, "ab")
    for name in "ab":
        for key in "12" if name == "a" else "21":
            world.tell_rumour(name, rumour(key))
    world.link(("a", "b"))
    assert len(world.messages(RumourSet)) == 2
    assert not world.messages(RumourNames) and not world.messages(Rumours)


@BOTH
def test_a_partition_heals(settings):
    world = RumourWorld(settings, "abcd")
    world.link(*ring("abcd"))
    for one in "ab":
        for other in "cd":
            world.block(one, other)
    world.settle()
    world.tell_rumour("a", rumour("here"))
    world.tell_rumour("c", rumour("there"))
    world.settle()
    assert world.keys("b") == ["here"] and world.keys("d") == ["there"]
    for one in "ab":
        for other in "cd":
            world.unblock(one, other)
    world.toys["b"].current.pop("c", None)
    world.link(("b", "c"))
    assert all(world.keys(name) == ["here", "there"] for name in "abcd")


@BOTH
def test_a_link_that_breaks_while_a_rumour_is_on_its_way(settings):
    world = RumourWorld(settings, "abc")
    world.link(("a", "b"), ("b", "c"))
    world.tell_rumour("a", rumour("1"))
    for connection, _ in world.flying():
        world.sever(connection)
    world.settle()
    assert world.keys("b") == []
    world.ask("a", Connect("b"))
    world.settle()
    assert all(world.keys(name) == ["1"] for name in "abc")


def test_a_node_that_was_down_learns_what_it_missed():
    world = RumourWorld(PLAIN, "abc")
    world.link(("a", "b"), ("b", "c"))
    world.tell_rumour("a", rumour("1"))
    world.settle()
    world.crash("b")
    world.settle()
    world.tell_rumour("a", rumour("2"))
    world.start("b", 1)
    world.settle()
    assert world.keys("b") == ["1"]
    world.ask("b", Connect("a"), Connect("c"))
    world.settle()
    assert all(world.keys(name) == ["1", "2"] for name in "abc")


def test_what_nothing_proves_is_not_believed_and_goes_no_further():
    world = RumourWorld(PLAIN, "abc")
    world.link(("a", "b"), ("b", "c"))
    forged = Rumours((rumour("1", b"forged"), rumour("2")))
    peers = world.peers
    (send,) = [Send(PeerId("b", 0, RUMOUR_SLOT), (forged,))]
    world.nodes["a"]._perform(RUMOUR_SLOT, [send])
    world.carry_out("a", world.nodes["a"]._links.take_effects())
    world.settle()
    assert world.keys("b") == world.keys("c") == ["2"]
    assert (peers["b"].refused, peers["c"].refused) == (1, 0)
    assert [drop.reason for drop in world.drops] == ["a rumour about '1' that nothing proves"]
    world.tell_rumour("b", rumour("1", b"forged"))  # Nor is it when it is told here.
    world.settle()
    assert peers["b"].refused == 2 and world.keys("b") == ["2"]
    world.tell_rumour("b", rumour("1"))  # A forgery does not keep the truth away.
    world.settle()
    assert all("1" in world.keys(name) for name in "abc")


def test_bounds(monkeypatch):
    monkeypatch.setattr(rumours_module, "RUMOURS_MAX", 3)
    monkeypatch.setattr(rumours_module, "RUMOURS_PER_MESSAGE_MAX", 2)
    world = RumourWorld(PLAIN, "ab")
    for told in ("1", "x" * 257, "2", "3", "4"):
        world.tell_rumour("a", rumour(told))
    world.tell_rumour("a", rumour("5", bytes(1_025)))
    assert world.keys("a") == ["1", "2", "3"] and world.peers["a"].refused == 3
    assert world.peers["a"].describe() == {"known": 3, "refused": 3}
    world.link(("a", "b"))
    assert [len(message.rumours) for message in world.messages(Rumours)] == [2, 1]
    assert world.keys("b") == ["1", "2", "3"]


def test_names_keep_kind_and_key_apart():
    names = {Rumour(kind, key, b"").name for kind, key in (("a", "bc"), ("ab", "c"), ("abc", ""))}
    assert len(names) == 3
    assert rumour("1", b"x").name == rumour("1", b"y").name


# --- a passive slot ----------------------------------------------------------------------------


@BOTH
def test_a_passive_peer_keeps_no_link_open(settings):
    world = RumourWorld(settings, "ab")
    passive = Toy(PeerId("a", 0, 7))
    world.nodes["a"].host(passive, passive=True)
    world.link(("a", "b"))
    assert "b" in passive.current
    world.toys["a"].current.pop("b")
    world.ask("a", Disconnect(PeerId("b"), "enough"))
    world.settle()
    assert not any(connection.ends for connection in world.connections)
    assert world.toys["b"].losses == [(PeerId("a"), "enough")]
    assert passive.losses == [(PeerId("b"), "enough")]
    assert not list(world.peers["a"].links()) and not list(world.peers["b"].links())
    world.link(("a", "b"))  # And hears of the next one.
    assert "b" in passive.current


def test_an_active_peer_beside_it_does_keep_the_link():
    world = World(PLAIN, "ab")
    active, passive = Toy(PeerId("a", 0, 1)), Toy(PeerId("a", 0, 2))
    world.nodes["a"].host(active)
    world.nodes["a"].host(passive, passive=True)
    world.link(("a", "b"))
    world.toys["a"].current.pop("b")
    world.ask("a", Disconnect(PeerId("b"), "enough"))
    world.settle()
    assert world.toys["b"].losses == [] and passive.losses == []


@BOTH
def test_a_link_that_a_passive_peer_asked_for_is_the_others_to_close(settings):
    world = World(settings, "ab")
    asking = Toy(PeerId("a", 0, 1))
    world.nodes["a"].host(asking, passive=True)
    asking.answers.append((Start(), [Connect("b")]))
    world.carry_out("a", world.nodes["a"].handle(Start(), 0, slot=1))
    world.settle()
    assert "b" in asking.current and "b" in world.toys["a"].current
    assert "a" in world.toys["b"].current
    del world.toys["a"].current["b"]
    world.ask("a", Disconnect(PeerId("b"), "enough"))
    world.settle()
    assert asking.losses == [(PeerId("b"), "enough")] and world.toys["b"].losses


def test_a_passive_peer_comes_first():
    world = World(PLAIN, "ab")
    world.link(("a", "b"))
    with pytest.raises(AssertionError, match="before the first link"):
        world.nodes["a"].host(Toy(PeerId("a", 0, 1)), passive=True)


@BOTH
def test_a_node_that_spreads_none_hears_nothing_of_it(settings):
    """As an older one, which would not understand."""
    world = RumourWorld(settings, "ab")
    World.start(world, "c")
    world.link(("a", "c"), ("b", "c"))
    world.tell_rumour("a", rumour("1"))
    world.numbered("a", "c", 2)
    world.settle()
    world.check_all_arrived()
    assert not world.messages(RumourSet) and not world.messages(Rumours) and not world.drops
    world.link(("a", "b"))
    assert world.keys("b") == ["1"]


def test_what_is_no_message_about_rumours_is_dropped():
    peer = RumourPeer(PeerId("a", 0, RUMOUR_SLOT), is_true, lambda _: None)
    other = PeerId("b", 0, RUMOUR_SLOT)
    assert peer.handle(Received(other, (Rumours((rumour("1"),)),), RUMOUR_SLOT), 0) == []
    peer.handle(PeerConnected(PeerId("b")), 0)
    (drop,) = peer.handle(Received(other, (Light("x"),), RUMOUR_SLOT), 0)
    assert isinstance(drop, Drop) and peer.known == ()
    peer.handle(PeerLost(PeerId("b")), 0)
    assert peer.handle(Tell(rumour("1")), 0) == [] and len(peer.known) == 1


# --- under faults ------------------------------------------------------------------------------

steps = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)), max_size=40)


@examples(100)
@given(steps, st.booleans())
def test_all_know_all_once_the_faults_are_over(happenings, is_acknowledged):
    """Rumours are told while links come and go; then a line of links connects everybody."""
    names = "abcde"
    world = RumourWorld(ACKNOWLEDGED if is_acknowledged else PLAIN, names)
    told = []
    for kind, one, other in happenings:
        if kind == 0:
            told.append(str(len(told)))
            world.tell_rumour(names[one], rumour(told[-1]))
        elif kind == 1 and one != other:
            world.ask(names[one], Connect(names[other]))
        elif kind == 2 and world.connections:
            world.sever(world.connections[(one + other) % len(world.connections)])
        elif kind == 3 and names[other] in world.toys[names[one]].current:
            stay = world.toys[names[one]].current.pop(names[other])
            world.ask(names[one], Disconnect(stay.peer, "enough"))
        for _ in range(one):
            world.step()
    world.settle()
    for one, other in pairwise(names):
        world.ask(one, Connect(other))
    world.settle()
    assert all(world.keys(name) == sorted(told) for name in names)
