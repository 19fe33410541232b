"""The matching index, made by workers: texts to arrays, arrays to shards on disk.

Parsing is what takes the time, so all workers share it: `parsed_chunks` turns rows of the
subscriptions dataset into rows of the parsed dataset, some thousand filters as the bytes of their
arrays. One task per shard then joins the arrays (`built_shards`), without an object per filter.

Which shard a subscription goes to depends on its filter's digest, so that equal filters meet and
share an entry. A filter that very many have would make its shard too large: of the rows that a
task looks at together, each shard gets only so many of one filter, and the next ones go on to the
next shard.

Invariants: a subscription is in one shard. A shard appears whole or not at all, and when a task
runs twice, at once or again, the first to finish wins; both would have written the same.
"""

from __future__ import annotations

import io
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from peersub.filters.filter import Filter
from peersub.matching.bulk import CHUNK_TEXTS, TextColumns, columns_of_texts, combine
from peersub.matching.parallel import rare_collection, return_free_memory
from peersub.pipeline.kernels.warming import compile_once
from peersub.pipeline.schemas import PARSED, SHARDS

if TYPE_CHECKING:
    from peersub.matching.matcher import Matcher

__all__ = [
    "building",
    "built_shards",
    "bytes_of_columns",
    "columns_of_bytes",
    "parsed_chunks",
    "parsing",
    "shard_folder",
    "shards_of_rows",
]

Batches = Iterator[pa.RecordBatch]

CHUNKS_TOGETHER_MAX: Final = 16
"""Chunks of texts that a task holds, so that each of many shards gets a chunk worth its bounds."""
CLASSES_PER_SHARD_MIN: Final = 4
"""A filter fills at most this part of a shard (one in four) before its rows go to the next one."""
ALIKE_TOGETHER_MIN: Final = 32
"""So few rows of one filter stay together in any case."""
_DIGEST = pa.binary(16)


# --- texts to arrays ---------------------------------------------------------------------------


def parsing(shards: int) -> Callable[[Batches], Batches]:
    """`parsed_chunks` for so many shards, to be shipped to workers."""

    def kernel(batches: Batches) -> Batches:
        return parsed_chunks(batches, shards)

    return kernel


def parsed_chunks(batches: Batches, shards: int) -> Batches:
    """Rows of the subscriptions dataset to rows of the parsed dataset.

    Raises:
        FilterError: a text is no filter; ingest lets none of those pass.
    """
    for table in _gathered(batches, CHUNK_TEXTS * min(shards, CHUNKS_TOGETHER_MAX)):
        targets = shards_of_rows(table.column("digest"), shards)
        for shard in np.unique(targets).tolist():
            rows = table if shards == 1 else table.filter(pa.array(targets == shard))
            for start in range(0, rows.num_rows, CHUNK_TEXTS):
                yield _parsed(rows.slice(start, CHUNK_TEXTS), shard)


def _gathered(batches: Batches, rows_max: int) -> Iterator[pa.Table]:
    """The batches as tables of so many rows; the last may have fewer."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        while count >= rows_max:
            table = pa.Table.from_batches(waiting)
            yield table.slice(0, rows_max)
            waiting = table.slice(rows_max).to_batches()
            count -= rows_max
    if count:
        yield pa.Table.from_batches(waiting)


def shards_of_rows(digests: pa.ChunkedArray, shards: int) -> np.ndarray:
    """The shard of each row: equal digests alike, except where they are very many.

    >>> digests = pa.chunked_array([[bytes([n]) * 16 for n in (1, 2, 1)]])
    >>> shards_of_rows(digests, 3).tolist()
    [2, 1, 2]
    """
    if shards == 1:
        return np.zeros(len(digests), np.int64)
    fixed = digests.cast(_DIGEST).combine_chunks()
    # The first bytes of a digest are as good as a hash.
    words = np.frombuffer(fixed.buffers()[1], np.uint64).reshape(-1, 2)[:, 0]
    words = words[fixed.offset : fixed.offset + len(fixed)]
    _, classes = np.unique(words, return_inverse=True)
    order = np.argsort(classes, kind="stable")
    starts = np.concatenate(([0], np.cumsum(np.bincount(classes))))
    rank = np.empty(len(words), np.int64)
    rank[order] = np.arange(len(words)) - starts[classes[order]]
    share = max(ALIKE_TOGETHER_MIN, len(words) // (CLASSES_PER_SHARD_MIN * shards))
    targets: np.ndarray = ((words % np.uint64(shards)).astype(np.int64) + rank // share) % shards
    return targets


def _parsed(rows: pa.Table, shard: int) -> pa.RecordBatch:
    is_pattern = pc.equal(rows.column("language"), "xpath")
    patterns, filters = rows.filter(is_pattern), rows.filter(pc.invert(is_pattern))
    with rare_collection():
        columns = columns_of_texts(filters.column("text").to_pylist())
    if columns.errors:
        row, error = columns.errors[0]
        error.row = filters.column("number")[row].as_py()
        raise error
    return pa.RecordBatch.from_pylist(
        [
            {
                "shard": shard,
                "number": pc.min(rows.column("number")).as_py(),
                "subscription_ids": filters.column("subscription_id").to_pylist(),
                "columns": bytes_of_columns(columns),
                "pattern_ids": patterns.column("subscription_id").to_pylist(),
                "patterns": patterns.column("text").to_pylist(),
            }
        ],
        PARSED.arrow,
    )


def bytes_of_columns(columns: TextColumns) -> bytes:
    """Parsed filters as bytes: the named arrays of NumPy's own format, no objects."""
    sink = io.BytesIO()
    np.savez(sink, allow_pickle=False, **columns.arrays())
    return sink.getvalue()


def columns_of_bytes(data: bytes) -> TextColumns:
    """The parsed filters that these bytes hold."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return TextColumns.from_arrays(arrays)


# --- arrays to shards --------------------------------------------------------------------------


def shard_folder(folder: str | Path, shard: int) -> Path:
    """Where a shard of an index lies."""
    return Path(folder) / f"shard-{shard:05d}"


def building(folder: str) -> Callable[[Batches], Batches]:
    """`built_shards` into a folder, to be shipped to workers."""

    def kernel(batches: Batches) -> Batches:
        return built_shards(batches, folder)

    return kernel


def built_shards(batches: Batches, folder: str) -> Batches:
    """All rows of the parsed dataset of some shards, usually of one, to a summary of each."""
    chunks: dict[int, list[pa.StructScalar]] = {}
    for batch in batches:
        for row in pa.Table.from_batches([batch]).to_struct_array().combine_chunks():
            chunks.setdefault(row["shard"].as_py(), []).append(row)
    for shard in sorted(chunks):
        # In one order whoever sent what first, so that a shard that is built again is the same.
        rows = sorted(chunks.pop(shard), key=lambda row: row["number"].as_py())
        summary = _built(rows, shard, folder)
        # This worker lives on, and building took several times what it leaves behind.
        return_free_memory()
        yield summary


def _built(rows: list[pa.StructScalar], shard: int, folder: str) -> pa.RecordBatch:
    from peersub.matching.matcher import Matcher

    compile_once()
    started = time.perf_counter()
    ids = pa.chunked_array([row["subscription_ids"].values for row in rows], pa.string())
    patterns = [
        (name, Filter.xpath(text))
        for row in rows
        for name, text in zip(row["pattern_ids"].as_py(), row["patterns"].as_py(), strict=True)
    ]
    columns = combine([columns_of_bytes(row["columns"].as_buffer()) for row in rows])
    rows.clear()
    matcher = Matcher.from_columns(ids, columns, patterns)
    written = _save(matcher, shard_folder(folder, shard))
    summary = {
        "shard": shard,
        "subscriptions": len(matcher),
        "patterns": len(patterns),
        "bytes": written,
        "seconds": time.perf_counter() - started,
    }
    return pa.RecordBatch.from_pylist([summary], SHARDS.arrow)


def _save(matcher: Matcher, target: Path) -> int:
    """Save a matcher, unless another attempt at it has; the bytes that lie there."""
    draft = target.with_name(f".{target.name}-{uuid.uuid4().hex}")
    try:
        matcher.save(draft)
        os.rename(draft, target)
    except OSError:
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
