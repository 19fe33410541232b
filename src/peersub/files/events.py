"""Events from files, as Arrow tables of bounded size, whatever the format.

A mixed column keeps each value's own kind (`events.arrow`). Rows that cannot be used are reported
one by one; without a report the first of them ends reading with a `FileError`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from peersub.events.arrow import table_of_rows
from peersub.events.inference import value_of_cell_as
from peersub.events.kinds import Kind, is_missing
from peersub.files.arrow_tables import arrow_tables, parquet_tables
from peersub.files.csv_rows import csv_rows
from peersub.files.errors import BadRow, FileError, Report, refuse_row
from peersub.files.formats import Format, format_of
from peersub.files.json_rows import Row, RowBatch, document_rows, json_line_rows
from peersub.files.opening import Position
from peersub.files.xml_rows import xml_rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "EventSource",
    "NumberedTable",
    "kinds_of_text",
    "numbered_tables",
    "read_events",
    "with_kinds",
]

CELLS_PER_TABLE_MAX: Final = 1 << 22
"""Rows times columns: rows that share few names are cut into several tables."""
_KIND_NAMES = {
    "bool": Kind.BOOLEAN,
    "boolean": Kind.BOOLEAN,
    "int": Kind.INTEGER,
    "int64": Kind.INTEGER,
    "float": Kind.FLOAT,
    "float64": Kind.FLOAT,
    "decimal": Kind.DECIMAL,
    "string": Kind.STRING,
    "date": Kind.DATE,
    "timestamp": Kind.TIMESTAMP,
}


def kinds_of_text(text: str) -> dict[str, Kind]:
    """The schema in a text such as `day:date,price:decimal`.

    >>> kinds_of_text("day:date, price:decimal")
    {'day': <Kind.DATE: 'date'>, 'price': <Kind.DECIMAL: 'decimal'>}

    Raises:
        ValueError: what was not understood, and what is.
    """
    schema: dict[str, Kind] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, kind = part.rpartition(":")
        if not colon or not name or kind.strip() not in _KIND_NAMES:
            known = "bool, int64, float64, decimal, string, date, timestamp"
            raise ValueError(
                f"{part!r} is not understood in the schema; write name:kind, with a kind of {known}"
            )
        schema[name.strip()] = _KIND_NAMES[kind.strip()]
    return schema


@dataclass(frozen=True, slots=True)
class EventSource:
    """Where events come from: a file, a folder, or `-` for standard input.

    Args:
        name: the path.
        format: what it is written in; by default the name tells.
        records: a dotted name that points to the array of events in a JSON document.
        schema: the kinds of some attributes, for formats that carry text.
        position: is kept up to date while events are read.
    """

    name: str
    format: Format | None = None
    records: str | None = None
    schema: Mapping[str, Kind] = field(default_factory=dict)
    position: Position = field(default_factory=Position)


def read_events(source: EventSource, report: Report = refuse_row) -> Iterator[pa.Table]:
    """The events of a source, as tables of some thousand rows.

    Raises:
        FileError: the source cannot be read, or `report` refuses a row.
    """
    kind = format_of(source.name, source.format, "--events-format")
    if source.records is not None and kind is not Format.JSON:
        raise FileError(
            source.name,
            f"--records points into a JSON document, and this is {kind}",
            "Leave it out.",
        )
    if kind in (Format.PARQUET, Format.ARROW):
        if source.schema:
            raise FileError(source.name, f"{kind} has a schema of its own", "Leave out --schema.")
        read = parquet_tables if kind is Format.PARQUET else arrow_tables
        yield from (table for table in read(source.name, source.position) if table.num_rows)
        return
    for batch in _row_batches(source, kind, report):
        yield from (numbered.table for numbered in numbered_tables(source.name, batch, report))


@dataclass(frozen=True, slots=True)
class NumberedTable:
    """Events, and the place of each in its file, as in `RowBatch`."""

    table: pa.Table
    numbers: Sequence[int]
    unit: str


def _row_batches(source: EventSource, kind: Format, report: Report) -> Iterator[RowBatch]:
    name, position = source.name, source.position
    match kind:
        case Format.CSV:
            return csv_rows(name, source.schema, report, position)
        case Format.XML:
            return xml_rows(name, report, position)
        case Format.JSON:
            batches = document_rows(name, source.records, report, position)
        case _:
            batches = json_line_rows(name, report, position)
    return with_kinds(name, batches, source.schema, report)


def numbered_tables(name: str, batch: RowBatch, report: Report) -> Iterator[NumberedTable]:
    """The batch as tables; rows with a value that Arrow cannot hold are reported."""
    if not batch.rows:
        return
    names = len(set().union(*batch.rows))
    if len(batch.rows) > 1 and len(batch.rows) * names > CELLS_PER_TABLE_MAX:
        yield from _halves(name, batch, report)
        return
    try:
        yield NumberedTable(table_of_rows(batch.rows), batch.numbers, batch.unit)
    except ValueError as error:
        if len(batch.rows) > 1:
            yield from _halves(name, batch, report)
            return
        reason = f"{error}. Correct the value."
        report(BadRow(name, batch.place(0), reason, json.dumps(batch.rows[0], default=str)))


def _halves(name: str, batch: RowBatch, report: Report) -> Iterator[NumberedTable]:
    middle = len(batch.rows) // 2
    for part in (slice(None, middle), slice(middle, None)):
        half = RowBatch(batch.rows[part], batch.numbers[part], batch.unit)
        yield from numbered_tables(name, half, report)


# --- a schema for JSON -------------------------------------------------------------------------


def with_kinds(
    name: str, batches: Iterator[RowBatch], schema: Mapping[str, Kind], report: Report
) -> Iterator[RowBatch]:
    """Batches of rows read from JSON, with values of the kinds that a schema gives."""
    if not schema:
        return batches
    return (_with_kinds(name, batch, schema, report) for batch in batches)


def _with_kinds(name: str, batch: RowBatch, schema: Mapping[str, Kind], report: Report) -> RowBatch:
    kept = RowBatch([], [], batch.unit)
    for place, row in enumerate(batch.rows):
        try:
            for path, kind in schema.items():
                _give_kind(row, path, kind)
        except ValueError as error:
            reason = f"{error}. Correct it, or the schema."
            report(BadRow(name, batch.place(place), reason, json.dumps(row, default=str)))
        else:
            kept.rows.append(row)
            kept.numbers.append(batch.numbers[place])
    return kept


def _give_kind(row: Row, path: str, kind: Kind) -> None:
    """Turn the value at a name, or at a dotted name within records, into one of the kind."""
    record: Any = row
    last = path
    if path not in row:
        *parents, last = path.split(".")
        for parent in parents:
            record = record.get(parent) if isinstance(record, dict) else None
    if not isinstance(record, dict) or is_missing(record.get(last)):
        return
    value = record[last]
    if isinstance(value, dict | list):
        raise ValueError(f"{path}: {json.dumps(value)[:40]} is not a {kind.value}")
    text = value if isinstance(value, str) else json.dumps(value)
    try:
        record[last] = value_of_cell_as(text, kind)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
