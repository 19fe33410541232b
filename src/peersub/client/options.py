"""How a subscription behaves, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from peersub.events.envelope import Event
from peersub.wire.client_messages import Overflow

__all__ = ["QUEUE_MAX", "Delivery", "OverflowPolicy", "SubscriptionOptions", "overflow_named"]

OverflowPolicy: TypeAlias = Literal["drop_oldest", "drop_newest", "end"]

QUEUE_MAX: Final = 65_536
"""Events that wait at the node, unless the subscriber says otherwise."""


def overflow_named(name: str) -> Overflow:
    """The policy of this name; a ValueError says which there are."""
    try:
        return Overflow[name.upper()]
    except (AttributeError, KeyError):
        known = ", ".join(each.name.lower() for each in Overflow)
        raise ValueError(f"there is no overflow policy {name!r}: there are {known}") from None


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event with how it came."""

    event: Event
    hops: int
    """Links between nodes that it came over."""
    position: int | None = None
    """Its place in the node's log, if the subscription is durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionOptions:
    """How a subscription behaves."""

    name: str = ""
    durable: str = ""
    since: str = ""
    overflow: Overflow = Overflow.DROP_OLDEST
    queue_max: int = QUEUE_MAX
    auto_acknowledge: bool = True
