"""A slice of the input to subscriptions whose filters were parsed: what a worker does with files.

Each row of the input becomes one row of the staging dataset (`schemas.STAGED_SUBSCRIPTIONS`): a
subscription, with the digest of its filter or the reason why the filter does not parse, or a bad
row. Whether an id is taken is decided later, over all slices, and goes before that reason: so does
`peersub match`, which never parses the filter of a taken id.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from peersub.files.errors import BadRow, FileError
from peersub.files.formats import Format
from peersub.files.json_rows import RowBatch
from peersub.files.subscriptions import (
    WrongSubscriptionError,
    original_of_filter,
    require_columns,
    rows_of_subscriptions,
    subscription_of_row,
    taken,
)
from peersub.filters.errors import FilterError
from peersub.filters.filter import Filter
from peersub.pipeline.kernels.reading import (
    Slice,
    SliceRecords,
    check_visible,
    row_batches,
    rows_of_nothing,
    slices_of,
    staged,
    table_batches,
)
from peersub.pipeline.schemas import QUARANTINE, STAGED_SUBSCRIPTIONS

__all__ = [
    "read_subscription_slices",
    "subscription_records",
    "taken_subscriptions",
]

Record = dict[str, Any]


def read_subscription_slices(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The worker's function: rows of `slices` in, rows of `staged_subscriptions` out."""
    for part in slices_of(batches):
        yield from staged(subscription_records(part), STAGED_SUBSCRIPTIONS.arrow)


def subscription_records(part: Slice) -> Iterator[Record]:
    """The rows of a slice, and its end."""
    records = SliceRecords(part)
    if part.problem is not None:
        records.unreadable(FileError(part.file, part.problem), 0 if part.end == 0 else None)
    else:
        check_visible(part)
        try:
            for batch in _batches(part, records):
                found = sorted(
                    [*_rows(batch, records), *records.drained()],
                    key=lambda record: record["position"] or 0,
                )
                _number(found, records)
                for language, parse in (("sql", Filter), ("xpath", Filter.xpath)):
                    _judge([one for one in found if one.get("language") == language], parse)
                yield from found
                if batch.numbers:
                    records.read_up_to = batch.unit, batch.numbers[-1]
        except FileError as error:
            records.unreadable(error, rows_of_nothing(part))
    rest = records.drained()
    _number(rest, records)
    yield from rest
    yield records.end(records.sequence)


def _number(found: list[Record], records: SliceRecords) -> None:
    """Count what stands for one row; parts that cannot be read have no place among the rows."""
    for record in found:
        if record["rows"] == 1:
            record["sequence"] = records.sequence
            records.sequence += 1


def _batches(part: Slice, records: SliceRecords) -> Iterator[RowBatch]:
    file = part.files[0]
    match part.format:
        case Format.PARQUET | Format.ARROW:
            for numbered in table_batches(part, records):
                rows = rows_of_subscriptions(file, numbered.table)
                yield RowBatch(rows, list(numbered.numbers), numbered.unit)
        case Format.XML:
            remedy = "Use JSON Lines, CSV or Parquet."
            raise FileError(file, f"subscriptions cannot be read from {part.format}", remedy)
        case _:
            for batch in row_batches(part, records, schema={}, pointer=None, as_text=True):
                if part.format == Format.CSV and batch.rows:
                    require_columns(file, list(batch.rows[0]))
                yield batch


def _rows(batch: RowBatch, records: SliceRecords) -> Iterator[Record]:
    for number, row in zip(batch.numbers, batch.rows, strict=True):
        try:
            identifier, language, text = subscription_of_row(row)
        except WrongSubscriptionError as error:
            records.report(_bad(records, batch.unit, number, str(error), row))
            continue
        try:
            # Arrow carries no lone surrogates, and no filter can mean one.
            f"{identifier}{text}".encode()
        except UnicodeEncodeError:
            reason = "text that is no Unicode (a lone surrogate). Correct it."
            records.report(_bad(records, batch.unit, number, reason, row))
            continue
        yield records.record(
            "row",
            unit=batch.unit,
            position=number,
            rows=1,
            subscription_id=identifier,
            language=language,
            text=text,
        )


def _bad(
    records: SliceRecords, unit: str, number: int, reason: str, row: Mapping[str, Any]
) -> BadRow:
    original = json.dumps(row, default=str, ensure_ascii=False)
    original = original.encode("utf-8", "replace").decode()
    return BadRow(records.part.file, f"{unit} {number}", reason, original)


# --- parsing -----------------------------------------------------------------------------------


def _judge(found: list[Record], parse: Callable[[str], Filter]) -> None:
    """Give each row the digest of its filter, or the reason why it has none."""
    known: dict[str, bytes] = {}
    for record in found:
        text = record["text"]
        try:
            if text not in known:
                known[text] = parse(text).digest
            record["digest"] = known[text]
        except FilterError as error:
            _refuse(record, error)


def _refuse(record: Record, error: FilterError) -> None:
    original = original_of_filter(record["subscription_id"], record["language"], record["text"])
    record.update(reason=error.one_line(), original=original)


# --- taken ids ---------------------------------------------------------------------------------


def taken_subscriptions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Staged rows whose id is taken, with `place`, to rows of `quarantine`."""
    for batch in batches:
        found = []
        for row in batch.to_pylist():
            first = row["first_place"]
            if row["first_file"] != row["file"]:
                first = f"{first} of {row['first_file']}"
            found.append(
                {
                    "dataset": "subscriptions",
                    "file": row["file"],
                    "place": row["place"],
                    "reason": taken(row["subscription_id"], first),
                    "original": original_of_filter(
                        row["subscription_id"], row["language"], row["text"]
                    ),
                    "rows": 1,
                }
            )
        yield pa.RecordBatch.from_pylist(found, QUARANTINE.arrow)
