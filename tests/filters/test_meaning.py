"""What a filter means: random filters of the whole language against DuckDB and against sqlglot."""

from decimal import Decimal
from typing import Any

import pytest
import sqlglot
from hypothesis import given, note
from hypothesis import strategies as st
from sqlglot import exp

from oracles import duckdb_matches, truth_of
from peersub.events.inference import parse_date, parse_timestamp
from peersub.filters import Filter
from strategies import (
    ALL_LITERALS,
    ALL_VALUES,
    And,
    Between,
    Compare,
    CompareLiterals,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Rlike,
    Tree,
    Truth,
    events,
    examples,
    filters,
    text_of,
    typed_events,
)

spellings = st.integers(0, 2**16)
spelled = st.tuples(filters, spellings)


def _agree_with_duckdb(rows: list[dict[str, Any]], asked: list[tuple[Tree, int]]) -> None:
    expected = duckdb_matches(rows, [tree for tree, _ in asked])
    for (tree, spelling), outcome in zip(asked, expected, strict=True):
        text = text_of(tree, spelling)
        note(text)
        wanted = Filter(text)
        assert [wanted.matches(row) for row in rows] == outcome, text


@examples(40)
@given(typed_events(), st.lists(spelled, min_size=1, max_size=12))
def test_matches_equals_duckdb_on_typed_columns(
    rows: list[dict[str, Any]], asked: list[tuple[Tree, int]]
) -> None:
    _agree_with_duckdb(rows, asked)


@examples(40)
@given(st.lists(events(), min_size=1, max_size=12), st.lists(spelled, min_size=1, max_size=12))
def test_matches_equals_duckdb_on_columns_of_mixed_kinds(
    rows: list[dict[str, Any]], asked: list[tuple[Tree, int]]
) -> None:
    _agree_with_duckdb(rows, asked)


@examples(300)
@given(st.lists(events(), max_size=4), filters, spellings)
def test_matches_equals_direct_evaluation(
    rows: list[dict[str, Any]], tree: Tree, spelling: int
) -> None:
    text = text_of(tree, spelling)
    wanted = Filter(text)
    for row in rows:
        assert wanted.matches(row) is (truth_of(tree, row) is True), (text, row)


@pytest.mark.parametrize("operator", ["=", "<>", "<", "<=", ">", ">="])
def test_each_value_against_each_literal(operator: str) -> None:
    """Random filters and events meet at a bound too rarely: here all do, with and without NOT."""
    for literal in ALL_LITERALS:
        plain = Compare(("a",), operator, literal)
        leaves: list[Tree] = [plain, Between(("a",), literal, literal), In(("a",), (literal,) * 2)]
        for tree in (*leaves, *map(Not, leaves)):
            wanted = Filter(text_of(tree))
            for value in ALL_VALUES:
                expected = truth_of(tree, {"a": value}) is True
                assert wanted.matches({"a": value}) is expected, (wanted, value)


# --- sqlglot's parser ------------------------------------------------------------------------

_OPERATORS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _path(node: exp.Expression) -> tuple[str, ...]:
    if isinstance(node, exp.Dot):
        return (*_path(node.this), *_path(node.expression))
    if isinstance(node, exp.Column):
        return tuple(part.name for part in node.parts)
    assert isinstance(node, exp.Identifier), node
    return (node.name,)


def _literal(node: exp.Expression) -> Literal:
    match node:
        case exp.Paren():
            return _literal(node.this)
        case exp.Neg():
            return Literal("number", -_literal(node.this).value)
        case exp.Boolean():
            return Literal("boolean", node.this)
        case exp.Cast():
            parse = parse_date if node.to.this is exp.DataType.Type.DATE else parse_timestamp
            return Literal(node.to.this.name.lower(), parse(node.this.name))
        case exp.RawString():
            return Literal("string", node.this)
        case exp.Literal() if node.is_string:
            return Literal("string", node.this)
    number = float(node.name) if "e" in node.name.lower() else Decimal(node.name)
    return Literal("number", number)


def _is_name(node: exp.Expression) -> bool:
    return isinstance(node.unnest(), exp.Column | exp.Dot | exp.Identifier)


def _tree(node: exp.Expression) -> Tree:
    """What sqlglot understood."""
    node = node.unnest()
    return Not(_positive(node)) if node.args.get("negate") else _positive(node)


def _positive(node: exp.Expression) -> Tree:
    match node:
        case exp.And():
            return And((_tree(node.left), _tree(node.right)))
        case exp.Or():
            return Or((_tree(node.left), _tree(node.right)))
        case exp.Not():
            return Not(_tree(node.this))
        case exp.Boolean():
            return Constant(node.this)
        case exp.Between():
            return Between(
                _path(node.this), _literal(node.args["low"]), _literal(node.args["high"])
            )
        case exp.In():
            return In(_path(node.this), tuple(map(_literal, node.expressions)))
        case exp.Like():
            return Like(_path(node.this), node.expression.name)
        case exp.RegexpLike():
            return Rlike(_path(node.this), node.expression.name)
        case exp.Is():
            return IsNull(_path(node.this))
    operator = _OPERATORS.get(type(node))
    if operator is None:
        return Truth(_path(node))
    left, right = node.left.unnest(), node.right.unnest()
    if _is_name(left):
        return Compare(_path(left), operator, _literal(right))
    if _is_name(right):
        return Compare(_path(right), _FLIPPED.get(operator, operator), _literal(left))
    return CompareLiterals(_literal(left), operator, _literal(right))


def _is_plainly_quoted(part: object) -> bool:
    """Escapes are a rule of ours, and sqlglot joins 'it''s' as Spark did before its version 4."""
    if isinstance(part, str):
        return "\\" not in part and "'" not in part and '"' not in part
    if isinstance(part, tuple):
        return all(map(_is_plainly_quoted, part))
    return all(
        _is_plainly_quoted(getattr(part, name)) for name in getattr(part, "__match_args__", ())
    )


@examples(150)
@given(st.lists(events(), min_size=1, max_size=4), filters.filter(_is_plainly_quoted), spellings)
def test_grammar_agrees_with_sqlglot(rows: list[dict[str, Any]], tree: Tree, spelling: int) -> None:
    text = text_of(tree, spelling).replace("+2", "2")  # sqlglot drops no unary plus
    understood = _tree(sqlglot.parse_one(text, read="spark"))
    wanted = Filter(text)
    for row in rows:
        assert wanted.matches(row) is (truth_of(understood, row) is True), (text, understood)


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 OR b = 1 AND date = 1",
        "NOT a = 1 AND b = 1",
        "NOT a = 1 OR b = 1",
        "NOT NOT a IS NULL AND NOT b BETWEEN 1 AND 2 AND a <> 3 OR a",
        "NOT (a = 1 OR b = 1) AND a IN (1, 2) OR b NOT LIKE 'a%' AND a",
        "a BETWEEN 1 AND 2 AND b BETWEEN 0 AND 1 OR NOT a",
    ],
)
def test_precedence_is_that_of_sqlglot(text: str) -> None:
    understood = _tree(sqlglot.parse_one(text, read="spark"))
    domain = [None, True, False, 0, 1, 2, 3, "a", "b"]
    for a in domain:
        for b in domain:
            row = {"a": a, "b": b, "date": a}
            assert Filter(text).matches(row) is (truth_of(understood, row) is True), row
