"""The baselines: what flood and tree promise, and what they cost."""

import pytest

from peersub.filters import Filter
from peersub.overlays.core.causes import Publish, Start, Subscribe
from peersub.overlays.core.effects import Deliver, PublishFailed
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.registry import OVERLAYS, make_overlay
from peersub.simulator.running import run_scenario
from peersub.simulator.scenario import Scenario
from peersub.simulator.swarm import swarm_scenario

NODES = 20


def _outcome(overlay: str):
    return run_scenario(
        Scenario.from_toml(
            f"""
            overlay = "{overlay}"
            nodes = {NODES}
            seed = 5
            start = "converged"
            subscriptions = 40
            [[phases]]
            name = "publishing"
            [[phases.steps]]
            do = "publish"
            count = 30
            every_ms = 50
            """
        )
    )


@pytest.mark.parametrize("name", [name for name in OVERLAYS if name != "chord"])
def test_at_least_once_is_refused_in_clear_words(name):
    overlay = make_overlay(name, PeerId("n1"), 1)
    overlay.handle(Start(), 0)
    overlay.handle(Subscribe("s", Filter("a = 1")), 0)
    publication = Publication("e", {"a": 1}, delivery=Delivery.AT_LEAST_ONCE)
    effects = overlay.handle(Publish((publication,)), 1)
    (failed,) = [effect for effect in effects if isinstance(effect, PublishFailed)]
    assert "best effort only: use chord" in failed.reason
    assert not any(isinstance(effect, Deliver) for effect in effects)


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_node_alone_serves_itself(name):
    overlay = make_overlay(name, PeerId("n1"), 1)
    overlay.handle(Start(), 0)
    overlay.handle(Subscribe("s", Filter("a = 1")), 0)
    effects = overlay.handle(Publish((Publication("e", {"a": 1}),)), 1)
    (deliver,) = [effect for effect in effects if isinstance(effect, Deliver)]
    assert (deliver.subscriptions, deliver.hops) == (("s",), 0)


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_converged_network_delivers_all_and_nothing_else(name):
    outcome = _outcome(name)
    assert outcome.violations == []
    assert outcome.checker.counts.delivered == outcome.checker.counts.expected > 0


def test_a_converged_flood_gets_whole_again_after_half_of_it_has_crashed():
    """Nodes of a converged start know whom their neighbours named, as those that joined do."""
    outcome = run_scenario(swarm_scenario(20121))
    assert outcome.scenario.overlay == "flood"
    assert outcome.violations == []
