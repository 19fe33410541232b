"""The route step where nodes host members: events from member to member, one row for each event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from peersub.overlays.bulk import publishers_of
from peersub.overlays.semantic.bulk_members import (
    MemberRouter,
    member_overlay,
    node_receipts,
    outcome_of,
)
from peersub.pipeline.kernels.plan_files import open_plan
from peersub.pipeline.schemas import ROUTED

__all__ = ["route_members"]


def route_members(
    batches: Iterable[pa.RecordBatch], folder: str, seed: int, settings: Any
) -> Iterator[pa.RecordBatch]:
    """From events with the members that match them (`event_id`, `matching`) to `ROUTED`.

    Memory does not depend on the number of events: each is handed on before the next one is routed.
    """
    plan = open_plan(folder).plan
    overlay = member_overlay(plan.overlay)
    assert overlay is not None
    router: MemberRouter = overlay.router(plan, seed, settings)
    for batch in batches:
        names = batch["event_id"].to_pylist()
        publishers = publishers_of(names, seed, len(plan.names))
        for number, (name, publisher) in enumerate(zip(names, publishers.tolist(), strict=True)):
            found = batch["matching"][number]
            matching = found.values.to_numpy() if found.is_valid else np.empty(0, np.int32)
            yield _routed(router, name, publisher, matching)


def _routed(
    router: MemberRouter, name: str, publisher: int, matching: np.ndarray
) -> pa.RecordBatch:
    homes = router.members.nodes
    passages = router.passages(name, publisher, matching)
    outcome = outcome_of(passages, matching, len(router.members))
    nodes, senders, hops, messages = node_receipts(passages, homes, publisher, router.nodes)
    is_wanted = np.zeros(router.nodes, np.bool_)
    is_wanted[homes[matching]] = True
    is_matching = np.zeros(len(homes), np.bool_)
    is_matching[matching] = True
    reached = is_matching[passages.members]
    row = {
        "event_id": [name],
        **{key: [value] for key, value in asdict(outcome).items()},
        "false_positive_ratio": [outcome.false_positive_ratio],
        "false_negative_ratio": [outcome.false_negative_ratio],
        "precision": [outcome.precision],
        "nodes": _one_list(nodes.astype(np.int32)),
        "senders": _one_list(senders),
        "node_hops": _one_list(hops),
        "node_messages": _one_list(messages),
        "wanted": _one_list(is_wanted[nodes]),
        "reached": _one_list(passages.members[reached]),
        "reached_hops": _one_list(passages.hops[reached]),
    }
    columns = [
        each if isinstance(each, pa.Array) else pa.array(each, kind.type)
        for kind in ROUTED.arrow
        for each in (row[kind.name],)
    ]
    return pa.record_batch(columns, schema=ROUTED.arrow)


def _one_list(values: np.ndarray) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), pa.array(values))
