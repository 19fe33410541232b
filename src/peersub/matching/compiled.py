"""The compiled matching index over conjuncts in code space."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import numpy as np

from peersub.matching.conjuncts import ConjunctTable
from peersub.matching.kernels import batches, construction, expansion, layout, quantisers
from peersub.matching.kernels.layout import ENTRY_WORDS, GROUP_SLOTS, PREDICATE_WORDS
from peersub.matching.kernels.vector import LINE_BYTES

PARTS_MAX = 64
ENTRIES_PER_CONJUNCT_MAX = 3
BOUNDS_SAMPLED_MAX = 1 << 16

_NAMES = (
    "used_slots", "cell_first", "cell_shift", "cell_table", "cell_upper",
    "access_slots", "access_first", "group_first", "groups",
    "entries", "predicates", "set_offsets", "set_low", "set_high", "always",
)  # fmt: skip


_PLACES = {
    layout.USED_SLOTS: "used_slots",
    layout.CELL_FIRST: "cell_first",
    layout.CELL_SHIFT: "cell_shift",
    layout.CELL_TABLE: "cell_table",
    layout.CELL_UPPER: "cell_upper",
    layout.ACCESS_SLOTS: "access_slots",
    layout.ACCESS_FIRST: "access_first",
    layout.GROUP_FIRST: "group_first",
    layout.GROUPS: "groups",
    layout.ENTRIES: "entries",
    layout.PREDICATES: "predicates",
    layout.SET_OFFSETS: "set_offsets",
    layout.SET_LOW: "set_low",
    layout.SET_HIGH: "set_high",
}
_NOTHING = np.empty(0, np.int32)


def _frozen(array: np.ndarray) -> np.ndarray:
    """A read-only plain view: the one kind of array that every kernel is compiled for."""
    view = np.ascontiguousarray(array).view(np.ndarray)[...]
    view.flags.writeable = False
    return view


def _build_arrays(table: ConjunctTable, sample: np.ndarray | None) -> dict[str, np.ndarray]:
    code_counts, offsets, slots = map(_frozen, (table.code_counts, table.offsets, table.slots))
    low, high, value_set = map(_frozen, (table.low, table.high, table.value_set))
    sets = tuple(map(_frozen, (table.set_offsets, table.set_low, table.set_high)))
    slot_count = len(code_counts)
    if sample is None or len(sample) == 0:
        rows = 0
        step = max(1, len(slots) // BOUNDS_SAMPLED_MAX)
        value_offsets, values = quantisers.gather_bounds(slots, low, high, step, code_counts)
    else:
        rows = len(sample)
        value_offsets, values = quantisers.gather_columns(_frozen(sample), code_counts)
    quantiser = quantisers.build_quantisers(code_counts, value_offsets, values)
    parts_max = PARTS_MAX
    hull, exact = construction.estimate_shares(
        code_counts, slots, low, high, value_set, *sets, value_offsets, values, rows, parts_max
    )
    while True:
        access, second, parts = construction.choose_access(
            offsets, value_set, sets[0], hull, exact, parts_max
        )
        if int(parts.sum()) <= ENTRIES_PER_CONJUNCT_MAX * len(parts) + 1024 or parts_max == 1:
            break
        parts_max //= 2
    entry_conjunct, entry_part, key = construction.spread_entries(
        access, second, parts, parts_max, slots, low, value_set, sets[0], sets[1], code_counts,
        *quantiser,
    )  # fmt: skip
    order = np.argsort(key, kind="stable")
    key = key[order]
    entry_slots = key >> 40
    access_slots, access_first = np.unique(entry_slots, return_index=True)
    access_rank = np.full(slot_count, -1, np.int32)
    access_rank[access_slots] = np.arange(len(access_slots))
    chosen = construction.choose_groups(
        offsets, slots, hull, exact, access, access_rank, len(access_slots), value_offsets, rows,
        slot_count,
    )  # fmt: skip
    words = np.zeros(len(order) * ENTRY_WORDS, np.uint32)
    predicates = np.empty((len(slots) + 1) * PREDICATE_WORDS, np.int32)
    used = construction.write_entries(
        order, entry_conjunct, entry_part, access, offsets, slots, low, high, value_set, *sets,
        code_counts, hull, access_rank, chosen, *quantiser, words, words.view(np.uint8), predicates,
    )  # fmt: skip
    group_order = [np.argsort(row)[(row < 0).sum() :] for row in chosen]
    group_counts = np.array([len(g) for g in group_order], np.int64)
    return {
        "used_slots": np.unique(slots).astype(np.int32),
        "cell_first": quantiser[0],
        "cell_shift": quantiser[1],
        "cell_table": quantiser[2],
        "cell_upper": quantiser[3],
        "access_slots": access_slots.astype(np.int32),
        "access_first": np.append(access_first, len(order)).astype(np.int64),
        "group_first": np.concatenate([[0], np.cumsum(group_counts)]).astype(np.int64),
        "groups": np.concatenate([*group_order, []]).astype(np.int32),
        "entries": words,
        "predicates": predicates[:used].copy(),
        "set_offsets": sets[0],
        "set_low": sets[1],
        "set_high": sets[2],
        "always": np.flatnonzero(access == construction.ALWAYS).astype(np.int32),
    }


class _Scratch(threading.local):
    """Memory that a thread uses again for every block of events."""

    def __init__(self) -> None:
        self.directory = np.zeros(batches.SCRATCH_LENGTH, np.int64)
        self.state = np.zeros(batches.STATE_LENGTH, np.int64)
        self.arrays: dict[int, np.ndarray] = {}

    def reserve(self, place: int, bytes_min: int, keep: bool = False) -> None:
        """Make room for at least so many bytes at a place of the directory."""
        array = self.arrays.get(place)
        if array is None or array.nbytes < bytes_min:
            larger = np.empty(bytes_min, np.uint8)
            if keep and array is not None:
                larger[: array.nbytes] = array
            self.arrays[place] = larger
            self.directory[place] = larger.ctypes.data

    def reserve_pairs(self, pairs: int) -> None:
        """Make room for so many pairs, keeping those found."""
        self.reserve(batches.PAIR_EVENT, 2 * pairs + 64, keep=True)
        self.reserve(batches.PAIR_CONJUNCT, 4 * pairs + 64, keep=True)
        self.directory[batches.PAIR_ROOM] = pairs


_scratch = _Scratch()


class CompiledIndex:
    """An immutable index over a :class:`ConjunctTable`."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._arrays = {name: _frozen(arrays[name]) for name in _NAMES}
        directory = np.zeros(layout.DIRECTORY_LENGTH, np.int64)
        for place, name in _PLACES.items():
            directory[place] = self._arrays[name].ctypes.data
        directory[layout.SLOT_COUNT] = len(self._arrays["cell_shift"])
        directory[layout.USED_SLOTS_COUNT] = len(self._arrays["used_slots"])
        directory[layout.ACCESS_SLOTS_COUNT] = len(self._arrays["access_slots"])
        self._directory = directory
        self._slot_count = len(self._arrays["cell_shift"])
        self._always = self._arrays["always"]
        self._groups_most = int(np.diff(self._arrays["group_first"]).max(initial=1))

    @classmethod
    def build(cls, table: ConjunctTable, sample: np.ndarray | None) -> CompiledIndex:
        """Index the conjuncts of a table; ``sample`` holds typical events, for selectivity."""
        return cls(_build_arrays(table, sample))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> CompiledIndex:
        """The index whose arrays these are; the inverse of :meth:`arrays`."""
        return cls(arrays)

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything the index holds, to be saved and opened memory-mapped."""
        return dict(self._arrays)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays together."""
        return sum(array.nbytes for array in self._arrays.values())

    def match(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Row offsets and conjunct numbers: what holds for each event of the batch."""
        assert codes.dtype == np.int32 and codes.flags.c_contiguous
        assert codes.shape[1] == self._slot_count
        events = len(codes)
        blocks = -(-events // batches.BLOCK_EVENTS)
        offsets = np.zeros(events + 1, np.int64)
        parts = []
        for block in range(blocks):
            begin, end = events * block // blocks, events * (block + 1) // blocks
            rows = offsets[begin : end + 1]
            start = int(rows[0])
            parts.append(self._match_block(codes[begin:end], rows))
            rows += start
        return offsets, parts[0] if blocks == 1 else np.concatenate([*parts, _NOTHING])

    def _match_block(self, codes: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        scratch = _scratch
        row_bytes = -(-self._slot_count // GROUP_SLOTS) * GROUP_SLOTS
        scratch.reserve(batches.CELLS, row_bytes * batches.BLOCK_EVENTS)
        scratch.reserve(batches.ORDER, 2 * (batches.BLOCK_EVENTS + 2 * LINE_BYTES))
        scratch.reserve(batches.STARTS, 4 * 258)
        scratch.reserve(batches.COLUMNS, self._groups_most * GROUP_SLOTS * LINE_BYTES)
        scratch.reserve_pairs(max(int(scratch.directory[batches.PAIR_ROOM]), 1 << 16))
        state = scratch.state
        state[:] = 0, -1, 0
        address = codes.ctypes.data
        while not batches.match_block(
            self._directory, scratch.directory, state, address, len(codes)
        ):
            scratch.reserve_pairs(2 * int(scratch.directory[batches.PAIR_ROOM]))
        found = state[batches.PAIRS_FOUND]
        batches.count_pairs(scratch.directory, found, len(self._always), offsets)
        out = np.empty(offsets[-1], np.int32)
        batches.regroup_pairs(scratch.directory, found, self._always, offsets, out)
        return out

    def match_one(self, codes: np.ndarray) -> np.ndarray:
        """The numbers of the conjuncts that hold for one event."""
        return self.match(codes.reshape(1, -1))[1]


def expand(
    row_offsets: np.ndarray,
    conjuncts: np.ndarray,
    conjunct_entry: np.ndarray,
    multi: np.ndarray,
    entry_offsets: np.ndarray,
    entry_rows: np.ndarray,
    alive: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Conjuncts to the subscription rows that share their entry: each entry once per event."""
    living = np.empty(0, np.uint8) if alive is None else alive
    arrays = (row_offsets, conjuncts, conjunct_entry, multi, entry_offsets, entry_rows, living)
    return expansion.expand_rows(*map(_frozen, arrays))  # type: ignore[no-any-return]
