"""The grammar of SQL filters: from words to a tree of conjunctions and disjunctions of leaves.

    expression  = conjunction (OR conjunction)*
    conjunction = negation (AND negation)*
    negation    = NOT* predicate
    predicate   = operand [comparison operand | [NOT] BETWEEN literal AND literal
                  | [NOT] IN (literal, ...) | [NOT] LIKE string | [NOT] RLIKE string
                  | IS [NOT] NULL]
    operand     = name(.name)* | literal | ( expression )
    literal     = [+|-]number | string | TRUE | FALSE | DATE string | TIMESTAMP string

NOT is pushed down while parsing, by the rules of three-valued logic: a leaf is the set of events
for which its predicate is *true* (or, below a NOT, *false*); where it is unknown the event lies in
neither. sqlglot's own parser is the oracle of this grammar in the tests; it is not used here
because it keeps no positions of what it parsed, recurses without a bound, and takes twice as long.
"""

from __future__ import annotations

from math import isinf
from typing import Any, NamedTuple, NoReturn

from peersub.events.inference import parse_date, parse_timestamp
from peersub.events.kinds import KindClass, date_key, exact_number, number_key, timestamp_key
from peersub.filters import sql_leaves as leaves
from peersub.filters.boxes import Box, Path
from peersub.filters.errors import FilterError, excerpt_of, shown
from peersub.filters.limits import (
    NESTING_MAX,
    NUMBER_DIGITS_MAX,
    PATTERN_CHARACTERS_MAX,
    TEXT_TESTS_MAX,
)
from peersub.filters.patterns import Operator, PatternError, check_expression
from peersub.filters.sql_tokens import Role, Word, words_of

__all__ = ["SUPPORTED", "Conjunction", "Disjunction", "Leaf", "Tree", "parse"]

SUPPORTED = (
    "Supported: = <> < <= > >=, BETWEEN, IN, LIKE, RLIKE, IS [NOT] NULL, AND, OR, NOT, "
    "parentheses, names (a, a.b, `a b`), numbers, 'strings', TRUE, FALSE, DATE '…', TIMESTAMP '…'."
)


class Leaf(NamedTuple):
    """The events for which one predicate holds; None if there can be none."""

    start: int
    end: int
    box: Box | None


class Conjunction(NamedTuple):
    """All of the parts."""

    start: int
    end: int
    parts: tuple[Tree, ...]


class Disjunction(NamedTuple):
    """Any of the parts."""

    start: int
    end: int
    parts: tuple[Tree, ...]


Tree = Leaf | Conjunction | Disjunction


class _Name(NamedTuple):
    start: int
    end: int
    path: Path


class _Literal(NamedTuple):
    start: int
    end: int
    kind_class: KindClass
    key: Any


_Operand = _Name | _Literal

# What other dialects of SQL know, and what to write instead.
_KNOWN_ELSEWHERE = {
    "::": ("casts and typed numbers such as 10L are not supported", SUPPORTED),
    "<=>": ("'<=>' is not supported", "Use =, or IS NULL for a missing attribute."),
    ";": ("';' is not part of a filter", "Remove it; a filter is one expression."),
    "&&": ("'&&' is not supported", "Write AND."),
    "ILIKE": (
        "ILIKE is not supported",
        "Use RLIKE with (?i), for example: name RLIKE '(?i)^acme'.",
    ),
    "ISNULL": ("ISNULL is not supported", "Write IS NULL."),
    "NOTNULL": ("NOTNULL is not supported", "Write IS NOT NULL."),
    "NOT": (
        "NOT is not understood here",
        "It stands before a condition, or before IN, LIKE, BETWEEN.",
    ),
    "[": ("arrays cannot be filtered on", "Name a part of a record with a dot: a.b."),
}
# Looking up a member of an enum takes longer than anything else here.
_NUMBER, _STRING, _BOOLEAN = KindClass.NUMBER, KindClass.STRING, KindClass.BOOLEAN
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SET_PREDICATES = ("BETWEEN", "IN", "LIKE", "RLIKE", "REGEXP")
_TYPOGRAPHIC_QUOTES = "‘’‚“”„´"
_TYPED_LITERALS = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ")


def parse(text: str) -> Tree:
    """The tree of a filter text.

    Raises:
        FilterError: with the position and what is supported.
    """
    return _Parser(text).parse()


class _Parser:
    """Recursive descent over the words; `nesting` bounds the recursion."""

    __slots__ = ("at", "nesting", "pattern_characters", "patterns", "text", "words")

    def __init__(self, text: str) -> None:
        self.text = text
        self.words = words_of(text)
        self.at = 0
        self.nesting = 0
        self.patterns = 0
        self.pattern_characters = 0

    def parse(self) -> Tree:
        if self.words[0].role == Role.END:
            self.refuse(self.words[0], "the filter is empty", "TRUE matches every event.")
        tree = self.as_tree(self.expression(negated=False), negated=False)
        if self.words[self.at].role != Role.END:
            self.refuse_rest()
        return tree

    # --- words ---------------------------------------------------------------------------------

    def keyword(self, candidate: str) -> bool:
        word = self.words[self.at]
        if word.role == Role.KEYWORD and word.text == candidate:
            self.at += 1
            return True
        return False

    def take(self, role: int, expected: str) -> Word:
        word = self.words[self.at]
        if word.role is not role:
            found = "the end of the filter" if word.role == Role.END else shown(word.text)
            self.refuse(word, f"{expected} is expected here, not {found}")
        self.at += 1
        return word

    def refuse(self, word: Word, problem: str, remedy: str = SUPPORTED) -> NoReturn:
        raise FilterError(self.text, word.start, problem, remedy)

    def refuse_rest(self) -> NoReturn:
        """Nothing may follow a complete expression; name the likely intention."""
        word = self.words[self.at]
        before, after = self.words[self.at - 1], self.words[min(self.at + 1, len(self.words) - 1)]
        if word.role == Role.CLOSE:
            self.refuse(word, "this ')' closes nothing", "Remove it, or add a '(' before.")
        if word.role in (Role.PLUS, Role.MINUS) or word.text in ("*", "/", "%", "||"):
            remedy = SUPPORTED
            if before.role == after.role == Role.NAME and before.end + 1 == after.start:
                odd = self.text[before.start : after.end]
                remedy = f"If this is one name, write it in backticks: `{excerpt_of(odd)}`."
            self.refuse(word, f"arithmetic ({word.text!r}) is not supported", remedy)
        problem, remedy = _KNOWN_ELSEWHERE.get(
            word.text.upper(), (f"{shown(word.text)} is not understood here", SUPPORTED)
        )
        self.refuse(word, problem, remedy)

    # --- expressions ---------------------------------------------------------------------------

    def expression(self, *, negated: bool) -> Tree | _Operand:
        first = self.conjunction(negated=negated)
        if not self.next_is("OR"):
            return first
        parts = [self.as_tree(first, negated=negated)]
        while self.keyword("OR"):
            parts.append(self.as_tree(self.conjunction(negated=negated), negated=negated))
        kind = Conjunction if negated else Disjunction
        return kind(parts[0].start, parts[-1].end, tuple(parts))

    def conjunction(self, *, negated: bool) -> Tree | _Operand:
        first = self.negation(negated=negated)
        if not self.next_is("AND"):
            return first
        parts = [self.as_tree(first, negated=negated)]
        while self.keyword("AND"):
            parts.append(self.as_tree(self.negation(negated=negated), negated=negated))
        kind = Disjunction if negated else Conjunction
        return kind(parts[0].start, parts[-1].end, tuple(parts))

    def next_is(self, keyword: str) -> bool:
        word = self.words[self.at]
        return word.role == Role.KEYWORD and word.text == keyword

    def negation(self, *, negated: bool) -> Tree | _Operand:
        if not self.keyword("NOT"):
            return self.predicate(negated=negated)
        negated = not negated
        while self.keyword("NOT"):
            negated = not negated
        return self.as_tree(self.predicate(negated=negated), negated=negated)

    def as_tree(self, part: Tree | _Operand, *, negated: bool) -> Tree:
        """A bare attribute means that it is TRUE; a bare TRUE or FALSE is the constant."""
        if isinstance(part, _Name):
            box = leaves.comparison(part.path, "=", _BOOLEAN, 1, negated=negated)
            return Leaf(part.start, part.end, box)
        if isinstance(part, _Literal):
            if part.kind_class is not _BOOLEAN:
                following = self.words[self.at]
                if following.role not in (Role.END, Role.CLOSE, Role.KEYWORD):
                    self.refuse_rest()
                what = excerpt_of(self.text[part.start : part.end])
                raise FilterError(
                    self.text,
                    part.start,
                    f"{what} alone is no condition",
                    "Compare an attribute with it, for example: price > 10.",
                )
            return Leaf(part.start, part.end, leaves.constant(bool(part.key) != negated))
        return part

    # --- predicates ----------------------------------------------------------------------------

    def predicate(self, *, negated: bool) -> Tree | _Operand:
        left = self.operand(negated=negated)
        word = self.words[self.at]
        if word.role == Role.COMPARISON:
            self.at += 1
            return self.comparison(self.as_operand(left, word), word, negated=negated)
        if word.role != Role.KEYWORD:
            return left
        if word.text == "AND" or word.text == "OR":
            return left
        if word.text == "IS":
            self.at += 1
            return self.null_test(self.as_name(left, word), negated=negated)
        inverted = word.text == "NOT"
        tree = self.set_predicate(left, word, self.at + inverted, negated=negated != inverted)
        return left if tree is None else tree

    def set_predicate(
        self, left: Tree | _Operand, first: Word, at: int, *, negated: bool
    ) -> Leaf | None:
        """BETWEEN, IN, LIKE or RLIKE, where its keyword stands at `at`; else None."""
        word = self.words[at]
        if word.role != Role.KEYWORD or word.text not in _SET_PREDICATES:
            return None
        name = self.as_name(left, first)
        self.at = at + 1
        if word.text == "BETWEEN":
            return self.between(name, negated=negated)
        if word.text == "IN":
            end, literals = self.literal_list()
            return Leaf(name.start, end, leaves.membership(name.path, literals, negated=negated))
        operator = Operator.LIKE if word.text == "LIKE" else Operator.RLIKE
        return self.text_test(name, operator, negated=negated)

    def between(self, name: _Name, *, negated: bool) -> Leaf:
        lower = self.literal("the lower bound of BETWEEN")
        if not self.keyword("AND"):
            self.refuse(self.words[self.at], "BETWEEN needs AND and an upper bound here")
        upper = self.literal("the upper bound of BETWEEN")
        box = leaves.between(name.path, lower[2:], upper[2:], negated=negated)
        return Leaf(name.start, upper.end, box)

    def as_operand(self, part: Tree | _Operand, word: Word) -> _Operand:
        if isinstance(part, _Name | _Literal):
            return part
        return self.refuse(word, f"the left side of {word.text} is a condition, not an attribute")

    def as_name(self, part: Tree | _Operand, word: Word) -> _Name:
        operand = self.as_operand(part, word)
        if isinstance(operand, _Name):
            return operand
        remedy = SUPPORTED
        if self.text[operand.start] == '"':
            remedy = "Double quotes make a string; write names plain or in backticks: `price`."
        return self.refuse(word, f"the left side of {word.text} must be an attribute", remedy)

    def comparison(self, left: _Operand, word: Word, *, negated: bool) -> Leaf:
        right = self.as_operand(self.operand(negated=False), word)
        operator = {"==": "=", "!=": "<>"}.get(word.text, word.text)
        if isinstance(left, _Name) and isinstance(right, _Name):
            quoted = f"If one is text, write it in quotes: '{excerpt_of(right.path[-1])}'."
            self.refuse(word, "comparing two attributes is not supported", quoted)
        if isinstance(left, _Literal) and isinstance(right, _Literal):
            if left.kind_class is not right.kind_class:
                self.refuse_unlike_constants(left, right)
            truth = leaves.compare_constants(left[2:], operator, right[2:], negated=negated)
            return Leaf(left.start, right.end, leaves.constant(truth))
        start, end = left.start, right.end
        if isinstance(left, _Literal):
            left, right = right, left
            operator = _FLIPPED.get(operator, operator)
        assert isinstance(left, _Name)
        assert isinstance(right, _Literal)
        box = leaves.comparison(left.path, operator, right.kind_class, right.key, negated=negated)
        return Leaf(start, end, box)

    def refuse_unlike_constants(self, left: _Literal, right: _Literal) -> NoReturn:
        for literal in (left, right):
            if self.text[literal.start] == '"':
                raise FilterError(
                    self.text,
                    literal.start,
                    "double quotes make a string, and a string is compared with another value here",
                    "Write names plain or in backticks: `price`.",
                )
        raise FilterError(
            self.text,
            left.start,
            "two values of different kinds are compared: this is never true",
            "Compare an attribute with a value.",
        )

    def null_test(self, name: _Name, *, negated: bool) -> Leaf:
        negated = negated != self.keyword("NOT")
        word = self.words[self.at]
        if not self.keyword("NULL"):
            self.refuse(
                word,
                f"IS {word.text or '…'} is not supported",
                "Use IS NULL, IS NOT NULL, or = TRUE.",
            )
        return Leaf(name.start, word.end, leaves.null_test(name.path, negated=negated))

    def text_test(self, name: _Name, operator: Operator, *, negated: bool) -> Leaf:
        word = self.words[self.at]
        if word.role != Role.STRING:
            self.refuse(word, f"{operator} needs a pattern in quotes here")
        self.at += 1
        if self.words[self.at].text.upper() == "ESCAPE":
            self.refuse(
                self.words[self.at], "ESCAPE is not supported", "LIKE escapes with a backslash."
            )
        if operator is Operator.LIKE and _ends_in_lone_backslash(word.text):
            self.refuse(
                word, "the LIKE pattern ends in a lone backslash", r"Write \\\\ for a backslash."
            )
        if operator is Operator.RLIKE:
            self.check_expression(word)
        box = leaves.text_test(name.path, operator, word.text, negated=negated)
        if box is not None and box.tests:
            self.count_pattern(word)
        return Leaf(name.start, word.end, box)

    def check_expression(self, word: Word) -> None:
        if "\b" in word.text:
            self.refuse(
                word,
                r"in a string \b is the backspace character",
                r"For a word boundary write \\b, or a raw string: r'\b'.",
            )
        if len(word.text) > PATTERN_CHARACTERS_MAX:
            self.count_pattern(word)
        try:
            check_expression(word.text)
        except PatternError as error:
            self.refuse(
                word,
                f"not a regular expression of RE2: {excerpt_of(str(error), 160)}",
                "RE2 knows no back-references and no look-around.",
            )

    def count_pattern(self, word: Word) -> None:
        """Patterns are costly to compile and to compare: all of a filter share one bound."""
        self.patterns += 1
        self.pattern_characters += len(word.text)
        if self.pattern_characters > PATTERN_CHARACTERS_MAX:
            self.refuse(
                word,
                f"the patterns have together more than {PATTERN_CHARACTERS_MAX:,} characters",
                "Shorten them, or split the filter into several subscriptions.",
            )
        if self.patterns > TEXT_TESTS_MAX:
            self.refuse(
                word,
                f"the filter has more than {TEXT_TESTS_MAX} patterns that are no plain prefix",
                "Use one RLIKE with alternatives, for example: name RLIKE 'this|that'.",
            )

    # --- operands ------------------------------------------------------------------------------

    def operand(self, *, negated: bool) -> Tree | _Operand:
        word = self.words[self.at]
        if word.role == Role.OPEN:
            return self.parenthesised(word, negated=negated)
        if word.role == Role.NAME and self.words[self.at + 1].role != Role.STRING:
            return self.name()
        if word.role == Role.QUOTED_NAME:
            return self.name()
        return self.literal("an attribute or a value")

    def parenthesised(self, opening: Word, *, negated: bool) -> Tree | _Operand:
        self.at += 1
        self.nesting += 1
        if self.nesting > NESTING_MAX:
            self.refuse(
                opening,
                f"parentheses are nested deeper than {NESTING_MAX}",
                "Flatten the expression.",
            )
        inner = self.expression(negated=negated)
        closing = self.words[self.at]
        if closing.role == Role.END:
            self.refuse(opening, "this '(' is never closed", "Add a ')'.")
        if closing.role != Role.CLOSE:
            self.refuse_rest()
        self.at += 1
        self.nesting -= 1
        return inner

    def name(self) -> _Name:
        first = self.words[self.at]
        self.at += 1
        path, end = [first.text], first.end
        while self.words[self.at].role == Role.DOT:
            self.at += 1
            part = self.words[self.at]
            if part.role not in (Role.NAME, Role.QUOTED_NAME, Role.KEYWORD):
                self.refuse(part, "a name is expected after the dot", "Quote odd names: a.`b c`.")
            self.at += 1
            written = part.text if part.role != Role.KEYWORD else self.text[part.start : part.end]
            path.append(written)
            end = part.end
        if "" in path:
            self.refuse(
                first, "a quoted name is empty", "Write the attribute's name in the backticks."
            )
        if len(path) > NESTING_MAX:
            self.refuse(first, f"the name has more than {NESTING_MAX} parts", "Shorten it.")
        if self.words[self.at].role == Role.OPEN:
            self.refuse(first, f"functions such as {excerpt_of(first.text)}(…) are not supported")
        return _Name(first.start, end, tuple(path))

    def literal_list(self) -> tuple[int, list[tuple[KindClass, Any]]]:
        self.take(Role.OPEN, "'(' after IN")
        literals = []
        while True:
            literals.append(self.literal("a value of the IN list")[2:])
            if self.words[self.at].role != Role.COMMA:
                break
            self.at += 1
        return self.take(Role.CLOSE, "',' or ')' of the IN list").end, literals

    def literal(self, expected: str) -> _Literal:
        word = self.words[self.at]
        role = word.role
        if role == Role.STRING:
            self.at += 1
            return _Literal(word.start, word.end, _STRING, word.text)
        if role == Role.NUMBER:
            self.at += 1
            return _Literal(word.start, word.end, _NUMBER, self.number(word, word.text))
        if role == Role.MINUS or role == Role.PLUS or role == Role.DOT:
            return self.signed_number(word, expected)
        if role == Role.KEYWORD and word.text in ("TRUE", "FALSE"):
            self.at += 1
            truth = int(word.text == "TRUE")
            return _Literal(word.start, word.end, _BOOLEAN, truth)
        if role == Role.NAME and self.words[self.at + 1].role == Role.STRING:
            return self.typed_literal(word)
        return self.refuse_literal(word, expected)

    def signed_number(self, word: Word, expected: str) -> _Literal:
        """A number with a sign, or one that starts with its point; sqlglot splits both off."""
        ahead = self.at
        written = ""
        if word.role != Role.DOT:
            written = "-" if word.role == Role.MINUS else ""
            ahead += 1
        if (
            self.words[ahead].role == Role.DOT
            and self.words[ahead].end == self.words[ahead + 1].start
        ):
            written += "."
            ahead += 1
        digits = self.words[ahead]
        if digits.role != Role.NUMBER or (written.endswith(".") and "." in digits.text):
            return self.refuse_literal(word, expected)
        self.at = ahead + 1
        key = self.number(digits, written + digits.text)
        return _Literal(word.start, digits.end, _NUMBER, key)

    def refuse_literal(self, word: Word, expected: str) -> NoReturn:
        if word.role == Role.KEYWORD and word.text == "NULL":
            self.refuse(word, "nothing compares with NULL", "Use IS NULL or IS NOT NULL.")
        if word.role == Role.END:
            self.refuse(word, f"the filter ends where {expected} is expected")
        if word.role == Role.NAME and word.text.upper() == "SELECT":
            self.refuse(word, "subqueries are not supported")
        if word.role in (Role.NAME, Role.QUOTED_NAME):
            self.refuse(
                word,
                f"{expected} must be a value, and {shown(word.text)} is a name",
                f"If it is text, write it in quotes: '{excerpt_of(word.text)}'.",
            )
        if word.text == "!":
            self.refuse(word, "'!' is not understood here", "Write NOT.")
        if word.text[:1] in _TYPOGRAPHIC_QUOTES and word.text:
            self.refuse(word, "typographic quotes are not understood", "Use straight ones: 'text'.")
        self.refuse(word, f"{shown(word.text)} is not understood where {expected} is expected")

    def number(self, word: Word, written: str) -> Any:
        """Without an exponent a number is exact; with one it is a float, as in Spark."""
        if len(written) > NUMBER_DIGITS_MAX and sum(map(str.isdigit, written)) > NUMBER_DIGITS_MAX:
            self.refuse(word, f"the number has more than {NUMBER_DIGITS_MAX} digits", "Shorten it.")
        try:
            if "e" not in written and "E" not in written:
                return exact_number(written)
            value = float(written)
        except (ValueError, ArithmeticError):
            self.refuse(word, f"{shown(written)} is no number that is understood")
        if isinf(value):
            self.refuse(word, f"{written} is beyond the range of a float", "Leave the bound out.")
        return number_key(value)

    def typed_literal(self, word: Word) -> _Literal:
        quoted = self.words[self.at + 1]
        kind = word.text.upper()
        if kind not in _TYPED_LITERALS:
            self.refuse(word, f"{excerpt_of(word.text)} '…' is not supported")
        self.at += 2
        if kind == "DATE":
            day = parse_date(quoted.text)
            if day is None:
                self.refuse(quoted, f"{shown(quoted.text)} is no date", "Write DATE '2024-12-31'.")
            return _Literal(word.start, quoted.end, KindClass.DATE, date_key(day))
        moment = parse_timestamp(quoted.text)
        if moment is None:
            self.refuse(
                quoted,
                f"{shown(quoted.text)} is no timestamp",
                "Write TIMESTAMP '2024-12-31 23:59:59'.",
            )
        return _Literal(word.start, quoted.end, KindClass.TIMESTAMP, timestamp_key(moment))


def _ends_in_lone_backslash(pattern: str) -> bool:
    return (len(pattern) - len(pattern.rstrip("\\"))) % 2 == 1
