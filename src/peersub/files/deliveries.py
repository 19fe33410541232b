"""Deliveries to files: who gets which event, as `event_id, subscription_id`.

The format is told by the name: JSON Lines, CSV or Parquet, the first two also compressed (`.gz`).
A file appears under its name only when it is complete: it is written beside it and then renamed.
Without a name deliveries go to standard output as JSON Lines, batch by batch.
"""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from json.encoder import encode_basestring as json_text
from typing import Any, BinaryIO, cast

from peersub.files.errors import FileError
from peersub.files.formats import STANDARD_INPUT, Format, format_of

__all__ = ["COLUMNS", "Deliver", "Deliveries", "check_output", "deliveries_to"]

COLUMNS = ("event_id", "subscription_id")


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Some deliveries: the k-th is of `events[event_of[k]]` to `subscriptions[subscription_of[k]]`.

    Names are listed once however often they occur: there are far more deliveries than names.
    """

    events: Sequence[str]
    subscriptions: Sequence[str]
    event_of: Sequence[int]
    subscription_of: Sequence[int]


Deliver = Callable[[Deliveries], None]
"""Writes some deliveries."""

_FORMATS = (Format.JSON_LINES, Format.CSV, Format.PARQUET)


def check_output(name: str | None, inputs: Iterable[str]) -> Format:
    """The format of an output file that can be written, checked before any work is done.

    Raises:
        FileError: it cannot be written, or is one of the inputs.
    """
    if name is None or name == STANDARD_INPUT:
        return Format.JSON_LINES
    folder = os.path.dirname(name) or "."
    if os.path.isdir(name):
        raise FileError(name, "this is a folder", "Name a file to write to.")
    if not os.path.isdir(folder):
        raise FileError(name, f"the folder {folder} does not exist", "Create it first.")
    if not os.access(folder, os.W_OK):
        raise FileError(name, f"the folder {folder} is not writable", "Check its permissions.")
    if any(os.path.exists(name) and _same(name, other) for other in inputs):
        raise FileError(name, "this is also an input", "Write to another file.")
    _check_ending(name)
    found = format_of(name, None, "the ending of the name")
    if found not in _FORMATS:
        raise FileError(name, f"deliveries cannot be written as {found}", _ENDINGS)
    return found


_ENDINGS = "Let the name end in .jsonl, .csv or .parquet."


def _check_ending(name: str) -> None:
    stem = name.lower().removesuffix(".gz")
    if not stem.endswith((".jsonl", ".ndjson", ".csv", ".parquet")):
        raise FileError(name, "the name does not tell the format", _ENDINGS)
    if stem != name.lower() and stem.endswith(".parquet"):
        raise FileError(name, "Parquet compresses by itself", "Leave out .gz.")


def _same(name: str, other: str) -> bool:
    return other != STANDARD_INPUT and os.path.exists(other) and os.path.samefile(name, other)


@contextmanager
def deliveries_to(name: str | None, inputs: Iterable[str] = ()) -> Iterator[Deliver]:
    """A function that writes deliveries; the file is complete when the context ends well."""
    found = check_output(name, inputs)
    if name is None or name == STANDARD_INPUT:
        stream = cast(BinaryIO, sys.stdout.buffer)
        yield lambda deliveries: _flushed(stream, _json_lines(deliveries))
        stream.flush()
        return
    temporary = f"{name}.{os.getpid()}.part"
    try:
        with _writer(temporary, found, compressed=name.lower().endswith(".gz")) as deliver:
            yield deliver
        os.replace(temporary, name)
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileError(
            name, f"it cannot be written ({reason})", "Free space, or choose another file."
        ) from None
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def _flushed(stream: BinaryIO, data: bytes) -> None:
    stream.write(data)
    stream.flush()


@contextmanager
def _writer(path: str, found: Format, *, compressed: bool) -> Iterator[Deliver]:
    if found is Format.PARQUET:
        with _parquet_writer(path) as deliver:
            yield deliver
        return
    encode = _csv_lines if found is Format.CSV else _json_lines
    with open(path, "xb") as raw:
        stream: Any = gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) if compressed else raw
        if found is Format.CSV:
            stream.write((",".join(COLUMNS) + "\r\n").encode())
        yield lambda deliveries: stream.write(encode(deliveries))
        if compressed:
            stream.close()
        raw.flush()
        os.fsync(raw.fileno())


@contextmanager
def _parquet_writer(path: str) -> Iterator[Deliver]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(column, pa.string()) for column in COLUMNS])

    with pq.ParquetWriter(path, schema) as writer:

        def deliver(deliveries: Deliveries) -> None:
            columns = (
                (deliveries.events, deliveries.event_of),
                (deliveries.subscriptions, deliveries.subscription_of),
            )
            arrays = [
                pa.array(names, pa.string()).take(pa.array(places, pa.int64()))
                for names, places in columns
            ]
            writer.write_table(pa.table(arrays, schema=schema))

        yield deliver


def _json_lines(deliveries: Deliveries) -> bytes:
    heads = [f'{{"event_id": {json_text(name)}, ' for name in deliveries.events]
    tails = [f'"subscription_id": {json_text(name)}}}\n' for name in deliveries.subscriptions]
    return _lines(heads, tails, deliveries)


def _csv_lines(deliveries: Deliveries) -> bytes:
    heads = [f"{_csv_cell(name)}," for name in deliveries.events]
    tails = [f"{_csv_cell(name)}\r\n" for name in deliveries.subscriptions]
    return _lines(heads, tails, deliveries)


def _lines(heads: list[str], tails: list[str], deliveries: Deliveries) -> bytes:
    """Each line is the head of its event and the tail of its subscription."""
    parts = [""] * (2 * len(deliveries.event_of))
    parts[::2] = map(heads.__getitem__, deliveries.event_of)
    parts[1::2] = map(tails.__getitem__, deliveries.subscription_of)
    return "".join(parts).encode("utf-8", "replace")


def _csv_cell(text: str) -> str:
    """A cell as RFC 4180 writes it."""
    quoted = any(mark in text for mark in ',"\r\n') or text != text.strip() or not text
    return '"' + text.replace('"', '""') + '"' if quoted else text
