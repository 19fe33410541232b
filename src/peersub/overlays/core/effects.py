"""Effects: all that a peer can ask of its driver. What leaves a protocol is an effect."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from peersub.overlays.core.batch import Batch
from peersub.overlays.core.causes import (
    Persisted,
    PersistFailed,
    ReplayWanted,
    Subscribe,
    Timer,
    Unsubscribe,
)
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.mirror_facts import Held
from peersub.overlays.core.mirror_tasks import MirrorTask
from peersub.overlays.core.publication import Publication
from peersub.overlays.core.records import Record

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "CancelTimer",
    "Connect",
    "Deliver",
    "DeliverBatch",
    "Disconnect",
    "Drop",
    "Effect",
    "Notice",
    "MirrorWork",
    "Persist",
    "ProposeMove",
    "PublishCompleted",
    "PublishFailed",
    "Secure",
    "Send",
    "SetTimer",
    "SubscriptionPending",
    "SubscriptionReady",
    "TellOverlay",
]


@dataclass(frozen=True, slots=True)
class Connect:
    """Reach this node: PeerConnected or ConnectFailed follows. A link that is up stays as it is."""

    node: str


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the link once what was sent is through. No PeerLost follows here, one does there."""

    peer: PeerId
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Send:
    """Messages for a peer to which a link is up, in this order."""

    peer: PeerId
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class SetTimer:
    """TimerFired after so long, in place of what was set under this name before."""

    timer: Timer
    delay_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """No TimerFired for this name; none need be set."""

    timer: Timer


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand the event to these subscriptions of this node.

    `hops` counts the links between nodes that it came over. `again` says that it may have been
    handed over before the node crashed: only the subscriber can know.
    """

    publication: Publication
    subscriptions: tuple[str, ...]
    hops: int = 0
    again: bool = False


@dataclass(frozen=True, slots=True)
class DeliverBatch:
    """Hand these events to subscriptions of this node: each has the places in the batch."""

    batch: Batch
    wanted: tuple[tuple[str, np.ndarray], ...]
    hops: int = 0
    again: bool = False


@dataclass(frozen=True, slots=True)
class Persist:
    """Keep the record on disk; Persisted(token) follows when it would survive a crash."""

    token: int
    record: Record


@dataclass(frozen=True, slots=True)
class Secure:
    """These events are on disk here; durable subscriptions want them. Are they on enough disks?

    Persisted(token) follows when they are, PersistFailed(token) when that takes too long. The node
    passes it on to its mirror peer: drivers never see it.
    """

    token: int
    events: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class TellOverlay:
    """A passive peer has something for the overlay of its node: drivers never see it."""

    cause: Subscribe | Unsubscribe | Persisted | PersistFailed | ReplayWanted


@dataclass(frozen=True, slots=True)
class MirrorWork:
    """What the mirror peer asks of the disk, and of the durable subscriptions of the node."""

    task: MirrorTask


@dataclass(frozen=True, slots=True)
class SubscriptionReady:
    """The overlay keeps its promise for this subscription from now on."""

    subscription: str


@dataclass(frozen=True, slots=True)
class SubscriptionPending:
    """Not yet: these peers have not answered."""

    subscription: str
    waiting_on: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class ProposeMove:
    """The subscriber would be in better company on another node, and may subscribe there.

    Whether it does is its own affair. One that does says so with `Subscribe.moved`, waits until it
    is ready there, and only then ends the subscription here.
    """

    subscription: str
    node: str


@dataclass(frozen=True, slots=True)
class PublishCompleted:
    """What the delivery promise of the publication asks for is done."""

    event_id: str
    name: str = field(default="", compare=False)
    """Of the publication, if it is not its identifier."""

    @classmethod
    def of(cls, published: Publication | Batch) -> Self:
        """It has ended well."""
        name = published.name
        return cls(published.id, "" if name == published.id else name)


HAS_LEFT: Final = "the node has taken leave"
"""Why a publication fails at a node that was told to leave before it had joined."""


@dataclass(frozen=True, slots=True)
class PublishFailed:
    """The promise was not kept, or cannot be given: the reason says what to do."""

    event_id: str
    reason: str
    name: str = field(default="", compare=False)
    """Of the publication, if it is not its identifier."""

    @classmethod
    def of(cls, published: Publication | Batch, reason: str) -> Self:
        """It has failed."""
        name = published.name
        return cls(published.id, reason, "" if name == published.id else name)


@dataclass(frozen=True, slots=True)
class Drop:
    """Something ends here, and why: a message nobody expected, an event that a bound cut off.

    Reasons are counted. Names and values that others choose come after a colon, or are the peer's.
    """

    reason: str
    event_id: str | None = None
    peer: PeerId | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that people who run the node should know; nothing follows from it.

    The text is the code's; a name that others chose is in `about`.
    """

    text: str
    about: str = ""


Effect: TypeAlias = (
    Connect
    | Disconnect
    | Send
    | SetTimer
    | CancelTimer
    | Deliver
    | DeliverBatch
    | Persist
    | Secure
    | TellOverlay
    | MirrorWork
    | SubscriptionReady
    | SubscriptionPending
    | ProposeMove
    | PublishCompleted
    | PublishFailed
    | Drop
    | Notice
)
