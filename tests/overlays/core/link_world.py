"""Nodes with toy overlays on an adversarial network, driven step by step.

The network is the test's own, not the simulator. A connection has two ends; each end believes in it
until it closes it or is told that it is lost. What is in flight on a connection may be delivered in
any order, lost or doubled, as the test says, and dies with it. Breaking the rules of drivers, such
as a Send where no connection is believed in, is an AssertionError.

`Toy` numbers what it sends, and judges what it gets: what arrives between PeerConnected and
PeerLost must be a prefix of what was sent in one such time at the other end, in order, nothing
twice. What it is told by a test's word moves it to say something to all it knows, as real peers do
in the midst of a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from peersub.overlays.core.causes import (
    Cause,
    ConnectFailed,
    PeerConnected,
    PeerHeard,
    PeerInDoubt,
    PeerLost,
    PeerResumed,
    Received,
    Timer,
    TimerFired,
)
from peersub.overlays.core.effects import (
    CancelTimer,
    Connect,
    Disconnect,
    Drop,
    Effect,
    Send,
    SetTimer,
)
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.node import LinkSettings, Node
from peersub.overlays.core.protocol import Overlay

ACKNOWLEDGED = LinkSettings(acknowledge=True, resend_ms=100, resends_max=8)
TUNNELLED = replace(ACKNOWLEDGED, tunnels=True, tunnel_timeout_ms=20_000, direct_retry_ms=1_000)
PLAIN = LinkSettings()
STEPS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Numbered(Message):
    """The message with this number of a stream: what its sender sent between two losses."""

    stream: tuple[PeerId, int]
    number: int
    moves: bool = False
    """Whether who gets it says something as well."""


@dataclass(frozen=True, slots=True)
class Light(Message):
    """A message that may be lost."""

    reliable: ClassVar[bool] = False

    text: str


@dataclass(frozen=True, slots=True)
class Heavy(Message):
    """A reliable message outside of the streams."""

    text: str


@dataclass
class Stay:
    """The time between PeerConnected and PeerLost, as one end sees it."""

    peer: PeerId
    stream: int
    sent: int = 0
    received: list[Numbered] = field(default_factory=list)
    is_over: bool = False


class Toy(Overlay):
    """An overlay that does what the test says, and writes down what it sees."""

    name = "toy"

    def __init__(self, me: PeerId, settings: Mapping[str, str] | None = None) -> None:
        self.me = me
        self.settings = dict(settings or {})
        self.stays: list[Stay] = []
        self.current: dict[str, Stay] = {}
        self._heard_in: dict[tuple[PeerId, int], Stay] = {}
        self.heard: list[Cause] = []
        self.light: list[tuple[str, str]] = []
        self.failures: list[tuple[str, str]] = []
        self.losses: list[tuple[PeerId, str]] = []
        self.in_doubt: dict[str, None] = {}
        self.answers: list[tuple[Cause, list[Effect]]] = []
        """What to do when a cause comes, once."""

    def handle(self, cause: Cause, now_ms: int) -> list[Effect]:
        self.heard.append(cause)
        match cause:
            case PeerConnected(peer):
                self._on_connected(peer)
            case PeerLost(peer, reason):
                stay = self.current.pop(peer.node)
                assert stay.peer == peer, f"{self.me}: lost {peer}, but knows {stay.peer}"
                self.in_doubt.pop(peer.node, None)
                stay.is_over = True
                self.losses.append((peer, reason))
            case PeerInDoubt(peer):
                assert self.current[peer.node].peer == peer
                assert peer.node not in self.in_doubt, f"{self.me}: doubts {peer} twice"
                self.in_doubt[peer.node] = None
            case PeerHeard(peer):
                assert self.current[peer.node].peer == peer
                assert peer.node in self.in_doubt, f"{self.me}: hears {peer}, undoubted"
                del self.in_doubt[peer.node]
            case PeerResumed(peer):
                assert self.current[peer.node].peer == peer
                self.in_doubt.pop(peer.node, None)
            case ConnectFailed(node, reason):
                assert node not in self.current
                self.failures.append((node, reason))
            case Received(peer, messages):
                for message in messages:
                    self._on_message(peer, message)
                if any(isinstance(message, Numbered) and message.moves for message in messages):
                    return [self.numbered(node, 1) for node in self.current]
            case _:
                pass
        for place, (expected, effects) in enumerate(self.answers):
            if expected == cause:
                del self.answers[place]
                return effects
        return []

    def _on_connected(self, peer: PeerId) -> None:
        known = self.current.get(peer.node)
        if known is None:
            stay = Stay(peer, len(self.stays) + 1)
            self.stays.append(stay)
            self.current[peer.node] = stay
        else:
            assert known.peer == peer, f"{self.me}: {peer} without the loss of {known.peer}"

    def _on_message(self, peer: PeerId, message: Message) -> None:
        if isinstance(message, Light | Heavy):
            assert peer.node in self.current, f"{self.me}: {message} of a stranger"
            self.light.append((peer.node, message.text))
            return
        assert isinstance(message, Numbered), message
        stay = self.current[peer.node]
        assert stay.peer == peer == message.stream[0]
        assert self._heard_in.setdefault(message.stream, stay) is stay, "a stream in two stays"
        assert message.stream == (stay.received or [message])[0].stream, "two streams in one stay"
        assert message.number == len(stay.received) + 1, f"{message} after {stay.received}"
        stay.received.append(message)

    def greeting(self) -> bytes:
        return f"I am {self.me.node}".encode()

    def shared_settings(self) -> Mapping[str, str]:
        return self.settings

    def links(self) -> Iterable[PeerId]:
        return [self.current[node].peer for node in sorted(self.current)]

    def describe(self) -> Mapping[str, Any]:
        return {}

    def numbered(self, node: str, count: int, *, moves: bool = False) -> Send:
        """The next messages of the stream to a node."""
        stay = self.current[node]
        messages = [
            Numbered((self.me, stay.stream), stay.sent + place + 1, moves) for place in range(count)
        ]
        stay.sent += count
        return Send(stay.peer, tuple(messages))


@dataclass
class Connection:
    """A connection, and what is under way on it, by the end it goes to."""

    ends: dict[str, PeerId]
    """Who believes in it: the name of an end, and how it names the other end."""
    flying: dict[str, list[Message]]
    closed_to: dict[str, str] = field(default_factory=dict)
    """Ends that learn of the closing once all before has gone, and the reason."""
    silent_to: dict[str, None] = field(default_factory=dict)
    """Ends that hear nothing over it at present."""
    is_broken: bool = False

    def other(self, name: str) -> str:
        first, second = self.flying
        return second if name == first else first


class World:
    """Nodes, connections, timers, and a clock."""

    def __init__(self, settings: LinkSettings, names: Iterable[str], **options: Any) -> None:
        self.settings = settings
        self.options = options
        self.now_ms = 0
        self.nodes: dict[str, Node] = {}
        self.toys: dict[str, Toy] = {}
        self.past: list[Toy] = []
        self.connections: list[Connection] = []
        self.dials: list[tuple[str, str]] = []
        self.blocked: list[tuple[str, str]] = []
        self.timers: dict[tuple[str, Timer], tuple[int, int]] = {}
        self.drops: list[Drop] = []
        self.sends: list[tuple[str, Send]] = []
        self._planned = 0
        for name in names:
            self.start(name)

    # --- nodes ---------------------------------------------------------------------------------

    def start(self, name: str, incarnation: int = 0, **options: Any) -> Node:
        toy = Toy(PeerId(name, incarnation), options.pop("shared", None))
        self.toys[name] = toy
        self.nodes[name] = Node(toy, settings=self.settings, **{**self.options, **options})
        return self.nodes[name]

    def crash(self, name: str) -> None:
        """All memory is gone; the others notice later."""
        self.past.append(self.toys.pop(name))
        del self.nodes[name]
        self.dials = [dial for dial in self.dials if dial[0] != name]
        self.timers = {key: due for key, due in self.timers.items() if key[0] != name}
        for connection in self.connections:
            if name in connection.flying:
                self.sever(connection)
                connection.ends.pop(name, None)

    def tell(self, name: str, cause: Cause) -> None:
        if name in self.nodes:
            self.carry_out(name, self.nodes[name].handle(cause, self.now_ms))

    def ask(self, name: str, *effects: Effect) -> None:
        """Let the overlay of a node do something by itself."""
        trigger = TimerFired(Timer("test", len(self.toys[name].heard)))
        self.toys[name].answers.append((trigger, list(effects)))
        self.tell(name, trigger)

    def carry_out(self, name: str, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(peer, messages):
                    self.sends.append((name, effect))
                    connection = self.connection_of(name, peer.node)
                    assert connection is not None, f"{name} sends to {peer} without a connection"
                    assert connection.ends[name] == peer
                    if not connection.is_broken:
                        connection.flying[peer.node].extend(messages)
                case Connect(node):
                    if not self.connection_of(name, node) and (name, node) not in self.dials:
                        self.dials.append((name, node))
                case Disconnect(peer, reason):
                    self.close(name, peer, reason)
                case SetTimer(timer, delay_ms):
                    assert delay_ms >= 0
                    self._planned += 1
                    self.timers[name, timer] = (self.now_ms + delay_ms, self._planned)
                case CancelTimer(timer):
                    self.timers.pop((name, timer), None)
                case Drop():
                    self.drops.append(effect)
                case _:
                    pass

    # --- connections ---------------------------------------------------------------------------

    def connection_of(self, name: str, other: str) -> Connection | None:
        """The connection that an end believes in."""
        for connection in self.connections:
            if name in connection.ends and connection.other(name) == other:
                return connection
        return None

    def close(self, name: str, peer: PeerId, reason: str) -> None:
        connection = self.connection_of(name, peer.node)
        if connection is not None:
            del connection.ends[name]
            connection.flying[name].clear()
            if peer.node in connection.ends and not connection.is_broken:
                connection.closed_to[peer.node] = reason

    def dial(self, place: int = 0) -> None:
        """An attempt to connect comes to its end."""
        name, other = self.dials.pop(place)
        if self.connection_of(name, other) is not None:
            return
        pair = (min(name, other), max(name, other))
        if other not in self.nodes or pair in self.blocked:
            self.tell(name, ConnectFailed(other, "nobody answers"))
            return
        old = self.connection_of(other, name)
        if old is not None:
            self.notice(old, other)
        here, there = self.nodes[name].me, self.nodes[other].me
        connection = Connection({name: there, other: here}, {name: [], other: []})
        self.connections.append(connection)
        self.tell(other, PeerConnected(here))
        if name in connection.ends:
            self.tell(name, PeerConnected(there))

    def sever(self, connection: Connection) -> None:
        """The connection carries nothing any more; its ends do not know yet."""
        connection.is_broken = True
        for flying in connection.flying.values():
            flying.clear()

    def block(self, one: str, other: str) -> None:
        self.blocked.append((min(one, other), max(one, other)))
        for connection in self.connections:
            if one in connection.flying and other in connection.flying:
                self.sever(connection)

    def unblock(self, one: str, other: str) -> None:
        pair = (min(one, other), max(one, other))
        self.blocked = [blocked for blocked in self.blocked if blocked != pair]

    def notice(self, connection: Connection, name: str) -> None:
        """An end learns that the connection is gone."""
        peer = connection.ends.pop(name, None)
        if peer is not None:
            reason = connection.closed_to.pop(name, "broke")
            connection.flying[name].clear()
            self.tell(name, PeerLost(peer, reason))

    def to_notice(self) -> list[tuple[Connection, str]]:
        """Ends that may learn now that their connection is gone."""
        return [
            (connection, name)
            for connection in self.connections
            for name in connection.ends
            if connection.is_broken
            or (name in connection.closed_to and not connection.flying[name])
        ]

    def fall_silent(self, connection: Connection, name: str) -> None:
        """An end hears nothing over the connection, for now."""
        if name in connection.ends and name not in connection.silent_to:
            connection.silent_to[name] = None
            self.tell(name, PeerInDoubt(connection.ends[name]))

    def be_heard(self, connection: Connection, name: str) -> None:
        """An end hears something again."""
        if connection.silent_to.pop(name, ...) is None and name in connection.ends:
            self.tell(name, PeerHeard(connection.ends[name]))

    # --- messages ------------------------------------------------------------------------------

    def flying(self) -> list[tuple[Connection, str]]:
        """Connections with something under way, and to which end."""
        self.connections = [c for c in self.connections if c.ends]
        return [
            (connection, name)
            for connection in self.connections
            for name, messages in connection.flying.items()
            if messages and name in connection.ends
        ]

    def deliver(self, connection: Connection, name: str, place: int = 0, count: int = 1) -> None:
        """Some messages arrive together, beginning with the one at this place."""
        messages = connection.flying[name][place : place + count]
        del connection.flying[name][place : place + count]
        self.tell(name, Received(connection.ends[name], tuple(messages)))

    # --- time ----------------------------------------------------------------------------------

    def fire(self) -> bool:
        """The next timer fires."""
        if not self.timers:
            return False
        key = min(self.timers, key=lambda key: self.timers[key])
        due_ms, _ = self.timers.pop(key)
        self.now_ms = max(self.now_ms, due_ms)
        self.tell(key[0], TimerFired(key[1]))
        return True

    def step(self) -> bool:
        """The next thing happens, as on a network without faults: no timer while others do."""
        for connection, name in self.flying():
            self.deliver(connection, name, 0, len(connection.flying[name]))
            return True
        for connection in self.connections:
            for name in () if connection.is_broken else connection.silent_to:
                self.be_heard(connection, name)
                return True
        for connection, name in self.to_notice():
            self.notice(connection, name)
            return True
        if self.dials:
            self.dial()
            return True
        return False

    def run(self) -> None:
        """No more faults, and no time passes: until nothing is under way."""
        for _ in range(STEPS_MAX):
            if not self.step():
                return
        raise AssertionError("it does not come to rest")

    def settle(self) -> None:
        """No more faults: until nothing is under way and no node has anything half done."""
        for _ in range(STEPS_MAX):
            if self.step():
                continue
            if all(node.is_settled for node in self.nodes.values()) or not self.fire():
                return
        raise AssertionError("it does not come to rest")

    def pass_time(self, duration_ms: int) -> None:
        """Without faults, time passes."""
        end_ms = self.now_ms + duration_ms
        for _ in range(STEPS_MAX):
            if self.step():
                continue
            if not self.timers or min(self.timers.values())[0] > end_ms:
                self.now_ms = end_ms
                return
            self.fire()
        raise AssertionError("it does not come to rest")

    # --- shortcuts -----------------------------------------------------------------------------

    def link(self, *pairs: tuple[str, str]) -> None:
        for one, other in pairs:
            self.ask(one, Connect(other))
        self.settle()
        for one, other in pairs:
            assert other in self.toys[one].current
            assert one in self.toys[other].current

    def numbered(self, name: str, other: str, count: int = 1, *, moves: bool = False) -> None:
        self.ask(name, self.toys[name].numbered(other, count, moves=moves))

    def check_all_arrived(self) -> None:
        """What was sent on links that are up is there; links are up at both ends or at none."""
        for name, toy in self.toys.items():
            assert not toy.in_doubt, f"{name} doubts {list(toy.in_doubt)}"
            for other, stay in toy.current.items():
                there = self.toys[other].current.get(name)
                assert there is not None, f"{name} has a link to {other}, which has none"
                assert len(there.received) == stay.sent, f"{name} to {other}"


class Chaos:
    """A drawn list of numbers as things that happen to a world, good and bad."""

    def __init__(self, world: World, *, is_lossy: bool, may_block: bool = False) -> None:
        self.world = world
        self.names = sorted(world.nodes)
        self.incarnations = dict.fromkeys(self.names, 0)
        self.happenings = [self.send, self.send, self.deliver, self.deliver, self.deliver]
        self.happenings += [self.notice, self.dial, self.dial, self.fire, self.connect]
        self.happenings += [self.disconnect, self.sever, self.restart, self.light]
        self.happenings += [self.fall_silent, self.be_heard]
        if is_lossy:
            self.happenings += [self.lose, self.double, self.reorder, self.lose, self.deliver_late]
        if may_block:
            self.happenings += [self.block, self.unblock, self.send, self.deliver]

    def happen(self, kind: int, one: int, two: int) -> None:
        self.happenings[kind % len(self.happenings)](one, two)

    def _pair(self, one: int, two: int) -> tuple[str, str]:
        name = self.names[one % len(self.names)]
        others = [other for other in self.names if other != name]
        return name, others[two % len(others)]

    def send(self, one: int, two: int) -> None:
        name, other = self._pair(one, two)
        if other in self.world.toys[name].current:
            self.world.numbered(name, other, 1 + two % 3, moves=one >= 4)

    def light(self, one: int, two: int) -> None:
        name, other = self._pair(one, two)
        stay = self.world.toys[name].current.get(other)
        if stay is not None:
            self.world.ask(name, Send(stay.peer, (Light("hi"),)))

    def connect(self, one: int, two: int) -> None:
        name, other = self._pair(one, two)
        self.world.ask(name, Connect(other))

    def disconnect(self, one: int, two: int) -> None:
        name, other = self._pair(one, two)
        stay = self.world.toys[name].current.pop(other, None)
        if stay is not None:
            stay.is_over = True
            self.world.toys[name].in_doubt.pop(other, None)
            self.world.ask(name, Disconnect(stay.peer, "enough"))

    def _flying(self, one: int) -> tuple[Connection, str] | None:
        flying = self.world.flying()
        return flying[one % len(flying)] if flying else None

    def deliver(self, one: int, two: int) -> None:
        if found := self._flying(one):
            self.world.deliver(*found, 0, 1 + two)

    def deliver_late(self, one: int, two: int) -> None:
        if found := self._flying(one):
            connection, name = found
            self.world.deliver(connection, name, two % len(connection.flying[name]))

    def lose(self, one: int, two: int) -> None:
        if found := self._flying(one):
            messages = found[0].flying[found[1]]
            del messages[two % len(messages)]

    def double(self, one: int, two: int) -> None:
        if found := self._flying(one):
            messages = found[0].flying[found[1]]
            messages.append(messages[two % len(messages)])

    def reorder(self, one: int, two: int) -> None:
        if found := self._flying(one):
            messages = found[0].flying[found[1]]
            messages.append(messages.pop(two % len(messages)))

    def notice(self, one: int, two: int) -> None:
        if ends := self.world.to_notice():
            self.world.notice(*ends[one % len(ends)])

    def dial(self, one: int, two: int) -> None:
        if self.world.dials:
            self.world.dial(one % len(self.world.dials))

    def fire(self, one: int, two: int) -> None:
        self.world.fire()

    def sever(self, one: int, two: int) -> None:
        if self.world.connections:
            self.world.sever(self.world.connections[one % len(self.world.connections)])

    def fall_silent(self, one: int, two: int) -> None:
        if self.world.connections:
            connection = self.world.connections[one % len(self.world.connections)]
            self.world.fall_silent(connection, sorted(connection.flying)[two % 2])

    def be_heard(self, one: int, two: int) -> None:
        if self.world.connections:
            connection = self.world.connections[one % len(self.world.connections)]
            self.world.be_heard(connection, sorted(connection.flying)[two % 2])

    def block(self, one: int, two: int) -> None:
        self.world.block(*self._pair(one, two))

    def unblock(self, one: int, two: int) -> None:
        self.world.unblock(*self._pair(one, two))

    def restart(self, one: int, two: int) -> None:
        if two % 4:  # Not too often.
            return
        name = self.names[one % len(self.names)]
        self.incarnations[name] += 1
        self.world.crash(name)
        self.world.start(name, self.incarnations[name])
