"""Hosts: the machines of the simulated network, and the connections between them.

A connection is a pair of *channels*, one for each direction. `Host.links` holds the channels that a
host believes in: between the moment a connection breaks and the moment an end notices, that end
believes in a channel that carries nothing (`is_cut`). A message arrives if its channel is not cut
and its receiver believes in the other direction of the same connection: so nothing is ever carried
over to a later connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from peersub.overlays.core.causes import Cause, Timer
from peersub.overlays.core.effects import Effect
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.protocol import Overlay
from peersub.simulator.disk import Disk

__all__ = ["BareNode", "Channel", "Driven", "Host"]

NOT_CLOSING = -1
_64_BITS = (1 << 64) - 1


class Driven(Protocol):
    """What a driver drives: a `Node`, or a `BareNode`."""

    me: PeerId

    @property
    def overlay(self) -> Overlay:
        """The overlay peer on it."""
        ...

    def handle(self, cause: Cause, now_ms: int) -> Sequence[Effect]:
        """Take the cause in, and say what is to be done, in this order."""
        ...

    def adopt_link(
        self, peer: PeerId, greeting: bytes = b"", features: tuple[str, ...] | None = None
    ) -> None:
        """A link is up from the start."""
        ...

    def waiting_links(self) -> Sequence[str]:
        """The nodes that have not acknowledged all that was said to them."""
        ...


class BareNode:
    """A node without HELLO, sessions or tunnels: its peer gets all causes as they are."""

    features = ()

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        self.me = overlay.me

    def handle(self, cause: Cause, now_ms: int) -> Sequence[Effect]:
        """Let the peer take it in."""
        return self.overlay.handle(cause, now_ms)

    def adopt_link(
        self, peer: PeerId, greeting: bytes = b"", features: tuple[str, ...] | None = None
    ) -> None:
        """The peer knows of the link."""
        return

    def waiting_links(self) -> Sequence[str]:
        """Nobody acknowledges anything."""
        return ()


class Channel:
    """One direction of a connection."""

    __slots__ = (
        "aside",
        "back",
        "closing_ms",
        "drawn",
        "in_doubt",
        "is_cut",
        "last_ms",
        "open_ms",
        "peer",
        "receiver",
        "sender",
    )

    back: Channel
    """The other direction."""

    def __init__(self, sender: Host, receiver: Host, open_ms: int, seed: int) -> None:
        self.sender = sender
        self.receiver = receiver
        self.drawn = seed
        """The last draw. Each channel has its own sequence: what happens elsewhere, or does not
        because a schedule was shrunk, changes nothing here."""
        self.peer = receiver.peer
        """The receiver, as the sender was told of it."""
        self.aside: deque[Message] = deque()
        """What has arrived and waits for its turn: events overtake it."""
        self.is_cut = False
        self.in_doubt = False
        """Whether the sender was told that nothing is heard of the receiver."""
        self.open_ms = open_ms
        """Nothing arrives before: the receiver does not know of the connection."""
        self.last_ms = open_ms
        """When the last message so far arrives."""
        self.closing_ms = NOT_CLOSING
        """When the receiver learns that the sender has closed the connection."""

    def share(self) -> float:
        """The next draw: a number from 0 up to, but not including, 1."""
        # A linear congruential generator (Knuth's constants); its upper bits are good enough.
        self.drawn = (self.drawn * 6364136223846793005 + 1442695040888963407) & _64_BITS
        return (self.drawn >> 11) * 2.0**-53


class Host:
    """A machine: a node while it is switched on, and a disk that outlives it."""

    __slots__ = (
        "attempts",
        "backlog",
        "disk",
        "disk_free_ms",
        "group",
        "incarnation",
        "is_leaving",
        "links",
        "name",
        "node",
        "open_publications",
        "open_subscriptions",
        "received",
        "sent",
        "still_until_ms",
        "timers",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: Any = None
        """A `Driven`, or None while the host is off."""
        self.incarnation = 0
        self.links: dict[str, Channel] = {}
        self.attempts: dict[str, int] = {}
        """Nodes that the node tries to reach, each with the number of the attempt."""
        self.timers: dict[Timer, int] = {}
        self.disk = Disk()
        self.disk_free_ms = 0
        self.group = 0
        """Hosts of different groups are partitioned from each other."""
        self.is_leaving = False
        self.still_until_ms: int | None = None
        """Until when the host stands still; None if it does not."""
        self.backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        """What happened to it meanwhile, and is done when it goes on."""
        self.open_publications: dict[str, None] = {}
        """Events published here under an acknowledged promise that are not completed."""
        self.open_subscriptions: dict[str, None] = {}
        """Subscriptions made here that are not ready."""
        self.received = 0
        self.sent = 0

    @property
    def is_on(self) -> bool:
        """Whether there is a node."""
        return self.node is not None

    @property
    def peer(self) -> PeerId:
        """The node in its present life."""
        return PeerId(self.name, self.incarnation)

    @property
    def overlay(self) -> Any:
        """The overlay peer on the node; None while the host is off."""
        return None if self.node is None else self.node.overlay

    def is_put_off(self, action: Callable[..., None], *arguments: Any) -> bool:
        """Whether what happens to the host has to wait until it goes on."""
        if self.still_until_ms is None:
            return False
        self.backlog.append((action, arguments))
        return True

    def go_on(self) -> None:
        """Stand still no more: all that happened meanwhile happens now, in order."""
        self.still_until_ms = None
        backlog, self.backlog = self.backlog, []
        for action, arguments in backlog:
            action(*arguments)

    def switch_off(self) -> None:
        """All memory is gone."""
        self.node = None
        self.is_leaving = False
        self.links.clear()
        self.attempts.clear()
        self.timers.clear()
        self.open_publications.clear()
        self.open_subscriptions.clear()
