# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
"""Match a batch: every entry against all events at once, a column of bytes at a time.

For each access slot the events that have it are ordered by its cell, so that those which satisfy
an access predicate are one range of that order. The cells of the other slots are laid out in the
same order, a column per slot: a predicate on a range is then a vector test of 64 neighbouring
bytes, and a conjunct the ``and`` of up to four of them. What is left is checked on the codes.

A block of events has its own scratch memory, named by a directory of addresses: ``CELLS`` (rows of
bytes), ``ORDER`` (events of the access slot by cell), ``STARTS`` (first position of every cell in
the order), ``COLUMNS`` (bytes in that order), and the pairs found. They come out by entry, and are
then regrouped by event.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from peersub.matching.kernels.layout import (
    ACCESS_FIRST,
    ACCESS_SLOTS,
    ACCESS_SLOTS_COUNT,
    CELL_FIRST,
    CELL_SHIFT,
    CELL_TABLE,
    CELL_UPPER,
    DOUBT_FLAG,
    ENTRIES,
    ENTRY_WORDS,
    FAR_FLAG,
    GROUP_FIRST,
    GROUP_SLOTS,
    GROUPS,
    HIGH_DOUBT_FLAG,
    INNER_TESTS,
    LAST_FLAG,
    LOW_DOUBT_FLAG,
    POINT_BASE,
    POINT_SLOTS,
    POINT_SLOTS_COUNT,
    POINT_START,
    PREDICATE_WORDS,
    PREDICATES,
    REST_FLAG,
    SET_FLAG,
    SET_HIGH,
    SET_LOW,
    SET_OFFSETS,
    SLOT_COUNT,
    SLOT_MASK,
    USED_SLOTS,
    USED_SLOTS_COUNT,
)
from peersub.matching.kernels.memory import (
    int32_at,
    int64_at,
    uint8_at,
    uint16_at,
    uint32_at,
    uint64_at,
)
from peersub.matching.kernels.quantisers import ABSENT
from peersub.matching.kernels.vector import (
    LINE_BYTES,
    VECTOR_BYTES,
    columns_test,
    opaque,
    trailing_zeros,
)

U = np.uint64
BLOCK_EVENTS = 4096
ORDER_PADDING = GROUP_SLOTS
STARTS_BYTES = 4 * 257
DOUBTS_MAX = 2 * BLOCK_EVENTS
GROUP_BYTES = GROUP_SLOTS * LINE_BYTES

# The directory of scratch memory.
CELLS = 0
ORDER = 1
STARTS = 2
COLUMNS = 3
PAIR_EVENT = 4
PAIR_CONJUNCT = 5
PAIR_ROOM = 6
DOUBT_EVENT = 7
DOUBT_ENTRY = 8
SCRATCH_LENGTH = 9

# How far a block has come.
ACCESS_REACHED = 0
ENTRY_REACHED = 1
PAIRS_FOUND = 2
POINTS_REACHED = 3
STATE_LENGTH = 4
STATE_BEFORE = (0, -1, 0, 0)


@njit(cache=True, nogil=True)
def quantise_events(directory, codes_address, events, cells_address, row_bytes):
    """Write the cells of the used slots of a block of events, row by row."""
    codes, cells = int32_at(codes_address), uint8_at(cells_address)
    used, used_count = int32_at(directory[USED_SLOTS]), U(directory[USED_SLOTS_COUNT])
    first, shift = int64_at(directory[CELL_FIRST]), int32_at(directory[CELL_SHIFT])
    table, upper = uint8_at(directory[CELL_TABLE]), int32_at(directory[CELL_UPPER])
    slots, stride = U(directory[SLOT_COUNT]), U(row_bytes)
    for e in range(U(events)):
        row, cell_row = e * slots, e * stride
        for u in range(used_count):
            s = U(used[u])
            code = codes[row + s]
            move = shift[s]
            start = U(first[s])
            # A code beyond the slot's own is a caller's error: stay inside the table.
            bucket = min(start + U(max(code, 0) >> move), U(first[s + U(1)]) - U(2))
            q = U(table[bucket])
            if move != 0:
                last = U(table[bucket + U(1)])
                base = s << U(8)
                while q < last and upper[base + q] < code:
                    q += U(1)
            cells[cell_row + s] = np.uint8(ABSENT) if code < 0 else np.uint8(q)


@njit(cache=True, nogil=True)
def order_events(scratch, events, row_bytes, slot):
    """Order the events of a block by their cell of a slot; returns how many have one."""
    cells, order, starts = (
        uint8_at(scratch[CELLS]),
        uint16_at(scratch[ORDER]),
        int32_at(scratch[STARTS]),
    )
    stride, column = U(row_bytes), U(slot)
    for q in range(U(257)):
        starts[q] = 0
    for e in range(U(events)):
        starts[U(cells[e * stride + column]) + U(1)] += 1
    for q in range(U(256)):
        starts[q + U(1)] += starts[q]
    # Filling moves every start to the next cell's: afterwards they are shifted back.
    for e in range(U(events)):
        q = U(cells[e * stride + column])
        order[U(starts[q])] = np.uint16(e)
        starts[q] += 1
    for i in range(U(256)):
        q = U(255) - i
        starts[q + U(1)] = starts[q]
    starts[U(0)] = 0
    present = starts[U(ABSENT)]
    for i in range(U(GROUP_SLOTS)):
        order[U(present) + i] = np.uint16(0)
    return present


@njit(cache=True, nogil=True, inline="always")
def _exchange(x, y, shift, mask):
    """Swap the bit fields of two rows that an 8x8 byte transposition exchanges."""
    moved = ((x >> shift) ^ y) & mask
    return x ^ (moved << shift), y ^ moved


@njit(cache=True, nogil=True)
def fill_columns(scratch, present, row_words, group, column):
    """Transpose a group's eight bytes of every ordered event into eight columns."""
    rows, order = uint64_at(scratch[CELLS]), uint16_at(scratch[ORDER])
    columns = uint64_at(scratch[COLUMNS])
    half, quarter, byte = U(0x00000000FFFFFFFF), U(0x0000FFFF0000FFFF), U(0x00FF00FF00FF00FF)
    stride, word, line = U(row_words), U(group), U(LINE_BYTES // 8)
    for i in range((U(present) + U(7)) >> U(3)):
        k = i << U(3)
        a = rows[U(order[k]) * stride + word]
        b = rows[U(order[k + U(1)]) * stride + word]
        c = rows[U(order[k + U(2)]) * stride + word]
        d = rows[U(order[k + U(3)]) * stride + word]
        e = rows[U(order[k + U(4)]) * stride + word]
        f = rows[U(order[k + U(5)]) * stride + word]
        g = rows[U(order[k + U(6)]) * stride + word]
        h = rows[U(order[k + U(7)]) * stride + word]
        a, e = _exchange(a, e, U(32), half)
        b, f = _exchange(b, f, U(32), half)
        c, g = _exchange(c, g, U(32), half)
        d, h = _exchange(d, h, U(32), half)
        a, c = _exchange(a, c, U(16), quarter)
        b, d = _exchange(b, d, U(16), quarter)
        e, g = _exchange(e, g, U(16), quarter)
        f, h = _exchange(f, h, U(16), quarter)
        a, b = _exchange(a, b, U(8), byte)
        c, d = _exchange(c, d, U(8), byte)
        e, f = _exchange(e, f, U(8), byte)
        g, h = _exchange(g, h, U(8), byte)
        at = U(column) * line + i
        columns[at] = a
        columns[at + line] = b
        columns[at + U(2) * line] = c
        columns[at + U(3) * line] = d
        columns[at + U(4) * line] = e
        columns[at + U(5) * line] = f
        columns[at + U(6) * line] = g
        columns[at + U(7) * line] = h


@njit(cache=True, nogil=True)
def in_set(code, row, offsets_address, low_address, high_address):
    """Whether a code lies in one of the sorted intervals of a set."""
    offsets, low, high = int64_at(offsets_address), int32_at(low_address), int32_at(high_address)
    first, end = U(offsets[U(row)]), U(offsets[U(row) + U(1)])
    last = end
    while first < last:
        middle = (first + last) >> U(1)
        if high[middle] < code:
            first = middle + U(1)
        else:
            last = middle
    return first < end and low[first] <= code


@njit(cache=True, nogil=True)
def check_rest(codes_address, row, p, predicates_address, sets_address, low_address, high_address):
    """Whether the predicates from word ``p`` up to the last hold for the codes of a row."""
    codes, predicates = int32_at(codes_address), int32_at(predicates_address)
    one = U(1)
    while True:
        flags = predicates[p]
        code = codes[U(row) + U(flags & SLOT_MASK)]
        if flags & FAR_FLAG:
            holds = in_set(code, predicates[p + one], sets_address, low_address, high_address)
            p += U(2)
        elif flags & SET_FLAG:
            holds = False
            end = p + U(2) + U(2) * U(predicates[p + one])
            p += U(2)
            while p < end:
                holds |= np.uint32(code - predicates[p]) <= np.uint32(predicates[p + one])
                p = opaque(p + U(2))
        else:
            holds = np.uint32(code - predicates[p + one]) <= np.uint32(predicates[p + U(2)])
            p += U(PREDICATE_WORDS)
        if not holds or flags & LAST_FLAG:
            return holds


@njit(cache=True, nogil=True, inline="always")
def check_intervals(codes, row, predicates, p, count):
    """Whether the first 1..4 intervals from word ``p`` on hold, without a branch."""
    one, two, step, last = U(1), U(2), U(PREDICATE_WORDS), count - U(1)
    a, b, c = p, p + step * min(one, last), p + step * min(two, last)
    d = p + step * last
    return (
        (
            np.uint32(codes[row + U(predicates[a] & SLOT_MASK)] - predicates[a + one])
            <= np.uint32(predicates[a + two])
        )
        & (
            np.uint32(codes[row + U(predicates[b] & SLOT_MASK)] - predicates[b + one])
            <= np.uint32(predicates[b + two])
        )
        & (
            np.uint32(codes[row + U(predicates[c] & SLOT_MASK)] - predicates[c + one])
            <= np.uint32(predicates[c + two])
        )
        & (
            np.uint32(codes[row + U(predicates[d] & SLOT_MASK)] - predicates[d + one])
            <= np.uint32(predicates[d + two])
        )
    )


@njit(cache=True, nogil=True)
def check_doubts(directory, scratch, codes_address, slot, doubts, found):
    """Check the doubtful pairs on the codes and append those that hold; the new count."""
    codes, slots, access_slot = int32_at(codes_address), U(directory[SLOT_COUNT]), U(slot)
    words, predicates = uint32_at(directory[ENTRIES]), int32_at(directory[PREDICATES])
    doubt_event, doubt_entry = uint16_at(scratch[DOUBT_EVENT]), uint32_at(scratch[DOUBT_ENTRY])
    pair_event, pair_conjunct = uint16_at(scratch[PAIR_EVENT]), int32_at(scratch[PAIR_CONJUNCT])
    one, found = U(1), U(found)
    for i in range(U(doubts)):
        w = U(doubt_entry[i]) * U(ENTRY_WORDS)
        event = doubt_event[i]
        row = U(event) * slots
        head = U(words[w + U(4)])
        first, count = U(words[w + U(2)]), head & U(255)
        holds = np.uint32(codes[row + access_slot] - np.int32(words[w])) <= words[w + one]
        holds &= check_intervals(codes, row, predicates, first, count)
        if head & U(REST_FLAG << 8) != U(0):
            holds = holds and check_rest(
                codes_address, row, first + count * U(PREDICATE_WORDS), directory[PREDICATES],
                directory[SET_OFFSETS], directory[SET_LOW], directory[SET_HIGH],
            )  # fmt: skip
        pair_event[found] = event
        pair_conjunct[found] = np.int32(words[w + U(3)])
        found += U(holds)
    return found


@njit(cache=True, nogil=True)
def look_up_points(directory, codes_address, out_address, found, room):
    """Append the conjuncts of an event's point slots; the new count, or -1 if there is no room."""
    codes, out = int32_at(codes_address), int32_at(out_address)
    words, predicates = uint32_at(directory[ENTRIES]), int32_at(directory[PREDICATES])
    point_slots, base = int32_at(directory[POINT_SLOTS]), int64_at(directory[POINT_BASE])
    start = uint32_at(directory[POINT_START])
    for i in range(U(directory[POINT_SLOTS_COUNT])):
        code = codes[U(point_slots[i])]
        if code < 0:
            continue
        at = U(base[i]) + U(code)
        if at + U(1) >= U(base[i + U(1)]):
            continue
        if found + np.int64(start[at + U(1)]) - np.int64(start[at]) > room:
            return np.int64(-1)
        for entry in range(U(start[at]), U(start[at + U(1)])):
            w = entry * U(ENTRY_WORDS)
            head = U(words[w + U(4)])
            first, count = U(words[w + U(2)]), head & U(255)
            holds = check_intervals(codes, U(0), predicates, first, count)
            if head & U(REST_FLAG << 8) != U(0):
                holds = holds and check_rest(
                    codes_address, U(0), first + count * U(PREDICATE_WORDS),
                    directory[PREDICATES], directory[SET_OFFSETS], directory[SET_LOW],
                    directory[SET_HIGH],
                )  # fmt: skip
            out[U(found)] = np.int32(words[w + U(3)])
            found += np.int64(holds)
    return found


@njit(cache=True, nogil=True)
def match_points(directory, scratch, state, codes_address, events):
    """Append the pairs of the point slots, event by event; returns whether it is done."""
    pair_event = uint16_at(scratch[PAIR_EVENT])
    row_bytes = directory[SLOT_COUNT] * 4
    if directory[POINT_SLOTS_COUNT] == 0:
        return True
    for e in range(state[POINTS_REACHED], events):
        found = look_up_points(
            directory, codes_address + e * row_bytes, scratch[PAIR_CONJUNCT], state[PAIRS_FOUND],
            scratch[PAIR_ROOM],
        )  # fmt: skip
        if found < 0:
            state[POINTS_REACHED] = e
            return False
        for i in range(U(state[PAIRS_FOUND]), U(found)):
            pair_event[i] = np.uint16(e)
        state[PAIRS_FOUND] = found
    state[POINTS_REACHED] = events
    return True


@njit(cache=True, nogil=True, inline="always")
def _lanes_between(at, begin, end):
    """The mask of the 64 positions from ``at`` on that lie in ``begin..end - 1``."""
    every, lanes = ~U(0), U(VECTOR_BYTES)
    skipped = min(max(begin, at) - at, lanes)
    left = min(max(end, at) - at, lanes)
    # A shift by 64 is undefined, so shift in two steps.
    from_begin = every << (skipped >> U(1)) << (skipped - (skipped >> U(1)))
    until_end = ~(every << (left >> U(1)) << (left - (left >> U(1))))
    return from_begin & until_end


@njit(cache=True, nogil=True)
def scan_entries(directory, scratch, codes_address, slot, entry_first, entry_last, found):
    """Append the pairs of one access slot's entries; returns (entry reached, pairs found).

    Stops before an entry whose pairs may not fit.
    """
    words, inner = uint32_at(directory[ENTRIES]), uint32_at(directory[INNER_TESTS])
    order, starts = uint16_at(scratch[ORDER]), int32_at(scratch[STARTS])
    columns = uint8_at(scratch[COLUMNS])
    pair_event, pair_conjunct = uint16_at(scratch[PAIR_EVENT]), int32_at(scratch[PAIR_CONJUNCT])
    doubt_event, doubt_entry = uint16_at(scratch[DOUBT_EVENT]), uint32_at(scratch[DOUBT_ENTRY])
    room, found, doubts, reached = U(scratch[PAIR_ROOM]), U(found), U(0), U(entry_last)
    one, byte, lanes = U(1), U(255), U(VECTOR_BYTES)
    for i in range(U(entry_first), U(entry_last)):
        w = i * U(ENTRY_WORDS)
        head = U(words[w + U(4)])
        lowest, highest = (head >> U(16)) & byte, head >> U(24)
        at, end = U(starts[lowest]), U(starts[highest + one])
        if at >= end:
            continue
        if found + doubts + (end - at) > room:
            reached = i
            break
        if doubts + (end - at) > U(DOUBTS_MAX):
            found = check_doubts(directory, scratch, codes_address, slot, doubts, found)
            doubts = U(0)
        places, lows, widths = U(words[w + U(5)]), U(words[w + U(6)]), U(words[w + U(7)])
        conjunct = np.int32(words[w + U(3)])
        inner_begin = U(starts[lowest + U(head & U(LOW_DOUBT_FLAG << 8) != U(0))])
        inner_end = U(starts[highest + U(head & U(HIGH_DOUBT_FLAG << 8) == U(0))])
        if head & U(DOUBT_FLAG << 8) != U(0):
            inner_end = U(0)
        while at < end:
            mask = columns_test(columns, at, places, lows, widths)
            if end - at < lanes:
                mask &= (one << (end - at)) - one
            if mask != U(0):
                certain = columns_test(
                    columns, at, places, U(inner[i * U(2)]), U(inner[i * U(2) + one])
                )
                certain &= _lanes_between(at, inner_begin, inner_end)
                while mask != U(0):
                    lane = trailing_zeros(mask)
                    mask &= mask - one
                    event = order[at + lane]
                    known = (certain >> lane) & one
                    pair_event[found] = event
                    pair_conjunct[found] = conjunct
                    found += known
                    doubt_event[doubts] = event
                    doubt_entry[doubts] = np.uint32(i)
                    doubts += one - known
            at += lanes
    found = check_doubts(directory, scratch, codes_address, slot, doubts, found)
    return np.int64(reached), np.int64(found)


@njit(cache=True, nogil=True)
def match_block(directory, scratch, state, codes_address, events):
    """Find the pairs of a block of events; returns whether it is done.

    If not, the pairs need more room: call again with the same state and a larger place that
    holds the pairs found so far.
    """
    access_slots, access_first = (
        int32_at(directory[ACCESS_SLOTS]),
        int64_at(directory[ACCESS_FIRST]),
    )
    group_first, groups = int64_at(directory[GROUP_FIRST]), int32_at(directory[GROUPS])
    row_words = (directory[SLOT_COUNT] + GROUP_SLOTS - 1) // GROUP_SLOTS
    row_bytes = row_words * GROUP_SLOTS
    if not match_points(directory, scratch, state, codes_address, events):
        return False
    resumed = state[ENTRY_REACHED] >= 0
    if not resumed:
        quantise_events(directory, codes_address, events, scratch[CELLS], row_bytes)
    for a in range(U(state[ACCESS_REACHED]), U(directory[ACCESS_SLOTS_COUNT])):
        begin, end = access_first[a], access_first[a + U(1)]
        if resumed:
            begin = state[ENTRY_REACHED]
            resumed = False
        else:
            present = order_events(scratch, events, row_bytes, access_slots[a])
            column = np.int64(0)
            for g in range(U(group_first[a]), U(group_first[a + U(1)])):
                fill_columns(scratch, present, row_words, groups[g], column)
                column += GROUP_SLOTS
        reached, found = scan_entries(
            directory, scratch, codes_address, access_slots[a], begin, end, state[PAIRS_FOUND]
        )
        state[PAIRS_FOUND] = found
        if reached < end:
            state[ACCESS_REACHED] = np.int64(a)
            state[ENTRY_REACHED] = reached
            return False
    return True


@njit(cache=True, nogil=True)
def count_pairs(scratch, found, always, offsets):
    """Write the row offsets of a block: every event's pairs and those that always hold."""
    pair_event = uint16_at(scratch[PAIR_EVENT])
    offsets[:] = 0
    for i in range(U(found)):
        offsets[U(pair_event[i]) + U(1)] += 1
    for e in range(U(offsets.shape[0] - 1)):
        offsets[e + U(1)] += offsets[e] + always


@njit(cache=True, nogil=True)
def regroup_pairs(scratch, found, always, offsets, out):
    """Write the conjuncts of a block by event."""
    pair_event, pair_conjunct = uint16_at(scratch[PAIR_EVENT]), int32_at(scratch[PAIR_CONJUNCT])
    position = offsets.copy()
    for e in range(U(offsets.shape[0] - 1)):
        for i in range(U(always.shape[0])):
            out[U(position[e]) + i] = always[i]
        position[e] += always.shape[0]
    for i in range(U(found)):
        e = U(pair_event[i])
        out[U(position[e])] = pair_conjunct[i]
        position[e] += 1
