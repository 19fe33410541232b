# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
"""Which boxes in code space contain a box: groups by what they demand, then bounds.

See ``plain_boxes`` for the arrays. A box has a *key*: the sum of a hash for each of its predicates,
of the slot alone, or of slot and code where one code is all that it allows. What contains a box
has, for each of its own predicates, the same slot there: so the keys of all possible containers are
sums over some of the box's predicates, and a table leads from a key to the rows that have it. Keys
may collide; each row that is looked at is compared predicate by predicate.
"""

from __future__ import annotations

import numpy as np
from numba import njit

U = np.uint64
NO_GROUP = -1


@njit(cache=True, nogil=True)
def _hash(slot, code):
    """A hash of a slot and a code; -1 stands for no code (after Steele's SplitMix64)."""
    word = (U(slot) << U(32)) + U(code + 1) + U(0x9E3779B97F4A7C15)
    word = (word ^ (word >> U(30))) * U(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> U(27))) * U(0x94D049BB133111EB)
    return word ^ (word >> U(31))


@njit(cache=True, nogil=True)
def keys_of(starts, slots, low, high, keys):
    """Write the key of each box."""
    for row in range(len(keys)):
        key = U(0)
        for at in range(starts[row], starts[row + 1]):
            key += _hash(slots[at], low[at] if low[at] == high[at] else -1)
        keys[row] = key


@njit(cache=True, nogil=True)
def enter(keys, table_keys, table_groups):
    """Enter distinct keys, of which each is a group; the table's size is a power of two."""
    mask = U(len(table_keys) - 1)
    for group in range(len(keys)):
        at = keys[group] & mask
        while table_groups[at] != NO_GROUP:
            at = (at + U(1)) & mask
        table_keys[at] = keys[group]
        table_groups[at] = group


@njit(cache=True, nogil=True)
def _group_of(key, table_keys, table_groups):
    mask = U(len(table_keys) - 1)
    at = key & mask
    while table_groups[at] != NO_GROUP:
        if table_keys[at] == key:
            return table_groups[at]
        at = (at + U(1)) & mask
    return NO_GROUP


@njit(cache=True, nogil=True)
def _set_contains(general, at, low, high, set_offsets, set_low, set_high, value_set):
    """Whether the intervals of one predicate contain those of another."""
    place = set_offsets[value_set[general]] if value_set[general] >= 0 else 0
    place_end = set_offsets[value_set[general] + 1] if value_set[general] >= 0 else 0
    first = set_offsets[value_set[at]] if value_set[at] >= 0 else 0
    end = set_offsets[value_set[at] + 1] if value_set[at] >= 0 else 1
    for each in range(first, end):
        least = set_low[each] if value_set[at] >= 0 else low[at]
        most = set_high[each] if value_set[at] >= 0 else high[at]
        while place < place_end and set_high[place] < most:
            place += 1
        if place == place_end or set_low[place] > least:
            return False
    return True


@njit(cache=True, nogil=True)
def _contains(
    general, specific, starts, slots, low, high, value_set, set_offsets, set_low, set_high
):
    """Whether one box contains another; predicates are in the order of their slots."""
    at, end = starts[specific], starts[specific + 1]
    for own in range(starts[general], starts[general + 1]):
        while at < end and slots[at] < slots[own]:
            at += 1
        if at == end or slots[at] != slots[own]:
            return False
        if low[own] > low[at] or high[own] < high[at]:
            return False
        if value_set[own] >= 0 and not _set_contains(
            own, at, low, high, set_offsets, set_low, set_high, value_set
        ):
            return False
        at += 1
    return True


@njit(cache=True, nogil=True)
def _insert(row, found, count):
    """Insert a row into the first ones, in order; how many they are then."""
    if count == len(found):
        if count == 0 or row >= found[count - 1]:
            return count
        count -= 1
    at = count
    while at > 0 and found[at - 1] > row:
        found[at] = found[at - 1]
        at -= 1
    found[at] = row
    return count + 1


@njit(cache=True, nogil=True)
def first_containers(
    asked, least, starts, slots, low, high, value_set, set_offsets, set_low, set_high,
    table_keys, table_groups, group_starts, group_rows, found, counts,
):  # fmt: skip
    """Write for each box that is asked about the first rows, from the least on, that contain it.

    ``found[i]`` takes as many as it has room for, in order, and ``counts[i]`` says how many.
    """
    longest = 0
    for row in asked:
        longest = max(longest, starts[row + 1] - starts[row])
    choice = np.zeros(longest + 1, np.int64)
    choices = np.zeros(longest + 1, np.int64)
    for number in range(len(asked)):
        row = asked[number]
        begin = starts[row]
        size = starts[row + 1] - begin
        for place in range(size):
            # Left out, by its slot, or by slot and code.
            choices[place] = 3 if low[begin + place] == high[begin + place] else 2
            choice[place] = 0
        count = 0
        while True:
            key = U(0)
            for place in range(size):
                if choice[place] == 1:
                    key += _hash(slots[begin + place], -1)
                elif choice[place] == 2:
                    key += _hash(slots[begin + place], low[begin + place])
            group = _group_of(key, table_keys, table_groups)
            if group != NO_GROUP:
                first, end = group_starts[group], group_starts[group + 1]
                # Rows of a group are in order.
                left, right = first, end
                while left < right:
                    middle = (left + right) // 2
                    if group_rows[middle] < least[number]:
                        left = middle + 1
                    else:
                        right = middle
                new = 0
                for at in range(left, end):
                    other = group_rows[at]
                    is_full = count == found.shape[1]
                    if new == found.shape[1] or (is_full and other >= found[number, count - 1]):
                        break
                    if other != row and _contains(
                        other, row, starts, slots, low, high, value_set,
                        set_offsets, set_low, set_high,
                    ):  # fmt: skip
                        count = _insert(other, found[number], count)
                        new += 1
            place = 0
            while place < size:
                choice[place] += 1
                if choice[place] < choices[place]:
                    break
                choice[place] = 0
                place += 1
            if place == size:
                break
        counts[number] = count
