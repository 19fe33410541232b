"""The links of a node: connections become links when both HELLOs agree, and end for a reason.

Between the driver, which has connections, and the peers of the node, which want links:

* a connection is greeted from both sides at once; the peers hear of it when both greetings are
  known on both sides and agree (`greetings`), else it is refused and closed;
* a `Session` on each link makes reliable messages arrive once and in order; where the driver says
  that its connections do so anyway (`acknowledge=False`) there is none, and messages pass as they
  are: no frames, no timers, no copies kept;
* whatever ends the link here tells the other side why in a `Goodbye`, after all that was said
  before; a connection that ends without one is a failure, and `Tunnels` may find a way round it.

What a driver must keep to: connections are known by the node's name, at most one per node; the
PeerLost of one comes before the PeerConnected of the next; after `Disconnect` nothing more comes of
the old one; `Disconnect` of what is gone is no error. A driver that accepts a connection reads the
first message, HELLO, to learn the name.

Invariants: a peer gets PeerConnected and PeerLost alternately for each node, and messages only in
between. The exception is the answer to a `Connect` to a node that the peer has a link to: it is
PeerConnected once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from peersub.overlays.core.causes import (
    Cause,
    ConnectFailed,
    PeerLost,
    PeerResumed,
    Timer,
)
from peersub.overlays.core.doubts import Doubts
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
from peersub.overlays.core.letters import Letters
from peersub.overlays.core.link import Link, LinkSettings, LinkState, adopted_epoch
from peersub.overlays.core.link_messages import (
    BetweenSlots,
    Goodbye,
    Hello,
    LinkWanted,
    Tunnelled,
)
from peersub.overlays.core.messages import Message
from peersub.overlays.core.pending_causes import PendingCauses
from peersub.overlays.core.session import BACKOFF_DOUBLINGS_MAX, UNACKNOWLEDGED_MAX
from peersub.overlays.core.tunnels import Tunnels

__all__ = ["HELD_LIGHT_MAX", "Links"]

HELD_LIGHT_MAX = 256
"""Light messages on one link that wait while there is no path; the oldest are dropped."""
LINKS_MAX = 65_536
"""Links beyond which no node is welcome over a relay."""
REFUSALS_KEPT_MAX = 64
"""Nodes of which is remembered why there can be no link to them."""
CLOSING_RESENDS = 8
"""How many times `resend_ms` a link may take to say goodbye."""

_UP = LinkState.UP
_DIALLING = LinkState.DIALLING
_GREETING = LinkState.GREETING
_CLOSING = LinkState.CLOSING
_REFUSED = LinkState.REFUSED

RESEND = "link/resend"
CLOSING = "link/closing"


class Links:
    """All links of one node.

    `make_hello` gives the node's HELLO for a link; `slots` the slots that peers live in. What comes
    out is in `effects` for the driver (`take_effects`), and in `causes` for the peers.
    """

    def __init__(
        self,
        me: PeerId,
        settings: LinkSettings,
        make_hello: Callable[[Link], Hello],
        slots: Callable[[], tuple[int, ...]],
        relays_for: Callable[[str], Iterable[PeerId]],
    ) -> None:
        self.me = me
        self.settings = settings
        self.table: dict[str, Link] = {}
        self.causes = PendingCauses()
        self.effects: list[Effect] = []
        self.now_ms = 0
        self.tunnels = Tunnels(self, relays_for) if settings.tunnels else None
        self.doubts = Doubts(self)
        self.passive: frozenset[int] = frozenset()
        """Slots whose peers use the links that there are, and keep none of them."""
        self.feature_of_slot: dict[int, str] = {}
        """What a node must offer for the peer in a slot to hear of it; for most, nothing."""
        self.unacknowledged: dict[str, None] = {}
        """Links on which an acknowledgement is due once the batch is handled."""
        self.before_telling: Callable[[], None] = _nothing
        """Called before a peer is told something, so that it first gets what arrived before."""
        self.refusals: dict[str, str] = {}
        """Why there can be no link to a node, by the last that was heard of it."""
        self._make_hello = make_hello
        self._slots = slots
        self._epoch = adopted_epoch(me)
        self._letters = Letters()

    # --- what the peers want -------------------------------------------------------------------

    def connect(self, slot: int, node: str) -> None:
        """A peer wants a link; it will hear PeerConnected or ConnectFailed.

        A link that a passive one asked for is shown to all, and is the others' to keep or close.
        """
        if node == self.me.node:
            self.tell((slot,), ConnectFailed(node, "a node does not connect to itself"))
            return
        link = self.table.get(node)
        if link is not None and link.state is _CLOSING and link.path is None:
            self.end(link, "replaced by a new link")
            link = None
        if link is None:
            link = self.dial(node)
        if link.state is _UP:
            self._hold(link, slot)
            return
        if slot not in link.asked:
            link.asked = (*link.asked, slot)
        if link.state is _DIALLING or link.state is _GREETING:
            link.wanted = True

    def _hold(self, link: Link, slot: int) -> None:
        if not link.wanted:
            link.wanted = True
            self._show(link)
            return
        is_new = slot not in link.holders
        if is_new:
            link.holders = (*link.holders, slot)
        self.doubts.connected((slot,), link, is_new=is_new)

    def dial(self, node: str) -> Link:
        """Ask the driver for a connection to a node that there is no link to."""
        link = self._new_link(PeerId(node), _DIALLING)
        self.effects.append(Connect(node))
        return link

    def disconnect(self, slot: int, peer: PeerId, reason: str) -> None:
        """A peer wants the link no more; it is closed when none of this node does.

        Those that never had a say in it, the passive ones, hear that it is gone.
        """
        link = self.table.get(peer.node)
        if link is None or slot not in link.holders or self.causes.is_behind(slot, peer.node):
            return
        link.holders = tuple(other for other in link.holders if other != slot)
        if self.passive.issuperset(link.holders):
            if link.holders:
                self.tell(link.holders, PeerLost(link.peer, reason))
                link.holders = ()
            self.close(link, reason)

    def close(self, link: Link, reason: str) -> None:
        """End the link in good order: all that was said goes through, and then a goodbye."""
        goodbye = Goodbye(link.epoch_there, link.epoch, reason)
        if link.session is None:
            self.say(link, goodbye)
            self.end(link, reason)
            return
        link.state = _CLOSING
        link.asked = link.holders = ()
        link.held = link.early = None
        wait_ms = self.settings.resend_ms * CLOSING_RESENDS
        self.effects.append(SetTimer(Timer(CLOSING, link.node), wait_ms))
        self._carry(link, goodbye)

    def send(self, slot: int, send: Send) -> None:
        """Messages of a peer for one on another node."""
        peer = send.peer
        node = peer.node
        link = self.table.get(node)
        if (
            link is None
            or slot not in link.holders
            or link.peer.incarnation != peer.incarnation
            or self.causes.is_behind(slot, node)
        ):
            self.effects.append(Drop(f"there is no link to {peer}", None, peer))
        elif link.session is not None or slot or peer.slot:
            self._send_framed(link, slot, send)
        else:
            self._letters.add_send(node, send)

    def _send_framed(self, link: Link, slot: int, send: Send) -> None:
        target = send.peer.slot
        for message in send.messages:
            if not link.holders:  # Given up because of the messages before.
                return
            reliable = message.reliable
            if slot or target:
                message = BetweenSlots(slot, target, message)
            if reliable:
                self._say_reliably(link, message)
            elif link.path is None:
                self._hold_light(link, message)
            else:
                self.say(link, message)

    # --- what the driver says ------------------------------------------------------------------

    def connected(self, peer: PeerId) -> None:
        """There is a connection: greet."""
        node = peer.node
        if node == self.me.node:
            self.effects.append(Disconnect(peer, "a node does not connect to itself"))
            return
        link = self.table.get(node)
        if link is not None and link.is_connected:
            self.lost(peer, "another connection took its place")
            link = self.table.get(node)
        if link is None:
            link = self._new_link(peer, _GREETING)
        link.address = peer
        link.is_connected = True
        if not link.epoch_there:
            link.peer = peer
            link.state = _GREETING
            link.path = node
            link.attempts = 0
            if self.tunnels:
                self.tunnels.found(link)
        self.say_hello(link, node)

    def connect_failed(self, node: str, reason: str, *, refused: bool = False) -> None:
        """There is no connection to be had."""
        link = self.table.get(node)
        if refused:
            self._keep_refusal(node, reason)
        if link is None or link.is_connected:
            return
        if link.search is not None and self.tunnels:
            self.tunnels.direct_failed(link)
        elif link.state is _DIALLING:
            self.broken(link, reason or "nobody answers")

    def lost(self, peer: PeerId, reason: str) -> None:
        """The connection is gone."""
        link = self.table.get(peer.node)
        if link is None or not link.is_connected:
            return
        self._letters.drop(link.node)
        self._without_connection(link, reason or "the connection broke")

    def _without_connection(self, link: Link, reason: str) -> None:
        link.is_connected = False
        if link.path == link.node:
            link.path = None
        self.doubts.forget(link.node)
        if self.tunnels:
            self.tunnels.connection_lost(link.node)
            if link.search is not None:
                self.tunnels.direct_failed(link)
                return
        if link.path is None:
            self.broken(link, reason)

    def timer_fired(self, timer: Timer) -> None:
        """A timer of the links."""
        link = self.table.get(timer.about)
        if timer.purpose == RESEND:
            if link is not None:
                link.timer_is_set = False
                self._resend(link)
        elif timer.purpose == CLOSING:
            if link is not None and link.state is _CLOSING:
                self.end(link, "no answer to the goodbye")
        elif self.tunnels:
            self.tunnels.timer_fired(timer)

    def adopt(self, peer: PeerId, features: tuple[str, ...]) -> None:
        """A link that is up from the start, as the one at the other end was told as well."""
        link = Link(peer, adopted_epoch(self.me), _UP)
        link.epoch_there = adopted_epoch(peer)
        link.is_connected = link.wanted = link.wanted_told = True
        link.path = peer.node
        link.features = features
        link.holders = self._slots_for(link)
        if self.settings.acknowledge:
            link.open_session(self.settings.resend_ms)
        self.table[peer.node] = link

    # --- the life of a link --------------------------------------------------------------------

    def _new_link(self, peer: PeerId, state: LinkState) -> Link:
        self._epoch += 1
        link = Link(peer, self._epoch, state)
        # Only relays have links of their own; else whatever the driver connects is for the peers.
        link.wanted = self.tunnels is None
        self.table[peer.node] = link
        return link

    def welcome(self, node: str) -> Link | None:
        """A link for a node that greets over a relay and that there was none to, if there is room.

        What comes over connections is bounded by the driver; this is not.
        """
        if len(self.table) >= LINKS_MAX:
            return None
        return self._new_link(PeerId(node), _GREETING)

    def renew(self, link: Link, peer: PeerId) -> Link:
        """The node at the other end has begun a new life: one link is lost, another begins."""
        asked, link.asked = link.asked, ()
        self._forget(link, f"{link.node} has begun a new life")
        fresh = self._new_link(peer, _GREETING)
        fresh.address = link.address
        fresh.is_connected = link.is_connected
        fresh.asked = asked
        if asked or (link.wanted and link.state is not _CLOSING):
            fresh.wanted = True
        return fresh

    def reset(self, link: Link, epoch_there: int) -> None:
        """The other side has begun the link anew, and knows nothing of the session so far."""
        if link.state is not _GREETING:
            self._forget(link, "the other side began the link anew")
            self.table[link.node] = link
            if link.state is _CLOSING and self.tunnels:
                link.wanted = bool(link.asked)
            link.state = _GREETING
        link.wanted_told = link.shown = False
        link.held = link.early = None
        link.attempts = 0
        link.epoch_there = epoch_there
        if self.settings.acknowledge:
            link.open_session(self.settings.resend_ms)

    def up(self, link: Link) -> None:
        """Both HELLOs are known on both sides."""
        link.state = _UP
        link.attempts = 0
        self.refusals.pop(link.node, None)
        if self.tunnels:
            self.tunnels.link_up(link)
        if link.wanted:
            self._show(link)

    def want(self, link: Link) -> None:
        """The overlay at the other end wants the link."""
        link.wanted_told = True
        if not link.wanted:
            link.wanted = True
            if link.state is _UP:
                self._show(link)

    def _show(self, link: Link) -> None:
        if not link.wanted_told:
            link.wanted_told = True
            self._say_reliably(link, LinkWanted())
        link.holders = self._slots_for(link)
        link.shown = True
        link.asked = ()
        self.doubts.connected(link.holders, link)

    def _slots_for(self, link: Link) -> tuple[int, ...]:
        """The slots whose peers hear of a link: those that the other end understands."""
        if not self.feature_of_slot:
            return self._slots()
        needs = self.feature_of_slot
        return tuple(
            slot for slot in self._slots() if slot not in needs or needs[slot] in link.features
        )

    def refused(self, link: Link, hello: Hello, reason: str, via: str) -> None:
        """There can be no link; the other side has found the same, or will from our HELLO."""
        if link.state is not _REFUSED:
            self._keep_refusal(link.node, reason)
            if link.holders:
                self.tell(link.holders, PeerLost(link.peer, reason))
            elif link.asked:
                self.tell(link.asked, ConnectFailed(link.node, reason, refused=True))
            else:
                self.effects.append(Drop(reason, None, hello.peer))
            link.holders = link.asked = ()
            link.session = None
            link.state = _REFUSED
        link.epoch_there = hello.epoch
        if self.settings.acknowledge and not hello.heard:
            self.say_hello(link, via)
        if not self.settings.acknowledge or hello.heard or not link.is_connected:
            self.end(link, reason)

    def _keep_refusal(self, node: str, reason: str) -> None:
        self.refusals.pop(node, None)
        if len(self.refusals) >= REFUSALS_KEPT_MAX:
            del self.refusals[next(iter(self.refusals))]
        self.refusals[node] = reason

    def broken(self, link: Link, reason: str) -> None:
        """The path works no more. If another is looked for, nobody need know."""
        over_relay = link.path is not None and link.path != link.node
        link.path = None
        if self.tunnels:
            if link.state is _CLOSING:
                # The other end may come looking for this one: then it gets the goodbye.
                link.path = self.tunnels.offer(link)
                self.resume(link)
                return
            is_first = link.state is _UP or not over_relay
            if link.state is not _REFUSED and is_first and self.tunnels.search(link):
                self.doubts.weigh(link)
                return
        self.end(link, reason)

    def end(self, link: Link, reason: str) -> None:
        """The link is over. Whoever held it, or waits for it, hears why."""
        session = link.session
        if session is not None and session.acknowledgement_due:
            self.say(link, session.acknowledgement())
        self._forget(link, reason)
        if link.is_connected:
            link.is_connected = False
            self.doubts.forget(link.node)
            self.effects.extend(self._letters.take(link))
            self.effects.append(Disconnect(link.address, reason))
        if link.asked:
            fresh = self.dial(link.node)
            fresh.asked = link.asked
            fresh.wanted = True

    def _forget(self, link: Link, reason: str) -> None:
        """Tell all who care, and drop it from the table; the connection is another matter."""
        del self.table[link.node]
        link.in_doubt = False
        if link.timer_is_set:
            link.timer_is_set = False
            self.effects.append(CancelTimer(Timer(RESEND, link.node)))
        if link.state is _CLOSING:
            self.effects.append(CancelTimer(Timer(CLOSING, link.node)))
        if link.holders:
            self.tell(link.holders, PeerLost(link.peer, reason))
            link.holders = ()
        if link.asked and link.state in (_DIALLING, _GREETING):
            refused = self.refusals.get(link.node) == reason
            self.tell(link.asked, ConnectFailed(link.node, reason, refused))
            link.asked = ()
        if self.tunnels:
            self.tunnels.link_ended(link)

    def tell(self, slots: tuple[int, ...], cause: Cause) -> None:
        """Peers of this node are to hear of something, after what arrived before."""
        self.before_telling()
        for slot in slots:
            self.causes.add(slot, cause)

    # --- sending -------------------------------------------------------------------------------

    def say_hello(self, link: Link, via: str | None, *, expect_answer: bool = False) -> None:
        """Greet, and again until heard, if it is not known yet that this is heard."""
        if via is not None:
            if not self.settings.acknowledge and link.wanted:
                link.wanted_told = True
            self.say_over(via, link, self._make_hello(link))
        if self.settings.acknowledge and (expect_answer or link.state in (_GREETING, _REFUSED)):
            self._arm(link, self.settings.resend_ms << min(link.attempts, BACKOFF_DOUBLINGS_MAX))

    def say(self, link: Link, message: Message) -> None:
        """Send a frame, or a light message, if there is a path."""
        if link.path is not None:
            self.say_over(link.path, link, message)

    def say_over(self, via: str, link: Link, message: Message) -> None:
        """Send over a certain path: straight to the node, or over a relay."""
        if via != link.node:
            message = Tunnelled(link.node, self.me, message)
        carrier = self.table.get(via)
        if carrier is None or not carrier.is_connected:
            return
        self._letters.add(via, message)

    def say_reliably(self, node: str, message: Message) -> None:
        """Send a reliable message of the links' own to a node with a link that is up."""
        link = self.table.get(node)
        if link is not None and link.state is _UP:
            self._say_reliably(link, message)

    def _say_reliably(self, link: Link, message: Message) -> None:
        if link.session is None:
            self.say(link, message)
        else:
            self._carry(link, message)

    def _carry(self, link: Link, message: Message) -> None:
        session = link.session
        assert session is not None
        frame = session.carry(message, self.now_ms)
        if frame is None:
            reason = f"{UNACKNOWLEDGED_MAX:,} messages wait for an acknowledgement"
            self.give_up(link, reason)
            return
        self.say(link, frame)
        if not link.timer_is_set and link.path is not None:
            self._arm(link, session.resend_at_ms - self.now_ms)

    def give_up(self, link: Link, reason: str) -> None:
        """End a link that does not work; the other side may still hear why."""
        self.say(link, Goodbye(link.epoch_there, link.epoch, reason))
        self.end(link, reason)

    def _hold_light(self, link: Link, message: Message) -> None:
        if link.held is None:
            link.held = []
        elif len(link.held) >= HELD_LIGHT_MAX:
            del link.held[0]
            self.effects.append(Drop("too much waits for a path", None, link.peer))
        link.held.append(message)

    def resume(self, link: Link) -> None:
        """There is a path again: what may have been lost on the old one goes once more."""
        session = link.session
        if session is None:
            return
        for frame in session.resume(self.now_ms):
            self.say(link, frame)
        for message in link.held or ():
            self.say(link, message)
        link.held = None
        if not session.is_idle:
            self._arm(link, self.settings.resend_ms)
        if link.state is _UP and link.holders:
            link.in_doubt = False
            self.tell(link.holders, PeerResumed(link.peer))

    def _resend(self, link: Link) -> None:
        """Nothing came back in time: say it again, or give up."""
        if link.search is not None and self.tunnels:
            self.tunnels.greet_again(link)
            return
        if link.state in (_GREETING, _REFUSED):
            link.attempts += 1
            if link.attempts > self.settings.resends_max:
                self.broken(link, "no HELLO came back")
            else:
                self.say_hello(link, link.path)
            return
        session = link.session
        if session is None or session.is_idle or link.path is None:
            return
        if self.now_ms < session.resend_at_ms:
            self._arm(link, session.resend_at_ms - self.now_ms)
        elif session.attempts >= self.settings.resends_max:
            self._unanswered(link)
        else:
            for frame in session.resend(self.now_ms):
                self.say(link, frame)
            self._arm(link, session.resend_at_ms - self.now_ms)

    def _unanswered(self, link: Link) -> None:
        reason = f"no acknowledgement after {self.settings.resends_max} attempts"
        if link.path == link.node and self.tunnels and link.state is _UP:
            # The connection carries nothing, whatever the driver thinks of it.
            self.effects.extend(self._letters.take(link))
            self.effects.append(Disconnect(link.address, reason))
            self._without_connection(link, reason)
        else:
            self.give_up(link, reason)

    def _arm(self, link: Link, delay_ms: int) -> None:
        if not link.timer_is_set:
            link.timer_is_set = True
            self.effects.append(SetTimer(Timer(RESEND, link.node), delay_ms))

    # --- the way out ---------------------------------------------------------------------------

    def take_effects(self) -> list[Effect]:
        """All effects since the last time; what goes to one node goes in one Send."""
        if self.unacknowledged:
            for node in self.unacknowledged:
                link = self.table.get(node)
                if link is not None and link.session and link.session.acknowledgement_due:
                    self.say(link, link.session.acknowledgement())
            self.unacknowledged = {}
        effects = self.effects
        self.effects = []
        effects.extend(self._letters.take_all(self.table))
        return effects


def _nothing() -> None:
    pass
