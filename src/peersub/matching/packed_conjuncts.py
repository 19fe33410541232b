"""A segment's conjuncts in little memory, whole enough to be merged with others later.

The index holds what matching needs, in its own layout. The conjuncts themselves are wanted again
only when segments are merged; until then their arrays are as small as their values allow, and those
that say nothing (no text tests, one conjunct and one row for each entry) are empty.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from peersub.filters.boxes import Box
from peersub.filters.patterns import Operator, TextTest
from peersub.filters.wire_form import boxes_to_bytes, bytes_to_boxes
from peersub.matching.conjunct_builder import NO_RESIDUAL, EncodedConjuncts
from peersub.matching.conjuncts import ConjunctTable
from peersub.matching.encoding import Encoder
from peersub.matching.named_arrays import WithPrefix, prefixed

__all__ = ["PackedConjuncts"]


@dataclass(frozen=True, slots=True)
class PackedConjuncts:
    """What `EncodedConjuncts` says, packed; `unpacked` gives it back."""

    encoder: Encoder
    entry_count: int
    conjunct_count: int
    tests: tuple[TextTest, ...]
    residual_boxes: tuple[Box, ...]
    predicate_counts: np.ndarray
    """uint[conjuncts]: how many predicates each has."""
    slots: np.ndarray
    """uint[predicates]"""
    low: np.ndarray
    """uint[predicates]"""
    width: np.ndarray
    """uint[predicates]: high less low."""
    set_places: np.ndarray
    """int32[sets]: the predicates that have a set, ascending; their sets are in the same order."""
    set_counts: np.ndarray
    """uint[sets]: how many intervals each has."""
    set_low: np.ndarray
    """uint[intervals]"""
    set_width: np.ndarray
    """uint[intervals]"""
    conjunct_entry: np.ndarray
    """int32[conjuncts], or empty where conjunct c is entry c."""
    multi: np.ndarray
    """uint8[conjuncts], or empty where no entry has several conjuncts."""
    conjunct_test_offsets: np.ndarray
    """int64[conjuncts + 1], or empty where there are no tests."""
    test_numbers: np.ndarray
    test_truths: np.ndarray
    residual: np.ndarray
    """int32[conjuncts], or empty where no box is left."""

    @classmethod
    def of(cls, encoded: EncodedConjuncts) -> PackedConjuncts:
        """Pack conjuncts."""
        table = encoded.table
        places = np.flatnonzero(table.value_set >= 0)
        assert np.array_equal(table.value_set[places], np.arange(len(places)))
        is_plain = encoded.entry_count == table.conjuncts and not encoded.multi.any()
        return cls(
            encoder=encoded.encoder,
            entry_count=encoded.entry_count,
            conjunct_count=table.conjuncts,
            tests=encoded.tests,
            residual_boxes=encoded.residual_boxes,
            predicate_counts=_narrow(np.diff(table.offsets)),
            slots=_narrow(table.slots),
            low=_narrow(table.low),
            width=_narrow(table.high - table.low),
            set_places=places.astype(np.int32),
            set_counts=_narrow(np.diff(table.set_offsets)),
            set_low=_narrow(table.set_low),
            set_width=_narrow(table.set_high - table.set_low),
            conjunct_entry=_NO_ENTRIES if is_plain else encoded.conjunct_entry,
            multi=encoded.multi if encoded.multi.any() else _NO_FLAGS,
            conjunct_test_offsets=(
                encoded.conjunct_test_offsets if encoded.tests else np.empty(0, np.int64)
            ),
            test_numbers=encoded.test_numbers,
            test_truths=encoded.test_truths,
            residual=encoded.residual if encoded.residual_boxes else _NO_ENTRIES,
        )

    @property
    def is_plain(self) -> bool:
        """Whether conjunct c is entry c, for all of them."""
        return len(self.conjunct_entry) == 0

    def unpacked(self) -> EncodedConjuncts:
        """The conjuncts as they were packed."""
        count = self.conjunct_count
        low = self.low.astype(np.int32)
        set_low = self.set_low.astype(np.int32)
        value_set = np.full(len(low), -1, np.int32)
        value_set[self.set_places] = np.arange(len(self.set_places))
        plain = np.arange(count, dtype=np.int32)
        return EncodedConjuncts(
            encoder=self.encoder,
            table=ConjunctTable(
                code_counts=self.encoder.code_counts,
                offsets=_offsets(self.predicate_counts),
                slots=self.slots.astype(np.int32),
                low=low,
                high=low + self.width.astype(np.int32),
                value_set=value_set,
                set_offsets=_offsets(self.set_counts),
                set_low=set_low,
                set_high=set_low + self.set_width.astype(np.int32),
            ),
            entry_count=self.entry_count,
            conjunct_entry=plain if self.is_plain else np.asarray(self.conjunct_entry),
            multi=np.asarray(self.multi) if len(self.multi) else np.zeros(count, np.uint8),
            conjunct_test_offsets=(
                np.asarray(self.conjunct_test_offsets)
                if self.tests
                else np.zeros(count + 1, np.int64)
            ),
            test_numbers=np.asarray(self.test_numbers),
            test_truths=np.asarray(self.test_truths),
            tests=self.tests,
            residual=(
                np.asarray(self.residual)
                if self.residual_boxes
                else np.full(count, NO_RESIDUAL, np.int32)
            ),
            residual_boxes=self.residual_boxes,
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything by name, to be saved; what is no array is one JSON text in bytes."""
        rest = {
            "entry_count": self.entry_count,
            "conjunct_count": self.conjunct_count,
            "tests": [[list(t.path), str(t.operator), t.pattern] for t in self.tests],
            "residual_boxes": [boxes_to_bytes((box,)).hex() for box in self.residual_boxes],
        }
        own = {name: getattr(self, name) for name in _ARRAYS}
        own["rest"] = np.frombuffer(json.dumps(rest).encode(), np.uint8)
        return own | prefixed("encoder", self.encoder.arrays())

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> PackedConjuncts:
        """The conjuncts whose arrays these are."""
        rest = json.loads(arrays["rest"].tobytes())
        return cls(
            encoder=Encoder.from_arrays(WithPrefix("encoder", arrays)),
            entry_count=rest["entry_count"],
            conjunct_count=rest["conjunct_count"],
            tests=tuple(TextTest(tuple(p), Operator(o), text) for p, o, text in rest["tests"]),
            residual_boxes=tuple(_box(text) for text in rest["residual_boxes"]),
            **{name: arrays[name] for name in _ARRAYS},
        )


_NO_ENTRIES = np.empty(0, np.int32)
_NO_FLAGS = np.empty(0, np.uint8)
_ARRAYS = tuple(field.name for field in fields(PackedConjuncts) if field.type == "np.ndarray")


def _narrow(values: np.ndarray) -> np.ndarray:
    """The same numbers, none negative, in the narrowest unsigned type that holds them."""
    most = int(values.max(initial=0))
    dtype = next(d for d in (np.uint8, np.uint16, np.uint32, np.uint64) if most <= np.iinfo(d).max)
    return values.astype(dtype)


def _offsets(counts: np.ndarray) -> np.ndarray:
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _box(text: str) -> Any:
    boxes = bytes_to_boxes(bytes.fromhex(text))
    assert not isinstance(boxes, str)
    return boxes[0]
