"""Texts between a client and its door: what is said to it, and what it says about `since`."""

from __future__ import annotations

from typing import Final

from peersub.filters.errors import excerpt_of
from peersub.filters.filter import Filter, described
from peersub.overlays.core.effects import HAS_LEFT

__all__ = ["HAS_LEFT", "client_named", "narrowing_of", "text_of", "too_large"]


SAID_CHARACTERS_MAX: Final = 4_096
"""Of a filter, or a reason, that a client is told: the wire takes no text of any length."""


def client_named(identity: str) -> str:
    """The client, for a sentence.

    >>> client_named("ann"), client_named("")
    ('client ann', 'a client')
    """
    return f"client {identity}" if identity else "a client"


def narrowing_of(asked: Filter, wanted: Filter) -> str:
    """What a client is told of a filter that was narrowed; empty if it was not."""
    if wanted is asked or wanted == asked:
        return ""
    return f"narrowed to: {excerpt_of(described(wanted), SAID_CHARACTERS_MAX)}"


def too_large(size: int, bytes_max: int) -> str:
    """Why an event can never be published here.

    >>> too_large(3_000, 1_000)
    'an event of 3,000 bytes is too large for this node: it takes 1,000 bytes of a client'
    """
    return (
        f"an event of {size:,} bytes is too large for this node: it takes {bytes_max:,} bytes of a "
        "client"
    )


def text_of(error: ValueError) -> str:
    """One line, also of an error about a filter."""
    one_line = getattr(error, "one_line", None)
    return excerpt_of(str(error) if one_line is None else one_line(), SAID_CHARACTERS_MAX)
