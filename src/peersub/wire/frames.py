"""Frames: messages back to back on a link, and back from however the bytes arrive.

A frame is four bytes with the length of the payload, and the payload (`codec`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from peersub.filters.price import FILTER_PRICE_MAX
from peersub.overlays.core.link_messages import BetweenSlots, Carried, Tunnelled, unwrapped
from peersub.overlays.core.messages import Message, content_of
from peersub.overlays.core.mirror_messages import (
    MirrorKept,
    MirrorRowsKept,
    MirrorRowsSafe,
    MirrorSafe,
)
from peersub.overlays.core.records import Record
from peersub.overlays.routing.messages import Confirm
from peersub.wire.codec import HEADER_LENGTH_BYTES, LENGTH_BYTES, PREFIX, Codec
from peersub.wire.errors import FrameSizeError, UnknownMessageError, WireError
from peersub.wire.filter_bytes import FilterMemory, Patterns
from peersub.wire.limits import FRAME_BYTES_MAX
from peersub.wire.tags import MESSAGES, RECORDS

__all__ = [
    "FILTER_TAGS",
    "FrameDecoder",
    "decode_record",
    "encode",
    "encode_batch",
    "encode_record",
    "may_be_dropped",
    "patterns_held",
    "patterns_seen",
    "tag_told",
    "write_frames",
]

_FILTERS: Final = FilterMemory(FILTER_PRICE_MAX)
# What a node has written to its own disk it may read, whatever it costs.
_RECORDED_FILTERS: Final = FilterMemory()
_MESSAGES: Final = Codec(MESSAGES, _FILTERS)
_RECORDS: Final = Codec(RECORDS, _RECORDED_FILTERS)

FILTER_TAGS: Final = frozenset(
    tag for tag, kind in MESSAGES.items() if _MESSAGES.holds_filter(kind)
)
"""The tags of messages that bring filters: reading one takes longer than reading others."""
_TAG_OF: Final = {kind: tag for tag, kind in MESSAGES.items()}
_CARRIED: Final = _TAG_OF[Carried]
_BETWEEN_SLOTS: Final = _TAG_OF[BetweenSlots]
_WORD_TAGS: Final = frozenset(
    _TAG_OF[kind] for kind in (Confirm, MirrorKept, MirrorSafe, MirrorRowsKept, MirrorRowsSafe)
)
"""Of light messages that say what became of events: publishers wait for them, as for events."""


def encode(message: Message) -> bytes:
    """The frame of a message.

    Raises:
        WireError: the message is larger than a bound, or holds text that is no Unicode.
    """
    return encode_batch((message,))


def encode_batch(messages: Iterable[Message]) -> bytes:
    """The frames of messages, back to back, in one piece; raises what `encode` does."""
    pieces: list[bytes] = []
    write_frames(messages, pieces)
    return b"".join(pieces)


def write_frames(messages: Iterable[Message], pieces: list[Any]) -> int:
    """Add the pieces of the messages' frames; how many bytes. Raises what `encode` does."""
    begin = len(pieces)
    write = _MESSAGES.write
    for message in messages:
        write(message, pieces)
    return sum(map(len, pieces[begin:]))


def may_be_dropped(message: Message) -> bool:
    """Whether the message brings an event, and its loss is light, or noticed by a session."""
    inner = unwrapped(message)
    return content_of(inner) is not None and (not inner.reliable or _is_carried(message))


def _is_carried(message: Message) -> bool:
    while isinstance(message, Tunnelled | BetweenSlots):
        message = message.message
    return isinstance(message, Carried)


def tag_told(message: Message) -> int:
    """What `FrameDecoder.puts_aside` is told of the frame of a message."""
    if type(message) is Carried:
        return _MESSAGES.tag_at_front(type(message.message))
    inner = message.message if type(message) is BetweenSlots else message
    if _TAG_OF[type(inner)] in _WORD_TAGS:
        return 0
    return _MESSAGES.tag_at_front(type(message))


def patterns_seen() -> bool:
    """Whether a pattern over documents was ever read here."""
    return _FILTERS.has_patterns or _RECORDED_FILTERS.has_patterns


def patterns_held() -> tuple[Patterns, ...]:
    """The patterns that were read here, and that somebody holds."""
    return (_FILTERS.patterns, _RECORDED_FILTERS.patterns)


def encode_record(record: Record) -> bytes:
    """A record of a node's store; raises what `encode` does."""
    return _RECORDS.payload(record)


def decode_record(data: bytes) -> Record:
    """The record that `encode_record` wrote.

    Raises:
        WireError: the bytes are no record, or one of a later version.
    """
    record: Record = _RECORDS.read(data)
    return record


class FrameDecoder:
    """Messages from the bytes of one link, split anywhere.

    Messages of unknown kinds are skipped and counted. After a malformed frame nothing more can be
    read: the link is to be closed. The buffer holds one frame at most, besides what came last; more
    only where whoever reads stops in between.

    Attributes:
        has_more: whether reading stopped before a frame that may be complete.
        puts_aside: is told the tag of each frame, 0 if it is about an event; True puts it aside,
            unread, until `take_aside`.
        aside_bytes: of all frames that were put aside.
        frame_bytes_max: larger frames are refused, before they are in; may be changed any time.
        unknown_count: messages of kinds that this version does not know.
        unknown_tag: the tag of the last one.
    """

    __slots__ = (
        "_aside",
        "_broken",
        "_buffer",
        "_wanted",
        "aside_bytes",
        "frame_bytes_max",
        "has_more",
        "puts_aside",
        "unknown_count",
        "unknown_tag",
    )

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.has_more = False
        self.puts_aside: Callable[[int], bool] | None = None
        self.aside_bytes = 0
        self._aside: deque[bytes] = deque()
        self.unknown_count = 0
        self.unknown_tag: int | None = None
        self._buffer = bytearray()
        self._wanted = 0
        self._broken: str | None = None

    @property
    def is_between_frames(self) -> bool:
        """Whether nothing is cut off if no more bytes come."""
        return not self._buffer

    def hold(self, data: bytes) -> None:
        """These bytes come next; they are read with the next ones that are fed."""
        self._buffer += data

    def forget(self) -> None:
        """No more bytes come: let go of what waits for them."""
        self._buffer = bytearray()
        self._aside.clear()
        self.aside_bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """What has come and was not read yet."""
        return len(self._buffer)

    @property
    def has_aside(self) -> bool:
        """Whether frames were put aside."""
        return bool(self._aside)

    def take_aside(self) -> bytes:
        """The frame that was put aside first."""
        frame = self._aside.popleft()
        self.aside_bytes -= len(frame)
        return frame

    def read(self, frame: bytes) -> Message | None:
        """The message of a frame that was put aside; None if its kind is unknown.

        Raises:
            WireError: the frame is malformed.
        """
        return self._message(frame, 0, len(frame))

    def feed(
        self,
        data: bytes | bytearray | memoryview,
        stops_at: Callable[[int], bool] | None = None,
    ) -> list[Message]:
        """The messages that are complete now.

        Args:
            data: what came; nothing, to go on where reading stopped.
            stops_at: is told before each frame how many messages were read; True leaves it for
                later (`has_more`).

        Raises:
            WireError: a frame is malformed; `messages_before` has the messages before it.
        """
        if self._broken is not None:
            raise WireError(self._broken)
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._wanted:
                return []
            data = self._buffer
        if type(data) is not bytes:
            data = bytes(data)
        messages: list[Message] = []
        try:
            read = self._read_frames(data, messages, stops_at)
        except WireError as error:
            self._broken = str(error)
            self._buffer.clear()
            error.messages_before = messages
            raise
        self._buffer.clear()
        self._buffer += data[read:]
        return messages

    def _read_frames(
        self,
        data: bytes,
        messages: list[Message],
        stops_at: Callable[[int], bool] | None,
    ) -> int:
        """Add the messages of complete frames, and return where the first that is left begins."""
        place, size = 0, len(data)
        self._wanted = PREFIX.size
        self.has_more = False
        while size - place >= PREFIX.size:
            length, header_length = PREFIX.unpack_from(data, place)
            if not HEADER_LENGTH_BYTES <= length <= self.frame_bytes_max:
                raise FrameSizeError(f"a frame cannot have {length:,} bytes here")
            end = place + LENGTH_BYTES + length
            if end > size:
                self._wanted = end - place
                break
            if stops_at is not None and stops_at(len(messages)):
                self.has_more = True
                break
            tag = 0 if header_length else _tag_at(data, place + PREFIX.size)
            if self.puts_aside is not None and self.puts_aside(tag):
                self._aside.append(data[place:end])
                self.aside_bytes += end - place
            elif (message := self._message(data, place, end)) is not None:
                messages.append(message)
            place = end
        return place

    def _message(self, data: bytes, place: int, end: int) -> Message | None:
        """The message of the frame from here to there; None if its kind is unknown."""
        _, header_length = PREFIX.unpack_from(data, place)
        try:
            message: Message = _MESSAGES.read_at(data, place + PREFIX.size, end, header_length)
        except UnknownMessageError as unknown:
            self.unknown_count += 1
            self.unknown_tag = unknown.tag
            return None
        return message


def _tag_at(data: bytes, place: int) -> int:
    """The tag of a message, without reading it; -1 if there is none, 0 if it is about an event.

    Of a message that a session carries it is the tag of what is carried. A word about an event that
    is carried has to wait for what the session carries before it.

    >>> _tag_at(bytes([0x92, 0xCC, 0xE4, 0x01]), 0), _tag_at(bytes([0xDC, 0, 20, 7]), 0)
    (228, 7)
    """
    tag, after = _front_at(data, place)
    if tag == _CARRIED:
        inner = _held_at(data, after, 4)
        if inner is None:
            return tag
        is_about_event = any(data[inner - HEADER_LENGTH_BYTES : inner])
        return 0 if is_about_event else _front_at(data, inner)[0]
    said = tag
    if tag == _BETWEEN_SLOTS and (inner := _held_at(data, after, 2)) is not None:
        said = _front_at(data, inner)[0]
    return 0 if said in _WORD_TAGS else tag


def _front_at(data: bytes, place: int) -> tuple[int, int]:
    """The tag at the begin of a message's list, -1 if there is none, and what follows it."""
    opening = data[place : place + 1]
    if opening and 0x90 <= opening[0] < 0xA0:
        return _number_at(data, place + 1)
    return _number_at(data, place + 3) if opening == b"\xdc" else (-1, place)


def _held_at(data: bytes, place: int, numbers: int) -> int | None:
    """Where the list of the message begins that is held after so many numbers, if there is any."""
    for _ in range(numbers):
        _, place = _number_at(data, place)
    width = _BYTES_WIDTHS.get(data[place : place + 1])
    return None if width is None else place + 1 + width + HEADER_LENGTH_BYTES


def _number_at(data: bytes, place: int) -> tuple[int, int]:
    """The whole number that is written here, -1 if there is none, and what follows it."""
    kind = data[place : place + 1]
    if kind and kind[0] < 0x80:
        return kind[0], place + 1
    end = place + 1 + _NUMBER_WIDTHS.get(kind, 0)
    return (int.from_bytes(data[place + 1 : end], "big") if kind in _NUMBER_WIDTHS else -1), end


_NUMBER_WIDTHS: Final = {b"\xcc": 1, b"\xcd": 2, b"\xce": 4, b"\xcf": 8}
_BYTES_WIDTHS: Final = {b"\xc4": 1, b"\xc5": 2, b"\xc6": 4}
"""How many bytes follow what MessagePack begins a number, or bytes, with."""
