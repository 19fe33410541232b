"""Publishing: where the events of a node begin their way.

At a member of the node that wants them; else they climb from the node's keeper. Until the keeper
has a place they wait.
"""

from __future__ import annotations

from peersub.overlays.containment.member import Member
from peersub.overlays.containment.settings import ContainmentSettings
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.effects import Drop, PublishCompleted, PublishFailed
from peersub.overlays.core.outbox import Outbox
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.semantic.hosting import Hosting
from peersub.overlays.semantic.sample import SharedSample

__all__ = ["HELD_EVENTS_MAX", "Publishing"]

HELD_EVENTS_MAX = 1_024
"""Events that wait until the node has its place."""

_BEST_EFFORT_ONLY = "containment promises best effort only: use chord for at-least-once"


class Publishing:
    """What a node does with the events that are published on it."""

    def __init__(
        self,
        settings: ContainmentSettings,
        hosting: Hosting[Member],
        keeper: Member,
        sample: SharedSample,
        out: Outbox,
    ) -> None:
        self._hosting = hosting
        self._keeper = keeper
        self._sample = sample
        self._learns = settings.needs_sample and settings.sampling.sample_learns
        self._out = out
        self._held: list[Publication] = []

    def publish(self, publication: Publication) -> None:
        """An event is published."""
        if publication.delivery is Delivery.AT_LEAST_ONCE:
            self._out.emit(PublishFailed.of(publication, _BEST_EFFORT_ONLY))
            return
        self._route(publication)
        self._out.emit(PublishCompleted.of(publication))

    def publish_batch(self, batch: Batch) -> None:
        """Members look at events one by one; those of a batch end together."""
        if batch.delivery is Delivery.AT_LEAST_ONCE:
            self._out.emit(PublishFailed.of(batch, _BEST_EFFORT_ONLY))
            return
        for publication in batch.publications():
            self._route(publication)
        self._out.emit(PublishCompleted.of(batch))

    def publish_held(self) -> None:
        """The keeper has a place: what has waited for it goes out."""
        held, self._held = self._held, []
        for publication in held:
            self._route(publication)

    def _route(self, publication: Publication) -> None:
        """Begin at a member of this node that matches; else climb from the keeper."""
        if self._learns:
            self._sample.add(publication)
        for member in self._hosting.members.values():
            seat = member.seat
            if seat.is_seated and not seat.is_leaving and member.routing.matches(publication):
                member.routing.publish(publication)
                return
        if self._keeper.seat.is_seated:
            self._keeper.routing.publish(publication)
        elif len(self._held) < HELD_EVENTS_MAX:
            self._held.append(publication)
        else:
            self._out.emit(Drop("too many events wait for a place of the node", publication.id))
