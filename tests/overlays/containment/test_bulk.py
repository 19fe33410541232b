"""The bulk form of the containment tree against the simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlays.bulk_worlds import World, plan_of, routed, simulated
from peersub.overlays.bulk import MemberSources, Plan
from strategies import examples

NETWORKS: dict[str, dict[str, Any]] = {
    "depth": {},
    "selectivity": {"rule": "selectivity"},
    "narrow": {"equal_degree": 1, "top_degree": 2},
}


@pytest.mark.parametrize("network", NETWORKS)
@examples(10)
@given(data=st.data())
def test_the_bulk_router_does_what_the_simulator_does(network: str, data: st.DataObject) -> None:
    nodes = data.draw(st.one_of(st.integers(1, 6), st.integers(7, 200)))
    world = World.drawn(
        "containment",
        NETWORKS[network],
        seed=data.draw(st.integers(0, 2**32)),
        nodes=nodes,
        subscriptions=data.draw(st.integers(0, 4 * nodes if nodes < 50 else nodes)),
        publishers=data.draw(st.lists(st.integers(0, 199), min_size=1, max_size=8)),
    )
    assert_same(world)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_small_networks(network: str, nodes: int) -> None:
    for seed in range(5):
        publishers = list(range(nodes)) * 2
        assert_same(World.drawn("containment", NETWORKS[network], seed, nodes, 6, publishers))


def assert_same(world: World) -> None:
    """Members deliver what comes to them, so a subscription may get it later than its node."""
    expected, found = simulated(world), routed(world)
    assert found.receipts == expected.receipts
    pairs = [sorted(row[:3] for row in seen.deliveries) for seen in (found, expected)]
    assert pairs[0] == pairs[1]


def closed_top(plan: Plan) -> Plan:
    labels = np.where(plan.edges.labels == 3, 1, plan.edges.labels)
    return replace(plan, edges=replace(plan.edges, labels=labels))


def other_entrances(plan: Plan) -> Plan:
    assert isinstance(plan.sources, MemberSources)
    entrances = np.roll(plan.sources.entrances, 1)
    return replace(plan, sources=replace(plan.sources, entrances=entrances))


def edges_in_another_order(plan: Plan) -> Plan:
    edges = plan.edges
    turned = np.concatenate(
        [
            np.arange(start, end)[::-1]
            for start, end in zip(edges.starts[:-1], edges.starts[1:], strict=True)
        ]
    )
    return replace(
        plan, edges=replace(edges, targets=edges.targets[turned], labels=edges.labels[turned])
    )


@pytest.mark.parametrize("mistake", [closed_top, other_entrances, edges_in_another_order])
def test_a_wrong_plan_is_noticed(mistake: Any) -> None:
    world = World.drawn("containment", {}, 3, 30, 90, range(20))
    plan, expected = plan_of(world), simulated(world)
    assert routed(world, plan).receipts == expected.receipts
    assert routed(world, mistake(plan)).receipts != expected.receipts
