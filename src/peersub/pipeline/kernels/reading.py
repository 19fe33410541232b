"""A slice of the input to blocks of events: what a worker does with files.

A *slice* is a part of the input that is read without the rest: the lines that begin within a range
of bytes (JSON Lines; CSV if no cell spans lines), the row groups that begin within one (Parquet), a
whole file, or some XML documents. The readers are those of `files`, so that a file means here what
it means to `peersub match`.

Rows that cannot be used, and files or parts that cannot be read, become *bad* rows of the staging
dataset (`schemas.STAGED_EVENTS`), and reading goes on. Places are counted within the slice: how
many lines come before it is known only when all slices are read. The *end* of a slice tells how
many lines it had.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from peersub.events.arrow import rows_of_table
from peersub.events.kinds import Kind
from peersub.files.arrow_tables import (
    arrow_tables,
    folder_attributes,
    opened_parquet,
    tables_of_parquet,
)
from peersub.files.csv_rows import csv_rows, quotes_balance
from peersub.files.errors import BadRow, FileError
from peersub.files.event_names import (
    content_hashes,
    given_names,
    identifier_problem,
    rows_chosen,
)
from peersub.files.events import NumberedTable, numbered_tables, with_kinds
from peersub.files.formats import Format
from peersub.files.json_rows import RowBatch, document_rows, json_line_rows
from peersub.files.opening import LinesOf, is_compressed, line_blocks
from peersub.files.subscriptions import LANGUAGE_COLUMNS
from peersub.files.xml_rows import xml_rows
from peersub.pipeline.kernels.blocks import cut, packed
from peersub.pipeline.schemas import STAGED_EVENTS

__all__ = [
    "EventReading",
    "Slice",
    "SliceRecords",
    "balanced_slices",
    "check_visible",
    "event_records",
    "original_of_row",
    "read_event_slices",
    "row_batches",
    "rows_of_nothing",
    "slices_of",
    "staged",
    "staged_frame_blocks",
    "table_batches",
]

ORIGINAL_CHARACTERS_MAX: Final = 1 << 16
"""Of the text of a bad row: a row may be a line of many megabytes."""
RECORDS_PER_BATCH: Final = 1_024
"""Bad rows that are handed on together."""
PARTITION_SHIFT: Final = 33
"""Spark's growing numbers hold the partition above this bit, and the row below it."""

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of the input that is read without the rest.

    Attributes:
        number: slices are numbered in the order of the input.
        root: the file or folder that was given.
        files: the file, or several XML documents.
        format: what they are written in.
        whole: whether all of the file is meant, not only the range of bytes.
        start: where the range of bytes begins.
        end: where it ends.
        first: the number of the first document among all of them.
        lines_are_rows: whether no cell of a CSV file spans lines; None if nobody looked yet.
        problem: why the file cannot be read, if that is known already.
    """

    number: int
    root: str
    files: list[str]
    format: str
    whole: bool = True
    start: int = 0
    end: int = 0
    first: int = 1
    lines_are_rows: bool | None = None
    problem: str | None = None

    @property
    def file(self) -> str:
        """The name under which rows of the slice are counted."""
        return self.root if self.format == Format.XML else self.files[0]

    @property
    def lines(self) -> LinesOf | None:
        """The lines that are meant; None for all."""
        return None if self.whole else LinesOf(self.start, self.end)


def slices_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Slice]:
    """The slices that rows of the dataset `slices` describe."""
    for batch in batches:
        for row in batch.to_pylist():
            yield Slice(**row)


# --- records of staging ------------------------------------------------------------------------


@dataclass(slots=True)
class SliceRecords:
    """Makes the records of one slice, and collects its bad rows until they are drained."""

    part: Slice
    sequence: int = 0
    read_up_to: tuple[str, int] | None = None
    """The unit and number of the last row that was read."""
    remark: str | None = None
    _bad: list[Record] = field(default_factory=list)

    def record(self, kind: str, **values: Any) -> Record:
        """A record of the slice."""
        return {"slice": self.part.number, "kind": kind, "file": self.part.file} | values

    def report(self, row: BadRow) -> None:
        """Note a bad row; the readers call this."""
        unit, position = _parts_of_place(row.place)
        self._bad.append(self._bad_record(row.name, unit, position, row.reason, row.original, 1))

    def unreadable(self, error: FileError, rows: int | None = None) -> None:
        """Note that a file, or the rest of a slice, cannot be read."""
        unit, position = _parts_of_place(error.place)
        if not unit and self.read_up_to is not None:
            unit, position = f"after {self.read_up_to[0]}", self.read_up_to[1]
        self._bad.append(self._bad_record(error.name, unit, position, error.advice, "", rows))

    def _bad_record(
        self, file: str, unit: str, position: int | None, reason: str, original: str, rows: Any
    ) -> Record:
        if len(original) > ORIGINAL_CHARACTERS_MAX:
            original = original[:ORIGINAL_CHARACTERS_MAX] + "…"
        place = {"unit": unit, "position": position, "rows": rows}
        return self.record("bad", reason=reason, original=original) | place | {"file": file}

    def drained(self) -> list[Record]:
        """The bad rows since the last call, in the order of their places."""
        bad, self._bad = self._bad, []
        bad.sort(key=lambda record: record["position"] or 0)
        return bad

    def end(self, rows: int) -> Record:
        """The end of the slice: how many rows and lines it had."""
        lines = _line_count(self.part) if self.part.lines is not None else 0
        return self.record("end", rows=rows, lines=lines, remark=self.remark)


def _parts_of_place(place: str) -> tuple[str, int | None]:
    """A place such as `line 7`: what is counted, and the number."""
    unit, _, number = place.rpartition(" ")
    return (unit, int(number)) if unit and number.isdecimal() else (place, None)


def _line_count(part: Slice) -> int:
    """The line ends of a slice, whether or not its lines can be read."""
    count = 0
    with open(part.files[0], "rb") as stream:
        place, end = LinesOf(part.start, part.end).bytes_of(stream)
        stream.seek(place)
        while place < end:
            block = stream.read(min(1 << 20, end - place))
            if not block:
                break
            count += block.count(b"\n")
            place += len(block)
    return count


def staged(records: Iterable[Record], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The records as Arrow batches: small ones together, blocks each by itself."""
    waiting: list[Record] = []
    for record in records:
        waiting.append(record)
        if record.get("table") is not None or len(waiting) >= RECORDS_PER_BATCH:
            yield pa.RecordBatch.from_pylist(waiting, schema)
            waiting = []
    if waiting:
        yield pa.RecordBatch.from_pylist(waiting, schema)


# --- slices to rows and tables -----------------------------------------------------------------


def check_visible(part: Slice) -> None:
    """Refuse to go on where a worker does not see what the driver listed.

    Raises:
        FileError: the job must end: what one worker cannot see would be missing in silence.
    """
    if not os.path.lexists(part.root):
        raise FileError(
            part.root,
            "the driver sees it and this worker does not",
            "Put the input on a file system that all workers share, under the same path.",
        )


def row_batches(
    part: Slice,
    records: SliceRecords,
    *,
    schema: Mapping[str, Kind],
    pointer: str | None,
    as_text: bool = False,
) -> Iterator[RowBatch]:
    """The rows of a slice of a format that carries text.

    Args:
        part: the slice.
        records: told of bad rows.
        schema: the kinds of some attributes.
        pointer: where in a JSON document the records are.
        as_text: whether cells of CSV stay text.
    """
    file, report = part.files[0], records.report
    match part.format:
        case Format.CSV:
            return csv_rows(
                file,
                schema,
                report,
                as_text=as_text,
                lines_are_rows=_lines_are_rows(part),
                part=part.lines,
            )
        case Format.XML:
            folder = os.path.isdir(part.root)
            numbered = xml_rows(part.root, report, files=part.files if folder else None)
            return (_renumbered(batch, part.first - 1) for batch in numbered)
        case Format.JSON:
            batches = document_rows(file, pointer, report)
        case _:
            batches = json_line_rows(file, report, part=part.lines)
    return with_kinds(file, batches, schema, report)


def _renumbered(batch: RowBatch, before: int) -> RowBatch:
    return RowBatch(batch.rows, [number + before for number in batch.numbers], batch.unit)


def _lines_are_rows(part: Slice) -> bool:
    if part.lines_are_rows is not None:
        return part.lines_are_rows
    file = part.files[0]
    return not is_compressed(file) and all(quotes_balance(block) for _, block in line_blocks(file))


def table_batches(part: Slice, records: SliceRecords) -> Iterator[NumberedTable]:
    """The rows of a slice of Parquet or Arrow, as tables."""
    file = part.files[0]
    if part.format == Format.ARROW:
        first = 1
        for table in arrow_tables(file):
            yield NumberedTable(table, range(first, first + table.num_rows), "row")
            first += table.num_rows
        return
    attributes = folder_attributes(part.root, file)
    with opened_parquet(file) as opened:
        for group, first, rows in _row_groups(opened.metadata, part):
            done = 0
            try:
                for table in tables_of_parquet(opened, attributes, [group]):
                    start = first + done
                    yield NumberedTable(table, range(start, start + table.num_rows), "row")
                    done += table.num_rows
            except (pa.ArrowException, OSError) as error:
                # The footer tells how many rows are lost; the other groups may be whole.
                reason = str(error).partition("\n")[0].rstrip(".")
                place = f"rows {first + done} to {first + rows - 1}"
                problem = f"the row group is damaged ({reason})"
                remedy = "Write the file again."
                records.unreadable(FileError(file, problem, remedy, place), rows - done)


def _row_groups(metadata: Any, part: Slice) -> Iterator[tuple[int, int, int]]:
    """The row groups that begin within the slice: number, first row, count of rows."""
    first = 1
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if part.whole or part.start <= _group_start(group) < part.end:
            yield number, first, group.num_rows
        first += group.num_rows


def _group_start(group: Any) -> int:
    if not group.num_columns:
        return 0
    column = group.column(0)
    pages = (column.dictionary_page_offset, column.data_page_offset)
    return min(int(page) for page in pages if page is not None)


def balanced_slices(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For slices of CSV files: whether the quotes balance on each line, as `number, balanced`."""
    for part in slices_of(batches):
        check_visible(part)
        blocks = line_blocks(part.files[0], part=part.lines)
        try:
            balanced = all(quotes_balance(block) for _, block in blocks)
        except FileError:
            balanced = False  # reading it will tell
        yield pa.RecordBatch.from_pydict({"number": [part.number], "balanced": [balanced]})


# --- events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EventReading:
    """How event files are read: see `files.events.EventSource`."""

    records: str | None = None
    schema: Mapping[str, Kind] = field(default_factory=dict)


def read_event_slices(
    reading: EventReading,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The worker's function: rows of `slices` in, rows of `staged_events` out."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in slices_of(batches):
            yield from staged(event_records(part, reading), STAGED_EVENTS.arrow)

    return read


def event_records(part: Slice, reading: EventReading) -> Iterator[Record]:
    """The blocks and the bad rows of a slice, and its end."""
    records = SliceRecords(part)
    blocks = _Blocks(records)
    rows = 0
    if part.problem is not None:
        records.unreadable(FileError(part.file, part.problem), 0 if part.end == 0 else None)
    else:
        check_visible(part)
        try:
            for numbered in _event_tables(part, reading, records):
                for block in blocks.of_table(numbered):
                    rows += block["rows"]
                    yield block
                if numbered.numbers:
                    records.read_up_to = numbered.unit, numbered.numbers[-1]
                yield from records.drained()
        except FileError as error:
            records.unreadable(error, rows_of_nothing(part))
    yield from records.drained()
    if blocks.like_subscriptions:
        records.remark = "these look like subscriptions, not events"
    yield records.end(rows)


def rows_of_nothing(part: Slice) -> int | None:
    """How many rows are lost with a file that cannot be read: none, or nobody knows."""
    return 0 if os.path.isfile(part.files[0]) and not os.path.getsize(part.files[0]) else None


def _event_tables(
    part: Slice, reading: EventReading, records: SliceRecords
) -> Iterator[NumberedTable]:
    if part.format in (Format.PARQUET, Format.ARROW):
        yield from table_batches(part, records)
        return
    for batch in row_batches(part, records, schema=reading.schema, pointer=reading.records):
        yield from numbered_tables(part.files[0], batch, records.report)


class _Blocks:
    """Cuts tables into blocks and names their events."""

    def __init__(self, records: SliceRecords) -> None:
        self.records = records
        self._subscription_like: bool | None = None

    @property
    def like_subscriptions(self) -> bool:
        """Whether all rows have the columns of subscriptions and no other."""
        return self._subscription_like is True

    def of_table(self, numbered: NumberedTable) -> Iterator[Record]:
        """The blocks of a table; rows whose `id` cannot be one are reported."""
        if self._subscription_like is not False and numbered.table.num_rows:
            columns = set(numbered.table.column_names)
            self._subscription_like = bool(columns & LANGUAGE_COLUMNS.keys()) and (
                columns <= {"id", *LANGUAGE_COLUMNS}
            )
        start = 0
        for table in cut(numbered.table):
            numbers = numbered.numbers[start : start + table.num_rows]
            start += table.num_rows
            block = self._block(table, numbers, numbered.unit)
            if block is not None:
                yield block

    def _block(self, table: pa.Table, numbers: Sequence[int], unit: str) -> Record | None:
        names = given_names(table)
        problems = {row: p for row, name in enumerate(names) if (p := identifier_problem(name))}
        if problems:
            for row, problem in problems.items():
                place = f"{unit} {numbers[row]}"
                original = original_of_row(table, row)
                self.records.report(BadRow(self.records.part.file, place, problem, original))
            kept = [row for row in range(len(names)) if row not in problems]
            table = rows_chosen(table, kept)
            names, numbers = [names[row] for row in kept], [numbers[row] for row in kept]
            if not kept:
                return None
        given = [name is not None for name in names]
        unnamed = [row for row, there in enumerate(given) if not there]
        if unnamed:
            part = table if len(unnamed) == len(names) else rows_chosen(table, unnamed)
            for row, name in zip(unnamed, content_hashes(part), strict=True):
                names[row] = name
        sequence, self.records.sequence = self.records.sequence, self.records.sequence + 1
        return self.records.record(
            "block",
            sequence=sequence,
            unit=unit,
            rows=len(names),
            names=names,
            given=given,
            positions=list(numbers),
            table=packed(table),
        )


def original_of_row(table: pa.Table, row: int) -> str:
    """A row of a table as a line of JSON."""
    (values,) = rows_of_table(table.slice(row, 1)) if table.num_columns else ({},)
    present = {name: value for name, value in values.items() if value is not None}
    return json.dumps(present, default=str, ensure_ascii=False)


# --- events of a frame -------------------------------------------------------------------------


def staged_frame_blocks(
    name: str,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The worker's function for rows of a Spark frame: events in, rows of `staged_events` out.

    The frame has two columns: `number`, Spark's growing numbers, and `event`, a struct of the
    attributes: within a struct a name may have dots, which Spark takes for paths elsewhere.

    Args:
        name: what the frame is called in reports.
    """

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from staged(_frame_records(batches, name), STAGED_EVENTS.arrow)

    return read


def _frame_records(batches: Iterable[pa.RecordBatch], name: str) -> Iterator[Record]:
    records: SliceRecords | None = None
    rows = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if records is None:
            partition = batch.column("number")[0].as_py() >> PARTITION_SHIFT
            records = SliceRecords(Slice(partition, name, [name], ""))
            blocks = _Blocks(records)
        event = batch.column("event")
        fields = [event.type.field(place).name for place in range(event.type.num_fields)]
        table = pa.table(event.flatten(), names=fields)
        numbers = range(rows + 1, rows + table.num_rows + 1)
        numbered = NumberedTable(table, numbers, "row")
        yield from blocks.of_table(numbered)
        yield from records.drained()
        rows += table.num_rows
    if records is not None:
        # Rows are counted as lines are: those of earlier partitions come before.
        yield records.end(rows) | {"lines": rows}
