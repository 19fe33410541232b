"""`XPathFilter` as a filter: identity, bytes, overlap, merging, similarity."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.xpath.xpath_strategies import documents, fewer, filters_of, lxml_matches, patterns
from peersub.filters import Filter, FilterError
from peersub.filters.xpath import XPathFilter, parse_document
from peersub.filters.xpath.aggregate import upper_bounds
from peersub.filters.xpath.xpath_filter import NOTHING_TEXT


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("/a", "/a"),
        (" / a [ b ] ", "/a/b"),
        ("/a[c][b]", "/a[b]/c"),
        ("/a[b and c]", "/a[b]/c"),
        ("/a[./b]", "/a/b"),
        ("/a[b][b]", "/a/b"),
        ("/a[b][b/c]", "/a/b/c"),
        ("/a[.//b][b]", "/a/b"),
        ("//*", "/*"),
        ("/a//*", "/a/*"),
        ("/a/*//b", "/a//*/b"),
        ("//@x", "//*[@x]"),
        ("/a/@x", "/a[@x]"),
        ("/a/text()", "/a[text()]"),
        ("/a[5 < @x]", "/a[@x > 5]"),
        ("/a[@x > '5']", "/a[@x > 5]"),
        ("/a[@x = '5']", "/a[@x = '5']"),
        ('/a[@x = "it\'s"]', '/a[@x = "it\'s"]'),
        ("/a[@x>05.50]", "/a[@x > 5.5]"),
        ("/a[@x > .5]", "/a[@x > 0.5]"),
        ("/a[@x = -0]", "/a[@x = 0]"),
        ("/a[@x > 5 and @x > 6]", "/a[@x > 6]"),
        ("/a[@x >= 5 and @x <= 5]", "/a[@x = 5]"),
        ("/a[@x != 5 and @x > 6]", "/a[@x > 6]"),
        ("/a[@x = '5' and @x > 1]", "/a[@x = '5']"),
        ("/a[@x and @x = 1]", "/a[@x = 1]"),
        ("/a[text() != '']", "/a[text()]"),
        ("/a[text() > 5][text() > 6]", "/a[text() > 6]"),
        ("/a[text()[. > 5 and . < 9]]", "/a[text()[. > 5 and . < 9]]"),
        ("/a[price > 10]/b/c", "/a[price > 10]/b/c"),
        ("/a[.//b[. > 1 and . < 5]]/b/c", "/a[.//b[. > 1][. < 5]]/b/c"),
        ("/a[@x = 1][@x = 2]", NOTHING_TEXT),
        ("/a[b[@x > 5 and @x < 5]]", NOTHING_TEXT),
        ("/a[text() = '']", NOTHING_TEXT),
        ("/a[. = 'v' and . > 5]", NOTHING_TEXT),
    ],
)
def test_canonical_text(text, canonical):
    made = Filter.xpath(text)
    assert made.text == str(made) == canonical
    assert XPathFilter(canonical) == made
    assert made.is_nothing == (canonical == NOTHING_TEXT)


@given(patterns)
def test_bytes_and_pickles_bring_it_back(text):
    for made in filters_of([text]):
        again = Filter.from_bytes(made.to_bytes())
        assert isinstance(again, XPathFilter)
        assert again == made and again.digest == made.digest
        assert pickle.loads(pickle.dumps(made)) == made


def test_bytes_that_hold_no_pattern_are_refused():
    data = XPathFilter("/a/b").to_bytes().replace(b"/a/b", b"/a/|")
    with pytest.raises(ValueError):
        Filter.from_bytes(data)


def test_what_it_is():
    made = XPathFilter("/a")
    assert made.language == "xpath"
    assert made.attributes == []
    assert not made.is_everything and not made.is_nothing
    assert repr(made) == "Filter.xpath('/a')"
    assert made != Filter("a = 1")
    assert hash(made) == hash(XPathFilter("/a"))


def test_relations_with_sql_filters():
    pattern, sql = XPathFilter("/a"), Filter("a = 1")
    nothing, everything = Filter("a = 1 AND a = 2"), Filter("a IS NULL OR a IS NOT NULL")
    assert not pattern.covers(sql) and not sql.covers(pattern)
    assert pattern.covers(nothing) and everything.covers(pattern)
    assert sql.covers(XPathFilter(NOTHING_TEXT))
    assert pattern.overlaps(sql) and sql.overlaps(pattern)
    assert not pattern.overlaps(nothing) and not sql.overlaps(XPathFilter(NOTHING_TEXT))
    assert pattern.merge(sql) is None
    assert pattern.merge(nothing) is pattern
    assert pattern.merge(everything) is everything


@pytest.mark.parametrize(
    ("first", "second", "overlap"),
    [
        ("/a", "/b", False),
        ("/a//c", "/b[d]", False),
        ("/a[@x > 5]", "/a[@x < 3]", False),
        ("/a[@x = 'v']", "/*[@x = 'w']", False),
        ("/a[. = 'v']", "/a[. > 5]", False),
        ("/a[text() = 'v']", "/a[text() = 'w']", True),
        ("/a/b[@x > 5]", "/a/b[@x < 3]", True),
        ("/a", "//b", True),
        ("/a", "/*", True),
        ("/a", NOTHING_TEXT, False),
    ],
)
def test_overlaps(first, second, overlap):
    assert XPathFilter(first).overlaps(XPathFilter(second)) == overlap
    assert XPathFilter(second).overlaps(XPathFilter(first)) == overlap


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [
        ("/a", "/a/b", "/a"),
        ("/a/b", "//b", "//b"),
        ("/a[@x > 5]", "/a[@x = 5]", "/a[@x >= 5]"),
        ("/a[b[@x > 1 and @x < 5]]/c", "/a[b[@x >= 5 and @x < 9]]/c", "/a[b[@x > 1][@x < 9]]/c"),
        ("/a[. = 'v']", "/a[. != 'v']", "/a"),
        ("/a/b[c < 5]", "/a/b[c < 5 and c > 7]", "/a/b[c < 5]"),
        ("/a[text() = 5]", "/a[text() > 5]", "/a[text() >= 5]"),
        ("/a", "/b", None),
        ("/a/b", "/a/c", None),
        ("/a[@x = 'v']", "/a[@x = 'w']", None),
        ("/a[@x > 5][@y = 1]", "/a[@x = 5][@y = 2]", None),
        ("/a[@x > 5][. > 5]", "/a[@x = 5][. = 5]", None),
        ("/a[@x > 5]/b", "/a[@x = 5]/c", None),
        ("/a[@x < 5]", "/a[@x >= 5]", None),
    ],
)
def test_perfect_merges(first, second, merged):
    for one, other in ((first, second), (second, first)):
        found = XPathFilter(one).merge(XPathFilter(other))
        assert (None if found is None else found.text) == merged


@fewer(2)
@given(patterns, patterns, st.lists(documents(), min_size=1, max_size=4))
def test_merges_cover_both_and_perfect_ones_nothing_else(first, second, samples):
    made = filters_of([first, second])
    if len(made) < 2:
        return
    one, other = made
    perfect = one.merge(other)
    if perfect is not None:
        for sample in samples:
            expected = lxml_matches(first, sample) or lxml_matches(second, sample)
            assert lxml_matches(perfect.text, sample) == expected
    merged = one.merge(other, sample=samples, budget=1.0)
    if merged is not None:
        assert merged.covers(one) and merged.covers(other)


@fewer(2)
@given(patterns, patterns, st.lists(documents(), min_size=4, max_size=8), st.floats(0, 1))
def test_imperfect_merges_keep_to_the_budget(first, second, samples, budget):
    made = filters_of([first, second])
    if len(made) < 2:
        return
    one, other = made
    merged = one.merge(other, sample=samples, budget=budget)
    if merged is not None:
        extra = [
            sample
            for sample in samples
            if merged.matches(sample)
            and not (lxml_matches(first, sample) or lxml_matches(second, sample))
        ]
        assert len(extra) <= budget * len(samples)


@given(patterns, patterns)
def test_upper_bounds_are_proven(first, second):
    made = [f for f in filters_of([first, second]) if not f.is_nothing]
    if len(made) < 2:
        return
    one, other = made
    for bound in upper_bounds(one.pattern, other.pattern):
        candidate = XPathFilter.from_pattern(bound)
        assert candidate.covers(one), (candidate, one)
        assert candidate.covers(other), (candidate, other)
        assert XPathFilter(candidate.text) == candidate


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [
        ("/a/b/c", "/a/c", "/a//c"),
        ("/a/b", "/c/b", "/*/b"),
        ("/a/b[@x = 1][d]", "/a/b[@x = 3]/e", "/a/b[@x >= 1][@x <= 3]/*"),
        ("/a[@x = 'v']", "/a[@x = 'w']", "/a[@x]"),
        ("/a[text() = 1]", "/a[text() = 3]", "/a[text()[. >= 1 and . <= 3]]"),
        ("/a[@x < 5]", "/a[@x >= 5]", "/a[@x]"),
        ("/x/a[b]", "//a[c]", "//a/*"),
    ],
)
def test_imperfect_merges(first, second, merged):
    wide = XPathFilter(first).merge(XPathFilter(second), sample=["<z/>"], budget=0.1)
    assert wide is not None and wide.text == merged


def test_the_budget_is_what_the_sample_allows():
    first, second = XPathFilter("/a[@x = 'v']"), XPathFilter("/a[@x = 'w']")
    sample = ["<a x='v'/>", "<a x='w'/>", "<a x='u'/>", "<b/>"]
    assert first.merge(second, sample=sample, budget=0.2) is None
    assert first.merge(second, sample=sample, budget=0.25) is not None
    assert first.merge(second, sample=[], budget=1.0) is None


def test_similarity():
    first, second = XPathFilter("/a"), XPathFilter("//b")
    sample = ["<a/>", "<a><b/></a>", "<b/>", "<c/>", "no document"]
    assert first.similarity(second, sample) == pytest.approx(0.5)
    assert first.similarity(second, [parse_document(text) for text in sample[:4]]) == 0.5


@given(patterns, patterns)
def test_equivalent_is_covering_both_ways(first, second):
    made = filters_of([first, second])
    if len(made) == 2:
        one, other = made
        both = one.covers(other) and other.covers(one)
        assert one.equivalent(other) == both
        assert one.equivalent(one)


def test_an_unknown_containment_is_an_error():
    with pytest.raises(ValueError, match="distance"):
        XPathFilter("/a").covers(XPathFilter("/a"), "clever")


# --- intersection ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        ("/a[@x]", "/a[@y > 5]", "/a[@x][@y > 5]"),
        ("/a[@x > 1]/b", "/*[@x < 9]/c", "/a[@x > 1][@x < 9][b]/c"),
        ("/a", "/b", NOTHING_TEXT),
        ("/a[@x = 1]", "/a[@x = 2]", NOTHING_TEXT),
        ("/a[@x]", "//b[@y]", "/a[@x]//b[@y]"),
        ("//b", "/a/c", "/a[c]//b"),
        ("/a[@x = 1]", "//a[@x = 2]", "/a[@x = 1]//a[@x = 2]"),
        ("/a[text() > 1]", "/a[text() > 2][text() < 0]", "/a[text() < 0][text() > 2]"),
        ("/*//b", "/a[@x]", "/a[@x]//b"),
        ("//a", "/b/a", "/b/a"),
        ("/a", NOTHING_TEXT, NOTHING_TEXT),
    ],
)
def test_intersections(first, second, both):
    one, other = XPathFilter(first), XPathFilter(second)
    assert one.intersection(other) == other.intersection(one) == XPathFilter(both)


@pytest.mark.parametrize(("first", "second"), [("//a", "//b"), ("/a", "//*[@x]"), ("/a", "//a/b")])
def test_what_no_pattern_says_is_refused(first, second):
    with pytest.raises(FilterError, match="//"):
        XPathFilter(first).intersection(XPathFilter(second))


def test_an_intersection_keeps_to_the_bounds():
    wide = [f"/a[{' and '.join(f'b{n}{side}' for n in range(40))}]" for side in "xy"]
    with pytest.raises(FilterError, match="too large for one pattern"):
        XPathFilter(wide[0]).intersection(XPathFilter(wide[1]))


@fewer(1)
@given(patterns, patterns, st.booleans(), st.lists(documents(3), min_size=4, max_size=8))
def test_an_intersection_matches_iff_both_match(first, second, is_rooted, samples):
    if is_rooted:  # Else most pairs are refused.
        first = "/" + first.lstrip("/")
    made = filters_of([first, second])
    if len(made) < 2:
        return
    try:
        both = made[0].intersection(made[1])
    except FilterError:
        return
    assert XPathFilter(both.text) == both
    for sample in samples:
        expected = lxml_matches(first, sample) and lxml_matches(second, sample)
        assert both.matches(sample) == expected


def test_intersections_with_sql_filters():
    pattern = XPathFilter("/a")
    assert pattern.intersection(Filter("TRUE")) is pattern
    assert Filter("TRUE").intersection(pattern) is pattern
    assert pattern.intersection(Filter("FALSE")).is_nothing
    for one, other in ((pattern, Filter("x = 1")), (Filter("x = 1"), pattern)):
        with pytest.raises(FilterError, match="a SQL filter and an XPath pattern"):
            one.intersection(other)
