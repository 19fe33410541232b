"""Names of events: the same as the plain rule gives, in every format and for any part of a file."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peersub.events.arrow import table_of_rows
from peersub.events.envelope import content_hash, row_identifiers
from peersub.files.event_names import EventNames
from peersub.files.events import EventSource, read_events

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.0, -0.0, 1.0, 1.5, float("nan"), float("inf"), 2.0**60, 2**60, 2**70]),
    st.sampled_from(["", "a", "1", "true"]),
    st.dates(),
    st.lists(st.integers(0, 2), max_size=2),
)
ROWS = st.lists(
    st.dictionaries(
        st.sampled_from(["a", "b", "id"]),
        VALUES | st.dictionaries(st.just("c"), VALUES),
        max_size=3,
    ),
    max_size=8,
)


@given(ROWS, st.integers(1, 8))
def test_names_equal_the_plain_rule(rows, batch):
    names = EventNames()
    found = []
    for start in range(0, len(rows), batch):
        found += names.names(table_of_rows(rows[start : start + batch]))
    assert found == list(row_identifiers(rows))


def test_naming_only_what_matched_gives_the_same_names():
    rows = [{"a": i % 3, "b": "x"} for i in range(10)]
    everything = EventNames().names(table_of_rows(rows))
    wanted = [row for row in range(10) if rows[row]["a"] != 1]
    assert EventNames().names(table_of_rows(rows), wanted) == [everything[row] for row in wanted]
    assert everything[3] == content_hash(rows[0]) + "#1"


def test_formats_agree_on_the_names(tmp_path):
    rows = [{"a": i % 2, "b": float(i % 3), "c": None if i % 2 else "é"} for i in range(20)]
    (tmp_path / "e.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = ["a,b,c", *(f"{row['a']},{row['b']},{row['c'] or ''}" for row in rows)]
    (tmp_path / "e.csv").write_text("\n".join(lines), encoding="utf-8")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "e.parquet")
    expected = list(row_identifiers(rows))
    assert len(set(expected)) == 20
    for name in ("e.jsonl", "e.csv", "e.parquet"):
        names = EventNames()
        tables = read_events(EventSource(str(tmp_path / name)))
        assert [n for table in tables for n in names.names(table)] == expected, name


@pytest.mark.parametrize("name", ["x" * 65, "é" * 33])
def test_an_id_has_bounds(name):
    with pytest.raises(ValueError, match="1 to 64 bytes"):
        EventNames().names(table_of_rows([{"id": name}]))
    assert EventNames().names(table_of_rows([{"id": "é" * 32}])) == ["é" * 32]


def test_rows_without_attributes_have_names():
    name = content_hash({})
    assert EventNames().names(table_of_rows([{}, {}]), [0, 1]) == [name, f"{name}#1"]


def test_an_empty_id_is_none():
    assert EventNames().names(table_of_rows([{"id": ""}])) == [content_hash({"id": ""})]
