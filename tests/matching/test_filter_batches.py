"""Many filters against batches, as filters come and go: each row by each filter is the oracle."""

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from matching.populations import event, filter_text
from peersub.events.arrow import rows_of_table, table_of_rows
from peersub.events.envelope import Event
from peersub.filters import Filter
from peersub.matching import filter_batches
from peersub.matching.filter_batches import FilterBatches

PATTERNS = ["/a", "//b", "/a/b[@c]", "/a[@d = '1']", "//e"]
BODIES = [None, b"<a/>", b"<a d='1'><b c='2'/></a>", b"<e><b/></e>", b"no document", b""]


def some_filters(random: Random, count: int, patterns: int = 0) -> list[Filter]:
    chosen = [Filter(filter_text(random)) for _ in range(count)]
    chosen += [Filter.xpath(text) for text in random.sample(PATTERNS, patterns)]
    random.shuffle(chosen)
    return list({wanted.digest: wanted for wanted in chosen}.values())


def check(batches: FilterBatches, filters, rows, bodies) -> int:
    """Compare all that can be asked with what each filter says of each row; how many pairs."""
    column = None if bodies is None else pa.array(bodies, pa.binary())
    wanted = batches.match(table_of_rows(rows), column)
    given = bodies or [None] * len(rows)
    events = [
        Event(f"e{n}", row, body) for n, (row, body) in enumerate(zip(rows, given, strict=True))
    ]
    expected = {
        each.digest: [row for row, one in enumerate(events) if each.matches(one)]
        for each in filters
    }
    named = {number: digest for digest, number in batches.numbers.items()}
    found = {named[n]: rows.tolist() for n, rows in wanted.by_filter(batches.flags(filters))}
    assert found == {digest: its for digest, its in expected.items() if its}
    some = filters[::2]
    union = sorted({row for each in some for row in expected[each.digest]})
    assert wanted.rows_of(batches.flags(some)).tolist() == union
    assert len(list(wanted.by_filter(batches.flags(some)))) == sum(
        bool(expected[each.digest]) for each in some
    )
    return sum(map(len, expected.values()))


@pytest.mark.parametrize("seed", range(6))
def test_filters_that_come_and_go_want_what_they_say(seed, monkeypatch):
    monkeypatch.setattr(filter_batches, "SLICE_ROWS_MAX", 5)
    random = Random(seed)
    batches = FilterBatches()
    present: list[Filter] = []
    pairs = 0
    for _ in range(12):
        kept = [each for each in present if random.random() < random.choice((0.2, 0.8, 1))]
        present = [*kept, *some_filters(random, random.choice((0, 1, 2, 12)), random.randint(0, 2))]
        present = list({each.digest: each for each in present}.values())
        batches.use(present)
        rows = [event(random) for _ in range(random.choice((0, 1, 7, 12)))]
        bodies = random.choice((None, [random.choice(BODIES) for _ in rows]))
        pairs += check(batches, present, rows, bodies)
    assert pairs > 50


def test_columns_in_chunks_and_of_other_types():
    random = Random(3)
    words = [pa.array(random.choices(["a", "ab", None], k=7)), pa.array(random.choices("bc", k=5))]
    numbers = pa.array(random.choices([0, 1, 5, None], k=12), pa.int32())
    moments = pa.array([0, 1_704_067_200 * 10**9, None] * 4, pa.int64()).cast(pa.timestamp("ns"))
    table = pa.table(
        {
            "a": pa.chunked_array([each.dictionary_encode() for each in words]),
            "b": pa.chunked_array([numbers[:3], numbers[:0], numbers[3:]]),
            "c": moments,
            "r": pa.array([{"x": number % 3, "y": "a"} for number in range(12)]),
        }
    )
    filters = some_filters(random, 60)
    batches = FilterBatches()
    batches.use(filters)
    wanted = batches.match(table)
    events = [Event("e", row) for row in rows_of_table(table)]
    for each in filters:
        expected = [row for row, event in enumerate(events) if each.matches(event)]
        assert wanted.rows_of(batches.flags([each])).tolist() == expected


def test_numbers_stay_while_filters_are_in_use_and_dead_ones_go_in_time():
    filters = [Filter(f"a = {number}") for number in range(40)]
    batches = FilterBatches()
    batches.use(filters)
    before = dict(batches.numbers)
    batches.use([*filters[:30], Filter("b = 1")])
    assert {digest: batches.numbers[digest] for digest in before} == before
    assert batches.count == 41
    batches.use(filters[:4])
    assert batches.count == 4 and set(batches.numbers) == {each.digest for each in filters[:4]}
    check(batches, filters[:4], [{"a": number} for number in range(8)], None)
    batches.use([])
    assert batches.count == 0 and len(batches.match(pa.table({"a": [1]})).rows) == 0


def test_one_more_filter_is_compiled_by_itself(monkeypatch):
    batches = FilterBatches()
    filters = [Filter(f"a = {number}") for number in range(40)]
    batches.use(filters)
    compiled = batches._compiled
    for number in range(5):
        filters.append(Filter(f"b = {number}"))
        batches.use(filters)
    assert batches._compiled is compiled and batches._later is not None
    check(batches, filters, [{"a": 1, "b": 2}, {"b": 4}, {}], None)
    filters += [Filter(f"c = {number}") for number in range(20)]
    batches.use(filters)
    assert batches._compiled is not compiled and batches._later is None
    check(batches, filters, [{"a": 1, "b": 2, "c": 3}], None)


def test_patterns_alone_and_what_nobody_wants():
    batches = FilterBatches()
    patterns = [Filter.xpath(text) for text in PATTERNS]
    batches.use(patterns)
    rows = [{} for _ in BODIES]
    assert check(batches, patterns, rows, BODIES) > 3
    assert check(batches, patterns, rows, None) == 0
    nothing = [Filter("FALSE"), Filter("a = 1 AND a = 2")]
    batches.use([*patterns, *nothing, Filter("TRUE")])
    assert check(batches, [*nothing, Filter("TRUE")], rows, None) == len(rows)


def test_a_filter_that_nobody_uses_has_no_number():
    batches = FilterBatches()
    batches.use([Filter("a = 1")])
    with pytest.raises(KeyError):
        batches.flags([Filter("a = 2")])
    assert np.array_equal(batches.flags([]), [False])
