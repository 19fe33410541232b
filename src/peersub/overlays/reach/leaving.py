"""`Leaving`: who leaves gives its places to heirs, and heirs take so many in a beat (§3.3; `pace`).

Where changes are limited a node that leaves asks its heir first, and the heir agrees to so many in
a beat, newcomers and moves of its own included. Until then the leaver does its work: it hosts its
places, and events visit them. It asks again whenever it looks, and whoever is its heir then. After
`LEAVE_WAIT_MS` it goes in any case: nobody is kept for longer than drivers wait.
"""

from __future__ import annotations

from typing import Final

from peersub.overlays.core.identity import PeerId
from peersub.overlays.reach.holdings import Holdings
from peersub.overlays.reach.identifiers import Place
from peersub.overlays.reach.messages import LeaveAgreed, LeaveAsked
from peersub.overlays.reach.post import Post
from peersub.overlays.reach.seats import Seat
from peersub.overlays.reach.structure import heirs

__all__ = ["EXPECTED_MAX", "LEAVE_LOOK_MS", "LEAVE_WAIT_MS", "Leaving"]

LEAVE_WAIT_MS: Final = 3_000
"""How long a leaver waits for an heir to agree."""
LEAVE_LOOK_MS: Final = 400
"""How often a leaver looks at least, however seldom a node asks for those that it misses."""
EXPECTED_MAX: Final = 64
"""Places that an heir has agreed to take, and that have not come."""


class Leaving:
    """The leave of this node, and those of others that it is an heir of."""

    def __init__(self, holdings: Holdings, post: Post) -> None:
        self._holdings = holdings
        self._post = post
        self._since_ms: int | None = None
        self._agreed: dict[Place, str] = {}
        """Heirs that are ready to take own places; nobody else's."""
        self._expected: dict[tuple[str, Place], None] = {}

    # --- who leaves ----------------------------------------------------------------------------

    def leave(self) -> bool:
        """Give all places to heirs that agree; whether nothing is left to give."""
        holdings = self._holdings
        if self._since_ms is None:
            self._since_ms = holdings.now_ms
        waits = holdings.pace.is_limited and holdings.now_ms - self._since_ms < LEAVE_WAIT_MS
        self._agreed = {each: by for each, by in self._agreed.items() if each in holdings.seats}
        for place, seat in list(holdings.seats.items()):
            node = self._heir(seat)
            if node is None:
                del holdings.seats[place]
            elif waits and self._agreed.get(place) != node:
                self._post.send(node, LeaveAsked(place))
            else:
                holdings.give(place, node)
        return not holdings.seats and not holdings.given

    def on_agreed(self, peer: PeerId, message: LeaveAgreed) -> None:
        """An heir is ready to take a place."""
        if self._holdings.leaving and message.place in self._holdings.seats:
            self._agreed[message.place] = peer.node

    def _heir(self, seat: Seat) -> str | None:
        peers = [seat.holder_of(identifier) for identifier in heirs(seat.place)]
        for peer in peers:
            if peer is not None and self._holdings.takes(peer):
                return peer.node
        # The last one with a place gives it to who waits for one: nobody else is left to ask.
        return self._holdings.somebody_who_stays() or self._holdings.newcomer()

    # --- an heir -------------------------------------------------------------------------------

    def on_asked(self, peer: PeerId, message: LeaveAsked) -> None:
        """Somebody wants to leave: it may if there is another change in this beat."""
        holdings = self._holdings
        asked = (peer.node, message.place)
        if asked not in self._expected:
            if holdings.leaving or not holdings.pace.allows(holdings.now_ms):
                return
            holdings.pace.count(holdings.now_ms)
            self._expected[asked] = None
            if len(self._expected) > EXPECTED_MAX:
                del self._expected[next(iter(self._expected))]
        self._post.send(peer.node, LeaveAgreed(message.place))

    def on_given(self, peer: PeerId, place: Place) -> None:
        """A place comes: a change, if it was not counted when this node agreed."""
        if self._expected.pop((peer.node, place), 0) is not None:
            self._holdings.pace.count(self._holdings.now_ms)
