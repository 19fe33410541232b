"""`Copies`: what a place keeps is kept by others as well: by heirs, should its holder crash, and
by replicas and deputies, which answer for it (`replicas`, `deputies`).

Of crashes the paper says nothing (§4.3). Whoever holds a place tells its first heirs (`heirs`) what
is kept there, and who is next to it, and a subscription is confirmed when they have it; so it is
with replicas. Until the
place is taken over, an heir stands in for its holder (`journeys`). An heir that claims it has its
subscriptions at once. If another one claims it, who has a copy hands it on. So nothing that was
confirmed is lost, as long as of the holder and its heirs one stays; and should all go, the nodes
that the subscriptions live on bring them back (`registrations`).

Whoever keeps copies of `COPIES_MAX` places that are held still refuses another one, and says so: a
later heir keeps it instead, and nothing is confirmed because of a copy that there is not.
"""

from __future__ import annotations

from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.reach.attributes import AttributeMap
from peersub.overlays.reach.holdings import ENTRIES_PER_MESSAGE, Copy, Holdings
from peersub.overlays.reach.identifiers import Place, differing_bit
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

COPIES_MAX = 256
"""Places of others that a node keeps copies of.

All are neighbours: a place has about as many as two for each of its bits. Of those whose holders
are gone, or hold something else by now, the oldest make room.
"""

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
        self._refused: dict[tuple[Place, PeerId], None] = {}
        """Own places that neighbours had no room for copies of, as long as they are neighbours."""

    # --- what others have of own places --------------------------------------------------------

    def review(self) -> None:
        """Who is new among the keepers gets all."""
        seats = self._holdings.seats
        for place, peer in list(self._refused):
            if place not in seats or peer not in seats[place].near.values():
                del self._refused[place, peer]
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
            if peer is not None and self._is_keeper(seat, peer):
                found[peer] = None
        keepers = dict.fromkeys(list(found)[: self._rule.heirs])
        replica_bits = self._rule.replica_bits(seat.place)
        for place, peer in seat.near.items():
            if not self._is_keeper(seat, peer):
                continue
            if peer in seat.deputies:
                keepers[peer] = None
            bit = differing_bit(seat.place, place)
            if bit is not None and replica_bits >> bit & 1:
                keepers[peer] = None
        return list(keepers)

    def _is_keeper(self, seat: Seat, peer: PeerId) -> bool:
        """Whether a neighbour may keep copies: it stays, and had room when it was last asked."""
        return self._holdings.takes(peer) and (seat.place, peer) not in self._refused

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
            known = None
            for key in [each for each in copies if each[0] == peer]:
                if key[1].overlaps(message.place):
                    del copies[key]
            if len(copies) >= COPIES_MAX and not self._make_room():
                self._post.send(peer.node, CopyDropped(message.place))
                return
            seat = Seat(message.place, message.claim)
            known = copies[peer, message.place] = Copy(peer, seat, message.begins, False)
        for entry in message.entries:
            known.seat.store(entry, self._bits, now_ms)
        known.is_whole = known.is_begun and not message.follows
        self._post.send(peer.node, CopyHeard(message.place, message.number))

    def _make_room(self) -> bool:
        """Drop the oldest copy of a place that its owner does not hold, if there is one."""
        holdings = self._holdings
        for (owner, place), copy in holdings.copies.items():
            if holdings.directory.claim(owner, place) != copy.seat.claim:
                del holdings.copies[owner, place]
                return True
        return False

    def on_near(self, peer: PeerId, message: NearTold) -> None:
        """The holder of a place says who is next to it."""
        known = self._holdings.copies.get((peer, message.place))
        if known is not None:
            known.seat.near = dict(message.near)

    def on_dropped(self, peer: PeerId, message: CopyDropped) -> None:
        """Others are heirs now; or a keeper of an own place has no room."""
        self._holdings.copies.pop((peer, message.place), None)
        seat = self._holdings.seats.get(message.place)
        if seat is not None and seat.copied.pop(peer, None) is not None:
            self._refused[message.place, peer] = None
            seat.former[peer] = None  # What was on its way there meanwhile is not kept up.
            seat.deputies.pop(peer, None)
            self.review()

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
            if not copy.is_begun and self._is_dismissed(owner, place):
                del holdings.copies[owner, place]
                continue
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

    def _is_dismissed(self, owner: PeerId, place: Place) -> bool:
        """Whether the holder of a place, linked anew, has no use for the copy from before.

        It forgot who had copies when the link broke; and if it had just said that this one is to be
        dropped, that may be lost. Those that are to have one are told all again.
        """
        said = self._holdings.directory.told.get(owner)
        return (
            said is not None
            and any(fact.place == place for fact in said.seats)
            and not any(self._rule.has_copy(own, place) for own in self._holdings.seats)
        )
