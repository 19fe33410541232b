"""Leaving: a member goes, and those below it find their places first.

* In an equivalence class a leaf below the leaver takes its place (leaf promotion): it attaches
  where the leaver stands, and the leaver hands all others to it.
* Else those below are handed to the one above, where each looks for its place (`moving`): their
  grandparent contains them, and so may somebody below it.
* A crown names another crown first.

The leaver forwards events until all below it have moved and the time is over in which an event may
still be under way to them, or until `leave_ms` have passed.
"""

from __future__ import annotations

from peersub.overlays.containment.crown import Crown
from peersub.overlays.containment.messages import Handed, NodesLost, Promote
from peersub.overlays.containment.moving import Moving
from peersub.overlays.containment.seat import Seat
from peersub.overlays.containment.siblings import Siblings
from peersub.overlays.containment.structure import EdgeKind
from peersub.overlays.core.identity import PeerId
from peersub.overlays.semantic.messages import MemberGone

__all__ = ["Leaving"]


class Leaving:
    """What one member does to leave."""

    def __init__(self, seat: Seat, moving: Moving, crown: Crown, siblings: Siblings) -> None:
        self._seat = seat
        self._moving = moving
        self._crown = crown
        self._siblings = siblings
        self._heir: PeerId | None = None
        self._until_ms = 0
        self.attempts = 0

    def begin(self) -> None:
        """Take leave."""
        seat = self._seat
        if seat.is_leaving:
            return
        seat.is_leaving = True
        self._pass_on_losses()
        if not seat.down:
            self.end()
            return
        self._until_ms = seat.host.now_ms + seat.settings.leave_ms
        seat.tell_departing()
        self._try()

    def _pass_on_losses(self) -> None:
        """If the node leaves, somebody else is to look for the nodes that it lost."""
        seat = self._seat
        nodes = seat.host.losses_of_leaver()
        others = [seat.up.peer] if seat.up is not None else list(seat.own_heirs())
        for other in others[:1]:
            if nodes and other.node != seat.me.node:
                seat.send(other, NodesLost(other.slot, seat.me.slot, nodes))

    def _try(self) -> None:
        """Do what is needed for those below to go."""
        seat = self._seat
        seat.host.set_timer("leave", seat.me, min(seat.settings.join_ms, seat.settings.leave_ms))
        equals = seat.below(EdgeKind.EQUAL)
        if self._heir is not None:
            self.hand_over(self._heir)
        elif equals and not self.attempts:
            above, kind = (None, EdgeKind.EQUAL)
            if seat.up is not None:
                above, kind = seat.up.peer, seat.up.kind
            seat.send(equals[0], Promote(equals[0].slot, seat.me.slot, seat.me, kind, above))
        elif seat.is_crown:
            self._crown.abdicate(self.attempts)
        else:
            self.hand_over(None if seat.up is None else seat.up.peer)

    def on_leave_timer(self) -> None:
        """Some are still below: try again, or go all the same."""
        if self._seat.is_leaving and self._seat.host.now_ms >= self._until_ms:
            self.end()
        elif self._seat.is_leaving:
            self.attempts += 1
            self._try()

    def on_promoted(self, sender: PeerId) -> None:
        """Somebody has taken the place of this one."""
        self._heir = sender
        self.hand_over(sender)

    def on_handed(self, sender: PeerId, instead: PeerId | None) -> None:
        """The one above leaves as well: those below had better go elsewhere.

        Only the one above: two that leave may each be among those below the other, one of them by
        an edge from before, and would hand each other over without end.
        """
        up = self._seat.up
        if instead is not None and self._heir is None and up is not None and up.peer == sender:
            self.hand_over(instead)

    def hand_over(self, to: PeerId | None) -> None:
        """Name another to all below."""
        seat = self._seat
        has_place = seat.up is not None and seat.up.kind is EdgeKind.TOP
        if has_place and self._heir is None:
            seat.hand_over_top()
        for peer, edge in seat.down.items():
            if edge.kind is not EdgeKind.TOP or not has_place or self._heir is not None:
                instead = None if to == peer else to
                seat.send(peer, Handed(peer.slot, seat.me.slot, instead))

    def after_fewer_below(self) -> None:
        """Somebody below has gone: perhaps the last."""
        if self._seat.is_leaving and not self._seat.down:
            self.end()

    def on_up_lost(self) -> None:
        """Without one above there is nobody to hand those below to: they find their own way."""
        self.end()

    def end(self) -> None:
        """Go; from a list of siblings only when what is under way in it has been passed on."""
        seat = self._seat
        if seat.has_left:
            return
        seat.has_left = True
        self._moving.stop()
        if seat.up is not None:
            seat.detach(seat.up)
        for above, _ in seat.former_ups.values():
            seat.detach(above)
        for peer in list(seat.down):
            seat.send(peer, MemberGone(peer.slot, seat.me.slot))
        seat.up = None
        seat.former_ups.clear()
        seat.down.clear()
        seat.is_crown = False
        if self._siblings.neighbours():
            seat.host.set_timer("gone", seat.me, seat.settings.overlap_ms)
        else:
            seat.host.gone(seat.me)

    def on_gone_timer(self) -> None:
        """Nothing is under way any more."""
        if self._seat.has_left:
            self._seat.host.gone(self._seat.me)
