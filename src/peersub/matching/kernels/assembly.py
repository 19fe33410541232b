"""From a table of conjuncts to the arrays of the index (see ``layout``)."""

from __future__ import annotations

import numpy as np

from peersub.matching.conjuncts import ConjunctTable
from peersub.matching.kernels import construction, quantisers
from peersub.matching.kernels.layout import ENTRY_WORDS, NEAR_INTERVALS_MAX, PREDICATE_WORDS
from peersub.matching.kernels.memory import read_only
from peersub.matching.kernels.vector import VECTOR_BYTES

PARTS_MAX = 64
"""A set of more intervals is entered under its hull."""
ENTRIES_PER_CONJUNCT_MAX = 3
"""On average: what the sets that are entered by interval may add."""
BOUNDS_SAMPLED_MAX = 1 << 16
"""How many predicates stand in for a sample of events."""


_Quantiser = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def assemble(table: ConjunctTable, sample: np.ndarray | None) -> dict[str, np.ndarray]:
    """The arrays of the index over a table; ``sample`` holds typical events."""
    code_counts, offsets, slots = map(read_only, (table.code_counts, table.offsets, table.slots))
    low, high, value_set = map(read_only, (table.low, table.high, table.value_set))
    sets = (read_only(table.set_offsets), read_only(table.set_low), read_only(table.set_high))
    of_sets = value_set >= 0
    assert (low[of_sets] >= 0).all()
    assert (high[of_sets] < code_counts[slots[of_sets]]).all()
    rows, value_offsets, values = _typical_values(table, sample)
    quantiser: _Quantiser = quantisers.build_quantisers(code_counts, value_offsets, values)
    hull, exact = construction.estimate_shares(
        code_counts, slots, low, high, value_set, *sets, value_offsets, values, rows, PARTS_MAX
    )
    parts_max = PARTS_MAX
    while True:
        access, second, parts = construction.choose_access(
            offsets, value_set, sets[0], hull, exact, parts_max
        )
        if int(parts.sum()) <= ENTRIES_PER_CONJUNCT_MAX * len(parts) + 1024 or parts_max == 1:
            break
        parts_max //= 2
    point = construction.choose_points(
        access, parts, parts_max, slots, low, high, value_set, *sets, exact, code_counts
    )
    entry_conjunct, entry_part, key = construction.spread_entries(
        access, second, parts, parts_max, point, slots, low, value_set, *sets[:2], *quantiser
    )
    order = np.argsort(key, kind="stable")
    key = key[order]
    scanned = int(np.searchsorted(key, construction.POINT_KEY))
    arrays = {**_lists(key[:scanned]), **_points(key[scanned:], scanned, code_counts)}
    access_slots = arrays["access_slots"]
    access_rank = np.full(len(code_counts), -1, np.int32)
    access_rank[access_slots] = np.arange(len(access_slots))
    chosen = construction.choose_groups(
        offsets, slots, hull, exact, access, point, access_rank, len(access_slots), value_offsets,
        rows,
    )  # fmt: skip
    entries = np.zeros(len(order) * ENTRY_WORDS, np.uint32)
    inner = np.zeros(len(order) * 2, np.uint32)
    far_sets, far_rows = _far_sets(*sets)
    predicates = np.empty(_predicate_words_max(value_set, parts, sets[0]), np.int32)
    bounds = np.zeros(4 * (len(order) + VECTOR_BYTES), np.uint8)
    used = construction.write_entries(
        order, entry_conjunct, entry_part, access, second, point, offsets, slots, low, high,
        value_set, *sets, code_counts, hull, access_rank, chosen, *quantiser,
        entries, entries.view(np.uint8), inner.view(np.uint8), predicates, bounds, far_rows,
    )  # fmt: skip
    return {
        **arrays,
        **_groups(chosen),
        "cell_first": quantiser[0],
        "cell_shift": quantiser[1],
        "cell_table": quantiser[2],
        "cell_upper": quantiser[3],
        "used_slots": np.unique(slots).astype(np.int32),
        "entries": entries,
        "inner_tests": inner,
        "predicates": predicates[:used].copy(),
        "bounds": bounds,
        **far_sets,
        "always": np.flatnonzero(access == construction.ALWAYS).astype(np.int32),
    }


def _typical_values(
    table: ConjunctTable, sample: np.ndarray | None
) -> tuple[int, np.ndarray, np.ndarray]:
    """Number of events (0: unknown), and per slot the sorted codes to expect."""
    code_counts = read_only(table.code_counts)
    if sample is not None and len(sample) > 0:
        return len(sample), *quantisers.gather_columns(read_only(sample), code_counts)
    slots, low, high = map(read_only, (table.slots, table.low, table.high))
    step = max(1, len(slots) // BOUNDS_SAMPLED_MAX)
    return 0, *quantisers.gather_bounds(slots, low, high, step, code_counts)


def _lists(key: np.ndarray) -> dict[str, np.ndarray]:
    """Where the access slots and lists of sorted entries begin."""
    entry_list = key >> construction.CELL_BITS
    list_start = np.flatnonzero(np.diff(entry_list, prepend=-1))
    list_access = entry_list[list_start] >> construction.SECOND_BITS
    second = (entry_list[list_start] & ((1 << construction.SECOND_BITS) - 1)) - 1
    access_slots, list_first = np.unique(list_access, return_index=True)
    return {
        "access_slots": access_slots.astype(np.int32),
        "access_first": np.append(list_start[list_first], len(key)).astype(np.int64),
        "list_first": np.append(list_first, len(list_start)).astype(np.int64),
        "list_start": np.append(list_start, len(key)).astype(np.int64),
        "list_slots": np.where(second < 0, list_access, second).astype(np.int32),
    }


def _points(key: np.ndarray, scanned: int, code_counts: np.ndarray) -> dict[str, np.ndarray]:
    """Where the entries of every code of the point slots begin; they follow the scanned ones."""
    slot = (key & ~construction.POINT_KEY) >> construction.ACCESS_SHIFT
    code = key & ((1 << construction.ACCESS_SHIFT) - 1)
    point_slots = np.unique(slot)
    starts = [np.empty(0, np.int64)]
    for s in point_slots:
        begin, end = np.searchsorted(slot, (s, s + 1))
        codes = np.arange(code_counts[s] + 1)
        starts.append(scanned + begin + np.searchsorted(code[begin:end], codes))
    return {
        "point_slots": point_slots.astype(np.int32),
        "point_base": np.cumsum([len(start) for start in starts], dtype=np.int64),
        "point_start": np.concatenate(starts).astype(np.uint32),
    }


def _groups(chosen: np.ndarray) -> dict[str, np.ndarray]:
    """The groups of every access slot, by rank."""
    rank, group = np.nonzero(chosen >= 0)
    order = np.lexsort((chosen[rank, group], rank))
    first = np.searchsorted(rank, np.arange(len(chosen) + 1))
    return {"group_first": first.astype(np.int64), "groups": group[order].astype(np.int32)}


def _far_sets(
    offsets: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The table of the sets that are too long to stand among the predicates, and their rows."""
    counts = np.diff(offsets)
    far = counts > NEAR_INTERVALS_MAX
    kept = np.repeat(far, counts)
    rows = (np.cumsum(far) - 1).astype(np.int32)
    table = {
        "set_offsets": np.concatenate([[0], np.cumsum(counts[far])]).astype(np.int64),
        "set_low": low[offsets[0] : offsets[-1]][kept],
        "set_high": high[offsets[0] : offsets[-1]][kept],
    }
    return table, rows


def _predicate_words_max(value_set: np.ndarray, parts: np.ndarray, set_offsets: np.ndarray) -> int:
    """No fewer words than the predicates of all conjuncts take."""
    near = np.minimum(np.diff(set_offsets), NEAR_INTERVALS_MAX)
    intervals = int(near[value_set[value_set >= 0]].sum())
    return PREDICATE_WORDS * (len(value_set) + len(parts)) + 2 * intervals
