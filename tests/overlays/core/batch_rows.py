"""Batches for tests, from rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from peersub.events.arrow import table_of_rows
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.publication import Delivery


def batch_of(
    rows: Sequence[Mapping[str, Any]],
    name: str = "b",
    bodies: Sequence[bytes | None] | None = None,
    delivery: Delivery = Delivery.BEST_EFFORT,
) -> Batch:
    """A batch of these events."""
    column = None if bodies is None else pa.array(bodies, pa.binary())
    return Batch.of(name, table_of_rows(rows), column, delivery)


def sent(batch: Batch) -> Batch:
    """The batch as who receives it has it."""
    return Batch(batch.id, batch.numbers, batch.total, delivery=batch.delivery, packed=batch.packed)
