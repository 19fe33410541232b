"""Who has a copy answers for the place below it (§4.4; `balancing`).

The copies that places have at their heirs and replicas are whole whenever a subscription is
confirmed (`copies`). So one of these that is the parent of a place in an event's tree can tell who
wants the event there, and need not send it down, if nothing else is reached through the place.

What the place's holder does not keep up any more is not answered from: a copy of an earlier claim,
or of a place that somebody else is to have copies of by the rule.
"""

from __future__ import annotations

from peersub.overlays.core.publication import Publication
from peersub.overlays.reach.balancing import answer_number, answers, is_last
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
        self._rule = settings.copy_rule

    def copy_for(
        self, seat: Seat, place: Place, publication: Publication, bits: int, order: Order
    ) -> Seat | None:
        """What a place below an own one keeps, if the event need not be sent there."""
        if not self._share or self._holdings.leaving:
            return None
        copy = self._holdings.whole_copy(seat.near[place], place)
        if copy is None:
            return None
        wanted = self._interests.wanted_at(seat, place)
        if (
            answers(seat.place, place, answer_number(publication.id), self._share)
            and self._rule.has_copy(seat.place, place)
            and is_last(place, bits, order, wanted, publication.matches)
        ):
            return copy.seat
        return None
