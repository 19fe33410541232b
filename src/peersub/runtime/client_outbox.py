"""Events on their way to one client, collected for a turn of the loop.

An event that several subscriptions want leaves as one message. For each subscription the order is
that in which it got the events: an event joins the one before it only, or would overtake others.
Events of a batch come subscription by subscription, and leave in the order of their places in it.
Keys of events do not leave: clients get tokens made of them, if they want them, beside the ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from peersub.overlays.core.batch import Batch
from peersub.overlays.core.event_keys import BATCH_ROWS_MAX
from peersub.overlays.core.publication import Publication
from peersub.runtime.client_queue import Waiting
from peersub.wire import WireError, sealed
from peersub.wire.client_messages import (
    Delivered,
    DeliveredAgain,
    DeliveredBatch,
    SubscriptionPhase,
    SubscriptionPhases,
    for_subscriber,
)

if TYPE_CHECKING:
    import numpy as np

__all__ = ["NUMBERS_PER_MESSAGE_MAX", "PLACE_TYPE", "ClientOutbox", "phase_messages"]

PLACE_TYPE: Final = "<u4"
"""Of places in a batch, as they travel."""

NUMBERS_PER_MESSAGE_MAX: Final = 4_096
"""Subscriptions in one message about an event, publications in one answer: what headers hold."""


def phase_messages(
    phases: Mapping[int, SubscriptionPhase], *wanted: SubscriptionPhase
) -> Iterator[SubscriptionPhases]:
    """What tells the subscriptions that are in one of these phases, for many at once."""
    for phase in wanted if phases else ():
        numbers = [number for number, its in phases.items() if its is phase]
        for start in range(0, len(numbers), NUMBERS_PER_MESSAGE_MAX):
            yield SubscriptionPhases(phase, tuple(numbers[start : start + NUMBERS_PER_MESSAGE_MAX]))


class _Outgoing:
    """An event, and for which subscriptions it is."""

    __slots__ = ("hops", "is_durable", "numbers", "place", "positions", "publication")

    def __init__(self, publication: Publication, hops: int, place: int) -> None:
        self.publication = publication
        self.hops = hops
        self.place = place
        self.numbers: list[int] = []
        self.positions: list[int | None] = []
        self.is_durable = False


_PLACE: Final = attrgetter("place")


class ClientOutbox:
    """What is sent to a client next.

    Attributes:
        size: of the events, in bytes, about.
        batch: whose events are among them; others may only follow.
        tells_again: whether the client wants to hear which events may have come before.
        tells_tokens: whether it wants to tell events from others of the same id.
    """

    __slots__ = (
        "_events",
        "_hops",
        "_of_batch",
        "_outgoing",
        "_places",
        "_rows",
        "batch",
        "size",
        "tells_again",
        "tells_tokens",
    )

    def __init__(self) -> None:
        self.size = 0
        self.tells_again = False
        self.tells_tokens = False
        self.batch: Batch | None = None
        self._outgoing: list[_Outgoing] = []
        self._rows: list[tuple[int, np.ndarray]] = []
        """What leaves in columns: subscriptions, and the places of their events in the batch."""
        self._hops = 0
        self._events: dict[int, Publication] = {}
        """Events of the batch by their places in it."""
        self._places: dict[int, int] = {}
        self._of_batch: dict[int, _Outgoing] = {}
        """The places, and what is outgoing, by the identity of the events."""

    def add(self, number: int, waiting: Waiting) -> None:
        """An event for a subscription."""
        publication = waiting.publication
        last = self._outgoing[-1] if self._outgoing else None
        if last is None or last.publication is not publication:
            last = self._of_batch.get(id(publication))
        if last is None or len(last.numbers) >= NUMBERS_PER_MESSAGE_MAX:
            place = self._places.get(id(publication))
            last = _Outgoing(publication, waiting.hops, BATCH_ROWS_MAX if place is None else place)
            self._outgoing.append(last)
            if place is not None:
                self._of_batch[id(publication)] = last
            self.size += publication.size
        last.numbers.append(number)
        last.positions.append(waiting.position)
        if waiting.position is not None:
            last.is_durable = True

    def events_of(self, batch: Batch, rows: np.ndarray) -> list[Publication]:
        """The events at these places of a batch, made once for all subscriptions.

        What another batch has brought must have been taken.
        """
        assert self.batch is batch or self.is_empty
        self.batch = batch
        known, places = self._events, rows.tolist()
        missing = rows if not known else rows[[place not in known for place in places]]
        if len(missing):
            made = batch.part(missing).publications()
            for place, publication in zip(missing.tolist(), made, strict=True):
                with suppress(WireError):
                    sealed(publication)  # Now its size is known.
                known[place] = publication
                self._places[id(publication)] = place
        return [known[place] for place in places]

    def add_rows(self, number: int, batch: Batch, rows: np.ndarray, hops: int) -> None:
        """The events at these places of a batch, for a subscription, in columns.

        What another batch has brought must have been taken.
        """
        assert self.batch is batch or self.is_empty
        self.batch, self._hops = batch, hops
        self._rows.append((number, rows))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is on its way."""
        return not self._outgoing and not self._rows

    def _columns(self) -> DeliveredBatch:
        """What leaves in columns: the events that anybody wants, once each."""
        import numpy as np

        assert self.batch is not None
        union = np.unique(np.concatenate([rows for _, rows in self._rows]))
        wanted = tuple(
            (number, np.searchsorted(union, rows).astype(PLACE_TYPE).tobytes())
            for number, rows in self._rows
        )
        part = for_subscriber(self.batch.part(union), with_token=self.tells_tokens)
        return DeliveredBatch(part, wanted, self._hops)

    def taken(self) -> list[Delivered | DeliveredAgain | DeliveredBatch]:
        """The messages, in their order; the outbox is empty from now on."""
        messages: list[Delivered | DeliveredAgain | DeliveredBatch] = []
        if self.batch is not None:
            if self._rows:
                messages.append(self._columns())
                self._rows = []
            self._outgoing.sort(key=_PLACE)
            self.batch = None
            self._events, self._places, self._of_batch = {}, {}, {}
        outgoing, self._outgoing, self.size = self._outgoing, [], 0
        messages += [
            (DeliveredAgain if each.publication.again and self.tells_again else Delivered)(
                for_subscriber(each.publication, with_token=self.tells_tokens),
                tuple(each.numbers),
                each.hops,
                tuple(each.positions) if each.is_durable else (),
            )
            for each in outgoing
        ]
        return messages
