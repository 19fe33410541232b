"""The simulated network: connections that are made, break and close, and messages on their way.

Connections behave as TCP's do. `Connect` reaches the other host after one latency, which learns of
the connection then; the one who asked learns of it another latency later, and before anything that
the other says. Whoever cannot be reached makes the attempt fail after a while. A cut connection
carries nothing any more, and each end notices by itself, later. What was sent before a host crashed
may still arrive; what was sent before it closed a connection does, and then the close.

A host that stands still keeps its connections, and takes nothing from them until it goes on; nobody
is let in meanwhile. Others doubt it, and give it up, as they would a connection that was cut.

On a connection single messages may be lost, doubled or overtaken, as if it were UDP, where the
settings say so; else they keep their order. Where messages wait for their `turn_ms`, a receiver
puts those with filters aside, as a live one does (`runtime/connection`): events overtake them, what
else comes waits behind them, and a connection that closes takes along what has not had its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from peersub.overlays.core.causes import (
    Cause,
    ConnectFailed,
    PeerConnected,
    PeerHeard,
    PeerInDoubt,
    PeerLost,
    Received,
)
from peersub.overlays.core.draws import draw, draw_below
from peersub.overlays.core.effects import Disconnect, Send
from peersub.overlays.core.messages import Message
from peersub.simulator.clock import Clock
from peersub.simulator.counters import Counters
from peersub.simulator.hosts import NOT_CLOSING, Channel, Host
from peersub.simulator.settings import NetworkSettings
from peersub.wire.frames import FILTER_TAGS, tag_told

__all__ = ["DriverRuleError", "Network"]


class DriverRuleError(AssertionError):
    """A node asked for what it may not ask for, such as a Send where no link is up."""


class Network:
    """Hosts, who can talk to whom, and all that is under way.

    `tell` hands a cause to the node on a host. `through_wire` replaces messages by what the
    receiver would read of their bytes.
    """

    def __init__(
        self,
        clock: Clock,
        settings: NetworkSettings,
        seed: int,
        counters: Counters,
        tell: Callable[[Host, Cause], None],
        through_wire: Callable[[tuple[Message, ...]], tuple[Message, ...]] | None = None,
    ) -> None:
        self.hosts: dict[str, Host] = {}
        self.in_flight = 0
        """Messages, attempts, openings, closings and losses to be noticed that are under way."""
        self._clock = clock
        self._settings = settings
        self._seed = seed
        self._counters = counters
        self._tell = tell
        self._through_wire = through_wire
        self._blocked: dict[tuple[str, str], None] = {}
        self._attempts = 0
        self._latency_ms = settings.latency_ms
        self._latency_span = settings.jitter_ms + 1
        self._is_reliable = settings.is_reliable

    # --- who can talk to whom ------------------------------------------------------------------

    def can_talk(self, one: Host, other: Host) -> bool:
        """Whether nothing lies between two hosts; whether they are on is another question."""
        return one.group == other.group and (
            not self._blocked or _pair(one.name, other.name) not in self._blocked
        )

    @property
    def is_partitioned(self) -> bool:
        """Whether some nodes cannot talk to others because of a partition."""
        return any(host.group for host in self.hosts.values())

    def partition(self, groups: Sequence[Sequence[str]]) -> None:
        """Nodes of different groups can no longer talk; those in none are a group of their own."""
        for host in self.hosts.values():
            host.group = 0
        for number, names in enumerate(groups, start=1):
            for name in names:
                self.hosts[name].group = number
        self._cut_what_cannot_talk()

    def heal(self) -> None:
        """No partition any more."""
        for host in self.hosts.values():
            host.group = 0

    def block(self, pairs: Iterable[tuple[str, str]]) -> None:
        """These pairs of nodes can no longer talk to each other."""
        for one, other in pairs:
            self._blocked[_pair(one, other)] = None
        self._cut_what_cannot_talk()

    def unblock(self, pairs: Iterable[tuple[str, str]]) -> None:
        """These pairs can talk again."""
        for one, other in pairs:
            self._blocked.pop(_pair(one, other), None)

    def blocked_pairs(self) -> list[tuple[str, str]]:
        """The pairs that cannot talk to each other, in the order in which they were blocked."""
        return list(self._blocked)

    def _cut_what_cannot_talk(self) -> None:
        for host in self.hosts.values():
            for channel in host.links.values():
                if not channel.is_cut and not self.can_talk(host, channel.receiver):
                    self._cut(channel)

    def _cut(self, channel: Channel) -> None:
        """The connection carries nothing any more; both ends notice later."""
        for way in (channel, channel.back):
            way.is_cut = True
            if way.sender.links.get(way.receiver.name) is way:
                self._notice_later(way, "the connection broke")

    def switch_off(self, host: Host) -> None:
        """A crash: what comes to the host goes nowhere, and its peers notice later."""
        for channel in host.links.values():
            back = channel.back
            back.is_cut = True
            if back.sender.links.get(host.name) is back:
                self._notice_later(back, "the connection broke")
        host.switch_off()
        host.go_on()

    # --- hosts that stand still ----------------------------------------------------------------

    def stand_still(self, host: Host, duration_ms: int) -> None:
        """The host does nothing for a while, and its peers notice, if it lasts."""
        until_ms = self._clock.now_ms + duration_ms
        if host.still_until_ms is None:
            host.still_until_ms = until_ms
            for channel in host.links.values():
                back = channel.back
                if not back.is_cut and back.sender.links.get(host.name) is back:
                    self._doubt_later(back)
                    self._plan(self._detection_ms(back), self._give_up, (back,))
        host.still_until_ms = max(host.still_until_ms, until_ms)

    def go_on(self, host: Host) -> None:
        """The host takes what came meanwhile, and those who doubted it hear of it again."""
        for channel in host.links.values():
            if channel.back.in_doubt and not channel.is_cut:
                self._plan(self._latency(channel), self._hear, (channel.back,))
        host.go_on()

    def _give_up(self, channel: Channel) -> None:
        """Nothing has been heard of the receiver for too long."""
        if channel.sender.is_put_off(self._give_up, channel):
            return
        self.in_flight -= 1
        if channel.receiver.still_until_ms is not None and self._is_believed(channel):
            self.close(channel, "nothing was heard of it for too long")
            self._counters.links_lost += 1
            self._tell(channel.sender, PeerLost(channel.peer, "nothing was heard of it"))

    def _doubt_later(self, channel: Channel) -> None:
        doubt_ms = self._settings.doubt_ms
        if doubt_ms:
            wait_ms = doubt_ms + int(channel.share() * (doubt_ms // 2 + 1))
            self._plan(wait_ms, self._doubt, (channel,))

    def _doubt(self, channel: Channel) -> None:
        if channel.sender.is_put_off(self._doubt, channel):
            return
        self.in_flight -= 1
        is_silent = channel.is_cut or channel.receiver.still_until_ms is not None
        if is_silent and self._is_believed(channel):
            channel.in_doubt = True
            self._tell(channel.sender, PeerInDoubt(channel.peer))

    def _hear(self, channel: Channel) -> None:
        if channel.sender.is_put_off(self._hear, channel):
            return
        self.in_flight -= 1
        if channel.in_doubt and not channel.is_cut and self._is_believed(channel):
            channel.in_doubt = False
            self._tell(channel.sender, PeerHeard(channel.peer))

    def _is_believed(self, channel: Channel) -> bool:
        return channel.sender.links.get(channel.receiver.name) is channel

    # --- connections ---------------------------------------------------------------------------

    def connect(self, host: Host, node: str) -> None:
        """The node wants a link to another; one that it has, or tries to get, is enough."""
        if node in host.links or node in host.attempts:
            return
        self._attempts += 1
        self._counters.connects += 1
        host.attempts[node] = self._attempts
        now_ms = self._clock.now_ms
        span, seed = self._latency_span, self._seed
        wait_ms = self._latency_ms + draw_below(span, seed, "connect", host.name, node, now_ms)
        self._plan(wait_ms, self._reach, (host, node, self._attempts, now_ms))

    def _reach(self, host: Host, node: str, attempt: int, since_ms: int) -> None:
        self.in_flight -= 1
        if host.attempts.get(node) != attempt:
            return
        target = self.hosts.get(node)
        if target is None or not self._lets_in(target) or not self.can_talk(host, target):
            wait_ms = since_ms + self._settings.connect_failed_ms - self._clock.now_ms
            self._plan(max(wait_ms, 0), self._fail, (host, node, attempt))
            return
        former = target.links.get(host.name)
        if former is not None:
            closing_ms = former.back.closing_ms
            if closing_ms != NOT_CLOSING and not former.is_cut:
                # The close of the former connection is on its way, and comes first.
                wait_ms = closing_ms - self._clock.now_ms
                self._plan(wait_ms, self._reach, (host, node, attempt, since_ms))
                return
            self._lose(former, "the other end knows nothing of the connection")
            if target.node is None:
                self._plan(0, self._reach, (host, node, attempt, since_ms))
                return
        self._establish(host, target)

    def _lets_in(self, target: Host) -> bool:
        return target.is_on and target.still_until_ms is None

    def _establish(self, host: Host, target: Host) -> None:
        there, back = self._channels(host, target)
        opening_ms = self._latency(back)
        back.open_ms = back.last_ms = self._clock.now_ms + opening_ms
        target.links[host.name] = back
        target.attempts.pop(host.name, None)
        attempt = host.attempts[target.name]
        self._plan(opening_ms, self._open, (there, attempt))
        self._tell(target, PeerConnected(back.peer))

    def _channels(self, host: Host, target: Host) -> tuple[Channel, Channel]:
        now_ms = self._clock.now_ms
        seed = draw(self._seed, "channel", host.name, target.name, now_ms)
        there = Channel(host, target, now_ms, seed)
        back = Channel(target, host, now_ms, ~seed)
        there.back, back.back = back, there
        return there, back

    def _open(self, channel: Channel, attempt: int) -> None:
        """The one who asked for the connection learns of it."""
        if channel.sender.is_put_off(self._open, channel, attempt):
            return
        self.in_flight -= 1
        host, target = channel.sender, channel.receiver
        back = channel.back
        if host.attempts.get(target.name) != attempt:
            # It crashed meanwhile, and the target holds a connection to nobody.
            back.is_cut = True
            if target.links.get(host.name) is back:
                self._notice_later(back, "the connection broke")
        elif channel.is_cut:
            self._fail_now(host, target.name, "the connection broke while it was made")
        else:
            del host.attempts[target.name]
            host.links[target.name] = channel
            self._tell(host, PeerConnected(channel.peer))

    def _fail(self, host: Host, node: str, attempt: int) -> None:
        if host.is_put_off(self._fail, host, node, attempt):
            return
        self.in_flight -= 1
        if host.attempts.get(node) == attempt:
            self._fail_now(host, node, "nobody answers")

    def _fail_now(self, host: Host, node: str, reason: str) -> None:
        del host.attempts[node]
        self._counters.connects_failed += 1
        self._tell(host, ConnectFailed(node, reason))

    def disconnect(self, host: Host, effect: Disconnect) -> None:
        """Close a link; the other end learns of it after all that was sent. None is no error."""
        channel = host.links.get(effect.peer.node)
        if channel is not None:
            self.close(channel, effect.reason)

    def close(self, channel: Channel, reason: str) -> None:
        """End a connection from its sender; the receiver learns of it after all that was sent."""
        del channel.sender.links[channel.receiver.name]
        if channel.is_cut:
            return
        now_ms = self._clock.now_ms
        channel.closing_ms = max(now_ms + self._latency(channel), channel.last_ms)
        self._plan(channel.closing_ms - now_ms, self._close, (channel, reason))

    def _close(self, channel: Channel, reason: str) -> None:
        back = channel.back
        if back.sender.is_put_off(self._close, channel, reason):
            return
        self.in_flight -= 1
        if not channel.is_cut and back.sender.links.get(back.receiver.name) is back:
            self._lose(back, reason)

    def _notice_later(self, channel: Channel, reason: str) -> None:
        self._plan(self._detection_ms(channel), self._notice, (channel, reason))
        self._doubt_later(channel)

    def _detection_ms(self, channel: Channel) -> int:
        settings = self._settings
        late_ms = int(channel.share() * (settings.detection_jitter_ms + 1))
        return settings.detection_ms + late_ms

    def _notice(self, channel: Channel, reason: str) -> None:
        if channel.sender.is_put_off(self._notice, channel, reason):
            return
        self.in_flight -= 1
        if channel.sender.links.get(channel.receiver.name) is channel:
            self._lose(channel, reason)

    def _lose(self, channel: Channel, reason: str) -> None:
        host = channel.sender
        del host.links[channel.receiver.name]
        self._counters.links_lost += 1
        self._tell(host, PeerLost(channel.peer, reason))

    def link(self, one: Host, other: Host) -> bool:
        """Make a connection at once, telling nobody; False if there is one."""
        if other.name in one.links:
            return False
        there, back = self._channels(one, other)
        one.links[other.name] = there
        other.links[one.name] = back
        return True

    # --- messages ------------------------------------------------------------------------------

    def send(self, host: Host, effect: Send) -> None:
        """Messages set out."""
        peer = effect.peer
        channel = host.links.get(peer.node)
        if channel is None:
            raise DriverRuleError(
                f"{host.name} sends to {peer}, and has no link to it: {effect.messages!r:.400}"
            )
        messages = effect.messages
        host.sent += len(messages)
        self._counters.count_sent(messages)
        if channel.is_cut:
            self._counters.lost += len(messages)
            return
        if self._through_wire is not None:
            messages = self._through_wire(messages)
        if self._is_reliable:
            self._deliver_in_order(channel, messages)
        else:
            self._deliver_unreliably(channel, messages)

    def _deliver_in_order(self, channel: Channel, messages: tuple[Message, ...]) -> None:
        at_ms = self._clock.now_ms + self._latency(channel)
        if at_ms < channel.last_ms:
            at_ms = channel.last_ms
        else:
            channel.last_ms = at_ms
        self.in_flight += 1
        self._clock.plan(at_ms, self._arrive, (channel, messages))

    def _deliver_unreliably(self, channel: Channel, messages: tuple[Message, ...]) -> None:
        """Each message has a fate of its own; those that nothing befalls stay together."""
        share, settings = channel.share, self._settings
        together: list[Message] = []
        for message in messages:
            if share() < settings.loss:
                self._counters.lost += 1
            elif share() < settings.reorder:
                self._deliver_late(channel, message)
            else:
                together.append(message)
            if share() < settings.duplicate:
                self._counters.doubled += 1
                if settings.reorder:
                    self._deliver_late(channel, message)
                else:
                    together.append(message)
        if together:
            self._deliver_in_order(channel, tuple(together))

    def _deliver_late(self, channel: Channel, message: Message) -> None:
        """Out of order: others may overtake the message, or be overtaken by it."""
        wait_ms = self._latency(channel)
        wait_ms += int(channel.share() * (self._settings.reorder_ms + 1))
        at_ms = max(self._clock.now_ms + wait_ms, channel.open_ms)
        self.in_flight += 1
        self._clock.plan(at_ms, self._arrive, (channel, (message,)))

    def _arrive(self, channel: Channel, messages: tuple[Message, ...]) -> None:
        receiver = channel.receiver
        if receiver.is_put_off(self._arrive, channel, messages):
            return
        self.in_flight -= 1
        back = channel.back
        if channel.is_cut or receiver.links.get(channel.sender.name) is not back:
            self._counters.lost += len(messages)
            return
        receiver.received += len(messages)
        if self._settings.turn_ms:
            messages = self._overtaking(channel, messages)
        if messages:
            self._tell(receiver, Received(back.peer, messages))

    def _overtaking(self, channel: Channel, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """Those that do not wait for a turn; the others are put aside."""
        at_once: list[Message] = []
        for message in messages:
            tag = tag_told(message)
            if tag not in FILTER_TAGS and not (channel.aside and tag):
                at_once.append(message)
                continue
            if not channel.aside:
                self._plan_turn(channel)
            channel.aside.append(message)
        return tuple(at_once)

    def _plan_turn(self, channel: Channel) -> None:
        # Mostly short: who is slow for long takes less than comes, and is never quiet.
        wait_ms = int(channel.share() ** 8 * (self._settings.turn_ms + 1))
        self._plan(wait_ms, self._take_turn, (channel,))

    def _take_turn(self, channel: Channel) -> None:
        """The first message that was put aside has its turn."""
        receiver = channel.receiver
        if receiver.is_put_off(self._take_turn, channel):
            return
        self.in_flight -= 1
        if receiver.links.get(channel.sender.name) is not channel.back:
            self._counters.lost += len(channel.aside)
            channel.aside.clear()
            return
        message = channel.aside.popleft()
        if channel.aside:
            self._plan_turn(channel)
        self._tell(receiver, Received(channel.back.peer, (message,)))

    # --- time ----------------------------------------------------------------------------------

    def _latency(self, channel: Channel) -> int:
        if self._latency_span == 1:
            return self._latency_ms
        return self._latency_ms + int(channel.share() * self._latency_span)

    def _plan(
        self, wait_ms: int, action: Callable[..., None], arguments: tuple[object, ...]
    ) -> None:
        self.in_flight += 1
        self._clock.plan(self._clock.now_ms + wait_ms, action, arguments)


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one <= other else (other, one)
