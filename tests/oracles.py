"""What filters mean, by others: DuckDB, and a direct evaluation in three-valued logic.

DuckDB: each attribute becomes one column per kind (a column of mixed kinds fills several), and a
tree becomes a WHERE expression by the table of meanings in docs/filters.md: a comparison reads the
column of its literal's class, NaN is NULL, numbers compare as exact decimals, LIKE escapes with a
backslash, and RLIKE is RE2's search. AND, OR and NOT are DuckDB's own, and so are IN
and BETWEEN where all their values are of one class.

The direct evaluation knows numbers as fractions and patterns as Python's `re` does.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from functools import cache
from math import isinf, isnan, trunc
from typing import Any

import duckdb
import pyarrow as pa

from strategies import (
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
    Path,
    Rlike,
    Tree,
    Truth,
    value_at,
)

__all__ = ["class_of", "duckdb_matches", "truth_of"]

_COLUMNS = {
    "int": pa.int64(),
    "float": pa.float64(),
    "decimal": pa.decimal128(38, 17),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "other": pa.bool_(),
}
_EXACT = "DECIMAL(38, 17)"


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1})
    # A float that is a whole number stands at that integer, any other at its shortest decimal.
    connection.execute(
        f"""CREATE MACRO exact(x) AS CASE
                WHEN x IS NULL OR isnan(x) OR isinf(x) THEN NULL
                WHEN x = trunc(x) THEN CAST(CAST(x AS HUGEINT) AS {_EXACT})
                ELSE CAST(CAST(x AS VARCHAR) AS {_EXACT}) END"""
    )
    return connection


def _naive_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment


def _column_of(value: Any) -> tuple[str, Any] | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, int):
        return ("int", value) if -(2**63) <= value < 2**63 else ("decimal", Decimal(value))
    if isinstance(value, float | Decimal | str):
        return {float: "float", Decimal: "decimal", str: "string"}[type(value)], value
    if isinstance(value, datetime):
        return "timestamp", _naive_utc(value)
    return ("date", value) if isinstance(value, date) else ("other", True)


def _table(rows: Sequence[Mapping[str, Any]], paths: Sequence[Path]) -> pa.Table:
    columns: dict[str, Any] = {"row": pa.array(range(len(rows)), pa.int64())}
    for place, path in enumerate(paths):
        found = [_column_of(value_at(row, path)) for row in rows]
        for column, kind in _COLUMNS.items():
            cells = [cell[1] if cell and cell[0] == column else None for cell in found]
            columns[f"{column}{place}"] = pa.array(cells, kind)
    return pa.table(columns)


class _Sql:
    """A tree as an expression of DuckDB over the columns of `_table`."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.place = {path: place for place, path in enumerate(paths)}

    def comparison(self, path: Path, operator: str, literal: Literal) -> str:
        place = self.place[path]
        if literal.kind != "number":
            return f"({literal.kind}{place} {operator} {_literal(literal)})"
        return (
            f"(CASE WHEN infinite{place} IS NOT NULL THEN infinite{place} {operator} 0"
            f" ELSE number{place} {operator} {_literal(literal)} END)"
        )

    def tree(self, tree: Tree) -> str:
        match tree:
            case Compare(path, operator, literal):
                return self.comparison(path, operator, literal)
            case CompareLiterals(left, operator, right):
                return f"({_literal(left)} {operator} {_literal(right)})"
            case Between(path, lower, upper) if lower.kind == upper.kind != "number":
                bounds = f"{_literal(lower)} AND {_literal(upper)}"
                return f"({lower.kind}{self.place[path]} BETWEEN {bounds})"
            case Between(path, lower, upper):
                bounds = self.comparison(path, ">=", lower), self.comparison(path, "<=", upper)
                return f"({' AND '.join(bounds)})"
            case In(path, literals) if {one.kind for one in literals} <= {literals[0].kind} - {
                "number"
            }:
                listed = ", ".join(map(_literal, literals))
                return f"({literals[0].kind}{self.place[path]} IN ({listed}))"
            case In(path, literals):
                return f"({' OR '.join(self.comparison(path, '=', one) for one in literals)})"
            case Like(path, pattern):
                return f"(string{self.place[path]} LIKE {_quoted(pattern)} ESCAPE '\\')"
            case Rlike(path, pattern):
                return f"regexp_matches(string{self.place[path]}, {_quoted(pattern)})"
            case IsNull(path):
                return f"(NOT present{self.place[path]})"
            case Truth(path):
                return f"boolean{self.place[path]}"
            case Constant(value):
                return str(value).upper()
            case Not(part):
                return f"(NOT {self.tree(part)})"
            case And(parts):
                return f"({' AND '.join(map(self.tree, parts))})"
            case Or(parts):
                return f"({' OR '.join(map(self.tree, parts))})"


def _quoted(text: str) -> str:
    parts = ("'" + part.replace("'", "''") + "'" for part in text.split("\0"))
    return "(" + " || chr(0) || ".join(parts) + ")"


def _literal(literal: Literal) -> str:
    match literal.kind:
        case "number" if isinstance(literal.value, float):
            return f"exact(CAST('{literal.value!r}' AS DOUBLE))"
        case "number":
            return f"CAST('{Decimal(literal.value):f}' AS {_EXACT})"
        case "string":
            return _quoted(literal.value)
        case "boolean":
            return str(literal.value).upper()
        case "date":
            return f"DATE '{literal.value.isoformat()}'"
        case _:
            return f"TIMESTAMP '{_naive_utc(literal.value).isoformat(sep=' ')}'"


def duckdb_matches(rows: Sequence[Mapping[str, Any]], trees: Sequence[Tree]) -> list[list[bool]]:
    """For each tree, whether each row passes WHERE with it."""
    paths = sorted({path for tree in trees for path in _paths(tree)})
    connection = _connection()
    table = _table(rows, paths)
    connection.register("raw", table)
    numbers = [
        f"coalesce(CAST(int{p} AS {_EXACT}), decimal{p}, exact(float{p})) AS number{p},"
        f"CASE WHEN isinf(float{p}) THEN CAST(sign(float{p}) AS INTEGER) END AS infinite{p},"
        f"(coalesce(int{p} IS NOT NULL OR decimal{p} IS NOT NULL OR NOT isnan(float{p}), FALSE)"
        f" OR string{p} IS NOT NULL OR boolean{p} IS NOT NULL OR date{p} IS NOT NULL"
        f" OR timestamp{p} IS NOT NULL OR other{p} IS NOT NULL) AS present{p}"
        for p in range(len(paths))
    ]
    sql = _Sql(paths)
    asked = [f"coalesce({sql.tree(tree)}, FALSE) AS f{n}" for n, tree in enumerate(trees)]
    inner = f"SELECT {', '.join(['*', *numbers])} FROM raw"
    answer = connection.sql(f"SELECT {', '.join(asked)} FROM ({inner}) ORDER BY row").fetchall()
    connection.unregister("raw")
    return [list(column) for column in zip(*answer, strict=True)]


def _paths(tree: Tree) -> set[Path]:
    match tree:
        case And(parts) | Or(parts):
            return set().union(*map(_paths, parts))
        case Not(part):
            return _paths(part)
        case _:
            return {tree.path} if hasattr(tree, "path") else set()


# --- direct evaluation ---------------------------------------------------------------------


def class_of(value: Any) -> tuple[str, Any] | None:
    """The class of a value and something that orders as it does; None for what does not compare."""
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, int):
        return "number", Fraction(value)
    if isinstance(value, float):
        if isnan(value):
            return None
        if isinf(value):
            return "number", value
        return "number", Fraction(value) if value == trunc(value) else Fraction(repr(value))
    if isinstance(value, Decimal):
        return "number", Fraction(value)
    if isinstance(value, str):
        return "string", value
    if isinstance(value, datetime):
        return "timestamp", _naive_utc(value)
    return ("date", value) if isinstance(value, date) else None


_COMPARED = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _compared(left: Any, operator: str, right: Any) -> bool | None:
    a, b = class_of(left), class_of(right)
    if a is None or b is None or a[0] != b[0]:
        return None
    return _COMPARED[operator](a[1], b[1])


def _all(truths: Sequence[bool | None]) -> bool | None:
    if False in truths:
        return False
    return None if None in truths else True


def _negated(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def _like(pattern: str) -> str:
    parts, escaped = [], False
    for character in pattern:
        if escaped or character not in "%_\\":
            parts.append(re.escape(character))
            escaped = False
        elif character == "\\":
            escaped = True
        else:
            parts.append(".*" if character == "%" else ".")
    return "".join(parts)


def truth_of(tree: Tree, event: Mapping[str, Any]) -> bool | None:
    """True, False or None for unknown."""
    match tree:
        case Compare(path, operator, literal):
            return _compared(value_at(event, path), operator, literal.value)
        case CompareLiterals(left, operator, right):
            return _compared(left.value, operator, right.value)
        case Between(path, lower, upper):
            value = value_at(event, path)
            return _all([_compared(value, ">=", lower.value), _compared(value, "<=", upper.value)])
        case In(path, literals):
            value = value_at(event, path)
            return _negated(_all([_negated(_compared(value, "=", one.value)) for one in literals]))
        case Like(path, pattern):
            value = value_at(event, path)
            found = isinstance(value, str) and re.fullmatch(_like(pattern), value, re.DOTALL)
            return bool(found) if isinstance(value, str) else None
        case Rlike(path, pattern):
            value = value_at(event, path)
            return bool(re.search(pattern, value, re.ASCII)) if isinstance(value, str) else None
        case IsNull(path):
            value = value_at(event, path)
            return value is None or (isinstance(value, float | Decimal) and class_of(value) is None)
        case Truth(path):
            value = value_at(event, path)
            return value if isinstance(value, bool) else None
        case Constant(value):
            return value
        case Not(part):
            return _negated(truth_of(part, event))
        case And(parts):
            return _all([truth_of(part, event) for part in parts])
        case Or(parts):
            return _negated(_all([_negated(truth_of(part, event)) for part in parts]))
