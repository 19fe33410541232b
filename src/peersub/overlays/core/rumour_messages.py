"""What nodes say to each other about rumours: small signed texts that all nodes are to know."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from peersub.overlays.core.messages import Message

__all__ = ["Rumour", "RumourNames", "RumourSet", "Rumours"]


@dataclass(frozen=True, slots=True)
class Rumour:
    """Something that all nodes are to know: what it is about, and what proves it.

    There is one rumour of each kind about each key: who knows one takes no other for news.
    """

    kind: str
    key: str
    payload: bytes

    @property
    def name(self) -> bytes:
        """16 bytes that stand for kind and key."""
        kind, key = self.kind.encode(), self.key.encode()
        # The length keeps ("a", "bc") and ("ab", "c") apart.
        text = len(kind).to_bytes(4, "big") + kind + key
        return hashlib.blake2b(text, digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class RumourSet(Message):
    """All that I know, as one digest: whoever knows the same need not say more."""

    digest: bytes


@dataclass(frozen=True, slots=True)
class RumourNames(Message):
    """The names of all that I know: tell me what is missing."""

    names: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Rumours(Message):
    """News, as far as the sender knows."""

    rumours: tuple[Rumour, ...]
