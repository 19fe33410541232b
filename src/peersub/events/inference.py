"""How text becomes values: one set of rules for every door.

JSON carries kinds itself: numbers, strings, booleans, null, objects (records), arrays (opaque). A
number with a fraction or an exponent is a float, any other an integer, exact at any size. A text
cell (CSV, an XML attribute) has the kind that JSON would give it: it is a number only if it is
written as JSON writes numbers, so `007` and `+5` stay text; `true` and `false` are booleans; an
empty cell is missing; everything else is a string. As in JSON, no text becomes a date or a
timestamp by itself: ISO dates sort as text just as they sort as dates, and a given schema can say
otherwise. Both doors know `NaN`, `Infinity` and `-Infinity`, which many programs write.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation

from peersub.events.kinds import INT64_MAX, INT64_MIN, Kind

__all__ = ["parse_date", "parse_timestamp", "value_of_cell", "value_of_cell_as"]

_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_CONSTANTS: dict[str, bool | float | None] = {
    "": None,
    "true": True,
    "false": False,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}
_FIRST_OF_NUMBERS = frozenset("-0123456789")


def value_of_cell(text: str) -> str | int | float | bool | None:
    """The value of a text cell by the rules above.

    >>> [value_of_cell(t) for t in ("12", "007", "1.50", "1e3", "true", "True", "", "2024-05-01")]
    [12, '007', 1.5, 1000.0, True, 'True', None, '2024-05-01']
    """
    if text[:1] in _FIRST_OF_NUMBERS and text:
        number = _JSON_NUMBER.fullmatch(text)
        if number is not None:
            return int(text) if number.lastindex is None and len(text) < 4300 else float(text)
    return _CONSTANTS.get(text, text) if len(text) <= 9 else text


_DATE = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})")
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{1,9}))?)?"
    r"\s*(Z|UTC|[+-][0-9]{1,2}(?::?[0-9]{2})?)?)?"
)


def parse_date(text: str) -> date | None:
    """A date written as year-month-day; None if the text is none.

    >>> parse_date("2024-02-29"), parse_date("2023-02-29")
    (datetime.date(2024, 2, 29), None)
    """
    parts = _DATE.fullmatch(text.strip())
    if parts is None:
        return None
    try:
        return date(*(int(part) for part in parts.groups()))
    except ValueError:
        return None


def parse_timestamp(text: str) -> datetime | None:
    """A timestamp in ISO form, in UTC unless an offset follows; None if the text is none.

    >>> parse_timestamp("2024-05-01 10:00:00+02:00").isoformat()
    '2024-05-01T08:00:00+00:00'
    """
    parts = _TIMESTAMP.fullmatch(text.strip())
    if parts is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = parts.groups()
    microsecond = int((fraction or "0")[:6].ljust(6, "0"))
    clock = (int(hour or 0), int(minute or 0), int(second or 0), microsecond)
    try:
        moment = datetime(int(year), int(month), int(day), *clock, tzinfo=_zone(zone))
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _zone(text: str | None) -> timezone:
    if text is None or text in ("Z", "UTC"):
        return UTC
    digits = text[1:].replace(":", "").rjust(2, "0")
    hours, minutes = int(digits[:-2] or 0), int(digits[-2:])
    if len(digits) <= 2:
        hours, minutes = minutes, 0
    if minutes > 59:
        raise ValueError(text)
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(text) from None


def _integer(text: str) -> int:
    value = int(text)
    if not INT64_MIN <= value <= INT64_MAX:
        raise ValueError(text)
    return value


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


_READERS: dict[Kind, Callable[[str], object]] = {
    Kind.BOOLEAN: _boolean,
    Kind.INTEGER: _integer,
    Kind.FLOAT: float,
    Kind.DECIMAL: _decimal,
    Kind.STRING: str,
    Kind.DATE: parse_date,
    Kind.TIMESTAMP: parse_timestamp,
}


_NUMERIC = (Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL)


def _is_plainly_numeric(text: str) -> bool:
    """Python also reads 1_000, digits of other scripts and blanks around a number: files do not."""
    return text.isascii() and "_" not in text and not text[:1].isspace() and not text[-1:].isspace()


def value_of_cell_as(text: str, kind: Kind) -> object | None:
    """The value of a text cell whose kind a schema gives; None for an empty cell.

    Raises:
        ValueError: the text is no value of that kind.
    """
    if text == "" and kind is not Kind.STRING:
        return None
    try:
        if kind in _NUMERIC and not _is_plainly_numeric(text):
            raise ValueError(text)
        value = _READERS[kind](text)
    except (ValueError, KeyError):
        value = None
    if value is None:
        raise ValueError(f"{text[:80]!r} is no {kind.value}")
    return value
