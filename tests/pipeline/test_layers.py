"""Overlays of layers in the pipeline: plans, files and routes, by kernels and on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overlays.bulk_worlds import Seen, World, plan_of, routed, wanted_by
from overlays.dag.test_bulk import one_by_one, world_of
from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.bulk import LayerSources, publishers_of
from peersub.pipeline.kernels.layers import event_layers, layer_members, layers_plan
from peersub.pipeline.kernels.plan_files import read_plan, write_plan
from peersub.pipeline.kernels.routing import route_batches
from peersub.pipeline.schemas import DELIVERIES, SUBSCRIPTIONS
from pipeline.test_route import frame, settings_of
from pipeline.test_route_kernels import assert_equal, blocks_of, matched_rows, subscription_rows

NODES = 24
SEED = 6


def drawn_world(events: int, catch_all_share: float = 0.0) -> World:
    """A world whose publishers are drawn as the pipeline draws them."""
    world = world_of(SEED, NODES, 2 * NODES, [0] * events, catch_all_share)
    world.subscriptions.append(("pattern", Filter.xpath("/a/b")))
    world.events.append(Event("without a topic", {"price": 3}))
    ids = [event.id for event in world.events]
    world.publishers = publishers_of(ids, world.seed, NODES).tolist()
    return world


def planned_by_kernels(world: World) -> Any:
    """The plan of subscriptions that come in some batches, in no order."""
    table = pa.Table.from_pylist(subscription_rows(world), SUBSCRIPTIONS.arrow)
    shuffled = table.take(np.random.default_rng(1).permutation(table.num_rows))
    settings = world.overlay_settings()
    parts = layer_members(shuffled.to_batches(max_chunksize=7), NODES, settings.topic)
    members = pa.Table.from_batches(list(parts))
    distinct = members.group_by(["layer", "node"]).aggregate([]).select(["layer", "node"])
    return layers_plan(
        distinct.cast(members.schema).to_batches(), tuple(world.names), world.seed, settings
    )


def test_kernels_make_the_plan_of_the_overlay_and_files_keep_it(tmp_path: Path) -> None:
    world = drawn_world(1, 0.3)
    plan = plan_of(world)
    assert isinstance(plan.sources, LayerSources)
    assert plan.sources.names[0] == "*"
    assert_equal(planned_by_kernels(world), plan)
    folder = str(tmp_path / "plan")
    (sizes,) = write_plan(plan, folder).to_pylist()
    assert sizes["edges"] == len(plan.edges)
    assert_equal(read_plan(folder), plan)


def test_a_plan_without_subscriptions_has_no_layers(tmp_path: Path) -> None:
    world = world_of(1, 4, 0, [1], 0.0)
    plan = plan_of(world)
    folder = str(tmp_path / "plan")
    write_plan(plan, folder)
    assert_equal(read_plan(folder), plan)
    assert routed(world, read_plan(folder)).receipts == {("e0", 1): (-1, 0, 0)}


def test_kernels_route_as_the_simulator_does(tmp_path: Path) -> None:
    world = drawn_world(4)
    folder = str(tmp_path / "plan")
    write_plan(planned_by_kernels(world), folder)
    settings = world.overlay_settings()
    found = pa.Table.from_batches(list(event_layers([blocks_of(world)], folder, settings.topic)))
    names = [event.id for event in world.events]
    assert found["event_id"].to_pylist() == names
    batch = pa.record_batch(
        {
            "event_id": pa.array(names),
            "rows": found["rows"].combine_chunks(),
            "wanted": pa.array(wanted_by(world), pa.list_(pa.int32())),
        }
    )
    receipts = pa.Table.from_batches(list(route_batches([batch], folder, world.seed)))
    compare(receipts.to_pylist(), world)


def compare(rows: list[dict[str, Any]], world: World) -> Seen:
    """Who received what in how many messages; from whom, where layers share no member."""
    expected = one_by_one(world)
    found = {
        (row["event_id"], row["node"]): (row["sender"], row["hops"], row["messages"])
        for row in rows
    }
    assert len(found) == len(rows)
    # The pattern is on the catch-all layer, whose one member may be on another one as well.
    assert {key: row[2] for key, row in found.items()} == {
        key: row[2] for key, row in expected.receipts.items()
    }
    same = sum(found[key] == row for key, row in expected.receipts.items())
    assert same > 0.9 * len(found)
    wanted = {(row["event_id"], row["node"]) for row in rows if row["wanted"]}
    assert wanted == {(event, node) for event, _, node, _ in expected.deliveries}
    return expected


@pytest.mark.spark
def test_routing_on_spark_is_what_the_simulator_does(spark: Any, tmp_path: Path) -> None:
    from peersub.pipeline.plans import placement, planned_by_a_worker
    from peersub.pipeline.route import overlay_deliveries, receipts

    world = drawn_world(3)
    settings = settings_of(world)
    subscriptions = frame(spark, subscription_rows(world), SUBSCRIPTIONS)
    events = spark.createDataFrame(pa.Table.from_batches([blocks_of(world)]))
    deliveries = frame(spark, matched_rows(world), DELIVERIES)
    folder = str(tmp_path / "plan")
    assert settings.needs_subscriptions
    assert planned_by_a_worker(subscriptions, settings, folder).first()["edges"] > 0
    assert_equal(read_plan(folder), plan_of(world))
    homes = placement(subscriptions, NODES)
    found = receipts(events, deliveries, homes, settings, folder)
    expected = compare([row.asDict() for row in found.collect()], world)
    handed = overlay_deliveries(found, deliveries, homes)
    assert sorted(
        (row.event_id, row.subscription_id, int(row.node[1:])) for row in handed.collect()
    ) == sorted(row[:3] for row in expected.deliveries)
