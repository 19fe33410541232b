"""`Post`: messages to nodes, over links that are made when they are needed.

Neighbours are linked all the time. Who keeps a subscription of a node that is no neighbour has
something to say to it now and then: the first message makes the link, and it stays. Beyond
`links_max` the links that nobody needs are closed, those that were used least recently first.

What is for this node itself is in `own`, to be read in turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from peersub.overlays.core.effects import Connect, Disconnect, Drop
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.outbox import Outbox

__all__ = ["ADDRESSEES_MAX", "LETTERS_MAX", "Post"]

LETTERS_MAX = 256
"""Messages that wait for a link to one node; more are dropped."""
ADDRESSEES_MAX = 4_096
"""Nodes to which links are being made; what waits for the first of them is dropped beyond."""


class Post:
    """The links of a peer, and what waits for them."""

    def __init__(self, me: PeerId, out: Outbox, links_max: int) -> None:
        self.linked: dict[str, PeerId] = {}
        """By node, those that were used least recently first."""
        self.own: deque[Message] = deque()
        self._me = me
        self._out = out
        self._links_max = links_max
        self._letters: dict[str, list[Message]] = {}

    def connect(self, node: str) -> None:
        """There is to be a link."""
        if node != self._me.node and node not in self.linked and node not in self._letters:
            self._letters[node] = []
            if len(self._letters) > ADDRESSEES_MAX:
                for _ in self._letters.pop(next(iter(self._letters))):
                    self._out.emit(Drop("too many links are waited for"))
            self._out.emit(Connect(node))

    def send(self, node: str, message: Message) -> None:
        """Say something to a node, as soon as it is linked."""
        if node == self._me.node:
            self.own.append(message)
            return
        peer = self.linked.get(node)
        if peer is not None:
            self._out.send(peer, message)
            return
        self.connect(node)
        letters = self._letters[node]
        if len(letters) < LETTERS_MAX:
            letters.append(message)
        else:
            self._out.emit(Drop("too much waits for a link"))

    def used(self, node: str) -> None:
        """The link is of use."""
        peer = self.linked.pop(node, None)
        if peer is not None:
            self.linked[node] = peer

    def connected(self, peer: PeerId, first: Message) -> None:
        """A link is up; the first message goes before all that waits."""
        self.linked.pop(peer.node, None)
        self.linked[peer.node] = peer
        self._out.send(peer, first)
        for message in self._letters.pop(peer.node, ()):
            self._out.send(peer, message)

    def failed(self, node: str) -> None:
        """There is no link to be had."""
        for _ in self._letters.pop(node, ()):
            self._out.emit(Drop("nobody can be reached there"))

    def lost(self, peer: PeerId) -> bool:
        """A link is gone; False if it was not known."""
        if self.linked.get(peer.node) != peer:
            return False
        del self.linked[peer.node]
        self._out.forget(peer)
        return True

    def close_unneeded(self, is_needed: Callable[[PeerId], bool]) -> list[PeerId]:
        """Close what is too much; which links these were."""
        excess = len(self.linked) - self._links_max
        if excess <= 0:
            return []
        closed = [peer for peer in self.linked.values() if not is_needed(peer)][:excess]
        for peer in closed:
            del self.linked[peer.node]
            self._out.emit(Disconnect(peer, "nobody needs the link"))
        return closed

    def close_all(self) -> None:
        """The peer leaves."""
        for peer in self.linked.values():
            self._out.emit(Disconnect(peer, "leaves"))
        self.linked.clear()
        self._letters.clear()
