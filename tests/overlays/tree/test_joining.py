"""A tree of any degree is joined by all, however long the way down is."""

import pytest

from peersub.overlays.tree.invariants import check_quiet
from peersub.simulator.running import run_scenario
from peersub.simulator.scenario import Scenario


@pytest.mark.parametrize("children_max", [1, 2, 4])
def test_every_node_finds_a_place(children_max):
    scenario = Scenario.from_toml(
        f"""
        overlay = "tree"
        nodes = 24
        seed = 3
        [settings]
        children_max = {children_max}
        """
    )
    outcome = run_scenario(scenario)
    assert outcome.violations == []
    peers = [host.overlay for host in outcome.simulation.living()]
    assert len(peers) == 24
    assert check_quiet(peers) == []
    assert max(len(peer.children) for peer in peers) <= children_max
    if children_max == 1:
        assert max(len(peer.path) for peer in peers) == 24
