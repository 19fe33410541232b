"""What a light client and its node say to each other, over one connection for all subscriptions.

The client says `ClientHello`, the node answers `ClientWelcome` or `ClientRefused`. From then on the
client gives numbers, of its own choice, to its subscriptions and its publications, and both sides
speak of them by these numbers. An event that several subscriptions of the client want travels once.

Flow: a node sends at most as many events for a subscription as the client has granted (the first
grant is in `SubscribeWanted`, each `Credit` adds to it). What is beyond waits at the node, in the
bounded queue of the subscription, under its `Overflow`.

Clients know nothing of overlays; the words that they share with them are offered here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final, TypeVar

from peersub.filters.filter import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.batch_bounds import BatchSizeError
from peersub.overlays.core.event_keys import (
    network_batch_key,
    network_key,
    publisher_key,
    token_of,
)
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Delivery, Publication

__all__ = [
    "BATCHES",
    "BYTES",
    "CLIENT_VERSION",
    "ELSEWHERE",
    "KEYS",
    "LOSSES",
    "MOVES",
    "PHASES",
    "REDELIVERIES",
    "TOKENS",
    "Acknowledged",
    "Answered",
    "Batch",
    "BatchSizeError",
    "ClientHello",
    "ClientRefused",
    "ClientWelcome",
    "ConsumedElsewhere",
    "Credit",
    "DurableLosses",
    "Delivered",
    "DeliveredAgain",
    "DeliveredBatch",
    "Delivery",
    "Message",
    "MoveFollowed",
    "MoveProposed",
    "Overflow",
    "Publication",
    "PublishBatchWanted",
    "PublishEnded",
    "PublishWanted",
    "PublishedBefore",
    "RevocationTold",
    "StateWanted",
    "StatusGiven",
    "StatusWanted",
    "SubscribeWanted",
    "SubscriptionPhase",
    "SubscriptionPhases",
    "SubscriptionState",
    "UnsubscribeWanted",
    "for_subscriber",
    "in_network",
    "publisher_key",
]

CLIENT_VERSION: Final = (1, 0)
"""Of what is said here; a client and a node with different first numbers refuse each other."""


BATCHES: Final = "batches"
"""A feature of the node, and of the client: it takes many events at once, in columns."""


BYTES: Final = "bytes="
"""A feature of the node: the number that follows is all the bytes that it takes of an event, or of
a batch, of this client, where that is less than the wire carries."""


ELSEWHERE: Final = "elsewhere"
"""A feature of the node: it takes `ConsumedElsewhere`."""


KEYS: Final = "keys"
"""A feature of the node: it takes a publisher's hash beside the id of an event (`in_network`); and
of the client: it wants to hear which events were not new."""


REDELIVERIES: Final = "redeliveries"
"""A feature of the client: it wants to hear which events may have come before."""


LOSSES: Final = "losses"
"""A feature of the client: it wants to hear where durable subscriptions lost events."""


MOVES: Final = "moves"
"""A feature of the node: it may propose to subscriptions to move to another node; and of the
client: it wants to hear of that."""


PHASES: Final = "phases"
"""A feature of the client: it takes what has become of many subscriptions in one message."""


TOKENS: Final = "tokens"
"""A feature of the client: events come with what tells them from others of the same id, so that it
recognises those that come again after a reconnection, or from another node (`for_subscriber`)."""


class Overflow(IntEnum):
    """What happens to an event for which the queue of a subscription has no room.

    A durable subscription needs none of these: what its queue cannot hold stays in the node's log.
    """

    DROP_OLDEST = 0
    DROP_NEWEST = 1
    END = 2
    """The subscription ends, and says why."""


class SubscriptionPhase(IntEnum):
    """How far a subscription is."""

    PENDING = 0
    """The node has taken it; nodes that may publish for it have not all answered."""
    READY = 1
    ENDED = 2


_Published = TypeVar("_Published", Publication, Batch)


def in_network(published: _Published) -> _Published:
    """What a client said, as the network knows it: the key is a hash of what the client hashed.

    So a client cannot choose the key of an event, also if it has learned that of another's event.
    """
    claimed = published.given_key
    if claimed is None:
        return published
    is_batch = isinstance(published, Batch)
    return published.with_key(network_batch_key(claimed) if is_batch else network_key(claimed))


def for_subscriber(published: _Published, *, with_token: bool) -> _Published:
    """What the network knows, as a client gets it: the id, and a token if it wants that."""
    key = published.given_key
    return published.with_key(token_of(key) if with_token and key is not None else None)


@dataclass(frozen=True, slots=True)
class ClientHello(Message):
    """The first message of a client. `name` is for people; who it is, its certificate says."""

    version: tuple[int, int]
    features: tuple[str, ...] = ()
    name: str = ""


@dataclass(frozen=True, slots=True)
class ClientWelcome(Message):
    """The node serves the client."""

    node: str
    version: tuple[int, int]
    overlay: str
    network: str
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientRefused(Message):
    """The node does not serve the client, and closes the connection."""

    reason: str


@dataclass(frozen=True, slots=True)
class SubscribeWanted(Message):
    """A subscription begins; `SubscriptionState` follows."""

    number: int
    filter: Filter
    name: str = ""
    """For people, who read it in the status of the node."""
    durable: str = ""
    """The name under which the node keeps the subscription while its consumer is away, or none."""
    since: str = ""
    """Where a durable one begins: a position in digits, a time, `earliest`, or where it stopped."""
    overflow: Overflow = Overflow.DROP_OLDEST
    queue_max: int = 65_536
    credit: int = 0


@dataclass(frozen=True, slots=True)
class SubscriptionState(Message):
    """What has become of a subscription; also the answer to `StateWanted`."""

    number: int
    phase: SubscriptionPhase
    detail: str = ""
    """Why it ended, or what it was narrowed to."""
    waiting_on: tuple[str, ...] = ()
    """Nodes that have not answered yet."""
    dropped: int = 0
    """Events that its queue had no room for, since it began; of a durable one, those that the log
    had no room for before they were read."""


@dataclass(frozen=True, slots=True)
class SubscriptionPhases(Message):
    """These subscriptions are in this phase, and nothing more is to be said of them.

    Only for a client that says `PHASES`.
    """

    phase: SubscriptionPhase
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StateWanted(Message):
    """How far is this subscription?"""

    number: int


@dataclass(frozen=True, slots=True)
class DurableLosses(Message):
    """A durable subscription lost events before they were read; only for who says `LOSSES`.

    How many the log had no room for, `SubscriptionState` counts as dropped.
    """

    number: int
    through: int
    """The position of the last event that the log had no room for; 0 if there is none."""
    gaps: int = 0
    """How often the node's disk lost events, nobody knows how many: since the consumer last heard
    of it."""


@dataclass(frozen=True, slots=True)
class MoveProposed(Message):
    """The subscription would be in better company on another node; only for who says `MOVES`.

    Whoever follows subscribes there, and ends the subscription here when it is ready there.
    """

    number: int
    node: str


@dataclass(frozen=True, slots=True)
class MoveFollowed(Message):
    """The subscription that begins next, under this number, follows a proposal of another node.

    It is not proposed to move on; only for a node that says `MOVES`.
    """

    number: int


@dataclass(frozen=True, slots=True)
class ConsumedElsewhere(Message):
    """The consumer of the durable subscription that begins next, under this number, was with
    another node since it was last here: what waits here may have come to it there.

    Only for a node that says `ELSEWHERE`.
    """

    number: int


@dataclass(frozen=True, slots=True)
class UnsubscribeWanted(Message):
    """A subscription ends. `forget`: a durable one is given up, too, and not only left."""

    number: int
    forget: bool = False


@dataclass(frozen=True, slots=True)
class Delivered(Message):
    """An event for these subscriptions of the client."""

    brings: ClassVar[str] = "publication"

    publication: Publication
    numbers: tuple[int, ...]
    hops: int
    positions: tuple[int | None, ...] = ()
    """Its place in the node's log for each of the numbers that is durable; none if none is."""


@dataclass(frozen=True, slots=True)
class DeliveredAgain(Message):
    """As `Delivered`: an event that a consumer of these subscriptions may have got before.

    Only for a client that says `REDELIVERIES`.
    """

    brings: ClassVar[str] = "publication"

    publication: Publication
    numbers: tuple[int, ...]
    hops: int
    positions: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class DeliveredBatch(Message):
    """Events for subscriptions of the client, in columns; only for a client that says `BATCHES`.

    Each subscription has the places of its events in the batch, rising, 4 bytes each, the least
    significant first. None of them is durable.
    """

    brings: ClassVar[str] = "batch"

    batch: Batch
    wanted: tuple[tuple[int, bytes], ...]
    hops: int


@dataclass(frozen=True, slots=True)
class Acknowledged(Message):
    """The consumer of a durable subscription has taken all up to this position."""

    number: int
    position: int


@dataclass(frozen=True, slots=True)
class Credit(Message):
    """The node may send so many more events for the subscription."""

    number: int
    count: int


@dataclass(frozen=True, slots=True)
class PublishWanted(Message):
    """An event to publish; `PublishEnded` names its number when its promise is kept, or cannot."""

    brings: ClassVar[str] = "publication"

    publication: Publication
    number: int


@dataclass(frozen=True, slots=True)
class PublishBatchWanted(Message):
    """Many events to publish, which end together; only for a node that says `BATCHES`."""

    brings: ClassVar[str] = "batch"

    batch: Batch
    number: int


@dataclass(frozen=True, slots=True)
class PublishEnded(Message):
    """Publications that have ended well, and others with the reason why they failed."""

    numbers: tuple[int, ...]
    failures: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PublishedBefore(Message):
    """Publications that end well with the next message, and how many of their events are not new.

    The node had published them before. Only for a client that says `KEYS`.
    """

    counts: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class RevocationTold(Message):
    """A certificate was taken back: what its authority has signed, as JSON. All nodes are to know.

    Anybody may say so: it counts by its signature.
    """

    number: int
    statement: bytes


@dataclass(frozen=True, slots=True)
class Answered(Message):
    """What a client has asked for is done, or cannot be, and why."""

    number: int
    failure: str = ""


@dataclass(frozen=True, slots=True)
class StatusWanted(Message):
    """How is the node?"""

    number: int


@dataclass(frozen=True, slots=True)
class StatusGiven(Message):
    """A part of the node's status, which is JSON."""

    number: int
    content: bytes
    last: bool = True
