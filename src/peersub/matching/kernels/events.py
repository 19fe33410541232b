"""Match one event at a time: its cells against the bounds of 64 entries at once.

The lists of the access slots that the event has are scanned if it has the list's second slot too.
A list is sorted by the lowest access cell, so a scan ends where that exceeds the event's cell. The
entries that pass both tests are collected, and then checked with their memory asked for ahead.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from peersub.matching.kernels.batches import check_rest, quantise_events
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
    GROUPS,
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
    SLOT_MASK,
)
from peersub.matching.kernels.memory import int32_at, int64_at, uint8_at, uint32_at
from peersub.matching.kernels.quantisers import ABSENT
from peersub.matching.kernels.vector import VECTOR_BYTES, entries_test, prefetch, trailing_zeros

U = np.uint64
SURVIVORS_MAX = 4096
PREFETCH_AHEAD = 16

# The directory of scratch memory.
CELLS = 0
SURVIVORS = 1
FOUND = 2
FOUND_ROOM = 3
SCRATCH_LENGTH = 4


@njit(cache=True, nogil=True)
def check_survivors(directory, scratch, codes_address, rank, slot, survivors_count, found):  # type: ignore[no-untyped-def]
    """Append the conjuncts of the collected entries that hold; returns the new count."""
    codes, cells = int32_at(codes_address), uint8_at(scratch[CELLS])
    words, entry_bytes = uint32_at(directory[ENTRIES]), uint8_at(directory[ENTRIES])
    predicates = int32_at(directory[PREDICATES])
    groups = int32_at(directory[GROUPS])
    group_first = U(int64_at(directory[GROUP_FIRST])[U(rank)])
    survivors, out = uint32_at(scratch[SURVIVORS]), int32_at(scratch[FOUND])
    access_code = codes[U(slot)]
    one = U(1)
    for i in range(U(survivors_count)):
        if i + U(PREFETCH_AHEAD) < U(survivors_count):
            prefetch(words, U(survivors[i + U(PREFETCH_AHEAD)]) * U(ENTRY_WORDS))
        w = U(survivors[i]) * U(ENTRY_WORDS)
        b = w * U(4)
        head = U(words[w + U(4)])
        holds = np.uint32(access_code - np.int32(words[w])) <= words[w + one]
        for t in range((head >> U(8)) & U(7)):
            column = U(entry_bytes[b + U(20) + t])
            cell = cells[(U(groups[group_first + (column >> U(3))]) << U(3)) + (column & U(7))]
            holds &= np.uint8(cell - entry_bytes[b + U(24) + t]) <= entry_bytes[b + U(28) + t]
        if not holds:
            continue
        p = U(words[w + U(2)]) * U(PREDICATE_WORDS)
        for _ in range(head & U(255)):
            code = codes[U(predicates[p] & SLOT_MASK)]
            holds &= np.uint32(code - predicates[p + one]) <= np.uint32(predicates[p + U(2)])
            p += U(PREDICATE_WORDS)
        if head & U(REST_FLAG << 8) != U(0):
            holds = holds and check_rest(
                codes_address, 0, p, directory[PREDICATES],
                directory[SET_OFFSETS], directory[SET_LOW], directory[SET_HIGH],
            )  # fmt: skip
        out[U(found)] = np.int32(words[w + U(3)])
        found += holds
    return found


@njit(cache=True, nogil=True)
def match_event(directory, scratch, codes_address, found):  # type: ignore[no-untyped-def]
    """Append the conjuncts that hold for an event; the new count, or -1 if there is no room."""
    row_bytes = (directory[SLOT_COUNT] + 7) // 8 * 8
    quantise_events(directory, codes_address, 1, scratch[CELLS], row_bytes)
    cells, survivors = uint8_at(scratch[CELLS]), uint32_at(scratch[SURVIVORS])
    access_slots = int32_at(directory[ACCESS_SLOTS])
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
    for a in range(U(directory[ACCESS_SLOTS_COUNT])):
        first = cells[U(access_slots[a])]
        if first == np.uint8(ABSENT):
            continue
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
                        directory, scratch, codes_address, a, access_slots[a], collected, found
                    )
                    collected = U(0)
        if found + np.int64(collected) > scratch[FOUND_ROOM]:
            return -1
        found = check_survivors(
            directory, scratch, codes_address, a, access_slots[a], collected, found
        )
    return found


@njit(cache=True, nogil=True)
def match_events(directory, scratch, codes_address, begin, events, offsets_address):  # type: ignore[no-untyped-def]
    """Match the events from ``begin`` on, filling the row offsets; returns the first not done."""
    offsets = int64_at(offsets_address)
    row_bytes = directory[SLOT_COUNT] * 4
    for e in range(begin, events):
        found = match_event(
            directory, scratch, codes_address + e * row_bytes, offsets[U(e)]
        )
        if found < 0:
            return e
        offsets[U(e + 1)] = found
    return events
