r"""The canonical text of a normal form: parsing it gives the same normal form again.

Each box becomes a conjunction in the order of its names, each domain the shortest predicates of the
language that name it: points as `=` and `IN`, a hole as `<>`, prefixes as LIKE.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

from peersub.events.kinds import TIMESTAMP_MAX, TIMESTAMP_MIN, KindClass, date_key, timestamp_key
from peersub.filters.boxes import TRUE, Box, Path
from peersub.filters.domains import PRESENT, Domain
from peersub.filters.intervals import (
    FULL,
    GREATEST,
    LEAST,
    Cut,
    IntervalSet,
    prefix_range,
    single_points,
)
from peersub.filters.limits import NUMBER_DIGITS_MAX
from peersub.filters.patterns import Operator, TextTest, escape_like
from peersub.filters.sql_tokens import KEYWORDS

__all__ = ["literal_text", "name_text", "text_of_boxes"]

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Plain words that would read as the start of a literal or are keywords are quoted.
_QUOTED_WORDS = KEYWORDS | {"DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "R"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def name_text(path: Path) -> str:
    """A dotted name, quoted where needed.

    >>> name_text(("a", "b c", "in"))
    'a.`b c`.`in`'
    """
    return ".".join(
        part
        if _PLAIN_NAME.fullmatch(part) and part.upper() not in _QUOTED_WORDS
        else "`" + part.replace("`", "``") + "`"
        for part in path
    )


_ESCAPED = str.maketrans({"'": "''", "\0": r"\0", "\n": r"\n", "\r": r"\r", "\t": r"\t"})


def _quoted(text: str) -> str:
    """In quotes, on one line; backslashes are left to the caller."""
    return "'" + text.translate(_ESCAPED) + "'"


def _string_text(text: str) -> str:
    r"""A string in quotes; a backslash is doubled, since one before a letter may mean a sign."""
    return _quoted(text.replace("\\", "\\\\"))


def _pattern_text(pattern: str) -> str:
    r"""A LIKE pattern in quotes: `\%` and `\_` stay, a doubled backslash doubles again."""
    return _quoted(pattern.replace("\\\\", "\\\\\\\\"))


def _number_text(key: int | Decimal) -> str:
    """In full, or with an exponent where only a float has that many digits."""
    adjusted = key.adjusted() if isinstance(key, Decimal) else key.bit_length() * 3 // 10
    if abs(adjusted) <= 2 * NUMBER_DIGITS_MAX:
        written = format(key, "f") if isinstance(key, Decimal) else str(key)
        if sum(map(str.isdigit, written)) <= NUMBER_DIGITS_MAX:
            return written
    return repr(float(key))


def literal_text(kind_class: KindClass, key: Any) -> str:
    """A value as it is written in a filter."""
    match kind_class:
        case KindClass.NUMBER:
            return _number_text(key)
        case KindClass.STRING:
            return _string_text(key)
        case KindClass.BOOLEAN:
            return "TRUE" if key else "FALSE"
        case KindClass.DATE:
            return f"DATE '{date.fromordinal(key + _EPOCH.toordinal()).isoformat()}'"
        case KindClass.TIMESTAMP:
            moment = (_EPOCH + timedelta(microseconds=key)).replace(tzinfo=None)
            return f"TIMESTAMP '{moment.isoformat(sep=' ')}'"


def text_of_boxes(boxes: Sequence[Box]) -> str:
    """The text of a union of boxes; FALSE if there is none."""
    if not boxes:
        return "FALSE"
    texts = [_box_text(box) for box in boxes]
    if len(texts) == 1:
        return _joined("AND", texts[0], outermost=True)
    return " OR ".join(_joined("AND", parts, outermost=False) for parts in texts)


def _joined(word: str, parts: list[str], *, outermost: bool) -> str:
    if len(parts) == 1:
        return parts[0]
    text = f" {word} ".join(parts)
    return text if outermost else f"({text})"


def _box_text(box: Box) -> list[str]:
    """The conjuncts of a box; a disjunction among them is in parentheses."""
    tested = {test.path for test in box.tests}
    parts: list[str] = []
    domains, tests = box.key
    for path, domain in domains:
        # A text test demands a string by itself.
        if not (path in tested and domain.only_class is KindClass.STRING and _all_strings(domain)):
            parts += _domain_text(path, domain)
    for test, truth in tests:
        parts.append(_test_text(test, truth))
    return parts or ["TRUE"]


def _all_strings(domain: Domain) -> bool:
    return domain.sets[KindClass.STRING] == FULL


def _test_text(test: TextTest, truth: int) -> str:
    negation = "" if truth == TRUE else "NOT "
    write = _pattern_text if test.operator is Operator.LIKE else _string_text
    return f"{name_text(test.path)} {negation}{test.operator} {write(test.pattern)}"


def _domain_text(path: Path, domain: Domain) -> list[str]:
    """Predicates that together, by AND, confine the attribute to the domain."""
    name = name_text(path)
    if domain == PRESENT:
        return [f"{name} IS NOT NULL"]
    alternatives: list[list[str]] = [[f"{name} IS NULL"]] if domain.absent else []
    for kind_class in KindClass:
        cuts = domain.sets[kind_class]
        if cuts:
            alternatives += _class_text(name, kind_class, cuts)
    if len(alternatives) == 1:
        return alternatives[0]
    return ["(" + " OR ".join(_joined("AND", part, outermost=False) for part in alternatives) + ")"]


def _class_text(name: str, kind_class: KindClass, cuts: IntervalSet) -> list[list[str]]:
    """Alternatives, each a list of conjuncts, for the values of one class."""
    if cuts == FULL:
        return _all_of_class(name, kind_class)
    listed = _listed_points(kind_class, cuts)
    rest = _runs(kind_class, [pair for pair in _pairs(cuts) if pair not in listed])
    alternatives = [_run_text(name, kind_class, run) for run in rest]
    keys = [_point_key(kind_class, pair) for pair in listed]
    literals = [literal_text(kind_class, key) for key in keys]
    if len(literals) == 1:
        alternatives.append([f"{name} = {literals[0]}"])
    elif literals:
        alternatives.append([f"{name} IN ({', '.join(literals)})"])
    return alternatives


_ORIGIN = {KindClass.NUMBER: 0, KindClass.DATE: 0, KindClass.TIMESTAMP: 0}


def _all_of_class(name: str, kind_class: KindClass) -> list[list[str]]:
    if kind_class is KindClass.STRING:
        return [[f"{name} LIKE '%'"]]
    if kind_class is KindClass.BOOLEAN:
        return [[f"{name} IN (FALSE, TRUE)"]]
    origin = literal_text(kind_class, _ORIGIN[kind_class])
    return [[f"{name} < {origin}"], [f"{name} >= {origin}"]]


_FIRST_AND_LAST = {
    KindClass.DATE: (date_key(date.min), date_key(date.max)),
    KindClass.TIMESTAMP: (timestamp_key(TIMESTAMP_MIN), timestamp_key(TIMESTAMP_MAX)),
}
Pair = tuple[Cut, Cut]


def _pairs(cuts: IntervalSet) -> list[Pair]:
    return list(zip(cuts[::2], cuts[1::2], strict=True))


def _point_key(kind_class: KindClass, pair: Pair) -> Any:
    keys = single_points(kind_class, pair)
    return keys[0] if keys is not None and len(keys) == 1 else None


def _listed_points(kind_class: KindClass, cuts: IntervalSet) -> list[Pair]:
    return [pair for pair in _pairs(cuts) if _point_key(kind_class, pair) is not None]


def _runs(kind_class: KindClass, pairs: list[Pair]) -> list[list[Pair]]:
    """Intervals that only a single value separates belong together: a range with holes."""
    runs: list[list[Pair]] = []
    for pair in pairs:
        if runs and _point_key(kind_class, (runs[-1][-1][1], pair[0])) is not None:
            runs[-1].append(pair)
        else:
            runs.append([pair])
    return runs


def _run_text(name: str, kind_class: KindClass, run: list[Pair]) -> list[str]:
    lower, upper = run[0][0], run[-1][1]
    holes = [_point_key(kind_class, (before[1], after[0])) for before, after in pairwise(run)]
    prefix = _prefix(kind_class, lower, upper)
    if prefix is not None:
        parts = [f"{name} LIKE {_pattern_text(escape_like(prefix) + '%')}"]
    else:
        parts = _bounds_text(name, kind_class, lower, upper)
    literals = [literal_text(kind_class, key) for key in holes]
    if len(literals) == 1:
        parts.append(f"{name} <> {literals[0]}")
    elif literals:
        parts.append(f"{name} NOT IN ({', '.join(literals)})")
    return parts


def _prefix(kind_class: KindClass, lower: Cut, upper: Cut) -> str | None:
    if kind_class is KindClass.STRING and isinstance(lower[0], str) and lower[0]:
        return lower[0] if prefix_range(lower[0]) == (lower, upper) else None
    return None


def _bounds_text(name: str, kind_class: KindClass, lower: Cut, upper: Cut) -> list[str]:
    below = _bound(kind_class, lower, after=">", before=">=")
    above = _bound(kind_class, upper, after="<=", before="<")
    if below is not None and above is not None and below[0] == ">=" and above[0] == "<=":
        return [f"{name} BETWEEN {below[1]} AND {above[1]}"]
    return [f"{name} {bound[0]} {bound[1]}" for bound in (below, above) if bound is not None]


def _bound(kind_class: KindClass, cut: Cut, *, after: str, before: str) -> tuple[str, str] | None:
    """The relation and the literal of a bound; None if there is no bound."""
    if cut in (LEAST, GREATEST):
        return None
    key, side = cut
    if side == 1:
        return after, literal_text(kind_class, key)
    if kind_class is KindClass.STRING and key.endswith("\0"):
        return after, literal_text(kind_class, key[:-1])
    if kind_class in _FIRST_AND_LAST:
        # Days and microseconds read best as the last value inside, or the first. Beyond the years 1
        # and 9999 nothing can be written: there the value outside names the bound.
        first, last = _FIRST_AND_LAST[kind_class]
        if (after == "<=" and key > first) or key > last:
            return after, literal_text(kind_class, key - 1)
    return before, literal_text(kind_class, key)
