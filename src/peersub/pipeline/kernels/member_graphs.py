"""Similarity graphs of members: exact where all can be compared, else by named candidates.

Up to EXACT_MEMBERS_MAX members the graph is that of `overlays.similarity.bulk`: each member chooses
among all others. Beyond that each chooses, by the same rule, among candidates: members with its own
filter, and those of the filters that SIMILAR lists for it. Filters that match no event of the
sample have none listed: they get those that follow in the order of digests, which is a draw.

A graph of candidates is made in three steps, so that all workers take part: one worker writes what
is known of all members as arrays (`write_society`), each task links a share of the members
(`link_share`), and one worker puts the links together (`joined_graph`). While it works a task holds
the profiles and 40 bytes per member, mapped from files that workers share.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from peersub.overlays.bulk import MemberGraph, Members
from peersub.overlays.semantic.bulk_members import grouped
from peersub.overlays.similarity.bulk import similarity_graph
from peersub.overlays.similarity.choosing import Candidate, place_of
from peersub.overlays.similarity.planning import (
    FIRST_SLOT,
    Addresses,
    links_of,
    member_graph,
)
from peersub.overlays.similarity.settings import CLIMB, SimilaritySettings
from peersub.pipeline.kernels.member_plans import digests_of
from peersub.pipeline.kernels.whole_files import whole_file

__all__ = [
    "EXACT_MEMBERS_MAX",
    "exact_graph",
    "joined_graph",
    "link_share",
    "members_in",
    "write_society",
]

EXACT_MEMBERS_MAX: Final = 8_192
"""Members that are compared with each other."""
PER_FILTER: Final = 2
"""Members of a listed filter that are candidates."""
UNLISTED: Final = 8
"""Filters that follow one for which none are listed."""

_EMPTY_BYTES: Final = 8
"""Of a profile where nobody matches anything."""
_ARRAYS: Final = (
    *("nodes", "slots", "filters", "places", "profiles", "counts"),
    *("member_starts", "members", "similar_starts", "similar"),
)


def members_in(members: pa.Table) -> Members:
    """The members of `MEMBERS`, which are in the order of their numbers."""
    return Members(
        nodes=members["node"].to_numpy(),
        slots=members["place"].to_numpy() + np.int32(FIRST_SLOT),
    )


def _known(members: pa.Table, classes: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Digests in order, and per digest the profile as bytes; and per member its filter."""
    digests = digests_of(classes["digest"])
    by_digest = np.argsort(digests)
    width = pc.max(pc.binary_length(classes["profile"])).as_py() or _EMPTY_BYTES
    profiles = np.zeros((len(digests), width), np.uint8)
    has_profile = np.flatnonzero(classes["profile"].is_valid().to_numpy(zero_copy_only=False))
    data = classes["profile"].drop_null().cast(pa.binary(width)).combine_chunks()
    if len(has_profile):
        rows = np.frombuffer(data.buffers()[1], np.uint8).reshape(-1, width)
        profiles[has_profile] = rows[data.offset : data.offset + len(data)]
    digests = digests[by_digest]
    filters = np.searchsorted(digests, digests_of(members["digest"])).astype(np.int32)
    return digests, profiles[by_digest], filters


def exact_graph(
    members: pa.Table, classes: pa.Table, seed: int, settings: SimilaritySettings
) -> MemberGraph:
    """The graph in which each member knows all others.

    Args:
        members: `MEMBERS`, in any order.
        classes: `digest` and `profile` of `CLASSES`.
        seed: the network's.
        settings: of the overlay.
    """
    members = members.sort_by("member")
    _, profiles, filters = _known(members, classes)
    bits = np.unpackbits(profiles[filters], axis=1).astype(np.bool_)
    known = members_in(members)
    graph = similarity_graph(
        bits,
        settings,
        seed,
        members=list(Addresses(known)),
    )
    return MemberGraph(
        members=known,
        starts=graph.starts.astype(np.int64),
        targets=graph.targets,
        is_near=graph.is_near,
        places=graph.places,
        counts=bits.sum(axis=1, dtype=np.int32),
    )


# --- graphs of candidates ------------------------------------------------------------------------


def write_society(
    members: pa.Table, classes: pa.Table, similar: pa.Table, seed: int, folder: str
) -> None:
    """Write what links depend on, as arrays.

    Args:
        members: `MEMBERS`, in any order.
        classes: `digest` and `profile` of `CLASSES`.
        similar: `digest`, `neighbour` and `rank` of `SIMILAR`.
        seed: the network's.
        folder: one that all workers share.
    """
    members = members.sort_by("member")
    digests, profiles, filters = _known(members, classes)
    known = members_in(members)
    listing = np.searchsorted(digests, digests_of(similar["digest"]))
    listed = np.searchsorted(digests, digests_of(similar["neighbour"])).astype(np.int32)
    order = np.lexsort((similar["rank"].to_numpy(), listing))
    similar_starts, _ = grouped(listing, listing, len(digests))
    member_starts, of_filter = grouped(
        filters, np.arange(len(filters), dtype=np.int32), len(digests)
    )
    addresses = Addresses(known)
    places = np.fromiter(
        (place_of(seed, addresses[each]) for each in range(len(known))), np.uint64, len(known)
    )
    arrays = {
        "nodes": known.nodes,
        "slots": known.slots,
        "filters": filters,
        "places": places,
        "profiles": profiles,
        "counts": np.bitwise_count(profiles).sum(axis=1, dtype=np.int32),
        "member_starts": member_starts,
        "members": of_filter,
        "similar_starts": similar_starts,
        "similar": listed[order],
    }
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name in _ARRAYS:
        with whole_file(Path(folder) / f"{name}.npy") as file:
            np.save(file, arrays[name])


class _Society:
    """The arrays of `write_society`, mapped."""

    def __init__(self, folder: str) -> None:
        # Mapped all the same, without what NumPy's own class for it costs at each look.
        found: dict[str, Any] = {
            name: np.load(Path(folder) / f"{name}.npy", mmap_mode="r").view(np.ndarray)
            for name in _ARRAYS
        }
        self.known = Members(nodes=found["nodes"], slots=found["slots"])
        self.filters: np.ndarray = found["filters"]
        self.places: np.ndarray = found["places"]
        self.profiles: np.ndarray = found["profiles"]
        self.counts: np.ndarray = found["counts"]
        self._member_starts: np.ndarray = found["member_starts"]
        self._members: np.ndarray = found["members"]
        self._similar_starts: np.ndarray = found["similar_starts"]
        self._similar: np.ndarray = found["similar"]
        self.addresses = Addresses(self.known)

    def candidate(self, member: int) -> Candidate:
        """A member as others judge it."""
        bits = int.from_bytes(self.profiles[self.filters[member]].tobytes(), "little")
        return Candidate(self.addresses[member], int(self.places[member]), bits)

    def named_to(self, member: int) -> list[int]:
        """The members on other nodes that one of them chooses among."""
        own = int(self.filters[member])
        listed = self._similar[self._similar_starts[own] : self._similar_starts[own + 1]]
        if not len(listed):
            listed = (own + 1 + np.arange(UNLISTED)) % len(self.counts)
        found = dict.fromkeys(self._some_of(own, member, PER_FILTER * UNLISTED))
        for other in listed.tolist():
            found.update(dict.fromkeys(self._some_of(other, member, PER_FILTER)))
        home = self.known.nodes[member]
        found.pop(member, None)
        return [each for each in found if self.known.nodes[each] != home]

    def _some_of(self, wanted: int, member: int, count: int) -> list[int]:
        """Some members with a filter: others for each member that asks."""
        start, end = int(self._member_starts[wanted]), int(self._member_starts[wanted + 1])
        size = end - start
        first = int(np.searchsorted(self._members[start:end], member, "right"))
        return [int(self._members[start + (first + k) % size]) for k in range(min(count, size))]


def link_share(
    folder: str, share: int, shares: int, seed: int, settings: SimilaritySettings
) -> int:
    """Link every `shares`-th member from `share` on, and write the links; how many they are."""
    society = _Society(folder)
    # Few candidates are no small network.
    rule = replace(settings, clique_up_to=0)
    near, random = [], []
    for member in range(share, len(society.filters), shares):
        me = society.candidate(member)
        # Who matches nothing climbs to nobody.
        named = society.named_to(member) if me.bits or rule.choice != CLIMB else ()
        others = [(each, society.candidate(each)) for each in named]
        by_choice, by_draw = links_of(me, others, society.addresses, seed, rule)
        near += [(member, each) for each in by_choice]
        random += [(member, each) for each in by_draw]
    for name, pairs in (("near", near), ("random", random)):
        with whole_file(Path(folder) / f"{name}-{share:05d}.npy") as file:
            np.save(file, np.array(pairs, np.int32).reshape(len(pairs), 2))
    return len(near) + len(random)


def joined_graph(folder: str, shares: int) -> MemberGraph:
    """The graph with the links of all shares."""
    society = _Society(folder)

    def pairs(name: str) -> np.ndarray:
        parts = [np.load(Path(folder) / f"{name}-{share:05d}.npy") for share in range(shares)]
        return np.concatenate(parts).astype(np.int64)

    return member_graph(
        society.known,
        pairs("near"),
        pairs("random"),
        places=np.asarray(society.places),
        counts=np.asarray(society.counts)[society.filters],
    )
