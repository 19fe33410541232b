"""What the columns of a batch would take in memory, known before anything is made of them.

A few bytes of an Arrow stream can stand for gigabytes: compressed buffers, many columns over the
same bytes, columns of nulls that have no bytes at all, dictionaries and unions that name one large
value many times. The messages of a stream say how many values each array has and where its bytes
are. `check_stream` reads that, and nothing else, before Arrow reads the stream. What the values
alone can tell, where they repeat, `check_repeats` asks of the arrays, which are views on the bytes;
and `check_rows`, whether each event could travel alone.
"""

from __future__ import annotations

from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

__all__ = [
    "ROW_VALUES_MAX",
    "UNPACKED_BYTES_MAX",
    "BatchSizeError",
    "check_repeats",
    "check_rows",
    "check_stream",
]

UNPACKED_BYTES_MAX: Final = 64 * 1_024 * 1_024
"""Of all values of a batch, each at `VALUE_BYTES` and its own bytes."""
ROW_VALUES_MAX: Final = 8_192
"""Of one event, those in records and lists too (`wire.limits.VALUES_MAX`)."""
VALUE_BYTES: Final = 32
"""About what a value takes as an object, also one that has no bytes in a column."""
STREAM_MESSAGES_MAX: Final = 1_024
"""Messages of a stream: its schema, dictionaries, and the pieces that the columns come in."""
SCHEMA_BYTES_MAX: Final = 1_024 * 1_024

_CONTINUATION: Final = 0xFFFFFFFF
_PREFIX: Final = Struct("<II")
_UNSIGNED_16: Final = Struct("<H")
_SIGNED_32: Final = Struct("<i")
_UNSIGNED_32: Final = Struct("<I")
_SIGNED_64: Final = Struct("<q")
_PAIR_BYTES: Final = 16
"""Of a node (length, nulls) and of a buffer (place, length) in the header of a message."""
_SCHEMA, _DICTIONARY, _RECORDS = 1, 2, 3
"""What the header of a message may be."""


class BatchSizeError(ValueError):
    """The values of a batch would take too much memory."""


def check_stream(packed: bytes) -> None:
    """Read the headers of a stream's messages: values within bounds, and bytes used once.

    Raises:
        BatchSizeError: there is more in it than a batch may have.
        ValueError: it is compressed, cut off, or no stream.
    """
    size, place, unpacked = len(packed), 0, 0
    for _ in range(STREAM_MESSAGES_MAX):
        if place + _PREFIX.size > size:
            return
        mark, header_bytes = _PREFIX.unpack_from(packed, place)
        if mark != _CONTINUATION:
            raise ValueError("a batch is no Arrow stream")
        if not header_bytes:
            return
        body = place + _PREFIX.size + header_bytes
        if body > size:
            raise ValueError("a batch is cut off")
        header = _Header(packed[place + _PREFIX.size : body])
        body_bytes = header.body_bytes
        if not 0 <= body_bytes <= size - body:
            raise ValueError("a batch is cut off")
        unpacked += header.unpacked_bytes(body_bytes)
        if unpacked > UNPACKED_BYTES_MAX:
            raise _too_large()
        place = body + body_bytes
    raise BatchSizeError(f"the columns of a batch come in more than {STREAM_MESSAGES_MAX:,} pieces")


def _too_large() -> BatchSizeError:
    return BatchSizeError(
        f"the values of a batch take more than {UNPACKED_BYTES_MAX:,} bytes: publish fewer at once"
    )


class _Header:
    """The header of one message: a FlatBuffers table, of which a few fields are read."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._message = self._reference(0)

    @property
    def body_bytes(self) -> int:
        """Of what follows the header."""
        return self._number(_SIGNED_64, self._field(self._message, 3))

    def unpacked_bytes(self, body_bytes: int) -> int:
        """What the values of the message take in memory."""
        kind_at = self._field(self._message, 1)
        header_at = self._field(self._message, 2)
        kind = 0 if kind_at is None else self._bytes(kind_at, 1)[0]
        if header_at is None or kind not in (_SCHEMA, _DICTIONARY, _RECORDS):
            raise ValueError("a batch has a message of another kind")
        header = self._reference(header_at)
        if kind == _SCHEMA:
            if len(self._data) > SCHEMA_BYTES_MAX:
                raise BatchSizeError("the names and kinds of a batch's columns are too many")
            return len(self._data)
        if kind == _DICTIONARY:
            delta_at, data_at = self._field(header, 2), self._field(header, 1)
            # Each would copy what those before it have brought.
            if delta_at is not None and self._bytes(delta_at, 1)[0]:
                raise ValueError("a batch brings its dictionaries whole")
            if data_at is None:
                raise ValueError("a batch has a dictionary without values")
            header = self._reference(data_at)
        return self._values_bytes(header, body_bytes)

    def _values_bytes(self, records: int, body_bytes: int) -> int:
        if self._field(records, 3) is not None:
            raise ValueError("the columns of a batch are not compressed")
        buffers = sum(length for _, length in self._pairs(self._field(records, 2)))
        if buffers > body_bytes:
            raise ValueError("columns of a batch share their bytes")
        values = sum(length for length, _ in self._pairs(self._field(records, 1)))
        return VALUE_BYTES * values + buffers

    # --- FlatBuffers ---------------------------------------------------------------------------

    def _bytes(self, place: int, count: int) -> bytes:
        # Python would count a negative place from the end, where nobody else looks.
        if place < 0 or count < 0 or place + count > len(self._data):
            raise ValueError("a batch has a header that is cut off")
        return self._data[place : place + count]

    def _number(self, form: Struct, place: int | None) -> int:
        if place is None:
            return 0
        number: int = form.unpack(self._bytes(place, form.size))[0]
        return number

    def _reference(self, place: int) -> int:
        return place + self._number(_UNSIGNED_32, place)

    def _field(self, table: int, number: int) -> int | None:
        """Where a field of a table is; None if it has its default."""
        known = table - self._number(_SIGNED_32, table)
        slot = 2 * _UNSIGNED_16.size + number * _UNSIGNED_16.size
        if slot + _UNSIGNED_16.size > self._number(_UNSIGNED_16, known):
            return None
        offset = self._number(_UNSIGNED_16, known + slot)
        return table + offset if offset else None

    def _pairs(self, field: int | None) -> list[list[int]]:
        """The entries of a list of pairs, none of which is negative."""
        import numpy as np

        if field is None:
            return []
        start = self._reference(field)
        count = self._number(_UNSIGNED_32, start)
        data = self._bytes(start + _UNSIGNED_32.size, count * _PAIR_BYTES)
        pairs = np.frombuffer(data, "<i8").reshape(-1, 2)
        if len(pairs) and pairs.min() < 0:
            raise ValueError("a batch has a length below zero")
        numbers: list[list[int]] = pairs.tolist()  # Whose sums do not overflow.
        return numbers


# --- values that repeat --------------------------------------------------------------------------


def check_repeats(table: pa.Table) -> None:
    """Add up what dictionaries and unions name, each time that they do.

    Raises:
        BatchSizeError: it is more than a batch may have.
    """
    repeated = sum(
        _repeated_bytes(chunk)
        for column in table.columns
        if _may_repeat(column.type)
        for chunk in column.chunks
    )
    if repeated > UNPACKED_BYTES_MAX:
        raise _too_large()


def _may_repeat(kind: pa.DataType) -> bool:
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        return _may_repeat(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_union(kind):
        return True
    return any(_may_repeat(kind.field(place).type) for place in range(kind.num_fields))


def _repeated_bytes(array: Any) -> int:
    """What the values of an array take that may stand for several."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _repeated_bytes(array.storage)
    if pa.types.is_dictionary(kind):
        with suppress(ValueError):  # Where values differ in length, none has a width.
            return int(len(array) * kind.value_type.bit_width // 8)
        named = pc.binary_length(array.dictionary).take(array.indices)
        return int(pc.sum(named.cast(pa.int64())).as_py() or 0)
    if pa.types.is_union(kind):
        if kind.mode == "dense" and _has_repeated_places(array):
            raise BatchSizeError("a union of a batch names a value twice")
        return sum(_repeated_bytes(array.field(place)) for place in range(kind.num_fields))
    if pa.types.is_struct(kind):
        return sum(_repeated_bytes(array.field(place)) for place in range(kind.num_fields))
    return _repeated_bytes(array.values) if kind.num_fields else 0


def _has_repeated_places(array: Any) -> bool:
    import numpy as np

    length, start = len(array), array.offset
    if not length:
        return False  # Without a value there may be no buffers either.
    _, codes, places = array.buffers()[:3]
    chosen = np.frombuffer(codes, np.int8)[start : start + length].astype(np.int64)
    at = np.frombuffer(places, np.int32)[start : start + length]
    return len(np.unique((chosen << 32) | at)) < length


# --- values of a row -----------------------------------------------------------------------------


def check_rows(table: pa.Table) -> None:
    """Count the values of each event, with those in records and lists.

    Raises:
        BatchSizeError: one has more than an event may have.
    """
    import numpy as np

    if table.num_columns > ROW_VALUES_MAX:
        raise _too_many_values()
    if not any(kind.num_fields for kind in table.schema.types):
        return
    for batch in table.to_batches():
        values = np.full(len(batch), batch.num_columns, np.int64)
        for column in batch.columns:
            values += _inner_values(column)
        if values.max(initial=0) > ROW_VALUES_MAX:
            raise _too_many_values()


def _too_many_values() -> BatchSizeError:
    return BatchSizeError(f"an event of a batch has more than {ROW_VALUES_MAX:,} values")


def _inner_values(array: Any) -> np.ndarray:
    """How many values each value of an array holds; what is null may count as what is behind it."""
    import numpy as np
    import pyarrow as pa

    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _inner_values(array.storage)
    if pa.types.is_struct(kind) or pa.types.is_union(kind):
        fields = [array.field(place) for place in range(kind.num_fields)]
        if pa.types.is_union(kind) and kind.mode == "dense":
            # Which of them a row names matters little: each is within the bound.
            most = sum(int(_inner_values(field).max(initial=0)) for field in fields)
            return np.full(len(array), most, np.int64)
        return sum((1 + _inner_values(field) for field in fields), np.zeros(len(array), np.int64))
    if not kind.num_fields:
        return np.zeros(len(array), np.int64)
    ends = np.cumsum(1 + _inner_values(array.values))
    before = np.concatenate((np.zeros(1, np.int64), ends))
    if pa.types.is_fixed_size_list(kind):
        places = (array.offset + np.arange(len(array) + 1)) * kind.list_size
    else:
        places = array.offsets.to_numpy()
    return np.diff(before[places])
