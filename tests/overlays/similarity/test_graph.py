"""Members come, search, exchange, go and fall: what is left is the graph that it should be."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.core.causes import Publish, Received, Subscribe, Unsubscribe
from peersub.overlays.core.effects import Deliver, Drop, Send, SubscriptionReady
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.link_messages import unwrapped
from peersub.overlays.core.node import Node
from peersub.overlays.core.publication import Publication
from peersub.overlays.settings import settings_from, with_sample
from peersub.overlays.similarity.choosing import chosen
from peersub.overlays.similarity.invariants import check_quiet
from peersub.overlays.similarity.messages import ProfileTold, Routed, Sought
from peersub.overlays.similarity.peer import SimilarityPeer
from peersub.overlays.similarity.settings import SimilaritySettings
from peersub.simulator.content import SmallContent, WorkloadChoice
from peersub.simulator.engine import Simulation
from peersub.simulator.nodes import NETWORK
from peersub.simulator.running import run_scenario
from peersub.simulator.swarm import swarm_scenario
from peersub.trace.checkers import DeliveryChecker
from peersub.trace.schema import Disk, Step, TraceRecord

QUIET_MS = 400_000
FIXED = {"clique_up_to": 0, "sample_learns": False, "warm_up_events": 0}


class Notes:
    """What was delivered, sent and dropped."""

    def __init__(self) -> None:
        self.got: Counter[tuple[str, str]] = Counter()
        self.ready: list[str] = []
        self.sent: Counter[type] = Counter()
        self.receivers: dict[str, set[str]] = {}
        self.drops: Counter[str] = Counter()

    def observe(self, record: TraceRecord) -> None:
        if not isinstance(record, Step):
            return
        if isinstance(record.cause, Received):
            for message in map(unwrapped, record.cause.messages):
                if isinstance(message, Routed | Sought):
                    self.receivers.setdefault(message.publication.id, set()).add(record.node)
        for effect in record.effects:
            match effect:
                case Deliver(publication, names):
                    self.got.update((name, publication.id) for name in names)
                case SubscriptionReady(name):
                    self.ready.append(name)
                case Send(_, messages):
                    self.sent.update(type(unwrapped(message)) for message in messages)
                case Drop(reason):
                    self.drops[reason] += 1


class Graph:
    """A simulated network."""

    def __init__(self, seed: int = 1, sample: tuple[Event, ...] = (), **chosen_ones: Any) -> None:
        settings = with_sample(settings_from(SimilaritySettings, chosen_ones), sample)
        self.settings: SimilaritySettings = settings
        self.notes = Notes()

        def make(name: str, incarnation: int) -> Node:
            peer = SimilarityPeer(PeerId(name, incarnation), settings, seed)
            return Node(peer, network=NETWORK)

        self.simulation = Simulation(seed, make, observers=(self.notes,))

    def grow(self, nodes: int, filters: list[Filter] | None = None) -> None:
        """So many nodes, one after the other, each with one of the filters."""
        for number in range(nodes):
            name = f"n{number}"
            if number:
                self.simulation.join(name, [f"n{(number * 5 + 3) % number}"])
            else:
                self.simulation.start(name)
            self.simulation.run_for(200)
            if filters is not None:
                self.subscribe(name, f"s{number}", filters[number % len(filters)])

    def subscribe(self, node: str, name: str, wanted: Filter | str) -> None:
        made = Filter(wanted) if isinstance(wanted, str) else wanted
        self.simulation.cause(node, Subscribe(name, made))
        assert self.simulation.run_until(lambda: name in self.notes.ready, QUIET_MS), name

    def publish(self, node: str, *events: Event) -> None:
        self.simulation.cause(node, Publish(tuple(map(Publication.of, events))))

    def settle(self) -> None:
        assert self.simulation.run_until_quiet(QUIET_MS)
        assert check_quiet(self.peers) == []

    @property
    def peers(self) -> list[SimilarityPeer]:
        return [host.overlay for host in self.simulation.living()]

    @property
    def members(self) -> list[Any]:
        return [member for peer in self.peers for member in peer.members()]

    def check_choices(self) -> None:
        """Each member has exactly the near links of one that knows all others."""
        members = self.members
        for member in members:
            others = [
                member.candidate(other.profile)
                for other in members
                if other.me.node != member.me.node
            ]
            best = chosen(member.candidate(member.profile), others, self.settings)
            assert sorted(member.near) == sorted(one.peer for one in best), member.me


def contents(seed: int) -> tuple[list[Filter], tuple[Event, ...]]:
    content = SmallContent(seed, WorkloadChoice(values=8, xpath_share=0.2))
    filters = [content.subscription(number)[1] for number in range(40)]
    return filters, tuple(content.event(1_000_000 + number) for number in range(24))


def grown(seed: int, nodes: int, **chosen_ones: Any) -> Graph:
    filters, sample = contents(seed)
    graph = Graph(seed, sample, **{**FIXED, **chosen_ones})
    graph.grow(nodes, filters)
    graph.settle()
    return graph


CHOICES = [{"choice": "nearest", "nearest": 3, "random": 1}, {"choice": "climb", "random": 1}]


# --- coming and going ----------------------------------------------------------------------------


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice["choice"])
@pytest.mark.parametrize("seed", range(3))
def test_joins_and_exchanges_lead_to_the_best_choice_of_each(choice, seed):
    graph = grown(seed, 18, **choice)
    graph.check_choices()
    assert all(len(member.drawn) == 1 for member in graph.members)


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice["choice"])
def test_who_is_left_after_a_crash_chooses_anew(choice):
    graph = grown(5, 16, **choice)
    graph.simulation.crash([f"n{number}" for number in range(0, 16, 3)])
    graph.settle()
    graph.check_choices()
    assert all(len(member.drawn) == 1 for member in graph.members)


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice["choice"])
def test_who_takes_leave_is_forgotten(choice):
    graph = grown(6, 14, **choice)
    for number in (1, 4, 7, 8):
        graph.simulation.leave(f"n{number}")
    graph.settle()
    graph.check_choices()


def test_parts_of_a_split_network_find_each_other():
    graph = grown(7, 12, choice="nearest", nearest=3)
    sides = [[f"n{number}" for number in range(side, 12, 2)] for side in range(2)]
    graph.simulation.partition(sides)
    assert graph.simulation.run_until_quiet(QUIET_MS)
    across = {peer.node for m in graph.members if m.me.node == "n0" for peer in m.neighbours()}
    assert across <= set(sides[0])
    graph.simulation.heal()
    graph.settle()
    graph.check_choices()


def test_a_node_that_comes_back_brings_its_subscriptions_from_disk():
    graph = grown(8, 8, choice="nearest", nearest=3)
    wanted = [member.wanted for peer in graph.peers for member in peer.members()][3]
    graph.simulation.crash(["n3"])
    graph.settle()
    assert wanted not in [member.wanted for member in graph.members if member.me.node == "n3"]
    graph.simulation.restart("n3", ["n0"], Disk.KEPT)
    graph.settle()
    (member,) = [member for member in graph.members if member.me.node == "n3"]
    assert (member.wanted, member.me.incarnation) == (wanted, 1)
    graph.check_choices()


@pytest.mark.parametrize("away_ms", [100, 3_600_000])
@pytest.mark.parametrize("takes_leave", [True, False], ids=["leave", "crash"])
def test_a_first_node_that_starts_again_and_knows_nobody_is_found(takes_leave, away_ms):
    graph = grown(9, 4, clique_up_to=32)
    if takes_leave:
        graph.simulation.leave("n0")
        graph.simulation.run_for(10_000)
    else:
        graph.simulation.crash(["n0"])
    graph.simulation.run_for(away_ms)
    graph.simulation.restart("n0", disk=Disk.LOST)
    graph.subscribe("n0", "anew", "a = 1")
    graph.settle()
    (member,) = [member for member in graph.members if member.me.node == "n0"]
    assert {peer.node for peer in member.neighbours()} == {"n1", "n2", "n3"}


def test_equal_filters_of_a_node_share_a_member_until_the_last_is_gone():
    graph = Graph()
    graph.grow(2, [Filter("a = 1")])
    graph.subscribe("n0", "again", "a IN (1)")
    graph.settle()
    assert [str(member.me) for member in graph.members] == ["n0/1", "n1/1"]
    graph.simulation.cause("n0", Unsubscribe("s0"))
    graph.settle()
    assert len(graph.members) == 2
    graph.simulation.cause("n0", Unsubscribe("again"))
    graph.settle()
    (left,) = graph.members
    assert (str(left.me), left.neighbours()) == ("n1/1", [])
    graph.subscribe("n0", "anew", "a = 1")
    assert [str(member.me) for member in graph.members] == ["n0/2", "n1/1"], "slots are not reused"


def test_a_link_that_nobody_needs_is_closed():
    graph = grown(9, 12, choice="nearest", nearest=1, random=0)
    needed = {
        (member.me.node, peer.node) for member in graph.members for peer in member.neighbours()
    }
    always = None
    for _ in range(6):
        # Desks ask a node now and then: a link may be up for that, but not for long.
        graph.simulation.run_for(20_000)
        links = {(peer.me.node, other.node) for peer in graph.peers for other in peer.links()}
        assert needed <= links
        always = links if always is None else always & links
    assert always == needed


# --- events --------------------------------------------------------------------------------------


def wanted_by(graph: Graph, event: Event) -> set[str]:
    return {
        name
        for peer in graph.peers
        for name, wanted in peer.home.subscriptions.items()
        if wanted.matches(event)
    }


def delivered(graph: Graph, event: Event) -> Counter[str]:
    return Counter(
        {name: times for (name, found), times in graph.notes.got.items() if found == event.id}
    )


@pytest.mark.parametrize("publisher", range(6))
def test_a_small_network_misses_nothing_whoever_publishes(publisher):
    filters, _ = contents(3)
    graph = Graph(3)
    graph.grow(6, filters[:5])
    graph.settle()
    content = SmallContent(3, WorkloadChoice(values=8, xpath_share=0.2))
    for number in range(12):
        event = content.event(number)
        graph.publish(f"n{publisher}", event)
        graph.simulation.run_for(2_000)
        assert delivered(graph, event) == Counter(wanted_by(graph, event))


def test_a_node_without_members_publishes_through_others():
    graph = Graph()
    graph.grow(4)
    graph.subscribe("n3", "s", "a = 1")
    graph.simulation.run_for(10_000)
    graph.publish("n1", Event("yes", {"a": 1}), Event("no", {"a": 2}))
    graph.simulation.run_for(2_000)
    assert dict(graph.notes.got) == {("s", "yes"): 1}


def test_who_knows_of_no_member_says_so():
    graph = Graph()
    graph.grow(2)
    graph.publish("n1", Event("e", {"a": 1}))
    assert graph.notes.drops["no member is known that could pass it on"] == 1


def chain(**chosen_ones: Any) -> Graph:
    """Members in a line by what they want: a = 0; a in 0, 1; a in 1, 2; ..."""
    wishes = ["a = 0", *(f"a IN ({k}, {k + 1})" for k in range(6))]
    sample = tuple(Event(f"x{k}", {"a": k}) for k in range(7))
    settings = {**FIXED, "choice": "nearest", "nearest": 1, "random": 0, "smoothing": 0.0}
    graph = Graph(1, sample, **{**settings, **chosen_ones})
    graph.grow(len(wishes), [Filter(wish) for wish in wishes])
    graph.settle()
    return graph


def test_copies_stop_where_nobody_matches_and_indulgence_carries_them_on():
    reach = {}
    for indulgence in range(3):
        graph = chain(indulgence=indulgence)
        graph.publish("n0", Event("e", {"a": 0}))
        graph.simulation.run_for(2_000)
        reach[indulgence] = graph.notes.receivers["e"]
        assert delivered(graph, Event("e", {"a": 0})) == Counter({"s0": 1, "s1": 1})
    assert reach[0] < reach[1] < reach[2]


def test_an_event_looks_for_the_first_that_matches_it():
    graph = chain(indulgence=0)
    # Nobody on n0 wants it, nor does its neighbour.
    graph.publish("n0", Event("e", {"a": 5}))
    graph.simulation.run_for(3_000)
    assert graph.notes.sent[Sought] > 1
    assert set(delivered(graph, Event("e", {"a": 5}))) <= wanted_by(graph, Event("e", {"a": 5}))


def test_summaries_hold_copies_back_and_cause_no_miss():
    plain, tiny = (
        grown(11, 16, choice="nearest", nearest=4, random_forward=1.0, summary_bytes=size)
        for size in (0, 64)
    )
    content = SmallContent(11, WorkloadChoice(values=8, xpath_share=0.2))
    for number in range(20):
        event = content.event(number)
        matching = [m for m in plain.members if m.wanted.matches(event)]
        if not matching:
            continue
        for graph in (plain, tiny):
            graph.publish(matching[0].me.node, event)
            graph.simulation.run_for(2_000)
        assert delivered(tiny, event) == delivered(plain, event)
        received = [graph.notes.receivers.get(event.id, set()) for graph in (plain, tiny)]
        assert received[1] <= received[0]
    assert tiny.notes.sent[Routed] < plain.notes.sent[Routed]


def test_nodes_come_to_measure_by_one_sample_of_what_was_published():
    graph = Graph(sample_events=8)
    graph.grow(5, [Filter("a < 5"), Filter("a > 2")])
    for number in range(20):
        graph.publish(f"n{number % 5}", Event(f"e{number}", {"a": number % 7}))
    graph.settle()
    digests = {peer.sample.digest for peer in graph.peers}
    assert len(digests) == 1
    assert graph.notes.sent[ProfileTold] >= 5, "neighbours need not wait for an exchange"
    assert len(graph.peers[0].sample) == 8
    for member in graph.members:
        assert member.profile.sample in digests
        for peer in member.neighbours():
            assert member.known[peer].sample in digests, "neighbours are told of new bits"


def test_readiness_waits_for_the_neighbours_and_names_them():
    graph = Graph()
    graph.grow(3, [Filter("a = 1")])
    graph.settle()
    graph.simulation.join("n9", ["n0"])
    graph.simulation.run_for(500)
    graph.simulation.partition([["n9"], ["n0", "n1", "n2"]])
    graph.simulation.cause("n9", Subscribe("late", Filter("a = 2")))
    graph.simulation.run_for(20)
    assert "late" not in graph.notes.ready
    graph.simulation.heal()
    assert graph.simulation.run_until(lambda: "late" in graph.notes.ready, QUIET_MS)
    described = graph.simulation.hosts["n9"].overlay.describe()
    assert described["promise"].startswith("approximate")


# --- swarms --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [300, *range(302, 317)])
def test_the_swarm_finds_no_broken_promise(seed):
    assert run_scenario(swarm_scenario(seed, "similarity")).violations == []


@pytest.mark.parametrize("seed", range(400, 412))
def test_cliques_miss_nothing_that_best_effort_promises(seed):
    """Where everyone knows everyone the overlay is judged like any other."""
    drawn = swarm_scenario(seed, "similarity")
    scenario = replace(drawn, settings={**drawn.settings, "clique_up_to": 500})
    assert run_scenario(scenario, checker=DeliveryChecker()).violations == []
