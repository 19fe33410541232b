"""Attributes as bytes: every value comes back as it was, with its kind."""

import decimal
import re
from collections import UserDict
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from peersub.events.envelope import content_hash
from peersub.events.kinds import comparable, kind_of
from peersub.wire import UnnamedValue, WireError, pack_attributes, unpack_attributes
from peersub.wire import values as wire_values
from peersub.wire.limits import ATTRIBUTES_BYTES_MAX, VALUE_NESTING_MAX, VALUES_MAX
from strategies import ALL_VALUES, events, examples
from wire.message_strategies import spelled

Ext = msgspec.msgpack.Ext


def there_and_back(value: Any) -> Any:
    return unpack_attributes(pack_attributes({"value": value}))["value"]


FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


EDGES: list[Any] = [
    *(2**64 - 1, 2**64, 2**200, -(2**63) - 1, -(2**64), -(2**200), 2**63, 255, 256, -128, -129),
    *(5e-324, -0.0, 1.7976931348623157e308),
    *map(Decimal, ("-0", "1E+2", "1E-999999", "1.50", "NaN", "-NaN123", "sNaN", "-Infinity")),
    *map(Decimal, ("9" * 5_000, "1E+999999999999999999")),
    *(b"", b"\x00\xff", [], [None, [1.5, [Decimal(2), {"a": date(2024, 5, 1)}]]]),
    *({"": 1}, {"n": {"m": {"y.z": "deep"}}}, "x" * 70_000, "\ud800", "a\udfffb", {"\ud800": 1}),
    *({"a": 1, "\udc80": {"\udc81": "\udc82"}}, [{"\ud800": []}]),
]


@pytest.mark.parametrize("value", [*ALL_VALUES, *EDGES], ids=lambda value: repr(value)[:30])
def test_a_value_comes_back(value):
    back = there_and_back(value)
    assert kind_of(back) is kind_of(value)
    assert comparable(back) == comparable(value)
    assert spelled(back) == spelled(value)
    if not isinstance(value, datetime | tuple | timedelta | complex):
        assert type(back) is type(value)


numbers = st.integers() | st.floats() | st.decimals() | st.booleans()
any_text = st.text(st.characters(exclude_categories=[]), max_size=6)
instants = st.datetimes(timezones=st.none() | st.timezones() | st.just(UTC))
values = st.recursive(
    st.one_of(numbers, any_text, st.binary(max_size=9), st.dates(), instants, st.none()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(any_text, values, max_size=6))
def test_attributes_come_back(attributes):
    back = unpack_attributes(pack_attributes(attributes))
    assert list(back) == list(attributes)
    assert spelled(back) == spelled(attributes)
    assert {name: kind_of(value) for name, value in back.items()} == {
        name: kind_of(value) for name, value in attributes.items()
    }


@given(events())
def test_an_event_keeps_its_name(attributes):
    assert content_hash(unpack_attributes(pack_attributes(attributes))) == content_hash(attributes)


@given(instants | st.sampled_from([FIRST, LAST]), st.integers(-1_439, 1_439))
@example(FIRST, 1_439)
@example(LAST, -1_439)
def test_an_instant_comes_back_in_utc_wherever_it_was(moment, offset):
    moment = moment.replace(tzinfo=timezone(timedelta(minutes=offset)))
    back = there_and_back(moment)
    assert back == moment
    assert back.tzinfo is UTC or moment.year in (1, 9999)


def test_a_timestamp_without_a_zone_is_utc():
    naive = datetime(2024, 5, 1, 12)  # noqa: DTZ001 - the rule that is tested
    assert there_and_back(naive) == datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert there_and_back(naive).tzinfo is UTC


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (np.float64(1.5), 1.5),
        (np.float32(0.5), 0.5),
        (np.int16(-3), -3),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.datetime64("2024-05-01"), date(2024, 5, 1)),
        (np.datetime64("NaT"), None),
        (pa.scalar(7), 7),
        (pa.scalar(None, pa.int64()), None),
        (pa.scalar(Decimal("1.50")), Decimal("1.50")),
        (bytearray(b"a"), b"a"),
        (memoryview(b"a"), b"a"),
        ((1, (2, "b")), [1, [2, "b"]]),
        (UserDict({"a": Level.HIGH}), {"a": 3}),
    ],
    # The repr of some has an address, which is another in each process.
    ids=lambda value: re.sub(" at 0x[0-9a-f]+", "", repr(value)),
)
def test_scalars_and_subclasses_travel_as_what_they_hold(value, plain):
    back = there_and_back(value)
    assert back == plain and type(back) is type(plain)
    assert kind_of(back) is kind_of(value)


def test_a_time_that_is_none_is_missing():
    no_time = type("NaTType", (datetime,), {})(2024, 5, 1)  # as pandas has it
    assert there_and_back(no_time) is None


def test_a_value_of_no_kind_is_there_and_does_not_compare():
    back = there_and_back(timedelta(1))
    assert back == UnnamedValue("datetime.timedelta(days=1)")
    assert there_and_back(back) == back
    assert comparable(back) is None


def test_a_value_of_a_later_version_is_kept_as_it_came():
    packed = msgspec.msgpack.encode({"a": Ext(99, b"later"), "b": 1})
    attributes = unpack_attributes(packed)
    assert attributes["b"] == 1
    assert comparable(attributes["a"]) is None
    assert pack_attributes(attributes) == packed


def test_the_context_of_decimals_does_not_matter():
    with decimal.localcontext(prec=3, capitals=0, traps=[]):
        packed = pack_attributes({"a": Decimal("1.23456E+99")})
        assert unpack_attributes(packed) == {"a": Decimal("1.23456E+99")}
    assert packed == pack_attributes({"a": Decimal("1.23456E+99")})


def test_the_bytes_are_as_documented():
    pack = msgspec.msgpack.encode
    assert pack_attributes({"a": date(1, 1, 1)}) == pack({"a": Ext(1, b"\0\0\0\1")})
    assert pack_attributes({"a": Decimal("1.50")}) == pack({"a": Ext(2, b"1.50")})
    assert pack_attributes({"a": -(2**64)}) == pack({"a": Ext(3, b"\xff" + bytes(8))})
    assert pack_attributes({"a": "\ud800"}) == pack({"a": Ext(4, b"\xed\xa0\x80")})
    assert pack_attributes({"a": 2**64 - 1}) == b"\x81\xa1a\xcf" + b"\xff" * 8
    moment = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert pack_attributes({"a": moment}) == b"\x81\xa1a\xd6\xff\0\0\0\1"


# --- refusals --------------------------------------------------------------------------------


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


def test_what_is_packed_can_be_unpacked_up_to_the_bound_of_nesting():
    deepest = nested(VALUE_NESTING_MAX - 1)
    assert there_and_back(deepest) == deepest
    with pytest.raises(WireError, match="nested deeper than 128 levels"):
        pack_attributes({"a": nested(VALUE_NESTING_MAX)})


def test_a_value_that_holds_itself_is_refused():
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(WireError, match="nested deeper"):
        pack_attributes({"a": endless})


def test_attributes_that_are_too_large_are_refused():
    with pytest.raises(WireError, match="put large content into the body"):
        pack_attributes({"a": "x" * ATTRIBUTES_BYTES_MAX})
    with pytest.raises(WireError, match="exceed"):
        unpack_attributes(bytes(ATTRIBUTES_BYTES_MAX + 1))


def test_a_name_that_is_no_text_is_refused():
    for attributes in ({1: 2}, {"a": {None: 1}}, {"a": [{b"b": 1}]}):
        with pytest.raises(WireError, match="the name of an attribute is text"):
            pack_attributes(attributes)


MALFORMED = {
    "nothing": b"",
    "a list": b"\x90",
    "nil": b"\xc0",
    "an extension that is no record": b"\xc7\x01\x03\x05",
    "cut off": b"\x81\xa1a",
    "more than one value": b"\x80\x80",
    "a name that is a number": b"\x81\x01\x01",
    "a name that is a number, further in": b"\x81\xa1a\x81\x01\x01",
    "a name that is a list": b"\x81\x91\x01\x01",
    "a name that is a record": b"\x81\x81\xa1a\x01\x01",
    "a name that is an extension": b"\x81\xc7\x01\x03\x05\x01",
    "text that is no Unicode": b"\x81\xa1a\xa1\xff",
    "a name that is no Unicode": b"\x81\xa1\xff\x01",
    "a list longer than the bytes": b"\x81\xa1a\xdd\xff\xff\xff\xff",
    "a record longer than the bytes": b"\xdf\xff\xff\xff\xff",
    "text longer than the bytes": b"\x81\xa1a\xdb\xff\xff\xff\xff",
    "an unused code of MessagePack": b"\x81\xa1a\xc1",
    "a timestamp out of range": b"\x81\xa1a\xc7\x0c\xff\0\0\0\0\x7f" + b"\xff" * 7,
    "a timestamp of three bytes": b"\x81\xa1a\xc7\x03\xff\0\0\0",
    "too deep": b"\x81\xa1a" + b"\x91" * 200 + b"\x01",
    "far too deep": b"\x81\xa1a" + b"\x91" * 8_000 + b"\x01",
    "extensions in extensions": msgspec.msgpack.encode({"a": Ext(5, b"\x91" * 5_000)}),
}
MALFORMED |= {
    f"extension {code} with {content!r}": msgspec.msgpack.encode({"a": Ext(code, content)})
    for code, content in [
        *((1, b""), (1, b"\0\0\0\0"), (1, b"\xff" * 4), (1, b"\1")),
        *((2, b""), (2, b"one"), (2, b" 1"), (2, b"1_0"), (2, b"+1"), (2, "١".encode())),
        *((2, b"1e2"), (2, b"1E+9999999999999999999"), (2, b"nan")),
        *((4, b"\xff"), (5, b""), (5, b"\x91\x01"), (5, b"\x92\x01\x01"), (5, b"\x80")),
        *((6, b""), (6, b"\x7f" + b"\xff" * 7), (6, b"\x80" + bytes(7)), (7, b"x" * 2_000)),
    ]
}


@pytest.mark.parametrize("packed", MALFORMED.values(), ids=MALFORMED)
def test_malformed_attributes_are_refused(packed):
    with pytest.raises(WireError, match="no attributes"):
        unpack_attributes(packed)


def nested_extensions(levels: int) -> bytes:
    inner = b"\x80"
    for _ in range(levels):
        inner = msgspec.msgpack.encode(["a", msgspec.msgpack.Ext(5, inner)])
    return msgspec.msgpack.encode({"a": msgspec.msgpack.Ext(5, inner)})


def test_extensions_in_extensions_are_bounded():
    for levels in (VALUE_NESTING_MAX + 1, 5_000):
        with pytest.raises(WireError):
            unpack_attributes(nested_extensions(levels))


@examples(400)
@given(events(), st.data())
def test_damaged_attributes_are_read_or_refused(attributes, data):
    packed = bytearray(pack_attributes(attributes))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = unpack_attributes(bytes(packed))
    except WireError:
        return
    assert spelled(unpack_attributes(pack_attributes(read))) == spelled(read)


@examples(400)
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(packed):
    try:
        unpack_attributes(packed)
    except WireError:
        return


@pytest.mark.parametrize("code", [-128, -5, 100, 127])
def test_values_of_other_versions_are_passed_on_as_they_came(code):
    packed = pack_attributes({"a": Ext(code, b"abc")})
    assert pack_attributes(unpack_attributes(packed)) == packed


OF_MANY = {
    "attributes": lambda many: {f"a{n}": n for n in range(many)},
    "a list": lambda many: {"a": [1] * (many - 1)},
    "lists in a list": lambda many: {"a": [[]] * (many - 1)},
    "records": lambda many: {"a": [{"bc": 1.5}] * ((many - 1) // 2)},
    "dates, decimals, texts": lambda many: {
        "a": [date(2024, 5, 1), Decimal("1.5"), 2**70, "x" * 40, "y" * 300] * ((many - 1) // 5)
    },
    "bytes and times": lambda many: {
        "a": [b"b" * 300, datetime(2024, 5, 1, tzinfo=UTC), -5, 70_000, None] * ((many - 1) // 5)
    },
    "names that are no Unicode": lambda many: {
        "a": [{"\ud800": 1}] * ((many - 1) // 3)  # The record, its name and its value.
    },
}


@pytest.mark.parametrize("make", OF_MANY.values(), ids=OF_MANY)
def test_values_of_one_event_are_counted_before_they_are_made(make, monkeypatch):
    most = make(VALUES_MAX)
    packed = pack_attributes(most)
    assert unpack_attributes(packed).keys() == most.keys()
    with pytest.raises(WireError, match=r"up to 8,192 values, .* into the body"):
        pack_attributes(make(VALUES_MAX + 6))
    with monkeypatch.context() as unbounded:
        unbounded.setattr(wire_values, "VALUES_MAX", 10**9)
        packed = pack_attributes(make(VALUES_MAX + 6))
    monkeypatch.setattr(wire_values, "_decode", lambda _: pytest.fail("it was decoded"))
    with pytest.raises(WireError, match="up to 8,192 values"):
        unpack_attributes(packed)


@examples(200)
@given(events())
def test_each_value_is_counted(attributes):
    def count(value):
        if isinstance(value, Mapping):
            is_plain = all(map(is_unicode, value))
            return (1 if is_plain else 2) * len(value) + sum(map(count, value.values()))
        return len(value) + sum(map(count, value)) if isinstance(value, list) else 0

    packed = pack_attributes(attributes)
    assert wire_values._count_values(packed, VALUE_NESTING_MAX) == count(unpack_attributes(packed))


def is_unicode(text: str) -> bool:
    return text.encode("utf-8", "replace") == text.encode("utf-8", "surrogatepass")
