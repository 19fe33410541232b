"""Of how many events the checkers of a run can say where they went; what they say is planted."""

import pytest

from overlays.reach.test_planted_mistakes import scenario_of
from peersub.overlays.reach import invariants
from peersub.overlays.reach.watching import NetworkWatch
from peersub.simulator.running import run_scenario
from peersub.simulator.swarm import swarm_scenario

PUBLISHED = 18


@pytest.mark.parametrize("seed", [0, 1])
def test_events_are_judged_or_counted_as_left_out(seed, monkeypatch):
    made: list[NetworkWatch] = []

    def watch(peer_at):
        made.append(NetworkWatch(peer_at))
        return made[0]

    monkeypatch.setattr(invariants, "NetworkWatch", watch)
    scenario = scenario_of(seed)
    assert run_scenario(scenario).violations == []
    assert made[0].judged + made[0].left_out == PUBLISHED
    assert made[0].judged >= 6, "those after the last change"


def test_the_swarm_draws_what_decides_on_visits():
    settings = [swarm_scenario(seed, "reach").settings for seed in range(70_000, 70_060)]
    for name, values in {
        "quench": {True, False},
        "summary": {0, 2, 96},
        "summary_filters": {True, False},
        "answer_share": {0.0, 0.8},
        "resend_ms": {0, 5_000},
    }.items():
        assert {each[name] for each in settings} == values
