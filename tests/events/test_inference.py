"""How text becomes values: the rules as a table, and agreement with JSON."""

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peersub.events.inference import parse_date, parse_timestamp, value_of_cell, value_of_cell_as
from peersub.events.kinds import Kind
from strategies import examples


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("12", 12),
        ("-12", -12),
        ("0", 0),
        ("-0", 0),
        ("007", "007"),
        ("+5", "+5"),
        ("-", "-"),
        (".5", ".5"),
        ("5.", "5."),
        ("1.50", 1.5),
        ("1e3", 1000.0),
        ("1E-2", 0.01),
        ("1e400", math.inf),
        ("1_000", "1_000"),
        ("1,000", "1,000"),
        (" 1", " 1"),
        ("1 ", "1 "),
        ("٣", "٣"),
        ("0x1F", "0x1F"),
        ("9007199254740993", 9007199254740993),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("true", True),
        ("false", False),
        ("True", "True"),
        ("TRUE", "TRUE"),
        ("null", "null"),
        ("None", "None"),
        ("nan", "nan"),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("inf", "inf"),
        ("2024-05-01", "2024-05-01"),
        ("2024-05-01T10:00:00Z", "2024-05-01T10:00:00Z"),
        ("12:30", "12:30"),
        ("a", "a"),
        (" ", " "),
        ('"a"', '"a"'),
    ],
)
def test_cells(text: str, value: Any) -> None:
    found = value_of_cell(text)
    assert found == value and type(found) is type(value)


def test_nan_is_a_float() -> None:
    found = value_of_cell("NaN")
    assert isinstance(found, float) and math.isnan(found)


def test_a_number_too_long_for_python_is_a_float() -> None:
    assert value_of_cell("9" * 5_000) == math.inf


@examples(200)
@given(
    st.integers()
    | st.floats(allow_nan=False)
    | st.booleans()
    | st.text(st.sampled_from("0123456789.-+eEN"))
)
def test_a_cell_has_the_kind_that_json_gives(value: Any) -> None:
    written = value if isinstance(value, str) else json.dumps(value)
    try:
        expected = json.loads(written)
    except ValueError:
        expected = written or None
    found = value_of_cell(written)
    assert type(found) is type(expected)
    assert found == expected or (math.isnan(found) and math.isnan(expected))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("", Kind.INTEGER, None),
        ("", Kind.STRING, ""),
        ("5", Kind.STRING, "5"),
        ("+5", Kind.INTEGER, 5),
        ("007", Kind.INTEGER, 7),
        ("5", Kind.FLOAT, 5.0),
        ("0.10", Kind.DECIMAL, Decimal("0.10")),
        ("TRUE", Kind.BOOLEAN, True),
        ("false", Kind.BOOLEAN, False),
        ("2024-05-01", Kind.DATE, date(2024, 5, 1)),
        ("2024-05-01", Kind.TIMESTAMP, datetime(2024, 5, 1, tzinfo=UTC)),
    ],
)
def test_cells_of_a_given_kind(text: str, kind: Kind, value: Any) -> None:
    assert value_of_cell_as(text, kind) == value


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x", Kind.INTEGER),
        ("1.5", Kind.INTEGER),
        ("9223372036854775808", Kind.INTEGER),
        ("1_000", Kind.INTEGER),
        ("1_000", Kind.FLOAT),
        ("1_000", Kind.DECIMAL),
        (" 5", Kind.INTEGER),
        ("5 ", Kind.FLOAT),
        ("٣", Kind.INTEGER),
        ("x", Kind.DECIMAL),
        ("yes", Kind.BOOLEAN),
        ("1", Kind.BOOLEAN),
        ("2024-02-30", Kind.DATE),
        ("noon", Kind.TIMESTAMP),
        ("{}", Kind.RECORD),
        ("x", Kind.OPAQUE),
    ],
)
def test_cells_that_are_not_of_their_kind(text: str, kind: Kind) -> None:
    with pytest.raises(ValueError, match=f"{kind.value}$"):
        value_of_cell_as(text, kind)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-05-01", "2024-05-01T00:00:00+00:00"),
        ("2024-5-1 1:2", "2024-05-01T01:02:00+00:00"),
        ("2024-05-01T10:00:00Z", "2024-05-01T10:00:00+00:00"),
        ("2024-05-01 10:00:00 UTC", "2024-05-01T10:00:00+00:00"),
        ("2024-05-01 10:00:00+02", "2024-05-01T08:00:00+00:00"),
        ("2024-05-01 10:00:00+0230", "2024-05-01T07:30:00+00:00"),
        ("2024-05-01 10:00:00-2", "2024-05-01T12:00:00+00:00"),
        ("2024-05-01 10:00:00.1234567", "2024-05-01T10:00:00.123456+00:00"),
        (" 2024-05-01 ", "2024-05-01T00:00:00+00:00"),
        ("0001-01-01 00:00:00", "0001-01-01T00:00:00+00:00"),
        ("0001-01-01 00:00:00+01", None),
        ("9999-12-31 23:59:59-01", None),
        ("2024-05-01 24:00", None),
        ("2024-05-01 10", None),
        ("2024-05-01 10:00:00+01:60", None),
        ("2024-05-01 10:00:00+24", None),
        ("2024-13-01", None),
        ("1714557600", None),
        ("", None),
    ],
)
def test_timestamps(text: str, expected: str | None) -> None:
    moment = parse_timestamp(text)
    assert (moment and moment.isoformat()) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-02-29", date(2024, 2, 29)),
        ("2024-2-9", date(2024, 2, 9)),
        ("2023-02-29", None),
        ("24-01-01", None),
    ],
)
def test_dates(text: str, expected: date | None) -> None:
    assert parse_date(text) == expected
