"""Blocks with events whose name is not theirs alone: renamed, or taken out.

`schemas.REPEATED_EVENTS` says which rows of which staged blocks are concerned; only these blocks
come here, with a column `changes` that lists them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from peersub.files.event_names import rows_chosen
from peersub.pipeline.kernels.blocks import packed, unpacked
from peersub.pipeline.kernels.reading import original_of_row
from peersub.pipeline.schemas import EVENTS, QUARANTINE

__all__ = ["renamed_blocks", "taken_events"]


def _taken(change: dict[str, Any]) -> bool:
    return change["first_file"] is not None


def renamed_blocks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Blocks with their changes to rows of `events`: names changed, rows with taken names out."""
    for batch in batches:
        found = []
        for block in batch.to_pylist():
            names, table = list(block["names"]), unpacked(block["table"])
            for change in block["changes"]:
                names[change["row"]] = change["name"]
            taken = {change["row"] for change in block["changes"] if _taken(change)}
            data = block["table"]
            if taken:
                kept = [row for row in range(len(names)) if row not in taken]
                names = [names[row] for row in kept]
                data = packed(rows_chosen(table, kept))
            if names:
                values = {"block": block["block"], "rows": len(names)}
                found.append(values | {"names": names, "table": data})
        yield pa.RecordBatch.from_pylist(found, EVENTS.arrow)


def taken_events(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Blocks with their changes to rows of `quarantine`: the rows whose name is taken."""
    for batch in batches:
        found = []
        for block in batch.to_pylist():
            table = unpacked(block["table"])
            for change in filter(_taken, block["changes"]):
                first = change["first_place"]
                if change["first_file"] != block["file"]:
                    first = f"{first} of {change['first_file']}"
                reason = f"the id {change['name']!r} is taken by {first}"
                found.append(
                    {
                        "dataset": "events",
                        "file": block["file"],
                        "place": change["place"],
                        "reason": f"{reason}. Give each event its own id.",
                        "original": original_of_row(table, change["row"]),
                        "rows": 1,
                    }
                )
        yield pa.RecordBatch.from_pylist(found, QUARANTINE.arrow)
