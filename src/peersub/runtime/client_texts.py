"""Texts between a client and its door: what is said to it, and what it says about `since`."""

from __future__ import annotations

from peersub.filters.filter import Filter, described

__all__ = ["client_named", "narrowing_of", "text_of"]


def client_named(identity: str) -> str:
    """The client, for a sentence.

    >>> client_named("ann"), client_named("")
    ('client ann', 'a client')
    """
    return f"client {identity}" if identity else "a client"


def narrowing_of(asked: Filter, wanted: Filter) -> str:
    """What a client is told of a filter that was narrowed; empty if it was not."""
    return "" if wanted is asked or wanted == asked else f"narrowed to: {described(wanted)}"


def text_of(error: ValueError) -> str:
    """One line, also of an error about a filter."""
    one_line = getattr(error, "one_line", None)
    return str(error) if one_line is None else str(one_line())
