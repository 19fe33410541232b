"""Single attributes out of Arrow tables: the strings at a path."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from peersub.filters.boxes import Path

__all__ = ["string_column"]


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
        if pa.types.is_union(kind.field(field).type):
            # A union has no nulls to tell of missing records; Arrow ends the process if it must.
            found = _strings(array.field(field), path[1:])
            return pc.if_else(array.is_valid(), found, None)
        return _strings(pc.struct_field(array, [field]), path[1:])
    if isinstance(kind, pa.BaseExtensionType):
        return _strings(array.storage, path)
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    if any(test(kind) for test in texts):
        return array.cast(pa.large_string())
    return pa.nulls(len(array), pa.large_string())


def _strings_of_union(array: pa.Array, path: Path) -> pa.LargeStringArray:
    # Read from the buffers: these know of no slice, so its start is added by hand.
    codes = np.frombuffer(array.buffers()[1], np.int8, len(array), array.offset)
    found = pa.nulls(len(array), pa.large_string())
    for number, code in enumerate(array.type.type_codes):
        rows = np.flatnonzero(codes == code)
        if not len(rows):
            continue
        child = _strings(array.field(number).take(pa.array(_places(array, rows))), path)
        mask = np.zeros(len(array), bool)
        mask[rows] = True
        found = pc.replace_with_mask(found, pa.array(mask), child)
    return found


def _places(array: pa.Array, rows: np.ndarray) -> np.ndarray:
    """Where the values of some rows of a union stand in their child."""
    if array.type.mode != "dense":
        return rows
    offsets = np.frombuffer(array.buffers()[2], np.int32, len(array), 4 * array.offset)
    places: np.ndarray = offsets[rows]
    return places
