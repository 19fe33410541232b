"""The messages by which nodes come to hold the same sample of events (`sample`)."""

from __future__ import annotations

from dataclasses import dataclass

from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication

__all__ = ["SampleEvents", "SampleKeys", "SampleOffered"]


@dataclass(frozen=True, slots=True)
class SampleOffered(Message):
    """My sample has this digest; say so if yours is another."""

    digest: bytes


@dataclass(frozen=True, slots=True)
class SampleKeys(Message):
    """These events are my sample; send me what I lack of yours."""

    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class SampleEvents(Message):
    """Events of my sample that yours lacks."""

    publications: tuple[Publication, ...]
