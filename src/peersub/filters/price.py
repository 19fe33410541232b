"""What a filter costs as a whole, told before anything dear is done with it.

A price is a number of units; a unit is about five microseconds of a processor for reading the
filter once. It counts what makes a filter dear wherever it goes: its conjunctions and their
constraints (multiplying out, reading, covering, matching), the ends of its intervals, its text
tests (compiling, and comparing each with each) and its bytes. It is the same from the filter, from
the decoded but unread bytes, and, as an upper bound, from two filters that are to be multiplied.

The bounds: `FILTER_PRICE_MAX` for a filter that enters a network or comes over a link,
`ROW_PRICE_MAX` for what nodes tell each other of it, in rows of at most `PART_PRICE_MAX`. Of a
dearer filter others are told what is `widened`: cheaper, and covers it. The home matches exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from peersub.events.kinds import KindClass
from peersub.filters.boxes import Box
from peersub.filters.limits import PATTERN_CHARACTERS_MAX, TEXT_TESTS_MAX

__all__ = [
    "FILTER_PRICE_MAX",
    "PART_PRICE_MAX",
    "PLAIN_PRICE",
    "ROW_PRICE_MAX",
    "Price",
    "TooDearError",
    "price_of_boxes",
    "price_of_form",
    "price_of_product",
    "price_of_tree_pattern",
    "refusal_of",
]

FILTER_PRICE_MAX: Final = 2_048
"""Units of one filter in a network: about 10 ms of a processor to read it."""
ROW_PRICE_MAX: Final = 768
"""Units of all that other nodes are told of one filter; what is dearer is widened."""
PART_PRICE_MAX: Final = 48
"""Units of one row in routing tables, which is worked with in one go: about half a millisecond."""
PLAIN_PRICE: Final = 16
"""Units up to which a filter is plain: such are bounded by their number, and fill no budget."""

_STRING: Final = KindClass.STRING
FILTER_BYTES_MAX: Final = 32 * FILTER_PRICE_MAX
"""Bytes of one filter in a network, seen before they are decoded."""
_CUTS_PER_UNIT: Final = 16
_BYTES_PER_UNIT: Final = 256
_PATTERN_UNITS: Final = 24
"""Of a text test that is compiled and kept, whatever its pattern."""
_PROGRAM_PER_UNIT: Final = 28
_PROGRAM_UNITS_MAX: Final = 800
"""RE2 gives up on larger programs: that takes as long as the largest that it makes."""
_UNICODE_CLASS: Final = 2_000
"""The program of a class such as \\pL, against that of a character."""
_CHARACTER_CLASS: Final = 8
_REPETITIONS_MAX: Final = 1_000
"""RE2 refuses more."""


class TooDearError(ValueError):
    """A filter costs more than is allowed; the text names the bound and what to do."""


class Price(NamedTuple):
    """What makes a filter dear; prices of several filters are compared by `units`."""

    boxes: int
    constraints: int
    """Domains of attributes, and text tests, of all boxes."""
    cuts: int
    """Ends of intervals."""
    comparisons: int
    """Text tests that are compared with each other, or tried on texts, over all boxes."""
    pattern_units: int
    """For compiling the text tests, each once."""
    bytes: int
    """On the wire; 0 while they are not known."""

    @property
    def units(self) -> int:
        """The price."""
        return (
            self.boxes
            + self.constraints
            + self.cuts // _CUTS_PER_UNIT
            + self.comparisons // _CUTS_PER_UNIT
            + self.pattern_units
            + self.bytes // _BYTES_PER_UNIT
        )

    @property
    def surplus(self) -> int:
        """What the filter takes of a budget: its price, unless it is plain."""
        return self.units if self.units > PLAIN_PRICE else 0


class _Tally:
    """Adds up a price, box by box."""

    __slots__ = ("boxes", "comparisons", "constraints", "cuts", "patterns")

    def __init__(self) -> None:
        self.boxes = self.constraints = self.cuts = self.comparisons = 0
        self.patterns: dict[tuple[str, str], int] = {}
        """The units of each pattern."""

    def add(
        self, domains: int, cuts: int, tests: Iterable[tuple[str, str]], texts: Iterable[str]
    ) -> None:
        """One more box. `texts` are the ends of its intervals of strings: tests may try them."""
        self.boxes += 1
        self.constraints += domains
        self.cuts += cuts
        count = units = 0
        for test in tests:
            count += 1
            known = self.patterns.get(test)
            if known is None:
                known = self.patterns[test] = _compiling(test[1])
                self._check_patterns()
            units += known
        if count:
            self.constraints += count
            self.comparisons += count * count
            for text in texts:
                self.comparisons += 4 * count + len(text) * units // 3

    def _check_patterns(self) -> None:
        characters = sum(len(pattern) for _, pattern in self.patterns)
        if len(self.patterns) > TEXT_TESTS_MAX or characters > PATTERN_CHARACTERS_MAX:
            raise TooDearError(
                f"the filter has more than {TEXT_TESTS_MAX} patterns, or more than "
                f"{PATTERN_CHARACTERS_MAX:,} characters in them. Split it into several "
                "subscriptions."
            )

    def price(self, size: int) -> Price:
        """The price of all boxes, with so many bytes on the wire."""
        units = sum(self.patterns.values())
        return Price(self.boxes, self.constraints, self.cuts, self.comparisons, units, size)


def price_of_boxes(boxes: Sequence[Box], size: int = 0) -> Price:
    """The price of a normal form, with so many bytes on the wire."""
    tally = _Tally()
    for box in boxes:
        domains = box.domains.values()
        tally.add(
            len(domains),
            sum(len(cuts) for domain in domains for cuts in domain.sets),
            [(test.operator, test.pattern) for test in box.tests],
            (key for domain in domains for key, _ in domain.sets[_STRING] if isinstance(key, str)),
        )
    return tally.price(size)


def price_of_form(form: Sequence[Any], size: int) -> Price:
    """The price of what `wire_form` decoded and has not read: it may hold anything.

    Raises:
        TooDearError: it has more patterns than any filter may have.
        TypeError, ValueError, LookupError: it has not the shape of a filter.
    """
    tally = _Tally()
    for domains, tests in form:
        ends = [cuts for _, domain in domains for cuts in domain[2::2]]
        tally.add(
            len(domains),
            sum(map(len, ends)),
            [(str(operator), str(pattern)) for _, operator, pattern, _ in tests],
            (cut[0] for cuts in ends for cut in cuts if cut and isinstance(cut[0], str)),
        )
    return tally.price(size)


def price_of_tree_pattern(text: str) -> Price:
    """The price of an XPath pattern: its branches are compared with each other, step by step."""
    from peersub.filters.xpath.limits import PATTERN_PARTS_MAX

    branches = min(text.count("["), PATTERN_PARTS_MAX)
    steps = min(text.count("/"), PATTERN_PARTS_MAX)
    units = len(text) // 4 + branches * steps // 2 + branches * branches // 5
    return Price(1, 1, 0, 0, units, len(text))


def price_of_product(first: Price, second: Price) -> Price:
    """An upper bound of the price of what is in both: each box of one meets each of the other.

    Boxes that do not meet, or fuse, make it cheaper; patterns and bytes are not multiplied.
    """
    boxes = first.boxes * second.boxes
    return Price(
        boxes,
        first.constraints * second.boxes + second.constraints * first.boxes,
        first.cuts * second.boxes + second.cuts * first.boxes,
        # (a + b)² is at most 2a² + 2b²; and tests of one may be tried on texts of the other.
        2 * (first.comparisons * second.boxes + second.comparisons * first.boxes)
        + 4
        * (first.cuts * second.constraints + second.cuts * first.constraints)
        * (first.pattern_units + second.pattern_units > 0),
        first.pattern_units + second.pattern_units,
        0,
    )


def refusal_of(price: Price, units_max: int, whose: str = "a filter") -> str | None:
    """Why a filter of this price does not fit into the bound; None if it does."""
    if price.units <= units_max:
        return None
    return (
        f"the filter costs {price.units:,} units ({price.boxes:,} conjunctions with "
        f"{price.constraints:,} conditions), and {whose} may cost {units_max:,}. Split it into "
        "several subscriptions, use IN and BETWEEN in place of OR, or fewer and shorter patterns."
    )


def _compiling(pattern: str) -> int:
    """The units of one pattern; one that is too long for any filter is not looked into."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        return _PROGRAM_UNITS_MAX
    return _PATTERN_UNITS + min(_PROGRAM_UNITS_MAX, _program(pattern) // _PROGRAM_PER_UNIT)


def _program(pattern: str) -> int:
    """About how large RE2's program is, in characters; repetitions count as often as they say.

    It reads LIKE patterns, too: those are as large as they are long.

    >>> _program("abc"), _program("(ab){3}c"), _program("a{2,5}")
    (3, 7, 5)
    """
    totals, last, at, end = [0], 0, 0, len(pattern)
    is_folded = 1 + ("(?i" in pattern)
    while at < end:
        character = pattern[at]
        at += 1
        if character == "(":
            totals[-1] += last
            totals.append(0)
            last = 0
        elif character == ")" and len(totals) > 1:
            last += totals.pop()
        elif character == "{":
            count, at = _repetitions(pattern, at)
            last = min(last * count, _PROGRAM_UNITS_MAX * _PROGRAM_PER_UNIT)
        else:
            totals[-1] += last
            last, at = _atom(pattern, at, character)
            last *= is_folded
    return sum(totals) + last


def _atom(pattern: str, at: int, character: str) -> tuple[int, int]:
    """The size of a character, an escape or a class, and where it ends."""
    if character == "\\":
        escaped = pattern[at : at + 1]
        at += 1
        if escaped in ("p", "P"):
            closing = pattern.find("}", at) if pattern[at : at + 1] == "{" else at
            return _UNICODE_CLASS, max(closing, at) + 1
        return _CHARACTER_CLASS, at
    if character == "[":
        closing = _class_end(pattern, at)
        inner = pattern[at:closing]
        classes = inner.count("\\p") + inner.count("\\P") + inner.count("[:")
        return _CHARACTER_CLASS + len(inner) + classes * _UNICODE_CLASS, closing + 1
    if character == ".":
        return _CHARACTER_CLASS, at
    return 1 if character.isascii() else 4, at


def _class_end(pattern: str, at: int) -> int:
    """Where the bracket is that closes a class whose content begins here."""
    at += pattern[at : at + 1] == "^"
    at += pattern[at : at + 1] == "]"
    while at < len(pattern) and pattern[at] != "]":
        named = pattern.find(":]", at + 2) if pattern.startswith("[:", at) else -1
        at = named + 2 if named >= 0 else at + 1 + (pattern[at] == "\\")
    return min(at, len(pattern))


def _repetitions(pattern: str, at: int) -> tuple[int, int]:
    """How often what stands before `{` is repeated, and where the number ends."""
    closing = pattern.find("}", at)
    numbers = [part for part in pattern[at:closing].split(",") if part] if closing >= 0 else []
    if not numbers or not all(part.isdecimal() and len(part) <= 4 for part in numbers):
        return 1, at
    return min(max(1, *map(int, numbers)), _REPETITIONS_MAX), closing + 1
