"""docs/filters.md is the published meaning: its tables are checked, not just printed."""

import re
from pathlib import Path

import pytest

from peersub.filters import Filter, FilterError, limits

TEXT = (Path(__file__).parents[2] / "docs" / "filters.md").read_text(encoding="utf-8")
EVENTS = [{}, {"a": None}, {"a": 1}, {"a": "1"}, {"a": True}, {"a": float("nan")}]
ROWS = re.findall(r"^\| `([^`]+)` ((?:\| (?:match|–) ){6})\|$", TEXT, re.MULTILINE)


def test_the_table_of_matches_was_found() -> None:
    assert len(ROWS) >= 9


@pytest.mark.parametrize(("text", "cells"), ROWS)
def test_the_table_of_matches_is_true(text: str, cells: str) -> None:
    expected = [cell.strip() == "match" for cell in cells.split("|")[1:]]
    assert [Filter(text).matches(event) for event in EVENTS] == expected


@pytest.mark.parametrize(
    "bound",
    [
        limits.TEXT_CHARACTERS_MAX,
        limits.NESTING_MAX,
        limits.NUMBER_DIGITS_MAX,
        limits.CONJUNCTS_MAX,
        limits.PRODUCTS_MAX,
        limits.TEXT_TESTS_MAX,
        limits.PATTERN_CHARACTERS_MAX,
        limits.UNICODE_CLASSES_MAX,
        limits.PROGRAM_BYTES_MAX // 1024,
        limits.PIECES_MAX,
        limits.COVERING_STEPS_MAX,
    ],
)
def test_the_bounds_are_those_of_the_code(bound: int) -> None:
    table = TEXT[TEXT.index("## Bounds") : TEXT.index("Each bound has its own error")]
    assert re.search(rf"\b{bound:,}\b", table)


def test_the_error_is_shown_as_it_is() -> None:
    with pytest.raises(FilterError) as refused:
        Filter("symbol = ACME")
    assert str(refused.value) in TEXT


def test_the_patterns_match_what_the_table_says() -> None:
    assert Filter(r"a LIKE '%\%'").matches({"a": "5%"})
    assert not Filter(r"a LIKE '%\%'").matches({"a": "5"})
    assert Filter(r"a LIKE 'a\_b'") == Filter("a = 'a_b'")
    assert Filter(r"a LIKE 'a\\\\b'") == Filter(r"a LIKE r'a\\b'") == Filter(r"a = r'a\b'")
    assert Filter(r"a RLIKE r'\bACME\b'").matches({"a": "the ACME company"})
