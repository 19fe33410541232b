"""Summaries hold back what cannot match, and never what does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peersub.filters.filter import Filter
from peersub.overlays.core.publication import Publication
from peersub.overlays.similarity.summary import event_summary, filter_summary
from strategies import events, examples, filter_texts

SIZES = st.sampled_from((1, 2, 32))
PATTERNS = ("/a", "//b", "/a/b[c]//d", "/*", "//*[@x = 'y']", "/a[b = 'x'][c]", "//a//a")
DOCUMENTS = (
    b"<a/>",
    b"<a><b><c/><e><d/></e></b></a>",
    b"<a><b>x</b><c x='y'/></a>",
    b"<b/>",
    b"no",
)


@given(filter_texts, st.lists(events(), max_size=6), SIZES)
@examples(150)
def test_what_matches_is_never_held_back(text, rows, size):
    wanted = Filter(text)
    bits = filter_summary(wanted, size)
    for row in rows:
        if wanted.matches(row):
            assert not bits & ~event_summary(Publication("e", row), size)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("a IN ('x', 'y')", {"a": "y"}),
        ("a = 'x' OR a = 'y'", {"a": "y"}),
        ("a IS NULL OR a = 'x'", {}),
        ("a = 'x' OR b = 'y'", {"b": "y"}),
        ("NOT (a = 'x')", {"a": "y"}),
        ("r IS NOT NULL", {"r": {"x": 1}}),
    ],
)
def test_one_of_several_ways_to_match_is_enough(text, row):
    assert Filter(text).matches(row)
    assert not filter_summary(Filter(text), 64) & ~event_summary(Publication("e", row), 64)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("body", DOCUMENTS)
@pytest.mark.parametrize("size", [1, 32])
def test_patterns_hold_back_nothing_that_matches(pattern, body, size):
    publication = Publication("e", {}, body)
    held_back = filter_summary(Filter.xpath(pattern), size) & ~event_summary(publication, size)
    assert not (held_back and publication.matches(Filter.xpath(pattern)))


@pytest.mark.parametrize(
    ("wanted", "row"),
    [
        ("a = 'x'", {"a": "y"}),
        ("a = 'x' AND b > 1", {"a": "x"}),
        ("r.deep.er = 'x'", {"r": {"deep": {"other": "x"}}}),
        ("a LIKE 'x%'", {"b": "x"}),
    ],
)
def test_much_of_what_does_not_match_is_held_back(wanted, row):
    held_back = filter_summary(Filter(wanted), 64) & ~event_summary(Publication("e", row), 64)
    assert held_back


def test_labels_of_patterns_hold_back_documents_without_them():
    bits = filter_summary(Filter.xpath("/nitf/body//p[@lede]"), 64)
    assert bits & ~event_summary(Publication("e", {}, b"<nitf><body/></nitf>"), 64)
    assert bits & ~event_summary(Publication("e", {"p": 1}), 64)


def test_what_demands_nothing_holds_nothing_back():
    for text in ("TRUE", "a IS NULL", "a = 1 OR b = 1", "NOT (a = 1)"):
        if Filter(text).matches({}):
            assert filter_summary(Filter(text), 8) == 0
