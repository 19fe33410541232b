"""Overlays whose nodes host members, on Spark: organised, planned and routed as simulated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from overlays.bulk_worlds import World
from overlays.semantic.member_worlds import drawn_world, settings_of, simulated_members
from peersub.overlays.semantic.metrics import DocumentOutcome, RoutingTotals
from peersub.pipeline.schemas import (
    DELIVERIES,
    MEMBERS,
    MEMBERSHIP,
    OUTCOMES,
    OVERLAY_DELIVERIES,
    RECEIPTS,
    SUBSCRIPTIONS,
)
from pipeline.member_tables import classes_table, coverings_table, member_names, members_table
from pipeline.test_route_kernels import blocks_of, subscription_rows

pytestmark = pytest.mark.spark

NETWORKS = {
    "containment": {"rule": "selectivity"},
    "similarity": {"clique_up_to": 0, "nearest": 3},
}
NODES, SUBSCRIPTIONS_COUNT = 60, 200


def world_of(overlay: str) -> World:
    """SQL filters on fewer nodes: most host several members; one node hosts none."""
    from peersub.overlays.bulk import publishers_of

    world = drawn_world(overlay, NETWORKS[overlay], 5, NODES, SUBSCRIPTIONS_COUNT, range(12))
    sql_only = [each for each in world.subscriptions if each[1].language == "sql"]
    names = [event.id for event in world.events]
    return replace(
        world,
        subscriptions=sql_only,
        publishers=publishers_of(names, world.seed, NODES).tolist(),
    )


@pytest.fixture(scope="module")
def datasets(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The datasets that both plans are made of, organised by Spark."""
    from peersub.pipeline import covering
    from peersub.pipeline.members import members_of

    world = world_of("containment")
    folder = tmp_path_factory.mktemp("organised")
    found = {name: str(folder / name) for name in ("members", "classes", "coverings")}
    subscriptions = frame(spark, subscription_rows(world), SUBSCRIPTIONS)
    spark.createDataFrame(classes_table(world)).write.parquet(found["classes"])
    classes = spark.read.parquet(found["classes"])
    settings = covering.CoveringSettings.fit(classes.count())
    bands = covering.class_bands(classes, str(folder / "bands"), settings)
    coverings = covering.coverings_of(classes, covering.band_folders(bands), settings)
    coverings.write.parquet(found["coverings"])
    members_of(subscriptions, NODES).write.parquet(found["members"])
    return found


def frame(spark: Any, rows: list[dict[str, Any]], schema: Any) -> Any:
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema.arrow))


def rows_of(table: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    return sorted(zip(*(table[name].to_pylist() for name in names), strict=True))


def test_spark_organises_what_brute_force_finds(spark: Any, datasets: dict[str, str]) -> None:
    world = world_of("containment")
    members = spark.read.parquet(datasets["members"])
    assert members.schema == MEMBERS.spark
    names = MEMBERS.arrow.names
    assert rows_of(members.toArrow(), *names) == rows_of(members_table(world), *names)
    coverings = spark.read.parquet(datasets["coverings"]).toArrow()
    pairs = ("digest", "coverer")
    assert rows_of(coverings, *pairs) == rows_of(coverings_table(world), *pairs)


@pytest.mark.usefixtures("settings_of_real_jobs")
@pytest.mark.parametrize("overlay", NETWORKS)
def test_members_on_spark_receive_what_the_simulator_says(
    overlay: str, spark: Any, datasets: dict[str, str], tmp_path: Path
) -> None:
    from peersub.pipeline import members
    from peersub.pipeline.plans import PlanSettings, placement

    world = world_of(overlay)
    settings = PlanSettings(
        overlay=overlay, nodes=NODES, seed=world.seed, settings=settings_of(world)
    )
    folder = str(tmp_path / "plan")
    organised = members.Organised(
        **datasets,
        similar="",
        scratch=str(tmp_path / "scratch"),
        members_count=len(member_names(world)),
        is_complete=True,
    )
    made = members.planned(spark, settings, organised, folder).first()
    assert made["overlay"] == overlay
    subscriptions = frame(spark, subscription_rows(world), SUBSCRIPTIONS)
    homes = members.membership_of(subscriptions, spark.read.parquet(datasets["members"]), NODES)
    assert homes.schema == MEMBERSHIP.spark
    matched = [
        {"event_id": event.id, "subscription_id": name}
        for event in world.events
        for name, wanted in world.subscriptions
        if wanted.matches(event)
    ]
    events = spark.createDataFrame(pa.Table.from_batches([blocks_of(world)]))
    deliveries = frame(spark, matched, DELIVERIES)
    routed = members.routed_among_members(events, deliveries, homes, settings, folder, 2)
    routed.write.parquet(str(tmp_path / "routed"))
    routed = spark.read.parquet(str(tmp_path / "routed"))
    expected = simulated_members(world)
    received = members.receipts_of(routed)
    assert received.schema.simpleString() == RECEIPTS.spark.simpleString()
    assert {
        (row.event_id, row.node): (row.hops, row.messages) for row in received.collect()
    } == expected.receipts
    handed = members.deliveries_of_members(routed, homes, placement(subscriptions, NODES))
    assert handed.schema.simpleString() == OVERLAY_DELIVERIES.spark.simpleString()
    assert sorted(
        (row.event_id, row.subscription_id, int(row.node[1:]), row.hops) for row in handed.collect()
    ) == sorted(expected.deliveries)
    outcomes = members.outcomes_of(routed)
    assert outcomes.schema.simpleString() == OUTCOMES.spark.simpleString()
    check_summary(members.summary_of(outcomes), outcomes.collect())


def check_summary(summary: dict[str, Any], rows: list[Any]) -> None:
    """The averages that Spark makes are those of the one definition."""
    totals = RoutingTotals()
    names = DocumentOutcome.__dataclass_fields__
    for row in rows:
        totals.add(DocumentOutcome(**{name: row[name] for name in names}))
    expected = totals.metrics()
    for name in (
        *("false_positive_ratio", "false_negative_ratio", "precision", "hops", "hops_max"),
        "messages_per_delivery",
    ):
        assert summary[name] == pytest.approx(getattr(expected, name), abs=1e-5)
    assert summary["false_positive_ratio"] > 0
