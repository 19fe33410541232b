"""What arrives on links: frames are opened, and the peers get what they hold, in order.

A batch that arrives becomes as few causes as can be: all messages between the same two peers in one
`Received`. What changes a link in the middle of a batch comes to the peers in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peersub.overlays.core.causes import Received
from peersub.overlays.core.effects import Drop
from peersub.overlays.core.greetings import refusal
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.link import EARLY_LIGHT_MAX, Link, LinkState
from peersub.overlays.core.link_messages import (
    Acknowledgement,
    BetweenSlots,
    Carried,
    Goodbye,
    Hello,
    LinkWanted,
    TunnelAnswer,
    TunnelBroken,
    Tunnelled,
    TunnelRequest,
)
from peersub.overlays.core.links import Links
from peersub.overlays.core.messages import Message
from peersub.overlays.core.session import Session
from peersub.overlays.core.versions import known_features

__all__ = ["LINK_MESSAGES", "Arrivals"]

OTHER_SESSION = "a frame of another session"
LINK_MESSAGES: tuple[type[Message], ...] = (
    Acknowledgement,
    BetweenSlots,
    Carried,
    Goodbye,
    Hello,
    LinkWanted,
    TunnelAnswer,
    TunnelBroken,
    TunnelRequest,
    Tunnelled,
)
"""The messages that links keep to themselves, or open."""


class Arrivals:
    """Opens what arrives for a node."""

    def __init__(self, links: Links, make_hello: Callable[[Link], Hello]) -> None:
        self._links = links
        self._make_hello = make_hello
        self._messages: list[Message] = []
        self._between: tuple[PeerId, int] | None = None
        links.before_telling = self.hand_over

    def receive(self, node: str, messages: tuple[Message, ...]) -> None:
        """Messages that came straight from a node."""
        for message in messages:
            self._open(node, message, node)
        self.hand_over()

    def hand_over(self) -> None:
        """Let the peers have what has been opened so far."""
        if self._messages and self._between is not None:
            peer, slot = self._between
            received = Received(peer, tuple(self._messages), slot)
            self._links.causes.add(slot, received)
            self._messages = []

    def _open(self, node: str, message: Message, via: str) -> None:
        opener = _OPENERS.get(type(message))
        if opener is not None:
            opener(self, node, message, via)
            self._deliver_early(node)
            return
        link = self._links.table.get(node)
        if link is not None and via == node != link.path:
            # Nothing of this session has come straight from there: it may be of a former life.
            self._drop(OTHER_SESSION, link.peer)
        elif link is not None and self._is_early(link):
            link.early = [*(link.early or ()), message]
        elif link is not None and link.state is LinkState.UP:
            self._deliver(link, message)
        else:
            self._drop(f"{type(message).__name__} on a link that is not up", PeerId(node))

    def _is_early(self, link: Link) -> bool:
        """Whether a light message may have overtaken what brings the link up here, or to peers.

        Who sends it has heard the greeting of this side, and has answered it.
        """
        return (
            not link.holders
            and not link.shown
            and link.state in (LinkState.GREETING, LinkState.UP)
            and link.epoch_there > 0
            and self._links.settings.acknowledge
            and len(link.early or ()) < EARLY_LIGHT_MAX
        )

    def _deliver_early(self, node: str) -> None:
        link = self._links.table.get(node)
        if link is not None and link.early and link.state is LinkState.UP and link.holders:
            messages, link.early = link.early, None
            for message in messages:
                self._deliver(link, message)

    def _deliver(self, link: Link, message: Message) -> None:
        own = _OWN.get(type(message))
        if own is not None:
            own(self, link, message)
            return
        peer, slot = link.peer, 0
        if type(message) is BetweenSlots:
            peer, slot = peer._replace(slot=message.source), message.target
            message = message.message
        if slot not in link.holders:
            if link.state is LinkState.UP:
                self._drop(
                    f"{type(message).__name__} for slot {slot}, which does not expect it", peer
                )
            return
        if self._between != (peer, slot):
            self.hand_over()
            self._between = (peer, slot)
        self._messages.append(message)

    def _drop(self, reason: str, peer: PeerId) -> None:
        self._links.effects.append(Drop(reason, None, peer))

    # --- greetings -----------------------------------------------------------------------------

    def _on_hello(self, node: str, hello: Hello, via: str) -> None:
        links = self._links
        link = links.table.get(node) or links.welcome(node)
        if link is None:
            self._drop("there are too many links", hello.peer)
            return
        if not link.epoch_there:
            link.path = link.path or via
            link.state = LinkState.GREETING
        mine = self._make_hello(link)
        reason = refusal(mine, hello, node)
        if reason is not None:
            links.refused(link, hello, reason, via)
            return
        known = self._recognise(link, hello)
        if known is None:
            return
        link = known
        link.features = known_features(mine.version, hello.features)
        link.greeting = hello.greeting
        self._came_over(link, via)
        if hello.wanted:
            self._on_link_wanted(link)
        acknowledge = links.settings.acknowledge
        if link.state is LinkState.GREETING and (not acknowledge or hello.heard == link.epoch):
            links.up(link)
        if acknowledge:
            if link.state is LinkState.GREETING or link.session is None:
                links.say_hello(link, via)
            else:
                links.say_over(via, link, link.session.acknowledgement())

    def _recognise(self, link: Link, hello: Hello) -> Link | None:
        """The link that the greeting is about, made anew if need be; None if it is out of date."""
        if not link.epoch_there:
            link.peer = hello.peer
            self._links.reset(link, hello.epoch)
            return link
        if hello.peer.incarnation != link.peer.incarnation:
            if hello.peer.incarnation < link.peer.incarnation:
                return None
            link = self._links.renew(link, hello.peer)
            self._links.reset(link, hello.epoch)
            return link
        if hello.epoch > link.epoch_there:
            self._links.reset(link, hello.epoch)
        return link if hello.epoch == link.epoch_there else None

    def _came_over(self, link: Link, via: str) -> None:
        """Something of the present session came this way: so the way works."""
        if link.path == via:
            if link.search is not None and self._links.tunnels:
                self._links.tunnels.found(link)
            return
        if via != link.node and link.path is not None:
            # The node reaches this one over a relay; that is its affair while there is a path.
            if self._links.tunnels:
                self._links.tunnels.offered(link, via)
            return
        had_path = link.path is not None
        link.path = via
        if self._links.tunnels:
            self._links.tunnels.found(link)
        if not had_path:
            self._links.resume(link)
        self._links.doubts.weigh(link)

    # --- frames --------------------------------------------------------------------------------

    def _session(self, node: str, epoch: int, sender_epoch: int, via: str) -> Session | None:
        """The session that a frame belongs to; the frame shows that the other side knows it."""
        link = self._links.table.get(node)
        session = None if link is None else link.session
        if link is None or session is None or not session.belongs(epoch, sender_epoch):
            self._drop(OTHER_SESSION, PeerId(node))
            return None
        self._came_over(link, via)
        if link.state is LinkState.GREETING:
            self._links.up(link)
        return session

    def _on_carried(self, node: str, frame: Carried, via: str) -> None:
        links = self._links
        session = self._session(node, frame.epoch, frame.sender_epoch, via)
        if session is None:
            return
        link = links.table[node]
        session.on_acknowledged(frame.acknowledged, links.now_ms)
        links.unacknowledged[node] = None
        if frame.sequence <= session.received:
            self._drop("a frame that came before", link.peer)
        for message in session.accept(frame):
            self._deliver(link, message)
            if link.session is not session or links.table.get(node) is not link:
                return
        self._end_if_closed(link)

    def _on_acknowledgement(self, node: str, frame: Acknowledgement, via: str) -> None:
        session = self._session(node, frame.epoch, frame.sender_epoch, via)
        if session is not None and session.on_acknowledged(frame.acknowledged, self._links.now_ms):
            self._end_if_closed(self._links.table[node])

    def _end_if_closed(self, link: Link) -> None:
        if link.state is LinkState.CLOSING and link.session is not None and link.session.is_idle:
            self._links.end(link, "closed")

    def _on_goodbye(self, node: str, goodbye: Goodbye, via: str) -> None:
        """A goodbye that came by itself: it counts if it is about the present link."""
        link = self._links.table.get(node)
        if link is not None and (goodbye.epoch, goodbye.sender_epoch) == (
            link.epoch,
            link.epoch_there,
        ):
            self._on_last_words(link, goodbye)
        else:
            self._drop(OTHER_SESSION, PeerId(node))

    # --- messages of the links' own ------------------------------------------------------------

    def _on_last_words(self, link: Link, goodbye: Goodbye) -> None:
        self._links.end(link, goodbye.reason or "the other side closed the link")

    def _on_link_wanted(self, link: Link, _: LinkWanted | None = None) -> None:
        if link.state is not LinkState.CLOSING:
            self._links.want(link)

    def _on_tunnelled(self, node: str, tunnelled: Tunnelled, via: str) -> None:
        tunnels = self._links.tunnels
        if via != node or tunnels is None:
            self._drop("a tunnelled message that this node cannot relay", tunnelled.source)
            return
        tunnels.used(node)
        if tunnelled.target != self._links.me.node:
            tunnels.relay(node, tunnelled)
        elif type(tunnelled.message) is Hello or self._is_known(tunnelled.source):
            self._open(tunnelled.source.node, tunnelled.message, node)
        elif tunnelled.source.node not in self._links.table:
            tunnels.disown(node, tunnelled)

    def _is_known(self, peer: PeerId) -> bool:
        link = self._links.table.get(peer.node)
        return link is not None and link.peer == peer

    def _on_tunnel_request(self, link: Link, request: TunnelRequest) -> None:
        if self._links.tunnels:
            self._links.tunnels.on_request(link.node, request.target)

    def _on_tunnel_answer(self, link: Link, answer: TunnelAnswer) -> None:
        if self._links.tunnels:
            self._links.tunnels.on_answer(link.node, answer.target, reachable=answer.reachable)

    def _on_tunnel_broken(self, link: Link, broken: TunnelBroken) -> None:
        if self._links.tunnels:
            self._links.tunnels.on_broken(link.node, broken.target)


_OPENERS: dict[type[Message], Callable[[Arrivals, str, Any, str], None]] = {
    Acknowledgement: Arrivals._on_acknowledgement,
    Carried: Arrivals._on_carried,
    Goodbye: Arrivals._on_goodbye,
    Hello: Arrivals._on_hello,
    Tunnelled: Arrivals._on_tunnelled,
}
"""What comes as it is, and may hold something; light messages of the peers have no opener."""

_OWN: dict[type[Message], Callable[[Arrivals, Link, Any], None]] = {
    Goodbye: Arrivals._on_last_words,
    LinkWanted: Arrivals._on_link_wanted,
    TunnelAnswer: Arrivals._on_tunnel_answer,
    TunnelBroken: Arrivals._on_tunnel_broken,
    TunnelRequest: Arrivals._on_tunnel_request,
}
"""What comes in a session's order, and is for the node itself."""
