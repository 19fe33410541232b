"""Overlays whose nodes hold places in the pipeline: plans, files and routes, also on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from overlays.bulk_worlds import Seen, World, plan_of, simulated, wanted_by
from overlays.reach.test_bulk import SETTINGS, compare
from peersub.overlays.bulk import PlaceSources, publishers_of
from peersub.pipeline.kernels.places import event_words
from peersub.pipeline.kernels.plan_files import read_plan, write_plan
from peersub.pipeline.kernels.routing import route_batches
from peersub.pipeline.schemas import DELIVERIES, SUBSCRIPTIONS
from pipeline.test_route import frame, settings_of
from pipeline.test_route_kernels import assert_equal, blocks_of, matched_rows, subscription_rows

NODES = 24
SEED = 6


def drawn_world(name: str, events: int = 8) -> World:
    """A world whose publishers are drawn as the pipeline draws them."""
    world = World.drawn("reach", SETTINGS[name], SEED, NODES, 2 * NODES, [0] * events)
    ids = [event.id for event in world.events]
    world.publishers = publishers_of(ids, world.seed, NODES).tolist()
    return world


def seen_in(rows: list[dict[str, Any]], world: World) -> Seen:
    seen = Seen()
    for row in rows:
        key = (row["event_id"], row["node"])
        assert key not in seen.receipts
        seen.receipts[key] = (row["sender"], row["hops"], row["messages"])
        if row["wanted"]:
            event = next(each for each in world.events if each.id == row["event_id"])
            seen.deliveries += [
                (event.id, name, row["node"], row["hops"])
                for name, wanted in world.given[f"n{row['node']}"].items()
                if wanted.matches(event)
            ]
    return seen


@pytest.mark.parametrize("name", SETTINGS)
def test_a_plan_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    plan = plan_of(drawn_world(name))
    assert isinstance(plan.sources, PlaceSources)
    folder = str(tmp_path / "plan")
    (sizes,) = write_plan(plan, folder).to_pylist()
    assert (sizes["edges"], sizes["filters"]) == (len(plan.edges), len(plan.sources.filters))
    assert_equal(read_plan(folder), plan)


@pytest.mark.parametrize("name", ["hashed", "filters", "few filters, few orders"])
def test_kernels_route_as_the_simulator_does(name: str, tmp_path: Path) -> None:
    world = drawn_world(name)
    folder = str(tmp_path / "plan")
    write_plan(plan_of(world), folder)
    settings = world.overlay_settings()
    words = event_words([blocks_of(world)], folder, "body", world.seed, settings)
    found = pa.Table.from_batches(list(words))
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
    compare(seen_in(receipts.to_pylist(), world), simulated(world))


@pytest.mark.spark
def test_routing_on_spark_is_what_the_simulator_does(spark: Any, tmp_path: Path) -> None:
    from peersub.pipeline.plans import placement, planned_by_a_worker
    from peersub.pipeline.route import overlay_deliveries, receipts

    world = drawn_world("filters", 4)
    settings = settings_of(world)
    subscriptions = frame(spark, subscription_rows(world), SUBSCRIPTIONS)
    events = spark.createDataFrame(pa.Table.from_batches([blocks_of(world)]))
    deliveries = frame(spark, matched_rows(world), DELIVERIES)
    folder = str(tmp_path / "plan")
    assert planned_by_a_worker(subscriptions, settings, folder).first()["edges"] > 0
    assert_equal(read_plan(folder), plan_of(world))
    homes = placement(subscriptions, NODES)
    found = receipts(events, deliveries, homes, settings, folder)
    expected = simulated(world)
    compare(seen_in([row.asDict() for row in found.collect()], world), expected)
    handed = overlay_deliveries(found, deliveries, homes)
    assert sorted(
        (row.event_id, row.subscription_id, int(row.node[1:])) for row in handed.collect()
    ) == sorted(row[:3] for row in expected.deliveries)
