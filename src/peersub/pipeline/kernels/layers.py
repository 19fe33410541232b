"""Kernels for overlays of layers: who joins which, the plan of that, and where events go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from peersub.events.arrow import rows_of_table
from peersub.filters.filter import Filter
from peersub.overlays.bulk import LayerSources, Plan
from peersub.overlays.dag.bulk import plan_of_layers
from peersub.overlays.dag.settings import DagSettings
from peersub.overlays.dag.topics import layers_of, layers_of_event, topic_path
from peersub.pipeline.kernels.blocks import unpacked
from peersub.pipeline.kernels.plan_files import open_plan
from peersub.pipeline.schemas import INTERESTED_ROWS, LAYER_MEMBERS

__all__ = ["event_layers", "layer_members", "layers_plan"]


def layer_members(
    batches: Iterable[pa.RecordBatch], nodes: int, topic: str
) -> Iterator[pa.RecordBatch]:
    """From subscriptions, dealt to so many nodes, to the layers that these join; with repeats."""
    path = topic_path(topic)
    for batch in batches:
        # Equal filters of a batch are parsed once.
        known: dict[tuple[str, str], tuple[str, ...]] = {}
        found: dict[tuple[str, int], None] = {}
        columns = (batch[name].to_pylist() for name in ("number", "language", "text"))
        for number, language, text in zip(*columns, strict=True):
            layers = known.get((language, text))
            if layers is None:
                wanted = Filter.xpath(text) if language == "xpath" else Filter(text)
                layers = known[language, text] = layers_of(wanted, path)
            found.update(dict.fromkeys((layer, number % nodes) for layer in layers))
        yield pa.record_batch(
            [
                pa.array([layer for layer, _ in found], pa.string()),
                pa.array([node for _, node in found], pa.int32()),
            ],
            schema=LAYER_MEMBERS.arrow,
        )


def layers_plan(
    batches: Iterable[pa.RecordBatch], nodes: tuple[str, ...], seed: int, settings: DagSettings
) -> Plan:
    """The plan of these memberships (`LAYER_MEMBERS`), each there once, in any order."""
    table = pa.Table.from_batches(list(batches), LAYER_MEMBERS.arrow)
    encoded = table["layer"].combine_chunks().dictionary_encode()
    names = encoded.dictionary.to_pylist()
    codes, members = encoded.indices.to_numpy(), table["node"].to_numpy()
    # By name as Python compares it, whatever order the rows came in.
    by_name = sorted(range(len(names)), key=names.__getitem__)
    ranks = np.empty(len(names), np.int64)
    ranks[by_name] = np.arange(len(names))
    order = np.lexsort((members, ranks[codes]))
    sorted_members = members[order]
    starts = np.searchsorted(ranks[codes][order], np.arange(len(names) + 1))
    return plan_of_layers(
        nodes,
        seed,
        settings,
        (
            (names[code], sorted_members[starts[rank] : starts[rank + 1]].tolist())
            for rank, code in enumerate(by_name)
        ),
    )


def event_layers(
    batches: Iterable[pa.RecordBatch], folder: str, topic: str
) -> Iterator[pa.RecordBatch]:
    """From blocks of events (`EVENTS`) to the layers of the plan that each is published on."""
    sources = open_plan(folder).plan.sources
    assert isinstance(sources, LayerSources), "the plan has layers"
    numbers = {name: number for number, name in enumerate(sources.names)}
    path = topic_path(topic)
    for batch in batches:
        for names, data in zip(batch["names"], batch["table"], strict=True):
            rows = [
                [numbers[layer] for layer in layers_of_event(row, path) if layer in numbers]
                for row in _topic_rows(unpacked(data.as_buffer()), path[0])
            ]
            lists = pa.array(rows, pa.list_(pa.int32()))
            yield pa.record_batch(
                [names.values.cast(pa.string()), lists], schema=INTERESTED_ROWS.arrow
            )


def _topic_rows(table: pa.Table, attribute: str) -> Iterable[dict[str, Any]]:
    """The events of a block, with the attribute of the topic and no other."""
    if attribute not in table.column_names:
        return [{}] * table.num_rows
    return rows_of_table(table.select([attribute]))
