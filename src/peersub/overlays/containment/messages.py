"""The messages of the containment tree. All name the slots of the members that they are between."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, NamedTuple

from peersub.filters.filter import Filter
from peersub.overlays.containment.structure import EdgeKind
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication

__all__ = [
    "Ancestry",
    "PlaceWanted",
    "PlaceGiven",
    "Candidate",
    "CrownFound",
    "CrownSought",
    "Deepened",
    "Departing",
    "Direction",
    "Detach",
    "Forwarded",
    "Found",
    "Handed",
    "JoinRequest",
    "NodesLost",
    "Probe",
    "ProbeAnswer",
    "Promote",
    "Promoted",
    "Reconsider",
    "Redirected",
    "Reorganise",
    "SiblingsAre",
    "SiblingsKnown",
]


class Direction(IntEnum):
    """Where an event goes along a list of siblings."""

    BOTH = 0
    LEFT = 1
    RIGHT = 2


class Candidate(NamedTuple):
    """A member that contains the joiner, as it is told by itself and those above it."""

    peer: PeerId
    is_equal: bool
    depth: int
    children: int
    digest: bytes
    matches: int
    """Events of the sample that it matches; 0 where there is no sample."""


@dataclass(frozen=True, slots=True)
class Forwarded(Message):
    """An event, over how many links between nodes it came, and whether it still climbs.

    Along a list of siblings: `list_of` is their parent, `direction` where it goes. Upwards from one
    that has begun to pass it along its list: `listed` is what it knows of its siblings.
    """

    reliable: ClassVar[bool] = False
    brings: ClassVar[str] = "publication"

    publication: Publication
    to: int
    sender: int
    hops: int
    climbs: bool = False
    list_of: PeerId | None = None
    direction: Direction = Direction.BOTH
    listed: int = 0


@dataclass(frozen=True, slots=True)
class JoinRequest(Message):
    """Somebody looks for its place: climbs to the crown, or to who contains it if confined."""

    to: int
    sender: int
    joiner: PeerId
    number: int
    wanted: Filter | None
    """None from the keeper of a node."""
    above: PeerId | None = None
    """Where it stands now."""
    is_confined: bool = False
    stays_on_top: bool = False
    """It has top-level members below it, so it can only be one."""
    hops: int = 0


@dataclass(frozen=True, slots=True)
class Probe(Message):
    """Who below you contains this one? `depth` is that of the member who is asked."""

    to: int
    sender: int
    joiner: PeerId
    number: int
    wanted: Filter
    depth: int
    above: PeerId | None = None


@dataclass(frozen=True, slots=True)
class ProbeAnswer(Message):
    """The best of a part of the tree, and the joiner's present parent if it is in there."""

    to: int
    sender: int
    joiner: PeerId
    number: int
    best: Candidate | None
    present: Candidate | None = None


@dataclass(frozen=True, slots=True)
class Found(Message):
    """What the probe of a joiner found, by the member where it began."""

    to: int
    sender: int
    number: int
    best: Candidate | None
    present: Candidate | None = None


@dataclass(frozen=True, slots=True)
class PlaceWanted(Message):
    """Let me be below you, over this kind of edge; `in_place_of` one who leaves for me."""

    to: int
    sender: int
    number: int
    edge: EdgeKind
    wanted: Filter | None = None
    stays_on_top: bool = False
    in_place_of: PeerId | None = None
    is_leaving: bool = False


@dataclass(frozen=True, slots=True)
class PlaceGiven(Message):
    """You are below me."""

    to: int
    sender: int
    number: int
    edge: EdgeKind
    wanted: Filter | None
    path: tuple[PeerId, ...]
    ancestors: tuple[PeerId, ...]
    heirs: tuple[PeerId, ...]
    nodes: tuple[str, ...] = ()
    """Some that take part."""


@dataclass(frozen=True, slots=True)
class Redirected(Message):
    """Not here; ask this one, if any, for this kind of edge."""

    to: int
    sender: int
    number: int
    edge: EdgeKind
    instead: PeerId | None = None
    nodes: tuple[str, ...] = ()
    """If it names nobody: some nodes that may know more."""


@dataclass(frozen=True, slots=True)
class Detach(Message):
    """I am not below you any more, unless you took me on a later request than this number."""

    to: int
    sender: int
    number: int


@dataclass(frozen=True, slots=True)
class Ancestry(Message):
    """Who is above you, as it is now.

    `path` leads from me to the root of the class, or over top-level members to the crown; empty
    while there is no way. `ancestors` are the nearest, me first; `heirs` follow the crown.
    """

    to: int
    sender: int
    path: tuple[PeerId, ...]
    ancestors: tuple[PeerId, ...]
    heirs: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class Handed(Message):
    """I will not be above you for long: go to this one, if any, or take my place below it."""

    to: int
    sender: int
    instead: PeerId | None = None
    in_my_place: bool = False


@dataclass(frozen=True, slots=True)
class Departing(Message):
    """I will not be below you for long: send nobody to me; or I stay after all."""

    to: int
    sender: int
    departs: bool = True


@dataclass(frozen=True, slots=True)
class Promote(Message):
    """Take my place: below this one over this kind of edge, or as the crown.

    Within a class it goes down to a leaf.
    """

    to: int
    sender: int
    leaver: PeerId
    edge: EdgeKind
    above: PeerId | None = None
    hops: int = 0


@dataclass(frozen=True, slots=True)
class Promoted(Message):
    """I have taken your place."""

    to: int
    sender: int


@dataclass(frozen=True, slots=True)
class CrownSought(Message):
    """Climbs to the crown, which answers the seeker; `node` was asked first."""

    to: int
    sender: int
    seeker: PeerId
    node: str
    hops: int = 0


@dataclass(frozen=True, slots=True)
class CrownFound(Message):
    """Climbs to the crown: there is another one, maybe."""

    to: int
    sender: int
    crown: PeerId
    is_keeper: bool
    node: str = ""
    """The one that was asked, if any was."""
    hops: int = 0


@dataclass(frozen=True, slots=True)
class Reconsider(Message):
    """To top-level members, from above: look for a better place, the tree has grown."""

    to: int
    sender: int


@dataclass(frozen=True, slots=True)
class Reorganise(Message):
    """Climbs to the crown, then goes down: who is better off below this one moves there.

    `depth` is that of the newcomer, `depth_here` that of the member who is told; 0 on the way up.
    """

    to: int
    sender: int
    newcomer: PeerId
    wanted: Filter
    depth: int
    matches: int
    depth_here: int = 0
    hops: int = 0


@dataclass(frozen=True, slots=True)
class Deepened(Message):
    """From above: you are at this depth now, so others may be better off below you."""

    to: int
    sender: int
    depth: int


@dataclass(frozen=True, slots=True)
class SiblingsAre(Message):
    """From above: who stands next to you in the list of my children, as of this version."""

    to: int
    sender: int
    version: int
    left: PeerId | None
    right: PeerId | None
    is_listed: bool
    """Whether there is a list, and you are to pass events along it."""


@dataclass(frozen=True, slots=True)
class SiblingsKnown(Message):
    """I know my siblings of this version; or one of them cannot be reached."""

    to: int
    sender: int
    version: int
    works: bool = True


@dataclass(frozen=True, slots=True)
class NodesLost(Message):
    """My node leaves, and has lost these: they may be in another part of the network."""

    to: int
    sender: int
    nodes: tuple[str, ...]
