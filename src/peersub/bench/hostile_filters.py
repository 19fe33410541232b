"""Filters of somebody who means no good, drawn from a seed: near every bound, and beyond.

Some are texts, as the API takes them; others are bytes that no API would write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import msgspec

from peersub.filters.errors import FilterError
from peersub.filters.filter import Filter
from peersub.filters.limits import (
    CONJUNCTS_MAX,
    NESTING_MAX,
    NUMBER_DIGITS_MAX,
    PATTERN_CHARACTERS_MAX,
    TEXT_CHARACTERS_MAX,
    TEXT_TESTS_MAX,
)
from peersub.filters.wire_form import BYTES_MAX

__all__ = ["HostileFilter", "hostile_filters"]

_STRINGS: Final = [0, 1, [None, None]]
_PATTERNS: Final = (
    *("x%d.*y", "(a?){%d}b", "\\pL{%d}", "[^\\pL]{%d}z", "(\\pL|\\pN){%d}"),
    *("(?i)straße%d", ".{%d}k", "(.|..|...){%d}"),
)


@dataclass(frozen=True, slots=True)
class HostileFilter:
    """A filter as it is sent.

    Attributes:
        kind: how it was drawn.
        wanted: as the API makes it; None if it is only bytes, or if the language refuses it.
        data: its bytes, also of one that is no filter; None if the language refuses it.
    """

    kind: str
    wanted: Filter | None
    data: bytes | None


def hostile_filters(seed: int, count: int) -> Iterator[HostileFilter]:
    """So many, each kind as often as the others."""
    draw = Random(seed)
    kinds = [*_TEXTS, *_BYTES]
    for number in range(count):
        make = kinds[number % len(kinds)]
        kind = make.__name__.strip("_")
        if make in _BYTES:
            yield HostileFilter(kind, None, _BYTES[make](draw))
            continue
        try:
            wanted = Filter(_TEXTS[make](draw)) if make is not _tree_pattern else _pattern(draw)
        except FilterError:
            yield HostileFilter(kind, None, None)
        else:
            yield HostileFilter(kind, wanted, wanted.to_bytes())


# --- texts -----------------------------------------------------------------------------------


def _product(draw: Random) -> str:
    pairs, value = draw.randint(4, 12), draw.randrange(10_000)
    return " AND ".join(f"(a{n} = 'k{value}' OR b{n} = {value})" for n in range(pairs))


def _union(draw: Random) -> str:
    boxes, value = draw.randint(100, CONJUNCTS_MAX + 40), draw.randrange(10_000)
    parts = (f"(a{n} > {value} AND b{n % 7} < 'k{n}')" for n in range(boxes))
    return " OR ".join(parts)[:TEXT_CHARACTERS_MAX].rpartition(" OR ")[0] or "a = 1"


def _many_values(draw: Random) -> str:
    values = ", ".join(f"'{draw.randrange(10**7):x}'" for _ in range(draw.randint(500, 3_000)))
    return f"symbol IN ({values}) AND b > {draw.random()}"


def _wide(draw: Random) -> str:
    many = draw.randint(100, 1_500)
    return " AND ".join(f"w{n} < {draw.randrange(1_000)}" for n in range(many))


def _wide_product(draw: Random) -> str:
    wide = " AND ".join(f"w{n} < {draw.randrange(100)}" for n in range(draw.randint(10, 200)))
    return f"{wide} AND " + " AND ".join(f"(a{n} = 1 OR b{n} = 2)" for n in range(7))


def _expressions(draw: Random) -> str:
    joined = draw.choice((" AND ", " OR "))
    many = draw.randint(8, TEXT_TESTS_MAX + 2)
    return joined.join(f"symbol RLIKE r'{_expression(draw)}'" for _ in range(many))


def _likes(draw: Random) -> str:
    many, pairs = draw.choice(((TEXT_TESTS_MAX, 3), (32, 5), (8, 6), (40, 0)))
    likes = " AND ".join(f"a LIKE '%{draw.randrange(10**9):x}%_{n}'" for n in range(many))
    return " AND ".join((likes, *(f"(a{n} = 1 OR b{n} = 2)" for n in range(pairs))))


def _values_and_expressions(draw: Random) -> str:
    values = ", ".join(f"'{draw.randrange(10**9):x}'" for _ in range(1_500))
    tests = " AND ".join(f"a RLIKE r'{_expression(draw)}'" for _ in range(30))
    return f"a IN ({values}) AND {tests}"


def _nested(draw: Random) -> str:
    text = "a = 1"
    for depth in range(draw.randint(10, NESTING_MAX + 2)):
        text = f"({text} {draw.choice(('AND', 'OR'))} b{depth % 9} {draw.choice('<>')} {depth})"
        text = f"NOT {text}" if draw.random() < 0.3 else text
    return text


def _chain(draw: Random) -> str:
    """One of many that all cover each other."""
    low, high = draw.randrange(5_000), draw.randrange(5_000, 10_000)
    texts = f"price > {low}", f"price > {low} AND price < {high}", f"price > {low} OR size > {high}"
    return draw.choice(texts)


def _nearly_covering(draw: Random) -> str:
    """Boxes of one attribute that cover others' only together, but for a gap."""
    step, many, gap = draw.randint(2, 5), draw.randint(20, 90), draw.randrange(90)
    return " OR ".join(
        f"(a >= {n * step} AND a < {n * step + step - (n == gap)} AND b{n % 5} IS NULL)"
        for n in range(many)
    )


def _wanting_all(draw: Random) -> str:
    """Matches what others publish, after tests that take long."""
    many = draw.randint(2, 30)
    tests = (f"symbol NOT RLIKE r'(.*{draw.randrange(10**6)}.*){{3}}$'" for _ in range(many))
    return " AND ".join(("symbol LIKE 's%'", *tests))


def _long_texts(draw: Random) -> str:
    """Prefixes that differ at their ends."""
    length = draw.randint(1_000, 9_000)
    return " OR ".join(f"symbol LIKE '{'s' * length}{n}%'" for n in range(3))


def _numbers(draw: Random) -> str:
    """As many digits, and as large exponents, as may be."""
    digits = "".join(draw.choice("123456789") for _ in range(NUMBER_DIGITS_MAX))
    values = ", ".join(f"{draw.randrange(1, 10**9)}e{draw.randrange(300)}" for _ in range(900))
    return f"a IN ({values}) OR b > 0.{digits[:-1]} OR c < {digits}"


def _many_attributes(draw: Random) -> str:
    """Cheap, and with a set of attributes that nobody else has."""
    names = sorted({f"x{draw.randrange(10**6)}" for _ in range(11)})
    return " AND ".join(f"{name} > 1" for name in names)


def _tree_pattern(draw: Random) -> str:
    steps = "".join(f"//*[s{draw.randrange(100)}]" for _ in range(draw.randint(5, 31)))
    return f"/a{steps}"


def _pattern(draw: Random) -> Filter:
    return Filter.xpath(_tree_pattern(draw))


def _expression(draw: Random) -> str:
    pattern: str = draw.choice(_PATTERNS)
    return pattern % draw.randint(1, 60)


# --- bytes -----------------------------------------------------------------------------------


def _packed(boxes: list[Any]) -> bytes:
    return msgspec.msgpack.encode([1, "sql", boxes])


def _raw_patterns(draw: Random) -> bytes:
    """As many patterns as fit into each box, and many boxes."""
    boxes = []
    for box in range(draw.randint(2, 200)):
        texts = [_expression(draw) + str(draw.random()) for _ in range(TEXT_TESTS_MAX)]
        boxes.append([[[[f"a{box}"], _STRINGS]], [[[f"a{box}"], "RLIKE", t, 1] for t in texts]])
    return _packed(boxes)[:BYTES_MAX]


def _raw_repeated(draw: Random) -> bytes:
    """The same few patterns in all boxes."""
    texts = [_expression(draw) for _ in range(draw.randint(1, TEXT_TESTS_MAX))]
    tests = [[["a"], "RLIKE", text, 1] for text in dict.fromkeys(texts)]
    number = [0, 0, [(draw.randrange(9), 0), (20, 1)]]
    many = draw.randint(50, CONJUNCTS_MAX)
    return _packed([[[[["a"], _STRINGS], [[f"b{n}"], number]], tests] for n in range(many)])


def _raw_boxes(draw: Random) -> bytes:
    """Boxes that are alike, and do not fuse."""
    many, width = draw.randint(100, CONJUNCTS_MAX), draw.randint(1, 10)
    boxes = []
    for box in range(many):
        names = sorted({f"a{draw.randrange(40):02}" for _ in range(width)})
        domains = [[[name], [0, 0, [(box, 0), (box + draw.randrange(9), 1)]]] for name in names]
        boxes.append([domains, []])
    return _packed(boxes)


def _raw_texts(draw: Random) -> bytes:
    """Long texts with patterns that would be tried on them."""
    text = "".join(draw.choice("xyzé") for _ in range(draw.randint(1_000, 60_000)))
    cuts = [(text, 0), (text + "\0", 0)]
    tests = [[["a"], "RLIKE", _expression(draw), 1] for _ in range(draw.randint(1, 20))]
    return _packed([[[[["a"], [0, 1, cuts]]], tests]])


def _raw_long_pattern(draw: Random) -> bytes:
    pattern = "".join(draw.choice("a?b*.|(c){2}[d-z]") for _ in range(PATTERN_CHARACTERS_MAX))
    return _packed([[[[["a"], _STRINGS]], [[["a"], "RLIKE", pattern, 1]]]])


def _raw_nested(draw: Random) -> bytes:
    """No filter at all: lists in lists."""
    return b"\x93\x01\xa3sql" + b"\x91" * draw.randint(10, 400) + b"\x90"


def _raw_empty_lists(draw: Random) -> bytes:
    """As many objects as bytes."""
    many = draw.randint(10_000, 60_000)
    return b"\x93\x01\xa3sql\xdc" + many.to_bytes(2, "big") + b"\x90" * many


def _raw_digits(draw: Random) -> bytes:
    """Numbers as texts, with more digits than the language takes."""
    texts = sorted({draw.randrange(10**399, 10**400) for _ in range(draw.randint(2, 60))})
    cuts = [([str(number)], 0) for number in texts[: len(texts) // 2 * 2]]
    return _packed([[[[["a"], [0, 0, cuts]]], []]])


def _raw_deep_names(draw: Random) -> bytes:
    """Names in names, as deep as may be."""
    paths = [[f"n{draw.randrange(9)}"] * NESTING_MAX for _ in range(draw.randint(1, 30))]
    number = [0, 0, [(1, 0), (20, 1)]]
    return _packed([[[[path, number]], []] for path in sorted(paths)])


def _raw_noise(draw: Random) -> bytes:
    """A proper filter with some bytes changed."""
    data = bytearray(Filter(_product(Random(draw.randrange(5)))).to_bytes()[:100_000])
    for _ in range(draw.randint(1, 20)):
        data[draw.randrange(len(data))] = draw.randrange(256)
    return bytes(data)


_Texts = dict[Callable[[Random], str], Callable[[Random], str]]
_TEXTS: Final[_Texts] = {
    make: make
    for make in (
        *(_product, _union, _many_values, _wide, _wide_product, _expressions, _likes),
        *(_values_and_expressions, _nested, _chain, _nearly_covering, _wanting_all),
        *(_long_texts, _numbers, _many_attributes, _tree_pattern),
    )
}
_BYTES: Final[dict[Callable[[Random], Any], Callable[[Random], bytes]]] = {
    make: make
    for make in (
        *(_raw_patterns, _raw_repeated, _raw_boxes, _raw_texts, _raw_long_pattern),
        *(_raw_nested, _raw_empty_lists, _raw_digits, _raw_deep_names, _raw_noise),
    )
}
