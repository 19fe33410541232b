"""Conjuncts that were built in parts, as one.

Each part has bounds of its own. The bounds of all parts on a slot are merged, and each part's codes
move to the places of its bounds among them. A code names an end of an interval, and where it goes
depends on which end: an odd code is a bound and goes where the bound goes; an even code as a lower
end is the gap after a bound, as an upper end the gap before one; the outermost codes stay
outermost. All of it is array arithmetic, without an object per predicate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from peersub.filters.boxes import Box
from peersub.filters.patterns import TextTest
from peersub.matching.bounds import Bounds, merged
from peersub.matching.conjunct_builder import NO_RESIDUAL, EncodedConjuncts, has_several
from peersub.matching.conjuncts import ConjunctTable
from peersub.matching.encoding import Encoder, Slot

__all__ = ["merge", "numbers_by_first_use"]


def merge(parts: Sequence[EncodedConjuncts], kept: Sequence[np.ndarray]) -> EncodedConjuncts:
    """The conjuncts of all parts over the bounds of all, of the entries that are kept.

    Args:
        parts: at least one.
        kept: for each part int32[entries]: the entry's new number, or -1 to leave it out. New
        numbers
            count up from 0 through all parts.
    """
    encoder, moves = _merged_encoders([part.encoder for part in parts])
    tests: dict[TextTest, int] = {}
    boxes: list[Box] = []
    moved = [
        _moved(part, entries, move, tests, boxes)
        for part, entries, move in zip(parts, kept, moves, strict=True)
    ]
    entry_count = 1 + max((int(entries.max(initial=-1)) for entries in kept), default=-1)
    entries = np.concatenate([part.entries for part in moved])
    set_offsets = _joined_offsets([part.set_offsets for part in moved])
    return EncodedConjuncts(
        encoder=encoder,
        table=ConjunctTable(
            code_counts=encoder.code_counts,
            offsets=_joined_offsets([part.offsets for part in moved]),
            slots=np.concatenate([part.slots for part in moved]),
            low=np.concatenate([part.low for part in moved]),
            high=np.concatenate([part.high for part in moved]),
            value_set=_joined_rows([part.value_set for part in moved]),
            set_offsets=set_offsets,
            set_low=np.concatenate([part.set_low for part in moved]),
            set_high=np.concatenate([part.set_high for part in moved]),
        ),
        entry_count=entry_count,
        conjunct_entry=entries,
        multi=has_several(entries, entry_count),
        conjunct_test_offsets=_joined_offsets([part.test_offsets for part in moved]),
        test_numbers=np.concatenate([part.test_numbers for part in moved]),
        test_truths=np.concatenate([part.test_truths for part in moved]),
        tests=tuple(tests),
        residual=np.concatenate([part.residual for part in moved]),
        residual_boxes=tuple(boxes),
    )


@dataclass(frozen=True, slots=True)
class _Moves:
    """Where the slots of a part and the codes of each went."""

    slots: np.ndarray
    """int32[slots of the part]"""
    starts: np.ndarray
    """int64[slots of the part]: code c of slot s is at starts[s] + c of the two below."""
    low: np.ndarray
    """int32[codes of all slots], as lower ends"""
    high: np.ndarray
    """int32[codes of all slots], as upper ends"""


@dataclass(frozen=True, slots=True)
class _MovedPart:
    """What is kept of a part, in the codes of all; rows of sets count within the part."""

    entries: np.ndarray
    offsets: np.ndarray
    slots: np.ndarray
    low: np.ndarray
    high: np.ndarray
    value_set: np.ndarray
    set_offsets: np.ndarray
    set_low: np.ndarray
    set_high: np.ndarray
    test_offsets: np.ndarray
    test_numbers: np.ndarray
    test_truths: np.ndarray
    residual: np.ndarray


def _merged_encoders(encoders: Sequence[Encoder]) -> tuple[Encoder, list[_Moves]]:
    members: dict[Slot, list[tuple[int, int]]] = {}
    for number, encoder in enumerate(encoders):
        for position, slot in enumerate(encoder.slots):
            members.setdefault(slot, []).append((number, position))
    bounds: list[Bounds] = []
    new_slots = [np.zeros(len(encoder.slots), np.int32) for encoder in encoders]
    codes: list[list[tuple[np.ndarray, np.ndarray]]] = [
        [_NO_CODES] * len(encoder.slots) for encoder in encoders
    ]
    for new_slot, group in enumerate(members.values()):
        together, places = merged([encoders[n].bounds[position] for n, position in group])
        bounds.append(together)
        for (number, position), place in zip(group, places, strict=True):
            new_slots[number][position] = new_slot
            codes[number][position] = _moved_codes(together, place)
    moves = []
    for slots, ends in zip(new_slots, codes, strict=True):
        starts = np.zeros(len(slots), np.int64)
        np.cumsum([len(low) for low, _ in ends[:-1]], out=starts[1:])
        low = np.concatenate([_NO_CODES[0], *(low for low, _ in ends)])
        high = np.concatenate([_NO_CODES[1], *(high for _, high in ends)])
        moves.append(_Moves(slots, starts, low, high))
    return Encoder(members, bounds), moves


_NO_CODES = (np.empty(0, np.int32), np.empty(0, np.int32))


def _moved_codes(together: Bounds, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The new codes of a slot's codes, as lower and as upper ends."""
    if not together.count:
        identity = np.arange(together.code_count, dtype=np.int32)
        return identity, identity
    low = np.zeros(2 * len(places) + 1, np.int32)
    high = np.full(2 * len(places) + 1, together.code_count - 1, np.int32)
    low[1::2] = high[1::2] = 2 * places + 1
    low[2::2] = 2 * places + 2
    high[:-1:2] = 2 * places
    return low, high


def _moved(
    part: EncodedConjuncts,
    entries: np.ndarray,
    moves: _Moves,
    tests: dict[TextTest, int],
    boxes: list[Box],
) -> _MovedPart:
    table = part.table
    new_entries = entries[part.conjunct_entry]
    conjuncts = np.flatnonzero(new_entries >= 0)
    offsets, predicates = _ranges(table.offsets, conjuncts)
    slots = table.slots[predicates]
    starts = moves.starts[slots]
    set_rows = table.value_set[predicates]
    has_set = np.flatnonzero(set_rows >= 0)
    set_offsets, intervals = _ranges(table.set_offsets, set_rows[has_set])
    interval_starts = np.repeat(starts[has_set], np.diff(set_offsets))
    value_set = np.full(len(predicates), -1, np.int32)
    value_set[has_set] = np.arange(len(has_set))
    test_offsets, marks = _ranges(part.conjunct_test_offsets, conjuncts)
    test_places = np.array([tests.setdefault(t, len(tests)) for t in part.tests], np.int32)
    residual = part.residual[conjuncts]
    residual = np.where(residual == NO_RESIDUAL, NO_RESIDUAL, residual + len(boxes))
    boxes += part.residual_boxes
    return _MovedPart(
        entries=new_entries[conjuncts],
        offsets=offsets,
        slots=moves.slots[slots],
        low=moves.low[starts + table.low[predicates]],
        high=moves.high[starts + table.high[predicates]],
        value_set=value_set,
        set_offsets=set_offsets,
        set_low=moves.low[interval_starts + table.set_low[intervals]],
        set_high=moves.high[interval_starts + table.set_high[intervals]],
        test_offsets=test_offsets,
        test_numbers=test_places[part.test_numbers[marks]],
        test_truths=part.test_truths[marks],
        residual=residual.astype(np.int32),
    )


def _ranges(offsets: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The chosen rows of compressed sparse rows: their new offsets, and where their items lie.

    >>> new_offsets, items = _ranges(np.array([0, 2, 3, 6]), np.array([0, 2]))
    >>> new_offsets.tolist(), items.tolist()
    ([0, 2, 5], [0, 1, 3, 4, 5])
    """
    lengths = offsets[rows + 1] - offsets[rows]
    new_offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(lengths, out=new_offsets[1:])
    shifts = np.repeat(offsets[rows] - new_offsets[:-1], lengths)
    return new_offsets, shifts + np.arange(new_offsets[-1])


def _joined_offsets(parts: Sequence[np.ndarray]) -> np.ndarray:
    lengths = np.concatenate([np.diff(offsets) for offsets in parts])
    joined = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=joined[1:])
    return joined


def _joined_rows(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Rows of sets, counted through all parts in the order in which they are used."""
    joined = np.concatenate(parts)
    used = joined >= 0
    joined[used] = np.arange(np.count_nonzero(used))
    return joined


def numbers_by_first_use(digests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A number for each digest of uint8[n, 16], equal ones alike, counted by first use; and where
    each number is used first.

    >>> a, b = bytes(16), bytes([1] * 16)
    >>> numbers, first = numbers_by_first_use(np.frombuffer(b + a + b, np.uint8).reshape(3, 16))
    >>> numbers.tolist(), first.tolist()
    ([0, 1, 0], [0, 1])
    """
    halves = np.ascontiguousarray(digests).view(np.uint64).reshape(-1, 2)
    # Stable: of equal digests the first one comes first.
    order = np.lexsort((halves[:, 1], halves[:, 0]))
    ordered = halves[order]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    first = order[is_new]
    by_use = np.argsort(first)
    rank = np.empty(len(first), np.int64)
    rank[by_use] = np.arange(len(first))
    numbers = np.empty(len(order), np.int64)
    numbers[order] = rank[np.cumsum(is_new) - 1]
    return numbers, first[by_use]
