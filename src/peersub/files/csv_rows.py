"""CSV as columns of values: RFC 4180, with a header.

A cell has the kind that JSON would give it (`events.inference`), unless a schema says otherwise. An
empty cell is missing, quoted or not: the format has no other way to say so that all programs write.
Blank lines are skipped. A row with more or fewer cells than the header, or with bytes that are not
UTF-8, is a bad row.

A quoted cell may span lines, so that after a wrong quote nobody knows where the next row begins:
reading ends there. Where it is known that no cell does (`quotes_balance` on all of the file), rows
are lines, a part of the file can be read without the rest, and a wrong quote costs one row.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from peersub.events.inference import value_of_cell, value_of_cell_as
from peersub.events.kinds import Kind
from peersub.files.errors import BadRow, FileError, Report, first_repeated
from peersub.files.json_rows import RowBatch
from peersub.files.opening import LinesOf, Position, open_bytes

__all__ = ["csv_rows", "quotes_balance"]

ROWS_PER_BATCH: Final = 8_192
CELL_CHARACTERS_MAX: Final = 16 << 20


def csv_rows(
    name: str,
    schema: Mapping[str, Kind],
    report: Report,
    position: Position | None = None,
    *,
    as_text: bool = False,
    lines_are_rows: bool = False,
    part: LinesOf | None = None,
) -> Iterator[RowBatch]:
    """The rows of a CSV file, by the names of its header.

    Args:
        name: the file.
        schema: the kinds of some columns.
        report: told of bad rows.
        position: is kept up to date.
        as_text: whether all cells stay text.
        lines_are_rows: whether it is known that no cell spans lines.
        part: which lines to read; they are counted from 1. It needs `lines_are_rows`.
    """
    header = None
    if part is not None and part.start:
        with _reader(name) as reader:
            header = _header(name, reader, schema)
    with _reader(name, position, part) as reader:
        if header is None:
            header = _header(name, reader, schema)
        kinds = dict.fromkeys(header, Kind.STRING) if as_text else schema
        yield from _batches(name, reader, header, kinds, report, lines_are_rows)


@contextmanager
def _reader(
    name: str, position: Position | None = None, part: LinesOf | None = None
) -> Iterator[_Reader]:
    # The bound is the csv module's own and holds for the process.
    csv.field_size_limit(CELL_CHARACTERS_MAX)
    encoding = "utf-8" if part is not None and part.start else "utf-8-sig"
    with open_bytes(name, position, part) as stream:
        # A byte that is no UTF-8 becomes a lone surrogate, and is found in the cell it stands in.
        text = io.TextIOWrapper(stream, encoding, errors="surrogateescape", newline="")
        try:
            yield _Reader(text)
        finally:
            text.detach()


class _Reader:
    """Rows of cells; the text of the last line stays known, for the report of a wrong one."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text
        self.last_line = ""
        self._cells = csv.reader(self._lines(), strict=True)

    def _lines(self) -> Iterator[str]:
        for line in self._text:
            self.last_line = line
            yield line

    @property
    def line_num(self) -> int:
        return self._cells.line_num

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        return next(self._cells)


def quotes_balance(lines: bytes) -> bool:
    r"""Whether each of these whole lines has its quotes in pairs, and ends as all others do.

    If it holds for all of a file, no cell spans lines.

    >>> [quotes_balance(text) for text in (b'a,"b"\n1,2\r\n', b'"a\nb"\n', b"a\rb\n")]
    [True, False, False]
    """
    import numpy as np

    if lines.count(b"\r") != lines.count(b"\r\n"):
        return False  # a line end of old, which ends a row as well
    if b'"' not in lines:
        return True
    data = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    line_of_quote = np.searchsorted(ends, np.flatnonzero(data == ord('"')))
    return not np.any(np.bincount(line_of_quote) & 1)


class _WrongQuoteError(FileError):
    """A row that cannot be told from the next."""


def _next(name: str, reader: _Reader) -> tuple[int, list[str]] | None:
    """The next row that is not blank, with the number of its first line; None at the end."""
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            remedy = 'Quote cells as RFC 4180 says: "…", with quotes inside doubled.'
            raise _WrongQuoteError(
                name, f"not CSV ({error})", remedy, place=f"line {start}"
            ) from None
        if cells is None:
            return None
        if cells:
            return start, cells


def _not_unicode(text: str) -> str | None:
    """What to say of a text with bytes that are not UTF-8; None if all are."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            byte = text[error.start].encode("utf-8", "surrogateescape")[0]
            return f"byte {byte:#04x} is not UTF-8. Save the file as UTF-8."
    return None


def _header(name: str, reader: _Reader, schema: Mapping[str, Kind]) -> list[str]:
    found = _next(name, reader)
    if found is None:
        raise FileError(name, "the file is empty", "A CSV file begins with a header of names.")
    _, cells = found
    for place, cell in enumerate(cells, 1):
        problem = _not_unicode(cell)
        if problem is not None:
            raise FileError(name, f"in the header, {problem}")
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
    name: str,
    reader: _Reader,
    header: list[str],
    schema: Mapping[str, Kind],
    report: Report,
    lines_are_rows: bool,
) -> Iterator[RowBatch]:
    ended = False
    while not ended:
        rows: list[list[str]] = []
        numbers: list[int] = []
        while len(rows) < ROWS_PER_BATCH:
            try:
                found = _next(name, reader)
            except _WrongQuoteError as error:
                if not lines_are_rows:
                    if rows:
                        yield _valued(name, header, rows, numbers, schema, report)
                    raise
                original = _shown(reader.last_line.rstrip("\r\n"))
                report(BadRow(name, error.place, error.advice, original))
                continue
            if found is None:
                ended = True
                break
            start, cells = found
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
    return _shown(line.getvalue())


def _shown(text: str) -> str:
    """The text with a sign in place of each byte that is not UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


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
        report(BadRow(name, f"line {numbers[row]}", reason, _written(rows[row])))
    kept = [row for row in range(len(rows)) if row not in bad]
    return RowBatch([valued[row] for row in kept], [numbers[row] for row in kept], "line")


def _meanings(
    column: str, texts: set[str], kind: Kind | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """The value of each text, and why others have none."""
    failures = {text: problem for text in texts if (problem := _not_unicode(text))}
    if failures:
        texts = texts - failures.keys()
    if kind is None:
        return {text: value_of_cell(text) for text in texts}, failures
    meanings: dict[str, Any] = {}
    for text in texts:
        try:
            meanings[text] = value_of_cell_as(text, kind) if text else None
        except ValueError as error:
            failures[text] = f"{error}. Correct it, or the schema."
    return meanings, failures
