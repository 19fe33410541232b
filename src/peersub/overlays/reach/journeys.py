"""`Journeys`: events on their way to their rendezvous, and down the subsets.

An event goes to the host of its bits, and from there down the subsets (`identifiers`); hosts ask
the filters, and send it straight to the nodes that subscriptions live on (`post`).

Of crashes the paper says nothing (§4.3). From the crash of a node until an heir takes its place, an
event would miss what is kept there, and all places that it comes to through there. So

- a place whose holder is gone is *adopted*: who would send an event there sends it to an heir, the
  first that can be reached (`Detour`). The heir has a copy of what is kept at the place, and knows
  its neighbours (`copies`). It does what the holder would have done. A rendezvous that is gone is
  adopted likewise;
- where all ways to a host lead over nodes that are gone, an event goes a step sideways;
- what was sent over a link shortly before it broke (`resend_ms`) may be lost, and is sent again by
  another way. Who gets an event twice takes it once. No clock is shared: the event says how late
  it is (`age_ms`), and a subscription that has begun since does not get it. What was on its way
  to the node of a subscription is not sent again: links between nodes that live are mended below
  the overlay, and a node that is gone has lost its subscriptions, or begins them anew.

What finds nobody is dropped, and that is reported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol, TypeAlias

from peersub.overlays.core.draws import draw_below
from peersub.overlays.core.effects import Drop
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.outbox import Outbox
from peersub.overlays.core.publication import Publication
from peersub.overlays.reach.answering import Answering
from peersub.overlays.reach.attributes import AttributeMap
from peersub.overlays.reach.deputies import Deputies
from peersub.overlays.reach.directory import claim_key
from peersub.overlays.reach.holdings import HOPS_MAX, Copy, Holdings
from peersub.overlays.reach.identifiers import (
    Order,
    Place,
    distance,
    event_order,
    is_parent,
    is_visited,
)
from peersub.overlays.reach.interest import Interests
from peersub.overlays.reach.messages import Detour, Handed, Notified, Rendezvous, Spread
from peersub.overlays.reach.post import Post
from peersub.overlays.reach.seats import Seat
from peersub.overlays.reach.settings import ReachSettings
from peersub.overlays.reach.structure import heirs

__all__ = [
    "DETOUR_HOPS_MAX",
    "HEIRS_TRIED_MAX",
    "SENT_KEPT_MAX",
    "SENT_KEPT_OF_ALL_MAX",
    "Journeys",
]

SENT_KEPT_MAX = 64
"""Events that were sent to a node last, and that are sent again if it is lost."""
SENT_KEPT_OF_ALL_MAX = 4_096
"""Of all nodes together; those of nodes that nothing was sent to since are given up first."""
HEIRS_TRIED_MAX = 6
"""Heirs of a place that are tried for an event: more than keep copies."""
DETOUR_HOPS_MAX = 64
"""Links after which an event that cannot get by those who are gone is given up."""


Kept: TypeAlias = Rendezvous | Spread | Detour | Handed
"""What is sent again if it may be lost."""


class TakeHome(Protocol):
    """Hands an event to the subscriptions of this node, unless they are younger."""

    def __call__(self, publication: Publication, hops: int, age_ms: int = 0) -> None: ...


class Journeys:
    """The events that come by at a node."""

    def __init__(
        self,
        holdings: Holdings,
        interests: Interests,
        answering: Answering,
        deputies: Deputies,
        bits: AttributeMap,
        seed: int,
        post: Post,
        out: Outbox,
        take_home: TakeHome,
    ) -> None:
        self.now_ms = 0
        self._holdings = holdings
        self._interests = interests
        self._answering = answering
        self._deputies = deputies
        self._bits = bits
        self._me = holdings.me
        self._settings: ReachSettings = holdings.settings
        self._seed = seed
        self._post = post
        self._out = out
        self._take_home = take_home
        self._sent: dict[str, deque[tuple[int, Kept]]] = {}
        """By node, those that something was sent to least recently first."""
        self._sent_count = 0
        self._lost: list[Kept] = []

    def begin(self, publication: Publication) -> None:
        """An event is published here."""
        self._take_home(publication, 0)
        bits = self._bits.event_bits(publication.attributes)
        self._seek(Rendezvous(publication, bits, 0), None)

    # --- the way to a host ---------------------------------------------------------------------

    def next_on_the_way(self, target: int, about: str, sender: PeerId | None) -> str | None:
        """The node that is nearer to the host of an identifier; None if there is no way."""
        given = self._holdings.given_to(target)
        if given is not None:
            return given
        if not self._holdings.seats:
            return self._holdings.nearest_peer(target)
        seats = sorted(
            self._holdings.seats.values(),
            key=lambda seat: (distance(seat.place, target), seat.place),
        )
        first = draw_below(64, self._seed, "reach/way", about)
        for seat in seats:
            for peer in seat.ways(target, first):
                if peer not in (sender, self._me):
                    return peer.node
        return None

    def _sideways(self, about: str, sender: PeerId | None) -> str | None:
        """Some other neighbour, where those that are nearer to the target are gone."""
        found = {peer.node for seat in self._holdings.seats.values() for peer in seat.near.values()}
        around = sorted(found - {self._me.node, sender.node if sender else ""})
        if not around or not self._holdings.missing:
            return None
        return around[draw_below(len(around), self._seed, "reach/sideways", about)]

    def on_rendezvous(self, peer: PeerId, message: Rendezvous) -> None:
        """An event is on its way to the host of its bits."""
        self._deputies.count()
        self._seek(message, peer)

    def _seek(self, message: Rendezvous, sender: PeerId | None) -> None:
        publication, bits, hops = message.publication, message.bits, message.hops
        seat = self._holdings.seat_of(bits)
        if seat is not None:
            self._visit(seat, publication, bits, hops, message.age_ms)
            return
        node = self.next_on_the_way(bits, publication.id, sender)
        if node is None:
            gone = [place for place in self._gone() if place.hosts(bits)]
            if gone:
                self._detour(Detour(publication, bits, gone[0], 0, hops, message.age_ms))
                return
            if hops < DETOUR_HOPS_MAX:
                node = self._sideways(f"{publication.id}/{hops}", sender)
        if node is None or hops >= HOPS_MAX:
            self._out.emit(Drop("there is no way to the rendezvous", publication.id))
            return
        self._send(node, replace(message, hops=hops + 1))

    # --- down the subsets ----------------------------------------------------------------------

    def _visit(
        self, seat: Seat, publication: Publication, bits: int, hops: int, age_ms: int
    ) -> None:
        """An event is at a place: to the nodes that want it, and further down."""
        self._serve(seat, publication, bits, hops, age_ms)
        order = event_order(publication.id, self._settings.orders)
        for place, peer in list(seat.near.items()):
            if is_parent(seat.place, place, bits, order) and self._interests.wants(
                seat, place, bits, order, publication
            ):
                copy = self._answering.copy_for(seat, place, publication, bits, order)
                if copy is not None and place not in self._holdings.seats:
                    self._notify(copy, publication, bits, hops, age_ms)
                else:
                    self._send_down(Spread(publication, bits, place, hops, age_ms), peer)
        for place in self._gone(seat):
            if is_parent(seat.place, place, bits, order):
                self._detour(Detour(publication, bits, place, 0, hops, age_ms))

    def _notify(
        self,
        seat: Seat,
        publication: Publication,
        bits: int,
        hops: int,
        age_ms: int,
        identifiers: Iterable[int] | None = None,
    ) -> dict[str, int]:
        """To the nodes that want an event, of some of the identifiers that are kept at a place."""
        if identifiers is None:
            identifiers = seat.identifiers_within(bits)
        wanting = seat.wanting(publication, bits, identifiers)
        for node in wanting:
            if node == self._me.node:
                self._take_home(publication, hops, age_ms)
            else:
                self._deputies.count()
                self._post.used(node)
                self._post.send(node, Notified(publication, hops + 1, age_ms))
        return wanting

    def _send_down(self, spread: Spread, peer: PeerId) -> None:
        other = self._holdings.seats.get(spread.place)
        if other is not None:
            self._visit(other, spread.publication, spread.bits, spread.hops, spread.age_ms)
        else:
            self._send(peer.node, replace(spread, hops=spread.hops + 1))

    def on_spread(self, message: Spread) -> None:
        """An event is to visit a place of this node."""
        self._deputies.count()
        publication, bits, hops = message.publication, message.bits, message.hops
        seat = self._holdings.seats.get(message.place)
        if seat is not None:
            self._visit(seat, publication, bits, hops, message.age_ms)
            return
        # It has split or merged, or was given away, since the sender last heard of it.
        for place, own in list(self._holdings.seats.items()):
            if place.overlaps(message.place) and is_visited(place, bits):
                self._visit(own, publication, bits, hops, message.age_ms)
        for place, given in self._holdings.given.items():
            reached = place.overlaps(message.place) and is_visited(place, bits)
            if reached and hops < HOPS_MAX:
                self._send(given.node, replace(message, place=place, hops=hops + 1))
        self._send_after(message)

    def _send_after(self, message: Spread) -> None:
        """To who has parts of a place by now that this node has given away, and knows to be taken.

        The sender may hear later of that than this node does.
        """
        holdings = self._holdings
        covered = [*holdings.seats, *holdings.given]
        facts = [
            each for each in holdings.directory.facts() if each[1].place.overlaps(message.place)
        ]
        for peer, fact in sorted(
            facts, key=lambda each: claim_key(each[1].claim, each[0]), reverse=True
        ):
            if not any(map(fact.place.overlaps, covered)):
                covered.append(fact.place)
                if is_visited(fact.place, message.bits) and message.hops < DETOUR_HOPS_MAX:
                    onward = replace(message, place=fact.place, hops=message.hops + 1)
                    self._send(peer.node, onward)
        if not any(map(message.place.overlaps, covered)):
            self._out.emit(Drop("the place is held by somebody else", message.publication.id))

    # --- deputies ------------------------------------------------------------------------------

    def _serve(
        self, seat: Seat, publication: Publication, bits: int, hops: int, age_ms: int
    ) -> None:
        """To the nodes that want an event at an own place; deputies notify some of them.

        Whatever identifier the event contains is looked for (the paper: only one that is the
        event's own label), here or by a deputy.
        """
        self._deputies.review()
        handed = self._deputies.shares(seat, bits)
        away = {identifier for identifiers in handed.values() for identifier in identifiers}
        own = [each for each in seat.identifiers_within(bits) if each not in away]
        wanting = self._notify(seat, publication, bits, hops, age_ms, own)
        self._deputies.note(seat, own, wanting)
        for peer, identifiers in handed.items():
            message = Handed(publication, bits, seat.place, identifiers, hops + 1, age_ms=age_ms)
            self._send(peer.node, message)

    def on_handed(self, peer: PeerId, message: Handed) -> None:
        """An event is to be answered for the holder of another place, or comes back from who was
        to do so.
        """
        self._deputies.count()
        if message.is_returned:
            self._deputies.refused(peer, message.place)
            self._answer_handed(message)
            return
        copy = self._holdings.whole_copy(peer, message.place)
        if copy is None:
            self._send(peer.node, replace(message, is_returned=True, hops=message.hops + 1))
            return
        publication, bits, hops = message.publication, message.bits, message.hops
        self._notify(copy.seat, publication, bits, hops, message.age_ms, message.identifiers)

    def _answer_handed(self, message: Handed) -> None:
        """What a deputy did not answer is answered here, or where the place is by now."""
        publication, bits, place, hops = (
            message.publication,
            message.bits,
            message.place,
            message.hops,
        )
        for identifier in message.identifiers:
            seat = self._holdings.seat_of(identifier)
            if seat is None:
                self.on_detour(Detour(publication, bits, place, 0, hops, message.age_ms))
                return
            self._notify(seat, publication, bits, hops, message.age_ms, (identifier,))

    # --- places whose holders are gone ---------------------------------------------------------

    def _gone(self, seat: Seat | None = None) -> list[Place]:
        """Places that are missed, of all or next to one own place: as they were when last heard."""
        found: dict[Place, None] = {}
        for part in self._holdings.missing if seat is None else seat.gone:
            last = self._holdings.directory.last_holder(part)
            found[part if last is None else last[0]] = None
        return list(found)

    def on_detour(self, message: Detour) -> None:
        """An event is for a place whose holder is gone, as far as the sender knows."""
        holders = [
            (peer, fact.place)
            for peer, fact in self._holdings.directory.facts()
            if fact.place.overlaps(message.place)
        ]
        own = [place for place in self._holdings.seats if place.overlaps(message.place)]
        if own or not holders:
            self._detour(message)
        elif message.hops < DETOUR_HOPS_MAX:
            for peer, place in holders:
                if is_visited(place, message.bits):
                    self._send_down(
                        Spread(
                            message.publication, message.bits, place, message.hops, message.age_ms
                        ),
                        peer,
                    )

    def _detour(self, message: Detour) -> None:
        """To the first heir of a place that can be reached: it stands in for who is gone."""
        publication, bits, place = message.publication, message.bits, message.place
        own = [seat for each, seat in self._holdings.seats.items() if each.overlaps(place)]
        for seat in own:
            if is_visited(seat.place, bits):
                self._visit(seat, publication, bits, message.hops, message.age_ms)
        if own:
            return
        copy = self._holdings.copy_of(place)
        if copy is not None:
            self._stand_in(copy, publication, bits, message.hops, message.age_ms)
            return
        tried = list(heirs(place))[:HEIRS_TRIED_MAX]
        for rank in range(message.rank, len(tried)):
            if self._holdings.seat_of(tried[rank]) is not None:
                continue  # It is this node, and has no copy.
            node = self.next_on_the_way(tried[rank], f"{publication.id}/{rank}", None)
            if node is not None and message.hops < DETOUR_HOPS_MAX:
                self._send(node, replace(message, rank=rank, hops=message.hops + 1))
                return
        self._out.emit(Drop("nobody stands in for a node that is gone", publication.id))

    def _stand_in(
        self, copy: Copy, publication: Publication, bits: int, hops: int, age_ms: int
    ) -> None:
        """Do what the holder of a place would have done."""
        place = copy.seat.place
        self._notify(copy.seat, publication, bits, hops, age_ms)
        order: Order = event_order(publication.id, self._settings.orders)
        for other, peer in list(copy.seat.near.items()):
            if is_parent(place, other, bits, order):
                self._send_down(Spread(publication, bits, other, hops, age_ms), peer)

    # --- what may be lost ----------------------------------------------------------------------

    def _send(self, node: str, message: Kept) -> None:
        self._deputies.count()
        self._post.send(node, message)
        if not self._settings.resend_ms:
            return
        kept = self._sent.pop(node, None) or deque()
        self._sent[node] = kept
        kept.append((self.now_ms, message))
        self._sent_count += 1
        if len(kept) > SENT_KEPT_MAX:
            kept.popleft()
            self._sent_count -= 1
        self._forget_old(kept)
        while self._sent_count > SENT_KEPT_OF_ALL_MAX:
            self.forget(next(iter(self._sent)))

    def _forget_old(self, kept: deque[tuple[int, Kept]]) -> None:
        while kept and kept[0][0] < self.now_ms - self._settings.resend_ms:
            kept.popleft()
            self._sent_count -= 1

    def forget_old(self) -> None:
        """What was sent so long ago has arrived, and perhaps nothing follows that pushes it out."""
        for node, kept in list(self._sent.items()):
            self._forget_old(kept)
            if not kept:
                del self._sent[node]

    def _take_sent(self, node: str) -> Iterable[tuple[int, Kept]]:
        kept = self._sent.pop(node, ())
        self._sent_count -= len(kept)
        return kept

    def lost(self, node: str) -> None:
        """A node cannot be reached: what was just sent there goes another way, in due time."""
        for at_ms, message in self._take_sent(node):
            late_ms = self.now_ms - at_ms
            if late_ms <= self._settings.resend_ms:
                self._lost.append(replace(message, age_ms=message.age_ms + late_ms))

    def send_again(self) -> None:
        """What may be lost goes again, now that tables say who is gone."""
        messages, self._lost = self._lost, []
        for message in messages:
            match message:
                case Spread(publication, bits, place, hops, age_ms):
                    self.on_detour(Detour(publication, bits, place, 0, hops, age_ms))
                case Rendezvous():
                    self._seek(message, None)
                case Detour():
                    self.on_detour(message)
                case Handed():
                    self._answer_handed(message)

    def forget(self, node: str) -> None:
        """The link to a node was closed on purpose, after all had arrived."""
        self._take_sent(node)
