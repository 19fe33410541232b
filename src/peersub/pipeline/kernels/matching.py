"""Blocks of events against one shard of the index, inside a worker.

A worker opens a shard once, by mapping its files, and keeps the last few open. An event that every
subscription wants has as many deliveries as there are subscriptions: so the answer to a block is
found, and handed on, in parts of a bounded size.
"""

from __future__ import annotations

import socket
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from peersub.pipeline.kernels.blocks import packed, unpacked
from peersub.pipeline.kernels.indexing import shard_folder
from peersub.pipeline.kernels.warming import compile_once
from peersub.pipeline.schemas import DELIVERIES, EVENTS

if TYPE_CHECKING:
    from peersub.matching.matcher import Matcher

__all__ = ["Matching", "cutting", "matching"]

Batches = Iterator[pa.RecordBatch]

MATCHERS_OPEN_MAX: Final = 2
"""Shards that a worker keeps open: that of its task, and that of the task before."""
PAIRS_MAX: Final = 1 << 21
"""Deliveries that a worker holds at once, about, unless a single event has more."""
OUTPUT_ROWS_MAX: Final = 1 << 16
"""Deliveries of a batch that goes back to Spark."""
GATHERED_ROWS_MAX: Final = 4_096
"""Events that are matched together: the index is read once for all of them."""

_open: OrderedDict[tuple[Any, ...], Matcher] = OrderedDict()


@dataclass(frozen=True, slots=True)
class Matching:
    """What a worker needs to know: where the index lies, and which column holds documents."""

    folder: str
    body_column: str = "body"
    pairs_max: int = PAIRS_MAX


def matching(settings: Matching) -> Callable[[Batches], Batches]:
    """`matched_blocks` with these settings, to be shipped to workers."""

    def kernel(batches: Batches) -> Batches:
        return matched_blocks(batches, settings)

    return kernel


def matched_blocks(batches: Batches, settings: Matching) -> Batches:
    """Blocks of events, each with the shard that it is for, to deliveries."""
    for shard, names, table in _gathered(batches):
        matcher = _opened(settings.folder, shard)
        for found in matcher.match_parts(
            table, pairs_max=settings.pairs_max, body_column=settings.body_column
        ):
            yield from _named(found, names)


def _gathered(batches: Batches) -> Iterator[tuple[int, pa.Array, pa.Table]]:
    """Blocks for the same shard, of the same columns, joined up to GATHERED_ROWS_MAX events."""
    waiting: list[tuple[int, pa.Array, pa.Table]] = []
    rows = 0
    for batch in batches:
        for place in range(batch.num_rows):
            block = {name: batch.column(name)[place] for name in batch.schema.names}
            table = unpacked(block["table"].as_buffer())
            shard = block["shard"].as_py()
            if waiting and not (
                rows + table.num_rows <= GATHERED_ROWS_MAX
                and shard == waiting[0][0]
                # Tables without columns would lose their rows.
                and table.num_columns > 0
                and table.schema.equals(waiting[0][2].schema)
            ):
                yield _joined(waiting)
                waiting, rows = [], 0
            waiting.append((shard, block["names"].values, table))
            rows += table.num_rows
    if waiting:
        yield _joined(waiting)


def _joined(blocks: list[tuple[int, pa.Array, pa.Table]]) -> tuple[int, pa.Array, pa.Table]:
    if len(blocks) == 1:
        return blocks[0]
    names = pa.concat_arrays([names for _, names, _ in blocks])
    return blocks[0][0], names, pa.concat_tables([table for _, _, table in blocks])


def _named(found: pa.Table, names: pa.Array) -> Batches:
    """Rows of the deliveries dataset: event rows become event ids."""
    for start in range(0, found.num_rows, OUTPUT_ROWS_MAX):
        part = found.slice(start, OUTPUT_ROWS_MAX)
        ids = part.column("subscription_id").cast(pa.string()).combine_chunks()
        events = names.take(part.column("event_row").combine_chunks())
        yield pa.RecordBatch.from_arrays([events, ids], schema=DELIVERIES.arrow)


# --- opened shards -----------------------------------------------------------------------------


def _opened(folder: str, shard: int) -> Matcher:
    """A shard's matcher, from the cache if it is there and still the same on disk.

    Raises:
        ValueError: this machine does not see the shard.
    """
    from peersub.matching.matcher import Matcher

    place = shard_folder(folder, shard)
    key = (str(place), *_age(place, folder))
    if key in _open:
        _open.move_to_end(key)
        return _open[key]
    compile_once()
    while len(_open) >= MATCHERS_OPEN_MAX:
        _open.popitem(last=False)
    _open[key] = Matcher.open(place)
    return _open[key]


def _age(place: Path, folder: str) -> tuple[int, int]:
    try:
        status = (place / "matcher.json").stat()
    except OSError:
        raise ValueError(
            f"{socket.gethostname()} does not see the index in {folder}: "
            "it must lie in a folder that all machines of the cluster share"
        ) from None
    return status.st_ino, status.st_mtime_ns


# --- smaller blocks ----------------------------------------------------------------------------


def cutting(rows_max: int) -> Callable[[Batches], Batches]:
    """Blocks to blocks of at most so many events, to be shipped to workers."""

    def kernel(batches: Batches) -> Batches:
        return cut_blocks(batches, rows_max)

    return kernel


def cut_blocks(batches: Batches, rows_max: int) -> Batches:
    """The same events in blocks of at most so many; blocks of one number are several then."""
    for batch in batches:
        for place in range(batch.num_rows):
            block = {name: batch.column(name)[place] for name in EVENTS.arrow.names}
            table, names = unpacked(block["table"].as_buffer()), block["names"].values
            for start in range(0, table.num_rows, rows_max):
                # A table without columns believes any length.
                part = table.slice(start, min(rows_max, table.num_rows - start))
                columns = [
                    pa.array([block["block"].as_py()], pa.int64()),
                    pa.array([part.num_rows], pa.int32()),
                    pa.array([names.slice(start, part.num_rows)], EVENTS.arrow.field("names").type),
                    pa.array([packed(part)], pa.binary()),
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=EVENTS.arrow)
