"""Batches: columns to bytes and back, parts of them, and bytes that are none."""

from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from overlays.core.batch_rows import batch_of, sent
from peersub.events.arrow import table_of_rows
from peersub.events.envelope import content_hash
from peersub.filters import Filter
from peersub.matching.filter_batches import FilterBatches
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.event_keys import (
    BATCH_ID_BYTES_MAX,
    BATCH_ROWS_MAX,
    event_id_of,
    split_event_id,
)
from peersub.overlays.core.publication import Delivery
from strategies import events, examples

ROWS = [
    {"a": 1, "s": "x", "when": date(2024, 2, 29), "r": {"x": 1, "y": {"z": "deep"}}},
    {"a": 2.5, "when": datetime(2024, 2, 29, 12, tzinfo=UTC), "money": Decimal("1.50")},
    {"a": "2", "money": Decimal(10) ** 40, "r": {"x": "one"}, "list": [1, 2]},
    {"a": True, "s": "é", "raw": b"\x00\xff"},
    {"a": None, "s": ""},
    {},
]
BODIES = [b"<a/>", None, b"", b"\xff", None, b"<b/>"]


def packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def received(table: pa.Table) -> Batch:
    return Batch("b", np.arange(table.num_rows, dtype=np.uint32), 100, packed=packed(table))


# --- names -------------------------------------------------------------------------------------


@given(st.text(min_size=1, max_size=8), st.integers(0, BATCH_ROWS_MAX - 1))
def test_the_name_of_an_event_leads_back_to_its_batch(batch, number):
    assert split_event_id(event_id_of(batch, number)) == (batch, number)


@given(st.text("ab/019٣", max_size=9))
def test_a_name_that_leads_to_a_batch_is_the_name_of_its_event(text):
    place = split_event_id(text)
    assert place is None or event_id_of(*place) == text


@pytest.mark.parametrize(
    "text", ["/1", "b/", "b/-1", "b/01", "b/1_0", "b/٣", f"b/{BATCH_ROWS_MAX}"]
)
def test_other_names_lead_to_no_batch(text):
    assert split_event_id(text) is None


# --- there and back ----------------------------------------------------------------------------


def test_all_kinds_come_back_as_they_went():
    batch = sent(batch_of(ROWS, bodies=BODIES, delivery=Delivery.AT_LEAST_ONCE))
    assert batch.is_sound
    back = list(batch.publications())
    assert [each.id for each in back] == [f"b/{number}" for number in range(6)]
    assert [each.body for each in back] == BODIES
    assert {each.delivery for each in back} == {Delivery.AT_LEAST_ONCE}
    assert [content_hash(each.attributes) for each in back] == list(map(content_hash, ROWS))


@examples(50)
@given(st.lists(events(), min_size=1, max_size=8), st.data())
def test_any_rows_come_back_as_they_went_also_in_parts(rows, data):
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), unique=True).map(sorted))
    bodies = data.draw(
        st.none()
        | st.lists(st.none() | st.binary(max_size=3), min_size=len(rows), max_size=len(rows))
    )
    try:
        batch = sent(batch_of(rows, bodies=bodies))
    except ValueError:
        assume(False)  # values that Arrow has no column for
    part = sent(batch.part(np.array(chosen, np.int64)))
    assert part.is_sound and len(part) == len(chosen) and part.total == len(rows)
    back = list(part.publications())
    assert [each.id for each in back] == [f"b/{number}" for number in chosen]
    hashes = [content_hash(each.attributes) for each in back]
    assert hashes == [content_hash(rows[n]) for n in chosen]
    assert [each.body for each in back] == [bodies[n] if bodies else None for n in chosen]


def test_events_without_attributes_travel_in_parts_too():
    for bodies in (None, [b"x", b"y", b"z"]):
        part = sent(sent(batch_of([{}, {}, {}], bodies=bodies)).part(np.array([0, 2])))
        assert part.is_sound
        assert [(each.id, dict(each.attributes)) for each in part.publications()] == [
            ("b/0", {}),
            ("b/2", {}),
        ]
        assert [each.body for each in part.publications()] == (
            [b"x", b"z"] if bodies else [None] * 2
        )


def test_a_part_of_a_part_knows_its_numbers():
    batch = batch_of([{"a": number} for number in range(10)])
    part = batch.part(np.array([1, 4, 5, 9])).part(np.array([1, 3]))
    assert part.numbers.tolist() == [4, 9] and part.event_id(1) == "b/9"
    assert [each.attributes["a"] for each in part.publications()] == [4, 9]
    assert part.part(np.arange(2)) is part


def test_what_came_is_sent_on_as_it_came():
    batch = sent(batch_of(ROWS, bodies=BODIES))
    first = batch.packed
    assert batch.is_sound and batch.part(np.arange(6)).packed is first


def test_equal_batches_are_the_same_events_under_the_same_promise():
    batch = batch_of(ROWS)
    assert batch == sent(batch) and hash(batch) == hash(sent(batch))
    assert batch != batch_of(ROWS, "c") and batch != batch.part(np.array([1]))
    assert batch != batch_of(ROWS, delivery=Delivery.AT_LEAST_ONCE) and batch != "b"


# --- what is no batch --------------------------------------------------------------------------


def test_who_publishes_hears_what_is_wrong():
    table = table_of_rows(ROWS)
    for name in ("", "é" * BATCH_ID_BYTES_MAX):
        with pytest.raises(ValueError, match="the name of a batch"):
            Batch.of(name, table)
    with pytest.raises(ValueError, match="at most 16,384"):
        Batch.of("b", pa.table({"a": np.zeros(BATCH_ROWS_MAX + 1)}))
    with pytest.raises(ValueError, match="two columns of one name"):
        Batch.of("b", pa.table([[1], [2]], names=["a", "a"]))
    for kind in (
        pa.string_view(),
        pa.list_(pa.binary_view()),
        pa.struct([("x", pa.string_view())]),
    ):
        with pytest.raises(ValueError, match="cast them to a plain type"):
            Batch.of("b", pa.table({"a": pa.nulls(2, kind)}))
    with pytest.raises(ValueError, match="bytes, not string"):
        Batch.of("b", table, pa.array(["x"] * 6))
    with pytest.raises(ValueError, match="other bodies than events"):
        Batch.of("b", table, pa.array([b"x"]))


@pytest.mark.parametrize("numbers", [[1, 0], [0, 0], [0, 6], [0], [0, 1, 2]])
def test_numbers_that_do_not_rise_or_are_not_those_of_the_rows(numbers):
    good = batch_of([{"a": 1}, {"a": 2}])
    batch = Batch("b", np.array(numbers, np.uint32), 6, packed=good.packed)
    assert not batch.is_sound
    with pytest.raises(ValueError, match=r"do not rise|other rows"):
        list(batch.publications())


def test_columns_that_make_no_events():
    body = {"peersub.body": "1"}
    for table in (
        pa.table([[1, 2], [3, 4]], names=["a", "a"]),
        pa.table({"a": [1, 2], "": [3, 4]}).replace_schema_metadata(body),
        pa.table({"": ["x", "y"]}).replace_schema_metadata(body),
    ):
        assert not received(table).is_sound
    assert received(pa.table({}).replace_schema_metadata(body)).is_sound  # no column, no body


def test_dates_that_python_does_not_know_are_missing():
    days = pa.array([2**31 - 1, 1], pa.int32()).cast(pa.date32())
    times = pa.array([2**62, 1], pa.int64()).cast(pa.duration("s"))
    batch = received(pa.table({"d": days, "t": times}))
    assert batch.is_sound
    first, second = batch.publications()
    assert first.attributes == {"d": None, "t": None}
    assert second.attributes["d"] == date(1970, 1, 2)


def _look_through(batch: Batch) -> None:
    """All that a node does with a batch that came."""
    if not batch.is_sound:
        with pytest.raises(ValueError):
            _ = batch.table
        return
    assert len(list(batch.publications())) == len(batch)
    filters = FilterBatches()
    filters.use([Filter("a < 2 AND s LIKE '%x%'"), Filter("r.x = 1"), Filter.xpath("/a")])
    assert filters.match(batch.table, batch.bodies).batch_rows == len(batch)
    assert len(sent(batch.part(np.arange(len(batch) // 2)))) == len(batch) // 2


def test_bytes_that_are_cut_off_or_flipped_are_refused_or_read_and_nothing_fails():
    random = Random(7)
    numbers = np.arange(6, dtype=np.uint32)
    for bodies in (BODIES, None):
        good = batch_of(ROWS, bodies=bodies).packed
        refused = 0
        for _ in range(1_000):
            bad = bytearray(good)
            for _ in range(random.choice((1, 1, 2, 5))):
                bad[random.randrange(len(bad))] ^= 1 << random.randrange(8)
            batch = Batch("b", numbers, 6, packed=bytes(bad))
            refused += not batch.is_sound
            _look_through(batch)
        assert refused > 100
        for length in range(0, len(good), 7):
            _look_through(Batch("b", numbers, 6, packed=good[:length]))


@examples(50)
@given(st.binary(max_size=64))
def test_any_bytes_are_refused_or_read(data):
    _look_through(Batch("b", np.arange(1, dtype=np.uint32), 1, packed=data))
