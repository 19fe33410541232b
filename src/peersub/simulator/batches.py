"""Batches in a simulation: nodes handle them as such, everybody else sees single events.

Observers, checkers and counters know events, each with its publication, its deliveries and its end.
So what a node is told and does is told on event by event: PublishBatch as Publish, DeliverBatch as
a Deliver for each event, the end of a batch as the end of each of its events. Only messages stay
what they are, because they are what a run costs. What was published is kept here as it was before
it became columns, and compared with what is handed over: nobody else would see a value change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from peersub.events.envelope import content_hash
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.causes import Cause, Publish, PublishBatch
from peersub.overlays.core.effects import (
    Deliver,
    DeliverBatch,
    Effect,
    PublishCompleted,
    PublishFailed,
)
from peersub.overlays.core.event_keys import split_event_id
from peersub.overlays.core.publication import Delivery, Publication

__all__ = ["Batches", "batch_of_publications"]


def batch_of_publications(batch_id: str, publications: Sequence[Publication]) -> Batch:
    """The batch of these events, which all have the same promise.

    Raises:
        ValueError: they do not fit into columns, or are too many.
    """
    import pyarrow as pa

    from peersub.events.arrow import table_of_rows

    bodies = None
    if any(each.body is not None for each in publications):
        bodies = pa.array([each.body for each in publications], pa.binary())
    table = table_of_rows([each.attributes for each in publications])
    return Batch.of(batch_id, table, bodies, publications[0].delivery)


class Batches:
    """The batches that were published in a simulation."""

    def __init__(self) -> None:
        self._published: dict[str, tuple[Publication, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._published)

    def published(self, batch_id: str, publications: Sequence[Publication]) -> PublishBatch:
        """The cause that hands these events to a node; they are known from now on."""
        assert batch_id not in self._published, f"{batch_id} was published before"
        self._published[batch_id] = tuple(publications)
        return PublishBatch(batch_of_publications(batch_id, publications))

    def cause_told(self, cause: Cause) -> Cause:
        """The cause as observers see it."""
        return Publish(self._published[cause.batch.id]) if type(cause) is PublishBatch else cause

    def effects_told(self, effects: Sequence[Effect]) -> list[Effect]:
        """The effects as observers see them."""
        return [told for effect in effects for told in self._told(effect)]

    def _told(self, effect: Effect) -> Iterator[Effect]:
        match effect:
            case DeliverBatch():
                yield from self._deliveries(effect)
            case Deliver(publication):
                self._compare(publication)
                yield effect
            case PublishCompleted(batch_id) if batch_id in self._published:
                yield from (PublishCompleted(each.id) for each in self._published[batch_id])
            case PublishFailed(batch_id, reason) if batch_id in self._published:
                yield from (PublishFailed(each.id, reason) for each in self._published[batch_id])
            case _:
                yield effect

    def _deliveries(self, effect: DeliverBatch) -> Iterator[Deliver]:
        wanting: dict[int, list[str]] = {}
        for name, rows in effect.wanted:
            for row in rows.tolist():
                wanting.setdefault(row, []).append(name)
        for row, publication in enumerate(effect.batch.publications()):
            if row in wanting:
                self._compare(publication)
                yield Deliver(publication, tuple(wanting[row]), effect.hops, effect.again)

    def _compare(self, came: Publication) -> None:
        """What came of a batch, in it or alone, is what was published."""
        batch_id, number = split_event_id(came.id) or ("", 0)
        events = self._published.get(batch_id)
        if events is not None:
            before, after = _content(events[number]), _content(came)
            assert before == after, f"{came.id} was {events[number].event}, came as {came.event}"


def _content(publication: Publication) -> tuple[str, bytes | None, Delivery]:
    return content_hash(publication.attributes), publication.body, publication.delivery
