"""Opening files, compressed or not, and what to say when that fails.

A text file may be compressed with gzip: its first bytes tell, not its name. `-` is standard input.
Reading goes in blocks of whole lines, so that memory stays bounded whatever the size of the file.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, cast

from peersub.files.errors import FileError
from peersub.files.formats import STANDARD_INPUT

__all__ = [
    "BLOCK_BYTES",
    "LINE_BYTES_MAX",
    "LinesOf",
    "Position",
    "explained",
    "is_compressed",
    "line_blocks",
    "open_bytes",
    "read_all",
]

BLOCK_BYTES: Final = 1 << 20
LINE_BYTES_MAX: Final = 32 << 20
"""A longer line is no row of a table, but a file of another format, or an attack."""
DOCUMENT_BYTES_MAX: Final = 1 << 30
"""Of a JSON document, which is held in memory as a whole."""
_GZIP_MAGIC: Final = b"\x1f\x8b"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@dataclass(slots=True)
class Position:
    """How far a file is read, in units of its own; a total of 0 is unknown."""

    total: int = 0
    where: Callable[[], int] | None = None

    @property
    def done(self) -> int:
        """How much is read; at most the total."""
        try:
            return 0 if self.where is None else min(self.where(), self.total)
        except ValueError:
            return self.total  # the file is closed


@dataclass(frozen=True, slots=True)
class LinesOf:
    """The lines of a file that begin within a range of its bytes; it may not be compressed.

    Law: ranges that follow each other from 0 to the size of a file hold each line exactly once.
    """

    start: int
    end: int

    def bytes_of(self, stream: BinaryIO) -> tuple[int, int]:
        """The range from the first line's first byte to after the last line's last."""
        first = self._line_start(stream, self.start, self.end)
        return first, self._line_start(stream, self.end, None) if first < self.end else first

    @staticmethod
    def _line_start(stream: BinaryIO, offset: int, limit: int | None) -> int:
        """Where the first line begins at or after an offset; looked for up to a limit."""
        if offset == 0:
            return 0
        # A line begins at the offset itself if the byte before it ends one.
        stream.seek(offset - 1)
        place = offset - 1
        while limit is None or place < limit:
            block = stream.read(BLOCK_BYTES)
            end = block.find(b"\n")
            if end >= 0 or not block:
                return place + end + 1
            place += len(block)
        return place


class _Range(io.RawIOBase):
    """The bytes of a range of a file, as a file of its own."""

    def __init__(self, stream: BinaryIO, start: int, end: int) -> None:
        super().__init__()
        self._stream, self._left = stream, end - start
        stream.seek(start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Errors of the system and of decompression, in words that say what to do."""
    try:
        yield
    except FileNotFoundError:
        raise FileError(name, "there is no such file", "Check the path.") from None
    except IsADirectoryError:
        raise FileError(name, "this is a folder", "Name a file.") from None
    except PermissionError:
        raise FileError(name, "reading it is not permitted", "Check its permissions.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise FileError(
            name, "the gzip data are cut off or damaged", "Copy or compress the file again."
        ) from None
    except OSError as error:
        # pyarrow's errors are of this class too and have no number.
        reason = error.strerror or str(error).partition("\n")[0]
        raise FileError(name, f"it cannot be read ({reason})", "Check the file.") from None


def is_compressed(name: str) -> bool:
    """Whether the content of a file is compressed, whatever its name says."""
    with explained(name), open(name, "rb") as raw:
        return raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC


@contextmanager
def open_bytes(
    name: str, position: Position | None = None, part: LinesOf | None = None
) -> Iterator[BinaryIO]:
    """The content of a file, or of a part of it, as a stream of bytes, decompressed."""
    with explained(name):
        if name == STANDARD_INPUT:
            yield cast(BinaryIO, sys.stdin.buffer)
            return
        with open(name, "rb") as raw:
            if position is not None:
                position.total, position.where = os.fstat(raw.fileno()).st_size, raw.tell
            if part is not None:
                yield cast(
                    BinaryIO, io.BufferedReader(_Range(raw, *part.bytes_of(raw)), BLOCK_BYTES)
                )
            elif raw.peek(2)[:2] == _GZIP_MAGIC:
                with gzip.GzipFile(fileobj=raw, mode="rb") as unpacked:
                    yield cast(BinaryIO, unpacked)
            else:
                yield raw


def line_blocks(
    name: str, position: Position | None = None, part: LinesOf | None = None
) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines, each with the number of its first line; without byte-order mark.

    Of a part, lines are counted from 1 as well.
    """
    line = 1
    rest = b""
    with open_bytes(name, position, part) as stream:
        # What has arrived on a pipe is handled at once, not when a block is full.
        read = getattr(stream, "read1", stream.read) if name == STANDARD_INPUT else stream.read
        first = part is None or part.start == 0
        while block := read(BLOCK_BYTES):
            if first:
                block, first = block.removeprefix(_BYTE_ORDER_MARK), False
            end = block.rfind(b"\n") + 1
            if end == 0:
                rest += block
                if len(rest) > LINE_BYTES_MAX:
                    raise FileError(
                        name,
                        f"the line is longer than {LINE_BYTES_MAX >> 20} MiB",
                        "Check that the file is of the format you think.",
                        place=f"line {line}",
                    )
                continue
            whole = rest + block[:end]
            rest = block[end:]
            yield line, whole
            line += whole.count(b"\n")
    if rest:
        yield line, rest


def read_all(name: str, position: Position | None = None) -> bytes:
    """A whole file, if it is not too large to be held in memory."""
    with open_bytes(name, position) as stream:
        data = stream.read(DOCUMENT_BYTES_MAX + 1)
    if len(data) > DOCUMENT_BYTES_MAX:
        raise FileError(
            name,
            f"the document is larger than {DOCUMENT_BYTES_MAX >> 30} GiB",
            "Write its records as JSON Lines, one per line.",
        )
    return data.removeprefix(_BYTE_ORDER_MARK)
