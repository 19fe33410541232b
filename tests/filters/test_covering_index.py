"""The index of many filters against asking each of them, in the order in which they came."""

import random
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peersub.filters import covering_buckets, covering_lookup, covering_postings, span_index
from peersub.filters.covering_index import SCAN_MAX, CoveringIndex, Subject, Summary
from peersub.filters.filter import Filter
from peersub.filters.span_index import WHOLE_LINE, SpanIndex, span_of, span_of_value, spans_of

# --- the line of all values --------------------------------------------------------------------

NAMES = ("a", "b", "c")
NUMBERS = st.integers(0, 9)
TEXTS = st.sampled_from(("", "k", "ka", "kb", "m"))
DATES = st.sampled_from(("2020-01-01", "2020-01-02", "2021-06-30"))


def ranges(name: str) -> st.SearchStrategy[str]:
    """Constraints of one attribute: ends open, closed and missing, gaps, kinds, prefixes, sets."""
    return st.one_of(
        st.builds(
            "{0} {1} {2} AND {0} {3} {4}".format,
            st.just(name),
            st.sampled_from((">", ">=")),
            NUMBERS,
            st.sampled_from(("<", "<=")),
            NUMBERS,
        ),
        st.builds(
            "{} {} {}".format, st.just(name), st.sampled_from(("<", "<=", ">", ">=", "<>")), NUMBERS
        ),
        st.builds("{} IN ({}, {})".format, st.just(name), NUMBERS, NUMBERS),
        st.builds("{0} < {1} OR {0} > {2}".format, st.just(name), NUMBERS, NUMBERS),
        st.builds("{0} IS NULL OR {0} > {1}".format, st.just(name), NUMBERS),
        st.builds("{0} >= '{1}' OR {0} < {2}".format, st.just(name), TEXTS, NUMBERS),
        st.builds("{} LIKE '{}%'".format, st.just(name), TEXTS),
        st.builds("{0} > '{1}' AND {0} <= '{2}'".format, st.just(name), TEXTS, TEXTS),
        st.builds("{} >= DATE '{}'".format, st.just(name), DATES),
        st.builds("{} {}".format, st.just(name), st.sampled_from(("IS NULL", "IS NOT NULL"))),
    )


CONSTRAINTS = st.one_of(map(ranges, NAMES)).map("({})".format)
TEXT_TESTS = st.builds(
    "{} {}LIKE '%{}%'".format, st.sampled_from(NAMES), st.sampled_from(("", "NOT ")), TEXTS
)


def filters(*leaves: st.SearchStrategy[str], boxes_max: int = 2) -> st.SearchStrategy[Filter]:
    conjunctions = st.lists(st.one_of(leaves), min_size=1, max_size=2).map(" AND ".join)
    several = st.lists(conjunctions, min_size=1, max_size=boxes_max).map(
        lambda parts: " OR ".join(f"({part})" for part in parts)
    )
    return several.map(Filter)


VALUES = st.one_of(
    NUMBERS, st.sampled_from((2.5, -1, True, (1, 2), float("nan"), None)), TEXTS, st.dates()
)
EVENTS = st.dictionaries(st.sampled_from(NAMES), VALUES)


@given(ranges("a"), ranges("a"))
def test_the_span_of_a_domain_holds_those_of_its_parts(one, other):
    domains = [box.domain(("a",)) for text in (one, other) for box in Filter(text).boxes]
    for general in domains:
        for specific in domains:
            if specific.is_subset(general):
                (low, high), (lower, upper) = span_of(specific), span_of(general)
                assert lower <= low < high <= upper
                assert any(start <= low < end for start, end in spans_of(general))


@given(ranges("a"), VALUES)
def test_a_value_lies_in_the_span_of_a_domain_that_contains_it(text, value):
    for box in Filter(text).boxes:
        domain = box.domain(("a",))
        if domain.contains(value):
            lower, upper = span_of(domain)
            place, same = span_of_value(value)
            assert lower <= place == same < upper
    assert WHOLE_LINE[0] <= span_of_value(value)[0] < WHOLE_LINE[1]


SPANS = st.tuples(st.integers(0, 12), st.integers(1, 12)).map(
    lambda pair: ((0, pair[0], 0), (0, sum(pair), 0))
)


@given(st.lists(st.tuples(SPANS, st.integers(0, 3)), max_size=60), SPANS, st.data())
def test_spans_are_found_in_blocks_as_by_asking_each(spans, asked, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(span_index, "BLOCK_MAX", 4)
        index = SpanIndex()
        for span, name in spans:
            index.add(span, name)
        for at in sorted(data.draw(st.sets(st.sampled_from(range(60)))), reverse=True):
            if at < len(spans):
                index.discard(*spans.pop(at))
        assert len(index) == len(spans)
        begin, end = asked
        answers = {
            index.containing(asked): [n for (b, e), n in spans if b <= begin and end <= e],
            index.touching(asked): [n for (b, e), n in spans if b <= end and begin <= e],
            index.within([asked], end): [n for (b, e), n in spans if begin <= b and e <= end],
        }
        for found, expected in answers.items():
            assert sorted(found.names()) == sorted(expected)
            assert found.size >= len(expected)


# --- the index ---------------------------------------------------------------------------------


@contextmanager
def spans_kept_from(filters_min: int):
    """Spans are kept for so many filters, in small blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(span_index, "BLOCK_MAX", 4)
        for module in (covering_buckets, covering_lookup, covering_postings):
            patch.setattr(module, "SPANNED_MIN", filters_min)
        yield


def answers(known: list[Filter], removed: list[Filter], asked: Filter, event) -> list[list[Filter]]:
    """What an index says of a filter and an event."""
    index = CoveringIndex()
    nodes = {wanted: Summary(wanted) for wanted in known}
    for node in nodes.values():
        index.add(node)
    for wanted in removed:
        index.discard(nodes.pop(wanted))
    # Filters that came again are the last.
    for wanted in removed[::2]:
        nodes[wanted] = Summary(wanted)
        index.add(nodes[wanted])
    summary = Summary(asked)
    coverers = index.coverers(summary)
    assert index.coverer(summary) is (coverers[0] if coverers else None)
    found = [coverers, index.covered(summary), list(index.matching(Subject(event)))]
    return [[node.filter for node in nodes] for nodes in found]


POPULATIONS = {
    "one attribute": filters(ranges("a").map("({})".format), boxes_max=1),
    "unions": filters(ranges("a").map("({})".format), ranges("b").map("({})".format)),
    # Of two such filters one often covers the other, and each box of it only a part.
    "thresholds": st.builds(
        "a > {} OR b > {} OR a < {} AND b < {}".format, NUMBERS, NUMBERS, NUMBERS, NUMBERS
    ).map(Filter),
    "several attributes": filters(CONSTRAINTS),
    "text tests": filters(CONSTRAINTS, CONSTRAINTS, TEXT_TESTS),
    "patterns": st.one_of(
        filters(CONSTRAINTS), st.sampled_from(("/a", "//b", "//*", "/a//b")).map(Filter.xpath)
    ),
}


@pytest.mark.parametrize("population", POPULATIONS)
@settings(max_examples=50)
@given(data=st.data())
def test_the_index_answers_as_asking_each_does(population, data):
    some = POPULATIONS[population]
    known = list(dict.fromkeys(data.draw(st.lists(some, min_size=SCAN_MAX, max_size=4 * SCAN_MAX))))
    removed = data.draw(st.lists(st.sampled_from(known), unique=True, max_size=10))
    asked, event = data.draw(some), data.draw(EVENTS)
    with spans_kept_from(2):
        found = answers(known, removed, asked, event)
    left = [wanted for wanted in known if wanted not in removed[1::2]]
    expected = [
        {wanted for wanted in left if wanted.covers(asked)},
        {wanted for wanted in left if asked.covers(wanted)},
        {wanted for wanted in left if wanted.matches(event)},
    ]
    assert list(map(set, found)) == expected
    # Filters of one box are in one bucket: spans leave some out, the others keep their order.
    if all(len(getattr(wanted, "boxes", ())) < 2 for wanted in known):
        with spans_kept_from(1_000):
            assert found == answers(known, removed, asked, event)


@pytest.mark.parametrize(
    "general",
    [
        "s >= 'b' AND s < 'c' OR s >= 'b' AND s < 'd' AND a = 1",
        "s >= 'b' AND s < 'c' OR b = 1",
    ],
)
def test_a_union_may_cover_what_text_tests_leave_of_a_wider_range(general):
    """No string from 'a' up to 'b' passes the test, which shows once the range is divided there."""
    union, part = Filter(general), Filter("s >= 'a' AND s < 'c' AND s NOT LIKE '%a%'")
    assert Summary(union).covers(Summary(part))
    noise = [Filter(f"s >= 'x{n}' AND s < 'x{n + 1}'") for n in range(1, 9)]
    unions = [Filter(f"s >= 'x{n}' AND s < 'x{n + 1}' OR b > {n}") for n in range(1, 9)]
    with spans_kept_from(2):
        assert answers([*noise, *unions, union], [], part, {})[0] == [union]
        assert part in answers([*noise, *unions, part], [], union, {})[1]


# --- what it costs -----------------------------------------------------------------------------

MANY = 1_000


def scattered(text: str, seed: int = 1) -> list[Filter]:
    """Many filters with drawn bounds."""
    draw = random.Random(seed).randrange
    bounds = ((draw(10**6), draw(10**6)) for _ in range(MANY))
    return [Filter(text.format(a, a + 1_000, b, b + 1_000)) for a, b in bounds]


@pytest.mark.parametrize(
    ("text", "asked_max"),
    [
        ("a >= {0} AND a < {1}", 0),
        ("a > {0} AND a <= {1} AND b > {2}", 0),
        ("a >= {0} AND a < {1} AND b > 0 AND c LIKE '%x%'", 0),
        ("a >= {0} AND a < {1} OR a > {2} AND a < {3} AND b = 1", 16),
        ("a >= {0} AND a < {1} OR b >= {2} AND b < {3}", 16),
        ("s >= '{0:07}' AND s < '{1:07}'", 0),
    ],
)
def test_a_filter_among_many_that_none_covers_is_compared_with_few(monkeypatch, text, asked_max):
    *known, last = scattered(text)
    index = CoveringIndex()
    for wanted in known:
        index.add(Summary(wanted))
    asked: list[Summary] = []
    covers = Summary.covers
    monkeypatch.setattr(
        Summary, "covers", lambda a, b, *rest: asked.append(a) or covers(a, b, *rest)
    )
    assert index.coverers(Summary(last)) == index.covered(Summary(last)) == []
    assert len(asked) <= asked_max


def test_blocks_forget_the_spans_that_left():
    index = SpanIndex()
    wide = [((0, begin, 0), (0, 10_000, 0)) for begin in range(0, MANY, 10)]
    for begin in range(MANY):
        index.add(((0, begin, 1), (0, begin + 1, 0)), begin)
    for span in wide:
        index.add(span, MANY)
    for span in wide:
        index.discard(span, MANY)
    found = index.containing(((0, MANY - 1, 1), (0, MANY, 0)))
    assert list(found.names()) == [MANY - 1]
    assert found.size <= span_index.BLOCK_MAX


def test_an_event_is_compared_with_few_of_many(monkeypatch):
    index = CoveringIndex()
    for wanted in scattered("a >= {0} AND a < {1}"):
        index.add(Summary(wanted))
    asked: list[Filter] = []
    matches = Subject.is_matched_by
    monkeypatch.setattr(Subject, "is_matched_by", lambda a, b: asked.append(b) or matches(a, b))
    found = [node.filter for node in index.matching(Subject({"a": 500_000}))]
    assert found == asked


def test_an_event_asks_only_for_attributes_that_it_has(monkeypatch):
    index = CoveringIndex()
    nodes = [Summary(Filter(f"a{n} > 1 AND b{n % 7} > 1")) for n in range(500)]
    for node in nodes:
        index.add(node)
    asked = []
    value = Subject.value
    monkeypatch.setattr(
        Subject, "value", lambda self, path: asked.append(path) or value(self, path)
    )
    found = list(index.matching(Subject({"a3": 5, "b3": 5, "c": 1})))
    assert found == [nodes[3]]
    assert set(asked) == {("a3",), ("b3",)}
    for node in nodes[1:]:
        index.discard(node)
    lookup = index._lookup
    assert lookup is not None and len(lookup._needed) == 2 and len(lookup._known_by) == 1
