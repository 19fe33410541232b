"""The session of a link: reliable messages arrive exactly once and in order, or the link is lost.

Two nodes number their links, each by itself and over all its lives: the number is the node's
*epoch* of the link. A session is named by both epochs, told in HELLO, and every frame carries the
two. So a frame of an earlier link, late on its way, is never taken for one of this link. (One of
them is not enough: when only one side begins anew, the other's epoch stays.)

Each side numbers its reliable messages from 1 on. The receiver delivers them in that order, keeps a
bounded number of those that came too early, and acknowledges the last one that was in order: on
its own messages if it has any to send, else alone, once per batch that arrived. What is not
acknowledged in time is sent again, with a doubled delay each time; after a bounded number of times
without any progress the session is over.

Invariants: `received` is the number of messages delivered, all of them in order; the unacknowledged
messages are numbered without a gap and end at the last one sent; what waits out of order is beyond
`received + 1`.
"""

from __future__ import annotations

from collections import deque

from peersub.overlays.core.link_messages import Acknowledgement, Carried
from peersub.overlays.core.messages import Message

__all__ = [
    "BACKOFF_DOUBLINGS_MAX",
    "OUT_OF_ORDER_MAX",
    "RESENT_AT_ONCE_MAX",
    "UNACKNOWLEDGED_MAX",
    "Session",
]

UNACKNOWLEDGED_MAX = 65_536
"""Reliable messages on one link that the other side has not acknowledged; then it is lost."""

OUT_OF_ORDER_MAX = 4_096
"""Messages kept until the ones before them arrive; later ones are dropped, and sent again."""

RESENT_AT_ONCE_MAX = 256
"""Messages that are sent again in one go, oldest first."""

BACKOFF_DOUBLINGS_MAX = 3
"""The delay before sending again doubles at most so often."""


class Session:
    """One side of a session."""

    __slots__ = (
        "_early",
        "_last",
        "_unacknowledged",
        "acknowledgement_due",
        "attempts",
        "epoch",
        "epoch_there",
        "received",
        "resend_at_ms",
        "resend_ms",
    )

    def __init__(self, epoch: int, epoch_there: int, resend_ms: int) -> None:
        self.epoch = epoch
        self.epoch_there = epoch_there
        self.resend_ms = resend_ms
        self.received = 0
        self.acknowledgement_due = False
        self.attempts = 0
        """How often the oldest message was sent again."""
        self.resend_at_ms = 0
        """When to send again; meaningless while all is acknowledged."""
        self._last = 0
        self._unacknowledged: deque[Message] = deque()
        self._early: dict[int, Message] = {}

    @property
    def is_idle(self) -> bool:
        """Whether all that was sent is acknowledged."""
        return not self._unacknowledged

    def belongs(self, frame_epoch: int, frame_sender_epoch: int) -> bool:
        """Whether a frame with these epochs is of this session."""
        return frame_epoch == self.epoch and frame_sender_epoch == self.epoch_there

    # --- sending -------------------------------------------------------------------------------

    def carry(self, message: Message, now_ms: int) -> Carried | None:
        """The frame for a reliable message, kept until acknowledged; None if there is no room."""
        if len(self._unacknowledged) >= UNACKNOWLEDGED_MAX:
            return None
        if not self._unacknowledged:
            self._restart_clock(now_ms)
        self._last += 1
        self._unacknowledged.append(message)
        return self._frame(self._last, message)

    def on_acknowledged(self, acknowledged: int, now_ms: int) -> bool:
        """All up to this number has arrived; whether that was news."""
        oldest = self._last - len(self._unacknowledged) + 1
        if not oldest <= acknowledged <= self._last:
            return False
        for _ in range(acknowledged - oldest + 1):
            self._unacknowledged.popleft()
        self._restart_clock(now_ms)
        return True

    def resend(self, now_ms: int) -> list[Carried]:
        """The oldest unacknowledged messages once more; the next time comes later."""
        self.attempts += 1
        doublings = min(self.attempts, BACKOFF_DOUBLINGS_MAX)
        self.resend_at_ms = now_ms + (self.resend_ms << doublings)
        return self._oldest()

    def resume(self, now_ms: int) -> list[Carried]:
        """The same over a new path, which is given all the time that a new link has."""
        self._restart_clock(now_ms)
        return self._oldest()

    def acknowledgement(self) -> Acknowledgement:
        """What has arrived so far, told alone."""
        self.acknowledgement_due = False
        return Acknowledgement(self.epoch_there, self.epoch, self.received)

    def _oldest(self) -> list[Carried]:
        first = self._last - len(self._unacknowledged) + 1
        count = min(len(self._unacknowledged), RESENT_AT_ONCE_MAX)
        return [self._frame(first + place, self._unacknowledged[place]) for place in range(count)]

    def _frame(self, sequence: int, message: Message) -> Carried:
        self.acknowledgement_due = False
        return Carried(self.epoch_there, self.epoch, sequence, self.received, message)

    def _restart_clock(self, now_ms: int) -> None:
        self.attempts = 0
        self.resend_at_ms = now_ms + self.resend_ms

    # --- receiving -----------------------------------------------------------------------------

    def accept(self, frame: Carried) -> list[Message]:
        """The messages that can be delivered now that this one has arrived, in order."""
        self.acknowledgement_due = True
        sequence = frame.sequence
        if sequence <= self.received:
            return []
        if sequence > self.received + 1:
            if len(self._early) < OUT_OF_ORDER_MAX:
                self._early[sequence] = frame.message
            return []
        delivered = [frame.message]
        self.received = sequence
        while self._early:
            message = self._early.pop(self.received + 1, None)
            if message is None:
                break
            self.received += 1
            delivered.append(message)
        return delivered
