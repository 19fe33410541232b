# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
"""From the conjuncts found to the subscription rows that share their entries."""

from __future__ import annotations

import numpy as np
from numba import njit

from peersub.matching.kernels.vector import prefetch

U = np.uint64
CHUNK = 64

# How far an expansion has come.
EVENT_REACHED = 0
CONJUNCT_REACHED = 1
ROWS_FOUND = 2
STATE_LENGTH = 3


@njit(cache=True, nogil=True)
def is_one_to_one(multi, entry_offsets):
    """Whether every entry has one conjunct and one row."""
    for c in range(multi.shape[0]):
        if multi[c]:
            return False
    for entry in range(entry_offsets.shape[0]):
        if entry_offsets[entry] != entry:
            return False
    return True


@njit(cache=True, nogil=True)
def expand_one_to_one(row_offsets, conjuncts, conjunct_entry, entry_rows, alive, offsets, out):
    """Write the living rows, where every entry has one conjunct and one row."""
    found = U(0)
    every = alive.shape[0] == 0
    for e in range(U(row_offsets.shape[0] - 1)):
        for i in range(U(row_offsets[e]), U(row_offsets[e + U(1)])):
            row = entry_rows[U(conjunct_entry[U(conjuncts[i])])]
            out[found] = row
            found += U(1) if every else U(alive[U(row)] != 0)
        offsets[e + U(1)] = found


@njit(cache=True, nogil=True)
def expand_entries(
    row_offsets, conjuncts, conjunct_entry, multi, entry_offsets, entry_rows, alive, seen, stamp,
    state, offsets, out,
):  # fmt: skip
    """Write the living rows of the entries, each entry once per event; returns whether it is done.

    Event ``e`` marks the entries of several conjuncts that it has reported with ``stamp + e``.
    If ``out`` is full, call again with a larger one that begins with its rows.
    The conjuncts are taken in chunks, so that what a chunk needs can be asked for ahead.
    """
    found, room = U(state[ROWS_FOUND]), U(out.shape[0])
    at, stamp = U(state[CONJUNCT_REACHED]), U(stamp)
    every = alive.shape[0] == 0
    entries, begins = np.empty(CHUNK, np.uint32), np.empty(CHUNK, np.uint64)
    for e in range(U(state[EVENT_REACHED]), U(row_offsets.shape[0] - 1)):
        while at < U(row_offsets[e + U(1)]):
            count = min(U(CHUNK), U(row_offsets[e + U(1)]) - at)
            for i in range(count):
                entry = U(conjunct_entry[U(conjuncts[at + i])])
                entries[i] = np.uint32(entry)
                prefetch(entry_offsets, entry)
            for i in range(count):
                begins[i] = U(entry_offsets[U(entries[i])])
                prefetch(entry_rows, begins[i])
            for i in range(count):
                entry = U(entries[i])
                several = multi[U(conjuncts[at + i])]
                if several and U(seen[entry]) == stamp + e:
                    continue
                begin, end = begins[i], U(entry_offsets[entry + U(1)])
                if found + (end - begin) > room:
                    state[EVENT_REACHED] = e
                    state[CONJUNCT_REACHED] = at + i
                    state[ROWS_FOUND] = found
                    return False
                if several:
                    seen[entry] = stamp + e
                for j in range(begin, end):
                    row = entry_rows[j]
                    out[found] = row
                    found += U(1) if every else U(alive[U(row)] != 0)
            at += count
        offsets[e + U(1)] = found
    return True
