"""From values to codes: the slots of an index, and an event as a row of their codes.

A *slot* is an attribute together with a class of kinds, or with PRESENCE. An event has one int32
code per slot. In the slot of a class it is the value's code among the bounds of all predicates on
the slot (`bounds`), or -1 if the attribute is absent or of another class. In the slot of presence
it says what is there: 0 for nothing, 1 + the number of its class, or OTHER_CODE for records, arrays
and whatever else does not compare; so `IS NULL` is [0, 0] and `IS NOT NULL` is [1, OTHER_CODE].

Two doors lead here, and give equal codes for equal values: `encode_event` takes one event as a
dict, `encode_table` rows of an Arrow table without making a Python object of any value.

An encoder never changes. It is saved as arrays and opened from memory-mapped ones.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from peersub.events.kinds import KindClass, comparable, is_missing
from peersub.filters.boxes import Path
from peersub.matching.bounds import (
    EXACT_INTEGER_MAX,
    Bounds,
    FixedCodes,
    OrderedBounds,
    TextBounds,
    Utf8Column,
)

__all__ = [
    "ABSENT_CODE",
    "BOOLEAN_CODES",
    "Encoder",
    "NOTHING_CODE",
    "OTHER_CODE",
    "PRESENCE",
    "PRESENCE_CODES",
    "Slot",
    "SlotTree",
    "presence_code",
]

PRESENCE: Final = len(KindClass)
"""In place of a class: the slot that says whether, and as what, an attribute is there."""
ABSENT_CODE: Final = -1
"""In the slot of a class: no such value."""
NOTHING_CODE: Final = 0
"""In a presence slot: the attribute is absent, NULL or NaN."""
OTHER_CODE: Final = len(KindClass) + 1
"""In a presence slot: the attribute is there and does not compare."""
PRESENCE_CODES: Final = FixedCodes(OTHER_CODE + 1)
BOOLEAN_CODES: Final = FixedCodes(2)
NO_NUMBERS: Final = OrderedBounds.from_keys([])
NO_TEXTS: Final = TextBounds.from_keys([], gaps_alike=False)


def presence_code(kind_class: KindClass) -> int:
    """The code of a value of this class in a presence slot."""
    return int(kind_class) + 1


class Slot(NamedTuple):
    """One column of codes."""

    path: Path
    kind: int
    """The number of a KindClass, or PRESENCE."""


@dataclass(slots=True)
class SlotTree:
    """The slots of one attribute by kind, and those of the attributes inside of it by name."""

    slots: list[int] = field(default_factory=lambda: [-1] * (PRESENCE + 1))
    """By number of the class, then presence; -1 where there is no such slot."""
    bounds: list[Any] = field(default_factory=lambda: [None] * (PRESENCE + 1))
    children: dict[str, SlotTree] = field(default_factory=dict)

    def all_slots(self) -> list[int]:
        """The slots of the attribute and of all inside of it."""
        inside = [slot for child in self.children.values() for slot in child.all_slots()]
        return [slot for slot in self.slots if slot >= 0] + inside


class Encoder:
    """The slots of an index with their bounds."""

    def __init__(self, slots: Iterable[Slot], bounds: Iterable[Bounds]) -> None:
        self.slots = tuple(slots)
        self.bounds = tuple(bounds)
        assert len(self.slots) == len(self.bounds)

    def __reduce__(self) -> tuple[Any, ...]:
        return Encoder.from_arrays, (self.arrays(),)

    @cached_property
    def code_counts(self) -> np.ndarray:
        """int32[slots]: how many codes each slot has."""
        return np.array([bounds.code_count for bounds in self.bounds], np.int32)

    @cached_property
    def tree(self) -> SlotTree:
        """The slots by path; an attribute's own are at the end of its names."""
        root = SlotTree()
        for number, (slot, bounds) in enumerate(zip(self.slots, self.bounds, strict=True)):
            node = root
            for name in slot.path:
                node = node.children.setdefault(name, SlotTree())
            node.slots[slot.kind] = number
            node.bounds[slot.kind] = bounds
        return root

    @cached_property
    def absent_codes(self) -> np.ndarray:
        """int32[slots]: the codes of an event without attributes."""
        return np.array(
            [NOTHING_CODE if slot.kind == PRESENCE else ABSENT_CODE for slot in self.slots],
            np.int32,
        )

    @cached_property
    def _absent_items(self) -> array[int]:
        return array("i", self.absent_codes.tolist())

    def encode_event(self, attributes: Mapping[str, Any]) -> np.ndarray:
        """int32[slots]: the codes of one event."""
        codes = self._absent_items[:]
        children = self.tree.children
        if len(attributes) <= len(children):
            for name, value in attributes.items():
                node = children.get(name)
                if node is not None and value is not None:
                    _encode_value(node, value, codes)
        else:
            for name, node in children.items():
                value = attributes.get(name)
                if value is not None:
                    _encode_value(node, value, codes)
        return np.frombuffer(codes, np.int32)

    def encode_table(self, table: Any, start: int, stop: int) -> np.ndarray:
        """int32[stop - start, slots], C-contiguous: the codes of rows of an Arrow table."""
        from peersub.matching.arrow_encoding import encode_rows

        codes: np.ndarray = encode_rows(self, table, start, stop)
        return codes

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays together."""
        return sum(array.nbytes for array in self.arrays().values())

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything the encoder holds, to be saved and opened memory-mapped."""
        ordered = [b if isinstance(b, OrderedBounds) else NO_NUMBERS for b in self.bounds]
        texts = [b if isinstance(b, TextBounds) else NO_TEXTS for b in self.bounds]
        saved = {
            "slots": _json_bytes([[list(slot.path), slot.kind] for slot in self.slots]),
            "gaps_alike": np.array([b.gaps_alike for b in texts], np.uint8),
        }
        saved |= _joined("thresholds", [b.thresholds for b in ordered], np.float64)
        saved |= _joined("flags", [b.flags for b in ordered], np.uint8)
        saved |= _joined("integers", [b.stored_integers for b in ordered], np.int64)
        for name, columns in (
            ("wide", [b.texts for b in ordered]),
            ("text", [b.column for b in texts]),
        ):
            saved |= _joined(f"{name}_offsets", [c.offsets for c in columns], np.int64)
            saved |= _joined(f"{name}_data", [c.data for c in columns], np.uint8)
        return saved

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Encoder:
        """The encoder whose arrays these are; the inverse of `arrays`."""
        slots = [Slot(tuple(path), kind) for path, kind in json.loads(arrays["slots"].tobytes())]
        parts = {
            name: _split(np.asarray(arrays[name]), arrays[f"{name}_starts"].tolist())
            for name in (
                *("thresholds", "flags", "integers"),
                *("wide_offsets", "wide_data", "text_offsets", "text_data"),
            )
        }
        bounds: list[Bounds] = []
        for number, slot in enumerate(slots):
            part = {name: values[number] for name, values in parts.items()}
            if slot.kind == PRESENCE:
                bounds.append(PRESENCE_CODES)
            elif slot.kind == KindClass.BOOLEAN:
                bounds.append(BOOLEAN_CODES)
            elif slot.kind == KindClass.STRING:
                column = Utf8Column(part["text_offsets"], part["text_data"])
                bounds.append(TextBounds(column, bool(arrays["gaps_alike"][number])))
            else:
                wide = Utf8Column(part["wide_offsets"], part["wide_data"])
                numbers = (part["thresholds"], part["flags"], part["integers"])
                bounds.append(OrderedBounds(*numbers, wide))
        return cls(slots, bounds)


def _json_bytes(form: Any) -> np.ndarray:
    return np.frombuffer(json.dumps(form).encode(), np.uint8)


def _joined(
    name: str, parts: Sequence[np.ndarray], dtype: type[np.generic]
) -> dict[str, np.ndarray]:
    """The parts of all slots end to end, and where the part of each slot starts."""
    starts = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=starts[1:])
    joined = np.concatenate(parts) if parts else np.empty(0, dtype)
    return {name: joined.astype(dtype, copy=False), f"{name}_starts": starts}


def _split(joined: np.ndarray, starts: list[int]) -> list[np.ndarray]:
    return [joined[a:b] for a, b in pairwise(starts)]


def _encode_value(node: SlotTree, value: Any, codes: array[int]) -> None:
    """Write the codes of one value that is not None."""
    slots = node.slots
    kind = type(value)
    # The usual types first, without the general road through `comparable`.
    if kind is float:
        if value != value:  # NaN is missing
            return
        kind_class = _NUMBER
        if slots[_NUMBER] >= 0:
            codes[slots[_NUMBER]] = node.bounds[_NUMBER].code_of_double(value)
    elif kind is str:
        kind_class = _STRING
        if slots[_STRING] >= 0:
            codes[slots[_STRING]] = node.bounds[_STRING].code_of_key(value)
    elif kind is int:
        kind_class = _NUMBER
        if slots[_NUMBER] >= 0:
            bounds = node.bounds[_NUMBER]
            if -EXACT_INTEGER_MAX <= value <= EXACT_INTEGER_MAX:
                codes[slots[_NUMBER]] = bounds.code_of_double(value)
            else:
                codes[slots[_NUMBER]] = bounds.code_of_key(value)
    else:
        _encode_unusual(node, value, codes)
        return
    if slots[PRESENCE] >= 0:
        codes[slots[PRESENCE]] = kind_class + 1


_NUMBER: Final = int(KindClass.NUMBER)
_STRING: Final = int(KindClass.STRING)


def _encode_unusual(node: SlotTree, value: Any, codes: array[int]) -> None:
    slots = node.slots
    place = comparable(value)
    if place is None:
        if is_missing(value):
            return
        presence = OTHER_CODE
        if node.children and isinstance(value, Mapping):
            for name, child in node.children.items():
                inner = value.get(name)
                if inner is not None:
                    _encode_value(child, inner, codes)
    else:
        kind_class, key = place
        presence = kind_class + 1
        slot = slots[kind_class]
        if slot >= 0:
            bounds = node.bounds[kind_class]
            codes[slot] = key if kind_class is KindClass.BOOLEAN else bounds.code_of_key(key)
    if slots[PRESENCE] >= 0:
        codes[slots[PRESENCE]] = presence
