"""Plans as folders of Parquet, so that a plan is made once and read by every worker.

A folder has `nodes.parquet` and `edges.parquet`, and where sources are rows also `filters.parquet`
and `rows.parquet`. Where nodes host members it has `members.parquet`, and `classes.parquet` or
`links.parquet`, where they are members of layers `layers.parquet` and `seats.parquet`, and where
they hold places `places.parquet`, `filters.parquet`, `identifiers.parquet` and `homes.parquet`.
Columns are in `schemas`. A folder appears under its name when it is complete.

Law: `read_plan(folder)` after `write_plan(plan, folder)` equals the plan.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from tempfile import mkdtemp
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from peersub.filters.filter import Filter
from peersub.matching.matcher import Matcher
from peersub.overlays.bulk import (
    Edges,
    LayerSources,
    MemberGraph,
    Members,
    MemberTree,
    NodeRuns,
    PlaceSources,
    Plan,
    RowSources,
    Sets,
    Sources,
)
from peersub.pipeline.schemas import (
    PLAN_CLASSES,
    PLAN_EDGES,
    PLAN_FILTERS,
    PLAN_HOMES,
    PLAN_IDENTIFIERS,
    PLAN_LAYERS,
    PLAN_LINKS,
    PLAN_MEMBERS,
    PLAN_NODES,
    PLAN_PLACES,
    PLAN_ROWS,
    PLAN_SEATS,
    PLANNED,
    DatasetSchema,
)

__all__ = ["PLANS_OPEN_MAX", "OpenPlan", "PlanFolderError", "open_plan", "read_plan", "write_plan"]

PLANS_OPEN_MAX: Final = 4
"""Plans that a worker keeps in memory."""
_OVERLAY: Final = b"overlay"
_DEGREES: Final = b"degrees"
"""Of a tree, in the file of its classes."""
_SETTINGS: Final = b"settings"
_PLACE_SETTINGS: Final = (
    "quench",
    "summary",
    "summary_filters",
    "copies",
    "orders",
    "replicas",
    "answer_share",
)
"""Of the holders of places, in the file of these."""


class PlanFolderError(ValueError):
    """A folder that holds no plan, or one that is damaged."""


# --- writing -------------------------------------------------------------------------------------


def write_plan(plan: Plan, folder: str) -> pa.RecordBatch:
    """Write the plan, and say how large it is (`PLANNED`); a folder of that name is replaced."""
    sources = plan.sources
    above = os.path.dirname(os.path.abspath(folder))
    os.makedirs(above, exist_ok=True)
    unfinished = mkdtemp(prefix=f".{os.path.basename(folder)}-", dir=above)
    try:
        _write(unfinished, PLAN_NODES, _node_columns(plan), plan.overlay)
        _write(unfinished, PLAN_EDGES, _edge_columns(plan), plan.overlay)
        if isinstance(sources, RowSources | PlaceSources):
            filters = {"row": np.arange(len(sources.filters)), "filter": list(sources.filters)}
            _write(unfinished, PLAN_FILTERS, filters, plan.overlay)
        if isinstance(sources, RowSources):
            _write(unfinished, PLAN_ROWS, _row_columns(sources), plan.overlay)
        if isinstance(sources, MemberTree | MemberGraph):
            _write_members(unfinished, sources, plan.overlay)
        if isinstance(sources, LayerSources):
            _write_layers(unfinished, sources, plan.overlay)
        if isinstance(sources, PlaceSources):
            _write_places(unfinished, sources, plan.overlay)
        size = sum(entry.stat().st_size for entry in os.scandir(unfinished))
        os.chmod(unfinished, 0o755)
        shutil.rmtree(folder, ignore_errors=True)
        # Another attempt at the same task may have been faster: its plan is the same.
        with suppress(OSError):
            os.rename(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return pa.RecordBatch.from_pylist([_sizes(plan, size)], PLANNED.arrow)


def _write(
    folder: str,
    dataset: DatasetSchema,
    columns: Mapping[str, object],
    overlay: str,
    more: Mapping[bytes, str] | None = None,
) -> None:
    arrays = [pa.array(columns[field.name], field.type) for field in dataset.arrow]
    metadata = {_OVERLAY: overlay, **(more or {})}
    table = pa.table(arrays, schema=dataset.arrow.with_metadata(metadata))
    pq.write_table(table, _file(folder, dataset), compression="zstd")


def _file(folder: str, dataset: DatasetSchema) -> str:
    return os.path.join(folder, f"{dataset.name}.parquet")


def _node_columns(plan: Plan) -> dict[str, object]:
    count = len(plan.names)
    sources = plan.sources
    return {
        "node": np.arange(count),
        "name": plan.names,
        "key": pa.nulls(count, pa.int64()) if plan.keys is None else plan.keys,
        "place": sources.places if isinstance(sources, NodeRuns) else pa.nulls(count, pa.int32()),
    }


def _edge_columns(plan: Plan) -> dict[str, object]:
    edges, count = plan.edges, len(plan.edges)
    runs = plan.sources if isinstance(plan.sources, NodeRuns) else None
    return {
        "edge": np.arange(count),
        "origin": edges.origins,
        "target": edges.targets,
        "label": edges.labels,
        "arc_start": edges.arcs[:, 0],
        "arc_length": edges.arcs[:, 1],
        "offset": edges.offsets,
        "span": edges.spans,
        "run_start": pa.nulls(count, pa.int32()) if runs is None else runs.starts,
        "run_length": pa.nulls(count, pa.int32()) if runs is None else runs.lengths,
    }


def _row_columns(sources: RowSources) -> dict[str, object]:
    rows = np.repeat(np.arange(len(sources.filters)), np.diff(sources.starts))
    return {"row": rows, "edge": sources.edges, "nearest": sources.nearest}


def _write_members(folder: str, sources: MemberTree | MemberGraph, overlay: str) -> None:
    members = sources.members
    count = len(members)
    columns: dict[str, object] = {
        "member": np.arange(count),
        "node": members.nodes,
        "slot": members.slots,
        "class": pa.nulls(count, pa.int32()),
        "place": pa.nulls(count, pa.uint64()),
        "sampled": pa.nulls(count, pa.int32()),
    }
    if isinstance(sources, MemberTree):
        columns["class"] = sources.classes
        degrees = {_DEGREES: f"{sources.equal_degree} {sources.top_degree}"}
        numbers = np.arange(len(sources.parents))
        classes = {"class": numbers, "parent": sources.parents, "rank": sources.ranks}
        _write(folder, PLAN_CLASSES, classes, overlay, degrees)
    else:
        columns |= {"place": sources.places, "sampled": sources.counts}
        origins = np.repeat(np.arange(count), np.diff(sources.starts))
        links = {"origin": origins, "target": sources.targets, "near": sources.is_near}
        _write(folder, PLAN_LINKS, links, overlay)
    _write(folder, PLAN_MEMBERS, columns, overlay)


def _write_layers(folder: str, sources: LayerSources, overlay: str) -> None:
    layers = np.arange(len(sources.names))
    _write(folder, PLAN_LAYERS, {"layer": layers, "name": sources.names}, overlay)
    seats = {
        "seat": np.arange(len(sources.nodes)),
        "layer": np.repeat(layers, np.diff(sources.starts)),
        "node": sources.nodes,
    }
    _write(folder, PLAN_SEATS, seats, overlay)


def _write_places(folder: str, sources: PlaceSources, overlay: str) -> None:
    settings = {name: getattr(sources, name) for name in _PLACE_SETTINGS}
    nodes = np.arange(len(sources.lengths))
    places = {"node": nodes, "length": sources.lengths, "bits": sources.bits}
    _write(folder, PLAN_PLACES, places, overlay, {_SETTINGS: json.dumps(settings)})
    kept = {"row": sources.identifiers.rows(), "identifier": sources.identifiers.numbers}
    _write(folder, PLAN_IDENTIFIERS, kept, overlay)
    homes = {"row": sources.homes.rows(), "node": sources.homes.numbers}
    _write(folder, PLAN_HOMES, homes, overlay)


def _sizes(plan: Plan, size: int) -> dict[str, object]:
    sources = plan.sources
    rows = len(sources.edges) if isinstance(sources, RowSources) else 0
    filters = sources.filters if isinstance(sources, RowSources | PlaceSources) else ()
    edges = len(plan.edges)
    if isinstance(sources, MemberTree):
        edges = 2 * max(0, len(sources.members) - 1)
    elif isinstance(sources, MemberGraph):
        edges = len(sources.targets)
    return {
        "overlay": plan.overlay,
        "nodes": len(plan.names),
        "edges": edges,
        "filters": len(filters),
        "rows": rows,
        "bytes": size,
    }


# --- reading -------------------------------------------------------------------------------------


def read_plan(folder: str) -> Plan:
    """The plan that was written to the folder.

    Raises:
        PlanFolderError: there is none, or it is damaged.
    """
    try:
        nodes, edges = _read(folder, PLAN_NODES), _read(folder, PLAN_EDGES)
        has_rows = os.path.exists(_file(folder, PLAN_ROWS))
        filters = _read(folder, PLAN_FILTERS) if has_rows else None
        rows = _read(folder, PLAN_ROWS) if has_rows else None
        members = _read_members(folder)
        layers = _read_layers(folder)
        places = _read_places(folder)
    except (OSError, pa.ArrowException, KeyError) as error:
        raise PlanFolderError(
            f"{folder} holds no plan that can be read ({error}). "
            "Driver and workers must see the same files."
        ) from None
    has_keys = not nodes["key"].null_count
    sources: Sources = places or layers or members
    if filters is not None and rows is not None:
        numbers = _numbers(rows["row"])
        sources = RowSources(
            filters=tuple(filters["filter"].to_pylist()),
            starts=np.searchsorted(numbers, np.arange(filters.num_rows + 1)).astype(np.int64),
            edges=_numbers(rows["edge"]),
            nearest=_numbers(rows["nearest"]),
        )
    elif not nodes["place"].null_count:
        sources = NodeRuns(
            places=_numbers(nodes["place"]),
            starts=_numbers(edges["run_start"]),
            lengths=_numbers(edges["run_length"]),
        )
    origins = _numbers(edges["origin"])
    ends = nodes.num_rows if layers is None else len(layers.nodes)
    return Plan(
        overlay=nodes.schema.metadata[_OVERLAY].decode(),
        names=tuple(nodes["name"].to_pylist()),
        keys=_numbers(nodes["key"]) if has_keys else None,
        edges=Edges(
            starts=np.searchsorted(origins, np.arange(ends + 1)).astype(np.int64),
            targets=_numbers(edges["target"]),
            offsets=_numbers(edges["offset"]),
            spans=_numbers(edges["span"]),
            labels=_numbers(edges["label"]),
            arcs=np.stack([_numbers(edges["arc_start"]), _numbers(edges["arc_length"])], axis=1),
        ),
        sources=sources,
    )


def _read_members(folder: str) -> MemberTree | MemberGraph | None:
    if not os.path.exists(_file(folder, PLAN_MEMBERS)):
        return None
    table = _read(folder, PLAN_MEMBERS)
    members = Members(nodes=_numbers(table["node"]), slots=_numbers(table["slot"]))
    if os.path.exists(_file(folder, PLAN_CLASSES)):
        classes = _read(folder, PLAN_CLASSES)
        degrees = classes.schema.metadata[_DEGREES].split()
        return MemberTree(
            members=members,
            classes=_numbers(table["class"]),
            parents=_numbers(classes["parent"]),
            ranks=_numbers(classes["rank"]),
            equal_degree=int(degrees[0]),
            top_degree=int(degrees[1]),
        )
    links = _read(folder, PLAN_LINKS)
    origins = _numbers(links["origin"])
    return MemberGraph(
        members=members,
        starts=np.searchsorted(origins, np.arange(len(members) + 1)).astype(np.int64),
        targets=_numbers(links["target"]),
        is_near=_numbers(links["near"]),
        places=_numbers(table["place"]),
        counts=_numbers(table["sampled"]),
    )


def _read_layers(folder: str) -> LayerSources | None:
    if not os.path.exists(_file(folder, PLAN_LAYERS)):
        return None
    layers, seats = _read(folder, PLAN_LAYERS), _read(folder, PLAN_SEATS)
    numbers = np.arange(layers.num_rows + 1)
    return LayerSources(
        names=tuple(layers["name"].to_pylist()),
        starts=np.searchsorted(_numbers(seats["layer"]), numbers).astype(np.int64),
        nodes=_numbers(seats["node"]),
    )


def _read_places(folder: str) -> PlaceSources | None:
    if not os.path.exists(_file(folder, PLAN_PLACES)):
        return None
    places, filters = _read(folder, PLAN_PLACES), _read(folder, PLAN_FILTERS)
    kept, homes = _read(folder, PLAN_IDENTIFIERS), _read(folder, PLAN_HOMES)
    return PlaceSources(
        filters=tuple(filters["filter"].to_pylist()),
        lengths=_numbers(places["length"]),
        bits=_numbers(places["bits"]),
        identifiers=_sets_by_row(kept["row"], kept["identifier"], filters.num_rows),
        homes=_sets_by_row(homes["row"], homes["node"], filters.num_rows),
        **json.loads(places.schema.metadata[_SETTINGS]),
    )


def _sets_by_row(rows: pa.ChunkedArray, numbers: pa.ChunkedArray, count: int) -> Sets:
    starts = np.searchsorted(_numbers(rows), np.arange(count + 1)).astype(np.int64)
    return Sets(starts, _numbers(numbers))


def _read(folder: str, dataset: DatasetSchema) -> pa.Table:
    table = pq.read_table(_file(folder, dataset), partitioning=None)
    return table.select(dataset.arrow.names)


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    numbers: np.ndarray = column.to_numpy()
    return numbers


@dataclass(frozen=True, slots=True)
class OpenPlan:
    """A plan in a worker; where its sources are filters, with what finds them for events."""

    plan: Plan
    matcher: Matcher | None


_open: OrderedDict[tuple[str, int], OpenPlan] = OrderedDict()


def open_plan(folder: str) -> OpenPlan:
    """The plan of the folder, read once per worker, for the plans used last.

    Raises:
        PlanFolderError: there is none, or it is damaged.
    """
    try:
        written = os.stat(_file(folder, PLAN_EDGES)).st_mtime_ns
    except OSError:
        written = 0
    key = (folder, written)
    found = _open.get(key)
    if found is None:
        plan = read_plan(folder)
        found = _open[key] = OpenPlan(plan, _matcher(plan.sources))
        while len(_open) > PLANS_OPEN_MAX:
            _open.popitem(last=False)
    _open.move_to_end(key)
    return found


def _matcher(sources: Sources) -> Matcher | None:
    if not isinstance(sources, RowSources | PlaceSources):
        return None
    matcher = Matcher()
    for row, data in enumerate(sources.filters):
        matcher.add(str(row), Filter.from_bytes(data))
    return matcher
