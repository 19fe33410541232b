"""Subscription ids of a compiled segment, a few bytes each: one Arrow array and its sorted order.

A Python dict of a million ids would take more memory than the whole index. Looking one up here is a
binary search over the bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Identifiers"]

_TAKEN_BY_ARROW_FROM = 16
"""Fewer names are quicker cut out one by one than by a call into Arrow."""


class Identifiers:
    """An immutable list of distinct ids: row to id, and id to row."""

    __slots__ = ("_data", "_offsets", "array", "order")

    def __init__(self, array: pa.LargeStringArray, order: np.ndarray) -> None:
        self.array = array
        self.order = order
        _, offsets, data = array.buffers()
        self._offsets = np.frombuffer(offsets, np.int64)[
            array.offset : array.offset + len(array) + 1
        ]
        self._data = memoryview(data) if data is not None else memoryview(b"")

    @classmethod
    def of(cls, ids: Any) -> Identifiers:
        """The ids of a list or an Arrow array of strings.

        Raises:
            ValueError: an id is null or there twice.
        """
        array = (
            ids if isinstance(ids, pa.Array | pa.ChunkedArray) else pa.array(ids, pa.large_string())
        )
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
        array = array.cast(pa.large_string())
        if array.null_count:
            row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
            raise ValueError(f"subscription {row + 1} has no id")
        order = pc.sort_indices(array)
        ordered = array.take(order)
        equal = pc.equal(ordered[1:], ordered[:-1])
        if len(array) > 1 and pc.any(equal).as_py():
            repeated = ordered[pc.index(equal, True).as_py()].as_py()
            raise ValueError(
                f"subscription id {repeated!r} is there more than once: ids are unique"
            )
        return cls(array, order.to_numpy().astype(np.int32))

    def __len__(self) -> int:
        return len(self.array)

    def row_of(self, name: str) -> int | None:
        """The row of an id, None if it is not there."""
        wanted = name.encode("utf-8", "surrogatepass")
        low, high = 0, len(self.order)
        while low < high:
            middle = (low + high) // 2
            if self._bytes(middle) < wanted:
                low = middle + 1
            else:
                high = middle
        if low < len(self.order) and self._bytes(low) == wanted:
            return int(self.order[low])
        return None

    def _bytes(self, place: int) -> bytes:
        row = self.order[place]
        return bytes(self._data[self._offsets[row] : self._offsets[row + 1]])

    def names(self, rows: np.ndarray) -> list[str]:
        """The ids of some rows."""
        if len(rows) > _TAKEN_BY_ARROW_FROM:
            names: list[str] = self.array.take(pa.array(rows)).to_pylist()
            return names
        data, offsets = self._data, self._offsets
        return [str(data[offsets[row] : offsets[row + 1]], "utf-8") for row in rows]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self.array.nbytes) + self.order.nbytes

    def arrays(self) -> dict[str, np.ndarray]:
        """The parts, to be saved."""
        first, last = int(self._offsets[0]), int(self._offsets[-1])
        return {
            "id_offsets": self._offsets - first,
            "id_bytes": np.frombuffer(self._data[first:last], np.uint8),
            "id_order": self.order,
        }

    @classmethod
    def from_arrays(cls, arrays: Any) -> Identifiers:
        """The ids whose parts these are; nothing is copied."""
        offsets, data = arrays["id_offsets"], arrays["id_bytes"]
        array = pa.LargeStringArray.from_buffers(
            len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data)
        )
        return cls(array, arrays["id_order"])
