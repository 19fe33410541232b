"""Rumours: small signed texts that reach every node over the links that are there.

`RumourPeer` lives beside the overlay of a node, in a passive slot (`spread_rumours`): it hears of
links to nodes that spread rumours, uses them, and keeps none open. It works on any connected
network, whatever the overlay.

* News goes to all neighbours but the one it came from, once: a rumour crosses each link at most
  twice, and reaches every node that the network connects.
* When a link comes up, both ends say in one digest what they know. If the digests differ, each
  tells the names of its rumours and gets those that it lacks: so what was told during a partition
  crosses it when it heals, and a node that was away learns what it missed.

It knows nothing of what rumours mean. `verify` judges each before it is believed, spread or
remembered, also one that was told on this node; `on_news` hears of each that is believed, once.

Invariants: what is known was verified; it never shrinks, and has at most RUMOURS_MAX entries. What
comes beyond that, or is refused, is counted and dropped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from peersub.overlays.core.causes import Cause, PeerConnected, PeerLost, Received, Tell
from peersub.overlays.core.effects import Drop, Effect
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.node import Node
from peersub.overlays.core.outbox import Outbox
from peersub.overlays.core.protocol import Overlay
from peersub.overlays.core.rumour_messages import Rumour, RumourNames, Rumours, RumourSet
from peersub.overlays.core.versions import RUMOURS_FEATURE

__all__ = [
    "KEY_CHARACTERS_MAX",
    "PAYLOAD_BYTES_MAX",
    "RUMOURS_MAX",
    "RUMOURS_PER_MESSAGE_MAX",
    "RUMOUR_SLOT",
    "RumourPeer",
    "spread_rumours",
]

RUMOUR_SLOT = 65_535
"""Where it lives on every node: the last slot, out of the way of overlays."""

RUMOURS_MAX = 16_384
"""Rumours that a node knows."""

PAYLOAD_BYTES_MAX = 1_024
KEY_CHARACTERS_MAX = 256
"""Of a kind, and of a key."""

RUMOURS_PER_MESSAGE_MAX = 256


class RumourPeer(Overlay):
    """The part of a node that spreads rumours.

    Args:
        me: the peer in RUMOUR_SLOT of the node.
        verify: whether a rumour is to be believed; it must give the same answer on every node.
        on_news: told of each rumour that is believed and was not known, before it goes on.
        known: what the node knew before; verified when it was learned.
    """

    name = "rumours"

    def __init__(
        self,
        me: PeerId,
        verify: Callable[[Rumour], bool],
        on_news: Callable[[Rumour], None],
        known: Iterable[Rumour] = (),
    ) -> None:
        assert me.slot == RUMOUR_SLOT, "rumours have a slot of their own"
        self.me = me
        self.refused = 0
        """Rumours that were not believed, or that there was no room for."""
        self._verify = verify
        self._on_news = on_news
        self._known = {rumour.name: rumour for rumour in known}
        assert len(self._known) <= RUMOURS_MAX, f"more than {RUMOURS_MAX:,} rumours"
        self._neighbours: dict[str, PeerId] = {}
        self._outbox = Outbox()

    def handle(self, cause: Cause, now_ms: int) -> list[Effect]:
        """Take the cause in, and say what is to be done, in this order."""
        match cause:
            case PeerConnected(peer):
                there = peer._replace(slot=RUMOUR_SLOT)
                self._neighbours[peer.node] = there
                self._outbox.send(there, RumourSet(self.digest))
            case PeerLost(peer):
                self._neighbours.pop(peer.node, None)
            case Received(peer, messages):
                for message in messages:
                    self._on_message(peer, message)
            case Tell(rumour):
                self._learn((rumour,), self.me)
            case _:
                pass  # What else happens on a node is the overlay's affair.
        return self._outbox.take()

    @property
    def takes_part(self) -> bool:
        """Always: it has no place of its own in the network."""
        return True

    def links(self) -> Iterable[PeerId]:
        """The neighbours that are there, sorted by name; none of them is kept."""
        return [self._neighbours[node] for node in sorted(self._neighbours)]

    def describe(self) -> Mapping[str, Any]:
        """How much is known, and how much was refused."""
        return {"known": len(self._known), "refused": self.refused}

    @property
    def known(self) -> tuple[Rumour, ...]:
        """All rumours that are believed, in the order in which they were learned."""
        return tuple(self._known.values())

    @property
    def digest(self) -> bytes:
        """16 bytes that stand for all names that are known, in whatever order."""
        return hashlib.blake2b(b"".join(sorted(self._known)), digest_size=16).digest()

    # --- messages ------------------------------------------------------------------------------

    def _on_message(self, peer: PeerId, message: Message) -> None:
        if peer.node not in self._neighbours:
            return  # The link is gone, and with it whatever could be answered.
        match message:
            case RumourSet(digest):
                if digest != self.digest:
                    self._outbox.send(peer, RumourNames(tuple(self._known)))
            case RumourNames(names):
                held = frozenset(names)
                missing = [rumour for name, rumour in self._known.items() if name not in held]
                for part in _parts(missing):
                    self._outbox.send(peer, Rumours(part))
            case Rumours(rumours):
                self._learn(rumours, peer)
            case _:
                self._drop(f"{type(message).__name__} is no message about rumours", peer)

    def _learn(self, rumours: tuple[Rumour, ...], source: PeerId) -> None:
        """Believe what is new and true, and tell the others."""
        news = [rumour for rumour in rumours if self._is_believed(rumour, source)]
        for part in _parts(news):
            for node, neighbour in self._neighbours.items():
                if node != source.node:
                    self._outbox.send(neighbour, Rumours(part))

    def _is_believed(self, rumour: Rumour, source: PeerId) -> bool:
        if max(len(rumour.kind), len(rumour.key)) > KEY_CHARACTERS_MAX:
            self._refuse("a rumour with too long a name", source)
        elif rumour.name in self._known:
            return False
        elif len(rumour.payload) > PAYLOAD_BYTES_MAX:
            self._refuse(f"a rumour of {len(rumour.payload):,} bytes", source)
        elif len(self._known) >= RUMOURS_MAX:
            self._refuse(f"{RUMOURS_MAX:,} rumours are known: there is no room for more", source)
        elif not self._verify(rumour):
            self._refuse(f"a rumour about {rumour.key!r} that nothing proves", source)
        else:
            self._known[rumour.name] = rumour
            self._on_news(rumour)
            return True
        return False

    def _refuse(self, reason: str, source: PeerId) -> None:
        self.refused += 1
        self._drop(reason, source)

    def _drop(self, reason: str, source: PeerId) -> None:
        self._outbox.emit(Drop(reason, None, source))


def spread_rumours(
    node: Node,
    verify: Callable[[Rumour], bool],
    on_news: Callable[[Rumour], None],
    known: Iterable[Rumour] = (),
) -> RumourPeer:
    """Let a node that has no links yet take part. `Tell` goes to it in RUMOUR_SLOT."""
    peer = RumourPeer(node.me._replace(slot=RUMOUR_SLOT), verify, on_news, known)
    node.host(peer, passive=True, feature=RUMOURS_FEATURE)
    return peer


def _parts(rumours: list[Rumour]) -> Iterator[tuple[Rumour, ...]]:
    for start in range(0, len(rumours), RUMOURS_PER_MESSAGE_MAX):
        yield tuple(rumours[start : start + RUMOURS_PER_MESSAGE_MAX])
