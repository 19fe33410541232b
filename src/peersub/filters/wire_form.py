"""A filter's normal form as versioned MessagePack: what travels, what is hashed, what is stored.

`[version, "sql", [box, ...]]` or `[version, "xpath", pattern]`. A box is
`[[path, domain] ..., [test] ...]`, a domain `[flags, class, cuts, class, cuts, ...]`, a cut a value
with its side; unbounded ends are nil. Decimals travel as text. Sizes are bounded before anything is
built, and whatever does not have this shape is refused.
"""

from __future__ import annotations

import hashlib
import re
import sys
from datetime import date
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any

from peersub.events.kinds import (
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
    KindClass,
    date_key,
    number_key,
    timestamp_key,
)
from peersub.filters.boxes import FALSE, TRUE, Box, Path, box_of
from peersub.filters.domains import PRESENT, Domain
from peersub.filters.intervals import EMPTY, GREATEST, LEAST, Cut, IntervalSet
from peersub.filters.limits import (
    CONJUNCTS_MAX,
    CONSTRAINTS_MAX,
    NESTING_MAX,
    PATTERN_CHARACTERS_MAX,
    TEXT_CHARACTERS_MAX,
    TEXT_TESTS_MAX,
)
from peersub.filters.normal_form import Boxes, simplified
from peersub.filters.patterns import (
    Operator,
    PatternError,
    TextTest,
    canonical_like,
    check_expression,
    like_interval,
)
from peersub.filters.price import (
    FILTER_BYTES_MAX,
    Price,
    TooDearError,
    price_of_form,
    price_of_tree_pattern,
    refusal_of,
)

__all__ = [
    "VERSION",
    "boxes_to_bytes",
    "bytes_to_boxes",
    "digest_of",
    "pattern_to_bytes",
    "read_bytes",
]

VERSION = 1
# A literal has at most NUMBER_DIGITS_MAX digits, or is a float: neither needs more than this.
_NUMBER = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,100})?(E-[0-9]{1,3})?")
# Looking up a member of an enum takes longer than most of what is done with it.
_CLASS_OF = {int(kind_class): kind_class for kind_class in KindClass}
_NUMBERS = KindClass.NUMBER
_STRINGS = KindClass.STRING
# The cuts of classes with a least and a greatest value: above the one up to beyond the other.
_KEYS = {
    KindClass.BOOLEAN: (1, 1),
    KindClass.DATE: (date_key(date.min), date_key(date.max) + 1),
    KindClass.TIMESTAMP: (timestamp_key(TIMESTAMP_MIN), timestamp_key(TIMESTAMP_MAX) + 1),
}
BYTES_MAX = 16 * TEXT_CHARACTERS_MAX


@cache
def _codec() -> Any:
    import msgspec

    return msgspec


def boxes_to_bytes(boxes: Boxes) -> bytes:
    """The bytes of a union of boxes; equal unions give equal bytes."""
    encoded: bytes = _codec().msgpack.encode([VERSION, "sql", [_box(box) for box in boxes]])
    return encoded


def pattern_to_bytes(pattern: str) -> bytes:
    """The bytes of a canonical tree pattern."""
    encoded: bytes = _codec().msgpack.encode([VERSION, "xpath", pattern])
    return encoded


def digest_of(data: bytes) -> bytes:
    """The 16 bytes by which a filter is known."""
    return hashlib.blake2b(data, digest_size=16).digest()


def _box(box: Box) -> list[Any]:
    domains, tests = box.key
    return [
        [[list(path), _domain(domain)] for path, domain in domains],
        [[list(test.path), str(test.operator), test.pattern, truth] for test, truth in tests],
    ]


def _domain(domain: Domain) -> list[Any]:
    form: list[Any] = [domain.absent + 2 * domain.other]
    for number, cuts in enumerate(domain.sets):
        if cuts:
            form += (number, [_cut(cut) for cut in cuts])
    return form


def _cut(cut: Cut) -> Any:
    key, side = cut
    kind = type(key)
    if kind is str or (kind is int and -(2**63) <= key < 2**64):
        return cut
    if kind is int or kind is Decimal:
        # A one-element list marks a number that MessagePack cannot hold, as text.
        return [[str(key)], side]
    assert cut in (LEAST, GREATEST)
    return None


def bytes_to_boxes(data: bytes) -> Boxes | str:
    """The union of boxes, or the text of the pattern, that the bytes stand for.

    Raises:
        ValueError: with the reason.
    """
    return read_bytes(data)[0]


def read_bytes(data: bytes, price_max: int | None = None) -> tuple[Boxes | str, Price]:
    """The union of boxes, or the text of the pattern, that the bytes stand for, and its price.

    Raises:
        TooDearError: it costs more than `price_max`; said before anything is built or compiled.
        ValueError: with the reason.
    """
    if len(data) > BYTES_MAX:
        raise ValueError(f"a filter of {len(data):,} bytes is larger than {BYTES_MAX:,}")
    if price_max is not None and len(data) > FILTER_BYTES_MAX:
        raise TooDearError(
            f"the filter has {len(data):,} bytes, and a filter may have {FILTER_BYTES_MAX:,} in a "
            "network. Split it into several subscriptions."
        )
    msgspec = _codec()
    try:
        version, language, form = msgspec.msgpack.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, TypeError, RecursionError):
        raise ValueError("the bytes are not a filter") from None
    if version != VERSION:
        raise ValueError(f"a filter of version {version!r} is not understood, only {VERSION}")
    if language == "xpath" and isinstance(form, str):
        price = price_of_tree_pattern(form)
        _check_price(price, price_max)
        return form, price
    try:
        if language != "sql" or len(form) > CONJUNCTS_MAX:
            raise ValueError(language)
        price = price_of_form(form, len(data))
        _check_price(price, price_max)
        if price.constraints > CONSTRAINTS_MAX:
            raise ValueError(price.constraints)
        boxes = [_read_box(*box) for box in form]
    except TooDearError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, InvalidOperation, PatternError):
        raise ValueError("the bytes are not a filter") from None
    return simplified(box for box in boxes if box is not None), price


def _check_price(price: Price, price_max: int | None) -> None:
    refusal = None if price_max is None else refusal_of(price, price_max)
    if refusal is not None:
        raise TooDearError(refusal)


def _read_box(domains: list[Any], tests: list[Any]) -> Box | None:
    """A box that the language can say: what reads well here can also be written as text."""
    read_domains = {_read_path(path): _read_domain(domain) for path, domain in domains}
    read_tests = {}
    if len(tests) > TEXT_TESTS_MAX:
        raise ValueError("too many patterns")
    for path, operator, pattern, truth in tests:
        test = TextTest(_read_path(path), Operator(operator), _read_pattern(operator, pattern))
        strings = read_domains.get(test.path)
        if truth not in (TRUE, FALSE) or strings is None:
            raise ValueError(truth)
        if strings.only_class is not KindClass.STRING:
            raise ValueError("a pattern tests strings only")
        read_tests[test] = int(truth)
    return box_of(read_domains, read_tests)


def _read_pattern(operator: str, pattern: Any) -> str:
    if not isinstance(pattern, str) or len(pattern) > PATTERN_CHARACTERS_MAX:
        raise ValueError(pattern)
    if operator == Operator.RLIKE:
        check_expression(pattern)
    elif like_interval(pattern) is not None or canonical_like(pattern) != pattern:
        raise ValueError(pattern)
    return pattern


def _read_path(path: list[Any]) -> Path:
    if not 0 < len(path) <= NESTING_MAX:
        raise ValueError(path)
    for name in path:
        if type(name) is not str:
            raise ValueError(path)
    return tuple(path)


def _read_domain(form: list[Any]) -> Domain:
    flags, sets = form[0], [EMPTY] * len(_CLASS_OF)
    if flags not in (0, 1, 2, 3):
        raise ValueError(flags)
    for at in range(1, len(form), 2):
        kind_class = _CLASS_OF[form[at]]
        sets[kind_class] = _read_cuts(kind_class, form[at + 1])
    number, string, boolean, date, timestamp = sets
    domain = Domain(bool(flags & 1), bool(flags & 2), (number, string, boolean, date, timestamp))
    if domain.other and domain.sets != PRESENT.sets:
        raise ValueError("values that do not compare are allowed only together with all others")
    return domain


def _read_cuts(kind_class: KindClass, forms: list[Any]) -> IntervalSet:
    cuts: list[Cut] = []
    for form in forms:
        if form is None:
            cut = GREATEST if cuts else LEAST
            grows = not cuts or cuts[-1] is not GREATEST
        else:
            key, side = form
            cut = _read_cut(kind_class, key, side)
            grows = not cuts or cuts[-1] is LEAST or cuts[-1] < cut
        if not grows:
            raise ValueError("cuts do not grow")
        cuts.append(cut)
    if len(cuts) % 2:
        raise ValueError("cuts do not come in pairs")
    return tuple(cuts)


def _read_cut(kind_class: KindClass, key: Any, side: int) -> Cut:
    if type(side) is not int or side not in (0, 1):
        raise ValueError(side)
    if kind_class is _NUMBERS:
        return (key if type(key) is int else _read_number(key), side)
    if side == 1:
        raise ValueError(side)
    if kind_class is _STRINGS:
        if not isinstance(key, str) or not key:
            raise ValueError(key)
        return (key, 0)
    least, greatest = _KEYS[kind_class]
    if type(key) is not int or not least <= key <= greatest:
        raise ValueError(key)
    return (key, 0)


def _read_number(key: Any) -> int | float | Decimal:
    (text,) = key
    if not isinstance(text, str) or _NUMBER.fullmatch(text) is None:
        raise ValueError(text)
    number = number_key(Decimal(text))
    if not -sys.float_info.max <= number <= sys.float_info.max:
        raise ValueError("no text of a filter says so large a number")
    return number
