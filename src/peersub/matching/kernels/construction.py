"""Build: from a table of conjuncts to the sorted entries of the index (see ``layout``)."""

from __future__ import annotations

import numpy as np
from numba import njit

from peersub.matching.kernels.layout import (
    COUNT_MAX,
    ENTRY_WORDS,
    GROUP_SLOTS,
    GROUPS_MAX,
    LAST_FLAG,
    PREDICATE_WORDS,
    REST_FLAG,
    SET_FLAG,
    TESTS_MAX,
)
from peersub.matching.kernels.quantisers import PRIOR_WEIGHT, cell_of

ALWAYS = -1
NEVER = -2
PART_COST = 0.01
"""What another entry of a conjunct costs, as a share of events that pass the access test."""
TEST_GAIN_NS = 3.0
"""What one event that a column test rejects saves."""
GROUP_COST_NS = 1.2
"""What an event costs in every group of columns of an access slot it has."""


@njit(cache=True, nogil=True, inline="always")
def _count_between(values, start, stop, low, high):  # type: ignore[no-untyped-def]
    """How many of the sorted ``values[start:stop]`` lie in ``low..high``."""
    segment = values[start:stop]
    return np.searchsorted(segment, high, "right") - np.searchsorted(segment, low, "left")


@njit(cache=True, nogil=True)
def estimate_shares(
    code_counts, slots, low, high, value_set, set_offsets, set_low, set_high,
    value_offsets, values, rows, parts_max,
):  # fmt: skip  # type: ignore[no-untyped-def]
    """Per predicate, the share of events that satisfy its hull, and the predicate itself.

    ``rows`` is the number of events the values were taken from, 0 if it is not known.
    Empty predicates have a negative share.
    """
    hull = np.empty(slots.shape[0], np.float32)
    exact = np.empty(slots.shape[0], np.float32)
    for p in range(slots.shape[0]):
        s = slots[p]
        start, stop = value_offsets[s], value_offsets[s + 1]
        weight = 1.0 / (stop - start + PRIOR_WEIGHT)
        if rows > 0:
            weight *= (stop - start + 1.0) / (rows + 1.0)
        spread = PRIOR_WEIGHT / code_counts[s]
        bottom, top = max(low[p], 0), min(high[p], code_counts[s] - 1)
        if bottom > top:
            hull[p] = exact[p] = -1.0
            continue
        seen = _count_between(values, start, stop, bottom, top)
        hull[p] = (seen + spread * (top - bottom + 1)) * weight
        exact[p] = hull[p]
        if value_set[p] >= 0:
            first, last = set_offsets[value_set[p]], set_offsets[value_set[p] + 1]
            if first == last:
                hull[p] = exact[p] = -1.0
            elif last - first <= parts_max:
                total = 0.0
                for i in range(first, last):
                    seen = _count_between(values, start, stop, set_low[i], set_high[i])
                    total += seen + spread * (set_high[i] - set_low[i] + 1)
                exact[p] = total * weight
    return hull, exact


@njit(cache=True, nogil=True)
def choose_access(offsets, value_set, set_offsets, hull, exact, parts_max):  # type: ignore[no-untyped-def]
    """Per conjunct: access predicate (or ALWAYS, NEVER), second predicate, number of entries."""
    conjuncts = offsets.shape[0] - 1
    access = np.full(conjuncts, ALWAYS, np.int64)
    second = np.full(conjuncts, ALWAYS, np.int64)
    parts = np.zeros(conjuncts, np.int32)
    for c in range(conjuncts):
        best = np.float64(np.inf)
        for p in range(offsets[c], offsets[c + 1]):
            count = 1
            score = np.float64(exact[p])
            if score < 0.0:
                access[c] = NEVER
                parts[c] = 0
                break
            if value_set[p] >= 0:
                count = set_offsets[value_set[p] + 1] - set_offsets[value_set[p]]
                if count > parts_max:
                    count = 1
                    score = np.float64(hull[p])
                score += PART_COST * (count - 1)
            if score < best:
                best = score
                access[c] = p
                parts[c] = count
        if access[c] < 0:
            continue
        best = np.float64(np.inf)
        for p in range(offsets[c], offsets[c + 1]):
            if p != access[c] and hull[p] < best:
                best = np.float64(hull[p])
                second[c] = p
    return access, second, parts


@njit(cache=True, nogil=True)
def spread_entries(
    access, second, parts, parts_max, slots, low, value_set, set_offsets, set_low,
    first, shift, table, upper,
):  # fmt: skip  # type: ignore[no-untyped-def]
    """Per entry: its conjunct, its part of the access set (-1: the hull), and its sort key."""
    entries = 0
    for c in range(access.shape[0]):
        entries += parts[c]
    entry_conjunct = np.empty(entries, np.int32)
    entry_part = np.empty(entries, np.int32)
    key = np.empty(entries, np.int64)
    n = 0
    for c in range(access.shape[0]):
        if access[c] < 0:
            continue
        p = access[c]
        s = slots[p]
        following = np.int64(0)
        if second[c] >= 0:
            following = np.int64(slots[second[c]]) + 1
        row = np.int64(value_set[p])
        whole = row < 0 or set_offsets[row + 1] - set_offsets[row] > parts_max
        for part in range(parts[c]):
            lowest = low[p] if whole else set_low[set_offsets[row] + part]
            cell = cell_of(max(lowest, 0), s, first, shift, table, upper)
            entry_conjunct[n] = c
            entry_part[n] = -1 if whole else part
            key[n] = (np.int64(s) << 40) | (following << 16) | np.int64(cell)
            n += 1
    return entry_conjunct, entry_part, key


@njit(cache=True, nogil=True)
def choose_groups(
    offsets, slots, hull, exact, access, access_rank, ranks, value_offsets, rows,
):  # fmt: skip  # type: ignore[no-untyped-def]
    """Per access slot, the groups whose columns save more than they cost: a rank table.

    The result is int16[ranks, groups]: the group's rank among those of the access slot, or -1.
    """
    slot_count = access_rank.shape[0]
    groups = (slot_count + GROUP_SLOTS - 1) // GROUP_SLOTS
    gain = np.zeros((ranks, groups), np.float32)
    for c in range(access.shape[0]):
        if access[c] < 0:
            continue
        a = access_rank[slots[access[c]]]
        share = exact[access[c]]
        for p in range(offsets[c], offsets[c + 1]):
            if p != access[c]:
                gain[a, slots[p] // GROUP_SLOTS] += share * (1.0 - hull[p]) * TEST_GAIN_NS
    chosen = np.full((ranks, groups), -1, np.int16)
    for s in range(slot_count):
        a = access_rank[s]
        if a < 0:
            continue
        presence = 1.0
        if rows > 0:
            presence = (value_offsets[s + 1] - value_offsets[s] + 1.0) / (rows + 1.0)
        order = np.argsort(-gain[a])
        for i in range(min(GROUPS_MAX, groups)):
            if gain[a, order[i]] > presence * GROUP_COST_NS:
                chosen[a, order[i]] = i
    return chosen


@njit(cache=True, nogil=True)
def _best_tests(c, offsets, slots, hull, access, chosen, a, best):  # type: ignore[no-untyped-def]
    """The up to four most selective predicates that have a column, in ``best``; their number."""
    n = 0
    for p in range(offsets[c], offsets[c + 1]):
        if p == access or chosen[a, slots[p] // GROUP_SLOTS] < 0:
            continue
        i = n
        while i > 0 and hull[best[i - 1]] > hull[p]:
            if i < TESTS_MAX:
                best[i] = best[i - 1]
            i -= 1
        if i < TESTS_MAX:
            best[i] = p
            n = min(n + 1, TESTS_MAX)
    return n


@njit(cache=True, nogil=True)
def write_entries(
    order, entry_conjunct, entry_part, access, second, offsets, slots, low, high, value_set,
    set_offsets, set_low, set_high, code_counts, hull, access_rank, chosen,
    first, shift, table, upper, words, entry_bytes, predicates, bounds,
):  # fmt: skip  # type: ignore[no-untyped-def]
    """Fill the entries in sorted order and the predicate words; returns how many words."""
    best = np.zeros(TESTS_MAX, np.int64)
    position = np.full(access.shape[0], -1, np.int64)
    written = np.zeros(access.shape[0], np.uint8)
    rest = np.zeros(access.shape[0], np.bool_)
    used = np.int64(0)
    for i in range(order.shape[0]):
        c = entry_conjunct[order[i]]
        p = access[c]
        s = slots[p]
        a = access_rank[s]
        bottom, top = max(low[p], 0), min(high[p], code_counts[s] - 1)
        part = entry_part[order[i]]
        if part >= 0:
            interval = set_offsets[value_set[p]] + part
            bottom, top = set_low[interval], set_high[interval]
        w = i * ENTRY_WORDS
        b = w * 4
        words[w] = bottom
        words[w + 1] = top - bottom
        words[w + 3] = c
        entry_bytes[b + 18] = cell_of(bottom, s, first, shift, table, upper)
        entry_bytes[b + 19] = cell_of(top, s, first, shift, table, upper)
        line = bounds.shape[0] // 4
        bounds[i] = entry_bytes[b + 18]
        bounds[line + i] = entry_bytes[b + 19] - entry_bytes[b + 18]
        bounds[3 * line + i] = 255
        if second[c] >= 0:
            q = second[c]
            r = slots[q]
            lowest = cell_of(max(low[q], 0), r, first, shift, table, upper)
            highest = cell_of(min(high[q], code_counts[r] - 1), r, first, shift, table, upper)
            bounds[2 * line + i] = lowest
            bounds[3 * line + i] = highest - lowest
        tests = _best_tests(c, offsets, slots, hull, p, chosen, a, best)
        entry_bytes[b + 17] = tests
        for t in range(TESTS_MAX):
            entry_bytes[b + 28 + t] = 255
        for t in range(tests):
            q = best[t]
            r = slots[q]
            column = chosen[a, r // GROUP_SLOTS] * GROUP_SLOTS + r % GROUP_SLOTS
            lowest = cell_of(max(low[q], 0), r, first, shift, table, upper)
            highest = cell_of(min(high[q], code_counts[r] - 1), r, first, shift, table, upper)
            entry_bytes[b + 20 + t] = column
            entry_bytes[b + 24 + t] = lowest
            entry_bytes[b + 28 + t] = highest - lowest
        if position[c] < 0:
            start = used
            position[c] = start // PREDICATE_WORDS
            used, intervals = _write_predicates(
                c, p, part < 0, tests, best, offsets, slots, low, high, value_set, code_counts,
                first, shift, table, upper, predicates, used,
            )  # fmt: skip
            written[c] = min(intervals, COUNT_MAX)
            rest[c] = (used - start) // PREDICATE_WORDS > written[c]
        words[w + 2] = position[c]
        entry_bytes[b + 16] = written[c]
        if rest[c]:
            entry_bytes[b + 17] |= REST_FLAG
    return used


@njit(cache=True, nogil=True)
def _write_predicates(
    c, access, access_is_hull, tests, best, offsets, slots, low, high, value_set, code_counts,
    first, shift, table, upper, predicates, used,
):  # fmt: skip  # type: ignore[no-untyped-def]
    """Append the predicates of a conjunct that its access and column tests do not decide.

    Intervals first, then sets; returns the words used in all and the number of intervals.
    """
    start = used
    for p in range(offsets[c], offsets[c + 1]):
        s = slots[p]
        if p == access or value_set[p] >= 0:
            continue
        bottom, top = max(low[p], 0), min(high[p], code_counts[s] - 1)
        decided = False
        for t in range(tests):
            if best[t] == p:
                decided = _whole_cells(bottom, top, s, first, shift, table, upper)
        if not decided:
            predicates[used] = s
            predicates[used + 1] = bottom
            predicates[used + 2] = top - bottom
            used += PREDICATE_WORDS
    intervals = (used - start) // PREDICATE_WORDS
    for p in range(offsets[c], offsets[c + 1]):
        if value_set[p] >= 0 and (p != access or access_is_hull):
            predicates[used] = slots[p] | SET_FLAG
            predicates[used + 1] = value_set[p]
            predicates[used + 2] = 0
            used += PREDICATE_WORDS
    if used > start:
        predicates[used - PREDICATE_WORDS] |= LAST_FLAG
    return used, intervals


@njit(cache=True, nogil=True)
def _whole_cells(bottom, top, s, first, shift, table, upper):  # type: ignore[no-untyped-def]
    """Whether an interval of codes begins and ends where cells do."""
    lowest = np.int64(cell_of(bottom, s, first, shift, table, upper))
    highest = np.int64(cell_of(top, s, first, shift, table, upper))
    begins = 0 if lowest == 0 else upper[s * 256 + lowest - 1] + 1
    return begins == bottom and upper[s * 256 + highest] == top
