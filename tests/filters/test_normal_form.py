"""The normal form: canonical text, bytes, digest, simplification, and its bounds on work."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peersub.filters import Filter, FilterError, boxes, normal_form, patterns
from peersub.filters.limits import (
    CONJUNCTS_MAX,
    NESTING_MAX,
    NUMBER_DIGITS_MAX,
    PATTERN_CHARACTERS_MAX,
    PRODUCTS_MAX,
    TEXT_CHARACTERS_MAX,
    TEXT_TESTS_MAX,
)
from peersub.filters.normal_form import simplified
from peersub.filters.wire_form import VERSION
from strategies import events, examples, filter_texts, filters, text_of

# --- canonical text, bytes, digest -----------------------------------------------------------


@examples(150)
@given(filter_texts)
def test_canonical_text_parses_back_to_an_equal_filter(text: str) -> None:
    wanted = Filter(text)
    again = Filter(wanted.text)
    assert again == wanted and hash(again) == hash(wanted)
    assert again.text == wanted.text and again.digest == wanted.digest
    assert len(wanted.text.splitlines()) == 1


@examples(120)
@given(filter_texts)
def test_bytes_read_back_to_an_equal_filter(text: str) -> None:
    wanted = Filter(text)
    again = Filter.from_bytes(wanted.to_bytes())
    assert again == wanted and again.to_bytes() == wanted.to_bytes()


@examples(80)
@given(filters, st.integers(0, 99), st.integers(0, 99))
def test_spelling_makes_no_difference(tree: Any, one: int, other: int) -> None:
    first, second = Filter(text_of(tree, one)), Filter(text_of(tree, other))
    assert first == second and first.digest == second.digest


@pytest.mark.parametrize(
    "text",
    [
        "a > 1e-300",
        "a < 1e300",
        "a BETWEEN -1.7976931348623157e308 AND 5e-324",
        f"a = {'9' * NUMBER_DIGITS_MAX}",
        f"a = 0.{'1' * (NUMBER_DIGITS_MAX - 1)}",
        "a = 0.1234567890123456789012345678901234",
        "a > DATE '9999-12-31'",
        "a < DATE '0001-01-01'",
        "a <> DATE '0001-01-01' AND a <> DATE '9999-12-31'",
        "a < TIMESTAMP '0001-01-01 00:00:00'",
        "a > TIMESTAMP '9999-12-31 23:59:59.999999'",
        "a IN (TRUE, FALSE)",
        "a = TRUE OR a IS NULL",
        "a IS NOT NULL",
        "a LIKE '%' AND a <> '' AND a NOT IN ('x', 'y')",
        "a LIKE 'x%' AND a <> 'x' AND a <> 'xy'",
        "a > 'x' AND a <= 'x\\0\\0'",
        "a LIKE '%x\\0y%' OR a RLIKE 'x\\0'",
        "a LIKE '%\\\\\\\\%\\%%'",
        "a RLIKE '\\\\\\\\' AND a RLIKE '''' AND a NOT RLIKE 'x\\ny'",
        "`a``b`.`c.d`.` `.`in` = 'it''s' OR `\n` = '\n\r\t'",
        "a LIKE '\U0010ffff%' OR a LIKE '\ud7ff%'",
        "a < 5 OR a >= 5 OR a LIKE '%' OR a IN (TRUE, FALSE)",
        "show = 1 OR call = 2 OR `date` = 3 OR r = 4",
        "(a < 3 OR a > 5 OR a = 'x') AND (b IS NULL OR b LIKE '%x%')",
        "FALSE",
        "TRUE",
    ],
)
def test_odd_filters_survive_text_and_bytes(text: str) -> None:
    wanted = Filter(text)
    assert Filter(wanted.text) == wanted
    assert Filter.from_bytes(wanted.to_bytes()) == wanted


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a = 1.50", "a = 1.5"),
        ("a = 1", "a IN (1.0, 1e0)"),
        ("a > DATE '2024-05-01'", "a >= DATE '2024-05-02'"),
        ("a LIKE 'x'", "a = 'x'"),
        ("a LIKE '%%_'", "a LIKE '_%'"),
        ("NOT a < 5", "a >= 5"),
        ("a <> 5", "a < 5 OR a > 5"),
        ("a = TIMESTAMP '2024-05-01 02:00:00+02:00'", "a = TIMESTAMP '2024-05-01'"),
        ("a = 1 AND b = 2", "b = 2 AND a = 1"),
        ("a = 1 OR a = 2 AND b = 3 OR a = 1", "a = 2 AND b = 3 OR a = 1"),
        ("a LIKE '%x%' OR a NOT LIKE '%x%'", "a LIKE '%'"),
        ("a LIKE 'xyz%' AND a LIKE '%y%'", "a LIKE 'xyz%'"),
        ("a = 'xay' AND a RLIKE 'a'", "a = 'xay'"),
    ],
)
def test_equal_filters_have_one_text_and_one_digest(one: str, other: str) -> None:
    first, second = Filter(one), Filter(other)
    assert first == second and first.text == second.text and first.digest == second.digest


def test_digest_does_not_depend_on_the_process() -> None:
    texts = [
        "a LIKE '%x%' AND b IN ('p', 'q', 'r') OR c.d > 1.5 AND NOT a RLIKE 'y'",
        "x IN (1, 'a', TRUE, DATE '2024-05-01') OR y IS NULL OR z BETWEEN 1 AND 2 AND q = 5",
    ]
    program = (
        "import sys; from peersub import Filter\n"
        "for text in sys.argv[1:]: print(Filter(text).digest.hex())"
    )
    source = str(Path(normal_form.__file__).parents[2])
    printed = [
        subprocess.run(
            [sys.executable, "-c", program, *texts],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": source},
            capture_output=True,
            check=True,
            text=True,
        ).stdout.split()
        for seed in ("1", "2")
    ]
    assert printed == [[Filter(text).digest.hex() for text in texts]] * 2


# --- bytes from strangers --------------------------------------------------------------------

_NUMBER, _STRING, _BOOLEAN, _DATE = 0, 1, 2, 3


def _wire(*found: Any, language: str = "sql", version: int = VERSION) -> bytes:
    return msgspec.msgpack.encode([version, language, list(found)])


def _domain(kind_class: int, *cuts: Any, flags: int = 0) -> list[Any]:
    return [[[["a"], [flags, kind_class, list(cuts)]]], []]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\xff" * 40,
        b"\x91" * 5_000,
        _wire(version=VERSION + 1),
        _wire(language="perl"),
        _wire(5),
        _wire([5, 5]),
        _wire(*([[[], []]] * (CONJUNCTS_MAX + 1))),
        _wire(_domain(_NUMBER, [["NaN"], 0], None)),
        _wire(_domain(_NUMBER, [["sNaN"], 0], None)),
        _wire(_domain(_NUMBER, [["Infinity"], 0], None)),
        _wire(_domain(_NUMBER, [["1E+999999999"], 0], None)),
        _wire(_domain(_NUMBER, [["9" * 5_000], 0], None)),
        _wire(_domain(_NUMBER, [["1E-999999999"], 0], None)),
        _wire(_domain(_NUMBER, [1.5, 0], None)),
        _wire(_domain(_NUMBER, [True, 0], None)),
        _wire(_domain(_NUMBER, [1, 2], None)),
        _wire(_domain(_NUMBER, [2, 0], [1, 0])),
        _wire(_domain(_NUMBER, [1, 0])),
        _wire(_domain(_NUMBER, None, None, None, None)),
        _wire(_domain(_STRING, ["", 0], None)),
        _wire(_domain(_STRING, ["x", 1], None)),
        _wire(_domain(_STRING, [5, 0], None)),
        _wire(_domain(_BOOLEAN, [5, 0], None)),
        _wire(_domain(_DATE, [10**9, 0], None)),
        _wire(_domain(9, None, None)),
        _wire(_domain(_NUMBER, None, None, flags=2)),
        _wire(_domain(_NUMBER, None, None, flags=7)),
        _wire([[[[], [0]]], []]),
        _wire([[[["a"] * (NESTING_MAX + 1), [1]]], []]),
        _wire([[], [[["a"], "RLIKE", "x", 1]]]),
        _wire([[[["a"], [0, _STRING, [None, None]]]], [[["a"], "RLIKE", "(", 1]]]),
        _wire([[[["a"], [0, _STRING, [None, None]]]], [[["a"], "RLIKE", "x", 5]]]),
        _wire([[[["a"], [0, _STRING, [None, None]]]], [[["a"], "LIKE", "x%", 1]]]),
        _wire([[[["a"], [0, _STRING, [None, None]]]], [[["a"], "LIKE", "%%x", 1]]]),
        _wire([[[["a"], [0, _NUMBER, [None, None]]]], [[["a"], "LIKE", "%x", 1]]]),
        b"x" * (16 * TEXT_CHARACTERS_MAX + 1),
    ],
    ids=lambda data: data[:24].hex(),
)
def test_bytes_that_are_no_filter_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="filter"):
        Filter.from_bytes(data)


@examples(120)
@given(filter_texts, st.integers(0), st.integers(0, 255))
def test_damaged_bytes_are_refused_or_give_a_sound_filter(text: str, place: int, byte: int) -> None:
    data = bytearray(Filter(text).to_bytes())
    data[place % len(data)] = byte
    try:
        damaged = Filter.from_bytes(bytes(data))
    except ValueError:
        return
    if damaged.language == "sql":
        assert Filter(damaged.text) == damaged
        damaged.matches({"a": 1, "b": "x"})


# --- simplification --------------------------------------------------------------------------


@examples(80)
@given(st.lists(filter_texts, min_size=1, max_size=4), st.integers(0, 2**16), st.lists(events()))
def test_simplified_is_a_fixpoint_and_independent_of_order(
    texts: list[str], seed: int, rows: list[dict[str, Any]]
) -> None:
    together = [box for text in texts for box in Filter(text).boxes]
    result = simplified(together)
    shuffled = together.copy()
    random.Random(seed).shuffle(shuffled)
    assert simplified(shuffled) == result
    assert simplified(result) == result
    assert len(result) <= len(together)
    for row in rows:
        assert any(boxes.box_matches(box, row) for box in result) is any(
            boxes.box_matches(box, row) for box in together
        )


def test_a_chain_of_fusions_ends_in_one_box() -> None:
    """Each fusion along one attribute makes the next one, along the other, possible."""
    steps = ["a >= 0 AND a < 1 AND b >= 0 AND b < 1"]
    for n in range(1, 40):
        steps.append(f"a >= {n} AND a < {n + 1} AND b >= 0 AND b < {n}")
        steps.append(f"b >= {n} AND b < {n + 1} AND a >= 0 AND a < {n + 1}")
    random.Random(5).shuffle(steps)
    assert Filter(" OR ".join(steps)).text == "a >= 0 AND a < 40 AND b >= 0 AND b < 40"


# --- hostile filters -------------------------------------------------------------------------


def _repeated(
    form: Callable[[int], str], joined: str, characters: int = TEXT_CHARACTERS_MAX
) -> str:
    parts: list[str] = []
    length = 0
    while True:
        part = form(len(parts))
        length += len(part) + len(joined)
        if length > characters:
            return joined.join(parts)
        parts.append(part)


REFUSED = {
    "too long": ("a = 1 " * 20_000, "characters, more than"),
    "deep": ("(" * 5_000 + "a = 1" + ")" * 5_000, "nested deeper"),
    "deep NOT": ("NOT (" * 5_000 + "a = 1" + ")" * 5_000, "nested deeper"),
    "long path": (".".join("a" * 15_000) + " = 1", "more than 64 parts"),
    "long number": ("a = " + "9" * 30_000, "digits"),
    "long decimal": ("a = 0." + "9" * 30_000, "digits"),
    "long LIKE": ("a LIKE '%" + "x" * 30_000 + "%'", "patterns have together"),
    "long RLIKE": ("a RLIKE '" + "x" * 30_000 + "'", "patterns have together"),
    "many LIKE": (_repeated(lambda n: f"a LIKE '%{n}%'", " AND "), "patterns that are no"),
    "many RLIKE": (_repeated(lambda n: f"a RLIKE '{n}'", " OR "), "patterns that are no"),
    "large program": ("a RLIKE '((x{100}){100}){100}'", "RE2"),
    "large classes": ("a RLIKE '(?i)\\pL{900}'", "RE2"),
    "many classes": ("a RLIKE '" + "\\pL" * 1_300 + "'", "Unicode classes"),
    "product": (_repeated(lambda n: f"(a{n} = 1 OR b{n} = 1)", " AND "), "multiplies out"),
    "product of 11": (
        " AND ".join(f"(a{n} = 1 OR b{n} = 1)" for n in range(11)),
        "multiplies out",
    ),
    "wide product": (
        " AND ".join(
            "(" + " OR ".join(f"{x} = {n} AND {x}{n} = 1" for n in range(64)) + ")" for x in "ab"
        ),
        "multiplies out",
    ),
    "product of patterns": (
        " AND ".join(f"(a LIKE '%{n}%' OR b LIKE '%{n}%')" for n in range(10)),
        "multiplies out",
    ),
    "many pairs": (_repeated(lambda n: f"a{n} = 1 AND b{n} = 1", " OR "), "multiplies out"),
    "many pairs of the same": (
        _repeated(lambda n: f"a = {n} AND b = {n}", " OR "),
        "multiplies out",
    ),
    "negated product": (
        "NOT (" + _repeated(lambda n: f"a{n} = 1 AND b{n} = 1", " OR ", 32_000) + ")",
        "multiplies out",
    ),
}
NORMALISED = {
    "numbers IN": ("a IN (" + _repeated(str, ",", 32_000) + ")", 1),
    "strings IN": ("a IN (" + _repeated(lambda n: f"'{n}'", ",", 32_000) + ")", 1),
    "NOT IN": ("a NOT IN (" + _repeated(str, ",", 32_000) + ")", 1),
    "equal to one of": (_repeated(lambda n: f"a = {n}", " OR "), 1),
    "different from all": (_repeated(lambda n: f"a <> {n}", " AND "), 1),
    "ranges": (_repeated(lambda n: f"a BETWEEN {3 * n} AND {3 * n + 1}", " OR "), 1),
    "prefixes": (_repeated(lambda n: f"a LIKE '{n}x%'", " OR "), 1),
    "all absent": (_repeated(lambda n: f"a{n} IS NULL", " AND "), 1),
    "NOT chain": ("NOT " * 8_000 + "a = 1", 1),
    "negations": ("NOT (" * 60 + "a = 1 OR b = 2" + ")" * 60, 2),
    "contradiction": (" AND ".join(f"(a = {n} OR b = {n})" for n in range(500)), 0),
    "1,000 boxes": (" OR ".join(f"a = {n} AND b = {n}" for n in range(1_000)), 1_000),
    "800 boxes of three": (
        " OR ".join(f"a = {n} AND b = {2 * n} AND c < {n}" for n in range(800)),
        800,
    ),
    "product of 10": (" AND ".join(f"(a{n} = 1 OR b{n} = 1)" for n in range(10)), 1_024),
    "small product of patterns": (
        " AND ".join(f"(a LIKE '%{n}%' OR b LIKE '%{n}%')" for n in range(6)),
        64,
    ),
    "64 patterns": (" AND ".join(f"a LIKE '%{n}%x%'" for n in range(TEXT_TESTS_MAX)), 1),
    "nested quantifiers": ("a RLIKE '(((((a+)+)+)+)+)+b'", 1),
    "long name": ("a" * 30_000 + " = 1", 1),
    "long string": ("a = '" + "x" * 30_000 + "'", 1),
    "long prefix": ("a LIKE '" + "x" * 30_000 + "%'", 1),
}


@pytest.mark.parametrize(("text", "reason"), REFUSED.values(), ids=REFUSED)
def test_hostile_filters_are_refused_in_a_few_words(text: str, reason: str) -> None:
    with pytest.raises(FilterError, match=reason) as refused:
        Filter(text)
    assert len(refused.value.one_line()) < 500 and len(str(refused.value)) < 500
    assert refused.value.remedy


@pytest.mark.parametrize(("text", "expected"), NORMALISED.values(), ids=NORMALISED)
def test_hostile_filters_are_normalised(text: str, expected: int) -> None:
    assert len(Filter(text).boxes) == expected


class _Counter:
    """Counts the calls of functions, which bounds work without a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        for module, name in (
            (normal_form, "box_intersection"),
            (normal_form, "box_covers"),
            (normal_form, "_united"),
            (patterns, "like_implies"),
        ):
            monkeypatch.setattr(module, name, self.counted(getattr(module, name)))

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.calls += 1
            return function(*arguments)

        return call


@pytest.mark.parametrize(
    "text", [*(t for t, _ in REFUSED.values()), *(t for t, _ in NORMALISED.values())]
)
def test_hostile_filters_stay_within_a_bound_of_work(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = _Counter(monkeypatch)
    with suppress(FilterError):
        Filter(text)
    # Products, comparisons of up to 128 boxes, pairs of 64 patterns, fusions: all have their bound.
    assert counter.calls <= PRODUCTS_MAX + 128 * 128 + 2 * TEXT_TESTS_MAX**2


def test_many_constraints_on_one_attribute_are_united_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One after the other would take a time that grows with the square of their number."""
    counter = _Counter(monkeypatch)
    Filter(" OR ".join(f"a = {n}" for n in range(2_000)))
    Filter(" AND ".join(f"a <> {n}" for n in range(2_000)))
    assert counter.calls == 1


def test_a_long_chain_of_fusions_looks_at_each_box_once(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = ["a >= 0 AND a < 1 AND b >= 0 AND b < 1"]
    for n in range(1, 300):
        steps.append(f"a >= {n} AND a < {n + 1} AND b >= 0 AND b < {n}")
        steps.append(f"b >= {n} AND b < {n + 1} AND a >= 0 AND a < {n + 1}")
    counter = _Counter(monkeypatch)
    assert len(Filter(" OR ".join(steps)).boxes) == 1
    assert counter.calls <= len(steps)


def test_patterns_share_one_bound_on_characters() -> None:
    half = "x" * (PATTERN_CHARACTERS_MAX // 2)
    assert Filter(f"a LIKE '%{half[2:]}%' OR a RLIKE '{half}'")
    with pytest.raises(FilterError, match="together more than 4,096 characters") as refused:
        Filter(f"a LIKE '%{half}%' OR a RLIKE '{half}'")
    assert refused.value.position == len(f"a LIKE '%{half}%' OR a RLIKE ")
