"""Clusters: neighbours know each other's layers, and subscribers gather where others want the same.

Content through super-peers is judged by brute force, at the subscriptions of nodes and at clients,
while clients come, move, change their minds and go (§4.3).
"""

import pytest

from peersub.overlays.core.causes import Subscribe
from peersub.overlays.core.effects import ProposeMove
from peersub.overlays.dag.topics import EVERYBODY
from peersub.simulator.activities import (
    ChangeActivity,
    CrashActivity,
    JoinActivity,
    LeaveActivity,
    PublishActivity,
    SubscribeActivity,
    SubscriptionChurnActivity,
)
from peersub.simulator.content import WorkloadChoice
from peersub.simulator.running import run_scenario
from peersub.simulator.scenario import Scenario, ScenarioPhase
from peersub.trace.schema import Step

SYMBOLS = WorkloadChoice(kind="symbols")


class Proposals:
    """Each proposal that is made, and to which subscriber."""

    def __init__(self):
        self.made = []
        self.to_movers = []

    def observe(self, record):
        if isinstance(record, Step):
            for effect in record.effects:
                if isinstance(effect, ProposeMove):
                    self.made.append((effect.subscription, record.node, effect.node))
                    if isinstance(record.cause, Subscribe) and record.cause.moved:
                        self.to_movers.append(effect.subscription)


def network(*phases, **changes):
    settings = {"linger_ms": 2_000, **changes.pop("settings", {})}
    start = {"nodes": 16, "subscriptions": 0, "workload": SYMBOLS, "quiet_limit_ms": 300_000}
    return Scenario(**{**start, **changes}, overlay="dag", settings=settings, phases=phases)


def coming(count, *steps, every_ms=400):
    events = PublishActivity(count=count, every_ms=every_ms)
    return ScenarioPhase(
        name="coming", steps=(SubscribeActivity(count=count, every_ms=every_ms), events, *steps)
    )


AFTER = ScenarioPhase(name="after", steps=(PublishActivity(count=40, every_ms=50),))


@pytest.mark.parametrize("seed", [1, 2])
def test_clients_that_gather_get_each_event_once_and_miss_none(seed):
    proposals = Proposals()
    scenario = network(
        coming(40),
        ScenarioPhase(
            name="changing",
            steps=(
                ChangeActivity(count=15, every_ms=300),
                SubscriptionChurnActivity(duration_ms=6_000, per_second=3),
                PublishActivity(count=40, every_ms=150),
            ),
        ),
        AFTER,
        seed=seed,
        through_wire=seed == 2,
    )
    outcome = run_scenario(scenario, observers=[proposals])
    assert outcome.violations == []
    clients = outcome.clients
    assert clients.moved > 4
    assert proposals.to_movers == []
    for checker in (outcome.checker, outcome.client_checker.checker):
        for phase in ("coming", "changing", "after"):
            counts = checker.phases[phase]
            assert counts.delivered >= counts.expected > 10
            assert counts.missed == counts.spurious == counts.duplicate == 0


def test_neighbours_know_which_layers_each_other_needs():
    outcome = run_scenario(network(coming(30), AFTER, nodes=10))
    assert outcome.violations == []
    peers = {host.peer: host.overlay for host in outcome.simulation.living()}
    for peer in peers.values():
        edges = peer.layers[EVERYBODY].edges
        assert sorted(peer.company._near) == sorted(edges)
        for other, near in peer.company._near.items():
            assert sorted(near) == sorted(peers[other].membership.needed())


def test_nobody_is_proposed_to_move_where_clusters_are_off():
    proposals = Proposals()
    scenario = network(coming(30), settings={"clusters": False})
    outcome = run_scenario(scenario, observers=[proposals])
    assert (outcome.violations, proposals.made) == ([], [])


def test_a_change_of_mind_renews_the_proposal():
    proposals = Proposals()
    change = ScenarioPhase(name="changing", steps=(ChangeActivity(count=40, every_ms=200),))
    outcome = run_scenario(network(coming(20), change), observers=[proposals])
    assert outcome.violations == []
    names = [name for name, _, _ in proposals.made]
    assert max(map(names.count, names)) > 1


def layers_per_node(scenario):
    outcome = run_scenario(scenario)
    assert outcome.violations == []
    needed = [len(host.overlay.membership.needed()) for host in outcome.simulation.living()]
    return sum(needed) / len(needed)


def test_clusters_concentrate():
    """Layers per super-peer, against subscribers that stay where they happen to come."""
    phase = ScenarioPhase(name="coming", steps=(SubscribeActivity(count=80, every_ms=200),))
    random = layers_per_node(network(phase, moves=0.0))
    gathered = layers_per_node(network(phase))
    assert gathered < 0.9 * random


@pytest.mark.parametrize(
    "trouble",
    [
        (CrashActivity(at_ms=8_000, count=2),),
        (LeaveActivity(at_ms=6_000, count=3, every_ms=500), JoinActivity(at_ms=7_000, count=3)),
    ],
    ids=["crash", "come-and-go"],
)
def test_clients_of_nodes_that_live_get_everything_when_others_have_gone(trouble):
    outcome = run_scenario(network(coming(50, *trouble, every_ms=300), AFTER))
    assert outcome.violations == []
    after = outcome.client_checker.checker.phases["after"]
    assert after.delivered == after.expected > 20
