"""`Interests`: what is wanted at or below the places of this node, told upwards (§4.5).

The paper says when interest is told, and not when it is withdrawn. Here it is worked out anew
whenever something changes that it depends on, and told when it is another than before (`Seat`).

A bit for "somebody is interested" keeps no event away: every place is above the one of no
attributes, at which much is kept. So a place tells *wishes*, up to `summary` of them: identifiers
that are kept there and below. Of these only those count that an event goes to *through* this place:
it goes down by clearing bits in the order of the event, so on the way to an identifier the bits
that were cleared before stand before those that are still to be cleared (`leads_to`).

Where all events have about the same attributes, identifiers say little. Then wishes have the
filters with them (`summary_filters`), and only those count that match the event.

What changes is told as a difference (`differences`). While a place above has not answered, nothing
more is told it: changes of that time go together. Answers come when all above know, and going up
never comes back, so they do come.

If there are too many wishes, those of the places at which most is kept become one: its low bits, as
many as the shortest place has (`merged`). If even these are too many, the bit is all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from peersub.filters.filter import Filter
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Publication
from peersub.overlays.reach.differences import (
    Wish,
    changed,
    interest_of,
    keyed,
    telling,
    wishes_of,
)
from peersub.overlays.reach.holdings import Holdings
from peersub.overlays.reach.identifiers import Order, Place, low_bits, set_bits
from peersub.overlays.reach.messages import (
    Interest,
    InterestAsked,
    InterestChanged,
    InterestHeard,
    InterestTold,
)
from peersub.overlays.reach.post import Post
from peersub.overlays.reach.seats import NOTHING, Needs, Seat, Told

__all__ = ["SOMETHING", "Interests", "Wish", "leads_to", "merged", "own_wishes", "wishes_of"]

TELLINGS_MAX = 2
"""Tellings to a place above that it has not answered: what changes then is told together.

With one alone, what waits at each of many places above each other would wait for two answers."""

SOMETHING = Interest((0,), 0)
"""All that the interest bit of the paper says; also of those that have said nothing yet."""


def leads_to(
    place: Place,
    event: int,
    order: Order,
    interest: Interest,
    matches: Callable[[Filter], bool] = lambda _: True,
) -> bool:
    """Whether an event may find what is wanted at a place or further down from there.

    Going up takes bits away from what places lack (`parent_identifier`): the one that stands last,
    and those beyond the length of a shorter place. So of the bits below `shortest`, those that an
    identifier lacks and the place does not stand after all that the place lacks.
    """
    lacking = event & low_bits(place.length) & ~place.bits
    last = order.rank(order.last(lacking)) if lacking else -1
    within = event & ~lacking & low_bits(interest.shortest)
    cleared_before = 0
    for bit in set_bits(within):
        if order.rank(bit) <= last:
            cleared_before |= 1 << bit
    return any(
        identifier & (~event | lacking) == 0
        and cleared_before & ~identifier == 0
        and (wanted is None or matches(wanted))
        for identifier, wanted in wishes_of(interest)
    )


def merged(place: Place, own: Iterable[Wish], parts: Iterable[Interest], summary: int) -> Interest:
    """What is wanted at a place, of its own and of the places below, in at most `summary` wishes.

    Nothing that is wanted is left out: each wish is there, or one that has no filter, the same low
    bits and of the others no more.
    """
    known = [part for part in parts if part.identifiers]
    wishes = keyed(own)
    if not known and not wishes:
        return NOTHING
    if not summary or any(part == SOMETHING for part in known):
        return SOMETHING
    shortest = min([place.length, *(part.shortest for part in known)])
    for part in known:
        wishes.update(keyed(wishes_of(part)))
    groups: dict[int, list[Wish]] = {}
    for wish in wishes.values():
        groups.setdefault(wish[0] & low_bits(shortest), []).append(wish)
    told = _fitting({low: _largest(group) for low, group in groups.items()}, summary)
    if len(told) > summary:
        return SOMETHING
    return interest_of(told, shortest)


def _largest(group: Sequence[Wish]) -> list[Wish]:
    """Those that no other one says as well: one without a filter, and with fewer bits."""
    bare: list[int] = []
    for identifier in sorted(
        (identifier for identifier, wanted in group if wanted is None), key=int.bit_count
    ):
        if not any(other & ~identifier == 0 for other in bare):
            bare.append(identifier)
    others = [
        (identifier, wanted)
        for identifier, wanted in group
        if wanted is not None and not any(other & ~identifier == 0 for other in bare)
    ]
    return [*((identifier, None) for identifier in bare), *others]


def _fitting(groups: Mapping[int, list[Wish]], summary: int) -> list[Wish]:
    """The wishes of all groups; if they are too many, one for each of the largest groups."""
    excess = sum(map(len, groups.values())) - summary
    told: list[Wish] = []
    for low, group in sorted(groups.items(), key=lambda each: (-len(each[1]), each[0])):
        if excess > 0 and len(group) > 1:
            excess -= len(group) - 1
            told.append((low, None))
        else:
            told += group
    return told


def own_wishes(
    place: Place, kept: Iterable[Wish], summary: int, *, with_filters: bool
) -> Iterable[Wish]:
    """What is kept at a place, as wishes; all that it may keep, if there are too many."""
    if with_filters:
        found: dict[tuple[int, bytes], Wish] = {}
        for wish in kept:
            found.update(keyed([wish]))
            if len(found) > summary:
                return [(place.bits, None)]
        return found.values()
    return dict.fromkeys((identifier, None) for identifier, _ in kept)


class Interests:
    """The interest of own places: what they know of those below, and have told those above."""

    def __init__(
        self,
        holdings: Holdings,
        post: Post,
        *,
        quench: bool,
        summary: int,
        with_filters: bool = False,
    ) -> None:
        self._holdings = holdings
        self._me = holdings.me
        self._post = post
        self._quench = quench
        self._summary = summary
        self._with_filters = with_filters
        self._number = 0
        self.changed = False
        """Whether interest must be worked out again."""
        self.heard = False
        """Whether something may be told or answered that had to wait."""

    def wants(
        self, seat: Seat, below: Place, event: int, order: Order, publication: Publication
    ) -> bool:
        """Whether an event is of use at a place below an own one, as far as is known."""
        if not self._quench:
            return True
        return leads_to(below, event, order, self.wanted_at(seat, below), publication.matches)

    def wanted_at(self, seat: Seat, below: Place) -> Interest:
        """What is wanted at a place below an own one and further down, as far as is known."""
        if seat.near[below] == self._me:
            other = self._holdings.seats.get(below)
            return SOMETHING if other is None else other.wanted
        return seat.interest.get(below, SOMETHING)

    def wanted(self, seat: Seat) -> Interest:
        """What is wanted at an own place and below."""
        kept = ((entry.identifier, entry.filter) for entry in seat.entries())
        own = own_wishes(seat.place, kept, self._summary, with_filters=self._with_filters)
        parts = [self.wanted_at(seat, below) for below in seat.below()]
        parts += seat.orphaned.values()
        if seat.misses_unheard:
            parts.append(SOMETHING)
        return merged(seat.place, own, parts, self._summary)

    def review(self) -> None:
        """Work out all interest, tell what has changed, and answer what waited for that."""
        changed, self.changed, self.heard = self.changed, False, False
        if self._quench:
            seats = self._holdings.seats
            # Own places may lie below each other: as often as there are places is enough.
            for _ in seats if changed else ():
                for seat in seats.values():
                    seat.wanted = self.wanted(seat)
            for seat in seats.values():
                self._tell(seat)
        self._answer()

    def _tell(self, seat: Seat) -> None:
        for above in seat.above():
            holder = seat.near[above]
            told = seat.told.get(above)
            if holder == self._me or (told is not None and told.interest == seat.wanted):
                continue
            if told is not None and len(told.unheard) >= TELLINGS_MAX:
                continue  # What changes meanwhile is told together, when one of these is heard.
            self._number += 1
            known = None if told is None else (told.interest, told.number)
            if told is None:
                told = seat.told[above] = Told(holder, seat.wanted, self._number)
            told.interest, told.number = seat.wanted, self._number
            told.unheard[self._number] = None
            message = telling(seat.place, above, known, (seat.wanted, self._number))
            self._post.send(holder.node, message)

    def _above(self, seat: Seat) -> Iterator[tuple[Seat, Place]]:
        """The places of others above a place, and the own place that tells each of them."""
        for above in seat.above():
            if seat.near[above] != self._me:
                yield seat, above
            elif above in self._holdings.seats:
                yield from self._above(self._holdings.seats[above])

    def _needs(self, seat: Seat) -> Needs:
        """What has to be heard for all above to know what a place wants now, and to have copies."""
        told = {
            (own.place, above): known.number + (known.interest != own.wanted)
            for own, above in (self._above(seat) if self._quench else ())
            if (known := own.told.get(above)) is not None
        }
        copied = {peer: each.sent for peer, each in seat.copied.items()}
        return Needs(copied, told, self._number + 1)

    def _is_known(self, seat: Seat, needs: Needs) -> bool:
        """Whether all above know what a place wanted, and all above those."""
        return not self._quench or all(
            self._is_heard(own, above, needs.told.get((own.place, above), needs.later))
            for own, above in self._above(seat)
        )

    def _is_heard(self, own: Seat, above: Place, number: int) -> bool:
        """Whether a place above knows what it was told under a number, or all that is wanted now.

        What was to follow is not told if it has ended before: then that number never comes.
        """
        known = own.told.get(above)
        if known is None:
            return False
        return known.heard >= number or (not known.unheard and known.interest == own.wanted)

    def _answer(self) -> None:
        for seat in self._holdings.seats.values():
            for (peer, message), needs in list(seat.waiting.items()):
                if needs is None:
                    needs = seat.waiting[peer, message] = self._needs(seat)
                if seat.are_copied(needs) and self._is_known(seat, needs):
                    del seat.waiting[peer, message]
                    self._post.send(peer.node, message)

    def waiting_for(self) -> list[PeerId]:
        """The holders of places above that have not answered, sorted."""
        peers = {
            told.holder
            for seat in self._holdings.seats.values()
            for told in seat.told.values()
            if told.unheard
        }
        return sorted(peers)

    # --- messages ------------------------------------------------------------------------------

    def on_told(self, peer: PeerId, message: InterestTold) -> None:
        """A place below says what is wanted there."""
        seat = self._holdings.seats.get(message.above)
        if seat is None or seat.near.get(message.below) != peer:
            return  # It will be told again when both know of each other.
        seat.interest[message.below] = message.interest
        seat.interest_numbers[message.below] = message.number
        heard = InterestHeard(message.below, message.above, message.number)
        self.changed = True
        if not message.interest.identifiers:
            self._post.send(peer.node, heard)
        else:
            seat.wait(peer, heard)

    def on_changed(self, peer: PeerId, message: InterestChanged) -> None:
        """A place below says what is different; if it is from something unknown, ask for all."""
        below, above = message.below, message.above
        seat = self._holdings.seats.get(above)
        if seat is None or seat.near.get(below) != peer:
            return  # As above.
        before = seat.interest.get(below)
        if before is None or seat.interest_numbers.get(below, 0) != message.before:
            self._post.send(peer.node, InterestAsked(below, above))
            return
        after = changed(before, message.ended, message.begun)
        self.on_told(peer, InterestTold(below, above, after, message.number))

    def on_heard(self, message: InterestHeard) -> None:
        """All above a place know of the interest below it."""
        seat = self._holdings.seats.get(message.below)
        told = None if seat is None else seat.told.get(message.above)
        if told is not None and message.number in told.unheard:
            told.hear(message.number)
            self.heard = True

    def on_asked(self, peer: PeerId, message: InterestAsked) -> None:
        """A place above has not been told, or has forgotten."""
        seat = self._holdings.seats.get(message.below)
        if seat is not None and seat.near.get(message.above) == peer:
            seat.told.pop(message.above, None)
            self.changed = True

    @property
    def is_open(self) -> bool:
        """Whether a place below has not said what it wants, or one above has not answered."""
        return self._quench and (bool(self.waiting_for()) or bool(self._unknown()))

    def ask_again(self) -> None:
        """Ask places below that have said nothing, and tell again who has not answered."""
        if not self._quench:
            return
        for seat, below in self._unknown():
            self._post.send(seat.near[below].node, InterestAsked(below, seat.place))
        for seat in self._holdings.seats.values():
            for above, told in seat.told.items():
                if told.unheard:
                    message = InterestTold(seat.place, above, told.interest, told.number)
                    self._post.send(told.holder.node, message)

    def _unknown(self) -> list[tuple[Seat, Place]]:
        return [
            (seat, below)
            for seat in self._holdings.seats.values()
            for below in seat.below()
            if seat.near[below] != self._me and below not in seat.interest
        ]
