"""The attributes of an event as bytes, each value with its kind, and back.

Attributes are one MessagePack map. What MessagePack has a form for travels in that form: text,
booleans, integers of 64 bits, floats, bytes, lists, records, and timestamps as its timestamp
extension. The rest is in extensions of our own:

==== =============================== ==========================================================
code value                           bytes
==== =============================== ==========================================================
1    date                            its ordinal, 4 bytes
2    decimal                         its text
3    integer beyond 64 bits          two's complement, most significant byte first
4    text with lone surrogates       UTF-8 that lets them pass
5    record with such a name         MessagePack list: name, value, name, value ...
6    instant before or after all     microseconds since 1970-01-01 00:00 UTC, 8 bytes
     that UTC can write
7    value of no kind                its description: it is there, and does not compare
==== =============================== ==========================================================

Codes are never used again for something else. A value under a code that a later version brings is
kept as it came: it is there, and does not compare. Timestamps come back in UTC, for a timestamp
without a zone is UTC; tuples come back as lists; scalars of NumPy, Arrow and pandas as the Python
values inside. Apart from that what comes back equals what was packed, and has the same kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Final

from msgspec import MsgspecError
from msgspec.msgpack import Decoder, Encoder, Ext

from peersub.events.kinds import is_missing, plain_value, timestamp_key
from peersub.wire.errors import WireError
from peersub.wire.limits import (
    ATTRIBUTES_BYTES_MAX,
    UNNAMED_CHARACTERS_MAX,
    VALUE_NESTING_MAX,
    VALUES_MAX,
)

__all__ = ["UnnamedValue", "pack_attributes", "unpack_attributes"]

_DATE: Final = 1
_DECIMAL: Final = 2
_INTEGER: Final = 3
_TEXT: Final = 4
_RECORD: Final = 5
_INSTANT: Final = 6
_UNNAMED: Final = 7

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
# The widest zones: what UTC cannot write because its year would be 0 or 10,000, one of them can.
_EDGE: Final = timedelta(hours=24) - _MICROSECOND
_EDGE_ZONES: Final = (timezone(_EDGE), timezone(-_EDGE))

_NAMES: Final = frozenset({str})
_PLAIN: Final = frozenset({str, int, float, bool, bytes, type(None)})
_CONTAINERS: Final = frozenset({dict, list})

_encode = Encoder().encode


@dataclass(frozen=True, slots=True, repr=False)
class UnnamedValue:
    """A value of no kind that came over the wire: all that is left of it is its description."""

    description: str

    def __repr__(self) -> str:
        return self.description


def pack_attributes(attributes: Mapping[str, Any]) -> bytes:
    """The attributes as they travel.

    Raises:
        WireError: they are too many, too deep, or a name is no text.
    """
    try:
        if (
            type(attributes) is dict
            and _PLAIN.issuperset(map(type, attributes.values()))
            and _NAMES.issuperset(map(type, attributes))
        ):
            packed = _encode(attributes)
        else:
            packed = _encode(_packable(attributes, VALUE_NESTING_MAX))
    except (OverflowError, UnicodeEncodeError):
        packed = _encode(_packable(attributes, VALUE_NESTING_MAX))
    if len(packed) > ATTRIBUTES_BYTES_MAX:
        raise WireError(
            f"attributes of {len(packed):,} bytes are more than {ATTRIBUTES_BYTES_MAX:,}: "
            "put large content into the body"
        )
    _check_count(packed)  # Nobody would take more.
    return packed


def _packable(value: Any, room: int) -> Any:
    """The value in terms that MessagePack has, `room` levels deep at most."""
    if room < 0:
        raise WireError(f"attributes are nested deeper than {VALUE_NESTING_MAX} levels")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _packable_text(str.__str__(value))
    if isinstance(value, int):
        return _packable_integer(int(value))
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Decimal):
        # Whether the exponent is written with a capital depends on the context of the caller.
        return Ext(_DECIMAL, str(value).replace("e", "E").encode())
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Mapping):
        return _packable_record(value, room - 1)
    if isinstance(value, list | tuple):
        return [_packable(item, room - 1) for item in value]
    if is_missing(value):
        return None
    if isinstance(value, datetime):
        return _packable_instant(value)
    if isinstance(value, date):
        return Ext(_DATE, value.toordinal().to_bytes(4, "big"))
    return _packable_other(value, room)


def _packable_text(text: str) -> Any:
    try:
        text.encode()
    except UnicodeEncodeError:
        return Ext(_TEXT, text.encode("utf-8", "surrogatepass"))
    return text


def _packable_integer(value: int) -> Any:
    if -(2**63) <= value < 2**64:
        return value
    return Ext(_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _packable_instant(value: datetime) -> Any:
    """In UTC, without parts below a microsecond."""
    microseconds = timestamp_key(value)
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return Ext(_INSTANT, microseconds.to_bytes(8, "big", signed=True))


def _packable_record(record: Mapping[Any, Any], room: int) -> Any:
    names = [_packable_name(name) for name in record]
    values = [_packable(value, room) for value in record.values()]
    if all(type(name) is str for name in names):
        return dict(zip(names, values, strict=True))
    pairs = [part for pair in zip(names, values, strict=True) for part in pair]
    return Ext(_RECORD, _encode(pairs))


def _packable_name(name: object) -> Any:
    if not isinstance(name, str):
        raise WireError(f"the name of an attribute is text, not {type(name).__name__}")
    return _packable_text(str.__str__(name))


def _packable_other(value: object, room: int) -> Any:
    plain = plain_value(value)
    if plain is not value:
        return _packable(plain, room)
    if isinstance(value, Ext) and value.code not in _READERS:
        return value
    description = repr(value)[:UNNAMED_CHARACTERS_MAX]
    return Ext(_UNNAMED, description.encode("utf-8", "surrogatepass"))


# --- and back ------------------------------------------------------------------------------------


def unpack_attributes(packed: bytes) -> dict[str, Any]:
    """The attributes that `pack_attributes` packed.

    Raises:
        WireError: the bytes are no attributes.

    >>> unpack_attributes(pack_attributes({"price": Decimal("12.50"), "day": date(2024, 5, 1)}))
    {'price': Decimal('12.50'), 'day': datetime.date(2024, 5, 1)}
    """
    if len(packed) > ATTRIBUTES_BYTES_MAX:
        raise WireError(f"attributes of {len(packed):,} bytes exceed {ATTRIBUTES_BYTES_MAX:,}")
    _check_count(packed)
    try:
        attributes = _decode(packed)
        if type(attributes) is not dict:
            raise ValueError(f"a record was expected, not {type(attributes).__name__}")
        _check(attributes, VALUE_NESTING_MAX)
    except (MsgspecError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise WireError(f"the bytes are no attributes: {error}") from None
    return attributes


def _check_count(packed: bytes) -> None:
    """Count the values from their headers, before anything is made of them.

    Raises:
        WireError: they are too many.
    """
    # Each takes a byte at least.
    if len(packed) > VALUES_MAX and _count_values(packed, VALUE_NESTING_MAX) > VALUES_MAX:
        raise WireError(
            f"the attributes of an event have up to {VALUES_MAX:,} values, with those in records "
            "and lists: put large content into the body"
        )


def _count_values(packed: bytes, room: int, place: int = 0, count: int = 0) -> int:
    """How many values follow, with those counted before; beyond the bound it stops counting.

    What is cut off, or no MessagePack, counts as far as it goes: whoever decodes it says so.
    """
    if room < 0:
        raise WireError(f"the bytes are no attributes: nested deeper than {VALUE_NESTING_MAX}")
    size, left = len(packed), 1
    while left and place < size and count <= VALUES_MAX:
        left -= 1
        form, width, number = _FORMS[packed[place]]
        place += 1
        if width:
            number = int.from_bytes(packed[place : place + width], "big")
            place += width
        if form == _BYTES:
            place += number
        elif form == _EXTENSION:
            if packed[place : place + 1] == _RECORD_CODE:
                count = _count_values(packed, room - 1, place + 1, count)
            place += 1 + number
        else:
            left += form * number
            count += number
    return count


_BYTES: Final = 0
_LIST: Final = 1
_MAP: Final = 2
"""An entry has a name and a value."""
_EXTENSION: Final = 3
_RECORD_CODE: Final = bytes([_RECORD])


def _forms() -> list[tuple[int, int, int]]:
    """By the first byte of a value: what follows, how many bytes say how much, or how much."""
    forms = [(_BYTES, 0, 0)] * 256
    forms[0x80:0x90] = [(_MAP, 0, number) for number in range(16)]
    forms[0x90:0xA0] = [(_LIST, 0, number) for number in range(16)]
    forms[0xA0:0xC0] = [(_BYTES, 0, number) for number in range(32)]
    for place, width in enumerate((1, 2, 4)):
        forms[0xC4 + place] = forms[0xD9 + place] = (_BYTES, width, 0)  # bytes, text
        forms[0xC7 + place] = (_EXTENSION, width, 0)
    for place, width in enumerate((2, 4)):
        forms[0xDC + place], forms[0xDE + place] = (_LIST, width, 0), (_MAP, width, 0)
    for place, size in enumerate((1, 2, 4, 8)):
        forms[0xCC + place] = forms[0xD0 + place] = (_BYTES, 0, size)  # integers
    forms[0xCA:0xCC] = [(_BYTES, 0, 4), (_BYTES, 0, 8)]  # floats
    forms[0xD4:0xD9] = [(_EXTENSION, 0, 1 << place) for place in range(5)]
    return forms


_FORMS: Final = _forms()


def _check(container: dict[Any, Any] | list[Any], room: int) -> None:
    """Names are text, and nothing is nested too deep."""
    if room < 0:
        raise ValueError(f"nested deeper than {VALUE_NESTING_MAX} levels")
    if type(container) is list:
        values: Any = container
    else:
        assert type(container) is dict
        if not _NAMES.issuperset(map(type, container)):
            raise ValueError("a name that is no text")
        values = container.values()
    if not _CONTAINERS.isdisjoint(map(type, values)):
        for value in values:
            if type(value) in _CONTAINERS:
                _check(value, room - 1)


def _read_extension(code: int, data: memoryview) -> Any:
    reader = _READERS.get(code)
    return Ext(code, bytes(data)) if reader is None else reader(bytes(data))


_decode = Decoder(ext_hook=_read_extension).decode


def _read_date(data: bytes) -> date:
    if len(data) != 4:
        raise ValueError("a date has 4 bytes")
    return date.fromordinal(int.from_bytes(data, "big"))


def _read_decimal(data: bytes) -> Decimal:
    text = data.decode("ascii")
    value = Decimal(text)
    # One spelling: blanks, underscores and digits of other scripts are refused.
    if str(value).replace("e", "E") != text:
        raise ValueError("a decimal in a spelling that is not its own")
    return value


def _read_integer(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _read_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _read_record(data: bytes) -> dict[Any, Any]:
    pairs = _decode(data)
    if type(pairs) is not list or len(pairs) % 2:
        raise ValueError("a record is a list of names and values")
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def _read_instant(data: bytes) -> datetime:
    if len(data) != 8:
        raise ValueError("an instant has 8 bytes")
    microseconds = int.from_bytes(data, "big", signed=True)
    zone = _EDGE_ZONES[microseconds > 0]
    local = _EPOCH + (timedelta(microseconds=microseconds) + zone.utcoffset(None))
    return local.replace(tzinfo=zone)


def _read_unnamed(data: bytes) -> UnnamedValue:
    description = _read_text(data)
    if len(description) > UNNAMED_CHARACTERS_MAX:
        raise ValueError(f"a description of {len(description):,} characters")
    return UnnamedValue(description)


_READERS: Final = {
    _DATE: _read_date,
    _DECIMAL: _read_decimal,
    _INTEGER: _read_integer,
    _TEXT: _read_text,
    _RECORD: _read_record,
    _INSTANT: _read_instant,
    _UNNAMED: _read_unnamed,
}
