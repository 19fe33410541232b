"""Plans: where subscriptions live, and the converged network of an overlay as a folder of files.

Most plans depend on nothing but the number of nodes, and are made here. Where the tables of an
overlay let more pass than was asked for, or say whom they reach, a plan depends on all filters: it
is then made by one worker, so that no population of subscriptions has to fit into the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from peersub.overlays.bulk import Plan, Subscriptions, bulk_overlay
from peersub.overlays.core.identity import numbered_node
from peersub.overlays.registry import overlay_kind
from peersub.overlays.settings import SettingsError, settings_from, with_sample
from peersub.pipeline.kernels.layers import layer_members, layers_plan
from peersub.pipeline.kernels.plan_files import write_plan
from peersub.pipeline.kernels.routing import dealt
from peersub.pipeline.schemas import LAYER_MEMBERS, PLANNED

__all__ = ["NODES_MAX", "PlanSettings", "make_plan", "placement", "planned_by_a_worker"]

NODES_MAX = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """All that determines a plan but the subscriptions.

    Args:
        overlay: which overlay.
        nodes: how many nodes; they are named as in a simulation.
        seed: the network's.
        settings: of the overlay, by flat names.
        keys: where nodes stand, by their numbers, if that is not drawn (Chord).
        sample: attributes of events like those to come; imperfect merging measures by them.

    Raises:
        SettingsError: a value is not allowed.
    """

    overlay: str
    nodes: int
    seed: int = 1
    settings: Mapping[str, object] = field(default_factory=dict)
    keys: tuple[int, ...] | None = None
    sample: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= NODES_MAX:
            raise SettingsError(f"nodes is from 1 to {NODES_MAX:,}, not {self.nodes}")
        _ = self.overlay_settings

    @property
    def overlay_settings(self) -> Any:
        """The settings as the overlay has them."""
        settings: Any = settings_from(overlay_kind(self.overlay).settings_class, self.settings)
        return with_sample(settings, self.sample) if self.sample else settings

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the nodes."""
        return tuple(numbered_node(number) for number in range(self.nodes))

    @property
    def has_layers(self) -> bool:
        """Whether nodes are members of layers; then these are the plan's sources."""
        return hasattr(bulk_overlay(self.overlay), "plan_of_layers")

    @property
    def has_places(self) -> bool:
        """Whether nodes hold places; then filters and bits of events are the plan's sources."""
        return hasattr(bulk_overlay(self.overlay), "word_of")

    @property
    def needs_subscriptions(self) -> bool:
        """Whether the plan depends on what is subscribed; then its sources are rows."""
        return bulk_overlay(self.overlay).needs_subscriptions(self.overlay_settings)


def placement(subscriptions: DataFrame, nodes: int) -> DataFrame:
    """`PLACEMENT` of `SUBSCRIPTIONS`: dealt to the nodes in turn, in the order of the input."""
    return subscriptions.select(
        "subscription_id", (sql.col("number") % nodes).cast("int").alias("node")
    )


def make_plan(settings: PlanSettings, subscriptions: Subscriptions | None = None) -> Plan:
    """The plan that the settings determine.

    Raises:
        SettingsError: it needs subscriptions, or the settings do not go together.
    """
    return bulk_overlay(settings.overlay).plan(
        settings.names,
        settings.seed,
        settings.overlay_settings,
        keys=settings.keys,
        subscriptions=subscriptions,
    )


def planned_by_a_worker(subscriptions: DataFrame, settings: PlanSettings, folder: str) -> DataFrame:
    """A row of `PLANNED`; when it is asked for, one worker makes the plan and writes the folder.

    Where nodes are members of layers, all workers look at the filters, and the one at who joins
    what.
    """
    if settings.has_layers:
        return _planned_layers(subscriptions, settings, folder)

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield write_plan(make_plan(settings, dealt(batches, settings.names)), folder)

    columns = subscriptions.select("number", "subscription_id", "language", "text")
    return columns.repartition(1).mapInArrow(make, PLANNED.spark)


def _planned_layers(subscriptions: DataFrame, settings: PlanSettings, folder: str) -> DataFrame:
    nodes, own = settings.nodes, settings.overlay_settings

    def join(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return layer_members(batches, nodes, own.topic)

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield write_plan(layers_plan(batches, settings.names, settings.seed, own), folder)

    columns = subscriptions.select("number", "language", "text")
    members = columns.mapInArrow(join, LAYER_MEMBERS.spark).distinct()
    return members.repartition(1).mapInArrow(make, PLANNED.spark)
