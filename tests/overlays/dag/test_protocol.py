"""The anonymous overlay as a whole: in the simulator, judged by the checkers of every run."""

import pytest

from peersub.filters import Filter
from peersub.overlays.core.causes import Publish, Start, Subscribe
from peersub.overlays.core.effects import PublishFailed
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.dag.directory import CONTACTS_MAX, GONE_MAX, Directory
from peersub.overlays.dag.linking import FORMING_MAX
from peersub.overlays.dag.messages import Entry, Label, Offer, Relay
from peersub.overlays.dag.peer import DagPeer
from peersub.overlays.dag.settings import DagSettings
from peersub.simulator.activities import (
    CrashActivity,
    LeaveActivity,
    PublishActivity,
    RestartActivity,
    SubscriptionChurnActivity,
)
from peersub.simulator.running import Outcome, run_scenario
from peersub.simulator.scenario import Scenario, ScenarioPhase
from peersub.simulator.swarm import swarm_scenario

FOUND_MISTAKES = {
    4: "a member of a part that is not whole says that all nodes know of it",
    9: "whoever could not be reached during a split is forgotten",
    14: "all who meet after a split want edges with each other",
    38: "a network with events that wait for turns passes for quiet",
    51: "a member whose offer goes to a lost node never takes its turn",
    225: "two whose parts have met elsewhere want their edge all the same, for ever",
    240: "a member that links up with a part while that is announced does not hear of it",
    439: "a newcomer waits for a directory that is no other than its own by then",
    467: "an edge that one end gives up after all leaves parts of one name",
    551: "a turn is held for one with whom no edge is wanted any more",
    1744: "a member of whose invitation nobody is left to hear of stays on turn with its events",
    1941: "a steward that is still counting when parts meet does not compare with the other part",
    40189: "a newcomer founds a layer, and tells everybody, before it has a neighbour to tell",
    62283: "a newcomer hears of nobody else from a contact that is gone before it is in",
    42117: "a steward that founded a part during a split is listed nowhere, and compares no more",
    669: "who could not reach a member during a split does not turn to it after that",
    920029: "a line that others have no room for passes for one that all nodes know",
    77: "news of a layer, and that it is gone, chase each other for ever",
}


def run(*phases: ScenarioPhase, **given) -> Outcome:
    scenario = Scenario(
        name="dag", overlay="dag", **{"nodes": 12, "seed": 1, **given}, phases=phases
    )
    return run_scenario(scenario)


def layers(outcome: Outcome, name: str) -> list:
    peers = [host.overlay for host in outcome.simulation.living()]
    return [peer.layers[name] for peer in peers if name in peer.layers]


@pytest.mark.parametrize("seed", FOUND_MISTAKES, ids=FOUND_MISTAKES.get)
def test_mistakes_that_the_swarm_found_stay_away(seed):
    outcome = run_scenario(swarm_scenario(seed, "dag"))
    assert outcome.violations == []


def test_those_who_found_a_layer_at_once_make_one_sparse_layer():
    publish = ScenarioPhase(name="publish", steps=(PublishActivity(count=10, every_ms=10),))
    outcome = run(publish, nodes=30, subscriptions=30)
    assert outcome.violations == []
    members = layers(outcome, "*")
    assert len(members) > 20
    assert len({member.label for member in members}) == 1
    assert sum(len(member.edges) for member in members) < 6 * len(members)


@pytest.mark.parametrize("seed", range(4))
def test_subscribers_that_come_and_go_cost_nobody_an_event(seed):
    churn = SubscriptionChurnActivity(duration_ms=8_000, per_second=4.0)
    publish = PublishActivity(count=80, every_ms=150)
    busy = ScenarioPhase(name="busy", steps=(churn, publish))
    settings = {"linger_ms": 100, "degree_min": 1 + seed % 3, "topic": ("symbol", "s")[seed % 2]}
    outcome = run(busy, nodes=8, subscriptions=8, seed=seed, settings=settings)
    assert outcome.violations == []
    counts = outcome.checker.phases["busy"]
    assert counts.missed == 0 < counts.expected


def test_layers_that_nobody_needs_are_forgotten_by_all():
    churn = SubscriptionChurnActivity(duration_ms=3_000, per_second=5.0)
    phases = [ScenarioPhase(name=f"{number}", steps=(churn,)) for number in range(2)]
    outcome = run(*phases, nodes=6, subscriptions=0, settings={"topic": "s", "linger_ms": 50})
    assert outcome.violations == []
    peers = [host.overlay for host in outcome.simulation.living()]
    needed = {name for peer in peers for name in peer.layers if name}
    for peer in peers:
        assert {entry.layer for entry in peer.directory.entries()} <= needed


@pytest.mark.parametrize("seed", range(3))
def test_what_is_left_after_crashes_is_whole_again(seed):
    crash = ScenarioPhase(name="crash", steps=(CrashActivity(at_ms=10, fraction=0.3),))
    after = ScenarioPhase(name="after", steps=(PublishActivity(count=20, every_ms=20),))
    outcome = run(crash, after, nodes=60, subscriptions=60, seed=seed, start="converged")
    assert outcome.violations == []
    counts = outcome.checker.phases["after"]
    assert counts.expected == counts.delivered > 100


def test_events_go_to_another_member_if_the_one_that_is_listed_has_begun_a_new_life():
    crash = CrashActivity(fraction=0.5)
    restart = RestartActivity(at_ms=2_000, disk="lost")
    steps = (crash, restart)
    after = ScenarioPhase(name="after", steps=(PublishActivity(count=30, every_ms=20),))
    outcome = run(ScenarioPhase(name="restart", steps=steps), after, nodes=8, subscriptions=16)
    assert outcome.violations == []
    counts = outcome.checker.phases["after"]
    assert counts.expected == counts.delivered > 0


def test_nodes_that_leave_hand_their_neighbours_to_each_other():
    leave = ScenarioPhase(name="leave", steps=(LeaveActivity(count=6, every_ms=50),))
    after = ScenarioPhase(name="after", steps=(PublishActivity(count=20, every_ms=20),))
    outcome = run(leave, after, nodes=14, subscriptions=28, settings={"degree_min": 1})
    assert outcome.violations == []
    assert outcome.checker.phases["after"].missed == 0


# --- one peer ------------------------------------------------------------------------------------


def lone_peer(**settings) -> DagPeer:
    peer = DagPeer(PeerId("n0"), DagSettings(**settings), 1)
    peer.handle(Start(), 0)
    return peer


def test_at_least_once_is_refused_with_words_that_help():
    event = Publication("e1", {"a": 1}, delivery=Delivery.AT_LEAST_ONCE)
    (failed,) = lone_peer().handle(Publish((event,)), 0)
    assert isinstance(failed, PublishFailed)
    assert "best effort only" in failed.reason and "use chord" in failed.reason


def test_a_lone_member_keeps_no_event_and_no_more_than_it_may():
    peer = lone_peer(queued_events_max=3)
    peer.handle(Subscribe("s1", Filter("TRUE")), 0)
    for number in range(10):
        peer.handle(Publish((Publication(f"e{number}", {}),)), number)
    assert not peer.layers["*"].queued


def test_who_waits_for_edges_is_bounded():
    peer = lone_peer()
    layer = peer.layers[""]
    layer.offers[PeerId("n1")] = 0  # no sink: whoever offers an edge has to wait
    for number in range(2 * FORMING_MAX):
        offer = Offer("", 1, 0, 0, True, False, None, False)
        peer.linking.on_offer(layer, PeerId(f"m{number}"), offer)
    assert len(layer.forming) == FORMING_MAX


def test_the_directory_is_bounded_and_does_not_take_back_who_left():
    directory = Directory(layers_max=2)
    for number in range(10):
        directory.note(Entry("a", Label(number + 1, PeerId(f"n{number}"))))
        directory.note(Entry(f"layer{number}", Label(1, PeerId("n0"))))
    assert len(directory) == 2
    assert directory.contacts("a") == [PeerId(f"n{number}") for number in (9, 8, 7, 6)]
    assert len(directory.contacts("a")) == CONTACTS_MAX
    directory.withdraw("a", Label(10, PeerId("n9")))
    assert not directory.note(Entry("a", Label(10, PeerId("n9"))))
    assert directory.note(Entry("a", Label(11, PeerId("n9"))))
    for number in range(GONE_MAX + 10):
        directory.withdraw("a", Label(1, PeerId(f"m{number}")))
    assert directory.last_void("a", PeerId("m0")) == 0
    assert directory.last_void("a", PeerId(f"m{GONE_MAX + 9}")) == 1


def test_an_event_is_relayed_once_by_whoever_is_no_member():
    peer = lone_peer()
    peer.directory.note(Entry("*", Label(1, PeerId("n7"))))
    event = Publication("e1", {"a": 1})
    sent = []
    peer.send = lambda other, message: sent.append((other.node, message))
    for _ in range(3):
        peer.relaying.on_relay(PeerId("n1"), Relay("*", event))
    assert sent == [("n7", Relay("*", event))]
