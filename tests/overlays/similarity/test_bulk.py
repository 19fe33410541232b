"""The bulk form against the simulator and against naive twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlays.similarity.worlds import World, simulated
from peersub.overlays.core.identity import PeerId
from peersub.overlays.similarity import bulk, bulk_routing
from peersub.overlays.similarity.bulk import route, similarity_graph
from peersub.overlays.similarity.bulk_routing import pair_hashes
from peersub.overlays.similarity.choosing import Candidate, chosen, place_of
from peersub.overlays.similarity.proximity import connection_factor, pair_hash
from peersub.overlays.similarity.settings import PAPER, SimilaritySettings
from strategies import examples

OURS = {"clique_up_to": 0}
NETWORKS = {
    "paper": {"choice": "nearest", "nearest": 3, "random_forward": 1.0, "origin_spreads": False},
    "paper, half": {"choice": "nearest", "nearest": 3, "random_forward": 0.5},
    "jaccard, no smoothing": {"choice": "nearest", "proximity": "jaccard", "smoothing": 0.0},
    "climb": {},
    "climb, wide": {"cover": 3, "nearest": 6, "random": 2, "random_forward": 0.3},
    "climb, cheap": {"wanted_weight": 1, "cover": 1, "random": 0},
    "well connected": {"choice": "nearest", "proximity": "well-connected"},
    "indulgent": {"indulgence": 2, "nearest": 2},
    "summaries": {"summary_bytes": 4},
    "summaries, indulgent": {"summary_bytes": 4, "indulgence": 1},
    "clique": {"clique_up_to": 1_000},
}


def links_of_peers(peers) -> dict[tuple[PeerId, PeerId], bool]:
    return {
        (member.me, other): member.is_near(other)
        for peer in peers
        for member in peer.members()
        for other in member.neighbours()
    }


def links_of(world: World) -> dict[tuple[PeerId, PeerId], bool]:
    graph = world.graph()
    addresses = [peer for peer, _ in world.members]
    return {
        (addresses[member], addresses[graph.targets[edge]]): bool(graph.is_near[edge])
        for member in range(len(graph))
        for edge in range(graph.starts[member], graph.starts[member + 1])
    }


def check(world: World) -> None:
    watcher, peers = simulated(world)
    assert links_of(world) == links_of_peers(peers)
    routed = world.routed()
    addresses = [peer for peer, _ in world.members]
    hops, copies = {}, {}
    for event, member, hop, count in zip(
        routed.events.tolist(),
        routed.members.tolist(),
        routed.hops.tolist(),
        routed.copies.tolist(),
        strict=True,
    ):
        if count:
            # Origins, and who shares a node with a receiver, got it without a copy.
            copies[world.events[event].id, addresses[member]] = count
            if hop:
                hops[world.events[event].id, addresses[member]] = hop
    alone = max(map(len, world.subscriptions)) == 1
    if alone:
        assert copies == watcher.copies
        first = {key: hop for key, hop in watcher.hops.items() if key in hops}
        assert hops == first
    assert copies.keys() == watcher.copies.keys()
    for key, hop in hops.items():
        assert hop <= watcher.hops[key]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("seed", range(3))
def test_the_bulk_form_is_the_simulator(name, seed):
    check(World.drawn({**OURS, **NETWORKS[name]}, seed, 30))


@given(
    st.sampled_from(sorted(NETWORKS)),
    st.integers(0, 10_000),
    st.integers(1, 40),
    st.integers(1, 40),
)
@examples(25)
def test_small_networks_of_all_kinds(name, seed, nodes, sample_size):
    check(World.drawn({**OURS, **NETWORKS[name]}, seed, nodes, sample_size=sample_size))


@pytest.mark.parametrize("name", ["paper, half", "climb", "summaries"])
@pytest.mark.parametrize("seed", range(3))
def test_nodes_with_several_members(name, seed):
    check(World.drawn({**OURS, **NETWORKS[name]}, seed, 20, most=4))


@pytest.mark.parametrize("name", ["paper, half", "climb"])
def test_two_hundred_peers(name):
    check(World.drawn({**OURS, **NETWORKS[name]}, 7, 200, events=8))


def test_parts_do_not_matter(monkeypatch):
    world = World.drawn({**OURS, "indulgence": 1}, 4, 40)
    whole, links = world.routed(), links_of(world)
    paired = World.drawn({**OURS, **NETWORKS["well connected"]}, 4, 40)
    near = links_of(paired)
    for module in (bulk, bulk_routing):
        monkeypatch.setattr(module, "CELLS_MAX", 64)
    assert links_of(world) == links
    assert links_of(paired) == near
    parts = world.routed()
    for name in ("events", "members", "hops", "copies"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name))


def test_latency_and_bandwidth_count_in_bulk_as_they_do_for_peers():
    random = np.random.default_rng(5)
    bits = random.random((25, 16)) < 0.4
    positions, bandwidths = random.random((25, 2)) * 200, random.random(25) * 50 + 1
    settings = SimilaritySettings(
        choice="nearest", proximity="well-connected", clique_up_to=0, random=0, nearest=3
    )
    graph = similarity_graph(bits, settings, 9, positions_ms=positions, bandwidths_mbit=bandwidths)
    peers = [PeerId(f"n{number}", 0, 1) for number in range(25)]

    class Spot:
        def __init__(self, number: int) -> None:
            self.x_ms, self.y_ms = positions[number].tolist()
            self.bandwidth_mbit = float(bandwidths[number])

    def candidate(chooser: int, number: int) -> Candidate:
        value = sum(1 << k for k in range(16) if bits[number, k])
        factor = connection_factor(Spot(chooser), Spot(number))
        return Candidate(peers[number], place_of(9, peers[number]), value, factor)

    wanted = set()
    for chooser in range(25):
        others = [candidate(chooser, k) for k in range(25) if k != chooser]
        for one in chosen(candidate(chooser, chooser), others, settings):
            other = peers.index(one.peer)
            wanted |= {(chooser, other), (other, chooser)}
    found = {
        (m, int(t)) for m in range(25) for t in graph.targets[graph.starts[m] : graph.starts[m + 1]]
    }
    assert found == wanted


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_arithmetic_of_arrays_is_that_of_numbers(one, other):
    pair = np.array([one], np.uint64), np.array([other], np.uint64)
    assert int(pair_hashes(*pair)[0]) == pair_hash(one, other)
    assert int(bulk._scaled(*pair)[0]) == ((1 << 64) - other) * one >> 64


def test_an_event_that_nobody_wants_reaches_nobody_and_has_no_false_negatives():
    settings = SimilaritySettings(clique_up_to=0)
    graph = similarity_graph(np.ones((5, 4), bool), settings, 1)
    matches = np.zeros((2, 5), bool)
    matches[1] = True
    routed = route(graph, matches, np.array([-1, 2]), settings, 1, ["a", "b"])
    assert set(routed.events.tolist()) == {1}
    metrics = routed.totals(matches).metrics()
    assert metrics.documents == 2
    assert metrics.documents_matched == 1
    assert metrics.false_negative_ratio == 0


def test_an_origin_matches():
    graph = similarity_graph(np.ones((3, 4), bool), PAPER, 1)
    with pytest.raises(AssertionError, match="an origin matches"):
        route(graph, np.zeros((1, 3), bool), np.array([0]), PAPER, 1, ["a"])


def test_the_paper_s_degree():
    random = np.random.default_rng(1)
    graph = similarity_graph(random.random((400, 64)) < 0.3, PAPER, 1)
    assert set(graph.near_made.tolist()) == {5}
    assert set(graph.random_made.tolist()) == {1}
    assert 2 * 6 * 0.7 < graph.degrees.mean() <= 2 * 6
