"""`Renewals`: all nodes hear that a place has lost what it kept, and repeat what is theirs.

A message floods the network once, and every node that it concerns sends something: so one node that
lies could keep all others busy. What cannot be is not passed on, and of each neighbour only so many
are in `RENEWALS_BEAT_MS`. A true one that is cut off there comes over other links, or the
subscriptions are renewed in their time (`registrations`).
"""

from __future__ import annotations

from typing import Final

from peersub.overlays.core.effects import Drop
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.outbox import Outbox
from peersub.overlays.reach.holdings import Holdings
from peersub.overlays.reach.messages import RenewalWanted
from peersub.overlays.reach.post import Post
from peersub.overlays.reach.registrations import Registrations

__all__ = ["RENEWALS_BEAT_MS", "RENEWALS_PER_BEAT_MAX", "RENEWALS_WANTED_MAX", "Renewals"]

RENEWALS_WANTED_MAX: Final = 4_096
"""Losses of places that a node remembers, so as to pass each on once.

More than come while one goes round: else it would go round for ever.
"""
RENEWALS_PER_BEAT_MAX: Final = 64
"""Losses that a node believes a neighbour in a beat: a place is lost with all who have copies."""
RENEWALS_BEAT_MS: Final = 1_000
SHORTER_MAX: Final = 4
"""How much shorter a place may be than all that are known here: lengths differ by little."""


class Renewals:
    """The losses of places that a node has heard of."""

    def __init__(
        self, holdings: Holdings, registrations: Registrations, post: Post, out: Outbox
    ) -> None:
        self._holdings = holdings
        self._registrations = registrations
        self._post = post
        self._out = out
        self._heard: dict[RenewalWanted, None] = {}
        self._beat_ms = 0
        self._of_beat: dict[str, int] = {}
        """How many came in this beat, by node; of those that are linked."""

    def on_wanted(self, peer: PeerId, message: RenewalWanted) -> None:
        """A place has lost what it kept: to all who are linked, once."""
        if message in self._heard:
            return
        if peer != self._holdings.me and not (self._can_be(message) and self._is_in_time(peer)):
            self._out.emit(Drop("a loss of a place that is not believed", None, peer))
            return
        self._heard[message] = None
        if len(self._heard) > RENEWALS_WANTED_MAX:
            del self._heard[next(iter(self._heard))]
        for node in list(self._post.linked):
            self._post.send(node, message)
        self._registrations.ask_at(message.place)

    def _can_be(self, message: RenewalWanted) -> bool:
        """Whether there may be such a place: claims begin with 1, and it is about as long."""
        holdings = self._holdings
        known = [*holdings.seats, *(fact.place for _, fact in holdings.directory.facts())]
        shortest = min((place.length for place in known), default=0)
        return message.claim > 0 and message.place.length >= shortest - SHORTER_MAX

    def _is_in_time(self, peer: PeerId) -> bool:
        now_ms = self._holdings.now_ms
        if now_ms - self._beat_ms >= RENEWALS_BEAT_MS:
            self._beat_ms = now_ms
            self._of_beat.clear()
        count = self._of_beat[peer.node] = self._of_beat.get(peer.node, 0) + 1
        return count <= RENEWALS_PER_BEAT_MAX
