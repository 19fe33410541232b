"""Arrow columns and dicts give the same codes."""

import math
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matching.encoding_values import (
    as_date,
    as_datetime,
    bounds_in,
    near_number,
    near_text,
    texts,
    unions,
)
from peersub.events.arrow import table_of_rows
from peersub.events.kinds import KindClass, number_key
from peersub.filters.boxes import Box
from peersub.filters.domains import PRESENT, of_class
from peersub.filters.intervals import FULL, LEAST, points
from peersub.matching.arrow_columns import string_column
from peersub.matching.arrow_encoding import _DECIMAL_EXACT
from peersub.matching.bounds import Buckets, OrderedBounds, TextBounds
from peersub.matching.conjunct_builder import build
from peersub.matching.encoding import PRESENCE, PRESENCE_CODES, Encoder, Slot


def codes_of_dicts(encoder, rows):
    if not rows:
        return []
    return [encoder.encode_event(row).tolist() for row in rows]


def check(encoder, table, rows=None):
    """Whole and in slices, as one chunk and as several: always the codes of the rows as dicts."""
    expected = codes_of_dicts(encoder, table.to_pylist() if rows is None else rows)
    codes = encoder.encode_table(table, 0, len(table))
    assert codes.dtype == np.int32 and codes.flags.c_contiguous
    assert codes.tolist() == expected
    middle = len(table) // 3
    assert encoder.encode_table(table, middle, len(table)).tolist() == expected[middle:]
    halves = pa.concat_tables([table.slice(0, middle), table.slice(middle)])
    assert encoder.encode_table(halves, 1, len(table)).tolist() == expected[1:]


def encoder_of(kind_class, keys, path=("a",)):
    """Slots for points and ranges at these keys, for presence, and for any string or number."""
    cuts = points(kind_class, keys) if keys else FULL
    constraints = [of_class(kind_class, cuts), of_class(kind_class, (LEAST, cuts[-1])), PRESENT]
    constraints += [of_class(other, FULL) for other in KindClass]
    return build([(Box({path: domain}, {}),) for domain in constraints]).encoder


# --- random columns of one type ----------------------------------------------------------------

INTEGERS = {
    pa.int8(): (-(2**7), 2**7 - 1),
    pa.int16(): (-(2**15), 2**15 - 1),
    pa.int32(): (-(2**31), 2**31 - 1),
    pa.int64(): (-(2**63), 2**63 - 1),
    pa.uint8(): (0, 2**8 - 1),
    pa.uint16(): (0, 2**16 - 1),
    pa.uint32(): (0, 2**32 - 1),
    pa.uint64(): (0, 2**64 - 1),
}
EXACT = Context(prec=200)
FLOATS = {pa.float64(): np.float64, pa.float32(): np.float32, pa.float16(): np.float16}


def decimal_types():
    types = [
        pa.decimal128(38, 2),
        pa.decimal128(20, 0),
        pa.decimal128(38, 30),
        pa.decimal256(70, 5),
    ]
    types += [pa.decimal128(15, -3), pa.decimal128(18, 18)]
    return [*types, pa.decimal32(9, 3), pa.decimal64(18, 4)]


def fits_decimal(kind, value):
    scaled = EXACT.scaleb(Decimal(value), kind.scale)
    return scaled == scaled.to_integral_value() and abs(scaled) < 10**kind.precision


@st.composite
def number_columns(draw, near):
    kind = draw(st.sampled_from([*INTEGERS, *FLOATS, *decimal_types()]))
    if kind in INTEGERS:
        least, most = INTEGERS[kind]
        close = [int(v) for v in near if math.isfinite(v) and least <= int(v) <= most]
        value = st.integers(least, most)
    elif kind in FLOATS:
        with np.errstate(over="ignore"):
            close = [float(FLOATS[kind](float(v))) for v in near if abs(v) < 10**300]
        value = st.floats(width=kind.bit_width)
    else:
        digits = 10**kind.precision - 1
        close = [Decimal(v) for v in near if math.isfinite(v) and abs(v) < 10**40]
        close = [EXACT.normalize(v) for v in close if fits_decimal(kind, v)]
        value = st.integers(-digits, digits).map(lambda n: EXACT.scaleb(Decimal(n), -kind.scale))
    if close:
        value = st.one_of(st.sampled_from(close), value)
    values = draw(st.lists(st.one_of(st.none(), value), min_size=1, max_size=12))
    if kind == pa.float16():
        values = [None if v is None else np.float16(v) for v in values]
    return pa.array(values, kind)


@st.composite
def other_columns(draw, entries):
    strings = [v for key in bounds_in(entries, KindClass.STRING) for v in near_text(key)]
    dates = [as_date(d) for d in bounds_in(entries, KindClass.DATE)]
    times = [as_datetime(t) for t in bounds_in(entries, KindClass.TIMESTAMP)]
    text = st.one_of(st.sampled_from(strings), texts) if strings else texts
    day = st.sampled_from(dates) if dates else st.dates()
    # Away from the first and the last year, where Python has no moment before or after.
    years = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
    moment = st.sampled_from(times) if times else years
    moment = st.builds(lambda t, n: t + timedelta(microseconds=n), moment, st.integers(-1, 1))
    kinds = [
        *((text, kind) for kind in (pa.string(), pa.large_string(), pa.string_view())),
        (text, pa.dictionary(pa.int8(), pa.string())),
        (text, pa.dictionary(pa.int32(), pa.large_string())),
        *((day, kind) for kind in (pa.date32(), pa.date64())),
        *((moment, kind) for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC"))),
        (moment, pa.timestamp("us", "Europe/Zurich")),
        (st.booleans(), pa.bool_()),
        (st.binary(max_size=2), pa.binary()),
        (st.lists(st.integers(0, 5), max_size=2), pa.list_(pa.int64())),
        (st.just(None), pa.null()),
    ]
    value, kind = draw(st.sampled_from(kinds))
    return pa.array(draw(st.lists(st.one_of(st.none(), value), min_size=1, max_size=12)), kind)


@given(st.data(), st.lists(unions, min_size=1, max_size=3))
def test_columns_and_dicts_give_equal_codes(data, entries):
    near = [v for key in bounds_in(entries, KindClass.NUMBER) for v in near_number(key)]
    columns = st.one_of(number_columns(near), other_columns(entries))
    drawn = [data.draw(columns) for _ in range(3)]
    rows = min(len(column) for column in drawn)
    # Slices of arrays, so that offsets are not zero.
    a, x, y = (column.slice(len(column) - rows) for column in drawn)
    there = np.array(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
    inner = pa.StructArray.from_arrays([y], ["y"], mask=pa.array(~there))
    record = pa.StructArray.from_arrays([x, inner], ["x", "s"], mask=pa.array(np.roll(there, 1)))
    table = pa.table({"a": a, "r": record, "r.x": x, "unheard": y})
    check(build(entries).encoder, table)


# --- types one by one --------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_all_units_are_microseconds(unit):
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    micros = [-1_500_001, -1_000_000, -1, 0, 1, 999_999, 1_000_000, 86_400_000_001]
    raw = sorted({v * per_second // 10**6 + step for v in micros for step in (-1, 0, 1)})
    encoder = encoder_of(KindClass.TIMESTAMP, micros)
    rows = [{"a": as_datetime(v * 10**6 // per_second)} for v in raw]
    check(encoder, pa.table({"a": pa.array(raw, pa.timestamp(unit))}), rows)


def test_timestamps_beyond_all_microseconds_stay_in_order():
    encoder = encoder_of(KindClass.TIMESTAMP, [0])
    table = pa.table({"a": pa.array([-(2**62), 2**62], pa.timestamp("s"))})
    slot = encoder.slots.index(Slot(("a",), KindClass.TIMESTAMP))
    assert encoder.encode_table(table, 0, 2)[:, slot].tolist() == [0, 4]


def test_date64_is_rounded_down_to_its_day():
    day = 86_400_000
    encoder = encoder_of(KindClass.DATE, [-1, 0, 1])
    raw = pa.array([-day - 1, -day, -1, 0, 1, day - 1, day], pa.int64())
    rows = [{"a": as_date(v)} for v in (-2, -1, -1, 0, 0, 0, 1)]
    check(encoder, pa.table({"a": raw.view(pa.date64())}), rows)


def test_a_short_float_is_what_it_is_as_a_double():
    encoder = encoder_of(KindClass.NUMBER, [Decimal("0.1"), number_key(float(np.float32(0.1)))])
    slot = encoder.slots.index(Slot(("a",), KindClass.NUMBER))
    table = pa.table({"a": pa.array([0.1], pa.float32())})
    assert encoder.encode_table(table, 0, 1)[0, slot] == 3
    check(encoder, table)


def test_decimals_at_the_edge_of_exact_doubles():
    # At the edge, where doubles have gaps, and where only the higher words tell numbers apart.
    near = [_DECIMAL_EXACT, 2**53, 12_345_678_901_234_567, 10**18, 2**64 + 5, 2**65 + 5, 5]
    unscaled = sorted({s * (n + step) for n in near for s in (-1, 1) for step in (-2, -1, 0, 1, 2)})
    for scale in (0, 2, 15, 22, 23):
        values = [Decimal(n).scaleb(-scale) for n in unscaled]
        table = pa.table({"a": pa.array(values, pa.decimal128(38, scale))})
        wide = pa.table({"a": pa.array(values, pa.decimal256(60, scale))})
        for bounds in (values, values[::2], values[1::2]):
            encoder = encoder_of(KindClass.NUMBER, [number_key(v) for v in bounds])
            check(encoder, table)
            check(encoder, wide)


def sample_columns():
    """A column of each type, with a null and, for numbers, values wider than a double."""
    wide = [Decimal(10**17 + 1).scaleb(-4), None, Decimal("0.5"), Decimal(10**17 + 1).scaleb(-4)]
    yield pa.array(wide, pa.decimal64(18, 4))
    yield pa.array(wide, pa.decimal128(38, 4))
    yield pa.array(wide, pa.decimal256(70, 4))
    yield pa.array([Decimal("0.5"), None], pa.decimal32(9, 3))
    for kind in INTEGERS:
        yield pa.array([INTEGERS[kind][1], None, 0], kind)
    for kind in FLOATS:
        yield pa.array([np.float16(0.5), None, np.float16(math.nan)], kind)
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        yield pa.array(["x", None, ""], kind)
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1)):
        yield pa.array([b"x", None], kind)
    for kind in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view):
        yield pa.array([[1], None], kind(pa.int8()))
    yield pa.array([[1], None], pa.list_(pa.int8(), 1))
    yield pa.array([True, None, False])
    yield pa.array([as_date(0), None], pa.date32())
    yield pa.array([as_date(0), None], pa.date64())
    yield pa.array([as_datetime(0), None], pa.timestamp("us", "UTC"))
    yield pa.array([time(1), None], pa.time64("us"))
    yield pa.array([timedelta(1), None])
    yield pa.array([None, None], pa.null())
    yield pa.array([{"k": 1}, None])
    yield pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64()))
    yield pa.array([b"0123456789abcdef", None], pa.uuid())


def in_containers(column):
    """The column itself, and inside of what can hold it."""
    rows = len(column)
    yield column
    kinds, places = pa.array([0] * rows, pa.int8()), pa.array(range(rows), pa.int32())
    yield pa.UnionArray.from_dense(kinds, places, [column])
    yield pa.UnionArray.from_sparse(kinds, [column])
    yield pa.RunEndEncodedArray.from_arrays(pa.array(range(1, rows + 1), pa.int32()), column)
    indices = pa.array([*range(rows), None], pa.int32())
    for chosen in (indices, indices[:1]):  # more rows than entries, and fewer
        yield pa.DictionaryArray.from_arrays(chosen, column)


@pytest.mark.parametrize("column", list(sample_columns()), ids=lambda column: str(column.type))
def test_every_type_in_every_container(column):
    entries = [(Box({path: PRESENT}, {}),) for path in (("a",), ("r", "a"))]
    keys = {KindClass.NUMBER: [Decimal("0.5"), 127, Decimal(10**17 + 1).scaleb(-4), 2**64 - 1]}
    keys |= {KindClass.STRING: ["x"], KindClass.DATE: [0], KindClass.TIMESTAMP: [0]}
    keys |= {KindClass.BOOLEAN: [1]}
    for path in (("a",), ("r", "a")):
        for kind_class, values in keys.items():
            entries.append((Box({path: of_class(kind_class, points(kind_class, values))}, {}),))
    encoder = build(entries).encoder
    plain = column.to_pylist()
    for held in in_containers(column):
        values = [*plain, None][: len(held)]
        record = pa.StructArray.from_arrays([held], ["a"])
        table = pa.table({"a": held, "r": record})
        rows = [{"a": value, "r": {"a": value}} for value in values]
        expected = codes_of_dicts(encoder, rows)
        assert encoder.encode_table(table, 0, len(held)).tolist() == expected
        assert encoder.encode_table(table, 1, len(held)).tolist() == expected[1:]


def test_unsigned_integers_beyond_the_signed_ones():
    values = [0, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1, None]
    for keys in ([2**63], [2**63 - 1, 2**64 - 1], [0, 2**63 + 1], [-1]):
        encoder = encoder_of(KindClass.NUMBER, keys)
        check(encoder, pa.table({"a": pa.array(values, pa.uint64())}))


def mixed_children():
    record = pa.StructArray.from_arrays([pa.array([1, 7])], ["x"])
    return [
        pa.array([1, 5, None, 2**60 + 1]),
        pa.array(["x", None, "y"]),
        pa.array([1.5, math.nan]),
        pa.array([True, None]),
        record,
    ]


MIXED = ["x", 1, 1.5, True, 5, math.nan, None, {"x": 1}, "y", 2**60 + 1, {"x": 7}, None, None]
MIXED_KINDS = [1, 0, 2, 3, 0, 2, 0, 4, 1, 0, 4, 1, 3]
MIXED_OFFSETS = [0, 0, 0, 0, 1, 1, 2, 0, 2, 3, 1, 1, 1]


def mixed_encoder():
    classes = {
        KindClass.NUMBER: [1, Decimal("1.5"), 2**60],
        KindClass.STRING: ["x"],
        KindClass.BOOLEAN: [1],
    }
    domains = [of_class(kind, points(kind, keys)) for kind, keys in classes.items()]
    entries = [(Box({("u",): domain}, {}),) for domain in [*domains, PRESENT]]
    entries += [(Box({("u", "x"): domain}, {}),) for domain in [*domains, PRESENT]]
    return build(entries).encoder


def test_dense_unions():
    kinds, offsets = pa.array(MIXED_KINDS, pa.int8()), pa.array(MIXED_OFFSETS, pa.int32())
    union = pa.UnionArray.from_dense(kinds, offsets, mixed_children())
    check(mixed_encoder(), pa.table({"u": union}), [{"u": value} for value in MIXED])


def test_unions_in_records_that_are_missing():
    # Arrow itself ends the process when asked for such a field.
    there = [{"u": {"x": value}} for value in (1, "x", 1.5, True)]
    rows = [{"u": None}, *there, {}, {"u": {"x": 1}}, {}]
    table = table_of_rows(rows)
    check(mixed_encoder(), table, rows)
    texts = [None, None, "x", None, None, None, None, None]
    assert string_column(table, ("u", "x"), np.arange(len(rows))).to_pylist() == texts


def test_dense_unions_with_type_codes_of_their_own():
    kinds = pa.array([[10, 3, 5, 7, 20][kind] for kind in MIXED_KINDS], pa.int8())
    union = pa.UnionArray.from_dense(
        kinds,
        pa.array(MIXED_OFFSETS, pa.int32()),
        mixed_children(),
        ["0", "1", "2", "3", "4"],
        [10, 3, 5, 7, 20],
    )
    check(mixed_encoder(), pa.table({"u": union}), [{"u": value} for value in MIXED])


def test_sparse_unions():
    places = list(zip(MIXED_KINDS, MIXED_OFFSETS, strict=True))
    children = [
        child.take(pa.array([o if k == n else 0 for k, o in places]))
        for n, child in enumerate(mixed_children())
    ]
    union = pa.UnionArray.from_sparse(pa.array(MIXED_KINDS, pa.int8()), children)
    check(mixed_encoder(), pa.table({"u": union}), [{"u": value} for value in MIXED])
    # An array that starts inside of its buffers.
    sliced = pa.concat_arrays([union]).slice(3)
    check(mixed_encoder(), pa.table({"u": sliced}), [{"u": value} for value in MIXED[3:]])


def test_dictionaries_small_large_and_with_nulls():
    encoder = encoder_of(KindClass.STRING, ["b", "d"])
    values = pa.array(["a", "b", None, "d"])
    for indices in ([0, 1, 2, 3, None, 1, 1, 0], [3, None]):
        array = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), values)
        check(encoder, pa.table({"a": array}))
    numbers = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1, None]), pa.array([1.5, math.nan]))
    check(encoder_of(KindClass.NUMBER, [Decimal("1.5")]), pa.table({"a": numbers}))


def test_what_does_not_compare_is_there():
    encoder = encoder_of(KindClass.NUMBER, [1])
    columns = [
        pa.array([[1], None], pa.list_(pa.int64())),
        pa.array([b"x", None]),
        pa.array([time(1), None]),
        pa.array([timedelta(1), None]),
        pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        pa.array([{"k": 1}, None]),
        pa.array([b"0123456789abcdef", None], pa.uuid()),
    ]
    for column in columns:
        check(encoder, pa.table({"a": column}))


def test_extensions_and_runs_are_what_they_hold():
    encoder = encoder_of(KindClass.BOOLEAN, [1])
    stored = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1, None], pa.int8()))
    check(encoder, pa.table({"a": stored}))
    text = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", None]))
    check(encoder_of(KindClass.STRING, ["1"]), pa.table({"a": text}))
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([1, None]))
    check(encoder_of(KindClass.NUMBER, [1]), pa.table({"a": runs}))


def test_no_rows_no_column_no_slots():
    encoder = encoder_of(KindClass.NUMBER, [1])
    assert encoder.encode_table(pa.table({"a": pa.array([], pa.int64())}), 0, 0).shape == (0, 6)
    check(encoder, pa.table({"b": [1, 2]}))
    empty = build([(Box({}, {}),)]).encoder
    assert empty.encode_table(pa.table({"a": [1, 2]}), 0, 2).shape == (2, 0)


def test_of_columns_with_one_name_the_last_counts():
    encoder = encoder_of(KindClass.NUMBER, [1])
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    assert encoder.encode_table(table, 0, 1).tolist() == codes_of_dicts(encoder, [{"a": 2}])


def test_record_batches_too():
    encoder = encoder_of(KindClass.NUMBER, [1])
    batch = pa.record_batch({"a": [0, 1, None]})
    assert encoder.encode_table(batch, 1, 3).tolist() == codes_of_dicts(
        encoder, batch.to_pylist()[1:]
    )


# --- searches over many bounds -----------------------------------------------------------------

GENERATOR = np.random.default_rng(5)
SPREADS = {
    "even": GENERATOR.uniform(-1_000, 1_000, 3_000),
    "sizes of all orders": GENERATOR.lognormal(0, 30, 3_000),
    "crowded": np.concatenate([GENERATOR.normal(0, 1e-9, 3_000), [1e300, -1e300]]),
    "infinite": np.concatenate([[-math.inf, math.inf], GENERATOR.uniform(0, 1, 100)]),
    "too wide to subtract": np.array([-1.7e308, -1.0, 0.0, 1.0, 2.0, 1.7e308]),
    "smallest": np.arange(-20, 20) * 5e-324,
    "few": np.array([1.0, 2.0]),
    "none": np.array([]),
}


@pytest.mark.parametrize("name", SPREADS)
def test_doubles_among_many_bounds(name):
    thresholds = np.unique(SPREADS[name] + 0.0)
    encoder = Encoder([Slot(("a",), 0)], [OrderedBounds.from_doubles(thresholds)])
    values = np.concatenate(
        [
            thresholds,
            np.nextafter(thresholds, math.inf),
            np.nextafter(thresholds, -math.inf),
            [0.0, -0.0, math.inf, -math.inf, 1e308, -1e308],
        ]
    )
    below = np.searchsorted(thresholds, values, side="left")
    equal = np.isin(values, thresholds)
    codes = encoder.encode_table(pa.table({"a": values}), 0, len(values))
    assert codes[:, 0].tolist() == (2 * below + equal).tolist()


def test_buckets_follow_the_spread():
    assert not Buckets.of(np.unique(SPREADS["even"])).by_place
    assert Buckets.of(np.unique(SPREADS["sizes of all orders"])).by_place


@pytest.mark.parametrize("gaps_alike", [False, True])
def test_texts_among_many_bounds(gaps_alike):
    keys = sorted({f"user-{n * 7919 % 100_003}" for n in range(5_000)})
    bounds = TextBounds.from_keys(keys, gaps_alike)
    encoder = Encoder([Slot(("a",), KindClass.STRING)], [bounds])
    values = [v for key in keys[::10] for v in (key, key + "x", key[:-1], "")]
    codes = encoder.encode_table(pa.table({"a": values}), 0, len(values))[:, 0]
    assert codes.tolist() == [bounds.code_of_key(value) for value in values]


def test_threads_encode_slices():
    keys = sorted(GENERATOR.uniform(0, 1, 500))
    encoder = Encoder(
        [Slot(("a",), 0), Slot(("a",), PRESENCE)],
        [OrderedBounds.from_doubles(np.array(keys)), PRESENCE_CODES],
    )
    table = pa.table({"a": GENERATOR.uniform(0, 1, 40_000)})
    whole = encoder.encode_table(table, 0, 40_000)
    with ThreadPoolExecutor(4) as pool:
        starts = range(0, 40_000, 5_000)
        parts = pool.map(lambda start: encoder.encode_table(table, start, start + 5_000), starts)
        assert np.array_equal(np.concatenate(list(parts)), whole)


def test_dates_and_datetimes_are_different_classes():
    encoder = encoder_of(KindClass.DATE, [0])
    check(encoder, pa.table({"a": [date(1970, 1, 1), None]}))
    check(encoder, pa.table({"a": [datetime(1970, 1, 1, tzinfo=UTC), None]}))
