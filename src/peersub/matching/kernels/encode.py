"""Compiled loops from values to codes, over the buffers of Arrow columns.

Codes go straight into one column of the row-major matrix of codes. Validity is Arrow's bitmap,
least significant bit first, with the position of the first row's bit; an empty bitmap means that
all rows are there. The loops release the GIL, so that threads can encode slices at the same time.

All arrays but the codes come as contiguous read-only views (`bounds.read_only`): each loop is
compiled once.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["encode_doubles", "encode_texts", "text_table"]

_ABSENT = np.int32(-1)
_EMPTY = np.int32(-1)
_INT64_MIN = np.int64(-(2**63))
_SCANNED_MAX = np.uint64(8)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)


@njit(inline="always")
def _is_valid(bitmap, position):  # type: ignore[no-untyped-def]
    return (bitmap[position >> np.uint64(3)] >> (position & np.uint64(7))) & np.uint8(1)


@njit(cache=True, nogil=True)
def encode_doubles(  # type: ignore[no-untyped-def]
    values, bits, bitmap, first_bit, thresholds, flags, starts, base, scale, by_place, codes, column
):
    """Write the codes of doubles; NaN is absent.

    `bits` are the values as int64; the layout of the bounds is that of OrderedBounds and Buckets.
    """
    last = np.float64(starts.size - 2)
    all_valid = bitmap.size == 0
    for row in range(values.size):
        value = values[row]
        if value != value or not (all_valid or _is_valid(bitmap, np.uint64(first_bit + row))):
            codes[row, column] = _ABSENT
            continue
        image = value
        if by_place:
            pattern = bits[row]
            image = np.float64(_INT64_MIN - pattern if pattern < 0 else pattern)
        bucket = _ZERO
        if last > 0.0:
            bucket = np.uint64(min(max((image - base) * scale, 0.0), last))
        low = np.uint64(starts[bucket])
        high = np.uint64(starts[bucket + _ONE])
        while high - low > _SCANNED_MAX:
            middle = (low + high) >> _ONE
            if thresholds[middle] <= value:
                low = middle + _ONE
            else:
                high = middle
        while low < high and thresholds[low] <= value:
            low += _ONE
        code = np.int32(low << _ONE)
        # Bit 0 of the flags: the threshold is the bound itself.
        if low > _ZERO and thresholds[low - _ONE] == value:
            code -= np.int32(flags[low - _ONE] & np.uint8(1))
        codes[row, column] = code


@njit(inline="always")
def _hash(data, start, end):  # type: ignore[no-untyped-def]
    state = (end - start) * _MULTIPLIER
    while start < end:
        # Eight bytes at a time, gathered by shifts, cost one multiplication.
        stop = min(start + np.uint64(8), end)
        word = _ZERO
        while start < stop:
            word = (word << np.uint64(8)) | np.uint64(data[start])
            start += _ONE
        state = (state ^ word) * _MULTIPLIER
        state ^= state >> np.uint64(32)
    return state


@njit(inline="always")
def _order(  # type: ignore[no-untyped-def]
    left, left_start, left_end, right, right_start, right_end
):
    """Below 0, 0 or above 0: the left text is less, equal, greater."""
    while left_start < left_end and right_start < right_end:
        difference = np.int64(left[left_start]) - np.int64(right[right_start])
        if difference != 0:
            return difference
        left_start += _ONE
        right_start += _ONE
    return np.int64(left_end - left_start) - np.int64(right_end - right_start)


@njit(cache=True, nogil=True)
def text_table(offsets, data):  # type: ignore[no-untyped-def]
    """A hash table over distinct texts: their numbers, -1 where free; at most half full."""
    size = 4
    while size < 2 * (offsets.size - 1):
        size *= 2
    mask = np.uint64(size - 1)
    table = np.full(size, _EMPTY, np.int32)
    for number in range(offsets.size - 1):
        place = _hash(data, np.uint64(offsets[number]), np.uint64(offsets[number + 1])) & mask
        while table[place] != _EMPTY:
            place = (place + _ONE) & mask
        table[place] = number
    return table


@njit(cache=True, nogil=True)
def encode_texts(  # type: ignore[no-untyped-def]
    offsets,
    data,
    bitmap,
    first_bit,
    bound_offsets,
    bound_data,
    table,
    gaps_alike,
    codes,
    column,
):
    """Write the codes of texts: a bound is found by its hash, what is no bound by binary search."""
    all_valid = bitmap.size == 0
    mask = np.uint64(table.size - 1)
    bounds = np.uint64(bound_offsets.size - 1)
    for row in range(offsets.size - 1):
        if not (all_valid or _is_valid(bitmap, np.uint64(first_bit + row))):
            codes[row, column] = _ABSENT
            continue
        start, end = np.uint64(offsets[row]), np.uint64(offsets[row + 1])
        code = np.int32(-1)
        place = _hash(data, start, end) & mask
        while table[place] != _EMPTY:
            number = np.uint64(table[place])
            bound_start = np.uint64(bound_offsets[number])
            bound_end = np.uint64(bound_offsets[number + _ONE])
            if (
                bound_end - bound_start == end - start
                and _order(data, start, end, bound_data, bound_start, bound_end) == 0
            ):
                code = np.int32((number << _ONE) + _ONE)
                break
            place = (place + _ONE) & mask
        if code < 0:
            low = bounds
            if not gaps_alike:
                low = _ZERO
                high = bounds
                while low < high:
                    middle = (low + high) >> _ONE
                    bound_start = np.uint64(bound_offsets[middle])
                    bound_end = np.uint64(bound_offsets[middle + _ONE])
                    if _order(data, start, end, bound_data, bound_start, bound_end) > 0:
                        low = middle + _ONE
                    else:
                        high = middle
            code = np.int32(low << _ONE)
        codes[row, column] = code
