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

from collections.abc import Mapping
from threading import local

import numpy as np

from peersub.matching.conjuncts import ConjunctTable
from peersub.matching.kernels import assembly, batches, events, expansion, layout
from peersub.matching.kernels.memory import address_of, read_only

ROWS_ONE_BY_ONE_MAX = 48
"""Batches of so few events are matched event by event."""
PAIRS_ROOM_MIN = 1 << 14
PAIRS_ROOM_MAX = 1 << 24
"""A block of events with more matches is split: what a thread keeps stays under 200 MB or so."""

_NONE = np.empty(0, np.uint8)
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
    "point_slots": layout.POINT_SLOTS,
    "point_base": layout.POINT_BASE,
    "point_start": layout.POINT_START,
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


class _EventScratch(_Scratch):
    """Scratch memory for matching event by event."""

    def __init__(self) -> None:
        super().__init__(events.SCRATCH_LENGTH)
        self.slot_count = -1
        self.found = np.empty(0, np.int32)

    def prepare(self, slot_count: int) -> None:
        """Make room for events of so many slots."""
        self.slot_count = slot_count
        self.reserve(events.CELLS, slot_count + layout.GROUP_SLOTS)
        self.reserve(events.LOCAL_CELLS, events.LOCAL_BYTES)
        self.reserve(events.SURVIVORS, events.SURVIVORS_BYTES)
        self._hold(self.reserve(events.FOUND, 4 * PAIRS_ROOM_MIN))

    def enlarge(self) -> None:
        """Make twice the room for what is found."""
        self._hold(self.reserve(events.FOUND, 8 * len(self.found)))

    def _hold(self, room: np.ndarray) -> None:
        self.found = room.view(np.int32)
        self.directory[events.FOUND_ROOM] = len(self.found)


class _ThreadScratch(local):
    """The scratch memory of a thread."""

    def __init__(self) -> None:
        self.batches = _Scratch(batches.SCRATCH_LENGTH)
        self.events = _EventScratch()
        self.block_events = batches.BLOCK_EVENTS
        self.state = np.zeros(batches.STATE_LENGTH, np.int64)
        self.offsets = np.zeros(2, np.int64)
        self.offsets_address = address_of(self.offsets)
        self._marks = np.zeros(0, np.int64)
        self._next_stamp = 1

    def marks(self, entries: int, events_count: int) -> tuple[np.ndarray, int]:
        """A mark per entry, and the first of so many stamps that none of them bears."""
        if len(self._marks) < entries:
            self._marks = np.zeros(entries, np.int64)
        stamp = self._next_stamp
        self._next_stamp += events_count
        return self._marks, stamp


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
        self._directory[layout.POINT_SLOTS_COUNT] = len(self._arrays["point_slots"])
        self._directory[layout.BOUNDS_LINE] = len(self._arrays["bounds"]) // 4
        self._directory[layout.ALWAYS_COUNT] = len(self._arrays["always"])
        self._groups_most = int(np.diff(self._arrays["group_first"]).max(initial=1))

    @classmethod
    def build(
        cls, table: ConjunctTable, sample: np.ndarray | None, tags: np.ndarray | None = None
    ) -> CompiledIndex:
        """Index the conjuncts of a table.

        ``sample`` (int32[rows, slots]) holds typical events, from which it is estimated how many
        events satisfy a predicate; without it, the bounds of the predicates themselves serve.
        ``tags`` (int32[conjuncts]) are reported in place of the conjuncts' numbers, if given.
        """
        arrays = assembly.assemble(table, sample)
        if tags is not None:
            numbers = arrays["entries"][layout.CONJUNCT_WORD :: layout.ENTRY_WORDS]
            numbers[:] = tags[numbers]
            arrays["always"] = tags[arrays["always"]].astype(np.int32)
        return cls(arrays)

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
        found = self.match_within(codes, None)
        assert found is not None
        return found

    def match_within(
        self, codes: np.ndarray, pairs_max: int | None
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """What ``match`` gives; None as soon as several events have more than so many pairs."""
        assert codes.dtype == np.int32
        assert codes.flags.c_contiguous
        assert codes.shape == (len(codes), self._slot_count)
        offsets = np.zeros(len(codes) + 1, np.int64)
        if len(codes) <= ROWS_ONE_BY_ONE_MAX:
            few = self._match_events(codes, len(codes), offsets, address_of(offsets))
            too_many = pairs_max is not None and len(few) > pairs_max and len(codes) > 1
            return None if too_many else (offsets, few)
        scratch, found, begin = _thread_scratch, [], 0
        while begin < len(codes):
            left = len(codes) - begin
            end = begin + -(-left // -(-left // scratch.block_events))
            start = offsets[begin]
            part = self._match_block(codes[begin:end], offsets[begin : end + 1])
            offsets[begin : end + 1] += start
            if part is None:
                scratch.block_events = (end - begin) // 2
                continue
            if len(part) < PAIRS_ROOM_MAX // 4:
                scratch.block_events = min(2 * scratch.block_events, batches.BLOCK_EVENTS)
            found.append(part)
            begin = end
            if pairs_max is not None and offsets[end] > pairs_max and len(codes) > 1:
                return None
        return offsets, found[0] if len(found) == 1 else np.concatenate(found)

    def match_one(self, codes: np.ndarray) -> np.ndarray:
        """The numbers of the conjuncts that hold for one event, int32[slots]."""
        assert codes.dtype == np.int32
        assert codes.shape == (self._slot_count,)
        assert codes.flags.c_contiguous
        scratch = _thread_scratch
        return self._match_events(codes, 1, scratch.offsets, scratch.offsets_address)

    def _match_events(
        self, codes: np.ndarray, count: int, offsets: np.ndarray, offsets_address: int
    ) -> np.ndarray:
        """Event by event: fill the offsets of a few events and return their conjuncts."""
        scratch = _thread_scratch.events
        if scratch.slot_count < self._slot_count:
            scratch.prepare(self._slot_count)
        address, done = address_of(codes), 0
        while True:
            done = events.match_events(
                self._directory, scratch.directory, address, done, count, offsets_address
            )
            if done == count:
                return scratch.found[: offsets[count]].copy()
            scratch.enlarge()

    def _match_block(self, codes: np.ndarray, offsets: np.ndarray) -> np.ndarray | None:
        """Entry by entry: write the offsets of a block of events and return their conjuncts.

        None if there are so many that the block is better split.
        """
        scratch, state = _thread_scratch.batches, _thread_scratch.state
        slots = -(-self._slot_count // layout.GROUP_SLOTS) * layout.GROUP_SLOTS
        scratch.reserve(batches.CELLS, slots * len(codes))
        scratch.reserve(batches.ORDER, 2 * (len(codes) + batches.ORDER_PADDING))
        scratch.reserve(batches.STARTS, batches.STARTS_BYTES)
        scratch.reserve(batches.COLUMNS, self._groups_most * batches.GROUP_BYTES)
        scratch.reserve(batches.DOUBT_EVENT, 2 * batches.DOUBTS_MAX)
        scratch.reserve(batches.DOUBT_ENTRY, 4 * batches.DOUBTS_MAX)
        room = max(len(scratch.reserve(batches.PAIR_CONJUNCT, 0)) // 4, PAIRS_ROOM_MIN)
        state[:] = batches.STATE_BEFORE
        address = address_of(codes)
        while True:
            scratch.reserve(batches.PAIR_CONJUNCT, 4 * room)
            scratch.reserve(batches.PAIR_EVENT, 2 * room)
            scratch.directory[batches.PAIR_ROOM] = room
            if batches.match_block(self._directory, scratch.directory, state, address, len(codes)):
                break
            if room > PAIRS_ROOM_MAX and len(codes) > 1:
                offsets[:] = 0
                return None
            room = 2 * room + batches.BLOCK_EVENTS
        found = int(state[batches.PAIRS_FOUND])
        always = self._arrays["always"]
        batches.count_pairs(scratch.directory, found, len(always), offsets)
        out = np.empty(offsets[-1], np.int32)
        batches.regroup_pairs(scratch.directory, found, always, offsets, out)
        return out


def row_of_each(row_offsets: np.ndarray, first: int) -> np.ndarray:
    """int64[pairs]: the event of each pair, by the offsets that ``match`` gives.

    >>> row_of_each(np.array([0, 2, 2, 3]), 10).tolist()
    [10, 10, 12]
    """
    rows = np.empty(row_offsets[-1], np.int64)
    expansion.write_row_of_each(read_only(row_offsets), first, rows)
    return rows


def expanded_count(
    tags: np.ndarray, row_count: int, conjunct_entry: np.ndarray, entry_offsets: np.ndarray
) -> int:
    """How many rows :func:`expand` would give, at most."""
    return int(
        expansion.room_for(
            read_only(tags), row_count, read_only(conjunct_entry), read_only(entry_offsets)
        )
    )


def expand(
    row_offsets: np.ndarray,
    tags: np.ndarray,
    row_count: int,
    conjunct_entry: np.ndarray,
    multi: np.ndarray,
    entry_offsets: np.ndarray,
    entry_rows: np.ndarray,
    alive: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """From the tags found to the living subscription rows that they stand for.

    Args:
        row_offsets: int64[events + 1], and
        tags: int32[...], as :meth:`CompiledIndex.match` gives them: a row, or ``row_count`` plus
            the number of a conjunct, or a negative number for nothing.
        row_count: how many rows there are.
        conjunct_entry: int32[conjuncts], the entry that a conjunct belongs to.
        multi: uint8[conjuncts], 1 where that entry has several; it still counts once per event.
        entry_offsets: int64[entries + 1], and
        entry_rows: int32[...], the subscription rows of every entry.
        alive: uint8[rows], 0 for rows to leave out; None if there are none.

    Returns:
        int64[events + 1] and int32[...]: the rows of every event.
    """
    found, entry_of, several, starts, rows, living = map(
        read_only,
        (tags, conjunct_entry, multi, entry_offsets, entry_rows, _NONE if alive is None else alive),
    )
    offsets = np.zeros(len(row_offsets), np.int64)
    # One more: a row that turns out to be dead is written before it is passed over.
    out = np.empty(expansion.room_for(found, row_count, entry_of, starts) + 1, np.int32)
    seen, stamp = _thread_scratch.marks(len(starts) - 1, len(offsets))
    expansion.expand_tags(
        read_only(row_offsets), found, row_count, entry_of, several, starts, rows, living, seen,
        stamp, offsets, out,
    )  # fmt: skip
    return offsets, out[: offsets[-1]]
