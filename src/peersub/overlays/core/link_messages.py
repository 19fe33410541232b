"""What the links of two nodes say to each other: greeting, carriage, farewell, tunnels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message

__all__ = [
    "Acknowledgement",
    "BetweenSlots",
    "Carried",
    "Goodbye",
    "Heartbeat",
    "Hello",
    "LinkAccepted",
    "LinkOpen",
    "LinkRejected",
    "LinkWanted",
    "TunnelAnswer",
    "TunnelBroken",
    "TunnelRequest",
    "Tunnelled",
    "unwrapped",
]


@dataclass(frozen=True, slots=True)
class Hello(Message):
    """The first message on each link, both ways: who speaks, which protocol, which settings.

    `settings` are the shared settings by name, so that a refusal can say which one differs.
    """

    reliable: ClassVar[bool] = False

    peer: PeerId
    epoch: int
    network: str
    version: tuple[int, int]
    features: tuple[str, ...]
    overlay: str
    settings_digest: bytes
    settings: tuple[tuple[str, str], ...] = ()
    greeting: bytes = b""
    heard: int = 0
    """The epoch of the other side that this side has heard of, 0 for none."""
    wanted: bool = True
    """Whether the overlay on this side asked for the link; a relay's link is for the nodes only."""


@dataclass(frozen=True, slots=True)
class Carried(Message):
    """A reliable message on its way: its place in the sequence, and what has come back so far.

    `epoch` is the receiver's, `sender_epoch` the sender's: together they name the session, and what
    was meant for another one is dropped.
    """

    reliable: ClassVar[bool] = False
    brings: ClassVar[str] = "message"

    epoch: int
    sender_epoch: int
    sequence: int
    acknowledged: int
    message: Message


@dataclass(frozen=True, slots=True)
class Acknowledgement(Message):
    """All up to this sequence number has arrived in order."""

    reliable: ClassVar[bool] = False

    epoch: int
    sender_epoch: int
    acknowledged: int


@dataclass(frozen=True, slots=True)
class Goodbye(Message):
    """The link ends because the sender wants it to: what follows is no failure.

    Carried as the last message of a session that ends in good order; bare when its queue is full.
    """

    reliable: ClassVar[bool] = False

    epoch: int
    sender_epoch: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LinkWanted(Message):
    """The overlay on this side wants the link that has been the nodes' own so far."""


@dataclass(frozen=True, slots=True)
class BetweenSlots(Message):
    """A message between peers of two nodes of which at least one is not in slot 0.

    As reliable as what it holds.
    """

    reliable: ClassVar[bool] = False
    brings: ClassVar[str] = "message"

    source: int
    target: int
    message: Message


@dataclass(frozen=True, slots=True)
class TunnelRequest(Message):
    """Can you reach this node? If so, would you relay for me?"""

    target: str


@dataclass(frozen=True, slots=True)
class TunnelAnswer(Message):
    """Whether the one who was asked has a link of its own to the node."""

    target: str
    reachable: bool


@dataclass(frozen=True, slots=True)
class TunnelBroken(Message):
    """The relay no longer reaches the node."""

    target: str


@dataclass(frozen=True, slots=True)
class Tunnelled(Message):
    """What `source` says to the node `target` over the relay that this is sent to, and then on."""

    reliable: ClassVar[bool] = False
    brings: ClassVar[str] = "message"

    target: str
    source: PeerId
    message: Message


@dataclass(frozen=True, slots=True)
class LinkOpen(Message):
    """The first message of whoever dialled: which node it is. Between drivers only.

    `number` counts the connections that this life of the node has dialled: what is repeated by
    somebody else, or comes late, is never taken for a new connection.
    """

    reliable: ClassVar[bool] = False

    node: str
    incarnation: int
    number: int
    target: str = ""
    """Which node was dialled: one of another name rejects the link, and says its name."""


@dataclass(frozen=True, slots=True)
class LinkAccepted(Message):
    """The connection is the one between the two nodes from now on. Between drivers only."""

    reliable: ClassVar[bool] = False

    node: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class LinkRejected(Message):
    """There will be no link over this connection, and why. Between drivers only.

    `crossing`: the two nodes dialled each other at once, and the other connection is kept.
    """

    reliable: ClassVar[bool] = False

    reason: str
    crossing: bool = False
    name: str = ""
    """What the node is called, if another one was dialled."""


@dataclass(frozen=True, slots=True)
class Heartbeat(Message):
    """Still here; said when there was nothing else to say. Between drivers only."""

    reliable: ClassVar[bool] = False


def unwrapped(message: Message) -> Message:
    """The innermost message: what an overlay said, or a link message that holds no other.

    >>> unwrapped(Carried(1, 2, 3, 0, BetweenSlots(0, 1, LinkWanted())))
    LinkWanted()
    """
    while isinstance(message, Carried | Tunnelled | BetweenSlots):
        message = message.message
    return message
