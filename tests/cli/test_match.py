"""`peersub match`: the deliveries are those of asking each filter about each event."""

import csv
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from peersub import Filter

EVENTS = [
    {"id": f"e{i}", "price": i / 2, "n": i, "tag": "ab"[i % 2], "deep": {"x": i % 3}}
    for i in range(40)
]
FILTERS = {
    "all": "TRUE",
    "none": "n < 0",
    "cheap": "price < 3.5",
    "tagged": "tag = 'a' AND n >= 10",
    "deep": "deep.x = 2 OR n = 7",
}


@pytest.fixture
def files(tmp_path):
    (tmp_path / "e.jsonl").write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    (tmp_path / "s.jsonl").write_text(
        "".join(json.dumps({"id": name, "filter": text}) + "\n" for name, text in FILTERS.items())
    )
    return tmp_path


def expected():
    return sorted(
        (event["id"], name)
        for event in EVENTS
        for name, text in FILTERS.items()
        if Filter(text).matches(event)
    )


def pairs(lines):
    return sorted(tuple(json.loads(line).values()) for line in lines.splitlines())


def command(folder, *more, subscriptions="s.jsonl", events="e.jsonl"):
    return (
        "match", "--subscriptions", folder / subscriptions, "--events", folder / events, *more,
    )  # fmt: skip


def test_deliveries_to_standard_output(files, run):
    done = run(*command(files))
    assert done.code == 0
    assert pairs(done.out) == expected() and len(expected()) > 60
    assert f"40 events x 5 subscriptions: {len(expected())} deliveries" in done.err


def test_deliveries_come_in_the_order_of_the_events(files, run):
    lines = [json.loads(line) for line in run(*command(files)).out.splitlines()]
    order = [int(line["event_id"][1:]) for line in lines]
    assert order == sorted(order)


@pytest.mark.parametrize("name", ["d.jsonl", "d.csv", "d.parquet"])
def test_deliveries_to_a_file(files, run, name):
    done = run(*command(files, "--out", files / name, "--json"))
    assert done.code == 0
    if name == "d.jsonl":
        found = pairs((files / name).read_text())
    elif name == "d.csv":
        with (files / name).open(newline="") as stream:
            found = sorted(map(tuple, list(csv.reader(stream))[1:]))
    else:
        table = pq.read_table(files / name).to_pydict()
        found = sorted(zip(table["event_id"], table["subscription_id"], strict=True))
    assert found == expected()
    summary = json.loads(done.out)
    assert summary["events"] == 40 and summary["deliveries"] == len(expected())


def test_events_from_standard_input_and_json_summary_on_standard_error(files, run):
    data = (files / "e.jsonl").read_bytes()
    done = run("match", "--subscriptions", files / "s.jsonl", "--events", "-", "--json", stdin=data)
    assert pairs(done.out) == expected()
    summary = json.loads(done.err.splitlines()[-1])
    assert summary["subscriptions"] == 5 and summary["bad_events"] == 0


def test_quiet_says_nothing(files, run):
    assert run(*command(files, "--quiet")).err == ""


def test_no_match_is_exit_code_4(files, run):
    (files / "s.jsonl").write_text('{"id": "s", "filter": "n > 1000"}\n')
    done = run(*command(files))
    assert (done.code, done.out) == (4, "")
    (files / "e.jsonl").write_text("\n")
    done = run(*command(files))
    assert done.code == 4 and "no events" in done.err


def test_bad_rows_go_to_quarantine_and_counts_add_up(files, run):
    with (files / "s.jsonl").open("a") as stream:
        stream.write('{"id": "bad", "filter": "a >"}\n{"id": "all", "filter": "TRUE"}\nnonsense\n')
    with (files / "e.jsonl").open("a") as stream:
        stream.write('{"n": 5\n[]\n')
    done = run(*command(files, "--skip-bad", "--quarantine", files / "q.jsonl", "--json"))
    assert done.code == 5
    assert pairs(done.out) == expected()
    summary = json.loads(done.err.splitlines()[-1])
    assert (summary["events"], summary["bad_events"]) == (40, 2)
    assert (summary["subscriptions"], summary["bad_subscriptions"]) == (5, 3)
    rows = [json.loads(line) for line in (files / "q.jsonl").read_text().splitlines()]
    originals = {(row["file"].rpartition("/")[2], row["place"]): row["original"] for row in rows}
    assert originals.pop(("s.jsonl", "line 6")) == '{"id": "bad", "filter": "a >"}'
    assert originals == {
        ("s.jsonl", "line 7"): '{"id": "all", "filter": "TRUE"}',
        ("s.jsonl", "line 8"): "nonsense",
        ("e.jsonl", "line 41"): '{"n": 5',
        ("e.jsonl", "line 42"): "[]",
    }
    assert len(rows) == 5
    assert all(row["reason"] for row in rows)


def test_without_a_file_the_quarantine_is_standard_error(files, run):
    with (files / "e.jsonl").open("a") as stream:
        stream.write("oops\n")
    done = run(*command(files, "--skip-bad"))
    assert done.code == 5 and pairs(done.out) == expected()
    assert "skipped: " in done.err and "line 41" in done.err and "| oops" in done.err
    assert "1 rows skipped" in done.err


def test_a_bad_event_leaves_no_output_file(files, run):
    with (files / "e.jsonl").open("a") as stream:
        stream.write("oops\n")
    done = run(*command(files, "--out", files / "d.jsonl"))
    assert done.code == 2 and "line 41" in done.err and "--skip-bad" in done.err
    assert sorted(path.name for path in files.iterdir()) == ["e.jsonl", "s.jsonl"]


def test_several_bad_subscriptions_are_listed_before_anything_is_matched(files, run):
    with (files / "s.jsonl").open("a") as stream:
        stream.writelines(f'{{"id": "b{i}", "filter": "a >> {i}"}}\n' for i in range(9))
    done = run(*command(files))
    assert (done.code, done.out) == (2, "")
    lines = done.err.splitlines()
    assert len(lines) == 5
    assert all(line.startswith("peersub: error: ") for line in lines)
    assert [f"line {number}:" in line for number, line in enumerate(lines, 6)] == [True] * 5


def test_subscriptions_that_can_never_match_are_named(files, run):
    with (files / "s.jsonl").open("a") as stream:
        stream.write(
            '{"id": "w1", "filter": "price = \'3\'"}\n{"id": "w2", "filter": "prize > 3"}\n'
        )
    done = run(*command(files))
    assert done.code == 0
    warnings = [line for line in done.err.splitlines() if "warning" in line]
    assert any("'w1'" in line for line in warnings)
    assert any("'w2'" in line and "price" in line for line in warnings)
    assert not any("'none'" in line for line in warnings)


def test_xpath_subscriptions_over_a_folder_and_over_a_column(tmp_path, run):
    documents = {"a.xml": "<n><p lede='x'/></n>", "b.xml": "<n><p/></n>", "c.xml": "<m/>"}
    (tmp_path / "docs").mkdir()
    for name, text in documents.items():
        (tmp_path / "docs" / name).write_text(text)
    (tmp_path / "s.jsonl").write_text(
        '{"id": "lede", "xpath": "//p[@lede]"}\n{"id": "n", "xpath": "/n"}\n'
        '{"id": "sql", "filter": "id = \'c.xml\'"}\n'
    )
    wanted = [("a.xml", "lede"), ("a.xml", "n"), ("b.xml", "n"), ("c.xml", "sql")]
    done = run(*command(tmp_path, events="docs"))
    assert pairs(done.out) == wanted
    table = {"id": list(documents), "doc": list(documents.values())}
    pq.write_table(pa.table(table), tmp_path / "e.parquet")
    done = run(*command(tmp_path, "--body-column", "doc", events="e.parquet"))
    assert pairs(done.out) == wanted


def test_records_and_schema(tmp_path, run):
    (tmp_path / "e.json").write_text(
        json.dumps({"features": [{"id": 1, "day": "2024-05-01"}, {"id": 2, "day": "2023-01-01"}]})
    )
    (tmp_path / "s.csv").write_text("id,filter\nlate,day > DATE '2024-01-01'\n")
    options = ("--records", "features", "--schema", "day:date")
    done = run(*command(tmp_path, *options, subscriptions="s.csv", events="e.json"))
    assert pairs(done.out) == [("1", "late")]
    done = run(*command(tmp_path, *options[:2], subscriptions="s.csv", events="e.json"))
    assert done.code == 4 and "can never match" in done.err


def test_equal_rows_without_an_id_are_numbered(tmp_path, run):
    (tmp_path / "e.jsonl").write_text('{"a": 1}\n{"a": 2}\n{"a": 1.0}\n')
    (tmp_path / "s.jsonl").write_text('{"id": "s", "filter": "a = 1"}\n')
    first, second = (event for event, _ in pairs(run(*command(tmp_path)).out))
    assert second == first + "#1"


def test_events_without_attributes_are_events(tmp_path, run):
    (tmp_path / "e.jsonl").write_text("{}\n{}\n")
    (tmp_path / "s.jsonl").write_text('{"id": "s", "filter": "a IS NULL"}\n')
    assert len(pairs(run(*command(tmp_path)).out)) == 2


def test_many_deliveries_are_matched_in_small_steps(files, run, monkeypatch):
    from peersub.cli import match_command

    monkeypatch.setattr(match_command, "EVENTS_AT_FIRST", 3)
    monkeypatch.setattr(match_command, "PAIRS_MAX", 4)
    assert pairs(run(*command(files)).out) == expected()
