"""`Holdings`: the places of this node, and how they split, merge and move.

Every change is one of three, each of which a node makes by itself:

- a place splits into its halves, or two halves that this node holds become one (§3.3);
- a place is *given* to another node, with its subscriptions. Links bring messages in order and
  once; the giver keeps a copy until the other has said that it took it, and takes it back if the
  link breaks before and the other turns out not to hold it;
- a place that nobody holds is *claimed* by an heir (`structure.heirs`).

So there are no locks. Joins, leaves and crashes are made of these: who joins is given a half; who
leaves gives its place to an heir; an heir claims the place of who crashed. A node may then hold
several places, and gives one to a newcomer, or moves it towards longer places until a pair may
merge (`balance`). A place with a neighbour that is longer by two splits: wherever several changes
at once have left a gap, it closes again.

What is said to others goes out in `announce`; who holds what is in the `Directory`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from peersub.overlays.core.draws import draw_below
from peersub.overlays.core.identity import PeerId
from peersub.overlays.reach.attributes import AttributeMap
from peersub.overlays.reach.directory import Directory, claim_key, missing_near
from peersub.overlays.reach.identifiers import (
    EMPTY_PLACE,
    Place,
    are_neighbours,
    distance,
    missing_parts,
)
from peersub.overlays.reach.messages import (
    EntriesGiven,
    Entry,
    JoinAsked,
    PlaceSought,
    RenewalWanted,
    RivalNamed,
    Routed,
    SeatFact,
    SeatGiven,
    SeatsTold,
    SeatTaken,
    StoreAsked,
)
from peersub.overlays.reach.pace import Pace
from peersub.overlays.reach.post import Post
from peersub.overlays.reach.seats import Seat
from peersub.overlays.reach.settings import ReachSettings
from peersub.overlays.reach.structure import GAP_MAX, heir_rank, longer, merges, shorter

__all__ = ["ENTRIES_PER_MESSAGE", "HOPS_MAX", "Copy", "Holdings"]

ENTRIES_PER_MESSAGE = 64
HOPS_MAX = 256
"""Longer than any way: what has gone so far goes in circles."""
WISHES_MAX = 64
"""Newcomers that wait here until a change is over; others ask again, here or elsewhere."""
ARRIVING_MAX = 131_072
"""Subscriptions of a place that is about to come; their nodes are asked for those beyond."""
NEAR_TOLD_MAX = 256
"""Nodes next to a place that is given that its new holder is told of."""


@dataclass(slots=True)
class _Given:
    """A place on its way to a node that has not said yet that it took it."""

    node: str
    seat: Seat
    in_doubt: bool = False
    """Whether the link broke meanwhile: what the node says next decides."""


@dataclass(slots=True)
class _Arriving:
    """What is kept at a place that a peer is about to give."""

    place: Place
    entries: list[Entry]
    is_cut: bool = False
    """Whether there were more than fit."""


@dataclass(slots=True)
class Copy:
    """The subscriptions of a place that another node holds."""

    owner: PeerId
    seat: Seat
    is_begun: bool = True
    is_whole: bool = True
    """Whether the owner has told what it keeps there from the begin, and all of that."""


class Holdings:
    """The places of a node."""

    def __init__(
        self, me: PeerId, settings: ReachSettings, seed: int, bits: AttributeMap, post: Post
    ) -> None:
        self.me = me
        self.settings = settings
        self.seats: dict[Place, Seat] = {}
        self.directory = Directory()
        self.missing: dict[Place, int] = {}
        """Regions next to own places of which no holder is known, and since when."""
        self.given: dict[Place, _Given] = {}
        self.copies: dict[tuple[PeerId, Place], Copy] = {}
        """What others keep at their places, should they crash (`copies`); two may claim one."""
        self.leaving = False
        self.pace = Pace(settings.changes_per_beat, settings.beat_ms)
        self.now_ms = 0
        self.changed = False
        """Whether tables must be worked out again."""
        self._seed = seed
        self._bits = bits
        self._post = post
        self._gifts: dict[str, None] = {}
        self._wishes: dict[str, JoinAsked] = {}
        self._arriving: dict[str, _Arriving] = {}
        """By the node that gives: it names one place after the other (`give`)."""
        self._said: SeatsTold | None = None
        self._turns = 0

    # --- asking --------------------------------------------------------------------------------

    @property
    def is_whole(self) -> bool:
        """Whether this node holds one place, and knows all that are next to it."""
        return len(self.seats) == 1 and not self.missing and not self.given

    @property
    def is_alone(self) -> bool:
        """Whether this node holds all places, and no other is known to have any."""
        return bool(self.seats) and not self.missing and not any(self.directory.facts())

    def seat_of(self, identifier: int) -> Seat | None:
        """The own place that hosts an identifier."""
        for place, seat in self.seats.items():
            if place.hosts(identifier):
                return seat
        return None

    def given_to(self, identifier: int) -> str | None:
        """The node that the host of an identifier was just given to."""
        for place, given in self.given.items():
            if place.hosts(identifier):
                return given.node
        return None

    def nearest_peer(self, target: int) -> str | None:
        """For a node without a place: who is nearest to a target, of those it is linked with."""
        found = [
            (distance(fact.place, target), peer.node)
            for peer, fact in self.directory.facts()
            if peer.node in self._post.linked
        ]
        return min(found)[1] if found else None

    # --- tables --------------------------------------------------------------------------------

    def told(self) -> SeatsTold:
        """What others are to know of this node."""
        facts = [
            SeatFact(place, seat.claim, seat.longest) for place, seat in sorted(self.seats.items())
        ]
        return SeatsTold(tuple(facts), self.leaving)

    def on_told(self, peer: PeerId, said: SeatsTold) -> None:
        """A peer says which places it holds."""
        for place, given in list(self.given.items()):
            if given.node == peer.node and given.in_doubt:
                if any(fact.place.overlaps(place) for fact in said.seats):
                    del self.given[place]
                else:
                    self._take_back(place)
        if self.directory.told.get(peer) != said:
            self.directory.tell(peer, said)
            self.changed = True
        self._give_to_newcomer(peer)

    def on_lost(self, peer: PeerId) -> None:
        """The link to a peer is gone."""
        self._gifts.pop(peer.node, None)
        self.directory.lose(peer)
        self.changed = True
        for copy in self.copies.values():
            if copy.owner == peer:
                copy.is_begun = copy.is_whole = False
        self._arriving.pop(peer.node, None)
        for given in self.given.values():
            if given.node == peer.node:
                given.in_doubt = True
                self._post.connect(peer.node)

    def on_failed(self, node: str) -> None:
        """A node cannot be reached: it does not hold what it was given."""
        self._gifts.pop(node, None)
        for place, given in list(self.given.items()):
            if given.node == node and given.in_doubt:
                self._take_back(place)

    def review(self) -> None:
        """Work out the tables of all own places, and tell others what has changed."""
        self._give_up_lost_claims()
        near = self.directory.near(self.seats)
        for winner, loser in self.directory.rivals:
            if loser in self._post.linked:
                self._post.send(loser, RivalNamed(winner))
        missing: dict[Place, int] = {}
        for place, seat in self.seats.items():
            own = {other: self.me for other in self.seats if are_neighbours(place, other)}
            table = {
                other: peer
                for other, (peer, _) in near.items()
                if are_neighbours(place, other) and not any(map(other.overlaps, self.seats))
            }
            around = {**table, **own}
            seat.set_near(around, missing_near(place, around))
            for part in seat.gone:
                missing[part] = self.missing.get(part, self.now_ms)
        self.missing = missing

    def announce(self) -> None:
        """Say what has changed to all who are linked."""
        told = self.told()
        if told != self._said:
            self._said = told
            for node in self._post.linked:
                self._post.send(node, told)

    def _give_up_lost_claims(self) -> None:
        """Who has a higher claim to a place, or to a part of it, gets what is kept there."""
        for place, seat in list(self.seats.items()):
            winners = [
                (peer, fact.place)
                for peer, fact in self.directory.facts()
                if fact.place.overlaps(place)
                and claim_key(fact.claim, peer) > claim_key(seat.claim, self.me)
            ]
            if not winners:
                continue
            del self.seats[place]
            for part in missing_parts(place, [won for _, won in winners]):
                rest = Seat(part, seat.claim)
                rest.take_entries(seat, self._bits)
                self._add(rest)
            for peer, won in winners:
                self.pass_on([e for e in seat.entries() if won.hosts(e.identifier)], peer.node)
        self.changed = False

    def pass_on(self, entries: Iterable[Entry], node: str) -> None:
        """Let the new holder of a place keep these as well."""
        for entry in entries:
            self._post.send(node, Routed(entry.identifier, 0, StoreAsked(entry)))

    # --- places come and go --------------------------------------------------------------------

    def begin(self) -> None:
        """There is no network yet: all of it is here."""
        self._add(Seat(EMPTY_PLACE, 1))

    def adopt(self, seat: Seat, told: Mapping[PeerId, SeatsTold]) -> None:
        """Hold a place, and know who is next to it, from the start."""
        self.seats = {seat.place: seat}
        self.directory.told = dict(told)
        self.review()
        self._said = self.told()

    def _add(self, seat: Seat) -> None:
        self.seats[seat.place] = seat
        self.changed = True

    def give(self, place: Place, node: str) -> None:
        """A place is to be another's, to which there is a link."""
        seat = self.seats.pop(place)
        self.changed = True
        claim = seat.claim + 1
        entries = list(seat.entries())
        for start in range(0, len(entries), ENTRIES_PER_MESSAGE):
            chunk = tuple(entries[start : start + ENTRIES_PER_MESSAGE])
            self._post.send(node, EntriesGiven(place, chunk))
        holders = {peer.node: None for peer in seat.near.values()}
        near = tuple(sorted(each for each in holders if each != node))[:NEAR_TOLD_MAX]
        self._post.send(node, SeatGiven(place, claim, near))
        seat.claim = claim
        self.given[place] = _Given(node, seat)

    def _take_back(self, place: Place) -> None:
        seat = self.given.pop(place).seat
        for part in missing_parts(place, self.seats):
            fresh = Seat(part, seat.claim + 1)
            fresh.take_entries(seat, self._bits)
            self._add(fresh)

    def on_entries(self, peer: PeerId, message: EntriesGiven) -> None:
        """Subscriptions of a place that is about to come."""
        arriving = self._arriving.get(peer.node)
        if arriving is None or arriving.place != message.place:
            arriving = self._arriving[peer.node] = _Arriving(message.place, [])
        room = ARRIVING_MAX - len(arriving.entries)
        arriving.entries += message.entries[:room]
        arriving.is_cut |= len(message.entries) > room

    def on_given(self, peer: PeerId, message: SeatGiven) -> None:
        """A place is this node's from now on."""
        arriving = self._arriving.pop(peer.node, None)
        if arriving is None or arriving.place != message.place:
            arriving = _Arriving(message.place, [])
        for part in missing_parts(message.place, self.seats):
            self._add(Seat(part, message.claim))
        if arriving.is_cut:
            self._post.send(self.me.node, RenewalWanted(message.place, message.claim))
        for entry in arriving.entries:
            seat = self.seat_of(entry.identifier)
            if seat is not None:
                seat.store(entry, self._bits, self.now_ms)
                seat.copied.clear()  # Who has copies of what was held already gets all again.
                self.changed = True
        self._post.send(peer.node, SeatTaken(message.place, message.claim))
        for node in message.near:
            self._post.connect(node)

    def on_taken(self, peer: PeerId, message: SeatTaken) -> None:
        """A place has arrived where it was given to."""
        given = self.given.get(message.place)
        if given is not None and given.node == peer.node and given.seat.claim == message.claim:
            del self.given[message.place]

    def _split(self, seat: Seat) -> tuple[Seat, Seat]:
        """A place becomes its halves, both held by this node."""
        del self.seats[seat.place]
        halves = [Seat(place, seat.claim + 1) for place in seat.place.halves]
        for half in halves:
            half.take_entries(seat, self._bits)
            half.set_near(
                {o: peer for o, peer in seat.near.items() if are_neighbours(half.place, o)}
            )
            self._add(half)
        return halves[0], halves[1]

    def _merge(self, seat: Seat, sibling: Seat) -> None:
        del self.seats[seat.place], self.seats[sibling.place]
        whole = Seat(seat.place.whole, max(seat.claim, sibling.claim) + 1)
        whole.take_entries(seat, self._bits)
        whole.take_entries(sibling, self._bits)
        self._add(whole)

    # --- joining -------------------------------------------------------------------------------

    def on_join(self, message: JoinAsked) -> None:
        """Somebody wants a place: give it one, or pass the wish on to a shorter neighbour."""
        if message.newcomer == self.me.node or message.hops > HOPS_MAX:
            return
        self._wishes.setdefault(message.newcomer, message)
        while len(self._wishes) > WISHES_MAX:
            del self._wishes[next(iter(self._wishes))]

    def serve_newcomer(self) -> None:
        """One change at a time: the first who wants a place gets it when this node is whole."""
        busy = self.missing or self.given or self._gifts or self.changed
        if not self._wishes or not self.seats or busy or not self.pace.allows(self.now_ms):
            return
        wish = self._wishes.pop(next(iter(self._wishes)))
        node, hops = wish.newcomer, wish.hops
        peer = self._post.linked.get(node)
        if peer is not None and self.directory.holds_any(peer):
            return
        if self.leaving:
            onward = self.somebody_who_stays()
            if onward is not None:
                self._post.send(onward, JoinAsked(node, hops + 1))
            return
        seat = min(self.seats.values(), key=lambda each: each.place)
        choices = shorter(seat.place, seat.near) if len(self.seats) == 1 else []
        if choices:
            turn = draw_below(len(choices), self._seed, "reach/join", node, hops, self.me.node)
            self._post.send(seat.near[choices[turn]].node, JoinAsked(node, hops + 1))
        elif len(self.seats) > 1 or seat.place.length < self.settings.identifier_bits:
            self.pace.count(self.now_ms)
            self._gifts[node] = None
            self._post.connect(node)
            if peer is not None:
                self._give_to_newcomer(peer)

    @property
    def has_newcomers(self) -> bool:
        """Whether somebody waits here for a place."""
        return bool(self._wishes)

    def _give_to_newcomer(self, peer: PeerId) -> None:
        """Who was to get a place gets it, unless it says that it has one by now."""
        if peer.node not in self._gifts or peer not in self.directory.told:
            return
        del self._gifts[peer.node]
        if not self.seats or self.leaving or not self.takes(peer) or self.directory.holds_any(peer):
            return
        if len(self.seats) > 1:
            self.give(max(self.seats), peer.node)
            return
        (seat,) = self.seats.values()
        if seat.place.length < self.settings.identifier_bits:
            _, new = self._split(seat)
            self.give(new.place, peer.node)

    # --- what is missing -----------------------------------------------------------------------

    def find(self) -> None:
        """Look for who is missed; an heir takes a place that nobody holds."""
        self._turns += 1
        for part, since_ms in list(self.missing.items()):
            last = self.directory.last_holder(part)
            if last is not None:
                self._post.connect(last[1].node)
            place = part if last is None else last[0]
            if self._is_mine_to_claim(part, place, self.now_ms - since_ms):
                self._claim(place, 0 if last is None else last[1].claim)
                return
            self._seek(part)

    def _seek(self, part: Place) -> None:
        """Ask for the host of a region, over neighbours in turn: the way there itself is gone."""
        around = [
            peer.node
            for seat in self.seats.values()
            for peer in seat.near.values()
            if peer != self.me
        ]
        if not around:
            around = [peer.node for peer, _ in self.directory.facts()]
        if around:
            node = around[self._turns % len(around)]
            self._post.send(node, Routed(part.bits, 0, PlaceSought(part.bits, self.me.node)))

    def _is_mine_to_claim(self, part: Place, place: Place, missed_ms: int) -> bool:
        if self.leaving or any(part.overlaps(given) for given in self.given):
            return False
        ranks = [rank for own in self.seats if (rank := heir_rank(place, own)) is not None]
        if not ranks:
            # The place may not be what it was: heirs of what is missed here come after the others.
            late = [rank for own in self.seats if (rank := heir_rank(part, own)) is not None]
            ranks = [place.length + rank for rank in late]
        return bool(ranks) and missed_ms >= self.settings.takeover_ms * (1 + min(ranks))

    def _claim(self, place: Place, claim: int) -> None:
        """Take what nobody holds, as far as is known."""
        known = [*self.seats, *(fact.place for _, fact in self.directory.facts())]
        for part in missing_parts(place, known):
            seat = Seat(part, claim + 1)
            for each in self.copies.values():
                seat.take_entries(each.seat, self._bits)
            seat.renew(self.now_ms)
            self._add(seat)
            copy = self.copy_of(part)
            if copy is None or not copy.seat.place.contains(part):
                self._post.send(self.me.node, RenewalWanted(part, claim + 1))

    def copy_of(self, place: Place) -> Copy | None:
        """What is known here of a place whose holder is gone, unless it is from an earlier time."""
        last = self.directory.last_holder(place)
        found = [
            copy
            for copy in self.copies.values()
            if copy.seat.place.overlaps(place)
            and (last is None or copy.seat.claim >= last[1].claim)
        ]
        return max(found, key=lambda copy: (copy.seat.claim, copy.owner), default=None)

    def whole_copy(self, owner: PeerId, place: Place) -> Copy | None:
        """All that the holder of a place keeps there, as it has told it since it holds it."""
        copy = self.copies.get((owner, place))
        if copy is None or not copy.is_whole:
            return None
        return copy if copy.seat.claim == self.directory.claim(owner, place) else None

    # --- several places ------------------------------------------------------------------------

    def balance(self) -> None:
        """Split, merge or move one place, if this node holds several or a neighbour is too long."""
        if self.missing or self.given or self.leaving or not self.pace.allows(self.now_ms):
            return
        long = [seat for seat in self.seats.values() if seat.longest > seat.place.length + GAP_MAX]
        if long:
            self._split(long[0])
        elif len(self.seats) > 1 and not self._merge_one():
            self._move_one()
        if self.changed:
            self.pace.count(self.now_ms)

    def _merge_one(self) -> bool:
        for place, seat in self.seats.items():
            sibling = self.seats.get(place.sibling) if place.length else None
            if sibling is not None and merges(place, seat.near, sibling.near):
                self._merge(seat, sibling)
                return True
        return False

    def _move_one(self) -> None:
        """Towards longer places, until there are none; there the longest one joins its sibling.

        Only the longest places of this node count, and what moves goes to a longer one, or to the
        sibling of one of them, which has a longer neighbour: it never comes back.
        """
        self._turns += 1
        length = max(self.seats).length
        longest = [seat for place, seat in sorted(self.seats.items()) if place.length == length]
        for seat in longest:
            holder = seat.near.get(seat.place.sibling)
            if holder is None or not self.takes(holder) or longer(seat.place, seat.near):
                continue
            if self._longest_at(holder, seat.place.sibling) <= length:
                self.give(seat.place, holder.node)
                return
        for seat in longest:
            for other in longer(seat.place, seat.near):
                if self.takes(seat.near[other]):
                    self.give(self._another(seat.place), seat.near[other].node)
                    return
        for seat in longest:
            holder = seat.near.get(seat.place.sibling)
            if holder is not None and self.takes(holder):
                self.give(self._another(seat.place), holder.node)
                return

    def _another(self, place: Place) -> Place:
        return min(other for other in self.seats if other != place)

    def takes(self, peer: PeerId) -> bool:
        """Whether something can be entrusted to a peer: it stays."""
        return peer != self.me and not self.directory.leaves(peer)

    def _longest_at(self, peer: PeerId, place: Place) -> int:
        said = self.directory.told.get(peer)
        return max((f.longest for f in said.seats if f.place == place), default=0) if said else 0

    def somebody_who_stays(self) -> str | None:
        """Somebody with a place who does not leave."""
        found = [peer.node for peer, _ in self.directory.facts() if self.takes(peer)]
        return min(found) if found else None

    def newcomer(self) -> str | None:
        """Somebody who is linked and has no place yet; rather who has said so."""
        found = [
            (peer not in self.directory.told, peer.node)
            for peer in self._post.linked.values()
            if self.takes(peer)
        ]
        return min(found)[1] if found else None
