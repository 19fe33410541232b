"""XML documents as events: one file is one event, its id is its name, its body its content.

Documents come from strangers: each is checked by the same careful parser that matching uses,
without entities, DTDs or network, and with bounds. One that is refused is a bad row.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

from peersub.events.envelope import IDENTIFIER_BYTES_MAX
from peersub.files.errors import BadRow, FileError, Report
from peersub.files.formats import STANDARD_INPUT, files_below
from peersub.files.json_rows import Row, RowBatch
from peersub.files.opening import Position, open_bytes

__all__ = ["document_problem", "xml_rows"]

DOCUMENTS_PER_BATCH: Final = 256
BATCH_BYTES_MAX: Final = 32 << 20
DOCUMENT_BYTES_MAX: Final = 16 << 20
_ORIGINAL_BYTES_KEPT: Final = 4_096


def xml_rows(
    name: str,
    report: Report,
    position: Position | None = None,
    files: Sequence[str] | None = None,
) -> Iterator[RowBatch]:
    """The documents of a folder, in the order of their paths, or the one document of a file.

    Args:
        name: the folder or the file.
        report: told of documents that are refused; in a folder also of those that cannot be read.
        position: is kept up to date.
        files: those of the folder that are meant; all that end in .xml by default.
    """
    folder = os.path.isdir(name)
    if files is None:
        files = list(files_below(name, ".xml")) if folder else [name]
    if not files:
        raise FileError(name, "the folder holds no .xml files", "Check the path.")
    done = 0
    if position is not None:
        position.total, position.where = len(files), lambda: done
    rows: list[Row] = []
    numbers: list[int] = []
    size = 0
    for number, file in enumerate(files, 1):
        try:
            body = _content(file)
            problem = document_problem(body)
        except FileError as error:
            if not folder:
                raise
            body, problem = b"", error.advice
        if problem is not None:
            original = body[:_ORIGINAL_BYTES_KEPT].decode("utf-8", "replace")
            report(BadRow(file, "document", problem, original))
            continue
        rows.append(_row(os.path.relpath(file, name) if folder else file, body))
        numbers.append(number)
        size += len(body)
        if len(rows) == DOCUMENTS_PER_BATCH or size >= BATCH_BYTES_MAX:
            yield RowBatch(rows, numbers, "document")
            rows, numbers, size, done = [], [], 0, number
    if rows:
        yield RowBatch(rows, numbers, "document")


def _content(file: str) -> bytes:
    with open_bytes(file) as stream:
        # One byte more than allowed is enough to be refused.
        return stream.read(DOCUMENT_BYTES_MAX + 1)


def _row(file: str, body: bytes) -> Row:
    """A name that is too long for an id is left out: the content then names the event."""
    name = os.path.basename(file) if os.path.isabs(file) else file.replace(os.sep, "/")
    if file == STANDARD_INPUT or len(os.fsencode(name)) > IDENTIFIER_BYTES_MAX:
        return {"body": body}
    return {"id": name, "body": body}


def document_problem(body: bytes | str) -> str | None:
    """Why a document cannot be matched; None if it can."""
    from peersub.filters.xpath.documents import DocumentError, parse_document

    try:
        parse_document(body)
    except DocumentError as error:
        return str(error)
    return None
