"""CSV as columns of values: RFC 4180, with a header.

A cell has the kind that JSON would give it (`events.inference`), unless a schema says otherwise. An
empty cell is missing, quoted or not: the format has no other way to say so that all programs write.
Blank lines are skipped. A row with more or fewer cells than the header is a bad row.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any, Final

from peersub.events.inference import value_of_cell, value_of_cell_as
from peersub.events.kinds import Kind
from peersub.files.errors import BadRow, FileError, Report, first_repeated
from peersub.files.json_rows import RowBatch
from peersub.files.opening import Position, open_bytes

__all__ = ["csv_rows"]

ROWS_PER_BATCH: Final = 8_192
CELL_CHARACTERS_MAX: Final = 16 << 20


def csv_rows(
    name: str,
    schema: Mapping[str, Kind],
    report: Report,
    position: Position | None = None,
    *,
    as_text: bool = False,
) -> Iterator[RowBatch]:
    """The rows of a CSV file, by the names of its header; all cells stay text if `as_text`."""
    # The bound is the csv module's own and holds for the process.
    csv.field_size_limit(CELL_CHARACTERS_MAX)
    with open_bytes(name, position) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
        reader = csv.reader(text, strict=True)
        try:
            header = _header(name, _next(name, reader), schema)
            kinds = dict.fromkeys(header, Kind.STRING) if as_text else schema
            yield from _batches(name, reader, header, kinds, report)
        finally:
            text.detach()


def _next(name: str, reader: Any) -> list[str] | None:
    """The next row that is not blank, None at the end."""
    try:
        for cells in reader:
            if cells:
                return cells  # type: ignore[no-any-return]
    except csv.Error as error:
        remedy = 'Quote cells as RFC 4180 says: "…", with quotes inside doubled.'
        raise FileError(f"{name}, line {reader.line_num}", f"not CSV ({error})", remedy) from None
    except UnicodeDecodeError as error:
        raise FileError(
            name,
            f"not UTF-8 after line {reader.line_num} (byte {error.object[error.start]:#04x})",
            "Save the file as UTF-8.",
        ) from None
    return None


def _header(name: str, cells: list[str] | None, schema: Mapping[str, Kind]) -> list[str]:
    if cells is None:
        raise FileError(name, "the file is empty", "A CSV file begins with a header of names.")
    for place, cell in enumerate(cells, 1):
        if not cell:
            raise FileError(name, f"column {place} has no name in the header", "Give it one.")
    repeated = first_repeated(cells)
    if repeated is not None:
        raise FileError(
            name, f"the header has the name {repeated!r} twice", "Give each column its own name."
        )
    unknown = next((column for column in schema if column not in cells), None)
    if unknown is not None:
        raise FileError(
            name,
            f"the schema names {unknown!r}, which is no column",
            f"The columns are: {', '.join(cells)}.",
        )
    return cells


def _batches(
    name: str, reader: Any, header: list[str], schema: Mapping[str, Kind], report: Report
) -> Iterator[RowBatch]:
    ended = False
    while not ended:
        rows: list[list[str]] = []
        numbers: list[int] = []
        while len(rows) < ROWS_PER_BATCH:
            start = reader.line_num + 1
            cells = _next(name, reader)
            if cells is None:
                ended = True
                break
            if len(cells) != len(header):
                reason = f"{len(cells)} cells where the header has {len(header)} names"
                report(BadRow(name, f"line {start}", _ragged(reason), _written(cells)))
                continue
            rows.append(cells)
            numbers.append(start)
        if rows:
            yield _valued(name, header, rows, numbers, schema, report)


def _ragged(reason: str) -> str:
    return f"{reason}. Quote cells that contain commas, and give each row as many cells."


def _written(cells: list[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(cells)
    return line.getvalue()


def _valued(
    name: str,
    header: list[str],
    rows: list[list[str]],
    numbers: list[int],
    schema: Mapping[str, Kind],
    report: Report,
) -> RowBatch:
    """Cells to values, column by column: each distinct text of a column is looked at once."""
    columns: list[list[Any]] = []
    bad: dict[int, str] = {}
    for column, cells in zip(header, zip(*rows, strict=True), strict=True):
        meanings, failures = _meanings(column, set(cells), schema.get(column))
        columns.append([meanings.get(cell) for cell in cells])
        if failures:
            for row, cell in enumerate(cells):
                if cell in failures:
                    bad.setdefault(row, f"{column}: {failures[cell]}")
    valued = [dict(zip(header, row, strict=True)) for row in zip(*columns, strict=True)]
    if not bad:
        return RowBatch(valued, numbers, "line")
    for row, reason in sorted(bad.items()):
        advice = f"{reason}. Correct it, or the schema."
        report(BadRow(name, f"line {numbers[row]}", advice, _written(rows[row])))
    kept = [row for row in range(len(rows)) if row not in bad]
    return RowBatch([valued[row] for row in kept], [numbers[row] for row in kept], "line")


def _meanings(
    column: str, texts: set[str], kind: Kind | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """The value of each text, and why others have none."""
    if kind is None:
        return {text: value_of_cell(text) for text in texts}, {}
    meanings: dict[str, Any] = {}
    failures: dict[str, str] = {}
    for text in texts:
        try:
            meanings[text] = value_of_cell_as(text, kind) if text else None
        except ValueError as error:
            failures[text] = str(error)
    return meanings, failures
