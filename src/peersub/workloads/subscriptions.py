"""Subscriptions of a workload: conjunctions of predicates, drawn to a wanted selectivity.

Categorical predicates are drawn first, by the popularity of the values; the widths of a
filter's numeric predicates then share what is left of its wanted selectivity. `tightness`,
the logarithm of that wanted selectivity, is the one dial that calibration turns.

The table is columnar, as compressed sparse rows. Every predicate is a closed interval of codes
in `low .. high`; where `value_list` is not -1, the predicate holds on exactly the codes of that
list, and the interval is the list's hull.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from peersub.workloads.attributes import (
    Attributes,
    CodeArray,
    FloatArray,
    draw_attribute_order,
    draw_categorical_codes,
    numeric_codes_at,
    numeric_cumulative,
)
from peersub.workloads.settings import Operator, WorkloadSettings

NO_LIST = -1
NO_NEEDLE = -1

_WIDTH_MIN, _WIDTH_MAX = 0.0005, 0.95
_SHARED_WIDTH_MIN, _SHARED_WIDTH_MAX = 0.002, 0.9
_WIDTH_SPREAD = 0.3

IndexArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SubscriptionTable:
    """Conjunctions over attribute codes, as compressed sparse rows.

    Predicates of subscription `s` are `offsets[s]:offsets[s + 1]`; at most one per attribute.
    Values of list `l` are `list_values[list_offsets[l]:list_offsets[l + 1]]`, ascending.
    `list_needle[l]` is -1 for an IN list; otherwise the list holds the values that contain that
    number, which is the text of a LIKE.
    """

    offsets: IndexArray
    attribute: npt.NDArray[np.int16]
    operator: npt.NDArray[np.uint8]
    low: CodeArray
    high: CodeArray
    selectivity: npt.NDArray[np.float32]
    value_list: npt.NDArray[np.int32]
    list_offsets: IndexArray
    list_values: CodeArray
    list_needle: npt.NDArray[np.int32]

    @property
    def count(self) -> int:
        """How many subscriptions there are."""
        return len(self.offsets) - 1

    def owners(self) -> npt.NDArray[np.int32]:
        """The subscription row of every predicate."""
        return np.repeat(np.arange(self.count, dtype=np.int32), np.diff(self.offsets))

    def select(self, rows: npt.NDArray[np.integer]) -> SubscriptionTable:
        """The table of the given subscription rows, in that order, repeats allowed."""
        lengths = np.diff(self.offsets)[rows]
        offsets = offsets_of(lengths)
        shift = np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        predicates = np.arange(offsets[-1], dtype=np.int64) + shift
        per_predicate = ("attribute", "operator", "low", "high", "selectivity", "value_list")
        columns = {column.name: getattr(self, column.name) for column in fields(self)}
        columns |= {name: columns[name][predicates] for name in per_predicate}
        return SubscriptionTable(**(columns | {"offsets": offsets}))


def offsets_of(lengths: npt.NDArray[np.integer]) -> IndexArray:
    """Row offsets of compressed sparse rows with these lengths.

    >>> offsets_of(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def draw_subscriptions(
    attributes: Attributes,
    settings: WorkloadSettings,
    tightness: float,
    generator: np.random.Generator,
) -> SubscriptionTable:
    """Draw `settings.subscriptions` filters; the greater `tightness`, the more they match."""
    total = settings.subscriptions
    copies = min(round(total * settings.duplicates_share), max(total - 1, 0))
    originals = _draw_filters(attributes, settings, total - copies, tightness, generator)
    if not copies:
        return originals
    sources = np.concatenate(
        [np.arange(total - copies), generator.integers(0, total - copies, copies)]
    )
    return originals.select(generator.permutation(sources))


def _draw_filters(
    attributes: Attributes,
    settings: WorkloadSettings,
    count: int,
    tightness: float,
    generator: np.random.Generator,
) -> SubscriptionTable:
    lengths = generator.integers(
        settings.predicates_per_subscription_min,
        settings.predicates_per_subscription_max + 1,
        count,
    )
    offsets = offsets_of(lengths)
    owner = np.repeat(np.arange(count), lengths)
    position = np.arange(offsets[-1]) - offsets[owner]
    order = draw_attribute_order(
        attributes, count, settings.predicates_per_subscription_max, generator
    )
    attribute = order[owner, position]
    operator = np.zeros(len(attribute), np.uint8)
    _place_opaque(attributes, settings, offsets, attribute, operator, generator)
    low, high, selectivity, value_list, lists = _draw_categorical(
        attributes, settings, attribute, operator, generator
    )
    is_numeric = attribute < attributes.numeric_count
    width = _numeric_widths(owner, is_numeric, selectivity, count, tightness, generator)
    numeric = np.flatnonzero(is_numeric)
    numeric_operator, numeric_low, numeric_high = _draw_intervals(
        attributes, settings, width, generator
    )
    operator[numeric], low[numeric], high[numeric] = numeric_operator, numeric_low, numeric_high
    selectivity[numeric] = _interval_selectivity(attributes, numeric_low, numeric_high)
    return SubscriptionTable(
        offsets=offsets,
        attribute=attribute,
        operator=operator,
        low=low,
        high=high,
        selectivity=selectivity.astype(np.float32),
        value_list=value_list,
        list_offsets=lists[0],
        list_values=lists[1],
        list_needle=lists[2],
    )


def _place_opaque(
    attributes: Attributes,
    settings: WorkloadSettings,
    offsets: IndexArray,
    attribute: npt.NDArray[np.int16],
    operator: npt.NDArray[np.uint8],
    generator: np.random.Generator,
) -> None:
    """Mark one predicate of each opaque filter as LIKE, on a categorical attribute."""
    count = len(offsets) - 1
    if settings.opaque_share == 0 or count == 0:
        return
    chosen = generator.random(count) < settings.opaque_share
    is_categorical = attribute >= attributes.numeric_count
    # The first categorical predicate, else the first predicate of all, moved to one.
    position = np.where(is_categorical, np.arange(len(attribute)), len(attribute))
    first = np.minimum.reduceat(position, offsets[:-1])
    has_categorical = first < offsets[1:]
    target = np.where(has_categorical, first, offsets[:-1])
    moved = generator.integers(attributes.numeric_count, attributes.count, count)
    attribute[target[chosen & ~has_categorical]] = moved[chosen & ~has_categorical]
    operator[target[chosen]] = Operator.LIKE


def _draw_categorical(
    attributes: Attributes,
    settings: WorkloadSettings,
    attribute: npt.NDArray[np.int16],
    operator: npt.NDArray[np.uint8],
    generator: np.random.Generator,
) -> tuple[
    CodeArray,
    CodeArray,
    FloatArray,
    npt.NDArray[np.int32],
    tuple[IndexArray, CodeArray, npt.NDArray[np.int32]],
]:
    """Draw the categorical predicates; numeric ones keep selectivity 1 for now."""
    count = len(attribute)
    low = np.zeros(count, np.int32)
    selectivity = np.ones(count, np.float64)
    for number, probabilities in enumerate(attributes.probabilities):
        here = np.flatnonzero(attribute == attributes.numeric_count + number)
        codes = draw_categorical_codes(
            attributes, attributes.numeric_count + number, len(here), generator
        )
        low[here] = codes
        selectivity[here] = probabilities[codes]
    high = low.copy()
    mix = settings.operators
    in_share = mix.categorical_in / (mix.categorical_in + mix.categorical_equal)
    is_in = (
        (attribute >= attributes.numeric_count)
        & (operator != Operator.LIKE)
        & (generator.random(count) < in_share)
    )
    operator[is_in] = Operator.IN
    in_rows = np.flatnonzero(is_in)
    in_offsets, in_values = _draw_in_lists(
        attributes, settings, attribute[in_rows], low[in_rows], generator
    )
    like_rows = np.flatnonzero(operator == Operator.LIKE)
    like_list, like_offsets, like_values, like_needles = _like_lists(
        attributes, attribute[like_rows], low[like_rows]
    )
    value_list = np.full(count, NO_LIST, np.int32)
    value_list[in_rows] = np.arange(len(in_rows), dtype=np.int32)
    value_list[like_rows] = like_list + len(in_rows)
    list_offsets = np.concatenate([in_offsets, like_offsets[1:] + in_offsets[-1]])
    list_values = np.concatenate([in_values, like_values])
    needles = np.concatenate([np.full(len(in_rows), NO_NEEDLE, np.int32), like_needles])
    for listed in (in_rows, like_rows):
        starts = list_offsets[value_list[listed]]
        ends = list_offsets[value_list[listed] + 1]
        selectivity[listed] = _list_selectivity(
            attributes, attribute[listed], list_values, starts, ends
        )
        low[listed], high[listed] = list_values[starts], list_values[ends - 1]
    return low, high, selectivity, value_list, (list_offsets, list_values, needles)


def _draw_in_lists(
    attributes: Attributes,
    settings: WorkloadSettings,
    attribute: npt.NDArray[np.int16],
    first: CodeArray,
    generator: np.random.Generator,
) -> tuple[IndexArray, CodeArray]:
    """Draw IN lists of distinct codes that contain `first`, each list ascending."""
    cardinality = attributes.cardinalities[attribute]
    lengths = generator.integers(2, settings.values_per_in_max + 1, len(attribute))
    lengths = np.minimum(lengths, cardinality)
    # Equal steps around the domain that do not come full circle never repeat a code.
    step_max = np.maximum((cardinality - 1) // np.maximum(lengths - 1, 1), 1)
    step = generator.integers(1, step_max + 1)
    offsets = offsets_of(lengths)
    row = np.repeat(np.arange(len(attribute)), lengths)
    position = np.arange(offsets[-1]) - offsets[row]
    values = (first[row] + position * step[row]) % cardinality[row]
    return offsets, values[np.lexsort((values, row))].astype(np.int32)


def _like_lists(
    attributes: Attributes, attribute: npt.NDArray[np.int16], needle: CodeArray
) -> tuple[npt.NDArray[np.int32], IndexArray, CodeArray, npt.NDArray[np.int32]]:
    """For each LIKE '%needle%' the number of its list, and the lists, equal ones shared."""
    pairs = attribute.astype(np.int64) << 32 | needle.astype(np.int64)
    distinct, list_number = np.unique(pairs, return_inverse=True)
    texts: dict[int, list[str]] = {}
    lists: list[CodeArray] = []
    for pair in distinct.tolist():
        where = pair >> 32
        if where not in texts:
            texts[where] = attributes.categorical_values(where)
        part = str(pair & 0xFFFFFFFF)
        held = [code for code, text in enumerate(texts[where]) if part in text]
        lists.append(np.array(held, np.int32))
    offsets = offsets_of(np.array([len(values) for values in lists], np.int64))
    values = np.concatenate([np.empty(0, np.int32), *lists])
    needles = (distinct & 0xFFFFFFFF).astype(np.int32)
    return list_number.astype(np.int32), offsets, values, needles


def _list_selectivity(
    attributes: Attributes,
    attribute: npt.NDArray[np.int16],
    list_values: CodeArray,
    starts: IndexArray,
    ends: IndexArray,
) -> FloatArray:
    """The sum of the probabilities of each list's values."""
    selectivity = np.zeros(len(attribute), np.float64)
    for number, probabilities in enumerate(attributes.probabilities):
        here = np.flatnonzero(attribute == attributes.numeric_count + number)
        lengths = (ends - starts)[here]
        offsets = offsets_of(lengths)
        entry = np.arange(offsets[-1]) + np.repeat(starts[here] - offsets[:-1], lengths)
        row = np.repeat(np.arange(len(here)), lengths)
        selectivity[here] = np.bincount(
            row, weights=probabilities[list_values[entry]], minlength=len(here)
        )
    return selectivity


def _numeric_widths(
    owner: IndexArray,
    is_numeric: npt.NDArray[np.bool_],
    selectivity: FloatArray,
    count: int,
    tightness: float,
    generator: np.random.Generator,
) -> FloatArray:
    """The wanted selectivity of every numeric predicate, given the categorical ones."""
    reached = np.bincount(owner, weights=np.log(selectivity), minlength=count)
    sharing = np.maximum(np.bincount(owner, weights=is_numeric, minlength=count), 1)
    shared = np.clip(np.exp((tightness - reached) / sharing), _SHARED_WIDTH_MIN, _SHARED_WIDTH_MAX)
    numeric_owner = owner[is_numeric]
    spread = np.exp(generator.normal(0.0, _WIDTH_SPREAD, len(numeric_owner)))
    width = np.clip(shared[numeric_owner] * spread, _WIDTH_MIN, _WIDTH_MAX)
    return np.asarray(width, dtype=np.float64)


def _draw_intervals(
    attributes: Attributes,
    settings: WorkloadSettings,
    width: FloatArray,
    generator: np.random.Generator,
) -> tuple[npt.NDArray[np.uint8], CodeArray, CodeArray]:
    """Draw operators and closed bounds of numeric predicates with these selectivities."""
    mix = settings.operators
    operators = np.array(
        [
            Operator.BETWEEN,
            Operator.GREATER_OR_EQUAL,
            Operator.LESS_OR_EQUAL,
            Operator.GREATER,
            Operator.LESS,
            Operator.EQUAL,
        ],
        np.uint8,
    )
    weights = np.array(
        [
            mix.numeric_between,
            mix.numeric_greater_or_equal,
            mix.numeric_less_or_equal,
            mix.numeric_greater,
            mix.numeric_less,
            mix.numeric_equal,
        ]
    )
    operator = generator.choice(operators, len(width), p=weights / weights.sum())
    start = generator.random(len(width)) * (1 - width)
    low = numeric_codes_at(attributes, start)
    high = np.maximum(numeric_codes_at(attributes, start + width), low)
    last = settings.numeric_values - 1
    above = (operator == Operator.GREATER_OR_EQUAL) | (operator == Operator.GREATER)
    low[above] = np.maximum(numeric_codes_at(attributes, 1 - width[above]), 1)
    high[above] = last
    below = (operator == Operator.LESS_OR_EQUAL) | (operator == Operator.LESS)
    low[below] = 0
    high[below] = np.minimum(numeric_codes_at(attributes, width[below]), last - 1)
    equal = operator == Operator.EQUAL
    high[equal] = low[equal]
    return operator, low, high


def _interval_selectivity(attributes: Attributes, low: CodeArray, high: CodeArray) -> FloatArray:
    """The share of present numeric values inside closed code intervals."""
    if not attributes.numeric_count:
        return np.ones(len(low), np.float64)
    domain = float(attributes.cardinalities[0])
    start = np.asarray(low / domain, dtype=np.float64)
    end = np.asarray((high + 1.0) / domain, dtype=np.float64)
    return numeric_cumulative(attributes, end) - numeric_cumulative(attributes, start)
