"""Errors and gaps of Terpstra et al. 2003, and that they are mended, row by row.

=== ============================================================================================
row what the paper leaves wrong or open, and what is done
=== ============================================================================================
1   an arc [a, a) is all and nothing: arcs have a length
2   the search for a finger may pass the node itself: it ends there
3   several k may give one peer: one edge, with the smallest k
4   O(log N) entering edges are an average: the maximum is bounded by log² N
5   only new edges hear of their responsibility: everyone whose arc changed does
6   log N dormant edges are too few for the loss of half of the nodes: there are twice as many
7   leaving out a covered filter is unsafe for removals: it goes for additions only
8   and loses the covered filter: it is stored, and only not passed on
9   the neighbour counter-clockwise of the successor is the node itself: the list comes first
10  newcomers in one gap may miss each other: admission in turns, stabilisation
11  the ends of the range of node-location: (predecessor, node]
12  responsibility-change is "published", for one hop: a message
13  when does a subscription hold everywhere: updates are confirmed, then it is ready
14  "exactly one filter" on an edge: a set, without covered ones, bounded where it is merged
15  two nodes may have one key: one of them draws another
16  the range of node-join where there is no finger: up to the node itself
17  other fingers than the first past a distance keep filters for ever: edges depend on no circle
18  an edge that fails is no node that fails: the other end is reached over others
19  parts of a split network repair themselves for good: they find each other and merge
20  control messages get lost, doubled, overtaken: sessions
=== ============================================================================================

`TESTS` says where each row is tested; the rows that no other file tests are tested here.
"""

from __future__ import annotations

import ast
from collections import Counter
from functools import cached_property
from math import log2
from pathlib import Path
from random import Random

import pytest

from papers.chord_network import EVENTS, UNATTENDED, ChordNetwork, random_filter
from papers.graphs import member, random_ring, topologies_of
from papers.ideal_ring import Edge, IdealRing
from peersub.filters.filter import Filter
from peersub.overlays.chord.topology import ChordTopology
from peersub.overlays.core.identity import PeerId
from peersub.simulator.settings import NetworkSettings

HERE = "papers/test_terpstra_2003_errata.py"
PAPER = "papers/test_terpstra_2003.py"
ARCS = "overlays/chord/test_arcs.py"
JOINING = "overlays/chord/test_joining.py"
REPAIR = "overlays/chord/test_repair.py"
SPLITS = "overlays/chord/test_splits.py"
TOPOLOGY = "overlays/chord/test_topology.py"
MAINTENANCE = "overlays/routing/test_maintenance.py"

TESTS = {
    1: (f"{ARCS}::test_row_1_the_whole_circle_and_a_single_key_are_different_arcs",),
    2: (
        f"{TOPOLOGY}::test_fingers_and_labels_are_the_definition",
        f"{PAPER}::test_4_1_each_edge_leads_to_the_first_node_at_a_fraction_of_the_circle",
    ),
    3: (
        f"{TOPOLOGY}::test_fingers_and_labels_are_the_definition",
        f"{PAPER}::test_4_4_labels_fall_along_every_chain_of_updates",
    ),
    4: (f"{HERE}::test_row_4_some_nodes_have_many_entering_edges_and_none_has_too_many",),
    5: (
        f"{HERE}::test_row_5_whoever_has_another_arc_hears_of_it",
        f"{MAINTENANCE}::test_scopes_are_told_and_taken_back",
    ),
    6: (
        f"{HERE}::test_row_6_half_as_long_a_list_would_not_survive",
        f"{REPAIR}::test_rows_6_and_9_up_to_half_of_the_nodes_crash_at_once",
        f"{PAPER}::test_8_half_of_the_nodes_fail_at_once",
    ),
    7: (f"{HERE}::test_rows_7_and_8_what_was_covered_is_served_when_its_cover_is_gone",),
    8: (
        f"{HERE}::test_rows_7_and_8_what_was_covered_is_served_when_its_cover_is_gone",
        f"{MAINTENANCE}::test_a_covered_filter_is_stored_and_comes_to_light",
    ),
    9: (
        f"{REPAIR}::test_row_9_the_successor_is_promoted_at_once_when_the_perimeter_breaks",
        f"{PAPER}::test_5_1_a_failed_node_is_replaced_by_its_neighbour_until_another_is_found",
    ),
    10: (
        f"{JOINING}::test_rows_10_and_16_a_ring_grows_from_one_node",
        f"{JOINING}::test_row_10_two_newcomers_in_one_gap_take_turns",
        f"{PAPER}::test_5_1_nodes_that_join_at_the_same_time_form_the_graph",
    ),
    11: (
        f"{TOPOLOGY}::test_row_11_exactly_one_node_answers_for_each_key",
        f"{HERE}::test_row_11_a_key_that_is_taken_is_located_at_its_node",
    ),
    12: (
        f"{MAINTENANCE}::test_scopes_are_told_and_taken_back",
        f"{PAPER}::test_5_2_new_edges_get_their_filters",
    ),
    13: (
        f"{HERE}::test_row_13_a_subscription_that_is_ready_gets_what_anybody_publishes",
        f"{MAINTENANCE}::test_a_covered_subscription_waits_for_its_pending_coverer",
    ),
    14: (
        f"{HERE}::test_row_14_an_edge_has_a_set_of_rows_none_of_which_covers_another",
        f"{HERE}::test_row_14_merged_rows_are_bounded",
        "overlays/routing/test_strategies.py::test_the_bound_on_rows_holds_whatever_it_costs",
    ),
    15: (
        f"{JOINING}::test_row_15_nodes_whose_key_is_taken_draw_another",
        f"{JOINING}::test_row_15_a_full_circle_fills_every_key",
    ),
    16: (
        f"{TOPOLOGY}::test_row_16_a_newcomer_is_adopted_exactly_where_it_becomes_a_finger",
        f"{PAPER}::test_5_1_nodes_that_join_one_by_one_form_the_graph",
    ),
    17: (
        f"{HERE}::test_row_17_other_fingers_keep_filters_for_ever",
        f"{HERE}::test_row_17_the_edges_of_the_overlay_depend_on_no_circle",
    ),
    18: (
        f"{SPLITS}::test_row_18_edges_fail_with_both_ends_alive_the_successors_among_them",
        f"{PAPER}::test_5_any_log_n_minus_1_edges_may_fail",
        "overlays/core/test_tunnels.py::test_a_broken_edge_between_living_nodes_goes_unnoticed",
    ),
    19: (f"{SPLITS}::test_row_19_rings_that_were_one_merge_and_events_of_the_split_reach_all",),
    20: (
        "overlays/core/test_node.py::test_links_keep_their_promise_under_faults",
        f"{JOINING}::test_row_20_nodes_join_though_messages_are_lost_doubled_and_overtaken",
        f"{PAPER}::test_5_3_maintenance_gets_by_with_notifications_that_get_lost",
    ),
}


@pytest.mark.parametrize("row", range(1, 21))
def test_each_row_has_its_tests(row: int) -> None:
    tests = Path(__file__).parents[1]
    for place in TESTS[row]:
        path, name = place.split("::")
        tree = ast.parse((tests / path).read_text(encoding="utf-8"))
        names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        assert name in names, f"{path} has no {name} any more"


# --- the graph ---------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [64, 256, 1024])
def test_row_4_some_nodes_have_many_entering_edges_and_none_has_too_many(nodes: int) -> None:
    """A node behind a long gap is the first past the distances of many others."""
    topologies = topologies_of(random_ring(nodes))
    entering = Counter(peer for chord in topologies.values() for peer in chord.edges())
    assert 2.5 * log2(nodes) < max(entering.values()) <= log2(nodes) ** 2


def test_row_6_half_as_long_a_list_would_not_survive() -> None:
    """Half of 1,024 nodes fail: of N lists of r entries about N / 2^r are lost."""
    ring = random_ring(1024)
    lengths = {}
    for key in ring.keys:
        chord = ChordTopology(PeerId("n"), key, ring.bits)
        near = ring.successors(key, 64)
        chord.know(member(other) for other in near)
        lengths[key] = chord.successors_wanted()
    lost_lists = lost_halves = 0
    for seed in range(8):
        alive = set(Random(seed).sample(ring.keys, 512))
        for key in alive:
            following = ring.successors(key, lengths[key])
            lost_lists += alive.isdisjoint(following)
            lost_halves += alive.isdisjoint(following[: lengths[key] // 2])
    assert lost_lists <= 1 < lost_halves


class OtherRing(IdealRing):
    """Nodes whose fingers stand at these distances, counted in nodes."""

    def __init__(self, nodes: int, distances: tuple[int, ...]) -> None:
        super().__init__(range(nodes), nodes.bit_length() - 1)
        self._distances = distances

    @cached_property
    def fingers(self) -> dict[int, dict[int, int]]:
        return {
            key: {(key + distance) % self.size: 0 for distance in self._distances}
            for key in self.keys
        }

    def kept_after_the_end(self, subscriber: int) -> int:
        """How many edges want something still when the only subscription has come and gone."""
        filters: dict[Edge, bool] = dict.fromkeys(self.edges(), False)
        for wanted in (True, False):
            changed = [(u, subscriber) for u in self.publishers[subscriber]]
            while changed:
                u, v = changed.pop()
                served = [edge for edge in self.edges() if (u, v) in self.dependents[edge]]
                result = (v == subscriber and wanted) or any(filters[edge] for edge in served)
                if result != filters[u, v]:
                    filters[u, v] = result
                    changed += self.dependents[u, v]
        return sum(filters.values())


def test_row_17_other_fingers_keep_filters_for_ever() -> None:
    """Eight nodes with fingers at 1, 2 and 5: 0 -> 2 -> 4 -> 6 -> 0 hold on to each other."""
    chosen, first = OtherRing(8, (1, 2, 5)), OtherRing(8, (1, 2, 4))
    assert not chosen.is_acyclic()
    assert chosen.kept_after_the_end(0) == 16
    assert first.is_acyclic()
    assert first.kept_after_the_end(0) == 0


@pytest.mark.parametrize("nodes", [1, 2, 3, 7, 16, 64, 256, 1024, 4096])
def test_row_17_the_edges_of_the_overlay_depend_on_no_circle(nodes: int) -> None:
    """By what the topologies themselves say: which edges serve a publisher."""
    topologies = {chord.me: chord for chord in topologies_of(random_ring(nodes)).values()}
    needs: dict[tuple[PeerId, PeerId], list[tuple[PeerId, PeerId]]] = {}
    for u, chord in topologies.items():
        for v in chord.edges():
            needs[u, v] = [(v, w) for w in topologies[v].serves(u, chord.scope_of(v))]
    followers: dict[tuple[PeerId, PeerId], list[tuple[PeerId, PeerId]]] = {}
    for edge, needed in needs.items():
        for one in needed:
            followers.setdefault(one, []).append(edge)
    waits = {edge: len(needed) for edge, needed in needs.items()}
    free = [edge for edge, count in waits.items() if not count]
    done = 0
    while free:
        done += 1
        for edge in followers.get(free.pop(), ()):
            waits[edge] -= 1
            if not waits[edge]:
                free.append(edge)
    assert done == len(needs)


# --- filters -----------------------------------------------------------------------------------

JITTER = NetworkSettings(latency_ms=5, jitter_ms=60)


def test_row_5_whoever_has_another_arc_hears_of_it() -> None:
    """Nodes come and go: each end of each edge has the same arc, whether it grew or shrank."""
    network = ChordNetwork.converged(24, [Filter("x >= 0")] * 24, seed=4, network=JITTER)
    before = network.ring
    network.grow(3, pause_ms=200)
    network.settle()
    network.crash(network.random.sample(network.nodes, 6))
    network.settle()
    after = network.ring
    kept = [edge for edge in after.edges() if edge[1] in before.fingers.get(edge[0], ())]
    grew = [(u, v) for u, v in kept if after.arcs[u][v][1] > before.arcs[u][v][1]]
    shrank = [(u, v) for u, v in kept if after.arcs[u][v][1] < before.arcs[u][v][1]]
    assert grew and shrank, "edges that stayed, of both kinds, are among those that were judged"
    keys = network.key_of
    for peer in network.peers:
        served = {keys[publisher]: arc for publisher, arc in peer.engine.publishers().items()}
        assert served == {u: after.arcs[u][peer.key] for u in after.publishers[peer.key]}


@pytest.mark.parametrize("nodes", [2, 5, 32])
def test_rows_7_and_8_what_was_covered_is_served_when_its_cover_is_gone(nodes: int) -> None:
    """Wide and narrow wishes, on one node and on different ones; the wide ones end first."""
    network = ChordNetwork.converged(nodes, network=JITTER, **UNATTENDED)
    random = network.random
    wide = [network.subscribe(random.choice(network.nodes), Filter("x < 60")) for _ in range(4)]
    network.rest()
    for x in range(0, 60, 6):
        network.subscribe(random.choice(network.nodes), Filter(f"x = {x}"))
    network.rest()
    for name in wide:
        network.unsubscribe(name)
        network.rest()
        assert network.complaints() == []
        events = {network.publish(random.choice(network.nodes), x): x for x in range(0, 60, 6)}
        network.rest()
        for event_id, x in events.items():
            network.check_delivered(event_id, x)


def test_row_11_a_key_that_is_taken_is_located_at_its_node() -> None:
    """t = w belongs to w, t = w + 1 to the next: in the filters that travel, too."""
    network = ChordNetwork.converged(32, **UNATTENDED)
    ring = network.ring
    for key in ring.keys:
        peer = network.peer(network.node_at[key])
        rows = dict(peer.engine.maintenance.local_rows().control)["node-location"]
        spans = list(zip(rows[::2], rows[1::2], strict=True))
        for target in (key, key + 1, ring.predecessor(key), ring.predecessor(key) + 1):
            target %= ring.size
            wanted = any(low <= target <= high for low, high in spans)
            assert wanted == (ring.first_at_or_after(target) == key)


@pytest.mark.parametrize("seed", range(3))
def test_row_13_a_subscription_that_is_ready_gets_what_anybody_publishes(seed: int) -> None:
    """At the very moment. Many are covered by others that are not ready themselves yet."""
    network = ChordNetwork.converged(48, seed=seed, network=JITTER, **UNATTENDED)
    random, simulation = network.random, network.simulation
    judged = 0
    for _ in range(25):
        name = network.subscribe(random.choice(network.nodes), random_filter(random))
        if random.random() < 0.6:
            simulation.run_for(random.randrange(60))
            continue
        assert simulation.run_until(lambda name=name: name in network.ready, 10_000)
        _, wanted = network.subscriptions[name]
        x = next(x for x in range(EVENTS) if wanted.matches({"x": x}))
        events = [network.publish(node, x) for node in random.sample(network.nodes, 12)]
        simulation.run_for(2_000)
        assert all(name in network.delivered[event_id] for event_id in events)
        judged += 1
    assert judged > 3


def test_row_14_an_edge_has_a_set_of_rows_none_of_which_covers_another() -> None:
    network = ChordNetwork.converged(32, network=JITTER, **UNATTENDED)
    random = network.random
    for _ in range(60):
        network.subscribe(random.choice(network.nodes), random_filter(random))
    network.rest()
    sizes = []
    for peer in network.peers:
        for edge in peer.topology.edges():
            rows = [entry.filter for entry in peer.engine.maintenance.told(edge).entries]
            sizes.append(len(rows))
            for one in rows:
                assert not any(one.covers(other) for other in rows if other is not one)
    assert max(sizes) > 3


def test_row_14_merged_rows_are_bounded() -> None:
    """Whatever is wanted: no table is longer, and nobody misses anything."""
    random = Random(14)
    wanted = [random_filter(random) for _ in range(32)]
    network = ChordNetwork.converged(32, wanted, strategy="imperfect", rows_max=4, **UNATTENDED)
    for _ in range(20):
        network.subscribe(random.choice(network.nodes), random_filter(random))
    network.rest()
    for peer in network.peers:
        for edge in peer.topology.edges():
            assert len(peer.engine.maintenance.told(edge).entries) <= 4
    network.check_deliveries(20)
