"""Frames: messages back to back on a link, and back from however the bytes arrive.

A frame is four bytes with the length of the payload, and the payload (`codec`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from peersub.filters.price import FILTER_PRICE_MAX
from peersub.overlays.core.link_messages import unwrapped
from peersub.overlays.core.messages import Message
from peersub.overlays.core.records import Record
from peersub.wire.codec import HEADER_LENGTH_BYTES, LENGTH_BYTES, PREFIX, Codec
from peersub.wire.errors import FrameSizeError, UnknownMessageError, WireError
from peersub.wire.filter_bytes import FilterMemory
from peersub.wire.limits import FRAME_BYTES_MAX
from peersub.wire.tags import MESSAGES, RECORDS

__all__ = [
    "FILTER_TAGS",
    "FrameDecoder",
    "carries_event",
    "decode_record",
    "encode",
    "encode_batch",
    "encode_record",
    "patterns_seen",
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


def carries_event(message: Message) -> bool:
    """Whether the message, or what it carries, brings an event: such may be dropped if need be."""
    return _MESSAGES.is_about_event(type(unwrapped(message)))


def patterns_seen() -> bool:
    """Whether a pattern over documents was ever read here."""
    return _FILTERS.has_patterns or _RECORDED_FILTERS.has_patterns


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
        frame_bytes_max: larger frames are refused, before they are in; may be changed any time.
        unknown_count: messages of kinds that this version does not know.
        unknown_tag: the tag of the last one.
    """

    __slots__ = (
        "_broken",
        "_buffer",
        "_wanted",
        "frame_bytes_max",
        "has_more",
        "unknown_count",
        "unknown_tag",
    )

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.has_more = False
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

    @property
    def waiting_bytes(self) -> int:
        """What has come and was not read yet."""
        return len(self._buffer)

    def feed(
        self,
        data: bytes | bytearray | memoryview,
        stops_at: Callable[[int, int], bool] | None = None,
    ) -> list[Message]:
        """The messages that are complete now.

        Args:
            data: what came; nothing, to go on where reading stopped.
            stops_at: is told the tag of each frame before it is read, 0 if it is about an event,
                and how many messages were read before; True leaves it for later (`has_more`).

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
        stops_at: Callable[[int, int], bool] | None,
    ) -> int:
        """Add the messages of complete frames, and return where the first that is left begins."""
        place, size, read_at = 0, len(data), _MESSAGES.read_at
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
            if stops_at is not None:
                tag = 0 if header_length else _tag_at(data, place + PREFIX.size)
                if stops_at(tag, len(messages)):
                    self.has_more = True
                    break
            try:
                messages.append(read_at(data, place + PREFIX.size, end, header_length))
            except UnknownMessageError as unknown:
                self.unknown_count += 1
                self.unknown_tag = unknown.tag
            place = end
        return place


def _tag_at(data: bytes, place: int) -> int:
    """The tag at the begin of a message's list, without reading it; -1 if there is none.

    >>> _tag_at(bytes([0x92, 0xCC, 0xE4, 0x01]), 0), _tag_at(bytes([0xDC, 0, 20, 7]), 0)
    (228, 7)
    """
    opening = data[place : place + 1]
    if opening and 0x90 <= opening[0] < 0xA0:
        place += 1
    elif opening == b"\xdc":
        place += 3
    else:
        return -1
    kind = data[place : place + 1]
    if kind and kind[0] < 0x80:
        return kind[0]
    width = {b"\xcc": 1, b"\xcd": 2}.get(kind)
    return -1 if width is None else int.from_bytes(data[place + 1 : place + 1 + width], "big")
