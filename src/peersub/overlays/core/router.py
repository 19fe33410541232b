"""`Router`: the part of an overlay that is its own, as its `Shell` sees it.

The shell tells a router what happens (hooks) and asks it what only it can know (questions). A
router answers through the shell it is attached to: it sends, dials, sets timers and forwards events
there, and returns nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from peersub.filters.filter import Filter
from peersub.overlays.core.causes import Timer
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication

if TYPE_CHECKING:
    from peersub.overlays.core.shell import Shell

__all__ = ["Router"]


class Router(ABC):
    """Who forwards what to whom."""

    name: ClassVar[str]
    """The overlay's."""
    shell: Shell

    def attach(self, shell: Shell) -> None:
        """The shell around this router, before anything happens."""
        self.shell = shell

    # --- hooks ---------------------------------------------------------------------------------

    @abstractmethod
    def link_up(self, peer: PeerId, greeting: bytes) -> None:
        """A link to the peer is up; `shell.linked` has it."""

    @abstractmethod
    def link_down(self, peer: PeerId, reason: str) -> None:
        """The link to the peer is gone, and `shell.linked` does not have it any more."""

    @abstractmethod
    def on_message(self, peer: PeerId, message: Message, now_ms: int) -> bool:
        """A linked peer says something; False if the router does not know such messages."""

    @abstractmethod
    def route(self, events: Sequence[Publication], hops: int, sender: PeerId | None) -> None:
        """Forward events that are new here, and have come over so many links.

        `sender` is the peer that they came from, None for those that are published here.
        """

    def subscribe(self, name: str, wanted: Filter) -> None:
        """A subscription has moved in: say `shell.confirm` when events find the way to it."""
        self.shell.confirm(name)

    def unsubscribe(self, name: str) -> None:
        """A subscription has ended."""
        return

    def contacts_named(self, nodes: Sequence[str]) -> None:
        """The node was told to join by these, and the shell dials them."""
        return

    def dial_failed(self, node: str) -> None:
        """A node cannot be reached."""
        return

    def tick(self, timer: Timer, now_ms: int) -> None:
        """A timer of the router has fired."""
        return

    def leave(self) -> None:
        """The node takes leave: the shell closes all links next."""
        return

    # --- questions -----------------------------------------------------------------------------

    def is_whole(self) -> bool:
        """Whether the node has its place in the network, once it is linked to it."""
        return True

    def waits_for(self, subscription: str) -> tuple[PeerId, ...]:
        """The peers whose answer a subscription needs before it is confirmed."""
        return ()

    def relays_for(self, node: str) -> Iterable[PeerId]:
        """The peers to ask first for a way to a node whose link broke."""
        return self.shell.links()

    def greeting(self) -> bytes:
        """What a peer should know of this node before anything else."""
        return b""

    def shared_settings(self) -> Mapping[str, str]:
        """The settings that all nodes of a network must agree on."""
        return {}

    def describe(self) -> Mapping[str, Any]:
        """The router's state: plain values, keys sorted."""
        return {}
