"""From the type of a message's field to its form in MessagePack, worked out once per class.

A field's codec says what msgspec is to check (types, sizes, ranges: before anything is built), and
how what it read becomes the value. Tuples are lists; named tuples and dataclasses are lists of
their fields; a filter is its normal form in bytes; a message inside of a message is its payload in
bytes. Numbers are never negative; those that 64 bits do not hold are bytes, most significant first.

A list of fields may be longer than this version knows, and shorter by fields that have defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from enum import IntEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, Union, get_args, get_origin
from typing import get_type_hints as type_hints_of

from msgspec import NODEFAULT, Meta, defstruct
from msgspec.structs import astuple

from peersub.filters.filter import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.identity import NODE_NAME_BYTES_MAX, PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication
from peersub.wire.batches import BATCH, read_batch, write_batch
from peersub.wire.errors import WireError
from peersub.wire.filter_bytes import FilterMemory
from peersub.wire.limits import (
    FILTER_BYTES_MAX,
    FRAME_BYTES_MAX,
    INTEGER_BYTES_MAX,
    LIST_ITEMS_MAX,
    OPAQUE_BYTES_MAX,
    TEXT_CHARACTERS_MAX,
)
from peersub.wire.publications import PUBLICATION, read_publication, write_publication

__all__ = ["Field", "FieldCodec", "FieldCodecs", "Reader", "Writer", "fields_of", "widened"]

Reader: TypeAlias = Callable[[Any, int], Any]
"""From what msgspec read, and the number of messages around it, to the value."""
Writer: TypeAlias = Callable[[Any], Any]
"""From the value to what msgspec can write."""

_INTEGER_MAX: Final = 2**64 - 1


class FieldCodec(NamedTuple):
    """The form that is checked, and the ways from it and to it; None where both are the same."""

    form: Any
    read: Reader | None = None
    write: Writer | None = None


class Field(NamedTuple):
    """A field of a message: its name, its type, its default or NODEFAULT."""

    name: str
    hint: Any
    default: Any


def fields_of(product: type) -> list[Field]:
    """The fields of a dataclass or a named tuple, in their order."""
    hints = type_hints_of(product)
    if not is_dataclass(product):
        names, defaults = product._fields, product._field_defaults  # type: ignore[attr-defined]
        return [Field(name, hints[name], defaults.get(name, NODEFAULT)) for name in names]
    found = []
    for field in fields(product):
        default = NODEFAULT if field.default is MISSING else field.default
        if field.default_factory is not MISSING:
            default = field.default_factory()
        found.append(Field(field.name, hints[field.name], default))
    return found


class FieldCodecs:
    """The codecs of all types that messages are made of.

    Args:
        filters: the filters that are remembered by their bytes.
        read_message: from a payload, and the number of messages around it, to the message.
        write_message: from a message to its payload.
    """

    def __init__(
        self,
        filters: FilterMemory,
        read_message: Callable[[bytes, int], Message],
        write_message: Callable[[Message], bytes],
    ) -> None:
        text = Annotated[str, Meta(max_length=TEXT_CHARACTERS_MAX)]
        opaque = Annotated[bytes, Meta(max_length=OPAQUE_BYTES_MAX)]
        wanted = Annotated[bytes, Meta(max_length=FILTER_BYTES_MAX)]
        payload = Annotated[bytes, Meta(max_length=FRAME_BYTES_MAX)]
        self._known: dict[Any, FieldCodec] = {
            bool: FieldCodec(bool),
            int: FieldCodec(_INTEGER, _read_integer),
            float: FieldCodec(float),
            str: FieldCodec(text),
            bytes: FieldCodec(opaque),
            # Writing a filter is left to msgspec's hook: no list of entries is copied for it.
            Filter: FieldCodec(wanted, lambda data, _: filters.filter_of(data)),
            Message: FieldCodec(payload, read_message, write_message),
            Publication: FieldCodec(PUBLICATION, read_publication, write_publication),
            Batch: FieldCodec(BATCH, read_batch, write_batch),
            PeerId: FieldCodec(_PEER, _read_peer),
            tuple[int, ...]: FieldCodec(_many(_INTEGER), _read_integers),
        }

    def of(self, hint: Any) -> FieldCodec:
        """The codec of a type.

        Raises:
            TypeError: messages are not made of such values.
        """
        known = self._known.get(hint)
        if known is None:
            known = self._known[hint] = self._derived(hint)
        return known

    def _derived(self, hint: Any) -> FieldCodec:
        arguments = get_args(hint)
        if get_origin(hint) is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
            return _list_of(self.of(arguments[0]))
        if get_origin(hint) is tuple and arguments:
            return _fixed_list_of([self.of(argument) for argument in arguments])
        if get_origin(hint) in (Union, UnionType) and len(arguments) == 2:
            some = [argument for argument in arguments if argument is not NoneType]
            if len(some) == 1:
                return _optional(self.of(some[0]))
        if isinstance(hint, type):
            if issubclass(hint, IntEnum):
                return FieldCodec(hint)
            if is_dataclass(hint) or (issubclass(hint, tuple) and hasattr(hint, "_fields")):
                return self._product(hint)
        raise TypeError(f"messages are not made of {hint!r}: give it a codec in FieldCodecs")

    def _product(self, product: type) -> FieldCodec:
        parts = fields_of(product)
        readers, writers = self.ways(parts)
        read = _product_reader(product, readers)
        if not writers and not is_dataclass(product):
            return FieldCodec(self.form(product.__name__, parts), read)
        names = [part.name for part in parts]

        def write(value: Any) -> list[Any]:
            written = [getattr(value, name) for name in names]
            for place, way in writers:
                written[place] = way(written[place])
            return written

        return FieldCodec(self.form(product.__name__, parts), read, write)

    def form(
        self,
        name: str,
        parts: list[Field],
        *,
        tag: int | None = None,
        before: tuple[tuple[str, Any], ...] = (),
    ) -> type:
        """The structure that msgspec checks: a list of a tag if any, `before`, and these fields."""
        specified: list[Any] = list(before)
        for part in parts:
            if not (part.default is NODEFAULT or _reads_as_itself(part.default)):
                raise TypeError(f"the default of {name}.{part.name} is no plain value")
            specified.append((part.name, self.of(part.hint).form, part.default))
        return defstruct(name, specified, array_like=True, tag=tag, frozen=True, gc=False)

    def ways(
        self, parts: list[Field], first: int = 0
    ) -> tuple[tuple[tuple[int, Reader], ...], tuple[tuple[int, Writer], ...]]:
        """The fields that are read or written otherwise than as they are, by their places.

        The first of these fields has the place `first`.
        """
        codecs = [self.of(part.hint) for part in parts]
        placed = list(enumerate(codecs, first))
        readers = [(place, codec.read) for place, codec in placed if codec.read]
        writers = [(place, codec.write) for place, codec in placed if codec.write]
        return tuple(readers), tuple(writers)


def _reads_as_itself(default: Any) -> bool:
    """Whether a field that is missing can be read as if its default had come."""
    return isinstance(default, int | float | str | bytes | NoneType) or default == ()


def _product_reader(product: type, readers: tuple[tuple[int, Reader], ...]) -> Reader:
    def read(form: Any, depth: int) -> Any:
        values: list[Any] = list(astuple(form))
        for place, way in readers:
            values[place] = way(values[place], depth)
        return product(*values)

    return read


# --- combinations --------------------------------------------------------------------------------


def _many(form: Any) -> Any:
    return Annotated[tuple[form, ...], Meta(max_length=LIST_ITEMS_MAX)]


def _list_of(item: FieldCodec) -> FieldCodec:
    read, write = item.read, item.write
    return FieldCodec(
        _many(item.form),
        None if read is None else lambda items, depth: tuple([read(i, depth) for i in items]),
        None if write is None else lambda items: [write(i) for i in items],
    )


def _fixed_list_of(items: list[FieldCodec]) -> FieldCodec:
    reads = [item.read or _as_read for item in items]
    writes = [item.write or _as_written for item in items]
    read = any(item.read for item in items)
    write = any(item.write for item in items)
    return FieldCodec(
        tuple[tuple(item.form for item in items)],  # type: ignore[misc]
        (lambda v, depth: tuple([r(i, depth) for r, i in zip(reads, v, strict=True)]))
        if read
        else None,
        (lambda v: [w(i) for w, i in zip(writes, v, strict=True)]) if write else None,
    )


def _as_read(value: Any, _: int) -> Any:
    return value


def _as_written(value: Any) -> Any:
    return value


def _optional(some: FieldCodec) -> FieldCodec:
    read, write = some.read, some.write
    return FieldCodec(
        some.form | None if isinstance(some.form, type) else Union[some.form, None],  # noqa: UP007
        None if read is None else lambda v, depth: None if v is None else read(v, depth),
        None if write is None else lambda v: None if v is None else write(v),
    )


# --- numbers and peers ---------------------------------------------------------------------------

_INTEGER: Final = Annotated[int, Meta(ge=0)] | Annotated[bytes, Meta(max_length=INTEGER_BYTES_MAX)]


def widened(value: Any) -> Any:
    """The value with each number that 64 bits do not hold as bytes."""
    if isinstance(value, list | tuple):
        return [widened(item) for item in value]
    if type(value) is int and value > _INTEGER_MAX:
        return value.to_bytes((value.bit_length() + 7) // 8, "big")
    return value


def _read_integer(value: int | bytes, _: int) -> int:
    if type(value) is int:
        return value
    assert isinstance(value, bytes)
    number = int.from_bytes(value, "big")
    if number <= _INTEGER_MAX or value[0] == 0:
        raise WireError("a number that 64 bits hold came as bytes")
    return number


def _read_integers(values: tuple[int | bytes, ...], depth: int) -> tuple[int, ...]:
    if bytes in map(type, values):
        return tuple([_read_integer(value, depth) for value in values])
    return values  # type: ignore[return-value]


_PEER: Final = defstruct(
    "_PEER",
    [
        ("node", Annotated[str, Meta(max_length=NODE_NAME_BYTES_MAX)]),
        ("incarnation", Annotated[int, Meta(ge=0)], 0),
        ("slot", Annotated[int, Meta(ge=0)], 0),
    ],
    array_like=True,
    frozen=True,
    gc=False,
)


def _read_peer(form: Any, _: int) -> PeerId:
    node: str = form.node
    if not node.isascii() and len(node.encode()) > NODE_NAME_BYTES_MAX:
        raise WireError(f"the name of a node has more than {NODE_NAME_BYTES_MAX} bytes")
    return PeerId(node, form.incarnation, form.slot)
