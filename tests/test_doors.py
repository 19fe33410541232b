"""One file of mixed kinds gives the same rows through every door.

The rows, the filters and who gets what are written by hand below. A door takes rows and filters and
answers with pairs of row and filter; a format that cannot carry a row (CSV has no records, JSON no
dates) gets the file without it. Later doors join the list `DOORS`; those of Spark are in
`pipeline/test_spark_doors.py`.
"""

import csv
import gzip
import io
import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isinf, isnan

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from peersub import Event, Filter, Matcher
from peersub.cli import main
from peersub.events.arrow import table_of_rows
from peersub.matching import matcher as matcher_module

NAN, INFINITY = float("nan"), float("inf")
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
BEFORE_1970 = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)

# One column, x, of all kinds.
MIXED = {
    "int": 5,
    "float": 5.0,
    "text": "5",
    "true": True,
    "false": False,
    "odd": 2**53 + 1,
    "even": float(2**53),
    "huge": 2**70,
    "zero": -0.0,
    "tenth": 0.1,
    "infinite": INFINITY,
    "nan": NAN,
    "none": None,
    "record": {"y": 1, "z": {"w": "q"}},
    "list": [5],
    "accent": "été",
    "emoji": "\U0001f600",
    "high": "\uffee",
    "date": date(2024, 5, 1),
    "moment": NOON,
    "decimal": Decimal("0.1"),
    "cents": Decimal("5.00"),
}
# One column per kind.
TYPED = {
    "t1": {"n": 1, "f": 1.5, "s": "a", "b": True, "d": date(2024, 5, 1), "t": NOON,
           "m": Decimal("10.10"), "r": {"y": 1, "z": {"w": "q"}}, "dotted.name": 1},
    "t2": {"n": 2**53 + 1, "f": float(2**53), "s": "B", "b": False, "d": date(1969, 12, 31),
           "t": BEFORE_1970, "m": Decimal("-0.05"), "r": {"y": None, "z": None}},
    "t3": {"n": -(2**63), "f": NAN, "s": "", "b": None, "d": date(9999, 12, 31),
           "m": Decimal("0.10"), "r": None},
    "t4": {"n": 2**63 - 1, "f": -INFINITY, "s": "\U0001f600", "r": {"y": 2, "z": {"w": "5"}}},
    "t5": {},
}  # fmt: skip
ROWS = [
    *({"id": name, "x": value} for name, value in MIXED.items()),
    *({"id": name} | row for name, row in TYPED.items()),
]

WANTED = {
    "x = 5": "int float cents",
    "x = '5'": "text",
    "x": "true",
    "NOT x": "false",
    "x <> 5": "odd even huge zero tenth infinite decimal",
    "x > 9007199254740992": "odd huge infinite",
    "x = 9007199254740992": "even",
    "x >= 1180591620717411303424": "huge infinite",
    "x = 0.1": "tenth decimal",
    "x BETWEEN 0 AND 5": "int float zero tenth decimal cents",
    "x < 1": "zero tenth decimal",
    "x IN (5, '5', TRUE, DATE '2024-05-01')": "int float text true date cents",
    "x >= '5'": "text accent emoji high",
    "x > '\uffee'": "emoji",
    "x LIKE '%t%'": "accent",
    "x RLIKE '^.$'": "text emoji high",
    "x NOT LIKE '%5%'": "accent emoji high",
    "x = DATE '2024-05-01'": "date",
    "x < TIMESTAMP '2024-05-01 12:00:00.000001'": "moment",
    "x.y = 1": "record",
    "x.z.w LIKE 'q%'": "record",
    "x IS NULL AND s IS NULL AND n IS NULL": "nan none t5",
    "x IS NOT NULL AND NOT x > 4": "zero tenth decimal",
    "x IS NOT NULL AND id LIKE 'li%'": "list",
    "n > 9007199254740992": "t2 t4",
    "n <= -9223372036854775808": "t3",
    "n = 9223372036854775807 AND f < 0": "t4",
    "f = 9007199254740992": "t2",
    "f IS NULL AND n IS NOT NULL": "t3",
    "s < 'a'": "t2 t3",
    "s = ''": "t3",
    "s > '\uffff'": "t4",
    "b = FALSE": "t2",
    "d < DATE '1970-01-01'": "t2",
    "d >= DATE '9999-12-31'": "t3",
    "t < TIMESTAMP '1970-01-01 00:00:00'": "t2",
    "t = TIMESTAMP '2024-05-01 14:00:00+02:00'": "t1",
    "m = 10.1": "t1",
    "m BETWEEN -0.05 AND 0.1": "t2 t3",
    "r.y >= 1": "t1 t4",
    "r.y IS NULL AND n IS NOT NULL": "t2 t3",
    "r.z.w = '5'": "t4",
    "`dotted.name` = 1": "t1",
    "dotted.name = 1": "",
    "id = 't5'": "t5",
    "d > 5 OR t > 'x' OR s > 5 OR n > 'x'": "",
}
FILTERS = {f"f{number}": text for number, text in enumerate(WANTED)}


def expected(rows):
    there = {row["id"] for row in rows}
    names = {text: name for name, text in FILTERS.items()}
    return {
        (row, names[text])
        for text, wanted in WANTED.items()
        for row in wanted.split()
        if row in there
    }


# --- in process --------------------------------------------------------------------------------


def by_filter(rows, _folder, _patch):
    filters = {name: Filter(text) for name, text in FILTERS.items()}
    return {(row["id"], name) for row in rows for name, one in filters.items() if one.matches(row)}


def by_event(rows, _folder, _patch):
    filters = {name: Filter(text) for name, text in FILTERS.items()}
    events = [Event(row["id"], row) for row in rows]
    return {(event.id, name) for event in events for name, f in filters.items() if f.matches(event)}


def by_canonical_text(rows, _folder, _patch):
    filters = {name: Filter(Filter(text).text) for name, text in FILTERS.items()}
    return {(row["id"], name) for row in rows for name, one in filters.items() if one.matches(row)}


def by_wire_form(rows, _folder, _patch):
    filters = {n: Filter.from_bytes(Filter(text).to_bytes()) for n, text in FILTERS.items()}
    return {(row["id"], name) for row in rows for name, one in filters.items() if one.matches(row)}


def filled_matcher():
    matcher = Matcher()
    for name, text in FILTERS.items():
        matcher.add(name, Filter(text))
    return matcher


def bulk_matcher():
    return Matcher.from_texts(list(FILTERS), list(FILTERS.values()))


def one_by_one(matcher, rows):
    return {(row["id"], name) for row in rows for name in matcher.match(row)}


def by_match(rows, _folder, _patch):
    return one_by_one(filled_matcher(), rows)


def by_compiled_match(rows, _folder, _patch):
    return one_by_one(bulk_matcher(), rows)


def by_opened_match(rows, folder, _patch):
    filled_matcher().save(folder / "matcher")
    return one_by_one(Matcher.open(folder / "matcher"), rows)


def of_batch(matcher, table, rows, **options):
    found = matcher.match_batch(table, **options).to_pydict()
    pairs = zip(found["event_row"], found["subscription_id"], strict=True)
    return {(rows[row]["id"], name) for row, name in pairs}


def by_match_batch(rows, _folder, _patch):
    return of_batch(filled_matcher(), table_of_rows(rows), rows)


def by_compiled_batch(rows, _folder, _patch):
    return of_batch(bulk_matcher(), table_of_rows(rows), rows, threads=1)


def by_threads(rows, _folder, _patch):
    table = table_of_rows(rows)
    many = pa.concat_tables([table] * 50)
    found = of_batch(bulk_matcher(), many, rows * 50, threads=3)
    assert bulk_matcher().match_batch(many).num_rows == 50 * len(expected(rows))
    return found


def by_slices(rows, _folder, _patch):
    matcher, table = bulk_matcher(), table_of_rows(rows)
    parts = [(start, table.slice(start, 3)) for start in range(0, len(rows), 3)]
    return set().union(*(of_batch(matcher, part, rows[start:]) for start, part in parts))


# --- files -------------------------------------------------------------------------------------


def subscriptions_file(folder):
    lines = (json.dumps({"id": name, "filter": text}) for name, text in FILTERS.items())
    (folder / "s.jsonl").write_text("\n".join(lines))
    return folder / "s.jsonl"


def by_command(rows, folder, events, *options, compiled=False, patch=None):
    if compiled:
        patch.setattr(matcher_module, "SMALL_BATCH_ROWS", 0)
    out = folder / "d.jsonl"
    subscriptions = subscriptions_file(folder)
    arguments = ("match", "--subscriptions", subscriptions, "--events", events, "--out", out)
    assert main([str(argument) for argument in (*arguments, *options)]) == 0
    deliveries = [tuple(json.loads(line).values()) for line in out.read_text().splitlines()]
    assert len(deliveries) == len(set(deliveries))
    return set(deliveries)


def json_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def by_json_lines(rows, folder, patch):
    (folder / "e.jsonl").write_text(json_lines(rows))
    return by_command(rows, folder, folder / "e.jsonl")


def by_compiled_json_lines(rows, folder, patch):
    (folder / "e.jsonl").write_text(json_lines(rows))
    return by_command(rows, folder, folder / "e.jsonl", compiled=True, patch=patch)


def by_compressed_json_lines(rows, folder, patch):
    (folder / "e.jsonl.gz").write_bytes(gzip.compress(json_lines(rows).encode()))
    return by_command(rows, folder, folder / "e.jsonl.gz")


def by_standard_input(rows, folder, patch):
    patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json_lines(rows).encode())))
    return by_command(rows, folder, "-")


def by_json(rows, folder, patch):
    (folder / "e.json").write_text(json.dumps({"data": {"rows": rows}}))
    return by_command(rows, folder, folder / "e.json", "--records", "data.rows")


def cell(value):
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and (isnan(value) or isinf(value)):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return str(value)


def by_csv(rows, folder, patch):
    names = list(dict.fromkeys(name for row in rows for name in row))
    with (folder / "e.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(names)
        writer.writerows([cell(row.get(name)) for name in names] for row in rows)
    return by_command(rows, folder, folder / "e.csv")


def by_parquet(rows, folder, patch):
    pq.write_table(table_of_rows(rows), folder / "e.parquet")
    return by_command(rows, folder, folder / "e.parquet")


def by_parquet_folder(rows, folder, patch):
    (folder / "parts").mkdir()
    for number, row in enumerate(rows):
        pq.write_table(table_of_rows([row]), folder / "parts" / f"{number}.parquet")
    return by_command(rows, folder, folder / "parts")


def by_arrow(rows, folder, patch):
    table = table_of_rows(rows)
    with pa.ipc.new_file(str(folder / "e.arrow"), table.schema) as writer:
        writer.write_table(table)
    return by_command(rows, folder, folder / "e.arrow", compiled=True, patch=patch)


# --- the list ----------------------------------------------------------------------------------


def carries_all(_row):
    return True


def leaves(value):
    if isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    else:
        yield value


def carries_json(row):
    return not any(isinstance(value, date | Decimal) for value in leaves(row))


def carries_csv(row):
    """Scalars whose text is read back as the same value; neither records nor quoted numbers."""
    plain = not any(isinstance(value, dict | list) for value in row.values())
    texts = [value for name, value in row.items() if isinstance(value, str)]
    return carries_json(row) and plain and not any(text in ("", "5") for text in texts)


def carries_parquet(row):
    """A column of Parquet has one kind, and each row here has columns of its own kinds."""
    return "x" not in row


DOORS = [
    (by_filter, carries_all),
    (by_event, carries_all),
    (by_canonical_text, carries_all),
    (by_wire_form, carries_all),
    (by_match, carries_all),
    (by_compiled_match, carries_all),
    (by_opened_match, carries_all),
    (by_match_batch, carries_all),
    (by_compiled_batch, carries_all),
    (by_threads, carries_all),
    (by_slices, carries_all),
    (by_json_lines, carries_json),
    (by_compiled_json_lines, carries_json),
    (by_compressed_json_lines, carries_json),
    (by_standard_input, carries_json),
    (by_json, carries_json),
    (by_csv, carries_csv),
    (by_parquet, carries_parquet),
    (by_parquet_folder, carries_parquet),
    (by_arrow, carries_all),
]


@pytest.mark.parametrize(("door", "carries"), DOORS, ids=lambda value: value.__name__)
def test_the_same_rows_through_every_door(door, carries, tmp_path, monkeypatch):
    rows = [row for row in ROWS if carries(row)]
    found, wanted = door(rows, tmp_path, monkeypatch), expected(rows)
    missing = sorted((row, FILTERS[name]) for row, name in wanted - found)
    surplus = sorted((row, FILTERS[name]) for row, name in found - wanted)
    assert (missing, surplus) == ([], [])


def test_the_formats_carry_most_of_the_file():
    for carries, least in ((carries_json, 19), (carries_csv, 15), (carries_parquet, 5)):
        assert sum(map(carries, ROWS)) >= least
