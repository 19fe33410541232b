"""The formats of files, told by the end of their names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import StrEnum

from peersub.files.errors import FileError

__all__ = ["STANDARD_INPUT", "Format", "files_below", "format_named", "format_of"]

STANDARD_INPUT = "-"


class Format(StrEnum):
    """What a file is written in."""

    JSON_LINES = "jsonl"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"
    XML = "xml"


_BY_ENDING = {
    ".jsonl": Format.JSON_LINES,
    ".ndjson": Format.JSON_LINES,
    ".json": Format.JSON,
    ".geojson": Format.JSON,
    ".csv": Format.CSV,
    ".parquet": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".arrows": Format.ARROW,
    ".feather": Format.ARROW,
    ".ipc": Format.ARROW,
    ".xml": Format.XML,
}


def format_named(name: str) -> Format:
    """The format with this name.

    Raises:
        ValueError: there is none.
    """
    try:
        return Format(name.lower())
    except ValueError:
        known = ", ".join(Format)
        raise ValueError(f"{name!r} is no format that is known; use one of {known}") from None


def format_of(name: str, given: Format | None, option: str) -> Format:
    """The format that is given, or the one that the name tells; `option` is named in the advice."""
    if given is not None:
        return given
    if name == STANDARD_INPUT:
        return Format.JSON_LINES
    if os.path.isdir(name):
        return _format_of_folder(name, option)
    stem = name.lower().removesuffix(".gz")
    found = _BY_ENDING.get(os.path.splitext(stem)[1])
    if found is None:
        if not os.path.lexists(name):
            raise FileError(name, "there is no such file", "Check the path.")
        known = ", ".join(Format)
        raise FileError(
            name, "the name does not tell the format", f"Say it with {option}: {known}."
        )
    return found


def _format_of_folder(name: str, option: str) -> Format:
    for ending, found in ((".parquet", Format.PARQUET), (".xml", Format.XML)):
        if next(files_below(name, ending), None) is not None:
            return found
    raise FileError(
        name,
        "the folder holds neither .parquet nor .xml files",
        f"Name a file, or say the format with {option}.",
    )


def files_below(folder: str, ending: str) -> Iterator[str]:
    """The files of a folder and its folders that end so, in the order of their paths.

    Names that begin with a dot or an underscore are bookkeeping of programs that write folders.
    """

    def refuse(error: OSError) -> None:
        raise FileError(folder, f"the folder cannot be read ({error.strerror})") from None

    for here, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if name[0] not in "._")
        for name in sorted(names):
            if name[0] not in "._" and name.lower().endswith(ending):
                yield os.path.join(here, name)
