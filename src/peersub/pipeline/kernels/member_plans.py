"""Plans of overlays whose nodes host members, made by one worker from datasets of the run.

What is read is columns of numbers and digests, never filters: who covers whom was proven before,
by all workers (`coverers`). A worker holds about 200 bytes per member and 50 per covering while it
works, and writes about 20 per member.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from peersub.overlays.bulk import Members, MemberTree
from peersub.overlays.containment.tree_arrays import class_parents
from peersub.overlays.semantic.bulk_members import grouped
from peersub.pipeline.kernels.profiles import DIGEST_BYTES

__all__ = ["TreeSettings", "digests_of", "planned_tree", "read_columns"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSettings:
    """What a containment tree depends on, beside the members.

    Args:
        by_selectivity: whether the parent is the container with the fewest events of the sample.
        is_complete: whether the coverings list all containers of each class.
        first_slot: of the members of a node.
    """

    by_selectivity: bool
    is_complete: bool
    equal_degree: int
    top_degree: int
    first_slot: int


def read_columns(folder: str, *names: str) -> pa.Table:
    """Some columns of a dataset of the run."""
    return ds.dataset(folder, format="parquet").to_table(columns=list(names)).combine_chunks()


def digests_of(column: pa.ChunkedArray) -> np.ndarray:
    """Digests as an array that NumPy can sort."""
    fixed = column.cast(pa.binary(DIGEST_BYTES)).combine_chunks()
    if not len(fixed):
        return np.empty(0, f"S{DIGEST_BYTES}")
    data = np.frombuffer(fixed.buffers()[1], f"S{DIGEST_BYTES}")
    return data[fixed.offset : fixed.offset + len(fixed)]


def planned_tree(
    members: pa.Table, classes: pa.Table, coverings: pa.Table, settings: TreeSettings
) -> MemberTree:
    """The canonical tree (`overlays.containment.structure`), of any number of members.

    Args:
        members: `MEMBERS`, in any order.
        classes: `digest` and `sampled` of `CLASSES`.
        coverings: `digest` and `coverer` of `COVERINGS`.
        settings: of the tree.
    """
    members = members.sort_by("member")
    digests = digests_of(classes["digest"])
    by_digest = np.argsort(digests)
    digests = digests[by_digest]
    sampled = classes["sampled"].to_numpy()[by_digest]
    member_digests = digests_of(members["digest"])
    # A filter is known by its place in the order of digests.
    filters = np.searchsorted(digests, member_digests)
    contained = np.searchsorted(digests, digests_of(coverings["digest"]))
    containers = np.searchsorted(digests, digests_of(coverings["coverer"]))
    first_members = np.full(len(digests), len(filters))
    np.minimum.at(first_members, filters, np.arange(len(filters)))
    standing = _standing(contained, containers, first_members)
    # Classes are numbered in the order of their first members.
    stands = np.flatnonzero(standing == np.arange(len(digests)))
    stands = stands[np.argsort(first_members[stands], kind="stable")]
    class_of = np.full(len(digests), -1, np.int64)
    class_of[stands] = np.arange(len(stands))
    between = (class_of[contained] >= 0) & (class_of[containers] >= 0)
    starts, above = grouped(
        class_of[contained[between]], class_of[containers[between]], len(stands)
    )
    parents, _ = class_parents(
        starts,
        above,
        stands,
        sampled[stands] if settings.by_selectivity else None,
        is_complete=settings.is_complete,
    )
    return MemberTree(
        members=Members(
            nodes=members["node"].to_numpy(),
            slots=members["place"].to_numpy() + np.int32(settings.first_slot),
        ),
        classes=class_of[standing[filters]].astype(np.int32),
        parents=parents,
        ranks=stands,
        equal_degree=settings.equal_degree,
        top_degree=settings.top_degree,
    )


def _standing(
    contained: np.ndarray, containers: np.ndarray, first_members: np.ndarray
) -> np.ndarray:
    """Per filter the one that stands for its class: filters that cover each other are one class.

    The first of them stands for it, in the order of members. Only filters that are equivalent and
    yet not equal are looked at one by one: they are few.
    """
    count = len(first_members)
    standing = np.arange(count)
    keys = contained * count + containers
    is_mutual = np.isin(containers * count + contained, keys, assume_unique=True)
    pairs = sorted(
        (int(first_members[one]), int(first_members[other]), int(one), int(other))
        for one, other in zip(contained[is_mutual], containers[is_mutual], strict=True)
        if first_members[other] < first_members[one]
    )
    # Sorted, so that the first that stands comes first, and is settled before it is asked.
    for _, _, one, other in pairs:
        if standing[one] == one and standing[other] == other:
            standing[one] = other
    return standing
