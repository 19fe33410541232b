"""An heir answers for the place below it, out of the copy that it has (§4.4; `balancing`).

The copies that places have at their first heirs are whole whenever a subscription is confirmed
(`copies`). So an heir that is the parent of a place in an event's tree can tell who wants the event
there, and need not send it down, if nothing else is reached through the place.
"""

from __future__ import annotations

from peersub.overlays.core.publication import Publication
from peersub.overlays.reach.balancing import answer_number, answers, is_heir, is_last
from peersub.overlays.reach.holdings import Holdings
from peersub.overlays.reach.identifiers import Order, Place
from peersub.overlays.reach.interest import Interests
from peersub.overlays.reach.seats import Seat
from peersub.overlays.reach.settings import ReachSettings

__all__ = ["Answering"]


class Answering:
    """For which of the places below this node answers."""

    def __init__(self, holdings: Holdings, interests: Interests, settings: ReachSettings) -> None:
        self._holdings = holdings
        self._interests = interests
        self._share = settings.answer_share if settings.quench else 0.0
        self._copies = settings.copies

    def copy_for(
        self, seat: Seat, place: Place, publication: Publication, bits: int, order: Order
    ) -> Seat | None:
        """What a place below an own one keeps, if the event need not be sent there."""
        if not self._share or self._holdings.leaving:
            return None
        copy = self._holdings.copies.get((seat.near[place], place))
        if copy is None or not copy.is_whole:
            return None
        wanted = self._interests.wanted_at(seat, place)
        if (
            is_heir(seat.place, place, self._copies)
            and answers(seat.place, place, answer_number(publication.id), self._share)
            and is_last(place, bits, order, wanted, publication.matches)
        ):
            return copy.seat
        return None
