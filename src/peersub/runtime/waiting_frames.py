"""Frames of a connection that bring filters: they wait, unread, for their turns.

Events overtake them, unless all is handled in order. What a client sends may be large and dear to
read: that is done off the loop, one frame of a connection after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol
from weakref import ref

from peersub.overlays.core.link_messages import Heartbeat
from peersub.overlays.core.messages import Message
from peersub.runtime.turns import Turns
from peersub.wire import FrameDecoder, WireError
from peersub.wire.frames import FILTER_TAGS, tag_told

__all__ = ["Reading", "WaitingFrames"]

READ_ON_LOOP_BYTES: Final = 1_024
"""Of a frame of a client that is read on the loop: less than a millisecond, whatever is in it."""
_HEARTBEAT_TAG: Final = tag_told(Heartbeat())


class Reading(Protocol):
    """The connection that reads."""

    @property
    def may_read(self) -> bool:
        """Whether what comes is wanted."""
        ...

    def on_read(self, message: Message | None, error: WireError | None) -> None:
        """A frame was read: a message of a known kind came of it, or not; or it is malformed."""
        ...

    def on_waited(self, message: Message) -> None:
        """The turn of a message has come."""
        ...


class WaitingFrames:
    """The frames that wait.

    Args:
        turns: those of the loop.
        decoder: puts frames aside.
        reading: the connection.
        in_order: whether everything waits behind them, as with clients.
    """

    def __init__(
        self, turns: Turns, decoder: FrameDecoder, reading: Reading, *, in_order: bool
    ) -> None:
        self.is_in_order: Final = in_order
        self._turns = turns
        self._decoder = decoder
        # No circle: some connections are never made, and nobody ends them.
        self._reading: Callable[[], Reading | None] = ref(reading)
        self._has_asked = False
        """Whether a turn was asked for, and did not come yet."""
        self._is_off_loop = False
        """Whether a frame is being read off the loop."""
        self._message: Message | None = None
        """What was read, and is not handled yet."""

    @property
    def has_any(self) -> bool:
        """Whether something waits."""
        return self._message is not None or self._is_off_loop or self._decoder.has_aside

    def puts_aside(self, tag: int) -> bool:
        """Whether a frame with this tag is to wait (`FrameDecoder.puts_aside`)."""
        if tag == _HEARTBEAT_TAG:
            return False
        if not tag:
            self._turns.give_way()
        return tag in FILTER_TAGS or (self.has_any and (self.is_in_order or tag > 0))

    def ask_for_turn(self) -> None:
        """Ask for a turn, if something waits for one and is wanted."""
        reading = self._reading()
        is_busy = self._has_asked or self._is_off_loop
        if reading is not None and reading.may_read and self.has_any and not is_busy:
            self._has_asked = True
            self._turns.ask(self._take_turn)

    def end(self) -> None:
        """The connection is gone."""
        self._reading, self._message = _nobody, None

    def _take_turn(self) -> bool:
        """Read a frame, or handle what was read; whether more is left."""
        self._has_asked = False
        reading = self._reading()
        if reading is None or not reading.may_read:
            return False
        message, self._message = self._message, None
        if message is not None:
            reading.on_waited(message)
            return False
        frame = self._decoder.take_aside()
        if self.is_in_order and len(frame) > READ_ON_LOOP_BYTES:
            self._is_off_loop = True
            self._turns.run_off_loop(partial(_read, self._decoder, frame), self._on_read_off_loop)
        else:
            self._on_read(*_read(self._decoder, frame))
        return False

    def _on_read_off_loop(
        self, done: asyncio.Future[tuple[Message | None, WireError | None]]
    ) -> None:
        self._is_off_loop = False
        self._on_read(*done.result())

    def _on_read(self, message: Message | None, error: WireError | None) -> None:
        reading = self._reading()
        if reading is not None:
            self._message = message
            reading.on_read(message, error)


def _nobody() -> None:
    """Who reads, once the connection is gone."""


def _read(decoder: FrameDecoder, frame: bytes) -> tuple[Message | None, WireError | None]:
    try:
        return decoder.read(frame), None
    except WireError as error:
        return None, error
