"""The meaning of each predicate: the box of events for which it is true, or false below a NOT.

A comparison with a missing value, or between values of different classes, is unknown: it is neither
true nor false, and its event lies in no box. So each box here confines its attribute to one class,
and the negation of a comparison stays within that class.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from peersub.events.kinds import KindClass
from peersub.filters import intervals
from peersub.filters.boxes import FALSE, TRUE, UNIVERSE, Box, Path, box_of
from peersub.filters.domains import ABSENT, PRESENT, Domain, of_class, union_of
from peersub.filters.intervals import FULL, GREATEST, LEAST, IntervalSet, cut_after, cut_before
from peersub.filters.patterns import Operator, TextTest, canonical_like, like_interval

__all__ = [
    "between",
    "compare_constants",
    "comparison",
    "constant",
    "membership",
    "null_test",
    "text_test",
]

Typed = tuple[KindClass, Any]
_NEGATED = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def _confined(path: Path, domain: Domain) -> Box | None:
    return None if domain.is_empty else Box({path: domain}, {})


def _compared(operator: str, kind_class: KindClass, key: Any) -> IntervalSet:
    """The keys of the class that stand in this relation to the given one."""
    if operator == "=":
        return intervals.point(kind_class, key)
    if operator == "<>":
        return intervals.complement(intervals.point(kind_class, key))
    if operator in ("<", ">="):
        cut = cut_before(kind_class, key)
    else:
        cut = cut_after(kind_class, key)
    if operator in ("<", "<="):
        return (LEAST, cut) if cut is not LEAST else intervals.EMPTY
    return (cut, GREATEST) if cut is not GREATEST else intervals.EMPTY


def constant(truth: bool) -> Box | None:
    """All events for TRUE, none for FALSE."""
    return UNIVERSE if truth else None


def compare_constants(left: Typed, operator: str, right: Typed, *, negated: bool) -> bool:
    """The outcome of comparing two literals of one class."""
    assert left[0] is right[0]
    operator = _NEGATED[operator] if negated else operator
    return intervals.contains_value(_compared(operator, *right), left[1])


def comparison(
    path: Path, operator: str, kind_class: KindClass, key: Any, *, negated: bool
) -> Box | None:
    """`path operator literal`."""
    operator = _NEGATED[operator] if negated else operator
    return _confined(path, of_class(kind_class, _compared(operator, kind_class, key)))


def between(path: Path, lower: Typed, upper: Typed, *, negated: bool) -> Box | None:
    """`path >= lower AND path <= upper`; each bound speaks of its own class."""
    if negated:
        below = of_class(lower[0], _compared("<", *lower))
        return _confined(path, below.union(of_class(upper[0], _compared(">", *upper))))
    if lower[0] is upper[0]:
        cuts = intervals.between(cut_before(*lower), cut_after(*upper))
        return _confined(path, of_class(lower[0], cuts))
    from_lower = of_class(lower[0], _compared(">=", *lower))
    return _confined(path, from_lower.intersection(of_class(upper[0], _compared("<=", *upper))))


def membership(path: Path, literals: Iterable[Typed], *, negated: bool) -> Box | None:
    """`path IN (...)`: equal to one; NOT IN: different from each, so of one class with all."""
    by_class: dict[KindClass, list[Any]] = {}
    for kind_class, key in literals:
        by_class.setdefault(kind_class, []).append(key)
    listed = {
        kind_class: intervals.points(kind_class, keys) for kind_class, keys in by_class.items()
    }
    if negated:
        if len(listed) > 1:
            return None
        ((kind_class, cuts),) = listed.items()
        return _confined(path, of_class(kind_class, intervals.complement(cuts)))
    return _confined(path, union_of([of_class(*of_one_class) for of_one_class in listed.items()]))


def null_test(path: Path, *, negated: bool) -> Box | None:
    """`path IS NULL`: the attribute is absent, NULL or NaN. Never unknown."""
    return _confined(path, PRESENT if negated else ABSENT)


def text_test(path: Path, operator: Operator, pattern: str, *, negated: bool) -> Box | None:
    """`path LIKE pattern` or `path RLIKE pattern`: an interval where it is one, else opaque."""
    cuts = like_interval(pattern) if operator is Operator.LIKE else None
    if cuts is not None:
        held = intervals.complement(cuts) if negated else cuts
        return _confined(path, of_class(KindClass.STRING, held))
    if operator is Operator.LIKE:
        pattern = canonical_like(pattern)
    strings = {path: of_class(KindClass.STRING, FULL)}
    return box_of(strings, {TextTest(path, operator, pattern): FALSE if negated else TRUE})
