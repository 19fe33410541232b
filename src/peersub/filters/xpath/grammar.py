"""From the text of an XPath expression to a tree pattern, or to an error that points at its place.

    pattern    = ("/" | "//") path
    path       = step (("/" | "//") step)* ["/" ("@" name | text)]  |  "@" name  |  text
    step       = (name | "*") predicate*
    text       = "text()" ("[" "." operator literal ("and" "." operator literal)* "]")*
    predicate  = "[" test ("and" test)* "]"
    test       = operand [operator literal]  |  literal operator operand
    operand    = "."  |  ["./" | ".//"] path
    operator   = "=" | "!=" | "<" | "<=" | ">" | ">="
    literal    = string | ["-"] number

`//` before `@a` or `text()` means "here or below", which is no tree pattern, except at the very
start. Names are local names: the namespaces of a document's elements are ignored, and
attributes that are in a namespace are not seen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import isnan
from typing import Final, NamedTuple, NoReturn

from peersub.filters.errors import FilterError
from peersub.filters.xpath.conditions import (
    ANY_TEXT,
    Condition,
    condition_of,
    conjunction,
    literal_number,
    number_of,
)
from peersub.filters.xpath.limits import (
    LITERAL_DIGITS_MAX,
    PATTERN_CHARACTERS_MAX,
    PATTERN_PARTS_MAX,
)
from peersub.filters.xpath.pattern import (
    PatternNode,
    fewest_text_conditions,
    text_node_condition,
)

__all__ = ["parse_pattern"]

SUPPORTED: Final = (
    "Supported: / and //, names and *, [ ] with paths, @name, text() and . "
    "compared by = != < <= > >= with a string or a number, joined by `and`."
)

_START = (
    "A-Z_a-z\xc0-\xd6\xd8-\xf6\xf8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f"
    "\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_NAME = f"[{_START}][{_START}0-9.\xb7\u0300-\u036f\u203f-\u2040-]*"
_TOKEN = re.compile(
    rf"""[ \t\r\n]*(?:
        (?P<name>{_NAME})
      | (?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)
      | (?P<string>"[^"]*"|'[^']*')
      | (?P<symbol>//|::|\.\.|!=|<=|>=|[]/[.@*()=<>|$,+:-])
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_OPERATORS: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Each operator, and the one that says the same with its sides exchanged."""


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


@dataclass(slots=True)
class _Step:
    """A node under construction."""

    is_descendant: bool
    label: str | None
    attributes: dict[str, Condition | None] = field(default_factory=dict)
    value: Condition | None = ANY_TEXT
    texts: list[Condition | None] = field(default_factory=list)
    branches: list[_Step] = field(default_factory=list)

    def built(self) -> PatternNode | None:
        """The node; None if nothing can satisfy it."""
        texts = [None if text is None else text_node_condition(text) for text in self.texts]
        branches = [branch.built() for branch in self.branches]
        satisfiable = [condition for condition in self.attributes.values() if condition is not None]
        kept_texts = [text for text in texts if text is not None]
        kept_branches = [branch for branch in branches if branch is not None]
        if (
            self.value is None
            or len(satisfiable) < len(self.attributes)
            or len(kept_texts) < len(texts)
            or len(kept_branches) < len(branches)
        ):
            return None
        return PatternNode(
            self.is_descendant,
            self.label,
            tuple(sorted(zip(self.attributes, satisfiable, strict=True))),
            self.value,
            fewest_text_conditions(kept_texts),
            tuple(kept_branches),
        )


class _Operand(NamedTuple):
    """What a comparison looks at: a text of a step."""

    step: _Step
    subject: str
    """`.`, `text()` or the name of an attribute with its @."""


def parse_pattern(text: str) -> PatternNode | None:
    """The tree pattern of an XPath expression, as it is written; None if no document can match it.

    Raises:
        FilterError: the text is outside of the supported fragment.
    """
    if len(text) > PATTERN_CHARACTERS_MAX:
        problem = f"a pattern has at most {PATTERN_CHARACTERS_MAX:,} characters"
        raise FilterError(text, PATTERN_CHARACTERS_MAX, problem, "Split it into several patterns.")
    return _Parser(text).pattern().built()


class _Parser:
    """Recursive descent over the tokens; one method per rule of the grammar."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self._tokens())
        self.place = 0
        self.parts = 0

    def _tokens(self) -> list[_Token]:
        foreign = _NOT_IN_XML.search(self.text)
        if foreign:
            self._refuse(foreign.start(), "XML has no such character", "Remove it.")
        found = []
        end = 0
        while True:
            match = _TOKEN.match(self.text, end)
            if match is None:
                self._refuse_character(end)
            kind = match.lastgroup
            assert kind is not None
            found.append(_Token(kind, match[kind], match.start(kind)))
            if kind == "end":
                return found
            end = match.end()

    def _refuse_character(self, end: int) -> NoReturn:
        start = end + len(self.text[end:]) - len(self.text[end:].lstrip(" \t\r\n"))
        character = self.text[start]
        if character in "'\"":
            self._refuse(start, "the string has no end", f"Close it with {character}.")
        self._refuse(start, f"{character!r} is not supported in a pattern")

    def _refuse(self, position: int, problem: str, remedy: str = SUPPORTED) -> NoReturn:
        raise FilterError(self.text, position, problem, remedy)

    # --- tokens --------------------------------------------------------------------------------

    @property
    def _next(self) -> _Token:
        return self.tokens[self.place]

    def _take(self) -> _Token:
        token = self.tokens[self.place]
        self.place += 1
        return token

    def _accept(self, *symbols: str) -> _Token | None:
        """The next token if it is one of the symbols."""
        token = self.tokens[self.place]
        return self._take() if token.kind == "symbol" and token.text in symbols else None

    def _expect(self, symbol: str, problem: str) -> None:
        if not self._accept(symbol):
            self._refuse_next(problem)

    def _refuse_next(self, problem: str) -> NoReturn:
        """Refuse what comes next: with its own advice if it is a known part of XPath."""
        token = self._next
        known = _ADVICE.get(token.text)
        if known:
            self._refuse(token.start, *known)
        found = "the pattern ends here" if token.kind == "end" else f"found {token.text!r}"
        self._refuse(token.start, f"{problem}, but {found}")

    def _count(self, position: int) -> None:
        self.parts += 1
        if self.parts > PATTERN_PARTS_MAX:
            problem = f"a pattern has at most {PATTERN_PARTS_MAX} steps and comparisons"
            self._refuse(position, problem, "Split it into several patterns.")

    # --- paths ---------------------------------------------------------------------------------

    def pattern(self) -> _Step:
        """The whole pattern."""
        axis = self._accept("/", "//")
        if not axis:
            if self._next.kind == "name":
                problem = "a pattern starts at the document: with / or //"
                self._refuse(self._next.start, problem, f"Write //{self._next.text} for anywhere.")
            self._refuse_next("a pattern starts with / or //")
        document = _Step(False, None)
        self._demand(self._path(document, axis), ANY_TEXT)
        if self._next.kind != "end":
            self._refuse_after_pattern()
        (top,) = document.branches
        return top

    def _refuse_after_pattern(self) -> NoReturn:
        token = self._next
        if token.kind == "symbol" and token.text in _OPERATORS:
            problem = "a pattern is a path; comparisons stand in brackets"
            self._refuse(token.start, problem, "Write //a[b > 10] in place of //a/b > 10.")
        if token.kind == "name" and token.text == "and":
            problem = "`and` stands in brackets only"
            self._refuse(token.start, problem, "Write /a[b and c] in place of /a/b and /a/c.")
        self._refuse_next("the pattern should end or go on with /, // or [")

    def _path(self, context: _Step, axis: _Token | None) -> _Operand:
        """The steps of a path below the context, and the text at its end.

        `axis` is the token before the first step; None is the child axis, not written.
        """
        step = context
        while True:
            is_descendant = axis is not None and axis.text == "//"
            is_at_start = axis is self.tokens[0]
            position = self._next.start
            subject = self._subject(is_descendant and not is_at_start)
            if subject:
                if is_at_start and not is_descendant:
                    self._refuse(position, "the document itself has no attributes and no text")
                if is_at_start:
                    step = self._hang(step, _Step(True, None), position)
                return self._bracketed(_Operand(step, subject))
            label = self._label()
            step = self._hang(step, _Step(is_descendant, label), position)
            while self._accept("["):
                self._predicate(step)
            axis = self._accept("/", "//")
            if axis is None:
                return _Operand(step, ".")

    def _hang(self, parent: _Step, step: _Step, position: int) -> _Step:
        self._count(position)
        parent.branches.append(step)
        return step

    def _subject(self, is_here_or_below: bool) -> str | None:
        """An attribute or text() at the end of a path, if there is one."""
        start = self._next.start
        if self._accept("@"):
            token = self._take()
            if token.kind != "name":
                self._refuse(token.start, "@ takes the name of one attribute")
            self._refuse_prefix(token)
            subject = f"@{token.text}"
            if self._next.text == "[":
                self._refuse(self._next.start, "an attribute has nothing below it")
        elif self._next.text == "text" and self.tokens[self.place + 1].text == "(":
            self.place += 2
            self._expect(")", "text() takes no arguments")
            subject = "text()"
        else:
            return None
        if is_here_or_below:
            self._refuse(
                start,
                f"//{subject} means here or below, which is no tree pattern",
                f"Write /{subject} or //*/{subject}.",
            )
        if self._next.text in ("/", "//"):
            self._refuse(self._next.start, f"{subject} has nothing below it")
        return subject

    def _label(self) -> str | None:
        if self._accept("*"):
            return None
        if self._next.kind != "name":
            self._refuse_next("expected the name of an element or *")
        token = self._take()
        self._refuse_prefix(token)
        if self._next.text == "(":
            self._refuse(token.start, f"{token.text}() is not supported")
        return token.text

    def _refuse_prefix(self, name: _Token) -> None:
        if self._next.text == "::":
            self._refuse(name.start, f"the axis {name.text}:: is not supported")
        if self._next.text == ":":
            problem = f"prefixes such as {name.text}: are not supported"
            self._refuse(name.start, problem, "Write the local name: namespaces are ignored.")

    # --- predicates ----------------------------------------------------------------------------

    def _predicate(self, step: _Step) -> None:
        """What stands in brackets after a step; the opening one is taken."""
        while True:
            self._test(step)
            if self._accept("]"):
                return
            if self._next.kind == "name" and self._next.text == "and":
                self._take()
            else:
                self._refuse_next("expected ] or `and`")

    def _test(self, context: _Step) -> None:
        if self._starts_literal():
            position = self._next.start
            literal = self._literal()
            operator = self._accept(*_OPERATORS)
            if operator is None:
                problem = "a literal alone is no test, and positions are not supported"
                self._refuse(position, problem, "Compare a text with it: [@a = 1], [. = 'v'].")
            operand = self._operand(context)
            self._demand(operand, self._condition(_OPERATORS[operator.text], literal))
            return
        start = self._next.start
        operand = self._operand(context)
        operator = self._accept(*_OPERATORS)
        if operator is None:
            if operand.step is context and operand.subject == ".":
                self._refuse(start, "`.` alone is always there", "Compare it: [. = 'text'].")
            self._demand(operand, ANY_TEXT)
            return
        if not self._starts_literal():
            if self._next.kind in ("name", "symbol") and self._next.text not in "])":
                problem = "texts compare with a string or a number only"
                self._refuse(self._next.start, problem, "Put strings in quotes: [a = 'b'].")
            self._refuse_next(f"expected a string or a number after {operator.text}")
        self._demand(operand, self._condition(operator.text, self._literal()))

    def _operand(self, context: _Step) -> _Operand:
        if self._next.text in ("/", "//"):
            problem = "a path in brackets starts at the element before them"
            self._refuse(self._next.start, problem, "Write .//a for anywhere below it.")
        if not self._accept("."):
            return self._path(context, None)
        axis = self._accept("/", "//")
        return _Operand(context, ".") if axis is None else self._path(context, axis)

    def _bracketed(self, operand: _Operand) -> _Operand:
        """`text()[. > 5 and . < 9]`: several comparisons of one text node."""
        if operand.subject != "text()" or self._next.text != "[":
            return operand
        joined: Condition | None = ANY_TEXT
        while self._accept("["):
            while True:
                self._expect(".", "a bracket after text() compares `.`")
                operator = self._accept(*_OPERATORS)
                if operator is None or not self._starts_literal():
                    self._refuse_next("expected a comparison with a string or a number")
                condition = self._condition(operator.text, self._literal())
                joined = None if joined is None else conjunction(joined, condition)
                if self._accept("]"):
                    break
                if not (self._next.kind == "name" and self._next.text == "and"):
                    self._refuse_next("expected ] or `and`")
                self._take()
        if self._next.text in _OPERATORS:
            self._refuse_next("expected ] or `and`")
        operand.step.texts.append(joined)
        # What is left to demand is that the path is there.
        return _Operand(operand.step, "")

    def _demand(self, operand: _Operand, condition: Condition) -> None:
        """Ask for the condition on the operand's text."""
        step, subject = operand
        if subject == ".":
            if condition is not ANY_TEXT:
                step.value = None if step.value is None else conjunction(step.value, condition)
        elif subject == "text()":
            self._count_existence(condition)
            step.texts.append(condition)
        elif subject:
            self._count_existence(condition)
            name = subject[1:]
            held = step.attributes.get(name, ANY_TEXT)
            step.attributes[name] = None if held is None else conjunction(held, condition)

    def _count_existence(self, condition: Condition) -> None:
        """Comparisons are counted where they are read; bare `@a` and `text()` here."""
        if condition is ANY_TEXT:
            self._count(self._next.start)

    def _starts_literal(self) -> bool:
        token = self._next
        return token.kind in ("string", "number") or token.text == "-"

    def _literal(self) -> tuple[str | float, _Token]:
        minus = self._accept("-")
        token = self._take()
        if token.kind == "string" and not minus:
            return token.text[1:-1], token
        if token.kind != "number":
            self._refuse(token.start, "expected a number after -")
        after = self._next
        if after.kind == "name" and after.start == token.start + len(token.text):
            remedy = "Write the number without letters: 1000 in place of 1e3."
            self._refuse(token.start, f"{token.text}{after.text} is no number of XPath", remedy)
        return self._number(("-" if minus else "") + token.text, token), token

    def _number(self, written: str, token: _Token) -> float:
        number = literal_number(written)
        if number is None:
            self._refuse(
                token.start,
                f"a number in a pattern has at most {LITERAL_DIGITS_MAX} digits",
                f"XPath's numbers are 64-bit floats; compare text instead: = '{token.text[:40]}'.",
            )
        return number

    def _condition(self, operator: str, literal: tuple[str | float, _Token]) -> Condition:
        value, token = literal
        self._count(token.start)
        if isinstance(value, str) and operator not in ("=", "!="):
            number = number_of(value)
            if isnan(number):
                self._refuse(
                    token.start,
                    f"{token.text} is no number, and {operator} orders numbers only",
                    "XPath 1.0 has no order of strings: compare with =, !=, or a number.",
                )
            written = value.strip(" \t\r\n")
            if not re.fullmatch(r"-?[0-9]*\.?[0-9]*", written):
                self._refuse(token.start, f"{token.text} should be written as a plain number")
            value = self._number(written, token)
        return condition_of(operator, value)


_NO_LOGIC = "Only `and` joins tests. Subscribe to several patterns in place of `or`."
_ADVICE: Final[dict[str, tuple[str, str]]] = {
    "..": ("steps upwards are not supported", "Write a[b] in place of b/.. below a."),
    "|": ("unions of paths are not supported", "Subscribe to each path by itself."),
    "or": ("`or` is not supported", _NO_LOGIC),
    "div": ("arithmetic is not supported", SUPPORTED),
    "mod": ("arithmetic is not supported", SUPPORTED),
    "$": ("variables are not supported", "Write the value itself."),
    "(": ("parentheses are not supported", _NO_LOGIC),
}
