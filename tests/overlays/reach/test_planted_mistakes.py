"""Mistakes planted in Reach on purpose, each of which the checkers must find.

The networks are small and grow, shrink and publish; without the mistake nothing is found in them.
"""

from __future__ import annotations

import pytest

from overlays.planted import assert_found
from peersub.overlays.reach import invariants, journeys
from peersub.overlays.reach.copies import Copies
from peersub.overlays.reach.holdings import Holdings
from peersub.overlays.reach.identifiers import are_neighbours, is_above, is_visited
from peersub.overlays.reach.interest import Interests
from peersub.overlays.reach.journeys import Journeys
from peersub.overlays.reach.messages import Handed
from peersub.overlays.reach.registrations import Registrations
from peersub.overlays.reach.seats import Seat
from peersub.simulator.activities import (
    CrashActivity,
    JoinActivity,
    LeaveActivity,
    PublishActivity,
    SubscribeActivity,
    UnsubscribeActivity,
)
from peersub.simulator.scenario import Scenario, ScenarioPhase

SEEDS_MAX = 6
STEPS_MAX = 20_000


def scenario_of(seed: int) -> Scenario:
    busy = (
        JoinActivity(count=2),
        PublishActivity(count=12, every_ms=40),
        UnsubscribeActivity(at_ms=200, count=4),
        LeaveActivity(at_ms=300, count=1),
    )
    later = (CrashActivity(count=1), SubscribeActivity(at_ms=100, count=4))
    return Scenario(
        seed=seed,
        overlay="reach",
        nodes=9,
        subscriptions=14,
        steps_max=STEPS_MAX,
        quiet_limit_ms=60_000,
        settings={
            "identifier_bits": 12,
            "attributes": "a; b; s; r.x",
            "quench": seed % 2 == 0,
            "orders": 0,
            "answer_share": 0.0,
        },
        phases=(
            ScenarioPhase(name="busy", steps=busy),
            ScenarioPhase(name="later", steps=later),
            ScenarioPhase(name="after", steps=(PublishActivity(count=6, every_ms=10),)),
            ScenarioPhase(name="unsubscribed", steps=(UnsubscribeActivity(count=0),)),
        ),
    )


def crowded(seed: int) -> Scenario:
    """Few nodes with many subscriptions, and many events: hot identifiers have deputies."""
    busy = PublishActivity(count=40, every_ms=15)
    changes = (UnsubscribeActivity(at_ms=100, count=10), SubscribeActivity(at_ms=200, count=10))
    return Scenario(
        seed=seed,
        overlay="reach",
        nodes=6,
        subscriptions=60,
        steps_max=STEPS_MAX,
        quiet_limit_ms=60_000,
        settings={"identifier_bits": 12, "push_above": 4, "load_ms": 100},
        phases=(
            ScenarioPhase(name="busy", steps=(busy,)),
            ScenarioPhase(name="changes", steps=(busy, *changes)),
            ScenarioPhase(name="after", steps=(busy,)),
        ),
    )


def plant_a_gift_that_is_forgotten(monkeypatch):
    """Who gives a place away does not keep it until the other has it."""
    original = Holdings.give

    def give(self, place, node):
        original(self, place, node)
        del self.given[place]

    monkeypatch.setattr(Holdings, "give", give)


def plant_a_gift_that_is_kept(monkeypatch):
    """Who gives a place away goes on as if it still had it."""
    original = Holdings.give

    def give(self, place, node):
        seat = self.seats[place]
        original(self, place, node)
        self.seats[place] = seat

    monkeypatch.setattr(Holdings, "give", give)


def plant_halves_that_keep_everything(monkeypatch):
    """Both halves of a place keep all that the whole one did."""

    def take_entries(self, other, bits):
        for entry in list(other.entries()):
            self.store(entry, bits, 0)

    monkeypatch.setattr(Seat, "take_entries", take_entries)


def plant_a_neighbour_that_is_overlooked(monkeypatch):
    """The last neighbour of a place is not in its table, and nobody misses it."""
    original = Seat.set_near

    def set_near(self, near, gone=()):
        original(self, dict(list(near.items())[: max(len(near) - 1, 1)]), gone)

    monkeypatch.setattr(Seat, "set_near", set_near)


def plant_clearing_any_bit(monkeypatch):
    """§3.2 taken literally for places of any lengths: on to whoever has one bit less."""

    def is_parent(place, other, event, order):
        return is_above(place, other) and is_visited(other, event)

    for module in (journeys, invariants):
        monkeypatch.setattr(module, "is_parent", is_parent)


def plant_events_for_all_neighbours(monkeypatch):
    """Down the subsets also to places that no subset of the event's bits is hosted at."""

    def is_parent(place, other, event, order):
        return are_neighbours(place, other) and other.bits > place.bits

    monkeypatch.setattr(journeys, "is_parent", is_parent)


def plant_another_parent_on_some_nodes(monkeypatch):
    """Odd places take for a parent who lacks the bit of the lowest rank, not of the highest."""
    original = journeys.is_parent

    def is_parent(place, other, event, order):
        if not place.bits & 1:
            return original(place, other, event, order)
        largest = event & ~((1 << other.length) - 1) | other.bits
        missing = [bit for bit in range(12) if event & ~largest & 1 << bit]
        return (
            is_visited(other, event)
            and bool(missing)
            and place.hosts(largest | 1 << min(missing, key=order.rank))
        )

    monkeypatch.setattr(journeys, "is_parent", is_parent)


def plant_a_visit_that_is_sent_twice(monkeypatch):
    """An event goes down to one of the places below in two messages."""
    original = Journeys._send_down

    def send_down(self, spread, peer):
        original(self, spread, peer)
        if not spread.place.bits:
            original(self, spread, peer)

    monkeypatch.setattr(Journeys, "_send_down", send_down)


def plant_a_first_step_to_anybody(monkeypatch):
    """Who publishes sends the event to some neighbour, nearer to the host or not."""
    original = Journeys.next_on_the_way

    def next_on_the_way(self, target, about, sender):
        near = [peer.node for s in self._holdings.seats.values() for peer in s.near.values()]
        if sender is None and about.startswith("e") and near:
            return max(near)
        return original(self, target, about, sender)

    monkeypatch.setattr(Journeys, "next_on_the_way", next_on_the_way)


def plant_a_claim_at_once(monkeypatch):
    """Whoever misses a region takes it, without a look around."""
    monkeypatch.setattr(Holdings, "_is_mine_to_claim", lambda self, part, place, missed_ms: True)
    monkeypatch.setattr(Holdings, "_seek", lambda self, part: None)


def plant_ways_by_own_bits(monkeypatch):
    """§3.3: the bits above a place's own length are not taken from the target."""
    original = Seat.ways

    def ways(self, target, first=0):
        return original(self, target & ((1 << self.place.length) - 1), first)

    monkeypatch.setattr(Seat, "ways", ways)


def plant_copies_that_do_not_hear_of_ends(monkeypatch):
    """Heirs are not told that a subscription has ended."""
    monkeypatch.setattr(Copies, "ended", lambda self, seat, message: None)


def plant_interest_that_is_never_withdrawn(monkeypatch):
    """§4.5 as it is written: it says when interest is told, not when it ends."""
    original = Interests._tell

    def tell(self, seat):
        told = [told for told in seat.told.values() if told.interest.identifiers]
        if seat.wanted.identifiers or not told:
            original(self, seat)

    monkeypatch.setattr(Interests, "_tell", tell)


def plant_an_heir_without_its_copy(monkeypatch):
    """An heir takes a place over, without what was kept there; and nobody brings it again."""
    original = Holdings._claim
    ask_again = Registrations.ask_again

    def ask_what_is_open(self, *, all_of_them=False):
        if not all_of_them:
            ask_again(self)

    def claim(self, place, claim):
        self.copies.clear()
        original(self, place, claim)

    monkeypatch.setattr(Holdings, "_claim", claim)
    monkeypatch.setattr(Copies, "hand_on", lambda self: None)
    monkeypatch.setattr(Registrations, "ask_at", lambda self, place: None)
    monkeypatch.setattr(Registrations, "ask_again", ask_what_is_open)


def plant_the_narrow_rule(monkeypatch):
    """§4.4 as it is written: an event is passed on if it "is labelled" with what was pushed."""
    original = Journeys._send

    def send(self, node, message):
        if not isinstance(message, Handed) or message.bits in message.identifiers:
            original(self, node, message)

    monkeypatch.setattr(Journeys, "_send", send)


def plant_a_deputy_that_sends_on(monkeypatch):
    """A deputy takes the event for one that visits the place: down the subsets, too."""
    original = Journeys.on_handed

    def on_handed(self, peer, message):
        original(self, peer, message)
        copy = self._holdings.copies.get((peer, message.place))
        if copy is not None:
            self._stand_in(copy, message.publication, message.bits, message.hops, 0)

    monkeypatch.setattr(Journeys, "on_handed", on_handed)


def plant_deputies_that_are_not_told(monkeypatch):
    """A deputy answers, although it has not heard of what is new."""
    original = Copies._tell

    def tell(self, seat, message):
        away = {peer: seat.copied.pop(peer) for peer in seat.deputies if peer in seat.copied}
        original(self, seat, message)
        seat.copied.update(away)

    monkeypatch.setattr(Copies, "_tell", tell)


MISTAKES = {
    plant_a_gift_that_is_forgotten: "up, and nobody has it",
    plant_a_gift_that_is_kept: "which overlap",
    plant_halves_that_keep_everything: "not at home there",
    plant_a_neighbour_that_is_overlooked: "does not know what it misses",
    plant_clearing_any_bit: "an event with the bits",
    plant_events_for_all_neighbours: "hosts no subset",
    plant_another_parent_on_some_nodes: "did not visit",
    plant_a_visit_that_is_sent_twice: "more than once",
    plant_a_first_step_to_anybody: "steps to its host",
    plant_a_claim_at_once: "host the same",
    plant_ways_by_own_bits: "the way from",
    plant_copies_that_do_not_hear_of_ends: "has another copy",
    plant_interest_that_is_never_withdrawn: "does not know what",
    plant_an_heir_without_its_copy: "does not keep",
}
MISTAKES_OF_DEPUTIES = {
    plant_the_narrow_rule: "had not got",
    plant_a_deputy_that_sends_on: "was to answer for another",
    plant_deputies_that_are_not_told: "has another copy",
}


@pytest.mark.parametrize("plant", MISTAKES)
def test_it_is_found(plant, monkeypatch):
    scenarios = [scenario_of(seed) for seed in range(SEEDS_MAX)]
    assert_found(plant, MISTAKES[plant], scenarios, monkeypatch)


@pytest.mark.parametrize("plant", MISTAKES_OF_DEPUTIES)
def test_it_is_found_in_a_crowd(plant, monkeypatch):
    scenarios = [crowded(seed) for seed in range(SEEDS_MAX)]
    assert_found(plant, MISTAKES_OF_DEPUTIES[plant], scenarios, monkeypatch)
