"""How alike two filters are, measured on a sample of events (Chand & Felber's f_s, their §4).

Each filter holds one bit per event of the sample. Counting bits gives P(p), P(q) and P(p and q) on
the sample, with a standard error of at most 0.5 / sqrt(events): 256 to 1,024 events are enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peersub.filters.filter import Filter, Matchable

__all__ = ["sample_bits", "similarity_of_bits"]


def sample_bits(wanted: Filter, sample: Iterable[Matchable]) -> int:
    """Bit i is set iff the filter matches the i-th event of the sample."""
    return sum(1 << place for place, event in enumerate(sample) if wanted.matches(event))


def similarity_of_bits(first: int, second: int) -> float:
    """(P(first|second) + P(second|first)) / 2; 0 where one of them is never matched.

    >>> similarity_of_bits(0b0111, 0b0011)
    0.8333333333333333
    """
    both = (first & second).bit_count()
    if both == 0:
        return 0.0
    return (both / first.bit_count() + both / second.bit_count()) / 2
