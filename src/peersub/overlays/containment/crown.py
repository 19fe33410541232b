"""The crown: who stands above all, who follows it, and how two trees become one.

* A network begins with the keeper of its first node as the crown. A keeper makes the first member
  that comes the crown, and stands below it from then on: so the crown is a keeper only while
  nobody subscribes to anything, and there is always somebody to turn to.
* *Promotion*: a crown that leaves, or leaves the top level, names another one (`Promote`). That one
  is the crown at once (`Promoted`), and the former crown takes a place below it.
* *Two trees*: a node remembers nodes that it lost, and asks them for their crown now and then
  (`CrownSought`, to the keeper of the node, which climbs). The answer climbs to the own crown
  (`CrownFound`). Of two crowns the one with the larger address attaches below the other, a
  keeper below any member; so no two attach below each other. Then its top-level members look for
  containers in the other tree (`Reconsider`).
"""

from __future__ import annotations

from dataclasses import replace

from peersub.overlays.containment.messages import (
    CrownFound,
    CrownSought,
    Handed,
    Promote,
    Promoted,
    Reconsider,
)
from peersub.overlays.containment.moving import Moving, Purpose
from peersub.overlays.containment.probing import CLIMB_MAX
from peersub.overlays.containment.seat import KEEPER_SLOT, Seat
from peersub.overlays.containment.structure import EdgeKind
from peersub.overlays.core.identity import PeerId

__all__ = ["Crown"]


class Crown:
    """What one member does as a crown, as an heir, and as one of two crowns."""

    def __init__(self, seat: Seat, moving: Moving) -> None:
        self._seat = seat
        self._moving = moving
        self._successor: PeerId | None = None

    # --- promotion -----------------------------------------------------------------------------

    def abdicate(self, attempt: int) -> None:
        """Name another crown: an heir, or, if those do not answer, the keeper of the node."""
        seat = self._seat
        heirs = seat.own_heirs()
        keeper = seat.host.keeper_address()
        if attempt and keeper is not None and keeper != seat.me:
            self.name_heir(keeper)
        elif heirs:
            self.name_heir(heirs[attempt % len(heirs)])

    def give_up(self) -> None:
        """A keeper is the crown only as long as there is nobody else."""
        seat = self._seat
        # A keeper that was the crown until now, and has others below it, is no reason to give up.
        heirs = seat.members_on_top(seat.me)
        if seat.is_keeper and seat.is_crown and heirs:
            self.name_heir(heirs[0])
            seat.host.set_timer("crown", seat.me, seat.settings.join_ms)

    def name_heir(self, heir: PeerId) -> None:
        """Make a member the crown."""
        seat = self._seat
        seat.send(heir, Promote(heir.slot, seat.me.slot, seat.me, EdgeKind.TOP))

    def on_promote(self, sender: PeerId, message: Promote) -> None:
        """Take the place of one that leaves it; within a class a leaf does."""
        seat = self._seat
        if not seat.is_keeper and (seat.up is None or seat.up.peer != sender):
            # It has a place elsewhere, where the leaver may stand as well.
            if seat.is_seated and not seat.is_leaving and message.above is None:
                self._tell_promoted(message.leaver)
            return
        if seat.is_leaving:
            heirs = [peer for peer in seat.own_heirs() if peer != message.leaver]
            if heirs and message.hops < CLIMB_MAX:
                heir, hops = heirs[0], message.hops + 1
                seat.send(heir, replace(message, to=heir.slot, sender=seat.me.slot, hops=hops))
            return
        if seat.is_crown:
            return
        if message.edge is not EdgeKind.TOP or message.above is not None:
            leaves = seat.below(EdgeKind.EQUAL)
            if leaves and message.hops < CLIMB_MAX:
                leaf, hops = leaves[0], message.hops + 1
                seat.send(leaf, replace(message, to=leaf.slot, sender=seat.me.slot, hops=hops))
                return
        if message.above is None:
            others = [peer for peer in seat.below(EdgeKind.TOP) if peer != message.leaver]
            is_free_to_choose = message.leaver.slot != KEEPER_SLOT and message.hops < CLIMB_MAX
            if seat.is_vacating and others and is_free_to_choose:
                # Two that are about to leave the top level would make each other the crown.
                heir, hops = others[0], message.hops + 1
                seat.send(heir, replace(message, to=heir.slot, sender=seat.me.slot, hops=hops))
                return
            seat.is_vacating = False
            if seat.up is not None and seat.up.peer != sender:
                seat.host.remember(seat.up.peer.node)
            if seat.is_keeper:
                # Rare, and there may be another part of the network that the leaver looked for.
                for other in seat.host.contacts():
                    seat.host.remember(other.node)
            self._moving.stop()
            seat.become_crown()
            self._tell_promoted(message.leaver)
        else:
            self._moving.take_place_of(message.leaver, message.above, message.edge)

    def _tell_promoted(self, leaver: PeerId) -> None:
        self._seat.send(leaver, Promoted(leaver.slot, self._seat.me.slot))

    def on_place_taken(self, leaver: PeerId) -> None:
        """The place of one that leaves was given to this one."""
        self._tell_promoted(leaver)

    def on_promoted(self, sender: PeerId) -> None:
        """Another is the crown now: stand below it."""
        seat = self._seat
        if self._successor is not None and self._successor != sender:
            # Two were named, the first being on its way out: they are to find each other.
            seat.host.remember(sender.node)
            seat.host.remember(self._successor.node)
        self._successor = sender
        if not seat.is_crown:
            return
        # Until it has its place there it goes on as before: those below it stay where they are.
        kind = EdgeKind.VISIT if seat.is_keeper else EdgeKind.TOP
        self._moving.move_below(sender, kind, Purpose.MERGE)
        if seat.is_keeper:
            for peer in seat.down:
                if peer != sender:
                    seat.send(peer, Handed(peer.slot, seat.me.slot, sender))

    # --- two crowns ----------------------------------------------------------------------------

    def on_crown_sought(self, message: CrownSought) -> None:
        """Somebody asks who the crown is."""
        seat = self._seat
        if seat.is_crown:
            seeker = message.seeker
            found = CrownFound(seeker.slot, seat.me.slot, seat.me, seat.is_keeper, message.node)
            seat.send(seeker, found)
        elif seat.up is not None and message.hops < CLIMB_MAX:
            above = seat.up.peer
            hops = message.hops + 1
            seat.send(above, replace(message, to=above.slot, sender=seat.me.slot, hops=hops))

    def on_crown_found(self, message: CrownFound) -> None:
        """There may be another crown."""
        seat = self._seat
        if message.node and not message.hops:
            seat.host.answered(message.node)
        if not seat.is_crown:
            if seat.up is not None and message.hops < CLIMB_MAX:
                above = seat.up.peer
                hops = message.hops + 1
                seat.send(above, replace(message, to=above.slot, sender=seat.me.slot, hops=hops))
            return
        other = message.crown
        if other == seat.me or seat.is_leaving:
            return
        if (message.is_keeper, other) < (seat.is_keeper, seat.me):
            if self._moving.purpose in (None, Purpose.IMPROVE):
                kind = EdgeKind.VISIT if seat.is_keeper else EdgeKind.TOP
                self._moving.move_below(other, kind, Purpose.MERGE)
        else:
            seat.send(other, CrownFound(other.slot, seat.me.slot, seat.me, seat.is_keeper))

    def on_merged(self) -> None:
        """Look for containers in the tree of the crown that this one stands below now."""
        self.on_reconsider()

    def on_reconsider(self) -> None:
        """From above: the tree has grown."""
        seat = self._seat
        for peer in seat.below(EdgeKind.TOP):
            seat.send(peer, Reconsider(peer.slot, seat.me.slot))
        self._moving.wants_better = True
        self._moving.improve_if_wanted()
