"""`LinkListener`: what a transport tells of its connections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from peersub.overlays.core.messages import Message
from peersub.runtime.connection import Connection

__all__ = ["LinkListener"]


class LinkListener(Protocol):
    """Who hears of links, on the loop's thread."""

    def on_link_up(self, node: str) -> None:
        """There is a connection to the node."""
        ...

    def on_link_failed(self, node: str, reason: str, *, refused: bool) -> None:
        """There is none to be had; `refused` if that stays so while the nodes are as they are."""
        ...

    def on_name_found(self, address: str, name: str) -> None:
        """The node at an address that was dialled has this name; there is no link yet."""
        ...

    def on_link_lost(self, node: str, reason: str) -> None:
        """It is gone."""
        ...

    def on_link_doubt(self, node: str, *, in_doubt: bool) -> None:
        """Nothing is heard over the connection, or something is again."""
        ...

    def on_link_messages(self, node: str, messages: Sequence[Message]) -> None:
        """Messages of the node, in order."""
        ...

    def on_relieved(self) -> None:
        """A connection was congested, and is no more."""
        ...

    def on_other(self, connection: Connection, messages: Sequence[Message]) -> bool:
        """The first messages of somebody who is no node; False if it is nobody at all."""
        ...
