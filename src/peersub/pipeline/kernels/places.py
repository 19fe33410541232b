"""Kernels for overlays whose nodes hold places: what decides where an event goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from peersub.events.arrow import rows_of_table
from peersub.overlays.bulk import PlaceSources
from peersub.overlays.reach.attributes import AttributeMap
from peersub.overlays.reach.bulk import word_of, word_sources
from peersub.overlays.reach.settings import ReachSettings
from peersub.pipeline.kernels.blocks import unpacked
from peersub.pipeline.kernels.plan_files import open_plan
from peersub.pipeline.kernels.routing import match_rows
from peersub.pipeline.schemas import INTERESTED_ROWS

__all__ = ["event_words"]


def event_words(
    batches: Iterable[pa.RecordBatch],
    folder: str,
    body_column: str,
    seed: int,
    settings: ReachSettings,
) -> Iterator[pa.RecordBatch]:
    """From blocks of events (`EVENTS`) to the filters that match each, and the bits of its word."""
    sources = open_plan(folder).plan.sources
    assert isinstance(sources, PlaceSources), "the plan has places"
    filters = len(sources.filters)
    bits = AttributeMap(settings.identifier_bits, settings.attributes)
    for batch in batches:
        for row in range(batch.num_rows):
            block = batch.slice(row, 1)
            (matched,) = match_rows([block], folder, body_column)
            events = rows_of_table(unpacked(block["table"][0].as_buffer()))
            found = [
                [
                    *matching,
                    *word_sources(
                        word_of(name, bits.event_bits(attributes), seed, settings), filters
                    ),
                ]
                for name, attributes, matching in zip(
                    matched["event_id"].to_pylist(),
                    events,
                    matched["rows"].to_pylist(),
                    strict=True,
                )
            ]
            lists = pa.array(found, pa.list_(pa.int32()))
            yield pa.record_batch([matched["event_id"], lists], schema=INTERESTED_ROWS.arrow)
