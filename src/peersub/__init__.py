"""peersub: content-based publish/subscribe without brokers.

The names below are loaded when they are first used: importing peersub alone is quick and light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peersub.client.entrances import connect, join
    from peersub.client.publisher import Publisher
    from peersub.events.envelope import Event
    from peersub.filters.errors import FilterError
    from peersub.filters.filter import Filter
    from peersub.filters.filter_set import FilterSet
    from peersub.matching.matcher import Matcher

__all__ = [
    "Event",
    "Filter",
    "FilterError",
    "FilterSet",
    "Matcher",
    "Publisher",
    "__version__",
    "connect",
    "join",
]
__version__ = "0.1.0"

_HOME = {
    "Event": "peersub.events.envelope",
    "Filter": "peersub.filters.filter",
    "FilterError": "peersub.filters.errors",
    "FilterSet": "peersub.filters.filter_set",
    "Matcher": "peersub.matching.matcher",
    "Publisher": "peersub.client.publisher",
    "connect": "peersub.client.entrances",
    "join": "peersub.client.entrances",
}


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'peersub' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
