"""Blocks: some thousand events as the bytes of one Arrow table.

Spark's columns have one kind each, and events need not: a column of mixed kinds keeps each value's
own kind. So the rows of the `events` dataset are blocks, each with a schema of its own. A worker
opens a block without copying it and hands it to the matcher as it is, so that the pipeline gives a
filter the same meaning as every other door.

Law: `unpacked(packed(table))` equals the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

__all__ = ["BLOCK_BYTES_MAX", "BLOCK_ROWS_MAX", "cut", "packed", "unpacked"]

BLOCK_ROWS_MAX: Final = 2_048
"""Few enough that twenty thousand events keep several workers busy, and that a block whose every
event matches a million subscriptions can be answered in parts."""
BLOCK_BYTES_MAX: Final = 8 << 20
"""About the bytes of a block; a single larger event is a block of its own."""
_ROWS_KEY: Final = b"rows"


def packed(table: pa.Table) -> bytes:
    """The table as bytes."""
    # A table without columns has rows too, which the format itself does not keep.
    table = table.replace_schema_metadata({_ROWS_KEY: str(table.num_rows)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpacked(data: bytes | pa.Buffer) -> pa.Table:
    """The table that was packed; its columns share memory with the bytes."""
    with pa.ipc.open_stream(data) as reader:
        table = reader.read_all()
    if not table.num_columns:
        rows = int(table.schema.metadata[_ROWS_KEY])
        return pa.table({"": pa.nulls(rows)}).select([])
    return table.replace_schema_metadata(None)


def cut(table: pa.Table) -> Iterator[pa.Table]:
    """The table in parts of at most BLOCK_ROWS_MAX rows and about BLOCK_BYTES_MAX bytes."""
    if not table.num_rows:
        return
    bytes_per_row = max(1, table.nbytes // table.num_rows)
    step = max(1, min(BLOCK_ROWS_MAX, BLOCK_BYTES_MAX // bytes_per_row))
    for start in range(0, table.num_rows, step):
        # A table without columns believes any length.
        yield table.slice(start, min(step, table.num_rows - start))
