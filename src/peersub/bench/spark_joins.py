"""What a skilled Spark user would write to match: joins of typed events with parsed bounds.

Everything that can be done beforehand is done beforehand and not timed: filters are parsed, strings
are numbered, the predicates of a filter are ordered from rarest to commonest. Absent attributes are
-1 and unconstrained ones run from -1 to the greatest number, so that no test needs to ask for null.
All of it runs in Spark's generated code, the subscriptions broadcast.

- `columns`: two columns per attribute, `event.n0 BETWEEN low0 AND high0 AND …`.
- `slots`: the predicates in order, `codes[attribute1] BETWEEN low1 AND high1 AND …`: most pairs
  fail the first test.
- `ranges`: a join of the events' values with the filters' rarest predicates on attribute and range,
  by bins of the values, before the other tests. No longer all pairs: an index by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from peersub.bench.predicates import by_selectivity, lists_of
from peersub.workloads import Workload, subscription_ids
from peersub.workloads.attributes import CodeArray

__all__ = ["JOINS", "Join", "register_views", "write_inputs"]

_MOST: Final = 2**31 - 1
_BIN_CODES: Final = 1_000
"""Values of a bin; a range of one hundredth of the usual domain lies in one bin or two."""


@dataclass(frozen=True, slots=True)
class Join:
    """A form of the join: its name, what it is, and whether it looks at all pairs."""

    name: str
    title: str
    is_cross_join: bool


JOINS: Final = (
    Join("columns", "cross join, two columns per attribute", True),
    Join("slots", "cross join, rarest predicate first", True),
    Join("ranges", "range join on the rarest predicate, in bins", False),
)


def write_inputs(workload: Workload, subscriptions: int, folder: Path) -> None:
    """Write the events and the first subscriptions as the joins read them."""
    names = [f"e{number}" for number in range(len(workload.event_codes))]
    codes = workload.event_codes
    attributes = range(codes.shape[1])
    flat = pa.array(np.ascontiguousarray(codes).reshape(-1))
    events = {"event_id": pa.array(names)}
    events |= {f"v{a}": pa.array(np.ascontiguousarray(codes[:, a])) for a in attributes}
    events["codes"] = pa.FixedSizeListArray.from_arrays(flat, codes.shape[1]).cast(
        pa.list_(pa.int32())
    )
    pq.write_table(pa.table(events), folder / "join-events.parquet")
    table = _subscription_columns(workload, subscriptions, codes.shape[1])
    pq.write_table(pa.table(table), folder / "join-subscriptions.parquet")


def _subscription_columns(workload: Workload, count: int, attributes: int) -> dict[str, pa.Array]:
    table = workload.subscriptions.select(np.arange(count))
    order, position = by_selectivity(table)
    owner = table.owners()
    slots = int(np.diff(table.offsets).max(initial=0))
    attribute = np.zeros((slots, count), np.int32)
    low, high = np.full((slots, count), -1, np.int32), np.full((slots, count), _MOST, np.int32)
    attribute[position, owner] = table.attribute
    low[position, owner], high[position, owner] = table.low, table.high
    columns = {"subscription_id": subscription_ids(0, count)}
    for slot in range(slots):
        columns |= {
            f"attribute{slot}": pa.array(attribute[slot]),
            f"low{slot}": pa.array(low[slot]),
            f"high{slot}": pa.array(high[slot]),
            f"values{slot}": _values(table, order[position[order] == slot], owner, count),
        }
    for number in range(attributes):
        here = np.flatnonzero(table.attribute == number)
        lows, highs = np.full(count, -1, np.int32), np.full(count, _MOST, np.int32)
        lows[owner[here]], highs[owner[here]] = table.low[here], table.high[here]
        columns |= {f"low_v{number}": pa.array(lows), f"high_v{number}": pa.array(highs)}
    return columns


def _values(table: Any, predicates: CodeArray, owner: CodeArray, count: int) -> pa.Array:
    """Per subscription the IN list of its predicate among these; null where it has none."""
    listed = np.sort(predicates[table.value_list[predicates] >= 0])
    offsets, values = lists_of(table, listed)
    lengths = np.zeros(count, np.int64)
    lengths[owner[listed]] = np.diff(offsets)
    all_offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(
        pa.array(all_offsets), pa.array(values), mask=pa.array(lengths == 0)
    )


def register_views(session: Any, folder: Path, partitions: int) -> Mapping[str, str]:
    """Make the inputs known to Spark, held in memory; the query of each join by its name."""
    events = session.read.parquet(str(folder / "join-events.parquet")).repartition(partitions)
    subscriptions = session.read.parquet(str(folder / "join-subscriptions.parquet"))
    for name, frame in (("join_events", events), ("join_subscriptions", subscriptions)):
        held = frame.cache()
        held.count()
        held.createOrReplaceTempView(name)
    attributes = sum(name.startswith("v") for name in events.columns)
    slots = sum(name.startswith("attribute") for name in subscriptions.columns)
    lists = " AND ".join(
        f"(s.values{n} IS NULL OR array_contains(s.values{n}, get(e.codes, s.attribute{n})))"
        for n in range(slots)
    )
    columns = " AND ".join(f"e.v{n} BETWEEN s.low_v{n} AND s.high_v{n}" for n in range(attributes))
    in_order = [
        f"get(e.codes, s.attribute{n}) BETWEEN s.low{n} AND s.high{n}" for n in range(slots)
    ]
    pairs = "SELECT /*+ BROADCAST(s) */ e.event_id, s.subscription_id FROM"
    cross = f"{pairs} join_events e JOIN join_subscriptions s ON"
    bins = f"explode(sequence(s.low0 DIV {_BIN_CODES}, least(s.high0, 1000000) DIV {_BIN_CODES}))"
    values = (
        "SELECT event_id, codes, attribute, code FROM join_events "
        "LATERAL VIEW posexplode(codes) AS attribute, code WHERE code >= 0"
    )
    return {
        "columns": f"{cross} {columns} AND {lists}",
        "slots": f"{cross} {' AND '.join(in_order)} AND {lists}",
        "ranges": (
            f"{pairs} ({values}) e JOIN (SELECT s.*, {bins} AS bin FROM join_subscriptions s) s "
            f"ON e.attribute = s.attribute0 AND e.code DIV {_BIN_CODES} = s.bin "
            f"AND e.code BETWEEN s.low0 AND s.high0 "
            + "".join(f"AND {test} " for test in in_order[1:])
            + f"AND {lists}"
        ),
    }
