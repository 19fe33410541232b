"""Messages between peers: frozen dataclasses, named as in the papers.

A message class says whether it must arrive (`reliable`): the links carry such messages in order,
exactly once, as long as the link lives (`links`). Others are light: they may be lost, doubled or
overtaken, and their protocol lives with that.

It also says whether it brings an event (`brings`): drivers hold such messages back, or drop them,
where a link is congested, and read large bodies before they hand them over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

__all__ = ["Message", "content_of", "message_kind"]


@dataclass(frozen=True, slots=True)
class Message:
    """What one peer says to another."""

    reliable: ClassVar[bool] = True
    brings: ClassVar[str] = ""
    """The field that holds the event, or the batch of events, or a message that may bring one."""


def content_of(message: Message) -> Any | None:
    """The `Publication` or `Batch` that a message brings, however deep; None if it brings none."""
    held: Any = message
    while isinstance(held, Message):
        held = getattr(held, held.brings) if held.brings else None
    return held


def message_kind(message: Message) -> str:
    """The name of a message in traces and counts: `FilterUpdate` is `filter-update`.

    >>> from peersub.overlays.core.link_messages import Hello
    >>> message_kind(Hello)
    'hello'
    """
    return _kind(message if isinstance(message, type) else type(message))


_KINDS: dict[type, str] = {}


def _kind(message_class: type) -> str:
    known = _KINDS.get(message_class)
    if known is None:
        name = message_class.__name__
        known = "".join(
            f"-{letter.lower()}" if letter.isupper() and place else letter.lower()
            for place, letter in enumerate(name)
        )
        _KINDS[message_class] = known
    return known
