"""The linter: fixture pairs, and what its findings promise, checked on random filters."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peersub.events.kinds import Kind
from peersub.filters.errors import FilterError
from peersub.filters.filter import Filter
from peersub.filters.lint import PARTS_MAX, lint, lint_xpath
from peersub.filters.sql_grammar import Conjunction, parse
from peersub.filters.sql_tokens import Role, words_of

SCHEMA = {
    ("price",): frozenset({Kind.INTEGER, Kind.FLOAT, Kind.MISSING}),
    ("date",): frozenset({Kind.STRING}),
    ("seen",): frozenset({Kind.TIMESTAMP}),
    ("active",): frozenset({Kind.BOOLEAN}),
    ("order", "day"): frozenset({Kind.DATE}),
    ("tags",): frozenset({Kind.OPAQUE}),
    ("empty",): frozenset({Kind.MISSING}),
    ("mixed",): frozenset({Kind.STRING, Kind.INTEGER}),
}
FIXTURES = Path(__file__).parent / "fixtures" / "lint.txt"


def fixture_pairs():
    blocks = FIXTURES.read_text(encoding="utf-8").split("\n\n")
    for block in blocks:
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        if lines:
            yield pytest.param(lines[0], [line.strip() for line in lines[1:]], id=lines[0])


@pytest.mark.parametrize(("line", "expected"), list(fixture_pairs()))
def test_fixture(line, expected):
    text = line.removeprefix("schema: ")
    findings = lint(text, SCHEMA if text != line else None)
    shown = [f"{f.code} | {text[f.start : f.end]} | {f.message}" for f in findings]
    assert sorted(shown) == sorted(expected)


def test_findings_are_sorted_by_place():
    findings = lint("a = 1 AND a = 1 AND (b = 1 AND a <= 4 OR FALSE)")
    assert [finding.start for finding in findings] == sorted(finding.start for finding in findings)
    assert len(findings) == 2


def test_of_equal_parts_the_later_one_is_redundant():
    for word in ("AND", "OR"):
        text = f"a = 1 {word} b = 2 {word} a = 1"
        assert [finding.start for finding in lint(text)] == [text.rindex("a = 1")]


def test_what_is_no_filter_is_refused():
    with pytest.raises(FilterError):
        lint("a = ")


def test_a_pattern_that_no_document_matches():
    (finding,) = lint_xpath("/a[@b > 5 and @b < 3]")
    assert (finding.code, finding.start, finding.end) == ("unsatisfiable", 0, 21)
    assert lint_xpath("/a[@b > 5]") == []


def test_of_long_lists_only_repeated_parts_are_found():
    many = [f"a{number} = 1" for number in range(PARTS_MAX + 1)]
    text = " OR ".join([*many, "a0 IN (1, 2)", "a3 = 1"])
    assert [text[f.start : f.end] for f in lint(text)] == ["a3 = 1"]


# --- random filters ----------------------------------------------------------------------------

NAMES = st.sampled_from(("a", "b"))
NUMBERS = st.integers(0, 3)
LEAVES = st.one_of(
    st.builds("{} {} {}".format, NAMES, st.sampled_from(("=", "<>", "<", ">=")), NUMBERS),
    st.builds("{} BETWEEN {} AND {}".format, NAMES, NUMBERS, NUMBERS),
    st.builds("{} NOT IN ({}, {})".format, NAMES, NUMBERS, NUMBERS),
    st.builds("{} IS {}NULL".format, NAMES, st.sampled_from(("", "NOT "))),
    st.builds("{} = '{}'".format, NAMES, st.sampled_from("xy")),
    st.sampled_from(("TRUE", "FALSE", "a", "1 = 1")),
)


def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    grouped = st.builds("{}({})".format, st.sampled_from(("", "NOT ", "NOT NOT ")), inner)
    operand = st.one_of(LEAVES, grouped)
    joined = st.builds(
        lambda word, parts: f" {word} ".join(parts),
        st.sampled_from(("AND", "OR")),
        st.lists(operand, min_size=2, max_size=3),
    )
    return st.one_of(joined, operand)


TEXTS = st.recursive(LEAVES, nested, max_leaves=6)


def without(text: str, spans: list[tuple[int, int]]) -> str:
    """The text with each marked part replaced by what makes no difference to its neighbours."""
    words = words_of(text)
    for start, end in sorted(spans, reverse=True):
        (first,) = [place for place, word in enumerate(words) if word.start == start]
        (last,) = [place for place, word in enumerate(words[:-1]) if word.end == end]
        around = {words[first - 1].text.upper()} if first else set()
        around.add(words[last + 1].text.upper())
        joined = "OR" if "OR" in around and "AND" not in around else "AND"
        assert joined in around
        text = f"{text[:start]}{'FALSE' if joined == 'OR' else 'TRUE'}{text[end:]}"
    return text


def outermost(findings) -> list[tuple[int, int]]:
    spans = {(finding.start, finding.end) for finding in findings}
    return [
        span
        for span in spans
        if not any(o != span and o[0] <= span[0] and span[1] <= o[1] for o in spans)
    ]


@settings(max_examples=300)
@given(TEXTS)
def test_redundant_parts_can_be_removed_each_and_all(text):
    wanted = Filter(text)
    redundant = [finding for finding in lint(text) if finding.code == "redundant"]
    for finding in redundant:
        assert Filter(without(text, [(finding.start, finding.end)])).equivalent(wanted)
    assert Filter(without(text, outermost(redundant))).equivalent(wanted)


@settings(max_examples=300)
@given(st.lists(st.one_of(LEAVES, TEXTS.map("({})".format)), min_size=2, max_size=4))
def test_a_conjunct_that_is_not_found_redundant_tells_something(conjuncts):
    text = " AND ".join(conjuncts)
    wanted = Filter(text)
    if lint(text):
        return
    for place in range(len(conjuncts)):
        rest = Filter(" AND ".join(conjuncts[:place] + conjuncts[place + 1 :]))
        assert rest.covers(wanted)
        assert not wanted.covers(rest), conjuncts[place]


@settings(max_examples=300)
@given(st.lists(st.one_of(LEAVES, TEXTS.map("({})".format)), min_size=2, max_size=4))
def test_a_disjunct_that_is_not_found_redundant_adds_something(disjuncts):
    text = " OR ".join(disjuncts)
    wanted = Filter(text)
    if lint(text):
        return
    for place in range(len(disjuncts)):
        rest = Filter(" OR ".join(disjuncts[:place] + disjuncts[place + 1 :]))
        assert not rest.covers(wanted), disjuncts[place]


@given(TEXTS)
def test_what_matches_nothing_or_everything_is_found(text):
    wanted, findings = Filter(text), lint(text)
    codes = {finding.code for finding in findings}
    if wanted.is_nothing:
        assert "unsatisfiable" in codes
    everything = [f for f in findings if f.message.startswith("Every event matches")]
    assert bool(everything) == (wanted.is_everything and text.upper() != "TRUE")


@given(TEXTS)
def test_marked_parts_are_whole_expressions(text):
    for finding in lint(text, {}):
        part = text[finding.start : finding.end]
        assert part == part.strip()
        if finding.code != "unknown-attribute":
            Filter(part)


@given(TEXTS)
def test_an_unsatisfiable_part_alone_or_in_its_place_matches_nothing(text):
    for finding in lint(text):
        negated = "never false" in finding.message
        if finding.code != "unsatisfiable" or negated or "rest of the filter" in finding.message:
            continue
        assert Filter(text[finding.start : finding.end]).is_nothing


def test_a_top_level_and_is_a_conjunction():
    # The properties above speak of top-level parts: the grammar must see them as such.
    assert isinstance(parse("a = 1 AND (b = 1)"), Conjunction)
    assert words_of("a")[-1].role is Role.END
