"""Nodes crash: what events miss meanwhile, and what is left when all is mended."""

from __future__ import annotations

import pytest

from overlays.reach.reach_network import LETTERS, ReachNetwork, bits_of
from overlays.reach.test_peer import assert_all_get_what_they_want, some_letters, with_subscriptions
from peersub.overlays.reach.identifiers import EMPTY_PLACE, Place, missing_parts
from peersub.overlays.reach.structure import heirs
from peersub.simulator.activities import CrashActivity, PublishActivity
from peersub.simulator.running import run_scenario
from peersub.simulator.scenario import Scenario, ScenarioPhase

NEVER_MS = 10_000_000
DETECTED_MS = 400
"""Links notice after 200 ms that they are broken."""
A_WHILE_MS = 3_000


def waiting_network(seed: int, nodes: int = 16, **settings: object) -> ReachNetwork:
    """Nobody ever takes the place of another, and nothing is repeated: heirs must do."""
    chosen = {"takeover_ms": NEVER_MS, "renew_ms": 0, **settings}
    return with_subscriptions(ReachNetwork.joined(nodes, seed=seed, **chosen), 2 * nodes)


def publish_everywhere(network: ReachNetwork) -> dict[str, str]:
    """Events of all kinds from all nodes; the one with all letters visits all places."""
    sent = {network.publish(node, LETTERS): LETTERS for node in network.nodes}
    for node in network.nodes:
        letters = some_letters(network.random, 0.6)
        sent[network.publish(node, letters)] = letters
    return sent


def missed(network: ReachNetwork, sent: dict[str, str]) -> int:
    """Deliveries that brute force knows and that there were not; never one too many."""
    network.simulation.run_for(A_WHILE_MS)
    count = 0
    for event, letters in sent.items():
        wanting, got = network.wanting(letters), network.delivered[event]
        assert got <= wanting, "once each, and only who wants it"
        count += (wanting - got).total()
    return count


def holder_of(network: ReachNetwork, place: Place) -> str:
    return network.places()[place].me.node


@pytest.mark.parametrize("quench", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_an_heir_stands_in_for_a_node_that_is_gone(seed: int, quench: bool) -> None:
    """Of the lowest place, which all events visit, of one between, and of the highest."""
    for number in (0, 6, 15):
        network = waiting_network(seed, quench=quench)
        place = sorted(network.places())[number]
        network.crash(holder_of(network, place))
        network.simulation.run_for(DETECTED_MS)
        sent = publish_everywhere(network)
        assert missed(network, sent) == 0
        assert missing_parts(EMPTY_PLACE, network.places()) == [place], "nobody has taken it"


def test_without_copies_events_miss_what_was_kept_there() -> None:
    """What the tests above see is the work of the heirs."""
    network = waiting_network(0, copies=0, replicas=0)
    network.crash(holder_of(network, min(network.places())))
    network.simulation.run_for(DETECTED_MS)
    assert missed(network, publish_everywhere(network)) > 0


@pytest.mark.parametrize("seed", range(2))
def test_what_was_on_its_way_to_a_node_that_crashed_goes_another_way(seed: int) -> None:
    network = waiting_network(seed)
    place = min(network.places())
    network.crash(holder_of(network, place))
    sent = publish_everywhere(network)  # before anybody knows
    assert missed(network, sent) == 0
    network = waiting_network(seed, resend_ms=0)
    network.crash(holder_of(network, place))
    assert missed(network, publish_everywhere(network)) > 0, "it is seen if nothing is sent again"


def test_what_is_sent_again_is_not_for_subscriptions_that_began_meanwhile() -> None:
    """The rendezvous is gone, so that nobody gets the event before it is sent again."""
    network = waiting_network(3, takeover_ms=2_500)
    network.crash(network.holder(bits_of(LETTERS)).me.node)
    event = network.publish(network.nodes[0], LETTERS)
    wanting = network.wanting(LETTERS)
    network.simulation.run_for(DETECTED_MS * 3 // 8)
    assert network.delivered[event] < wanting, "nobody but the publisher"
    late = [network.subscribe(node, "ab") for node in network.nodes]
    network.simulation.run_for(A_WHILE_MS)
    assert network.delivered[event] == wanting
    network.settle()
    assert set(late) <= set(network.ready)


@pytest.mark.parametrize("seed", range(3))
def test_a_node_and_its_first_heir_are_gone(seed: int) -> None:
    network = waiting_network(seed)
    place = min(network.places())
    first = network.holder(next(heirs(place))).me.node
    network.crash(holder_of(network, place), first)
    network.simulation.run_for(DETECTED_MS)
    assert missed(network, publish_everywhere(network)) == 0


def test_an_event_without_a_rendezvous_and_its_heirs_is_reported() -> None:
    """Of three nodes two are gone, and nobody has a copy: it is said of each event."""
    network = waiting_network(1, nodes=3, copies=0, replicas=0)
    left = holder_of(network, max(network.places()))
    network.crash(*(node for node in network.nodes if node != left))
    network.simulation.run_for(DETECTED_MS)
    before = network.dropped
    network.publish(left, "")
    network.simulation.run_for(A_WHILE_MS)
    assert network.dropped > before


@pytest.mark.parametrize(("nodes", "quench"), [(32, True), (32, False), (64, True)])
def test_a_quarter_crashes_one_after_another_and_all_events_arrive_meanwhile(
    nodes: int, quench: bool
) -> None:
    """Issue 8: each crash is repaired before the next one; events never stop.

    Nothing is repeated by the nodes that subscriptions live on: copies alone must do.
    """
    network = with_subscriptions(
        ReachNetwork.joined(nodes, seed=8, renew_ms=0, quench=quench), 2 * nodes
    )
    sent: dict[str, str] = {}
    for _ in range(nodes // 4):
        kept = dict(network.wanted)
        network.crash(network.random.choice(network.nodes))
        for _ in range(5):
            letters = some_letters(network.random, 0.6)
            sent[network.publish(network.random.choice(network.nodes), letters)] = letters
            network.simulation.run_for(100)
        network.simulation.run_for(A_WHILE_MS)
        for event, letters in sent.items():
            assert network.delivered[event] >= network.wanting(letters)
        network.settle()
        assert network.complaints() == []
        assert set(network.wanted) <= set(kept)
        sent.clear()
    assert len(network.nodes) == nodes * 3 // 4
    assert_all_get_what_they_want(network, events=30)


def test_the_scenario_of_a_quarter_that_crashes() -> None:
    """The same under the simulator's checkers, with SQL filters and events after each crash."""
    settings = {"attributes": "a; b; s; r.x", "renew_ms": 0}
    crash = (CrashActivity(count=1), PublishActivity(at_ms=20, count=4, every_ms=50))
    phases = [ScenarioPhase(name=f"crash {number}", steps=crash) for number in range(4)]
    after = ScenarioPhase(name="after", steps=(PublishActivity(count=20, every_ms=10),))
    outcome = run_scenario(
        Scenario(
            seed=11,
            overlay="reach",
            nodes=16,
            subscriptions=32,
            settings=settings,
            phases=(*phases, after),
        )
    )
    assert outcome.violations == []
    counts = outcome.checker.counts
    assert counts.expected == counts.delivered > 100
