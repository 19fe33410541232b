"""Routing: a member passes an event on by what it wants itself, and by nothing else.

A member that gets an event for the first time passes it on, never back to where it came from:

* over TOP edges always (correction 1: own interest would cut off all that is behind);
* over CHILD and EQUAL edges, up and down, if its own filter matches;
* upwards also while the event climbs: from a publisher that does not match, to the first member
  that does, or to the top level (correction 2);
* to the keepers of nodes never.

A member that moves has two upward edges for a while, and gets events over both: the second copy
ends at the history of its node.
"""

from __future__ import annotations

from collections.abc import Iterator

from peersub.overlays.containment.messages import Forwarded
from peersub.overlays.containment.seat import Seat
from peersub.overlays.containment.structure import EdgeKind
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Publication

__all__ = ["Routing"]


class Routing:
    """What one member does with events."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat

    def matches(self, publication: Publication) -> bool:
        """Whether this member wants the event."""
        wanted = self._seat.wanted
        return wanted is not None and publication.matches(wanted)

    def publish(self, publication: Publication) -> None:
        """An event begins its way here."""
        self._pass_on(publication, None, 0, climbs=True)

    def on_forwarded(self, sender: PeerId, message: Forwarded) -> None:
        """An event comes from a neighbour."""
        self._pass_on(message.publication, sender, message.hops, climbs=message.climbs)

    def _pass_on(
        self, publication: Publication, sender: PeerId | None, hops: int, *, climbs: bool
    ) -> None:
        seat = self._seat
        if not seat.host.is_new(seat.me, publication.id):
            return
        is_match = self.matches(publication)
        if is_match:
            seat.host.deliver(seat.me, publication, hops)
        for peer, still_climbs in self._targets(is_match, climbs):
            if peer != sender:
                far = peer.node != seat.me.node
                seat.send(
                    peer,
                    Forwarded(publication, peer.slot, seat.me.slot, hops + far, still_climbs),
                )

    def _targets(self, is_match: bool, climbs: bool) -> Iterator[tuple[PeerId, bool]]:
        """Whom the event goes to, and whether it climbs there."""
        seat = self._seat
        for peer, kind in seat.ups():
            if kind is EdgeKind.TOP:
                yield peer, False
            elif is_match or climbs:
                yield peer, climbs and not is_match
        for peer, edge in seat.down.items():
            if edge.kind is EdgeKind.TOP or (is_match and edge.kind is not EdgeKind.VISIT):
                yield peer, False
