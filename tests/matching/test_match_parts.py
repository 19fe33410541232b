"""Deliveries in parts of a bounded size: the same pairs as at once, and never many together."""

import pyarrow as pa
import pytest

from peersub.filters.filter import Filter
from peersub.matching.bulk import TextColumns, columns_of_texts
from peersub.matching.matcher import Matcher
from peersub.workloads import WorkloadSettings, generate

EVENTS = 150
DOCUMENTS = ["<a><b c='1'/></a>", None, "<a/>", "not XML"] * 40


@pytest.fixture(scope="module")
def table():
    workload = generate(WorkloadSettings(subscriptions=0, events=EVENTS, seed=3))
    return workload.events.append_column("body", pa.array(DOCUMENTS[:EVENTS], pa.string()))


def texts():
    """Filters that match few and all events, equal ones, unions of boxes and text tests."""
    settings = WorkloadSettings(
        subscriptions=400, events=0, share_matched=0.02, duplicates_share=0.3, opaque_share=0.2
    )
    rows = generate(settings).texts()["filter"].to_pylist()
    rows += ["TRUE"] * 30 + [f"n{n} >= 0" for n in range(5)] + ["n0 < 9e4 OR n1 > 1e4"] * 3
    return [(f"s{number}", text) for number, text in enumerate(rows)]


PATTERNS = [("p0", Filter.xpath("/a")), ("p1", Filter.xpath("//b")), ("p2", Filter.xpath("/a"))]


def compiled():
    rows = texts()
    columns = columns_of_texts([text for _, text in rows])
    sent = TextColumns.from_arrays(columns.arrays())
    matcher = Matcher.from_columns([name for name, _ in rows], sent, PATTERNS)
    matcher.remove("s3")
    return matcher


def recent():
    matcher = Matcher()
    for name, wanted in [*((name, Filter(text)) for name, text in texts()), *PATTERNS]:
        matcher.add(name, wanted)
    matcher.remove("s3")
    return matcher


def pairs(found):
    return list(
        zip(
            found.column("event_row").to_pylist(),
            found.column("subscription_id").to_pylist(),
            strict=True,
        )
    )


@pytest.fixture(scope="module")
def expected(table):
    wanted = [(name, Filter(text)) for name, text in texts() if name != "s3"]
    bodies = table.column("body").to_pylist()
    found = [
        (row, name)
        for row, event in enumerate(table.to_pylist())
        for name, one in wanted
        if one.matches(event)
    ]
    found += [
        (row, name)
        for row, body in enumerate(bodies)
        for name, one in PATTERNS
        if body is not None and one.matches(body)
    ]
    return sorted(found)


@pytest.mark.parametrize("make", [compiled, recent])
@pytest.mark.parametrize("pairs_max", [1, 40, 333, 10**6])
def test_parts_are_the_whole_and_within_the_bound(make, pairs_max, table, expected):
    parts = list(map(pairs, make().match_parts(table, pairs_max=pairs_max)))
    assert sorted(pair for part in parts for pair in part) == expected
    each_event = max(sum(row == place for row, _ in expected) for place in range(EVENTS))
    for part in parts:
        # The small index and the patterns end a part with the event that fills it.
        assert len({row for row, _ in part}) <= 1 or len(part) <= pairs_max + each_event
    if make is compiled:
        compiled_parts = [part for part in parts if not any(name[0] == "p" for _, name in part)]
        assert all(
            len({row for row, _ in part}) <= 1 or len(part) <= pairs_max for part in compiled_parts
        )


def test_parts_at_once_are_the_batch(table, expected):
    assert sorted(pairs(compiled().match_batch(table, threads=1))) == expected


def test_no_events_have_no_parts(table):
    assert list(compiled().match_parts(table.slice(0, 0), pairs_max=5)) in ([], [[]])


def test_columns_need_an_id_each():
    with pytest.raises(ValueError, match="give one id to each"):
        Matcher.from_columns(["s0"], columns_of_texts(["TRUE", "FALSE"]))


def test_columns_with_errors_are_refused():
    with pytest.raises(ValueError, match="a =="):
        Matcher.from_columns(["s0", "s1"], columns_of_texts(["TRUE", "a =="]))


@pytest.mark.parametrize("events", [40, 150])
def test_distinct_filters_that_all_match_stay_within_the_bound(events):
    names = [f"s{number}" for number in range(300)]
    matcher = Matcher.from_columns(names, columns_of_texts([f"a >= {-n}" for n in range(300)]))
    table = pa.table({"a": list(range(events))})
    parts = list(map(pairs, matcher.match_parts(table, pairs_max=1_000)))
    assert max(map(len, parts)) <= 1_000
    assert sorted(pair for part in parts for pair in part) == sorted(
        (row, name) for row in range(events) for name in names
    )
