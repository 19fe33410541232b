"""The kernels of the index and of matching, without Spark."""

import fcntl
import gc
import threading
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from peersub.filters.errors import FilterError
from peersub.filters.filter import Filter
from peersub.pipeline.kernels import indexing, matching, warming
from peersub.pipeline.kernels.blocks import unpacked
from peersub.pipeline.schemas import PARSED
from pipeline.match_inputs import block_table, by_brute_force, generated, subscription_table

ODD_IDS = ["", " ", "a,b", 'quo"te', "new\nline", "nul\0l", "ünïcödé", "𝔞", "s" * 300, "None"]


@pytest.fixture(autouse=True)
def nothing_is_open():
    matching._open.clear()


def digests(*numbers):
    return pa.chunked_array([[bytes([n % 256, n // 256]) * 8 for n in numbers]])


def build(rows, folder, shards=1, batch_rows=100, reverse=False):
    """Parse and build as the workers would; the summaries."""
    batches = subscription_table(rows).to_batches(max_chunksize=batch_rows)
    chunks = list(indexing.parsed_chunks(iter(batches), shards))
    chunks = chunks[::-1] if reverse else chunks
    built = []
    for shard in range(shards):
        mine = [chunk for chunk in chunks if chunk["shard"][0].as_py() == shard]
        built += [one.to_pylist()[0] for one in indexing.built_shards(iter(mine), str(folder))]
    return built


def match(blocks, folder, shards=1, **settings):
    """Match as the workers would; the batches that they give back."""
    table = block_table(blocks).select(["names", "table"])
    found = []
    for shard in shards if isinstance(shards, list) else range(shards):
        numbered = table.add_column(0, "shard", pa.array([shard] * table.num_rows, pa.int32()))
        kernel = matching.matching(matching.Matching(str(folder), **settings))
        found += kernel(iter(numbered.to_batches(max_chunksize=2)))
    return found


def pairs(batches):
    return sorted(
        (row["event_id"], row["subscription_id"]) for batch in batches for row in batch.to_pylist()
    )


# --- which shard -------------------------------------------------------------------------------


def test_equal_filters_share_a_shard():
    numbers = np.random.default_rng(1).integers(0, 300, 2_000)
    shards = indexing.shards_of_rows(digests(*numbers.tolist()), 7)
    assert set(shards.tolist()) == set(range(7))
    assert len({(n, s) for n, s in zip(numbers.tolist(), shards.tolist(), strict=True)}) == len(
        set(numbers.tolist())
    )


def test_a_giant_class_is_spread():
    numbers = [5] * 9_000 + list(range(1_000))
    shards = indexing.shards_of_rows(digests(*numbers), 4)
    counts = Counter(shards.tolist())
    assert set(counts) == set(range(4)) and max(counts.values()) < 1.5 * min(counts.values())


def test_slices_of_digests_are_read_where_they_start():
    all_of_them = digests(*range(50))
    shards = indexing.shards_of_rows(all_of_them, 5)
    assert indexing.shards_of_rows(all_of_them.slice(20), 5).tolist() == shards[20:].tolist()


# --- parsing and building ----------------------------------------------------------------------


def test_a_chunk_holds_so_many_texts(monkeypatch):
    monkeypatch.setattr(indexing, "CHUNK_TEXTS", 150)
    rows, _, _ = generated()
    batches = subscription_table(rows).to_batches(max_chunksize=70)
    chunks = [chunk.to_pylist()[0] for chunk in indexing.parsed_chunks(iter(batches), 1)]
    assert [len(chunk["subscription_ids"]) for chunk in chunks] == [150] * 4
    assert [chunk["number"] for chunk in chunks] == [0, 150, 300, 450]
    assert [name for chunk in chunks for name in chunk["subscription_ids"]] == [n for n, _ in rows]


def test_a_text_that_is_no_filter_is_an_error():
    table = subscription_table([("s0", "TRUE"), ("s1", "TRUE")])
    place = table.schema.get_field_index("text")
    table = table.set_column(place, "text", pa.array(["TRUE", "a =="]))
    with pytest.raises(FilterError) as failure:
        list(indexing.parsed_chunks(iter(table.to_batches()), 1))
    assert failure.value.row == 1


@pytest.mark.parametrize("shards", [1, 3])
def test_deliveries_equal_brute_force(shards, tmp_path, monkeypatch):
    monkeypatch.setattr(indexing, "CHUNK_TEXTS", 128)
    rows, _, blocks = generated()
    rows = [(name + ODD_IDS[place % 10], text) for place, (name, text) in enumerate(rows)]
    blocks = [([name + ODD_IDS[-1 - place % 5] for place, name in enumerate(n)], t)
              for n, t in blocks]  # fmt: skip
    built = build(rows, tmp_path, shards)
    assert sum(one["subscriptions"] for one in built) == len(rows) and len(built) == shards
    assert all(one["bytes"] > 0 for one in built)
    expected = by_brute_force(rows, blocks)
    assert len(expected) > 1_000
    assert pairs(match(blocks, tmp_path, shards)) == expected


@pytest.mark.parametrize("shards", [1, 2])
def test_patterns_and_mixed_kinds(shards, tmp_path):
    rows = [
        *((f"x{n}", Filter.xpath(text)) for n, text in enumerate(["/a", "//b[@c > 1]", "/a"] * 4)),
        *(
            (f"f{n}", text)
            for n, text in enumerate(["v > 1", "v LIKE '%x%'", "v IS NULL", "TRUE"] * 4)
        ),
    ]
    kinds = pa.UnionArray.from_dense(
        pa.array([0, 1, 0], pa.int8()),
        pa.array([0, 0, 1], pa.int32()),
        [pa.array([2, None], pa.int64()), pa.array(["x"])],
    )
    bodies = pa.array(["<a><b c='2'/></a>", "<b c='1'/>", None])
    blocks = [
        (["e0", "e1", "e2"], pa.table({"v": kinds, "body": bodies})),
        (["e3", "e4", "e5"], pa.table({"v": kinds, "body": bodies})),
        (["e6"], pa.table({"v": [1.5]})),
        (["e7", "e8"], pa.table({"": pa.nulls(2)}).select([])),
    ]
    built = build(rows, tmp_path, shards)
    assert sum(one["patterns"] for one in built) == 12
    found = match(blocks, tmp_path, [one["shard"] for one in built])
    named = [*blocks[:3], (["e7", "e8"], pa.table({"v": pa.nulls(2)}))]
    assert pairs(found) == by_brute_force(rows, named)


def test_a_shard_built_again_is_the_same_and_the_first_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(indexing, "CHUNK_TEXTS", 128)
    rows, _, _ = generated()
    build(rows, tmp_path / "one", batch_rows=50)
    build(rows, tmp_path / "two", batch_rows=50, reverse=True)
    first = contents(tmp_path / "one")
    assert first == contents(tmp_path / "two")
    place = (tmp_path / "one" / "shard-00000" / "matcher.json").stat()
    build(rows, tmp_path / "one")
    assert (tmp_path / "one" / "shard-00000" / "matcher.json").stat() == place
    assert contents(tmp_path / "one") == first  # and no draft is left


def contents(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_shard_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(OSError):
        build([("s0", "TRUE")], tmp_path / "taken")


def test_nothing_parsed_builds_nothing(tmp_path):
    empty = pa.RecordBatch.from_pylist([], PARSED.arrow)
    assert list(indexing.built_shards(iter([empty]), str(tmp_path))) == []
    assert list(indexing.parsed_chunks(iter(()), 3)) == []


# --- matching ----------------------------------------------------------------------------------


def test_what_everybody_wants_comes_in_bounded_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(matching, "OUTPUT_ROWS_MAX", 64)
    rows = [(f"s{n}", "TRUE" if n % 2 else f"a >= {n % 7 - 10}") for n in range(300)]
    blocks = [([f"e{n}" for n in range(100)], pa.table({"a": list(range(100))}))]
    build(rows, tmp_path)
    found = match(blocks, tmp_path, pairs_max=500)
    assert max(batch.num_rows for batch in found) <= 64
    assert Counter(pairs(found)) == Counter(
        (f"e{e}", f"s{s}") for e in range(100) for s in range(300)
    )


def test_few_shards_stay_open(tmp_path):
    rows, _, blocks = generated()
    build(rows, tmp_path, shards=4)
    found = match(blocks, tmp_path, 4)
    assert len(matching._open) == matching.MATCHERS_OPEN_MAX
    assert pairs(found) == by_brute_force(rows, blocks)


def test_blocks_for_several_shards_are_not_mixed(tmp_path):
    rows, _, blocks = generated()
    build(rows, tmp_path, shards=2)
    doubled = [block for block in blocks for _ in range(2)]
    table = block_table(doubled).select(["names", "table"])
    turns = pa.array([place % 2 for place in range(table.num_rows)], pa.int32())
    kernel = matching.matching(matching.Matching(str(tmp_path)))
    found = kernel(iter(table.add_column(0, "shard", turns).to_batches()))
    assert pairs(found) == by_brute_force(rows, blocks)


def test_an_index_that_was_built_anew_is_opened_anew(tmp_path):
    import shutil

    blocks = [(["e0"], pa.table({"a": [1]}))]
    build([("old", "TRUE")], tmp_path)
    assert pairs(match(blocks, tmp_path)) == [("e0", "old")]
    shutil.rmtree(tmp_path / "shard-00000")
    build([("new", "TRUE")], tmp_path)
    assert pairs(match(blocks, tmp_path)) == [("e0", "new")]


def test_a_machine_that_does_not_see_the_index_says_so(tmp_path):
    with pytest.raises(ValueError, match="a folder that all machines of the cluster share"):
        match([(["e0"], pa.table({"a": [1]}))], tmp_path / "elsewhere")


def test_cut_blocks_hold_the_same_events():
    blocks = [
        (["e0", "e1", "e2", "e3", "e4"], pa.table({"a": [0, 1, 2, 3, 4]})),
        (["e5", "e6", "e7"], pa.table({"": pa.nulls(3)}).select([])),
    ]
    kernel = matching.cutting(2)
    found = [row for batch in kernel(iter(block_table(blocks).to_batches())) for row in
             batch.to_pylist()]  # fmt: skip
    assert [row["names"] for row in found] == [
        ["e0", "e1"], ["e2", "e3"], ["e4"], ["e5", "e6"], ["e7"],
    ]  # fmt: skip
    assert [row["rows"] for row in found] == [unpacked(row["table"]).num_rows for row in found]
    tables = [unpacked(row["table"]) for row in found]
    assert [table["a"].to_pylist() for table in tables[:3]] == [[0, 1], [2, 3], [4]]


# --- compiling ---------------------------------------------------------------------------------


def test_one_worker_compiles_and_the_others_wait(tmp_path, monkeypatch):
    compiled = []

    def compile_under_lock():
        compiled.append(1)
        (note,) = tmp_path.iterdir()
        with note.open("rb") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    monkeypatch.setattr(warming, "warm_up", compile_under_lock)
    monkeypatch.setattr(warming, "_compiled", set())
    workers = [
        threading.Thread(target=warming.compile_once, args=(str(tmp_path),)) for _ in range(8)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert compiled == [1]
    monkeypatch.setattr(warming, "_compiled", set())
    warming.compile_once(str(tmp_path))
    assert compiled == [1]


def test_a_worker_that_failed_leaves_the_work_to_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(warming, "_compiled", set())

    def fail():
        raise RuntimeError("no compiler")

    monkeypatch.setattr(warming, "warm_up", fail)
    with pytest.raises(RuntimeError):
        warming.compile_once(str(tmp_path))
    compiled = []
    monkeypatch.setattr(warming, "warm_up", lambda: compiled.append(1))
    warming.compile_once(str(tmp_path))
    assert compiled == [1]


def test_what_is_loaded_when_all_is_compiled_is_not_searched_for_garbage(tmp_path, monkeypatch):
    monkeypatch.setattr(warming, "_compiled", set())
    monkeypatch.setattr(warming, "warm_up", lambda: None)
    loaded = [[] for _ in range(1_000)]
    before = gc.get_freeze_count()
    warming.compile_once(str(tmp_path))
    assert gc.get_freeze_count() >= before + len(loaded)


def test_without_a_place_for_the_note_workers_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(warming, "_compiled", set())
    warming.compile_once(str(tmp_path / "missing"))
