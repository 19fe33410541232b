"""`CopyRule`: who keeps a copy of what is kept at a place.

The first *heirs* do, should its holder crash (`copies`). And *replicas* do, so that they may answer
for it (§4.4). The paper lets parents keep what a child keeps. Each event has a tree of its own, so
that every place above a child may be its parent. With few fixed orders of bits (`event_order`)
parents mostly differ in the bits that stand last in one of them: copies there (`copy_bits`) are
few, whatever the size of the network.

The rule knows places only: the holder of a place and those next to it agree on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from peersub.overlays.reach.identifiers import (
    Order,
    Place,
    differing_bit,
    fixed_order,
    low_bits,
    set_bits,
)
from peersub.overlays.reach.structure import heir_rank

__all__ = ["REPLICA_BITS_KEPT_MAX", "CopyRule", "copy_bits"]

REPLICA_BITS_KEPT_MAX: Final = 4_096
"""Places whose replicas are remembered: they are asked for with each event and place below."""


def copy_bits(place: Place, orders: Iterable[Order], depth: int) -> int:
    """The bits in which the places that keep copies of a place differ from it.

    Of the bits that the place does not have, those that stand last in one of the orders, `depth` of
    each: a parent differs in the last of those that the event has.

    >>> f"{copy_bits(Place(4, 0b0101), [Order(1), Order(5)], 1):04b}"
    '1010'
    """
    free = low_bits(place.length) & ~place.bits
    found = 0
    for order in orders:
        last = sorted(set_bits(free), key=order.rank)[-depth:] if depth else []
        found |= sum(1 << bit for bit in last if not found >> bit & 1)
    return found


class CopyRule(NamedTuple):
    """How many keep copies of a place."""

    heirs: int
    orders: int = 0
    """Of bits, all that events have; 0 for one of its own for each event."""
    replicas: int = 0
    """Places above that keep copies, for each of the orders."""

    def replica_bits(self, place: Place) -> int:
        """The bits in which the replicas of a place differ from it."""
        return _replica_bits(place, self.orders, self.replicas)

    def has_copy(self, keeper: Place, place: Place) -> bool:
        """Whether a place is to keep a copy of a neighbour."""
        rank = heir_rank(place, keeper)
        if rank is not None and rank < self.heirs:
            return True
        bit = differing_bit(keeper, place)
        return bit is not None and bool(self.replica_bits(place) >> bit & 1)


@lru_cache(maxsize=REPLICA_BITS_KEPT_MAX)
def _replica_bits(place: Place, orders: int, replicas: int) -> int:
    return copy_bits(place, map(fixed_order, range(orders)), replicas)
