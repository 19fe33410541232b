"""What a skilled Spark user would write to match: joins of typed events with parsed bounds.

Everything that can be done beforehand is done beforehand and not timed: filters are parsed, strings
are numbered, the predicates of a filter are ordered from rarest to commonest. Absent attributes are
-1 and unconstrained ones run from -1 to the greatest number, so that no test needs to ask for null.
All of it runs in Spark's generated code, the subscriptions broadcast.

- `columns`: two columns per attribute, `event.n0 BETWEEN low0 AND high0 AND …`. Plain, and slow:
  Spark reads all columns of the condition for each pair before it tests the first.
- `packed`: the rarest predicate in columns, `codes[attribute] BETWEEN low AND high`, and the others
  in one array that is read for the few pairs that pass.
- `slim`: the same in two joins, so that the rows that all pairs read are short: the rarest
  predicate, and then the others of the filters that it leaves, by their number.
- `ranges`: a join of the events' values with the filters' rarest predicates on attribute and range,
  by bins of the values, before the other tests. No longer all pairs: an index by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from peersub.bench.predicates import by_selectivity, lists_of
from peersub.workloads import SubscriptionTable, Workload, subscription_ids
from peersub.workloads.attributes import CodeArray

__all__ = ["JOINS", "Join", "register_views", "write_inputs"]

_MOST: Final = 2**31 - 1
_BINS: Final = 100
"""Bins of an attribute's values, about: a rare range lies in few of them."""


@dataclass(frozen=True, slots=True)
class Join:
    """A form of the join: its name, what it is, and whether it looks at all pairs."""

    name: str
    title: str
    is_cross_join: bool


JOINS: Final = (
    Join("columns", "cross join, two columns per attribute", True),
    Join("packed", "cross join, rarest predicate first", True),
    Join("slim", "cross join, rarest predicate, then the others", True),
    Join("ranges", "range join on the rarest predicate, in bins", False),
)


def write_inputs(workload: Workload, subscriptions: int, folder: Path) -> None:
    """Write the events and the first subscriptions as the joins read them."""
    names = [f"e{number}" for number in range(len(workload.event_codes))]
    codes = workload.event_codes
    attributes = range(codes.shape[1])
    events = {"event_id": pa.array(names)}
    events |= {f"v{a}": pa.array(np.ascontiguousarray(codes[:, a])) for a in attributes}
    events["codes"] = _lists_of_ints(codes)
    pq.write_table(pa.table(events), folder / "join-events.parquet")
    table = _subscription_columns(workload, subscriptions, codes.shape[1])
    pq.write_table(pa.table(table), folder / "join-subscriptions.parquet")


def _subscription_columns(workload: Workload, count: int, attributes: int) -> dict[str, pa.Array]:
    table = workload.subscriptions.select(np.arange(count))
    _, position = by_selectivity(table)
    owner = table.owners()
    slots = max(2, int(np.diff(table.offsets).max(initial=0)))
    # Per slot: attribute, low, high. A slot that a filter does not use holds for every event.
    bounds = np.tile(np.array([0, -1, _MOST], np.int32), (count, slots, 1))
    bounds[owner, position] = np.stack((table.attribute, table.low, table.high), axis=1)
    columns = {
        "subscription_id": subscription_ids(0, count),
        "number": pa.array(np.arange(count, dtype=np.int32)),
        "attribute": pa.array(np.ascontiguousarray(bounds[:, 0, 0])),
        "low": pa.array(np.ascontiguousarray(bounds[:, 0, 1])),
        "high": pa.array(np.ascontiguousarray(bounds[:, 0, 2])),
        "others": _lists_of_ints(bounds[:, 1:].reshape(count, -1)),
        "sets": _sets(table),
    }
    for number in range(attributes):
        here = np.flatnonzero(table.attribute == number)
        lows, highs = np.full(count, -1, np.int32), np.full(count, _MOST, np.int32)
        lows[owner[here]], highs[owner[here]] = table.low[here], table.high[here]
        columns |= {f"low_v{number}": pa.array(lows), f"high_v{number}": pa.array(highs)}
    return columns


def _lists_of_ints(rows: CodeArray) -> pa.Array:
    """A list column with the rows of a matrix."""
    flat = pa.array(np.ascontiguousarray(rows).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, rows.shape[1]).cast(pa.list_(pa.int32()))


def _sets(table: SubscriptionTable) -> pa.Array:
    """Per subscription its IN lists, each with its attribute; null where it has none."""
    listed = np.flatnonzero(table.value_list >= 0)
    offsets, values = lists_of(table, listed)
    lists = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values))
    attribute = pa.array(table.attribute[listed].astype(np.int32))
    inner = pa.StructArray.from_arrays([attribute, lists], ["attribute", "values"])
    counts = np.bincount(table.owners()[listed], minlength=table.count)
    outer_offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(outer_offsets), inner, mask=pa.array(counts == 0))


def register_views(session: Any, folder: Path, partitions: int) -> Mapping[str, str]:
    """Make the inputs known to Spark, held in memory; the query of each join by its name."""
    events = session.read.parquet(str(folder / "join-events.parquet")).repartition(partitions)
    subscriptions = session.read.parquet(str(folder / "join-subscriptions.parquet"))
    for name, frame in (("join_events", events), ("join_subscriptions", subscriptions)):
        held = frame.cache()
        held.count()
        held.createOrReplaceTempView(name)
    attributes = sum(name.startswith("v") for name in events.columns)
    slots = len(subscriptions.first()["others"]) // 3
    sets = subscriptions.selectExpr("coalesce(max(size(sets)), 0) AS most").first()["most"]
    most = events.selectExpr(*(f"max(v{n})" for n in range(attributes))).first()
    return _queries([max(1, top // _BINS) for top in most], slots, sets)


def _queries(bin_codes: Sequence[int], slots: int, sets: int) -> Mapping[str, str]:
    """The queries, given the values in a bin of each attribute, and the most that filters have."""
    in_sets = " AND ".join(
        ["TRUE"]
        + [
            f"(get(s.sets, {n}) IS NULL OR array_contains("
            f"get(s.sets, {n}).values, get(e.codes, get(s.sets, {n}).attribute)))"
            for n in range(max(0, sets))
        ]
    )
    columns = " AND ".join(
        f"e.v{n} BETWEEN s.low_v{n} AND s.high_v{n}" for n in range(len(bin_codes))
    )
    others = " AND ".join(
        f"get(e.codes, s.others[{3 * n}]) BETWEEN s.others[{3 * n + 1}] AND s.others[{3 * n + 2}]"
        for n in range(slots)
    )
    pairs = "SELECT /*+ BROADCAST(s) */ e.event_id, s.subscription_id FROM"
    cross = f"{pairs} join_events e JOIN join_subscriptions s ON"
    rarest = "get(e.codes, s.attribute) BETWEEN s.low AND s.high"
    width = f"get(array({', '.join(map(str, bin_codes))}), attribute)"
    bins = f"explode(sequence(s.low DIV {width}, s.high DIV {width}))"
    values = (
        f"SELECT event_id, codes, attribute, code, code DIV {width} AS bin FROM join_events "
        "LATERAL VIEW posexplode(codes) AS attribute, code WHERE code >= 0"
    )
    return {
        "columns": f"{cross} {columns} AND {in_sets}",
        "packed": f"{cross} {rarest} AND {others} AND {in_sets}",
        "slim": (
            "SELECT /*+ BROADCAST(a), BROADCAST(s) */ e.event_id, s.subscription_id "
            "FROM join_events e "
            "JOIN (SELECT number, attribute, low, high FROM join_subscriptions) a "
            "ON get(e.codes, a.attribute) BETWEEN a.low AND a.high "
            f"JOIN join_subscriptions s ON s.number = a.number AND {others} AND {in_sets}"
        ),
        "ranges": (
            f"{pairs} ({values}) e JOIN (SELECT s.*, {bins} AS bin FROM join_subscriptions s) s "
            f"ON e.attribute = s.attribute AND e.bin = s.bin "
            f"AND e.code BETWEEN s.low AND s.high AND {others} AND {in_sets}"
        ),
    }
