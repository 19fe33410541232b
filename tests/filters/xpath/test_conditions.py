"""The algebra of conditions against the meaning of its comparisons, text by text."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from filters.xpath.xpath_strategies import OPERATORS, TEXTS
from peersub.filters.xpath.conditions import (
    ANY_TEXT,
    comparisons_of,
    condition_of,
    conjunction,
    exact_union,
    literal_number,
    upper_bound,
)

# Every text that can tell two conditions over these literals apart.
NUMBERS = [-3.0, 0.0, 1.5, 5.0, 10.0]
STRINGS = ["5", "5.0", "v", "", "1e999", "9007199254740993", "0.12345678901234567"]
PROBES = [*TEXTS, *STRINGS, "-4", "1", "1.4", "1.6", "4.9", "5.1", "7", "11", "long" * 9, None]


def meaning(operator, literal, text):
    """The comparison of a text with a literal, asked of lxml."""
    if text is None:
        text = "x" * 5_000
    element = etree.Element("a")
    element.set("v", text)
    return element.xpath(f"boolean(@v {operator} $literal)", literal=literal)


@st.composite
def comparisons(draw):
    operator = draw(st.sampled_from(OPERATORS))
    strings = st.sampled_from(STRINGS)
    numbers = st.sampled_from(NUMBERS)
    return operator, draw(numbers | strings if operator in ("=", "!=") else numbers)


joined = st.lists(comparisons(), min_size=1, max_size=4)


def condition(parts):
    made = ANY_TEXT
    for part in parts:
        made = None if made is None else conjunction(made, condition_of(*part))
    return made


def contains(made, text):
    return made is not None and made.contains(text)


@given(joined)
def test_a_conjunction_means_all_of_its_comparisons(parts):
    made = condition(parts)
    for text in PROBES:
        assert contains(made, text) == all(meaning(*part, text) for part in parts), text


@given(joined, joined)
def test_covers_is_the_subset_relation(first, second):
    a, b = condition(first), condition(second)
    if a is None or b is None:
        return
    subset = all(a.contains(text) for text in PROBES if b.contains(text))
    # Complete as well, but for what the probes cannot tell: a set is more than its probes.
    assert not a.covers(b) or subset
    if a.exactly is None and b.exactly is not None:
        assert a.covers(b) == subset


@given(joined, st.randoms(use_true_random=False))
def test_equal_conditions_are_equal_values(parts, random):
    shuffled = random.sample(parts, len(parts))
    assert condition(parts) == condition(shuffled + parts[:1])


@given(joined, joined)
def test_an_exact_union_is_exact(first, second):
    a, b = condition(first), condition(second)
    if a is None or b is None:
        return
    either = exact_union(a, b)
    if either is not None:
        for text in PROBES:
            assert either.contains(text) == (a.contains(text) or b.contains(text)), text


@given(joined, joined)
def test_an_upper_bound_covers_both_and_can_be_written(first, second):
    a, b = condition(first), condition(second)
    if a is None or b is None:
        return
    bound = upper_bound(a, b)
    assert bound.covers(a)
    assert bound.covers(b)
    assert condition(read(written) for written in comparisons_of(bound)) == bound


def read(written):
    operator, literal = written.split(" ", 1)
    return operator, literal[1:-1] if literal[0] in "'\"" else literal_number(literal)


@pytest.mark.parametrize(
    ("first", "second", "union"),
    [
        ([(">", 5.0)], [("=", 5.0)], [">= 5"]),
        ([("!=", 5.0)], [("=", 5.0)], []),
        ([("!=", "v")], [("=", "v")], []),
        ([("<", 5.0)], [(">", 5.0)], None),  # neither 5 nor texts that are no numbers
        ([("<", 5.0)], [(">=", 5.0)], None),  # all numbers: no comparison says so
        ([("=", "5")], [("=", "6")], None),
        ([(">", 0.0), ("<", 5.0)], [(">=", 5.0), ("<", 10.0)], ["> 0", "< 10"]),
        ([(">", 0.0), ("<", 5.0)], [(">", 5.0), ("<", 10.0)], ["> 0", "!= 5", "< 10"]),
    ],
)
def test_which_unions_can_be_written(first, second, union):
    found = exact_union(condition(first), condition(second))
    assert (None if found is None else comparisons_of(found)) == union


@given(
    st.decimals(
        allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=6
    )
)
def test_a_number_is_written_as_it_was_read(number):
    written = format(number, "f")
    value = literal_number(written)
    assert value is not None
    (comparison,) = comparisons_of(condition_of("<", value))
    assert literal_number(comparison.split()[1]) == value
    assert math.isclose(value, float(number), rel_tol=1e-15)
