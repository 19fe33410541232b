"""The bulk form of the layers against the simulator, event by event from the converged start."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlays.bulk_worlds import Seen, World, plan_of, routed, simulated
from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.bulk import LayerSources, Plan
from peersub.overlays.settings import SettingsError
from strategies import examples

TOPICS = ("A", "B", "C", "D")
EVERYTHING = "price > 2"


def filters(random: Random, count: int, catch_all_share: float) -> list[tuple[str, Filter]]:
    """Filters of one topic, of two, and of none."""
    found = []
    for number in range(count):
        first, second = random.sample(TOPICS, 2)
        text = (
            f"symbol IN ('{first}', '{second}')" if random.random() < 0.3 else f"symbol = '{first}'"
        )
        if random.random() < catch_all_share:
            text = EVERYTHING
        found.append((f"s{number}", Filter(text)))
    return found


def world_of(
    seed: int, nodes: int, subscriptions: int, publishers: list[int], catch_all_share: float
) -> World:
    random = Random(seed)
    events = [
        Event(f"e{number}", {"symbol": random.choice((*TOPICS, "E")), "price": random.randrange(6)})
        for number in range(len(publishers))
    ]
    return World(
        "dag",
        {"degree": random.choice((2, 3, 4))},
        seed,
        nodes,
        filters(random, subscriptions, catch_all_share),
        events,
        [publisher % nodes for publisher in publishers],
    )


def one_by_one(world: World) -> Seen:
    """What the simulator does with each event, as if it were the first."""
    seen = Seen()
    for event, publisher in zip(world.events, world.publishers, strict=True):
        alone = simulated(replace(world, events=[event], publishers=[publisher]))
        seen.receipts |= alone.receipts
        seen.deliveries += alone.deliveries
    return seen


def compare(found: Seen, expected: Seen, *, shares_members: bool) -> None:
    if not shares_members:
        assert found.receipts == expected.receipts
        assert sorted(found.deliveries) == sorted(expected.deliveries)
        return
    assert {key: row[2] for key, row in found.receipts.items()} == {
        key: row[2] for key, row in expected.receipts.items()
    }
    assert sorted(row[:3] for row in found.deliveries) == sorted(
        row[:3] for row in expected.deliveries
    )


@examples(10)
@given(
    seed=st.integers(0, 2**32),
    nodes=st.one_of(st.integers(1, 6), st.integers(7, 100)),
    per_node=st.floats(0, 2),
    publishers=st.lists(st.integers(0, 99), min_size=1, max_size=2),
    shares_members=st.booleans(),
)
def test_the_bulk_router_does_what_the_simulator_does(
    seed: int, nodes: int, per_node: float, publishers: list[int], shares_members: bool
) -> None:
    share = 0.2 if shares_members else 0.0
    world = world_of(seed, nodes, int(per_node * nodes), publishers, share)
    compare(routed(world), one_by_one(world), shares_members=shares_members)


def test_everybody_on_one_layer_gets_every_event() -> None:
    world = world_of(5, 60, 60, [0, 30, 59], 1.0)
    found = routed(world)
    compare(found, one_by_one(world), shares_members=False)
    assert len(found.receipts) == 3 * 60
    plan = plan_of(world)
    edges = len(plan.edges) // 2
    copies = sum(messages for _, _, messages in found.receipts.values())
    assert copies == 3 * (2 * edges - 59)


def test_an_event_without_members_stays_with_its_publisher() -> None:
    world = world_of(1, 5, 0, [3], 0.0)
    assert routed(world).receipts == {("e0", 3): (-1, 0, 0)} == one_by_one(world).receipts


def test_a_publisher_outside_hands_the_event_to_the_first_member() -> None:
    wanted = [("s0", Filter("a = 1")), *filters(Random(2), 30, 0.0)[1:]]
    world = replace(world_of(2, 31, 0, [0], 0.0), subscriptions=wanted, events=[])
    world.subscriptions[0] = ("s0", Filter("symbol = 'Z'"))
    world.events, world.publishers = [Event("e0", {"symbol": "A"})], [0]
    found = routed(world)
    compare(found, one_by_one(world), shares_members=False)
    (relay,) = (node for (_, node), (sender, _, _) in found.receipts.items() if sender == 0)
    plan = plan_of(world)
    assert isinstance(plan.sources, LayerSources)
    layer = plan.sources.names.index("string:A")
    assert relay == plan.sources.nodes[plan.sources.starts[layer]]
    assert found.receipts["e0", relay][1] == 1


def test_more_events_than_are_worked_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of(3, 40, 60, list(range(20)), 0.3)
    whole = routed(world)
    monkeypatch.setattr("peersub.overlays.dag.bulk.CELLS_MAX", 50)
    monkeypatch.setattr("peersub.overlays.dag.cascade.EDGES_MAX", 70)
    parts = routed(world)
    assert parts.receipts == whole.receipts
    assert sorted(parts.deliveries) == sorted(whole.deliveries)


def with_other_tokens(plan: Plan) -> Plan:
    return replace(plan, edges=replace(plan.edges, labels=1 - plan.edges.labels))


def with_another_order(plan: Plan) -> Plan:
    """Neighbours in the opposite order: who is first to send to whom changes."""
    order = np.concatenate(
        [
            np.arange(start, end)[::-1]
            for start, end in zip(plan.edges.starts[:-1], plan.edges.starts[1:], strict=True)
        ]
    )
    edges = replace(plan.edges, targets=plan.edges.targets[order], labels=plan.edges.labels[order])
    return replace(plan, edges=edges)


@pytest.mark.parametrize("mistake", [with_other_tokens, with_another_order])
def test_a_wrong_plan_is_noticed(mistake: object) -> None:
    world = replace(world_of(4, 50, 50, [1], 1.0), settings={"degree": 4})
    plan = plan_of(world)
    expected = routed(world, plan).receipts
    assert callable(mistake)
    assert routed(world, mistake(plan)).receipts != expected


def test_what_a_plan_refuses() -> None:
    from peersub.overlays.bulk import bulk_overlay

    world = world_of(1, 2, 2, [0], 0.0)
    with pytest.raises(SettingsError, match="depends on its filters"):
        bulk_overlay("dag").plan(world.names, 1, world.overlay_settings())
    with pytest.raises(SettingsError, match="have no keys"):
        bulk_overlay("dag").plan(world.names, 1, world.overlay_settings(), keys=[1, 2])
