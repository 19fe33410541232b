"""Bands: classes that demand the same attribute, in the order of their selectivity, some thousand
to a folder.

A filter covers another only if it matches at least as many events of any sample. So the possible
coverers of a class lie in bands of its own selectivity and above, and the most selective ones are
found first by going up band by band. And it covers another only if what it demands of an event is
demanded there, too: of all bands only those of the attributes that a class demands are looked at,
and those of filters that demand none. A folder holds the classes, sorted by (sampled, digest), and
the compiled index of their indexed forms (`witnesses`), whose ids are the rows.

Opened bands are kept per process, up to BANDS_OPEN_MAX; their arrays stay in the files until used.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from peersub.filters.filter import Filter
from peersub.filters.summary import Summary
from peersub.matching.matcher import Matcher
from peersub.pipeline.kernels.whole_files import stamp_of, whole_file
from peersub.pipeline.kernels.witnesses import BODY, indexed_form

__all__ = [
    "NO_DEMAND",
    "BandFolder",
    "OpenBand",
    "demand_of",
    "demanding_kernel",
    "filter_of",
    "open_band",
    "write_band",
]

NO_DEMAND: Final = ""
"""Of filters that demand no attribute: patterns, and those that some events match without any."""

BANDS_OPEN_MAX: Final = 256
FILTERS_KEPT_MAX: Final = 32_768
"""Parsed filters that a process remembers: general ones are asked again and again."""
_CLASSES_FILE: Final = "classes.arrow"
_INDEX_FOLDER: Final = "index"
_EXPRESSION_WORDS: Final = ("RLIKE", "REGEXP")
"""A text without these has no regular expression, and is its own indexed form."""


@dataclass(frozen=True, slots=True)
class BandFolder:
    """Where a band lies, and what the classes in it match of the sample, at least and at most.

    Each of them demands the attribute, unless it is NO_DEMAND.
    """

    band: int
    folder: str
    rows: int
    sampled_min: int
    sampled_max: int
    demand: str = NO_DEMAND


@lru_cache(maxsize=FILTERS_KEPT_MAX)
def filter_of(language: str, text: str) -> Filter:
    """The filter that a text stands for."""
    return Filter(text) if language == "sql" else Filter.xpath(text)


def demand_of(wanted: Filter) -> str:
    """An attribute that each event must have which the filter matches, or NO_DEMAND.

    >>> demand_of(Filter("price > 10 AND (symbol = 'A' OR size < 3)"))
    'price'
    """
    if wanted.language != "sql" or not wanted.boxes:
        return NO_DEMAND
    needed = [{path[0] for path in box} for box in Summary(wanted).boxes]
    return min(set.intersection(*needed), default=NO_DEMAND)


def demanding_kernel(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Classes (digest, language, text, sampled), each with an attribute that it demands."""
    for batch in batches:
        columns = zip(batch["language"].to_pylist(), batch["text"].to_pylist(), strict=True)
        demands = [demand_of(filter_of(language, text)) for language, text in columns]
        yield batch.append_column("demand", pa.array(demands, pa.string()))


def write_band(
    classes: pa.Table, band: int, folder: str | Path, demand: str = NO_DEMAND
) -> BandFolder:
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
    return BandFolder(band, str(place), classes.num_rows, bounds["min"], bounds["max"], demand)


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
