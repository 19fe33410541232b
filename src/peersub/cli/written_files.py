"""Files that commands write: under their name only when they are complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from peersub.files.errors import FileError

__all__ = ["text_file"]


@contextmanager
def text_file(name: str, option: str) -> Iterator[TextIO]:
    """A text file that appears under its name when it is complete."""
    temporary = f"{name}.{os.getpid()}.part"
    try:
        with open(temporary, "x", encoding="utf-8", errors="backslashreplace") as stream:
            yield stream
        os.replace(temporary, name)
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileError(name, f"it cannot be written ({reason})", f"Check {option}.") from None
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
