"""The claims of Terpstra, Behnel, Fiege, Zeidler, Buchmann: A Peer-to-Peer Approach to
Content-Based Publish/Subscribe (2003), sections 4.1 to 5.3 and 8, each as a test.

The number in a test's name is the section. What is expected comes from `ideal_ring`, which knows
all keys and follows the definitions; the code under test is `ChordTopology` by itself where a claim
is about the graph, and whole networks under the simulator's clock where it is about protocols.
Errors and gaps of the paper are in `test_terpstra_2003_errata`.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise
from math import comb, log2
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers.chord_network import (
    EVENTS,
    LATENCY_MS,
    STEADY,
    UNATTENDED,
    ChordNetwork,
    filter_mask,
    random_filter,
)
from papers.graphs import (
    BITS,
    broadcast,
    equidistant_ring,
    random_ring,
    some_of,
    topologies_of,
    topology,
)
from papers.ideal_ring import Arc, Edge, IdealRing, naive_finger, naive_holder, naive_keys
from papers.watching import Controls, Notifications, Responsibilities, Wave, sent_in
from peersub.filters.filter import Filter
from peersub.overlays.chord.messages import LookupRequest
from peersub.overlays.core.causes import PeerLost, Received
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.link import LinkSettings
from peersub.overlays.core.publication import Delivery
from peersub.overlays.routing.messages import ResponsibilityChange
from peersub.overlays.routing.strategies import STRATEGIES
from peersub.simulator.settings import NetworkSettings
from peersub.trace.schema import Step

SIZES = (1, 2, 3, 4, 7, 16, 64, 256, 1024, 4096)
POWERS = (1, 2, 4, 16, 64, 256, 1024, 4096)
LARGE = (256, 1024, 4096)

at_every_size = pytest.mark.parametrize("nodes", SIZES)
at_every_power = pytest.mark.parametrize("nodes", POWERS)


@pytest.fixture(scope="module", autouse=True)
def _large_networks_stay() -> Iterator[None]:
    """What is kept is let go in the end; until then the collector passes over it."""
    thresholds = gc.get_threshold()
    gc.set_threshold(200_000, 10, 10)
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()
    for kept in (quiet_network, story_of, random_ring, equidistant_ring, topologies_of):
        kept.cache_clear()
    gc.collect()
    # All that stays now is what pytest itself keeps.
    gc.freeze()


# --- 4.1: the graph ----------------------------------------------------------------------------


@given(st.sets(st.integers(0, 63), min_size=1, max_size=16), st.data())
def test_4_1_the_ideal_ring_follows_from_walking_the_circle(
    keys: set[int], data: st.DataObject
) -> None:
    """The oracle of this file against its own oracle, on circles that can be walked."""
    ring = IdealRing(keys, 6)
    key = data.draw(st.sampled_from(ring.keys))
    for k in range(1, 7):
        assert ring.finger(key, k) == naive_finger(keys, 64, key, k)
    labels = {f: k for k in range(6, 0, -1) if (f := naive_finger(keys, 64, key, k)) is not None}
    assert ring.fingers[key] == labels
    for target in range(64):
        assert ring.holder(key, target) == naive_holder(ring, key, target)
    arcs = [arc for node in ring.keys for arc in ring.arcs[node].values()]
    one, other = data.draw(st.sampled_from(arcs)), data.draw(st.sampled_from(arcs))
    assert ring.meets(one, other) == bool(naive_keys(one, 64) & naive_keys(other, 64))


@at_every_size
def test_4_1_each_edge_leads_to_the_first_node_at_a_fraction_of_the_circle(nodes: int) -> None:
    """For k = 1, 2, ...: the first node clockwise by 1/2^k or more; only one edge per peer."""
    ring = random_ring(nodes)
    for key in some_of(ring, 32):
        chord = topology(ring, key, ring.keys)
        found = [(edge.arc[0], edge.label) for edge in chord.fingers()]
        assert found == list(ring.fingers[key].items())
        assert [int(peer.node, 16) for peer in chord.edges()] == list(ring.fingers[key])
        for k in range(1, BITS + 1):
            finger = chord.finger(k)
            assert (finger.key if finger else None) == ring.finger(key, k)


@at_every_size
def test_4_1_what_a_node_knows_beyond_its_fingers_changes_no_edge(nodes: int) -> None:
    ring = random_ring(nodes)
    for key, chord in topologies_of(ring).items():
        assert {edge.arc[0]: edge.label for edge in chord.fingers()} == ring.fingers[key]


@at_every_size
def test_4_1_responsibilities_are_a_partition_of_the_circle(nodes: int) -> None:
    """r_u(v) is the section clockwise of v up to the next peer of u; only u is in r_u(u)."""
    ring, random = random_ring(nodes), Random(nodes)
    for key in some_of(ring, 64):
        chord = topologies_of(ring)[key]
        arcs = chord.partition()
        assert sum(length for _, length in arcs) == ring.size
        assert arcs == list(ring.arcs[key].values())
        borders = [(start + step) % ring.size for start, _ in arcs for step in (-1, 0, 1)]
        for target in [*borders, *(random.randrange(ring.size) for _ in range(16))]:
            holders = [start for start, length in arcs if ring.ahead(start, target) < length]
            assert holders == [ring.holder(key, target)]
        own = arcs[0]
        inside = [other for other in ring.keys if ring.ahead(own[0], other) < own[1]]
        assert inside == [key]


@at_every_size
def test_4_1_a_logarithmic_number_of_edges_leaves_each_node(nodes: int) -> None:
    degrees = [len(chord.edges()) for chord in topologies_of(random_ring(nodes)).values()]
    assert max(degrees) <= min(nodes - 1, log2(nodes) + 5)
    if nodes >= 16:
        assert log2(nodes) <= sum(degrees) / nodes <= log2(nodes) + 0.7


@at_every_size
def test_4_1_on_average_a_logarithmic_number_of_edges_enters_a_node(
    nodes: int, record_property: pytest.RecordProperty
) -> None:
    """The maximum is another matter: see row 4 of the errata, and the bound here.

    Seen at 256, 1,024 and 4,096 nodes: at most about 35, 58 and 70 edges enter one node.
    """
    entering = Counter(
        peer for chord in topologies_of(random_ring(nodes)).values() for peer in chord.edges()
    )
    largest = max(entering.values(), default=0)
    record_property("entering_edges_max", largest)
    assert largest <= log2(nodes) ** 2
    if nodes >= 16:
        assert log2(nodes) <= entering.total() / nodes <= log2(nodes) + 0.7


@at_every_power
def test_4_1_equidistant_nodes_have_exactly_log2_edges_both_ways(nodes: int) -> None:
    """Figure 2: edges to 1/2, 1/4, 1/8, ... of the circle."""
    ring = equidistant_ring(nodes)
    topologies = topologies_of(ring)
    spans = [ring.size >> k for k in range(int(log2(nodes)), 0, -1)]
    for key, chord in topologies.items():
        assert [ring.ahead(key, edge.arc[0]) for edge in chord.fingers()] == spans
    entering = Counter(peer for chord in topologies.values() for peer in chord.edges())
    assert all(entering[chord.me] == log2(nodes) for chord in topologies.values())


# --- 4.3: publishing, by the graph alone --------------------------------------------------------


@at_every_size
def test_4_3_a_notification_for_all_comes_to_each_node_once(nodes: int) -> None:
    """N - 1 messages, along the ideal paths, never outside of the range that was handed over."""
    ring = random_ring(nodes)
    for publisher in some_of(ring):
        hops = broadcast(topologies_of(ring), publisher)
        assert len(hops) == nodes - 1
        assert {hop.receiver: hop.sender for hop in hops} == ring.parents(publisher)
        given = {publisher: (publisher, ring.size)} | {hop.receiver: hop.arc for hop in hops}
        for hop in hops:
            assert hop.arc[0] == hop.receiver, "the receiver stands at the start of its arc"
            start, length = given[hop.sender]
            assert ring.ahead(start, hop.receiver) + hop.arc[1] <= length


@at_every_size
def test_4_3_parts_are_disjoint_and_leave_out_nobody(nodes: int) -> None:
    """The partition of R_u by the responsibilities, for ranges of any length."""
    ring, random = random_ring(nodes), Random(nodes)
    for key in some_of(ring, 32):
        chord = topologies_of(ring)[key]
        length = random.choice((ring.size, 1, random.randrange(1, ring.size + 1)))
        at = ring.successors_map[key]
        parts = sorted(
            (part for _, part in chord.parts((key, length), None)),
            key=lambda part: ring.ahead(key, part[0]),
        )
        for start, part_length in parts:
            assert start == at
            at = (start + part_length) % ring.size
        reach = min(length, ring.ahead(key, ring.successors_map[key]) or ring.size)
        assert reach + sum(part_length for _, part_length in parts) == length


@at_every_size
def test_4_3_edges_are_considered_in_decreasing_size_of_responsibility(nodes: int) -> None:
    ring = random_ring(nodes)
    for key in some_of(ring, 64):
        chord = topologies_of(ring)[key]
        sizes = [ring.arcs[key][part[0]][1] for _, part in chord.parts(chord.whole(), None)]
        assert sizes == sorted(sizes, reverse=True)
        assert len(sizes) == len(chord.edges())


@at_every_size
def test_4_3_the_delivery_depth_is_logarithmic(nodes: int) -> None:
    ring = random_ring(nodes)
    depths = [
        hop.depth
        for publisher in some_of(ring, 24)
        for hop in broadcast(topologies_of(ring), publisher)
    ]
    assert max(depths, default=0) <= log2(nodes) + 2
    if nodes in LARGE:
        assert sum(depths) / len(depths) == pytest.approx(0.49 * log2(nodes), rel=0.1)


@at_every_power
def test_4_3_equidistant_nodes_deliver_along_a_binomial_tree(nodes: int) -> None:
    """Figures 6 and 7. The tree B_k is a root with the trees B_(k-1), ..., B_0 below it."""
    order = int(log2(nodes))
    ring = equidistant_ring(nodes)
    for publisher in some_of(ring, 3):
        hops = broadcast(topologies_of(ring), publisher)
        at_depth = Counter([0, *(hop.depth for hop in hops)])
        assert at_depth == {depth: comb(order, depth) for depth in range(order + 1)}
        children: dict[int, list[int]] = {}
        for hop in hops:
            children.setdefault(hop.sender, []).append(hop.receiver)
        orders = {publisher: order}
        for key in [publisher, *(hop.receiver for hop in hops)]:
            below = children.get(key, [])
            assert len(below) == orders[key]
            # The largest arc first: the first child has the largest tree.
            orders |= {child: orders[key] - 1 - place for place, child in enumerate(below)}


@at_every_size
def test_4_3_nobody_gets_a_notification_twice_however_old_the_tables_are(nodes: int) -> None:
    """Each node knows a random part of the others: some miss it then, and none gets it twice."""
    ring, random = random_ring(nodes), Random(nodes)
    known = min(24, nodes)
    stale = {key: topology(ring, key, random.sample(ring.keys, known)) for key in ring.keys}
    for publisher in some_of(ring, 6):
        hops = broadcast(stale, publisher)
        receivers = [publisher, *(hop.receiver for hop in hops)]
        assert len(set(receivers)) == len(receivers)
        if nodes > 64:
            assert 1 < len(receivers) < nodes, "such tables are neither empty nor complete"
        given = {publisher: (publisher, ring.size)} | {hop.receiver: hop.arc for hop in hops}
        for hop in hops:
            assert hop.arc[0] == hop.receiver
            assert ring.ahead(hop.sender, hop.receiver) + hop.arc[1] <= given[hop.sender][1]


@given(st.sets(st.integers(0, 255), min_size=1, max_size=24), st.randoms(use_true_random=False))
def test_4_3_nobody_gets_a_notification_twice_in_small_rings(
    keys: set[int], random: Random
) -> None:
    """The same with any knowledge, also none, and filters that drop anything anywhere."""
    ring = IdealRing(keys, 8)
    stale = {
        key: topology(ring, key, random.sample(ring.keys, random.randint(0, len(ring.keys))))
        for key in ring.keys
    }
    publisher = random.choice(ring.keys)
    seen = {publisher}
    waiting: list[tuple[int, Arc]] = [(publisher, (publisher, 256))]
    while waiting:
        key, scope = waiting.pop(random.randrange(len(waiting)))
        for peer, part in stale[key].parts(scope, None):
            receiver = int(peer.node, 16)
            assert receiver not in seen and naive_keys(part, 256) <= naive_keys(scope, 256)
            if random.random() < 0.9:
                seen.add(receiver)
                waiting.append((receiver, part))


@at_every_size
def test_4_3_right_successors_are_enough_to_leave_out_nobody(nodes: int) -> None:
    """`p_(1/2^160)(u)` is all that the proof needs of the graph; fingers only make it quick."""
    ring, random = random_ring(nodes), Random(nodes)
    chords = {
        key: topology(ring, key, [*ring.successors(key, 1), *random.sample(ring.keys, 1)])
        for key in ring.keys
    }
    publisher = ring.keys[0]
    receivers = [hop.receiver for hop in broadcast(chords, publisher)]
    assert sorted([publisher, *receivers]) == ring.keys


# --- 4.3: publishing, by the protocol -----------------------------------------------------------

EVERYTHING = Filter("x >= 0")


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 7, 16, 64, 256, 1024])
def test_4_3_nodes_pass_a_notification_on_along_the_ideal_tree(nodes: int) -> None:
    """Everyone wants everything: N - 1 messages, nobody twice, large responsibilities first."""
    network = ChordNetwork.converged(nodes, [EVERYTHING] * nodes, **UNATTENDED)
    ring, notified = network.ring, Notifications(network)
    for publisher in network.random.sample(network.nodes, min(nodes, 3)):
        event_id = network.publish(publisher, 1)
        network.rest()
        assert len(notified.hops) == nodes - 1
        parents = {receiver: sender for sender, receiver in notified.hops}
        assert parents == ring.parents(network.peer(publisher).key)
        network.check_delivered(event_id, 1)
        assert all(arcs == sorted(arcs, reverse=True) for arcs in notified.parts)
        notified.hops.clear()


@pytest.mark.parametrize("nodes", [2, 7, 64, 256])
def test_4_3_who_is_reached_over_no_failed_edge_gets_the_notification(nodes: int) -> None:
    """Edges fail as the event is published: exactly those behind one of them miss it."""
    network = ChordNetwork.converged(nodes, [EVERYTHING] * nodes, **UNATTENDED)
    ring, node_at, random = network.ring, network.node_at, network.random
    failed = random.sample(list(ring.edges()), max(1, nodes // 16))
    network.simulation.break_edges([(node_at[u], node_at[v]) for u, v in failed])
    cut = {frozenset(edge) for edge in failed}
    publishers = [failed[0][0], *random.sample(ring.keys, min(nodes, 4))]
    events = {network.publish(node_at[key], 1): key for key in publishers}
    network.simulation.run_for(STEADY.detection_ms - 1)
    for event_id, publisher in events.items():
        reached = [
            key
            for key in ring.keys
            if not any(frozenset(edge) in cut for edge in pairwise(ring.path(publisher, key)))
        ]
        wanted = sorted(f"given{node_at[key][1:]}" for key in reached)
        assert sorted(network.delivered[event_id]) == wanted
    assert len(network.delivered[next(iter(events))]) < nodes


# --- 4.2 and 4.4: filters -----------------------------------------------------------------------


@cache
def quiet_network(nodes: int) -> ChordNetwork:
    """A ring at rest in which nobody wants anything; whoever uses it leaves it so."""
    gc.disable()
    network = ChordNetwork.converged(nodes, **UNATTENDED)
    gc.freeze()
    gc.enable()
    return network


CHANGES = {1: 6, 2: 6, 3: 6, 4: 8, 7: 12, 16: 24, 64: 40, 256: 12, 1024: 3, 4096: 1}


@at_every_size
def test_4_2_filters_shrink_along_every_path_of_two_edges(nodes: int) -> None:
    """After arbitrary subscriptions and ends of subscriptions, made at the same time.

    And the filters are the smallest that keep the invariant; none is left after the last end.
    """
    network = quiet_network(nodes)
    ring, random = network.ring, Random(nodes)
    names = []
    for _ in range(CHANGES[nodes]):
        if names and random.random() < 0.3:
            network.unsubscribe(names.pop(random.randrange(len(names))))
        else:
            names.append(network.subscribe(random.choice(network.nodes), random_filter(random)))
        network.simulation.run_for(random.choice((0, 0, LATENCY_MS, 3 * LATENCY_MS)))
    network.rest()
    wanted, filters = network.wanted(), network.filters()
    assert ring.invariant_complaints(wanted, filters) == []
    assert filters == ring.least_filters(wanted)
    assert all(name in network.ready for name in names)
    for name in names:
        network.unsubscribe(name)
    network.rest()
    assert not any(entries_on_edges(network))


def entries_on_edges(network: ChordNetwork) -> list[int]:
    return [
        len(peer.engine.maintenance.told(edge).entries)
        for peer in network.peers
        for edge in peer.topology.edges()
    ]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_4_2_the_invariant_holds_for_every_routing_strategy(strategy: str) -> None:
    """Messages of different links overtake each other. Imperfect filters may want more."""
    jitter = NetworkSettings(latency_ms=5, jitter_ms=40)
    sample = tuple({"x": x} for x in range(EVENTS))
    options = {"strategy": strategy, "sample": sample, **UNATTENDED}
    network = ChordNetwork.converged(64, seed=5, network=jitter, **options)
    random = network.random
    for _ in range(60):
        if random.random() < 0.3 and network.subscriptions:
            network.unsubscribe(random.choice(list(network.subscriptions)))
        else:
            network.subscribe(random.choice(network.nodes), random_filter(random))
        network.simulation.run_for(random.randrange(30))
    network.rest()
    ring, wanted, filters = network.ring, network.wanted(), network.filters()
    assert ring.invariant_complaints(wanted, filters) == []
    least = ring.least_filters(wanted)
    assert all(not mask & ~filters[edge] for edge, mask in least.items())
    assert filters == least or strategy == "imperfect"
    network.check_deliveries(20)


@dataclass
class Story:
    """One subscription in a network that wants nothing else: its begin and its end."""

    subscriber: int
    begin: Wave
    end: Wave
    filters: dict[Edge, int]
    ready_ms: int
    is_as_before: bool

    @property
    def ring(self) -> IdealRing:
        return self.begin.ring


@cache
def story_of(nodes: int) -> Story:
    network = quiet_network(nodes)
    node = Random(nodes).choice(network.nodes)
    before, begin_ms = digests(network), network.simulation.now_ms
    begin = Wave(network)
    begin.run(lambda: network.subscribe(node, Filter("x = 7")))
    filters, name = network.filters(), list(network.subscriptions)[-1]
    end = Wave(network)
    end.run(lambda: network.unsubscribe(name))
    ready_ms = network.ready[name] - begin_ms
    key, is_as_before = network.peer(node).key, digests(network) == before
    return Story(key, begin, end, filters, ready_ms, is_as_before)


def digests(network: ChordNetwork) -> list[bytes]:
    return [
        peer.engine.maintenance.told(edge).digest
        for peer in network.peers
        for edge in peer.topology.edges()
    ]


@at_every_size
def test_4_4_a_subscription_goes_back_along_every_publishing_path(nodes: int) -> None:
    """It reaches every node u along the path that a notification would follow from u."""
    story = story_of(nodes)
    told = dict.fromkeys(story.begin.told)
    for key in some_of(story.ring, 256):
        for edge in pairwise(story.ring.path(key, story.subscriber)):
            assert story.filters[edge] == 1 << 7
            assert edge in told
    assert {key for key, _ in told} >= set(story.ring.keys) - {story.subscriber}


@at_every_size
def test_4_4_a_subscription_changes_the_edges_of_the_invariant_once_each(nodes: int) -> None:
    """It is a broadcast backwards: about N messages, in large rings 1.0 to 1.1 times N."""
    story = story_of(nodes)
    wanted = story.ring.least_filters({story.subscriber: 1 << 7})
    assert story.filters == wanted
    assert sorted(story.begin.told) == sorted(edge for edge, mask in wanted.items() if mask)
    assert nodes - 1 <= len(story.begin.told) <= (1.1 if nodes in LARGE else 1.5) * nodes


@at_every_size
def test_4_4_labels_fall_along_every_chain_of_updates(nodes: int) -> None:
    """The proof of termination: the number k of the edge decreases, from the loopback's on."""
    story = story_of(nodes)
    for wave in (story.begin, story.end):
        assert len(wave.labels) == len(wave.told)
        assert all(there < here for here, there in wave.labels)


@at_every_size
def test_4_4_an_update_ends_after_a_logarithmic_number_of_steps(nodes: int) -> None:
    """Each step takes LATENCY_MS; confirmations take the same way back, and `ready` follows."""
    story = story_of(nodes)
    for wave in (story.begin, story.end):
        assert wave.duration_ms <= (log2(nodes) + 2) * LATENCY_MS
    assert story.ready_ms == max(2 * story.begin.duration_ms, STEADY.disk_ms)


@at_every_size
def test_4_4_the_end_of_a_subscription_undoes_it(nodes: int) -> None:
    story = story_of(nodes)
    assert story.is_as_before
    assert sorted(story.end.told) == sorted(story.begin.told)


@pytest.mark.parametrize("nodes", [16, 64, 256])
def test_4_4_a_covered_subscription_is_passed_on_only_where_nothing_covers_it(nodes: int) -> None:
    """ "If f does cover g, v may choose not to update": the more there is, the less is sent."""
    sent: list[float] = []
    for wide in (0, 1, nodes // 4, nodes):
        network = ChordNetwork.converged(nodes, [Filter("x < 32")] * wide, **UNATTENDED)
        ring, random = network.ring, Random(nodes)
        covering = ring.least_filters(network.wanted())
        costs = []
        for node in random.sample(network.nodes, 5):
            wave = Wave(network)
            wave.run(lambda network=network, node=node: network.subscribe(node, Filter("x = 5")))
            alone = ring.least_filters({network.peer(node).key: 1 << 5})
            needed = [edge for edge, mask in alone.items() if mask and not covering[edge]]
            assert sorted(wave.told) == sorted(needed)
            costs.append(len(wave.told))
            network.unsubscribe(list(network.subscriptions)[-1])
            network.rest()
        sent.append(sum(costs) / len(costs) / nodes)
    assert sent[0] >= 1 - 1 / nodes
    assert sent[0] > sent[1] > sent[2] >= sent[3] == 0
    assert sent[2] < 0.25


# --- 5: failures --------------------------------------------------------------------------------

AT_LEAST_ONCE = Delivery.AT_LEAST_ONCE
LIVE = NetworkSettings()
"""Latencies differ; ends of a broken link notice after 200 to 300 ms."""
TUNNELS = LinkSettings(acknowledge=True, tunnels=True)


def check_edge_failures(nodes: int, failed: list[Edge], publishers: list[int]) -> None:
    """Edges fail, both ends live, and events are published: before, while and after it shows."""
    network = ChordNetwork.converged(
        nodes, [EVERYTHING] * nodes, seed=nodes, network=LIVE, links=TUNNELS
    )
    node_at = network.node_at
    events = [network.publish(node_at[publishers[0]], 1, AT_LEAST_ONCE)]
    network.simulation.run_for(15)
    network.simulation.break_edges([(node_at[u], node_at[v]) for u, v in failed])
    for key in publishers:
        events.append(network.publish(node_at[key], 1, AT_LEAST_ONCE))
        network.simulation.run_for(120)
    network.complete(events)
    for event_id in events:
        network.check_delivered(event_id, 1)


def ring_of_nodes(nodes: int) -> IdealRing:
    return ChordNetwork.converged(nodes, seed=nodes).ring


@pytest.mark.parametrize("nodes", [4, 8])
def test_5_any_log_n_minus_1_edges_may_fail(nodes: int) -> None:
    """ "At least once in case of any simultaneous log N - 1 edge failures": every choice."""
    ring = ring_of_nodes(nodes)
    pairs = sorted({tuple(sorted(edge)) for edge in ring.edges()})
    choices = list(combinations(pairs, int(log2(nodes)) - 1))
    assert len(choices) > 3
    for failed in choices:
        check_edge_failures(nodes, list(failed), [failed[0][0], ring.keys[0]])


@pytest.mark.parametrize("nodes", [16, 64])
@pytest.mark.parametrize("choice", ["drawn", "leaving", "entering", "perimeter", "path"])
def test_5_log_n_minus_1_edges_fail_where_it_hurts(nodes: int, choice: str) -> None:
    """The edge to the successor is among those that leave, and among those that enter."""
    ring, random = ring_of_nodes(nodes), Random(f"{nodes}{choice}")
    count = int(log2(nodes)) - 1
    for _ in range({16: 6, 64: 3}[nodes]):
        at = random.choice(ring.keys)
        before = [ring.predecessor(at), *ring.publishers[at]]
        following = [at, *ring.successors(at, count)]
        far = max(ring.keys, key=lambda key, at=at: len(ring.path(at, key)))
        failed = {
            "drawn": random.sample(list(ring.edges()), count),
            "leaving": [(at, finger) for finger in ring.fingers[at]],
            "entering": [(publisher, at) for publisher in dict.fromkeys(before)],
            "perimeter": list(pairwise(following)),
            "path": list(pairwise(ring.path(at, far))),
        }[choice]
        check_edge_failures(nodes, failed[:count], [at, failed[0][0], *random.sample(ring.keys, 2)])


# --- 5.1: the graph -----------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 7, 16, 48])
def test_5_1_nodes_that_join_one_by_one_form_the_graph(nodes: int) -> None:
    """node-location finds the newcomer's fingers, node-join those whose finger it is."""
    network = ChordNetwork(nodes, network=LIVE)
    network.grow(nodes)
    network.settle()


@pytest.mark.parametrize("nodes", [2, 7, 32])
def test_5_1_nodes_that_join_at_the_same_time_form_the_graph(nodes: int) -> None:
    network = ChordNetwork(nodes, network=LIVE)
    network.grow(nodes, pause_ms=0)
    network.settle()


@pytest.mark.parametrize("nodes", [2, 4, 7, 16, 64, 256, 1024])
def test_5_1_a_node_location_takes_a_logarithmic_number_of_messages(nodes: int) -> None:
    """And comes to one node: the first at or after the key. On average it takes log2 N / 2."""
    network = ChordNetwork.converged(nodes, **UNATTENDED)
    ring, random, controls = network.ring, network.random, Controls(network)
    costs = []
    for _ in range(40):
        taken = random.choice(ring.keys)
        target = random.choice((random.randrange(ring.size), taken, (taken + 1) % ring.size))
        holder = network.node_at[ring.first_at_or_after(target)]
        asked = random.choice([node for node in network.nodes if node != holder])
        peer = next(iter(network.peer(asked).links()))
        network.simulation.cause(asked, Received(peer, (LookupRequest(target, 5),)))
        network.simulation.run_for(500)
        if peer.node != holder:
            assert controls.answers == [(holder, target)]
        controls.answers.clear()
        costs.append(controls.messages["node-location"])
        controls.messages.clear()
    assert max(costs) <= log2(nodes) + 2
    assert sum(costs) / len(costs) <= 0.6 * log2(nodes) + 0.5


@pytest.mark.parametrize(("nodes", "bits"), [(16, 63), (64, 63), (256, 63), (40, 7), (80, 8)])
def test_5_1_a_node_join_comes_to_those_whose_finger_the_newcomer_is(nodes: int, bits: int) -> None:
    """O(log N) of them on average, and for each at most as many messages as a lookup takes.

    On a crowded circle newcomers stand at the very ends of the ranges that are subscribed to.
    """
    network = ChordNetwork.converged(nodes, network=LIVE, key_bits=bits, **UNATTENDED)
    controls = Controls(network)
    costs = []
    for _ in range(5 if bits == 63 else 12):
        controls.messages.clear()
        network.grow(1, pause_ms=3_000)
        key = network.peers[-1].key
        newcomer = network.peers[-1].me
        pointing = [peer.key for peer in network.peers if newcomer in peer.topology.edges()]
        assert sorted(pointing) == sorted(network.ring.publishers[key])
        costs.append(controls.messages["node-join"])
    assert sum(costs) / len(costs) <= 0.6 * log2(nodes) ** 2


@pytest.mark.parametrize("nodes", [1, 2, 7, 16, 64, 256, 1024])
def test_5_1_dormant_edges_lead_to_the_nodes_that_follow(nodes: int) -> None:
    """Twice log N of them (row 6 of the errata), and only the first is used."""
    network = ChordNetwork.converged(nodes, seed=6)
    ring, node_at = network.ring, network.node_at
    lengths = []
    for peer in network.peers:
        listed = [following.key for following in peer.ring.successor_list()]
        assert listed == ring.successors(peer.key, len(listed))
        assert listed[:1] == list(ring.fingers[peer.key])[:1]
        dormant = [key for key in listed if key not in ring.fingers[peer.key]]
        assert not any(peer.topology.scope_of(PeerId(node_at[key])) for key in dormant)
        linked = {link.node for link in peer.links()}
        assert {node_at[key] for key in listed} <= linked
        lengths.append(len(listed))
    assert min(lengths) >= min(nodes - 1, log2(nodes))
    if nodes >= 64:
        assert sum(lengths) / nodes == pytest.approx(2 * log2(nodes), rel=0.1)


@pytest.mark.parametrize("nodes", [7, 16, 64])
def test_5_1_a_failed_node_is_replaced_by_its_neighbour_until_another_is_found(nodes: int) -> None:
    """r_u(v) goes to the first neighbour counter-clockwise of v, and that is told, at once.

    If v was the successor, that neighbour is u itself: then the next in the list takes its place.
    Whoever takes over is sent, from the first moment, whatever v would have been sent.
    """
    random = Random(nodes)
    wanted = [random_filter(random) for _ in range(nodes)]
    network = ChordNetwork.converged(nodes, wanted, network=LIVE)
    before, node_at, filters = network.ring, network.node_at, network.filters()
    # One whose predecessor has no edge yet to the node that follows it.
    alone = [
        key
        for key in before.keys
        if before.successors_map[key] not in before.fingers[before.predecessor(key)]
    ]
    failed = network.peer(node_at[random.choice(alone)])
    after: dict[int, dict[int, Arc]] = {}
    told: dict[int, dict[str, tuple[int, ...]]] = {}
    masks: dict[int, dict[str, int]] = {}

    def watch(step: Step) -> None:
        if isinstance(step.cause, PeerLost) and step.cause.peer == failed.me:
            peer = network.peer(step.node)
            topology = peer.topology
            after[topology.key] = {arc[0]: arc for arc in topology.partition()}
            masks[topology.key] = {to.node: filter_mask(peer, to) for to in topology.edges()}
            told[topology.key] = {
                to.node: message.scope
                for to, message in sent_in(step)
                if isinstance(message, ResponsibilityChange)
            }

    network.watchers.append(watch)
    network.crash([failed.me.node])
    network.simulation.run_for(LIVE.detection_ms + LIVE.detection_jitter_ms)
    for u in before.publishers[failed.key]:
        peers = [u, *before.fingers[u]]
        heir = peers[peers.index(failed.key) - 1]
        start, length = after[u][heir]
        assert before.ahead(start, failed.key) < length
        if heir == u:
            heir = before.successors_map[failed.key]
        assert not filters[u, failed.key] & ~masks[u][node_at[heir]]
        assert told[u][node_at[heir]] == after[u][heir]
    network.watchers.clear()
    network.settle()


@pytest.mark.parametrize("nodes", [16, 64, 256])
def test_5_1_a_lost_finger_is_sought_by_the_discovery_procedure(nodes: int) -> None:
    """Without any periodic upkeep: lookups alone find who takes the place of the failed node."""
    network = ChordNetwork.converged(nodes, network=LIVE, **UNATTENDED)
    failed = network.random.choice(network.peers)
    publishers = [key for key in network.ring.publishers[failed.key] if key != failed.key]
    network.crash([failed.me.node])
    network.simulation.run_for(5_000)
    ring = network.ring
    for key in publishers:
        topology = network.peer(network.node_at[key]).topology
        assert {edge.arc[0]: edge.label for edge in topology.fingers()} == ring.fingers[key]


@pytest.mark.parametrize("nodes", [8, 32, 64])
def test_5_1_the_perimeter_survives_the_loss_of_all_dormant_edges_but_one(nodes: int) -> None:
    network = ChordNetwork.converged(nodes, [EVERYTHING] * nodes, seed=8, network=LIVE)
    peer = network.random.choice(network.peers)
    following = [member.key for member in peer.ring.successor_list()]
    network.crash(network.node_at[key] for key in following[:-1])
    event_id = network.publish(peer.me.node, 1, AT_LEAST_ONCE)
    network.settle()
    assert network.ring.successors(peer.key, 1) == following[-1:]
    network.check_delivered(event_id, 1)


# --- 5.2: the invariant -------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [1, 3, 16, 48])
def test_5_2_new_edges_get_their_filters(nodes: int) -> None:
    """Nodes join a network in which much is wanted; then every filter is the ideal one again."""
    random = Random(nodes)
    wanted = [random_filter(random) for _ in range(nodes)]
    network = ChordNetwork.converged(nodes, wanted, network=LIVE)
    responsibilities = Responsibilities(network)
    for _ in range(4):
        network.grow(1, pause_ms=300)
        network.subscribe(network.nodes[-1], random_filter(random))
    network.settle()
    network.check_deliveries(10)
    assert responsibilities.arrived >= 4


@pytest.mark.parametrize("nodes", [4, 16, 64])
def test_5_2_the_filters_of_lost_edges_are_made_good(nodes: int) -> None:
    """A quarter of the nodes fails: the filters are those of the ring without them."""
    random = Random(nodes)
    wanted = [random_filter(random) for _ in range(nodes)]
    network = ChordNetwork.converged(nodes, wanted, network=LIVE)
    responsibilities = Responsibilities(network)
    network.crash(random.sample(network.nodes, nodes // 4))
    network.settle()
    network.check_deliveries(10)
    assert responsibilities.arrived or nodes < 16


# --- 5.3: lost notifications --------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_5_3_maintenance_gets_by_with_notifications_that_get_lost(seed: int) -> None:
    """One message in ten is lost, some come twice or late; nodes join, fail and take leave."""
    lossy = NetworkSettings(loss=0.1, duplicate=0.1, reorder=0.1)
    network = ChordNetwork(seed, network=lossy, links=LinkSettings(acknowledge=True))
    random = network.random
    network.grow(12, pause_ms=400)
    for node in network.nodes:
        network.subscribe(node, random_filter(random))
    network.settle()
    assert network.simulation.counters.lost > 50
    network.crash(random.sample(network.nodes, 3))
    network.grow(2, pause_ms=100)
    network.settle()
    network.check_deliveries(10, AT_LEAST_ONCE)


# --- 8: the conclusion --------------------------------------------------------------------------


@at_every_power
def test_8_equidistant_publishers_load_all_nodes_equally(nodes: int) -> None:
    """ "It distributes load equally by maintaining independent delivery trees for each node." """
    ring = equidistant_ring(nodes)
    publishers = ring.keys if nodes <= 256 else ring.keys[:: nodes // 16]
    sent = Counter(hop.sender for key in publishers for hop in broadcast(topologies_of(ring), key))
    if nodes <= 256:
        assert all(sent[key] == nodes - 1 for key in ring.keys)
    else:
        assert sent.total() == 16 * (nodes - 1)


@pytest.mark.parametrize("nodes", [16, 64, 256])
def test_8_random_publishers_load_nodes_within_bounds(nodes: int) -> None:
    """With random keys the load follows the gaps: a node relays more the longer its arcs are."""
    ring = random_ring(nodes)
    sent = Counter(hop.sender for key in ring.keys for hop in broadcast(topologies_of(ring), key))
    assert max(sent.values()) <= log2(nodes) * (nodes - 1)
    assert min(sent[key] for key in ring.keys) > 0


@pytest.mark.parametrize("nodes", [2, 16, 64, 128])
def test_8_half_of_the_nodes_fail_at_once(nodes: int) -> None:
    """Events of the time of the failure, with the promise, miss nobody who lives.

    Then the ring, its arcs and its filters are those of the half that is left.
    """
    random = Random(nodes)
    wanted = [random_filter(random) for _ in range(nodes)]
    network = ChordNetwork.converged(nodes, wanted, seed=nodes, network=LIVE)
    network.crash(random.sample(network.nodes, nodes // 2))
    events = {}
    for _ in range(8):
        x = random.randrange(EVENTS)
        events[network.publish(random.choice(network.nodes), x, AT_LEAST_ONCE)] = x
        network.simulation.run_for(150)
    network.settle()
    for event_id, x in events.items():
        network.check_delivered(event_id, x)
    network.check_deliveries(20)
