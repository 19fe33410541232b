"""The compiled matching index: many conjuncts in code space against events in code space.

Built once from a :class:`ConjunctTable`, never changed; its arrays can be saved and opened
memory-mapped. Large batches are matched entry by entry against blocks of events, small ones event
by event against blocks of entries; both read the same arrays (``kernels.layout``). The loops run
without the interpreter's lock, on scratch memory of the calling thread: callers may split a batch
over threads.

Invariants: a conjunct is reported once per event; the order within an event is deterministic for
a given index and batch size, and otherwise not specified.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

import numpy as np

from peersub.matching.conjuncts import ConjunctTable
from peersub.matching.kernels import assembly, batches, events, expansion, layout
from peersub.matching.kernels.memory import address_of, read_only

ROWS_ONE_BY_ONE_MAX = 24
"""Batches of so few events are matched event by event."""
PAIRS_ROOM_MIN = 1 << 14

_PLACES = {
    "used_slots": layout.USED_SLOTS,
    "cell_first": layout.CELL_FIRST,
    "cell_shift": layout.CELL_SHIFT,
    "cell_table": layout.CELL_TABLE,
    "cell_upper": layout.CELL_UPPER,
    "access_slots": layout.ACCESS_SLOTS,
    "access_first": layout.ACCESS_FIRST,
    "group_first": layout.GROUP_FIRST,
    "groups": layout.GROUPS,
    "list_first": layout.LIST_FIRST,
    "list_start": layout.LIST_START,
    "list_slots": layout.LIST_SLOTS,
    "entries": layout.ENTRIES,
    "inner_tests": layout.INNER_TESTS,
    "predicates": layout.PREDICATES,
    "bounds": layout.BOUNDS,
    "set_offsets": layout.SET_OFFSETS,
    "set_low": layout.SET_LOW,
    "set_high": layout.SET_HIGH,
    "always": layout.ALWAYS,
}
"""The arrays of an index, and their places in its directory."""


class _Scratch:
    """Memory named by a directory of addresses, used again from call to call."""

    def __init__(self, places: int) -> None:
        self.directory = np.zeros(places, np.int64)
        self._arrays: dict[int, np.ndarray] = {}

    def reserve(self, place: int, bytes_min: int) -> np.ndarray:
        """At least so many bytes at a place, with what was there."""
        array = self._arrays.get(place)
        if array is None or array.nbytes < bytes_min:
            larger = np.empty(bytes_min, np.uint8)
            if array is not None:
                larger[: array.nbytes] = array
            self._arrays[place] = array = larger
            self.directory[place] = address_of(larger)
        return array


class _ThreadScratch(threading.local):
    """The scratch memory of a thread."""

    def __init__(self) -> None:
        self.batches = _Scratch(batches.SCRATCH_LENGTH)
        self.events = _Scratch(events.SCRATCH_LENGTH)
        self.state = np.zeros(batches.STATE_LENGTH, np.int64)
        self.offsets = np.zeros(2, np.int64)


_thread_scratch = _ThreadScratch()


class CompiledIndex:
    """An immutable index over the conjuncts of a table."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._arrays = {name: read_only(arrays[name]) for name in _PLACES}
        self._directory = np.zeros(layout.DIRECTORY_LENGTH, np.int64)
        for name, place in _PLACES.items():
            self._directory[place] = address_of(self._arrays[name])
        self._slot_count = len(self._arrays["cell_shift"])
        self._directory[layout.SLOT_COUNT] = self._slot_count
        self._directory[layout.USED_SLOTS_COUNT] = len(self._arrays["used_slots"])
        self._directory[layout.ACCESS_SLOTS_COUNT] = len(self._arrays["access_slots"])
        self._directory[layout.BOUNDS_LINE] = len(self._arrays["bounds"]) // 4
        self._directory[layout.ALWAYS_COUNT] = len(self._arrays["always"])
        self._groups_most = int(np.diff(self._arrays["group_first"]).max(initial=1))

    @classmethod
    def build(cls, table: ConjunctTable, sample: np.ndarray | None) -> CompiledIndex:
        """Index the conjuncts of a table.

        ``sample`` (int32[rows, slots]) holds typical events, from which it is estimated how many
        events satisfy a predicate; without it, the bounds of the predicates themselves serve.
        """
        return cls(assembly.assemble(table, sample))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> CompiledIndex:
        """The index whose arrays these are: ``from_arrays(index.arrays())`` equals ``index``."""
        return cls(arrays)

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything the index holds, read-only, by name."""
        return dict(self._arrays)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays together."""
        return sum(array.nbytes for array in self._arrays.values())

    def match(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The conjuncts that hold for each event of a batch: (row offsets, conjunct numbers).

        ``codes`` is int32[events, slots], contiguous; event ``e`` matches the conjuncts at
        ``offsets[e]:offsets[e + 1]``.
        """
        assert codes.dtype == np.int32 and codes.flags.c_contiguous
        assert codes.ndim == 2 and codes.shape[1] == self._slot_count
        offsets = np.zeros(len(codes) + 1, np.int64)
        if len(codes) <= ROWS_ONE_BY_ONE_MAX:
            return offsets, self._match_events(codes, offsets)
        blocks = -(-len(codes) // batches.BLOCK_EVENTS)
        found = []
        for block in range(blocks):
            begin, end = len(codes) * block // blocks, len(codes) * (block + 1) // blocks
            start = offsets[begin]
            found.append(self._match_block(codes[begin:end], offsets[begin : end + 1]))
            offsets[begin : end + 1] += start
        return offsets, found[0] if blocks == 1 else np.concatenate(found)

    def match_one(self, codes: np.ndarray) -> np.ndarray:
        """The numbers of the conjuncts that hold for one event, int32[slots]."""
        assert codes.dtype == np.int32 and codes.shape == (self._slot_count,)
        offsets = _thread_scratch.offsets
        offsets[0] = 0
        return self._match_events(codes.reshape(1, -1), offsets)

    def _match_events(self, codes: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Event by event: fill the offsets of a few events and return their conjuncts."""
        scratch = _thread_scratch.events
        scratch.reserve(events.CELLS, self._slot_count + layout.GROUP_SLOTS)
        scratch.reserve(events.SURVIVORS, 4 * (events.SURVIVORS_MAX + layout.GROUP_SLOTS * 8))
        found = scratch.reserve(events.FOUND, 4 * PAIRS_ROOM_MIN)
        address, offsets_address, done = address_of(codes), address_of(offsets), 0
        while True:
            scratch.directory[events.FOUND_ROOM] = len(found) // 4
            done = events.match_events(
                self._directory, scratch.directory, address, done, len(codes), offsets_address
            )
            if done == len(codes):
                break
            found = scratch.reserve(events.FOUND, 2 * len(found))
        return found[: 4 * int(offsets[len(codes)])].view(np.int32).copy()

    def _match_block(self, codes: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Entry by entry: write the offsets of a block of events and return their conjuncts."""
        scratch, state = _thread_scratch.batches, _thread_scratch.state
        slots = -(-self._slot_count // layout.GROUP_SLOTS) * layout.GROUP_SLOTS
        scratch.reserve(batches.CELLS, slots * len(codes))
        scratch.reserve(batches.ORDER, 2 * (len(codes) + batches.ORDER_PADDING))
        scratch.reserve(batches.STARTS, batches.STARTS_BYTES)
        scratch.reserve(batches.COLUMNS, self._groups_most * batches.GROUP_BYTES)
        conjuncts = scratch.reserve(batches.PAIR_CONJUNCT, 4 * PAIRS_ROOM_MIN)
        state[:] = batches.STATE_BEFORE
        address = address_of(codes)
        while True:
            scratch.reserve(batches.PAIR_EVENT, len(conjuncts) // 2)
            scratch.directory[batches.PAIR_ROOM] = len(conjuncts) // 4
            if batches.match_block(
                self._directory, scratch.directory, state, address, len(codes)
            ):
                break
            conjuncts = scratch.reserve(
                batches.PAIR_CONJUNCT, 2 * len(conjuncts) + 4 * batches.BLOCK_EVENTS
            )
        found = int(state[batches.PAIRS_FOUND])
        always = self._arrays["always"]
        batches.count_pairs(scratch.directory, found, len(always), offsets)
        out = np.empty(offsets[-1], np.int32)
        batches.regroup_pairs(scratch.directory, found, always, offsets, out)
        return out


def expand(
    row_offsets: np.ndarray,
    conjuncts: np.ndarray,
    conjunct_entry: np.ndarray,
    multi: np.ndarray,
    entry_offsets: np.ndarray,
    entry_rows: np.ndarray,
    alive: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """From the conjuncts found to the living subscription rows that share their entries.

    Args:
        row_offsets: int64[events + 1], and
        conjuncts: int32[...], as :meth:`CompiledIndex.match` gives them.
        conjunct_entry: int32[conjuncts], the entry that a conjunct belongs to.
        multi: uint8[conjuncts], 1 where that entry has several; it still counts once per event.
        entry_offsets: int64[entries + 1], and
        entry_rows: int32[...], the subscription rows of every entry.
        alive: uint8[rows], 0 for rows to leave out; None if there are none.

    Returns:
        int64[events + 1] and int32[...]: the rows of every event.
    """
    living = np.empty(0, np.uint8) if alive is None else alive
    arrays = (row_offsets, conjuncts, conjunct_entry, multi, entry_offsets, entry_rows, living)
    return expansion.expand_rows(*map(read_only, arrays))  # type: ignore[no-any-return]
