"""DuckDB baselines: matching as a join, two ways, each a single query per batch of events.

- `CountingJoin`: the textbook query. One table of predicates per attribute; a range or hash
  join for each; count the hits per event and subscription; keep those with all of them.
- `AccessJoin`: the tuned query. Each subscription is listed under the cells of its rarest
  predicate, so a hash join on the cell brings few candidates; the other predicates are checked
  on each candidate against the event's values, held as one list. The join order is pinned:
  left alone, the optimizer builds the hash table on the events and copies their lists.

Both start from the registered Arrow table and end in an Arrow table. Tried and not faster: one
predicate table for all attributes with unpivoted events; a wide table with a column per bound
and a filtered product; fixed-size arrays instead of lists; the filter texts themselves as
boolean columns of one SELECT.
"""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from peersub.bench.pairs import Pairs
from peersub.bench.predicates import by_selectivity, intervals
from peersub.workloads import SubscriptionTable, Workload
from peersub.workloads.attributes import FLOAT_STEP
from peersub.workloads.subscriptions import offsets_of

_CELLS = 25


class _JoinEngine:
    """A connection with loaded tables and the one query that matches a batch."""

    query: str

    def __init__(self, threads: int) -> None:
        self._connection = duckdb.connect()
        self._connection.execute(f"SET threads = {threads}")
        self._connection.execute("SET preserve_insertion_order = false")

    def _load(self, name: str, columns: dict[str, Any]) -> None:
        self._connection.register("loading", pa.table(columns))
        self._connection.execute(f"CREATE TABLE {name} AS SELECT * FROM loading")
        self._connection.unregister("loading")

    def match(self, events: pa.Table) -> Pairs:
        """All matches of the events."""
        numbered = events.append_column("event", pa.array(np.arange(events.num_rows, dtype="i4")))
        self._connection.register("events", numbered)
        matched = self._connection.sql(self.query).to_arrow_table()
        return Pairs(matched["event"].to_numpy(), matched["subscription"].to_numpy())


class CountingJoin(_JoinEngine):
    """Join each attribute with its predicates, count hits per event and subscription."""

    def __init__(self, workload: Workload, threads: int = 1) -> None:
        super().__init__(threads)
        attributes, table = workload.attributes, workload.subscriptions
        exploded = intervals(table)
        joins = []
        for attribute, name in enumerate(attributes.names):
            here = np.flatnonzero(exploded.attribute == attribute)
            low, high = exploded.low[here], exploded.high[here]
            if attribute >= attributes.numeric_count:
                values = pa.array(attributes.categorical_values(attribute), pa.string())
                bounds: dict[str, Any] = {"value": values.take(pa.array(low))}
                condition = f"events.{name} = value"
            else:
                step = FLOAT_STEP if attributes.is_float(attribute) else 1
                bounds = {"low": low * step, "high": high * step}
                condition = f"events.{name} BETWEEN low AND high"
            self._load(f"on_{name}", bounds | {"subscription": exploded.owner[here]})
            joins.append(f"SELECT event, subscription FROM events JOIN on_{name} ON {condition}")
        self._load(
            "needs",
            {
                "subscription": np.arange(table.count, dtype=np.int32),
                "predicates": np.diff(table.offsets),
            },
        )
        union = "\n  UNION ALL ".join(joins)
        self.query = (
            "SELECT event, subscription FROM (\n"
            "  SELECT event, subscription, count(*) AS hits FROM (\n  "
            f"{union}\n  ) GROUP BY event, subscription\n"
            ") JOIN needs USING (subscription) WHERE hits = predicates"
        )


class AccessJoin(_JoinEngine):
    """Join on the cell of the rarest predicate, then check the others on each candidate."""

    def __init__(self, workload: Workload, threads: int = 1, cells: int = _CELLS) -> None:
        super().__init__(threads)
        self._connection.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
        attributes, table = workload.attributes, workload.subscriptions
        self._cell_width = max(int(attributes.cardinalities.max(initial=1)) // cells, 1)
        self._key_stride = int(attributes.cardinalities.max(initial=1)) + 1
        self._residual_count = max(int(np.diff(table.offsets).max(initial=1)) - 1, 0)
        self._load("listed", self._listed(workload))
        categorical = range(attributes.numeric_count, attributes.count)
        for attribute in categorical:
            values = attributes.categorical_values(attribute)
            self._load(
                f"codes_{attributes.names[attribute]}",
                {
                    "value": pa.array(values, pa.string()),
                    "code": np.arange(len(values), dtype="i4"),
                },
            )
        self.query = self._query(workload)

    def _listed(self, workload: Workload) -> dict[str, Any]:
        """The listing: a row per subscription and cell of its rarest predicate."""
        attributes, table = workload.attributes, workload.subscriptions
        _, position = by_selectivity(table)
        exploded = intervals(table)
        access = np.flatnonzero(position[exploded.predicate] == 0)
        attribute = exploded.attribute[access].astype(np.int64)
        low, high = exploded.low[access], exploded.high[access]
        is_numeric = attribute < attributes.numeric_count
        first = np.where(is_numeric, low // self._cell_width, low).astype(np.int64)
        last = np.where(is_numeric, high // self._cell_width, low)
        offsets = offsets_of(last - first + 1)
        row = np.repeat(np.arange(len(access)), last - first + 1)
        cell = np.arange(offsets[-1]) + (first - offsets[:-1])[row]
        owner = exploded.owner[access][row]
        columns: dict[str, Any] = {
            "key": attribute[row] * self._key_stride + cell,
            "low": low[row],
            "high": high[row],
            "subscription": owner,
        }
        for number in range(1, self._residual_count + 1):
            columns |= _residual_columns(table, position, number, attributes.count, owner)
        return columns

    def _query(self, workload: Workload) -> str:
        attributes = workload.attributes
        values, lookups = [], []
        for attribute, name in enumerate(attributes.names):
            if attribute >= attributes.numeric_count:
                lookups.append(f"LEFT JOIN codes_{name} ON events.{name} = codes_{name}.value")
                values.append(f"codes_{name}.code")
            elif attributes.is_float(attribute):
                values.append(f"({name} / {FLOAT_STEP})::INT")
            else:
                values.append(f"{name}::INT")
        checks = [
            f"v[at{number}] BETWEEN low{number} AND high{number}"
            for number in range(1, self._residual_count + 1)
        ] + [
            f"(any{number} IS NULL OR list_contains(any{number}, v[at{number}]))"
            for number in range(1, self._residual_count + 1)
        ]
        joined, listed = "\n    ".join(lookups), ", ".join(values)
        return (
            "WITH encoded AS MATERIALIZED (\n"
            f"  SELECT event, [{listed}, 0] AS v\n  FROM events {joined}\n"
            "), carried AS (\n"
            "  SELECT event, v, v[attribute + 1] AS x,\n"
            f"    attribute::BIGINT * {self._key_stride} + CASE WHEN attribute < "
            f"{attributes.numeric_count} THEN x // {self._cell_width} ELSE x END AS key\n"
            f"  FROM encoded, (SELECT unnest(range({attributes.count})) AS attribute)\n"
            "  WHERE x IS NOT NULL\n"
            ")\n"
            "SELECT event, subscription FROM carried JOIN listed\n"
            "  ON carried.key = listed.key AND x BETWEEN low AND high\n"
            f"WHERE {' AND '.join(checks) or 'true'}"
        )


def _residual_columns(
    table: SubscriptionTable,
    position: npt.NDArray[np.int64],
    number: int,
    constant: int,
    owner: npt.NDArray[np.int32],
) -> dict[str, Any]:
    """The `number`-th further predicate of each listed subscription.

    A subscription without one checks that the constant 0 at the end of the values is 0.
    """
    predicates = np.flatnonzero(position == number)
    holders = table.owners()[predicates]
    at = np.full(table.count, constant + 1, np.int32)
    at[holders] = table.attribute[predicates] + 1
    low, high = np.zeros(table.count, np.int32), np.zeros(table.count, np.int32)
    low[holders], high[holders] = table.low[predicates], table.high[predicates]
    numbers = np.full(table.count, -1, np.int32)
    numbers[holders] = table.value_list[predicates]
    lists = pa.ListArray.from_arrays(
        pa.array(table.list_offsets.astype(np.int32)), pa.array(table.list_values)
    )
    chosen = numbers[owner]
    return {
        f"at{number}": at[owner],
        f"low{number}": low[owner],
        f"high{number}": high[owner],
        f"any{number}": lists.take(pa.array(chosen, mask=chosen < 0)),
    }
