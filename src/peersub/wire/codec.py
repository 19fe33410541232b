"""Messages and records as payloads, and back.

A payload is two bytes with the length of its header, the header, and what follows it:

* a message about an event, whose first field is the publication (`Notify`): the header is the
  MessagePack list `[tag, event name, delivery, length of the attributes, length of the body or nil,
  other fields ...]`; then come the attributes, then the body, both as the publisher packed them.
  Reading unpacks neither, and what was read is written again with the same bytes;
* any other message, and every record: the header's length is 0, and one MessagePack list `[tag,
  field, ...]` follows.

Whatever cannot be read raises `WireError`, and nothing else. A message of an unknown kind raises
`UnknownMessageError`: whoever sends new kinds of reliable messages learns from the features in
HELLO who understands them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from operator import attrgetter
from struct import Struct
from typing import Annotated, Any, Final, NamedTuple, NoReturn, Union, get_args

from msgspec import Meta, MsgspecError, defstruct
from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import astuple

from peersub.filters.filter import Filter
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Delivery, Publication
from peersub.wire.errors import UnknownMessageError, WireError
from peersub.wire.fields import FieldCodecs, Reader, Writer, fields_of, widened
from peersub.wire.filter_bytes import FilterMemory
from peersub.wire.limits import (
    ATTRIBUTES_BYTES_MAX,
    BODY_BYTES_MAX,
    FRAME_BYTES_MAX,
    HEADER_BYTES_MAX,
    MESSAGE_NESTING_MAX,
)
from peersub.wire.publications import EVENT_NAME, packed_attributes, publication_of

__all__ = ["HEADER_LENGTH_BYTES", "LENGTH_BYTES", "PREFIX", "Codec"]

PREFIX: Final = Struct(">IH")
"""What begins a frame: the length of the payload, and with it the payload's first two bytes."""
HEADER_LENGTH_BYTES: Final = 2
LENGTH_BYTES: Final = PREFIX.size - HEADER_LENGTH_BYTES
_LIST_FOLLOWS: Final = 0

_ENVELOPE: Final = (
    ("name", EVENT_NAME),
    ("delivery", Delivery),
    ("attributes_length", Annotated[int, Meta(ge=0, le=ATTRIBUTES_BYTES_MAX)]),
    ("body_length", Annotated[int, Meta(ge=0, le=BODY_BYTES_MAX)] | None),
)
_Tagged: Final = defstruct("_Tagged", [("tag", int)], array_like=True)


class _Plan(NamedTuple):
    """How one kind of message is read and written."""

    message_class: type
    tag: int
    is_about_event: bool
    """Whether its first field is a publication."""
    values: Callable[[Any], tuple[Any, ...]]
    readers: tuple[tuple[int, Reader], ...]
    """Of the fields that are read otherwise than as they came, by their places."""
    writers: tuple[tuple[int, Writer], ...]


class Codec:
    """The kinds of messages of a network, or of records of a store, by their tags.

    Args:
        kinds: dataclasses by their tags.
        filters: the filters that are remembered by their bytes.
    """

    def __init__(self, kinds: Mapping[int, type], filters: FilterMemory) -> None:
        def written(value: object) -> object:
            if isinstance(value, Filter):
                return value.to_bytes()
            raise TypeError(f"no message holds a {type(value).__name__}")

        self._encode = Encoder(enc_hook=written).encode
        self._field_codecs = FieldCodecs(filters, self._read_inner, self.payload)
        self._tags = frozenset(kinds)
        self._plan_of_class: dict[type, _Plan] = {}
        self._plan_of_form: dict[type, _Plan] = {}
        forms: dict[bool, list[type]] = {True: [], False: []}
        for tag, kind in kinds.items():
            plan, form = self._planned(tag, kind)
            self._plan_of_class[kind] = plan
            self._plan_of_form[form] = plan
            forms[plan.is_about_event].append(form)
        self._decode_header: Callable[[bytes], Any] = _refuse_header
        if forms[True]:
            self._decode_header = Decoder(Union[tuple(forms[True])]).decode  # noqa: UP007
        self._decode_list = Decoder(Union[tuple(forms[False])]).decode  # noqa: UP007
        self._decode_tag = Decoder(_Tagged).decode

    def _planned(self, tag: int, kind: type) -> tuple[_Plan, type]:
        parts = fields_of(kind)
        values = _values_of([part.name for part in parts])
        # Nobody relays a record, and one about an event may name more than fits into a header.
        is_message = issubclass(kind, Message)
        is_about_event = is_message and bool(parts) and parts[0].hint is Publication
        before = _ENVELOPE if is_about_event else ()
        rest = parts[1:] if is_about_event else parts
        form = self._field_codecs.form(kind.__name__, rest, tag=tag, before=before)
        readers, writers = self._field_codecs.ways(rest, first=len(parts) - len(rest))
        return _Plan(kind, tag, is_about_event, values, readers, writers), form

    def holds_filter(self, kind: type) -> bool:
        """Whether messages of this kind bring filters."""
        return _mentions(kind, Filter)

    def tag_at_front(self, kind: type) -> int:
        """The tag that begins messages of this kind; 0 where the event comes first."""
        plan = self._plan_of_class[kind]
        return 0 if plan.is_about_event else plan.tag

    # --- writing ---------------------------------------------------------------------------------

    def payload(self, message: Any) -> bytes:
        """The message without the length that begins a frame.

        Raises:
            WireError: it is larger than a bound, or holds text that is no Unicode.
        """
        pieces: list[bytes] = []
        self.write(message, pieces)
        return b"".join(pieces)[LENGTH_BYTES:]

    def write(self, message: Any, pieces: list[bytes]) -> None:
        """Add the pieces of the message's frame; raises what `payload` does."""
        plan = self._plan_of_class.get(type(message))
        if plan is None:
            raise TypeError(f"{type(message).__name__} has no tag: give it one in wire.tags")
        if plan.is_about_event:
            self._write_about_event(plan, message, pieces)
            return
        content = self._encoded([plan.tag, *_written(plan.values(message), plan.writers)])
        size = HEADER_LENGTH_BYTES + len(content)
        if size > FRAME_BYTES_MAX:
            raise WireError(
                f"a {plan.message_class.__name__} of {size:,} bytes is larger than "
                f"{FRAME_BYTES_MAX:,}: send it in parts"
            )
        pieces += (PREFIX.pack(size, _LIST_FOLLOWS), content)

    def _write_about_event(self, plan: _Plan, message: Any, pieces: list[bytes]) -> None:
        publication, *fields = _written(plan.values(message), plan.writers)
        packed, body = publication.packed or packed_attributes(publication), publication.body
        size = None if body is None else len(body)
        envelope = (plan.tag, publication.name, publication.delivery, len(packed), size)
        header = self._encoded([*envelope, *fields])
        if len(header) > HEADER_BYTES_MAX or (size is not None and size > BODY_BYTES_MAX):
            _refuse_event(publication, len(header))
        length = HEADER_LENGTH_BYTES + len(header) + len(packed)
        if body is None:
            pieces += (PREFIX.pack(length, len(header)), header, packed)
        else:
            pieces += (PREFIX.pack(length + len(body), len(header)), header, packed, body)

    def _encoded(self, fields: list[Any]) -> bytes:
        try:
            return self._encode(fields)
        except OverflowError:
            return self._encode(widened(fields))
        except UnicodeEncodeError:
            raise WireError("a message holds text with lone surrogates: it is no Unicode") from None

    # --- reading ---------------------------------------------------------------------------------

    def read(self, payload: bytes) -> Any:
        """The message that `payload` wrote.

        Raises:
            UnknownMessageError: it is of a kind that a later version brings.
            WireError: it is none.
        """
        return self._read_inner(payload, 0)

    def _read_inner(self, payload: bytes, depth: int) -> Any:
        if len(payload) < HEADER_LENGTH_BYTES:
            raise WireError("the message is cut off in the length of its header")
        header_length = int.from_bytes(payload[:HEADER_LENGTH_BYTES], "big")
        return self.read_at(payload, HEADER_LENGTH_BYTES, len(payload), header_length, depth)

    def read_at(self, data: bytes, start: int, end: int, header_length: int, depth: int = 0) -> Any:
        """The message whose header, or list, begins at `start`, and that ends at `end`."""
        if depth >= MESSAGE_NESTING_MAX:
            raise WireError(f"messages are nested deeper than {MESSAGE_NESTING_MAX} levels")
        blocks = start + header_length if header_length else end
        if blocks > end:
            raise WireError("the header is longer than the message")
        content = data[start:blocks]
        try:
            form = self._decode_header(content) if header_length else self._decode_list(content)
        except (MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self._explained(content, error) from None
        plan = self._plan_of_form[type(form)]
        if header_length:
            name, delivery, attributes_length, body_length, *fields = astuple(form)
            body_start = blocks + attributes_length
            if body_start + (body_length or 0) != end:
                raise WireError("attributes and body are not as long as the header says")
            body = None if body_length is None else data[body_start:end]
            packed = data[blocks:body_start]
            fields.insert(0, publication_of(name, delivery, packed, body))
        else:
            fields = list(astuple(form))
        for place, way in plan.readers:
            fields[place] = way(fields[place], depth + 1)
        return plan.message_class(*fields)

    def _explained(self, content: bytes, error: Exception) -> WireError:
        try:
            tag: int = astuple(self._decode_tag(content))[0]
        except (MsgspecError, RecursionError):
            return WireError(f"the message cannot be read: {error}")
        if tag not in self._tags:
            return UnknownMessageError(tag)
        return WireError(f"the message with the tag {tag} cannot be read: {error}")


def _mentions(hint: Any, wanted: type) -> bool:
    """Whether values of a type are made of others of that type."""
    if hint is wanted:
        return True
    inner = list(get_args(hint))
    if isinstance(hint, type) and (is_dataclass(hint) or hasattr(hint, "_fields")):
        inner += [part.hint for part in fields_of(hint)]
    return any(_mentions(each, wanted) for each in inner)


def _refuse_header(_: bytes) -> NoReturn:
    raise WireError("a header where there should be none")


def _refuse_event(publication: Publication, header_length: int) -> None:
    size = len(publication.body or b"")
    if size > BODY_BYTES_MAX:
        problem = f"its body of {size:,} bytes is larger than {BODY_BYTES_MAX:,}"
    else:
        problem = f"a header of {header_length:,} bytes is longer than {HEADER_BYTES_MAX:,}"
    raise WireError(f"the event {publication.id!r} cannot be sent: {problem}")


def _written(values: Any, writers: tuple[tuple[int, Writer], ...]) -> Any:
    if not writers:
        return values
    written = list(values)
    for place, way in writers:
        written[place] = way(written[place])
    return written


def _values_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """From a message to its fields."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda message: tuple([getattr(message, name) for name in names])
