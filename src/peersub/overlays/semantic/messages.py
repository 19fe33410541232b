"""The messages between nodes that host members: about links, and about members that are gone."""

from __future__ import annotations

from dataclasses import dataclass

from peersub.overlays.core.messages import Message

__all__ = ["LinkFree", "LinkNeeded", "LinkUnneeded", "MemberGone"]


@dataclass(frozen=True, slots=True)
class LinkUnneeded(Message):
    """No member of mine needs this link any more; does one of yours?"""


@dataclass(frozen=True, slots=True)
class LinkFree(Message):
    """None of mine either: close it. I say nothing more on it until you do."""


@dataclass(frozen=True, slots=True)
class LinkNeeded(Message):
    """A member of mine needs this link after all: it stays."""


@dataclass(frozen=True, slots=True)
class MemberGone(Message):
    """You spoke to a member that does not live here, or does so no more."""

    to: int
    sender: int
    """The slot of the member that is gone."""
