"""The mark beside a database: how far it was when something was last acknowledged.

The file is overwritten after each commit, and never waited for: it costs no second fsync. It is
behind the database, or even with it, unless the database lost transactions that it had committed.
When the store is closed, the file says so: after anything else, the database may have lost what
nobody remembers.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final
from zlib import crc32

from peersub.overlays.core.store_marks import StoreMark

__all__ = ["MARK", "MarkFile", "read_mark"]

MARK: Final = "node.mark"
_MODE: Final = 0o600
_BYTES_MAX: Final = 200
_OPEN: Final = "open--"
_CLOSED: Final = "closed"


class MarkFile:
    """Where a store says how far it is."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, _MODE)

    def write(self, mark: StoreMark) -> None:
        """All up to this mark is on disk. A disk that refuses leaves the earlier mark."""
        self._write(mark, _OPEN)

    def write_closed(self, mark: StoreMark) -> None:
        """The store ends, in order."""
        self._write(mark, _CLOSED)

    def _write(self, mark: StoreMark, state: str) -> None:
        text = f"{mark.epoch} {mark.commits:020} {mark.position:020} {state}"
        with suppress(OSError):
            os.pwrite(self._file, f"{text} {crc32(text.encode()):08x}\n".encode(), 0)

    def close(self) -> None:
        """No more is written."""
        os.close(self._file)


def read_mark(path: Path) -> tuple[StoreMark | None, bool]:
    """The mark, if there is one and it is whole; and whether the store was closed in order."""
    try:
        with open(path, encoding="ascii") as file:
            text, _, checksum = file.readline(_BYTES_MAX).rstrip("\n").rpartition(" ")
        epoch, commits, position, state = text.split(" ")
        if crc32(text.encode()) != int(checksum, 16):
            return None, False
        return StoreMark(epoch, int(commits), int(position)), state == _CLOSED
    except (OSError, ValueError):
        return None, False
