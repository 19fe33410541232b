"""The knobs of the attribute workload: how many, how skewed, how selective.

The defaults are the project's standard matching workload: 20 numeric and 10 categorical
attributes, events that carry 10 to 20 of them, subscriptions of 2 to 5 predicates. One
settings value with one seed is one workload, byte for byte.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Literal

Skew = Literal["uniform", "zipf"]

CATEGORICAL_CARDINALITIES = (5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)


class Operator(IntEnum):
    """The operators of a predicate, as stored in the columnar form."""

    EQUAL = 0
    LESS = 1
    LESS_OR_EQUAL = 2
    GREATER = 3
    GREATER_OR_EQUAL = 4
    BETWEEN = 5
    IN = 6
    LIKE = 7


@dataclass(frozen=True, slots=True)
class OperatorMix:
    """Relative weights of the operators: six on numeric attributes, two on categorical ones."""

    numeric_between: float = 0.55
    numeric_greater_or_equal: float = 0.15
    numeric_less_or_equal: float = 0.15
    numeric_greater: float = 0.05
    numeric_less: float = 0.05
    numeric_equal: float = 0.05
    categorical_equal: float = 0.75
    categorical_in: float = 0.25

    def __post_init__(self) -> None:
        weights = {knob.name: getattr(self, knob.name) for knob in fields(self)}
        for name, weight in weights.items():
            if not weight >= 0:
                raise ValueError(f"the weight {name} must not be negative, got {weight}")
        for kind in ("numeric", "categorical"):
            if not sum(weight for name, weight in weights.items() if name.startswith(kind)) > 0:
                raise ValueError(f"at least one {kind} operator needs a weight above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSettings:
    """Everything that determines a workload.

    Args:
        subscriptions: how many subscriptions.
        events: how many events.
        share_matched: wanted mean share of the subscriptions that an event matches.
        skew: how values and attributes are distributed; `zipf` favours a few of each.
        numeric_attributes: attributes `n0`, `n1`, …
        float_attributes: how many of the numeric ones, the last, are float64 instead of int64.
        numeric_values: size of a numeric domain.
        categorical_cardinalities: one categorical attribute `c0`, `c1`, … per entry.
        attributes_per_event_min: least number of attributes that an event carries.
        attributes_per_event_max: greatest number of attributes that an event carries.
        predicates_per_subscription_min: least number of predicates of a filter.
        predicates_per_subscription_max: greatest number of predicates of a filter.
        values_per_in_max: longest IN list; the shortest has 2 values.
        operators: relative weights of the operators.
        duplicates_share: share of the subscriptions whose filter equals another one's.
        opaque_share: share of the filters with a LIKE '%…%' that no index can resolve.
        seed: the only source of randomness.

    Raises:
        ValueError: a knob is out of range; the message names it.
    """

    subscriptions: int = 10_000
    events: int = 4_096
    share_matched: float = 0.001
    skew: Skew = "uniform"
    numeric_attributes: int = 20
    float_attributes: int = 0
    numeric_values: int = 100_000
    categorical_cardinalities: tuple[int, ...] = CATEGORICAL_CARDINALITIES
    attributes_per_event_min: int = 10
    attributes_per_event_max: int = 20
    predicates_per_subscription_min: int = 2
    predicates_per_subscription_max: int = 5
    values_per_in_max: int = 5
    operators: OperatorMix = field(default_factory=OperatorMix)
    duplicates_share: float = 0.0
    opaque_share: float = 0.0
    seed: int = 1

    def __post_init__(self) -> None:
        attributes = self.attributes
        _require(self.subscriptions >= 0, "subscriptions", "at least 0", self.subscriptions)
        _require(self.events >= 0, "events", "at least 0", self.events)
        _require(0 < self.share_matched <= 1, "share_matched", "in (0, 1]", self.share_matched)
        _require(self.skew in ("uniform", "zipf"), "skew", "uniform or zipf", self.skew)
        _require(1 <= attributes <= 2**15, "attributes", "1 to 32768 in all", attributes)
        _require(
            0 <= self.float_attributes <= self.numeric_attributes,
            "float_attributes",
            "at most numeric_attributes",
            self.float_attributes,
        )
        _require(
            4 <= self.numeric_values <= 2**28, "numeric_values", "4 to 2**28", self.numeric_values
        )
        _require(
            all(1 <= cardinality <= 2**20 for cardinality in self.categorical_cardinalities),
            "categorical_cardinalities",
            "1 to 2**20 each",
            self.categorical_cardinalities,
        )
        _require(
            0 <= self.attributes_per_event_min <= self.attributes_per_event_max <= attributes,
            "attributes_per_event",
            f"0 <= min <= max <= {attributes}, the number of attributes",
            (self.attributes_per_event_min, self.attributes_per_event_max),
        )
        _require(
            1
            <= self.predicates_per_subscription_min
            <= self.predicates_per_subscription_max
            <= attributes,
            "predicates_per_subscription",
            f"1 <= min <= max <= {attributes}, the number of attributes",
            (self.predicates_per_subscription_min, self.predicates_per_subscription_max),
        )
        _require(self.values_per_in_max >= 2, "values_per_in_max", "2+", self.values_per_in_max)
        _require(
            0 <= self.duplicates_share < 1, "duplicates_share", "in [0, 1)", self.duplicates_share
        )
        _require(0 <= self.opaque_share <= 1, "opaque_share", "in [0, 1]", self.opaque_share)
        if self.opaque_share > 0 and not self.categorical_cardinalities:
            raise ValueError("opaque_share above 0 needs at least one categorical attribute")

    @property
    def attributes(self) -> int:
        """How many attributes there are, of all kinds."""
        return self.numeric_attributes + len(self.categorical_cardinalities)


def _require(holds: bool, knob: str, allowed: str, given: object) -> None:
    if not holds:
        raise ValueError(f"{knob} must be {allowed}, got {given!r}")
