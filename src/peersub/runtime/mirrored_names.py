"""The subscriptions of other nodes under which a mirror gets their events, by their names here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from peersub.overlays.core.publication import Publication
from peersub.runtime.store.changes import RetainEvent

__all__ = ["MirroredNames", "is_reserved"]

_PREFIX: Final = "mirror:"


def is_reserved(name: str) -> bool:
    """Whether a name is a mirror's: no subscriber may take it."""
    return name.startswith(_PREFIX)


class MirroredNames:
    """From the names in the overlay of the mirror to homes and the names there.

    >>> names = MirroredNames()
    >>> names.add("10.0.0.7:7001", "orders")
    'mirror:10.0.0.7:7001:orders'
    >>> names["mirror:10.0.0.7:7001:orders"]
    ('10.0.0.7:7001', 'orders')
    """

    def __init__(self) -> None:
        self._places: dict[str, tuple[str, str]] = {}

    def add(self, home: str, name: str) -> str:
        """A subscription is looked after; its name here."""
        here = f"{_PREFIX}{home}:{name}"
        self._places[here] = (home, name)
        return here

    def remove(self, home: str, name: str) -> str | None:
        """It is no more; the name that it had here, if any."""
        here = f"{_PREFIX}{home}:{name}"
        return None if self._places.pop(here, None) is None else here

    def __contains__(self, here: str) -> bool:
        return here in self._places

    def __getitem__(self, here: str) -> tuple[str, str]:
        return self._places[here]

    def get(self, here: str) -> tuple[str, str] | None:
        """The home and the name there; None if it is not looked after."""
        return self._places.get(here)

    def retain(
        self, publication: Publication, names: Iterable[str], at_ms: int, hops: int
    ) -> Iterator[RetainEvent]:
        """What the disk is to keep of an event that came for these names."""
        by_home: dict[str, list[str]] = {}
        for here in names:
            place = self._places.get(here)
            if place is not None:
                by_home.setdefault(place[0], []).append(place[1])
        for home, wanting in by_home.items():
            yield RetainEvent(home, publication, tuple(wanting), at_ms, hops)
