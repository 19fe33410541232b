"""Giving places: a member that is asked takes the asker, or names another that may.

* Only a member that knows its path takes anybody, and nobody that is on it (`seat`).
* EQUAL: filters are proven equivalent. TOP: both are top level. Who has room takes the newcomer;
  else it passes it to those below it in turn, so that both trees are balanced.
* CHILD: only the root of a class has children, and only of classes that it strictly contains. If a
  child is equivalent to the newcomer, or contains it, the newcomer is sent there: two that join at
  the same moment meet here.
* VISIT: the keeper of a node stands below anybody but another keeper, unless that is the crown.
"""

from __future__ import annotations

from peersub.overlays.containment.messages import Handed, PlaceGiven, PlaceWanted, Redirected
from peersub.overlays.containment.seat import Seat
from peersub.overlays.containment.structure import EdgeKind, contains
from peersub.overlays.core.identity import PeerId

__all__ = ["Giving"]


class Giving:
    """What one member does for those who ask for a place below it."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._passed_on: dict[EdgeKind, int] = {}

    def on_attach(self, sender: PeerId, message: PlaceWanted) -> bool:
        """Take the asker, or send it elsewhere; whether it was taken."""
        seat = self._seat
        elsewhere = self._elsewhere(sender, message)
        if elsewhere is not None:
            kind, instead = elsewhere
            nodes = seat.host.known_nodes() if instead is None else ()
            redirected = Redirected(sender.slot, seat.me.slot, message.number, kind, instead, nodes)
            seat.send(sender, redirected)
            return False
        seat.add_below(sender, message.edge, message.wanted, message.number)
        if message.is_leaving:
            seat.on_departing(sender, departs=True)
        told = seat.told(sender)
        attached = PlaceGiven(
            sender.slot,
            seat.me.slot,
            message.number,
            message.edge,
            seat.wanted,
            told.path,
            told.ancestors,
            told.heirs,
            seat.host.known_nodes(),
        )
        seat.send(sender, attached)
        if self._crowd(message.edge):
            seat.host.set_timer("crowded", seat.me, 2 * seat.settings.overlap_ms + 1)
        return True

    def _crowd(self, kind: EdgeKind) -> list[PeerId]:
        """Those that are too many below this one, for a while or for longer."""
        settings = self._seat.settings
        if kind is EdgeKind.EQUAL:
            return self._seat.below(kind)[settings.equal_degree :]
        return self._seat.below(kind)[settings.top_degree :] if kind is EdgeKind.TOP else []

    def on_crowded_timer(self) -> None:
        """Who came in the place of another that was to go, and did not, goes further down."""
        seat = self._seat
        for kind in (EdgeKind.EQUAL, EdgeKind.TOP):
            crowd = self._crowd(kind)
            first = seat.below(kind)[: -len(crowd)] if crowd else []
            for peer in crowd:
                seat.send(peer, Handed(peer.slot, seat.me.slot, self._next(kind, first)))
            if crowd:
                seat.host.set_timer("crowded", seat.me, 2 * seat.settings.overlap_ms + 1)

    def _elsewhere(
        self, sender: PeerId, message: PlaceWanted
    ) -> tuple[EdgeKind, PeerId | None] | None:
        """Where the asker is to go, or nowhere; None if it has a place here."""
        seat, kind = self._seat, message.edge
        if kind is EdgeKind.VISIT and seat.is_leaving and seat.up is not None:
            return kind, seat.up.peer
        if seat.is_leaving or not seat.path or sender in seat.path:
            return kind, None
        if seat.is_keeper and seat.up is not None:
            return kind, seat.up.peer
        known = seat.down.get(sender)
        if known is not None and known.kind is kind and not seat.is_vacating:
            return None
        if message.in_place_of in seat.down and self._is_proven(message):
            return None
        if kind is EdgeKind.TOP and seat.is_crown and sender in seat.former_ups:
            # It was the crown, and has made this one the crown.
            return None
        match kind:
            case EdgeKind.VISIT:
                return self._for_visitor(sender)
            case EdgeKind.EQUAL:
                return self._for_equal(sender, message)
            case EdgeKind.CHILD:
                return self._for_child(sender, message)
            case EdgeKind.TOP:
                return self._for_top(sender, message)
            case _:
                return kind, None

    def _is_proven(self, message: PlaceWanted) -> bool:
        """Whether an edge of this kind may lead to the asker, wherever there is room."""
        seat = self._seat
        contains = seat.contains(message.wanted)
        is_contained = seat.is_contained_in(message.wanted)
        match message.edge:
            case EdgeKind.EQUAL:
                return contains and is_contained
            case EdgeKind.CHILD:
                is_root = seat.up is None or seat.up.kind is not EdgeKind.EQUAL
                return contains and not is_contained and is_root
            case _:
                return seat.is_top_level and not seat.is_keeper

    def _for_visitor(self, sender: PeerId) -> tuple[EdgeKind, PeerId | None] | None:
        seat = self._seat
        others = [
            peer
            for kind in (EdgeKind.CHILD, EdgeKind.EQUAL, EdgeKind.TOP)
            for peer in seat.staying(kind, sender)
        ]
        if len(seat.below(EdgeKind.VISIT)) < self._seat.settings.visitors_max or not others:
            return None
        return EdgeKind.VISIT, self._next(EdgeKind.VISIT, others)

    def _for_equal(
        self, sender: PeerId, message: PlaceWanted
    ) -> tuple[EdgeKind, PeerId | None] | None:
        seat = self._seat
        if not (seat.contains(message.wanted) and seat.is_contained_in(message.wanted)):
            return EdgeKind.EQUAL, None
        return self._in_bounded_tree(EdgeKind.EQUAL, sender, seat.settings.equal_degree)

    def _for_child(
        self, sender: PeerId, message: PlaceWanted
    ) -> tuple[EdgeKind, PeerId | None] | None:
        seat = self._seat
        if not seat.contains(message.wanted):
            return EdgeKind.CHILD, None
        if seat.is_contained_in(message.wanted):
            return EdgeKind.EQUAL, seat.me
        if seat.up is not None and seat.up.kind is EdgeKind.EQUAL:
            return EdgeKind.CHILD, seat.up.peer
        wanted = message.wanted
        assert wanted is not None
        for peer in seat.staying(EdgeKind.CHILD, sender):
            other = seat.down[peer].wanted
            if other is None or not contains(other, wanted):
                continue
            return (EdgeKind.EQUAL if contains(wanted, other) else EdgeKind.CHILD), peer
        return None

    def _for_top(
        self, sender: PeerId, message: PlaceWanted
    ) -> tuple[EdgeKind, PeerId | None] | None:
        seat = self._seat
        if not seat.is_top_level:
            assert seat.up is not None
            return EdgeKind.TOP, seat.up.peer
        if seat.is_vacating or seat.is_going_down:
            others = seat.staying(EdgeKind.TOP, sender)
            return EdgeKind.TOP, seat.up.peer if seat.up is not None else [*others, None][0]
        if seat.is_keeper:
            others = seat.members_on_top(sender)
            return (EdgeKind.TOP, others[0]) if others else None
        if not message.stays_on_top and seat.contains(message.wanted):
            is_equal = seat.is_contained_in(message.wanted)
            return (EdgeKind.EQUAL if is_equal else EdgeKind.CHILD), seat.me
        return self._in_bounded_tree(EdgeKind.TOP, sender, seat.settings.top_degree)

    def _in_bounded_tree(
        self, kind: EdgeKind, sender: PeerId, degree: int
    ) -> tuple[EdgeKind, PeerId | None] | None:
        others = self._seat.staying(kind, sender)
        if len(others) < degree:
            return None
        return kind, self._next(kind, others)

    def _next(self, kind: EdgeKind, others: list[PeerId]) -> PeerId:
        passed_on = self._passed_on.get(kind, 0)
        self._passed_on[kind] = passed_on + 1
        return others[passed_on % len(others)]
