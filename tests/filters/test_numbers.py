"""The one order of numbers: exact, and in agreement with every kind of number by itself."""

from decimal import Decimal
from fractions import Fraction
from math import inf, isinf, nextafter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peersub.events.kinds import KindClass, comparable, number_key
from peersub.filters import Filter
from strategies import examples

finite_floats = st.floats(allow_nan=False, allow_infinity=False)
decimals = st.decimals(allow_nan=False, allow_infinity=False)
integers = st.integers() | st.integers(2**53 - 3, 2**53 + 3) | st.integers(2**63 - 3, 2**64 + 3)


@examples(300)
@given(finite_floats)
def test_neighbouring_floats_keep_their_order(number: float) -> None:
    above = nextafter(number, inf)
    assert number_key(number) < number_key(above)
    assert number_key(nextafter(number, -inf)) < number_key(number)


@examples(200)
@given(finite_floats, finite_floats)
def test_floats_order_as_floats(one: float, other: float) -> None:
    assert (number_key(one) < number_key(other)) is (one < other)
    assert (number_key(one) == number_key(other)) is (one == other)


@examples(200)
@given(integers, finite_floats)
def test_integers_and_whole_floats_compare_exactly(whole: int, number: float) -> None:
    assert number_key(whole) == whole
    near = float(whole)
    assert (number_key(near) < whole) is (Fraction(near) < whole)
    assert (number_key(near) == whole) is (Fraction(near) == whole)
    if number == int(number):
        assert number_key(number) == Fraction(number)
    assert (number_key(number) < whole) is (Fraction(number) < whole)


@examples(200)
@given(decimals, decimals)
def test_decimals_compare_exactly(one: Decimal, other: Decimal) -> None:
    assert (number_key(one) < number_key(other)) is (one < other)
    assert (number_key(one) == number_key(other)) is (one == other)
    if one == other:
        assert hash(number_key(one)) == hash(number_key(other))


@examples(100)
@given(finite_floats)
def test_a_float_equals_the_decimal_that_is_printed(number: float) -> None:
    assert number_key(number) == number_key(Decimal(repr(number))) or number == int(number)
    if abs(number) < 2**53:
        assert number_key(number) == number_key(Decimal(repr(number)))


@examples(100)
@given(integers | finite_floats | decimals)
def test_infinities_lie_beyond_all_numbers(number: Any) -> None:
    assert number_key(-inf) < number_key(number) < number_key(inf)
    assert number_key(Decimal("Infinity")) == number_key(inf) and isinf(number_key(inf))


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("a = 9007199254740993", 9007199254740993, True),
        ("a = 9007199254740993", 9007199254740992.0, False),
        ("a = 9007199254740992", 9007199254740992.0, True),
        ("a > 9007199254740992", 9007199254740993, True),
        ("a = 18446744073709551617", 2**64 + 1, True),
        ("a = 18446744073709551617", float(2**64), False),
        ("a = 0.1", 0.1, True),
        ("a = 0.1", Decimal("0.1"), True),
        ("a = 0.1", Decimal("0.1000000000000000055511151231257827"), False),
        ("a = 0.3", 0.1 + 0.2, False),
        ("a = 0.30000000000000004", 0.1 + 0.2, True),
        ("a = 1", 1.0, True),
        ("a = 1.0", 1, True),
        ("a = 1", True, False),
        ("a <> 1", True, False),
        ("a = TRUE", 1, False),
        ("a = 0", -0.0, True),
        ("a >= 0", Decimal("-0"), True),
        ("a > 1e308", inf, True),
        ("a < 0", -inf, True),
        (
            "a > 0.1234567890123456789012345678901234",
            Decimal("0.1234567890123456789012345678901235"),
            True,
        ),
        (
            "a > 0.1234567890123456789012345678901234",
            Decimal("0.1234567890123456789012345678901234"),
            False,
        ),
        ("a = 1e-400", 0, True),
        ("a = 5e-324", 5e-324, True),
        ("a > 0", 5e-324, True),
        ("a < 1e300", 10**299, True),
        ("a < 10", Decimal("1E+999999"), False),
        ("a > 10", 10**4_000, True),
        ("a > 10", Decimal("1E-999999"), False),
        ("a IS NULL", Decimal("NaN"), True),
        ("a IS NULL", Decimal("sNaN"), True),
        ("a <> 1", float("nan"), False),
    ],
)
def test_numbers_by_example(text: str, value: Any, expected: bool) -> None:
    assert Filter(text).matches({"a": value}) is expected


def test_integers_that_python_does_not_print_compare() -> None:
    assert Filter("a > 10").matches({"a": 10**5_000})
    assert not Filter("a IN (10, 20)").matches({"a": -(10**5_000)})


def test_the_current_decimal_context_does_not_matter() -> None:
    import decimal

    with decimal.localcontext(prec=3):
        assert Filter("a = 1.23456789").text == "a = 1.23456789"
        assert Filter("a = 1.23456789").matches({"a": Decimal("1.23456789")})
        assert not Filter("a = 1.23456789").matches({"a": Decimal("1.23")})


def test_a_bool_is_no_number() -> None:
    assert comparable(True) == (KindClass.BOOLEAN, 1)
    assert comparable(1) == (KindClass.NUMBER, 1)
