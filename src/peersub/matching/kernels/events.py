# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
"""Match one event at a time: its cells against the bounds of 64 entries at once.

The lists of the access slots that the event has are scanned if it has the list's second slot too.
A list is sorted by the lowest access cell, so a scan ends where that exceeds the event's cell. The
entries that pass both tests are collected, and then checked with their memory asked for ahead.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from peersub.matching.kernels.batches import (
    check_intervals,
    check_rest,
    look_up_points,
    quantise_events,
)
from peersub.matching.kernels.layout import (
    ACCESS_SLOTS,
    ACCESS_SLOTS_COUNT,
    ALWAYS,
    ALWAYS_COUNT,
    BOUNDS,
    BOUNDS_LINE,
    ENTRIES,
    ENTRY_WORDS,
    GROUP_FIRST,
    GROUP_SLOTS,
    GROUPS,
    GROUPS_MAX,
    LIST_FIRST,
    LIST_SLOTS,
    LIST_START,
    PREDICATE_WORDS,
    PREDICATES,
    REST_FLAG,
    SET_HIGH,
    SET_LOW,
    SET_OFFSETS,
    SLOT_COUNT,
)
from peersub.matching.kernels.memory import int32_at, int64_at, uint8_at, uint32_at, uint64_at
from peersub.matching.kernels.quantisers import ABSENT
from peersub.matching.kernels.vector import VECTOR_BYTES, entries_test, prefetch, trailing_zeros

U = np.uint64
SURVIVORS_MAX = 4096
PREFETCH_AHEAD = 16
SURVIVORS_BYTES = 4 * (SURVIVORS_MAX + VECTOR_BYTES + PREFETCH_AHEAD)
LOCAL_BYTES = GROUPS_MAX * GROUP_SLOTS

# The directory of scratch memory.
CELLS = 0
SURVIVORS = 1
FOUND = 2
FOUND_ROOM = 3
LOCAL_CELLS = 4
SCRATCH_LENGTH = 5


@njit(cache=True, nogil=True, inline="always")
def _passes(local, place, low, width):
    """Whether a column test, in the lowest bytes of three words, holds for the local cells."""
    return np.uint8(local[place & U(255)] - np.uint8(low)) <= np.uint8(width)


@njit(cache=True, nogil=True)
def test_survivors(directory, scratch, access_code, collected):
    """Keep those collected entries that pass the access and column tests; returns their number."""
    local, survivors = uint8_at(scratch[LOCAL_CELLS]), uint32_at(scratch[SURVIVORS])
    words = uint32_at(directory[ENTRIES])
    one, ahead, kept = U(1), U(PREFETCH_AHEAD), U(0)
    for i in range(min(ahead, U(collected))):
        prefetch(words, U(survivors[i]) * U(ENTRY_WORDS))
    for i in range(U(collected)):
        # Reading past the end only asks for a line that is not used.
        prefetch(words, U(survivors[i + ahead]) * U(ENTRY_WORDS))
        entry = survivors[i]
        w = U(entry) * U(ENTRY_WORDS)
        places, lows, widths = U(words[w + U(5)]), U(words[w + U(6)]), U(words[w + U(7)])
        holds = np.uint32(access_code - np.int32(words[w])) <= words[w + one]
        holds &= _passes(local, places, lows, widths)
        holds &= _passes(local, places >> U(8), lows >> U(8), widths >> U(8))
        holds &= _passes(local, places >> U(16), lows >> U(16), widths >> U(16))
        holds &= _passes(local, places >> U(24), lows >> U(24), widths >> U(24))
        survivors[kept] = entry
        kept += U(holds)
    return kept


@njit(cache=True, nogil=True)
def check_survivors(directory, scratch, codes_address, access_code, collected, found):
    """Append the conjuncts of the collected entries that hold; returns the new count."""
    kept = test_survivors(directory, scratch, access_code, collected)
    codes, survivors = int32_at(codes_address), uint32_at(scratch[SURVIVORS])
    words, predicates = uint32_at(directory[ENTRIES]), int32_at(directory[PREDICATES])
    out = int32_at(scratch[FOUND])
    for i in range(kept):
        prefetch(predicates, U(words[U(survivors[i]) * U(ENTRY_WORDS) + U(2)]))
    for i in range(kept):
        w = U(survivors[i]) * U(ENTRY_WORDS)
        head = U(words[w + U(4)])
        first, count = U(words[w + U(2)]), head & U(255)
        holds = check_intervals(codes, U(0), predicates, first, count)
        if head & U(REST_FLAG << 8) != U(0):
            holds = holds and check_rest(
                codes_address, U(0), first + count * U(PREDICATE_WORDS), directory[PREDICATES],
                directory[SET_OFFSETS], directory[SET_LOW], directory[SET_HIGH],
            )  # fmt: skip
        out[U(found)] = np.int32(words[w + U(3)])
        found += np.int64(holds)
    return found


@njit(cache=True, nogil=True)
def gather_local_cells(directory, scratch, rank):
    """Lay the event's cells out by the columns of an access slot."""
    cells, local = uint64_at(scratch[CELLS]), uint64_at(scratch[LOCAL_CELLS])
    groups, group_first = int32_at(directory[GROUPS]), int64_at(directory[GROUP_FIRST])
    begin, end = U(group_first[rank]), U(group_first[rank + U(1)])
    for g in range(begin, end):
        local[g - begin] = cells[U(groups[g])]


@njit(cache=True, nogil=True)
def match_event(directory, scratch, codes_address, found):
    """Append the conjuncts that hold for an event; the new count, or -1 if there is no room."""
    row_bytes = (directory[SLOT_COUNT] + 7) // 8 * 8
    quantise_events(directory, codes_address, np.int64(1), scratch[CELLS], row_bytes)
    cells, survivors = uint8_at(scratch[CELLS]), uint32_at(scratch[SURVIVORS])
    codes, access_slots = int32_at(codes_address), int32_at(directory[ACCESS_SLOTS])
    list_first, list_slots = int64_at(directory[LIST_FIRST]), int32_at(directory[LIST_SLOTS])
    list_start = int64_at(directory[LIST_START])
    bounds, line = uint8_at(directory[BOUNDS]), U(directory[BOUNDS_LINE])
    one, lanes = U(1), U(VECTOR_BYTES)
    always, always_count = int32_at(directory[ALWAYS]), directory[ALWAYS_COUNT]
    if found + always_count > scratch[FOUND_ROOM]:
        return -1
    out = int32_at(scratch[FOUND])
    for i in range(U(always_count)):
        out[U(found)] = always[i]
        found += 1
    found = look_up_points(directory, codes_address, scratch[FOUND], found, scratch[FOUND_ROOM])
    if found < 0:
        return -1
    for a in range(U(directory[ACCESS_SLOTS_COUNT])):
        slot = U(access_slots[a])
        first = cells[slot]
        if first == np.uint8(ABSENT):
            continue
        gather_local_cells(directory, scratch, a)
        collected = U(0)
        for i in range(U(list_first[a]), U(list_first[a + one])):
            second = cells[U(list_slots[i])]
            if second == np.uint8(ABSENT):
                continue
            at, end = U(list_start[i]), U(list_start[i + one])
            while at < end and bounds[at] <= first:
                mask = entries_test(bounds, line, at, first, second)
                if end - at < lanes:
                    mask &= (one << (end - at)) - one
                while mask != U(0):
                    survivors[collected] = np.uint32(at + trailing_zeros(mask))
                    collected += one
                    mask &= mask - one
                at += lanes
                if collected >= U(SURVIVORS_MAX):
                    if found + np.int64(collected) > scratch[FOUND_ROOM]:
                        return -1
                    found = check_survivors(
                        directory, scratch, codes_address, codes[slot], collected, found
                    )
                    collected = U(0)
        if found + np.int64(collected) > scratch[FOUND_ROOM]:
            return -1
        found = check_survivors(directory, scratch, codes_address, codes[slot], collected, found)
    return found


@njit(cache=True, nogil=True)
def match_events(directory, scratch, codes_address, begin, events, offsets_address):
    """Match the events from ``begin`` on, filling the row offsets; returns the first not done."""
    offsets = int64_at(offsets_address)
    row_bytes = directory[SLOT_COUNT] * 4
    for e in range(begin, events):
        found = match_event(directory, scratch, codes_address + e * row_bytes, offsets[U(e)])
        if found < 0:
            return e
        offsets[U(e + 1)] = found
    return events
