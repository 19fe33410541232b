# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
"""Build: from a table of conjuncts to the sorted entries of the index (see ``layout``)."""

from __future__ import annotations

import numpy as np
from numba import njit

from peersub.matching.kernels.layout import (
    COUNT_MAX,
    DOUBT_FLAG,
    ENTRY_WORDS,
    FAR_FLAG,
    GROUP_SLOTS,
    GROUPS_MAX,
    HIGH_DOUBT_FLAG,
    LAST_FLAG,
    LOW_DOUBT_FLAG,
    NEAR_INTERVALS_MAX,
    PREDICATE_WORDS,
    REST_FLAG,
    SET_FLAG,
    TESTS_MAX,
)
from peersub.matching.kernels.quantisers import PRIOR_WEIGHT, cell_of

ALWAYS = -1
NEVER = -2
CELL_BITS = 8
SECOND_BITS = 24
ACCESS_SHIFT = CELL_BITS + SECOND_BITS
POINT_KEY = 1 << 62
PART_COST = 0.01
"""What another entry of a conjunct costs, as a share of events that pass the access test."""
TEST_GAIN_NS = 3.0
"""What one event that a column test rejects saves."""
POINT_SHARE_MAX = 1 / 2048
"""An access predicate that fewer events satisfy is looked up rather than scanned."""
POINT_CODES_PER_ENTRY_MAX = 8
"""Bounds the table of a point slot by the number of its entries."""
GROUP_COST_NS = 1.2
"""What an event costs in every group of columns of an access slot it has."""


@njit(cache=True, nogil=True)
def _count_between(values, start, stop, low, high):
    """How many of the sorted ``values[start:stop]`` lie in ``low..high``."""
    segment = values[start:stop]
    return np.searchsorted(segment, high, "right") - np.searchsorted(segment, low, "left")


@njit(cache=True, nogil=True)
def estimate_shares(
    code_counts, slots, low, high, value_set, set_offsets, set_low, set_high,
    value_offsets, values, rows, parts_max,
):  # fmt: skip
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
        seen = _count_between(values, start, stop, np.int64(bottom), np.int64(top))
        hull[p] = (seen + spread * (top - bottom + 1)) * weight
        exact[p] = hull[p]
        if value_set[p] >= 0:
            first, last = set_offsets[value_set[p]], set_offsets[value_set[p] + 1]
            if first == last:
                hull[p] = exact[p] = -1.0
            elif last - first <= parts_max:
                total = 0.0
                for i in range(first, last):
                    seen = _count_between(
                        values, start, stop, np.int64(set_low[i]), np.int64(set_high[i])
                    )
                    total += seen + spread * (set_high[i] - set_low[i] + 1)
                exact[p] = total * weight
    return hull, exact


@njit(cache=True, nogil=True)
def choose_access(offsets, value_set, set_offsets, hull, exact, parts_max):
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
def choose_points(
    access, parts, parts_max, slots, low, high, value_set, set_offsets, set_low, set_high, exact,
    code_counts,
):  # fmt: skip
    """Whether a conjunct is looked up by the codes of its access predicate."""
    point = np.zeros(access.shape[0], np.bool_)
    entries = np.zeros(code_counts.shape[0], np.int64)
    for c in range(access.shape[0]):
        p = access[c]
        if p < 0 or exact[p] >= POINT_SHARE_MAX:
            continue
        row = np.int64(value_set[p])
        single = row < 0 and low[p] == high[p]
        if row >= 0 and set_offsets[row + 1] - set_offsets[row] <= parts_max:
            single = True
            for i in range(set_offsets[row], set_offsets[row + 1]):
                single &= set_low[i] == set_high[i]
        if single:
            point[c] = True
            entries[slots[p]] += parts[c]
    for c in range(access.shape[0]):
        if point[c]:
            s = slots[access[c]]
            point[c] = code_counts[s] <= POINT_CODES_PER_ENTRY_MAX * entries[s] + 256
    return point


@njit(cache=True, nogil=True)
def spread_entries(
    access, second, parts, parts_max, point, slots, low, value_set, set_offsets, set_low,
    first, shift, table, upper,
):  # fmt: skip
    """Per entry: its conjunct, its part of the access set (-1: the hull), and its sort key.

    The key is, from the top: point, access slot, second slot and cell or, of a point, code.
    """
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
            lowest = np.int64(max(low[p] if whole else set_low[set_offsets[row] + part], 0))
            entry_conjunct[n] = c
            entry_part[n] = -1 if whole else part
            key[n] = np.int64(s) << ACCESS_SHIFT
            if point[c]:
                key[n] |= POINT_KEY | lowest
            else:
                cell = np.int64(cell_of(lowest, s, first, shift, table, upper))
                key[n] |= (following << CELL_BITS) | cell
            n += 1
    return entry_conjunct, entry_part, key


@njit(cache=True, nogil=True)
def choose_groups(
    offsets, slots, hull, exact, access, point, access_rank, ranks, value_offsets, rows,
):  # fmt: skip
    """Per access slot, the groups whose columns save more than they cost: a rank table.

    The result is int16[ranks, groups]: the group's rank among those of the access slot, or -1.
    """
    slot_count = access_rank.shape[0]
    groups = (slot_count + GROUP_SLOTS - 1) // GROUP_SLOTS
    gain = np.zeros((ranks, groups), np.float32)
    for c in range(access.shape[0]):
        if access[c] < 0 or point[c]:
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
def _best_tests(c, offsets, slots, hull, access, chosen, a, best):
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
def _cells(bottom, top, s, first, shift, table, upper):
    """Lowest and highest cell of an interval, and whether its ends divide them."""
    lowest = np.int64(cell_of(bottom, s, first, shift, table, upper))
    highest = np.int64(cell_of(top, s, first, shift, table, upper))
    begins = 0 if lowest == 0 else upper[s * 256 + lowest - 1] + 1
    return lowest, highest, begins != bottom, upper[s * 256 + highest] != top


@njit(cache=True, nogil=True)
def write_entries(
    order, entry_conjunct, entry_part, access, second, point, offsets, slots, low, high, value_set,
    set_offsets, set_low, set_high, code_counts, hull, access_rank, chosen,
    first, shift, table, upper, words, entry_bytes, inner, predicates, bounds, far_rows,
):  # fmt: skip
    """Fill the entries in sorted order and the predicate words; returns how many words."""
    best = np.zeros(TESTS_MAX, np.int64)
    position = np.full(access.shape[0], -1, np.int64)
    written = np.zeros(access.shape[0], np.uint8)
    rest = np.zeros(access.shape[0], np.bool_)
    line = bounds.shape[0] // 4
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
        tests = 0
        if not point[c]:
            tests = _best_tests(c, offsets, slots, hull, p, chosen, a, best)
        if position[c] < 0:
            start = used
            position[c] = start
            used, intervals = _write_intervals(
                c, p, tests, best, offsets, slots, low, high, value_set, code_counts,
                first, shift, table, upper, predicates, used,
            )  # fmt: skip
            written[c] = min(intervals, COUNT_MAX)
            last = used - PREDICATE_WORDS
            for q in range(offsets[c], offsets[c + 1]):
                if value_set[q] >= 0 and (q != p or part < 0):
                    last = used
                    used = _write_set(
                        slots[q], value_set[q], set_offsets, set_low, set_high, far_rows,
                        predicates, used,
                    )  # fmt: skip
            predicates[last] |= LAST_FLAG
            rest[c] = used - start > PREDICATE_WORDS * written[c]
        w = i * ENTRY_WORDS
        words[w] = bottom
        words[w + 1] = top - bottom
        words[w + 2] = position[c]
        words[w + 3] = c
        b = w * 4
        lowest, highest, low_doubt, high_doubt = _cells(bottom, top, s, first, shift, table, upper)
        flags = (LOW_DOUBT_FLAG if low_doubt else 0) | (HIGH_DOUBT_FLAG if high_doubt else 0)
        entry_bytes[b + 16] = written[c]
        entry_bytes[b + 18] = lowest
        entry_bytes[b + 19] = highest
        bounds[i] = lowest
        bounds[line + i] = highest - lowest
        tested = _write_tests(
            b, 8 * i, a, tests, best, slots, low, high, value_set, code_counts, chosen,
            first, shift, table, upper, entry_bytes, inner,
        )  # fmt: skip
        if rest[c]:
            flags |= REST_FLAG
        if rest[c] or tested < offsets[c + 1] - offsets[c] - 1:
            flags |= DOUBT_FLAG
        entry_bytes[b + 17] = tests | flags
        bounds[3 * line + i] = 255
        if second[c] >= 0:
            p = second[c]
            s = slots[p]
            bottom, top = max(low[p], 0), min(high[p], code_counts[s] - 1)
            lowest, highest, _, _ = _cells(bottom, top, s, first, shift, table, upper)
            bounds[2 * line + i] = lowest
            bounds[3 * line + i] = highest - lowest
    return used


@njit(cache=True, nogil=True)
def _write_tests(
    b, inner_b, a, tests, best, slots, low, high, value_set, code_counts, chosen,
    first, shift, table, upper, entry_bytes, inner,
):  # fmt: skip
    """Write the column tests of an entry; returns how many have inner bounds."""
    tested = 0
    for t in range(TESTS_MAX):
        entry_bytes[b + 28 + t] = 255
        inner[inner_b + 4 + t] = 255
    for t in range(tests):
        p = best[t]
        s = slots[p]
        bottom, top = max(low[p], 0), min(high[p], code_counts[s] - 1)
        lowest, highest, low_doubt, high_doubt = _cells(bottom, top, s, first, shift, table, upper)
        column = chosen[a, s // GROUP_SLOTS] * GROUP_SLOTS + s % GROUP_SLOTS
        entry_bytes[b + 20 + t] = column
        entry_bytes[b + 24 + t] = lowest
        entry_bytes[b + 28 + t] = highest - lowest
        lowest += low_doubt
        highest -= high_doubt
        if lowest <= highest and value_set[p] < 0:
            tested += 1
            inner[inner_b + t] = lowest
            inner[inner_b + 4 + t] = highest - lowest
    return tested


@njit(cache=True, nogil=True)
def _write_intervals(
    c, access, tests, best, offsets, slots, low, high, value_set, code_counts,
    first, shift, table, upper, predicates, used,
):  # fmt: skip
    """Append the intervals of a conjunct that its access and column tests do not decide.

    Returns the words used in all and the number of intervals.
    """
    intervals = 0
    for p in range(offsets[c], offsets[c + 1]):
        s = slots[p]
        if p == access or value_set[p] >= 0:
            continue
        bottom, top = max(low[p], 0), min(high[p], code_counts[s] - 1)
        decided = False
        for t in range(tests):
            if best[t] == p:
                _, _, low_doubt, high_doubt = _cells(bottom, top, s, first, shift, table, upper)
                decided = not (low_doubt or high_doubt)
        if not decided:
            used = _write_interval(s, bottom, top, predicates, used)
            intervals += 1
    if intervals == 0:
        s = slots[access]
        bottom, top = max(low[access], 0), min(high[access], code_counts[s] - 1)
        used = _write_interval(s, bottom, top, predicates, used)
        intervals = 1
    return used, intervals


@njit(cache=True, nogil=True)
def _write_interval(slot, bottom, top, predicates, used):
    """Append an interval; returns the words used in all."""
    predicates[used] = slot
    predicates[used + 1] = bottom
    predicates[used + 2] = top - bottom
    return used + PREDICATE_WORDS


@njit(cache=True, nogil=True)
def _write_set(slot, row, set_offsets, set_low, set_high, far_rows, predicates, used):
    """Append a set, by its intervals or by its row among the far sets; the words used in all."""
    begin, end = set_offsets[row], set_offsets[row + 1]
    predicates[used] = slot | SET_FLAG
    if end - begin > NEAR_INTERVALS_MAX:
        predicates[used] |= FAR_FLAG
        predicates[used + 1] = far_rows[row]
        return used + 2
    predicates[used + 1] = end - begin
    used += 2
    for i in range(begin, end):
        predicates[used] = set_low[i]
        predicates[used + 1] = set_high[i] - set_low[i]
        used += 2
    return used
