"""Mistakes planted in Chord on purpose, each of which the first seeds of the swarm must find."""

import pytest

from peersub.overlays.chord.topology import ChordTopology
from peersub.overlays.routing.covering_order import OrderNode
from peersub.simulator.running import run_scenario
from peersub.simulator.swarm import swarm_scenario

SEEDS_MAX = 40
NODES_MAX = 9


def plant_in_the_responsibility_arithmetic(monkeypatch):
    """The last key of each part is left out: its node gets nothing."""
    original = ChordTopology.parts

    def parts(self, scope, sender):
        found = original(self, scope, sender)
        return [(peer, (start, max(length - 1, 1))) for peer, (start, length) in found]

    monkeypatch.setattr(ChordTopology, "parts", parts)


def plant_in_the_covering_shortcut(monkeypatch):
    """A filter that only overlaps another may be taken for covered, and is not forwarded."""
    original = OrderNode.covers

    def covers(self, specific, *allowance):
        is_planted = self.digest < specific.digest and self.filter.overlaps(specific.filter)
        return is_planted or original(self, specific, *allowance)

    monkeypatch.setattr(OrderNode, "covers", covers)


def plant_in_the_successor_promotion(monkeypatch):
    """When the successor is lost, the one after the next is promoted."""
    original = ChordTopology.know

    def know(self, members):
        known = sorted(members, key=lambda member: (member.key - self.key) % self.size)
        former = self.successor
        if former is not None and former not in known and len(known) > 2:
            known = known[1:]
        original(self, known)

    monkeypatch.setattr(ChordTopology, "know", know)


@pytest.mark.parametrize(
    "plant",
    [
        plant_in_the_responsibility_arithmetic,
        plant_in_the_covering_shortcut,
        plant_in_the_successor_promotion,
    ],
)
def test_the_swarm_finds_it(plant, monkeypatch):
    plant(monkeypatch)
    for seed in range(SEEDS_MAX):
        scenario = swarm_scenario(seed, "chord")
        if scenario.nodes <= NODES_MAX and run_scenario(scenario).violations:
            monkeypatch.undo()
            assert run_scenario(scenario).violations == [], "it is the mistake that is found"
            return
    pytest.fail(f"not found with the first {SEEDS_MAX} seeds")
