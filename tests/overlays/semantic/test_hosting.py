"""Members on nodes: local hand-over, messages that wait for a link, losses, links that close."""

from collections import deque
from dataclasses import dataclass

from peersub.overlays.core.effects import Connect, Disconnect, Drop, Send, SetTimer
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.outbox import Outbox
from peersub.overlays.semantic import hosting as module
from peersub.overlays.semantic.hosting import ANY_LIFE, Hosting, HostingSettings

IDLE_MS = 100


@dataclass(frozen=True, slots=True)
class Word(Message):
    to: int
    sender: int
    text: str = ""


class Listener:
    """A member that remembers what it hears, and answers `ping`."""

    def __init__(self, host, address):
        self.host = host
        self.address = address
        self.heard = []
        self.lost = []

    def say(self, to, text, now_ms=0):
        self.host.send(to, Word(to.slot, self.address.slot, text), now_ms)

    def on_message(self, sender, message, now_ms):
        self.heard.append((str(sender), message.text))
        if message.text == "ping":
            self.say(sender, "pong", now_ms)
        elif message.text == "for ever":
            self.say(sender, "for ever", now_ms)

    def on_lost(self, peer, now_ms):
        self.lost.append(str(peer))


class World:
    """Two nodes and one link between them, which carries messages when it is told to."""

    def __init__(self):
        self.needed = {"a": False, "b": False}
        self.outs = {}
        self.hosts = {}
        self.now_ms = 0
        self.is_up = False
        self.under_way = deque()
        self.asked = []
        self.drops = []
        for node in ("a", "b"):
            self.begin(node)

    def begin(self, node, incarnation=0):
        self.outs[node] = Outbox()
        self.hosts[node] = Hosting(
            PeerId(node, incarnation),
            HostingSettings(IDLE_MS),
            self.outs[node],
            lambda other: self.needed[node],
        )

    def member(self, node):
        host = self.hosts[node]
        address = host.new_address()
        host.add(address, Listener(host, address))
        return host.members[address.slot]

    def connect(self):
        self.is_up = True
        for node, other in (("a", "b"), ("b", "a")):
            self.hosts[node].on_connected(self.hosts[other].me, self.now_ms)

    def cut(self):
        self.is_up = False
        self.under_way.clear()
        for node, other in (("a", "b"), ("b", "a")):
            self.hosts[node].on_lost(self.hosts[other].me, self.now_ms)

    def flush(self, node):
        self.hosts[node].run(self.now_ms)
        other = "b" if node == "a" else "a"
        for effect in self.outs[node].take():
            match effect:
                case Connect():
                    self.asked.append(node)
                case Send(_, messages):
                    assert self.is_up
                    self.under_way += [(node, other, message) for message in messages]
                case Disconnect():
                    self.under_way.append((node, other, None))
                case Drop(reason):
                    self.drops.append(reason)
                case SetTimer():
                    pass

    def pass_on(self):
        """Carry one message."""
        sender, receiver, message = self.under_way.popleft()
        if not self.is_up:
            return
        if message is None:
            self.is_up = False
            self.hosts[receiver].on_lost(self.hosts[sender].me, self.now_ms)
        else:
            self.hosts[receiver].on_message(self.hosts[sender].me, message, self.now_ms)
        self.flush(receiver)

    def settle(self):
        for node in self.hosts:
            self.flush(node)
        while self.under_way:
            self.pass_on()

    def idle(self, node):
        self.now_ms += IDLE_MS
        self.hosts[node].on_idle_timer(self.now_ms)
        self.flush(node)


def test_members_of_one_node_talk_without_a_link():
    world = World()
    one, two = world.member("a"), world.member("a")
    one.say(two.address, "ping")
    world.settle()
    assert two.heard == [("a/1", "ping")]
    assert one.heard == [("a/2", "pong")]
    assert world.asked == []


def test_members_that_talk_for_ever_are_cut_off(monkeypatch):
    monkeypatch.setattr(module, "LOCAL_STEPS_MAX", 50)
    world = World()
    one, two = world.member("a"), world.member("a")
    one.say(two.address, "for ever")
    world.settle()
    assert len(one.heard) + len(two.heard) == 50
    assert len(world.drops) == 1


def test_slots_are_never_given_twice():
    world = World()
    one = world.member("a")
    world.hosts["a"].remove(one.address)
    assert world.member("a").address.slot == 2


def test_what_is_said_waits_for_a_link_in_order_and_within_a_bound(monkeypatch):
    monkeypatch.setattr(module, "QUEUED_MAX", 3)
    world = World()
    one, two = world.member("a"), world.member("b")
    for text in "pqrst":
        one.say(two.address, text)
    world.settle()
    assert world.asked == ["a"]
    world.connect()
    world.settle()
    assert [text for _, text in two.heard] == ["p", "q", "r"]
    assert world.drops == ["too much waits for a link"] * 2


def test_whichever_life_the_node_is_in_can_be_meant():
    world = World()
    world.begin("b", 4)
    one, two = world.member("a"), world.member("b")
    one.say(PeerId("b", ANY_LIFE, 1), "ping")
    world.connect()
    world.settle()
    assert two.heard == [("a/1", "ping")]
    assert one.heard == [("b~4/1", "pong")]


def test_a_member_hears_that_nobody_answers_and_that_a_node_lives_anew():
    world = World()
    one = world.member("a")
    one.say(PeerId("b", 0, 1), "hello")
    world.hosts["a"].on_connect_failed("b", 0)
    assert one.lost == ["b"]
    world.begin("b", 1)
    fresh = world.member("b")
    one.say(PeerId("b", 0, 1), "hello")
    world.connect()
    one.say(PeerId("b", 0, 1), "hello again")
    world.settle()
    assert one.lost == ["b"] * 3
    assert fresh.heard == []


def test_a_member_hears_that_another_is_gone_here_and_there():
    world = World()
    one, near, far = world.member("a"), world.member("a"), world.member("b")
    world.connect()
    world.hosts["a"].remove(near.address)
    world.hosts["b"].remove(far.address)
    one.say(far.address, "hello")
    world.settle()
    assert one.lost == ["a/2", "b/1"]
    one.say(near.address, "hello")
    world.settle()
    assert one.lost == ["a/2", "b/1", "a/2"]


def test_a_lost_link_is_told_to_all_members():
    world = World()
    one, two = world.member("a"), world.member("a")
    world.connect()
    world.cut()
    assert one.lost == two.lost == ["b"]


def test_a_link_that_nobody_needs_is_closed_and_nobody_hears_of_a_loss():
    world = World()
    one, two = world.member("a"), world.member("b")
    world.connect()
    world.settle()
    world.idle("a")
    world.settle()
    assert not world.is_up
    assert world.hosts["a"].links() == world.hosts["b"].links() == []
    assert one.lost == two.lost == []


def test_a_link_that_one_side_needs_stays():
    world = World()
    world.connect()
    world.needed["b"] = True
    world.idle("a")
    world.settle()
    assert world.is_up
    world.idle("b")
    world.settle()
    assert world.is_up


def test_a_link_that_is_used_stays():
    world = World()
    one, two = world.member("a"), world.member("b")
    world.connect()
    world.now_ms = IDLE_MS - 1
    one.say(two.address, "hello", world.now_ms)
    world.settle()
    world.now_ms = 0
    world.idle("a")
    assert not world.under_way


def test_what_the_silent_side_says_waits_for_another_link():
    world = World()
    one, two = world.member("a"), world.member("b")
    world.connect()
    world.settle()
    world.idle("a")
    world.pass_on()  # b agrees
    two.say(one.address, "wait", world.now_ms)
    world.settle()
    assert not world.is_up
    assert world.asked == ["b"]
    world.connect()
    world.settle()
    assert [text for _, text in one.heard] == ["wait"]
    assert one.lost == two.lost == []


def test_who_asked_may_need_the_link_again():
    world = World()
    one, two = world.member("a"), world.member("b")
    world.connect()
    world.settle()
    world.idle("a")
    world.pass_on()
    two.say(one.address, "wait", world.now_ms)
    world.needed["a"] = True
    world.settle()
    assert world.is_up
    assert [text for _, text in one.heard] == ["wait"]


def test_both_sides_may_ask_at_once():
    for needing in ("", "a", "b", "ab"):
        world = World()
        one, two = world.member("a"), world.member("b")
        world.connect()
        world.settle()
        world.idle("a")
        world.now_ms -= IDLE_MS
        world.idle("b")
        world.pass_on()
        world.pass_on()
        if "a" in needing:
            one.say(two.address, "wait", world.now_ms)
        if "b" in needing:
            two.say(one.address, "wait", world.now_ms)
        world.settle()
        if needing and not world.is_up:
            world.connect()
            world.settle()
        assert len(two.heard) == ("a" in needing), needing
        assert len(one.heard) == ("b" in needing), needing
        assert one.lost == two.lost == []
