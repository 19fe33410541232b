"""Subscriptions from files: JSON Lines, CSV, Parquet or Arrow with `id` and `filter` or `xpath`.

Every row is either kept or reported with its place and the reason: kept and bad rows add up to
the rows of the file. Whether a filter can be parsed is for the caller to find out, who words the
report with `SubscriptionList.bad`. Other columns are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from peersub.events.arrow import rows_of_table
from peersub.events.envelope import identifier_of
from peersub.files.arrow_tables import arrow_tables, parquet_tables
from peersub.files.csv_rows import csv_rows
from peersub.files.errors import BadRow, FileError, Report, refuse_row
from peersub.files.formats import Format, format_of
from peersub.files.json_rows import RowBatch, document_rows, json_line_rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "SubscriptionList",
    "WrongSubscriptionError",
    "original_of_filter",
    "read_subscriptions",
    "require_columns",
    "rows_of_subscriptions",
    "subscription_of_row",
    "taken",
]

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
        original = original_of_filter(self.ids[row], self.languages[row], self.texts[row])
        return BadRow(self.name, f"{self.unit} {self.numbers[row]}", reason, original)


def original_of_filter(identifier: str, language: str, text: str) -> str:
    """A subscription as a line of JSON.

    >>> original_of_filter("s1", "sql", "a > 1")
    '{"id": "s1", "filter": "a > 1"}'
    """
    column = "xpath" if language == "xpath" else "filter"
    return json.dumps({"id": identifier, column: text}, ensure_ascii=False)


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
            except WrongSubscriptionError as error:
                original = json.dumps(row, default=str, ensure_ascii=False)
                counted(BadRow(name, f"{batch.unit} {number}", str(error), original))
    if not found.ids and not bad:
        raise FileError(name, "there are no subscriptions in it", _SHAPE)
    return found


class WrongSubscriptionError(ValueError):
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
            require_columns(name, list(batch.rows[0]))
            checked = True
        yield batch


def require_columns(name: str, columns: Sequence[str]) -> None:
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
        rows = rows_of_subscriptions(name, table)
        yield RowBatch(rows, list(range(first, first + len(rows))), "row")
        first += len(rows)


def rows_of_subscriptions(name: str, table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table, with those of its columns that make a subscription."""
    require_columns(name, table.column_names)
    wanted = [c for c in ("id", *LANGUAGE_COLUMNS) if c in table.column_names]
    return rows_of_table(table.select(wanted))


def subscription_of_row(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """The id, the language and the text of a subscription; whether it can be parsed is not asked.

    Raises:
        WrongSubscriptionError: why the row is no subscription.
    """
    identifier = identifier_of(row.get("id"))
    if not identifier:
        raise WrongSubscriptionError(f"the subscription has no id. {_SHAPE}")
    languages = [column for column in LANGUAGE_COLUMNS if row.get(column) is not None]
    if not languages:
        raise WrongSubscriptionError(f"the subscription {identifier!r} has no filter. {_SHAPE}")
    if len(languages) > 1:
        raise WrongSubscriptionError(
            f"the subscription {identifier!r} has both filter and xpath. "
            "Make two subscriptions of it."
        )
    text = row[languages[0]]
    if not isinstance(text, str):
        raise WrongSubscriptionError(
            f"the {languages[0]} of {identifier!r} is not text. Write it as a string."
        )
    return identifier, LANGUAGE_COLUMNS[languages[0]], text


def taken(identifier: str, place: str) -> str:
    """What to say of a subscription whose id another one has, which stands at that place."""
    return f"the id {identifier!r} is taken by {place}. Give each subscription its own id."


def _take(
    found: SubscriptionList, seen: dict[str, int], number: int, row: Mapping[str, Any]
) -> None:
    identifier, language, text = subscription_of_row(row)
    if identifier in seen:
        raise WrongSubscriptionError(taken(identifier, f"{found.unit} {seen[identifier]}"))
    seen[identifier] = number
    found.ids.append(identifier)
    found.texts.append(text)
    found.languages.append(language)
    found.numbers.append(number)
