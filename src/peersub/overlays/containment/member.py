"""`Member`: one filter of a node, or its keeper, in the tree. It hands messages to who knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peersub.filters.filter import Filter
from peersub.overlays.containment import messages as said
from peersub.overlays.containment.crown import Crown
from peersub.overlays.containment.giving import Giving
from peersub.overlays.containment.leaving import Leaving
from peersub.overlays.containment.moving import Moving, Purpose
from peersub.overlays.containment.probing import Probing
from peersub.overlays.containment.reorganising import Reorganising
from peersub.overlays.containment.routing import Routing
from peersub.overlays.containment.seat import Host, Seat, is_meant
from peersub.overlays.containment.siblings import Siblings
from peersub.overlays.containment.structure import EdgeKind
from peersub.overlays.core.identity import PeerId

__all__ = ["Member"]


class Member:
    """A member of the tree."""

    def __init__(self, me: PeerId, wanted: Filter | None, host: Host) -> None:
        self.me = me
        self.seat = Seat(me, wanted, host)
        self.probing = Probing(self.seat)
        self.giving = Giving(self.seat)
        self.moving = Moving(self.seat)
        self.crown = Crown(self.seat, self.moving)
        self.siblings = Siblings(self.seat)
        self.leaving = Leaving(self.seat, self.moving, self.crown, self.siblings)
        self.reorganising = Reorganising(self.seat, self.moving)
        self.routing = Routing(self.seat, self.siblings)
        self.subscriptions: dict[str, None] = {}
        """Of the node, those that want what this member does."""

    def needs(self, node: str) -> bool:
        """Whether it needs the link to a node."""
        return (
            any(peer.node == node for peer in self.seat.neighbours())
            or any(peer.node == node for peer in self.siblings.neighbours())
            or self.moving.waits_for(node)
            or self.probing.waits_for(node)
        )

    def describe(self) -> Mapping[str, Any]:
        """The place as plain values."""
        seat = self.seat
        up = None if seat.up is None else f"{seat.up.kind.name.lower()} {seat.up.peer}"
        return {
            "ancestors": [str(peer) for peer in seat.ancestors],
            "below": {str(peer): edge.kind.name.lower() for peer, edge in seat.down.items()},
            "filter": None if seat.wanted is None else seat.wanted.text,
            "former": sorted(str(peer) for peer in seat.former_ups),
            "path": [str(peer) for peer in seat.path],
            "search": self.moving.describe(),
            "state": self._state(),
            "up": up,
        }

    def _state(self) -> str:
        seat = self.seat
        if seat.is_leaving:
            return f"leaving {self.leaving.attempts}"
        if seat.is_vacating:
            return f"vacating {self.moving.vacations}"
        if seat.is_crown:
            return "crown"
        return "seated" if seat.is_seated else "looking"

    # --- causes --------------------------------------------------------------------------------

    def on_timer(self, purpose: str) -> None:
        """Time has passed."""
        match purpose:
            case "move":
                self.moving.on_move_timer()
            case "overlap":
                self.seat.on_overlap_timer()
                self.seat.host.set_timer("lists", self.me, self.seat.settings.overlap_ms + 1)
            case "lists":
                self.siblings.forget_former()
            case "siblings":
                self.siblings.on_siblings_timer()
            case "vacate":
                self.moving.on_vacate_timer()
            case "crown":
                self.crown.give_up()
            case "crowded":
                self.giving.on_crowded_timer()
            case "gone":
                self.leaving.on_gone_timer()
            case "leave":
                self.leaving.on_leave_timer()
        self.moving.be_a_visitor()

    def on_lost(self, lost: PeerId, now_ms: int) -> None:
        """A member, or all of a node, cannot be reached any more."""
        seat = self.seat
        gone = [peer for peer in seat.down if is_meant(peer, lost)]
        for peer in gone:
            self._remove_below(peer)
        for peer in [peer for peer in seat.former_ups if is_meant(peer, lost)]:
            del seat.former_ups[peer]
            if seat.is_crown:
                # Whoever made it the crown may not have told the others.
                for other in seat.host.contacts():
                    seat.host.remember(other.node)
        self.probing.on_lost(lost)
        self.siblings.on_lost(lost)
        is_up_lost = seat.up is not None and is_meant(seat.up.peer, lost)
        if (gone or is_up_lost) and not lost.slot:
            seat.host.remember(lost.node)
        if is_up_lost:
            seat.lose_up()
            if seat.is_leaving:
                self.leaving.on_up_lost()
                return
            self.moving.repair()
        else:
            self.moving.on_lost(lost)

    def _remove_below(self, peer: PeerId, number: int | None = None) -> None:
        if self.seat.remove_below(peer, number):
            self.siblings.arrange()
            self.moving.after_fewer_below()
            self.leaving.after_fewer_below()

    # --- messages ------------------------------------------------------------------------------

    def on_message(self, sender: PeerId, message: Any, now_ms: int) -> None:
        """Another member says something."""
        match message:
            case said.Forwarded():
                self.routing.on_forwarded(sender, message)
            case said.Ancestry():
                if not self.seat.on_ancestry(sender, message):
                    self.moving.repair()
            case said.Probe():
                self.probing.on_probe(sender, message)
            case said.ProbeAnswer():
                self.probing.on_probe_answer(sender, message)
            case said.JoinRequest():
                self.probing.on_join_request(message)
            case said.Found():
                self.moving.on_found(sender, message)
                self.moving.improve_if_wanted()
            case said.PlaceWanted():
                self._on_attach(sender, message)
            case said.PlaceGiven():
                self._on_attached(sender, message)
            case said.Redirected():
                self.moving.on_redirected(message)
            case said.Detach(_, _, number):
                self._remove_below(sender, number)
            case _:
                self._on_rare_message(sender, message)

    def _on_rare_message(self, sender: PeerId, message: Any) -> None:
        match message:
            case said.Handed():
                self.moving.on_handed(sender, message)
                if self.seat.is_leaving:
                    self.leaving.on_handed(sender, message.instead)
            case said.Departing(_, _, departs):
                self.seat.on_departing(sender, departs)
                self.crown.give_up()
            case said.NodesLost(_, _, nodes):
                for node in nodes:
                    self.seat.host.remember(node)
            case said.Promote():
                self.crown.on_promote(sender, message)
            case said.Promoted():
                if self.seat.is_leaving:
                    self.leaving.on_promoted(sender)
                self.crown.on_promoted(sender)
            case said.CrownSought():
                self.crown.on_crown_sought(message)
            case said.CrownFound():
                self.crown.on_crown_found(message)
            case said.Reconsider():
                if self.seat.up is not None and self.seat.up.peer == sender:
                    self.crown.on_reconsider()
            case said.Reorganise():
                self.reorganising.on_reorganise(sender, message)
            case said.SiblingsAre():
                self.siblings.on_siblings(sender, message)
            case said.SiblingsKnown():
                self.siblings.on_known(sender, message)
            case said.Deepened():
                self.reorganising.on_deepened(sender, message)

    def _on_attach(self, sender: PeerId, message: said.PlaceWanted) -> None:
        if self.giving.on_attach(sender, message):
            self.siblings.arrange()
            self.crown.give_up()

    def _on_attached(self, sender: PeerId, message: said.PlaceGiven) -> None:
        was_crown = self.seat.is_crown
        sat_down = self.moving.on_attached(sender, message)
        if sat_down is None:
            return
        purpose, leaver = sat_down
        if leaver is not None:
            self.crown.on_place_taken(leaver)
        if message.edge is EdgeKind.EQUAL:
            # Only the root of a class has children.
            for peer in self.seat.below(EdgeKind.CHILD):
                self.seat.send(peer, said.Handed(peer.slot, self.me.slot, sender))
        if self.seat.is_keeper:
            # Nobody stands below a keeper that is not the crown.
            for peer in self.seat.down:
                if peer != sender:
                    self.seat.send(peer, said.Handed(peer.slot, self.me.slot, sender))
        if was_crown and purpose is Purpose.MERGE:
            self.crown.on_merged()
        if self.seat.is_vacating:
            self.moving.vacate()
            self.moving.after_fewer_below()
        self.reorganising.on_seated(purpose)
        self.moving.improve_if_wanted()
