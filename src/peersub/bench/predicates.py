"""What the baselines share: events as code columns, and predicates in handy layouts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from peersub.workloads import ABSENT, Attributes, SubscriptionTable
from peersub.workloads.attributes import FLOAT_STEP, CodeArray
from peersub.workloads.subscriptions import offsets_of

IndexArray = npt.NDArray[np.int64]


class ColumnEncoder:
    """Turns an Arrow table of events into code columns, without Python objects per value."""

    def __init__(self, attributes: Attributes) -> None:
        self._attributes = attributes
        self._dictionaries = {
            attribute: pa.array(attributes.categorical_values(attribute), pa.string())
            for attribute in range(attributes.numeric_count, attributes.count)
        }

    def encode(self, events: pa.Table) -> CodeArray:
        """Codes as int32[attributes, events], -1 where an attribute is absent."""
        codes = np.empty((self._attributes.count, events.num_rows), np.int32)
        for attribute, name in enumerate(self._attributes.names):
            column = events.column(name).combine_chunks()
            if attribute in self._dictionaries:
                column = pc.index_in(column, value_set=self._dictionaries[attribute])
                codes[attribute] = column.fill_null(ABSENT).to_numpy(zero_copy_only=False)
            elif self._attributes.is_float(attribute):
                scaled = column.to_numpy(zero_copy_only=False) / FLOAT_STEP
                codes[attribute] = np.where(np.isnan(scaled), ABSENT, scaled)
            else:
                codes[attribute] = column.fill_null(ABSENT).to_numpy(zero_copy_only=False)
        return codes


@dataclass(frozen=True, slots=True)
class Intervals:
    """Predicates as code intervals, lists taken apart into one interval per value."""

    predicate: IndexArray
    attribute: npt.NDArray[np.int16]
    low: CodeArray
    high: CodeArray
    owner: npt.NDArray[np.int32]


def intervals(table: SubscriptionTable) -> Intervals:
    """Every predicate as one interval, or as many as its list has values."""
    listed = table.value_list >= 0
    starts = np.where(listed, table.list_offsets[table.value_list], 0)
    ends = np.where(listed, table.list_offsets[table.value_list + 1], 1)
    offsets = offsets_of(ends - starts)
    predicate = np.repeat(np.arange(len(listed)), ends - starts)
    entry = np.arange(offsets[-1]) + (starts - offsets[:-1])[predicate]
    values = np.concatenate([table.list_values, np.zeros(1, np.int32)])
    value = values[np.minimum(entry, len(values) - 1)]
    return Intervals(
        predicate=predicate,
        attribute=table.attribute[predicate],
        low=np.where(listed[predicate], value, table.low[predicate]),
        high=np.where(listed[predicate], value, table.high[predicate]),
        owner=table.owners()[predicate],
    )


def by_selectivity(table: SubscriptionTable) -> tuple[IndexArray, IndexArray]:
    """Predicates of each subscription from rarest to commonest, and each one's position."""
    owner = table.owners()
    order = np.lexsort((table.selectivity, owner))
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order)) - table.offsets[owner[order]]
    return order, position


def lists_of(table: SubscriptionTable, predicates: IndexArray) -> tuple[IndexArray, CodeArray]:
    """The value lists of the given predicates, side by side: their offsets and values."""
    numbers = table.value_list[predicates]
    starts = table.list_offsets[numbers]
    lengths = table.list_offsets[numbers + 1] - starts
    offsets = offsets_of(lengths)
    entry = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    return offsets, table.list_values[entry]
