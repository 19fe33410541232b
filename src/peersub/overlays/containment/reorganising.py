"""Reorganisation: who is better off below a newcomer moves there.

* "local": the newcomer's parent asks its other children; at the top level the question goes from
  the crown along TOP edges.
* "always", and "sometimes" for a share of the newcomers: the question climbs to the crown and goes
  down the whole tree (`Reorganise`). It stops at whoever the newcomer contains, since everybody
  below stands below a better parent already. (That no event can match both would be no reason:
  what nobody can match is contained in all.) Who moved is deeper, and all below it are
  (`Deepened`): each of them asks the same, until nobody moves.
* "periodic": now and then a share of the members joins anew (`Moving.improve`, called by the node).

A question may be confined to the part of the tree below the newcomer's parent.
"""

from __future__ import annotations

from dataclasses import replace

from peersub.overlays.containment.messages import Candidate, Deepened, Reorganise
from peersub.overlays.containment.moving import Moving, Purpose
from peersub.overlays.containment.probing import CLIMB_MAX
from peersub.overlays.containment.ranking import is_better
from peersub.overlays.containment.seat import Seat
from peersub.overlays.containment.structure import EdgeKind
from peersub.overlays.core.draws import draw_share
from peersub.overlays.core.identity import PeerId

__all__ = ["Reorganising"]


class Reorganising:
    """What one member does about newcomers, and as one."""

    def __init__(self, seat: Seat, moving: Moving) -> None:
        self._seat = seat
        self._moving = moving

    # --- as a newcomer -------------------------------------------------------------------------

    def on_seated(self, purpose: Purpose) -> None:
        """Ask those who may be better off below this one, now that it has a place."""
        seat = self._seat
        if seat.up is None or seat.is_keeper or seat.up.kind is EdgeKind.EQUAL:
            return
        mode = seat.settings.reorganise
        if mode == "local" and purpose is Purpose.JOIN:
            self._ask_around()
        elif mode == "always" and purpose in (Purpose.JOIN, Purpose.IMPROVE):
            self._ask_all()
        elif mode == "sometimes":
            me = seat.me
            drawn = draw_share(
                seat.host.seed, "containment/sometimes", me.node, me.incarnation, me.slot
            )
            if purpose is Purpose.IMPROVE or (
                purpose is Purpose.JOIN and drawn < seat.settings.share
            ):
                self._ask_all()

    def _question(self, to: PeerId, depth_here: int) -> Reorganise:
        seat = self._seat
        assert seat.wanted is not None
        matches = seat.host.matches(seat.wanted)
        return Reorganise(
            to.slot, seat.me.slot, seat.me, seat.wanted, self._moving.depth, matches, depth_here
        )

    def _ask_around(self) -> None:
        """Ask the parent's other children, or the top level."""
        seat = self._seat
        assert seat.up is not None
        seat.send(seat.up.peer, self._question(seat.up.peer, 0))

    def _ask_all(self) -> None:
        """Ask everybody, and let those below do the same."""
        seat = self._seat
        assert seat.up is not None
        depth = self._moving.depth
        if depth:
            seat.send(seat.up.peer, self._question(seat.up.peer, 0))
            for peer in seat.below(EdgeKind.CHILD):
                seat.send(peer, Deepened(peer.slot, seat.me.slot, depth + 1))

    def on_deepened(self, sender: PeerId, message: Deepened) -> None:
        """All above this one have moved down."""
        seat = self._seat
        if seat.up is not None and seat.up.peer == sender:
            self._moving.depth = message.depth
            self._ask_all()

    # --- as one of the others ------------------------------------------------------------------

    def on_reorganise(self, sender: PeerId, message: Reorganise) -> None:
        """A newcomer asks: pass it on, and consider it."""
        seat = self._seat
        if message.depth_here:
            # Edges from before a move may lead in a circle: only the one above counts.
            if seat.up is not None and seat.up.peer == sender:
                self._consider(message)
        elif seat.settings.reorganise == "local" and message.newcomer in seat.below(EdgeKind.CHILD):
            self._pass_around(message)
        elif seat.is_crown or (seat.settings.confine and seat.contains(message.wanted)):
            self._consider(replace(message, depth_here=1))
        elif seat.up is not None and message.hops < CLIMB_MAX:
            above, hops = seat.up.peer, message.hops + 1
            seat.send(above, replace(message, to=above.slot, sender=seat.me.slot, hops=hops))

    def _pass_around(self, message: Reorganise) -> None:
        """From the newcomer's parent to its other children, which are at the same depth."""
        seat = self._seat
        for peer in seat.below(EdgeKind.CHILD):
            if peer != message.newcomer:
                here = message.depth
                seat.send(
                    peer, replace(message, to=peer.slot, sender=seat.me.slot, depth_here=here)
                )

    def _consider(self, message: Reorganise) -> None:
        """Move below the newcomer if that is better; else ask those below."""
        seat = self._seat
        newcomer, wanted = message.newcomer, message.wanted
        here = message.depth_here
        is_local = seat.settings.reorganise == "local"
        for peer in seat.below(EdgeKind.TOP):
            seat.send(peer, replace(message, to=peer.slot, sender=seat.me.slot))
        if newcomer == seat.me or seat.wanted is None:
            return
        if seat.is_contained_in(wanted):
            if not seat.contains(wanted):
                self._move_if_better(message)
            return
        if is_local:
            return
        for peer in seat.below(EdgeKind.CHILD):
            if peer != newcomer:
                passed = replace(message, to=peer.slot, sender=seat.me.slot, depth_here=here + 1)
                seat.send(peer, passed)

    def _move_if_better(self, message: Reorganise) -> None:
        seat = self._seat
        if self._moving.purpose is not None or seat.is_leaving or seat.is_vacating:
            self._moving.wants_better = True
            return
        newcomer, wanted = message.newcomer, message.wanted
        if seat.up is not None and seat.up.kind is EdgeKind.CHILD:
            above = seat.up
            assert above.wanted is not None
            if above.peer == newcomer:
                return
            offered = Candidate(newcomer, False, message.depth, 0, wanted.digest, message.matches)
            present = Candidate(
                above.peer,
                False,
                message.depth_here - 1,
                0,
                above.wanted.digest,
                seat.host.matches(above.wanted),
            )
            if is_better(offered, present, seat.settings):
                self._moving.move_below(
                    newcomer, EdgeKind.CHILD, Purpose.IMPROVE, message.depth + 1
                )
        elif seat.is_crown or seat.below(EdgeKind.TOP):
            self._moving.vacate()
        elif seat.up is not None and seat.up.kind is EdgeKind.TOP:
            self._moving.move_below(newcomer, EdgeKind.CHILD, Purpose.IMPROVE, message.depth + 1)
