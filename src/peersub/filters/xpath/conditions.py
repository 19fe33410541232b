"""Conditions on one text of a document: the value of an attribute, a text node, an element's text.

XPath 1.0 sees a text in two ways: as the string that it is, and as the number that it spells,
or NaN. `@a = 'v'` and `@a != 'v'` compare strings; every other comparison compares numbers, and
NaN is unequal to each number and in no order with any. A conjunction of such comparisons on one
text is a `Condition`: either exactly one string, or all strings but some whose number lies in
an interval set (or is NaN).

The law: `contains(text)` iff the text satisfies each comparison; `covers` is the subset
relation; equal conditions are equal values. A condition that no text satisfies is None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from math import inf, isfinite, isnan, nan
from typing import Final

from peersub.filters import intervals
from peersub.filters.intervals import EMPTY, FULL, GREATEST, LEAST, IntervalSet
from peersub.filters.xpath.limits import LITERAL_DIGITS_MAX, NUMBER_CHARACTERS_MAX

__all__ = [
    "ANY_TEXT",
    "Condition",
    "comparisons_of",
    "condition_of",
    "conjunction",
    "exact_union",
    "literal_number",
    "number_of",
    "upper_bound",
]

_BLANKS = " \t\r\n"
_NUMBER = re.compile(r"(-?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?)([0-9]*))?")
_FRACTION_DIGITS_MAX = 20
_EXACT_DIGITS = 15
_EXPONENT_MAX = 308


def number_of(text: str) -> float:
    """The number that a text spells, NaN if it spells none: libxml2's number(), digit by digit.

    XPath 1.0 has no exponents; libxml2 reads them, and so does this. The arithmetic follows
    libxml2's too, so that patterns and documents agree with it to the last bit.

    >>> number_of(" 12.50 "), number_of("1e3"), number_of("+5"), number_of("")
    (12.5, 1000.0, nan, nan)
    """
    if len(text) > NUMBER_CHARACTERS_MAX:
        text = text.strip(_BLANKS)
    return _short_number_of(text) if len(text) <= NUMBER_CHARACTERS_MAX else nan


@lru_cache(maxsize=8_192)
def _short_number_of(text: str) -> float:
    """As `number_of`; remembered, for documents say the same numbers again and again."""
    parts = _NUMBER.fullmatch(text.strip(_BLANKS))
    if parts is None:
        return nan
    minus, whole, fraction, exponent_sign, exponent = parts.groups()
    if not whole and not fraction:
        return nan
    number = _whole(whole)
    if fraction:
        number += _fraction(fraction)
    if minus:
        number = -number
    return number * _power_of_ten(int(exponent_sign + exponent)) if exponent else number


def _whole(digits: str) -> float:
    if len(digits) <= _EXACT_DIGITS:
        return float(digits or "0")
    number = 0.0
    for digit in digits:
        number = number * 10.0 + float(digit)
    return number


def _fraction(digits: str) -> float:
    zeros = len(digits) - len(digits.lstrip("0"))
    digits = digits[: zeros + _FRACTION_DIGITS_MAX]
    return _whole(digits[zeros:]) / _power_of_ten(len(digits))


def _power_of_ten(exponent: int) -> float:
    # As the C library has it, which libxml2 asks: the literal 1e23 is another float.
    return 10.0**exponent if exponent <= _EXPONENT_MAX else inf


def literal_number(text: str) -> float | None:
    """The number that a literal stands for; None if it has more digits than floats tell apart.

    >>> literal_number("007.50"), literal_number("12345678901234567890")
    (7.5, None)
    """
    whole, _, fraction = text.lstrip("-").partition(".")
    whole, fraction = whole.lstrip("0"), fraction.rstrip("0")
    if len(whole) + len(fraction) > LITERAL_DIGITS_MAX:
        return None
    number = number_of(f"{whole or '0'}.{fraction}")
    return (-number if text.startswith("-") else number) + 0.0  # no negative zero


def _literal_text(number: float) -> str:
    """The literal that `literal_number` reads as this number: 15 digits tell it apart."""
    text = format(Decimal(format(number, f".{LITERAL_DIGITS_MAX}g")), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _is_literal(number: float) -> bool:
    """Whether a pattern can name the number."""
    return isfinite(number) and literal_number(_literal_text(number)) == number


@dataclass(frozen=True, slots=True)
class Condition:
    """A set of texts; see the module. Made by `condition_of` and the operations, never by hand.

    Attributes:
        exactly: the one text that is allowed; the rest is then not used.
        excluded: texts that are not allowed though their number is; sorted.
        numbers: the numbers that are allowed.
        not_a_number: whether texts that spell no number are allowed.
    """

    exactly: str | None
    excluded: tuple[str, ...]
    numbers: IntervalSet
    not_a_number: bool

    def contains(self, text: str | None) -> bool:
        """Whether the text is allowed; None stands for one that is longer than any literal."""
        if self.exactly is not None:
            return text == self.exactly
        if text is None:
            return self.not_a_number
        if text in self.excluded:
            return False
        return (self.numbers is FULL and self.not_a_number) or self._allows(number_of(text))

    def _allows(self, number: float) -> bool:
        if isnan(number):
            return self.not_a_number
        return intervals.contains_value(self.numbers, number)

    def covers(self, other: Condition) -> bool:
        """Each text that the other allows is allowed here."""
        if self is ANY_TEXT or self == other:
            return True
        if other.exactly is not None:
            return self.contains(other.exactly)
        return (
            self.exactly is None
            and (self.not_a_number or not other.not_a_number)
            and intervals.is_subset(other.numbers, self.numbers)
            and not any(other.contains(text) for text in self.excluded)
        )


ANY_TEXT: Final = Condition(None, (), FULL, True)


def _condition(
    excluded: tuple[str, ...], numbers: IntervalSet, not_a_number: bool
) -> Condition | None:
    """The one value for a set of texts: exclusions that exclude nothing are left out."""
    if not numbers and not not_a_number:
        return None
    if numbers == FULL:
        numbers = FULL
        if not_a_number and not excluded:
            return ANY_TEXT
    bare = Condition(None, (), numbers, not_a_number)
    kept = tuple(sorted({text for text in excluded if bare.contains(text)}))
    return Condition(None, kept, numbers, not_a_number) if kept else bare


def condition_of(operator: str, literal: str | float) -> Condition:
    """The texts that compare as the operator says with a literal.

    >>> condition_of(">", 10.0).contains("10.5"), condition_of("=", "10").contains("10.0")
    (True, False)
    """
    if isinstance(literal, str):
        assert operator in ("=", "!="), "strings have no order in XPath 1.0"
        if operator == "=":
            return Condition(literal, (), EMPTY, False)
        return Condition(None, (literal,), FULL, True)
    before, after = (literal, 0), (literal, 1)
    numbers: IntervalSet
    match operator:
        case "=":
            numbers = (before, after)
        case "!=":
            numbers = (LEAST, before, after, GREATEST)
        case "<":
            numbers = (LEAST, before)
        case "<=":
            numbers = (LEAST, after)
        case ">":
            numbers = (after, GREATEST)
        case _:
            assert operator == ">=", operator
            numbers = (before, GREATEST)
    return Condition(None, (), numbers, operator == "!=")


def conjunction(first: Condition, second: Condition) -> Condition | None:
    """The texts that both allow; None if there are none."""
    if first is ANY_TEXT or first == second:
        return second
    if first.exactly is not None:
        return first if second.contains(first.exactly) else None
    if second.exactly is not None:
        return second if first.contains(second.exactly) else None
    return _condition(
        first.excluded + second.excluded,
        intervals.intersection(first.numbers, second.numbers),
        first.not_a_number and second.not_a_number,
    )


def exact_union(first: Condition, second: Condition) -> Condition | None:
    """The texts that one of the two allows, if comparisons joined by `and` can say so, else None.

    >>> comparisons_of(exact_union(condition_of(">", 5.0), condition_of("=", 5.0)))
    ['>= 5']
    """
    if first.covers(second):
        return first
    if second.covers(first):
        return second
    if second.exactly is not None:
        first, second = second, first
    if first.exactly is not None:
        if first.exactly not in second.excluded:
            return None
        rest = tuple(text for text in second.excluded if text != first.exactly)
        return _condition(rest, second.numbers, second.not_a_number)
    numbers = intervals.union(first.numbers, second.numbers)
    not_a_number = first.not_a_number or second.not_a_number
    is_unbounded = numbers[0] == LEAST and numbers[-1] == GREATEST
    if not_a_number != is_unbounded or numbers != _gaps_closed(numbers):
        return None
    return _condition(_excluded_by_both(first, second), numbers, not_a_number)


def upper_bound(first: Condition, second: Condition) -> Condition:
    """A condition that covers both, as narrow as comparisons joined by `and` can say."""
    exact = exact_union(first, second)
    if exact is not None:
        return exact
    views = [_by_number(first), _by_number(second)]
    if None in views:
        return ANY_TEXT
    numbers = EMPTY
    not_a_number = False
    for view in views:
        assert view is not None
        numbers = intervals.union(numbers, view.numbers)
        not_a_number |= view.not_a_number
    numbers = _gaps_closed(numbers)
    if not numbers:
        return ANY_TEXT
    if not_a_number or (numbers[0] == LEAST and numbers[-1] == GREATEST):
        # Only inequalities let NaN through, and bounds are the only way to keep it out.
        numbers, not_a_number = (LEAST, *numbers[1:-1], GREATEST), True
    wide = _condition(_excluded_by_both(first, second), numbers, not_a_number)
    assert wide is not None
    return wide


def _by_number(condition: Condition) -> Condition | None:
    """The condition, or all spellings of its one text's number; None if no literal names that."""
    if condition.exactly is None:
        return condition
    number = number_of(condition.exactly)
    if isnan(number):
        return Condition(None, (), EMPTY, True)
    return condition_of("=", number + 0.0) if _is_literal(number) else None


def _gaps_closed(numbers: IntervalSet) -> IntervalSet:
    """The set without its gaps, except those of a single number, which `!=` can say."""
    kept = list(numbers[:1])
    for lower, upper in zip(numbers[1:-1:2], numbers[2:-1:2], strict=True):
        if lower[0] == upper[0]:
            kept += (lower, upper)
    return (*kept, *numbers[-1:])


def _excluded_by_both(first: Condition, second: Condition) -> tuple[str, ...]:
    excluded = first.excluded + second.excluded
    return tuple(t for t in excluded if not first.contains(t) and not second.contains(t))


def comparisons_of(condition: Condition) -> list[str]:
    """The comparisons whose conjunction is the condition, as XPath writes them.

    >>> comparisons_of(conjunction(condition_of(">", 5.0), condition_of("!=", "6")))
    ['> 5', "!= '6'"]
    """
    if condition.exactly is not None:
        return [f"= {_quoted(condition.exactly)}"]
    numbers = condition.numbers
    written = []
    if len(numbers) == 2 and numbers[0][0] == numbers[1][0]:
        written.append(f"= {_literal_text(numbers[0][0])}")
    elif numbers:
        if numbers[0] != LEAST:
            written.append(f"{'>' if numbers[0][1] else '>='} {_literal_text(numbers[0][0])}")
        written += (f"!= {_literal_text(lower[0])}" for lower in numbers[1:-1:2])
        if numbers[-1] != GREATEST:
            written.append(f"{'<=' if numbers[-1][1] else '<'} {_literal_text(numbers[-1][0])}")
    return written + [f"!= {_quoted(text)}" for text in condition.excluded]


def _quoted(text: str) -> str:
    return f'"{text}"' if "'" in text else f"'{text}'"
