"""Subscriptions from files: kept and refused rows add up, and each refusal says why."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from peersub.files import FileError
from peersub.files.subscriptions import read_subscriptions

GOOD = [
    {"id": "s1", "filter": "a > 1"},
    {"id": "7", "filter": "true"},
    {"id": "x1", "xpath": "/a//b"},
]


def write(folder, name, rows):
    path = folder / name
    if name.endswith(".jsonl"):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif name.endswith(".json"):
        path.write_text(json.dumps(rows))
    elif name.endswith(".csv"):
        lines = ["id,filter,xpath,owner"]
        lines += [f"{r.get('id')},{r.get('filter', '')},{r.get('xpath', '')},me" for r in rows]
        path.write_text("\n".join(lines))
    else:
        columns = {name: [row.get(name) for row in rows] for name in ("id", "filter", "xpath")}
        pq.write_table(pa.table(columns | {"other": list(range(len(rows)))}), path)
    return str(path)


@pytest.mark.parametrize("name", ["s.jsonl", "s.json", "s.csv", "s.parquet"])
def test_every_format(tmp_path, name):
    found = read_subscriptions(write(tmp_path, name, GOOD))
    assert found.ids == ["s1", "7", "x1"]
    assert found.texts == ["a > 1", "true", "/a//b"]
    assert found.languages == ["sql", "sql", "xpath"]
    assert len(found) == 3


BAD = [
    ({"filter": "a"}, "has no id"),
    ({"id": None, "filter": "a"}, "has no id"),
    ({"id": "", "filter": "a"}, "has no id"),
    ({"id": {"x": 1}, "filter": "a"}, "has no id"),
    ({"id": "s9"}, "has no filter"),
    ({"id": "s9", "filter": None}, "has no filter"),
    ({"id": "s9", "filter": "a", "xpath": "/a"}, "both filter and xpath"),
    ({"id": "s9", "filter": 5}, "is not text"),
    ({"id": "s1", "filter": "b"}, "taken by line 1"),
]


@pytest.mark.parametrize(("row", "reason"), BAD)
def test_bad_rows(tmp_path, row, reason):
    path = write(tmp_path, "s.jsonl", [*GOOD, row])
    with pytest.raises(FileError, match=f"line 4: .*{reason}"):
        read_subscriptions(path)


def test_kept_and_refused_rows_add_up(tmp_path):
    bad = []
    rows = [*GOOD, *(row for row, _ in BAD)]
    found = read_subscriptions(write(tmp_path, "s.jsonl", rows), None, bad.append)
    assert len(found) + len(bad) == len(rows)
    assert [row.place for row in bad] == [f"line {n}" for n in range(4, 4 + len(BAD))]
    assert [json.loads(row.original) for row in bad] == [row for row, _ in BAD]


def test_a_file_without_subscriptions_is_refused(tmp_path):
    for name, text in (("s.jsonl", "\n\n"), ("s.csv", "id,filter\n"), ("s.json", "[]")):
        (tmp_path / name).write_text(text)
        with pytest.raises(FileError, match="no subscriptions"):
            read_subscriptions(str(tmp_path / name))
