# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
"""Codes to bytes: a monotone map per slot, so that 64 values fit a vector test.

The codes of a slot are cut into at most 255 cells, numbered 0..254 in order; 255 stands for an
absent value. A closed interval of codes becomes a closed interval of cells that contains it, so a
test on cells never loses a match; what it lets through too much is checked on the codes.

Layout: cell ``q`` of slot ``s`` ends at code ``upper[256 * s + q]``. To find a code's cell,
``table[first[s] + (code >> shift[s])]`` is the cell of the bucket's first code; where ``shift`` is
not zero the cell is looked up between that and the next bucket's.
"""

from __future__ import annotations

import numpy as np
from numba import njit

CELLS_MAX = 255
ABSENT = 255
BUCKETS_MAX = 4096
QUANTILES = 128
PRIOR_WEIGHT = 30.0


@njit(cache=True, nogil=True)
def gather_columns(rows, code_counts):
    """Per slot, the sorted codes that are present in the rows: (offsets, values)."""
    events, slots = rows.shape
    offsets = np.zeros(slots + 1, np.int64)
    for e in range(events):
        for s in range(slots):
            if rows[e, s] >= 0:
                offsets[s + 1] += 1
    for s in range(slots):
        offsets[s + 1] += offsets[s]
    values = np.empty(offsets[slots], np.int32)
    position = offsets[:slots].copy()
    for e in range(events):
        for s in range(slots):
            if rows[e, s] >= 0:
                values[position[s]] = min(rows[e, s], code_counts[s] - 1)
                position[s] += 1
    for s in range(slots):
        values[offsets[s] : offsets[s + 1]].sort()
    return offsets, values


@njit(cache=True, nogil=True)
def gather_bounds(slots, low, high, step, code_counts):
    """Per slot, the sorted bounds of every ``step``-th predicate: a stand-in for a sample."""
    slot_count = code_counts.shape[0]
    offsets = np.zeros(slot_count + 1, np.int64)
    for p in range(0, slots.shape[0], step):
        offsets[slots[p] + 1] += 2
    for s in range(slot_count):
        offsets[s + 1] += offsets[s]
    values = np.empty(offsets[slot_count], np.int32)
    position = offsets[:slot_count].copy()
    for p in range(0, slots.shape[0], step):
        s = slots[p]
        values[position[s]] = max(min(low[p], code_counts[s] - 1), 0)
        values[position[s] + 1] = max(min(high[p], code_counts[s] - 1), 0)
        position[s] += 2
    for s in range(slot_count):
        values[offsets[s] : offsets[s + 1]].sort()
    return offsets, values


@njit(cache=True, nogil=True)
def cut_cells(code_count, values, upper):
    """Write the last code of every cell to ``upper``; returns how many cells there are.

    Half of the cuts are quantiles of the values, half are evenly spread over the codes; a value
    that fills two quantiles gets a cell of its own.
    """
    if code_count <= CELLS_MAX:
        for q in range(code_count):
            upper[q] = q
        return code_count
    cuts = np.empty(CELLS_MAX, np.int64)
    n = 0
    previous = np.int64(-1)
    again = False
    for i in range(1, QUANTILES):
        if values.shape[0] == 0:
            break
        cut = np.int64(values[i * values.shape[0] // QUANTILES])
        if cut != previous:
            cuts[n] = cut
            n += 1
            again = False
        elif not again and cut > 0:
            cuts[n] = cut - 1
            n += 1
            again = True
        previous = cut
    spread = CELLS_MAX - 1 - n
    for i in range(1, spread + 1):
        cuts[n] = code_count * i // (spread + 1)
        n += 1
    cuts[n] = code_count - 1
    n += 1
    cuts = np.sort(cuts[:n])
    cells = 0
    for i in range(n):
        if cells == 0 or cuts[i] != upper[cells - 1]:
            upper[cells] = cuts[i]
            cells += 1
    return cells


@njit(cache=True, nogil=True)
def build_quantisers(code_counts, value_offsets, values):
    """The arrays ``first``, ``shift``, ``table`` and ``upper`` of all slots."""
    slots = code_counts.shape[0]
    first = np.zeros(slots + 1, np.int64)
    shift = np.zeros(slots, np.int32)
    for s in range(slots):
        while (code_counts[s] >> shift[s]) > BUCKETS_MAX:
            shift[s] += 1
        first[s + 1] = first[s] + (code_counts[s] >> shift[s]) + 2
    table = np.zeros(first[slots], np.uint8)
    upper = np.full(slots * 256, np.int32(2147483647), np.int32)
    for s in range(slots):
        ends = upper[s * 256 : s * 256 + 256]
        cells = cut_cells(code_counts[s], values[value_offsets[s] : value_offsets[s + 1]], ends)
        q = 0
        for b in range(first[s + 1] - first[s]):
            while q < cells - 1 and ends[q] < (b << shift[s]):
                q += 1
            table[first[s] + b] = q
    return first, shift, table, upper


@njit(cache=True, nogil=True)
def cell_of(code, s, first, shift, table, upper):
    """The cell of a present code of slot ``s``."""
    bucket = first[s] + (code >> shift[s])
    q = table[bucket]
    if shift[s] != 0:
        last = table[bucket + 1]
        while q < last and upper[s * 256 + np.int64(q)] < code:
            q += np.uint8(1)
    return q
