"""The messages of the anonymous overlay.

Events travel in `Passed`, which says of which layer, and nothing else: who published the event, how
far it came and how many were published before cannot be read from it. All else is about membership,
which is not anonymous, and names nodes.

`to` and `sender` are the slots of the ends, as `Hosting` wants them: each node has one peer, in
slot 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication

__all__ = [
    "Announce",
    "Census",
    "DirectoryEntries",
    "DirectoryState",
    "Echo",
    "Entry",
    "Inherit",
    "Inherited",
    "Invite",
    "Label",
    "LabelAsked",
    "LabelTold",
    "Labelled",
    "Later",
    "LayersTold",
    "LeaveOk",
    "LeaveWait",
    "Leaving",
    "LinkDown",
    "LinkUpOk",
    "Offer",
    "Passed",
    "Relay",
    "RequestVal",
    "Turn",
    "WantTurn",
]


class Label(NamedTuple):
    """The name of a connected part of a layer: whoever can be reached over edges has the same.

    The larger of two wins where parts grow together. `steward` gave the part its name, and speaks
    for it.
    """

    stamp: int
    steward: PeerId


class Entry(NamedTuple):
    """A line of the directory: somebody who is, or was, a member of a layer."""

    layer: str
    label: Label


class _Plain:
    """Between the only peers of two nodes."""

    __slots__ = ()

    to: ClassVar[int] = 0
    sender: ClassVar[int] = 0


# --- turns and events ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Passed(_Plain, Message):
    """An event of a layer, from a member that is on turn. The sender's `Turn` follows."""

    brings: ClassVar[str] = "publication"

    layer: str
    publication: Publication


@dataclass(frozen=True, slots=True)
class Turn(_Plain, Message):
    """I took my turn, and these are my value and lid: the edge points at you now."""

    layer: str
    val: int
    lid: int


@dataclass(frozen=True, slots=True)
class WantTurn(_Plain, Message):
    """Somebody waits for the turn that you can take, or that others keep from you: do not hold."""

    layer: str


@dataclass(frozen=True, slots=True)
class Relay(_Plain, Message):
    """Publish this on the layer as your own: I am no member."""

    brings: ClassVar[str] = "publication"

    layer: str
    publication: Publication


# --- edges ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequestVal(_Plain, Message):
    """A newcomer looks for a sink to link up with; these it has passed (Module 3)."""

    layer: str
    origin: PeerId
    path: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class Invite(_Plain, Message):
    """I am a sink, and hold my turn for you: offer me an edge. These are other members."""

    layer: str
    known: tuple[PeerId, ...] = ()


@dataclass(frozen=True, slots=True)
class Offer(_Plain, Message):
    """Let us have an edge that points at you. My value and lid stay as they are until you answer.

    `is_fresh`: I have no edge, and take the value and lid that you give me. `must`: the layer may
    fall apart without this edge, however many you have; `merges`: it does as long as we are in
    different parts. `number`: no other offer of mine has it.
    """

    layer: str
    number: int
    val: int
    lid: int
    is_fresh: bool
    must: bool
    label: Label | None
    is_announced: bool
    merges: bool = False


@dataclass(frozen=True, slots=True)
class LinkUpOk(_Plain, Message):
    """The edge that you offered is there, and points at me, whose value and lid are these.

    `your_val` and `your_lid` are yours from now on, which only a fresh member does not know.
    `shift` is what you add to my values, now and later.
    """

    layer: str
    number: int
    val: int
    lid: int
    your_val: int
    your_lid: int
    shift: int
    label: Label
    is_announced: bool
    known: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class Later(_Plain, Message):
    """Not now. I invite you when I am a sink."""

    layer: str
    number: int


@dataclass(frozen=True, slots=True)
class LinkDown(_Plain, Message):
    """There is no edge between us, whatever was; these were my neighbours if I leave the layer.

    With the number of an offer it is the answer to that one, and says nothing of anything else.
    """

    layer: str
    is_member: bool
    others: tuple[PeerId, ...] = ()
    number: int = 0


# --- parts of a layer ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Labelled(_Plain, Message):
    """Our part of the layer has this name; `is_announced` says that all nodes know of it."""

    layer: str
    label: Label
    is_announced: bool


@dataclass(frozen=True, slots=True)
class LabelAsked(_Plain, Message):
    """Which part of the layer are you in? I am in this one."""

    layer: str
    label: Label


@dataclass(frozen=True, slots=True)
class LabelTold(_Plain, Message):
    """I am in this part, or in none; `is_sure` if I have lost no edge since it was named."""

    layer: str
    label: Label | None
    is_sure: bool


@dataclass(frozen=True, slots=True)
class Census(_Plain, Message):
    """A wave over a part of a layer that gives it a new name."""

    layer: str
    label: Label


@dataclass(frozen=True, slots=True)
class Announce(_Plain, Message):
    """A wave over all nodes: the steward of this label is a member of the layer.

    That of `gone` is one no more, whatever was said of it with such a stamp or an earlier one.
    """

    layer: str
    origin: PeerId
    number: int
    label: Label | None
    gone: Label | None


@dataclass(frozen=True, slots=True)
class Echo(_Plain, Message):
    """The wave is through here and behind; `is_whole` if nobody was lost on the way.

    `label`: the largest one of a part of the layer that was met there, and is larger than the
    wave's.
    """

    layer: str
    is_census: bool
    origin: PeerId
    number: int
    is_whole: bool
    label: Label | None = None


# --- the directory -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DirectoryState(_Plain, Message):
    """The digest of all that I know of layers."""

    digest: bytes


@dataclass(frozen=True, slots=True)
class DirectoryEntries(_Plain, Message):
    """What I know of layers, or the last of it."""

    entries: tuple[Entry, ...]
    is_last: bool


@dataclass(frozen=True, slots=True)
class LayersTold(_Plain, Message):
    """My subscriptions need these layers as well, and those no more; between neighbours of l0."""

    needed: tuple[str, ...]
    unneeded: tuple[str, ...] = ()


# --- leaving -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Inherit(_Plain, Message):
    """I want to leave the layer: be its steward, and announce yourself in my place."""

    layer: str


@dataclass(frozen=True, slots=True)
class Inherited(_Plain, Message):
    """I am the steward, and every node knows; or I cannot be."""

    layer: str
    is_done: bool


@dataclass(frozen=True, slots=True)
class Leaving(_Plain, Message):
    """I am about to leave. Link up with the one after you in this list, then say so."""

    layer: str
    attempt: int
    others: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class LeaveOk(_Plain, Message):
    """You may leave, as far as I am concerned."""

    layer: str
    attempt: int


@dataclass(frozen=True, slots=True)
class LeaveWait(_Plain, Message):
    """I am leaving as well, and go first."""

    layer: str
    attempt: int
