"""Durable subscriptions in the swarm: mirrors, copies, disks that lie, and mistakes that show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from peersub.overlays.core.event_history import EventHistory
from peersub.overlays.core.mirror_copies import Copies
from peersub.overlays.core.mirror_duties import MirrorSide
from peersub.overlays.core.mirror_home import HomeSide
from peersub.overlays.core.store_marks import LifeMark
from peersub.simulator.actions import RestartNode, TimedAction
from peersub.simulator.running import run_scenario
from peersub.simulator.scenario import Scenario, ScenarioPhase
from peersub.simulator.swarm import MIRRORS_FROM, swarm_scenario

NODES_MAX = 12
SEEDS = 12
SEEDS_MAX = 60
"""A planted mistake is found with fewer."""
DISK_LIES = MIRRORS_FROM + 1_062
SUSPENDED = MIRRORS_FROM + 3_003
"""A subscription is suspended, and its home comes back without its disk."""
ORPHANED = MIRRORS_FROM + 7_000_488
"""All who know of a subscription crash, and none comes back but its home, without its disk."""
LEFT = MIRRORS_FROM + 7_001_078
"""They crash or take leave, one after the other, and again only the home is back."""
ALL_LOST = MIRRORS_FROM + 7_001_485
"""They take leave, or come back without their disks, the home among them."""
MENDED = {
    SUSPENDED: "its consumer is told of the gap",
    MIRRORS_FROM + 2_591: "the disk of the home is lost, and the mirror is not there",
    MIRRORS_FROM + 2_110: "an event that comes late passes by all who hold in turn",
    MIRRORS_FROM + 2_418: "the publisher leaves before those who know of the subscription watch",
    MIRRORS_FROM + 1_000_026: "a subscription has ended, and a former witness watches for it",
    MIRRORS_FROM + 1_000_210: "all go whom both sides of a split know",
    MIRRORS_FROM + 1_001_759: "who stands in sends events to one that does not hold, and is silent",
    MIRRORS_FROM + 2_000_045: "a holder takes one for its leader that was let go, and only watches",
    MIRRORS_FROM + 4_200_022: "a node is told to leave before it could join, across a split",
    MIRRORS_FROM + 5_000_255: "former helpers watch for a home that is suspended",
    MIRRORS_FROM + 5_000_524: "reserves watch for a home that is suspended",
    MIRRORS_FROM + 6_600_002: "all who know of a subscription die at once, and nobody watches",
    ORPHANED: "nobody comes back who knows of a subscription, but its home with an empty disk",
    LEFT: "the last who know of a subscription take leave, and its home has an empty disk",
    ALL_LOST: "all who know of a subscription take leave, or come back with empty disks",
    MIRRORS_FROM + 7_001_217: "who only watches is taken for the leader by who should lead",
    MIRRORS_FROM + 3_183: "a node begins a network of its own, publishes, and finds the others",
}


def scenarios(count: int) -> list[Scenario]:
    drawn = (swarm_scenario(MIRRORS_FROM + seed, "chord") for seed in range(count))
    return [each for each in drawn if each.nodes <= NODES_MAX]


def test_the_swarm_draws_what_mirrors_are_for():
    drawn = [swarm_scenario(MIRRORS_FROM + seed, "chord") for seed in range(200)]
    assert {each.copies for each in drawn} == {1, 2, 3}
    assert len({each.away_max_ms for each in drawn}) == 2
    assert all(each.durable_share for each in drawn)
    assert any("tail-lost" in repr(each.phases) for each in drawn)


def test_what_was_acknowledged_is_taken():
    expected = 0
    for scenario in scenarios(SEEDS):
        outcome = run_scenario(scenario)
        assert outcome.violations == [], f"seed {scenario.seed}: {outcome.violations[:3]}"
        checker = outcome.durable_checker
        assert checker is not None and checker.missing() == []
        expected += checker.expected
    assert expected > 20


@pytest.mark.parametrize("is_known", [True, False], ids=["mirrors know", "planted: they do not"])
def test_a_subscription_that_a_lying_disk_forgot_is_not_ended(
    is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last writes of its home are gone, its making among them, and the rest looks whole."""
    if not is_known:
        monkeypatch.setattr(LifeMark, "is_lost", lambda *_: False)
    violations = run_scenario(swarm_scenario(DISK_LIES, "chord")).violations
    assert bool(violations) is not is_known, violations[:3]


@pytest.mark.parametrize("seed", MENDED, ids=MENDED.values())
def test_a_seed_that_once_failed(seed: int) -> None:
    assert run_scenario(swarm_scenario(seed, "chord")).violations == []


def test_a_gap_that_is_not_told_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HomeSide, "on_suspended", lambda *_: None)
    rules = {each.rule for each in run_scenario(swarm_scenario(SUSPENDED, "chord")).violations}
    assert rules == {"durable-missed"}


@pytest.mark.parametrize("is_heard", [True, False], ids=["heard", "planted: not heard"])
@pytest.mark.parametrize(("seed", "knows"), [(ORPHANED, "n7"), (LEFT, "n3"), (ALL_LOST, "n6")])
def test_what_was_acknowledged_when_nobody_knew_is_owed_once_one_is_back(
    seed: int, knows: str, is_heard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells the home, which has lost its disk, and publishers replay what they have."""
    if not is_heard:
        monkeypatch.setattr(HomeSide, "on_offer", lambda *_, **__: None)
    scenario = swarm_scenario(seed, "chord")
    again = TimedAction(0, RestartNode(knows))
    back = ScenarioPhase(name="back", steps=(), actions=(again,))
    outcome = run_scenario(replace(scenario, phases=(*scenario.phases, back)))
    assert {each.rule for each in outcome.violations} == (set() if is_heard else {"durable-missed"})


def acknowledge_too_early(patch: pytest.MonkeyPatch) -> None:
    secure = Copies.secure

    def at_once(self: Copies, token: int, events: list, now_ms: int) -> None:  # type: ignore[type-arg]
        secure(self, token, events, now_ms)
        for key in list(self._open):
            self._settle(key, None)

    patch.setattr(Copies, "secure", at_once)


def replace_no_copy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MirrorSide, "stand_in", lambda *_: None)
    patch.setattr(HomeSide, "_is_lost", lambda *_: False)


def forget_history(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EventHistory, "__contains__", lambda *_: False)
    patch.setattr(EventHistory, "add", lambda *_: True)


@pytest.mark.parametrize("plant", [acknowledge_too_early, replace_no_copy, forget_history])
def test_a_planted_mistake_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(run_scenario(each).violations for each in scenarios(SEEDS_MAX))
