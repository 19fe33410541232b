"""Rows to Arrow and back: every value keeps its kind, equal content keeps its hash."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peersub.events.arrow import (
    array_of_values,
    joined_schemas,
    rows_of_table,
    schema_of_event,
    schema_of_table,
    table_of_rows,
)
from peersub.events.envelope import content_hash
from peersub.events.kinds import Kind, comparable, kind_of

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.sampled_from([2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**76 - 1]),
    st.floats(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    st.binary(max_size=3),
    st.dates(),
    st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))])),
    st.decimals(
        allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9
    ),
    st.decimals(allow_nan=False, allow_infinity=False, places=7, min_value=-100, max_value=100),
)
NAMES = st.sampled_from(["a", "b", "c d", "é", ""])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
ROWS = st.lists(st.dictionaries(NAMES, VALUES, max_size=4), max_size=8)


def leaves(value, path=()):
    """Every scalar in a value that a filter could ask for, with its kind and place in the order."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from leaves(item, (*path, name))
    elif kind_of(value) is not Kind.MISSING:
        yield path, kind_of(value), comparable(value)


@given(ROWS)
def test_a_row_read_back_is_the_row_that_was_written(rows):
    table = table_of_rows(rows)
    table.validate(full=True)
    back = rows_of_table(table)
    assert [content_hash(row) for row in back] == [content_hash(row) for row in rows]
    for before, after in zip(rows, back, strict=True):
        assert sorted(leaves(before), key=repr) == sorted(leaves(after), key=repr)


@given(ROWS, st.integers(0, 3), st.integers(0, 4))
def test_a_part_of_a_table_holds_the_same_part_of_the_rows(rows, start, length):
    # A table without columns believes any length.
    length = max(0, min(length, len(rows) - start))
    part = rows_of_table(table_of_rows(rows).slice(start, length))
    expected = rows[start : start + length]
    assert [content_hash(row) for row in part] == [content_hash(row) for row in expected]


@given(ROWS)
def test_the_schema_has_the_kinds_that_the_rows_have(rows):
    seen = schema_of_table(table_of_rows(rows))
    expected = joined_schemas(schema_of_event(row) for row in rows)
    # NaN is missing, but a column of floats does not show it without looking at each value.
    floats = {
        path
        for row in rows
        for path, value in _walk(row)
        if isinstance(value, float) and value != value
    }
    for path, kinds in expected.items():
        assert seen[path] - ({Kind.FLOAT} if path in floats else set()) == kinds - (
            {Kind.FLOAT} if path in floats else set()
        )
    assert seen.keys() == expected.keys()


def _walk(value, path=()):
    for name, item in value.items():
        yield (*path, name), item
        if isinstance(item, dict):
            yield from _walk(item, (*path, name))


def test_one_kind_makes_a_plain_column():
    assert array_of_values([1, None, 2]).type == pa.int64()
    assert array_of_values(["a", None]).type == pa.string()
    assert array_of_values([1.5]).type == pa.float64()
    assert array_of_values([True]).type == pa.bool_()
    assert array_of_values([None]).type == pa.null()
    assert array_of_values([date(2024, 1, 1)]).type == pa.date32()
    assert array_of_values([datetime(2024, 1, 1, tzinfo=UTC)]).type == pa.timestamp("us", "UTC")
    assert array_of_values([{"a": 1}]).type == pa.struct([("a", pa.int64())])


def test_mixed_kinds_make_a_dense_union_with_a_child_per_kind():
    array = array_of_values([1, None, 2.0, "x", True, 3])
    assert array.type.mode == "dense"
    assert [field.type for field in array.type] == [
        pa.int64(), pa.float64(), pa.string(), pa.bool_(),
    ]  # fmt: skip
    assert array.to_pylist() == [1, None, 2.0, "x", True, 3]
    assert [type(value) for value in array.to_pylist()] == [
        int, type(None), float, str, bool, int,
    ]  # fmt: skip


def test_whole_numbers_beyond_64_bits_stay_exact():
    rows = [{"n": 2**63}, {"n": 5}, {"n": 10**76 - 1}]
    assert [int(row["n"]) for row in rows_of_table(table_of_rows(rows))] == [
        2**63, 5, 10**76 - 1,
    ]  # fmt: skip


def test_decimals_keep_their_scale():
    rows = [{"d": Decimal("1.50")}, {"d": Decimal("2.5")}, {"d": Decimal("1E+3")}]
    back = [str(row["d"]) for row in rows_of_table(table_of_rows(rows))]
    assert back == ["1.50", "2.5", "1000"]


def test_rows_without_attributes_are_still_rows():
    assert table_of_rows([{}, {}]).num_rows == 2
    assert rows_of_table(table_of_rows([{}, {}])) == [{}, {}]
    assert table_of_rows([]).num_rows == 0


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (10**77, "a: a number with more than 76 digits"),
        ({"b": [1, {"c": 10**80}]}, "a.b.c: a number with more than 76 digits"),
        ("\ud800", "a: text that is no Unicode"),
        (["x", 1, "\udfff"], "a: text that is no Unicode"),
        (object(), "a: a value of type object"),
    ],
)
def test_what_arrow_cannot_hold_is_named(value, message):
    with pytest.raises(ValueError) as refused:
        table_of_rows([{"a": 1}, {"a": value}])
    assert str(refused.value).startswith(message)


def test_nesting_is_bounded():
    value = 1
    for _ in range(70):
        value = {"a": value}
    with pytest.raises(ValueError, match="nested deeper than 64"):
        table_of_rows([{"a": value}])


def test_timestamps_of_any_unit_are_read_in_utc_and_cut_off_at_microseconds():
    def read(number, unit, zone=None):
        array = pa.array([number, None], pa.timestamp(unit, zone))
        return rows_of_table(pa.table({"t": array}))[0]["t"]

    moment = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert read(1, "s") == read(1_000, "ms", "UTC") == read(1_000_000, "us", "+05:00") == moment
    assert read(1_000_000_999, "ns") == moment
    # Before 1970 too the part below a microsecond is cut off towards the past.
    assert read(-1, "ns") == datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert read(-1_000, "ns") == datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert read(2**62, "s") is None


def test_columns_of_other_programs_are_read():
    table = pa.table(
        {
            "dictionary": pa.array(["x", None, "x"]).dictionary_encode(),
            "day": pa.array([0, 86_400_000, None], pa.date64()),
            "large": pa.array(["a", "b", None], pa.large_string()),
            "small": pa.array([1, 2, None], pa.uint8()),
            "record": pa.array(
                [{"t": 1}, None, {"t": None}], pa.struct([("t", pa.timestamp("ns"))])
            ),
        }
    )
    rows = rows_of_table(table)
    assert [row["dictionary"] for row in rows] == ["x", None, "x"]
    assert [row["day"] for row in rows] == [date(1970, 1, 1), date(1970, 1, 2), None]
    assert rows[0]["record"] == {"t": datetime(1970, 1, 1, tzinfo=UTC)}
    assert rows[1]["record"] is None and rows[2]["record"] == {"t": None}
    schema = schema_of_table(table)
    assert schema["dictionary",] == schema["large",] == {Kind.STRING}
    assert schema["day",] == {Kind.DATE} and schema["small",] == {Kind.INTEGER}
    assert schema["record", "t"] == {Kind.TIMESTAMP}


def test_sparse_unions_of_other_programs_are_read():
    union = pa.UnionArray.from_sparse(
        pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])]
    )
    table = pa.table({"u": union})
    assert [row["u"] for row in rows_of_table(table)] == [1, "b", 3]
    assert [row["u"] for row in rows_of_table(table.slice(1))] == ["b", 3]
