"""Many filter texts at once: parsed in worker processes, joined as arrays.

Parsing is what takes the time, and a process keeps one processor busy with it. A worker takes a
list of texts and gives back arrays (`TextColumns`): its filters' conjuncts in codes over bounds of
its own, with the digests of the filters and the errors. The parent joins the arrays (`combine`) and
never holds an object per filter or predicate. Equal filters share an entry, within a list and
across lists.

Workers import this module, so it imports nothing compiled at its top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from peersub.filters.errors import FilterError
from peersub.filters.filter import Filter
from peersub.filters.normal_form import Boxes
from peersub.matching.conjunct_builder import EncodedConjuncts, build
from peersub.matching.conjunct_merge import merge, numbers_by_first_use
from peersub.matching.named_arrays import WithPrefix, prefixed
from peersub.matching.packed_conjuncts import PackedConjuncts
from peersub.matching.parallel import parallel_map_chunks, processor_count

if TYPE_CHECKING:
    from peersub.matching.identifiers import Identifiers
    from peersub.matching.segment import Segment

__all__ = [
    "TextColumns",
    "columns_of_all_texts",
    "columns_of_texts",
    "combine",
    "segment_of_columns",
    "segment_of_texts",
]

NO_ENTRY: Final = -1
"""The entry of a text that is no filter."""
CHUNK_TEXTS: Final = 10_000
"""Texts per list: a second of parsing, a megabyte of arrays."""
PROCESS_TEXTS_MIN: Final = 20_000
"""Fewer are parsed before other processes would have started."""
DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class TextColumns:
    """Parsed texts as arrays."""

    encoded: EncodedConjuncts
    digests: np.ndarray
    """uint8[entries, 16]: the digest of each entry's filter."""
    row_entry: np.ndarray
    """int32[texts]: the entry of each text, by first use; NO_ENTRY where it is no filter."""
    errors: tuple[tuple[int, FilterError], ...]
    """Which texts are no filters, and why."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything by name, to be sent or saved; all texts must be filters."""
        assert not self.errors
        own = {"digests": self.digests, "row_entry": self.row_entry}
        return own | prefixed("conjuncts", PackedConjuncts.of(self.encoded).arrays())

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> TextColumns:
        """The columns whose arrays these are."""
        packed = PackedConjuncts.from_arrays(WithPrefix("conjuncts", arrays))
        return cls(packed.unpacked(), arrays["digests"], arrays["row_entry"], ())


def columns_of_texts(texts: Sequence[str | None]) -> TextColumns:
    """Parse a list of texts."""
    entries: dict[bytes, int] = {}
    known: dict[str | None, int] = {}
    boxes: list[Boxes] = []
    row_entry = np.empty(len(texts), np.int32)
    errors = []
    for row, text in enumerate(texts):
        entry = known.get(text)
        if entry is None:
            try:
                wanted = _filter_of(text)
            except FilterError as error:
                errors.append((row, error))
                row_entry[row] = NO_ENTRY
                continue
            entry = known[text] = entries.setdefault(wanted.digest, len(entries))
            if entry == len(boxes):
                boxes.append(wanted.boxes)
        row_entry[row] = entry
    digests = np.frombuffer(b"".join(entries), np.uint8).reshape(-1, DIGEST_BYTES)
    return TextColumns(build(boxes), digests, row_entry, tuple(errors))


def _filter_of(text: str | None) -> Filter:
    if text is None:
        raise FilterError("", 0, "the filter is missing", "Write a condition, or TRUE for all.")
    return Filter(text)


def combine(chunks: Sequence[TextColumns]) -> TextColumns:
    """The columns of lists of texts, at least one, as those of one list."""
    digests = np.concatenate([chunk.digests for chunk in chunks])
    numbers, first = numbers_by_first_use(digests)
    kept, row_entries, errors = [], [], []
    start = row = 0
    for chunk in chunks:
        places = np.arange(start, start + len(chunk.digests))
        mine = numbers[places]
        kept.append(np.where(first[mine] == places, mine, NO_ENTRY).astype(np.int32))
        with_none = np.append(mine, NO_ENTRY).astype(np.int32)
        row_entries.append(with_none[chunk.row_entry])  # NO_ENTRY picks the last
        errors += [(row + place, error) for place, error in chunk.errors]
        start += len(places)
        row += len(chunk.row_entry)
    return TextColumns(
        encoded=merge([chunk.encoded for chunk in chunks], kept),
        digests=digests[first],
        row_entry=np.concatenate(row_entries),
        errors=tuple(errors),
    )


def columns_of_all_texts(
    texts: Any, processes: int | None = None, progress: Callable[[int], None] | None = None
) -> TextColumns:
    """Parse a list or an Arrow array of texts, by several processes if there are many.

    Args:
        texts: strings, or None where there is none.
        processes: by default as many as there are processors.
        progress: called with the number of texts parsed so far.
    """
    if len(texts) < PROCESS_TEXTS_MIN:
        processes = 1
    parsed = 0
    chunks = []
    lists = _lists_of(texts)
    for chunk in parallel_map_chunks(columns_of_texts, lists, processes or processor_count()):
        chunks.append(chunk)
        parsed += len(chunk.row_entry)
        if progress is not None:
            progress(parsed)
    return combine(chunks or [columns_of_texts([])])


def _lists_of(texts: Any) -> Iterator[list[str | None]]:
    """The texts in lists of a bounded length; strings are made only when their turn comes."""
    for start in range(0, len(texts), CHUNK_TEXTS):
        part = texts[start : start + CHUNK_TEXTS]
        yield part.to_pylist() if hasattr(part, "to_pylist") else list(part)


def segment_of_texts(
    ids: Any,
    texts: Any,
    processes: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Segment:
    """The compiled subscriptions with these ids and filter texts.

    Raises:
        FilterError: of the first text that is no filter; its `row` is its place.
        ValueError: an id is missing or there twice, or there are more ids than texts.
    """
    from peersub.matching.identifiers import Identifiers

    _check_lengths(ids, texts)
    identifiers = Identifiers.of(ids)  # before the long part
    return _segment(identifiers, columns_of_all_texts(texts, processes, progress))


def segment_of_columns(ids: Any, columns: TextColumns) -> Segment:
    """The compiled subscriptions with these ids and parsed texts; raises as `segment_of_texts`."""
    from peersub.matching.identifiers import Identifiers

    _check_lengths(ids, columns.row_entry)
    return _segment(Identifiers.of(ids), columns)


def _check_lengths(ids: Any, texts: Any) -> None:
    if len(ids) != len(texts):
        raise ValueError(f"{len(ids):,} ids do not fit {len(texts):,} filters: give one id to each")


def _segment(identifiers: Identifiers, columns: TextColumns) -> Segment:
    from peersub.matching.segment import Segment

    if columns.errors:
        row, error = columns.errors[0]
        error.row = row
        raise error
    return Segment.of_encoded(columns.encoded, columns.row_entry, columns.digests, identifiers)
