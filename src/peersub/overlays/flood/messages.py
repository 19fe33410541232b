"""The messages of the flood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication

__all__ = ["Flooded", "Neighbours", "NeighboursWanted"]


@dataclass(frozen=True, slots=True)
class Flooded(Message):
    """An event, and how many links it came over."""

    reliable: ClassVar[bool] = False
    brings: ClassVar[str] = "publication"

    publication: Publication
    hops: int


@dataclass(frozen=True, slots=True)
class NeighboursWanted(Message):
    """Whom do you know? I look for neighbours."""


@dataclass(frozen=True, slots=True)
class Neighbours(Message):
    """Nodes that I have links to."""

    nodes: tuple[str, ...]
