"""`Deputies`: an overloaded place lets neighbours answer for its hottest identifiers (§4.4).

The paper pushes all subscriptions with an identifier to another node, and leaves a stub. Here a
*deputy* gets a copy of what is kept at the place (`copies`), and the place keeps it too. So ends of
subscriptions, renewals, splits, merges and crashes stay what they are; a deputy that is gone, or
leaves, or does not have all yet, is passed over, and the place answers itself.

Each event that *contains* such an identifier is passed on, one message for all identifiers of the
same deputy (`Handed`). It says which these are: the deputy keeps no books, asks the filters of its
copy, and sends nothing further down. It answers for a copy, never for what it holds, so that there
are no chains.

A place is overloaded if its node handles more than `push_above` messages with events in `load_ms`.
Then it asks its neighbours what they have to do, if somebody idle could take something off it, and
at the end of the next such time it hands out what makes the busier of both less busy (`balancing`).
It takes back what it could do itself with less than half of `push_above`. Time is looked at when an
event comes: who has nothing to do is silent, and so are all who are not overloaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from peersub.overlays.core.identity import PeerId
from peersub.overlays.reach.balancing import TAKERS_MAX, Heat, Part, hand_out
from peersub.overlays.reach.copies import Copies
from peersub.overlays.reach.holdings import Holdings
from peersub.overlays.reach.identifiers import Place
from peersub.overlays.reach.messages import LoadAsked, LoadTold
from peersub.overlays.reach.post import Post
from peersub.overlays.reach.seats import Deputy, Seat

__all__ = ["HEATS_MAX", "Deputies", "LoadMeter"]

HEATS_MAX = 1_024
"""Identifiers of a place that are counted: those that events came for first."""


class LoadMeter:
    """Messages with events that a node sends, or receives for others."""

    def __init__(self, beat_ms: int) -> None:
        self._beat_ms = beat_ms
        self._begun_ms = 0
        self._counted = 0
        self._last = 0

    def count(self) -> None:
        """One more."""
        self._counted += 1

    def load(self, now_ms: int) -> int:
        """Messages in a beat: the last one, or the one that is over by now."""
        passed_ms = now_ms - self._begun_ms
        return self._counted * self._beat_ms // passed_ms if self._is_over(now_ms) else self._last

    def begin_anew(self, now_ms: int) -> float:
        """If a beat is over the next one begins: which share of the time that has passed it was.

        0 if none is over.
        """
        if not self._is_over(now_ms):
            return 0.0
        share = self._beat_ms / (now_ms - self._begun_ms)
        self._last = self.load(now_ms)
        self._begun_ms, self._counted = now_ms, 0
        return share

    def _is_over(self, now_ms: int) -> bool:
        return now_ms - self._begun_ms >= self._beat_ms


class Deputies:
    """Who answers for which identifiers of own places, and the load by which that is decided."""

    def __init__(self, holdings: Holdings, copies: Copies, post: Post) -> None:
        self._holdings = holdings
        self._copies = copies
        self._post = post
        self._push_above = holdings.settings.push_above
        self._meter = LoadMeter(holdings.settings.load_ms)
        self._arrived: dict[Place, int] = {}
        self._heats: dict[Place, dict[int, Heat]] = {}
        self._heard: dict[PeerId, int] = {}
        """What neighbours have to do, as they said when they were last asked."""

    # --- events --------------------------------------------------------------------------------

    def count(self) -> None:
        """A message with an event was sent or received."""
        self._meter.count()

    def shares(self, seat: Seat, bits: int) -> dict[PeerId, tuple[int, ...]]:
        """The identifiers within an event's bits that deputies answer for, if they have all."""
        found: dict[PeerId, tuple[int, ...]] = {}
        for peer, deputy in seat.deputies.items():
            if seat.has_all(peer):
                within = tuple(each for each in deputy.identifiers if each & ~bits == 0)
                if within:
                    deputy.passed += 1
                    found[peer] = within
        return found

    def note(self, seat: Seat, identifiers: Iterable[int], wanting: Mapping[str, int]) -> None:
        """An event came to an own place, which answered itself for these identifiers.

        `wanting` are the nodes that it was sent to, each with the identifier of a subscription.
        """
        if not self._push_above:
            return
        place = seat.place
        self._arrived[place] = self._arrived.get(place, 0) + 1
        heats = self._heats.setdefault(place, {})
        for identifier in identifiers:
            known = heats.get(identifier)
            if known is not None or len(heats) < HEATS_MAX:
                events, sent = known or (0, 0)
                heats[identifier] = Heat(events + 1, sent)
        for identifier in wanting.values():
            if identifier in heats:
                events, sent = heats[identifier]
                heats[identifier] = Heat(events, sent + 1)

    # --- who is deputy -------------------------------------------------------------------------

    def review(self) -> None:
        """When a beat is over: take back, and hand out."""
        now_ms = self._holdings.now_ms
        share = self._meter.begin_anew(now_ms) if self._push_above else 0.0
        if not share:
            return
        load = self._meter.load(now_ms)
        seats = self._holdings.seats
        before = [(seat, list(seat.deputies)) for seat in seats.values()]
        is_of_use = False
        for seat in seats.values():
            self._take_back(seat, load, share)
            if load > self._push_above and not self._holdings.leaving:
                self._hand_out(seat, load, share)
                is_of_use |= bool(self._parts(seat, load, share, [(0, self._holdings.me)]))
        if any(list(seat.deputies) != known for seat, known in before):
            self._copies.review()
        self._arrived.clear()
        self._heats.clear()
        self._heard.clear()
        if is_of_use:  # Who has nothing to do could take something.
            for peer in self._around():
                self._post.send(peer.node, LoadAsked())

    def _around(self) -> Iterable[PeerId]:
        """Those that something could be handed to."""
        near = [peer for seat in self._holdings.seats.values() for peer in seat.near.values()]
        return [peer for peer in dict.fromkeys(near) if self._holdings.takes(peer)]

    def _take_back(self, seat: Seat, load: int, share: float) -> None:
        kept = dict.fromkeys(seat.identifiers())
        for peer, deputy in list(seat.deputies.items()):
            deputy.identifiers = {each: None for each in deputy.identifiers if each in kept}
            saved = int(deputy.passed * (deputy.gain - 1) * share)
            deputy.passed = 0
            stays = peer in seat.near.values() and self._holdings.takes(peer)
            if not stays or not deputy.identifiers:
                del seat.deputies[peer]
            elif seat.has_all(peer) and load + saved <= self._push_above // 2:
                del seat.deputies[peer]
                load += saved

    def _hand_out(self, seat: Seat, load: int, share: float) -> None:
        has_room = len(seat.deputies) < TAKERS_MAX
        known = [
            (self._heard[peer], peer)
            for peer in dict.fromkeys(seat.near.values())
            if peer in self._heard
            and self._holdings.takes(peer)
            and (has_room or peer in seat.deputies)
        ]
        for part in self._parts(seat, load, share, known):
            deputy = seat.deputies.get(part.taker)
            if deputy is None:
                if len(seat.deputies) >= TAKERS_MAX:
                    break
                deputy = seat.deputies[part.taker] = Deputy()
            deputy.identifiers.update(dict.fromkeys(part.identifiers))
            deputy.gain = part.sent / max(part.passed_on, 1)

    def _parts(
        self, seat: Seat, load: int, share: float, known: Iterable[tuple[int, PeerId]]
    ) -> list[Part[PeerId]]:
        """What to hand out of what was answered here in the last beat, and is here still."""
        handed = {each for deputy in seat.deputies.values() for each in deputy.identifiers}
        heats = {
            identifier: Heat(int(heat.events * share), int(heat.sent * share))
            for identifier, heat in self._heats.get(seat.place, {}).items()
            if identifier not in handed
        }
        arrived = int(self._arrived.get(seat.place, 0) * share)
        return hand_out(load, arrived, heats, known)

    def refused(self, peer: PeerId, place: Place) -> None:
        """A deputy has no copy: it is to be one no more."""
        seat = self._holdings.seats.get(place)
        if seat is not None and seat.deputies.pop(peer, None) is not None:
            self._copies.review()

    # --- loads ---------------------------------------------------------------------------------

    def on_asked(self, peer: PeerId) -> None:
        """Somebody is overloaded, and wants to know what there is to do here."""
        self._post.send(peer.node, LoadTold(self._meter.load(self._holdings.now_ms)))

    def on_told(self, peer: PeerId, message: LoadTold) -> None:
        """A neighbour says what it has to do."""
        if peer in self._around():
            self._heard[peer] = message.load
