"""From Arrow columns to codes, without a Python object per value.

A column is walked by type: numbers, dates and timestamps become doubles (see `bounds`; the few
values that are wider than a double are looked up apart), strings are looked up where they lie,
records are walked into, dictionaries are encoded once per entry, and of a union each child by its
own type. The path of column "a.b" is ("a.b",); field b of the record a has the path ("a", "b").

The outcome for a value is the same as that of `Encoder.encode_event` for the value as a Python
object. What a column cannot say about an attribute (another class, a list) is absent from the slots
of classes and OTHER_CODE in the slot of presence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from peersub.events.kinds import INT64_MAX, KindClass, number_key
from peersub.matching.bounds import EXACT_INTEGER_MAX, OrderedBounds, read_only
from peersub.matching.encoding import (
    ABSENT_CODE,
    NOTHING_CODE,
    OTHER_CODE,
    PRESENCE,
    Encoder,
    SlotTree,
    presence_code,
)
from peersub.matching.kernels.encode import encode_doubles, encode_texts

__all__ = ["encode_rows"]

_DECIMAL_EXACT: Final = 10**15
"""An integer below it, over a power of ten up to 10**22, is the decimal that names its double."""
_EXACT_SCALE_MAX: Final = 22
_MICROSECONDS: Final = {"s": 1_000_000, "ms": 1_000}
_DAY_MS: Final = 86_400_000
_CLASSES: Final = tuple(KindClass)


_Walker = Callable[[pa.Array, SlotTree, "_Target"], None]


@dataclass(frozen=True, slots=True)
class _Target:
    """Where codes go: rows of a matrix, with the code of nothing for each of its columns."""

    codes: np.ndarray
    """int32[rows, slots], C-contiguous"""
    absent: np.ndarray
    """int32[slots]"""

    def part(self, start: int, stop: int) -> _Target:
        """Some of the rows."""
        return _Target(self.codes[start:stop], self.absent)

    def scratch(self, rows: int) -> _Target:
        """Rows of its own."""
        return _Target(np.empty((rows, self.codes.shape[1]), np.int32), self.absent)

    def clear(self, tree: SlotTree) -> None:
        """Nothing is there."""
        for slot in tree.all_slots():
            self.codes[:, slot] = self.absent[slot]


def encode_rows(encoder: Encoder, table: pa.Table, start: int, stop: int) -> np.ndarray:
    """int32[stop - start, slots]: the codes of some rows of a table or record batch."""
    rows = max(stop - start, 0)
    codes = np.empty((rows, len(encoder.slots)), np.int32)
    if not rows:
        return codes
    target = _Target(codes, encoder.absent_codes)
    columns = {name: index for index, name in enumerate(table.schema.names)}
    trees = encoder.tree.children
    if any(name not in columns for name in trees):
        codes[:] = encoder.absent_codes  # at once: column by column would touch each line often
    for name, tree in trees.items():
        index = columns.get(name)
        if index is None:
            continue
        row = 0
        for chunk in _chunks(table.column(index), start, rows):
            _encode_array(chunk, tree, target.part(row, row + len(chunk)))
            row += len(chunk)
    return codes


def _chunks(column: pa.ChunkedArray | pa.Array, start: int, rows: int) -> list[pa.Array]:
    piece = column.slice(start, rows)
    return piece.chunks if isinstance(piece, pa.ChunkedArray) else [piece]


def _encode_array(array: pa.Array, tree: SlotTree, target: _Target) -> None:
    """Write the codes of all rows of an array, in all slots of the tree."""
    if not len(array):
        return
    walk = _walkers().get(array.type.id, _encode_other)
    walk(array, tree, target)


# --- the parts of a column ---------------------------------------------------------------------


def _values(array: pa.Array, dtype: Any) -> np.ndarray:
    """The values of an array of fixed width; those of nulls are arbitrary."""
    return np.frombuffer(
        array.buffers()[1], dtype, len(array), array.offset * np.dtype(dtype).itemsize
    )


_ALL_VALID: Final = read_only(np.empty(0, np.uint8))


def _validity(array: pa.Array) -> tuple[np.ndarray, int]:
    """The bitmap of rows that are there, empty if all are, and the place of the first row's bit."""
    if not array.null_count:
        return _ALL_VALID, 0
    bitmap = array.buffers()[0]
    if bitmap is None:
        return _ALL_VALID, 0
    return read_only(np.frombuffer(bitmap, np.uint8)), array.offset


def _unpacked(bitmap: np.ndarray, first_bit: int, rows: int) -> np.ndarray:
    """bool[rows]: the bits of a bitmap."""
    first_byte = first_bit >> 3
    last_byte = (first_bit + rows + 7) >> 3
    bits = np.unpackbits(bitmap[first_byte:last_byte], bitorder="little")
    return bits[first_bit & 7 : (first_bit & 7) + rows].view(np.bool_)


def _is_there(array: pa.Array) -> np.ndarray | bool:
    bitmap, first_bit = _validity(array)
    return _unpacked(bitmap, first_bit, len(array)) if len(bitmap) else True


def _mark(tree: SlotTree, target: _Target, code: int, there: np.ndarray | bool) -> None:
    """Fill the slot of presence, if there is one."""
    slot = tree.slots[PRESENCE]
    if slot >= 0:
        target.codes[:, slot] = np.where(there, code, NOTHING_CODE)


def _clear_others(tree: SlotTree, target: _Target, kept: KindClass | None) -> None:
    """No value of other classes than this one is there, and nothing is inside of the values."""
    for kind_class, slot in zip(_CLASSES, tree.slots, strict=False):
        if slot >= 0 and kind_class is not kept:
            target.codes[:, slot] = ABSENT_CODE
    for child in tree.children.values():
        target.clear(child)


# --- types that compare ------------------------------------------------------------------------


def _encode_ordered(
    array: pa.Array, tree: SlotTree, target: _Target, kind_class: KindClass, values: np.ndarray
) -> None:
    """Numbers, dates and timestamps, as doubles or int64."""
    _clear_others(tree, target, kind_class)
    there: np.ndarray | bool | None = None
    slot = tree.slots[kind_class]
    if slot >= 0:
        _write_ordered(values, *_validity(array), tree.bounds[kind_class], target.codes, slot)
    if tree.slots[PRESENCE] >= 0:
        there = _is_there(array)
        if values.dtype == np.float64:
            there = there & ~np.isnan(values)
        _mark(tree, target, presence_code(kind_class), there)


def _write_ordered(
    values: np.ndarray,
    bitmap: np.ndarray,
    first_bit: int,
    bounds: OrderedBounds,
    codes: np.ndarray,
    slot: int,
) -> None:
    doubles = read_only(values.astype(np.float64, copy=False))
    encode_doubles(  # type: ignore[call-arg]
        doubles,
        doubles.view(np.int64),
        bitmap,
        first_bit,
        *bounds.search_arguments,
        codes,
        slot,
    )
    if values.dtype == np.int64:
        wide = (values > EXACT_INTEGER_MAX) | (values < -EXACT_INTEGER_MAX)
        if wide.any():
            rows = np.flatnonzero(wide & (codes[:, slot] != ABSENT_CODE))
            codes[rows, slot] = bounds.codes_of_integers(values[rows])


def _number_walker(dtype: Any) -> _Walker:
    """Floats, and integers of up to 64 bits with sign."""

    def walk(array: pa.Array, tree: SlotTree, target: _Target) -> None:
        values = _values(array, dtype)
        if dtype is not np.int64:
            values = values.astype(np.float64, copy=False)
        _encode_ordered(array, tree, target, KindClass.NUMBER, values)

    return walk


def _encode_unsigned(array: pa.Array, tree: SlotTree, target: _Target) -> None:
    values = _values(array, np.uint64)
    large = values > INT64_MAX
    _encode_ordered(array, tree, target, KindClass.NUMBER, values.view(np.int64))
    if large.any():
        _correct(array, np.flatnonzero(large), tree, target)


def _encode_decimal(array: pa.Array, tree: SlotTree, target: _Target) -> None:
    scale, bits = array.type.scale, array.type.bit_width
    words = max(bits // 64, 1)
    dtype = np.int32 if bits == 32 else np.int64
    parts = np.frombuffer(array.buffers()[1], dtype)[array.offset * words :][: len(array) * words]
    parts = parts.reshape(len(array), words).astype(np.int64, copy=False)
    # The first word is the lowest one; a small number has only copies of its sign in the others.
    low: Any = parts[:, 0]
    small = (low > -_DECIMAL_EXACT) & (low < _DECIMAL_EXACT)
    for word in range(1, words):
        small &= parts[:, word] == low >> 63
    if not 0 <= scale <= _EXACT_SCALE_MAX:
        small[:] = False
    divisor = 10.0 ** min(max(scale, 0), _EXACT_SCALE_MAX)
    _encode_ordered(array, tree, target, KindClass.NUMBER, low.astype(np.float64) / divisor)
    if not small.all():
        _correct(array, np.flatnonzero(~small), tree, target)


def _correct(array: pa.Array, rows: np.ndarray, tree: SlotTree, target: _Target) -> None:
    """Look up the numbers in these rows one by one, each distinct one once."""
    slot = tree.slots[KindClass.NUMBER]
    if slot < 0:
        return
    bounds = tree.bounds[KindClass.NUMBER]
    # In Python: Arrow cannot find the distinct values of each width of decimals.
    known: dict[Any, int] = {None: ABSENT_CODE}
    for row, value in zip(rows.tolist(), array.take(pa.array(rows)).to_pylist(), strict=True):
        code = known.get(value)
        if code is None:
            code = known[value] = bounds.code_of_key(number_key(value))
        target.codes[row, slot] = code


def _encode_date32(array: pa.Array, tree: SlotTree, target: _Target) -> None:
    days = _values(array, np.int32).astype(np.float64)
    _encode_ordered(array, tree, target, KindClass.DATE, days)


def _encode_date64(array: pa.Array, tree: SlotTree, target: _Target) -> None:
    days = _values(array, np.int64) // _DAY_MS
    _encode_ordered(array, tree, target, KindClass.DATE, days)


def _encode_timestamp(array: pa.Array, tree: SlotTree, target: _Target) -> None:
    """Microseconds, rounded down; what lies outside of 64 bits of them stays at the end."""
    values = _values(array, np.int64)
    unit = array.type.unit
    if unit == "ns":
        values = values // 1_000
    elif unit in _MICROSECONDS:
        factor = _MICROSECONDS[unit]
        furthest = INT64_MAX // factor
        values = np.clip(values, -furthest, furthest) * factor
    _encode_ordered(array, tree, target, KindClass.TIMESTAMP, values)


def _encode_boolean(array: pa.Array, tree: SlotTree, target: _Target) -> None:
    _clear_others(tree, target, KindClass.BOOLEAN)
    there = _is_there(array)
    slot = tree.slots[KindClass.BOOLEAN]
    if slot >= 0:
        bitmap = np.frombuffer(array.buffers()[1], np.uint8)
        values = _unpacked(bitmap, array.offset, len(array))
        target.codes[:, slot] = np.where(there, values, ABSENT_CODE)
    _mark(tree, target, presence_code(KindClass.BOOLEAN), there)


def _text_walker(dtype: Any) -> _Walker:
    """Strings with offsets of this width."""

    def walk(array: pa.Array, tree: SlotTree, target: _Target) -> None:
        _clear_others(tree, target, KindClass.STRING)
        slot = tree.slots[KindClass.STRING]
        if slot >= 0:
            _, offsets, data = array.buffers()
            start = array.offset * np.dtype(dtype).itemsize
            encode_texts(  # type: ignore[call-arg]
                read_only(np.frombuffer(offsets, dtype, len(array) + 1, start).astype(np.int64)),
                read_only(np.frombuffer(data or b"", np.uint8)),
                *_validity(array),
                *tree.bounds[KindClass.STRING].search_arguments,
                target.codes,
                slot,
            )
        if tree.slots[PRESENCE] >= 0:
            _mark(tree, target, presence_code(KindClass.STRING), _is_there(array))

    return walk


def _encode_text_view(array: pa.Array, tree: SlotTree, target: _Target) -> None:
    _encode_array(array.cast(pa.large_string()), tree, target)


# --- types around others -----------------------------------------------------------------------


def _encode_other(array: pa.Array, tree: SlotTree, target: _Target) -> None:
    """Lists, maps, binary, times of day, durations: there, but without a class."""
    _clear_others(tree, target, None)
    _mark(tree, target, OTHER_CODE, _is_there(array))


def _encode_nothing(array: pa.Array, tree: SlotTree, target: _Target) -> None:
    target.clear(tree)


def _encode_record(array: pa.Array, tree: SlotTree, target: _Target) -> None:
    for slot in tree.slots[:PRESENCE]:
        if slot >= 0:
            target.codes[:, slot] = ABSENT_CODE
    _mark(tree, target, OTHER_CODE, _is_there(array))
    fields = {array.type.field(index).name: index for index in range(array.type.num_fields)}
    for name, child in tree.children.items():
        if name not in fields:
            target.clear(child)
        elif pa.types.is_union(array.type.field(fields[name]).type):
            _encode_union_of_record(array, array.field(fields[name]), child, target)
        else:
            # Also null where the record is.
            _encode_array(pc.struct_field(array, [fields[name]]), child, target)


def _encode_union_of_record(
    records: pa.Array, array: pa.Array, tree: SlotTree, target: _Target
) -> None:
    """A union has no nulls to tell of missing records; Arrow ends the process if it is to do so."""
    _encode_array(array, tree, target)
    there = _is_there(records)
    missing = np.flatnonzero(~there) if isinstance(there, np.ndarray) else np.empty(0, np.int64)
    for slot in tree.all_slots():
        target.codes[missing, slot] = target.absent[slot]


def _encode_dictionary(array: pa.Array, tree: SlotTree, target: _Target) -> None:
    """Each entry once, unless there are more entries than rows; of views Arrow cannot pick some."""
    if len(array.dictionary) > len(array) and array.type.value_type.id not in _VIEWS:
        _encode_array(array.dictionary_decode(), tree, target)
        return
    entries = target.scratch(len(array.dictionary) + 1)
    _encode_array(array.dictionary, tree, entries.part(0, len(array.dictionary)))
    entries.codes[-1] = target.absent
    rows = array.indices.fill_null(len(array.dictionary)) if array.null_count else array.indices
    _copy(tree, target, slice(None), entries.codes, rows.to_numpy())


def _copy(
    tree: SlotTree, target: _Target, rows: Any, codes: np.ndarray, picked: np.ndarray
) -> None:
    for slot in tree.all_slots():
        target.codes[rows, slot] = codes[picked, slot]


def _encode_union(array: pa.Array, tree: SlotTree, target: _Target) -> None:
    """Each child by its own type, and of it the rows that are its own."""
    kinds = np.frombuffer(array.buffers()[1], np.int8, len(array), array.offset)
    dense = array.type.mode == "dense"
    for index, type_code in enumerate(array.type.type_codes):
        rows = np.flatnonzero(kinds == type_code)
        if not len(rows):
            continue
        picked: np.ndarray = rows
        if dense:
            offsets = array.buffers()[2]
            picked = np.frombuffer(offsets, np.int32, len(array), 4 * array.offset)[rows]
        _encode_picked(array.field(index), picked, tree, target, rows)


def _encode_picked(
    values: pa.Array, picked: np.ndarray, tree: SlotTree, target: _Target, rows: Any
) -> None:
    """Some values into some rows: codes are picked, since Arrow cannot pick values of all types."""
    first, last = int(picked.min()), int(picked.max())
    encoded = target.scratch(last - first + 1)
    _encode_array(values.slice(first, last - first + 1), tree, encoded)
    _copy(tree, target, rows, encoded.codes, picked - first)


def _encode_run_ends(array: pa.Array, tree: SlotTree, target: _Target) -> None:
    """Each run once."""
    ends = array.run_ends.to_numpy()
    runs = np.searchsorted(ends, np.arange(array.offset, array.offset + len(array)), side="right")
    _encode_picked(array.values, runs, tree, target, slice(None))


def _encode_extension(array: pa.Array, tree: SlotTree, target: _Target) -> None:
    """An extension as what it is stored as, where that is also what it is in Python."""
    name = array.type.extension_name
    if name == "arrow.bool8":
        _encode_array(array.storage.cast(pa.bool_()), tree, target)
    elif name in _OPAQUE_EXTENSIONS:
        _encode_other(array, tree, target)
    else:
        _encode_array(array.storage, tree, target)


_VIEWS: Final = (pa.string_view().id, pa.binary_view().id)
_OPAQUE_EXTENSIONS: Final = frozenset(
    {"arrow.uuid", "arrow.opaque", "arrow.fixed_shape_tensor", "arrow.variable_shape_tensor"}
)


@cache
def _walkers() -> dict[int, _Walker]:
    """How to encode an array, by the number of its type."""
    types = pa.lib
    walkers: dict[int, _Walker] = {
        getattr(types, f"Type_{name}"): _number_walker(dtype)
        for name, dtype in (
            *(("INT8", np.int8), ("INT16", np.int16), ("INT32", np.int32), ("INT64", np.int64)),
            *(("UINT8", np.uint8), ("UINT16", np.uint16), ("UINT32", np.uint32)),
            *(("HALF_FLOAT", np.float16), ("FLOAT", np.float32), ("DOUBLE", np.float64)),
        )
    }
    others = {
        "UINT64": _encode_unsigned,
        **{f"DECIMAL{bits}": _encode_decimal for bits in (32, 64, 128, 256)},
        "DATE32": _encode_date32,
        "DATE64": _encode_date64,
        "TIMESTAMP": _encode_timestamp,
        "BOOL": _encode_boolean,
        "STRING": _text_walker(np.int32),
        "LARGE_STRING": _text_walker(np.int64),
        "STRING_VIEW": _encode_text_view,
        "NA": _encode_nothing,
        "STRUCT": _encode_record,
        "DICTIONARY": _encode_dictionary,
        "DENSE_UNION": _encode_union,
        "SPARSE_UNION": _encode_union,
        "RUN_END_ENCODED": _encode_run_ends,
    }
    walkers[pa.uuid().id] = _encode_extension  # all extensions have one number
    for name, walk in others.items():
        # Older versions of Arrow do not have all of them.
        number = getattr(types, f"Type_{name}", None)
        if number is not None:
            walkers[number] = walk
    return walkers
