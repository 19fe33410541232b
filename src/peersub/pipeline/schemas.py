"""The datasets of the pipeline: what each is, and its columns. All of them are folders of Parquet.

The Arrow schema is the definition; Spark's is derived from it. A reader that knows this module
knows every file that the pipeline writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

__all__ = [
    "BANDS",
    "CLASSES",
    "COVERINGS",
    "DELIVERIES",
    "EVENTS",
    "FINDINGS",
    "INGEST_COUNTS",
    "INTERESTED_ROWS",
    "JUDGEMENTS",
    "LAYER_MEMBERS",
    "MEMBERS",
    "MEMBERSHIP",
    "OUTCOMES",
    "OVERLAY_DELIVERIES",
    "PARSED",
    "PLACEMENT",
    "PLANNED",
    "PLAN_CLASSES",
    "PLAN_EDGES",
    "PLAN_FILTERS",
    "PLAN_HOMES",
    "PLAN_IDENTIFIERS",
    "PLAN_LAYERS",
    "PLAN_LINKS",
    "PLAN_MEMBERS",
    "PLAN_NODES",
    "PLAN_PLACES",
    "PLAN_ROWS",
    "PLAN_SEATS",
    "QUARANTINE",
    "RECEIPTS",
    "REPEATED_EVENTS",
    "REPEATED_SUBSCRIPTIONS",
    "ROUTED",
    "SHARDS",
    "SAMPLE",
    "SAMPLED",
    "SIMILAR",
    "SLICES",
    "STAGED_EVENTS",
    "STAGED_SUBSCRIPTIONS",
    "SUBSCRIPTIONS",
    "TRACE_FACTS",
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


def _dataset(name: str, /, **columns: pa.DataType) -> DatasetSchema:
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

PARSED: Final = _dataset(
    "parsed",
    shard=pa.int32(),
    number=pa.int64(),
    subscription_ids=pa.list_(pa.string()),
    columns=pa.binary(),
    pattern_ids=pa.list_(pa.string()),
    patterns=pa.list_(pa.string()),
)
"""A row is a chunk of subscriptions for one shard of the index: the SQL filters as arrays
(`kernels.indexing`) with their ids, and the XPath patterns as texts with theirs. `number` is that
of its first subscription."""

SHARDS: Final = _dataset(
    "shards",
    shard=pa.int32(),
    subscriptions=pa.int64(),
    patterns=pa.int64(),
    bytes=pa.int64(),
    seconds=pa.float64(),
)
"""A row is a shard of the index that was built: how many subscriptions it holds, how many of them
are XPath patterns, its bytes on disk, and the seconds that it took to build."""

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

INGEST_COUNTS: Final = _dataset(
    "ingest_counts",
    file=pa.string(),
    rows_read=pa.int64(),
    rows_kept=pa.int64(),
    rows_quarantined=pa.int64(),
    unreadable=pa.int64(),
    remark=pa.string(),
)
"""A row is a file of the input, or its folder of XML documents. The rows that could be told apart
are kept or in quarantine; `unreadable` counts the parts that nobody can count rows in."""

SLICES: Final = _dataset(
    "slices",
    number=pa.int64(),
    root=pa.string(),
    files=pa.list_(pa.string()),
    format=pa.string(),
    whole=pa.bool_(),
    start=pa.int64(),
    end=pa.int64(),
    first=pa.int64(),
    lines_are_rows=pa.bool_(),
    problem=pa.string(),
)
"""A row is a part of the input that one worker reads (`kernels.reading.Slice`)."""

# What rows of both staging datasets have: what they are, where they come from, why they are bad.
_STAGED: Final[dict[str, pa.DataType]] = {
    "slice": pa.int64(),
    "sequence": pa.int64(),
    "kind": pa.string(),
    "file": pa.string(),
    "unit": pa.string(),
    "position": pa.int64(),
    "rows": pa.int64(),
    "lines": pa.int64(),
    "reason": pa.string(),
    "original": pa.string(),
    "remark": pa.string(),
}

STAGED_EVENTS: Final = _dataset(
    "staged_events",
    **_STAGED,
    names=pa.list_(pa.string()),
    given=pa.list_(pa.bool_()),
    positions=pa.list_(pa.int64()),
    table=pa.binary(),
)
"""What workers made of the event files, each read once. A row is, by its `kind`, a *block* of
events, a *bad* row or part, or the *end* of a slice. `unit` and `position` are its place, counted
within the slice: `lines` of the ends of earlier slices of the file are still to be added. `given`
tells names that came from an `id` from names by content, which `#k` may still be added to."""

REPEATED_EVENTS: Final = _dataset(
    "repeated_events",
    slice=pa.int64(),
    sequence=pa.int64(),
    row=pa.int32(),
    name=pa.string(),
    place=pa.string(),
    first_file=pa.string(),
    first_place=pa.string(),
)
"""A row of a staged block that has its name not for itself alone: the name that it gets or, if
`first_file` is not null, the event that has the name already. Mostly empty."""

STAGED_SUBSCRIPTIONS: Final = _dataset(
    "staged_subscriptions",
    **_STAGED,
    subscription_id=pa.string(),
    language=pa.string(),
    text=pa.string(),
    digest=pa.binary(),
)
"""What workers made of the subscription files. A row is, by its `kind`, a *row* with a
subscription, a *bad* row or part, or the *end* of a slice; `sequence` is its place among the rows
of its slice. A row whose filter does not parse has a `reason` and no `digest`."""

REPEATED_SUBSCRIPTIONS: Final = _dataset(
    "repeated_subscriptions",
    slice=pa.int64(),
    sequence=pa.int64(),
    first_file=pa.string(),
    first_place=pa.string(),
)
"""A staged subscription whose id an earlier one has, and where that one is. Mostly empty."""

DELIVERIES: Final = _dataset("deliveries", event_id=pa.string(), subscription_id=pa.string())
"""A row says that this subscription wants this event; each pair is there once."""

SAMPLE: Final = _dataset(
    "sample",
    block=pa.int64(),
    places=pa.list_(pa.int32()),
    names=pa.list_(pa.string()),
    table=pa.binary(),
)
"""The events by which filters are compared. A row holds those that were drawn from one block;
`places` numbers them among all that were drawn, from 0."""

SAMPLED: Final = _dataset(
    "sampled", subscription_id=pa.string(), sampled=pa.int32(), profile=pa.binary()
)
"""What a subscription matches of the sample: how many events, and which. Bit i of `profile`, the
lowest bit of each byte first, stands for the i-th event. Who matches none has no row."""

CLASSES: Final = _dataset(
    "classes",
    digest=pa.binary(),
    language=pa.string(),
    text=pa.string(),
    subscription_id=pa.string(),
    members=pa.int64(),
    sampled=pa.int32(),
    profile=pa.binary(),
)
"""A row is a distinct filter: its first subscription and what that wrote, how many have it, how
many events of the sample it matches, and which (see `sampled`; null if none)."""

BANDS: Final = _dataset(
    "bands",
    band=pa.int32(),
    folder=pa.string(),
    rows=pa.int32(),
    sampled_min=pa.int32(),
    sampled_max=pa.int32(),
    demand=pa.string(),
)
"""A row is a folder with the compiled index of some thousand classes of similar selectivity, which
all demand one attribute, or none if `demand` is empty."""

COVERINGS: Final = _dataset(
    "coverings", digest=pa.binary(), coverer=pa.binary(), rank=pa.int32(), coverers=pa.int32()
)
"""The filter `coverer` is proven to cover the filter `digest`, and is not equal to it; two filters
that are equivalent but not equal cover each other. Rank 0 is the most selective, by what it matches
of the sample; `coverers` is how many were found before the search ended, of which only the first
are listed."""

SIMILAR: Final = _dataset(
    "similar",
    digest=pa.binary(),
    neighbour=pa.binary(),
    rank=pa.int32(),
    similarity=pa.float64(),
)
"""The `rank`-nearest neighbour of a filter by f_s on the sample, 0 first. Filters that match no
event of the sample have none."""

PLACEMENT: Final = _dataset("placement", subscription_id=pa.string(), node=pa.int32())
"""The node that hosts each subscription, by its number in the plans."""

MEMBERS: Final = _dataset(
    "members", member=pa.int32(), node=pa.int32(), place=pa.int32(), digest=pa.binary()
)
"""Who takes part where nodes host a member per distinct filter, numbered in the order of the names
of their nodes and of their places there, from 0: that of the first subscription with the filter."""

MEMBERSHIP: Final = _dataset("membership", subscription_id=pa.string(), member=pa.int32())
"""The member that each subscription belongs to."""

PLAN_NODES: Final = _dataset(
    "nodes", node=pa.int32(), name=pa.string(), key=pa.int64(), place=pa.int32()
)
"""The nodes of a plan by their numbers. `key` is null in overlays without keys; `place` is where
the node stands among the sources of edges, null where sources are not nodes."""

PLAN_EDGES: Final = _dataset(
    "edges",
    edge=pa.int32(),
    origin=pa.int32(),
    target=pa.int32(),
    label=pa.int32(),
    arc_start=pa.int64(),
    arc_length=pa.int64(),
    offset=pa.int32(),
    span=pa.int32(),
    run_start=pa.int32(),
    run_length=pa.int32(),
)
"""The directed edges of a plan, those of an origin together. An edge is open for an event if one of
the `run_length` nodes from the place `run_start` on (a circle) wants it; where these are null, if a
row of the edge does, and in a flood always. `arc_start` and `arc_length` are the keys that the edge
is responsible for, `offset` and `span` the same in nodes after the origin."""

PLAN_FILTERS: Final = _dataset("filters", row=pa.int32(), filter=pa.binary())
"""The distinct filters of all tables of a plan whose sources are rows, in their wire form; those of
all subscriptions, where nodes hold places."""

PLAN_ROWS: Final = _dataset("rows", row=pa.int32(), edge=pa.int32(), nearest=pa.int32())
"""The filter `row` is in the table of this edge, for parts of more than `nearest` nodes."""

PLAN_MEMBERS: Final = _dataset(
    "members",
    **{"member": pa.int32(), "node": pa.int32(), "slot": pa.int32(), "class": pa.int32()},
    place=pa.uint64(),
    sampled=pa.int32(),
)
"""The members of a plan whose nodes host members. In a containment tree each has a `class`; in a
similarity graph a `place`, the draw that decides between equals, and what it matches of the sample;
else these are null."""

PLAN_CLASSES: Final = _dataset(
    "classes", **{"class": pa.int32(), "parent": pa.int32(), "rank": pa.int64()}
)
"""The classes of a containment tree; `parent` is -1 at the top level, `rank` the place of the
class's first filter in the order of digests."""

PLAN_LINKS: Final = _dataset("links", origin=pa.int32(), target=pa.int32(), near=pa.bool_())
"""The links between members of a similarity graph, each from both ends; random if not `near`."""

PLAN_LAYERS: Final = _dataset("layers", layer=pa.int32(), name=pa.string())
"""The layers of a plan whose nodes are members of layers, in the order of their names."""

PLAN_SEATS: Final = _dataset("seats", seat=pa.int32(), layer=pa.int32(), node=pa.int32())
"""The members of layers. Edges of such a plan lead between seats; the label of one is 1 if the seat
that it leaves holds its token."""

PLAN_PLACES: Final = _dataset("places", node=pa.int32(), length=pa.int32(), bits=pa.int64())
"""The place that each node of a plan holds: how many bits it has, and which are set."""

PLAN_IDENTIFIERS: Final = _dataset("identifiers", row=pa.int32(), identifier=pa.int64())
"""The identifiers under which the filter `row` is kept at their hosts."""

PLAN_HOMES: Final = _dataset("homes", row=pa.int32(), node=pa.int32())
"""The nodes with a subscription to the filter `row`."""

LAYER_MEMBERS: Final = _dataset("layer_members", layer=pa.string(), node=pa.int32())
"""A row says that a node is a member of a layer."""

PLANNED: Final = _dataset(
    "planned",
    overlay=pa.string(),
    nodes=pa.int64(),
    edges=pa.int64(),
    filters=pa.int64(),
    rows=pa.int64(),
    bytes=pa.int64(),
)
"""A row says how large a plan is, and the bytes of its files."""

INTERESTED_ROWS: Final = _dataset(
    "interested_rows", event_id=pa.string(), rows=pa.list_(pa.int32())
)
"""Per event the rows of a plan that want it, or the layers that it is published on."""

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

OUTCOMES: Final = _dataset(
    "outcomes",
    event_id=pa.string(),
    members=pa.int64(),
    matching=pa.int64(),
    receivers=pa.int64(),
    matching_receivers=pa.int64(),
    messages=pa.int64(),
    duplicates=pa.int64(),
    hops=pa.int64(),
    hops_max=pa.int64(),
    false_positive_ratio=pa.float64(),
    false_negative_ratio=pa.float64(),
    precision=pa.float64(),
)
"""What became of an event among members (`overlays.semantic.metrics` defines each column); ratios
are null where they are not defined."""

ROUTED: Final = _dataset(
    "routed",
    **{field.name: field.type for field in OUTCOMES.arrow},
    nodes=pa.list_(pa.int32()),
    senders=pa.list_(pa.int32()),
    node_hops=pa.list_(pa.int32()),
    node_messages=pa.list_(pa.int32()),
    wanted=pa.list_(pa.bool_()),
    reached=pa.list_(pa.int32()),
    reached_hops=pa.list_(pa.int32()),
)
"""All about the way of an event among members: `outcomes`; the columns of `receipts` as lists; and
the members that matched and received it, with the hops to each."""

OVERLAY_DELIVERIES: Final = _dataset(
    "overlay_deliveries",
    event_id=pa.string(),
    subscription_id=pa.string(),
    node=pa.string(),
    hops=pa.int32(),
)
"""A row is an event handed to a subscription by an overlay, simulated, planned or live."""

TRACE_FACTS: Final = _dataset(
    "trace_facts",
    fact=pa.string(),
    moment=pa.struct(
        [("ms", pa.int64()), ("block", pa.int64()), ("line", pa.int64()), ("place", pa.int32())]
    ),
    node=pa.string(),
    peer=pa.string(),
    event_id=pa.string(),
    subscription_id=pa.string(),
    hops=pa.int32(),
    flag=pa.bool_(),
    text=pa.string(),
    groups=pa.list_(pa.list_(pa.string())),
)
"""A row is a fact of a trace (`trace_reading` says which there are, and what their columns mean).
Moments compare as things happened: by time, then by the place in the file and in the line."""

JUDGEMENTS: Final = _dataset(
    "judgements",
    event_id=pa.string(),
    subscription_id=pa.string(),
    node=pa.string(),
    hops=pa.int32(),
    expected=pa.bool_(),
    delivered=pa.bool_(),
    missed=pa.bool_(),
    excused=pa.bool_(),
    late=pa.bool_(),
    duplicates=pa.int64(),
    repeated=pa.int64(),
    spurious=pa.int64(),
    spurious_node=pa.string(),
    first_ms=pa.int64(),
    last_ms=pa.int64(),
    excuse=pa.string(),
    fault=pa.string(),
)
"""A row is an event and a subscription of which one should have come, or did come, to the other;
with a trace, a row for each home of a subscription that moved (`audit`). `duplicates`,
`repeated` and `spurious` count copies; `node` and `hops` are those of the first one that was in
order; `first_ms` and `last_ms` say when the first and the last such copy came, if a trace tells.
`excuse` says why nobody promised it, `fault` what is wrong with spurious copies."""

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
spurious, duplicate, or excused (wanted, not delivered, and not promised: only a trace shows it).
`copies` is how many came too many, null for what did not come; `cause` says why where the trace
shows it."""
