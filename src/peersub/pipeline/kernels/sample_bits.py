"""What each subscription matches of a sample of events, as bits: bit i stands for the i-th event.

The sample comes as blocks of events with their places in it (`picked_kernel` takes them out of the
events). A worker opens one shard of the index, matches the whole sample against it, and gives the
bits of those subscriptions that match at least one event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from peersub.matching.matcher import Matcher
from peersub.pipeline.kernels import blocks
from peersub.pipeline.schemas import SAMPLE, SAMPLED

__all__ = ["binary_rows", "matched_bits", "picked_kernel", "sampled_kernel"]

EVENTS_AT_ONCE: Final = 128
"""Events matched together: what they match is held as pairs before it becomes bits."""
ROWS_PER_BATCH: Final = 8_192


def picked_kernel(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The drawn events out of their blocks: `picks` of each row are (row, place) pairs."""
    for batch in batches:
        columns = (batch[name].to_pylist() for name in ("block", "names", "table", "picks"))
        for block, names, table, picks in zip(*columns, strict=True):
            rows = [pick["row"] for pick in picks]
            taken = blocks.unpacked(table).take(pa.array(rows, pa.int64()))
            row = {
                "block": block,
                "places": [pick["place"] for pick in picks],
                "names": [names[row] for row in rows],
                "table": blocks.packed(taken),
            }
            yield pa.RecordBatch.from_pylist([row], schema=SAMPLE.arrow)


def sampled_kernel(
    batches: Iterable[pa.RecordBatch], events: int, body_column: str
) -> Iterator[pa.RecordBatch]:
    """Per shard (`folder`, and the `sample` as a list of blocks) what its subscriptions match."""
    for batch in batches:
        for folder, sample in zip(batch["folder"].to_pylist(), batch["sample"], strict=True):
            matcher = Matcher.open(folder)
            found = [(block["places"].as_py(), block["table"].as_py()) for block in sample]
            parts = [(places, blocks.unpacked(table)) for places, table in found]
            yield from matched_bits(matcher, parts, events, body_column)


def matched_bits(
    matcher: Matcher,
    sample: Sequence[tuple[list[int], pa.Table]],
    events: int,
    body_column: str = "body",
) -> Iterator[pa.RecordBatch]:
    """The bits of the subscriptions of a matcher that match some of a sample's events."""
    known = _Names()
    bits = np.zeros((0, events // 8), np.uint8)
    for places, table in sample:
        for start in range(0, table.num_rows, EVENTS_AT_ONCE):
            part = table.slice(start, EVENTS_AT_ONCE)
            found = matcher.match_batch(part, threads=1, body_column=body_column)
            chunks = zip(found["event_row"].chunks, found["subscription_id"].chunks, strict=True)
            for event_rows, names in chunks:
                numbers = known.numbers(names)
                if len(bits) < len(known):
                    more = np.zeros((len(known) - len(bits), bits.shape[1]), np.uint8)
                    bits = np.concatenate((bits, more))
                _set_bits(bits, numbers, np.array(places)[start + event_rows.to_numpy()])
    rows = np.flatnonzero(bits.any(axis=1))
    yield from _batches(*_united(known.names(rows), bits[rows]))


def _set_bits(bits: np.ndarray, numbers: np.ndarray, places: np.ndarray) -> None:
    order = np.argsort(places, kind="stable")
    numbers, places = numbers[order], places[order]
    starts = np.flatnonzero(np.diff(places, prepend=-1))
    # Within one event no number comes twice, so that plain indexing sets each bit.
    for place, group in zip(places[starts], np.split(numbers, starts[1:]), strict=False):
        bits[group, place >> 3] |= np.uint8(1 << (place & 7))


class _Names:
    """The subscriptions seen so far, numbered; a segment's list of ids is looked at once."""

    def __init__(self) -> None:
        self._arrays: list[pa.Array] = []
        self._count = 0
        self._seen: dict[tuple[int, int], tuple[int, Any]] = {}

    def __len__(self) -> int:
        return self._count

    def numbers(self, names: pa.DictionaryArray) -> np.ndarray:
        """The numbers of the names; equal names of different lists get different numbers."""
        dictionary = names.dictionary
        data = dictionary.buffers()[2]
        key = (0 if data is None else data.address, len(dictionary))
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = (self._count, dictionary)  # held: its address stays its own
            self._arrays.append(dictionary)
            self._count += len(dictionary)
        numbers: np.ndarray = seen[0] + names.indices.to_numpy().astype(np.int64)
        return numbers

    def names(self, rows: np.ndarray) -> pa.Array:
        """The names of some numbers."""
        names = pa.chunked_array(self._arrays, pa.large_string())
        return names.take(pa.array(rows)).combine_chunks()


def _united(names: pa.Array, bits: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """Each name once: patterns come with a new list of names for each batch of events."""
    encoded = names.dictionary_encode()
    if len(encoded.dictionary) == len(names):
        return names, bits
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    return encoded.dictionary, np.bitwise_or.reduceat(bits[order], starts, axis=0)


def _batches(names: pa.Array, bits: np.ndarray) -> Iterator[pa.RecordBatch]:
    counts = np.bitwise_count(bits).sum(axis=1, dtype=np.int32)
    for start in range(0, len(names), ROWS_PER_BATCH):
        part = slice(start, start + ROWS_PER_BATCH)
        columns = [names[part].cast(pa.string()), pa.array(counts[part]), binary_rows(bits[part])]
        yield pa.record_batch(columns, schema=SAMPLED.arrow)


def binary_rows(bits: np.ndarray) -> pa.Array:
    """The rows of an array of bytes as binary values."""
    data = pa.py_buffer(np.ascontiguousarray(bits))
    values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(bits.shape[1]), len(bits), [None, data])
    return values.cast(pa.binary())
