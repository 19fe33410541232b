"""`Copies`: what a place keeps is kept by others as well: by heirs, should its holder crash, and
by replicas and deputies, which answer for it (`replicas`, `deputies`).

Of crashes the paper says nothing (§4.3). Whoever holds a place tells its first heirs (`heirs`) what
is kept there, and who is next to it, and a subscription is confirmed when they have it; so it is
with replicas. Until the
place is taken over, an heir stands in for its holder (`journeys`). An heir that claims it has its
subscriptions at once. If another one claims it, who has a copy hands it on. So nothing that was
confirmed is lost, as long as of the holder and its heirs one stays; and should all go, the nodes
that the subscriptions live on bring them back (`registrations`).
"""

from __future__ import annotations

from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.reach.attributes import AttributeMap
from peersub.overlays.reach.holdings import ENTRIES_PER_MESSAGE, Copy, Holdings
from peersub.overlays.reach.identifiers import differing_bit
from peersub.overlays.reach.messages import (
    CopyDropped,
    CopyEnded,
    CopyHeard,
    CopyTold,
    Entry,
    NearTold,
    UnstoreAsked,
)
from peersub.overlays.reach.post import Post
from peersub.overlays.reach.seats import Copied, Seat
from peersub.overlays.reach.structure import heirs

__all__ = ["COPIES_MAX", "Copies"]

COPIES_MAX = 64
"""Places of others that a node keeps copies of; the oldest are dropped."""

FORMER_HEIRS_MAX = 32
"""Former heirs that a place remembers, to tell them so when they are linked again."""


class Copies:
    """The copies of own places at others, and of theirs here."""

    def __init__(self, holdings: Holdings, post: Post, bits: AttributeMap) -> None:
        self._holdings = holdings
        self._post = post
        self._bits = bits
        self._rule = holdings.settings.copy_rule
        self._number = 0

    # --- what others have of own places --------------------------------------------------------

    def review(self) -> None:
        """Who is new among the keepers gets all."""
        for seat in self._holdings.seats.values():
            wanted = self.keepers_of(seat)
            for peer in [each for each in seat.copied if each not in wanted]:
                del seat.copied[peer]
                seat.former[peer] = None
            for peer in [each for each in seat.former if self._is_linked(each)]:
                del seat.former[peer]
                if peer not in wanted:
                    self._post.send(peer.node, CopyDropped(seat.place))
            while len(seat.former) > FORMER_HEIRS_MAX:
                del seat.former[next(iter(seat.former))]
            for peer in wanted:
                if peer not in seat.copied:
                    self._copy_all(seat, peer)
                if seat.copied[peer].near != seat.near:
                    seat.copied[peer].near = seat.near
                    self._post.send(
                        peer.node, NearTold(seat.place, tuple(sorted(seat.near.items())))
                    )

    def _is_linked(self, peer: PeerId) -> bool:
        return self._post.linked.get(peer.node) == peer

    def keepers_of(self, seat: Seat) -> list[PeerId]:
        """Who is to have copies: the first heirs that stay, replicas, deputies; not this node."""
        found: dict[PeerId, None] = {}
        for identifier in heirs(seat.place):
            peer = seat.holder_of(identifier)
            if peer is not None and self._holdings.takes(peer):
                found[peer] = None
        keepers = dict.fromkeys(list(found)[: self._rule.heirs])
        replica_bits = self._rule.replica_bits(seat.place)
        for place, peer in seat.near.items():
            if peer in seat.deputies and self._holdings.takes(peer):
                keepers[peer] = None
            bit = differing_bit(seat.place, place)
            if bit is not None and replica_bits >> bit & 1 and self._holdings.takes(peer):
                keepers[peer] = None
        return list(keepers)

    def _copy_all(self, seat: Seat, peer: PeerId) -> None:
        entries = list(seat.entries())
        chunks = [
            tuple(entries[start : start + ENTRIES_PER_MESSAGE])
            for start in range(0, len(entries), ENTRIES_PER_MESSAGE)
        ]
        for place, chunk in enumerate(chunks or [()]):
            self._number += 1
            follows = place + 1 < len(chunks)
            told = CopyTold(seat.place, seat.claim, not place, chunk, self._number, follows)
            self._post.send(peer.node, told)
        seat.copied[peer] = Copied(self._number, self._number)

    def stored(self, seat: Seat, entry: Entry) -> None:
        """Something new is kept at an own place."""
        self._number += 1
        told = CopyTold(seat.place, seat.claim, False, (entry,), self._number)
        self._tell(seat, told)

    def ended(self, seat: Seat, message: UnstoreAsked) -> None:
        """Something is kept no more."""
        self._number += 1
        self._tell(seat, CopyEnded(seat.place, message, self._number))

    def _tell(self, seat: Seat, message: Message) -> None:
        for peer, copied in seat.copied.items():
            copied.sent = self._number
            self._post.send(peer.node, message)

    def on_heard(self, peer: PeerId, message: CopyHeard) -> None:
        """An heir has what it was told."""
        seat = self._holdings.seats.get(message.place)
        copied = None if seat is None else seat.copied.get(peer)
        if copied is not None:
            copied.heard = max(copied.heard, message.number)

    # --- what is here of the places of others --------------------------------------------------

    def on_told(self, peer: PeerId, message: CopyTold, now_ms: int) -> None:
        """The holder of a place says what it keeps."""
        copies = self._holdings.copies
        known = copies.get((peer, message.place))
        if message.begins or known is None:
            for key in [each for each in copies if each[0] == peer]:
                if key[1].overlaps(message.place):
                    del copies[key]
            seat = Seat(message.place, message.claim)
            known = copies[peer, message.place] = Copy(peer, seat, message.begins, False)
            while len(copies) > COPIES_MAX:
                del copies[next(iter(copies))]
        for entry in message.entries:
            known.seat.store(entry, self._bits, now_ms)
        known.is_whole = known.is_begun and not message.follows
        self._post.send(peer.node, CopyHeard(message.place, message.number))

    def on_near(self, peer: PeerId, message: NearTold) -> None:
        """The holder of a place says who is next to it."""
        known = self._holdings.copies.get((peer, message.place))
        if known is not None:
            known.seat.near = dict(message.near)

    def on_dropped(self, peer: PeerId, message: CopyDropped) -> None:
        """Others are heirs now."""
        self._holdings.copies.pop((peer, message.place), None)

    def on_ended(self, peer: PeerId, message: CopyEnded) -> None:
        """The holder of a place keeps something no more."""
        known = self._holdings.copies.get((peer, message.place))
        if known is not None:
            ended = message.ended
            known.seat.unstore(ended.identifier, ended.subscriber, ended.name, ended.number)
        self._post.send(peer.node, CopyHeard(message.place, message.number))

    def hand_on(self) -> None:
        """Who has claimed a place of which there is a copy here gets it, if its holder is gone."""
        holdings = self._holdings
        for (owner, place), copy in list(holdings.copies.items()):
            for peer, fact in holdings.directory.facts():
                newer = fact.claim > copy.seat.claim and peer != owner
                if not newer or not fact.place.overlaps(place):
                    continue
                if not self._is_linked(owner):
                    entries = [e for e in copy.seat.entries() if fact.place.hosts(e.identifier)]
                    holdings.pass_on(entries, peer.node)
                if fact.place.contains(place):
                    del holdings.copies[owner, place]
                    break
