"""From the conjuncts found to the subscription rows that share them."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def expand_rows(row_offsets, conjuncts, conjunct_entry, multi, entry_offsets, entry_rows, alive):
    events = row_offsets.shape[0] - 1
    rows = np.zeros(events + 1, np.int64)
    out = np.empty(conjuncts.shape[0] + 16, np.int32)
    last_seen = np.full(entry_offsets.shape[0] - 1, -1, np.int64)
    found = 0
    for e in range(events):
        for i in range(row_offsets[e], row_offsets[e + 1]):
            c = conjuncts[i]
            entry = conjunct_entry[c]
            if multi[c]:
                if last_seen[entry] == e:
                    continue
                last_seen[entry] = e
            for r in range(entry_offsets[entry], entry_offsets[entry + 1]):
                row = entry_rows[r]
                if alive.shape[0] > 0 and not alive[row]:
                    continue
                if found == out.shape[0]:
                    larger = np.empty(2 * found, np.int32)
                    larger[:found] = out
                    out = larger
                out[found] = row
                found += 1
        rows[e + 1] = found
    return rows, out[:found].copy()
