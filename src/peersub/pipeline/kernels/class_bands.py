"""Bands: the classes of a population in the order of their selectivity, some thousand to a folder.

A filter covers another only if it matches at least as many events of any sample. So the possible
coverers of a class lie in its own band and those above it, and the most selective ones are found
first by going up band by band. A folder holds the classes, sorted by (sampled, digest), and the
compiled index of their indexed forms (`witnesses`), whose ids are the rows.

Opened bands are kept per process, up to BANDS_OPEN_MAX; their arrays stay in the files until used.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from peersub.filters.filter import Filter
from peersub.matching.matcher import Matcher
from peersub.pipeline.kernels.whole_files import stamp_of, whole_file
from peersub.pipeline.kernels.witnesses import BODY, indexed_form

__all__ = ["BandFolder", "OpenBand", "filter_of", "open_band", "write_band"]

BANDS_OPEN_MAX: Final = 256
FILTERS_KEPT_MAX: Final = 32_768
"""Parsed filters that a process remembers: general ones are asked again and again."""
_CLASSES_FILE: Final = "classes.arrow"
_INDEX_FOLDER: Final = "index"
_EXPRESSION_WORDS: Final = ("RLIKE", "REGEXP")
"""A text without these has no regular expression, and is its own indexed form."""


@dataclass(frozen=True, slots=True)
class BandFolder:
    """Where a band lies, and what the classes in it match of the sample, at least and at most."""

    band: int
    folder: str
    rows: int
    sampled_min: int
    sampled_max: int


@lru_cache(maxsize=FILTERS_KEPT_MAX)
def filter_of(language: str, text: str) -> Filter:
    """The filter that a text stands for."""
    return Filter(text) if language == "sql" else Filter.xpath(text)


def write_band(classes: pa.Table, band: int, folder: str | Path) -> BandFolder:
    """Write some classes (digest, language, text, sampled) as one band below a folder.

    Writing it again, by whoever, gives the same files: each appears whole or not at all.
    """
    classes = classes.select(["digest", "language", "text", "sampled"])
    classes = classes.sort_by([("sampled", "ascending"), ("digest", "ascending")])
    place = Path(folder) / f"band-{band:05d}"
    place.mkdir(parents=True, exist_ok=True)
    matcher_of_rows(classes).save(place / _INDEX_FOLDER)
    with whole_file(place / _CLASSES_FILE) as file, pa.ipc.new_file(file, classes.schema) as writer:
        writer.write_table(classes)
    bounds = pc.min_max(classes["sampled"]).as_py()
    return BandFolder(band, str(place), classes.num_rows, bounds["min"], bounds["max"])


def matcher_of_rows(classes: pa.Table) -> Matcher:
    """The index of the classes' indexed forms, by their row."""
    texts: dict[str, str] = {}
    patterns: dict[str, Filter] = {}
    columns = (classes["language"].to_pylist(), classes["text"].to_pylist())
    for row, (language, text) in enumerate(zip(*columns, strict=True)):
        if language == "xpath":
            patterns[str(row)] = Filter.xpath(text)
        elif any(word in text.upper() for word in _EXPRESSION_WORDS):
            texts[str(row)] = indexed_form(Filter(text)).text
        else:
            texts[str(row)] = text
    matcher = Matcher.from_texts(list(texts), list(texts.values()), processes=1)
    for row_id, wanted in patterns.items():
        matcher.add(row_id, wanted)
    return matcher


class OpenBand:
    """A band that was opened: who matches events, and the filter of each row."""

    def __init__(self, folder: str) -> None:
        self.matcher = Matcher.open(Path(folder) / _INDEX_FOLDER)
        with pa.memory_map(str(Path(folder) / _CLASSES_FILE)) as source:
            classes = pa.ipc.open_file(source).read_all()
        self.rows: int = classes.num_rows
        self.sampled: np.ndarray = classes["sampled"].to_numpy()
        self.digests: list[bytes] = classes["digest"].to_pylist()
        self._languages = classes["language"]
        self._texts = classes["text"]

    def filter(self, row: int) -> Filter:
        """The filter of a row."""
        return filter_of(self._languages[row].as_py(), self._texts[row].as_py())

    def match(self, events: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """Which event, by its row, is matched by which class, by its row: each pair once."""
        found = self.matcher.match_batch(events, threads=1, body_column=BODY)
        events_of: list[Any] = [np.empty(0, np.int64)]
        rows_of: list[Any] = [np.empty(0, np.int64)]
        chunks = zip(found["event_row"].chunks, found["subscription_id"].chunks, strict=True)
        for event_rows, names in chunks:
            numbers = pc.cast(names.dictionary, pa.int64()).to_numpy(zero_copy_only=False)
            events_of.append(event_rows.to_numpy())
            rows_of.append(numbers[names.indices.to_numpy()])
        return np.concatenate(events_of), np.concatenate(rows_of)


_opened: OrderedDict[tuple[object, ...], OpenBand] = OrderedDict()


def open_band(folder: str) -> OpenBand:
    """The band in a folder; opened once per process while it is in use."""
    key = (folder, stamp_of(Path(folder) / _CLASSES_FILE))
    band = _opened.pop(key, None)
    if band is None:
        band = OpenBand(folder)
    _opened[key] = band
    while len(_opened) > BANDS_OPEN_MAX:
        _opened.popitem(last=False)
    return band
