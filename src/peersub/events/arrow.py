"""Rows to Arrow tables and back, each value keeping its own kind.

A column whose values are all of one kind becomes a plain Arrow column. A column of mixed kinds
becomes a dense union with one child per kind: 5, 5.0 and "5" in one column stay an integer, a
float and a string. Records become structs, field by field by the same rule; lists become lists.
None stays null. Whole numbers outside of 64 bits become decimals. Invariant: a row read back from
its table has the same content hash, and compares in the same way, as the row that was written.

pyarrow is imported when a function is called: the rest of `events` works without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, cast

from peersub.events.kinds import INT64_MAX, INT64_MIN, Kind, kind_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "DIGITS_MAX",
    "RECORD_DEPTH_MAX",
    "Schema",
    "array_of_values",
    "joined_schemas",
    "rows_of_table",
    "schema_of_event",
    "schema_of_table",
    "table_of_rows",
    "values_of_column",
]

DIGITS_MAX: Final = 76
"""Digits of the widest decimal of Arrow."""
RECORD_DEPTH_MAX: Final = 64
"""Records and lists within each other; names in filters have no more parts than this."""

Schema = dict[tuple[str, ...], frozenset[Kind]]
"""The kinds that were seen at each dotted name; no kinds where every value is missing."""


def table_of_rows(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """One column per name, in the order in which the names appear; null where a row lacks it.

    >>> table_of_rows([{"a": 1}, {"a": "x", "b": True}]).to_pylist()
    [{'a': 1, 'b': None}, {'a': 'x', 'b': True}]

    Raises:
        ValueError: a value that Arrow cannot hold; the message names it and its attribute.
    """
    import pyarrow as pa

    columns = _columns(rows, depth=0)
    if not columns:
        # A table without columns has no rows either, unless it is cut from one that has them.
        return pa.table({"": pa.nulls(len(rows))}).select([])
    return pa.table(list(columns.values()), names=list(columns))


def array_of_values(values: Sequence[object]) -> pa.Array:
    """An Arrow array of the values, a dense union if they are of several kinds."""
    return _array(values, depth=0)


def _columns(rows: Sequence[Mapping[str, Any]], depth: int) -> dict[str, pa.Array]:
    columns = {}
    for name in dict.fromkeys(chain.from_iterable(rows)):
        try:
            columns[name] = _array(_column(rows, name), depth)
        except _UnfitError as error:
            raise error.below(name) from None
    return columns


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    try:
        return list(map(itemgetter(name), rows))  # quick, where each row has it
    except KeyError:
        return [row.get(name) for row in rows]


class _UnfitError(ValueError):
    """A value that Arrow cannot hold, and the name under which it was found."""

    def __init__(self, problem: str, path: tuple[str, ...] = ()) -> None:
        self.problem, self.path = problem, path
        super().__init__(f"{'.'.join(path)}: {problem}" if path else problem)

    def below(self, name: str) -> _UnfitError:
        return _UnfitError(self.problem, (name, *self.path))


def _array(values: Sequence[object], depth: int) -> pa.Array:
    import pyarrow as pa

    types = set(map(type, values))
    types.discard(type(None))
    if not types:
        return pa.nulls(len(values))
    only = types.pop() if len(types) == 1 else None
    if only is dict:
        return _record_array(cast(Sequence[dict[str, Any]], values), _deeper(depth))
    if only is list:
        return _list_array(cast(Sequence[list[Any]], values), _deeper(depth))
    if only is not None and only in _PLAIN_TYPES:
        try:
            return pa.array(values, _PLAIN_TYPES[only](pa))
        except OverflowError:
            pass  # integers outside of 64 bits, sorted out below
        except UnicodeEncodeError:
            raise _UnfitError("text that is no Unicode (a lone surrogate)") from None
    return _array_of_kinds(values, depth)


_PLAIN_TYPES: dict[type, Callable[[Any], Any]] = {
    str: lambda pa: pa.string(),
    int: lambda pa: pa.int64(),
    float: lambda pa: pa.float64(),
    bool: lambda pa: pa.bool_(),
    bytes: lambda pa: pa.binary(),
    date: lambda pa: pa.date32(),
    datetime: lambda pa: pa.timestamp("us", "UTC"),
}


def _array_of_kinds(values: Sequence[object], depth: int) -> pa.Array:
    """Sort the values by kind: one child array each, in the order in which the kinds appear."""
    import pyarrow as pa

    children: dict[tuple[str, int], list[object]] = {}
    keys: list[tuple[str, int]] = []
    offsets: list[int] = []
    # A union has no nulls of its own: a missing value is a null of the first child.
    first = _sorted_out(next(value for value in values if value is not None))[0]
    for value in values:
        key, plain = (first, None) if value is None else _sorted_out(value)
        child = children.setdefault(key, [])
        keys.append(key)
        offsets.append(len(child))
        child.append(plain)
    if len(children) == 1:
        return _child_array(first, children[first], depth)
    code_of = {key: code for code, key in enumerate(children)}
    return pa.UnionArray.from_dense(
        pa.array([code_of[key] for key in keys], pa.int8()),
        pa.array(offsets, pa.int32()),
        [_child_array(key, child, depth) for key, child in children.items()],
    )


def _sorted_out(value: object) -> tuple[tuple[str, int], object]:
    """The child in which a value belongs, and the value in the form that Arrow takes.

    Decimals of different scales have different children: each is read back as it was written.
    """
    if isinstance(value, str):
        return ("string", 0), value
    if isinstance(value, bool):
        return ("bool", 0), value
    if isinstance(value, int) and INT64_MIN <= value <= INT64_MAX:
        return ("int64", 0), value
    if isinstance(value, float):
        return ("float64", 0), value
    if isinstance(value, int | Decimal):
        return _sorted_out_decimal(value)
    if isinstance(value, datetime):
        return ("timestamp", 0), value
    if isinstance(value, date):
        return ("date", 0), value
    if isinstance(value, Mapping):
        return ("record", 0), value
    if isinstance(value, list | tuple):
        return ("list", 0), value
    if isinstance(value, bytes | bytearray | memoryview):
        return ("binary", 0), bytes(value)
    unwrap = getattr(value, "as_py", None) or getattr(value, "item", None)
    plain = None if unwrap is None else unwrap()
    if plain is None or type(plain) is type(value):
        raise _UnfitError(f"a value of type {type(value).__name__}, which events cannot carry")
    return _sorted_out(plain)


def _sorted_out_decimal(value: int | Decimal) -> tuple[tuple[str, int], object]:
    number = Decimal(value) if isinstance(value, int) else value
    if not number.is_finite():
        return ("float64", 0), float(number)
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    scale = max(-exponent, 0)
    if len(digits) + max(exponent, 0) > DIGITS_MAX or scale > DIGITS_MAX:
        raise _UnfitError(f"a number with more than {DIGITS_MAX} digits")
    return ("decimal", scale), number


def _child_array(key: tuple[str, int], values: Sequence[Any], depth: int) -> pa.Array:
    import pyarrow as pa

    kind, scale = key
    match kind:
        case "decimal":
            return _decimal_array(values, scale)
        case "record":
            return _record_array(values, _deeper(depth))
        case "list":
            return _list_array(values, _deeper(depth))
    types = {
        "string": pa.string(),
        "bool": pa.bool_(),
        "int64": pa.int64(),
        "float64": pa.float64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "date": pa.date32(),
        "binary": pa.binary(),
    }
    try:
        return pa.array(values, types[kind])
    except UnicodeEncodeError:
        raise _UnfitError("text that is no Unicode (a lone surrogate)") from None


def _deeper(depth: int) -> int:
    if depth >= RECORD_DEPTH_MAX:
        raise _UnfitError(f"records nested deeper than {RECORD_DEPTH_MAX} levels")
    return depth + 1


def _decimal_array(values: Sequence[Any], scale: int) -> pa.Array:
    import pyarrow as pa

    whole_max = max(
        (value.adjusted() + 1 for value in values if value is not None and value), default=1
    )
    precision = max(whole_max, 1) + scale
    if precision > DIGITS_MAX:
        precision = DIGITS_MAX
    make = pa.decimal128 if precision <= 38 else pa.decimal256
    return pa.array(values, make(precision, scale))


def _record_array(values: Sequence[Mapping[str, Any] | None], depth: int) -> pa.Array:
    import pyarrow as pa

    columns = _columns([{} if value is None else value for value in values], depth)
    if not columns:
        return pa.array([None if value is None else {} for value in values], pa.struct([]))
    absent = pa.array([value is None for value in values])
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns), mask=absent)


def _list_array(values: Sequence[Sequence[Any] | None], depth: int) -> pa.Array:
    import pyarrow as pa

    offsets: list[int | None] = []
    items: list[Any] = []
    for value in values:
        offsets.append(None if value is None else len(items))
        items += value or ()
    offsets.append(len(items))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), _array(items, depth))


# --- back to rows ------------------------------------------------------------------------------


def rows_of_table(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as dicts of Python values; parts of a timestamp below a microsecond are cut off.

    >>> rows_of_table(table_of_rows([{"a": {"b": 1}}, {}]))
    [{'a': {'b': 1}}, {'a': None}]
    """
    names = table.column_names
    columns = [values_of_column(column) for column in table.columns]
    if not columns:
        return [{} for _ in range(table.num_rows)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def values_of_column(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column as Python values."""
    return [value for chunk in column.chunks for value in _values(chunk)]


def _values(array: pa.Array) -> list[Any]:
    import pyarrow as pa

    kind = array.type
    if pa.types.is_timestamp(kind):
        return _moments(array)
    if pa.types.is_struct(kind):
        return _records(array)
    if pa.types.is_date64(kind):
        return _values(array.cast(pa.date32(), safe=False))
    if pa.types.is_dictionary(kind):
        return _values(array.dictionary_decode())
    if isinstance(array, pa.ExtensionArray):
        return _values(array.storage)
    if pa.types.is_union(kind):
        return _alternatives(array)
    try:
        values: list[Any] = array.to_pylist()
    except ArithmeticError:
        values = [_value_or_none(value) for value in array]
    return values


def _value_or_none(value: pa.Scalar) -> Any:
    """The value; None for dates, durations and decimals that Python does not know."""
    try:
        return value.as_py()
    except ArithmeticError:
        return None


def _moments(array: pa.Array) -> list[Any]:
    """Timestamps as datetimes in UTC; None for years that Python does not know."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # A zone is how a timestamp is shown, not what it means: without one no zone need be known here.
    numbers = array.cast(pa.timestamp(array.type.unit)).cast(pa.int64())
    factor = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 0}[array.type.unit]
    if factor == 0:
        # Cut off towards the past, also before 1970.
        remainder = pc.subtract(numbers, pc.multiply(pc.divide(numbers, 1000), 1000))
        below = pc.cast(pc.less(remainder, 0), pa.int64())
        numbers = pc.subtract(pc.divide(numbers, 1000), below)
        factor = 1
    return [None if n is None else _moment(n * factor) for n in numbers.to_pylist()]


def _moment(microseconds: int) -> datetime | None:
    from datetime import UTC, timedelta

    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    except OverflowError:
        return None


def _records(array: pa.StructArray) -> list[Any]:
    fields = array.type
    names = [fields.field(i).name for i in range(fields.num_fields)]
    valid = array.is_valid().to_pylist()
    if not names:
        return [{} if there else None for there in valid]
    # Not flatten(): it would have to mask the children, and a union cannot be masked.
    columns = [_values(array.field(i)) for i in range(len(names))]
    rows = zip(*columns, strict=True)
    return [
        dict(zip(names, row, strict=True)) if there else None
        for there, row in zip(valid, rows, strict=True)
    ]


def _alternatives(array: pa.UnionArray) -> list[Any]:
    import pyarrow as pa

    children = [_values(array.field(i)) for i in range(array.type.num_fields)]
    position_of = {code: position for position, code in enumerate(array.type.type_codes)}
    # Read from the buffers: the properties of the array forget where a slice begins.
    _, codes, *rest = array.buffers()[:3]
    length, start = len(array), array.offset
    chosen = pa.Array.from_buffers(pa.int8(), length, [None, codes], offset=start).to_pylist()
    places: Iterable[int] = range(length)
    if array.type.mode == "dense":
        offsets = pa.Array.from_buffers(pa.int32(), length, [None, rest[0]], offset=start)
        places = offsets.to_pylist()
    return [children[position_of[code]][at] for code, at in zip(chosen, places, strict=True)]


# --- kinds -------------------------------------------------------------------------------------


def schema_of_table(table: pa.Table) -> Schema:
    """The kinds that occur at each dotted name.

    >>> schema_of_table(table_of_rows([{"a": {"b": 1}}, {"a": None}]))
    {('a',): frozenset({<Kind.RECORD: 'record'>}), ('a', 'b'): frozenset({<Kind.INTEGER: 'int64'>})}
    """
    schema: _Seen = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        for chunk in column.chunks:
            _add_kinds(schema, (name,), chunk)
        schema.setdefault((name,), set())
    return _frozen(schema)


def joined_schemas(schemas: Iterable[Schema]) -> Schema:
    """All that any of the schemas has seen."""
    joined: Schema = {}
    for schema in schemas:
        for path, kinds in schema.items():
            joined[path] = joined.get(path, frozenset()) | kinds
    return joined


_Seen = dict[tuple[str, ...], set[Kind]]


def _frozen(seen: _Seen) -> Schema:
    return {path: frozenset(kinds) for path, kinds in seen.items()}


def _add_kinds(schema: _Seen, path: tuple[str, ...], array: pa.Array) -> None:
    import pyarrow as pa

    kinds = schema.setdefault(path, set())
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if pa.types.is_dictionary(kind):
        _add_kinds(schema, path, array.dictionary)
    elif pa.types.is_union(kind):
        for position in range(kind.num_fields):
            _add_kinds(schema, path, array.field(position))
    elif array.null_count == len(array):
        return
    elif pa.types.is_struct(kind):
        kinds.add(Kind.RECORD)
        there = array.drop_null() if array.null_count else array
        for position in range(kind.num_fields):
            _add_kinds(schema, (*path, kind.field(position).name), there.field(position))
    else:
        kinds.add(_kind_of_type(kind))


def _kind_of_type(kind: pa.DataType) -> Kind:
    import pyarrow as pa

    types = pa.types
    tests: tuple[tuple[Callable[[Any], bool], Kind], ...] = (
        (types.is_boolean, Kind.BOOLEAN),
        (types.is_integer, Kind.INTEGER),
        (types.is_floating, Kind.FLOAT),
        (types.is_decimal, Kind.DECIMAL),
        (types.is_string, Kind.STRING),
        (types.is_large_string, Kind.STRING),
        (types.is_string_view, Kind.STRING),
        (types.is_date, Kind.DATE),
        (types.is_timestamp, Kind.TIMESTAMP),
    )
    return next((found for test, found in tests if test(kind)), Kind.OPAQUE)


def schema_of_event(attributes: Mapping[str, Any]) -> Schema:
    """The kinds of one event's values at each dotted name."""
    schema: _Seen = {}

    def visit(path: tuple[str, ...], value: object) -> None:
        kind = kind_of(value)
        schema.setdefault(path, set()).update(() if kind is Kind.MISSING else {kind})
        if isinstance(value, Mapping) and len(path) < RECORD_DEPTH_MAX:
            for name, item in value.items():
                visit((*path, name), item)

    for name, value in attributes.items():
        visit((name,), value)
    return _frozen(schema)
