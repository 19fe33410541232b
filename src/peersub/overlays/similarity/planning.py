"""Plans of similarity graphs with very many members, and the ways of events over them.

Each member chooses among some others, which are named to it; `bulk` makes the graph in which each
knows all others, for networks that are not so large.

Summaries of neighbours change what is sent; a plan has none of them. What a graph learns from its
own events is not in it either: links are by the sample that the settings give.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from peersub.overlays.bulk import MemberGraph, Members, Plan
from peersub.overlays.core.identity import PeerId, numbered_node
from peersub.overlays.semantic.bulk_members import member_plan
from peersub.overlays.settings import SettingsError
from peersub.overlays.similarity.choosing import Candidate, chosen, drawn_random
from peersub.overlays.similarity.graph_routing import GraphRouter
from peersub.overlays.similarity.settings import WELL_CONNECTED, SimilaritySettings

__all__ = [
    "FIRST_SLOT",
    "Addresses",
    "check",
    "graph_plan",
    "links_of",
    "member_graph",
    "router",
]

FIRST_SLOT = 1
"""The slot of a node's first member."""
SPARE_DRAWS = 2
"""Random links drawn beyond those asked for: some lead to the own node, and do not count."""


def check(settings: SimilaritySettings) -> None:
    """Whether a plan can have these settings.

    Raises:
        SettingsError: it cannot.
    """
    if settings.summary_bytes:
        raise SettingsError("plans have no summaries of neighbours: leave summary_bytes at 0")
    if settings.proximity == WELL_CONNECTED:
        raise SettingsError("nodes of a plan have no position: choose another proximity")


class Addresses(Sequence[PeerId]):
    """The addresses of members on numbered nodes, made when they are asked for."""

    def __init__(self, members: Members) -> None:
        self._members = members

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, member: int) -> PeerId:  # type: ignore[override]
        members = self._members
        if member >= len(members):
            raise IndexError(member)
        return PeerId(numbered_node(int(members.nodes[member])), 0, int(members.slots[member]))


def links_of(
    me: Candidate,
    others: Sequence[tuple[int, Candidate]],
    addresses: Sequence[PeerId],
    seed: int,
    settings: SimilaritySettings,
) -> tuple[list[int], list[int]]:
    """The members that one of them links itself with: for what they want, and at random.

    Args:
        me: whose links.
        others: the members that it knows, on other nodes.
        addresses: of all members.
        seed: the network's.
        settings: of the overlay.
    """
    number_of = {each.peer: number for number, each in others}
    near = [number_of[each.peer] for each in chosen(me, [each for _, each in others], settings)]
    taken = [addresses[each] for each in near]
    drawn = drawn_random(seed, me.peer, addresses, taken, settings.random + SPARE_DRAWS)
    elsewhere = [each for each in drawn if addresses[each].node != me.peer.node]
    return near, elsewhere[: settings.random]


def member_graph(
    members: Members,
    near: np.ndarray,
    random: np.ndarray,
    *,
    places: np.ndarray,
    counts: np.ndarray,
) -> MemberGraph:
    """The graph with these links, given as pairs of members, each once or from both ends."""
    count = len(members)
    ends = np.concatenate([near, near[:, ::-1], random, random[:, ::-1]])
    is_near = np.arange(len(ends)) < 2 * len(near)
    keys = ends[:, 0] * count + ends[:, 1]
    # Of a link that is there several times the near one is kept.
    keys, firsts = np.unique(keys, return_index=True)
    starts = np.searchsorted(keys, np.arange(count + 1) * count).astype(np.int64)
    return MemberGraph(
        members=members,
        starts=starts,
        targets=(keys % max(count, 1)).astype(np.int32),
        is_near=is_near[firsts],
        places=places,
        counts=counts,
    )


def graph_plan(nodes: Sequence[str], graph: MemberGraph) -> Plan:
    """The plan of a graph."""
    return member_plan("similarity", nodes, graph)


def router(plan: Plan, seed: int, settings: SimilaritySettings) -> GraphRouter:
    """The plan, prepared for events."""
    assert isinstance(plan.sources, MemberGraph)
    return GraphRouter(plan.sources, len(plan.names), seed, settings)
