"""The names under which a mirror peer has subscriptions of other nodes in its own overlay."""

from __future__ import annotations

from typing import Final

__all__ = ["is_mirrors", "overlay_name"]

_PREFIX: Final = "mirror:"


def is_mirrors(name: str) -> bool:
    """Whether a name is a mirror's: no subscriber may take it."""
    return name.startswith(_PREFIX)


def overlay_name(home: str, name: str) -> str:
    """The name here of a subscription of a home.

    >>> overlay_name("10.0.0.7:7001", "orders")
    'mirror:10.0.0.7:7001:orders'
    """
    return f"{_PREFIX}{home}:{name}"
