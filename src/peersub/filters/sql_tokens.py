r"""Words of the SQL filter language: sqlglot's compiled tokenizer for Spark, seen as few token
classes.

sqlglot splits the text. Here each token becomes a `Word` with a role that the grammar understands
and the span of the source, so that every error can point at its place. Strings are read from the
source itself: a doubled quote is a quote; a backslash escapes as in Spark, except that one before
any other character stays, so that `'\d+'` is the expression that it looks like; `\%` and `\_` stay
for LIKE.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from threading import local
from typing import Any, ClassVar, Final, NamedTuple

from peersub.filters.errors import FilterError
from peersub.filters.limits import TEXT_CHARACTERS_MAX

__all__ = ["Role", "Word", "words_of"]


class Role:
    """What a word can be to the grammar: plain numbers, since members of an enum are slow."""

    NAME: Final = 0
    QUOTED_NAME: Final = 1
    NUMBER: Final = 2
    STRING: Final = 3
    COMPARISON: Final = 4
    OPEN: Final = 5
    CLOSE: Final = 6
    COMMA: Final = 7
    DOT: Final = 8
    MINUS: Final = 9
    PLUS: Final = 10
    KEYWORD: Final = 11
    UNKNOWN: Final = 12
    END: Final = 13


class Word(NamedTuple):
    """A token: its role, its text (a string's value, a keyword in capitals), and its place."""

    role: int
    text: str
    start: int
    end: int


KEYWORDS = frozenset(
    ("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "RLIKE", "REGEXP", "IS", "NULL", "TRUE", "FALSE")
)
_COMMENT_MARKS = re.compile(r"/\*|\*/")
_SYMBOLS = {"-": Role.MINUS, "+": Role.PLUS}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "Z": "\x1a"}
_ESCAPES |= {character: character for character in "\\'\"`"}


class _Tokenizers(local):
    """One tokenizer for each thread: making one takes as long as a short filter."""

    def __init__(self) -> None:
        self.tokenize = _tokenizer_class()(dialect="spark").tokenize


@cache
def _tokenizer_class() -> Any:
    from sqlglot.dialects.spark import Spark

    class Tokenizer(Spark.Tokenizer):
        # Elsewhere a statement may start with SHOW or CALL; here these are names like any other.
        COMMANDS: ClassVar[set[Any]] = set()

    # Nor are comments of Jinja templates skipped.
    Tokenizer._COMMENTS = {k: v for k, v in Tokenizer._COMMENTS.items() if k != "{#"}
    return Tokenizer


@cache
def _tokenizers() -> _Tokenizers:
    return _Tokenizers()


@cache
def _roles() -> tuple[list[int | None], type[Exception]]:
    """The role of each type of token, by its number; None where it depends on the text."""
    from sqlglot.errors import TokenError
    from sqlglot.tokenizer_core import TokenType

    roles = {
        TokenType.NUMBER: Role.NUMBER,
        TokenType.STRING: Role.STRING,
        TokenType.RAW_STRING: Role.STRING,
        TokenType.IDENTIFIER: Role.QUOTED_NAME,
        TokenType.VAR: Role.NAME,
        TokenType.L_PAREN: Role.OPEN,
        TokenType.R_PAREN: Role.CLOSE,
        TokenType.COMMA: Role.COMMA,
        TokenType.DOT: Role.DOT,
    }
    comparisons = ("EQ", "NEQ", "LT", "LTE", "GT", "GTE")
    roles |= {TokenType[name]: Role.COMPARISON for name in comparisons}
    by_number: list[int | None] = [None] * (max(TokenType) + 1)
    for kind, role in roles.items():
        by_number[kind] = role
    return by_number, TokenError


def words_of(text: str) -> list[Word]:
    """The words of a filter text, closed by an END.

    Raises:
        FilterError: the text is too long, or a quote or comment in it has no end.
    """
    if len(text) > TEXT_CHARACTERS_MAX:
        raise FilterError(
            text,
            TEXT_CHARACTERS_MAX,
            f"the filter has {len(text):,} characters, more than {TEXT_CHARACTERS_MAX:,}",
            "Split it into several subscriptions.",
        )
    if not text.isascii():
        _refuse_surrogates(text)
    roles, token_error = _roles()
    try:
        tokens = _tokenizers().tokenize(text)
    except token_error:
        raise _unclosed(text) from None
    words: list[Word] = []
    for token in tokens:
        written, start, end = token.text, token.start, token.end + 1
        role = roles[token.token_type]
        if role == Role.STRING:
            _add_string(words, text, start, end)
        elif role == Role.QUOTED_NAME:
            _add_quoted_name(words, text, start, end)
        elif role is None:
            words.append(_word_of_rest(text, written, start, end))
        elif role == Role.NAME and not _is_plain_name(written):
            words.append(Word(Role.UNKNOWN, written, start, end))
        else:
            words.append(Word(role, written, start, end))
    words.append(Word(Role.END, "", len(text), len(text)))
    return words


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise FilterError(
            text,
            error.start,
            "half of a surrogate pair stands here: this is no Unicode text",
            "Remove it, or write the whole character.",
        ) from None


def _is_plain_name(text: str) -> bool:
    return text.isidentifier() or text.replace("_", "a").isalnum()


def _word_of_rest(text: str, written: str, start: int, end: int) -> Word:
    """The word of a token that sqlglot takes for an operator or a keyword of SQL at large."""
    upper = written.upper()
    if upper in KEYWORDS and written.isascii():
        return Word(Role.KEYWORD, upper, start, end)
    symbol = _SYMBOLS.get(written)
    if symbol is not None:
        return Word(symbol, written, start, end)
    # Where the text differs from the source it is the inside of a literal: x'1F', n'a', 0x1F.
    if end - start != len(written) and written != "::":
        return Word(Role.UNKNOWN, text[start:end], start, end)
    # Words that mean something elsewhere in SQL (order, date, type, ...) are plain names here.
    return Word(Role.NAME if written.isidentifier() else Role.UNKNOWN, written, start, end)


def _add_string(words: list[Word], text: str, start: int, end: int) -> None:
    raw = text[start:end]
    if raw[:1] in "rR":
        words.append(Word(Role.STRING, raw[2:-1], start, end))
        return
    quote = raw[0]
    value = raw[1:-1]
    if "\\" in value:
        value = _unescaped(value)
    before = words[-1] if words else None
    # Two strings that touch are one string with a quote in it: 'it''s'.
    if before is not None and before.role == Role.STRING and before.end == start:
        words[-1] = Word(Role.STRING, before.text + quote + value, before.start, end)
    else:
        words.append(Word(Role.STRING, value, start, end))


def _add_quoted_name(words: list[Word], text: str, start: int, end: int) -> None:
    raw = text[start + 1 : end - 1]
    if text[start] != "`":
        words.append(Word(Role.UNKNOWN, text[start:end], start, end))
        return
    words.append(Word(Role.QUOTED_NAME, raw.replace("``", "`"), start, end))


def _unescaped(raw: str) -> str:
    parts: list[str] = []
    index = 0
    while index < len(raw):
        character = raw[index]
        if character == "\\" and index + 1 < len(raw):
            following = raw[index + 1]
            parts.append(_ESCAPES.get(following, character + following))
            index += 2
        else:
            parts.append(character)
            index += 1
    return "".join(parts)


def _unclosed(text: str) -> FilterError:
    """Where the text broke off: at a quote or comment that nothing closes."""
    for start, end in _enclosed(text):
        if end < 0 and text[start] == "/":
            return FilterError(text, start, "a comment has no end", "Close it with */.")
        if end < 0:
            what = "a quoted name" if text[start] == "`" else "a string"
            return FilterError(text, start, f"{what} has no end", f"Close it with {text[start]}.")
    return FilterError(
        text, 0, "the text cannot be split into words", "Look for a stray character."
    )


def _enclosed(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of strings, quoted names and comments; the end is -1 if there is none."""
    index = 0
    while index < len(text):
        character = text[index]
        end = index + 1
        if character in "'\"`":
            end = _closing_quote(text, index, character) + 1 or -1
        elif text.startswith("/*", index):
            end = _closing_comment(text, index)
        elif text.startswith("--", index):
            end = text.find("\n", index)
            end = end if end > 0 else len(text)
        else:
            index += 1
            continue
        yield index, end
        if end < 0:
            return
        index = end


def _closing_comment(text: str, start: int) -> int:
    """Just after the end of a comment, in which others may be nested."""
    depth = 0
    for mark in _COMMENT_MARKS.finditer(text, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return -1


def _closing_quote(text: str, start: int, quote: str) -> int:
    index = start + 1
    while index < len(text):
        if text[index] == "\\" and quote != "`":
            index += 1
        elif text[index] == quote and text[index + 1 : index + 2] == quote:
            index += 1  # a doubled quote stands for itself
        elif text[index] == quote:
            return index
        index += 1
    return -1
