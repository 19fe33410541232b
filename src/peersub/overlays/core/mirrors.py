"""Mirrors: a durable subscription is looked after by one other node, all the time.

`MirrorPeer` lives beside the overlay of a node, in a passive slot (`host_mirrors`). What an
acknowledged promise is worth while the home of a durable subscription is down: the mirror has a
subscription with the same filter, under a name of its own, and stores what it gets before it
confirms. It keeps each event until the consumer, at the home, has taken it.

    home                                     mirror
     │ MirrorWanted(name, filter)              │   stores it, and subscribes in the overlay
     │──────────────────────────────────────►  │
     │                          MirrorReady    │   the home's subscription is ready now
     │  ◄──────────────────────────────────────│
     │ what the consumer has not taken: a walk │   (`mirror_walks`)
     │  ◄────────────────────────────────────► │
     │ MirrorReleased(event ids)               │   the consumer took them: forgotten
     │──────────────────────────────────────►  │
     ✕ the home dies                           │   the mirror retains, and dials
     │ MirrorOffer(name, filter), a walk       │   the home, or an empty node in its place, is back
     │  ◄──────────────────────────────────────│

The mirror goes on comparing what it retains with what the home has. So what only the mirror got
(the home was down, or not yet subscribed again, or lost an event on the way) reaches the home; what
the home has is not sent; and what the mirror was not told to forget, it learns. Nothing is doubled:
the home's log has each event once for each subscription, in whatever order and however often it
comes.

`mirror_home` chooses the mirror, `mirror_duties` is the other side, `keeper` is the driver's part:
disk and subscriptions. Two nodes may be each other's mirrors.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView, Mapping
from typing import Any, Final

from peersub.overlays.core.causes import (
    Cause,
    Leave,
    MirrorNews,
    PeerConnected,
    PeerLost,
    Received,
    Timer,
    TimerFired,
)
from peersub.overlays.core.effects import Connect, Drop, Effect, SetTimer
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.mirror_duties import Mirrored, MirrorSide
from peersub.overlays.core.mirror_facts import (
    DurableEnded,
    DurableKept,
    DurableServed,
    DurableTaken,
    HeldRead,
    HoldsChecked,
    MirrorFact,
    MirrorServed,
)
from peersub.overlays.core.mirror_home import HomeSide
from peersub.overlays.core.mirror_keeper import MirrorKeeper
from peersub.overlays.core.mirror_messages import (
    MirrorCopy,
    MirrorEnded,
    MirrorHolds,
    MirrorMisses,
    MirrorOffer,
    MirrorReady,
    MirrorReleased,
    MirrorWanted,
)
from peersub.overlays.core.mirror_settings import MirrorSettings
from peersub.overlays.core.mirror_walks import Walks
from peersub.overlays.core.node import Node
from peersub.overlays.core.outbox import Outbox
from peersub.overlays.core.versions import MIRRORS_FEATURE

__all__ = ["MIRROR_SLOT", "MirrorPeer", "MirrorSettings", "Mirrored", "host_mirrors"]

MIRROR_SLOT: Final = 65_534
"""Where it lives on every node: beside the slot of rumours."""
TICK: Final = Timer("mirrors/tick")


class MirrorPeer:
    """The part of a node that mirrors, and is mirrored.

    Args:
        me: the peer in MIRROR_SLOT of the node.
        epoch: names the log of the node; another one means that the log was lost.
        keeper: the disk, and the subscriptions of the overlay.
        known: what the node looked after before it started again.
    """

    name = "mirrors"

    def __init__(
        self,
        me: PeerId,
        epoch: str,
        keeper: MirrorKeeper,
        settings: MirrorSettings | None = None,
        known: Iterable[Mirrored] = (),
    ) -> None:
        assert me.slot == MIRROR_SLOT, "mirrors have a slot of their own"
        self.me = me
        self._settings = settings or MirrorSettings()
        self._keeper = keeper
        self._outbox = Outbox()
        self._linked: dict[str, PeerId] = {}
        self._is_leaving = False
        self._is_ticking = False
        emit = self._outbox.emit
        self._walks = Walks(
            keeper.read, self._send, emit, self._settings.answer_ms, self._settings.recheck_ms
        )
        self.home = HomeSide(
            me.node, epoch, self._settings, keeper, self._walks, self._nodes, self._send, emit
        )
        self.duties = MirrorSide(
            self._settings, keeper, self._walks, self._nodes, self._send, emit, known
        )

    def handle(self, cause: Cause, now_ms: int) -> list[Effect]:
        """Take the cause in, and say what is to be done, in this order."""
        match cause:
            case PeerConnected(peer):
                self._linked[peer.node] = peer._replace(slot=MIRROR_SLOT)
                self.home.connected(peer.node, now_ms)
                self.duties.connected(peer.node, now_ms)
            case PeerLost(peer):
                self._linked.pop(peer.node, None)
                self._walks.end(peer.node)
                self.home.lost(peer.node, now_ms)
                self.duties.lost(peer.node, now_ms)
            case Received(peer, messages):
                for message in messages:
                    if peer.node in self._linked:
                        self._on_message(peer, message, now_ms)
            case MirrorNews(fact):
                self._on_fact(fact, now_ms)
            case TimerFired(timer) if timer == TICK:
                self._is_ticking = False
                self.home.on_tick(now_ms)
                self.duties.on_tick(now_ms)
                self._walks.on_tick(now_ms)
            case Leave():
                self._is_leaving = True
            case _:
                pass  # What else happens on a node is the overlay's affair.
        if not (self._is_ticking or (self.home.is_idle and self.duties.is_idle)):
            self._is_ticking = True
            self._outbox.emit(SetTimer(TICK, self._settings.tick_ms))
        effects = self._outbox.take()
        if self._is_leaving:
            return [effect for effect in effects if not isinstance(effect, Connect | SetTimer)]
        return effects

    @property
    def takes_part(self) -> bool:
        """Always: it has no place of its own in the network."""
        return True

    def greeting(self) -> bytes:
        """Nothing: the greeting is the overlay's."""
        return b""

    def shared_settings(self) -> Mapping[str, str]:
        """None: the settings are the overlay's."""
        return {}

    def links(self) -> Iterable[PeerId]:
        """The nodes that could be mirrors and are linked, sorted by name; none of them is kept."""
        return [self._linked[node] for node in sorted(self._linked)]

    def describe(self) -> Mapping[str, Any]:
        """Who looks after whom, as plain values."""
        return {
            "durable": len(self.home.names),
            "homes": self.duties.describe(),
            "mirror": self.home.mirror,
            "mirrored": self.home.mirrored,
        }

    # --- messages ------------------------------------------------------------------------------

    def _nodes(self) -> KeysView[str]:
        return self._linked.keys()

    def _send(self, node: str, message: Message) -> None:
        peer = self._linked.get(node)
        if peer is not None:
            self._outbox.send(peer, message)

    def _on_message(self, peer: PeerId, message: Message, now_ms: int) -> None:
        node, home, duties = peer.node, self.home, self.duties
        match message:
            case MirrorWanted():
                duties.on_wanted(node, message, now_ms)
            case MirrorEnded(names):
                duties.on_ended(node, names)
            case MirrorReleased(name, event_ids):
                duties.on_released(node, name, event_ids)
            case MirrorOffer():
                home.on_offer(node, message, now_ms)
            case MirrorReady(names):
                home.on_ready(node, names, now_ms)
            case MirrorMisses():
                self._walks.on_misses(node, message, now_ms)
            case MirrorHolds():
                self._on_holds(node, message, now_ms)
            case MirrorCopy():
                self._on_copy(peer, message)
            case _:
                self._drop(f"{type(message).__name__} is no message about mirrors", peer)

    def _on_holds(self, node: str, holds: MirrorHolds, now_ms: int) -> None:
        if not self._concerns(node, holds.home):
            # Whoever asks about what is no more here has nothing to wait for.
            self._send(node, MirrorMisses(holds.home, holds.name, holds.number, ()))
        elif holds.held:
            self._keeper.check(node, holds)
        elif holds.home == self.me.node:
            self.home.on_all_said(node, now_ms)

    def _on_copy(self, peer: PeerId, copy: MirrorCopy) -> None:
        if not copy.publication.is_sound:
            self._drop("a copy whose attributes cannot be read", peer)
        elif self._concerns(peer.node, copy.home):
            self._keeper.take(peer.node, copy)

    def _concerns(self, node: str, home: str) -> bool:
        """Whether a node may speak of this home: it is here, or there and looked after here."""
        return home == self.me.node or (home == node and self.duties.looks_after(home))

    def _drop(self, reason: str, peer: PeerId) -> None:
        self._outbox.emit(Drop(reason, None, peer))

    # --- what happens on this node -------------------------------------------------------------

    def _on_fact(self, fact: MirrorFact, now_ms: int) -> None:
        match fact:
            case DurableKept():
                self.home.kept(fact, now_ms)
            case DurableEnded(name):
                self.home.ended(name)
            case DurableServed(name):
                self.home.served(name, now_ms)
            case DurableTaken(name, event_ids):
                self.home.taken(name, event_ids)
            case MirrorServed(home, name):
                self.duties.served(home, name)
            case HeldRead():
                self._walks.on_read(fact, now_ms)
            case HoldsChecked(partner, home, name, number, missing, taken):
                for subscription, event_ids in taken:
                    self.home.release(partner, subscription, event_ids)
                self._send(partner, MirrorMisses(home, name, number, missing))


def host_mirrors(
    node: Node,
    epoch: str,
    keeper: MirrorKeeper,
    settings: MirrorSettings | None = None,
    known: Iterable[Mirrored] = (),
) -> MirrorPeer:
    """Let a node that has no links yet take part. `MirrorNews` goes to it in MIRROR_SLOT."""
    peer = MirrorPeer(node.me._replace(slot=MIRROR_SLOT), epoch, keeper, settings, known)
    node.host(peer, passive=True, feature=MIRRORS_FEATURE)
    return peer
