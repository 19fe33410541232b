"""A batch: many events of one publisher on their way together, in columns.

One event at a time costs a router some ten microseconds, whatever it does. A batch is matched by
the compiled index, split by column, and sent in one message per edge: the cost per event is a
fraction of one. Everything else is as for single events: the same routing, the same promises. An
event of a batch is `BATCH/NUMBER`, its number being its place in what was published; so a part of a
batch, and an event that left it to travel alone, are still known for what they are.

The columns are Arrow's. They travel as an IPC stream, and what came is sent on as it came if no row
is left out. pyarrow and NumPy are imported where they are used: a node without them offers no
batches, and never gets one (`BATCHES_FEATURE`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from peersub.events.arrow import rows_of_table
from peersub.overlays.core.batch_bounds import check_repeats, check_stream
from peersub.overlays.core.publication import Delivery, Publication

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

__all__ = ["BATCH_ID_BYTES_MAX", "BATCH_ROWS_MAX", "Batch", "event_id_of", "split_event_id"]

BATCH_ROWS_MAX: Final = 16_384
"""Events of one batch; who publishes more makes several."""
BATCH_ID_BYTES_MAX: Final = 48
"""Leaves room for the number in an event's identifier."""
CHUNKS_MAX: Final = 16
"""Pieces in which the columns of a batch travel; more are put together before."""
_BODY: Final = b"peersub.body"
"""Marks, in the schema, that the last column has the bodies."""
_SEPARATOR: Final = "/"


def event_id_of(batch_id: str, number: int) -> str:
    """The identifier of an event of a batch.

    >>> event_id_of("b7", 12)
    'b7/12'
    """
    return f"{batch_id}{_SEPARATOR}{number}"


def split_event_id(event_id: str) -> tuple[str, int] | None:
    """Batch and number of an event that came, or may have come, in a batch.

    >>> split_event_id("b7/12"), split_event_id("e12"), split_event_id("b7/012")
    (('b7', 12), None, None)
    """
    batch, separator, number = event_id.rpartition(_SEPARATOR)
    if not separator or not batch or not number.isascii() or not number.isdigit():
        return None
    if (len(number) > 1 and number[0] == "0") or len(number) > len(str(BATCH_ROWS_MAX)):
        return None
    value = int(number)
    return (batch, value) if value < BATCH_ROWS_MAX else None


class Batch:
    """Events in columns, or a part of them.

    Immutable for whoever holds one; two are equal if they are the same events under the same
    promise.
    """

    __slots__ = ("_bodies", "_packed", "_table", "delivery", "id", "numbers", "total")

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
    ) -> None:
        assert table is not None or packed is not None
        self.id = batch_id
        self.numbers = numbers
        """uint32: the places of the events in what was published, rising."""
        self.total = total
        """How many events were published together."""
        self.delivery = delivery
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
        return made

    def __len__(self) -> int:
        return len(self.numbers)

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
        )

    def event_id(self, row: int) -> str:
        """The identifier of the event at a place of this batch."""
        return event_id_of(self.id, int(self.numbers[row]))

    def publications(self) -> Iterator[Publication]:
        """The events one by one, as they are known when they travel alone."""
        bodies: list[Any] = [None] * len(self)
        if self.bodies is not None:
            bodies = self.bodies.to_pylist()
        rows = rows_of_table(self.table)
        for row, (attributes, body) in enumerate(zip(rows, bodies, strict=True)):
            yield Publication(self.event_id(row), attributes, body, delivery=self.delivery)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Batch):
            return NotImplemented
        return (
            self.id == other.id
            and self.delivery == other.delivery
            and self.total == other.total
            and self.numbers.tolist() == other.numbers.tolist()
        )

    def __hash__(self) -> int:
        return hash(self.id)

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
