"""Routing over a similarity graph in bulk: many events at once, hop by hop (`bulk`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from peersub.overlays.semantic.metrics import DocumentOutcome, RoutingTotals
from peersub.overlays.similarity.forwarding import STOPPED, event_draw
from peersub.overlays.similarity.settings import SimilaritySettings

__all__ = ["CELLS_MAX", "Routed", "SimilarityGraph", "pair_hashes", "route"]

CELLS_MAX: Final = 1 << 24
"""Cells of the largest array of a step: classes by classes, or events by members."""

_U64 = np.uint64
_LEFT_SPAN: Final = 256
"""More than the numbers of an indulgence, which is a byte here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarityGraph:
    """A converged network. Both directions of a link are there.

    The neighbours of member m are `targets[starts[m]:starts[m + 1]]`, in the order of their
    addresses; `is_near` says which links were made for what the other wants.
    """

    starts: np.ndarray
    targets: np.ndarray
    is_near: np.ndarray
    places: np.ndarray
    nodes: np.ndarray
    """Per member the number of its node."""
    near_made: np.ndarray
    """Per member, how many near links it made itself."""
    random_made: np.ndarray

    def __len__(self) -> int:
        return len(self.places)

    @property
    def degrees(self) -> np.ndarray:
        """Per member, how many neighbours it has."""
        return np.diff(self.starts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """What became of each event: a row for each event and member that received it.

    Rows are sorted by event, then by member. `copies` came over links; the origin has a row.
    """

    events: np.ndarray
    members: np.ndarray
    hops: np.ndarray
    copies: np.ndarray
    events_count: int

    def totals(self, matches: np.ndarray) -> RoutingTotals:
        """The metrics of all events; `matches[event, member]` as in `route`."""
        totals = RoutingTotals()
        bounds = np.searchsorted(self.events, np.arange(self.events_count + 1))
        for event in range(self.events_count):
            part = slice(bounds[event], bounds[event + 1])
            wanted = matches[event, self.members[part]]
            hops = self.hops[part][wanted]
            copies = self.copies[part]
            totals.add(
                DocumentOutcome(
                    members=matches.shape[1],
                    matching=int(np.count_nonzero(matches[event])),
                    receivers=len(wanted),
                    matching_receivers=int(np.count_nonzero(wanted)),
                    messages=int(copies.sum()),
                    duplicates=int(np.maximum(copies - 1, 0).sum()),
                    hops=int(hops.sum()),
                    hops_max=int(hops.max(initial=0)),
                )
            )
        return totals


def pair_hashes(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """`proximity.pair_hash` for arrays; unsigned numbers wrap by themselves."""
    mixed: np.ndarray = one * _U64(0x9E3779B97F4A7C15) + other
    mixed ^= mixed >> _U64(30)
    mixed *= _U64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> _U64(27)
    mixed *= _U64(0x94D049BB133111EB)
    mixed ^= mixed >> _U64(31)
    return mixed


def route(
    graph: SimilarityGraph,
    matches: np.ndarray,
    origins: np.ndarray,
    settings: SimilaritySettings,
    seed: int,
    event_ids: Sequence[str],
    *,
    may_match: np.ndarray | None = None,
) -> Routed:
    """Route events over a graph, some at once so that memory is bounded.

    Args:
        graph: of these settings and this seed.
        matches: per event and member, whether it matches.
        origins: per event a member that matches it, where it begins; -1 if nobody does.
        settings: of which indulgence, random_forward and origin_spreads count.
        seed: the network's.
        event_ids: the events' identifiers, on which draws depend.
        may_match: per event and member, False where the member's summary excludes the event;
            without it nobody has a summary.
    """
    draws = np.array([event_draw(seed, event_id) for event_id in event_ids], _U64)
    at_once = max(CELLS_MAX // max(len(graph), 1), 1)
    parts = []
    for begin in range(0, len(event_ids), at_once):
        part = slice(begin, begin + at_once)
        may = None if may_match is None else may_match[part]
        spread = _Spread(graph, settings, matches[part], draws[part], may)
        spread.run(np.asarray(origins)[part])
        parts.append(spread.rows(begin))
    events, members, hops, copies = (
        np.concatenate([part[k] for part in parts]) if parts else np.zeros(0, np.int64)
        for k in range(4)
    )
    return Routed(
        events=events, members=members, hops=hops, copies=copies, events_count=len(event_ids)
    )


class _Spread:
    """Some events on their way, hop by hop. Arrays of pairs are in the order of arrival."""

    def __init__(
        self,
        graph: SimilarityGraph,
        settings: SimilaritySettings,
        matches: np.ndarray,
        draws: np.ndarray,
        may_match: np.ndarray | None,
    ) -> None:
        self._graph = graph
        self._settings = settings
        self._matches = np.asarray(matches, bool)
        self._draws = draws
        self._may_match = may_match
        shape = (len(draws), len(graph))
        self._left = np.full(shape, STOPPED - 1, np.int8)
        """The greatest indulgence with which a member passed an event on; below if it got none."""
        self._hops = np.full(shape, -1, np.int32)
        self._copies = np.zeros(shape, np.int32)
        self._has_shared_nodes = len(np.unique(graph.nodes)) < len(graph)
        if self._has_shared_nodes:
            self._seen = np.zeros((len(draws), int(graph.nodes.max()) + 1), bool)
            order = np.argsort(graph.nodes, kind="stable")
            self._housemates = np.split(order, np.cumsum(np.bincount(graph.nodes))[:-1])

    def run(self, origins: np.ndarray) -> None:
        """Let the events begin, and go on until nobody passes anything on."""
        events = np.flatnonzero(origins >= 0)
        members = origins[events].astype(np.int64)
        assert self._matches[events, members].all(), "an origin matches its event"
        if self._has_shared_nodes:
            pairs = [
                (event, mate)
                for event, member in zip(events.tolist(), members.tolist(), strict=True)
                for mate in self._housemates[self._graph.nodes[member]].tolist()
                if self._matches[event, mate]
            ]
            events, members = np.array(pairs, np.int64).reshape(-1, 2).T
            self._seen[events, self._graph.nodes[members]] = True
        self._hops[events, members] = 0
        left = np.full(len(events), self._settings.indulgence, np.int8)
        self._left[events, members] = left
        senders = np.full(len(events), -1, np.int64)
        hop = 0
        while len(events):
            hop += 1
            share = self._settings.random_forward
            if hop == 1 and self._settings.origin_spreads:
                share = 1.0
            arriving = self._passed_on(events, members, left, senders, share)
            events, members, left, senders = self._arrived(*arriving, hop)

    def _passed_on(
        self,
        events: np.ndarray,
        members: np.ndarray,
        left: np.ndarray,
        senders: np.ndarray,
        share: float,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The copies that these members send, in the order in which they do."""
        graph = self._graph
        starts = graph.starts[members]
        counts = graph.starts[members + 1] - starts
        who = np.repeat(np.arange(len(members)), counts)
        edges = np.arange(len(who)) + np.repeat(starts - np.cumsum(counts) + counts, counts)
        targets = graph.targets[edges]
        goes = targets != senders[who]
        if share < 1:
            random = np.flatnonzero(goes & ~graph.is_near[edges])
            drawn = self._draws[events[who[random]]] ^ graph.places[members[who[random]]]
            shares = (pair_hashes(drawn, graph.places[targets[random]]) >> _U64(11)) * 2.0**-53
            goes[random[shares >= share]] = False
        if self._may_match is not None:
            goes &= (left[who] > 0) | self._may_match[events[who], targets]
        who, targets = who[goes], targets[goes].astype(np.int64)
        return events[who], targets, left[who], members[who]

    def _arrived(
        self,
        events: np.ndarray,
        members: np.ndarray,
        left: np.ndarray,
        senders: np.ndarray,
        hop: int,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Take copies in; those that are passed on, with what indulgence they have then."""
        np.add.at(self._copies, (events, members), 1)
        if self._has_shared_nodes:
            events, members, left, senders = self._with_housemates(events, members, left, senders)
        matching = self._matches[events, members]
        left = np.where(matching, left, left - 1).astype(np.int8)
        new = self._hops[events, members] < 0
        self._hops[events[new], members[new]] = hop
        # A copy counts if it has more indulgence than all that came to the member before it.
        keys = events * len(self._graph) + members
        order = np.argsort(keys, kind="stable")
        group = np.cumsum(np.diff(keys[order], prepend=-1) != 0)
        most = np.maximum.accumulate(left[order] + group * _LEFT_SPAN)
        before = np.concatenate([np.zeros(1, most.dtype), most[:-1]])[: len(most)]
        counts = left[order] + group * _LEFT_SPAN > before
        chosen = np.sort(order[counts])
        chosen = chosen[left[chosen] > self._left[events[chosen], members[chosen]]]
        np.maximum.at(self._left, (events[chosen], members[chosen]), left[chosen])
        chosen = chosen[left[chosen] > STOPPED]
        return events[chosen], members[chosen], left[chosen], senders[chosen]

    def _with_housemates(
        self, events: np.ndarray, members: np.ndarray, left: np.ndarray, senders: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """A node that gets an event hands it to all its members that match."""
        nodes = self._graph.nodes[members]
        keys = events * self._seen.shape[1] + nodes
        _, first = np.unique(keys, return_index=True)
        first = np.sort(first)
        first = first[~self._seen[events[first], nodes[first]]]
        self._seen[events[first], nodes[first]] = True
        more: list[tuple[Any, ...]] = []
        for row in first.tolist():
            event, member = int(events[row]), int(members[row])
            for mate in self._housemates[nodes[row]].tolist():
                if mate != member and self._matches[event, mate]:
                    more.append((row, event, mate, left[row], senders[row]))
        if not more:
            return events, members, left, senders
        rows, added_events, added_members, added_left, added_senders = zip(*more, strict=True)
        order = np.argsort(
            np.concatenate([np.arange(len(events)), np.array(rows) - 0.5]), kind="stable"
        )
        return (
            np.concatenate([events, added_events])[order],
            np.concatenate([members, added_members])[order],
            np.concatenate([left, np.array(added_left, np.int8)])[order],
            np.concatenate([senders, added_senders])[order],
        )

    def rows(self, first_event: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Who received what."""
        events, members = np.nonzero(self._hops >= 0)
        return (
            events + first_event,
            members,
            self._hops[events, members],
            self._copies[events, members],
        )
