"""Mistakes planted in the anonymous overlay on purpose, each of which the checkers must find.

The networks are small and grow, shrink and publish; without the mistake nothing is found in them.
"""

from __future__ import annotations

import pytest

from overlays.planted import assert_found
from peersub.overlays.dag import layer as layers
from peersub.overlays.dag.layer import Layer
from peersub.overlays.dag.linking import Linking
from peersub.overlays.dag.orientation import first_free_lid, turned
from peersub.overlays.dag.peer import DagPeer
from peersub.overlays.dag.publishing import Publishing
from peersub.simulator.activities import JoinActivity, LeaveActivity, PublishActivity
from peersub.simulator.scenario import Scenario, ScenarioPhase

SEEDS_MAX = 12
STEPS_MAX = 8_000


def scenario_of(seed: int) -> Scenario:
    busy = (
        JoinActivity(count=2),
        PublishActivity(count=12, every_ms=40),
        LeaveActivity(at_ms=300, count=1),
    )
    return Scenario(
        seed=seed,
        overlay="dag",
        nodes=8,
        subscriptions=12,
        steps_max=STEPS_MAX,
        settings={"topic": "a", "hold_ms": 2_000},
        phases=(
            ScenarioPhase(name="busy", steps=busy),
            ScenarioPhase(name="after", steps=(PublishActivity(count=6, every_ms=10),)),
        ),
    )


def plant_the_numeric_maximum(monkeypatch):
    """R2 of Module 1 as it is written: 2 is more than 0, though 0 comes after 2."""

    def literally(val, lid, neighbours):
        around = list(neighbours)
        ahead = [other for value, other in around if value == (val + 1) % 3]
        if not around or not ahead:
            return turned(val, lid, around)
        taken = [other for _, other in around]
        return max(value for value, _ in around), first_free_lid(taken, above=max(ahead))

    monkeypatch.setattr(layers, "turned", literally)


def plant_an_acceptance_while_offers_are_open(monkeypatch):
    """Who has offered an edge takes one, as if its own were not to come up."""
    original = Linking.on_offer

    def on_offer(self, layer, peer, offer):
        kept = {other: turns for other, turns in layer.offers.items() if other != peer}
        layer.offers = {peer: layer.offers[peer]} if peer in layer.offers else {}
        original(self, layer, peer, offer)
        layer.offers |= kept

    monkeypatch.setattr(Linking, "on_offer", on_offer)


def plant_a_token_that_is_kept(monkeypatch):
    """After a turn the last edge still counts as one that points here."""
    original = Layer.take_turn

    def take_turn(self, send):
        original(self, send)
        if len(self.edges) > 1:
            list(self.edges.values())[-1].holds_token = True

    monkeypatch.setattr(Layer, "take_turn", take_turn)


def plant_a_token_that_is_lost(monkeypatch):
    """With its tenth turn a member forgets to tell its first neighbour."""
    original = Layer.take_turn

    def take_turn(self, send):
        first = next(iter(self.edges), None)
        skips = self.turns == 9
        original(self, lambda to, message: None if skips and to == first else send(to, message))

    monkeypatch.setattr(Layer, "take_turn", take_turn)


def plant_forwarding_without_a_memory(monkeypatch):
    """Module 5 as it is written: whatever comes is sent on, as often as it comes."""

    def on_passed(self, layer, sender, message):
        layer.is_pressed = True
        self._peer.touch(layer)
        self.hand_over(message.publication)
        layer.queue(message.publication, sender)

    monkeypatch.setattr(Publishing, "on_passed", on_passed)


def plant_a_layer_that_touches_another(monkeypatch):
    """A lid for all layers: what a turn of one makes of it, the others have as well."""
    original = DagPeer._advance

    def advance(self, layer):
        turns = layer.turns
        original(self, layer)
        if layer.turns > turns:
            for other in self.layers.values():
                other.lid = layer.lid

    monkeypatch.setattr(DagPeer, "_advance", advance)


def plant_a_value_for_who_has_edges(monkeypatch):
    """Every newcomer to a member takes the value that it is given, also with other edges."""
    original = Linking.on_link_up_ok

    def on_link_up_ok(self, layer, peer, message):
        known = peer in layer.offers
        original(self, layer, peer, message)
        if known and len(layer.edges) > 1:
            layer.val = (layer.val + 1) % 3

    monkeypatch.setattr(Linking, "on_link_up_ok", on_link_up_ok)


MISTAKES = {
    plant_the_numeric_maximum: "by a turn",
    plant_an_acceptance_while_offers_are_open: "the values say otherwise",
    plant_a_token_that_is_kept: "keeps the token",
    plant_a_token_that_is_lost: "no turn for them",
    plant_forwarding_without_a_memory: "more than 8,000 steps",
    plant_a_layer_that_touches_another: "lid",
    plant_a_value_for_who_has_edges: "without a turn",
}


@pytest.mark.parametrize("plant", MISTAKES)
def test_it_is_found(plant, monkeypatch):
    scenarios = [scenario_of(seed) for seed in range(SEEDS_MAX)]
    assert_found(plant, MISTAKES[plant], scenarios, monkeypatch)
