"""Covering, overlap, equivalence, merging and similarity of filters.

Soundness is tested on events near the bounds of the filters; completeness on grids that hold every
event that filters over a small domain can tell apart, "absent" and two kinds included.
"""

from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from itertools import pairwise, product
from math import nextafter
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from peersub.filters import Filter, FilterError, relations
from peersub.filters.limits import COVERING_STEPS_MAX, PIECES_MAX
from strategies import events, examples, filter_texts, filters, text_of

# --- soundness near the bounds ---------------------------------------------------------------

_NEAR_NUMBERS: list[Any] = [
    near
    for bound in (0, 1, 2, 10, 2**53)
    for near in (bound, bound - 1, bound + 1, nextafter(bound, -1e30), nextafter(bound, 1e30))
] + [Decimal("0.1"), 0.5, 1.5, float("inf"), float("nan")]
_NEAR_TEXTS = ["", "\0", "a", "a\0", "ab", "aa\U0010ffff", "b", "ba", "`", "ac", "x", "axb", "A"]
_NEAR_DAYS = [date(2024, 5, 1) + timedelta(days) for days in (-1, 0, 1, 2)]
_near = st.sampled_from([None, True, False, [], *_NEAR_NUMBERS, *_NEAR_TEXTS, *_NEAR_DAYS])
near_events = st.fixed_dictionaries({}, optional={"a": _near, "b": _near, "c": _near})

_near_leaves = st.sampled_from(
    [f"{name} {test}" for name in "abc" for test in (
        "= 1", "<> 1", "< 1", "<= 1", "> 1", ">= 1", "BETWEEN 0 AND 2", "NOT BETWEEN 0 AND 2",
        "IN (0, 1, 2)", "NOT IN (0, 2)", "< 0.5", "> 9007199254740992", "= 'a'", "<> 'a'", "> 'a'",
        "<= 'a'", "LIKE 'a%'", "NOT LIKE 'a%'", "LIKE '%b%'", "LIKE '%a%b%'", "NOT LIKE '%b%'",
        "LIKE 'a_'", "LIKE '_%'", "RLIKE 'b'", "NOT RLIKE 'b'", "IS NULL", "IS NOT NULL",
        "= TRUE", "= FALSE",
        "= DATE '2024-05-01'", "> DATE '2024-05-01'", "<> DATE '2024-05-02'", "IN (1, 'a', TRUE)",
    )]
)  # fmt: skip
near_filters = st.recursive(
    _near_leaves,
    lambda parts: st.builds(
        lambda joined, some: "(" + f" {joined} ".join(some) + ")",
        st.sampled_from(["AND", "OR", "AND NOT"]),
        st.lists(parts, min_size=2, max_size=3),
    ),
    max_leaves=5,
)
some_events = st.lists(near_events, min_size=20, max_size=20)


@examples(120)
@given(near_filters, near_filters, some_events)
def test_relations_are_never_wrong_near_the_bounds(one: str, other: str, rows: list[Any]) -> None:
    first, second = Filter(one), Filter(other)
    covers, overlaps = first.covers(second), first.overlaps(second)
    equivalent = first.equivalent(second)
    assert equivalent == second.equivalent(first) and overlaps == second.overlaps(first)
    for row in rows:
        a, b = first.matches(row), second.matches(row)
        assert not (covers and b and not a), row
        assert not (a and b and not overlaps), row
        assert not (equivalent and a != b), row


@examples(80)
@given(filters, filters, st.integers(0, 99), st.lists(events(), max_size=10))
def test_covers_what_is_made_narrower(one: Any, other: Any, spelling: int, rows: list[Any]) -> None:
    """Sound on events of all kinds; and what is covered by construction is found covered."""
    first, second = text_of(one, spelling), text_of(other, spelling)
    wide, narrow = Filter(f"({first}) OR ({second})"), Filter(f"({first}) AND ({second})")
    for row in rows:
        assert not narrow.matches(row) or wide.matches(row)
    assume("LIKE" not in (first + second).upper() and "REGEXP" not in (first + second).upper())
    assert wide.covers(narrow) and wide.covers(Filter(first)) and Filter(second).covers(narrow)
    assert narrow.is_nothing or wide.overlaps(narrow)


@examples(80)
@given(filter_texts)
def test_each_filter_covers_and_equals_itself(text: str) -> None:
    wanted = Filter(text)
    assert wanted.covers(wanted) and wanted.equivalent(wanted)
    assert wanted.overlaps(wanted) is not wanted.is_nothing
    assert wanted.covers(Filter("FALSE")) and Filter("TRUE").covers(wanted)
    assert not wanted.overlaps(Filter("FALSE"))
    assert Filter("FALSE").covers(wanted) is wanted.is_nothing


# --- completeness on a grid ------------------------------------------------------------------

# All that filters with the bounds 1 and 2, 'p' and 'q' can tell apart; a record for the rest.
GRID: tuple[Any, ...] = (None, 0, 1, 1.5, 2, 3, "", "o", "p", "pa", "q", "r", True, {})
ROWS = [{"a": a, "b": b} for a, b in product(GRID, GRID)]
_grid_leaves = st.builds(
    lambda name, operator, bound: f"{name} {operator} {bound}",
    st.sampled_from("ab"),
    st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
    st.sampled_from(["1", "2", "'p'", "'q'"]),
) | st.sampled_from(
    [
        f"{name} {test}"
        for name in "ab"
        for test in ("IS NULL", "IS NOT NULL", "BETWEEN 1 AND 2", "= TRUE")
    ]
    + ["a LIKE 'p%'", "b NOT LIKE 'p%'", "a NOT IN (1, 2)", "b IN (1, 'p')"]
)
grid_filters = st.recursive(
    _grid_leaves,
    lambda parts: st.builds(
        lambda joined, some: "(" + f" {joined} ".join(some) + ")",
        st.sampled_from(["AND", "OR", "OR"]),
        st.lists(parts, min_size=2, max_size=4),
    ),
    max_leaves=10,
)


def _matched(wanted: Filter) -> int:
    """A bit for each row of the grid."""
    return sum(1 << place for place, row in enumerate(ROWS) if wanted.matches(row))


@examples(150)
@given(grid_filters, grid_filters)
def test_relations_are_complete_on_a_grid(one: str, other: str) -> None:
    first, second = Filter(one), Filter(other)
    a, b = _matched(first), _matched(second)
    assert first.covers(second) is (b & ~a == 0), (first, second)
    assert second.covers(first) is (a & ~b == 0)
    assert first.overlaps(second) is (a & b != 0)
    assert first.equivalent(second) is (a == b)
    assert first.is_nothing is (a == 0)
    assert first.is_everything is (a == (1 << len(ROWS)) - 1)


@pytest.mark.parametrize(
    ("general", "specific", "expected"),
    [
        ("a < 5 OR a > 3", "a = 4", True),
        ("a < 5 OR a >= 5", "a = 'x'", False),
        ("a < 5 OR a >= 5", "b = 1", False),
        ("a < 5 OR a >= 5", "a IN (1, 2.5, 1e300)", True),
        ("a <> 1", "b = 2", False),
        ("a <> 1 OR a = 1", "a IS NOT NULL", False),
        ("a IS NULL OR b > 0", "b > 1", True),
        ("a IS NULL OR a IS NOT NULL", "TRUE", True),
        ("a < 5 AND b < 5 OR a >= 5 AND b < 5 OR b >= 5", "a = 1 AND b = 1", True),
        ("a < 2 OR b < 2", "a < 3 AND b < 3", False),
        ("a < 2 OR b < 2 OR a < 3 AND b < 3", "a < 3 AND b < 3", True),
        ("a > DATE '2024-05-01'", "a >= DATE '2024-05-02'", True),
        ("a > 'a'", "a >= 'a\\0'", True),
        ("a LIKE 'ab%'", "a LIKE 'abc%'", True),
        ("a LIKE '%b%'", "a LIKE 'abc%'", True),
        ("a LIKE '%b%'", "a LIKE '%abc'", True),
        ("a LIKE '%b%'", "a = 'abc'", True),
        ("a RLIKE 'b'", "a = 'abc'", True),
        ("a RLIKE 'b'", "a RLIKE 'b' AND c = 1", True),
        ("a RLIKE 'b' OR a NOT RLIKE 'b'", "a LIKE '%'", True),
        ("a LIKE '_%'", "a LIKE '%x'", True),
        ("a LIKE '_b%'", "a LIKE '%b%'", False),
        ("a > 0.1", "a > 0.1000000000000000000001", True),
        ("a >= 9007199254740993", "a > 9007199254740992", False),
        ("a >= 9007199254740993", "a > 9007199254740992.5", False),
    ],
)
def test_covering_by_example(general: str, specific: str, expected: bool) -> None:
    assert Filter(general).covers(Filter(specific)) is expected


PINWHEEL = [
    "a >= 0 AND a < 2 AND b >= 0 AND b < 1",
    "a >= 2 AND a < 3 AND b >= 0 AND b < 2",
    "a >= 1 AND a < 3 AND b >= 2 AND b < 3",
    "a >= 0 AND a < 1 AND b >= 1 AND b < 3",
    "a >= 1 AND a < 2 AND b >= 1 AND b < 2",
]


def test_a_union_covers_what_none_of_its_parts_covers() -> None:
    """Five tiles of which no two fuse fill a square: only subtraction in several pieces sees it."""
    square = Filter("a >= 0 AND a < 3 AND b >= 0 AND b < 3")
    whole = Filter(" OR ".join(PINWHEEL))
    assert len(whole.boxes) == len(PINWHEEL)
    assert whole.covers(square) and whole.equivalent(square)
    for left_out in PINWHEEL:
        assert not Filter(" OR ".join(t for t in PINWHEEL if t != left_out)).covers(square)


def test_not_in_a_list_of_two_classes_is_never_true() -> None:
    assert Filter("a NOT IN (1, 'x')").is_nothing
    assert Filter("NOT a IN (1, 'x') OR b = 1") == Filter("b = 1")


def test_covering_of_large_unions_stays_within_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is then "not proven"; the number of subtractions is bounded."""
    calls = 0
    subtract = relations.box_subtraction

    def counted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return subtract(*arguments)

    monkeypatch.setattr(relations, "box_subtraction", counted)
    names = [f"a{n}" for n in range(9)]
    general = " OR ".join(
        f"{one} < {n} AND {other} > {n}" for n, (one, other) in enumerate(pairwise(names))
    )
    general += " OR a0 IS NULL"  # The simplest event of the specific one does not refute it.
    specific = Filter(" OR ".join(f"b = {n} AND c = {n}" for n in range(200)))
    assert Filter(general).covers(specific) is False
    assert 0 < calls <= COVERING_STEPS_MAX + PIECES_MAX


# --- merging ---------------------------------------------------------------------------------


@examples(120)
@given(grid_filters, grid_filters)
def test_a_perfect_merge_is_exactly_the_union(one: str, other: str) -> None:
    first, second = Filter(one), Filter(other)
    merged = first.merge(second)
    if merged is None:
        assert not first.covers(second) and not second.covers(first)
        return
    assert _matched(merged) == _matched(first) | _matched(second)
    assert merged.covers(first) and merged.covers(second)
    if not first.is_nothing and not second.is_nothing:
        assert len(merged.boxes) < len(first.boxes) + len(second.boxes)


@examples(100)
@given(
    grid_filters,
    grid_filters,
    st.lists(st.sampled_from(ROWS), max_size=30),
    st.sampled_from([0.0, 0.1, 0.3, 1.0]),
)
def test_an_imperfect_merge_covers_both_within_its_budget(
    one: str, other: str, sample: list[Any], budget: float
) -> None:
    first, second = Filter(one), Filter(other)
    merged = first.merge(second, sample=sample, budget=budget)
    if merged is None:
        return
    assert merged.covers(first) and merged.covers(second)
    wrongly = [
        row
        for row in sample
        if merged.matches(row) and not (first.matches(row) or second.matches(row))
    ]
    assert len(wrongly) <= budget * len(sample)


def test_a_merge_takes_the_budget_it_is_given() -> None:
    first, second = Filter("a = 1 AND b = 1"), Filter("a = 2 AND b = 2")
    sample = [{"a": a, "b": b} for a in (1, 2, 3) for b in (1, 2, 3)]
    assert first.merge(second) is None
    assert first.merge(second, sample=sample, budget=0.2) is None
    merged = first.merge(second, sample=sample, budget=0.25)
    assert merged == Filter("a IN (1, 2) AND b IN (1, 2)")


def test_merging_large_filters_is_bounded() -> None:
    first = Filter(" OR ".join(f"a = {n} AND b = {n}" for n in range(600)))
    second = Filter(" OR ".join(f"a = {n} AND c = {n}" for n in range(600)))
    assert first.merge(second) is None
    assert first.merge(first) == first


# --- similarity ------------------------------------------------------------------------------


def _similarity(first: Filter, second: Filter, sample: Sequence[Any]) -> float:
    a = {place for place, row in enumerate(sample) if first.matches(row)}
    b = {place for place, row in enumerate(sample) if second.matches(row)}
    return (len(a & b) / len(a) + len(a & b) / len(b)) / 2 if a and b else 0.0


@examples(80)
@given(grid_filters, grid_filters, st.lists(st.sampled_from(ROWS), max_size=40))
def test_similarity_is_the_mean_of_both_conditional_shares(
    one: str, other: str, sample: list[Any]
) -> None:
    first, second = Filter(one), Filter(other)
    measured = first.similarity(second, sample)
    assert measured == pytest.approx(_similarity(first, second, sample))
    assert measured == second.similarity(first, sample) and 0 <= measured <= 1


# --- intersection ------------------------------------------------------------------------------


@examples(120)
@given(near_filters, near_filters, some_events)
def test_an_intersection_matches_iff_both_match_near_the_bounds(
    one: str, other: str, rows: list[Any]
) -> None:
    first, second = Filter(one), Filter(other)
    both = first.intersection(second)
    for row in rows:
        assert both.matches(row) == (first.matches(row) and second.matches(row)), row
    assert Filter.from_bytes(both.to_bytes()) == both
    assert first.covers(both) and second.covers(both)


@examples(120)
@given(grid_filters, grid_filters)
def test_an_intersection_matches_iff_both_match_on_the_grid(one: str, other: str) -> None:
    first, second = Filter(one), Filter(other)
    both = first.intersection(second)
    for row in ROWS:
        assert both.matches(row) == (first.matches(row) and second.matches(row)), row


def test_an_intersection_with_what_covers_it_is_the_filter_itself() -> None:
    narrow, wide = Filter("a = 1 AND b > 2"), Filter("a > 0")
    assert narrow.intersection(wide) is narrow and wide.intersection(narrow) is narrow
    assert Filter("a = 1").intersection(Filter("a = 2")).is_nothing


def test_an_intersection_keeps_to_the_bounds_of_a_filter() -> None:
    """Neither side is too large; the product of both would be."""

    def union(*names: str) -> Filter:
        return Filter(" OR ".join(f"{names[0]} = {n} AND {names[1]} = {n}" for n in range(60)))

    with pytest.raises(FilterError, match="more than 1,024 conjunctions"):
        union("a", "b").intersection(union("c", "d"))
    one, other = (Filter(" AND ".join(f"{p} LIKE '%{n:02}%{p}%'" for n in range(40))) for p in "ab")
    with pytest.raises(FilterError, match="too many or too long patterns"):
        one.intersection(other)


def test_one_event_refutes_what_need_not_be_subtracted(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("nothing is to be subtracted")

    monkeypatch.setattr(relations, "box_subtraction", never)
    assert not Filter("a > 5 AND a < 9 OR a > 9").covers(Filter("a > 4 AND a < 20"))
    assert not Filter("a = 1 OR b = 2").covers(Filter("a > 0 AND b > 0"))
    assert not Filter("a IS NULL OR b > 3").covers(Filter("b IS NULL AND a IS NOT NULL"))
    monkeypatch.undo()
    assert Filter("a < 7 OR a > 5").covers(Filter("a > 4 AND a < 20"))
