"""Patterns: parsed as drawn, satisfiable by a document that lxml accepts, with known statistics."""

from collections import Counter
from math import sqrt

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from peersub.filters.xpath import XPathFilter
from peersub.filters.xpath.grammar import parse_pattern
from peersub.filters.xpath.pattern import nodes_of, pattern_text
from peersub.workloads.xml import (
    DocumentGenerator,
    DocumentSettings,
    PatternGenerator,
    PatternSettings,
    SchemaError,
    news_schema,
    read_dtd,
)
from workloads.xml.xml_schemas import SHARED_DATA, dtd_judge, dtds, library, news, nitf
from workloads.xml.xml_witnesses import Witnesses, lxml_matches

ROUGH = {"wildcard_share": 0.3, "descendant_share": 0.3, "branch_share": 0.5}


def check_satisfiable(schema, is_valid, patterns, number):
    pattern = patterns.pattern(number)
    text = pattern_text(pattern)
    witness = Witnesses(schema, pattern).document(patterns.settings.levels_max)
    assert witness is not None, f"no document matches {text}"
    assert is_valid(witness), witness
    assert lxml_matches(witness, text)
    assert patterns.filter(number).matches(witness)


@settings(max_examples=150, deadline=None)
@given(dtds(), st.integers(1, 6), st.integers(0, 3), st.integers(0, 1 << 40))
def test_some_valid_document_matches(text, height, more_levels, number):
    try:
        schema = read_dtd(text.encode(), root="a")
    except SchemaError:
        assume(False)
    wanted = PatternSettings(
        height_min=1, height_max=height, levels_max=schema.heights["a"] + more_levels, **ROUGH
    )
    check_satisfiable(schema, dtd_judge(text), PatternGenerator(schema, wanted), number)


def test_some_news_match():
    schema, is_valid = news()
    patterns = PatternGenerator(schema, PatternSettings(height_max=6, **ROUGH))
    for number in range(40):
        check_satisfiable(schema, is_valid, patterns, number)


def test_levels_that_a_descendant_step_walks_over_count():
    # Each label is on every third level only, so that no shorter way leads there.
    text = "<!ELEMENT a (b?)><!ELEMENT b (c?)><!ELEMENT c (a?)>"
    schema = read_dtd(text.encode(), root="a")
    wanted = PatternSettings(levels_max=4, descendant_share=0.5, wildcard_share=0)
    for number in range(60):
        check_satisfiable(schema, dtd_judge(text), PatternGenerator(schema, wanted), number)


def test_the_judge_of_satisfiability_says_no():
    schema = read_dtd(b"<!ELEMENT a (b | c)><!ELEMENT b (a?)><!ELEMENT c EMPTY>", root="a")
    for text, levels, is_satisfiable in [
        ("/a[b]/c", 9, False),
        ("/a[b]//c", 9, True),
        ("/a[b]//c", 3, False),
        ("/a/c/*", 9, False),
        ("//b/a/b", 5, True),
    ]:
        found = Witnesses(schema, parse_pattern(text)).document(levels)
        assert (found is not None) == is_satisfiable, text


def test_two_branches_are_children_that_go_together():
    schema = read_dtd(b"<!ELEMENT a ((b | c), d)><!ELEMENT b ANY><!ELEMENT c ANY><!ELEMENT d ANY>")
    patterns = PatternGenerator(schema, PatternSettings(branch_share=1.0, wildcard_share=0.0))
    drawn = {patterns.text(number) for number in range(200)}
    assert {text for text in drawn if text.startswith("/a")} >= {"/a[b]/d", "/a[c]/d"}
    assert not any("b" in text and "c" in text for text in drawn)


def test_what_must_stand_beside_a_child_counts_as_a_level():
    text = "<!ELEMENT a (b, c)?><!ELEMENT b EMPTY><!ELEMENT c (d)><!ELEMENT d EMPTY>"
    schema = read_dtd(text.encode())
    low = PatternGenerator(schema, PatternSettings(levels_max=2, wildcard_share=0.0))
    assert {low.text(number).lstrip("/") for number in range(50)} == {"a"}
    high = PatternGenerator(schema, PatternSettings(levels_max=3, wildcard_share=0.0))
    assert "/a/b" in {high.text(number) for number in range(50)}


@pytest.mark.parametrize("world", [news, library])
def test_patterns_are_parsed_as_they_were_drawn(world):
    schema, _ = world()
    patterns = PatternGenerator(schema, PatternSettings(condition_share=0.5, **ROUGH))
    for number in range(300):
        assert XPathFilter(patterns.text(number)) == patterns.filter(number)


def test_conditions_ask_for_what_documents_have():
    schema = news_schema()
    patterns = PatternGenerator(schema, PatternSettings(condition_share=1.0))
    declared = {
        attribute.name: attribute.value.choices
        for element in schema.elements.values()
        for attribute in element.attributes
    }
    asked = {
        (name, condition.exactly)
        for number in range(300)
        for node in nodes_of(patterns.pattern(number))
        for name, condition in node.attributes
    }
    assert {name for name, _ in asked} > {"urgency", "scheme"}
    assert "id" not in {name for name, _ in asked}
    for name, value in asked:
        assert value in declared[name] or (value and not declared[name])
    documents = DocumentGenerator(schema, DocumentSettings(attribute_share=1.0))
    drawn = [documents.document(number) for number in range(200)]
    with_conditions = [patterns.filter(number) for number in range(300)]
    assert sum(any(map(each.matches, drawn)) for each in with_conditions) > 30


def near(count, total, share):
    """Within five standard deviations of a binomial count."""
    return abs(count - share * total) <= 5 * sqrt(total * share * (1 - share))


def test_steps_have_the_statistics_that_were_asked_for():
    # An element that always has the same two children has no corner in which a draw is forced.
    schema = read_dtd(b"<!ELEMENT a (a | b)*><!ELEMENT b (a | b)*>", root="a")
    patterns = PatternGenerator(schema, PatternSettings(levels_max=1_000))
    drawn = [patterns.pattern(number) for number in range(3_000)]
    steps = [node for pattern in drawn for node in nodes_of(pattern)]
    inner = [node for node in steps if node.branches]
    assert near(sum(node.label is None for node in steps), len(steps), 0.1)
    assert near(sum(node.is_descendant for node in steps), len(steps), 0.1)
    assert near(sum(len(node.branches) == 2 for node in inner), len(inner), 0.1)
    heights = Counter(map(height, drawn))
    assert heights.keys() == {*range(2, 11)}
    assert all(near(count, 3_000, 1 / 9) for count in heights.values())
    # Zipf's law with exponent 1 over two ranks: two thirds and one third.
    below = [n for node in inner for n in node.branches if n.label and not n.is_descendant]
    assert near(sum(node.label == "a" for node in below), len(below), 2 / 3)


def height(node):
    return 1 + max(map(height, node.branches), default=0)


def test_zipf_with_exponent_zero_is_even():
    schema = read_dtd(
        b"<!ELEMENT a (b | c | d | e)*>"
        + b"".join(b"<!ELEMENT %c EMPTY>" % name for name in b"bcde")
    )
    wanted = PatternSettings(zipf_exponent=0, wildcard_share=0, descendant_share=0, branch_share=0)
    patterns = PatternGenerator(schema, wanted)
    found = Counter(patterns.text(number) for number in range(2_000))
    assert found.keys() == {"/a/b", "/a/c", "/a/d", "/a/e"}
    assert all(near(count, 2_000, 0.25) for count in found.values())


def test_a_pattern_depends_on_its_number_and_its_seed_alone():
    one, other = PatternGenerator(news_schema()), PatternGenerator(news_schema())
    forward = [one.text(number) for number in range(50)]
    assert forward == [other.text(number) for number in reversed(range(50))][::-1]
    different = PatternGenerator(news_schema(), PatternSettings(seed=2))
    assert [different.text(number) for number in range(50)] != forward


@pytest.mark.parametrize(
    "wrong",
    [
        {"height_min": 0},
        {"height_max": 1},
        {"wildcard_share": 2},
        {"descendant_share": -1},
        {"branch_share": 1.1},
        {"zipf_exponent": 11},
        {"condition_share": 3},
        {"levels_max": 0},
        {"seed": -1},
    ],
)
def test_wrong_settings_are_named(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        PatternSettings(**wrong)


@pytest.mark.skipif(not (SHARED_DATA / "nitf").is_dir(), reason="there is no NITF schema here")
def test_a_few_patterns_of_nitf_are_satisfiable():
    schema, _ = nitf("3.3")
    patterns = PatternGenerator(schema)
    for number in range(8):
        pattern = patterns.pattern(number)
        witness = Witnesses(schema, pattern).document(10)
        assert witness is not None
        assert lxml_matches(witness, pattern_text(pattern))
