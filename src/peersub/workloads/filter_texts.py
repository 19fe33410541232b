"""SQL texts of a subscription table, made with whole-column string operations.

A predicate's text is its prefix, `n3 >= ` or `c1 IN (`, then its first value, a joint, its
second value and a suffix; parts that an operator lacks are empty. The predicates of a
subscription are joined with AND. Rows are made in chunks, so that a million subscriptions
never hold more than one chunk of intermediate strings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from peersub.workloads.attributes import Attributes, CodeArray
from peersub.workloads.settings import Operator
from peersub.workloads.subscriptions import SubscriptionTable, offsets_of

_CHUNK_ROWS = 100_000
_NUMERIC_WORDS = {
    Operator.EQUAL: " = ",
    Operator.LESS: " < ",
    Operator.LESS_OR_EQUAL: " <= ",
    Operator.GREATER: " > ",
    Operator.GREATER_OR_EQUAL: " >= ",
    Operator.BETWEEN: " BETWEEN ",
}
_QUARTERS = pa.array(["", ".25", ".5", ".75"], pa.string())


def subscription_ids(start: int, stop: int) -> pa.StringArray:
    """The ids `s0`, `s1`, … of subscription rows `start` to `stop`."""
    numbers = pc.cast(pa.array(np.arange(start, stop, dtype=np.int64)), pa.string())
    return pc.binary_join_element_wise(pa.scalar("s"), numbers, "")


def filter_texts(attributes: Attributes, table: SubscriptionTable) -> pa.StringArray:
    """The SQL filter text of every subscription of the table."""
    is_numeric = table.attribute < attributes.numeric_count
    is_listed = table.value_list >= 0
    groups = (
        (np.flatnonzero(is_numeric), _numeric_texts),
        (np.flatnonzero(~is_numeric & ~is_listed), _equality_texts),
        (np.flatnonzero(table.operator == Operator.IN), _in_texts),
        (np.flatnonzero(table.operator == Operator.LIKE), _like_texts),
    )
    texts = pa.concat_arrays([render(attributes, table, rows) for rows, render in groups])
    position = np.empty(len(table.attribute), np.int64)
    position[np.concatenate([rows for rows, _ in groups])] = np.arange(len(position))
    in_order = texts.take(pa.array(position))
    conjunctions = pa.ListArray.from_arrays(pa.array(table.offsets.astype(np.int32)), in_order)
    return pc.binary_join(conjunctions, " AND ")


def filter_text_chunks(
    attributes: Attributes, table: SubscriptionTable, *, rows: int = _CHUNK_ROWS
) -> Iterator[pa.StringArray]:
    """The SQL filter texts, `rows` subscriptions at a time."""
    for start in range(0, table.count, rows):
        chosen = np.arange(start, min(start + rows, table.count))
        yield filter_texts(attributes, table.select(chosen))


def subscription_texts(attributes: Attributes, table: SubscriptionTable) -> pa.Table:
    """All subscriptions as a table of `id` and `filter`, the shape of a subscription file."""
    texts = pa.chunked_array(list(filter_text_chunks(attributes, table)), pa.string())
    return pa.table({"id": subscription_ids(0, table.count), "filter": texts})


def _join(*parts: Any) -> pa.StringArray:
    return pc.binary_join_element_wise(*parts, "")


def _names(attributes: Attributes, attribute: npt.NDArray[np.int16]) -> pa.StringArray:
    return pa.array(attributes.names, pa.string()).take(pa.array(attribute))


def _numeric_literals(
    attributes: Attributes, attribute: npt.NDArray[np.int16], code: npt.NDArray[np.int64]
) -> pa.StringArray:
    """Integers as they are, floats as exact decimals in quarters."""
    is_float = attribute >= attributes.numeric_count - attributes.float_count
    whole = pc.cast(pa.array(np.where(is_float, code // 4, code)), pa.string())
    if not is_float.any():
        return whole
    return _join(whole, _QUARTERS.take(pa.array(np.where(is_float, code % 4, 0))))


def _numeric_texts(
    attributes: Attributes, table: SubscriptionTable, rows: npt.NDArray[np.int64]
) -> pa.StringArray:
    attribute, operator = table.attribute[rows], table.operator[rows]
    # Strict bounds are one step outside of the closed interval.
    low = table.low[rows].astype(np.int64) - (operator == Operator.GREATER)
    high = table.high[rows].astype(np.int64) + (operator == Operator.LESS)
    upper_only = (operator == Operator.LESS) | (operator == Operator.LESS_OR_EQUAL)
    words = pa.array([_NUMERIC_WORDS.get(word, "") for word in Operator], pa.string())
    first = _numeric_literals(attributes, attribute, np.where(upper_only, high, low))
    start = _join(_names(attributes, attribute), words.take(pa.array(operator)), first)
    between = pa.array(operator == Operator.BETWEEN)
    second = _join(pa.scalar(" AND "), _numeric_literals(attributes, attribute, high))
    return _join(start, pc.if_else(between, second, pa.scalar("")))


def _categorical_texts(
    attributes: Attributes, attribute: npt.NDArray[np.int16], code: CodeArray
) -> pa.StringArray:
    names = _names(attributes, attribute)
    return _join(
        pa.scalar("'"), names, pa.scalar("_"), pc.cast(pa.array(code), pa.string()), pa.scalar("'")
    )


def _equality_texts(
    attributes: Attributes, table: SubscriptionTable, rows: npt.NDArray[np.int64]
) -> pa.StringArray:
    values = _categorical_texts(attributes, table.attribute[rows], table.low[rows])
    return _join(_names(attributes, table.attribute[rows]), pa.scalar(" = "), values)


def _in_texts(
    attributes: Attributes, table: SubscriptionTable, rows: npt.NDArray[np.int64]
) -> pa.StringArray:
    lists = table.value_list[rows]
    starts = table.list_offsets[lists]
    lengths = table.list_offsets[lists + 1] - starts
    offsets = offsets_of(lengths)
    entry = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    attribute = np.repeat(table.attribute[rows], lengths)
    values = _categorical_texts(attributes, attribute, table.list_values[entry])
    listed = pc.binary_join(
        pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values), ", "
    )
    names = _names(attributes, table.attribute[rows])
    return _join(names, pa.scalar(" IN ("), listed, pa.scalar(")"))


def _like_texts(
    attributes: Attributes, table: SubscriptionTable, rows: npt.NDArray[np.int64]
) -> pa.StringArray:
    needles = pc.cast(pa.array(table.list_needle[table.value_list[rows]]), pa.string())
    names = _names(attributes, table.attribute[rows])
    return _join(names, pa.scalar(" LIKE '%"), needles, pa.scalar("%'"))
