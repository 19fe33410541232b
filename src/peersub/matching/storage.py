"""Matchers on disk: one `.npy` file per array, so that opening maps and does not read.

A folder holds `matcher.json` (version, segments, patterns) and per segment a folder of arrays. It
is written beside its place and moved there when complete, so that nobody opens half a matcher. Many
processes of one machine share the pages of an opened matcher. It keeps no file open: a segment has
some fifty arrays, and a process may have hundreds of matchers but often no more than 1,024 files.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.lib import format as npy

from peersub.filters.filter import Filter
from peersub.matching.segment import Segment

__all__ = ["open_matcher", "save_matcher"]

VERSION = 1
_DESCRIPTION = "matcher.json"


def save_matcher(
    folder: str | Path, segments: Sequence[Segment], patterns: Iterable[tuple[str, Filter]]
) -> None:
    """Write segments and patterns to a folder, in place of a matcher that is there.

    Raises:
        FileExistsError: the folder is there and holds something else.
    """
    target = Path(folder)
    is_free = not target.exists() or (target.is_dir() and not any(target.iterdir()))
    if not is_free and not (target / _DESCRIPTION).is_file():
        raise FileExistsError(f"{target} exists and is no saved matcher: choose another place")
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        for number, segment in enumerate(segments):
            _save_arrays(staging / f"segment-{number}", segment.arrays())
        description = {
            "version": VERSION,
            "segments": len(segments),
            "patterns": [[name, wanted.text] for name, wanted in patterns],
        }
        (staging / _DESCRIPTION).write_text(json.dumps(description), encoding="utf-8")
        _replace(staging, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _replace(staging: Path, target: Path) -> None:
    """Move the complete folder to its place; an older one makes room first."""
    if not target.exists():
        os.rename(staging, target)
        return
    retired = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    os.rename(target, retired / "old")
    os.rename(staging, target)
    shutil.rmtree(retired, ignore_errors=True)


def _save_arrays(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    folder.mkdir()
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def open_matcher(
    folder: str | Path,
) -> tuple[tuple[Segment, ...], list[tuple[str, Filter]]]:
    """The segments and patterns of a folder.

    Raises:
        ValueError: the folder holds no matcher, a damaged one, or one of another version.
    """
    source = Path(folder)
    try:
        description: dict[str, Any] = json.loads((source / _DESCRIPTION).read_text("utf-8"))
        version = description["version"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(f"{source} holds no saved matcher: write one with Matcher.save") from None
    if version != VERSION:
        raise ValueError(
            f"{source} was saved as version {version}, and this is version {VERSION}: save it again"
        )
    try:
        segments = tuple(
            Segment.from_arrays(_MappedArrays(source / f"segment-{number}"))
            for number in range(description["segments"])
        )
        patterns = [(name, Filter.xpath(text)) for name, text in description["patterns"]]
    except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
        raise ValueError(f"{source} is damaged ({error}): save the matcher again") from None
    return segments, patterns


class _MappedArrays(Mapping[str, np.ndarray]):
    """The arrays of a folder by name, each mapped when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self._paths = {path.stem: path for path in sorted(folder.glob("*.npy"))}

    def __getitem__(self, name: str) -> np.ndarray:
        return _mapped(self._paths[name])

    def __iter__(self) -> Any:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


_HEADERS: Final = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def _mapped(path: Path) -> np.ndarray:
    """The array of a `.npy` file, mapped and read-only; NumPy's own would keep the file open.

    Raises:
        ValueError: the file holds no array of numbers.
        TypeError: the file ends before the array does.
    """
    with pa.memory_map(str(path)) as file:
        read_header = _HEADERS.get(npy.read_magic(file))
        if read_header is None:
            raise ValueError(f"{path.name} has a header of another version")
        shape, is_by_column, kind = read_header(file)
        if kind.hasobject:
            raise ValueError(f"{path.name} holds objects")
        # The pages stay mapped as long as somebody holds this, the file closed or not.
        values = file.read_buffer()
    return np.ndarray(shape, kind, values, order="F" if is_by_column else "C")
