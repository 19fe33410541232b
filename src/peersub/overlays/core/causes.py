"""Causes: all that can happen to a peer. What enters a protocol is a cause, nothing else does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from peersub.filters.filter import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.mirror_facts import MirrorFact
from peersub.overlays.core.publication import Publication
from peersub.overlays.core.records import Record
from peersub.overlays.core.rumour_messages import Rumour

__all__ = [
    "Cause",
    "ConnectFailed",
    "ConsumerAcked",
    "Join",
    "Leave",
    "MirrorNews",
    "PeerConnected",
    "PeerHeard",
    "PeerInDoubt",
    "PeerLost",
    "PeerResumed",
    "PersistFailed",
    "Persisted",
    "Publish",
    "PublishBatch",
    "Received",
    "ReplayWanted",
    "Restored",
    "Start",
    "Subscribe",
    "Tell",
    "Timer",
    "TimerFired",
    "Unsubscribe",
]


class Timer(NamedTuple):
    """The name of a timer: its purpose, and what it is about. Setting it again replaces it."""

    purpose: str
    about: Any = None


@dataclass(frozen=True, slots=True)
class Start:
    """The node begins a network of its own."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What the node's disk held, in the order it was persisted. Comes before Start or Join."""

    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Join:
    """Take part in the network that these nodes belong to; the first that answers is asked.

    The node itself may be among them, and nodes that are not there yet. Said again, it adds
    contacts: nodes whose names are known only now, since other addresses of them were given.
    """

    contacts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """Take leave: hand over what others need, then disconnect."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A subscriber on this node wants the events that match; names are unique on the node.

    `moved`: it comes from another node, which proposed this one to it; it is not sent on.
    `durable`: an acknowledged event must be on the disks of several nodes for it (`Secure`).
    """

    subscription: str
    filter: Filter
    moved: bool = False
    durable: bool = False


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """The subscriber wants nothing any more under this name."""

    subscription: str


@dataclass(frozen=True, slots=True)
class ReplayWanted:
    """Acknowledged events of so long may have missed a subscription of this node: publishers are
    to hand them over again. An overlay that cannot ask for it does not.
    """

    since_ms: int
    """How long ago it began; 0 if nobody knows."""


@dataclass(frozen=True, slots=True)
class Publish:
    """A publisher on this node hands over events.

    `source` tells publishers of the node apart, so that they share what it remembers.
    """

    publications: tuple[Publication, ...]
    source: str = ""


@dataclass(frozen=True, slots=True)
class PublishBatch:
    """A publisher on this node hands over many events at once; they end together."""

    batch: Batch
    source: str = ""


@dataclass(frozen=True, slots=True)
class Tell:
    """Someone on this node has something that all nodes are to know."""

    rumour: Rumour


@dataclass(frozen=True, slots=True)
class MirrorNews:
    """Something happened on this node that its mirror peer should know."""

    fact: MirrorFact


@dataclass(frozen=True, slots=True)
class Received:
    """Messages of a peer, in the order of their arrival, for the peer in this slot."""

    peer: PeerId
    messages: tuple[Message, ...]
    slot: int = 0


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The time that SetTimer asked for has come."""

    timer: Timer


@dataclass(frozen=True, slots=True)
class PeerConnected:
    """A link to the peer is up, whoever asked for it; `greeting` is what its overlay says of it."""

    peer: PeerId
    greeting: bytes = field(default=b"")
    features: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class ConnectFailed:
    """The node cannot be reached, or refused: the reason is for people.

    One that `refused` is there, and will take no link as the two nodes are set up.
    """

    node: str
    reason: str = ""
    refused: bool = False


@dataclass(frozen=True, slots=True)
class PeerLost:
    """The link to the peer is gone. Whether the peer is, is another question."""

    peer: PeerId
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PeerInDoubt:
    """Nothing is heard of the peer at present: it may be gone, or slow, or hard to reach.

    What is said to it still counts. `PeerHeard`, `PeerResumed` or `PeerLost` follows.
    """

    peer: PeerId


@dataclass(frozen=True, slots=True)
class PeerHeard:
    """The peer is heard again, and nothing of what was said is lost."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class PeerResumed:
    """The link to the peer, which was interrupted, works again, directly or over a relay.

    Reliable messages go on where they were; light ones that were under way may be lost.
    """

    peer: PeerId


@dataclass(frozen=True, slots=True)
class Persisted:
    """What `Persist(token, ...)` asked for is on disk."""

    token: int


@dataclass(frozen=True, slots=True)
class PersistFailed:
    """What was asked for under this token was not done in time, and may be done yet."""

    token: int
    reason: str


@dataclass(frozen=True, slots=True)
class ConsumerAcked:
    """The subscriber has taken the event."""

    subscription: str
    event_id: str


Cause: TypeAlias = (
    Start
    | Restored
    | Join
    | Leave
    | Subscribe
    | Unsubscribe
    | Publish
    | PublishBatch
    | Tell
    | ReplayWanted
    | MirrorNews
    | Received
    | TimerFired
    | PeerConnected
    | PeerInDoubt
    | PeerHeard
    | ConnectFailed
    | PeerLost
    | PeerResumed
    | Persisted
    | PersistFailed
    | ConsumerAcked
)
