"""Seeded workloads: events and subscriptions with known statistics.

`generate` is pure: the settings, seed included, determine every byte. Events come as an Arrow
table (a column per attribute, null where an event lacks it), subscriptions as columns of
predicates and, on demand, as SQL filter texts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from peersub.workloads.attributes import (
    ABSENT,
    Attributes,
    CodeArray,
    draw_attributes,
    draw_event_codes,
    event_table,
)
from peersub.workloads.calibration import calibrated_tightness, expected_share
from peersub.workloads.filter_texts import (
    filter_text_chunks,
    filter_texts,
    subscription_ids,
    subscription_texts,
)
from peersub.workloads.settings import Operator, OperatorMix, Skew, WorkloadSettings
from peersub.workloads.subscriptions import SubscriptionTable, draw_subscriptions

__all__ = [
    "ABSENT",
    "Attributes",
    "Operator",
    "OperatorMix",
    "Skew",
    "SubscriptionTable",
    "Workload",
    "WorkloadSettings",
    "event_table",
    "expected_share",
    "filter_text_chunks",
    "filter_texts",
    "generate",
    "subscription_ids",
    "subscription_texts",
]


@dataclass(frozen=True, slots=True)
class Workload:
    """One generated workload; `event_codes` and `events` are the same events."""

    settings: WorkloadSettings
    attributes: Attributes
    subscriptions: SubscriptionTable
    event_codes: CodeArray
    events: pa.Table

    def texts(self) -> pa.Table:
        """The subscriptions as a table of `id` and `filter`."""
        return subscription_texts(self.attributes, self.subscriptions)


def generate(settings: WorkloadSettings) -> Workload:
    """Draw the workload that the settings describe.

    Each part has a seed of its own: more events or more subscriptions leave the others alone.
    """
    seeds = np.random.SeedSequence(settings.seed)
    attribute_seed, calibration_seed, subscription_seed, event_seed = seeds.spawn(4)
    attributes = draw_attributes(settings, np.random.default_rng(attribute_seed))
    tightness = calibrated_tightness(attributes, settings, calibration_seed)
    subscriptions = draw_subscriptions(
        attributes, settings, tightness, np.random.default_rng(subscription_seed)
    )
    codes = draw_event_codes(
        attributes, settings, settings.events, np.random.default_rng(event_seed)
    )
    return Workload(settings, attributes, subscriptions, codes, event_table(attributes, codes))
