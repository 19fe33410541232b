"""Subscriptions and events as the datasets that the match steps read, and oracles for them."""

import pyarrow as pa

from peersub.filters.filter import Filter
from peersub.pipeline.kernels.blocks import packed
from peersub.pipeline.schemas import EVENTS, SUBSCRIPTIONS
from peersub.workloads import WorkloadSettings, generate

WORKLOAD = WorkloadSettings(
    subscriptions=600,
    events=300,
    share_matched=0.02,
    numeric_attributes=6,
    float_attributes=2,
    categorical_cardinalities=(3, 8, 20),
    attributes_per_event_min=4,
    attributes_per_event_max=8,
    duplicates_share=0.3,
    opaque_share=0.1,
)


def subscription_table(rows):
    """The dataset of (id, filter) pairs: a text, or a `Filter` of either language."""
    filters = [wanted if isinstance(wanted, Filter) else Filter(wanted) for _, wanted in rows]
    return pa.table(
        {
            "number": pa.array(range(len(rows)), pa.int64()),
            "subscription_id": pa.array([name for name, _ in rows], pa.string()),
            "language": pa.array([wanted.language for wanted in filters], pa.string()),
            "text": pa.array([wanted.text for wanted in filters], pa.string()),
            "digest": pa.array([wanted.digest for wanted in filters], pa.binary()),
        },
        SUBSCRIPTIONS.arrow,
    )


def block_table(blocks):
    """The dataset of (names, Arrow table) pairs."""
    return pa.Table.from_pylist(
        [
            {"block": n, "rows": table.num_rows, "names": names, "table": packed(table)}
            for n, (names, table) in enumerate(blocks)
        ],
        EVENTS.arrow,
    )


def generated(settings=WORKLOAD, block_rows=64):
    """A workload: its (id, text) pairs, the names of its events, its blocks."""
    workload = generate(settings)
    texts = workload.texts()
    rows = list(zip(texts["id"].to_pylist(), texts["filter"].to_pylist(), strict=True))
    names = [f"e{number}" for number in range(workload.events.num_rows)]
    blocks = [
        (names[start : start + block_rows], workload.events.slice(start, block_rows))
        for start in range(0, workload.events.num_rows, block_rows)
    ]
    return rows, workload.events, blocks


def by_brute_force(rows, blocks):
    """All pairs, each filter asked about each event."""
    filters = [(name, w if isinstance(w, Filter) else Filter(w)) for name, w in rows]
    return sorted(
        (event, name)
        for names, table in blocks
        for event, attributes in zip(names, table.to_pylist(), strict=True)
        for name, wanted in filters
        if wanted.matches(
            attributes.get("body") or {} if wanted.language == "xpath" else attributes
        )
    )
