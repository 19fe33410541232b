"""Writing a trace: an observer that puts each record on a line."""

from __future__ import annotations

from typing import TextIO

from peersub.trace.schema import TraceRecord, header_line, record_line

__all__ = ["TraceWriter"]


class TraceWriter:
    """Writes what it observes, as JSON Lines after one line that says what it is a trace of."""

    def __init__(self, stream: TextIO, **about: str | int | None) -> None:
        self._write = stream.write
        self._write(f"{header_line(**about)}\n")

    def observe(self, record: TraceRecord) -> None:
        """Write the record."""
        self._write(f"{record_line(record)}\n")
