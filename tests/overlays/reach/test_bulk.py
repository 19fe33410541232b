"""The bulk form of Reach against the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlays.bulk_worlds import Seen, World, plan_of, routed, simulated
from peersub.overlays.bulk import PlaceSources, Sets, bulk_overlay
from peersub.overlays.reach.settings import ReachSettings
from peersub.overlays.settings import SettingsError
from strategies import examples

SETTINGS: dict[str, dict[str, Any]] = {
    "hashed": {},
    "not quenched": {"quench": False, "attributes": "a; s; b; r"},
    "the interest bit": {"summary": 0, "attributes": "a; s; b; r"},
    "few identifiers": {"summary": 3, "attributes": "a: 3, 6; b: 4; s # 3"},
    "filters": {"summary_filters": True, "attributes": "a: 3, 6; b; s; r"},
    "heirs answer": {
        "summary_filters": True,
        "answer_share": 0.8,
        "copies": 4,
        "attributes": "a; s; b; r",
    },
    "replicas answer": {
        "summary_filters": True,
        "answer_share": 0.8,
        "orders": 3,
        "replicas": 2,
        "attributes": "a; s; b; r",
    },
    "heirs answer by identifiers": {"answer_share": 1.0, "attributes": "a: 3, 6; b; s # 2; r"},
    "few filters, few orders": {
        "summary_filters": True,
        "summary": 6,
        "orders": 3,
        "attributes": "s # 2; a; b < 4; b",
    },
}


def compare(found: Seen, expected: Seen) -> None:
    """Who got how many messages and deliveries; from whom, where there was one message."""
    assert {key: row[2] for key, row in found.receipts.items()} == {
        key: row[2] for key, row in expected.receipts.items()
    }
    for key, row in expected.receipts.items():
        if row[2] < 2:
            assert found.receipts[key] == row
    assert sorted(row[:3] for row in found.deliveries) == sorted(
        row[:3] for row in expected.deliveries
    )


@pytest.mark.parametrize("name", SETTINGS)
@examples(5)
@given(
    seed=st.integers(0, 2**32),
    nodes=st.one_of(st.integers(1, 6), st.integers(7, 70)),
    per_node=st.floats(0, 2),
    publishers=st.lists(st.integers(0, 99), min_size=1, max_size=6),
)
def test_the_bulk_router_does_what_the_simulator_does(
    name: str, seed: int, nodes: int, per_node: float, publishers: list[int]
) -> None:
    world = World.drawn("reach", SETTINGS[name], seed, nodes, int(per_node * nodes), publishers)
    compare(routed(world), simulated(world))


def test_a_plan_says_who_holds_what() -> None:
    world = World.drawn("reach", {}, 1, 12, 20, [0])
    plan = plan_of(world)
    assert isinstance(plan.sources, PlaceSources)
    assert sum(2.0**-length for length in plan.sources.lengths.tolist()) == 1
    assert len(plan.sources.homes) == len(plan.sources.filters)
    origins, targets = plan.edges.origins.tolist(), plan.edges.targets.tolist()
    pairs = set(zip(origins, targets, strict=True))
    assert {(target, origin) for origin, target in pairs} == pairs


def test_no_events_and_wrong_arguments() -> None:
    world = World.drawn("reach", {}, 1, 5, 5, [0])
    plan = plan_of(world)
    bulk = bulk_overlay("reach")
    nothing = Sets.of([])
    assert list(bulk.route(plan, np.zeros(0, np.int32), nothing, nothing)) == []
    with pytest.raises(SettingsError, match="keys"):
        bulk.plan(world.names, 1, ReachSettings(), keys=[1] * 5, subscriptions={})
    with pytest.raises(SettingsError, match="filters"):
        bulk.plan(world.names, 1, ReachSettings())
