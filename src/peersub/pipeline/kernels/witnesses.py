"""Witnesses: a few events that a filter matches, made so that few other filters match them too.

If F covers G, then F matches every event that G matches, so it matches each witness of G. Matching
the witnesses of all filters against the index of all filters thus finds every possible coverer,
without comparing each with each. Good witnesses lie in the corners: per box of the normal form one
event with the least value of each attribute that the box demands, one with the greatest, and no
attribute that it does not demand. For plain boxes, what matches both corners covers, near enough;
the proof by `covers` comes afterwards in any case.

A pattern's witnesses are documents, its canonical models: `*` is an element with a name of its own,
`//` is once a direct step and once a step over such an element.

Laws: each witness of a filter is an event that `indexed_form` of this filter matches. If F covers
G, `indexed_form` of F matches each witness of G. Where G has a regular expression for which no text
was guessed, the second law rests on treating the expression as independent of everything else, as
`covers` itself does except where a difference of boxes leaves single texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import inf, nextafter
from typing import Any, Final
from xml.sax.saxutils import escape, quoteattr

from peersub.events.kinds import (
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
    KindClass,
    comparable,
)
from peersub.filters.boxes import FALSE, TRUE, UNDEFINED, Box, Path
from peersub.filters.domains import Domain
from peersub.filters.filter import Filter
from peersub.filters.intervals import GREATEST, LEAST, Cut, IntervalSet
from peersub.filters.patterns import Operator, TextTest, like_pieces
from peersub.filters.xpath.canonical_models import canonical_models
from peersub.filters.xpath.conditions import ANY_TEXT, Condition
from peersub.filters.xpath.pattern import PatternNode, nodes_of
from peersub.filters.xpath.xpath_filter import XPathFilter

__all__ = ["BODY", "WITNESSES_MAX", "indexed_form", "witnesses_of"]

BODY: Final = "body"
"""The attribute that holds the document of a pattern's witness."""
WITNESSES_MAX: Final = 8
"""Per filter. More boxes than this bring no more witnesses: one is enough to exclude a filter."""
_FRESH: Final = "peersub-fresh"
"""The name of elements that a pattern does not name."""
_HIGHEST: Final = "\U0010fffd"
"""A character above nearly all; the two above it are no characters."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Event = dict[str, Any]
_Tests = list[tuple[TextTest, int]]
# The order in which classes are tried: the two corners of "anything" are of different kinds.
_LOW_CLASSES: Final = tuple(KindClass)
_HIGH_CLASSES: Final = (
    KindClass.STRING,
    KindClass.TIMESTAMP,
    KindClass.DATE,
    KindClass.BOOLEAN,
    KindClass.NUMBER,
)


def indexed_form(wanted: Filter) -> Filter:
    """The filter without its regular expressions, which no witness can be made to pass for sure.

    That the attribute is text stays.

    >>> indexed_form(Filter("a > 1 AND b RLIKE '^x[0-9]+$'")).text
    "a > 1 AND b LIKE '%'"
    """
    if wanted.language != "sql" or not any(map(_has_expression, wanted.boxes)):
        return wanted
    return Filter.from_boxes(
        Box(box.domains, {test: truth for test, truth in box.tests.items() if _is_like(test)})
        for box in wanted.boxes
    )


def _is_like(test: TextTest) -> bool:
    return test.operator is Operator.LIKE


def _has_expression(box: Box) -> bool:
    return not all(map(_is_like, box.tests))


def witnesses_of(wanted: Filter) -> list[Event]:
    """Up to WITNESSES_MAX events that the filter matches; none if none could be made.

    >>> witnesses_of(Filter("price >= 10 AND price <= 20"))
    [{'price': 10.0}, {'price': 20.0}]
    """
    if isinstance(wanted, XPathFilter):
        events = _documents(wanted.pattern) if wanted.pattern is not None else iter(())
        return _few(event for event in events if wanted.matches(event))
    form = indexed_form(wanted)
    corners = (
        _corner(box, is_high) for box in wanted.boxes[:WITNESSES_MAX] for is_high in (False, True)
    )
    return _few(event for event in corners if form.matches(event))


def _few(events: Iterable[Event]) -> list[Event]:
    found: list[Event] = []
    for event in events:
        if event not in found:
            found.append(event)
        if len(found) == WITNESSES_MAX:
            break
    return found


# --- boxes -----------------------------------------------------------------------------------


def _corner(box: Box, is_high: bool) -> Event:
    """The event in a corner of the box; whether it lies in the box is for the caller to ask."""
    tests: dict[Path, _Tests] = {}
    for test, truth in box.tests.items():
        tests.setdefault(test.path, []).append((test, truth))
    event: Event = {}
    # A record comes into being by what is in it: inner names first.
    for path in sorted({*box.domains, *tests}, key=lambda path: (-len(path), path)):
        value = _value(box.domain(path), tests.get(path, []), is_high)
        if value is not None:
            _put(event, path, value)
    return event


def _put(event: Event, path: Path, value: object) -> None:
    for name in path[:-1]:
        below = event.setdefault(name, {})
        if not isinstance(below, dict):
            return
        event = below
    event.setdefault(path[-1], value)


def _value(domain: Domain, tests: _Tests, is_high: bool) -> object:
    """A value near the end of a domain that passes the tests, None for absent or where none is
    found.
    """
    likes = [(test, truth) for test, truth in tests if _is_like(test)]
    for demanded in (tests, likes):
        for value in _values(domain, demanded, is_high):
            if domain.contains(value) and all(_passes(value, *test) for test in demanded):
                return value
    return None


def _passes(value: object, test: TextTest, truth: int) -> bool:
    if not isinstance(value, str):
        return bool(truth & UNDEFINED)
    return bool(truth & (TRUE if test.holds(value) else FALSE))


def _values(domain: Domain, tests: _Tests, is_high: bool) -> Iterator[object]:
    if domain.absent and not is_high:
        yield None
    for kind_class in _HIGH_CLASSES if is_high else _LOW_CLASSES:
        cuts = domain.sets[kind_class]
        if not cuts:
            continue
        if kind_class is KindClass.STRING and tests:
            yield from _texts(cuts, tests)
        yield from _ends(kind_class, cuts, is_high)
    if domain.other:
        yield []
    yield None


def _texts(cuts: IntervalSet, tests: _Tests) -> Iterator[str]:
    """Texts that may pass: what the patterns spell, alone, together, and behind the least text."""
    spelled = [_spelled(test) for test, truth in tests if truth & TRUE]
    least = "" if cuts[0] == LEAST else str(cuts[0][0])
    yield from spelled
    together = "".join(dict.fromkeys(spelled))
    yield together
    for text in (*spelled, together):
        yield least + text
        yield text + least
        yield " " + text
    yield from (_spelled(test, _HIGHEST) for test, truth in tests if truth & TRUE)


def _spelled(test: TextTest, character: str = "_") -> str:
    """A text that a pattern matches, or, for an expression, that it may match."""
    if _is_like(test):
        # None is any text, the empty piece any one character.
        pieces = like_pieces(test.pattern)
        return "".join("" if piece is None else piece or character for piece in pieces)
    return test.pattern.strip("^$").replace("\\", "").replace(".*", "").replace("+", "")


def _ends(kind_class: KindClass, cuts: IntervalSet, is_high: bool) -> Iterator[object]:
    """Values at the asked end of a set, else at the other end; whether they lie in it is open."""
    lower, upper = cuts[-2:] if is_high else cuts[:2]
    ends = (_at_upper, _at_lower) if is_high else (_at_lower, _at_upper)
    for end in ends:
        yield from end(kind_class, lower, upper)


def _at_lower(kind_class: KindClass, lower: Cut, upper: Cut) -> Iterator[object]:
    key, side = lower
    match kind_class:
        case KindClass.NUMBER:
            yield from _numbers(key, side, inf) if lower != LEAST else (-inf,)
            yield from _middle(key, upper[0])
        case KindClass.STRING:
            yield "" if lower == LEAST else key
        case KindClass.BOOLEAN:
            yield lower != LEAST
        case KindClass.DATE:
            yield date.min if lower == LEAST else _day(key)
        case _:
            yield TIMESTAMP_MIN if lower == LEAST else _moment(key)


def _at_upper(kind_class: KindClass, lower: Cut, upper: Cut) -> Iterator[object]:
    key, side = upper
    match kind_class:
        case KindClass.NUMBER:
            yield from _numbers(key, 1 - side, -inf) if upper != GREATEST else (inf,)
            yield from _middle(lower[0], key)
        case KindClass.STRING:
            yield _HIGHEST if upper == GREATEST else _text_below(key)
        case KindClass.BOOLEAN:
            yield upper == GREATEST
        case KindClass.DATE:
            yield date.max if upper == GREATEST else _day(key - 1)
        case _:
            yield TIMESTAMP_MAX if upper == GREATEST else _moment(key - 1)


def _numbers(key: Any, is_outside: int, towards: float) -> Iterator[object]:
    """The number of a cut, or where it is outside of the set the nearest ones beyond it."""
    if not is_outside:
        plain = _as_float(key)
        yield key if plain is None or comparable(plain) != (KindClass.NUMBER, key) else plain
        return
    plain = _as_float(key)
    if plain is not None:
        yield nextafter(plain, towards)
    # Beyond 2**53 the nearest floats may lie on the wrong side, or too far.
    step = 1 if towards > 0 else -1
    yield key + step
    if isinstance(key, int | Decimal):
        yield Decimal(key) + step * Decimal("1E-20")


def _as_float(key: Any) -> float | None:
    try:
        return float(key)
    except OverflowError:
        return None


def _middle(lower: Any, upper: Any) -> Iterator[object]:
    """A number between two bounds that are so near that no float lies between them."""
    if isinstance(lower, int | Decimal) and isinstance(upper, int | Decimal):
        yield (Decimal(lower) + Decimal(upper)) / 2


def _text_below(key: str) -> str:
    """A text just below another; below that are further ones without end."""
    if key.endswith("\0"):
        return key[:-1]
    before = ord(key[-1]) - 1
    if 0xD800 <= before <= 0xDFFF:
        before = 0xD7FF  # no text holds surrogates
    return key[:-1] + chr(before) + _HIGHEST


def _day(key: int) -> date | None:
    try:
        return _EPOCH.date() + timedelta(days=key)
    except OverflowError:
        return None


def _moment(key: int) -> datetime | None:
    try:
        return _EPOCH + timedelta(microseconds=key)
    except OverflowError:
        return None


# --- patterns --------------------------------------------------------------------------------


def _documents(pattern: PatternNode) -> Iterator[Event]:
    edges = sum(node.is_descendant for node in nodes_of(pattern))
    for is_high in (False, True):
        models = canonical_models(pattern, 0)
        if edges and is_high:
            # All edges stretched: the last of the models, which are too many to go through.
            models = iter((_stretched(pattern),))
        for model in models:
            yield {BODY: _markup(model, is_high)}


def _stretched(node: PatternNode) -> PatternNode:
    model = PatternNode(
        is_descendant=False,
        label=_FRESH if node.label is None else node.label,
        attributes=node.attributes,
        value=node.value,
        texts=node.texts,
        branches=tuple(_stretched(branch) for branch in node.branches),
    )
    if not node.is_descendant:
        return model
    return PatternNode(is_descendant=False, label=_FRESH, branches=(model,))


def _markup(node: PatternNode, is_high: bool) -> str:
    """The element of a model: it meets what the node demands, and nothing else."""
    label = _FRESH if node.label in (None, "\0") else node.label
    attributes = "".join(
        f" {name}={quoteattr(_text(condition, is_high))}" for name, condition in node.attributes
    )
    # A comment keeps text nodes apart.
    texts = [_text(condition, is_high) or " " for condition in node.texts]
    if node.value != ANY_TEXT and not texts:
        texts = [_text(node.value, is_high)]
    inside = "<!---->".join(map(escape, texts))
    below = "".join(_markup(branch, is_high) for branch in node.branches)
    return f"<{label}{attributes}>{inside}{below}</{label}>"


def _text(condition: Condition, is_high: bool) -> str:
    """A text that a condition allows, empty if none was found."""
    if condition.exactly is not None:
        return condition.exactly
    guesses: list[str] = ["", _FRESH] if condition.not_a_number else []
    if condition.numbers:
        ends = _ends(KindClass.NUMBER, condition.numbers, is_high)
        guesses += [_spelled_number(end) for end in ends]
    return next((text for text in guesses if condition.contains(text)), "")


def _spelled_number(number: Any) -> str:
    # There is no spelling of the infinities that readers of XML take for numbers.
    finite = max(min(number, Decimal("1E+30")), Decimal("-1E+30"))
    return format(Decimal(str(finite)), "f")
