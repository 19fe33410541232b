"""The datasets of the pipeline: what each is, and its columns. All of them are folders of Parquet.

The Arrow schema is the definition; Spark's is derived from it. A reader that knows this module
knows every file that the pipeline writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

__all__ = [
    "CLASSES",
    "COVERINGS",
    "DELIVERIES",
    "EVENTS",
    "FINDINGS",
    "OVERLAY_DELIVERIES",
    "PLACEMENT",
    "QUARANTINE",
    "RECEIPTS",
    "SIMILAR",
    "SUBSCRIPTIONS",
    "DatasetSchema",
]


@dataclass(frozen=True, slots=True)
class DatasetSchema:
    """The name of a dataset and its columns."""

    name: str
    arrow: pa.Schema

    @property
    def spark(self) -> Any:
        """The columns as Spark knows them."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(self.arrow)


def _dataset(name: str, **columns: pa.DataType) -> DatasetSchema:
    return DatasetSchema(name, pa.schema(list(columns.items())))


EVENTS: Final = _dataset(
    "events",
    block=pa.int64(),
    rows=pa.int32(),
    names=pa.list_(pa.string()),
    table=pa.binary(),
)
"""A row is a block of events (`kernels.blocks`): `block` numbers grow in the order of the input,
`names` are the event ids of the block's rows, `table` is the packed Arrow table of attributes."""

SUBSCRIPTIONS: Final = _dataset(
    "subscriptions",
    number=pa.int64(),
    subscription_id=pa.string(),
    language=pa.string(),
    text=pa.string(),
    digest=pa.binary(),
)
"""A row is a usable subscription. `number` is its place among all rows of the input, from 0;
`language` is sql or xpath; `digest` is that of the filter's normal form: equal filters, equal
digests."""

QUARANTINE: Final = _dataset(
    "quarantine",
    dataset=pa.string(),
    file=pa.string(),
    place=pa.string(),
    reason=pa.string(),
    original=pa.string(),
    rows=pa.int64(),
)
"""A row is one row of the input that cannot be used, or a file or part of one that cannot be read.
`dataset` is events or subscriptions, `place` is `line 7`, `row 7`, or empty for a whole file;
`rows` is how many rows of the input it stands for, null where that cannot be known."""

DELIVERIES: Final = _dataset("deliveries", event_id=pa.string(), subscription_id=pa.string())
"""A row says that this subscription wants this event; each pair is there once."""

CLASSES: Final = _dataset(
    "classes",
    digest=pa.binary(),
    language=pa.string(),
    text=pa.string(),
    subscription_id=pa.string(),
    members=pa.int64(),
    sampled=pa.int32(),
)
"""A row is a distinct filter: its canonical text, its first subscription, how many have it, and how
many events of the sample it matches."""

COVERINGS: Final = _dataset(
    "coverings", digest=pa.binary(), coverer=pa.binary(), rank=pa.int32(), coverers=pa.int32()
)
"""The filter `coverer` is proven to cover the filter `digest`, and is not equal to it. Rank 0 is
the most selective; `coverers` is how many were found, of which only the first are listed."""

SIMILAR: Final = _dataset(
    "similar",
    digest=pa.binary(),
    neighbour=pa.binary(),
    rank=pa.int32(),
    similarity=pa.float64(),
)
"""The `rank`-nearest neighbour of a filter by f_s on the sample, 0 first."""

PLACEMENT: Final = _dataset("placement", subscription_id=pa.string(), node=pa.int32())
"""The node that hosts each subscription, by its number in the plans."""

RECEIPTS: Final = _dataset(
    "receipts",
    event_id=pa.string(),
    node=pa.int32(),
    sender=pa.int32(),
    hops=pa.int32(),
    messages=pa.int32(),
    wanted=pa.bool_(),
)
"""A row says that an event came to a node: first from `sender` (-1 for its publisher), after `hops`
links, in `messages` messages in all; `wanted` if a subscription there matches it, else the node is
a relay."""

OVERLAY_DELIVERIES: Final = _dataset(
    "overlay_deliveries",
    event_id=pa.string(),
    subscription_id=pa.string(),
    node=pa.string(),
    hops=pa.int32(),
)
"""A row is an event handed to a subscription by an overlay, simulated, planned or live."""

FINDINGS: Final = _dataset(
    "findings",
    finding=pa.string(),
    event_id=pa.string(),
    subscription_id=pa.string(),
    node=pa.string(),
    copies=pa.int64(),
    cause=pa.string(),
)
"""A row is a difference between what was delivered and what should have been: `finding` is missed,
spurious or duplicate; `cause` says why where the trace shows it."""
