"""What nodes say to each other about mirrors of durable subscriptions.

The *home* is the node on which a durable subscription lives. A *mirror* gets its events as well,
and keeps them until the consumer has taken them. A *witness* gets them, too, and keeps none as long
as it hears that others do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from peersub.filters.filter import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication

__all__ = [
    "HeldEvent",
    "KeptFor",
    "KeptRows",
    "MirrorCopy",
    "MirrorEnded",
    "MirrorHolds",
    "MirrorKeep",
    "MirrorKeepBatch",
    "MirrorKept",
    "MirrorMisses",
    "MirrorOffer",
    "MirrorReady",
    "MirrorRecruit",
    "MirrorReleased",
    "MirrorRowsKept",
    "MirrorRowsSafe",
    "MirrorSafe",
    "MirrorSuspended",
    "MirrorWanted",
    "MirrorWitness",
    "NamedFilter",
    "NamedRows",
]


@dataclass(frozen=True, slots=True)
class NamedFilter:
    """A durable subscription."""

    name: str
    filter: Filter


@dataclass(frozen=True, slots=True)
class HeldEvent:
    """An event that somebody holds, and for which subscriptions."""

    event_id: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MirrorWanted(Message):
    """Home to mirror: look after these of my subscriptions.

    `epoch` names the log of the home: one that has lost its log has another. It also says how far
    the disk of the home is (`store_marks.LifeMark`), to whoever returns it.
    """

    epoch: str
    subscriptions: tuple[NamedFilter, ...]


@dataclass(frozen=True, slots=True)
class MirrorReady(Message):
    """Mirror to home: from now on, what these want reaches me as well."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MirrorEnded(Message):
    """Home to mirror: look after these no more; no names mean all of mine."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MirrorOffer(Message):
    """Mirror to home: these I look after for you; you asked when your log was that of `epoch`."""

    epoch: str
    subscriptions: tuple[NamedFilter, ...]


@dataclass(frozen=True, slots=True)
class MirrorReleased(Message):
    """Home to mirror: the consumer has these events."""

    name: str
    event_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MirrorHolds(Message):
    """Either to the other: these events I hold for subscriptions of the home. Which do you miss?

    `name` is the subscription that is gone through, or empty where it is all of them; `number` says
    how far. Nothing held means that this was all for now.
    """

    home: str
    name: str
    number: int
    held: tuple[HeldEvent, ...]


@dataclass(frozen=True, slots=True)
class MirrorMisses(Message):
    """The answer: these. None means that all are stored here, and that the next may come."""

    home: str
    name: str
    number: int
    event_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MirrorCopy(Message):
    """An event that the other side misses, for these subscriptions of the home."""

    brings: ClassVar[str] = "publication"

    home: str
    names: tuple[str, ...]
    hops: int
    publication: Publication


# --- between nodes that offer COPIES_FEATURE -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeptFor:
    """Events, and the subscriptions for which they are on a disk."""

    names: tuple[str, ...]
    event_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MirrorRecruit(Message):
    """Look after these subscriptions of the home, as a mirror (`stores`) or as a witness.

    The home says it, or whoever stands in for it. `holders` and `witnesses` are the nodes that look
    after the home's subscriptions now. A receiver that is none of them is a *reserve*: it only
    knows the subscriptions. Without subscriptions it only says who they are, and, if the home says
    it, how far its disk is now.
    """

    home: str
    epoch: str
    subscriptions: tuple[NamedFilter, ...]
    stores: bool
    holders: tuple[str, ...]
    witnesses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MirrorWitness(Message):
    """Witness to home: these I watch for you, and hold nothing; otherwise as `MirrorOffer`.

    Without subscriptions, from any helper: so far was your disk when you last said it.
    """

    epoch: str
    subscriptions: tuple[NamedFilter, ...]


@dataclass(frozen=True, slots=True)
class MirrorKept(Message):
    """Holder to the leader of the group: these events are on my disk.

    Light, as all words about what became of events: who misses one sends the event again.
    """

    reliable: ClassVar[bool] = False

    home: str
    kept: tuple[KeptFor, ...]


@dataclass(frozen=True, slots=True)
class MirrorSafe(Message):
    """Leader to all of the group: these events are on the disks of as many nodes as promised."""

    reliable: ClassVar[bool] = False

    home: str
    kept: tuple[KeptFor, ...]


@dataclass(frozen=True, slots=True)
class MirrorKeep(Message):
    """Store this event, if you hold for the home; `MirrorKept` or `MirrorSafe` answers it."""

    brings: ClassVar[str] = "publication"

    home: str
    names: tuple[str, ...]
    hops: int
    publication: Publication


@dataclass(frozen=True, slots=True)
class MirrorSuspended(Message):
    """Mirror to home: you were away for too long. From that time on nobody waited for these."""

    names: tuple[str, ...]
    since_ms: int


# --- between nodes that offer BATCH_COPIES_FEATURE -----------------------------------------------


@dataclass(frozen=True, slots=True)
class NamedRows:
    """A subscription, and events of a batch (`row_sets.pack_rows`)."""

    name: str
    rows: bytes


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Events of a batch, and the subscriptions for which they are on a disk."""

    batch: str
    rows: tuple[NamedRows, ...]


@dataclass(frozen=True, slots=True)
class MirrorRowsKept(Message):
    """`MirrorKept` for events of batches."""

    reliable: ClassVar[bool] = False

    home: str
    kept: tuple[KeptRows, ...]


@dataclass(frozen=True, slots=True)
class MirrorRowsSafe(Message):
    """`MirrorSafe` for events of batches."""

    reliable: ClassVar[bool] = False

    home: str
    kept: tuple[KeptRows, ...]


@dataclass(frozen=True, slots=True)
class MirrorKeepBatch(Message):
    """`MirrorKeep` for events of a batch."""

    brings: ClassVar[str] = "batch"

    home: str
    rows: tuple[NamedRows, ...]
    hops: int
    batch: Batch
