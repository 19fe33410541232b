"""Finding the tightness that gives a wanted mean share of matches.

Bisection on a sample of subscriptions. The share a sample would match is computed, not counted:
values are independent, so it is the share of sampled events that carry a filter's attributes
times the product of its selectivities. The same random numbers are used at every step, which
makes the share a monotonic function of the tightness.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from peersub.workloads.attributes import ABSENT, Attributes, draw_event_codes
from peersub.workloads.settings import WorkloadSettings
from peersub.workloads.subscriptions import SubscriptionTable, draw_subscriptions

_SAMPLE_SUBSCRIPTIONS = 12_000
_SAMPLE_EVENTS = 1_024
_TIGHTNESS_MIN, _TIGHTNESS_MAX = -30.0, 0.0
_STEPS = 12


def calibrated_tightness(
    attributes: Attributes, settings: WorkloadSettings, seeds: np.random.SeedSequence
) -> float:
    """The tightness at which `settings.share_matched` is met, or the nearest that exists."""
    event_seed, subscription_seed = seeds.spawn(2)
    events = draw_event_codes(
        attributes, settings, _SAMPLE_EVENTS, np.random.default_rng(event_seed)
    )
    present = events != ABSENT
    sample = replace(settings, subscriptions=_SAMPLE_SUBSCRIPTIONS, duplicates_share=0.0)
    low, high = _TIGHTNESS_MIN, _TIGHTNESS_MAX
    for _ in range(_STEPS):
        middle = (low + high) / 2
        generator = np.random.default_rng(subscription_seed)
        table = draw_subscriptions(attributes, sample, middle, generator)
        if expected_share(table, present) > settings.share_matched:
            high = middle
        else:
            low = middle
    return (low + high) / 2


def expected_share(table: SubscriptionTable, present: npt.NDArray[np.bool_]) -> float:
    """The mean share of subscriptions matched by events that carry these attributes."""
    if not table.count or not len(present):
        return 0.0
    starts = table.offsets[:-1]
    product = np.multiply.reduceat(table.selectivity.astype(np.float64), starts)
    # A row of bits per attribute, a bit per event: one AND settles 64 events.
    bits = np.packbits(present.T, axis=1)
    words = np.zeros((len(bits), -(-bits.shape[1] // 8) * 8), np.uint8)
    words[:, : bits.shape[1]] = bits
    carried = np.bitwise_and.reduceat(words.view(np.uint64)[table.attribute], starts, axis=0)
    together = np.bitwise_count(carried).sum(axis=1, dtype=np.int64) / len(present)
    return float(np.mean(product * together))
