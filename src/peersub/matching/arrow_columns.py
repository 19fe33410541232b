"""Single attributes out of Arrow tables: the strings at a path, or rows as dicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from peersub.filters.boxes import Path

__all__ = ["rows_of_table", "string_column"]


def string_column(table: pa.Table, path: Path, rows: np.ndarray) -> pa.LargeStringArray:
    """The strings at a path in some rows; null where there is none, or a value of another class."""
    index = table.schema.get_field_index(path[0])
    if index < 0:
        return pa.nulls(len(rows), pa.large_string())
    taken = table.column(index).take(pa.array(rows))
    array = taken.combine_chunks() if taken.num_chunks != 1 else taken.chunk(0)
    return _strings(array, path[1:])


def _strings(array: pa.Array, path: Path) -> pa.LargeStringArray:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _strings(array.dictionary_decode(), path)
    if pa.types.is_run_end_encoded(kind):
        return _strings(pc.run_end_decode(array), path)
    if pa.types.is_union(kind):
        return _strings_of_union(array, path)
    if path:
        field = kind.get_field_index(path[0]) if pa.types.is_struct(kind) else -1
        if field < 0:
            return pa.nulls(len(array), pa.large_string())
        return _strings(pc.struct_field(array, [field]), path[1:])
    if isinstance(kind, pa.BaseExtensionType):
        return _strings(array.storage, path)
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    if any(test(kind) for test in texts):
        return array.cast(pa.large_string())
    return pa.nulls(len(array), pa.large_string())


def _strings_of_union(array: pa.Array, path: Path) -> pa.LargeStringArray:
    codes = np.asarray(array.type_codes)
    found = pa.nulls(len(array), pa.large_string())
    for number, code in enumerate(array.type.type_codes):
        rows = np.flatnonzero(codes == code)
        if not len(rows):
            continue
        places = np.asarray(array.offsets)[rows] if array.type.mode == "dense" else rows
        child = _strings(array.field(number).take(pa.array(places)), path)
        mask = np.zeros(len(array), bool)
        mask[rows] = True
        found = pc.replace_with_mask(found, pa.array(mask), child)
    return found


def rows_of_table(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as dicts of Python values, None where a value is missing."""
    if not table.num_columns:
        return [{} for _ in range(table.num_rows)]
    columns = [_without_nanoseconds(column).to_pylist() for column in table.columns]
    names = table.column_names
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _without_nanoseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Python has no nanoseconds: what lies below a microsecond is cut off, as everywhere."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        floored = pc.floor_temporal(column, unit="microsecond")
        return floored.cast(pa.timestamp("us", kind.tz))
    return column
