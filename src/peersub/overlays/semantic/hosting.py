"""`Hosting`: the members of one node, one for each distinct filter, and their way to others.

The peer that the node drives lives in slot 0 and hosts the members itself: they have slots from 1
on, never the same twice in one life, and `PeerId(node, incarnation, slot)` is a member's address.
Links are per node and belong to slot 0; a message names the slots of its ends, `to` and `sender`.

* A message to a member of the same node is handed over in memory, in order, and is no hop. A chain
  of such messages that does not end is cut off after `LOCAL_STEPS_MAX`.
* A message to a node without a link waits until there is one, at most `QUEUED_MAX` per node.
* Members hear `on_lost` of a node (slot 0 in the address) whose link is gone, that cannot be
  reached or has begun a new life, and of a single member that is gone. Each hears of every loss: it
  knows best whether it is concerned.
* A link that no member of either node needs is closed. One side asks (`LinkUnneeded`), the other
  agrees (`LinkFree`) and is silent from then on, so nothing is under way when the link closes:
  what it has to say meanwhile waits for `LinkNeeded`, or for another link.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from peersub.overlays.core.causes import Timer
from peersub.overlays.core.effects import Connect, Disconnect, Drop, SetTimer
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.outbox import Outbox
from peersub.overlays.semantic.messages import LinkFree, LinkNeeded, LinkUnneeded, MemberGone

__all__ = ["ANY_LIFE", "IDLE", "LOCAL_STEPS_MAX", "QUEUED_MAX", "Hosting", "HostingSettings"]

ANY_LIFE: Final = -1
"""The incarnation in an address that means whichever life the node is in."""

LOCAL_STEPS_MAX = 100_000
"""Messages that members of a node may hand each other in answer to one cause."""

QUEUED_MAX = 4_096
"""Messages for one node that wait for a link."""

IDLE = Timer("semantic/idle")

_UNNEEDED = "no member needs the link"


class Member(Protocol):
    """What a host asks of its members."""

    def on_message(self, sender: PeerId, message: Any, now_ms: int) -> None:
        """Another member says something."""

    def on_lost(self, peer: PeerId, now_ms: int) -> None:
        """A member cannot be reached any more; with slot 0, no member of that node can."""


M = TypeVar("M", bound=Member)


@dataclass(frozen=True, slots=True)
class HostingSettings:
    """How long links are kept."""

    link_idle_ms: int = 5_000
    """For how long nobody needs a link before it is closed."""

    def __post_init__(self) -> None:
        if self.link_idle_ms < 1:
            raise ValueError("link_idle_ms is at least 1")


@dataclass(slots=True)
class _Link:
    """A link that is up."""

    peer: PeerId
    used_ms: int
    has_asked: bool = False
    """It was said here that the link is not needed; nothing was said since."""
    is_silent: bool = False
    """It was agreed here that the link may be closed."""


class Hosting(Generic[M]):
    """The members of a node.

    `is_needed` says whether a member needs the link to a node: an edge leads there, or an answer
    is to come from there.
    """

    def __init__(
        self,
        me: PeerId,
        settings: HostingSettings,
        out: Outbox,
        is_needed: Callable[[str], bool],
    ) -> None:
        self.me = me
        self.members: dict[int, M] = {}
        self.settings = settings
        self._out = out
        self._is_needed = is_needed
        self._slots = 0
        self._links: dict[str, _Link] = {}
        self._queued: dict[str, list[tuple[int, Message]]] = {}
        """Per node without a link, or with a silent one: the life that is meant, and what waits."""
        self._local: deque[tuple[int, PeerId, Message | None]] = deque()
        self._is_waiting = False
        self._is_closed = False

    # --- members -------------------------------------------------------------------------------

    def new_address(self) -> PeerId:
        """The address of the next member."""
        self._slots += 1
        return self.me._replace(slot=self._slots)

    def add(self, address: PeerId, member: M) -> None:
        """A member lives here from now on."""
        assert address.slot not in self.members
        self.members[address.slot] = member

    def remove(self, address: PeerId) -> None:
        """A member is gone; others on this node hear of it."""
        del self.members[address.slot]
        self._local.append((0, address, None))

    # --- sending -------------------------------------------------------------------------------

    def send(self, to: PeerId, message: Message, now_ms: int) -> None:
        """Say something to a member, here or elsewhere; the message names the slots."""
        if to.node == self.me.node:
            self._send_locally(to, message)
            return
        link = self._links.get(to.node)
        if link is None or link.is_silent:
            self._wait(to, message, link)
        elif to.incarnation not in (link.peer.incarnation, ANY_LIFE):
            self._local.append((0, to._replace(slot=0), None))
        else:
            link.used_ms = now_ms
            if link.has_asked:
                link.has_asked = False
            self._out.send(link.peer, message)

    def _send_locally(self, to: PeerId, message: Any) -> None:
        sender = self.me._replace(slot=message.sender)
        if to.incarnation in (self.me.incarnation, ANY_LIFE):
            self._local.append((to.slot, sender, message))
        else:
            self._local.append((0, to._replace(slot=0), None))

    def _wait(self, to: PeerId, message: Message, link: _Link | None) -> None:
        if self._is_closed:
            return
        waiting = self._queued.get(to.node)
        if waiting is None:
            waiting = self._queued[to.node] = []
            if link is None:
                self._out.emit(Connect(to.node))
        if len(waiting) >= QUEUED_MAX:
            self._out.emit(Drop("too much waits for a link", None, to))
        else:
            waiting.append((to.incarnation, message))

    def run(self, now_ms: int) -> None:
        """Hand over what members of this node said to each other, until nobody says anything."""
        for _ in range(LOCAL_STEPS_MAX):
            if not self._local:
                return
            slot, sender, message = self._local.popleft()
            if message is None:
                self._tell_lost(sender, now_ms)
            elif isinstance(message, MemberGone):
                if slot in self.members:
                    self.members[slot].on_lost(sender, now_ms)
            elif slot in self.members:
                self.members[slot].on_message(sender, message, now_ms)
            else:
                gone = self.me._replace(slot=slot)
                self._local.append((0, gone, None))
        self._local.clear()
        reason = f"members of one node have handed each other {LOCAL_STEPS_MAX:,} messages"
        self._out.emit(Drop(reason))

    def _tell_lost(self, peer: PeerId, now_ms: int) -> None:
        for member in list(self.members.values()):
            member.on_lost(peer, now_ms)

    # --- links ---------------------------------------------------------------------------------

    def links(self) -> list[PeerId]:
        """The nodes that there are links to, by name."""
        return [self._links[node].peer for node in sorted(self._links)]

    def is_linked(self, node: str) -> bool:
        """Whether a link to the node is up."""
        return node in self._links

    def is_linked_to(self, peer: PeerId) -> bool:
        """Whether a link to the node in this very life is up, and not about to be closed."""
        link = self._links.get(peer.node)
        return link is not None and link.peer == peer and not link.is_silent

    def adopt(self, peer: PeerId) -> None:
        """A link is up from the start."""
        self._links[peer.node] = _Link(peer, 0)

    def on_connected(self, peer: PeerId, now_ms: int) -> None:
        """A link is up: say what waits for it."""
        link = self._links.get(peer.node)
        if link is not None and link.peer == peer and not link.is_silent:
            return
        self._links[peer.node] = link = _Link(peer, now_ms)
        self._say_what_waits(link, now_ms)
        self.look_after_links()

    def _say_what_waits(self, link: _Link, now_ms: int) -> None:
        link.is_silent = False
        for incarnation, message in self._queued.pop(link.peer.node, ()):
            self.send(link.peer._replace(incarnation=incarnation), message, now_ms)

    def on_lost(self, peer: PeerId, now_ms: int) -> None:
        """A link is gone. If that was agreed, members need not know."""
        link = self._links.get(peer.node)
        if link is None or link.peer != peer:
            return
        del self._links[peer.node]
        self._out.forget(peer)
        if not link.is_silent:
            self._tell_lost(peer, now_ms)
        elif peer.node in self._queued:
            self._out.emit(Connect(peer.node))

    def on_connect_failed(self, node: str, now_ms: int) -> None:
        """A node cannot be reached: what waited for it is lost."""
        if node in self._links:
            return
        lives = {incarnation: None for incarnation, _ in self._queued.pop(node, ())}
        for incarnation in lives:
            self._tell_lost(PeerId(node, incarnation), now_ms)

    def on_message(self, peer: PeerId, message: Any, now_ms: int) -> None:
        """A node says something: to this node, or a member to a member."""
        link = self._links.get(peer.node)
        if link is None or link.peer != peer:
            self._out.emit(Drop("a message of a node that there is no link to", None, peer))
            return
        if isinstance(message, LinkUnneeded):
            self._on_link_unneeded(link)
        elif isinstance(message, LinkFree):
            self._on_link_free(link)
        else:
            link.used_ms = now_ms
            if link.is_silent:
                self._say_what_waits(link, now_ms)
            self._on_member_message(peer, message, now_ms)

    def _on_member_message(self, peer: PeerId, message: Any, now_ms: int) -> None:
        if isinstance(message, MemberGone):
            gone = peer._replace(slot=message.sender)
            if message.to in self.members:
                self.members[message.to].on_lost(gone, now_ms)
        elif not isinstance(message, LinkNeeded):
            member = self.members.get(message.to)
            if member is not None:
                member.on_message(peer._replace(slot=message.sender), message, now_ms)
            else:
                self._out.send(peer, MemberGone(message.sender, message.to))

    # --- links that nobody needs ---------------------------------------------------------------

    def look_after_links(self) -> None:
        """Ask for the timer, if there is a link and it is not set."""
        if self._links and not self._is_waiting and not self._is_closed:
            self._is_waiting = True
            self._out.emit(SetTimer(IDLE, self.settings.link_idle_ms))

    def on_idle_timer(self, now_ms: int) -> None:
        """Ask whether links that were not used for a while, and are not needed, may be closed."""
        self._is_waiting = False
        for node, link in self._links.items():
            idle_ms = now_ms - link.used_ms
            if link.has_asked or link.is_silent or idle_ms < self.settings.link_idle_ms:
                continue
            if not self._is_needed(node):
                link.has_asked = True
                self._out.send(link.peer, LinkUnneeded())
        self.look_after_links()

    def _on_link_unneeded(self, link: _Link) -> None:
        if not self._is_needed(link.peer.node):
            link.is_silent = True
            self._out.send(link.peer, LinkFree())

    def _on_link_free(self, link: _Link) -> None:
        node = link.peer.node
        if link.has_asked and node not in self._queued and not self._is_needed(node):
            del self._links[node]
            self._out.emit(Disconnect(link.peer, _UNNEEDED))
        else:
            # The other side is silent until it hears this. If this one is silent too, it stays so:
            # the other may be closing the link.
            link.has_asked = False
            self._out.send(link.peer, LinkNeeded())

    def close(self, reason: str) -> None:
        """Close all links: the node takes leave."""
        self._is_closed = True
        for link in self._links.values():
            self._out.emit(Disconnect(link.peer, reason))
        self._links.clear()
        self._queued.clear()
