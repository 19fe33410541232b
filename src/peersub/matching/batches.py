"""A batch of events against segments, rows and documents, and the table of deliveries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from peersub.events.arrow import rows_of_table
from peersub.matching.parallel import processor_count, thread_map

if TYPE_CHECKING:
    # Small batches need no compiled segment, and must not load the compiler.
    from peersub.matching.segment import Segment

__all__ = [
    "as_table",
    "deliveries",
    "match_documents",
    "match_rows",
    "match_segment",
    "match_segment_in_parts",
]

SLICE_ROWS_MAX = 4_096
"""Events that a thread takes at once: their codes stay in the cache."""
SLICE_CODES_MAX = 1 << 22
"""Codes of a slice (events times slots), which bounds its memory where there are many slots."""

Found = tuple[np.ndarray, Any]
"""Event rows, and the ids of the subscriptions that want them as a dictionary array."""


def as_table(events: Any) -> pa.Table:
    """The batch as a table.

    Raises:
        TypeError: it is neither a table nor a record batch.
    """
    if isinstance(events, pa.Table):
        return events
    if isinstance(events, pa.RecordBatch):
        return pa.Table.from_batches([events])
    raise TypeError(f"a batch is a pyarrow Table or RecordBatch, not {type(events).__name__}")


def match_segment(segment: Segment, table: pa.Table, threads: int | None) -> list[Found]:
    """What a segment's subscriptions want of a batch, slices of it shared among threads."""
    workers = threads or processor_count()
    bounds = _slices(segment, table, workers)
    parts = thread_map(lambda part: segment.match_rows(table, *part), bounds, workers)
    return [
        (_event_rows(start, offsets), _names(segment, rows))
        for (start, _), (offsets, rows) in zip(bounds, parts, strict=True)
    ]


def match_segment_in_parts(segment: Segment, table: pa.Table, pairs_max: int) -> Iterator[Found]:
    """What a segment's subscriptions want of a batch; a part has so many pairs, or one event."""
    for start, stop in _slices(segment, table, 1):
        for first, offsets, rows in segment.match_parts(table, start, stop, pairs_max):
            yield _event_rows(first, offsets), _names(segment, rows)


def _slices(segment: Segment, table: pa.Table, workers: int) -> list[tuple[int, int]]:
    slots = max(1, len(segment.conjuncts.encoder.slots))
    rows = min(SLICE_ROWS_MAX, max(64, SLICE_CODES_MAX // slots))
    rows = max(1, min(rows, -(-table.num_rows // workers)))
    return [(start, min(start + rows, table.num_rows)) for start in range(0, table.num_rows, rows)]


def _event_rows(start: int, offsets: np.ndarray) -> np.ndarray:
    return np.repeat(np.arange(start, start + len(offsets) - 1), np.diff(offsets))


def _names(segment: Segment, rows: np.ndarray) -> pa.DictionaryArray:
    # The rows come from the segment itself: checking each against its ids would be the larger cost.
    return pa.DictionaryArray.from_arrays(pa.array(rows), segment.identifiers.array, safe=False)


def match_rows(
    match: Callable[[Any], list[str]], table: pa.Table, pairs_max: int | None = None
) -> Iterator[Found]:
    """Event by event, as dicts: for small batches, where compiling anything would take longer."""
    return _found((match(row) for row in rows_of_table(table)), pairs_max)


def match_documents(
    match: Callable[[Any], list[str]], table: pa.Table, column: str, pairs_max: int | None = None
) -> Iterator[Found]:
    """Document by document: what XPath patterns want of the body column."""
    if column not in table.column_names:
        return iter(())
    bodies = table.column(column)
    if pa.types.is_dictionary(bodies.type):
        bodies = bodies.cast(bodies.type.value_type)
    if not _holds_text(bodies.type):
        return iter(())
    wanted = (
        [] if body is None else match(body) for chunk in bodies.chunks for body in chunk.to_pylist()
    )
    return _found(wanted, pairs_max)


def _holds_text(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    return any(test(kind) for test in tests)


def _found(ids_per_event: Iterable[list[str]], pairs_max: int | None) -> Iterator[Found]:
    """The pairs of all events in one part, or in parts that end once they have so many pairs."""
    rows: list[int] = []
    names: list[str] = []
    for row, ids in enumerate(ids_per_event):
        rows += [row] * len(ids)
        names += ids
        if pairs_max is not None and len(rows) >= pairs_max:
            yield _found_part(rows, names)
            rows, names = [], []
    if rows:
        yield _found_part(rows, names)


def _found_part(rows: list[int], names: list[str]) -> Found:
    array = pa.array(names, pa.large_string()).dictionary_encode()
    return np.array(rows, np.int64), array


def deliveries(found: Sequence[Found]) -> pa.Table:
    """One table of everything that was found, each part a chunk."""
    event_rows = pa.chunked_array([pa.array(rows) for rows, _ in found], pa.int64())
    names = pa.chunked_array(
        [ids for _, ids in found], pa.dictionary(pa.int32(), pa.large_string())
    )
    return pa.table({"event_row": event_rows, "subscription_id": names})
