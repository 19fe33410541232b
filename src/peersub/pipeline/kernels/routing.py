"""Kernels of the route step: plans made from subscriptions, rows matched, events routed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from peersub.filters.filter import Filter
from peersub.overlays.bulk import Receipts, Sets, Subscriptions, bulk_overlay, publishers_of
from peersub.pipeline.kernels.blocks import unpacked
from peersub.pipeline.kernels.plan_files import open_plan
from peersub.pipeline.schemas import INTERESTED_ROWS, RECEIPTS

__all__ = ["RECEIPTS_PER_BATCH_MAX", "dealt", "match_rows", "route_batches"]

RECEIPTS_PER_BATCH_MAX: Final = 65_536
"""Receipts that are handed on at once."""


def dealt(batches: Iterable[pa.RecordBatch], nodes: tuple[str, ...]) -> Subscriptions:
    """The filters of subscriptions (`SUBSCRIPTIONS`), dealt to the nodes by their numbers."""
    columns = ("number", "subscription_id", "language", "text")
    table = pa.Table.from_batches(list(batches)).select(columns).sort_by("number")
    found: dict[str, dict[str, Filter]] = {node: {} for node in nodes}
    known: dict[tuple[str, str], Filter] = {}
    for number, name, language, text in zip(
        *(table[column].to_pylist() for column in columns), strict=True
    ):
        wanted = known.get((language, text))
        if wanted is None:
            wanted = Filter.xpath(text) if language == "xpath" else Filter(text)
            known[language, text] = wanted
        found[nodes[number % len(nodes)]][name] = wanted
    return found


def match_rows(
    batches: Iterable[pa.RecordBatch], folder: str, body_column: str
) -> Iterator[pa.RecordBatch]:
    """From blocks of events (`EVENTS`) to the rows of the plan that want each event."""
    matcher = open_plan(folder).matcher
    assert matcher is not None, "the plan has rows"
    for batch in batches:
        for names, data in zip(batch["names"], batch["table"], strict=True):
            found = matcher.match_batch(
                unpacked(data.as_buffer()), threads=1, body_column=body_column
            )
            yield _rows_by_event(names.values, found)


def _rows_by_event(names: pa.Array, found: pa.Table) -> pa.RecordBatch:
    events = found["event_row"].to_numpy()
    rows = found["subscription_id"].cast(pa.large_string()).cast(pa.int32()).to_numpy()
    order = np.argsort(events, kind="stable")
    starts = np.searchsorted(events[order], np.arange(len(names) + 1)).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(starts), pa.array(rows[order], pa.int32()))
    return pa.record_batch([names.cast(pa.string()), lists], schema=INTERESTED_ROWS.arrow)


def route_batches(
    batches: Iterable[pa.RecordBatch], folder: str, seed: int
) -> Iterator[pa.RecordBatch]:
    """From events with the nodes that want them (`WANTED`, or also rows, layers) to receipts."""
    plan = open_plan(folder).plan
    overlay = bulk_overlay(plan.overlay)
    for batch in batches:
        names = batch["event_id"]
        wanted = _sets(batch["wanted"])
        interested = _sets(batch["rows"]) if "rows" in batch.schema.names else wanted
        publishers = publishers_of(names.to_pylist(), seed, len(plan.names))
        for receipts in overlay.route(plan, publishers, interested, wanted):
            yield from _receipt_batches(names, receipts)


def _sets(lists: Any) -> Sets:
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    starts = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return Sets(starts, lists.flatten().to_numpy(zero_copy_only=False))


def _receipt_batches(names: pa.Array, receipts: Receipts) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(receipts), RECEIPTS_PER_BATCH_MAX):
        part = slice(start, start + RECEIPTS_PER_BATCH_MAX)
        yield pa.record_batch(
            [
                names.take(pa.array(receipts.events[part])),
                pa.array(receipts.nodes[part]),
                pa.array(receipts.senders[part]),
                pa.array(receipts.hops[part]),
                pa.array(receipts.messages[part]),
                pa.array(receipts.wanted[part]),
            ],
            schema=RECEIPTS.arrow,
        )
