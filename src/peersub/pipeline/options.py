"""What a run of the pipeline is asked for, and which steps that takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

__all__ = ["DEFAULT_OVERLAYS", "PipelineOptions", "Target"]

DEFAULT_OVERLAYS: Final = ("chord", "tree", "flood")


class Target(StrEnum):
    """How far to go. Each builds on the one before it."""

    MATCH = "match"
    ORGANISE = "organise"
    ROUTE = "route"
    AUDIT = "audit"
    REPORT = "report"
    RUN = "run"
    """All of them: the same as `report`."""

    @property
    def stages(self) -> tuple[Target, ...]:
        """The targets on the way to this one, itself included, without `run`."""
        order = (Target.MATCH, Target.ORGANISE, Target.ROUTE, Target.AUDIT, Target.REPORT)
        if self is Target.RUN:
            return order
        return order[: order.index(self) + 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """The options of a run, as given.

    Args:
        target: how far to go.
        out: the folder of the run.
        subscriptions: a file or a folder; may be left out where the folder of the run has them.
        events: likewise.
        overlays: the overlays to plan, route and compare.
        nodes: how many nodes the plans have.
        seed: what draws keys, neighbours and publishers.
        settings: settings of overlays by their flat names.
        shards: into how many parts the index is cut; None lets the sizes decide.
        sample: how many events the organisation measures filters on.
        neighbours: how many similar filters are found for each.
        trace: a trace to audit in addition to the routes.
        deliveries: a file of deliveries to audit in addition to the routes.
        master: where Spark runs.
        spark: settings of Spark.
        resume: go on with a run that was interrupted.
    """

    target: Target
    out: str
    subscriptions: str | None = None
    events: str | None = None
    events_format: str | None = None
    subscriptions_format: str | None = None
    records: str | None = None
    schema: str | None = None
    body_column: str = "body"
    overlays: tuple[str, ...] = DEFAULT_OVERLAYS
    nodes: int = 64
    seed: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    shards: int | None = None
    sample: int = 1_024
    neighbours: int = 5
    trace: str | None = None
    deliveries: str | None = None
    master: str = "local[*]"
    spark: Mapping[str, str] = field(default_factory=dict)
    resume: bool = False
