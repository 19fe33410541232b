"""Batches whose few bytes stand for much memory are refused before any of it is taken."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from overlays.core.batch_rows import batch_of, sent
from peersub.client.outgoing import pieces_of
from peersub.events.arrow import table_of_rows
from peersub.overlays.core.batch import CHUNKS_MAX, Batch
from peersub.overlays.core.batch_bounds import (
    ROW_VALUES_MAX,
    STREAM_MESSAGES_MAX,
    UNPACKED_BYTES_MAX,
    BatchSizeError,
    check_stream,
)
from peersub.overlays.core.event_keys import BATCH_ROWS_MAX
from peersub.overlays.core.publication import Delivery

ROWS = BATCH_ROWS_MAX
LARGE = "x" * (UNPACKED_BYTES_MAX // ROWS + 1)
SPARE_BYTES = 1_024 * 1_024
"""Of Arrow's memory, after something was refused."""


def stream_of(table: pa.Table, **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def refused(packed: bytes, rows: int) -> None:
    batch = Batch("b", np.arange(rows, dtype=np.uint32), rows, packed=packed)
    before = pa.total_allocated_bytes()
    assert not batch.is_sound
    assert pa.total_allocated_bytes() - before < SPARE_BYTES


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_columns_are_refused_before_they_are_decompressed(codec):
    table = pa.table({"a": pa.array(["x" * 10_000] * ROWS)})
    packed = stream_of(table, compression=codec)
    assert len(packed) < 1_024 * 1_024 < table.nbytes
    with pytest.raises(ValueError, match="not compressed"):
        check_stream(packed)
    refused(packed, ROWS)


def inflated_tables() -> dict[str, pa.Table]:
    """Tables of few bytes and many values."""
    many = 2**31 - 1
    offsets = pa.py_buffer(np.array([0, many], np.int32))
    nulls = pa.ListArray.from_buffers(
        pa.list_(pa.null()), 1, [None, offsets], children=[pa.nulls(many)]
    )
    fixed = pa.FixedSizeListArray.from_buffers(
        pa.list_(pa.null(), many), 1, [None], children=[pa.nulls(many)]
    )
    empty = pa.StructArray.from_buffers(pa.struct([]), many, [None])
    records = pa.ListArray.from_buffers(
        pa.list_(pa.struct([])), 1, [None, offsets], children=[empty]
    )
    codes = np.zeros(ROWS, np.int8)
    union = pa.UnionArray.from_dense(
        pa.array(codes), pa.array(np.zeros(ROWS, np.int32)), [pa.array([LARGE])]
    )
    words = pa.DictionaryArray.from_arrays(np.zeros(ROWS, np.int32), pa.array([LARGE]))
    wide = pa.DictionaryArray.from_arrays(
        np.zeros(ROWS, np.int8), pa.array([LARGE.encode()], pa.binary(len(LARGE)))
    )
    return {
        "a list of nulls": pa.table({"a": nulls}),
        "a fixed list of nulls": pa.table({"a": fixed}),
        "a list of empty records": pa.table({"a": records}),
        "columns of nulls": pa.table({f"c{n}": pa.nulls(ROWS) for n in range(129)}),
        "a dictionary": pa.table({"a": words}),
        "a dictionary of one width": pa.table({"a": wide}),
        "a dictionary in records": pa.table({"a": pa.StructArray.from_arrays([words], ["w"])}),
        "a union": pa.table({"a": union}),
    }


@pytest.mark.parametrize("case", inflated_tables())
def test_values_that_take_no_bytes_count_all_the_same(case):
    table = inflated_tables()[case]
    packed = stream_of(table)
    assert len(packed) < 200_000
    refused(packed, table.num_rows)
    with pytest.raises(BatchSizeError):
        Batch.of("b", table)


def test_columns_over_the_same_bytes_are_refused():
    """Every column is told to be where the first one is."""
    table = pa.table({f"c{n}": np.arange(1_000) + n for n in range(3)})
    packed = bytearray(stream_of(table))
    second = np.array([8_000, 8_000], "<i8").tobytes()
    at = packed.find(second)
    assert at > 0
    packed[at : at + 16] = np.array([0, 16_000], "<i8").tobytes()
    refused(bytes(packed), 1_000)


def test_a_stream_in_too_many_pieces_is_put_together_or_refused():
    pieces = pa.concat_tables([pa.table({"a": [n]}) for n in range(STREAM_MESSAGES_MAX)])
    refused(stream_of(pieces), pieces.num_rows)
    assert pieces.column(0).num_chunks > CHUNKS_MAX
    there = sent(Batch.of("b", pieces))
    assert [each.attributes["a"] for each in there.publications()] == list(range(len(there)))


def test_dictionaries_come_whole():
    def chunk(words: list[str]) -> pa.RecordBatch:
        return pa.record_batch({"a": pa.array(words).dictionary_encode()})

    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with pa.ipc.new_stream(sink, chunk(["x"]).schema, options=options) as stream:
        stream.write_batch(chunk(["x"]))
        stream.write_batch(chunk(["x", "y"]))
    refused(sink.getvalue().to_pybytes(), 3)


@pytest.mark.parametrize("kind", [pa.list_view(pa.int8()), pa.large_list_view(pa.int8())])
def test_kinds_whose_values_may_overlap_are_refused(kind):
    with pytest.raises(ValueError, match="cast them to a plain type"):
        Batch.of("b", pa.table({"a": pa.nulls(2, kind)}))


def test_what_is_usual_has_room():
    words = pa.array(["alpha", "beta", None] * 5_000).dictionary_encode()
    wide = pa.table({f"c{n}": np.arange(1_024.0) for n in range(200)})
    mixed = table_of_rows([{"a": n if n % 2 else str(n)} for n in range(5_000)])
    slices = (mixed.slice(7, 100), mixed.slice(0, 0))
    for table in (pa.table({"w": words}), wide, mixed, *slices, pa.table({})):
        there = sent(Batch.of("b", table))
        assert there.is_sound and len(list(there.publications())) == table.num_rows


def test_no_damage_to_a_stream_does_more_than_refuse_it():
    random = Random(5)
    good = batch_of([{"a": n, "s": str(n), "m": n if n % 2 else "x"} for n in range(50)]).packed
    for _ in range(2_000):
        damaged = bytearray(good)
        for _ in range(random.randint(1, 4)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        end = random.choice((len(good), random.randrange(len(good))))
        with suppress(ValueError):
            check_stream(bytes(damaged[:end]))


def rows_with(many: int) -> dict[str, pa.Table]:
    """Tables whose second row has so many values, about."""
    half = many // 2
    return {
        "columns": pa.table({f"a{n}": [1, 2] for n in range(many)}),
        "a list": pa.table({"a": [[], [1] * (many - 1)]}),
        "lists": pa.table({"a": [[[1]], [[1]] * (half - 1)]}),
        "fixed lists": pa.table(
            {"a": pa.array([[1] * (many - 1)] * 2, pa.list_(pa.int8(), many - 1))}
        ),
        "records": pa.table({"a": [[], [{"b": 1}] * (half - 1)]}),
        "maps": pa.table(
            {"a": pa.array([[], [("k", 1)] * (many // 3 - 1)], pa.map_(pa.string(), pa.int8()))}
        ),
        "large lists": pa.table({"a": pa.array([[], [1] * (many - 1)], pa.large_list(pa.int8()))}),
        "several": pa.table({"a": [[1]] * 2, "b": [[1] * half] * 2, "c": [[2] * (half - 6)] * 2}),
    }


@pytest.mark.parametrize("kind", rows_with(99))
def test_the_values_of_each_event_are_bounded_as_if_it_travelled_alone(kind):
    Batch.of("b", rows_with(ROW_VALUES_MAX)[kind])
    large = rows_with(ROW_VALUES_MAX + 9)[kind]
    with pytest.raises(BatchSizeError, match=r"an event of a batch has more than 8,192 values"):
        Batch.of("b", large)
    refused(stream_of(large), 2)
    if kind in ("a list", "records", "maps"):
        Batch.of("b", large.slice(0, 1))


def test_a_table_with_a_row_that_holds_too_much_tells_so_at_publish():
    table = pa.table({"a": [[1]] * 200 + [[1] * ROW_VALUES_MAX]})
    with pytest.raises(ValueError, match="up to 8,192 values"):
        list(pieces_of(table, Delivery.BEST_EFFORT, with_batches=True))
