"""Keeping the ring in shape: neighbours, fingers, and links that nobody needs.

What happens at once, when members come or go (`after_change`): fingers that were lost are located
anew, and a successor list that has become short is filled up by asking its last entry for the
neighbourhood. What happens from time to time (`stabilise_ms`): the successor and the predecessor
are asked for their neighbourhoods, which brings together newcomers that missed each other, and one
finger is located again. A node whose predecessor does not serve it publishes node-join again. Whom
the node is linked with is kept on disk, for the next time it starts.

Departure from the paper: the successor list (`successor_list`) is filled up by asking its members,
not by publishing.

Links that are neither edge, successor list, predecessor nor publisher to either side are closed. A
side that has no use for a link says so, and may take it back; the other closes it if it agrees.
"""

from __future__ import annotations

from peersub.overlays.chord.locating import Locating
from peersub.overlays.chord.messages import LinkUnneeded, Neighbourhood, NeighbourhoodRequest
from peersub.overlays.chord.ring import Ring
from peersub.overlays.core.causes import Timer
from peersub.overlays.core.draws import draw_below
from peersub.overlays.core.effects import SetTimer
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.records import NeighboursStored

__all__ = ["FILL", "LINKS", "STABILISE", "UNNEEDED", "LinkUpkeep", "Stabilising"]

STABILISE = Timer("chord/stabilise")
LINKS = Timer("chord/links")
FILL = Timer("chord/fill")
STORED_MAX = 16
"""Neighbours that are kept on disk: those that follow."""
FILLS_MAX = 8
"""How often the list is filled up after one change; then it is left to the next round."""

UNNEEDED = "of no use to either side"
"""The reason of a disconnect that is no loss."""


class Stabilising:
    """The upkeep of one member's neighbourhood and fingers."""

    def __init__(self, ring: Ring, locating: Locating, seed: int) -> None:
        self._ring = ring
        self._engine = ring.engine
        self._locating = locating
        self._seed = seed
        self._is_waiting = False
        self._rounds = 0
        self._next_k = 0
        self.rounds_to_go = 0
        """Rounds until every finger has been located since the members last changed."""
        self._seen_shape: tuple[object, ...] = ()
        self._asked_last: PeerId | None = None
        self._is_filling = False
        self._fills = 0
        self.neighbours_stored: tuple[str, ...] = ()
        """What the disk has: whom to turn to after a restart."""

    def begin(self) -> None:
        """The peer is a member: look after it from now on."""
        self._asked_last = None
        self._wait()

    def _wait(self) -> None:
        period_ms = self._ring.settings.stabilise_ms
        if period_ms and not self._is_waiting:
            self._is_waiting = True
            me = self._ring.me
            # Not all at the same time: up to a quarter of the period later.
            about = (me.node, me.incarnation, self._rounds)
            late_ms = draw_below(period_ms // 4 + 1, self._seed, "stabilise", *about)
            self._engine.emit(SetTimer(STABILISE, period_ms + late_ms))

    def on_timer(self, now_ms: int) -> None:
        """A round."""
        self._is_waiting = False
        if not self._ring.is_member:
            return
        self._rounds += 1
        topology = self._ring.topology
        successor, predecessor = topology.successor, topology.predecessor
        if successor is not None and predecessor is not None:
            # The last of the list knows best who has come at its far end.
            last = self._ring.successor_list()[-1]
            for peer in dict.fromkeys((successor.peer, predecessor.peer, last.peer)):
                self._engine.send(peer, NeighbourhoodRequest())
            if predecessor.peer not in self._engine.publishers():
                self._locating.publish_join(now_ms)
            apart = self._locating.fingers_apart()
            if apart:
                self._next_k = (self._next_k + 1) % len(apart)
                self._locating.look_up_finger(apart[self._next_k], now_ms)
            self.rounds_to_go = max(0, self.rounds_to_go - 1)
            self._store_neighbours()
        self._asked_last = None
        self._fill_up()
        self._wait()

    def _store_neighbours(self) -> None:
        """Keep on disk whom this peer is linked with, if that has changed since the last round.

        A node that is alone keeps what it had: those are whom it looks for after a restart.
        """
        nodes = tuple(member.peer.node for member in self._ring.topology.known[:STORED_MAX])
        if nodes != self.neighbours_stored:
            self.neighbours_stored = nodes
            self._engine.home.persist(NeighboursStored(nodes))

    def after_change(self, now_ms: int) -> None:
        """The known members have changed."""
        lost, self._ring.lost_fingers = self._ring.lost_fingers, {}
        if not self._ring.is_member:
            return
        apart = self._locating.fingers_apart()
        for k in apart:
            if k in lost:
                self._locating.look_up_finger(k, now_ms)
        shape = self._shape()
        if shape != self._seen_shape:
            self._seen_shape = shape
            self._fills = 0
            self.rounds_to_go = len(apart) + 1 if self._ring.settings.stabilise_ms else 0
        self._fill_up()

    def _shape(self) -> tuple[object, ...]:
        topology = self._ring.topology
        return (*topology.edges(), *self._ring.successor_list(), topology.predecessor)

    def _fill_up(self) -> None:
        """Ask the last successor who follows it, if the list is short and nobody is on the way."""
        ring = self._ring
        if ring.is_dialling:
            return
        successors = ring.successor_list()
        if not successors or ring.following.is_complete:
            return
        last = successors[-1].peer
        if last != self._asked_last:
            self._asked_last = last
            self._engine.send(last, NeighbourhoodRequest())
        if not self._is_filling and self._fills < FILLS_MAX:
            self._is_filling = True
            self._engine.emit(SetTimer(FILL, ring.settings.lookup_ms))

    def on_fill_timer(self) -> None:
        """The one that was asked may have had a short list itself: ask again."""
        self._is_filling = False
        self._fills += 1
        self._asked_last = None
        if self._ring.is_member:
            self._fill_up()

    def on_neighbourhood_request(self, peer: PeerId) -> None:
        """Name those next to this peer."""
        if self._ring.is_member:
            self._engine.send(peer, Neighbourhood(*self._ring.neighbourhood()))

    def on_neighbourhood(self, peer: PeerId, message: Neighbourhood, now_ms: int) -> None:
        """Link to those named that this peer has a use for."""
        self._ring.settle()
        self._ring.learn_following(peer, message.successors, now_ms)
        self._ring.consider((*message.successors, *message.predecessors), now_ms)

    def refresh_fingers(self, now_ms: int) -> None:
        """Locate all fingers anew."""
        for k in self._locating.fingers_apart():
            self._locating.look_up_finger(k, now_ms)


class LinkUpkeep:
    """Closing links that neither side has a use for."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._engine = ring.engine
        self._is_waiting = False

    def look_later(self) -> None:
        """Links came, or lost their use: look through them after a while."""
        if not self._is_waiting and self._ring.is_member:
            self._is_waiting = True
            self._engine.emit(SetTimer(LINKS, self._ring.settings.link_idle_ms))

    def on_timer(self) -> None:
        """Say of links that were of no use twice in a row that they are not needed."""
        self._is_waiting = False
        ring = self._ring
        if not ring.is_member:
            return
        is_any_fresh = False
        needed = ring.needed()
        for link in list(ring.links.values()):
            if link.peer in needed:
                link.unused = False
            elif not link.unused:
                link.unused = is_any_fresh = True
            elif link.unneeded_there:
                ring.disconnect(link.peer, UNNEEDED)
            elif not link.unneeded_here:
                link.unneeded_here = True
                self._engine.send(link.peer, LinkUnneeded())
        if is_any_fresh:
            self.look_later()

    def on_link_unneeded(self, peer: PeerId) -> None:
        """The other side has no use for the link."""
        link = self._ring.links[peer]
        link.unneeded_there = True
        if link.unneeded_here and peer not in self._ring.needed():
            self._ring.disconnect(peer, UNNEEDED)
        else:
            self.look_later()

    def on_link_needed(self, peer: PeerId) -> None:
        """The other side has a use for the link again."""
        self._ring.links[peer].unneeded_there = False
