"""What a node is about to send: one letter for each node that it has a connection to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from peersub.overlays.core.effects import Send
from peersub.overlays.core.link import Link
from peersub.overlays.core.messages import Message
from peersub.overlays.core.versions import KEYS_FEATURE

__all__ = ["Letters"]


class Letters:
    """Collects the messages of one handled cause by node, each node's in order.

    What a peer sends stays the `Send` that it was, as long as nothing is added: on links that need
    no frames nothing is copied.
    """

    __slots__ = ("_letters",)

    def __init__(self) -> None:
        self._letters: dict[str, Send | list[Message]] = {}

    def add(self, node: str, message: Message) -> None:
        """One more message."""
        self._open(node).append(message)

    def add_send(self, node: str, send: Send) -> None:
        """All that a peer sends."""
        if node in self._letters:
            self._open(node).extend(send.messages)
        else:
            self._letters[node] = send

    def drop(self, node: str) -> None:
        """The connection is gone, and what was to go over it."""
        self._letters.pop(node, None)

    def take(self, link: Link) -> Iterable[Send]:
        """The letter to one node, if there is any: it goes before what ends the connection."""
        letter = self._letters.pop(link.node, None)
        return () if letter is None else (_sealed(link, letter),)

    def take_all(self, table: Mapping[str, Link]) -> Iterable[Send]:
        """All letters."""
        if not self._letters:
            return ()
        letters, self._letters = self._letters, {}
        return [_sealed(table[node], letter) for node, letter in letters.items()]

    def _open(self, node: str) -> list[Message]:
        letter = self._letters.get(node)
        if not isinstance(letter, list):
            letter = self._letters[node] = [] if letter is None else list(letter.messages)
        return letter


def _sealed(link: Link, letter: Send | list[Message]) -> Send:
    messages = tuple(letter) if isinstance(letter, list) else letter.messages
    if KEYS_FEATURE not in link.features:
        messages = tuple([_for_earlier_version(each) for each in messages])
    elif isinstance(letter, Send) and letter.peer == link.address:
        return letter
    return Send(link.address, messages)


def _for_earlier_version(message: Message) -> Message:
    """The message with names of events that are no longer than ids may be."""
    if not message.brings:
        return message
    held = getattr(message, message.brings)
    fit = _for_earlier_version(held) if isinstance(held, Message) else held.with_short_name()
    return message if fit is held else replace(message, **{message.brings: fit})
