"""The bulk router against the simulator, and the laws of plans against naive twins."""

from __future__ import annotations

from dataclasses import replace
from math import log2
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlays.bulk_worlds import World, plan_of, routed, simulated
from peersub.overlays.bulk import NodeRuns, Plan, Sets, bulk_overlay, publishers_of
from peersub.overlays.bulk_building import edges_of
from peersub.overlays.bulk_routing import spread
from peersub.overlays.chord.arcs import overlap
from peersub.overlays.chord.messages import RingMember
from peersub.overlays.chord.settings import ChordSettings
from peersub.overlays.chord.topology import ChordTopology
from peersub.overlays.core.identity import PeerId
from peersub.overlays.settings import SettingsError
from peersub.overlays.tree.peer import TreeSettings
from strategies import examples

EXACT = ("simple", "identity", "covering", "perfect")
FEW_ROWS = {"strategy": "imperfect", "budget": 0.2, "rows_max": 4}
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "flood": ("flood", {}),
    "flood of degree 1": ("flood", {"degree": 1}),
    **{f"tree, {name}": ("tree", {"strategy": name}) for name in EXACT},
    "tree, imperfect": ("tree", {"strategy": "imperfect"}),
    "narrow tree, few rows": ("tree", {**FEW_ROWS, "children_max": 2}),
    **{f"chord, {name}": ("chord", {"strategy": name}) for name in EXACT},
    "chord, imperfect": ("chord", {"strategy": "imperfect"}),
    "chord, few rows": ("chord", FEW_ROWS),
    **{
        f"chord, {name}, exact reach": ("chord", {"strategy": name, "exact_reach": True})
        for name in ("simple", "identity", "covering")
    },
}


@st.composite
def worlds(draw: st.DrawFn, overlay: str, settings: dict[str, Any]) -> World:
    nodes = draw(st.one_of(st.integers(1, 3), st.integers(4, 200)))
    keys = None
    if overlay == "chord" and draw(st.booleans()):
        # Keys that are close together, and some that are taken twice.
        keys = draw(st.lists(st.integers(0, 999), min_size=nodes, max_size=nodes))
        settings = {**settings, "key_bits": 10}
    return World.drawn(
        overlay,
        settings,
        seed=draw(st.integers(0, 2**32)),
        nodes=nodes,
        subscriptions=draw(st.integers(0, 3 * nodes if nodes < 50 else nodes)),
        publishers=draw(st.lists(st.integers(0, 199), min_size=1, max_size=8)),
        keys=keys,
    )


@pytest.mark.parametrize("network", NETWORKS)
@examples(8)
@given(data=st.data())
def test_the_bulk_router_does_what_the_simulator_does(network: str, data: st.DataObject) -> None:
    world = data.draw(worlds(*NETWORKS[network]))
    expected, found = simulated(world), routed(world)
    assert found.receipts == expected.receipts
    assert sorted(found.deliveries) == sorted(expected.deliveries)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_small_networks(network: str, nodes: int) -> None:
    overlay, settings = NETWORKS[network]
    for seed in range(5):
        world = World.drawn(overlay, settings, seed, nodes, 6, list(range(nodes)) * 2)
        expected, found = simulated(world), routed(world)
        assert found.receipts == expected.receipts
        assert sorted(found.deliveries) == sorted(expected.deliveries)
        assert found.deliveries, "the loopback of a publisher counts"


# --- mistakes that the comparison must notice ----------------------------------------------------


def wrong_arc_ends(plan: Plan) -> Plan:
    return replace(plan, edges=replace(plan.edges, spans=np.maximum(plan.edges.spans - 1, 1)))


def longer_arcs(plan: Plan) -> Plan:
    return replace(plan, edges=replace(plan.edges, spans=plan.edges.spans + 1))


def shorter_runs(plan: Plan) -> Plan:
    assert isinstance(plan.sources, NodeRuns)
    lengths = np.maximum(plan.sources.lengths - 1, 1)
    return replace(plan, sources=replace(plan.sources, lengths=lengths))


def longer_runs(plan: Plan) -> Plan:
    assert isinstance(plan.sources, NodeRuns)
    lengths = np.minimum(plan.sources.lengths + 1, len(plan.names))
    return replace(plan, sources=replace(plan.sources, lengths=lengths))


def runs_without_their_first(plan: Plan) -> Plan:
    assert isinstance(plan.sources, NodeRuns)
    starts = (plan.sources.starts + 1) % len(plan.names)
    return replace(plan, sources=replace(plan.sources, starts=starts))


@pytest.mark.parametrize(
    ("overlay", "mistake"),
    [
        ("chord", wrong_arc_ends),
        ("chord", longer_arcs),
        ("chord", shorter_runs),
        ("chord", longer_runs),
        ("chord", runs_without_their_first),
        ("tree", shorter_runs),
        ("tree", longer_runs),
        ("tree", runs_without_their_first),
    ],
)
def test_a_wrong_plan_is_noticed(overlay: str, mistake: Any) -> None:
    world = World.drawn(overlay, {}, 3, 60, 40, range(20))
    plan, expected = plan_of(world), simulated(world)
    assert routed(world, plan).receipts == expected.receipts
    with pytest.raises(AssertionError):
        assert routed(world, mistake(plan)).receipts == expected.receipts


def test_a_plan_that_leads_in_circles_is_refused() -> None:
    names = [f"n{number}" for number in range(3)]
    plan = bulk_overlay("tree").plan(names, 1, TreeSettings(children_max=1))
    starts, targets = np.array([0, 1, 2, 3]), np.array([1, 2, 0])
    assert isinstance(plan.sources, NodeRuns)
    runs = replace(plan.sources, starts=np.zeros(3, np.int32), lengths=np.full(3, 3, np.int32))
    circle = replace(plan, edges=edges_of(starts, targets), sources=runs)
    everybody = Sets.of([[0, 1, 2]])
    with pytest.raises(ValueError, match="more than once"):
        list(spread(circle, np.array([0]), everybody, everybody))


# --- plans ---------------------------------------------------------------------------------------


def naive_sources(keys: list[int], bits: int) -> dict[tuple[int, int], set[int]]:
    """F* by section 4.4, with arcs of keys and sets of nodes."""
    size = 1 << bits
    members = [RingMember(key, PeerId(f"n{number}")) for number, key in enumerate(keys)]
    topologies = []
    for member in members:
        topology = ChordTopology(member.peer, member.key, bits)
        topology.know(other for other in members if other != member)
        topologies.append(topology)
    edges = [
        (edge.label, number, int(edge.peer.node[1:]), edge.arc)
        for number, topology in enumerate(topologies)
        for edge in topology.fingers()
    ]
    found: dict[tuple[int, int], set[int]] = {}
    for _, origin, target, arc in sorted(edges, reverse=True):
        found[origin, target] = {target}
        for further in topologies[target].fingers():
            if overlap(arc, further.arc, size):
                found[origin, target] |= found[target, int(further.peer.node[1:])]
    return found


@examples(30)
@given(
    st.integers(1, 10).flatmap(
        lambda bits: st.tuples(
            st.just(bits),
            st.lists(
                st.integers(0, 2**bits - 1), min_size=1, max_size=min(60, 2**bits), unique=True
            ),
        )
    )
)
def test_the_sources_of_a_finger_are_a_run_of_the_ring(drawn: tuple[int, list[int]]) -> None:
    bits, keys = drawn
    names = [f"n{number}" for number in range(len(keys))]
    plan = bulk_overlay("chord").plan(names, 1, ChordSettings(key_bits=bits), keys=keys)
    assert plan.keys is not None
    assert plan.keys.tolist() == keys
    assert sources_of(plan) == naive_sources(keys, bits)


def sources_of(plan: Plan) -> dict[tuple[int, int], set[int]]:
    runs = plan.sources
    assert isinstance(runs, NodeRuns)
    at_place = {place: node for node, place in enumerate(runs.places.tolist())}
    count = len(plan.names)
    ends = zip(plan.edges.origins.tolist(), plan.edges.targets.tolist(), strict=True)
    lines = zip(runs.starts.tolist(), runs.lengths.tolist(), strict=True)
    return {
        end: {at_place[(start + step) % count] for step in range(length)}
        for end, (start, length) in zip(ends, lines, strict=True)
    }


@pytest.mark.parametrize("nodes", [1, 2, 3, 14, 40])
@pytest.mark.parametrize("wide", [1, 2, 4])
def test_the_sources_of_a_tree_edge_are_all_behind_it(nodes: int, wide: int) -> None:
    names = [f"n{number}" for number in range(nodes)]
    plan = bulk_overlay("tree").plan(names, 1, TreeSettings(children_max=wide))
    found = sources_of(plan)
    neighbours: dict[int, list[int]] = {number: [] for number in range(nodes)}
    for origin, target in found:
        neighbours[origin].append(target)
    assert len(found) == 2 * (nodes - 1)

    def behind(origin: int, target: int) -> set[int]:
        return {target}.union(
            *(behind(target, further) for further in neighbours[target] if further != origin)
        )

    assert found == {edge: behind(*edge) for edge in found}


def test_a_broadcast_over_1024_nodes_has_the_depth_of_the_digest() -> None:
    count = 1_024
    names = [f"n{number}" for number in range(count)]
    plan = bulk_overlay("chord").plan(names, 5, ChordSettings())
    everybody = Sets.of([range(count)] * 200)
    parts = list(spread(plan, np.arange(200), everybody, everybody))
    hops = np.concatenate([part.hops for part in parts])
    assert len(hops) == 200 * count
    assert sum(int(part.messages.sum()) for part in parts) == 200 * (count - 1)
    assert all(part.wanted.all() for part in parts)
    assert hops.mean() == pytest.approx(0.49 * log2(count), rel=0.1)
    assert hops.max() <= log2(count) + 2


def test_more_events_than_a_table_holds_give_the_same_receipts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for network in NETWORKS:
        overlay, settings = NETWORKS[network]
        world = World.drawn(overlay, settings, 2, 20, 30, range(12))
        whole = routed(world)
        monkeypatch.setattr("peersub.overlays.bulk_routing.CELLS_MAX", 50)
        monkeypatch.setattr("peersub.overlays.bulk_routing.PAIRS_MAX", 7)
        parts = routed(world)
        assert parts.receipts == whole.receipts
        assert sorted(parts.deliveries) == sorted(whole.deliveries)
        monkeypatch.undo()


def test_what_a_plan_refuses() -> None:
    with pytest.raises(SettingsError, match="have no keys"):
        bulk_overlay("tree").plan(["n0"], 1, TreeSettings(), keys=[1])
    with pytest.raises(SettingsError, match="2 keys are given for 1 nodes"):
        bulk_overlay("chord").plan(["n0"], 1, ChordSettings(), keys=[1, 2])
    world = World.drawn("chord", FEW_ROWS, 1, 2, 2, [0])
    with pytest.raises(SettingsError, match="depends on its filters"):
        bulk_overlay("chord").plan(world.names, 1, world.overlay_settings())
    with pytest.raises(SettingsError, match="no overlay 'nowhere'"):
        bulk_overlay("nowhere")


def test_publishers_are_drawn_by_event() -> None:
    ids = [f"e{number}" for number in range(2_000)]
    drawn = publishers_of(ids, 7, 10)
    assert drawn[:100].tolist() == publishers_of(ids[:100], 7, 10).tolist()
    assert np.bincount(drawn, minlength=10).min() > 100
    assert drawn.tolist() != publishers_of(ids, 8, 10).tolist()
