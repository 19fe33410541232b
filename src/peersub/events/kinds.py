"""The kinds of values, and the one order in which values of a class compare.

A value has a *kind*. Kinds that compare with each other form a *class*; values of different classes
compare as unknown. Within a class the order is total:

========== ================================= ==============================================
class      kinds                             order, and the key that carries it
========== ================================= ==============================================
number     int64, float64, decimal           by value, exactly (see `number_key`)
string     string                            by code point: the str itself
boolean    bool                              FALSE < TRUE: 0 and 1
date       date                              days since 1970-01-01
timestamp  timestamp                         microseconds since 1970-01-01 00:00 UTC
========== ================================= ==============================================

Records are walked into by dotted names; arrays and binary travel but cannot be compared. NaN and
None are missing. A timestamp without a zone is UTC; parts below a microsecond are cut off.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import IntEnum, StrEnum
from math import isnan
from typing import Any

__all__ = [
    "INT64_MAX",
    "INT64_MIN",
    "TIMESTAMP_MAX",
    "TIMESTAMP_MIN",
    "Kind",
    "KindClass",
    "comparable",
    "date_key",
    "exact_number",
    "kind_of",
    "number_key",
    "plain_value",
    "timestamp_key",
    "value_at",
]

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1

TIMESTAMP_MIN = datetime.min.replace(tzinfo=UTC)
TIMESTAMP_MAX = datetime.max.replace(tzinfo=UTC)

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Kind(StrEnum):
    """The kinds of values that an event can carry."""

    MISSING = "missing"
    BOOLEAN = "bool"
    INTEGER = "int64"
    FLOAT = "float64"
    DECIMAL = "decimal"
    STRING = "string"
    DATE = "date"
    TIMESTAMP = "timestamp"
    RECORD = "record"
    OPAQUE = "opaque"

    @property
    def kind_class(self) -> KindClass | None:
        """The class in which values of this kind compare; None if they do not compare at all."""
        return _CLASS_OF_KIND.get(self)


class KindClass(IntEnum):
    """Kinds that compare with each other."""

    NUMBER = 0
    STRING = 1
    BOOLEAN = 2
    DATE = 3
    TIMESTAMP = 4


_CLASS_OF_KIND = {
    Kind.BOOLEAN: KindClass.BOOLEAN,
    Kind.INTEGER: KindClass.NUMBER,
    Kind.FLOAT: KindClass.NUMBER,
    Kind.DECIMAL: KindClass.NUMBER,
    Kind.STRING: KindClass.STRING,
    Kind.DATE: KindClass.DATE,
    Kind.TIMESTAMP: KindClass.TIMESTAMP,
}


# Looking up a member of an enum takes longer than all that `comparable` does else.
_NUMBER, _STRING, _BOOLEAN = KindClass.NUMBER, KindClass.STRING, KindClass.BOOLEAN
_DATE, _TIMESTAMP = KindClass.DATE, KindClass.TIMESTAMP


def number_key(value: float | Decimal) -> int | float | Decimal:
    """The place of a number in the one order of numbers; equal numbers have equal keys.

    Integers and decimals stand where they are. A float that is a whole number stands at exactly
    that integer, so integers and floats compare exactly, also beyond 2**53. Any other float stands
    at the shortest decimal that names it: 0.1 as a float, as a decimal and in a filter is one
    number. This keeps the order of floats, because that decimal lies nearer to its float than to
    any other.

    >>> number_key(0.1) == Decimal("0.1"), number_key(2.0**60) == 2**60, number_key(-0.0)
    (True, True, 0)
    """
    if type(value) is int:
        return value
    if isinstance(value, float):
        if value.is_integer():
            return int(value)
        # Infinities compare with integers and decimals as they are.
        return value if value in (float("inf"), float("-inf")) else Decimal(float.__repr__(value))
    if isinstance(value, Decimal):
        if value.is_infinite():
            return float(value)
        # A decimal with a huge exponent must not be spelled out as an integer: keep it as it is.
        if value.adjusted() > 400 or value != value.to_integral_value():
            return value
    return int(value)


def exact_number(text: str) -> int | float | Decimal:
    """The key of a number that is written without an exponent, exact at any size, in one spelling.

    >>> exact_number("1.50"), exact_number("-2.0")
    (Decimal('1.5'), -2)
    """
    if "." not in text:
        return int(text)
    # Arithmetic would round to the digits of the current context: the zeros go from the text.
    return number_key(Decimal(text.rstrip("0")))


def date_key(value: date) -> int:
    """Days since 1970-01-01."""
    return value.toordinal() - _EPOCH_ORDINAL


def timestamp_key(value: datetime) -> int:
    """Microseconds since 1970-01-01 00:00 UTC; a timestamp without a zone is UTC."""
    if value.utcoffset() is None:
        value = value.replace(tzinfo=UTC)
    passed = value - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds


def comparable(value: object) -> tuple[KindClass, Any] | None:
    """The class of a value and its key in the order of that class; None if it does not compare.

    >>> comparable(12.5), comparable("a"), comparable(None), comparable([1])
    ((<KindClass.NUMBER: 0>, Decimal('12.5')), (<KindClass.STRING: 1>, 'a'), None, None)
    """
    if isinstance(value, str):
        return _STRING, value if type(value) is str else str.__str__(value)
    if isinstance(value, bool):
        return _BOOLEAN, int(value)
    if isinstance(value, int):
        return _NUMBER, int(value)
    if isinstance(value, float):
        return None if isnan(value) else (_NUMBER, number_key(value))
    if isinstance(value, Decimal):
        return None if value.is_nan() else (_NUMBER, number_key(value))
    if isinstance(value, datetime):
        return None if _is_no_time(value) else (_TIMESTAMP, timestamp_key(value))
    if isinstance(value, date):
        return _DATE, date_key(value)
    plain = plain_value(value)
    return None if plain is value else comparable(plain)


def is_missing(value: object) -> bool:
    """None and NaN are missing: to a filter they are the same as an absent attribute."""
    if value is None:
        return True
    if isinstance(value, float):
        return isnan(value)
    if isinstance(value, Decimal):
        return value.is_nan()
    if isinstance(value, str | int | dict):
        return False
    if _is_no_time(value):
        return True
    plain = plain_value(value)
    return plain is not value and is_missing(plain)


def _is_no_time(value: object) -> bool:
    """Whether this is NaT or NA of pandas, the first of which also passes for a datetime."""
    return type(value).__name__ in ("NaTType", "NAType")


def kind_of(value: object) -> Kind:
    """The kind of a value; whole numbers outside of 64 bits are decimals.

    >>> [str(kind_of(value)) for value in (1, 2**70, float("nan"), {"a": 1})]
    ['int64', 'decimal', 'missing', 'record']
    """
    if is_missing(value):
        return Kind.MISSING
    if isinstance(value, str):
        return Kind.STRING
    if isinstance(value, bool):
        return Kind.BOOLEAN
    if isinstance(value, int):
        return Kind.INTEGER if INT64_MIN <= value <= INT64_MAX else Kind.DECIMAL
    for python_type, kind in _KIND_OF_TYPE:
        if isinstance(value, python_type):
            return kind
    plain = plain_value(value)
    return Kind.OPAQUE if plain is value else kind_of(plain)


_KIND_OF_TYPE: tuple[tuple[type, Kind], ...] = (
    (float, Kind.FLOAT),
    (Decimal, Kind.DECIMAL),
    (datetime, Kind.TIMESTAMP),
    (date, Kind.DATE),
    (Mapping, Kind.RECORD),
)

_SCALAR_MODULES = ("numpy", "pyarrow", "pandas")


def plain_value(value: object) -> object:
    """The Python value inside a scalar of NumPy, Arrow or pandas; any other value as it is.

    None of the three is imported. What has no Python value (a date beyond the year 9999, an array,
    a duration) stays as it is, and does not compare.
    """
    kind = type(value)
    if kind.__module__.partition(".")[0] not in _SCALAR_MODULES:
        return value
    if getattr(value, "is_valid", True) is False:
        return None  # a null of Arrow, of whatever type
    if hasattr(value, "__len__"):
        return value
    if kind.__name__ == "timedelta64":
        return value  # its item may be a bare number
    try:
        if kind.__name__ == "datetime64":
            return _moment_of_numpy(value)
        if kind.__name__ == "TimestampScalar":
            return _moment_of_arrow(value)
        for unwrap in ("as_py", "item"):
            method = getattr(value, unwrap, None)
            if method is not None:
                plain: object = method()
                return value if type(plain) is kind else plain
    except (ValueError, TypeError, OverflowError):
        pass
    return value


def _moment_of_numpy(value: Any) -> object:
    """A date from whole days and longer units, else a timestamp, cut off after microseconds."""
    plain = value.item()
    if isinstance(plain, int):  # nanoseconds, or a year that Python's dates do not reach
        plain = value.astype("datetime64[us]").item()
    return value if isinstance(plain, int) else plain


def _moment_of_arrow(value: Any) -> object:
    count = value.value
    if count is None:
        return None
    microseconds = (
        count * 1_000_000 // {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[value.type.unit]
    )
    return _EPOCH + timedelta(microseconds=microseconds)


def value_at(attributes: object, path: tuple[str, ...]) -> object:
    """The value at a dotted name, None where the path leaves the record.

    >>> value_at({"a": {"b": 3}}, ("a", "b")), value_at({"a": 1}, ("a", "b"))
    (3, None)
    """
    value = attributes
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value
