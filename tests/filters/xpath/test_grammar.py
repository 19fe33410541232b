"""What is refused: the place, the problem and the remedy; and what a hostile pattern may cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peersub.filters import Filter, FilterError
from peersub.filters.xpath import XPathFilter
from peersub.filters.xpath.limits import PATTERN_CHARACTERS_MAX, PATTERN_PARTS_MAX

# The pattern, with the place of the error marked by ^ just before it, and a part of the message.
BAD_PATTERNS = [
    ("^", "starts with / or //"),
    ("^a/b", "starts at the document"),
    ("^.//a", "starts with / or //"),
    ("^@x", "starts with / or //"),
    ("^'a'", "starts with / or //"),
    ("^(/a)", "parentheses"),
    ("/^", "the name of an element or *"),
    ("/a/^", "the pattern ends here"),
    ("//^//a", "name of an element"),
    ("//^/a", "name of an element"),
    ("/a ^b", "found 'b'"),
    ("/a^]", "should end or go on"),
    ("/a[^]", "name of an element"),
    ("/a[b^", "expected ] or `and`"),
    ("/a[b ^c]", "expected ] or `and`"),
    ("/a[b and^", "the pattern ends here"),
    ("/a[and]^x", "should end"),
    ("/a[b ^or c]", "several patterns in place of `or`"),
    ("/a[^not(b)]", "not() is not supported"),
    ("/a[^1]", "a literal alone is no test"),
    ("/a[^'b']", "a literal alone is no test"),
    ("/a[^position() = 1]", "position() is not supported"),
    ("/a[^last()]", "last() is not supported"),
    ("/a[^contains(b, 'c')]", "contains() is not supported"),
    ("/a/^node()", "node() is not supported"),
    ("/a/^comment()", "comment() is not supported"),
    ("/a[text(^'x')]", "takes no arguments"),
    ("/a/^..", "steps upwards"),
    ("/a/^./b", "name of an element"),
    ("/a[^../b]", "steps upwards"),
    ("/^ancestor::b", "the axis ancestor:: is not supported"),
    ("/a/^following-sibling::b", "axis following-sibling::"),
    ("/^p:a", "local name"),
    ("/a[@^p:x]", "local name"),
    ("/a[@^*]", "name of one attribute"),
    ("/a/@^", "name of one attribute"),
    ("/a/@x^/b", "@x has nothing below it"),
    ("/a/@x^[b]", "nothing below it"),
    ("/a/text()^/b", "text() has nothing below it"),
    ("/^@x", "the document itself"),
    ("/^text()", "the document itself"),
    ("/a//^@x", "here or below"),
    ("/a[.//^text()]", "here or below"),
    ("/a ^| /b", "unions of paths"),
    ("/a ^= 'x'", "comparisons stand in brackets"),
    ("/a/b ^> 10", "comparisons stand in brackets"),
    ("/a ^and /b", "in brackets only"),
    ("/a ^or /b", "`or` is not supported"),
    ("/a[b = ^c]", "Put strings in quotes"),
    ("/a[b = ^@c]", "Put strings in quotes"),
    ("/a[b = ^]", "expected a string or a number"),
    ("/a[b =^", "expected a string or a number"),
    ("/a[b =^= 1]", "compare with a string or a number"),
    ("/a[b = ^$v]", "compare with a string or a number"),
    ("/a[^$v = 1]", "variables"),
    ("/a[^//b]", "starts at the element before"),
    ("/a[^/a/b]", "starts at the element before"),
    ("/a[^.]", "Compare it"),
    ("/a[^(b)]", "parentheses"),
    ("/a[b ^+ 1 > 2]", "expected ] or `and`"),
    ("/a[b ^* 2 > 2]", "expected ] or `and`"),
    ("/a[b ^div 2 > 2]", "arithmetic"),
    ("/a[b > ^1e3]", "1000 in place of 1e3"),
    ("/a[b > -^'1']", "expected a number after -"),
    ("/a[b > ^'abc']", "no order of strings"),
    ("/a[b > ^'2024-01-01']", "no order of strings"),
    ("/a[b > ^'1e3']", "plain number"),
    ("/a[b = ^12345678901234567890]", "compare text instead"),
    ("/a[b = ^0.1234567890123456]", "at most 15 digits"),
    ("/a[b = ^'c]", "Close it with '"),
    ('/a[b = ^"c]', 'Close it with "'),
    ("/a^!", "'!' is not supported"),
    ("/a^#b", "'#' is not supported"),
    ("/a[b ^~ 'c']", "'~' is not supported"),
    ("/^1a", "name of an element"),
    ("/a^\0", "no such character"),
    ("/a[. = '^\ud800']", "no such character"),
    ("/a[text()[^@x = 1]]", "a bracket after text() compares"),
    ("/a[text()[. = 1] ^= 2]", "expected ] or `and`"),
    ("/a[text()[. ^and]]", "a comparison"),
    ("/a[b][c][d ^;]", "';' is not supported"),
]


@pytest.mark.parametrize(("marked", "message"), BAD_PATTERNS)
def test_bad_patterns_are_refused_at_their_place(marked, message):
    position = marked.index("^")
    text = marked.replace("^", "", 1)
    with pytest.raises(FilterError) as refusal:
        Filter.xpath(text)
    error = refusal.value
    assert error.position == position, error
    assert message in error.one_line()
    assert error.remedy
    assert "\n" not in error.one_line()
    assert error.text == text


def test_the_bounds_have_their_own_errors():
    with pytest.raises(FilterError, match="at most 4,096 characters"):
        XPathFilter("/" + "a" * PATTERN_CHARACTERS_MAX)
    with pytest.raises(FilterError, match=f"at most {PATTERN_PARTS_MAX} steps and comparisons"):
        XPathFilter("/a" * (PATTERN_PARTS_MAX + 1))
    with pytest.raises(FilterError, match=f"at most {PATTERN_PARTS_MAX} steps and comparisons"):
        XPathFilter("/a" + "[. != 1]" * PATTERN_PARTS_MAX)
    with pytest.raises(FilterError, match=f"at most {PATTERN_PARTS_MAX} steps and comparisons"):
        XPathFilter("/a" + "[@x]" * PATTERN_PARTS_MAX)
    assert XPathFilter("/a" * PATTERN_PARTS_MAX)
    assert XPathFilter("/a" + "[. != 1]" * (PATTERN_PARTS_MAX - 1)).text == "/a[. != 1]"


def test_a_pattern_that_grows_beyond_the_bound_when_written_out_is_refused():
    name = "a" * 4_030
    grown = f"/{name}" + "".join(f"[.<{i}]" for i in range(10, 20)) + "/b/@x"
    assert len(grown) <= PATTERN_CHARACTERS_MAX
    assert XPathFilter(grown).text.endswith("[. < 10]/b[@x]")
    grown = f"/{name}" + "".join(f"[.!={i}]" for i in range(9))
    assert len(grown) <= PATTERN_CHARACTERS_MAX
    with pytest.raises(FilterError, match="written out"):
        XPathFilter(grown)


@given(st.text(st.sampled_from("/a*[]@.()'= <>-1|,:$nd \0é"), max_size=30).map(lambda s: "/" + s))
def test_any_text_is_a_pattern_or_a_filter_error(text):
    try:
        made = XPathFilter(text)
    except FilterError:
        return
    assert XPathFilter(made.text) == made


@pytest.mark.parametrize("value", [None, 5, b"/a"])
def test_only_text_is_a_pattern(value):
    with pytest.raises(TypeError, match="a pattern is text"):
        Filter.xpath(value)
