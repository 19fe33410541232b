"""Hypothesis strategies that tests share: values of all kinds, events, and filters.

A random filter is a tree of the small classes below. The tree is rendered as text for peersub, and
by `oracles` as SQL for DuckDB or evaluated directly: whatever judges peersub never reads peersub's
own parse. Names and values come from small pools, so that filters and events meet.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

__all__ = [
    "ALL_LITERALS",
    "ALL_VALUES",
    "And",
    "Between",
    "Compare",
    "CompareLiterals",
    "Constant",
    "In",
    "IsNull",
    "Like",
    "Literal",
    "Not",
    "Or",
    "Rlike",
    "Truth",
    "events",
    "examples",
    "filter_texts",
    "filters",
    "text_of",
    "values",
]

STANDARD_EXAMPLES = 100


def examples(few: int) -> settings:
    """As many examples as the profile asks for; `few` under the standard one, to stay quick."""
    wanted = settings().max_examples
    return settings(max_examples=few if wanted <= STANDARD_EXAMPLES else wanted)


# --- trees -------------------------------------------------------------------------------

Path = tuple[str, ...]


@dataclass(frozen=True)
class Literal:
    """A value as it is written; kind is number, string, boolean, date or timestamp."""

    kind: str
    value: Any
    written: str | None = None


@dataclass(frozen=True)
class Compare:
    path: Path
    operator: str
    literal: Literal


@dataclass(frozen=True)
class CompareLiterals:
    left: Literal
    operator: str
    right: Literal


@dataclass(frozen=True)
class Between:
    path: Path
    lower: Literal
    upper: Literal


@dataclass(frozen=True)
class In:
    path: Path
    literals: tuple[Literal, ...]


@dataclass(frozen=True)
class Like:
    path: Path
    pattern: str


@dataclass(frozen=True)
class Rlike:
    path: Path
    pattern: str


@dataclass(frozen=True)
class IsNull:
    path: Path


@dataclass(frozen=True)
class Truth:
    """A bare attribute: true iff it is TRUE."""

    path: Path


@dataclass(frozen=True)
class Constant:
    value: bool


@dataclass(frozen=True)
class Not:
    part: "Tree"


@dataclass(frozen=True)
class And:
    parts: tuple["Tree", ...]


@dataclass(frozen=True)
class Or:
    parts: tuple["Tree", ...]


Leaf = Compare | CompareLiterals | Between | In | Like | Rlike | IsNull | Truth | Constant
Tree = Leaf | Not | And | Or

# --- values ------------------------------------------------------------------------------

PATHS: tuple[Path, ...] = (("a",), ("b",), ("date",), ("c d",), ("n", "x"), ("n", "m", "y.z"))

_INTEGERS = [0, 1, 2, 3, -1, -2, 10, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**63, -(2**63)]
_FLOATS = [0.0, -0.0, 0.1, 0.5, 1.0, 1.5, 2.0, -1.5, 2.0**53, 2.0**63, 0.1 + 0.2, 1.5e-5, 1e20]
_UNUSUAL_FLOATS = [float("inf"), float("-inf"), float("nan")]
_DECIMALS = [
    Decimal(t) for t in ("0.1", "1.50", "2", "0.30000000000000004", "-1.5", "0E+3", "1E+2")
]
_DECIMALS += [Decimal("9007199254740993"), Decimal("123456789012345678.5"), Decimal("0.3")]
_TEXTS = ["", "a", "ab", "abc", "abd", "b", "B", "%", "_", "a%", "a_c", "\\", "a\\b", "it's", '"q"']
_TEXTS += [
    "é",
    "e\u0301",
    "日本",
    "日本語",
    "😀",
    "a😀",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "\U0010ffff",
]
_TEXTS += ["a\nb", "\t", "a\0b", "1", "true", "2024-05-01", "a b", "`", "--", "/*"]
_DAYS = [date(2024, 5, 1), date(2024, 5, 2), date(1969, 12, 31), date(1, 1, 1), date(9999, 12, 31)]
_MOMENTS = [
    datetime(2024, 5, 1),  # noqa: DTZ001 - a timestamp without a zone is UTC: that is a rule
    datetime(2024, 5, 1, tzinfo=UTC),
    datetime(2024, 5, 1, 2, tzinfo=timezone(timedelta(hours=2))),
    datetime(2024, 5, 1, 0, 0, 0, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
]
_OTHERS: list[Any] = [[1], b"a", {}, {"x": 1}, (), timedelta(1), 1j]

numbers = st.sampled_from(_INTEGERS + _FLOATS + _DECIMALS) | st.integers(-5, 5)
texts = st.sampled_from(_TEXTS) | st.text(st.sampled_from("ab%_\\é'"), max_size=4)
days = st.sampled_from(_DAYS)
moments = st.sampled_from(_MOMENTS)

values: st.SearchStrategy[Any] = st.one_of(
    numbers,
    st.sampled_from(_UNUSUAL_FLOATS),
    texts,
    st.booleans(),
    days,
    moments,
    st.sampled_from(_OTHERS),
    st.none(),
)


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    """An event in which each attribute of PATHS may be there, with any kind of value."""
    event: dict[str, Any] = {}
    for path in PATHS:
        if not draw(st.booleans()):
            continue
        record = event
        for name in path[:-1]:
            inner = record.setdefault(name, {})
            record = inner if isinstance(inner, dict) else {}
        record[path[-1]] = draw(values)
    return event


@st.composite
def typed_events(draw: st.DrawFn, rows: int = 12) -> list[dict[str, Any]]:
    """Rows in which each attribute has one kind, as in a table; some are missing."""
    kinds = {
        path: draw(st.sampled_from([numbers, texts, st.booleans(), days, moments]))
        for path in PATHS
    }
    table: list[dict[str, Any]] = []
    for _ in range(rows):
        row: dict[str, Any] = {}
        for path, kind in kinds.items():
            record = row
            for name in path[:-1]:
                record = record.setdefault(name, {})
            record[path[-1]] = draw(st.none() | kind)
        table.append(row)
    return table


# --- filters -----------------------------------------------------------------------------


def _number_literal(value: Any) -> Literal:
    if isinstance(value, float):
        return Literal("number", value, repr(value) if "e" in repr(value) else f"{value!r}e0")
    return Literal(
        "number", value, format(value, "f") if isinstance(value, Decimal) else str(value)
    )


_WRITTEN_NUMBERS = ["5.", ".5", "+2", "1E2", "-0.0", "007", "1.50", "2e0", "1e-5", "15e-1", "- 1"]
_written_numbers = st.sampled_from(
    [
        Literal("number", float(t) if "e" in t.lower() else Decimal(t.replace(" ", "")), t)
        for t in _WRITTEN_NUMBERS
    ]
)
number_literals = st.one_of(numbers.map(_number_literal), _written_numbers)
text_literals = texts.map(lambda text: Literal("string", text))
day_literals = days.map(lambda day: Literal("date", day))
moment_literals = moments.map(lambda moment: Literal("timestamp", moment))
boolean_literals = st.booleans().map(lambda truth: Literal("boolean", truth))
literals = st.one_of(
    number_literals, number_literals, text_literals, day_literals, moment_literals, boolean_literals
)

ALL_VALUES: list[Any] = [None, True, False, *_INTEGERS, *_FLOATS, *_UNUSUAL_FLOATS, *_DECIMALS]
ALL_VALUES += [*_TEXTS, *_DAYS, *_MOMENTS, *_OTHERS]
ALL_LITERALS: list[Literal] = [
    *map(_number_literal, [*_INTEGERS, *_FLOATS, *_DECIMALS]),
    *(Literal("string", text) for text in _TEXTS),
    *(Literal("date", day) for day in _DAYS),
    *(Literal("timestamp", moment) for moment in _MOMENTS),
    *(Literal("boolean", truth) for truth in (False, True)),
]

paths = st.sampled_from(PATHS)
operators = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
_escaped = st.sampled_from(["%", "_", "a", "b", "ab", "é", "'", "\\\\", "\\%", "\\_", "\n"])
like_patterns = st.lists(_escaped, max_size=5).map("".join)
# What RE2 and Python's re read alike.
regular_expressions = st.sampled_from(
    [
        *("a", "^a", "b$", "^a.*b$", "a|b", "[ab]+", "^$", "", "(?i)AB", "a{2}", "^[^a]", "\\."),
        *("a\\b", "é", "日.", "^.$", "\\d+", "[%_]", "\\\\", "'", "(a|b)+c?", "^\\w*$"),
    ]
)


@st.composite
def _literal_pairs(draw: st.DrawFn) -> tuple[Literal, Literal]:
    one_kind = draw(
        st.sampled_from([number_literals, text_literals, day_literals, moment_literals])
    )
    return draw(one_kind), draw(one_kind)


_mixed_pairs = st.tuples(literals, literals)
leaves: st.SearchStrategy[Leaf] = st.one_of(
    st.builds(Compare, paths, operators, literals),
    st.builds(Compare, paths, operators, literals),
    st.builds(
        lambda pair, operator: CompareLiterals(pair[0], operator, pair[1]),
        _literal_pairs(),
        operators,
    ),
    st.builds(lambda path, pair: Between(path, *pair), paths, _literal_pairs() | _mixed_pairs),
    st.builds(In, paths, st.lists(literals, min_size=1, max_size=4).map(tuple)),
    st.builds(Like, paths, like_patterns),
    st.builds(Rlike, paths, regular_expressions),
    st.builds(IsNull, paths),
    st.builds(Truth, paths),
    st.builds(Constant, st.booleans()),
)


def _grown(parts: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    several = st.lists(parts, min_size=2, max_size=3).map(tuple)
    return st.one_of(st.builds(Not, parts), st.builds(And, several), st.builds(Or, several))


filters: st.SearchStrategy[Tree] = st.recursive(leaves, _grown, max_leaves=6)


# --- text --------------------------------------------------------------------------------

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LEVELS = {Or: 1, And: 2, Not: 3}


class _Writer:
    """Writes a tree, choosing among the spellings that mean the same."""

    def __init__(self, spelling: int) -> None:
        self.choose = random.Random(spelling)

    def word(self, keyword: str) -> str:
        return self.choose.choice([keyword, keyword, keyword.lower(), keyword.capitalize()])

    def name(self, path: Path) -> str:
        parts = []
        for part in path:
            plain = part.isidentifier() and self.choose.random() < 0.7
            parts.append(part if plain else "`" + part.replace("`", "``") + "`")
        return self.choose.choice([".", ".", " . "]).join(parts)

    def string(self, text: str) -> str:
        if "'" not in text and not text.endswith("\\") and self.choose.random() < 0.2:
            return f"r'{text}'"
        escaped = text.replace("\\", "\\\\")
        if self.choose.random() < 0.3:
            escaped = escaped.replace("\n", "\\n").replace("\t", "\\t").replace("\0", "\\0")
        if self.choose.random() < 0.3:
            return '"' + escaped.replace('"', '\\"') + '"'
        return "'" + escaped.replace("'", self.choose.choice(["''", "\\'"])) + "'"

    def pattern(self, pattern: str) -> str:
        """A LIKE pattern; a backslash before a wildcard may stay single."""
        if "'" in pattern or self.choose.random() < 0.6:
            return self.string(pattern)
        pieces = pattern.split("\\\\")
        return "'" + "\\\\\\\\".join(pieces) + "'"

    def literal(self, literal: Literal) -> str:
        if literal.written is not None:
            return literal.written
        if literal.kind == "string":
            return self.string(literal.value)
        if literal.kind == "boolean":
            return self.word("TRUE" if literal.value else "FALSE")
        if literal.kind == "date":
            return f"{self.word('DATE')} '{literal.value.isoformat()}'"
        return f"{self.word('TIMESTAMP')} '{literal.value.isoformat(sep=self.choose.choice(' T'))}'"

    def operator(self, operator: str) -> str:
        return {"=": self.choose.choice(["=", "=="]), "<>": self.choose.choice(["<>", "!="])}.get(
            operator, operator
        )

    def leaf(self, leaf: Leaf, negation: str = "") -> str:
        match leaf:
            case Compare(path, operator, literal):
                left, right = self.name(path), self.literal(literal)
                if self.choose.random() < 0.2:
                    left, right, operator = right, left, _FLIPPED.get(operator, operator)
                return f"{left} {self.operator(operator)} {right}"
            case CompareLiterals(left, operator, right):
                return f"{self.literal(left)} {self.operator(operator)} {self.literal(right)}"
            case Between(path, lower, upper):
                bounds = f"{self.literal(lower)} {self.word('AND')} {self.literal(upper)}"
                return f"{self.name(path)} {negation}{self.word('BETWEEN')} {bounds}"
            case In(path, literals):
                listed = ", ".join(map(self.literal, literals))
                return f"{self.name(path)} {negation}{self.word('IN')} ({listed})"
            case Like(path, pattern):
                return f"{self.name(path)} {negation}{self.word('LIKE')} {self.pattern(pattern)}"
            case Rlike(path, pattern):
                word = self.word(self.choose.choice(["RLIKE", "REGEXP"]))
                return f"{self.name(path)} {negation}{word} {self.string(pattern)}"
            case IsNull(path):
                return f"{self.name(path)} {self.word('IS')} {negation}{self.word('NULL')}"
            case Truth(path):
                return self.name(path)
            case Constant(value):
                return self.word("TRUE" if value else "FALSE")

    def tree(self, tree: Tree, level: int = 0) -> str:
        match tree:
            case And(parts):
                text = f" {self.word('AND')} ".join(self.tree(part, 2) for part in parts)
            case Or(parts):
                text = f" {self.word('OR')} ".join(self.tree(part, 1) for part in parts)
            case Not(Between() | In() | Like() | Rlike() | IsNull() as part) if (
                self.choose.random() < 0.5
            ):
                return self.leaf(part, f"{self.word('NOT')} ")
            case Not(part):
                text = f"{self.word('NOT')} {self.tree(part, 3)}"
            case _:
                text = self.leaf(tree)
        needed = _LEVELS.get(type(tree), 9) < level
        return f"({text})" if needed or self.choose.random() < 0.15 else text


def text_of(tree: Tree, spelling: int = 0) -> str:
    """The tree as a filter; `spelling` picks among ways to write the same."""
    return _Writer(spelling).tree(tree)


filter_texts: st.SearchStrategy[str] = st.builds(text_of, filters, st.integers(0, 2**16))


def value_at(event: Mapping[str, Any], path: Path) -> Any:
    """The value at a path, None where there is none; for oracles."""
    value: Any = event
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
