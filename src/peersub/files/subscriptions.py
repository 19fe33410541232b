"""Subscriptions from files: JSON Lines, CSV, Parquet or Arrow with `id` and `filter` or `xpath`.

Every row is either kept or reported with its place and the reason: kept and bad rows add up to
the rows of the file. Whether a filter can be parsed is for the caller to find out, who words the
report with `SubscriptionList.bad`. Other columns are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from peersub.events.arrow import rows_of_table
from peersub.events.envelope import identifier_of
from peersub.files.arrow_tables import arrow_tables, parquet_tables
from peersub.files.csv_rows import csv_rows
from peersub.files.errors import BadRow, FileError, Report, refuse_row
from peersub.files.formats import Format, format_of
from peersub.files.json_rows import RowBatch, document_rows, json_line_rows

__all__ = ["SubscriptionList", "read_subscriptions"]

LANGUAGE_COLUMNS: Final = {"filter": "sql", "xpath": "xpath"}
_SHAPE: Final = 'Write {"id": "s1", "filter": "price > 10"}, or "xpath" in place of "filter".'


@dataclass(slots=True)
class SubscriptionList:
    """The subscriptions of a file, column by column, and where each was found."""

    name: str
    unit: str = "row"
    ids: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)

    def bad(self, row: int, reason: str) -> BadRow:
        """The report of a subscription whose filter was refused."""
        column = "xpath" if self.languages[row] == "xpath" else "filter"
        original = json.dumps({"id": self.ids[row], column: self.texts[row]}, ensure_ascii=False)
        return BadRow(self.name, f"{self.unit} {self.numbers[row]}", reason, original)


def read_subscriptions(
    name: str, given: Format | None = None, report: Report = refuse_row
) -> SubscriptionList:
    """The subscriptions of a file.

    Raises:
        FileError: the file cannot be read, holds no subscription, or `report` refuses a row.
    """
    kind = format_of(name, given, "--subscriptions-format")
    found = SubscriptionList(name)
    seen: dict[str, int] = {}
    bad = 0

    def counted(row: BadRow) -> None:
        nonlocal bad
        bad += 1
        report(row)

    for batch in _row_batches(name, kind, counted):
        found.unit = batch.unit
        for number, row in zip(batch.numbers, batch.rows, strict=True):
            try:
                _take(found, seen, number, row)
            except _WrongRowError as error:
                original = json.dumps(row, default=str, ensure_ascii=False)
                counted(BadRow(name, f"{batch.unit} {number}", str(error), original))
    if not found.ids and not bad:
        raise FileError(name, "there are no subscriptions in it", _SHAPE)
    return found


class _WrongRowError(ValueError):
    """Why a row is no subscription."""


def _row_batches(name: str, kind: Format, report: Report) -> Iterator[RowBatch]:
    match kind:
        case Format.JSON_LINES:
            return json_line_rows(name, report)
        case Format.JSON:
            return document_rows(name, None, report)
        case Format.CSV:
            return _with_columns(name, csv_rows(name, {}, report, as_text=True))
        case Format.PARQUET | Format.ARROW:
            return _table_rows(name, kind)
        case _:
            remedy = "Use JSON Lines, CSV or Parquet."
            raise FileError(name, f"subscriptions cannot be read from {kind}", remedy)


def _with_columns(name: str, batches: Iterator[RowBatch]) -> Iterator[RowBatch]:
    """The same batches, once the first row has shown the columns that are needed."""
    checked = False
    for batch in batches:
        if batch.rows and not checked:
            _require_columns(name, list(batch.rows[0]))
            checked = True
        yield batch


def _require_columns(name: str, columns: Sequence[str]) -> None:
    """A table without the right columns has one fault, not one in each row."""
    lacking = [] if "id" in columns else ["id"]
    if not any(column in columns for column in LANGUAGE_COLUMNS):
        lacking.append("filter or xpath")
    if lacking:
        there = ", ".join(columns[:8]) + (", …" if len(columns) > 8 else "")
        raise FileError(
            name,
            f"there is no column {' and no column '.join(lacking)}",
            f"Subscriptions need the columns id and filter (or xpath). There are: {there}.",
        )


def _table_rows(name: str, kind: Format) -> Iterator[RowBatch]:
    first = 1
    for table in parquet_tables(name) if kind is Format.PARQUET else arrow_tables(name):
        _require_columns(name, table.column_names)
        wanted = [c for c in ("id", *LANGUAGE_COLUMNS) if c in table.column_names]
        rows = rows_of_table(table.select(wanted))
        yield RowBatch(rows, list(range(first, first + len(rows))), "row")
        first += len(rows)


def _take(
    found: SubscriptionList, seen: dict[str, int], number: int, row: Mapping[str, Any]
) -> None:
    identifier = identifier_of(row.get("id"))
    if not identifier:
        raise _WrongRowError(f"the subscription has no id. {_SHAPE}")
    languages = [column for column in LANGUAGE_COLUMNS if row.get(column) is not None]
    if not languages:
        raise _WrongRowError(f"the subscription {identifier!r} has no filter. {_SHAPE}")
    if len(languages) > 1:
        raise _WrongRowError(
            f"the subscription {identifier!r} has both filter and xpath. "
            "Make two subscriptions of it."
        )
    text = row[languages[0]]
    if not isinstance(text, str):
        raise _WrongRowError(
            f"the {languages[0]} of {identifier!r} is not text. Write it as a string."
        )
    if identifier in seen:
        raise _WrongRowError(
            f"the id {identifier!r} is taken by {found.unit} {seen[identifier]}. "
            "Give each subscription its own id."
        )
    seen[identifier] = number
    found.ids.append(identifier)
    found.texts.append(text)
    found.languages.append(LANGUAGE_COLUMNS[languages[0]])
    found.numbers.append(number)
