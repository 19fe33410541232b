"""What workers make of slices, without Spark: the same rows and reports as `files.read_events`."""

import csv
import gzip
import json
from dataclasses import replace
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from peersub.events.arrow import rows_of_table, table_of_rows
from peersub.events.envelope import row_identifiers
from peersub.files import FileError
from peersub.files.events import EventSource, read_events
from peersub.files.subscriptions import read_subscriptions
from peersub.filters.filter import Filter
from peersub.pipeline.kernels.blocks import unpacked
from peersub.pipeline.kernels.reading import EventReading, event_records
from peersub.pipeline.kernels.subscribing import subscription_records
from peersub.pipeline.slices import (
    EventInput,
    SubscriptionInput,
    listed_slices,
    with_balance,
)

NAN = float("nan")
ROWS = [
    {"id": "a", "x": 5, "n": 1},
    {"id": "b", "x": 5.0},
    {"x": "5", "r": {"y": [1, "z"], "w": None}},
    {"id": 7, "x": True},
    {"x": 2**70},
    {"x": None},
    {},
    {"x": "5", "r": {"y": [1, "z"]}},
    {"x": -0.0, "n": "été"},
    {},
]


def pieces(source, slice_bytes=None, reading=None):
    slices = listed_slices(source, slice_bytes)
    return [list(event_records(part, reading or EventReading())) for part in slices]


def kept_rows(slices):
    blocks = [record for part in slices for record in part if record["kind"] == "block"]
    tables = [unpacked(block["table"]) for block in blocks]
    return [row for table in tables for row in rows_of_table(table)]


def records_of(slices, kind):
    return [record for part in slices for record in part if record["kind"] == kind]


def present(rows):
    """Rows without what is missing: blocks have columns of their own."""
    return [repr(without_missing(row)) for row in rows]


def without_missing(value):
    if not isinstance(value, dict):
        return value
    return {name: without_missing(item) for name, item in value.items() if item is not None}


def absolute_lines(slices):
    """The numbers of bad and of kept lines, once those of earlier slices are added."""
    before, bad, kept = 0, [], []
    for part in slices:
        for record in part:
            if record["kind"] == "bad":
                bad.append(record["position"] + before)
            kept += [position + before for position in record.get("positions") or ()]
        before += part[-1]["lines"]
    return bad, kept


def expected_rows(name, **options):
    bad = []
    tables = list(read_events(EventSource(str(name), **options), bad.append))
    return [row for table in tables for row in rows_of_table(table)], bad


def json_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize("slice_bytes", [1, 20, 64, 10_000])
def test_json_lines_in_slices_are_the_rows_of_the_file(tmp_path, slice_bytes):
    file = tmp_path / "e.jsonl"
    file.write_text(json_lines(ROWS))
    slices = pieces(EventInput(str(file)), slice_bytes)
    rows, _ = expected_rows(file)
    assert present(kept_rows(slices)) == present(rows)
    assert len(slices) == -(-file.stat().st_size // slice_bytes)


def test_names_are_those_of_the_envelope_before_equal_rows_are_numbered(tmp_path):
    file = tmp_path / "e.jsonl"
    file.write_text(json_lines(ROWS))
    blocks = records_of(pieces(EventInput(str(file)), 50), "block")
    names = [name for block in blocks for name in block["names"]]
    given = [there for block in blocks for there in block["given"]]
    assert names == [name.partition("#")[0] for name in row_identifiers(ROWS)]
    assert given == ["id" in row for row in ROWS]


@pytest.mark.parametrize("slice_bytes", [1, 17, 40, 10_000])
def test_bad_lines_keep_their_numbers_across_slices(tmp_path, slice_bytes):
    file = tmp_path / "e.jsonl"
    lines = [b'{"a": 1}', b"{bad", b"", b"  ", b'{"a": 2}', b"[1]", b'{"a": "\xe9"}', b'{"a": 3}']
    long_name = json.dumps({"id": "x" * 65}).encode()
    file.write_bytes(b"\r\n".join([*lines * 3, long_name, *lines]))
    slices = pieces(EventInput(str(file)), slice_bytes)
    _, bad = expected_rows(file)
    found = records_of(slices, "bad")
    bad_lines, kept_lines = absolute_lines(slices)
    sound = [line for line in range(1, 34) if line % 8 in (1, 5, 0)][:9]
    assert kept_lines == [*sound, 26, 30, 33]
    ours = dict(zip(bad_lines, found, strict=True))
    assert sorted(ours) == sorted([25, *(int(row.place.split()[1]) for row in bad)])
    for row in bad:
        record = ours[int(row.place.split()[1])]
        assert (record["reason"], record["original"]) == (row.reason, row.original)
        assert (record["file"], record["rows"]) == (row.name, 1)
    assert "1 to 64 bytes" in ours[25]["reason"] and "xxx" in ours[25]["original"]
    assert present(kept_rows(slices)) == [f"{{'a': {n}}}" for n in (1, 2, 3) * 4]


def csv_slices(file, slice_bytes):
    """As the driver does it: first all slices are looked at, then the file is cut or not."""
    from peersub.pipeline.kernels.reading import balanced_slices
    from peersub.pipeline.schemas import SLICES

    slices = listed_slices(EventInput(str(file)), slice_bytes)
    columns = [dict(zip(SLICES.arrow.names, _values(part), strict=True)) for part in slices]
    told = balanced_slices([pa.RecordBatch.from_pylist(columns, SLICES.arrow)])
    verdicts = [row for batch in told for row in batch.to_pylist()]
    return with_balance(slices, {row["number"] for row in verdicts if not row["balanced"]})


def _values(part):
    from dataclasses import astuple

    return astuple(part)


@pytest.mark.parametrize("inside", ["plain", "it's", 'a "word"', "two\nlines", "a\rb"])
def test_csv_is_cut_only_where_no_cell_spans_lines(tmp_path, inside):
    file = tmp_path / "e.csv"
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "x", "s"])
        writer.writerows([f"e{n}", n, inside if n == 20 else ""] for n in range(40))
    slices = csv_slices(file, 50)
    spans = "\n" in inside or "\r" in inside
    assert (len(slices) == 1) == spans
    assert [part.number for part in slices] == list(range(len(slices)))
    found = [list(event_records(part, EventReading())) for part in slices]
    rows, _ = expected_rows(file)
    assert present(kept_rows(found)) == present(rows)
    assert not records_of(found, "bad")


def test_parquet_is_cut_at_row_groups(tmp_path):
    file = tmp_path / "e.parquet"
    pq.write_table(pa.table({"n": range(1_000)}), file, row_group_size=100)
    slices = pieces(EventInput(str(file)), file.stat().st_size // 5)
    assert len(slices) > 4
    assert [row["n"] for row in kept_rows(slices)] == list(range(1_000))
    positions = [p for block in records_of(slices, "block") for p in block["positions"]]
    assert positions == list(range(1, 1_001))


def test_a_damaged_row_group_costs_its_own_rows(tmp_path):
    file = tmp_path / "e.parquet"
    table = pa.table({"n": range(3_000)})
    pq.write_table(table, file, row_group_size=1_000, use_dictionary=False, compression="snappy")
    start = pq.ParquetFile(file).metadata.row_group(1).column(0).data_page_offset
    data = bytearray(file.read_bytes())
    data[start : start + 40] = b"\xff" * 40
    file.write_bytes(data)
    slices = pieces(EventInput(str(file)))
    (bad,) = records_of(slices, "bad")
    assert (bad["unit"], bad["position"], bad["rows"]) == ("rows 1001 to", 2_000, 1_000)
    assert [row["n"] for row in kept_rows(slices)] == [*range(1_000), *range(2_000, 3_000)]


def test_a_file_that_is_cut_off_keeps_what_was_read(tmp_path):
    file = tmp_path / "e.jsonl.gz"
    # Beyond one block of a megabyte, so that there is something before the damage.
    lines = json_lines({"n": n, "s": str(n) * 20} for n in range(30_000))
    data = gzip.compress(lines.encode(), 1)
    file.write_bytes(data[: len(data) - 1_000])
    (records,) = pieces(EventInput(str(file)))
    (bad,) = [record for record in records if record["kind"] == "bad"]
    kept = kept_rows([records])
    assert 1_000 < len(kept) < 30_000 and kept[-1]["n"] == len(kept) - 1
    assert (bad["unit"], bad["position"], bad["rows"]) == ("after line", len(kept), None)
    assert "cut off or damaged" in bad["reason"]


def write_arrow(table, file):
    with pa.ipc.new_file(str(file), table.schema) as writer:
        writer.write_table(table)


def test_every_format_gives_the_rows_that_match_reads(tmp_path):
    typed = [
        {"id": f"t{n}", "n": n, "d": date(2024, 5, 1 + n), "m": Decimal("1.10"), "r": {"y": n}}
        for n in range(5)
    ]
    pq.write_table(table_of_rows(typed), tmp_path / "e.parquet")
    write_arrow(table_of_rows(ROWS + typed), tmp_path / "e.arrow")
    (tmp_path / "e.json").write_text(json.dumps({"data": {"rows": ROWS}}))
    (tmp_path / "e.jsonl.gz").write_bytes(gzip.compress(json_lines(ROWS).encode()))
    (tmp_path / "e.xml").write_text("<a><b/></a>")
    for name in ("e.parquet", "e.arrow", "e.json", "e.jsonl.gz", "e.xml"):
        pointer = "data.rows" if name == "e.json" else None
        source = EventInput(str(tmp_path / name), records=pointer)
        slices = pieces(source, 100, EventReading(pointer))
        rows, _ = expected_rows(tmp_path / name, records=pointer)
        assert rows and present(kept_rows(slices)) == present(rows), name
        assert not records_of(slices, "bad"), name


def test_documents_of_a_folder_have_the_names_that_match_gives_them(tmp_path):
    for name in ("b.xml", "a.xml", "sub/c.xml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"<d n='{name}'/>")
    (tmp_path / "bad.xml").write_text("<a>")
    (tmp_path / "cut.xml").write_bytes(gzip.compress(b"<a/>" * 99)[:-9])
    slices = pieces(EventInput(str(tmp_path)), 20)
    assert len(slices) > 1
    rows, bad = expected_rows(tmp_path)
    assert present(kept_rows(slices)) == present(rows)
    assert [row["id"] for row in rows] == ["a.xml", "b.xml", "sub/c.xml"]
    found = [(r["file"], r["unit"], r["reason"]) for r in records_of(slices, "bad")]
    assert found == [(row.name, row.place, row.reason) for row in bad]
    assert len(found) == 2
    positions = [p for block in records_of(slices, "block") for p in block["positions"]]
    assert positions == [1, 2, 5]


def test_folders_named_by_values_are_attributes(tmp_path):
    (tmp_path / "day=3").mkdir()
    pq.write_table(pa.table({"n": [1]}), tmp_path / "day=3" / "p.parquet")
    assert kept_rows(pieces(EventInput(str(tmp_path)))) == [{"n": 1, "day": 3}]


def test_a_schema_gives_kinds(tmp_path):
    from peersub.files.events import kinds_of_text

    schema = kinds_of_text("d:date")
    (tmp_path / "a.jsonl").write_text('{"d": "2024-05-01"}\n{"d": "soon"}\n')
    (tmp_path / "b.csv").write_text("d\n2024-05-01\nlater\n")
    slices = pieces(EventInput(str(tmp_path), schema=schema), None, EventReading(None, schema))
    assert kept_rows(slices) == [{"d": date(2024, 5, 1)}] * 2
    assert [record["position"] for record in records_of(slices, "bad")] == [2, 3]


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (lambda folder: folder / "none", {}, "no such file"),
        (lambda folder: folder, {}, "holds no files"),
        (lambda folder: "-", {}, "standard input"),
        (lambda folder: written(folder / "e.dat", "x"), {}, "does not tell the format"),
        (lambda folder: written(folder / "e.csv", "x"), {"records": "a"}, "--records points"),
    ],
)
def test_inputs_that_are_refused_at_once(tmp_path, make, options, message):
    with pytest.raises(FileError, match=message):
        listed_slices(EventInput(str(make(tmp_path)), **options))


def written(file, text):
    file.write_text(text)
    return file


def test_a_worker_that_does_not_see_the_input_ends_the_job(tmp_path):
    (part,) = listed_slices(EventInput(str(written(tmp_path / "e.jsonl", "{}"))))
    elsewhere = replace(part, root="/nowhere/e.jsonl", files=["/nowhere/e.jsonl"])
    with pytest.raises(FileError, match="all workers share"):
        list(event_records(elsewhere, EventReading()))


def test_subscriptions_in_place_of_events_are_remarked_on(tmp_path):
    file = written(tmp_path / "s.jsonl", '{"id": "s1", "filter": "a > 1"}\n')
    assert "subscriptions" in pieces(EventInput(str(file)))[-1][-1]["remark"]
    file.write_text('{"id": "s1", "filter": "a > 1", "b": 1}\n')
    assert pieces(EventInput(str(file)))[-1][-1]["remark"] is None


# --- subscriptions -----------------------------------------------------------------------------

SUBSCRIPTIONS = [
    '{"id": "s1", "filter": "a > 1"}',
    '{"id": "s2", "filter": "a >"}',
    "",
    "not json",
    '{"id": "s3", "xpath": "/a/b"}',
    '{"id": "s4", "xpath": "/a["}',
    '{"id": "s5"}',
    '{"filter": "a > 1"}',
    '{"id": "s6", "filter": "a > 1", "xpath": "/a"}',
    '{"id": "s7", "filter": 5}',
    '{"id": 8, "filter": "1 < a", "other": 3}',
    '{"id": "s9", "filter": "a LIKE \'%x%\'"}',
]


def subscription_slices(source, slice_bytes):
    return [list(subscription_records(part)) for part in listed_slices(source, slice_bytes)]


@pytest.mark.parametrize("slice_bytes", [30, 10_000])
def test_subscriptions_are_kept_or_reported_as_match_does(tmp_path, slice_bytes):
    file = written(tmp_path / "s.jsonl", "\n".join(SUBSCRIPTIONS) + "\n")
    found = subscription_slices(SubscriptionInput(str(file)), slice_bytes)
    bad = []
    wanted = read_subscriptions(str(file), report=bad.append)
    rows = records_of(found, "row")
    assert [row["subscription_id"] for row in rows] == wanted.ids
    assert [row["text"] for row in rows] == wanted.texts
    assert [row["language"] for row in rows] == wanted.languages
    digests = {row["subscription_id"]: row.get("digest") for row in rows}
    assert digests["s1"] == digests["8"] == Filter("a > 1").digest
    assert digests["s3"] == Filter.xpath("/a/b").digest
    assert digests["s9"] == Filter("a LIKE '%x%'").digest
    assert digests["s2"] is digests["s4"] is None
    reasons = {row["subscription_id"]: row.get("reason") for row in rows}
    assert "(at character 4 of 'a >')" in reasons["s2"] and "/a[" in reasons["s4"]
    assert sorted(r["reason"] for r in records_of(found, "bad")) == sorted(r.reason for r in bad)
    # The places among all rows: what a slice begins with is added later.
    before, numbers = 0, {}
    for part in found:
        for record in part:
            if record["kind"] in ("row", "bad"):
                numbers[before + record["sequence"]] = record["kind"]
        before += part[-1]["rows"]
    assert sorted(numbers) == list(range(11))
    assert [n for n, kind in numbers.items() if kind == "bad"] == [2, 5, 6, 7, 8]


def test_a_table_without_the_columns_is_refused_once_per_slice(tmp_path):
    file = written(tmp_path / "s.csv", "name,condition\n" + "a,b\n" * 5)
    (records,) = subscription_slices(SubscriptionInput(str(file)), None)
    (bad,) = [record for record in records if record["kind"] == "bad"]
    assert "there is no column id and no column filter" in bad["reason"] and bad["rows"] is None
