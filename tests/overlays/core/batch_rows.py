"""Rows as one compares them: what a batch gives back, and what was put in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from peersub.events.arrow import table_of_rows
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.publication import Delivery
from peersub.trace.schema import plain_attributes


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


def shown(attributes: Mapping[str, Any]) -> str:
    """Attributes, each with its kind; a missing one and a null are the same."""
    return json.dumps(_without_missing(plain_attributes(attributes)), sort_keys=True)


def all_shown(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """`shown` of each."""
    return [shown(row) for row in rows]


def _without_missing(form: Any) -> Any:
    if isinstance(form, list):
        return [_without_missing(item) for item in form]
    if isinstance(form, dict):
        if "$decimal" in form:
            return {"$decimal": format(Decimal(form["$decimal"]), "f")}
        return {name: _without_missing(item) for name, item in form.items() if item is not None}
    return form
