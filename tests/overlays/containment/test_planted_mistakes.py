"""Mistakes planted in the containment tree on purpose, each of which the swarm must find."""

import pytest

from peersub.overlays.containment.giving import Giving
from peersub.overlays.containment.moving import Moving
from peersub.overlays.containment.peer import ContainmentPeer
from peersub.overlays.containment.routing import Routing
from peersub.overlays.containment.seat import Seat
from peersub.overlays.containment.siblings import Siblings
from peersub.overlays.containment.structure import EdgeKind
from peersub.simulator.running import run_scenario
from peersub.simulator.swarm import swarm_scenario

SEEDS_MAX = 60
NODES_MAX = 9


def plant_own_interest_on_top_edges(monkeypatch):
    """A top-level member passes on only what it wants itself: what is behind it is cut off."""
    original = Routing._below

    def below(self, came_from, is_match, message):
        for peer in original(self, came_from, is_match, message):
            if is_match or self._seat.down[peer].kind is not EdgeKind.TOP:
                yield peer

    monkeypatch.setattr(Routing, "_below", below)


def plant_repair_without_ancestors(monkeypatch):
    """Who loses the one above asks nobody, and nobody looks for those that were lost."""
    monkeypatch.setattr(Moving, "_known", lambda self: [])
    monkeypatch.setattr(ContainmentPeer, "remember", lambda self, node: None)


def plant_break_before_make(monkeypatch):
    """Who is handed over gives its place up before it has another."""
    original = Moving.on_handed

    def on_handed(self, sender, message):
        seat = self._seat
        original(self, sender, message)
        if seat.up is not None and seat.up.peer == sender and not seat.is_leaving:
            seat.detach(seat.up)
            seat.lose_up()

    monkeypatch.setattr(Moving, "on_handed", on_handed)


def plant_forgotten_neighbour_of_a_list(monkeypatch):
    """A child of a long list passes events only to the left."""
    original = Siblings.next_ones

    def next_ones(self, parent, direction):
        return original(self, parent, direction)[:1]

    monkeypatch.setattr(Siblings, "next_ones", next_ones)


def plant_unproven_children(monkeypatch):
    """A place is given without asking for a proof."""
    monkeypatch.setattr(Giving, "_for_child", lambda self, sender, message: None)
    monkeypatch.setattr(Seat, "contains", lambda self, other: other is not None)


@pytest.mark.parametrize(
    "plant",
    [
        plant_own_interest_on_top_edges,
        plant_repair_without_ancestors,
        plant_break_before_make,
        plant_forgotten_neighbour_of_a_list,
        plant_unproven_children,
    ],
)
def test_the_swarm_finds_it(plant, monkeypatch):
    plant(monkeypatch)
    for seed in range(SEEDS_MAX):
        scenario = swarm_scenario(seed, "containment")
        if scenario.nodes <= NODES_MAX and run_scenario(scenario).violations:
            monkeypatch.undo()
            assert run_scenario(scenario).violations == [], "it is the mistake that is found"
            return
    pytest.fail(f"not found with the first {SEEDS_MAX} seeds")
