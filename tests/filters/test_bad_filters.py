"""Texts that are no filters: each is refused, at the right place, with words that help."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from peersub.filters import Filter, FilterError
from strategies import examples, filter_texts

_MARK = "▶"
_WRITTEN = {"⏎": "\n", "␀": "\0", "⇥": "\t"}


def _table() -> list[tuple[str, int, str]]:
    """Text, position and part of the message, for each line of bad_filters.txt."""
    lines = Path(__file__).with_name("bad_filters.txt").read_text(encoding="utf-8").split("\n")
    rows: list[tuple[str, int, str]] = []
    for line in lines:
        if _MARK not in line or line.startswith("# Filters"):
            continue
        marked, _, message = line.rpartition(" ## ")
        for sign, character in _WRITTEN.items():
            marked = marked.replace(sign, character)
        rows.append((marked.replace(_MARK, ""), marked.index(_MARK), message))
    return rows


TABLE = _table()


def test_the_table_is_long_and_whole() -> None:
    assert len(TABLE) >= 200
    assert len({text for text, _, _ in TABLE}) == len(TABLE)
    assert all(message for _, _, message in TABLE)


@pytest.mark.parametrize(
    ("text", "position", "message"), TABLE, ids=[repr(row[0]) for row in TABLE]
)
def test_bad_filters_are_refused_where_they_are_bad(text: str, position: int, message: str) -> None:
    with pytest.raises(FilterError) as refused:
        Filter(text)
    error = refused.value
    assert error.position == position
    line = error.one_line()
    assert message in line
    assert len(line.splitlines()) == 1 and len(line) < 500
    assert error.remedy, "an error must say what to do"
    _check_caret(error)


def _check_caret(error: FilterError) -> None:
    """The caret stands below the character at the position."""
    lines = str(error).split("\n")
    excerpt, caret = lines[1], lines[2]
    assert caret.strip() == "^"
    below = excerpt[caret.index("^") : caret.index("^") + 1]
    meant = error.text[error.position : error.position + 1]
    assert below == (meant if meant.isprintable() else " ") or (below == "" and meant == "")


@pytest.mark.parametrize("value", [None, 5, b"a = 1", ["a = 1"], {"a": 1}])
def test_only_text_is_a_filter(value: object) -> None:
    with pytest.raises(TypeError, match="a filter is text, not"):
        Filter(value)  # type: ignore[arg-type]


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(FilterError, match="surrogate") as refused:
        Filter("a = 'x\ud800'")
    assert refused.value.position == 6
    assert refused.value.one_line().encode()
    assert str(refused.value).encode()


def test_the_excerpt_of_a_long_text_shows_the_place() -> None:
    text = " AND ".join(f"attribute_{n} = {n}" for n in range(200)) + " AND oops here"
    with pytest.raises(FilterError) as refused:
        Filter(text)
    assert refused.value.position == text.index("here")
    assert len(str(refused.value)) < 500
    _check_caret(refused.value)


def test_errors_survive_pickling() -> None:
    import pickle

    with pytest.raises(FilterError) as refused:
        Filter("a ~ 1")
    again = pickle.loads(pickle.dumps(refused.value))
    assert (str(again), again.position, again.remedy) == (
        str(refused.value),
        2,
        refused.value.remedy,
    )


# --- anything at all -------------------------------------------------------------------------

_WORDS = st.sampled_from(
    [
        *("a", "b", "a.b", "`c d`", "show", "é", "SELECT", "ORDER", "BY", "😀"),
        *("1", "-1", "1.5", "1e5", "10L", "0x1F", "'x'", '"y"', "r'z'", "x'1'", "'2024-05-01'"),
        *("AND", "OR", "NOT", "IN", "LIKE", "RLIKE", "BETWEEN", "IS", "NULL", "TRUE", "FALSE"),
        *("DATE", "TIMESTAMP", "=", "<>", "<", "<=", "(", ")", ",", ".", "-", "+", "*", "/", "%"),
        *(";", "::", "[", "]", "?", "!", "||", "--", "/*", "*/", "{#", "#}", "$", "@"),
        *("'", '"', "`", "\\", "\0", "\n", " "),
    ]
)


@examples(400)
@given(
    st.lists(_WORDS, max_size=12).map(" ".join)
    | st.lists(_WORDS, max_size=8).map("".join)
    | st.text()
)
@example("a = '\\")
@example("a LIKE '\\\\\\")
@example("\ufeffa = 1")
@example("a = 1 /*+ x */")
@example("a rlike r'")
def test_any_text_is_a_filter_or_gets_a_filter_error(text: str) -> None:
    error = _refusal(text)
    if error is None:
        wanted = Filter(text)
        assert Filter(wanted.text) == wanted
    else:
        assert 0 <= error.position <= len(text)
        assert len(error.one_line().splitlines()) <= 1
        _check_caret(error)


def _refusal(text: str) -> FilterError | None:
    """The error, if there is one; any other exception fails the test."""
    try:
        Filter(text)
    except FilterError as error:
        return error
    return None


@examples(100)
@given(filter_texts, st.integers(0), st.integers(1, 5))
def test_a_filter_with_a_part_cut_out_is_a_filter_or_gets_a_filter_error(
    text: str, start: int, length: int
) -> None:
    start %= len(text)
    error = _refusal(text[:start] + text[start + length :])
    assert error is None or error.problem
