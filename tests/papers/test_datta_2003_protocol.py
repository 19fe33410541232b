"""The claims of Datta et al. 2003 shown of the protocol: nodes that have messages only.

The number in a test's name is the section. Every step of every network here is looked at by the
overlay's checker of whole networks (acyclic, alternating, in agreement with the tokens), and each
network at rest by `check_quiet`; the tests look at what the paper says beyond that.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import pairwise
from random import Random

import pytest

from papers.dag_network import DagNetwork, Turned, layer_of
from peersub.overlays.core.causes import Publish
from peersub.overlays.core.effects import PublishFailed
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.dag.messages import Announce, LinkUpOk, Passed, Relay, RequestVal, Turn
from peersub.overlays.dag.topics import CATCH_ALL, EVERYBODY
from peersub.trace.schema import Step

WHEAT = layer_of("wheat")
RYE = layer_of("rye")
NODES = tuple(f"n{number}" for number in range(10))
FARMERS = NODES[:7]
"""Want wheat; of them, and the others, some want rye."""
MILLERS = NODES[4:9]


def interests() -> dict[str, str]:
    wanted = {}
    for node in NODES:
        topics = [t for t, who in (("wheat", FARMERS), ("rye", MILLERS)) if node in who]
        wanted[node] = " OR ".join(f"symbol = '{topic}'" for topic in topics)
    return wanted


@cache
def fields() -> DagNetwork:
    """A network at rest that tests may publish in, and no more."""
    return DagNetwork.of(interests(), hold_ms=4_000)


def grown(seed: int) -> DagNetwork:
    """One that tests may do anything with."""
    return DagNetwork.of(interests(), seed, hold_ms=2_000, linger_ms=1_000)


def some_turns(network: DagNetwork, draw: Random, count: int, *topics: str) -> None:
    """Events from nodes that are drawn, one after the other: busy layers."""
    for _ in range(count):
        living = [host.name for host in network.simulation.living() if not host.is_leaving]
        network.publish(draw.choice(living), symbol=draw.choice(topics))
        network.simulation.run_for(draw.randrange(60))


# --- 2: layers ---------------------------------------------------------------------------------


def test_2_a_node_has_other_neighbours_in_other_layers() -> None:
    network = fields()
    assert set(network.members(WHEAT)) == set(FARMERS)
    assert set(network.members(RYE)) == set(MILLERS)
    assert set(network.members(EVERYBODY)) == set(NODES)
    near = {
        name: {other.node for other in network.peer("n5").layers[name].edges}
        for name in (EVERYBODY, WHEAT, RYE)
    }
    assert near[WHEAT] <= set(FARMERS)
    assert near[RYE] <= set(MILLERS)
    assert len({frozenset(each) for each in near.values()}) > 1


def test_2_definition_2_1_a_turn_of_one_layer_touches_no_other() -> None:
    """Only wheat is published; no other layer takes a turn but those that were to come anyway."""
    network = DagNetwork.of(interests(), hold_ms=10_000_000)
    before = {
        (node, name): (layer.val, layer.lid, layer.turns, tuple(layer.edges))
        for name in (EVERYBODY, RYE)
        for node, layer in network.members(name).items()
    }
    began_ms = network.simulation.now_ms
    some_turns(network, Random(1), 20, "wheat")
    network.rest()
    assert len(network.turns_of(WHEAT, began_ms)) > 20
    assert before == {
        (node, name): (layer.val, layer.lid, layer.turns, tuple(layer.edges))
        for name in (EVERYBODY, RYE)
        for node, layer in network.members(name).items()
    }


# --- 3: orientation and turns ------------------------------------------------------------------


def alternates(turns: list[Turned]) -> bool:
    """Whether between two turns of a member each neighbour that it keeps took exactly one."""
    last: dict[str, int] = {}
    for place, turn in enumerate(turns):
        if turn.node in last:
            since = Counter(other.node for other in turns[last[turn.node] + 1 : place])
            then = turns[last[turn.node]].neighbours
            if any(since[each] != 1 for each in turn.neighbours if each in then):
                return False
        last[turn.node] = place
    return True


@pytest.mark.parametrize("layer", [EVERYBODY, WHEAT, RYE])
def test_3_1_neighbours_take_turns_strictly_in_turn(layer: str) -> None:
    network = fields()
    some_turns(network, Random(2), 15, "wheat", "rye")
    network.rest()
    # The neighbours' turns count in the order in which they were taken.
    turns = network.turns_of(layer)
    assert len(turns) > 20
    stable = [t for t in turns if t.now_ms > max(network.ready.values())]
    assert alternates(stable)


def test_3_1_planted_alternation_is_noticed() -> None:
    turn = Turned(0, "a", WHEAT, ("b",))
    other = Turned(1, "b", WHEAT, ("a",))
    assert alternates([turn, other, turn, other])
    assert not alternates([turn, turn])


@pytest.mark.parametrize("seed", range(3))
def test_3_1_lemma_3_2_everybody_goes_on_while_nodes_come_leave_and_crash(seed: int) -> None:
    """Turns of who stays are as many as of any other, up to the distance."""
    network, draw = grown(seed), Random(seed)
    began_ms = network.simulation.now_ms
    some_turns(network, draw, 10, "wheat")
    for number in range(4):
        network.join(f"late{number}")
        network.subscribe(f"late{number}", "symbol = 'wheat'")
        some_turns(network, draw, 6, "wheat")
    network.simulation.leave("n1")
    network.gone("n1")
    some_turns(network, draw, 6, "wheat")
    network.simulation.crash(["n2", "n9"])
    network.gone("n2", "n9")
    some_turns(network, draw, 6, "wheat")
    network.rest()
    again_ms = network.simulation.now_ms
    some_turns(network, draw, 10, "wheat")
    network.rest()
    counts = Counter(turn.node for turn in network.turns_of(WHEAT, again_ms))
    assert set(counts) == set(network.members(WHEAT))
    assert max(counts.values()) - min(counts.values()) <= len(counts)
    assert network.turns_of(WHEAT, began_ms)


def test_3_1_note_3_1_the_sides_of_a_partition_go_on_by_themselves() -> None:
    network = grown(5)
    left, right = NODES[0::2], NODES[1::2]
    network.simulation.partition([left, right])
    network.rest()
    for side in (left, right):
        name = network.publish(side[0], symbol="wheat")
        network.rest()
        wanting = {n for n, (node, _) in network.filters.items() if node in side}
        assert set(network.delivered[name]) == wanting & set(network.matching(symbol="wheat"))
    network.simulation.heal()
    network.simulation.run_for(20_000)
    network.rest()
    name = network.publish("n9", symbol="wheat")
    network.rest()
    assert network.delivered[name] == network.matching(symbol="wheat")


def test_3_1_module_2_each_layer_has_values_of_its_own() -> None:
    network = fields()
    member = network.peer("n5")
    some_turns(network, Random(3), 8, "rye")
    network.rest()
    values = {name: (layer.val, layer.turns) for name, layer in member.layers.items()}
    assert set(values) == {EVERYBODY, WHEAT, RYE}
    assert len({turns for _, turns in values.values()}) > 1


# --- 3.2: joining ------------------------------------------------------------------------------


def test_3_2_module_3_a_request_walks_along_edges_and_says_who_asks() -> None:
    """Each step leads to a neighbour that is not on the path yet; the origin goes with it."""
    network = DagNetwork.of(interests(), hold_ms=2_000)
    walks = network.sent(RequestVal)
    assert any(said.message.path for said in walks), "not everybody meets a sink at once"
    for said in walks:
        message = said.message
        if message.path:
            assert message.path[-1].node == said.sender
            assert said.receiver not in {peer.node for peer in message.path}
        else:
            assert message.origin.node == said.sender
        assert len(message.path) <= network.settings.walk_steps_max


def test_3_2_module_3_the_sink_gives_the_newcomer_its_first_value() -> None:
    """The first edge of each member but those who founded a layer points at who took it."""
    network = DagNetwork.of(interests(), hold_ms=2_000)
    first: dict[tuple[str, str], LinkUpOk] = {}
    for said in network.sent(LinkUpOk):
        first.setdefault((said.receiver, said.message.layer), said.message)
    wheat = {node for node, layer in first if layer == WHEAT}
    announced = [said.message for said in network.sent(Announce)]
    founders = {wave.origin.node for wave in announced if wave.layer == WHEAT}
    assert wheat and set(FARMERS) - wheat <= founders
    for message in first.values():
        assert message.your_lid != message.lid
        val = (message.val + message.shift) % 3
        ahead = message.your_val == (val + 1) % 3
        assert ahead or (message.your_val == val and message.lid < message.your_lid)


def test_3_2_members_have_three_neighbours_where_there_are_so_many() -> None:
    """The paper "tries to minimize the number of critical points"; one neighbour would be one."""
    network = fields()
    for layer in (EVERYBODY, WHEAT, RYE):
        members = network.members(layer)
        degrees = sorted(len(member.edges) for member in members.values())
        assert degrees[0] >= 2
        assert sum(degrees) / len(degrees) >= 3 - 1 / len(degrees)


@pytest.mark.parametrize("gone", [("n3",), ("n3", "n4")])
@pytest.mark.parametrize("crash", [False, True])
def test_3_2_note_3_2_and_what_it_lacks_who_leaves_is_no_loss_of_connection(
    gone: tuple[str, ...], crash: bool
) -> None:
    network = grown(7)
    if crash:
        network.simulation.crash(list(gone))
    else:
        for node in gone:
            network.simulation.leave(node)
    network.gone(*gone)
    network.simulation.run_for(5_000)
    network.rest()
    name = network.publish("n0", symbol="wheat")
    network.rest()
    assert network.delivered[name] == network.matching(symbol="wheat")


# --- 4.1 and 4.2.1: publishing -----------------------------------------------------------------


@pytest.mark.parametrize("publisher", ["n0", "n5", "n8", "n9"])
@pytest.mark.parametrize("topic", ["wheat", "rye", "oats"])
def test_4_1_liveness_and_validity(publisher: str, topic: str) -> None:
    """Every subscriber of the topic gets it, once, and nobody else: members or not publish."""
    network = fields()
    name = network.publish(publisher, symbol=topic)
    network.rest()
    assert network.delivered[name] == network.matching(symbol=topic)


def test_4_1_publisher_liveness_every_node_publishes_again_and_again() -> None:
    network = fields()
    for _ in range(3):
        names = [network.publish(node, symbol="wheat") for node in NODES]
        network.rest()
        for name in names:
            assert network.delivered[name] == network.matching(symbol="wheat")


def test_4_1_a_promise_that_the_paper_does_not_make_is_refused() -> None:
    network = DagNetwork.of({"n0": "TRUE"})
    effects: list[object] = []

    class Watch:
        def observe(self, record: object) -> None:
            if isinstance(record, Step):
                effects.extend(record.effects)

    network.simulation._observers = (*network.simulation._observers, Watch())
    event = Publication("e", {"symbol": "wheat"}, delivery=Delivery.AT_LEAST_ONCE)
    network.simulation.cause("n0", Publish((event,)))
    (failed,) = [effect for effect in effects if isinstance(effect, PublishFailed)]
    assert "best effort only" in failed.reason


def test_4_2_1_module_5_events_leave_with_turns_and_not_otherwise() -> None:
    """Only sinks send; a member that is none keeps what it has until it is one."""
    network = fields()
    some_turns(network, Random(4), 12, "wheat", "rye")
    network.rest()
    passed = network.sent(Passed)
    assert len(passed) > 50
    assert all(said.message.layer in said.turns for said in passed)
    assert all(said.message.layer in said.turns for said in network.sent(Turn))


def test_4_2_1_module_5_a_turn_goes_to_every_neighbour() -> None:
    network = fields()
    some_turns(network, Random(5), 5, "wheat")
    network.rest()
    told: dict[tuple[int, str, str], list[str]] = {}
    for said in network.sent(Turn):
        told.setdefault((said.now_ms, said.sender, said.message.layer), []).append(said.receiver)
    for turn in network.turns_of(WHEAT):
        assert sorted(told[turn.now_ms, turn.node, WHEAT]) == list(turn.neighbours)


def test_4_2_1_lemma_4_1_an_event_costs_each_edge_two_copies_at_most() -> None:
    """2 · edges − (members − 1), as nobody sends it back to where it had it from first."""
    network = fields()
    for publisher in FARMERS:
        network.publish(publisher, symbol="wheat")
        name = f"e{network._published}"
        network.rest()
        copies = [s for s in network.sent(Passed) if s.message.publication.id == name]
        on_layer = [said for said in copies if said.message.layer == WHEAT]
        edges, members = network.edges(WHEAT), network.members(WHEAT)
        assert len(members) - 1 <= len(on_layer) <= 2 * len(edges) - (len(members) - 1)


# --- 4.2.2: subscribing ------------------------------------------------------------------------


def test_4_2_2_all_nodes_are_connected_at_the_layer_of_all() -> None:
    network = fields()
    assert set(network.members(EVERYBODY)) == set(NODES)
    assert all(member.is_member for member in network.members(EVERYBODY).values())


def test_4_2_2_a_new_topic_is_announced_to_all_nodes() -> None:
    """The wave passes every node, and each knows somebody to ask from then on."""
    network = grown(8)
    began_ms = network.simulation.now_ms
    name = network.subscribe("n9", "symbol = 'oats'")
    network.rest()
    heard = {s.receiver for s in network.sent(Announce, since_ms=began_ms)}
    assert heard | {"n9"} == set(NODES)
    for node in NODES:
        contacts = network.peer(node).directory.contacts(layer_of("oats"))
        assert [contact.node for contact in contacts] == ["n9"]
    assert network.ready[name] >= began_ms


def test_4_2_2_from_the_moment_a_subscription_is_ready_it_misses_nothing() -> None:
    """Events from everywhere as soon as it is said to be ready, also from who is no member."""
    network = grown(9)
    name = network.subscribe("n9", "symbol = 'oats'")
    simulation = network.simulation
    assert simulation.run_until(lambda: name in network.ready, 60_000)
    events = [network.publish(node, symbol="oats") for node in NODES]
    network.rest()
    assert all(network.delivered[event] == Counter({name: 1}) for event in events)


def test_4_2_2_connecting_to_a_layer_begins_with_a_member_that_is_known() -> None:
    network = grown(10)
    began_ms = network.simulation.now_ms
    network.subscribe("n9", "symbol = 'wheat'")
    asked = [s for s in network.sent(RequestVal, since_ms=began_ms) if not s.message.path]
    assert {said.receiver for said in asked} <= set(FARMERS)
    network.rest()
    assert "n9" in network.members(WHEAT)
    assert not network.sent(Announce, since_ms=began_ms), "the layer is known"


def test_4_2_2_two_that_found_a_layer_at_once_are_in_one() -> None:
    """Nobody answers either of them; their announcements cross, and the two link up."""
    network = grown(11)
    for node in ("n0", "n9", "n4"):
        network.subscribe(node, "symbol = 'oats'", f"{node}/oats")
    network.rest()
    oats = layer_of("oats")
    assert set(network.members(oats)) == {"n0", "n9", "n4"}
    assert len(network.edges(oats)) >= 2
    name = network.publish("n7", symbol="oats")
    network.rest()
    assert network.delivered[name] == network.matching(symbol="oats")
    assert len(network.delivered[name]) == 3


def test_4_2_2_the_last_one_takes_the_layer_with_it() -> None:
    network = grown(12)
    oats = layer_of("oats")
    network.subscribe("n9", "symbol = 'oats'", "n9/oats")
    network.rest()
    network.unsubscribe("n9/oats")
    network.simulation.run_for(30_000)
    network.rest()
    assert network.members(oats) == {}
    assert not any(oats in network.peer(node).directory for node in NODES)
    name = network.publish("n3", symbol="oats")
    network.rest()
    assert network.delivered[name] == Counter()


# --- 4.3: super-peers --------------------------------------------------------------------------

CLIENTS = {
    "n0/a": ("n0", "symbol = 'wheat' AND price > 5"),
    "n0/b": ("n0", "symbol = 'rye' AND price > 5"),
    "n1/a": ("n1", "symbol IN ('wheat', 'oats')"),
    "n2/a": ("n2", "price > 8"),
    "n3/a": ("n3", "symbol = 'rye' OR price < 2"),
}


@cache
def cluster() -> DagNetwork:
    """Clients with predicates at super-peers, and two super-peers without clients."""
    network = DagNetwork(3, hold_ms=4_000)
    for number in range(6):
        network.join(f"n{number}")
    network.rest()
    for name, (node, wanted) in CLIENTS.items():
        network.subscribe(node, wanted, name)
    network.rest()
    return network


def test_4_3_1_a_super_peer_is_in_the_layers_of_its_clients_topics() -> None:
    """The union over its clients; who names no topic needs the layer of all events."""
    found = {node: set(cluster().peer(node).layers) - {EVERYBODY} for node in cluster_nodes()}
    assert found == {
        "n0": {WHEAT, RYE},
        "n1": {WHEAT, layer_of("oats")},
        "n2": {CATCH_ALL},
        "n3": {CATCH_ALL},
        "n4": set(),
        "n5": set(),
    }


def cluster_nodes() -> list[str]:
    return [f"n{number}" for number in range(6)]


@pytest.mark.parametrize("publisher", cluster_nodes())
def test_4_3_1_clients_get_what_their_predicates_match_and_nothing_else(publisher: str) -> None:
    network = cluster()
    published = {
        network.publish(publisher, symbol=symbol, price=price): (symbol, price)
        for symbol in ("wheat", "rye", "oats", "hops")
        for price in (1, 6, 9)
    }
    network.rest()
    for name, (symbol, price) in published.items():
        assert network.delivered[name] == network.matching(symbol=symbol, price=price)


def test_4_3_2_a_super_peer_serves_its_own_clients_at_once() -> None:
    network = cluster()
    network.rest()
    now_ms = network.simulation.now_ms
    name = network.publish("n0", symbol="rye", price=7)
    assert network.delivered_ms[name, "n0/b"] == now_ms
    network.rest()
    assert network.delivered[name] == network.matching(symbol="rye", price=7)


def test_4_3_2_who_is_not_in_the_layer_sends_it_through_one_that_is() -> None:
    """The event has no other way: the publisher is no member, so it never takes a turn there."""
    network = cluster()
    network.rest()
    began_ms = network.simulation.now_ms
    name = network.publish("n5", symbol="oats", price=1)
    network.rest()
    relays = network.sent(Relay, since_ms=began_ms)
    assert {(said.sender, said.message.layer) for said in relays} == {
        ("n5", layer_of("oats")),
        ("n5", CATCH_ALL),
    }
    assert all(said.receiver in network.members(said.message.layer) for said in relays)
    assert network.delivered[name] == network.matching(symbol="oats", price=1)


def test_4_3_1_a_client_that_changes_its_mind_changes_the_layers() -> None:
    network = grown(13)
    network.unsubscribe("n0/s")
    network.subscribe("n0", "symbol = 'rye'")
    network.simulation.run_for(20_000)
    network.rest()
    assert set(network.peer("n0").layers) == {EVERYBODY, RYE}
    for topic in ("wheat", "rye"):
        name = network.publish("n9", symbol=topic)
        network.rest()
        assert network.delivered[name] == network.matching(symbol=topic)


def test_turns_of_a_layer_are_told_apart_by_time() -> None:
    """What the tests above count is in the order of the clock."""
    assert all(one.now_ms <= two.now_ms for one, two in pairwise(fields().turned))
