"""Networks of Reach: who joins, leaves or crashes, and who gets what, judged by brute force."""

from random import Random

import pytest

from overlays.reach.reach_network import LETTERS, ReachNetwork, bits_of
from peersub.overlays.reach.identifiers import EMPTY_PLACE, distance, is_visited
from peersub.overlays.reach.interest import SOMETHING
from peersub.overlays.reach.seats import NOTHING
from peersub.overlays.reach.structure import heirs


def some_letters(random: Random, share: float = 0.4) -> str:
    return "".join(letter for letter in LETTERS if random.random() < share)


def with_subscriptions(network: ReachNetwork, count: int, share: float = 0.3) -> ReachNetwork:
    for number in range(count):
        node = network.nodes[number % len(network.nodes)]
        network.subscribe(node, some_letters(network.random, share))
    network.settle()
    assert set(network.wanted) <= set(network.ready)
    return network


def assert_all_get_what_they_want(network: ReachNetwork, events: int = 12) -> None:
    published = {}
    for _ in range(events):
        letters = some_letters(network.random, 0.5)
        published[network.publish(network.random.choice(network.nodes), letters)] = letters
    network.settle()
    for event, letters in published.items():
        assert network.delivered[event] == network.wanting(letters)


@pytest.mark.parametrize("nodes", [1, 2, 3, 11])
def test_nodes_that_join_at_once_share_the_identifiers(nodes: int) -> None:
    network = ReachNetwork.joined(nodes)
    assert network.complaints() == []
    assert len(network.places()) == nodes


@pytest.mark.parametrize(("quench", "summary"), [(False, 0), (True, 0), (True, 3), (True, 64)])
def test_events_visit_the_subsets_and_reach_all_who_want_them(quench: bool, summary: int) -> None:
    settings = {"quench": quench, "summary": summary, "answer_share": 0.0}
    network = with_subscriptions(ReachNetwork.joined(11, **settings), 7, share=0.6)
    assert network.complaints() == []
    fewer = 0
    for _ in range(20):
        letters = some_letters(network.random, 0.8)
        publisher = network.random.choice(network.nodes)
        (start,) = network.peer(publisher).holdings.seats
        event = network.publish(publisher, letters)
        network.settle()
        bits = bits_of(letters)
        (rendezvous,) = [place for place in network.places() if place.hosts(bits)]
        subsets = {p: 1 for p in network.places() if is_visited(p, bits) and p != rendezvous}
        if quench:
            assert network.visited[event].items() <= subsets.items()
            fewer += len(subsets) - len(network.visited[event])
        else:
            assert network.visited[event] == subsets
        assert network.ways[event] <= distance(start, bits)
        assert network.delivered[event] == network.wanting(letters)
    assert bool(fewer) == bool(summary), "a bit alone says too little here"


def test_a_start_that_is_set_is_one_that_joins_lead_to() -> None:
    network = with_subscriptions(ReachNetwork.converged(20), 10)
    assert network.complaints() == []
    assert_all_get_what_they_want(network)


def test_interest_is_withdrawn_when_nobody_is_left() -> None:
    network = with_subscriptions(ReachNetwork.joined(9), 6)
    seats = [seat for peer in network.peers for seat in peer.holdings.seats.values()]
    assert any(seat.wanted.identifiers for seat in seats)
    for name in list(network.wanted):
        network.unsubscribe(name)
    network.settle()
    assert network.complaints() == []
    assert not any(seat.wanted.identifiers or seat.has_entries for seat in seats)
    event = network.publish("n0", LETTERS)
    network.settle()
    assert not network.visited[event]


def test_what_is_wanted_by_several_conditions_comes_once() -> None:
    network = ReachNetwork.joined(6)
    network.subscribe("n1", "a")
    network.subscribe("n1", "ab")
    network.subscribe("n1", "")
    network.settle()
    event = network.publish("n3", "abc")
    network.settle()
    assert network.delivered[event] == network.wanting("abc")
    assert len(network.delivered[event]) == 3


def test_after_as_many_leaves_as_joins_one_node_has_everything() -> None:
    network = with_subscriptions(ReachNetwork.joined(7), 7)
    for node in network.nodes[1:]:
        network.leave(node)
        network.settle()
        assert network.complaints() == []
        assert_all_get_what_they_want(network, events=3)
    assert network.nodes == ["n0"]
    assert list(network.places()) == [EMPTY_PLACE]


def test_several_leave_at_once() -> None:
    network = with_subscriptions(ReachNetwork.joined(12, seed=3), 12)
    for node in network.nodes[2:7]:
        network.leave(node)
    network.settle()
    assert network.complaints() == []
    assert_all_get_what_they_want(network)


def test_the_heir_of_a_host_that_crashes_has_its_subscriptions() -> None:
    network = with_subscriptions(ReachNetwork.joined(8, seed=2, renew_ms=0), 0)
    host = network.holder(bits_of("ab"))
    (place,) = host.holdings.seats
    heir = network.holder(next(heirs(place)))
    home = next(node for node in network.nodes if node not in (host.me.node, heir.me.node))
    name = network.subscribe(home, "ab")
    network.settle()
    assert name in network.ready
    kept = [entry.name for seat in host.holdings.seats.values() for entry in seat.entries()]
    assert kept == [name]
    network.crash(host.me.node)
    network.settle()
    assert network.complaints() == []
    assert_all_get_what_they_want(network)


def test_a_quarter_crashes_one_after_another_and_nothing_confirmed_is_lost() -> None:
    """Nothing is repeated by the nodes that subscriptions live on: copies alone must do."""
    network = with_subscriptions(ReachNetwork.joined(16, seed=4, renew_ms=0), 24)
    for _ in range(4):
        network.crash(network.random.choice(network.nodes))
        network.settle()
        assert network.complaints() == []
    assert_all_get_what_they_want(network)


def test_half_of_the_nodes_crash_at_once() -> None:
    network = with_subscriptions(ReachNetwork.joined(12, seed=5), 16)
    network.crash(*network.random.sample(network.nodes, 6))
    network.settle()
    assert network.complaints() == []
    assert_all_get_what_they_want(network)


def test_who_is_left_alone_takes_all_places() -> None:
    network = with_subscriptions(ReachNetwork.joined(5, seed=6), 5)
    network.crash(*network.nodes[1:])
    network.settle()
    assert network.complaints() == []
    assert list(network.places()) == [EMPTY_PLACE]
    assert_all_get_what_they_want(network)


def test_complaints_are_made() -> None:
    """The checker sees what is wrong: tables, hosts, interest, places held twice or not at all."""
    network = with_subscriptions(ReachNetwork.joined(6), 4)
    places = network.places()
    place, peer = min(places.items())
    seat = peer.holdings.seats[place]
    gone = seat.near.popitem()
    assert any("wrong table" in each for each in network.complaints())
    seat.near[gone[0]] = gone[1]
    holder = next(p for p in network.peers for s in p.holdings.seats.values() if s.below())
    other = next(iter(holder.holdings.seats.values()))
    lowest = other.below()[0]
    told = other.interest[lowest]
    other.interest[lowest] = NOTHING if told.identifiers else SOMETHING
    assert any("does not know" in each for each in network.complaints())
    other.interest[lowest] = told
    assert network.complaints() == []
    del peer.holdings.seats[place]
    assert any("nobody hosts" in each for each in network.complaints())
    peer.holdings.seats[place] = seat
    max(network.peers, key=lambda each: each.me != peer.me).holdings.seats[place] = seat
    assert any("both hold" in each for each in network.complaints())
