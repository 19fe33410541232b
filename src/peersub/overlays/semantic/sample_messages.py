"""The messages by which nodes come to hold the same sample of events (`sample`).

They go from node to node: the slots of both ends are 0, and do not travel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication

__all__ = ["SampleEvents", "SampleKeys", "SampleOffered"]


@dataclass(frozen=True, slots=True)
class SampleOffered(Message):
    """My sample has this digest; say so if yours is another."""

    to: ClassVar[int] = 0
    sender: ClassVar[int] = 0

    digest: bytes


@dataclass(frozen=True, slots=True)
class SampleKeys(Message):
    """These events are my sample; send me what I lack of yours."""

    to: ClassVar[int] = 0
    sender: ClassVar[int] = 0

    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class SampleEvents(Message):
    """Events of my sample that yours lacks."""

    to: ClassVar[int] = 0
    sender: ClassVar[int] = 0

    publications: tuple[Publication, ...]
