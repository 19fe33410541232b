"""The messages by which Chord peers keep their graph, apart from its control notifications.

All are reliable: the links carry them in order, once. `node-join` and `node-location` are no
messages but events, routed by filters (`locating`); `responsibility-change` goes over one edge only
and belongs to routing (`routing.messages`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message

__all__ = [
    "Admission",
    "AdmissionRequest",
    "KeyTaken",
    "Leaving",
    "LinkNeeded",
    "LinkUnneeded",
    "Located",
    "LookupRequest",
    "Neighbourhood",
    "NeighbourhoodRequest",
    "Present",
    "RingMember",
    "RingsMeet",
]


class RingMember(NamedTuple):
    """A peer, and where it stands on the circle."""

    key: int
    peer: PeerId


@dataclass(frozen=True, slots=True)
class Present(Message):
    """I stand at this key, and hold you for one of the same ring.

    A member of the ring can serve an arc; one that is joining cannot yet.
    """

    key: int
    member: bool


@dataclass(frozen=True, slots=True)
class LookupRequest(Message):
    """Publish a node-location for this key in my name: I cannot yet, or not in your ring.

    `question` comes back with the answer.
    """

    target: int
    question: int


@dataclass(frozen=True, slots=True)
class Located(Message):
    """I am the first node at or after the key that you asked for, and this is my neighbourhood."""

    question: int
    target: int
    predecessors: tuple[RingMember, ...] = ()
    successors: tuple[RingMember, ...] = ()


@dataclass(frozen=True, slots=True)
class AdmissionRequest(Message):
    """I am ready to serve, and you are my successor: may I become a member in front of you?"""

    key: int


@dataclass(frozen=True, slots=True)
class Admission(Message):
    """Granted: you are my predecessor from now on. Or not: someone stands between us, see there."""

    granted: bool
    predecessors: tuple[RingMember, ...]
    successors: tuple[RingMember, ...]


@dataclass(frozen=True, slots=True)
class KeyTaken(Message):
    """Another peer has this key: draw a new one."""

    key: int


@dataclass(frozen=True, slots=True)
class NeighbourhoodRequest(Message):
    """Who is next to you, both ways?"""


@dataclass(frozen=True, slots=True)
class Neighbourhood(Message):
    """The members next to me that I know of, nearest first."""

    predecessors: tuple[RingMember, ...]
    successors: tuple[RingMember, ...]


@dataclass(frozen=True, slots=True)
class Leaving(Message):
    """I take leave: do without me. These were my neighbours, nearest first."""

    predecessors: tuple[RingMember, ...]
    successors: tuple[RingMember, ...]


@dataclass(frozen=True, slots=True)
class LinkUnneeded(Message):
    """The link is of no use to me; close it if it is of none to you either."""


@dataclass(frozen=True, slots=True)
class LinkNeeded(Message):
    """I have a use for this link again."""


@dataclass(frozen=True, slots=True)
class RingsMeet(Message):
    """You and I are in two rings that were one: tell yours, I tell mine.

    `apart_ms` says for how long they have been two; 0 if that is not known.
    """

    meeting: str
    apart_ms: int = 0
