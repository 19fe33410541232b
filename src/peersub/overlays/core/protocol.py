"""The interface of an overlay: one method, from a cause to effects, and questions about its state.

An overlay's peer derives from `Overlay`, and overrides the answers that are not true of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from peersub.overlays.core.causes import Cause
from peersub.overlays.core.effects import Effect
from peersub.overlays.core.identity import PeerId

__all__ = ["Overlay"]


class Overlay(Protocol):
    """A protocol peer. It holds state, and touches nothing but its state.

    The same causes in the same order with the same times give the same effects: no clock, no
    generator, no iteration over sets, no hash of a string.
    """

    name: str
    me: PeerId

    @property
    def takes_part(self) -> bool:
        """Whether it has its place in the network that it was told to start or join."""
        ...

    def handle(self, cause: Cause, now_ms: int) -> list[Effect]:
        """Take the cause in, and say what is to be done, in this order."""
        ...

    def greeting(self) -> bytes:
        """What a peer should know of this one before anything else, told in HELLO."""
        return b""

    def shared_settings(self) -> Mapping[str, str]:
        """The settings that all peers of a network must agree on."""
        return {}

    def links(self) -> Iterable[PeerId]:
        """The peers that this one keeps a link to, sorted by what the overlay means by order."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """The state, for people, checkers and metrics: plain values, keys sorted."""
        ...

    # --- questions -----------------------------------------------------------------------------

    @property
    def is_joining(self) -> bool:
        """Whether it is still on its way into the network."""
        return False

    @property
    def is_mending(self) -> bool:
        """Whether a part of it has lost its place in the network, and looks for another."""
        return False

    @property
    def missing_nodes(self) -> Sequence[str] | None:
        """The nodes that should be in its network, and that it looks for.

        None if it looks for nobody: it waits for nodes that are gone.
        """
        return None

    def waiting_on(self, subscription: str) -> tuple[PeerId, ...]:
        """The peers whose answer a subscription needs to be ready."""
        return ()

    def relays_for(self, node: str) -> Iterable[PeerId]:
        """The peers to ask first for a way to a node whose link broke."""
        return self.links()

    def fingerprint(self) -> object:
        """A value that changes whenever the state does."""
        return self.describe()

    def state_bytes(self) -> int:
        """Bytes of the filters that it keeps for others, in their wire form."""
        return 0

    # --- what it is told -----------------------------------------------------------------------

    def peer_offers(self, peer: PeerId, features: tuple[str, ...]) -> None:
        """What a node offers to which a link is set up from outside, without PeerConnected."""
        return

    def share_work(self, first: Overlay) -> None:
        """Look up what a peer of the same simulation has worked out, in place of doing it again."""
        return
