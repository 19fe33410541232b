"""The messages of Reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from peersub.filters.filter import Filter
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication
from peersub.overlays.reach.identifiers import Place

__all__ = [
    "CopyDropped",
    "CopyEnded",
    "CopyHeard",
    "CopyTold",
    "Detour",
    "EntriesGiven",
    "Entry",
    "Handed",
    "Interest",
    "InterestAsked",
    "InterestChanged",
    "InterestHeard",
    "InterestTold",
    "JoinAsked",
    "LeaveAgreed",
    "LeaveAsked",
    "LoadAsked",
    "LoadTold",
    "NearTold",
    "NodesTold",
    "Notified",
    "PlaceSought",
    "Rendezvous",
    "RenewalWanted",
    "RivalNamed",
    "Routed",
    "SeatFact",
    "SeatGiven",
    "SeatTaken",
    "SeatsTold",
    "Spread",
    "StoreAsked",
    "Stored",
    "UnstoreAsked",
    "Unstored",
]


class Entry(NamedTuple):
    """A subscription at the host of one of its identifiers.

    `number` grows with each subscription of its node: what comes late never replaces what is new.
    """

    identifier: int
    subscriber: PeerId
    name: str
    filter: Filter
    number: int


class SeatFact(NamedTuple):
    """What others know of a place that a peer holds."""

    place: Place
    claim: int
    longest: int
    """The length of its longest neighbour: who merges with it must know."""


class Interest(NamedTuple):
    """What is wanted at a place or below it (`interest`): identifiers, or the low bits of some.

    `shortest` is the length of the shortest place there. Without identifiers nothing is wanted;
    the empty identifier with a length of 0 says that something is, and nothing more. If there are
    `filters`, each belongs to the identifier beside it; None stands for whatever has its bits.
    """

    identifiers: tuple[int, ...]
    shortest: int
    filters: tuple[Filter | None, ...] = ()


@dataclass(frozen=True, slots=True)
class SeatsTold(Message):
    """All places that the sender holds, and whether it is about to leave."""

    seats: tuple[SeatFact, ...]
    leaves: bool = False


@dataclass(frozen=True, slots=True)
class JoinAsked(Message):
    """The node wants a place; whoever can gives it one, or passes this on."""

    newcomer: str
    hops: int


@dataclass(frozen=True, slots=True)
class NodesTold(Message):
    """Nodes that can be asked for a place as well, should the sender be gone."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EntriesGiven(Message):
    """Subscriptions of a place that is about to be given."""

    place: Place
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class SeatGiven(Message):
    """The place is the receiver's from now on. `near` are the nodes that hold places next to it."""

    place: Place
    claim: int
    near: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SeatTaken(Message):
    """The place was taken: the sender need not take it back."""

    place: Place
    claim: int


@dataclass(frozen=True, slots=True)
class LeaveAsked(Message):
    """The sender wants to leave, and to give the place to the receiver (§3.3)."""

    place: Place


@dataclass(frozen=True, slots=True)
class LeaveAgreed(Message):
    """The receiver may leave: the sender is ready to take the place."""

    place: Place


@dataclass(frozen=True, slots=True)
class RivalNamed(Message):
    """Another node claims what the receiver holds, with a higher claim: it should look there."""

    node: str


@dataclass(frozen=True, slots=True)
class Routed(Message):
    """A message on its way to the host of an identifier."""

    brings: ClassVar[str] = "message"

    target: int
    hops: int
    message: Message


@dataclass(frozen=True, slots=True)
class StoreAsked(Message):
    """Keep this subscription."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class UnstoreAsked(Message):
    """The subscription has ended."""

    identifier: int
    subscriber: PeerId
    name: str
    number: int


@dataclass(frozen=True, slots=True)
class CopyTold(Message):
    """What is kept at a place of the sender: for an heir. The first of several begins anew.

    When nothing follows that was kept before, the heir has all.
    """

    place: Place
    claim: int
    begins: bool
    entries: tuple[Entry, ...]
    number: int
    follows: bool = False


@dataclass(frozen=True, slots=True)
class CopyEnded(Message):
    """Something is kept no more at a place of the sender: for an heir."""

    place: Place
    ended: UnstoreAsked
    number: int


@dataclass(frozen=True, slots=True)
class NearTold(Message):
    """The neighbours of a place of the sender, and who holds them: for an heir."""

    place: Place
    near: tuple[tuple[Place, PeerId], ...]


@dataclass(frozen=True, slots=True)
class CopyDropped(Message):
    """The receiver is no heir any more: what it has of a place gets old.

    To the holder of the place: the sender has no room for a copy of it.
    """

    place: Place


@dataclass(frozen=True, slots=True)
class CopyHeard(Message):
    """The heir has all up to this number."""

    place: Place
    number: int


@dataclass(frozen=True, slots=True)
class RenewalWanted(Message):
    """Nobody has a copy of what was kept at a place: to all nodes, which pass it on once."""

    place: Place
    claim: int


@dataclass(frozen=True, slots=True)
class PlaceSought(Message):
    """Who hosts the identifier is to make itself known to a node that misses it."""

    identifier: int
    asker: str


@dataclass(frozen=True, slots=True)
class Stored(Message):
    """The subscription is kept, and all who forward events to here know that it is."""

    name: str
    identifier: int
    number: int


@dataclass(frozen=True, slots=True)
class Unstored(Message):
    """The subscription is kept no more."""

    name: str
    identifier: int
    number: int


@dataclass(frozen=True, slots=True)
class InterestTold(Message):
    """What is wanted at a place, or below it (§4.5): to a place above it."""

    below: Place
    above: Place
    interest: Interest
    number: int


@dataclass(frozen=True, slots=True)
class InterestChanged(Message):
    """How that differs from what was told under the number `before` (`differences`).

    The wishes that have `ended` are said by where they stood; `begun` has those that are new.
    """

    below: Place
    above: Place
    before: int
    number: int
    ended: tuple[int, ...]
    begun: Interest


@dataclass(frozen=True, slots=True)
class InterestAsked(Message):
    """Is anybody interested there? The place above has not been told."""

    below: Place
    above: Place


@dataclass(frozen=True, slots=True)
class InterestHeard(Message):
    """All above know of the interest."""

    below: Place
    above: Place
    number: int


@dataclass(frozen=True, slots=True)
class Rendezvous(Message):
    """An event on its way to the host of its bits.

    `age_ms`, here and below, is how long it was thought to be on its way before it was sent again:
    a subscription that is younger does not get it.
    """

    reliable: ClassVar[bool] = False
    brings: ClassVar[str] = "publication"

    publication: Publication
    bits: int
    hops: int
    age_ms: int = 0


@dataclass(frozen=True, slots=True)
class Spread(Message):
    """An event for a place, on its way down the subsets."""

    reliable: ClassVar[bool] = False
    brings: ClassVar[str] = "publication"

    publication: Publication
    bits: int
    place: Place
    hops: int
    age_ms: int = 0


@dataclass(frozen=True, slots=True)
class Detour(Message):
    """An event for a place whose holder is gone: on its way to an heir, the `rank`th."""

    reliable: ClassVar[bool] = False
    brings: ClassVar[str] = "publication"

    publication: Publication
    bits: int
    place: Place
    rank: int
    hops: int
    age_ms: int = 0


@dataclass(frozen=True, slots=True)
class Handed(Message):
    """An event that came to a place of the sender, for a deputy: it notifies who wants it.

    The identifiers are those of the place that the deputy answers for, and that the event has. Who
    has no copy of the place sends it back.
    """

    reliable: ClassVar[bool] = False
    brings: ClassVar[str] = "publication"

    publication: Publication
    bits: int
    place: Place
    identifiers: tuple[int, ...]
    hops: int
    is_returned: bool = False
    age_ms: int = 0


@dataclass(frozen=True, slots=True)
class LoadAsked(Message):
    """The sender is overloaded: what does the receiver have to do?"""


@dataclass(frozen=True, slots=True)
class LoadTold(Message):
    """Messages with events that the sender handles in `load_ms`."""

    load: int


@dataclass(frozen=True, slots=True)
class Notified(Message):
    """An event for a node that a subscription lives on."""

    reliable: ClassVar[bool] = False
    brings: ClassVar[str] = "publication"

    publication: Publication
    hops: int
    age_ms: int = 0
