"""The messages of the similarity graph. `to` and `sender` are slots: 0 is the node itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication

__all__ = [
    "Asked",
    "Exchanged",
    "LinkAsked",
    "LinkDropped",
    "LinkGiven",
    "LinkRefused",
    "MemberLeaves",
    "MembersKnown",
    "MembersWanted",
    "Named",
    "Profile",
    "ProfileTold",
    "Routed",
    "Sought",
    "WalkEnded",
    "Walked",
]


class Profile(NamedTuple):
    """What others know of a member: no filter, but what it matches of a sample.

    `version` grows with each change. `summary` is empty unless the settings ask for one.
    """

    peer: PeerId
    version: int
    sample: bytes
    bits: bytes
    marks: bytes = b""
    summary: bytes = b""
    x_ms: float = 0.0
    y_ms: float = 0.0
    bandwidth_mbit: float = 0.0


@dataclass(frozen=True, slots=True)
class Asked(Message):
    """Whom do you know that is good for me? I look for neighbours."""

    to: int
    sender: int
    profile: Profile


@dataclass(frozen=True, slots=True)
class Named(Message):
    """I am this, and know these, the best for you first."""

    to: int
    sender: int
    profiles: tuple[Profile, ...]


@dataclass(frozen=True, slots=True)
class LinkAsked(Message):
    """Be my neighbour; `is_random` if I drew you, else for what you want."""

    to: int
    sender: int
    is_random: bool
    profile: Profile


@dataclass(frozen=True, slots=True)
class LinkGiven(Message):
    """I am."""

    to: int
    sender: int
    is_random: bool
    profile: Profile


@dataclass(frozen=True, slots=True)
class LinkRefused(Message):
    """I have too many already, or take leave."""

    to: int
    sender: int
    is_random: bool


@dataclass(frozen=True, slots=True)
class LinkDropped(Message):
    """I have found better ones: I do not count on this link any more. You may."""

    to: int
    sender: int
    is_random: bool


@dataclass(frozen=True, slots=True)
class Exchanged(Message):
    """I am this, and know these, the best for you first; tell me yours if this is no answer.

    The last two say which links to you I count on, near and random: whoever made a link knows.
    """

    to: int
    sender: int
    profiles: tuple[Profile, ...]
    is_answer: bool
    is_near: bool
    is_random: bool


@dataclass(frozen=True, slots=True)
class ProfileTold(Message):
    """I have changed."""

    to: int
    sender: int
    profile: Profile


@dataclass(frozen=True, slots=True)
class Walked(Message):
    """Somebody takes a walk, and has so many steps left; `walk` tells walks apart."""

    to: int
    sender: int
    walker: PeerId
    walk: int
    steps: int


@dataclass(frozen=True, slots=True)
class WalkEnded(Message):
    """Your walk ended at me."""

    to: int
    sender: int
    walk: int
    profile: Profile


@dataclass(frozen=True, slots=True)
class MemberLeaves(Message):
    """I go; these were near me."""

    to: int
    sender: int
    profiles: tuple[Profile, ...]


@dataclass(frozen=True, slots=True)
class MembersWanted(Message):
    """Which members do you know? These are mine. `waits` if I have no contact at all yet."""

    to: int
    sender: int
    profiles: tuple[Profile, ...]


@dataclass(frozen=True, slots=True)
class MembersKnown(Message):
    """These, mine first; and nodes that may know more."""

    to: int
    sender: int
    profiles: tuple[Profile, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Routed(Message):
    """An event, over so many links, with so much indulgence left."""

    reliable: ClassVar[bool] = False
    brings: ClassVar[str] = "publication"

    to: int
    sender: int
    publication: Publication
    hops: int
    indulgence: int


@dataclass(frozen=True, slots=True)
class Sought(Message):
    """An event that has met nobody who matches it; the members that it has passed."""

    reliable: ClassVar[bool] = False
    brings: ClassVar[str] = "publication"

    to: int
    sender: int
    publication: Publication
    hops: int
    passed: tuple[PeerId, ...]
