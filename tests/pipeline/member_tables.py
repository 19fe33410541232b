"""The datasets that plans of members are made of, by brute force, from the world of a test."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from overlays.bulk_worlds import World
from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.containment.structure import contains
from peersub.pipeline.schemas import CLASSES, COVERINGS, MEMBERS


def member_names(world: World) -> list[tuple[str, int, Filter]]:
    """Node, place on it and filter of each member, in order."""
    found = []
    for node in sorted(world.names):
        own = {wanted.digest: wanted for wanted in world.given[node].values()}
        found += [(node, place, wanted) for place, wanted in enumerate(own.values())]
    return found


def members_table(world: World) -> pa.Table:
    rows = [
        {"member": number, "node": int(node[1:]), "place": place, "digest": wanted.digest}
        for number, (node, place, wanted) in enumerate(member_names(world))
    ]
    return pa.Table.from_pylist(rows, MEMBERS.arrow)


def classes_table(world: World) -> pa.Table:
    distinct = {wanted.digest: wanted for _, wanted in world.subscriptions}
    events = [Event(f"s{number}", dict(each)) for number, each in enumerate(world.sample)]
    rows: list[dict[str, Any]] = []
    for digest, wanted in distinct.items():
        bits = np.array([wanted.matches(event) for event in events], np.bool_)
        packed = np.packbits(np.resize(bits, 64) & (np.arange(64) < len(bits)), bitorder="little")
        rows.append(
            {
                "digest": digest,
                "language": wanted.language,
                "text": wanted.text,
                "subscription_id": "",
                "members": 1,
                "sampled": int(bits.sum()),
                "profile": packed.tobytes() if bits.any() else None,
            }
        )
    return pa.Table.from_pylist(rows, CLASSES.arrow)


def coverings_table(world: World) -> pa.Table:
    distinct = {wanted.digest: wanted for _, wanted in world.subscriptions}
    rows = [
        {"digest": specific, "coverer": general, "rank": 0, "coverers": 1}
        for specific, wanted in distinct.items()
        for general, other in distinct.items()
        if general != specific and contains(other, wanted)
    ]
    return pa.Table.from_pylist(rows, COVERINGS.arrow)
