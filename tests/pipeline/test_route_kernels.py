"""Plans as files, and the kernels of the route step, without Spark."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overlays.bulk_worlds import World, plan_of, simulated, wanted_by
from peersub.events.arrow import table_of_rows
from peersub.overlays.bulk import Plan, RowSources, publishers_of
from peersub.pipeline.kernels import plan_files
from peersub.pipeline.kernels.blocks import packed
from peersub.pipeline.kernels.plan_files import (
    PLANS_OPEN_MAX,
    PlanFolderError,
    open_plan,
    read_plan,
    write_plan,
)
from peersub.pipeline.kernels.routing import dealt, match_rows, route_batches
from peersub.pipeline.schemas import EVENTS, SUBSCRIPTIONS

NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "flood": ("flood", {}),
    "tree": ("tree", {}),
    "chord": ("chord", {}),
    "chord, few rows": ("chord", {"strategy": "imperfect", "budget": 0.2, "rows_max": 4}),
    "chord, exact reach": ("chord", {"exact_reach": True}),
}


def drawn_world(network: str, nodes: int = 30, events: int = 25) -> World:
    """A world whose publishers are drawn as the pipeline draws them."""
    overlay, settings = NETWORKS[network]
    world = World.drawn(overlay, settings, 4, nodes, 2 * nodes, range(events))
    ids = [event.id for event in world.events]
    world.publishers = publishers_of(ids, world.seed, nodes).tolist()
    return world


def blocks_of(world: World) -> pa.RecordBatch:
    """The events in two blocks."""
    rows = [{**event.attributes, "body": event.body} for event in world.events]
    half = len(rows) // 2
    blocks = [
        {
            "block": number,
            "rows": len(part),
            "names": [event.id for event in world.events[start : start + len(part)]],
            "table": packed(table_of_rows(part)),
        }
        for number, (start, part) in enumerate([(0, rows[:half]), (half, rows[half:])])
    ]
    return pa.RecordBatch.from_pylist(blocks, EVENTS.arrow)


def subscription_rows(world: World) -> list[dict[str, Any]]:
    return [
        {
            "number": number,
            "subscription_id": name,
            "language": wanted.language,
            "text": wanted.text,
            "digest": wanted.digest,
        }
        for number, (name, wanted) in enumerate(world.subscriptions)
    ]


def matched_rows(world: World) -> list[dict[str, Any]]:
    """Who wants which event, by asking each filter."""
    return [
        {"event_id": event.id, "subscription_id": name}
        for event in world.events
        for name, wanted in world.subscriptions
        if wanted.matches(event)
    ]


def assert_equal(one: Any, other: Any) -> None:
    """Equal, arrays and their types included."""
    assert type(one) is type(other)
    if is_dataclass(one):
        for each in fields(one):
            assert_equal(getattr(one, each.name), getattr(other, each.name))
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
    else:
        assert one == other


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("nodes", [1, 3, 30])
def test_a_plan_is_read_as_it_was_written(network: str, nodes: int, tmp_path: Path) -> None:
    plan = plan_of(drawn_world(network, nodes))
    folder = str(tmp_path / "plans" / "one")
    sizes = write_plan(plan, folder).to_pylist()
    assert sizes[0]["nodes"] == nodes
    assert sizes[0]["edges"] == len(plan.edges)
    assert sizes[0]["bytes"] == sum(file.stat().st_size for file in Path(folder).iterdir())
    assert_equal(read_plan(folder), plan)
    # Again, in place of the first, and nothing is left over.
    write_plan(plan, folder)
    assert_equal(read_plan(folder), plan)
    assert [path.name for path in Path(folder).parent.iterdir()] == ["one"]


@pytest.mark.parametrize("network", NETWORKS)
def test_kernels_route_as_the_simulator_does(network: str, tmp_path: Path) -> None:
    world = drawn_world(network)
    plan = plan_of(world)
    folder = str(tmp_path / "plan")
    write_plan(plan, folder)
    names = pa.array([event.id for event in world.events])
    columns = {"event_id": names, "wanted": pa.array(_or_null(wanted_by(world)), _LISTS)}
    if isinstance(plan.sources, RowSources):
        found = pa.Table.from_batches(list(match_rows([blocks_of(world)], folder, "body")))
        assert found["event_id"].to_pylist() == names.to_pylist()
        columns["rows"] = found["rows"].combine_chunks()
    batch = pa.record_batch(columns)
    # A slice of a batch is a batch, too: its lists do not begin at the first number.
    parts = [batch.slice(0, 9), batch.slice(9)]
    found = pa.Table.from_batches(list(route_batches(parts, folder, world.seed)))
    receipts = {
        (row["event_id"], row["node"]): (row["sender"], row["hops"], row["messages"])
        for row in found.to_pylist()
    }
    expected = simulated(world)
    assert receipts == expected.receipts
    assert len(receipts) == found.num_rows
    wanted = {(row["event_id"], row["node"]) for row in found.to_pylist() if row["wanted"]}
    assert wanted == {(event, node) for event, _, node, _ in expected.deliveries}


_LISTS = pa.list_(pa.int32())


def _or_null(sets: list[list[int]]) -> list[list[int] | None]:
    """As a left join has it: nobody is null."""
    assert any(not each for each in sets)
    return [each or None for each in sets]


def test_subscriptions_are_dealt_by_their_numbers() -> None:
    world = drawn_world("chord", nodes=7)
    table = pa.Table.from_pylist(subscription_rows(world), SUBSCRIPTIONS.arrow)
    shuffled = table.take(np.random.default_rng(1).permutation(table.num_rows))
    found = dealt(shuffled.to_batches(max_chunksize=3), tuple(world.names))
    assert found == world.given
    assert [list(own) for own in found.values()] == [list(own) for own in world.given.values()]


def test_a_plan_is_read_once_and_few_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_files, "_open", type(plan_files._open)())
    plans: list[Plan] = []
    for number in range(PLANS_OPEN_MAX + 2):
        folder = str(tmp_path / str(number))
        write_plan(plan_of(drawn_world("tree", number + 1)), folder)
        opened = open_plan(folder)
        assert open_plan(folder) is opened
        plans.append(opened.plan)
    assert len(plan_files._open) == PLANS_OPEN_MAX
    assert [len(plan.names) for plan in plans] == list(range(1, PLANS_OPEN_MAX + 3))


def test_a_folder_without_a_plan_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlanFolderError, match=r"nowhere holds no plan .* see the same files"):
        open_plan(str(tmp_path / "nowhere"))
    folder = tmp_path / "damaged"
    write_plan(plan_of(drawn_world("chord", 3)), str(folder))
    (folder / "edges.parquet").write_bytes(b"PAR1")
    with pytest.raises(PlanFolderError, match="damaged holds no plan"):
        read_plan(str(folder))
