"""The attributes of a workload: their names, their distributions, and events drawn from them.

A value is handled as a *code*, an int32 in `0 .. cardinality - 1` of its attribute; -1 stands
for "absent". A code becomes a value only at the edge: the number itself (int64), a quarter of
it (float64, exact in binary and in decimal, so that every engine agrees on comparisons), or
the text `c3_17`.

Values are independent of each other and of which attributes are present. So the chance that a
conjunction matches is the chance that its attributes are present together, times the product
of its predicates' selectivities: that is what calibration relies on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from peersub.workloads.settings import WorkloadSettings

ABSENT = -1
FLOAT_STEP = 0.25

# Skewed numbers follow Kumaraswamy's distribution, whose distribution function and quantile
# function both have a closed form: most values are small, none is a spike.
_SKEWED_RISE = 1.2
_SKEWED_FALL = 4.0
_ZIPF_EXPONENT_OF_VALUES = 1.0
_ZIPF_EXPONENT_OF_ATTRIBUTES = 0.7
_DRAW_ROWS = 65_536

FloatArray = npt.NDArray[np.float64]
CodeArray = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes and the distributions that events and subscriptions share.

    `probabilities[i]` are the code probabilities of the i-th categorical attribute;
    `popularity` are the weights by which attributes are chosen, for events and filters alike.
    """

    names: tuple[str, ...]
    numeric_count: int
    float_count: int
    cardinalities: npt.NDArray[np.int64]
    skewed: bool
    popularity: FloatArray
    probabilities: tuple[FloatArray, ...]

    @property
    def count(self) -> int:
        """How many attributes there are."""
        return len(self.names)

    def is_float(self, attribute: int) -> bool:
        """Whether a numeric attribute holds float64 values."""
        return self.numeric_count - self.float_count <= attribute < self.numeric_count

    def categorical_values(self, attribute: int) -> list[str]:
        """All values of a categorical attribute, in the order of their codes."""
        name = self.names[attribute]
        return [f"{name}_{code}" for code in range(int(self.cardinalities[attribute]))]


def zipf_probabilities(count: int, exponent: float) -> FloatArray:
    """Probabilities proportional to `1 / rank ** exponent`; exponent 0 is uniform."""
    weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def draw_attributes(settings: WorkloadSettings, generator: np.random.Generator) -> Attributes:
    """Draw which attributes and which of their values are the popular ones."""
    skewed = settings.skew == "zipf"
    value_exponent = _ZIPF_EXPONENT_OF_VALUES if skewed else 0.0
    attribute_exponent = _ZIPF_EXPONENT_OF_ATTRIBUTES if skewed else 0.0
    categorical = settings.categorical_cardinalities
    names = [f"n{number}" for number in range(settings.numeric_attributes)]
    names += [f"c{number}" for number in range(len(categorical))]
    popularity = zipf_probabilities(settings.attributes, attribute_exponent)
    return Attributes(
        names=tuple(names),
        numeric_count=settings.numeric_attributes,
        float_count=settings.float_attributes,
        cardinalities=np.array(
            [settings.numeric_values] * settings.numeric_attributes + list(categorical), np.int64
        ),
        skewed=skewed,
        popularity=generator.permutation(popularity),
        # Shuffled, so that neighbouring codes are not equally popular.
        probabilities=tuple(
            generator.permutation(zipf_probabilities(cardinality, value_exponent))
            for cardinality in categorical
        ),
    )


def numeric_cumulative(attributes: Attributes, fraction: FloatArray) -> FloatArray:
    """The share of numeric values below `fraction` of the domain."""
    bounded = np.clip(fraction, 0.0, 1.0)
    if not attributes.skewed:
        return bounded
    return np.asarray(1.0 - (1.0 - bounded**_SKEWED_RISE) ** _SKEWED_FALL, dtype=np.float64)


def numeric_codes_at(attributes: Attributes, quantile: FloatArray) -> CodeArray:
    """The numeric codes at the given quantiles."""
    fraction = np.clip(quantile, 0.0, 1.0)
    if attributes.skewed:
        fraction = (1.0 - (1.0 - fraction) ** (1 / _SKEWED_FALL)) ** (1 / _SKEWED_RISE)
    domain = int(attributes.cardinalities[0])
    return np.minimum(fraction * domain, domain - 1).astype(np.int32)


def draw_categorical_codes(
    attributes: Attributes, attribute: int, count: int, generator: np.random.Generator
) -> CodeArray:
    """Draw codes of one categorical attribute by its probabilities."""
    cumulative = np.cumsum(attributes.probabilities[attribute - attributes.numeric_count])
    position = np.searchsorted(cumulative, generator.random(count), side="right")
    return np.minimum(position, len(cumulative) - 1).astype(np.int32)


def draw_attribute_order(
    attributes: Attributes, rows: int, width: int, generator: np.random.Generator
) -> npt.NDArray[np.int16]:
    """Per row, the first `width` attributes of a popularity-weighted draw without replacement."""
    order = np.empty((rows, width), np.int16)
    for start in range(0, rows, _DRAW_ROWS):
        stop = min(rows, start + _DRAW_ROWS)
        # The order of independent exponential arrival times is such a draw.
        arrival = generator.standard_exponential((stop - start, attributes.count), np.float32)
        arrival /= attributes.popularity.astype(np.float32)
        order[start:stop] = np.argsort(arrival, axis=1, kind="stable")[:, :width]
    return order


def draw_event_codes(
    attributes: Attributes,
    settings: WorkloadSettings,
    count: int,
    generator: np.random.Generator,
) -> CodeArray:
    """Draw events as codes: one row each, one column per attribute, -1 where absent."""
    codes = np.empty((count, attributes.count), np.int32)
    for attribute in range(attributes.count):
        if attribute < attributes.numeric_count:
            codes[:, attribute] = numeric_codes_at(attributes, generator.random(count))
        else:
            codes[:, attribute] = draw_categorical_codes(attributes, attribute, count, generator)
    carried = generator.integers(
        settings.attributes_per_event_min, settings.attributes_per_event_max + 1, count
    )
    order = draw_attribute_order(attributes, count, attributes.count, generator)
    rank = np.argsort(order, axis=1, kind="stable")
    codes[rank >= carried[:, None]] = ABSENT
    return codes


def event_table(attributes: Attributes, codes: CodeArray) -> pa.Table:
    """Events as an Arrow table: a column per attribute, null where it is absent."""
    columns: dict[str, Any] = {}
    for attribute, name in enumerate(attributes.names):
        column = np.ascontiguousarray(codes[:, attribute])
        absent = column == ABSENT
        if attribute >= attributes.numeric_count:
            values = pa.array(attributes.categorical_values(attribute), pa.string())
            columns[name] = values.take(pa.array(column, mask=absent))
        elif attributes.is_float(attribute):
            columns[name] = pa.array(column * FLOAT_STEP, pa.float64(), mask=absent)
        else:
            columns[name] = pa.array(column.astype(np.int64), pa.int64(), mask=absent)
    return pa.table(columns)
