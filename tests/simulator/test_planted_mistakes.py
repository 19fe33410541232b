"""Mistakes planted in Chord on purpose, each of which the first seeds of the swarm must find."""

import pytest

from peersub.overlays.chord.topology import ChordTopology
from peersub.overlays.routing.covering_order import OrderNode
from peersub.overlays.routing.maintenance import FilterMaintenance
from peersub.simulator.running import run_scenario
from peersub.simulator.swarm import TURNS_FROM, swarm_scenario

SEEDS_MAX = 40
NODES_MAX = 9
SMALL_SLICES = TURNS_FROM + 327


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


def test_the_swarm_finds_who_is_ready_too_early(monkeypatch):
    """What has changed during an update in slices is told to nobody: a seed of small slices."""
    original = FilterMaintenance._answer

    def answer(self, concerned):
        publishers, concerned = self._publishers, tuple(concerned)
        sending = [peer for peer in concerned if publishers[peer].outgoing]
        original(self, concerned)
        for peer in sending:
            if not publishers[peer].outgoing and peer not in self._answers:
                self._due.pop(peer, None)

    scenario = swarm_scenario(SMALL_SLICES, "chord")
    assert run_scenario(scenario).violations == []
    monkeypatch.setattr(FilterMaintenance, "_answer", answer)
    assert run_scenario(scenario).violations
