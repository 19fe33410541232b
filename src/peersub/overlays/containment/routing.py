"""Routing: a member passes an event on by what it wants itself, and by nothing else.

A member that gets an event for the first time passes it on, never back to where it came from:

* over TOP edges always (correction 1: own interest would cut off all that is behind);
* over CHILD and EQUAL edges, up and down, if its own filter matches;
* upwards also while the event climbs: from a publisher that does not match, to the first member
  that does, or to the top level (correction 2);
* to the keepers of nodes never.

A member with many children gives the event to one of them, and they pass it on (`siblings`): an
event that comes along a list of siblings has come from their parent, as far as this goes.

A member that moves has two upward edges for a while, and gets events over both: the second copy
ends at the history of its node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from peersub.overlays.containment.messages import Direction, Forwarded
from peersub.overlays.containment.seat import Seat
from peersub.overlays.containment.siblings import Siblings
from peersub.overlays.containment.structure import EdgeKind
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Publication

__all__ = ["Routing"]


class Routing:
    """What one member does with events."""

    def __init__(self, seat: Seat, siblings: Siblings) -> None:
        self._seat = seat
        self._siblings = siblings

    def matches(self, publication: Publication) -> bool:
        """Whether this member wants the event."""
        wanted = self._seat.wanted
        return wanted is not None and publication.matches(wanted)

    def publish(self, publication: Publication) -> None:
        """An event begins its way here."""
        me = self._seat.me
        self._pass_on(None, Forwarded(publication, me.slot, me.slot, 0, climbs=True))

    def on_forwarded(self, sender: PeerId, message: Forwarded) -> None:
        """An event comes from a neighbour."""
        if message.list_of is not None:
            self._pass_along(sender, message, message.list_of, message.direction)
        self._pass_on(sender, message)

    def _send(self, to: PeerId, message: Forwarded) -> None:
        me = self._seat.me
        hops = message.hops + (to.node != me.node)
        self._seat.send(to, replace(message, to=to.slot, sender=me.slot, hops=hops))

    def _pass_along(
        self, sender: PeerId | None, message: Forwarded, parent: PeerId, direction: Direction
    ) -> None:
        """On in the list of siblings, whether the event is wanted, or was seen, or not."""
        seat = self._seat
        if seat.host.is_new_in_list(seat.me, parent, message.publication):
            for peer, way in self._siblings.next_ones(parent, direction):
                if peer != sender:
                    plain = replace(message, climbs=False, listed=0)
                    self._send(peer, replace(plain, list_of=parent, direction=way))

    def _pass_on(self, sender: PeerId | None, message: Forwarded) -> None:
        seat, publication = self._seat, message.publication
        if not seat.host.is_new(seat.me, publication, expected=message.list_of is not None):
            return
        is_match = self.matches(publication)
        if is_match:
            seat.host.deliver(seat.me, publication, message.hops)
        # Who gives an event to a list of siblings is their parent.
        came_from = sender if message.list_of is None else message.list_of
        plain = replace(message, climbs=False, list_of=None, direction=Direction.BOTH, listed=0)
        for peer, kind in list(seat.ups()):
            if peer != came_from and (kind is EdgeKind.TOP or is_match or message.climbs):
                climbs = message.climbs and not is_match and kind is not EdgeKind.TOP
                listed = self._siblings.version_below(peer) if is_match else 0
                self._send(peer, replace(plain, climbs=climbs, listed=listed))
                if listed:
                    self._pass_along(None, plain, peer, Direction.BOTH)
        for peer in self._below(came_from, is_match, message):
            self._send(peer, plain)
        if is_match and self._siblings.has_list:
            self._begin_list(came_from, message, plain)

    def _below(
        self, came_from: PeerId | None, is_match: bool, message: Forwarded
    ) -> Iterator[PeerId]:
        """Those below that get the event from here."""
        has_list = self._siblings.has_list
        for peer, edge in self._seat.down.items():
            if peer == came_from or edge.kind is EdgeKind.VISIT:
                continue
            if edge.kind is EdgeKind.CHILD and has_list:
                continue
            if is_match or edge.kind is EdgeKind.TOP:
                yield peer

    def _begin_list(self, came_from: PeerId | None, message: Forwarded, plain: Forwarded) -> None:
        """Give the event to one of the children, unless one of them has begun already."""
        if came_from is None or not self._siblings.has_begun(came_from, message.listed):
            first = self._siblings.first(message.publication.id)
            self._send(first, replace(plain, list_of=self._seat.me))
