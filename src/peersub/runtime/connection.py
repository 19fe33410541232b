"""One TCP connection: frames in, frames out, never waiting for the other side.

What is to be sent is encoded at once, collected, and written in one piece per turn of the event
loop, or when `WRITE_BYTES` have come together: the largest lever on throughput. While the socket
takes no more, what is collected waits here, in bounds:

* beyond `queue_bytes_max` events are dropped, and counted (those under an acknowledged promise are
  repeated later by whoever delegated them); other messages still queue;
* beyond twice that the connection is closed: its node is detached rather than waited for.

Whoever feeds the connection can ask `is_congested` and hold back. A connection whose other end has
taken nothing for `STALLED_MS` is not congested but stalled, one that stays congested for `SLOW_MS`
is slow, and nobody holds back for either: one neighbour must not hold up the others.

A connection knows nothing of nodes and clients. It tells its `handler`, on the loop's thread.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from peersub.overlays.core.link_messages import Heartbeat
from peersub.overlays.core.messages import Message
from peersub.runtime.counters import Counters
from peersub.runtime.liveness import Liveness, LivenessSettings
from peersub.runtime.turns import Turns
from peersub.runtime.waiting_frames import WaitingFrames
from peersub.wire import FrameDecoder, FrameSizeError, WireError, encode, may_be_dropped
from peersub.wire.frames import write_frames
from peersub.wire.limits import FRAME_BYTES_MAX

__all__ = ["HUNG_UP", "Connection", "ConnectionSettings", "Handler"]

WRITE_BYTES: Final = 64 * 1_024
"""What has come together is written at once from here on."""
STALLED_MS: Final = 250
"""A connection over which nothing has moved for so long is stalled."""
SLOW_MS: Final = 3_000
"""One that has been congested for so long without a break is slow: nobody waits for it any more."""
READ_S: Final = 0.002
"""After so long what was read is handed over, before more is read."""
SLICE_S: Final = 0.010
"""After so long the rest of what came waits for another turn of the loop."""
ASIDE_BYTES_MAX: Final = 4 * 1_024 * 1_024
"""Messages with filters that wait for their turn; beyond, nothing more is read."""
ORDERED_BYTES_MAX: Final = 64 * 1_024
"""The same where all is handled in order: whoever sent it waits as well."""
FIRST_FRAME_BYTES_MAX: Final = 64 * 1_024
"""Frames of somebody who has not said who it is."""
HUNG_UP: Final = "the other side closed the connection"
"""Why a connection ended that the other side ended, and said nothing."""
_SOCKET_BYTES: Final = 256 * 1_024
_HEARTBEAT: Final = encode(Heartbeat())


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Bounds of one connection."""

    queue_bytes_max: int = 8 * 1_024 * 1_024
    """What may wait for the other side; beyond it events are dropped."""
    congested_bytes: int = 1_024 * 1_024
    """From here on those who publish hold back."""
    greeting_ms: int = 5_000
    """How long somebody may take to say who it is."""
    liveness: LivenessSettings = field(default_factory=LivenessSettings)


class Handler(Protocol):
    """Who hears of what happens on a connection."""

    def on_opened(self, connection: Connection) -> None:
        """It is there."""
        ...

    def on_messages(self, connection: Connection, messages: Sequence[Message]) -> None:
        """Messages, in order; never heartbeats."""
        ...

    def on_closed(self, connection: Connection, reason: str) -> None:
        """It is gone; said once."""
        ...

    def on_relieved(self, connection: Connection) -> None:
        """It was congested, and is no more."""
        ...


class Connection(asyncio.Protocol):
    """A connection, from either side.

    Attributes:
        handler: may be exchanged, as soon as it is known who is at the other end; none at the end.
        peer_identity: what the certificate of the other end says, if there is one.
        is_dialled: whether this side asked for the connection.
    """

    def __init__(
        self,
        handler: Handler,
        settings: ConnectionSettings,
        counters: Counters,
        now_ms: Callable[[], int],
    ) -> None:
        self.handler = handler
        self.peer_identity: Any = None
        self.is_dialled = False
        self.hold_frame: Callable[[int], bool] | None = None
        """Asked whether so many bytes of an incomplete frame may be held; 0 lets go of them."""
        self._frame_bytes = 0
        self._waiting: WaitingFrames | None = None
        self.events_dropped = 0
        self.frames_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self._settings = settings
        self._has_room = settings.congested_bytes >= _SOCKET_BYTES
        """Whether what the socket's buffer holds before it pauses is no congestion."""
        self._counters = counters
        self._now_ms = now_ms
        self._decoder = FrameDecoder(FIRST_FRAME_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._pieces: list[bytes | memoryview] = []
        self._pieces_bytes = 0
        self._is_paused = False
        self._is_reading = True
        self._is_stopped = False
        """Whether the socket is not read for now."""
        self._is_behind = False
        """Whether frames that have come are still to be read."""
        self._messages: list[Message] = []
        """Those that were read and are not handled yet."""
        self._failure: str | None = None
        """Why nothing more can be read, once these are handled."""
        self._was_congested = False
        self._congested_since_ms: int | None = None
        self._flush_planned = False
        self._close_reason: str | None = None
        self._is_closed = False
        self._opened_ms = now_ms()
        self._sent_ms = self._opened_ms
        self._moved_ms = self._opened_ms
        self._buffered = 0
        self._liveness: Liveness | None = None
        self._liveness_settings = settings.liveness

    # --- what asyncio says ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected, and TLS agreed on, if there is any."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._close_reason is not None:
            # It was given up while it was made.
            transport.abort()
            return
        if self._waiting is not None:
            self._decoder.puts_aside = self._waiting.puts_aside
        transport.set_write_buffer_limits(high=_SOCKET_BYTES)
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.handler.on_opened(self)

    def data_received(self, data: bytes) -> None:
        """Bytes, however the network has cut them."""
        if self._is_closed or self._close_reason is not None:
            return
        self.bytes_in += len(data)
        if self._liveness is not None:
            self._liveness.heard(self._now_ms())
        decoder = self._decoder
        if data == _HEARTBEAT and decoder.is_between_frames:
            # Most of what comes over a link at rest: nothing needs to be read of it.
            self.frames_in += 1
            return
        if self._is_behind:
            decoder.hold(data)
        else:
            self._read(data)

    def _read(self, data: bytes) -> None:
        """Read and handle what came, as far as one slice goes; the rest follows in later turns."""
        begin_s = group_s = time.monotonic()

        def stops_at(before: int) -> bool:
            return before > 0 and (self._liveness is None or time.monotonic() - group_s > READ_S)

        while self._failure is None:
            self._decode(data, stops_at)
            data = b""
            self._hand_over()
            if not self.is_open or not self._decoder.has_more:
                break
            group_s = time.monotonic()
            if not self._is_reading or group_s - begin_s > SLICE_S:
                self._is_behind = True
                if self._is_reading:
                    asyncio.get_running_loop().call_soon(self._go_on)
                break
        if self._waiting is not None:
            self._waiting.ask_for_turn()
        self._read_or_pause()

    def _go_on(self) -> None:
        """Read on where the last slice stopped, unless nothing is to be read just now."""
        if not self._is_behind or not self._is_reading or not self.is_open:
            return
        self._is_behind = False
        if self._liveness is not None:
            self._liveness.heard(self._now_ms())
        self._read(b"")

    # --- what can wait -------------------------------------------------------------------------

    def read_in_turns(self, turns: Turns, *, in_order: bool = False) -> None:
        """Let messages with filters wait for their turn; events overtake them unless `in_order`."""
        self._waiting = WaitingFrames(turns, self._decoder, self, in_order=in_order)
        if self._transport is not None:
            self._decoder.puts_aside = self._waiting.puts_aside

    @property
    def _has_waiting(self) -> bool:
        return self._waiting is not None and self._waiting.has_any

    @property
    def may_read(self) -> bool:
        """Whether what comes is wanted."""
        return self._is_reading and self.is_open

    def on_waited(self, message: Message) -> None:
        """The turn of a message has come."""
        self._note_life()
        self.handler.on_messages(self, (message,))
        self._go_on_waiting()

    def on_read(self, message: Message | None, error: WireError | None) -> None:
        """A frame was read in its turn, or cannot be read."""
        self._note_life()
        if error is not None:
            self._fail(error)
        self._note_read(int(message is not None))
        self._go_on_waiting()

    def _note_life(self) -> None:
        """Nothing is heard of the other side while it is not listened to."""
        if self._liveness is not None and self._is_stopped:
            self._liveness.heard(self._now_ms())

    def _go_on_waiting(self) -> None:
        self._abort_if_failed()
        self._read_or_pause()
        if self._waiting is not None:
            self._waiting.ask_for_turn()

    def _decode(self, data: bytes, stops_at: Callable[[int], bool]) -> None:
        """Read the messages that can be read now."""
        decoder = self._decoder
        try:
            messages = decoder.feed(data, stops_at)
        except WireError as error:
            messages = list(error.messages_before)
            self._fail(error)
        self._note_read(len(messages))
        self._messages = [message for message in messages if type(message) is not Heartbeat]
        if self._failure is None and not self._has_room_for_frame():
            self._failure = "too much of what clients send is not complete"
            self._counters.add("a frame that there was no room for")

    def _fail(self, error: WireError) -> None:
        """Nothing more can be read."""
        self._failure = str(error)
        is_large = isinstance(error, FrameSizeError)
        self._counters.add("a frame that is too large" if is_large else "a malformed frame")

    def _note_read(self, count: int) -> None:
        """So many messages were read, and perhaps some of kinds that nobody knows."""
        decoder = self._decoder
        if decoder.unknown_count:
            self._counters.add("a message of an unknown kind", decoder.unknown_count)
            decoder.unknown_count = 0
        self.frames_in += count

    def _hand_over(self) -> None:
        """Let the messages that were read be handled."""
        messages, self._messages = self._messages, []
        if messages:
            self.handler.on_messages(self, messages)
        self._abort_if_failed()

    def _abort_if_failed(self) -> None:
        """Nothing more can be read: that is all, once what came before is handled."""
        if self._failure is not None and not self._has_waiting:
            self.abort(self._failure)

    def _has_room_for_frame(self) -> bool:
        """Whether what has come of a large frame may be held until the rest of it comes."""
        waiting = self._decoder.waiting_bytes
        waiting = waiting if waiting > FIRST_FRAME_BYTES_MAX else 0
        if self.hold_frame is None or waiting == self._frame_bytes:
            return True
        self._frame_bytes = waiting
        return self.hold_frame(waiting)

    def eof_received(self) -> bool:
        """The other side has said all it had to say."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        if self._is_closed:
            return
        self._is_closed = True
        self._pieces.clear()
        if self._close_reason is None and not self.is_dialled:
            # However it ended: a reset tells no more than an end in good order.
            if not self._decoder.is_between_frames:
                self._counters.add("a frame that was cut off")
            elif self._liveness is None:
                self._counters.add("a connection that said nothing")
        # Others may know it for a while longer, and circles stay for ever in a node (`collecting`).
        self._decoder.forget()
        self._decoder.puts_aside = self.hold_frame = None
        self._messages, self._was_congested = [], False
        if self._waiting is not None:
            self._waiting.end()
            self._waiting = None
        with suppress(AttributeError):
            del self._transport._read_ready_cb  # type: ignore[union-attr]  # A circle of asyncio.
        handler = self.handler
        del self.handler
        handler.on_closed(self, self._close_reason or (str(exc) if exc else HUNG_UP))

    def pause_writing(self) -> None:
        """The socket's buffer is full."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """There is room again."""
        self._is_paused = False
        self._moved_ms = self._now_ms()
        self._flush()
        self._say_if_relieved()

    # --- for those who use it ------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether something can be sent."""
        return self._transport is not None and not self._is_closed and self._close_reason is None

    @property
    def is_closing(self) -> bool:
        """Whether it was there, and is not gone yet."""
        return self._transport is not None and not self._is_closed

    @property
    def queued_bytes(self) -> int:
        """What waits for the other side."""
        transport = self._transport
        return self._pieces_bytes + (transport.get_write_buffer_size() if transport else 0)

    @property
    def stalled_ms(self) -> int:
        """For how long the other side has taken nothing of what waits for it."""
        return self._now_ms() - self._moved_ms if self.queued_bytes else 0

    def status(self) -> dict[str, Any]:
        """What went over it and waits for it, as plain values."""
        return {
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "messages_in": self.frames_in,
            "queued_bytes": self.queued_bytes,
            "events_dropped": self.events_dropped,
        }

    @property
    def host(self) -> str:
        """The address at the other end; empty if nobody knows."""
        peer = self.extra("peername")
        return str(peer[0]) if isinstance(peer, tuple) else ""

    def extra(self, name: str) -> Any:
        """What asyncio knows of the transport, such as `ssl_object`."""
        return self._transport.get_extra_info(name) if self._transport else None

    def trust(self, liveness: LivenessSettings | None = None) -> None:
        """It is known who is at the other end: large frames are welcome, and silence is not.

        `liveness` says what silence is, where that depends on who is there.
        """
        self._decoder.frame_bytes_max = FRAME_BYTES_MAX
        self._liveness_settings = liveness or self._settings.liveness
        self._liveness = Liveness(self._liveness_settings, self._now_ms())

    def bound_frames(self, frame_bytes_max: int) -> None:
        """Take no larger frames from now on."""
        self._decoder.frame_bytes_max = min(frame_bytes_max, FRAME_BYTES_MAX)

    def send(self, messages: Sequence[Message]) -> None:
        """Send, or queue, or drop what may be dropped."""
        if not self.is_open:
            return
        if self._is_paused or self._pieces_bytes > WRITE_BYTES:
            queued = self.queued_bytes
            if queued > self._settings.queue_bytes_max:
                messages = self._without_events(messages)
                if queued > 2 * self._settings.queue_bytes_max:
                    self._counters.add("a stalled link that was detached")
                    self.abort("the other side takes nothing, and too much waits for it")
                    return
        self._pieces_bytes += self._written(messages)
        if self._pieces_bytes >= WRITE_BYTES:
            self._flush()
        elif not self._flush_planned:
            self._flush_planned = True
            asyncio.get_running_loop().call_soon(self._flush_now)

    def _written(self, messages: Sequence[Message]) -> int:
        """Encode; what cannot be written is counted, and must not take the others with it."""
        before = len(self._pieces)
        try:
            return write_frames(messages, self._pieces)
        except WireError:
            del self._pieces[before:]
        size = 0
        for message in messages:
            try:
                size += write_frames((message,), self._pieces)
            except WireError:
                self._counters.add("a message that cannot be written")
        return size

    def _without_events(self, messages: Sequence[Message]) -> list[Message]:
        kept = [message for message in messages if not may_be_dropped(message)]
        dropped = len(messages) - len(kept)
        if dropped:
            self.events_dropped += dropped
            self._counters.add("an event dropped because a link's queue is full", dropped)
        return kept

    def is_congested(self) -> bool:
        """Whether those who publish should hold back: much waits, and it does move."""
        if not self._is_paused and not self._pieces_bytes and self._has_room:
            # Asked for each message that comes, on each link: the socket's buffer need not be.
            self._congested_since_ms = None
            return False
        if self.queued_bytes <= self._settings.congested_bytes:
            self._congested_since_ms = None
            return False
        now_ms = self._now_ms()
        if self._congested_since_ms is None:
            self._congested_since_ms = now_ms
        if now_ms - self._moved_ms > STALLED_MS or now_ms - self._congested_since_ms > SLOW_MS:
            return False
        self._was_congested = True
        return True

    def pause_reading(self) -> None:
        """Take nothing for now: the other side will notice."""
        if self._transport is not None and self._is_reading and not self._is_closed:
            self._is_reading = False
            self._read_or_pause()

    def resume_reading(self) -> None:
        """Take what comes again."""
        if self._transport is not None and not self._is_reading and not self._is_closed:
            self._is_reading = True
            if self._liveness is not None:
                self._liveness = Liveness(self._liveness_settings, self._now_ms())
            self._go_on_waiting()
            if self._is_behind:
                asyncio.get_running_loop().call_soon(self._go_on)

    def _read_or_pause(self) -> None:
        """Let the socket be read iff what comes is wanted, and not too much of it waits."""
        is_in_order = self._waiting is not None and self._waiting.is_in_order
        aside_max = ORDERED_BYTES_MAX if is_in_order else ASIDE_BYTES_MAX
        is_full = self._decoder.aside_bytes > aside_max
        is_behind = self._is_behind or is_full or self._failure is not None
        is_stopped = is_behind or not self._is_reading
        if self._transport is None or not self.is_open or is_stopped == self._is_stopped:
            return
        self._is_stopped = is_stopped
        if is_stopped:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def tick(self, now_ms: int, late_ms: float) -> str | None:
        """Called every so often: say that this side lives; why to give up on the other, if so.

        Silence is another question (`is_suspect`).
        """
        transport = self._transport
        if transport is None or not self.is_open:
            return None
        if late_ms and self._liveness is not None:
            self._liveness.forgive(late_ms)
        buffered = transport.get_write_buffer_size()
        if buffered < self._buffered:
            self._moved_ms = now_ms
        self._buffered = buffered
        self._say_if_relieved()
        if self._liveness is None:
            if now_ms - self._opened_ms > self._settings.greeting_ms:
                self._counters.add("a connection that said nothing")
                return "nothing was said"
            return None
        if now_ms - self._sent_ms >= self._liveness_settings.heartbeat_ms:
            self._sent_ms = now_ms
            if not self._pieces and not buffered:
                transport.write(_HEARTBEAT)
        return None

    def is_in_doubt(self, now_ms: int) -> bool:
        """Whether the other side has been silent for longer than usual."""
        liveness = self._liveness
        return liveness is not None and self._is_reading and liveness.is_in_doubt(now_ms)

    def is_suspect(self, now_ms: int) -> bool:
        """Whether the other side has been silent for too long."""
        liveness = self._liveness
        return liveness is not None and self._is_reading and liveness.is_suspect(now_ms)

    def is_silent(self, now_ms: int) -> bool:
        """Whether it has been silent for longer than any silence may last."""
        liveness = self._liveness
        return liveness is not None and self._is_reading and liveness.is_silent(now_ms)

    def close(self, reason: str) -> None:
        """Close once all that was sent is through."""
        if self._close_reason is None and not self._is_closed:
            self._flush(force=True)
            self._close_reason = reason
            if self._transport is not None:
                self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once: the other side does not behave, or is gone."""
        if self._close_reason is None:
            self._close_reason = reason
        if self._transport is not None:
            self._transport.abort()

    # --- writing -------------------------------------------------------------------------------

    def _flush_now(self) -> None:
        self._flush_planned = False
        self._flush()

    def _flush(self, *, force: bool = False) -> None:
        if not self._pieces or (self._is_paused and not force) or self._transport is None:
            return
        if self._is_closed or self._close_reason is not None:
            self._pieces.clear()
            self._pieces_bytes = 0
            return
        self._sent_ms = self._now_ms()
        if not self._transport.get_write_buffer_size():
            self._moved_ms = self._sent_ms
        while self._pieces and (force or not self._is_paused):
            data = self._next_bytes()
            self._pieces_bytes -= len(data)
            self.bytes_out += len(data)
            self._transport.write(data)

    def _next_bytes(self) -> bytes:
        """What is written next. Large events stay what they are, one for all connections."""
        pieces = self._pieces
        if self._pieces_bytes <= _SOCKET_BYTES:
            data = b"".join(pieces)
            pieces.clear()
            return data
        size = count = 0
        while count < len(pieces) and size + len(pieces[count]) <= _SOCKET_BYTES:
            size += len(pieces[count])
            count += 1
        taken, rest = pieces[:count], pieces[count:]
        if rest and size < WRITE_BYTES:
            view = memoryview(rest[0])
            taken.append(view[:_SOCKET_BYTES])
            rest[0] = view[_SOCKET_BYTES:]
        pieces[:] = rest
        return b"".join(taken)

    def _say_if_relieved(self) -> None:
        if self._was_congested and not self.is_congested():
            self._was_congested = False
            self.handler.on_relieved(self)
