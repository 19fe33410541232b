"""From a table of conjuncts to the arrays of the index (see ``layout``)."""

from __future__ import annotations

import numpy as np

from peersub.matching.conjuncts import ConjunctTable
from peersub.matching.kernels import construction, quantisers
from peersub.matching.kernels.layout import ENTRY_WORDS, PREDICATE_WORDS
from peersub.matching.kernels.memory import read_only
from peersub.matching.kernels.vector import VECTOR_BYTES

PARTS_MAX = 64
"""A set of more intervals is entered under its hull."""
ENTRIES_PER_CONJUNCT_MAX = 3
"""On average: what the sets that are entered by interval may add."""
BOUNDS_SAMPLED_MAX = 1 << 16
"""How many predicates stand in for a sample of events."""
SECOND_BITS = 24
CELL_BITS = 16


def assemble(table: ConjunctTable, sample: np.ndarray | None) -> dict[str, np.ndarray]:
    """The arrays of the index over a table; ``sample`` holds typical events."""
    code_counts, offsets, slots = map(read_only, (table.code_counts, table.offsets, table.slots))
    low, high, value_set = map(read_only, (table.low, table.high, table.value_set))
    sets = tuple(map(read_only, (table.set_offsets, table.set_low, table.set_high)))
    rows, value_offsets, values = _typical_values(table, sample)
    quantiser = quantisers.build_quantisers(code_counts, value_offsets, values)
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
    entry_conjunct, entry_part, key = construction.spread_entries(
        access, second, parts, parts_max, slots, low, value_set, sets[0], sets[1], *quantiser
    )
    order = np.argsort(key, kind="stable")
    arrays = _lists(key[order])
    access_slots = arrays["access_slots"]
    access_rank = np.full(len(code_counts), -1, np.int32)
    access_rank[access_slots] = np.arange(len(access_slots))
    chosen = construction.choose_groups(
        offsets, slots, hull, exact, access, access_rank, len(access_slots), value_offsets, rows
    )
    entries = np.zeros(len(order) * ENTRY_WORDS, np.uint32)
    predicates = np.empty((len(slots) + 1) * PREDICATE_WORDS, np.int32)
    bounds = np.zeros(4 * (len(order) + VECTOR_BYTES), np.uint8)
    used = construction.write_entries(
        order, entry_conjunct, entry_part, access, second, offsets, slots, low, high, value_set,
        *sets, code_counts, hull, access_rank, chosen, *quantiser,
        entries, entries.view(np.uint8), predicates, bounds,
    )  # fmt: skip
    return {
        **arrays,
        **_groups(chosen),
        **dict(zip(("cell_first", "cell_shift", "cell_table", "cell_upper"), quantiser, strict=True)),
        "used_slots": np.unique(slots).astype(np.int32),
        "entries": entries,
        "predicates": predicates[:used].copy(),
        "bounds": bounds,
        "set_offsets": sets[0],
        "set_low": sets[1],
        "set_high": sets[2],
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
    entry_list = key >> CELL_BITS
    list_start = np.flatnonzero(np.diff(entry_list, prepend=-1))
    list_access = entry_list[list_start] >> SECOND_BITS
    second = (entry_list[list_start] & ((1 << SECOND_BITS) - 1)) - 1
    access_slots, list_first = np.unique(list_access, return_index=True)
    return {
        "access_slots": access_slots.astype(np.int32),
        "access_first": np.append(list_start[list_first], len(key)).astype(np.int64),
        "list_first": np.append(list_first, len(list_start)).astype(np.int64),
        "list_start": np.append(list_start, len(key)).astype(np.int64),
        "list_slots": np.where(second < 0, list_access, second).astype(np.int32),
    }


def _groups(chosen: np.ndarray) -> dict[str, np.ndarray]:
    """The groups of every access slot, by rank."""
    rank, group = np.nonzero(chosen >= 0)
    order = np.lexsort((chosen[rank, group], rank))
    first = np.searchsorted(rank, np.arange(len(chosen) + 1))
    return {"group_first": first.astype(np.int64), "groups": group[order].astype(np.int32)}
