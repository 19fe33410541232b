"""What a client said, in order: a few changes of subscriptions at once, and the rest by turns.

A client may ask for thousands of subscriptions, and end as many, in one go. While some of them wait
no more is read from it. A dear filter is worked out off the loop before its subscription is taken
in: to narrow it to what the client may see can take longer than all other turns together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from peersub.filters.filter import Filter
from peersub.overlays.core.messages import Message
from peersub.runtime.client_ports import ClientConnection, ClientRules
from peersub.runtime.filter_budget import is_worked_out_off_loop, work_out
from peersub.runtime.turns import Turns
from peersub.wire.client_messages import SubscribeWanted, UnsubscribeWanted

__all__ = ["ClientInbox"]

CHANGES_AT_ONCE: Final = 16
"""Subscriptions of a client that begin or end before those that follow wait for their turns."""


class ClientInbox:
    """The messages of one client.

    Args:
        connection: to the client.
        rules: what it may do.
        take: is handed messages whose turn has come.
    """

    def __init__(
        self,
        connection: ClientConnection,
        rules: ClientRules,
        take: Callable[[Sequence[Message]], None],
    ) -> None:
        self._connection = connection
        self._rules = rules
        self._take: Callable[[Sequence[Message]], None] | None = take
        self._messages: deque[Message] = deque()
        self._is_waiting = False
        """Whether turns are asked for, and nothing more is read."""
        self._is_off_loop = False
        """Whether what the first message wants is being worked out."""
        self._worked_out: Filter | None = None
        """What the first message wants, once that is done."""

    def add(self, messages: Sequence[Message]) -> None:
        """Messages have come."""
        self._messages.extend(messages)
        if not self._is_waiting and self._take_some(CHANGES_AT_ONCE):
            self._is_waiting = True
            self._connection.hold_reading(hold=True)
            if not self._is_off_loop:
                Turns.of_running_loop().ask(self._take_more)

    def end(self) -> None:
        """Nobody hears what the client says any more."""
        self._messages.clear()
        self._take = self._worked_out = None

    def _take_more(self) -> bool:
        """Take in one more change; whether another one may be taken in at once."""
        if self._take_some(1):
            return not self._is_off_loop
        self._is_waiting = False
        if self._take is not None:
            self._connection.hold_reading(hold=False)
        return False

    def _take_some(self, changes_left: int) -> bool:
        """Hand over so many changes, and what comes before and between; whether more is left."""
        taken: list[Message] = []
        while self._messages and changes_left and not self._is_worked_out_first(self._messages[0]):
            message = self._messages.popleft()
            changes_left -= isinstance(message, SubscribeWanted | UnsubscribeWanted)
            taken.append(message)
        if taken and self._take is not None:
            self._worked_out = None
            self._take(taken)
        return bool(self._messages)

    def _is_worked_out_first(self, message: Message) -> bool:
        """Whether a dear filter is to be worked out before the message is handed over."""
        if not isinstance(message, SubscribeWanted) or message.filter is self._worked_out:
            return False
        wanted = message.filter
        if not is_worked_out_off_loop(wanted):
            return False
        self._is_off_loop = True
        Turns.of_running_loop().run_off_loop(
            partial(work_out, self._rules, self._connection.identity, wanted),
            partial(self._on_worked_out, wanted),
        )
        return True

    def _on_worked_out(self, wanted: Filter, done: asyncio.Future[None]) -> None:
        self._is_off_loop = False
        if self._take is not None:
            self._worked_out = wanted
            Turns.of_running_loop().ask(self._take_more)
        done.result()
