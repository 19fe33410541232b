"""Moving: how a member finds a place, and another when it loses that or a better one shows.

There is one procedure for all: ask somebody (`JoinRequest`), get to know the best parent (`Found`),
ask that one for a place (`PlaceWanted`), follow where it points (`Redirected`), and sit down once
there is one (`PlaceGiven`). Only then is the edge from before given up, and not at once: it stays
as long as an event may be under way, so none passes by between the two places (make before break).

Who is asked, in order, until one answers:

* a newcomer: the keeper of its node. A keeper that is one itself asks the nodes that it was given,
  those that have come to ask it, and those that any of them has named, again and again. It never
  takes silence for a reason to begin a network: who is cut off and who is alone look alike;
* who lost the one above it: its other ancestors, nearest first, each of which looks below itself if
  it contains the member; then the heirs of the crown that stand before it; then the contacts of its
  node. If nobody answers it becomes a crown itself, and `crown` brings the parts together again;
* who is handed over by one that leaves: whom that one names, then as above;
* who looks for a better place: the keeper of its node. It moves only if what it finds is better.

A member that has top-level members below it stays at the top level. To get away from there it first
hands them over (`vacate`), and a crown makes another one the crown before that.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from peersub.overlays.containment.messages import (
    Candidate,
    Detach,
    Found,
    Handed,
    JoinRequest,
    PlaceGiven,
    PlaceWanted,
    Promote,
    Redirected,
)
from peersub.overlays.containment.ranking import is_better
from peersub.overlays.containment.seat import Above, Seat, is_meant
from peersub.overlays.containment.structure import EdgeKind
from peersub.overlays.core.identity import PeerId

__all__ = ["Moving", "Purpose"]

REDIRECTIONS_MAX = 256
"""Members that one attempt asks for a place, each named by the one before."""
PAUSES = 4
"""A pause between two rounds is this part of the time for an answer."""
PAUSE_DOUBLINGS_MAX = 4
"""A newcomer that nobody takes waits twice as long after each round, up to so many times."""
PATIENCE_MAX = 8
"""How many times longer than at first an answer is waited for."""
ROUNDS_MAX = 12
"""How often one that has a place asks all whom it could, before it stays where it is."""


class Purpose(Enum):
    """Why a member looks for a place."""

    JOIN = "join"
    REPAIR = "repair"
    HANDED = "handed"
    IMPROVE = "improve"
    MERGE = "merge"
    PROMOTE = "promote"


class Moving:
    """What one member does to find a place."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._purpose: Purpose | None = None
        self._starts: deque[PeerId] = deque()
        self._asked: PeerId | None = None
        self._redirections = 0
        self._rounds = 0
        self._patience = 1
        """How many times `join_ms` an answer may take: a probe takes longer in a deep tree."""
        self._in_place_of: PeerId | None = None
        self._wanted_above: PeerId | None = None
        self._handed: tuple[PeerId, Handed] | None = None
        """Who above has said that it will go, and whom to turn to."""
        self._vacates_until_ms = 0
        self.vacations = 0
        """How often it has asked those below it again to leave the top level before it does."""
        self.wants_better = False
        """It heard of a better place while it was busy."""
        self.depth = 0
        """Of the place that was found last, as the probe counted it; 0 if unknown."""

    @property
    def purpose(self) -> Purpose | None:
        """Why it looks for a place now, if it does."""
        return self._purpose

    def describe(self) -> str:
        """What goes on, in a word; it changes with each request. Nothing for improvements."""
        if self._purpose in (None, Purpose.IMPROVE):
            return ""
        return f"{self._purpose.value} {self._seat.number}"

    def waits_for(self, node: str) -> bool:
        """Whether an answer is to come from a node."""
        return self._purpose is not None and self._asked is not None and self._asked.node == node

    # --- reasons -------------------------------------------------------------------------------

    def join(self) -> None:
        """Look for the first place."""
        self._begin(Purpose.JOIN, self._seat.host.contacts())

    def repair(self) -> None:
        """The one above is lost."""
        if self._seat.is_leaving:
            return
        if not self._seat.was_seated:
            self.join()
            return
        self._begin(Purpose.REPAIR, self._known())

    def _known(self) -> list[PeerId]:
        seat = self._seat
        heirs = list(seat.heirs)
        if seat.me in heirs:
            del heirs[heirs.index(seat.me) :]
            others: tuple[PeerId, ...] = ()
        else:
            others = seat.host.contacts()
        return [*seat.ancestors[1:], *heirs, *others]

    def improve(self) -> None:
        """Look for a better place, if there is nothing else to do."""
        seat = self._seat
        is_free = self._purpose is None and not seat.is_leaving and not seat.is_keeper
        if not is_free or not seat.is_seated or (seat.is_vacating and seat.below(EdgeKind.TOP)):
            return
        if seat.is_crown:
            self._begin(Purpose.IMPROVE, [seat.me])
        elif seat.up is not None and seat.up.kind is not EdgeKind.EQUAL:
            self._begin(Purpose.IMPROVE, [seat.up.peer])

    def improve_if_wanted(self) -> None:
        """Look for the better place that it heard of while it was busy."""
        if self.wants_better and self._purpose is None and not self._seat.is_vacating:
            self.wants_better = False
            self.improve()

    def move_below(self, peer: PeerId, kind: EdgeKind, purpose: Purpose, depth: int = 0) -> None:
        """Ask a certain member for a place."""
        if self._purpose in (Purpose.REPAIR, Purpose.PROMOTE):
            return
        self._begin(purpose, [])
        self._wanted_above = peer
        self.depth = depth
        self._attach(peer, kind)

    def take_place_of(self, leaver: PeerId, above: PeerId, kind: EdgeKind) -> None:
        """Stand where one stands that leaves."""
        self._begin(Purpose.PROMOTE, [])
        self._in_place_of = leaver
        self._attach(above, kind)

    def on_handed(self, sender: PeerId, message: Handed) -> None:
        """The one above will go."""
        seat = self._seat
        if seat.up is None or seat.up.peer != sender:
            return
        self._handed = (sender, message)
        if seat.is_leaving:
            return
        if self._purpose in (None, Purpose.IMPROVE, Purpose.MERGE):
            # What it was about to look for it looks for from its next place.
            self.wants_better = self.wants_better or self._purpose is Purpose.IMPROVE
            self._follow_leaver()

    def _follow_leaver(self) -> None:
        seat = self._seat
        if self._handed is None or seat.is_leaving:
            return
        leaver, handed = self._handed
        if seat.up is None or seat.up.peer != leaver:
            self._handed = None
            return
        known = [each for each in self._known() if each != leaver]
        instead = handed.instead
        kind = seat.up.kind
        if instead is not None and kind in (EdgeKind.TOP, EdgeKind.EQUAL):
            self._begin(Purpose.HANDED, [])
            self._starts = deque(known)
            self._in_place_of = leaver if handed.in_my_place else None
            self._attach(instead, kind)
        else:
            self._begin(Purpose.HANDED, known if instead is None else [instead, *known])

    # --- one attempt ---------------------------------------------------------------------------

    def _begin(self, purpose: Purpose, starts: tuple[PeerId, ...] | list[PeerId]) -> None:
        if self._seat.has_left:
            # What it would find now, nobody would give back.
            return
        self._purpose = purpose
        self._starts = deque(starts)
        self._redirections = self._rounds = 0
        self._in_place_of = None
        if starts:
            self._ask_next()
        elif purpose is Purpose.REPAIR:
            self._nobody_left()
        elif purpose is Purpose.JOIN:
            self._wait()

    def _wait(self, doublings: int = 0) -> None:
        self._asked = None
        wait_ms = max(self._seat.settings.join_ms // PAUSES, 1) << doublings
        self._seat.host.set_timer("move", self._seat.me, wait_ms)

    def _ask_next(self) -> None:
        if not self._starts:
            self._nobody_left()
            return
        start = self._starts.popleft()
        self._redirections = 0
        seat = self._seat
        self._in_place_of = None
        if start == seat.me and not seat.is_crown:
            self._ask_next()
            return
        seat.is_going_down = False
        seat.number += 1
        self._asked = start
        seat.host.set_timer("move", seat.me, self._patience * seat.settings.join_ms)
        if seat.is_keeper:
            kind = EdgeKind.TOP if seat.below(EdgeKind.TOP) else EdgeKind.VISIT
            self._attach(start, kind)
            return
        confined = self._purpose in (Purpose.REPAIR, Purpose.HANDED) or seat.settings.confine
        request = JoinRequest(
            start.slot,
            seat.me.slot,
            seat.me,
            self._seat.number,
            seat.wanted,
            None if seat.up is None else seat.up.peer,
            confined,
            self._stays_on_top,
        )
        seat.send(start, request)

    @property
    def _stays_on_top(self) -> bool:
        has_top = bool(self._seat.below(EdgeKind.TOP))
        return has_top and self._purpose is not Purpose.IMPROVE

    def _nobody_left(self) -> None:
        """All who could be asked were."""
        seat, purpose = self._seat, self._purpose
        self._rounds += 1
        self._asked = None
        if purpose is Purpose.REPAIR:
            self._end()
            for peer in (*seat.ancestors, *seat.heirs, *seat.host.contacts()):
                seat.host.remember(peer.node)
            seat.become_crown()
        elif purpose is Purpose.JOIN:
            self._starts = deque(seat.host.contacts())
            self._wait(min(self._rounds - 1, PAUSE_DOUBLINGS_MAX))
        elif purpose is Purpose.HANDED and self._rounds < ROUNDS_MAX:
            self._starts = deque(self._known())
            self._wait()
        else:
            if purpose is Purpose.MERGE and self._wanted_above is not None:
                seat.host.remember(self._wanted_above.node)
            self._end()

    def stop(self) -> None:
        """Look for nothing any more: a place has come by itself."""
        self._end()

    def _end(self) -> None:
        if self._purpose is Purpose.IMPROVE and self._seat.is_vacating:
            self._seat.is_vacating = False
            self._seat.tell_departing(departs=False)
        self._purpose = None
        self._seat.is_going_down = False
        self._asked = None
        self._starts.clear()
        self._in_place_of = None

    def on_move_timer(self) -> None:
        """No answer came in time, or it is time to begin again."""
        if self._purpose is None:
            return
        if self._asked is not None:
            # What took too long once would do so each time.
            self._patience = min(2 * self._patience, PATIENCE_MAX)
        self._ask_next()

    def on_lost(self, lost: PeerId) -> None:
        """Whoever was asked does not answer."""
        if self._purpose is not None and self._asked is not None and is_meant(self._asked, lost):
            self._ask_next()

    # --- answers -------------------------------------------------------------------------------

    def on_found(self, sender: PeerId, message: Found) -> None:
        """The probe is over: ask the best for a place."""
        if message.number != self._seat.number or self._purpose is None:
            return
        best = message.best
        if self._purpose is Purpose.IMPROVE:
            self._on_found_better(best, message.present)
        elif best is None:
            self.depth = 1
            self._attach(sender, EdgeKind.TOP)
        else:
            self.depth = best.depth if best.is_equal else best.depth + 1
            self._attach(best.peer, EdgeKind.EQUAL if best.is_equal else EdgeKind.CHILD)

    def _on_found_better(self, best: Candidate | None, present: Candidate | None) -> None:
        seat = self._seat
        if best is None or not self._is_improvement(best, present):
            self._end()
        elif seat.below(EdgeKind.TOP) or seat.is_crown:
            self._end()
            self.vacate()
        else:
            self.depth = best.depth if best.is_equal else best.depth + 1
            self._attach(best.peer, EdgeKind.EQUAL if best.is_equal else EdgeKind.CHILD)

    def _is_improvement(self, best: Candidate, present: Candidate | None) -> bool:
        seat = self._seat
        if best.is_equal:
            # Of two roots of one class the one with the larger address goes below the other.
            return best.peer < seat.me
        if seat.up is None or seat.up.kind is EdgeKind.TOP:
            return True
        if best.peer == seat.up.peer:
            return False
        return present is None or is_better(best, present, seat.settings)

    def vacate(self) -> None:
        """Get rid of the top-level members below, to be able to leave the top level.

        Time and again until `leave_ms` have passed: one that was on its way here may come later.
        """
        seat = self._seat
        if not seat.is_vacating:
            self._vacates_until_ms = seat.host.now_ms + seat.settings.leave_ms
            self.vacations = 0
        seat.is_vacating = True
        if seat.is_crown:
            # One that contains this one has no such reason to go.
            heirs = seat.below(EdgeKind.TOP)
            heirs.sort(key=lambda peer: not seat.is_contained_in(seat.down[peer].wanted))
            seat.is_vacating = bool(heirs)
            for heir in heirs[:1]:
                seat.send(heir, Promote(heir.slot, seat.me.slot, seat.me, EdgeKind.TOP))
        elif seat.up is not None:
            seat.tell_departing()
            seat.hand_over_top()
        pause_ms = min(seat.settings.join_ms, seat.settings.leave_ms)
        seat.host.set_timer("vacate", seat.me, pause_ms)

    def on_vacate_timer(self) -> None:
        """Some at the top level have not gone: ask them again, or stay."""
        seat = self._seat
        if not seat.is_vacating:
            return
        self.vacations += 1
        if seat.host.now_ms >= self._vacates_until_ms:
            seat.is_vacating = False
            seat.tell_departing(departs=False)
        else:
            self.vacate()

    def after_fewer_below(self) -> None:
        """Somebody below has gone: perhaps the last one of the top level."""
        seat = self._seat
        if seat.is_vacating and not seat.is_crown and not seat.below(EdgeKind.TOP):
            # Nobody comes back meanwhile: it is about to go until it has looked.
            self.improve()
        self.be_a_visitor()

    def be_a_visitor(self) -> None:
        """A keeper that had members below it when it was the crown has no use for a TOP edge."""
        up = self._seat.up
        if up is None or not self._seat.is_keeper or self._purpose is not None:
            return
        if up.kind is EdgeKind.TOP and not self._seat.below(EdgeKind.TOP):
            self.move_below(up.peer, EdgeKind.VISIT, Purpose.IMPROVE)

    def _attach(self, peer: PeerId, kind: EdgeKind) -> None:
        seat = self._seat
        seat.is_going_down = kind in (EdgeKind.CHILD, EdgeKind.EQUAL)
        if seat.is_going_down and seat.below(EdgeKind.TOP):
            # Somebody has come to stand below it at the top level meanwhile.
            seat.is_going_down = False
            self._ask_next()
            return
        seat.number += 1
        self._asked = peer
        seat.host.set_timer("move", seat.me, self._patience * seat.settings.join_ms)
        stays = bool(seat.below(EdgeKind.TOP))
        attach = PlaceWanted(
            peer.slot,
            seat.me.slot,
            seat.number,
            kind,
            seat.wanted,
            stays,
            self._in_place_of,
            seat.is_leaving,
        )
        seat.send(peer, attach)

    def on_redirected(self, message: Redirected) -> None:
        """No place there."""
        if message.number != self._seat.number or self._purpose is None:
            return
        instead = message.instead
        if self._purpose is Purpose.JOIN:
            self._seat.host.learn(message.nodes)
        self._redirections += 1
        if instead is None or instead == self._seat.me or self._redirections > REDIRECTIONS_MAX:
            self._ask_next()
        else:
            self._attach(instead, message.edge)

    def on_attached(
        self, sender: PeerId, message: PlaceGiven
    ) -> tuple[Purpose, PeerId | None] | None:
        """A place: sit down. Why it was looked for, and whose it was; None if it comes too late."""
        seat = self._seat
        if message.number != seat.number or self._purpose is None:
            self._give_back(sender, message)
            return None
        if seat.me in message.path:
            self._give_back(sender, message)
            self._ask_next()
            return None
        purpose, leaver = self._purpose, self._in_place_of
        if purpose is Purpose.IMPROVE:
            seat.is_vacating = False
        self._end()
        self._patience = 1
        above = Above(sender, message.edge, message.wanted, message.number, message.path)
        seat.host.learn(message.nodes)
        seat.sit(above, message.ancestors, message.heirs)
        if self._handed is not None and self._handed[0] == sender:
            # It has given this one a place once more.
            self._handed = None
        self._follow_leaver()
        return purpose, leaver

    def _give_back(self, sender: PeerId, message: PlaceGiven) -> None:
        """Give back a place that came too late, unless it is the one that this member has."""
        seat = self._seat
        if seat.up is not None and seat.up.peer == sender:
            known = seat.up
        elif sender in seat.former_ups:
            known, _ = seat.former_ups[sender]
        else:
            seat.send(sender, Detach(sender.slot, seat.me.slot, message.number))
            return
        if message.number > known.number:
            known.number, known.kind, known.path = message.number, message.edge, message.path
            seat.refresh()
