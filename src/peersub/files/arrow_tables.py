"""Parquet and Arrow files as tables: columns are attributes, nulls are missing.

Parquet may be a file or a folder of files as Spark writes them; folders named `name=value` are
attributes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from peersub.files.errors import FileError, first_repeated
from peersub.files.formats import STANDARD_INPUT, files_below
from peersub.files.opening import Position, explained

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "arrow_tables",
    "folder_attributes",
    "opened_parquet",
    "parquet_tables",
    "tables_of_parquet",
]

ROWS_PER_BATCH: Final = 16_384
_ARROW_FILE_MAGIC: Final = b"ARROW1"


@contextmanager
def _damage_explained(name: str, what: str) -> Iterator[None]:
    import pyarrow as pa

    with explained(name):
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno:
                raise  # of the system, not of the content
            reason = str(error).partition("\n")[0].rstrip(".")
            raise FileError(
                name, f"not {what}, or damaged ({reason})", "Write it again, or say its format."
            ) from None


def parquet_tables(name: str, position: Position | None = None) -> Iterator[pa.Table]:
    """The rows of a Parquet file, or of all those of a folder in the order of their paths."""
    files = [name]
    if os.path.isdir(name):
        files = list(files_below(name, ".parquet"))
        if not files:
            raise FileError(name, "the folder holds no .parquet files", "Check the path.")
    done = [0]
    if position is not None:
        with explained(name):
            position.total = sum(os.path.getsize(file) for file in files)
        position.where = lambda: done[0]
    for file in files:
        with opened_parquet(file) as opened:
            yield from tables_of_parquet(opened, folder_attributes(name, file))
        done[0] += os.path.getsize(file) if os.path.exists(file) else 0


@contextmanager
def opened_parquet(file: str) -> Iterator[Any]:
    """A Parquet file; damage found while it is open is explained."""
    import pyarrow.parquet as pq

    if file == STANDARD_INPUT:
        raise FileError(file, "Parquet cannot be read from standard input", "Name a file.")
    with _damage_explained(file, "a Parquet file"), open(file, "rb") as stream:
        if os.fstat(stream.fileno()).st_size == 0:
            raise FileError(file, "the file is empty", "A Parquet file is never empty.")
        opened = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
        _check_names(file, opened.schema_arrow.names)
        yield opened


def tables_of_parquet(
    opened: Any, attributes: Mapping[str, Any], row_groups: Sequence[int] | None = None
) -> Iterator[pa.Table]:
    """The rows of an open Parquet file, or of some of its row groups, with further attributes."""
    import pyarrow as pa

    for batch in opened.iter_batches(batch_size=ROWS_PER_BATCH, row_groups=row_groups):
        table = pa.Table.from_batches([batch])
        for column, value in attributes.items():
            if column not in table.column_names:
                table = table.append_column(column, pa.array([value] * len(table)))
        yield table


def folder_attributes(folder: str, file: str) -> dict[str, Any]:
    """What the folders `name=value` between the given folder and a file say of its rows."""
    from urllib.parse import unquote

    from peersub.events.inference import value_of_cell

    attributes: dict[str, Any] = {}
    for part in os.path.relpath(file, folder).split(os.sep)[:-1]:
        column, equals, text = part.partition("=")
        if equals and text != "__HIVE_DEFAULT_PARTITION__":
            attributes[unquote(column)] = value_of_cell(unquote(text))
    return attributes


def _check_names(name: str, names: list[str]) -> None:
    repeated = first_repeated(names)
    if repeated is not None:
        raise FileError(
            name, f"there are two columns named {repeated!r}", "Give each column its own name."
        )


def arrow_tables(name: str, position: Position | None = None) -> Iterator[pa.Table]:
    """The rows of an Arrow IPC file (Feather) or stream."""
    import sys

    import pyarrow as pa

    with _damage_explained(name, "an Arrow file"):
        if name == STANDARD_INPUT:
            yield from _stream_tables(name, pa.ipc.open_stream(sys.stdin.buffer))
            return
        with open(name, "rb") as raw:
            if position is not None:
                position.total, position.where = os.fstat(raw.fileno()).st_size, raw.tell
            if not raw.peek(6)[:6].startswith(_ARROW_FILE_MAGIC):
                yield from _stream_tables(name, pa.ipc.open_stream(raw))
                return
            opened = pa.ipc.open_file(raw)
            _check_names(name, opened.schema.names)
            for number in range(opened.num_record_batches):
                yield from _cut(pa.Table.from_batches([opened.get_batch(number)]))


def _stream_tables(name: str, stream: Any) -> Iterator[pa.Table]:
    import pyarrow as pa

    _check_names(name, stream.schema.names)
    for batch in stream:
        yield from _cut(pa.Table.from_batches([batch]))


def _cut(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, ROWS_PER_BATCH):
        yield table.slice(start, ROWS_PER_BATCH)
