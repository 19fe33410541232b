"""XML schemas from files: an XSD or a DTD, and the files beside it that it refers to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from peersub.files.errors import FileError
from peersub.files.opening import open_bytes

if TYPE_CHECKING:
    from peersub.workloads.xml.schema import Schema

__all__ = ["read_schema_file"]

SCHEMA_BYTES_MAX: Final = 16 << 20


def read_schema_file(name: str, root: str | None = None) -> Schema:
    """The schema of a file. What it includes is looked for in its folder, and below, only.

    Args:
        name: an XSD or a DTD.
        root: the element that documents begin with; by default the one that is in no other.

    Raises:
        FileError: the file cannot be read, or the generators cannot use what it says.
    """
    from peersub.workloads.xml import SchemaError, read_schema

    folder = os.path.dirname(os.path.abspath(name))

    def beside(location: str) -> bytes | None:
        path = os.path.normpath(os.path.join(folder, location))
        if not path.startswith(folder + os.sep) or not os.path.isfile(path):
            return None
        return _content(path)

    try:
        return read_schema(_content(name), root=root, resolve=beside)
    except SchemaError as error:
        raise FileError(name, str(error)) from None


def _content(name: str) -> bytes:
    with open_bytes(name) as stream:
        data = stream.read(SCHEMA_BYTES_MAX + 1)
    if len(data) > SCHEMA_BYTES_MAX:
        raise FileError(
            name, f"a schema has at most {SCHEMA_BYTES_MAX >> 20} MiB", "Name another file."
        )
    return data
