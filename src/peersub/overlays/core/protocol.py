"""The interface of an overlay: one method, from a cause to effects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from peersub.overlays.core.causes import Cause
from peersub.overlays.core.effects import Effect
from peersub.overlays.core.identity import PeerId

__all__ = ["Overlay"]


class Overlay(Protocol):
    """A protocol peer. It holds state, and touches nothing but its state.

    The same causes in the same order with the same times give the same effects: no clock, no
    generator, no iteration over sets, no hash of a string.

    A peer may offer more, and who asks lives without it: `relays_for(node)`, the peers to ask first
    for a way to a node whose link broke; `is_joining`, whether it is still on its way into the
    network; `is_mending`, whether a part of it has lost its place there; `missing_nodes`, those
    that should be with it in the network and that it looks for; `waiting_on(subscription)`, the
    peers whose answer a subscription needs to be ready; `fingerprint()`, a value that changes
    whenever the description does; and for links that are set up from outside, which come without
    PeerConnected, `peer_offers(peer, features)`.
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
        ...

    def shared_settings(self) -> Mapping[str, str]:
        """The settings that all peers of a network must agree on."""
        ...

    def links(self) -> Iterable[PeerId]:
        """The peers that this one keeps a link to, sorted by what the overlay means by order."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """The state, for people, checkers and metrics: plain values, keys sorted."""
        ...
