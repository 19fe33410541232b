"""The route step on Spark: from deliveries and a plan to who receives what, as simulated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from overlays.bulk_worlds import World, simulated
from peersub.pipeline.kernels.plan_files import write_plan
from peersub.pipeline.schemas import (
    DELIVERIES,
    OVERLAY_DELIVERIES,
    PLACEMENT,
    PLANNED,
    RECEIPTS,
    SUBSCRIPTIONS,
)
from pipeline.test_route_kernels import (
    NETWORKS,
    blocks_of,
    drawn_world,
    matched_rows,
    subscription_rows,
)

pytestmark = pytest.mark.spark

NODES = 30


def frame(spark: Any, rows: list[dict[str, Any]], schema: Any) -> Any:
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema.arrow))


def settings_of(world: World) -> Any:
    from peersub.pipeline.plans import PlanSettings

    return PlanSettings(
        overlay=world.overlay,
        nodes=world.nodes,
        seed=world.seed,
        settings=world.settings,
        sample=world.sample if "strategy" in world.settings else (),
    )


@pytest.mark.parametrize("network", ["flood", "chord", "chord, few rows"])
def test_routing_on_spark_is_what_the_simulator_does(
    network: str, spark: Any, tmp_path: Path
) -> None:
    from peersub.pipeline.plans import make_plan, placement, planned_by_a_worker
    from peersub.pipeline.route import overlay_deliveries, receipts

    assert network in NETWORKS
    world = drawn_world(network, NODES)
    settings = settings_of(world)
    subscriptions = frame(spark, subscription_rows(world), SUBSCRIPTIONS)
    events = spark.createDataFrame(pa.Table.from_batches([blocks_of(world)]))
    deliveries = frame(spark, matched_rows(world), DELIVERIES)
    folder = str(tmp_path / "plan")
    if settings.needs_subscriptions:
        planned = planned_by_a_worker(subscriptions, settings, folder)
        assert planned.schema == PLANNED.spark
        assert planned.first()["filters"] > 0
    else:
        write_plan(make_plan(settings), folder)
    homes = placement(subscriptions, NODES)
    assert homes.schema == PLACEMENT.spark
    found = receipts(events, deliveries, homes, settings, folder)
    assert found.schema == RECEIPTS.spark
    expected = simulated(world)
    assert {
        (row.event_id, row.node): (row.sender, row.hops, row.messages) for row in found.collect()
    } == expected.receipts
    handed = overlay_deliveries(found, deliveries, homes)
    assert handed.schema == OVERLAY_DELIVERIES.spark
    assert sorted(
        (row.event_id, row.subscription_id, int(row.node[1:]), row.hops) for row in handed.collect()
    ) == sorted(expected.deliveries)
