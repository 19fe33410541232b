"""A batch: many events of one publisher on their way together, in columns.

One event at a time costs a router some ten microseconds, whatever it does. A batch is matched by
the compiled index, split by column, and sent in one message per edge: the cost per event is a
fraction of one. Everything else is as for single events: the same routing, the same promises. An
event of a batch is `BATCH/NUMBER`, its number being its place in what was published, and its key is
made likewise (`event_keys`): a part of a batch, and an event that left it to travel alone, are
still known for what they are.

The columns are Arrow's. They travel as an IPC stream, and what came is sent on as it came if no row
is left out. pyarrow and NumPy are imported where they are used: a node without them offers no
batches, and never gets one (`BATCHES_FEATURE`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from peersub.events.arrow import rows_of_table
from peersub.overlays.core.batch_bounds import (
    BatchSizeError,
    check_repeats,
    check_rows,
    check_stream,
)
from peersub.overlays.core.event_keys import (
    BATCH_ID_BYTES_MAX,
    BATCH_ROWS_MAX,
    batch_key_of_id,
    event_id_of,
    name_of,
    row_key,
    short_id,
)
from peersub.overlays.core.publication import Delivery, Publication

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

__all__ = ["Batch"]

BODIES_BYTES_MAX: Final = 256 * 1_024
"""Of all bodies of a batch: larger ones are read off the loop, each by itself."""
CHUNKS_MAX: Final = 16
"""Pieces in which the columns of a batch travel; more are put together before."""
_BODY: Final = b"peersub.body"
"""Marks, in the schema, that the last column has the bodies."""


class Batch:
    """Events in columns, or a part of them.

    Immutable for whoever holds one; two are equal if they are the same events under the same
    promise.
    """

    __slots__ = ("_bodies", "_packed", "_table", "delivery", "given_key", "id", "numbers", "total")

    def __init__(
        self,
        batch_id: str,
        numbers: np.ndarray,
        total: int,
        *,
        delivery: Delivery = Delivery.BEST_EFFORT,
        table: pa.Table | None = None,
        bodies: pa.Array | None = None,
        packed: bytes | None = None,
        key: bytes | None = None,
    ) -> None:
        assert table is not None or packed is not None
        self.id = batch_id
        self.numbers = numbers
        """uint32: the places of the events in what was published, rising."""
        self.total = total
        """How many events were published together."""
        self.delivery = delivery
        self.given_key = key
        """The key of its first event, if it does not follow from the identifier (`event_keys`)."""
        self._table = table
        self._bodies = bodies
        self._packed = packed

    @classmethod
    def of(
        cls,
        batch_id: str,
        table: pa.Table,
        bodies: pa.Array | None = None,
        delivery: Delivery = Delivery.BEST_EFFORT,
    ) -> Batch:
        """All rows of a table, as published.

        Raises:
            BatchSizeError: the values would take too much memory where the batch arrives.
            ValueError: there are too many, the name is too long, or two columns have one name.
        """
        import numpy as np

        if table.num_rows > BATCH_ROWS_MAX:
            raise ValueError(f"a batch has at most {BATCH_ROWS_MAX:,} events")
        if not 0 < len(batch_id.encode()) <= BATCH_ID_BYTES_MAX:
            raise ValueError(f"the name of a batch has 1 to {BATCH_ID_BYTES_MAX} bytes")
        _check_columns(table, bodies)
        numbers = np.arange(table.num_rows, dtype=np.uint32)
        made = cls(batch_id, numbers, table.num_rows, delivery=delivery, table=table, bodies=bodies)
        check_stream(made.packed)
        check_repeats(table)
        check_rows(table)
        return made

    def __len__(self) -> int:
        return len(self.numbers)

    def with_key(self, key: bytes | None) -> Batch:
        """The same events under the keys that begin with another one."""
        return Batch(
            self.id,
            self.numbers,
            self.total,
            delivery=self.delivery,
            table=self._table,
            bodies=self._bodies,
            packed=self._packed,
            key=key,
        )

    def with_short_name(self) -> Batch:
        """The same events, with as much of the id as fits beside the key into the room of an id."""
        batch_id = self.id if self.given_key is None else short_id(self.id, BATCH_ID_BYTES_MAX)
        if batch_id == self.id:
            return self
        short = self.with_key(self.given_key)
        short.id = batch_id
        return short

    @property
    def key(self) -> bytes:
        """What the network knows the batch by: the key of its first event."""
        return batch_key_of_id(self.id) if self.given_key is None else self.given_key

    @property
    def name(self) -> str:
        """Key and identifier as one text, in messages and on disk."""
        return name_of(self.given_key, self.id)

    # --- columns and bytes ---------------------------------------------------------------------

    @property
    def table(self) -> pa.Table:
        """The attributes, one column each, in the order of `numbers`.

        Raises:
            ValueError: the bytes are no such table.
        """
        if self._table is None:
            self._unpack()
        return self._table

    @property
    def bodies(self) -> pa.Array | None:
        """The bodies, if any event has one. Raises what `table` does."""
        if self._table is None:
            self._unpack()
        return self._bodies

    @property
    def size(self) -> int:
        """About what the events take, in bytes."""
        if self._packed is not None:
            return len(self._packed) + self.numbers.nbytes
        bodies = 0 if self._bodies is None else self._bodies.nbytes
        return int(self.table.nbytes + bodies + self.numbers.nbytes)

    @property
    def is_sound(self) -> bool:
        """Whether the events can be read."""
        try:
            return bool(self.table.num_rows == len(self.numbers))
        except ValueError:
            return False

    def _unpack(self) -> None:
        import numpy as np
        import pyarrow as pa

        numbers = self.numbers
        if len(numbers) and (
            int(numbers[-1]) >= self.total or bool(np.any(numbers[1:] <= numbers[:-1]))
        ):
            raise ValueError("the numbers of a batch do not rise")
        assert self._packed is not None
        check_stream(self._packed)
        try:
            with pa.ipc.open_stream(pa.py_buffer(self._packed)) as stream:
                table = stream.read_all()
            table.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"a batch that cannot be read: {error}") from None
        if table.num_rows != len(numbers):
            raise ValueError("a batch has other rows than numbers")
        bodies = None
        if table.num_columns and _BODY in (table.schema.metadata or {}):
            column = table.column(table.num_columns - 1).combine_chunks()
            bodies = column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)
            table = table.remove_column(table.num_columns - 1)
        _check_columns(table, bodies)
        check_repeats(table)
        check_rows(table)
        self._table, self._bodies = table, bodies

    @property
    def packed(self) -> bytes:
        """The columns as they travel."""
        if self._packed is None:
            import pyarrow as pa

            table, bodies = self.table, self._bodies
            if bodies is None and not table.num_columns:
                # Without a column nothing would say how many events there are.
                bodies = pa.nulls(len(self), pa.binary())
            if bodies is not None:
                table = table.append_column("", bodies)
                table = table.replace_schema_metadata({_BODY: b"1"})
            else:
                table = table.replace_schema_metadata(None)
            if any(column.num_chunks > CHUNKS_MAX for column in table.columns):
                table = table.combine_chunks()
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table)
            self._packed = sink.getvalue().to_pybytes()
        return self._packed

    # --- parts ---------------------------------------------------------------------------------

    def part(self, rows: np.ndarray) -> Batch:
        """The events at these places of this batch, which rise."""
        if len(rows) == len(self.numbers):
            return self
        # Of a table without columns Arrow takes no rows.
        table = self.table.take(rows) if self.table.num_columns else self.table.slice(0, len(rows))
        bodies = None if self._bodies is None else self._bodies.take(rows)
        return Batch(
            self.id,
            self.numbers[rows],
            self.total,
            delivery=self.delivery,
            table=table,
            bodies=bodies,
            key=self.given_key,
        )

    def event_id(self, row: int) -> str:
        """The identifier of the event at a place of this batch."""
        return event_id_of(self.id, int(self.numbers[row]))

    def row_keys(self) -> Iterator[bytes]:
        """The keys of its events."""
        key = self.key
        return (row_key(key, number) for number in self.numbers.tolist())

    def publications(self) -> Iterator[Publication]:
        """The events one by one, as they are known when they travel alone."""
        bodies: list[Any] = [None] * len(self)
        if self.bodies is not None:
            bodies = self.bodies.to_pylist()
        rows = rows_of_table(self.table)
        given, numbers = self.given_key, self.numbers.tolist()
        for number, attributes, body in zip(numbers, rows, bodies, strict=True):
            key = None if given is None else row_key(given, number)
            event_id = event_id_of(self.id, number)
            yield Publication(event_id, attributes, body, delivery=self.delivery, key=key)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Batch):
            return NotImplemented
        return (
            self.key == other.key
            and self.delivery == other.delivery
            and self.total == other.total
            and self.numbers.tolist() == other.numbers.tolist()
        )

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Batch({self.id!r}, {len(self)} of {self.total}, {self.delivery.name})"


def _check_columns(table: pa.Table, bodies: pa.Array | None) -> None:
    """Whether events can be made of the columns, and filters be asked about them.

    Raises:
        ValueError: a name is no Unicode or not the only one, a column is of a kind that Arrow takes
            no parts of, or the bodies are no bytes.
    """
    import pyarrow as pa

    if len(set(table.column_names)) < table.num_columns:
        raise ValueError("a batch has two columns of one name")
    for column_type in table.schema.types:
        _check_type(column_type)
    if bodies is None:
        return
    if not (pa.types.is_binary(bodies.type) or pa.types.is_large_binary(bodies.type)):
        raise ValueError(f"the bodies of a batch are bytes, not {bodies.type}")
    if bodies.nbytes > BODIES_BYTES_MAX:
        raise BatchSizeError("events with large bodies travel one by one")
    if len(bodies) != table.num_rows:
        raise ValueError("a batch has other bodies than events")


def _is_made_of_others(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(
        kind.num_fields or pa.types.is_dictionary(kind) or isinstance(kind, pa.BaseExtensionType)
    )


_KINDS_REFUSED: Final = (
    "is_string_view",
    "is_binary_view",
    "is_list_view",
    "is_large_list_view",
    "is_run_end_encoded",
)
"""Kinds of columns whose values may overlap, by their tests in `pyarrow.types`."""


def _check_type(kind: pa.DataType) -> None:
    """Read all names within a type, and look for kinds that cannot be taken apart."""
    import pyarrow as pa

    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        _check_type(kind.storage_type)
    if types.is_dictionary(kind):
        _check_type(kind.value_type)
    is_refused = any(getattr(types, test)(kind) for test in _KINDS_REFUSED)
    if is_refused or (types.is_dictionary(kind) and _is_made_of_others(kind.value_type)):
        raise ValueError(f"a batch has no columns of {kind}: cast them to a plain type")
    for place in range(kind.num_fields):
        field = kind.field(place)
        _ = field.name  # a ValueError where it is no Unicode
        _check_type(field.type)
