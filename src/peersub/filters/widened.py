"""Cheaper filters in place of dear ones: they match whatever the dear one matches, and more.

A home matches a subscription exactly. Others only need to know where events may be wanted, so what
they are told of a dear filter is `widen(filter)`, which costs at most ROW_PRICE_MAX. At worst that
is everything, which each subscriber may ask for anyway.

What comes over a link and costs more than a filter may is not read at all: it is an `UnreadFilter`,
known by its bytes. A client is refused with it; in a routing table it counts as wanting everything.
"""

from __future__ import annotations

from typing import Final

from peersub.filters.boxes import UNIVERSE, Box
from peersub.filters.domains import Domain
from peersub.filters.filter import Filter
from peersub.filters.price import ROW_PRICE_MAX, Price
from peersub.filters.summary import bounding_domains
from peersub.filters.wire_form import digest_of

__all__ = ["UnreadFilter", "widen"]

HULLS_MAX: Final = 16
"""Boxes of a widened filter."""
CONSTRAINTS_PER_HULL_MAX: Final = 8
TEXT_CHARACTERS_MAX: Final = 256
"""Characters of the texts in one constraint of a widened filter; one with more is left out."""


def widen(wanted: Filter, price_max: int = ROW_PRICE_MAX) -> Filter:
    """The filter itself if it costs at most `price_max`, else a cheaper one that covers it.

    >>> widen(Filter("a = 1 OR b = 2")).text
    'a = 1 OR b = 2'
    """
    if wanted.language != "sql" or wanted.price.units <= price_max:
        return wanted
    boxes = wanted.boxes
    step = -(-len(boxes) // HULLS_MAX)
    # Boxes are sorted by the names of their attributes: near ones constrain the same.
    groups = (boxes[start : start + step] for start in range(0, len(boxes), step))
    return Filter.from_boxes(map(_hull, groups))


def _hull(boxes: tuple[Box, ...]) -> Box:
    """A box of few constraints, without text tests, that holds all of the boxes."""
    domains = bounding_domains(boxes)
    short = [path for path in sorted(domains) if _is_short(domains[path])]
    return Box({path: domains[path] for path in short[:CONSTRAINTS_PER_HULL_MAX]}, {})


def _is_short(domain: Domain) -> bool:
    keys = [key for cuts in domain.sets for key, _ in cuts]
    texts = sum(len(key) for key in keys if isinstance(key, str))
    return len(keys) <= TEXT_CHARACTERS_MAX and texts <= TEXT_CHARACTERS_MAX


class UnreadFilter(Filter):
    """A filter of which only the bytes are known; it is taken to match everything.

    It covers nothing but itself: whoever reads it may find that it wants less.

    Args:
        data: its bytes.
        refusal: why it was not read, for people.
    """

    is_read = False

    def __init__(self, data: bytes, refusal: str) -> None:
        self.refusal = refusal
        self.source = ""
        self.boxes = (UNIVERSE,)
        self._data = data
        # As cached properties hold them.
        self.__dict__.update(digest=digest_of(data), text="TRUE", price=Price(1, 0, 0, 0, 0, 0))

    def to_bytes(self) -> bytes:
        """The bytes as they came."""
        return self._data

    @property
    def is_everything(self) -> bool:
        """Not proven."""
        return False

    def covers(self, other: Filter) -> bool:
        """Only what has the same bytes."""
        return self.digest == other.digest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnreadFilter) and self._data == other._data

    def __hash__(self) -> int:
        return hash(self.digest)
