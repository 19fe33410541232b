"""A folder of damaged input through the command: clear words, every row accounted for, exit 5."""

import gzip
import json

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from peersub.cli import main

pytestmark = pytest.mark.spark


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def damaged_events(folder):
    """Files of events, and how many rows of each can be used, by hand."""
    folder.mkdir()
    pq.write_table(pa.table({"id": [f"i{n}" for n in range(40)], "price": range(40)}),
                   folder / "integers.parquet", row_group_size=10)  # fmt: skip
    pq.write_table(pa.table({"id": ["t0", "t1"], "price": ["7", "x"]}), folder / "texts.parquet")
    whole = (folder / "integers.parquet").read_bytes()
    files = {
        "cut.parquet": whole[: len(whole) // 2],
        "empty.parquet": b"",
        "empty.jsonl": b"",
        "bad.jsonl": b'{"id": "a", "price": 11}\n{"id": "b", "price": \n[1]\n{"id": "c"}\n',
        "taken.jsonl": lines([{"id": "a", "price": 1}, {"id": "d", "price": 30}]),
        "cut.jsonl.gz": gzip.compress(lines([{"id": "z"}] * 50))[:-9],
        "ragged.csv": b"id,price\ne,50\nf\ng,60,70\n",
        "readme.txt": b"not data",
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return {"integers.parquet": 40, "texts.parquet": 2, "bad.jsonl": 2, "taken.jsonl": 1,
            "ragged.csv": 1}  # fmt: skip


SUBSCRIPTIONS = [
    {"id": "s1", "filter": "price > 10"},
    {"id": "s2", "filter": "price >"},
    {"id": "s1", "filter": "price > 99"},
    {"id": "s3"},
    {"filter": "TRUE"},
    {"id": "s4", "filter": "price = '7'"},
    {"id": "s5", "xpath": "//["},
]


def test_damaged_input(spark, tmp_path, capsys):
    usable = damaged_events(tmp_path / "events")
    content = lines(SUBSCRIPTIONS) + b"{broken\n"
    (tmp_path / "subscriptions.jsonl").write_bytes(content)
    out = tmp_path / "out"
    inputs = ("--subscriptions", tmp_path / "subscriptions.jsonl", "--events", tmp_path / "events")
    assert main(["pipeline", "match", *map(str, inputs), "--out", str(out)]) == 5
    told = capsys.readouterr().err
    assert "not used" in told and f"{out}/quarantine" in told

    steps = json.loads((out / "run.json").read_text())["steps"]
    events, subscriptions = steps["events"]["counts"], steps["subscriptions"]["counts"]
    assert events["events"] == sum(usable.values())
    assert events["rows"] == events["events"] + events["quarantined"]
    assert subscriptions["subscriptions"] == 2
    assert subscriptions["rows"] == content.count(b"\n") == 2 + subscriptions["quarantined"]
    for one in events["by_file"]:
        name = one["file"].rpartition("/")[2]
        assert one["rows_kept"] == usable.get(name, 0), name

    entries = duckdb.read_parquet(f"{out}/quarantine/*/*.parquet", hive_partitioning=True)
    found = {
        (dataset, file.rpartition("/")[2], place): reason
        for dataset, file, place, reason in entries.project(
            "dataset, file, coalesce(place, ''), reason"
        ).fetchall()
    }
    files = {name for dataset, name, _ in found if dataset == "events"}
    # Of JSON Lines no lines are no damage: the file is listed, with no rows.
    assert files == {"cut.parquet", "empty.parquet", "bad.jsonl", "taken.jsonl", "cut.jsonl.gz",
                     "ragged.csv", "readme.txt"}  # fmt: skip
    assert {one["file"].rpartition("/")[2] for one in events["by_file"]} == {
        *files, *usable, "empty.jsonl"}  # fmt: skip
    places = {place for dataset, _, place in found if dataset == "subscriptions"}
    assert places == {f"line {number}" for number in (2, 3, 4, 5, 7, 8)}
    assert "'a'" in found["events", "taken.jsonl", "line 1"]
    assert all(found.values())
    originals = entries.filter("place = 'line 8'").project("original").fetchall()
    assert originals == [("{broken",)]

    wanted = {(f"i{n}", "s1") for n in range(11, 40)} | {("a", "s1"), ("d", "s1"), ("e", "s1")}
    wanted |= {("t0", "s4")}
    deliveries = duckdb.read_parquet(f"{out}/deliveries/*.parquet").fetchall()
    assert sorted(deliveries) == sorted(wanted)


def test_input_of_which_nothing_can_be_read(spark, tmp_path, capsys):
    (tmp_path / "events.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "subscriptions.jsonl").write_bytes(lines(SUBSCRIPTIONS[:1]))
    inputs = (
        *("--subscriptions", tmp_path / "subscriptions.jsonl"),
        *("--events", tmp_path / "events.parquet"),
    )
    assert main(["pipeline", "match", *map(str, inputs), "--out", str(tmp_path / "out")]) == 2
    assert "events.parquet" in capsys.readouterr().err
    assert not (tmp_path / "out/run.json").exists()
