"""How near two members are: functions of what each matches of the shared sample.

Laws, for all `mean`, `jaccard` and `well-connected`: the value is from 0 to 1; it is the same from
both sides; and it is a function of four counts (and of two places), so that the peer and the bulk
form, which has the counts of all pairs in arrays, get the same numbers.

* `mean` is the paper's f_s (§3.2): half of P(I2|I1) + P(I1|I2). With smoothing α a conditional
  probability is (both + α) / (one + 2α): where nothing was seen it is one half, not undefined.
* `jaccard` is P(I1 and I2) / P(I1 or I2) (the third metric of the ICDE 2007 sequel).
* `well-connected` follows the paper's outlook (§6): f_s, times a factor that falls with the latency
  between the two, times one that grows with the smaller bandwidth. Half of f_s is left where a
  neighbour is infinitely far or slow: what it wants still counts most. Latency is the distance of
  the two positions that operators give their nodes: a member must judge others that it never met.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any, Final

from peersub.overlays.similarity.settings import JACCARD, WELL_CONNECTED, SimilaritySettings

if TYPE_CHECKING:
    from peersub.overlays.similarity.messages import Profile

__all__ = ["connection_factor", "pair_hash", "proximity_of_counts"]

LATENCY_SCALE_MS: Final = 50.0
"""Latency at which a quarter of the proximity is lost."""
BANDWIDTH_SCALE_MBIT: Final = 20.0
"""Bandwidth at which a quarter of the proximity is lost."""
_MASK: Final = (1 << 64) - 1


def proximity_of_counts(
    settings: SimilaritySettings, both: Any, first: Any, second: Any, connection: Any = 1.0
) -> Any:
    """The proximity of members that match so many events of the sample; numbers or arrays."""
    alpha = settings.smoothing
    if settings.proximity == JACCARD:
        return (both + alpha) / (first + second - both + 2 * alpha + _NOTHING)
    mean = (
        (both + alpha) / (first + 2 * alpha + _NOTHING)
        + (both + alpha) / (second + 2 * alpha + _NOTHING)
    ) / 2
    return mean * connection if settings.proximity == WELL_CONNECTED else mean


_NOTHING: Final = 1e-30
"""Makes 0 / 0 to 0, and changes nothing else."""


def connection_factor(one: Profile, other: Profile) -> float:
    """How well two members are connected, from one half to 1."""
    across, along = one.x_ms - other.x_ms, one.y_ms - other.y_ms
    latency_ms = sqrt(across * across + along * along)
    bandwidth = min(one.bandwidth_mbit, other.bandwidth_mbit)
    factor: float = (factor_of_latency(latency_ms) + factor_of_bandwidth(bandwidth)) / 2
    return factor


def factor_of_latency(latency_ms: Any) -> Any:
    """From 1 for none down to one half.

    >>> factor_of_latency(0.0), factor_of_latency(50.0)
    (1.0, 0.75)
    """
    return 0.5 + 0.5 * LATENCY_SCALE_MS / (LATENCY_SCALE_MS + latency_ms)


def factor_of_bandwidth(bandwidth_mbit: Any) -> Any:
    """From one half for none up to 1.

    >>> factor_of_bandwidth(0.0), factor_of_bandwidth(20.0)
    (0.5, 0.75)
    """
    return 0.5 + 0.5 * bandwidth_mbit / (BANDWIDTH_SCALE_MBIT + bandwidth_mbit)


def pair_hash(one: int, other: int) -> int:
    """64 bits that depend on two draws: a few multiplications, for all pairs of a network."""
    mixed = (one * 0x9E3779B97F4A7C15 + other) & _MASK
    mixed ^= mixed >> 30
    mixed = mixed * 0xBF58476D1CE4E5B9 & _MASK
    mixed ^= mixed >> 27
    mixed = mixed * 0x94D049BB133111EB & _MASK
    return mixed ^ mixed >> 31
