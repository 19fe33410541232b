"""Bad inputs: each gets one line that says what to do, exit code 2, and no traceback.

A case is written by a function into a folder that holds good files; it returns the arguments to add
or to change. The message must name the file, or the option, and hold the given words.
"""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

GOOD_EVENTS = '{"id": "e1", "a": 1}\n{"id": "e2", "a": 2}\n'
GOOD_SUBSCRIPTIONS = '{"id": "s1", "filter": "a > 0"}\n'
LAUGHS = (
    '<!DOCTYPE l [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">' for i in range(9))
    + "]><l>&j;</l>"
)


def packed(content: bytes) -> bytes:
    """Compressed, the same each time: the names of tests have its first bytes."""
    return gzip.compress(content, mtime=0)


def junk(size=4_096):
    return bytes((i * 7919 + i // 3) % 256 for i in range(1, size))


def parquet_bytes(table):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def feather_bytes(table):
    sink = pa.BufferOutputStream()
    feather.write_feather(table, sink, compression="uncompressed")
    return sink.getvalue().to_pybytes()


TABLE = pa.table({"id": ["e1", "e2"], "a": [1, 2]})
TWO_EQUAL_NAMES = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
WRONG_COLUMNS = pa.table({"name": ["s1"], "condition": ["a > 0"]})
NUMBERS = pa.table({"id": ["s1"], "filter": [5]})

# name of the file, its content, what the message must hold
EVENT_FILES = [
    ("broken.jsonl", b'{"a": 1}\n{"a": \n', "line 2: not JSON"),
    ("comma.jsonl", b'{"a": 1,}\n', "line 1: not JSON"),
    ("quotes.jsonl", b"{'a': 1}\n", "Write one JSON object per line"),
    ("two.jsonl", b'{"a": 1} {"a": 2}\n', "line 1: not JSON"),
    ("spread.jsonl", b'{\n"a": 1\n}\n', "line 1: not JSON"),
    ("number.jsonl", b'{"a": 1}\n5\n', "line 2: a number, not an object"),
    ("string.jsonl", b'"x"\n', "line 1: a string, not an object"),
    ("null.jsonl", b"null\n", "line 1: null, not an object"),
    ("array.jsonl", b'[{"a": 1}]\n', "read with the format json"),
    ("latin.jsonl", b'{"a": "\xe9"}\n', "Save the file as UTF-8"),
    ("utf16.jsonl", '{"a": 1}\n'.encode("utf-16"), "line 1: "),
    ("surrogate.jsonl", b'{"a": "\\ud800"}\n', "no Unicode"),
    ("digits.jsonl", b'{"a": ' + b"9" * 77 + b"}\n", "more than 76 digits"),
    ("deep.jsonl", b'{"a": ' + b"[" * 100_000 + b"\n", "nested too deeply"),
    ("records.jsonl", b'{"a":' * 100 + b"1" + b"}" * 100 + b"\n", "nested deeper than 64"),
    ("junk.jsonl", junk(), "line 1: "),
    ("zeros.jsonl", bytes(1_000), "line 1: not JSON"),
    ("id.jsonl", b'{"a": 1, "id": "' + b"x" * 65 + b'"}\n', "1 to 64 bytes"),
    ("long.jsonl", b" " * (33 << 20), "longer than 32 MiB"),
    (
        "cut.jsonl.gz",
        gzip.compress(GOOD_EVENTS.encode() * 999, mtime=0)[:-20],
        "cut off or damaged",
    ),
    ("damaged.jsonl.gz", b"\x1f\x8b\x08\x00" + junk(), "cut off or damaged"),
    ("empty.json", b"", "the file is empty"),
    ("broken.json", b'[{"a": 1}, {"a": ]', "not JSON"),
    ("lines.json", GOOD_EVENTS.encode(), "use the format jsonl"),
    ("scalar.json", b"42", "the document is a number"),
    ("object.json", b'{"features": [], "x": 1}', "Point to one with --records: features"),
    ("bare.json", b'{"x": 1}', "Write an array of objects"),
    ("mixed.json", b'[{"a": 1}, 5]', "record 2: a number, not an object"),
    ("deep.json", b"[" * 100_000, "nested too deeply"),
    ("empty.csv", b"", "begins with a header"),
    ("blank.csv", b"\n\n\n", "begins with a header"),
    ("short.csv", b"a,b\n1,2\n3\n", "line 3: 1 cells where the header has 2"),
    ("wide.csv", b"a,b\n1,2,3\n", "line 2: 3 cells where the header has 2"),
    ("twice.csv", b"a,b,a\n1,2,3\n", "the name 'a' twice"),
    ("unnamed.csv", b"a,,b\n1,2,3\n", "column 2 has no name"),
    ("quote.csv", b'a,b\n"1,2\n3,4\n', "not CSV"),
    ("after.csv", b'a,b\n"1"x,2\n', "not CSV"),
    ("latin.csv", b"a\n\xe9\n", "Save the file as UTF-8"),
    ("junk.csv", junk(), "Save the file as UTF-8"),
    ("cut.csv.gz", packed(b"a,b\n" + b"1,2\n" * 999)[:-9], "cut off or damaged"),
    ("empty.parquet", b"", "the file is empty"),
    ("junk.parquet", junk(), "not a Parquet file, or damaged"),
    ("text.parquet", GOOD_EVENTS.encode() * 9, "not a Parquet file, or damaged"),
    ("cut.parquet", parquet_bytes(TABLE)[:-50], "not a Parquet file, or damaged"),
    ("middle.parquet", b"PAR1" + junk() + b"PAR1", "not a Parquet file, or damaged"),
    ("twice.parquet", parquet_bytes(TWO_EQUAL_NAMES), "two columns named 'a'"),
    ("empty.feather", b"", "not an Arrow file, or damaged"),
    ("junk.arrow", junk(), "not an Arrow file, or damaged"),
    ("cut.feather", feather_bytes(TABLE)[:-40], "not an Arrow file, or damaged"),
    ("laughs.xml", LAUGHS.encode(), "DOCTYPE"),
    ("broken.xml", b"<a><b></a>", "not well-formed"),
    ("empty.xml", b"", "document"),
    ("deep.xml", b"<a>" * 5_000 + b"</a>" * 5_000, "deep"),
    ("junk.xml", junk(), "document"),
    ("events.dat", GOOD_EVENTS.encode(), "Say it with --events-format"),
    ("events", GOOD_EVENTS.encode(), "Say it with --events-format"),
]

SUBSCRIPTION_FILES = [
    ("empty.jsonl", b"", "no subscriptions"),
    ("blank.jsonl", b"\n \n", "no subscriptions"),
    ("broken.jsonl", b'{"id": "s1", "filter": "a > 0"\n', "line 1: not JSON"),
    ("noid.jsonl", b'{"filter": "a > 0"}\n', "line 1: the subscription has no id"),
    ("nofilter.jsonl", b'{"id": "s1"}\n', "line 1: the subscription 's1' has no filter"),
    ("both.jsonl", b'{"id": "s1", "filter": "a", "xpath": "/a"}\n', "both filter and xpath"),
    ("number.jsonl", b'{"id": "s1", "filter": 5}\n', "not text"),
    ("twice.jsonl", GOOD_SUBSCRIPTIONS.encode() * 2, "line 2: the id 's1' is taken by line 1"),
    ("filter.jsonl", b'{"id": "s1", "filter": "a >"}\n', "line 1: the filter ends"),
    ("xpath.jsonl", b'{"id": "s1", "xpath": "/a["}\n', "line 1: "),
    ("function.jsonl", b'{"id": "s1", "filter": "upper(a) = 1"}\n', "not supported"),
    ("header.csv", b"id,filter\n", "no subscriptions"),
    ("columns.csv", b"name,condition\ns1,a > 0\n", "there is no column id and no column filter"),
    ("comma.csv", b"id,filter\ns1,a IN (1,2)\n", "Quote cells that contain commas"),
    ("columns.parquet", parquet_bytes(WRONG_COLUMNS), "there is no column id and no column filter"),
    ("numbers.parquet", parquet_bytes(NUMBERS), "row 1: the filter of 's1' is not text"),
    ("junk.parquet", junk(), "not a Parquet file, or damaged"),
    ("object.json", b'{"id": "s1", "filter": "a"}', "an object, not an array"),
    ("s.xml", b"<a/>", "cannot be read from xml"),
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "good.jsonl").write_text(GOOD_EVENTS)
    (tmp_path / "good_subscriptions.jsonl").write_text(GOOD_SUBSCRIPTIONS)
    return tmp_path


def refused(done, words):
    assert done.code == 2, done
    assert done.out == ""
    assert done.err.count("\n") == 1 and done.err.startswith("peersub: error: "), done.err
    assert "Traceback" not in done.err and "not foreseen" not in done.err
    assert words in done.err, done.err
    assert len(done.err) < 1_000


def match(folder, events="good.jsonl", subscriptions="good_subscriptions.jsonl", *more):
    return (
        "match", "--subscriptions", folder / subscriptions, "--events", folder / events, *more,
    )  # fmt: skip


@pytest.mark.parametrize(("name", "content", "words"), EVENT_FILES, ids=lambda v: str(v)[:20])
def test_bad_events(folder, run, name, content, words):
    (folder / name).write_bytes(content)
    done = run(*match(folder, name))
    refused(done, words)
    assert name in done.err


@pytest.mark.parametrize(
    ("name", "content", "words"), SUBSCRIPTION_FILES, ids=lambda v: str(v)[:20]
)
def test_bad_subscriptions(folder, run, name, content, words):
    (folder / f"subscriptions-{name}").write_bytes(content)
    done = run(*match(folder, "good.jsonl", f"subscriptions-{name}"))
    refused(done, words)
    assert name in done.err


def no_file(folder):
    return match(folder, "nowhere.jsonl")


def no_subscriptions(folder):
    return match(folder, "good.jsonl", "nowhere.jsonl")


def no_folder(folder):
    return match(folder, "nowhere/e.jsonl")


def below_a_file(folder):
    return match(folder, "good.jsonl/e.jsonl")


def unknown_and_missing(folder):
    return match(folder, "nowhere.dat")


def empty_folder(folder):
    (folder / "empty").mkdir()
    return match(folder, "empty")


def folder_as_lines(folder):
    (folder / "folder.jsonl").mkdir()
    return match(folder, "folder.jsonl", "good_subscriptions.jsonl", "--events-format", "jsonl")


def folder_as_subscriptions(folder):
    (folder / "folder").mkdir()
    return match(folder, "good.jsonl", "folder")


def folder_without_documents(folder):
    (folder / "folder").mkdir()
    return match(folder, "folder", "good_subscriptions.jsonl", "--events-format", "xml")


def folder_without_parquet(folder):
    (folder / "folder").mkdir()
    return match(folder, "folder", "good_subscriptions.jsonl", "--events-format", "parquet")


def damaged_part(folder):
    (folder / "parts").mkdir()
    pq.write_table(TABLE, folder / "parts" / "a.parquet")
    (folder / "parts" / "b.parquet").write_bytes(junk())
    return match(folder, "parts", "good_subscriptions.jsonl", "--out", folder / "d.jsonl")


def laughing_document(folder):
    (folder / "docs").mkdir()
    (folder / "docs" / "a.xml").write_text("<a/>")
    (folder / "docs" / "b.xml").write_text(LAUGHS)
    return match(folder, "docs")


def unknown_format(folder):
    return match(folder, "good.jsonl", "good_subscriptions.jsonl", "--events-format", "excel")


def wrong_format(folder):
    return match(folder, "good.jsonl", "good_subscriptions.jsonl", "--events-format", "parquet")


def records_of_lines(folder):
    return match(folder, "good.jsonl", "good_subscriptions.jsonl", "--records", "x")


def records_nowhere(folder):
    (folder / "e.json").write_text('{"x": {"y": [1]}}')
    return match(folder, "e.json", "good_subscriptions.jsonl", "--records", "x.z")


def schema_of_nothing(folder):
    (folder / "e.csv").write_text("a\n1\n")
    return match(folder, "e.csv", "good_subscriptions.jsonl", "--schema", "b:date")


def schema_that_does_not_fit(folder):
    return match(folder, "good.jsonl", "good_subscriptions.jsonl", "--schema", "a:date")


def schema_of_parquet(folder):
    pq.write_table(TABLE, folder / "e.parquet")
    return match(folder, "e.parquet", "good_subscriptions.jsonl", "--schema", "a:date")


def out_is_input(folder):
    return match(folder, "good.jsonl", "good_subscriptions.jsonl", "--out", folder / "good.jsonl")


def out_nowhere(folder):
    return match(folder, "good.jsonl", "good_subscriptions.jsonl", "--out", folder / "no" / "d.csv")


def out_is_a_folder(folder):
    return match(folder, "good.jsonl", "good_subscriptions.jsonl", "--out", folder)


def out_of_no_format(folder):
    return match(folder, "good.jsonl", "good_subscriptions.jsonl", "--out", folder / "d.xls")


def quarantine_nowhere(folder):
    more = ("--skip-bad", "--quarantine", folder / "no" / "q.jsonl")
    return match(folder, "good.jsonl", "good_subscriptions.jsonl", *more)


def quarantine_is_input(folder):
    more = ("--skip-bad", "--quarantine", folder / "good.jsonl")
    return match(folder, "good.jsonl", "good_subscriptions.jsonl", *more)


def odd_name(folder):
    return match(folder, "new\nline.jsonl")


CASES = [
    (no_file, "there is no such file. Check the path"),
    (no_subscriptions, "there is no such file. Check the path"),
    (no_folder, "there is no such file. Check the path"),
    (below_a_file, "cannot be read"),
    (unknown_and_missing, "there is no such file"),
    (empty_folder, "neither .parquet nor .xml"),
    (folder_as_lines, "this is a folder. Name a file"),
    (folder_as_subscriptions, "neither .parquet nor .xml"),
    (folder_without_documents, "no .xml files"),
    (folder_without_parquet, "no .parquet files"),
    (damaged_part, "b.parquet: not a Parquet file"),
    (laughing_document, "DOCTYPE"),
    (unknown_format, "use one of jsonl"),
    (wrong_format, "not a Parquet file"),
    (records_of_lines, "--records points into a JSON document"),
    (records_nowhere, "nothing at 'x.z'. There is: y"),
    (schema_of_nothing, "'b', which is no column"),
    (schema_that_does_not_fit, "Correct it, or the schema"),
    (schema_of_parquet, "Leave out --schema"),
    (out_is_input, "also an input. Write to another file"),
    (out_nowhere, "does not exist. Create it"),
    (out_is_a_folder, "this is a folder"),
    (out_of_no_format, "Let the name end in"),
    (quarantine_nowhere, "Check --quarantine"),
    (quarantine_is_input, "Name another file"),
    (odd_name, "there is no such file"),
]


@pytest.mark.parametrize(("case", "words"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_bad_arguments(folder, run, case, words):
    refused(run(*case(folder)), words)
    assert (folder / "good.jsonl").read_text() == GOOD_EVENTS
    assert not (folder / "d.jsonl").exists()


def test_there_are_enough_cases():
    assert len(EVENT_FILES) + len(SUBSCRIPTION_FILES) + len(CASES) >= 50


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_without_permission(folder, run):
    (folder / "good.jsonl").chmod(0)
    refused(run(*match(folder)), "Check its permissions")


def test_a_permission_that_the_system_refuses(folder, run, monkeypatch):
    """The same for a superuser, whom files do not refuse."""

    def refuse(name, mode="r", **options):
        raise PermissionError(13, "Permission denied", name)

    monkeypatch.setattr("builtins.open", refuse)
    refused(run(*match(folder)), "Check its permissions")


@pytest.mark.parametrize("name", ["junk.jsonl", "cut.jsonl.gz", "middle.parquet", "laughs.xml"])
def test_some_in_a_process_of_their_own(folder, name):
    content = next(content for found, content, _ in EVENT_FILES if found == name)
    (folder / name).write_bytes(content)
    command = [sys.executable, "-W", "error", "-m", "peersub.cli", *map(str, match(folder, name))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("peersub: error: ")


# --- filters -----------------------------------------------------------------------------------

# The list and its marks are described at its top.
BAD_FILTERS = Path(__file__).parents[1] / "filters" / "bad_filters.txt"
BAD_PATTERNS = [
    "", "/", "//", "a[", "/a[", "/a[]", "/a]", "/a[@]", "/a/", "/a[position() = 1]", "/a | /b",
    "/a[b or c]", "/a[not(b)]", "ancestor::a", "/a[1]", "/a[text() = ]", "/a['x]", "\0",
]  # fmt: skip


def bad_filters():
    texts = []
    for line in BAD_FILTERS.read_text(encoding="utf-8").split("\n"):
        if "▶" in line and not line.startswith("# Filters"):
            marked = line.rpartition(" ## ")[0]
            text = marked.replace("▶", "").replace("⏎", "\n").replace("⇥", "\t")
            texts.append(text.replace("␀", "\0"))
    return texts


def test_every_bad_filter_is_one_line_that_says_what_to_do(run):
    texts = bad_filters()
    assert len(texts) >= 200
    for text in texts:
        # A filter may begin with a dash: it follows the end of the options.
        refused(run("filter", "check", "--", text), "character")


@pytest.mark.parametrize("pattern", BAD_PATTERNS)
def test_a_bad_pattern_is_one_line(run, pattern):
    refused(run("filter", "check", "--xpath", "--", pattern), "character")


def test_bad_filters_of_a_file_are_each_one_line(tmp_path, run):
    texts = bad_filters()
    rows = [{"id": f"b{i}", "filter": text} for i, text in enumerate(texts)]
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run("filter", "check", "--file", tmp_path / "s.jsonl")
    assert done.code == 2 and done.out == f"0 good, {len(texts)} bad\n"
    lines = done.err.splitlines()
    assert len(lines) == len(texts)
    for number, line in enumerate(lines, 1):
        assert line.startswith("peersub: error: ") and f"line {number}: " in line
