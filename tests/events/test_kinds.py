"""Kinds and classes of values, of Python's own and of the scalars of NumPy, Arrow and pandas."""

from collections import UserDict
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import IntEnum, StrEnum
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from peersub.events.kinds import (
    Kind,
    KindClass,
    comparable,
    is_missing,
    kind_of,
    plain_value,
    value_at,
)
from peersub.filters import Filter

NUMBER, STRING, BOOLEAN = KindClass.NUMBER, KindClass.STRING, KindClass.BOOLEAN
DATE, TIMESTAMP = KindClass.DATE, KindClass.TIMESTAMP


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Timeless(tzinfo):
    """A zone that does not know its offset."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return None


class NaTType(datetime):
    """Stands in for NaT of pandas, which passes for a datetime."""


TABLE: list[tuple[Any, Kind, tuple[KindClass, Any] | None]] = [
    (None, Kind.MISSING, None),
    (float("nan"), Kind.MISSING, None),
    (Decimal("NaN"), Kind.MISSING, None),
    (Decimal("sNaN"), Kind.MISSING, None),
    (True, Kind.BOOLEAN, (BOOLEAN, 1)),
    (5, Kind.INTEGER, (NUMBER, 5)),
    (2**63 - 1, Kind.INTEGER, (NUMBER, 2**63 - 1)),
    (2**63, Kind.DECIMAL, (NUMBER, 2**63)),
    (Level.HIGH, Kind.INTEGER, (NUMBER, 3)),
    (1.5, Kind.FLOAT, (NUMBER, Decimal("1.5"))),
    (-0.0, Kind.FLOAT, (NUMBER, 0)),
    (float("inf"), Kind.FLOAT, (NUMBER, float("inf"))),
    (Decimal("1.50"), Kind.DECIMAL, (NUMBER, Decimal("1.5"))),
    (Decimal("-Infinity"), Kind.DECIMAL, (NUMBER, float("-inf"))),
    ("a", Kind.STRING, (STRING, "a")),
    (Colour.RED, Kind.STRING, (STRING, "red")),
    (date(1970, 1, 2), Kind.DATE, (DATE, 1)),
    (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), Kind.TIMESTAMP, (TIMESTAMP, 1_000_000)),
    (datetime(1970, 1, 1, 0, 0, 1), Kind.TIMESTAMP, (TIMESTAMP, 1_000_000)),  # noqa: DTZ001
    (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), Kind.TIMESTAMP, (TIMESTAMP, 0)),
    (datetime(1970, 1, 1, tzinfo=Timeless()), Kind.TIMESTAMP, (TIMESTAMP, 0)),
    (NaTType(2024, 1, 1), Kind.MISSING, None),
    ({"a": 1}, Kind.RECORD, None),
    (UserDict(a=1), Kind.RECORD, None),
    ([1], Kind.OPAQUE, None),
    ((), Kind.OPAQUE, None),
    (b"a", Kind.OPAQUE, None),
    (1j, Kind.OPAQUE, None),
    (Fraction(1, 2), Kind.OPAQUE, None),
    (time(1), Kind.OPAQUE, None),
    (timedelta(1), Kind.OPAQUE, None),
    (object, Kind.OPAQUE, None),
    # NumPy
    (np.int8(5), Kind.INTEGER, (NUMBER, 5)),
    (np.uint64(2**64 - 1), Kind.DECIMAL, (NUMBER, 2**64 - 1)),
    (np.float64(0.1), Kind.FLOAT, (NUMBER, Decimal("0.1"))),
    (np.float32(0.5), Kind.FLOAT, (NUMBER, Decimal("0.5"))),
    (np.float32("nan"), Kind.MISSING, None),
    (np.bool_(True), Kind.BOOLEAN, (BOOLEAN, 1)),
    (np.str_("a"), Kind.STRING, (STRING, "a")),
    (np.bytes_(b"a"), Kind.OPAQUE, None),
    (np.datetime64("1970-01-02"), Kind.DATE, (DATE, 1)),
    (np.datetime64("1970-01-01T00:00:01"), Kind.TIMESTAMP, (TIMESTAMP, 1_000_000)),
    (np.datetime64(1_999, "ns"), Kind.TIMESTAMP, (TIMESTAMP, 1)),
    (np.datetime64("NaT"), Kind.MISSING, None),
    (np.timedelta64(5, "ns"), Kind.OPAQUE, None),
    (np.timedelta64(5, "s"), Kind.OPAQUE, None),
    (np.array([1]), Kind.OPAQUE, None),
    (np.array(1), Kind.OPAQUE, None),
    (np.datetime64("30000-01-01"), Kind.OPAQUE, None),
    # Arrow
    (pa.scalar(5), Kind.INTEGER, (NUMBER, 5)),
    (pa.scalar(None), Kind.MISSING, None),
    (pa.scalar(None, pa.int64()), Kind.MISSING, None),
    (pa.scalar(None, pa.list_(pa.int64())), Kind.MISSING, None),
    (pa.scalar(None, pa.struct({"a": pa.int64()})), Kind.MISSING, None),
    (pa.scalar(float("nan")), Kind.MISSING, None),
    (pa.scalar("a"), Kind.STRING, (STRING, "a")),
    (pa.scalar("a", pa.large_string()), Kind.STRING, (STRING, "a")),
    (pa.scalar(True), Kind.BOOLEAN, (BOOLEAN, 1)),
    (pa.scalar(Decimal("1.5")), Kind.DECIMAL, (NUMBER, Decimal("1.5"))),
    (pa.scalar(date(1970, 1, 2)), Kind.DATE, (DATE, 1)),
    (pa.scalar(-1, pa.timestamp("ns")), Kind.TIMESTAMP, (TIMESTAMP, -1)),
    (pa.scalar(1, pa.timestamp("s", "Europe/Paris")), Kind.TIMESTAMP, (TIMESTAMP, 1_000_000)),
    (pa.scalar(2**62, pa.timestamp("s")), Kind.OPAQUE, None),
    (pa.scalar([1]), Kind.OPAQUE, None),
    (pa.scalar({"a": 1}), Kind.RECORD, None),
    (pa.scalar(b"a"), Kind.OPAQUE, None),
]


@pytest.mark.parametrize(
    ("value", "kind", "place"),
    TABLE,
    ids=[f"{type(r[0]).__name__}-{n}" for n, r in enumerate(TABLE)],
)
def test_kinds_and_classes(value: Any, kind: Kind, place: tuple[KindClass, Any] | None) -> None:
    assert kind_of(value) is kind
    assert comparable(value) == place
    assert is_missing(value) is (kind is Kind.MISSING)
    assert kind.kind_class is (place[0] if place else None)
    assert Filter("a IS NULL").matches({"a": value}) is (kind is Kind.MISSING)
    assert Filter("a IS NOT NULL").matches({"a": value}) is (kind is not Kind.MISSING)
    # Never an error, and never a comparison across classes.
    for text, kind_class in (
        ("a < 0 OR a >= 0", NUMBER),
        ("a LIKE '%'", STRING),
        ("a IN (TRUE, FALSE)", BOOLEAN),
        ("a < DATE '2024-05-01' OR a >= DATE '2024-05-01'", DATE),
        ("a < TIMESTAMP '2024-05-01' OR a >= TIMESTAMP '2024-05-01'", TIMESTAMP),
    ):
        assert Filter(text).matches({"a": value}) is (place is not None and place[0] is kind_class)


def test_plain_values_stay_what_they_are() -> None:
    for value in (5, "a", None, [1], {"a": 1}, object()):
        assert plain_value(value) is value


@pytest.mark.parametrize(
    ("text", "event", "expected"),
    [
        ("a.b = 1", {"a": {"b": 1}}, True),
        ("a.b = 1", {"a.b": 1}, False),
        ("`a.b` = 1", {"a.b": 1}, True),
        ("`a.b` = 1", {"a": {"b": 1}}, False),
        ("a.`b.c`.d = 1", {"a": {"b.c": {"d": 1}}}, True),
        ("A = 1", {"a": 1}, False),
        ("`a ` = 1", {"a ": 1}, True),
        ("a.b IS NULL", {"a": 5}, True),
        ("a.b IS NULL", {"a": {"b": {}}}, False),
        ("a IS NOT NULL", {"a": {"b": None}}, True),
        ("a.b.c IS NULL", {}, True),
        ("größe = 1", {"größe": 1}, True),
        ("é = 1", {"e\u0301": 1}, False),
        (
            "show = 1 AND call = 2 AND select.from = 3",
            {"show": 1, "call": 2, "select": {"from": 3}},
            True,
        ),
        ("date > 1 AND timestamp < 2", {"date": 2, "timestamp": 1}, True),
        ("x.in = 1 AND x.And = 2", {"x": {"in": 1, "And": 2}}, True),
        ("1a = 2", {"1a": 2}, True),
        ("a.b = 1", {"a": pa.scalar({"b": 1})}, True),
        ("a = 'x'", {"a": "x"}, True),
    ],
)
def test_names_reach_into_records(text: str, event: dict[str, Any], expected: bool) -> None:
    assert Filter(text).matches(event) is expected


def test_a_path_that_leaves_the_record_is_missing() -> None:
    assert value_at({"a": [1]}, ("a", "0")) is None
    assert value_at({"a": None}, ("a", "b")) is None
    assert value_at({"a": {"b": {"c": 3}}}, ("a", "b", "c")) == 3
