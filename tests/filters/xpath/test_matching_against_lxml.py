"""Matching means what lxml says: random patterns of the whole fragment on random documents."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from filters.xpath.xpath_strategies import (
    documents,
    expressions,
    filter_or_none,
    lxml_matches,
    namespaced_documents,
)
from peersub.filters.xpath import XPathFilter
from peersub.filters.xpath.conditions import number_of


@given(st.lists(documents(), min_size=1, max_size=3), st.lists(expressions, min_size=1, max_size=5))
def test_matches_equals_lxml(texts, wanted):
    for expression in wanted:
        pattern = filter_or_none(expression.text)
        for text in texts if pattern else ():
            expected = lxml_matches(expression.text, text)
            assert pattern.matches(text.encode()) == expected, (expression.text, text)
            assert lxml_matches(pattern.text, text) == expected, (pattern.text, text)


@given(namespaced_documents(), st.lists(expressions, min_size=1, max_size=5))
def test_namespaces_of_elements_are_ignored(text, wanted):
    for expression in wanted:
        pattern = filter_or_none(expression.text)
        if pattern:
            assert pattern.matches(text) == lxml_matches(expression.by_local_name, text)


@given(st.lists(expressions, min_size=1, max_size=5))
def test_the_canonical_text_gives_an_equal_filter(wanted):
    for expression in wanted:
        pattern = filter_or_none(expression.text)
        if pattern:
            again = XPathFilter(pattern.text)
            assert again == pattern
            assert again.text == pattern.text
            assert hash(again) == hash(pattern)


NUMBER_PARTS = ["0", "1", "9", "37", ".", "-", "+", "e", "E", " ", "\t", "\n", "12345678", "000"]


@given(st.lists(st.sampled_from(NUMBER_PARTS), max_size=8).map("".join))
def test_numbers_are_libxml2s_to_the_last_bit(text):
    element = etree.Element("a")
    element.set("v", text)
    expected = element.xpath("number(@v)")
    found = number_of(text)
    assert found == expected or (found != found and expected != expected)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6).map(str))
def test_decimal_numbers_are_libxml2s(text):
    element = etree.Element("a")
    element.set("v", text)
    expected = element.xpath("number(@v)")
    assert number_of(text) == expected


@pytest.mark.parametrize("name", ["and", "or", "div", "text", "a-b", "a.b", "_", "ß", "東", "é1"])
def test_any_name_is_a_name(name):
    document = f"<{name}><{name} x='1'/></{name}>"
    for pattern in (f"/{name}/{name}", f"//{name}[{name} and {name}]", f"//{name}[@x]"):
        assert lxml_matches(pattern, document)
        assert XPathFilter(pattern).matches(document)
