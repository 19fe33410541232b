"""What the bulk forms of the semantic overlays share: members on nodes, and the ways of events.

Both route from member to member and hand over in memory between members of one node. What a node
receives follows from what its members do: the first copy that came over a link, and how many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from peersub.overlays.bulk import MemberGraph, Members, MemberTree, Plan
from peersub.overlays.bulk_building import edges_of
from peersub.overlays.registry import overlay_kind
from peersub.overlays.semantic.metrics import DocumentOutcome

__all__ = [
    "MemberRouter",
    "Passages",
    "grouped",
    "member_overlay",
    "member_plan",
    "node_receipts",
    "outcome_of",
    "spread_out",
]


@dataclass(frozen=True, slots=True)
class Passages:
    """How one event came to the members that received it, each once; its origin is among them."""

    members: np.ndarray
    hops: np.ndarray
    """Links between nodes on the way of the first copy."""
    senders: np.ndarray
    """The member that the first copy came from; -1 where the event began."""
    messages: np.ndarray
    """Copies that came over links between nodes."""
    copies: np.ndarray | None = None
    """All copies that came, where a member may get none or several."""

    def __len__(self) -> int:
        return len(self.members)

    @classmethod
    def none(cls) -> Passages:
        """Nobody received it."""
        nothing = np.empty(0, np.int32)
        return cls(nothing, nothing, nothing, nothing)


class MemberRouter(Protocol):
    """A plan, prepared for events: what `router` of a semantic overlay's `bulk` module makes."""

    members: Members
    nodes: int

    def passages(self, event_id: str, publisher: int, matching: np.ndarray) -> Passages:
        """How an event that a node publishes comes to members, given the members that match it."""
        ...


# --- plans ---------------------------------------------------------------------------------------


def member_plan(overlay: str, nodes: Sequence[str], sources: MemberTree | MemberGraph) -> Plan:
    """A plan whose nodes host members; it has no edges between nodes."""
    return Plan(
        overlay=overlay,
        names=tuple(nodes),
        keys=None,
        edges=edges_of(np.zeros(len(nodes) + 1, np.int64), []),
        sources=sources,
    )


def member_overlay(name: str) -> Any | None:
    """The module `planning` of an overlay whose nodes host members; None for other overlays.

    It has `check(settings)`, `router(plan, seed, settings)` and `FIRST_SLOT`.
    """
    return overlay_kind(name).part("planning")


# --- groups --------------------------------------------------------------------------------------


def grouped(keys: np.ndarray, values: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The values by their keys, those of key k from `starts[k]` up to `starts[k + 1]`, in order.

    >>> [each.tolist() for each in grouped(np.array([1, 0, 1]), np.array([7, 8, 9]), 3)]
    [[0, 1, 3, 3], [8, 7, 9]]
    """
    starts = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(keys, minlength=count), out=starts[1:])
    return starts, values[np.argsort(keys, kind="stable")]


def spread_out(
    starts: np.ndarray, values: np.ndarray, keys: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """All values of some keys, and per value the place of its key among those asked for.

    >>> starts, values = grouped(np.array([1, 0, 1]), np.array([7, 8, 9]), 3)
    >>> [each.tolist() for each in spread_out(starts, values, np.array([2, 1]))]
    [[1, 1], [7, 9]]
    """
    counts = starts[keys + 1] - starts[keys]
    place = np.repeat(np.arange(len(keys)), counts)
    within = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
    return place, values[starts[keys][place] + within]


# --- what nodes and members got ------------------------------------------------------------------


def node_receipts(
    passages: Passages, homes: np.ndarray, publisher: int, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The nodes that received the event, and for each the first sender, its hops, and messages.

    Of several copies that come at the same hop the one to the member of the smallest number counts
    as the first.

    Args:
        passages: what members received.
        homes: per member its node.
        publisher: the node that published the event.
        count: how many nodes there are.
    """
    nodes = homes[passages.members]
    first = np.full(count, np.iinfo(np.int32).max, np.int32)
    np.minimum.at(first, nodes, passages.hops)
    messages = np.bincount(nodes, passages.messages, count).astype(np.int32)
    senders = np.full(count, -1, np.int32)
    at_first = np.flatnonzero((passages.messages > 0) & (passages.hops == first[nodes]))
    # In an assignment the last one wins: the order is turned round.
    order = at_first[np.argsort(passages.members[at_first])[::-1]]
    sent = passages.senders[order]
    senders[nodes[order]] = np.where(sent < 0, publisher, homes[sent])
    first[publisher], senders[publisher] = 0, -1
    received = np.flatnonzero(first < np.iinfo(np.int32).max)
    return received, senders[received], first[received], messages[received]


def outcome_of(passages: Passages, matching: np.ndarray, count: int) -> DocumentOutcome:
    """The figures of one event in a network of so many members."""
    is_matching = np.zeros(count, np.bool_)
    is_matching[matching] = True
    has_matched = is_matching[passages.members]
    hops = passages.hops[has_matched]
    copies = np.empty(0) if passages.copies is None else passages.copies
    return DocumentOutcome(
        members=count,
        matching=int(is_matching.sum()),
        receivers=len(passages),
        matching_receivers=len(hops),
        messages=int(passages.messages.sum()),
        duplicates=int(np.maximum(copies - 1, 0).sum()),
        hops=int(hops.sum()),
        hops_max=int(hops.max(initial=0)),
    )
