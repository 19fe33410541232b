"""LIKE and RLIKE: patterns against a direct reading of them, and what one says of another."""

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peersub.filters import Filter
from peersub.filters.patterns import (
    Operator,
    PatternError,
    TextTest,
    canonical_like,
    check_expression,
    escape_like,
    like_implies,
    like_interval,
)
from strategies import examples

_pieces = st.sampled_from(["%", "_", "a", "b", "\\%", "\\_", "\\\\", "\\a", "%%"])
like_patterns = st.lists(_pieces, max_size=5).map("".join)
texts = st.text(st.sampled_from("ab%_\\"), max_size=5)
ALL_TEXTS = ["".join(some) for length in range(5) for some in product("ab%", repeat=length)]


def _matches(pattern: str, text: str) -> bool:
    """By trying every way to split the text."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(_matches(pattern[1:], text[n:]) for n in range(len(text) + 1))
    if pattern[0] == "_":
        return bool(text) and _matches(pattern[1:], text[1:])
    literal, rest = (
        (pattern[1], pattern[2:])
        if pattern[0] == "\\" and pattern[1:]
        else (pattern[0], pattern[1:])
    )
    return text.startswith(literal) and _matches(rest, text[1:])


def _test(pattern: str) -> TextTest:
    return TextTest(("a",), Operator.LIKE, pattern)


@examples(300)
@given(like_patterns, texts)
def test_like_matches_as_its_pattern_reads(pattern: str, text: str) -> None:
    expected = _matches(pattern, text)
    assert _test(pattern).holds(text) is expected
    assert _test(canonical_like(pattern)).holds(text) is expected
    assert canonical_like(canonical_like(pattern)) == canonical_like(pattern)
    escaped = pattern.replace("\\", "\\\\")
    assert Filter(f"a LIKE '{escaped}'").matches({"a": text}) is expected


@examples(100)
@given(texts, texts)
def test_an_escaped_text_matches_itself_only(text: str, other: str) -> None:
    assert _test(escape_like(text)).holds(other) is (text == other)
    assert like_interval(escape_like(text)) is not None
    assert like_interval(escape_like(text) + "%") is not None


@examples(150)
@given(like_patterns, like_patterns)
def test_implication_is_sound(specific: str, general: str) -> None:
    if like_implies(specific, general):
        for text in ALL_TEXTS:
            assert not _matches(specific, text) or _matches(general, text), text


@pytest.mark.parametrize(
    ("specific", "general", "expected"),
    [
        ("abc", "a%", True),
        ("%abc%", "%b%", True),
        ("%b%", "%abc%", False),
        ("a_c", "a%c", True),
        ("a%c", "a_c", False),
        ("a_c", "a__", True),
        ("_a_", "%__", True),
        ("_", "__", False),
        ("a%b%c", "a%c", True),
        ("a\\%b", "a_b", True),
        ("a\\%b", "a\\%%", True),
        ("a_b", "a\\%b", False),
        ("\U0010ffff%", "%", False),
        ("%", "%", True),
    ],
)
def test_implication_by_example(specific: str, general: str, expected: bool) -> None:
    assert like_implies(specific, general) is expected


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("_", "é", True),
        ("_", "e\u0301", False),
        ("_", "😀", True),
        ("%", "a\nb", True),
        ("a%b", "a\n\0b", True),
        ("a.c", "abc", False),
        ("A%", "abc", False),
    ],
)
def test_like_counts_characters(pattern: str, text: str, expected: bool) -> None:
    assert _test(pattern).holds(text) is expected


@pytest.mark.parametrize(
    ("expression", "text", "expected"),
    [
        ("b", "abc", True),
        ("^b", "abc", False),
        ("a.b", "a\nb", False),
        ("(?s)a.b", "a\nb", True),
        ("^b", "a\nb", False),
        ("(?m)^b", "a\nb", True),
        ("\\pL", "é", True),
        ("\\w", "é", False),
        ("(?i)É", "é", True),
        ("", "", True),
        ("\\x{1F600}", "😀", True),
        ("x", "\ud800x", False),
    ],
)
def test_rlike_is_a_search_of_re2(expression: str, text: str, expected: bool) -> None:
    assert TextTest(("a",), Operator.RLIKE, expression).holds(text) is expected
    quoted = expression.replace("\\", "\\\\")
    assert Filter(f"a RLIKE '{quoted}'").matches({"a": text}) is expected
    assert Filter(f"a NOT RLIKE '{quoted}'").matches({"a": text}) is not expected


def test_time_is_linear_where_others_back_track() -> None:
    """Python's re would need longer than the universe has."""
    assert not Filter("a RLIKE '^(a+)+$'").matches({"a": "a" * 5_000 + "b"})


@pytest.mark.parametrize(
    "expression", ["(", "(?=a)", "(a)\\1", "a{2000}", "\\pL" * 65, "((a{99}){99}){99}"]
)
def test_expressions_that_re2_refuses(expression: str) -> None:
    with pytest.raises(PatternError) as refused:
        check_expression(expression)
    assert re.search(r"\w", str(refused.value))
