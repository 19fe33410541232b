"""Events from every format: the same rows, the same kinds, bounded batches, clear refusals."""

import csv
import gzip
import io
import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from peersub.events.arrow import rows_of_table
from peersub.events.kinds import Kind, is_missing
from peersub.files import FileError
from peersub.files import opening as opening_module
from peersub.files.events import EventSource, kinds_of_text, read_events
from peersub.files.formats import Format

ROWS = [
    {"id": "a", "price": 1.5, "n": 3, "ok": True, "name": 'x,"y"\nz'},
    {"id": "b", "price": 2.0, "n": None, "ok": False, "name": "é😀"},
    {"id": "c", "price": None, "n": 2**53 + 1, "ok": None, "name": None},
]


def rows_of(path, report=None, **options):
    source = EventSource(str(path), **options)
    tables = read_events(source) if report is None else read_events(source, report)
    rows = [row for table in tables for row in rows_of_table(table)]
    return [{name: value for name, value in row.items() if not is_missing(value)} for row in rows]


def present(rows):
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def json_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def comma_separated(rows):
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(rows[0])
    for row in rows:
        cells = ["" if value is None else value for value in row.values()]
        writer.writerow([str(c).lower() if isinstance(c, bool) else c for c in cells])
    return text.getvalue()


def write_all_formats(folder):
    table = pa.Table.from_pylist(ROWS)
    (folder / "e.jsonl").write_text(json_lines(ROWS), encoding="utf-8")
    (folder / "e.ndjson").write_text(json_lines(ROWS).replace("\n", "\r\n\n"), encoding="utf-8")
    (folder / "e.json").write_text(json.dumps(ROWS, indent=2), encoding="utf-8")
    (folder / "e.csv").write_text(comma_separated(ROWS), encoding="utf-8", newline="")
    (folder / "bom.csv").write_bytes(b"\xef\xbb\xbf" + comma_separated(ROWS).encode())
    (folder / "bom.jsonl").write_bytes(b"\xef\xbb\xbf" + json_lines(ROWS).encode())
    (folder / "e.jsonl.gz").write_bytes(gzip.compress(json_lines(ROWS).encode()))
    (folder / "e.csv.gz").write_bytes(gzip.compress(comma_separated(ROWS).encode()))
    pq.write_table(table, folder / "e.parquet")
    feather.write_feather(table, folder / "e.feather")
    with pa.ipc.new_stream(str(folder / "e.arrows"), table.schema) as stream:
        stream.write_table(table)
    parts = folder / "parts.parquet"
    (parts / "_temporary").mkdir(parents=True)
    (parts / "_SUCCESS").write_text("")
    pq.write_table(table.slice(0, 1), parts / "part-0.parquet")
    pq.write_table(table.slice(1), parts / "part-1.parquet")


def test_every_format_gives_the_same_rows(tmp_path):
    write_all_formats(tmp_path)
    files = sorted(path for path in tmp_path.iterdir())
    assert len(files) == 12
    for path in files:
        rows = rows_of(path)
        assert rows == present(ROWS), path.name
        kinds = [{name: type(value) for name, value in row.items()} for row in rows]
        assert kinds == [{n: type(v) for n, v in row.items()} for row in present(ROWS)], path.name


def test_standard_input(monkeypatch):
    data = io.TextIOWrapper(io.BytesIO(json_lines(ROWS).encode()))
    monkeypatch.setattr(sys, "stdin", data)
    assert rows_of("-") == present(ROWS)
    data = io.TextIOWrapper(io.BytesIO(comma_separated(ROWS).encode()))
    monkeypatch.setattr(sys, "stdin", data)
    assert rows_of("-", format=Format.CSV) == present(ROWS)


def test_a_mixed_column_keeps_each_kind(tmp_path):
    (tmp_path / "e.jsonl").write_text(
        '{"x": 5}\n{"x": 5.0}\n{"x": "5"}\n{"x": true}\n{"x": {"y": 1}}\n'
    )
    values = [row["x"] for row in rows_of(tmp_path / "e.jsonl")]
    assert [type(value) for value in values] == [int, float, str, bool, dict]
    (tmp_path / "e.csv").write_text('x\n5\n5.0\n007\ntrue\n+5\n"5"\nNaN\nInfinity\n')
    values = [row.get("x") for row in rows_of(tmp_path / "e.csv")]
    assert values == [5, 5.0, "007", True, "+5", 5, None, float("inf")]
    assert [type(value) for value in values[:4]] == [int, float, str, bool]


def test_json_numbers_are_exact_and_nan_is_understood(tmp_path):
    (tmp_path / "e.jsonl").write_text(
        '{"a": 123456789012345678901234567890}\n{"a": NaN, "b": -Infinity}\n'
        '{"a": 1, "a": 2}\n{"a": 1e400}\n'
    )
    rows = rows_of(tmp_path / "e.jsonl")
    assert rows == [
        {"a": Decimal(123456789012345678901234567890)},
        {"b": float("-inf")},
        {"a": 2},
        {"a": float("inf")},
    ]
    (tmp_path / "e.json").write_text('[{"a": 123456789012345678901234567890}, {"a": NaN}]')
    assert rows_of(tmp_path / "e.json") == [{"a": Decimal(123456789012345678901234567890)}, {}]


def test_records_points_into_a_document(tmp_path):
    path = tmp_path / "e.json"
    path.write_text(json.dumps({"type": "x", "data": {"features": [{"a": 1}, {"a": {"b": 2}}]}}))
    assert rows_of(path, records="data.features") == [{"a": 1}, {"a": {"b": 2}}]
    with pytest.raises(FileError, match="Point to one with --records") as refused:
        rows_of(path, records="data")
    assert "data.features" in str(refused.value)
    with pytest.raises(FileError, match=r"nothing at \'data\.nope\'\. There is: features"):
        rows_of(path, records="data.nope")
    with pytest.raises(FileError, match=r"nothing at \'type\.x\'"):
        rows_of(path, records="type.x")
    with pytest.raises(FileError, match="is an object, not an array"):
        rows_of(path)


def test_blocks_end_at_any_byte(tmp_path, monkeypatch):
    rows = [{"n": i, "text": "ä" * (i % 7)} for i in range(300)]
    path = tmp_path / "e.jsonl"
    path.write_text(json_lines(rows).rstrip("\n"), encoding="utf-8")
    for size in (1, 7, 64, 1000):
        monkeypatch.setattr(opening_module, "BLOCK_BYTES", size)
        assert rows_of(path) == rows
    bad = path.read_bytes().replace(b'"n": 250', b'"n": x')
    path.write_bytes(bad)
    with pytest.raises(FileError, match=r"e\.jsonl, line 251: not JSON"):
        rows_of(path)


def test_batches_are_bounded(tmp_path):
    (tmp_path / "e.csv").write_text("n\n" + "\n".join(map(str, range(20_000))))
    sizes = [table.num_rows for table in read_events(EventSource(str(tmp_path / "e.csv")))]
    assert sum(sizes) == 20_000 and max(sizes) <= 8_192
    pq.write_table(pa.table({"n": range(50_000)}), tmp_path / "e.parquet")
    sizes = [table.num_rows for table in read_events(EventSource(str(tmp_path / "e.parquet")))]
    assert sum(sizes) == 50_000 and max(sizes) <= 16_384


def test_rows_that_share_no_names_do_not_make_a_huge_table(tmp_path):
    rows = [{f"n{i}": i} for i in range(5_000)]
    (tmp_path / "e.jsonl").write_text(json_lines(rows))
    tables = list(read_events(EventSource(str(tmp_path / "e.jsonl"))))
    assert sum(table.num_rows for table in tables) == 5_000
    assert max(table.num_rows * table.num_columns for table in tables) <= 1 << 22


def test_a_schema_gives_kinds_to_text(tmp_path):
    schema = kinds_of_text("day:date,at:timestamp,price:decimal,code:string,n:int,ok:bool")
    (tmp_path / "e.csv").write_text(
        "day,at,price,code,n,ok\n2024-02-29,2024-05-01T10:00:00+02:00,1.10,007,5,TRUE\n,,,,,\n"
    )
    expected = {
        "day": date(2024, 2, 29),
        "at": datetime(2024, 5, 1, 8, tzinfo=UTC),
        "price": Decimal("1.10"),
        "code": "007",
        "n": 5,
        "ok": True,
    }
    assert rows_of(tmp_path / "e.csv", schema=schema) == [expected, {}]
    event = {"day": "2024-02-29", "at": "2024-05-01 08:00", "price": 1.1, "code": 7, "n": "5"}
    (tmp_path / "e.jsonl").write_text(json.dumps(event | {"ok": True, "r": {"day": "2024-01-01"}}))
    nested = schema | kinds_of_text("r.day:date")
    assert rows_of(tmp_path / "e.jsonl", schema=nested) == [
        expected | {"price": Decimal("1.1"), "code": "7", "r": {"day": date(2024, 1, 1)}}
    ]
    (tmp_path / "bad.csv").write_text("day\nx\n")
    with pytest.raises(FileError, match=r"line 2: day: 'x' is no"):
        rows_of(tmp_path / "bad.csv", schema={"day": Kind.DATE})


@pytest.mark.parametrize("text", ["day", "day:", ":date", "day:month", "a:date,b"])
def test_a_schema_that_is_not_understood(text):
    with pytest.raises(ValueError, match="write name:kind"):
        kinds_of_text(text)


def test_bad_rows_are_reported_and_the_rest_is_read(tmp_path):
    (tmp_path / "e.jsonl").write_text('{"a": 1}\n{"a":\n[1]\n{"a": ' + "9" * 80 + '}\n{"a": 2}\n')
    bad = []
    assert rows_of(tmp_path / "e.jsonl", report=bad.append) == [{"a": 1}, {"a": 2}]
    assert [row.place for row in bad] == ["line 2", "line 3", "line 4"]
    assert [row.original for row in bad][:2] == ['{"a":', "[1]"]
    (tmp_path / "e.csv").write_text('a,b\n1,2\n1\n1,2,3\n"x\ny",4\n,5\n')
    bad = []
    rows = rows_of(tmp_path / "e.csv", report=bad.append)
    assert rows == [{"a": 1, "b": 2}, {"a": "x\ny", "b": 4}, {"b": 5}]
    assert [(row.place, row.original) for row in bad] == [("line 3", "1"), ("line 4", "1,2,3")]


def test_xml_documents_are_events(tmp_path):
    folder = tmp_path / "docs"
    (folder / "deep").mkdir(parents=True)
    (folder / "b.xml").write_text("<b/>")
    (folder / "a.xml").write_text("<a><c/></a>")
    (folder / "deep" / "c.xml").write_text("<c/>")
    (folder / f"{'x' * 80}.xml").write_text("<x/>")
    (folder / "notes.txt").write_text("no document")
    rows = rows_of(folder)
    assert [row.get("id") for row in rows] == ["a.xml", "b.xml", None, "deep/c.xml"]
    assert rows[0]["body"] == b"<a><c/></a>"
    (folder / "bad.xml").write_text("<a>")
    with pytest.raises(FileError, match=r"bad\.xml, document: .*not well-formed"):
        rows_of(folder)
    bad = []
    assert len(rows_of(folder, report=bad.append)) == 4 and len(bad) == 1


def test_folders_named_like_attributes_are_attributes(tmp_path):
    for year in (2023, 2024):
        part = tmp_path / "e" / f"year={year}" / "kind=a%20b"
        part.mkdir(parents=True)
        pq.write_table(pa.table({"n": [year - 2000]}), part / "p.parquet")
    assert rows_of(tmp_path / "e") == [
        {"n": 23, "year": 2023, "kind": "a b"},
        {"n": 24, "year": 2024, "kind": "a b"},
    ]


def test_rows_of_no_attributes_are_rows(tmp_path):
    (tmp_path / "e.jsonl").write_text("{}\n{}\n")
    assert rows_of(tmp_path / "e.jsonl") == [{}, {}]


def test_the_position_ends_at_the_total(tmp_path):
    write_all_formats(tmp_path)
    for name in ("e.jsonl", "e.csv", "e.parquet", "e.feather", "e.jsonl.gz", "parts.parquet"):
        source = EventSource(str(tmp_path / name))
        list(read_events(source))
        assert source.position.total > 0
        assert source.position.done == source.position.total, name
