"""The input as slices: small rows that say which worker reads what.

The driver lists files and their sizes, and reads nothing of them but the first two bytes, which
tell whether a file is compressed. The input is a file or a folder; a folder may hold files of
several formats, told by their names, in the order of `files.formats.files_below`. Names that begin
with a dot or an underscore are left out, as everywhere.

What can be cut is cut into ranges of about the same number of bytes: JSON Lines, Parquet (a row
group belongs to the range in which it begins) and CSV. In CSV a cell may span lines, so that first
all workers together look whether any does (`balanced_slices`); a file with such a cell is one
slice. So are JSON documents, Arrow files and what is compressed. XML documents are collected, many
to a slice.

Invariants: slices in the order of their numbers are the input in its order, each row once. A file
that cannot be read is a slice too, with its `problem`: nothing that was listed is lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from peersub.events.kinds import Kind
from peersub.files.errors import FileError
from peersub.files.formats import STANDARD_INPUT, Format, files_below, format_of
from peersub.files.opening import is_compressed
from peersub.files.xml_rows import DOCUMENTS_PER_BATCH
from peersub.pipeline.kernels.reading import Slice, balanced_slices
from peersub.pipeline.schemas import SLICES

__all__ = ["EventInput", "SubscriptionInput", "frame_of_slices", "listed_slices", "sliced"]

SLICE_BYTES_MAX: Final = 16 << 20
"""A few seconds of a worker's time."""
SLICE_BYTES_MIN: Final = 1 << 20
"""Less is not worth a task of its own."""
SLICES_WANTED: Final = 8
"""A small input is cut into about so many slices, so that several workers have something to do."""

_CUT: Final = (Format.JSON_LINES, Format.CSV, Format.PARQUET)
_WITH_OWN_SCHEMA: Final = (Format.PARQUET, Format.ARROW)


@dataclass(frozen=True, slots=True)
class EventInput:
    """Where events come from; the fields mean what they mean in `files.events.EventSource`."""

    name: str
    format: Format | None = None
    records: str | None = None
    schema: Mapping[str, Kind] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SubscriptionInput:
    """Where subscriptions come from: a file or a folder."""

    name: str
    format: Format | None = None


def sliced(spark: Any, source: EventInput | SubscriptionInput, slice_bytes: int | None) -> Any:
    """The slices of an input, as a frame with one small row each.

    Args:
        spark: the session.
        source: the input.
        slice_bytes: about the bytes of a slice; by default it depends on the size of the input.

    Raises:
        FileError: there is no such input, or it cannot be read as asked.
    """
    slices = listed_slices(source, slice_bytes)
    uncertain = [part for part in slices if part.format == Format.CSV and not part.whole]
    if uncertain:
        rows = (
            frame_of_slices(spark, uncertain)
            .mapInArrow(balanced_slices, "number long, balanced boolean")
            .where("not balanced")
            .collect()
        )
        slices = with_balance(slices, {row.number for row in rows})
    return frame_of_slices(spark, slices)


def frame_of_slices(spark: Any, slices: Sequence[Slice]) -> Any:
    """The slices as a frame, spread over tasks of about the same number of bytes."""
    rows = [tuple(asdict(part).values()) for part in slices]
    size = sum(part.end - part.start for part in slices)
    largest = max((part.end - part.start for part in slices), default=0)
    tasks = min(len(slices), SLICES_WANTED + size // max(largest, 1))
    # From one partition, dealing out is even; Spark keeps a number of partitions that is named.
    return spark.createDataFrame(rows, SLICES.spark).coalesce(1).repartition(max(tasks, 1))


# --- listing -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    format: Format | None
    size: int = 0
    problem: str | None = None


def listed_slices(
    source: EventInput | SubscriptionInput, slice_bytes: int | None = None
) -> list[Slice]:
    """The slices of an input; whether cells of CSV files span lines is not known yet."""
    files = _files(source)
    _check_options(source, files)
    if slice_bytes is None:
        wanted = sum(file.size for file in files) // SLICES_WANTED
        slice_bytes = max(SLICE_BYTES_MIN, min(SLICE_BYTES_MAX, wanted))
    parts = _parts(source.name, files, slice_bytes)
    return [replace(part, number=number) for number, part in enumerate(parts)]


def _files(source: EventInput | SubscriptionInput) -> list[_File]:
    name = source.name
    is_events = isinstance(source, EventInput)
    option = "--events-format" if is_events else "--subscriptions-format"
    if name == STANDARD_INPUT:
        raise FileError(
            name, "the pipeline cannot read standard input", "Name a file, which workers can see."
        )
    if not os.path.exists(name):
        raise FileError(name, "there is no such file", "Check the path.")
    if not os.path.isdir(name):
        return [_file(name, format_of(name, source.format, option))]
    files = []
    for path in files_below(name, ""):
        try:
            files.append(_file(path, format_of(path, source.format, option)))
        except FileError as error:
            files.append(_File(path, None, _size(path), error.advice))
    if not files:
        raise FileError(name, "the folder holds no files", "Check the path.")
    return files


def _file(path: str, found: Format) -> _File:
    try:
        return _File(path, found, os.stat(path).st_size)
    except OSError as error:
        return _File(path, found, 0, f"it cannot be read ({error.strerror}). Check the file.")


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


def _check_options(source: EventInput | SubscriptionInput, files: Sequence[_File]) -> None:
    """Options that no file of the input has a use for are a mistake."""
    if not isinstance(source, EventInput):
        return
    formats = {file.format for file in files if file.format is not None}
    if source.records is not None and formats and Format.JSON not in formats:
        raise FileError(
            source.name,
            f"--records points into a JSON document, and this is {', '.join(sorted(formats))}",
            "Leave it out.",
        )
    if source.schema and formats and formats <= set(_WITH_OWN_SCHEMA):
        kinds = ", ".join(sorted(formats))
        raise FileError(source.name, f"{kinds} has a schema of its own", "Leave out --schema.")


# --- cutting -----------------------------------------------------------------------------------


def _parts(root: str, files: Sequence[_File], slice_bytes: int) -> Iterator[Slice]:
    documents: list[_File] = []
    seen = 0
    for file in files:
        if file.format is Format.XML and file.problem is None:
            documents.append(file)
            size = sum(document.size for document in documents)
            if len(documents) < DOCUMENTS_PER_BATCH and size < slice_bytes:
                continue
        if documents:
            yield _documents(root, documents, seen)
            seen += len(documents)
            documents = []
        if file.format is not Format.XML or file.problem is not None:
            yield from _parts_of_file(root, file, slice_bytes)
    if documents:
        yield _documents(root, documents, seen)


def _documents(root: str, documents: Sequence[_File], seen: int) -> Slice:
    paths = [document.path for document in documents]
    size = sum(document.size for document in documents)
    return Slice(0, root, paths, Format.XML.value, end=size, first=seen + 1)


def _parts_of_file(root: str, file: _File, slice_bytes: int) -> Iterator[Slice]:
    whole = Slice(
        0,
        root,
        [file.path],
        "" if file.format is None else file.format.value,
        end=file.size,
        problem=file.problem,
    )
    if file.problem is not None or file.format not in _CUT or file.size <= slice_bytes:
        yield whole
        return
    try:
        if file.format is not Format.PARQUET and is_compressed(file.path):
            yield whole
            return
    except FileError as error:
        yield replace(whole, problem=error.advice)
        return
    for start in range(0, file.size, slice_bytes):
        end = min(start + slice_bytes, file.size)
        yield replace(whole, whole=False, start=start, end=end)


def with_balance(slices: Sequence[Slice], unbalanced: set[int]) -> list[Slice]:
    """The slices once it is known on which of them quotes do not balance.

    Rows of a file without such slices are lines; any other CSV file becomes one slice.
    """
    files = {part.files[0] for part in slices if part.number in unbalanced}
    found: list[Slice] = []
    for part in slices:
        if part.format != Format.CSV or part.whole:
            found.append(part)
        elif part.files[0] not in files:
            found.append(replace(part, lines_are_rows=True))
        elif part.start == 0:
            size = max(other.end for other in slices if other.files == part.files)
            found.append(replace(part, whole=True, end=size, lines_are_rows=False))
    return [replace(part, number=number) for number, part in enumerate(found)]
