"""Files that workers write for each other: there as a whole or not at all, and told apart when
written anew.

Two attempts at one task may write the same file at the same time; whoever is last replaces an equal
one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["stamp_of", "whole_file"]


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, which takes its place when the block ends well."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        Path(draft).chmod(0o644)  # workers of other users read it
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def stamp_of(path: Path) -> tuple[int, int]:
    """What changes when a file is written anew: a cache must not take the new one for the old.

    Raises:
        FileNotFoundError: it is not there; the message says what that may mean.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} was written by a worker and is not there: all workers must share the folder"
        ) from None
    return status.st_ino, status.st_mtime_ns
