r"""String tests that are no intervals: general LIKE, and RLIKE.

A LIKE pattern knows `%` (any text), `_` (any one character) and a backslash that takes the next
character literally. Without wildcards it is an equality, with only a trailing `%` it is a prefix:
both are intervals, made elsewhere. What is left is *opaque*: a `TextTest` equals only itself, and
filters reason about it by the few rules below, all of them sound.

Both kinds run on RE2, in time linear in the text whatever the pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from peersub.events.kinds import KindClass
from peersub.filters.intervals import IntervalSet, point, prefix_range
from peersub.filters.limits import PROGRAM_BYTES_MAX, UNICODE_CLASSES_MAX

__all__ = [
    "Operator",
    "PatternError",
    "TextTest",
    "escape_like",
    "like_interval",
    "like_pieces",
    "regular_expression",
]

ANY_TEXT = "%"
ANY_CHARACTER = "_"
# Two characters that no text uses (Unicode keeps them for internal use): see `like_implies`.
_STANDS_FOR_ANY_TEXT = "\U0010ffff"
_STANDS_FOR_ANY_CHARACTER = "\U0010fffe"
_COMPILED_MAX = 4_096


class PatternError(ValueError):
    """A pattern that RE2 refuses, with its reason."""


class Operator(StrEnum):
    """The two opaque tests."""

    LIKE = "LIKE"
    RLIKE = "RLIKE"


@dataclass(frozen=True, slots=True, order=True)
class TextTest:
    """`path LIKE pattern` or `path RLIKE pattern`: true, false, or undefined for no string."""

    path: tuple[str, ...]
    operator: Operator
    pattern: str

    def holds(self, text: str) -> bool:
        """Whether the text passes.

        >>> TextTest(("a",), Operator.LIKE, "%b_").holds("abc")
        True
        """
        return matches_expression(self.expression(), text)

    def expression(self) -> str:
        """The test as one RE2 expression that is searched for."""
        return regular_expression(self.operator, self.pattern)

    def implies(self, other: TextTest) -> bool:
        """Whether each text that passes this test passes the other; sound, not complete."""
        if self == other:
            return True
        if self.operator is other.operator is Operator.LIKE:
            return like_implies(self.pattern, other.pattern)
        return False


def like_pieces(pattern: str) -> list[str | None]:
    r"""The pattern as literal texts, with None for `%` and "" for `_`; `\` takes a character
    literally.

    >>> like_pieces(r"a\%b%_")
    ['a%b', None, '']
    """
    pieces: list[str | None] = []
    literal: list[str] = []
    escaped = False
    for character in pattern:
        if escaped or character not in "%_\\":
            literal.append(character)
            escaped = False
            continue
        if character == "\\":
            escaped = True
            continue
        if literal:
            pieces.append("".join(literal))
            literal = []
        if character == ANY_CHARACTER or not pieces or pieces[-1] is not None:
            pieces.append(None if character == ANY_TEXT else "")
    if escaped:
        literal.append("\\")  # a backslash at the very end stands for itself
    if literal:
        pieces.append("".join(literal))
    return pieces


def escape_like(text: str) -> str:
    r"""The pattern that matches just this text.

    >>> escape_like("50%")
    '50\\%'
    """
    return "".join(f"\\{c}" if c in "%_\\" else c for c in text)


def canonical_like(pattern: str) -> str:
    """The one spelling of a pattern: repeated `%` fused, `%` before `_` in a row of both."""
    pieces = like_pieces(pattern)
    written: list[str] = []
    index = 0
    while index < len(pieces):
        if pieces[index]:
            written.append(escape_like(pieces[index] or ""))
            index += 1
            continue
        characters, any_text = 0, False
        while index < len(pieces) and not pieces[index]:
            any_text |= pieces[index] is None
            characters += pieces[index] == ""
            index += 1
        written.append((ANY_TEXT if any_text else "") + ANY_CHARACTER * characters)
    return "".join(written)


def like_interval(pattern: str) -> IntervalSet | None:
    """The set of strings, where the pattern is one text or one prefix; None where it is neither."""
    pieces = like_pieces(pattern)
    match pieces:
        case []:
            return point(KindClass.STRING, "")
        case [str(text)] if text:
            return point(KindClass.STRING, text)
        case [None]:
            return prefix_range("")
        case [str(text), None] if text:
            return prefix_range(text)
        case _:
            return None


def regular_expression(operator: Operator, pattern: str) -> str:
    """The RE2 expression to search for."""
    if operator is Operator.RLIKE:
        return pattern
    parts = [_like_part(piece, "(?s:.)") for piece in like_pieces(pattern)]
    return r"\A" + "".join(parts) + r"\z"


def _like_part(piece: str | None, any_character: str) -> str:
    if piece is None:
        return "(?s:.*)"
    return _quoted(piece) if piece else any_character


def _quoted(text: str) -> str:
    return "".join(c if c.isalnum() or ord(c) > 127 else f"\\x{ord(c):02x}" for c in text)


@lru_cache(maxsize=_COMPILED_MAX)
def _compiled(expression: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = PROGRAM_BYTES_MAX
    try:
        return re2.compile(expression, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args else "not a regular expression"
        raise PatternError(reason.decode() if isinstance(reason, bytes) else str(reason)) from None


def check_expression(expression: str) -> None:
    """Raise PatternError if RE2 refuses the expression, or would need too much to compile it."""
    if expression.count("\\p") + expression.count("\\P") > UNICODE_CLASSES_MAX:
        raise PatternError(f"more than {UNICODE_CLASSES_MAX} Unicode classes")
    _compiled(expression)


def matches_expression(expression: str, text: str) -> bool:
    """Whether the expression is found in the text; text that is no Unicode has no match."""
    try:
        return _compiled(expression).search(text) is not None
    except UnicodeEncodeError:
        return False


@lru_cache(maxsize=_COMPILED_MAX)
def _implication_forms(pattern: str) -> tuple[str, str, str] | None:
    """A pattern as the text and the expression of `like_implies`, and its longest literal."""
    if _STANDS_FOR_ANY_TEXT in pattern or _STANDS_FOR_ANY_CHARACTER in pattern:
        return None
    pieces = like_pieces(pattern)
    text = "".join(
        _STANDS_FOR_ANY_TEXT if piece is None else piece or _STANDS_FOR_ANY_CHARACTER
        for piece in pieces
    )
    parts = [_like_part(piece, f"[^{_STANDS_FOR_ANY_TEXT}]") for piece in pieces]
    longest = max((piece or "" for piece in pieces), key=len, default="")
    return text, r"\A" + "".join(parts) + r"\z", longest


def like_implies(specific: str, general: str) -> bool:
    """Whether each text that is LIKE `specific` is LIKE `general`; sound.

    Write in `specific` one fresh character for each `%` and another for each `_`. If `general`
    matches that text with the first absorbed by a `%` only, it matches whatever stands there
    instead.

    >>> like_implies("%abc%", "%b%"), like_implies("%b%", "%abc%")
    (True, False)
    """
    given, asked = _implication_forms(specific), _implication_forms(general)
    if given is None or asked is None or asked[2] not in given[0]:
        return False
    return matches_expression(asked[1], given[0])
