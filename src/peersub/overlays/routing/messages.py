"""The messages of the generalised routing algorithm, named as in Terpstra et al. 2003."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, TypeAlias

from peersub.filters.filter import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.effects import Drop
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication
from peersub.overlays.routing.topology import Scope

__all__ = [
    "Confirm",
    "Entry",
    "EntryKey",
    "FilterConfirmed",
    "FilterMismatch",
    "FilterUpdate",
    "Notify",
    "NotifyBatch",
    "ResponsibilityChange",
]

UNREAD_ROW: Final = "a row too dear to be read, which counts as wanting everything"
EntryKey: TypeAlias = tuple[str, bytes]
"""A name and a filter's digest."""


class Entry(NamedTuple):
    """One row of a routing table.

    The name is empty where equal filters are one row; it is the subscription's under simple
    routing, and a reserved one for the filters of control notifications. `reach` is the part of the
    network the filter comes from, where the table keeps that; empty if unknown.
    """

    name: str
    filter: Filter
    reach: Scope = ()

    @property
    def key(self) -> EntryKey:
        """What names the row in changes."""
        return (self.name, self.filter.digest)


@dataclass(frozen=True, slots=True)
class Notify(Message):
    """An event notification, and the scope that the receiver is to serve (section 4.3).

    A `delegation` other than 0 asks for a `Confirm` with that number once all in the scope have it.
    `control` names a control notification of the overlay: only rows of that reserved name want it,
    and no subscriber ever gets it.
    """

    reliable: ClassVar[bool] = False
    brings: ClassVar[str] = "publication"

    publication: Publication
    scope: Scope
    hops: int
    delegation: int = 0
    control: str = ""


@dataclass(frozen=True, slots=True)
class NotifyBatch(Message):
    """`Notify` for many events of one publisher, all of which the receiver's scope wants.

    Only for peers that offer `BATCHES_FEATURE`.
    """

    reliable: ClassVar[bool] = False
    brings: ClassVar[str] = "batch"

    batch: Batch
    scope: Scope
    hops: int
    delegation: int = 0


@dataclass(frozen=True, slots=True)
class Confirm(Message):
    """All who want the event in the delegated scope have it, or have it on disk.

    With a `failure` the scope cannot be served, and why. Light: whoever waits for it asks again by
    repeating the `Notify`.
    """

    reliable: ClassVar[bool] = False

    event_id: str
    delegation: int
    failure: str = ""


@dataclass(frozen=True, slots=True)
class FilterUpdate(Message):
    """FILTER (section 4.4), as a change: use these rows in addition, and those no longer.

    `first` empties the table before, `last` ends the change: long exchanges go in chunks. `digest`
    names the table after the last chunk. `responsibility` is the version of the scope that the rows
    were worked out for.
    """

    number: int
    responsibility: int
    added: tuple[Entry, ...]
    removed: tuple[EntryKey, ...]
    digest: bytes
    first: bool = False
    last: bool = True

    def drops(self, sender: PeerId) -> list[Drop]:
        """What is said of rows whose filters cost too much to be read."""
        return [Drop(UNREAD_ROW, peer=sender) for each in self.added if not each.filter.is_read]


@dataclass(frozen=True, slots=True)
class FilterConfirmed(Message):
    """All updates that this one caused further up are confirmed."""

    number: int


@dataclass(frozen=True, slots=True)
class FilterMismatch(Message):
    """The table is not what its digest says: send it whole."""

    number: int


@dataclass(frozen=True, slots=True)
class ResponsibilityChange(Message):
    """responsibility-change (section 5.2): you serve this scope for me, or nothing any more."""

    version: int
    scope: Scope
