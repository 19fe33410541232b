"""Mirrors: a durable subscription is looked after by other nodes, all the time.

`MirrorPeer` lives beside the overlay of a node, in a passive slot (`host_mirrors`). What an
acknowledged promise is worth while the home of a durable subscription is down: *mirrors* have a
subscription with the same filter, under a name of their own, and store what they get before they
confirm. They keep each event until the consumer, at the home, has taken it. *Witnesses* have the
subscription, too, and store nothing as long as they hear that enough others do (`mirror_copies`).

    home                                     mirror, witness
     │ MirrorRecruit(name, filter)             │   stores that, and subscribes in the overlay
     │──────────────────────────────────────►  │
     │                          MirrorReady    │   the home's subscription is ready now
     │  ◄──────────────────────────────────────│
     │ what the consumer has not taken: a walk │   (`mirror_walks`)
     │  ◄────────────────────────────────────► │
     │ MirrorKept, MirrorSafe                  │   an event is on enough disks: all confirm it
     │  ◄────────────────────────────────────► │
     │ MirrorReleased(event ids)               │   the consumer took them: forgotten
     │──────────────────────────────────────►  │
     ✕ the home dies                           │   one of them stands in for it, and dials
     │ MirrorOffer(name, filter), a walk       │   the home, or an empty node in its place, is back
     │  ◄──────────────────────────────────────│

A mirror goes on comparing what it retains with what the home has. So what only the mirror got
(the home was down, or not yet subscribed again, or lost an event on the way) reaches the home; what
the home has is not sent; and what the mirror was not told to forget, it learns. Nothing is doubled:
the home's log has each event once for each subscription, in whatever order and however often it
comes.

`mirror_home` chooses mirrors and witnesses, `mirror_duties` is the other side, `mirror_tasks` is
what the driver does: disk, and consumers. Two nodes may be each other's mirrors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from peersub.overlays.core.causes import (
    Cause,
    Leave,
    MirrorNews,
    PeerConnected,
    PeerHeard,
    PeerInDoubt,
    PeerLost,
    PeerResumed,
    Received,
    Start,
    Timer,
    TimerFired,
)
from peersub.overlays.core.effects import Connect, Drop, Effect, MirrorWork, Notice, SetTimer
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.mirror_copies import Copies, Group
from peersub.overlays.core.mirror_duties import Mirrored, MirrorSide
from peersub.overlays.core.mirror_facts import (
    DroppedRead,
    DurableEnded,
    DurableKept,
    DurableServed,
    DurableTaken,
    EventsRetained,
    Held,
    HeldBatch,
    HeldCopy,
    HeldRead,
    HoldsChecked,
    LookedAfter,
    MirrorFact,
    OverlayDelivered,
    OverlayServes,
    SecureAsked,
    StoreMarked,
)
from peersub.overlays.core.mirror_home import HomeSide
from peersub.overlays.core.mirror_links import MirrorLinks
from peersub.overlays.core.mirror_messages import (
    MirrorCopy,
    MirrorEnded,
    MirrorHolds,
    MirrorKeep,
    MirrorKeepBatch,
    MirrorKept,
    MirrorMisses,
    MirrorOffer,
    MirrorReady,
    MirrorRecruit,
    MirrorReleased,
    MirrorRowsKept,
    MirrorRowsSafe,
    MirrorSafe,
    MirrorSuspended,
    MirrorWanted,
    MirrorWitness,
)
from peersub.overlays.core.mirror_names import is_mirrors
from peersub.overlays.core.mirror_rows import kept_rows
from peersub.overlays.core.mirror_settings import MirrorSettings
from peersub.overlays.core.mirror_tasks import CheckHeld
from peersub.overlays.core.mirror_walks import Walks
from peersub.overlays.core.node import Node
from peersub.overlays.core.outbox import Outbox
from peersub.overlays.core.protocol import Overlay
from peersub.overlays.core.store_marks import Life
from peersub.overlays.core.versions import (
    BATCH_COPIES_FEATURE,
    COPIES_FEATURE,
    MEMORY_FEATURE,
    MIRRORS_FEATURE,
)

__all__ = ["MIRROR_SLOT", "MirrorPeer", "MirrorSettings", "Mirrored", "host_mirrors"]

MIRROR_SLOT: Final = 65_534
"""Where it lives on every node: beside the slot of rumours."""
TICK: Final = Timer("mirrors/tick")
HURRY: Final = Timer("mirrors/hurry")
"""Set when a node is in doubt, or gone: who else is to hold is seen to before the next tick."""
FLUSH: Final = Timer("mirrors/flush")
"""What is said about copies in one turn is said together."""
OTHER_COPIES_MAX: Final = 64
"""Nodes with another number of copies that people are told of."""
_COPIES_OFFER: Final = f"{COPIES_FEATURE}="
COPIES_MAX: Final = 1_024
"""Events that a partner sends before it asks whether they are stored."""

_UNREADABLE: Final = "a copy whose attributes cannot be read"
_ABOUT_COPIES: Final = (
    MirrorKept,
    MirrorSafe,
    MirrorKeep,
    MirrorRowsKept,
    MirrorRowsSafe,
    MirrorKeepBatch,
)


class MirrorPeer(Overlay):
    """The part of a node that mirrors, and is mirrored.

    Args:
        me: the peer in MIRROR_SLOT of the node.
        epoch: names the log of the node; another one means that the log was lost.
        lives: of the node, as its disk has them, the present one last.
        known: what the node looked after before it started again.
        in_memory: whether the node has no disk.
    """

    name = "mirrors"

    def __init__(
        self,
        me: PeerId,
        epoch: str,
        settings: MirrorSettings | None = None,
        known: Iterable[Mirrored] = (),
        lives: Sequence[Life] = (),
        *,
        in_memory: bool = False,
    ) -> None:
        assert me.slot == MIRROR_SLOT, "mirrors have a slot of their own"
        self.me = me
        self._settings = settings or MirrorSettings()
        self._outbox = Outbox()
        self._links = MirrorLinks(me.node, in_memory=in_memory)
        self._is_leaving = False
        self._is_ticking = False
        self._is_flushing = False
        self._other_copies: dict[str, str] = {}
        """Nodes that want events on another number of disks."""
        self._taken: dict[str, list[MirrorCopy]] = {}
        """Events that were missing here, until whoever sent them asks whether they arrived."""
        emit = self._outbox.emit
        chosen = self._settings
        self._walks = Walks(self._send, emit, self._on_found, chosen.answer_ms, chosen.recheck_ms)
        lives = lives or (Life(me.incarnation, 0),)
        self.home = HomeSide(
            me.node, epoch, lives, chosen, self._walks, self._links, self._send, emit
        )
        self.duties = MirrorSide(me.node, chosen, self._walks, self._links, self._send, emit, known)
        forget = self.duties.forget_member
        self.copies = Copies(me.node, chosen, self._group_of, forget, self._send, emit, self._links)
        self.home.copies = self.duties.copies = self.copies

    def handle(self, cause: Cause, now_ms: int) -> list[Effect]:
        """Take the cause in, and say what is to be done, in this order."""
        match cause:
            case PeerConnected(peer, _, features):
                node = peer.node
                there = peer._replace(slot=MIRROR_SLOT)
                if node not in self._links:
                    self.copies.linked_anew(node)
                self._links.add(there, features)
                self._compare_copies(node, features)
                self.home.connected(node, now_ms)
                self.duties.connected(node, now_ms)
                self.copies.regroup()
            case PeerLost(peer):
                self._links.remove(peer.node)
                self._walks.end(peer.node)
                self._taken.pop(peer.node, None)
                self.home.lost(peer.node, now_ms)
                self._on_doubt(peer.node, now_ms)
            case PeerInDoubt(peer):
                self._links.doubt(peer.node, in_doubt=True)
                self.home.doubted(peer.node, now_ms)
                self._on_doubt(peer.node, now_ms)
            case PeerHeard(peer) | PeerResumed(peer):
                self._links.doubt(peer.node, in_doubt=False)
                self.home.heard(peer.node)
                self.duties.heard(peer.node)
                self.copies.regroup()
            case Received(peer, messages):
                for message in messages:
                    if peer.node in self._links:
                        self._on_message(peer, message, now_ms)
            case MirrorNews(fact):
                self._on_fact(fact, now_ms)
            case TimerFired(timer) if timer == TICK:
                self._is_ticking = False
                self.home.on_tick(now_ms)
                self.duties.on_tick(now_ms)
                self._walks.on_tick(now_ms)
                self.copies.on_tick(now_ms)
            case TimerFired(timer) if timer == HURRY:
                self.home.on_tick(now_ms)
                self.duties.stand_in(now_ms)
            case TimerFired(timer) if timer == FLUSH:
                self._is_flushing = False
                self.copies.flush()
            case Start():
                self.duties.begin()
            case Leave():
                self._is_leaving = True
            case _:
                pass  # What else happens on a node is the overlay's affair.
        if self.copies.has_news and not self._is_flushing:
            self._is_flushing = True
            self._outbox.emit(SetTimer(FLUSH, 0))
        if not (self._is_ticking or (self.home.is_idle and self.duties.is_idle)):
            self._is_ticking = True
            self._outbox.emit(SetTimer(TICK, self._settings.tick_ms))
        effects = self._outbox.take()
        if self._is_leaving:
            return [effect for effect in effects if not _is_plan(effect)]
        return effects

    @property
    def takes_part(self) -> bool:
        """Always: it has no place of its own in the network."""
        return True

    def links(self) -> Iterable[PeerId]:
        """The nodes that could be mirrors and are linked, sorted by name; none of them is kept."""
        return [self._links.peers[node] for node in sorted(self._links.peers)]

    def peer_offers(self, peer: PeerId, features: tuple[str, ...]) -> None:
        """A link is up from the start, without HELLO."""
        if MIRRORS_FEATURE in features:
            there = peer._replace(slot=MIRROR_SLOT)
            self._links.add(there, features)

    def describe(self) -> Mapping[str, Any]:
        """Who looks after whom, as plain values."""
        return {
            "copies": self._settings.copies,
            "copies_elsewhere": dict(sorted(self._other_copies.items())),
            "durable": len(self.home.names),
            "homes": self.duties.describe(),
            "in_memory": not self._links.has_disk_here,
            "mirror": self.home.mirror,
            "mirrored": self.home.mirrored,
            "unsafe": len(self.copies),
            "watched": self.duties.watched(),
            "witnesses": self.home.witnesses,
        }

    @property
    def copies_wanted(self) -> int:
        """On how many disks an event has to be."""
        return self._settings.copies

    def _compare_copies(self, node: str, features: tuple[str, ...]) -> None:
        """Say where another node of the network wants more disks, or fewer."""
        offers = [each for each in features if each.startswith(_COPIES_OFFER)]
        self._other_copies.pop(node, None)
        if offers and offers[0] != _copies_offer(self.copies_wanted):
            if len(self._other_copies) < OTHER_COPIES_MAX:
                self._other_copies[node] = offers[0].removeprefix(_COPIES_OFFER)
            text = "another node wants another number of copies: all should begin with one --copies"
            self._outbox.emit(Notice(text, node))

    # --- messages ------------------------------------------------------------------------------

    def _send(self, node: str, message: Message) -> None:
        peer = self._links.peers.get(node)
        if peer is not None:
            self._outbox.send(peer, message)

    def _on_doubt(self, node: str, now_ms: int) -> None:
        self.duties.lost(node, now_ms)
        self.copies.regroup()
        if not (self.home.is_idle and self.duties.is_idle):
            self._outbox.emit(SetTimer(HURRY, self._settings.lost_ms))

    def _group_of(self, home: str) -> Group | None:
        return self.home.group() if home == self.me.node else self.duties.group(home)

    def _on_message(self, peer: PeerId, message: Message, now_ms: int) -> None:
        node, home, duties = peer.node, self.home, self.duties
        if isinstance(message, _ABOUT_COPIES):
            holds = isinstance(message, MirrorKept | MirrorRowsKept)
            asks = isinstance(message, MirrorKeep | MirrorKeepBatch)
            duties.meet(message.home, node, holds=holds, asks=asks)
        match message:
            case MirrorKept() | MirrorRowsKept():
                if self._concerns(node, message.home):
                    self.copies.on_kept(node, message)
            case MirrorSafe() | MirrorRowsSafe():
                if self._concerns(node, message.home):
                    self.copies.on_safe(message)
            case MirrorRecruit():
                duties.on_recruit(node, message, now_ms)
            case MirrorWanted():
                duties.on_wanted(node, message, now_ms)
            case MirrorEnded(names):
                duties.on_ended(node, names, now_ms)
            case MirrorReleased(name, event_ids):
                duties.on_released(node, name, event_ids)
            case MirrorOffer(epoch, subscriptions):
                home.on_offer(node, epoch, subscriptions, now_ms, stores=True)
            case MirrorWitness(epoch, subscriptions):
                home.on_offer(node, epoch, subscriptions, now_ms, stores=False)
            case MirrorReady(names):
                home.on_ready(node, names, now_ms)
            case MirrorSuspended():
                home.on_suspended(message)
            case MirrorMisses():
                self._walks.on_misses(node, message, now_ms)
            case MirrorHolds():
                self._on_holds(node, message, now_ms)
            case MirrorCopy():
                self._on_copy(peer, message)
            case MirrorKeep(home_there, names, hops, publication):
                held = HeldCopy(publication, names, hops)
                self._on_keep(peer, home_there, held, publication.is_sound, now_ms)
            case MirrorKeepBatch(home_there, rows, hops, batch):
                many = HeldBatch(batch, tuple(kept_rows(rows).items()), hops)
                self._on_keep(peer, home_there, many, batch.is_sound, now_ms)
            case _:
                self._drop(f"{type(message).__name__} is no message about mirrors", peer)

    def _on_holds(self, node: str, holds: MirrorHolds, now_ms: int) -> None:
        copies = tuple(self._taken.pop(node, ()))
        if not self._concerns(node, holds.home):
            # Whoever asks about what is no more here has nothing to wait for.
            self._send(node, MirrorMisses(holds.home, holds.name, holds.number, ()))
        elif holds.held:
            for each in holds.held:
                self.copies.note(holds.home, node, each.event_id, each.names)
            self._outbox.emit(MirrorWork(CheckHeld(node, holds, copies)))
        elif holds.home == self.me.node:
            self.home.on_all_said(node, now_ms)

    def _on_copy(self, peer: PeerId, copy: MirrorCopy) -> None:
        if not copy.publication.is_sound:
            self._drop(_UNREADABLE, peer)
        elif self._concerns(peer.node, copy.home):
            taken = self._taken.setdefault(peer.node, [])
            if len(taken) < COPIES_MAX:
                taken.append(copy)

    def _on_keep(self, peer: PeerId, home: str, held: Held, is_sound: bool, now_ms: int) -> None:
        if not is_sound:
            self._drop(_UNREADABLE, peer)
        elif self._concerns(peer.node, home):
            mine = home == self.me.node
            known = self.home.names if mine else self.duties.names(home)
            names = tuple(filter(frozenset(known).__contains__, held.names))
            self.copies.on_keep(peer.node, home, held, names, now_ms)

    def _on_found(self, partner: str, home: str, event: HeldCopy) -> None:
        """It turned out in a walk that the other side has an event on its disk."""
        self.copies.note(home, partner, event.publication.name, event.names)

    def _concerns(self, node: str, home: str) -> bool:
        """Whether a node may speak of this home: it is here, or looked after here and there."""
        return home == self.me.node or self.duties.belongs(home, node)

    def _drop(self, reason: str, peer: PeerId) -> None:
        self._outbox.emit(Drop(reason, None, peer))

    # --- what happens on this node -------------------------------------------------------------

    def _on_fact(self, fact: MirrorFact, now_ms: int) -> None:
        match fact:
            case SecureAsked(token, events):
                self._on_secure(token, events, now_ms)
            case EventsRetained():
                self.copies.retained(fact)
            case DurableKept():
                self.home.kept(fact, now_ms)
            case StoreMarked():
                self.home.marked(fact)
            case DurableEnded(name):
                self.home.ended(name)
            case DurableServed(name):
                self.home.served(name, now_ms)
            case DurableTaken(name, event_ids):
                self.home.taken(name, event_ids)
            case LookedAfter(home, names):
                self.duties.looked_after(home, names)
            case DroppedRead(home, names, since_ms):
                if names:
                    self._send(home, MirrorSuspended(names, since_ms))
            case OverlayServes(subscription):
                self.duties.served(subscription)
            case OverlayDelivered(event):
                self.duties.delivered(event)
            case HeldRead():
                self._walks.on_read(fact, now_ms)
            case HoldsChecked(partner, home, name, number, missing, taken):
                for subscription, event_ids in taken:
                    self.home.release(partner, subscription, event_ids)
                self._send(partner, MirrorMisses(home, name, number, missing))

    def _on_secure(self, token: int, events: Iterable[Held], now_ms: int) -> None:
        """The overlay waits for copies: of which homes are the subscriptions that want them?"""
        wanted: list[tuple[str, Held]] = []
        for event in events:
            names_of: dict[str, dict[str, str]] = {}
            for name in event.names:
                if is_mirrors(name):
                    place = self.duties.place(name)
                    if place is not None:
                        names_of.setdefault(place[0], {})[name] = place[1]
                elif self.home.has(name):
                    names_of.setdefault(self.me.node, {})[name] = name
            wanted += [(home, event.renamed(names)) for home, names in names_of.items()]
        self.copies.secure(token, wanted, now_ms)


def _copies_offer(copies: int) -> str:
    return f"{_COPIES_OFFER}{copies}"


def _is_plan(effect: Effect) -> bool:
    """Whether it is about a time to come, which who takes leave does not have."""
    if isinstance(effect, SetTimer):
        return effect.timer != FLUSH
    return isinstance(effect, Connect)


def host_mirrors(
    node: Node,
    epoch: str,
    settings: MirrorSettings | None = None,
    known: Iterable[Mirrored] = (),
    lives: Sequence[Life] = (),
    *,
    in_memory: bool = False,
) -> MirrorPeer:
    """Let a node that has no links yet take part. `MirrorNews` goes to it in MIRROR_SLOT."""
    me = node.me._replace(slot=MIRROR_SLOT)
    peer = MirrorPeer(me, epoch, settings, known, lives, in_memory=in_memory)
    features = [COPIES_FEATURE, BATCH_COPIES_FEATURE, _copies_offer(peer.copies_wanted)]
    features += [MEMORY_FEATURE] if in_memory else []
    node.host(peer, passive=True, feature=MIRRORS_FEATURE, offers=tuple(features), watches=True)
    return peer
