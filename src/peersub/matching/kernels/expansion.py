# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
"""From the tags found to subscription rows: most are rows already, the others lead over entries."""

from __future__ import annotations

import numpy as np
from numba import njit

U = np.uint64


@njit(cache=True, nogil=True)
def room_for(tags, row_count, conjunct_entry, entry_offsets):
    """How many rows the tags stand for, at most."""
    room = 0
    for i in range(U(tags.shape[0])):
        tag = tags[i]
        if tag < row_count:
            room += 1
        else:
            entry = U(conjunct_entry[U(tag - row_count)])
            room += entry_offsets[entry + U(1)] - entry_offsets[entry]
    return room


@njit(cache=True, nogil=True)
def write_row_of_each(offsets, first, out):
    """Write the number of its event, the first having the number ``first``, for each pair."""
    for e in range(U(offsets.shape[0] - 1)):
        for i in range(U(offsets[e]), U(offsets[e + U(1)])):
            out[i] = first + np.int64(e)


@njit(cache=True, nogil=True)
def expand_tags(
    begins, tags, row_count, conjunct_entry, multi, entry_offsets, entry_rows, alive, seen, stamp,
    offsets, out,
):  # fmt: skip
    """Write the living rows of each event; negative tags stand for nothing.

    Event ``e`` marks the entries of several conjuncts that it has reported with ``stamp + e``.
    """
    found, every = U(0), alive.shape[0] == 0
    for e in range(U(begins.shape[0] - 1)):
        for i in range(U(begins[e]), U(begins[e + U(1)])):
            tag = tags[i]
            if tag < row_count:
                if tag >= 0:
                    out[found] = tag
                    found += U(1) if every else U(alive[U(tag)] != 0)
                continue
            conjunct = U(tag - row_count)
            entry = U(conjunct_entry[conjunct])
            if multi[conjunct]:
                if U(seen[entry]) == U(stamp) + e:
                    continue
                seen[entry] = U(stamp) + e
            for j in range(U(entry_offsets[entry]), U(entry_offsets[entry + U(1)])):
                row = entry_rows[j]
                out[found] = row
                found += U(1) if every else U(alive[U(row)] != 0)
        offsets[e + U(1)] = found
