"""The swarm draws everything, and fuzzing finds what is planted."""

import pytest

from peersub.overlays.core.home import Home
from peersub.overlays.core.probing import Probing
from peersub.overlays.registry import OVERLAYS
from peersub.simulator import fuzz
from peersub.simulator.running import run_scenario
from peersub.simulator.scenario import Scenario
from peersub.simulator.swarm import (
    LAYERS_FROM,
    MOVES_FROM,
    NODES_DRAWN_MAX,
    STARTS_FROM,
    SUBSETS_FROM,
    TURNS_FROM,
    swarm_scenario,
)

SCENARIOS = [swarm_scenario(seed) for seed in range(400)]


def test_every_option_is_on_in_some_scenarios_and_off_in_others():
    assert {scenario.overlay for scenario in SCENARIOS} == set(OVERLAYS) - {"dag", "reach"}
    later = {swarm_scenario(LAYERS_FROM + number).overlay for number in range(100)}
    assert later == set(OVERLAYS) - {"reach"}
    later = {swarm_scenario(SUBSETS_FROM + number).overlay for number in range(100)}
    assert later == set(OVERLAYS)
    for name in ("loss", "duplicate", "reorder"):
        assert 0.05 < sum(getattr(s.network, name) > 0 for s in SCENARIOS) / 400 < 0.6
    assert 0.1 < sum(scenario.start == "converged" for scenario in SCENARIOS) / 400 < 0.4
    assert 0.1 < sum(scenario.through_wire for scenario in SCENARIOS) / 400 < 0.5
    assert 0.1 < sum(bool(s.links["tunnels"]) for s in SCENARIOS) / 400 < 0.7
    sizes = sorted(scenario.nodes for scenario in SCENARIOS)
    assert sizes[0] == 1 and 30 < sizes[-1] <= NODES_DRAWN_MAX


def test_chord_meets_every_fault_and_every_strategy():
    chords = [scenario for scenario in SCENARIOS if scenario.overlay == "chord"]
    phases = {phase.name for scenario in chords for phase in scenario.phases}
    faults = {
        "crash",
        "restart",
        "partition",
        "split",
        "healed",
        "edges",
        "mended",
        "churn",
        "storm",
    }
    assert faults | {"leave", "join", "calm", "after", "unsubscribed"} == phases
    strategies = {scenario.settings["strategy"] for scenario in chords}
    assert strategies == {"simple", "identity", "covering", "perfect", "imperfect"}


def test_events_overtake_filters_and_slices_are_small():
    before = swarm_scenario(TURNS_FROM - 1, "chord")
    assert not before.network.turn_ms and "rows_told_per_turn" not in before.settings
    later = [swarm_scenario(TURNS_FROM + number, "chord") for number in range(60)]
    assert {each.network.turn_ms for each in later} == {0, 2, 20, 60}
    for name in ("rows_per_turn", "rows_told_per_turn", "rows_per_message"):
        assert len({each.settings[name] for each in later}) == 3


def test_nodes_start_cold_and_start_again_alone():
    before = [swarm_scenario(STARTS_FROM - 1 - number, "chord") for number in range(40)]
    assert "cold" not in {scenario.start for scenario in before}
    later = [swarm_scenario(STARTS_FROM + number, "chord") for number in range(40)]
    assert {scenario.start for scenario in later} == {"cold", "joined", "converged"}
    steps = [step for scenario in later for phase in scenario.phases for step in phase.steps]
    assert {step.alone for step in steps if step.do == "restart"} == {True, False}


def test_nodes_that_look_for_nobody_are_found_out(monkeypatch):
    seeds = (STARTS_FROM + 43, STARTS_FROM + 61)  # Small, with nodes that start again alone.
    scenarios = [swarm_scenario(seed, "chord") for seed in seeds]
    assert [run_scenario(scenario).violations for scenario in scenarios] == [[], []]
    monkeypatch.setattr(Probing, "take_due", lambda self, now_ms: [])
    assert all(run_scenario(scenario).violations for scenario in scenarios)


def test_subscribers_move_refuse_and_change_their_minds():
    before = [swarm_scenario(MOVES_FROM - 1 - number, "dag") for number in range(40)]
    assert {scenario.moves for scenario in before} == {1.0}
    later = [swarm_scenario(MOVES_FROM + number, "dag") for number in range(80)]
    assert {scenario.moves for scenario in later} == {0.0, 0.5, 1.0}
    assert {scenario.settings["topic"] for scenario in later} == {"s", "a", "r.x", "symbol"}
    done = {step.do for scenario in later for phase in scenario.phases for step in phase.steps}
    assert {"change", "subscribe"} <= done
    assert all(Scenario.from_toml(scenario.to_toml()) == scenario for scenario in later)
    others = swarm_scenario(MOVES_FROM, "chord")
    assert "topic" not in others.settings


def test_edges_only_fail_where_tunnels_lead_around_them():
    for scenario in SCENARIOS:
        if any(phase.name == "edges" for phase in scenario.phases):
            assert scenario.links["tunnels"]


def test_one_overlay_can_be_asked_for():
    scenario = swarm_scenario(5, "flood")
    assert scenario.overlay == "flood" and scenario == swarm_scenario(5, "flood")


@pytest.mark.parametrize("seed", range(SUBSETS_FROM, SUBSETS_FROM + 10))
def test_reach_keeps_its_promises_and_its_invariants(seed):
    assert fuzz.run_seed(seed, "reach").violations == ()


@pytest.mark.parametrize("seed", range(8))
def test_the_flood_keeps_its_promises(seed):
    assert fuzz.run_seed(seed, "flood").violations == ()


def test_fuzzing_without_a_failure_is_a_success(capsys):
    assert fuzz.main(["--seeds", "3", "--overlay", "flood", "--jobs", "1"]) == 0
    assert "3 of 3 seeds, 0 failed" in capsys.readouterr().err


def test_a_planted_mistake_is_found_shrunk_and_can_be_replayed(monkeypatch, capsys, tmp_path):
    # Events go to whoever is there.
    monkeypatch.setattr(Home, "matching", lambda self, event: tuple(self.subscriptions))
    words = ["--seeds", "4", "--overlay", "flood", "--jobs", "1", "--shrink", "--out"]
    assert fuzz.main([*words, str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "fails; replay it with: peersub simulate --swarm" in said
    (file,) = tmp_path.glob("swarm-*.toml")
    assert f"peersub simulate --scenario {file}" in said
    assert file.read_text().count("[[phases.actions]]") < 10
