# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
"""Which boxes in code space contain a box: groups by what they demand, then bounds.

See ``plain_boxes`` for the arrays. A box has a *key*: the sum of a hash for each of its predicates,
of the slot alone, or of slot and code where one code is all that it allows. What contains a box
has, for each of its own predicates, the same slot there: so the keys of all possible containers are
sums over some of the box's predicates, and a table leads from a key to the rows that have it. Keys
may collide; each box that is looked at is compared predicate by predicate.

The boxes of a group stand next to each other. In a *large* group they are cut into chunks in the
order of rows, and within a chunk sorted by the lower bounds of the predicate that tells them apart
best. Blocks of a chunk know the least and the greatest bound of each predicate in them, so that a
box passes over blocks that hold nothing around it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

U = np.uint64
NO_GROUP = -1
LARGE_MIN = 64
"""Boxes from which on a group is large."""
CHUNK = 4096
"""Boxes of a chunk: among them the first containers are found only by looking at all."""
BLOCKS = (256, 16)
"""Boxes of a block, and of the blocks in it."""
_OUTER, _INNER = BLOCKS


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
def _is_large(group, group_starts, starts, slots):
    """Whether a group is large, and its boxes have the same slots."""
    first, end = group_starts[group], group_starts[group + 1]
    if end - first < LARGE_MIN:
        return False
    size = starts[first + 1] - starts[first]
    for box in range(first, end):
        if starts[box + 1] - starts[box] != size:
            return False
        for place in range(size):
            if slots[starts[box] + place] != slots[starts[first] + place]:
                return False
    return size > 0


@njit(cache=True, nogil=True)
def _telling_place(first, end, starts, low, high):
    """The predicate whose intervals are narrowest beside the range of their lower bounds."""
    best, best_share = 0, np.inf
    for place in range(starts[first + 1] - starts[first]):
        width, least, most = 0.0, low[starts[first] + place], low[starts[first] + place]
        for box in range(first, end):
            at = starts[box] + place
            width += high[at] - low[at] + 1
            least, most = min(least, low[at]), max(most, low[at])
        share = width / (most - least + 1)
        if share < best_share:
            best, best_share = place, share
    return best


@njit(cache=True, nogil=True)
def sort_chunks(group_starts, starts, slots, low, high, order):
    """Write the order of boxes in which chunks of large groups are sorted; how many blocks' bounds
    there are of each size, and how many chunks.
    """
    outer, inner, chunks = 0, 0, 0
    for group in range(len(group_starts) - 1):
        if not _is_large(group, group_starts, starts, slots):
            continue
        first, end = group_starts[group], group_starts[group + 1]
        size = starts[first + 1] - starts[first]
        place = _telling_place(first, end, starts, low, high)
        for begin in range(first, end, CHUNK):
            stop = min(begin + CHUNK, end)
            bounds = np.empty(stop - begin, np.int64)
            for box in range(begin, stop):
                # With the place in the chunk, which keeps the order of rows among equals.
                bounds[box - begin] = np.int64(low[starts[box] + place]) * CHUNK + box - begin
            bounds.sort()
            for box in range(begin, stop):
                order[box] = begin + bounds[box - begin] % CHUNK
            chunks += 1
        outer += (end - first + _OUTER - 1) // _OUTER * size
        inner += (end - first + _INNER - 1) // _INNER * size
    return outer, inner, chunks


@njit(cache=True, nogil=True)
def bound_blocks(
    group_starts, group_rows, starts, slots, low, high,
    places, outer_low, outer_high, inner_low, inner_high, chunk_rows,
):  # fmt: skip
    """Write where each large group's blocks and chunks begin, their bounds, and the last rows."""
    outer, inner, chunk = 0, 0, 0
    for group in range(len(group_starts) - 1):
        places[group, 0] = NO_GROUP
        if not _is_large(group, group_starts, starts, slots):
            continue
        places[group, 0], places[group, 1], places[group, 2] = outer, inner, chunk
        first, end = group_starts[group], group_starts[group + 1]
        size = starts[first + 1] - starts[first]
        for box in range(first, end):
            for place in range(size):
                at = starts[box] + place
                large = outer + (box - first) // _OUTER * size + place
                small = inner + (box - first) // _INNER * size + place
                outer_low[large] = min(outer_low[large], low[at])
                outer_high[large] = max(outer_high[large], high[at])
                inner_low[small] = min(inner_low[small], low[at])
                inner_high[small] = max(inner_high[small], high[at])
            last = chunk + (box - first) // CHUNK
            chunk_rows[last] = max(chunk_rows[last], group_rows[box])
        outer += (end - first + _OUTER - 1) // _OUTER * size
        inner += (end - first + _INNER - 1) // _INNER * size
        chunk += (end - first + CHUNK - 1) // CHUNK


@njit(cache=True, nogil=True)
def _may_hold(block, size, block_low, block_high, box, specific, starts, slots, low, high):
    """Whether a block, of boxes with the slots of `box`, may hold one that contains another."""
    at = starts[specific]
    for place in range(size):
        slot = slots[starts[box] + place]
        while slots[at] < slot:
            at += 1
        if block_low[block + place] > low[at] or block_high[block + place] < high[at]:
            return False
    return True


@njit(cache=True, nogil=True)
def _has_slots(box, specific, starts, slots):
    """Whether a box has all slots of another."""
    at, end = starts[specific], starts[specific + 1]
    for own in range(starts[box], starts[box + 1]):
        while at < end and slots[at] < slots[own]:
            at += 1
        if at == end or slots[at] != slots[own]:
            return False
    return True


@njit(cache=True, nogil=True)
def first_containers(
    asked, least, starts, slots, low, high, value_set, set_offsets, set_low, set_high,
    table_keys, table_groups, group_starts, group_rows, boxes,
    places, outer_low, outer_high, inner_low, inner_high, chunk_rows, found, counts,
):  # fmt: skip
    """Write for each row that is asked about the first rows, from the least on, that contain it.

    ``found[i]`` takes as many as it has room for, in order, and ``counts[i]`` says how many.
    """
    longest = 0
    for row in asked:
        longest = max(longest, starts[boxes[row] + 1] - starts[boxes[row]])
    choice = np.zeros(longest + 1, np.int64)
    choices = np.zeros(longest + 1, np.int64)
    room = found.shape[1]
    for number in range(len(asked)):
        me = boxes[asked[number]]
        begin = starts[me]
        size = starts[me + 1] - begin
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
                is_large = places[group, 0] != NO_GROUP
                own = starts[first + 1] - starts[first]
                box = first
                if is_large and not _has_slots(first, me, starts, slots):
                    box = end
                while box < end:
                    if is_large:
                        before = box - first
                        chunk = places[group, 2] + before // CHUNK
                        if before % CHUNK == 0:
                            # All rows of a chunk come before those of the next one.
                            if chunk_rows[chunk] < least[number]:
                                box += CHUNK
                                continue
                            if (
                                count == room
                                and before > 0
                                and chunk_rows[chunk - 1] >= found[number, count - 1]
                            ):
                                break
                        if before % _OUTER == 0:
                            block = places[group, 0] + before // _OUTER * own
                            if not _may_hold(
                                block, own, outer_low, outer_high, first, me,
                                starts, slots, low, high,
                            ):  # fmt: skip
                                box += _OUTER
                                continue
                        if before % _INNER == 0:
                            block = places[group, 1] + before // _INNER * own
                            if not _may_hold(
                                block, own, inner_low, inner_high, first, me,
                                starts, slots, low, high,
                            ):  # fmt: skip
                                box += _INNER
                                continue
                    row = group_rows[box]
                    if (
                        row >= least[number]
                        and box != me
                        and (count < room or row < found[number, count - 1])
                        and _contains(
                            box, me, starts, slots, low, high, value_set,
                            set_offsets, set_low, set_high,
                        )
                    ):  # fmt: skip
                        count = _insert(row, found[number], count)
                    box += 1
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
