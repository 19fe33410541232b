"""Deliveries: every format holds what was written, and a file is complete or not there."""

import csv
import gzip
import json

import pyarrow.parquet as pq
import pytest

from peersub.files import FileError
from peersub.files.deliveries import Deliveries, deliveries_to

PAIRS = [("e1", "s1"), ('e"2,\n', "s2"), ("é😀", "\t\\")]


def read(path):
    if path.name.endswith(".parquet"):
        table = pq.read_table(path).to_pydict()
        return list(zip(table["event_id"], table["subscription_id"], strict=True))
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    if ".csv" in path.name:
        header, *rows = csv.reader(text.splitlines(keepends=True))
        assert header == ["event_id", "subscription_id"]
        return [tuple(row) for row in rows]
    return [tuple(json.loads(line).values()) for line in text.splitlines()]


@pytest.mark.parametrize("name", ["d.jsonl", "d.csv", "d.parquet", "d.jsonl.gz", "d.csv.gz"])
def test_what_is_written_can_be_read(tmp_path, name):
    path = tmp_path / name
    with deliveries_to(str(path)) as deliver:
        deliver(Deliveries(["e1"], ["s1"], [0], [0]))
        deliver(Deliveries([], [], [], []))
        deliver(Deliveries(["é😀", 'e"2,\n'], ["s2", "\t\\"], [1, 0], [0, 1]))
        assert not path.exists()
    assert read(path) == PAIRS
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["d.jsonl", "d.parquet"])
def test_a_failure_leaves_what_was_there(tmp_path, name):
    path = tmp_path / name
    path.write_text("before")

    def write_and_fail():
        with deliveries_to(str(path)) as deliver:
            deliver(Deliveries(["e"], ["s"], [0], [0]))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_and_fail()
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_standard_output(capsysbinary):
    with deliveries_to(None) as deliver:
        deliver(Deliveries(["e"], ["s"], [0], [0]))
    assert capsysbinary.readouterr().out == b'{"event_id": "e", "subscription_id": "s"}\n'


def test_no_deliveries_make_a_file_too(tmp_path):
    for name in ("d.jsonl", "d.csv", "d.parquet"):
        with deliveries_to(str(tmp_path / name)):
            pass
        assert read(tmp_path / name) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere/d.jsonl", "does not exist. Create it"),
        ("folder", "this is a folder"),
        ("d.txt", "Let the name end in"),
        ("d.json", "Let the name end in"),
        ("d.parquet.gz", "compresses by itself"),
        ("input.jsonl", "also an input"),
        ("link.jsonl", "also an input"),
    ],
)
def test_outputs_that_cannot_be_written(tmp_path, name, message):
    (tmp_path / "folder").mkdir()
    (tmp_path / "input.jsonl").write_text("{}")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "input.jsonl")
    with (
        pytest.raises(FileError, match=message),
        deliveries_to(str(tmp_path / name), [str(tmp_path / "input.jsonl")]),
    ):
        raise AssertionError("refused before any work is done")
    assert (tmp_path / "input.jsonl").read_text() == "{}"
