"""Identity: the envelope's identifier, and names for rows that have none."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peersub.events import Event, row_identifiers
from peersub.events.envelope import IDENTIFIER_BYTES_MAX, content_hash, identifier_of
from strategies import events, examples


def test_equal_rows_are_numbered() -> None:
    first, second, third, other = row_identifiers([{"a": 1}, {"a": 1}, {"a": 1.0}, {"a": 2}])
    assert (second, third) == (f"{first}#1", f"{first}#2")
    assert other != first and len(first) == 32


def test_a_given_identifier_is_kept() -> None:
    rows: list[dict[str, Any]] = [{"id": 5}, {"id": "x"}, {"id": True}, {"id": 1.5}, {"id": "x"}]
    assert list(row_identifiers(rows)) == ["5", "x", "true", "1.5", "x"]
    assert identifier_of(np.int64(5)) == identifier_of(pa.scalar(5)) == "5"


@pytest.mark.parametrize("value", [None, float("nan"), "", [], {}, b"x", pa.scalar(None)])
def test_what_is_no_identifier_leaves_the_hash(value: Any) -> None:
    assert identifier_of(value) is None
    (name,) = row_identifiers([{"id": value, "a": 1}])
    assert len(name) == 32


EQUAL: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({"a": 1}, {"a": 1.0}),
    ({"a": 1}, {"a": Decimal("1.00")}),
    ({"a": 0.1}, {"a": Decimal("0.10")}),
    ({"a": 0}, {"a": -0.0}),
    ({"a": 2**60}, {"a": 2.0**60}),
    ({"a": 10**500}, {"a": Decimal("1E+500")}),
    ({"a": 10**5_000}, {"a": Decimal("1E+5000")}),
    ({"a": 1, "b": None}, {"a": 1}),
    ({"a": 1, "b": float("nan")}, {"a": 1}),
    ({"a": 1}, {"a": np.int64(1)}),
    ({"a": "x"}, {"a": pa.scalar("x")}),
    ({"a": {"b": 1, "c": None}}, {"a": {"b": 1.0}}),
    ({"a": [1, 2]}, {"a": (1.0, 2)}),
    ({"a": datetime(2024, 5, 1, tzinfo=UTC)}, {"a": datetime(2024, 5, 1)}),  # noqa: DTZ001
]
DIFFERENT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"a": 1}, {"a": "1"}),
    ({"a": 1}, {"a": True}),
    ({"a": 1}, {"b": 1}),
    ({"a": 1}, {"a": 2}),
    ({"a": 2**53}, {"a": 2**53 + 1}),
    ({"a": "x"}, {"a": b"x"}),
    ({"a": {}}, {}),
    ({"a": []}, {}),
    ({"a": [1, [2]]}, {"a": [[1], 2]}),
    ({"a": [12]}, {"a": [1, 2]}),
    ({"ab": "c"}, {"a": "bc"}),
    ({"a": {"b": 1}}, {"a.b": 1}),
    ({"a": "x", "b": "y"}, {"a": "y", "b": "x"}),
    ({"a": date(2024, 5, 1)}, {"a": datetime(2024, 5, 1, tzinfo=UTC)}),
    ({"a": date(2024, 5, 1)}, {"a": "2024-05-01"}),
    ({"a": "\ud800"}, {"a": "?"}),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_equal_rows_have_one_name(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert content_hash(one) == content_hash(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_rows_have_different_names(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert content_hash(one) != content_hash(other)


@examples(100)
@given(events())
def test_any_event_has_a_name_that_the_order_of_keys_does_not_change(event: dict[str, Any]) -> None:
    assert content_hash(event) == content_hash(dict(reversed(event.items())))


def test_the_name_is_stable() -> None:
    """A stored name must stay: whoever changes this breaks identities of files."""
    row = {"a": 1.5, "b": "x", "c": {"d": True}, "e": [1, None], "f": date(2024, 5, 1)}
    assert content_hash(row) == "c24f6b3d87097c8d599bf55540b38407"


@given(st.text(min_size=1, max_size=80))
def test_an_identifier_has_at_most_64_bytes(name: str) -> None:
    if len(name.encode("utf-8", "surrogatepass")) <= IDENTIFIER_BYTES_MAX:
        assert Event(name).id == name
    else:
        with pytest.raises(ValueError, match="1 to 64 bytes"):
            Event(name)


def test_an_empty_identifier_is_refused() -> None:
    with pytest.raises(ValueError, match="this one has 0"):
        Event("")
