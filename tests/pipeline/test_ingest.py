"""Ingest on Spark: the rows, names and reports of `peersub match`, and every row accounted for."""

import gzip
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isnan

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from peersub.events.arrow import rows_of_table, table_of_rows
from peersub.events.envelope import content_hash, row_identifiers
from peersub.files import FileError
from peersub.files.event_names import EventNames
from peersub.files.events import EventSource
from peersub.files.events import read_events as read_file
from peersub.filters.filter import Filter
from peersub.pipeline.ingest import event_blocks, ingest_events, ingest_frame
from peersub.pipeline.kernels.blocks import unpacked
from peersub.pipeline.schemas import EVENTS, INGEST_COUNTS, QUARANTINE, SUBSCRIPTIONS
from peersub.pipeline.slices import EventInput, SubscriptionInput
from peersub.pipeline.subscribe import ingest_subscriptions
from test_doors import ROWS as MIXED_ROWS
from test_doors import carries_json

pytestmark = pytest.mark.spark


@pytest.fixture
def keep(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")

    def write(name, frame):
        path = str(folder / name)
        frame.write.parquet(path)
        return spark.read.parquet(path)

    return write


def events(frame):
    """The events in the order of their blocks: names and rows."""
    assert frame.schema == EVENTS.spark
    blocks = sorted(frame.collect(), key=lambda block: block.block)
    assert len({block.block for block in blocks}) == len(blocks)
    assert [block.rows for block in blocks] == [len(block.names) for block in blocks]
    names = [name for block in blocks for name in block.names]
    rows = [row for block in blocks for row in rows_of_table(unpacked(bytes(block.table)))]
    assert len(names) == len(rows)
    return names, rows


def quarantine(frame):
    assert frame.schema == QUARANTINE.spark
    found = [row.asDict() for row in frame.collect()]
    return sorted(found, key=lambda row: (row["file"], row["place"], row["reason"]))


def counts(frame, folder):
    assert frame.schema == INGEST_COUNTS.spark
    found = {}
    for row in frame.collect():
        assert row.rows_read == row.rows_kept + row.rows_quarantined
        name = row.file.removeprefix(f"{folder}/")
        found[name] = (row.rows_kept, row.rows_quarantined, row.unreadable)
    return found


def plain(rows):
    """Rows as text, without what is missing: blocks have columns of their own."""
    return [repr(without_missing(row)) for row in rows]


def without_missing(value):
    if not isinstance(value, dict):
        return value
    found = {name: without_missing(item) for name, item in value.items()}
    return {
        name: item
        for name, item in found.items()
        if item is not None and not (isinstance(item, float) and isnan(item))
    }


def json_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


# --- the same meaning --------------------------------------------------------------------------


def test_the_mixed_file_keeps_each_values_kind_and_name(spark, keep, tmp_path):
    rows = [row for row in MIXED_ROWS if carries_json(row)]
    unnamed = [{k: v for k, v in row.items() if k != "id"} for row in rows]
    file = tmp_path / "e.jsonl"
    # Equal rows lie in different slices; their numbers go on across them.
    file.write_text(json_lines([*rows, *unnamed, *unnamed[::-1], *unnamed]))
    found = ingest_events(spark, EventInput(str(file)), keep, slice_bytes=600)
    names, ours = events(found.kept)
    tables = list(read_file(EventSource(str(file))))
    wanted = [row for table in tables for row in rows_of_table(table)]
    assert plain(ours) == plain(wanted)
    all_names = EventNames()
    assert names == [name for table in tables for name in all_names.names(table)]
    assert names == list(row_identifiers(wanted))
    assert len(set(names)) == len(names) == 4 * len(rows)
    assert any(name.endswith("#2") for name in names)
    assert quarantine(found.quarantine) == []


def test_a_folder_of_all_formats_is_read_in_the_order_of_its_files(spark, keep, tmp_path):
    rows = [{"n": n, "x": str(n) if n % 2 else n} for n in range(40)]
    (tmp_path / "a.jsonl").write_text(json_lines(rows))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(json_lines(rows).encode()))
    (tmp_path / "c.json").write_text(json.dumps(rows))
    (tmp_path / "d.csv").write_text("n,x\n" + "".join(f"{n},v{n}\n" for n in range(40)))
    (tmp_path / "e.csv").write_text('n,x\n1,"two\nlines"\n' + '2,"a"\n' * 20)
    table = table_of_rows(rows)
    pq.write_table(pa.table({"n": range(40)}), tmp_path / "f.parquet", row_group_size=10)
    pq.write_table(pa.table({"n": ["x", "y"]}), tmp_path / "g.parquet")
    with pa.ipc.new_file(str(tmp_path / "h.arrow"), table.schema) as writer:
        writer.write_table(table)
    for name in ("i.xml", "j.xml"):
        (tmp_path / name).write_text(f"<d n='{name}'/>")
    found = ingest_events(spark, EventInput(str(tmp_path)), keep, slice_bytes=300)
    names, ours = events(found.kept)
    wanted = []
    for file in sorted(tmp_path.iterdir()):
        if file.suffix == ".xml":
            wanted.append({"id": file.name, "body": file.read_bytes()})
            continue
        for table in read_file(EventSource(str(file))):
            wanted += rows_of_table(table)
    assert plain(ours) == plain(wanted)
    assert names == list(row_identifiers(wanted))
    assert quarantine(found.quarantine) == []
    kept = {name: kept for name, (kept, _, _) in counts(found.counts, tmp_path).items()}
    assert kept == {
        **dict.fromkeys(("a.jsonl", "b.jsonl.gz", "c.json", "d.csv", "f.parquet", "h.arrow"), 40),
        "e.csv": 21,
        "g.parquet": 2,
        str(tmp_path): 2,
    }


# --- ids ---------------------------------------------------------------------------------------


def test_the_first_event_with_an_id_is_kept(spark, keep, tmp_path):
    rows = [{"id": f"e{n}", "n": n} for n in range(50)]
    repeats = [{"id": "e3", "n": "it's"}, {"id": "e3", "n": 2}, {"id": "e49", "n": 49}]
    (tmp_path / "a.jsonl").write_text("\n" + json_lines(rows + repeats))
    (tmp_path / "b.jsonl").write_text(json_lines([{"id": "e0"}, {"id": "new"}]))
    found = ingest_events(spark, EventInput(str(tmp_path)), keep, slice_bytes=100)
    names, ours = events(found.kept)
    assert names == [f"e{n}" for n in range(50)] + ["new"]
    assert plain(ours) == plain([*rows, {"id": "new"}])
    bad = quarantine(found.quarantine)
    assert [(row["place"], row["reason"].partition(". ")[0]) for row in bad] == [
        ("line 52", "the id 'e3' is taken by line 5"),
        ("line 53", "the id 'e3' is taken by line 5"),
        ("line 54", "the id 'e49' is taken by line 51"),
        ("line 1", f"the id 'e0' is taken by line 2 of {tmp_path / 'a.jsonl'}"),
    ]
    assert json.loads(bad[0]["original"]) == repeats[0]
    assert counts(found.counts, tmp_path) == {"a.jsonl": (50, 3, 0), "b.jsonl": (1, 1, 0)}


def test_an_id_may_be_the_name_of_another_row_by_content(spark, keep, tmp_path):
    name = content_hash({"n": 1})
    rows = [{"n": 1}, {"n": 1}, {"id": f"{name}#1"}, {"id": name}, {"n": 1}, {"id": f"{name}#7"}]
    (tmp_path / "e.jsonl").write_text(json_lines(rows))
    found = ingest_events(spark, EventInput(str(tmp_path / "e.jsonl")), keep, slice_bytes=30)
    names, _ = events(found.kept)
    assert names == [name, f"{name}#1", f"{name}#2", f"{name}#7"]
    assert [row["place"] for row in quarantine(found.quarantine)] == ["line 3", "line 4"]


# --- damage ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("settings_of_real_jobs")
def test_a_directory_of_damaged_input_accounts_for_every_row(spark, keep, tmp_path):
    good = json_lines({"id": f"g{n}", "n": n} for n in range(30)).encode()
    table = pa.table({"n": range(200)})
    pq.write_table(table, tmp_path / "whole.parquet", row_group_size=20)
    data = (tmp_path / "whole.parquet").read_bytes()
    files = {
        "bad_lines.jsonl": b'{"n": 1}\n{"n": \n\n5\n{"n": 2}\n{"n": "\xe9"}\n',
        "blank.csv": b"\n\n",
        "cut.jsonl.gz": gzip.compress(good)[:-9],
        "cut.parquet": data[: len(data) // 2],
        "empty.csv": b"",
        "empty.json": b"",
        "empty.jsonl": b"",
        "empty.parquet": b"",
        "good.jsonl": good,
        "ids.jsonl": json_lines([{"id": "g7"}, {"id": "x" * 65}, {"id": "ok"}]).encode(),
        "latin.csv": b"a,b\n1,2\n\xe9,3\n4,5\n",
        "notes.txt": b"hello",
        "quote.csv": b'a,b\n1,2\n"3,4\n5,6\n',
        "ragged.csv": b"a,b\n1,2\n3\n4,5,6\n7,8\n",
        "wrong.json": b'{"n": 1}\n{"n": 2}\n',
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "broken.xml").write_text("<a><b></a>")
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    found = ingest_events(spark, EventInput(str(tmp_path)), keep, slice_bytes=200)
    kept, bad = events(found.kept), quarantine(found.quarantine)
    # kept, in quarantine, parts that nobody can count: told by hand
    wanted = {
        "bad_lines.jsonl": (2, 3, 0),
        "blank.csv": (0, 0, 1),
        "cut.jsonl.gz": (0, 0, 1),
        "cut.parquet": (0, 0, 1),
        "empty.csv": (0, 0, 0),
        "empty.json": (0, 0, 0),
        "empty.jsonl": (0, 0, 0),
        "empty.parquet": (0, 0, 0),
        "gone.jsonl": (0, 0, 0),
        "good.jsonl": (30, 0, 0),
        "ids.jsonl": (1, 2, 0),
        "latin.csv": (2, 1, 0),
        "notes.txt": (0, 0, 1),
        "quote.csv": (1, 0, 1),
        "ragged.csv": (2, 2, 0),
        "whole.parquet": (200, 0, 0),
        "wrong.json": (0, 0, 1),
        str(tmp_path): (0, 1, 0),
    }
    assert counts(found.counts, tmp_path) == wanted
    assert len(kept[0]) == sum(rows for rows, _, _ in wanted.values())
    assert sum(row["rows"] or 0 for row in bad) == sum(rows for _, rows, _ in wanted.values())
    told = [(row["file"].removeprefix(f"{tmp_path}/"), row["place"], row["rows"]) for row in bad]
    assert told == [
        ("bad_lines.jsonl", "line 2", 1),
        ("bad_lines.jsonl", "line 4", 1),
        ("bad_lines.jsonl", "line 6", 1),
        ("blank.csv", "", None),
        ("broken.xml", "document", 1),
        ("cut.jsonl.gz", "", None),
        ("cut.parquet", "", None),
        ("empty.csv", "", 0),
        ("empty.json", "", 0),
        ("empty.parquet", "", 0),
        ("gone.jsonl", "", 0),
        ("ids.jsonl", "line 1", 1),
        ("ids.jsonl", "line 2", 1),
        ("latin.csv", "line 3", 1),
        ("notes.txt", "", None),
        ("quote.csv", "line 3", None),
        ("ragged.csv", "line 3", 1),
        ("ragged.csv", "line 4", 1),
        ("wrong.json", "", None),
    ]
    assert all(row["reason"] and row["dataset"] == "events" for row in bad)
    assert all(row["original"] for row in bad if row["rows"])


def test_an_input_of_which_nothing_can_be_read_is_refused(spark, keep, tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and nothing else")
    (tmp_path / "b.txt").write_text("x")
    with pytest.raises(FileError, match=r"nothing in it can be read: .*a.parquet.*\(and 1 more\)"):
        ingest_events(spark, EventInput(str(tmp_path)), keep)


# --- frames ------------------------------------------------------------------------------------


def test_a_frame_becomes_blocks(spark, keep):
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    rows = [
        {"id": n % 5 if n < 6 else None, "m": Decimal("1.10"), "d": date(2024, 5, 1), "t": noon,
         "b": b"\x00", "r": {"y": n // 8, "z": [1, 2]}, "f": 0.5}
        for n in range(20)
    ]  # fmt: skip
    schema = (
        "id int, m decimal(9,2), d date, t timestamp, b binary, "
        "r struct<y: long, z: array<int>>, f double"
    )
    frame = spark.createDataFrame(rows, schema).repartition(1).repartition(3)
    frame = keep("frame", frame)
    wanted = [row.asDict(recursive=True) for row in frame.collect()]
    wanted = [row | {"t": noon, "b": bytes(row["b"])} for row in wanted]
    found = ingest_frame(frame, keep, "mine")
    names, ours = events(found.kept)
    named = [row["id"] for row in wanted]
    again = next(n for n, i in enumerate(named) if i == 0 and 0 in named[:n])
    kept = [row for n, row in enumerate(wanted) if n != again]
    assert plain(ours) == plain(kept)
    assert names == list(row_identifiers(kept))
    (bad,) = quarantine(found.quarantine)
    first = named.index(0)
    assert (bad["file"], bad["place"]) == ("mine", f"row {again + 1}")
    assert bad["reason"].startswith(f"the id '0' is taken by row {first + 1}.")
    assert events(event_blocks(frame)) == (names, ours)


# --- subscriptions -----------------------------------------------------------------------------


def test_subscriptions_that_can_be_used_and_the_others(spark, keep, tmp_path):
    lines = [
        '{"id": "s0", "filter": "a > 1"}',
        '{"id": "s1", "filter": "a >"}',
        "",
        '{"id": "s0", "filter": "also wrong >"}',
        '{"id": "s1", "filter": "a = 2"}',
        "{",
        '{"id": "s5", "xpath": "/a/b"}',
        '{"id": "s6"}',
        '{"id": "s7", "filter": "NOT a <= 1"}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "b.csv").write_text("id,filter\ns0,a = 1\ns9,a = 9\n")
    (tmp_path / "c.csv").write_text("name,condition\n" + "x,y\n" * 200)
    (tmp_path / "d.xml").write_text("<a/>")
    source = SubscriptionInput(str(tmp_path))
    found = ingest_subscriptions(spark, source, keep, slice_bytes=60)
    assert found.kept.schema == SUBSCRIPTIONS.spark
    rows = sorted(tuple(row) for row in found.kept.collect())
    assert [row[:4] for row in rows] == [
        (0, "s0", "sql", "a > 1"),
        (5, "s5", "xpath", "/a/b"),
        (7, "s7", "sql", "NOT a <= 1"),
        (9, "s9", "sql", "a = 9"),
    ]
    assert bytes(rows[0][4]) == bytes(rows[2][4]) == Filter("a > 1").digest
    bad = quarantine(found.quarantine)
    told = [
        (row["file"].removeprefix(f"{tmp_path}/"), row["place"], row["reason"][:40], row["rows"])
        for row in bad
    ]
    assert told == [
        ("a.jsonl", "line 2", "the filter ends where an attribute or a ", 1),
        ("a.jsonl", "line 4", "the id 's0' is taken by line 1. Give eac", 1),
        ("a.jsonl", "line 5", "the id 's1' is taken by line 2. Give eac", 1),
        ("a.jsonl", "line 6", "not JSON (Expecting property name enclos", 1),
        ("a.jsonl", "line 8", "the subscription 's6' has no filter. Wri", 1),
        ("b.csv", "line 2", f"the id 's0' is taken by line 1 of {tmp_path}"[:40], 1),
        ("c.csv", "", "there is no column id and no column filt", None),
        ("d.xml", "", "subscriptions cannot be read from xml. U", None),
    ]
    assert json.loads(bad[1]["original"]) == {"id": "s0", "filter": "also wrong >"}
    assert counts(found.counts, tmp_path) == {
        "a.jsonl": (3, 5, 0),
        "b.csv": (1, 1, 0),
        "c.csv": (0, 0, 1),
        str(tmp_path): (0, 0, 1),
    }


def test_a_file_without_subscriptions_is_refused(spark, keep, tmp_path):
    (tmp_path / "s.jsonl").write_text("\n")
    with pytest.raises(FileError, match="there are no subscriptions in it"):
        ingest_subscriptions(spark, SubscriptionInput(str(tmp_path / "s.jsonl")), keep)
