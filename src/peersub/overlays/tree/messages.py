"""The messages that keep a tree a tree."""

from __future__ import annotations

from dataclasses import dataclass

from peersub.overlays.core.messages import Message

__all__ = ["Attach", "Attached", "Path", "Refused"]


@dataclass(frozen=True, slots=True)
class Attach(Message):
    """Let me be your child. `ancestors` are the nodes I was below, nearest first."""

    ancestors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Attached(Message):
    """You are my child; `path` are the nodes from me up to the root."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refused(Message):
    """Not here; ask these nodes."""

    instead: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Path(Message):
    """The nodes from me up to the root, as they are now; empty while I have lost the root."""

    path: tuple[str, ...]
