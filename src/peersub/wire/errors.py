"""What can be wrong with bytes that came over a link, or with what should go over one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["FrameSizeError", "UnknownMessageError", "WireError"]


class WireError(ValueError):
    """Bytes that are no message, or a value that has no bytes: the text says what is wrong.

    Attributes:
        messages_before: what a decoder had read before it met the bytes.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.messages_before: Sequence[Any] = ()


class UnknownMessageError(WireError):
    """A well-formed message that this version does not know: count it and go on.

    Attributes:
        tag: the number of its kind.
    """

    def __init__(self, tag: int) -> None:
        super().__init__(f"messages with the tag {tag} are not known to this version")
        self.tag = tag


class FrameSizeError(WireError):
    """A frame that claims to be larger than is allowed here."""
