"""Probing: who in a part of the tree contains a joiner, and which of them is the best parent.

A request climbs to the crown, or, if it is confined, to the first member that contains the joiner.
From there the probe goes down over TOP edges always, over CHILD edges where the member contains the
joiner: nothing below one that does not can contain it, because the proofs are transitive. Each
answers with the best of its part once all below have answered or are lost, so the joiner knows when
it is over. An equivalent member ends the search below itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from peersub.filters.filter import Filter
from peersub.overlays.containment.messages import (
    Candidate,
    Found,
    JoinRequest,
    Probe,
    ProbeAnswer,
    Redirected,
)
from peersub.overlays.containment.ranking import best_of
from peersub.overlays.containment.seat import Seat, is_meant
from peersub.overlays.containment.structure import EdgeKind
from peersub.overlays.core.identity import PeerId

__all__ = ["CLIMB_MAX", "PROBES_MAX", "Probing"]

CLIMB_MAX = 256
"""Edges that a request climbs at most: a circle, while there is one, does not keep it for ever."""

PROBES_MAX = 4_096
"""Probes that one member has under way."""


@dataclass(slots=True)
class _Open:
    """A probe that waits for those below."""

    asker: PeerId | None
    """Who asked; None where the probe began."""
    waiting: dict[PeerId, None]
    found: list[Candidate | None] = field(default_factory=list)
    present: Candidate | None = None


class Probing:
    """What one member does for joiners."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._open: dict[tuple[PeerId, int], _Open] = {}

    def waits_for(self, node: str) -> bool:
        """Whether an answer is to come from a node, or is owed to one."""
        return any(
            (each.asker is not None and each.asker.node == node)
            or any(peer.node == node for peer in each.waiting)
            for each in self._open.values()
        )

    # --- the request ---------------------------------------------------------------------------

    def on_join_request(self, message: JoinRequest) -> None:
        """Somebody looks for its place: probe from here, or pass it up."""
        seat = self._seat
        joiner = message.joiner
        is_own = joiner == seat.me and not seat.is_crown
        if is_own or not seat.is_seated or message.hops >= CLIMB_MAX:
            self._refuse(message)
        elif seat.is_crown or (message.is_confined and seat.contains(message.wanted)):
            self._begin(message)
        else:
            assert seat.up is not None
            above = seat.up.peer
            passed = replace(message, to=above.slot, sender=seat.me.slot, hops=message.hops + 1)
            seat.send(above, passed)

    def _refuse(self, message: JoinRequest) -> None:
        joiner, nodes = message.joiner, self._seat.host.known_nodes()
        refusal = Redirected(
            joiner.slot, self._seat.me.slot, message.number, EdgeKind.TOP, None, nodes
        )
        self._seat.send(joiner, refusal)

    def _begin(self, message: JoinRequest) -> None:
        joiner, number = message.joiner, message.number
        if message.stays_on_top or message.wanted is None:
            found = Found(joiner.slot, self._seat.me.slot, number, None)
            self._seat.send(joiner, found)
            return
        # A depth that is not counted from the crown still orders what is found below this one.
        confined = message.is_confined and self._seat.contains(message.wanted)
        self._probe(None, joiner, number, message.wanted, 1, message.above, is_confined=confined)

    # --- the probe -----------------------------------------------------------------------------

    def on_probe(self, sender: PeerId, message: Probe) -> None:
        """Look at this part of the tree, if the one who stands above asks."""
        up = self._seat.up
        if up is None or up.peer != sender:
            # A member that moves has two edges up for a while: what is below it is looked at once.
            self._answer(sender, message.joiner, message.number, None, None)
            return
        self._probe(
            sender, message.joiner, message.number, message.wanted, message.depth, message.above
        )

    def _probe(
        self,
        asker: PeerId | None,
        joiner: PeerId,
        number: int,
        wanted: Filter,
        depth: int,
        above: PeerId | None,
        *,
        is_confined: bool = False,
    ) -> None:
        seat = self._seat
        key = (joiner, number)
        is_own = joiner == seat.me
        is_crowded = key in self._open or len(self._open) >= PROBES_MAX
        if asker is not None and (is_own or is_crowded):
            self._answer(asker, joiner, number, None, None)
            return
        if is_crowded:
            return
        own = None if is_own else self._own(joiner, wanted, depth)
        asked: dict[PeerId, int] = {}
        if is_own:
            # The crown looks for somebody to stand below.
            asked = dict.fromkeys(seat.below(EdgeKind.TOP), depth)
        elif own is None or not own.is_equal:
            if not is_confined:
                asked = dict.fromkeys(seat.below(EdgeKind.TOP), depth)
            if seat.contains(wanted):
                asked |= dict.fromkeys(seat.below(EdgeKind.CHILD), depth + 1)
        asked.pop(joiner, None)
        present = own if own is not None and seat.me == above else None
        counts = own is not None and not seat.is_leaving
        opened = _Open(asker, dict.fromkeys(asked), [own if counts else None], present)
        self._open[key] = opened
        for peer, its_depth in asked.items():
            seat.send(
                peer, Probe(peer.slot, seat.me.slot, joiner, number, wanted, its_depth, above)
            )
        self._end_if_done(key)

    def _own(self, joiner: PeerId, wanted: Filter, depth: int) -> Candidate | None:
        seat = self._seat
        if not seat.contains(wanted):
            return None
        assert seat.wanted is not None
        children = sum(peer != joiner for peer in seat.below(EdgeKind.CHILD))
        is_equal = seat.is_contained_in(wanted)
        matches = seat.host.matches(seat.wanted)
        return Candidate(seat.me, is_equal, depth, children, seat.wanted.digest, matches)

    def on_probe_answer(self, sender: PeerId, message: ProbeAnswer) -> None:
        """A part of the tree has answered."""
        key = (message.joiner, message.number)
        opened = self._open.get(key)
        if opened is not None and sender in opened.waiting:
            del opened.waiting[sender]
            opened.found.append(message.best)
            opened.present = opened.present or message.present
            self._end_if_done(key)

    def on_lost(self, lost: PeerId) -> None:
        """Whoever is lost has nothing to say, and needs no answer."""
        for key, opened in list(self._open.items()):
            if is_meant(key[0], lost) or (
                opened.asker is not None and is_meant(opened.asker, lost)
            ):
                del self._open[key]
                continue
            for peer in [peer for peer in opened.waiting if is_meant(peer, lost)]:
                del opened.waiting[peer]
            self._end_if_done(key)

    def _end_if_done(self, key: tuple[PeerId, int]) -> None:
        opened = self._open[key]
        if opened.waiting:
            return
        del self._open[key]
        joiner, number = key
        best = best_of(opened.found, self._seat.settings)
        if opened.asker is not None:
            self._answer(opened.asker, joiner, number, best, opened.present)
        else:
            found = Found(joiner.slot, self._seat.me.slot, number, best, opened.present)
            self._seat.send(joiner, found)

    def _answer(
        self,
        asker: PeerId,
        joiner: PeerId,
        number: int,
        best: Candidate | None,
        present: Candidate | None,
    ) -> None:
        answer = ProbeAnswer(asker.slot, self._seat.me.slot, joiner, number, best, present)
        self._seat.send(asker, answer)
