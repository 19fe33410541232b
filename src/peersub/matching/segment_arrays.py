"""A segment's encoded conjuncts as named arrays, to be saved, and back again.

Text tests and residual boxes are few; they are kept as one JSON text in an array of bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from peersub.filters.patterns import Operator, TextTest
from peersub.filters.wire_form import boxes_to_bytes, bytes_to_boxes
from peersub.matching.conjunct_builder import EncodedConjuncts
from peersub.matching.conjuncts import ConjunctTable
from peersub.matching.encoding import Encoder

__all__ = ["WithPrefix", "encoded_arrays", "encoded_from_arrays", "prefixed"]

_OWN = (
    "conjunct_entry",
    "multi",
    "conjunct_test_offsets",
    "test_numbers",
    "test_truths",
    "residual",
)
_TABLE = tuple(field.name for field in fields(ConjunctTable))


def prefixed(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same arrays under names that start with a prefix."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


class WithPrefix(Mapping[str, np.ndarray]):
    """The arrays whose names start with a prefix, by the rest of their names."""

    def __init__(self, prefix: str, arrays: Mapping[str, np.ndarray]) -> None:
        self._prefix = f"{prefix}."
        self._arrays = arrays

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[self._prefix + name]

    def __iter__(self) -> Iterator[str]:
        size = len(self._prefix)
        return (name[size:] for name in self._arrays if name.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def encoded_arrays(encoded: EncodedConjuncts) -> dict[str, np.ndarray]:
    """Everything that encoded conjuncts hold."""
    rest = {
        "entry_count": encoded.entry_count,
        "tests": [[list(t.path), str(t.operator), t.pattern] for t in encoded.tests],
        "residual_boxes": [boxes_to_bytes((box,)).hex() for box in encoded.residual_boxes],
    }
    own = {name: getattr(encoded, name) for name in _OWN}
    own["rest"] = np.frombuffer(json.dumps(rest).encode(), np.uint8)
    table = {name: getattr(encoded.table, name) for name in _TABLE}
    return own | prefixed("table", table) | prefixed("encoder", encoded.encoder.arrays())


def encoded_from_arrays(arrays: Mapping[str, np.ndarray]) -> EncodedConjuncts:
    """The conjuncts whose arrays these are."""
    rest = json.loads(arrays["rest"].tobytes())
    table = WithPrefix("table", arrays)
    return EncodedConjuncts(
        encoder=Encoder.from_arrays(WithPrefix("encoder", arrays)),
        table=ConjunctTable(**{name: table[name] for name in _TABLE}),
        entry_count=rest["entry_count"],
        tests=tuple(TextTest(tuple(p), Operator(o), text) for p, o, text in rest["tests"]),
        residual_boxes=tuple(_box(text) for text in rest["residual_boxes"]),
        **{name: arrays[name] for name in _OWN},
    )


def _box(text: str) -> Any:
    boxes = bytes_to_boxes(bytes.fromhex(text))
    assert not isinstance(boxes, str)
    return boxes[0]
