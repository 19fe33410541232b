"""What the simulator counts whether or not anybody observes."""

from __future__ import annotations

from peersub.overlays.core.link_messages import Carried
from peersub.overlays.core.messages import Message, message_kind

__all__ = ["Counters"]


class Counters:
    """Totals of a run."""

    __slots__ = (
        "_by_class",
        "connects",
        "connects_failed",
        "delivered",
        "doubled",
        "links_lost",
        "lost",
        "steps",
        "wire_bytes",
    )

    def __init__(self) -> None:
        self._by_class: dict[type, int] = {}
        self.steps = 0
        """Causes handled."""
        self.lost = 0
        """Messages that did not arrive, for whatever reason."""
        self.doubled = 0
        self.connects = 0
        self.connects_failed = 0
        self.links_lost = 0
        self.delivered = 0
        """Events handed to subscriptions."""
        self.wire_bytes = 0
        """Bytes of all messages, if they went through the wire format."""

    def count_sent(self, messages: tuple[Message, ...]) -> None:
        """Messages set out; what is carried counts as what it is."""
        by_class = self._by_class
        for message in messages:
            kind = type(message.message) if type(message) is Carried else type(message)
            by_class[kind] = by_class.get(kind, 0) + 1

    @property
    def messages(self) -> int:
        """Messages sent."""
        return sum(self._by_class.values())

    def messages_by_kind(self) -> dict[str, int]:
        """Messages sent, by the name of their kind, sorted."""
        named = {message_kind(kind): count for kind, count in self._by_class.items()}  # type: ignore[arg-type]
        return dict(sorted(named.items()))
