"""JSON Lines and JSON documents, as batches of rows.

Integers are exact at any size. `NaN` and `Infinity` are understood. Of two equal names in one
object the last one counts. A row is an object; anything else is a bad row. Lines are decoded many
at a time; only where that fails are they looked at one by one, to tell which is bad and why.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from peersub.files.errors import BadRow, FileError, Report
from peersub.files.opening import LinesOf, Position, line_blocks, read_all

__all__ = ["Row", "RowBatch", "document_rows", "json_line_rows", "row_of_line"]

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows, and the place of each in its file: its number, counted in lines or in records."""

    rows: list[Row]
    numbers: list[int]
    unit: str

    def place(self, row: int) -> str:
        """Where a row stands in the file."""
        return f"{self.unit} {self.numbers[row]}"


RECORDS_PER_BATCH: Final = 8_192
_NAMES_SHOWN: Final = 5
_DECODER = msgspec.json.Decoder()
_FAILURES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) < 4300 else float(digits)


def _decode(data: bytes) -> Any:
    """One JSON value.

    Raises:
        ValueError: with the reason.
    """
    try:
        return _DECODER.decode(data)
    except _FAILURES:
        pass
    # Python's own decoder also knows NaN, and says better what is wrong.
    try:
        return json.loads(data.decode("utf-8"), parse_int=_integer)
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} is not UTF-8. Save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        place = f"at character {error.pos + 1}"
        if error.lineno > 1:
            place = f"at line {error.lineno}, character {error.colno}"
        raise ValueError(f"not JSON ({error.msg} {place})") from None
    except RecursionError:
        raise ValueError("the JSON is nested too deeply. Flatten it") from None


_KIND_NAMES = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}


def _not_an_object(value: object) -> str:
    return f"{_KIND_NAMES.get(type(value), 'a number')}, not an object"


def json_line_rows(
    name: str, report: Report, position: Position | None = None, part: LinesOf | None = None
) -> Iterator[RowBatch]:
    """The rows of a file, or of a part of it, with one JSON object per line.

    Blank lines are skipped. Of a part, lines are counted from 1 as well.
    """
    for first, block in line_blocks(name, position, part):
        lines = block.split(b"\n")
        numbers = [first + i for i, line in enumerate(lines) if line and not line.isspace()]
        try:
            values = _DECODER.decode_lines(block)
            sound = len(values) == len(numbers) and all(type(value) is dict for value in values)
        except _FAILURES:
            sound = False
        if sound:
            yield RowBatch(values, numbers, "line")
        else:
            yield _one_by_one(name, first, lines, numbers, report)


def _one_by_one(
    name: str, first: int, lines: list[bytes], numbers: list[int], report: Report
) -> RowBatch:
    batch = RowBatch([], [], "line")
    for number in numbers:
        line = lines[number - first]
        try:
            batch.rows.append(row_of_line(line))
        except ValueError as error:
            original = line.decode("utf-8", "replace").strip()
            reason = str(error)
            if reason.startswith(_KIND_NAMES[list]):
                reason += " A JSON array is read with the format json."
            report(BadRow(name, f"line {number}", reason, original))
        else:
            batch.numbers.append(number)
    return batch


def row_of_line(line: bytes) -> Row:
    """The object on a line of JSON Lines.

    Raises:
        ValueError: there is none; the text says what to write.
    """
    try:
        value = _decode(line.strip())
    except ValueError as error:
        raise ValueError(f"{error}. Write one JSON object per line.") from None
    if isinstance(value, dict):
        return value
    raise ValueError(f"{_not_an_object(value)}. Write one JSON object per line.")


# --- documents ---------------------------------------------------------------------------------


def document_rows(
    name: str, records: str | None, report: Report, position: Position | None = None
) -> Iterator[RowBatch]:
    """The objects of an array: the document itself, or what `records`, a dotted name, points to."""
    data = read_all(name, position)
    if not data.strip():
        raise FileError(name, "the file is empty", "Write a JSON array of objects.")
    path = tuple(records.split(".")) if records else ()
    try:
        items: Sequence[Any] = _raw_records(name, data, path)
        decoded = False
    except FileError:
        raise
    except (ValueError, RecursionError):
        items = _whole_document(name, data, path)
        decoded = True
    for start in range(0, len(items), RECORDS_PER_BATCH):
        chunk = items[start : start + RECORDS_PER_BATCH]
        yield _record_batch(name, start, chunk if decoded else _decoded(name, chunk), report)


def _decoded(name: str, chunk: Sequence[Any]) -> list[Any]:
    try:
        values: list[Any] = _DECODER.decode_lines(b"\n".join(map(bytes, chunk)))
        if len(values) == len(chunk):
            return values
        return [_decode(bytes(item)) for item in chunk]
    except (*_FAILURES, ValueError) as error:
        raise FileError(name, str(error)) from None


def _record_batch(name: str, start: int, values: Sequence[Any], report: Report) -> RowBatch:
    batch = RowBatch([], [], "record")
    for number, value in enumerate(values, start + 1):
        if isinstance(value, dict):
            batch.rows.append(value)
            batch.numbers.append(number)
        else:
            original = json.dumps(value, default=str)
            report(BadRow(name, f"record {number}", _not_an_object(value), original))
    return batch


def _raw_records(name: str, data: bytes, path: tuple[str, ...]) -> list[msgspec.Raw]:
    """The items of the array, not yet decoded: this keeps a large document small."""
    current: Any = data
    for depth, part in enumerate(path):
        if not bytes(current).lstrip().startswith(b"{"):
            raise _no_such_records(name, path[: depth + 1], ())
        names = msgspec.json.decode(current, type=dict[str, msgspec.Raw])
        if part not in names:
            raise _no_such_records(name, path[: depth + 1], names)
        current = names[part]
    if not bytes(current).lstrip().startswith(b"["):
        raise _no_array(name, path, _decode(bytes(current)))
    return msgspec.json.decode(current, type=list[msgspec.Raw])


def _whole_document(name: str, data: bytes, path: tuple[str, ...]) -> list[Any]:
    try:
        current = _decode(data)
    except ValueError as error:
        remedy = "Write a JSON array of objects."
        if "Extra data" in str(error):
            remedy = "If there is one object per line, use the format jsonl."
        raise FileError(name, str(error), remedy) from None
    for depth, part in enumerate(path):
        if not isinstance(current, dict) or part not in current:
            names = current if isinstance(current, dict) else ()
            raise _no_such_records(name, path[: depth + 1], names)
        current = current[part]
    if not isinstance(current, list):
        raise _no_array(name, path, current)
    return current


def _no_such_records(name: str, path: tuple[str, ...], names: Any) -> FileError:
    shown = ", ".join(list(names)[:_NAMES_SHOWN])
    remedy = f"There is: {shown}." if shown else "Point to an array of objects with --records."
    return FileError(name, f"there is nothing at {'.'.join(path)!r}", remedy)


def _no_array(name: str, path: tuple[str, ...], value: object) -> FileError:
    what = f"what {'.'.join(path)!r} points to" if path else "the document"
    if not isinstance(value, dict):
        return FileError(name, f"{what} is {_not_an_object(value)}", "Write an array of objects.")
    arrays = [key for key, item in value.items() if isinstance(item, list)][:_NAMES_SHOWN]
    prefix = ".".join((*path, ""))
    remedy = f"Point to one with --records: {', '.join(prefix + key for key in arrays)}."
    if not arrays:
        remedy = "Write an array of objects, or use the format jsonl for one object per line."
    return FileError(name, f"{what} is an object, not an array", remedy)
