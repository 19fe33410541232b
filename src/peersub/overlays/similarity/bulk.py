"""The similarity graph in bulk: the converged graph of a whole network, and all events at once.

    graph = similarity_graph(bits, settings, seed)
    routed = route(graph, matches, origins, settings, seed, event_ids)
    routed.totals(matches).metrics()

Law: the graph is the one that `converged` sets peer by peer, and who receives an event, after how
many hops, is what the simulator says of it with one latency for all links. Tests compare both.

No array has a cell for each pair of members. Members with the same bits judge others alike, but
for their places: so gains are worked out once for each *class* of equal bits, for some classes at a
time, and a member finds its own choice within a class by a look-up among sorted places. Where
nearness depends on positions too, rows of all pairs are made some at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from peersub.overlays.core.identity import PeerId, numbered_node
from peersub.overlays.similarity.bulk_routing import (
    CELLS_MAX,
    Routed,
    SimilarityGraph,
    pair_hashes,
    route,
)
from peersub.overlays.similarity.choosing import drawn_random, place_of
from peersub.overlays.similarity.proximity import (
    factor_of_bandwidth,
    factor_of_latency,
    proximity_of_counts,
)
from peersub.overlays.similarity.settings import (
    CLIMB,
    WELL_CONNECTED,
    SimilaritySettings,
)

__all__ = ["Routed", "SimilarityGraph", "route", "similarity_graph"]

_U64 = np.uint64


# --- the graph -----------------------------------------------------------------------------------


def similarity_graph(
    bits: np.ndarray,
    settings: SimilaritySettings,
    seed: int,
    *,
    members: Sequence[PeerId] | None = None,
    positions_ms: np.ndarray | None = None,
    bandwidths_mbit: np.ndarray | None = None,
) -> SimilarityGraph:
    """The converged graph of members.

    Args:
        bits: per member and event of the sample, whether it matches.
        settings: the same for all members.
        seed: the network's.
        members: their addresses; by default member i is alone on the node `numbered_node(i)`.
        positions_ms: two coordinates per member, for `well-connected`.
        bandwidths_mbit: per member, for `well-connected`.
    """
    count = len(bits)
    if members is None:
        members = [PeerId(numbered_node(number), 0, 1) for number in range(count)]
    assert len(members) == count
    order = sorted(range(count), key=members.__getitem__)
    sorted_members = [members[number] for number in order]
    numbers: dict[str, int] = {}
    nodes = np.array(
        [numbers.setdefault(peer.node, len(numbers)) for peer in sorted_members], np.int32
    )
    places = np.array([place_of(seed, peer) for peer in sorted_members], _U64)
    ordered = np.ascontiguousarray(np.asarray(bits, bool)[order])
    if count - np.bincount(nodes).min(initial=count) <= settings.clique_up_to:
        near = _everybody(nodes)
    elif settings.choice != CLIMB and settings.proximity == WELL_CONNECTED:
        spots = np.zeros((count, 2)) if positions_ms is None else positions_ms[order]
        rates = (
            np.full(count, settings.bandwidth_mbit)
            if bandwidths_mbit is None
            else bandwidths_mbit[order]
        )
        near = _nearest_of_all(ordered, places, nodes, spots, rates, settings)
    else:
        near = _Classes(ordered, places, nodes, settings).choices()
    drawn = _random_links(sorted_members, near, nodes, settings, seed)
    return _linked(np.array(order), near, drawn, places, nodes)


def _everybody(nodes: np.ndarray) -> list[np.ndarray]:
    numbers = np.arange(len(nodes))
    return [numbers[nodes != node] for node in nodes]


def _random_links(
    members: list[PeerId],
    near: list[np.ndarray],
    nodes: np.ndarray,
    settings: SimilaritySettings,
    seed: int,
) -> list[np.ndarray]:
    own: dict[int, list[PeerId]] = {}
    for member, node in enumerate(nodes.tolist()):
        own.setdefault(node, []).append(members[member])
    drawn = []
    for member, chosen in enumerate(near):
        found: list[int] = []
        here = own[int(nodes[member])]
        if settings.random and len(chosen) < len(members) - len(here):
            taken = [*(members[other] for other in chosen.tolist()), *here]
            found = drawn_random(seed, members[member], members, taken, settings.random)
        drawn.append(np.array(found, np.int64))
    return drawn


def _linked(
    order: np.ndarray,
    near: list[np.ndarray],
    drawn: list[np.ndarray],
    places: np.ndarray,
    nodes: np.ndarray,
) -> SimilarityGraph:
    """The links of both kinds, both ways, with members numbered as the caller does."""
    count = len(order)
    ends = []
    for links, kind in ((near, 1), (drawn, 0)):
        makers = np.repeat(np.arange(count), [len(each) for each in links])
        others = np.concatenate([*links, np.zeros(0, np.int64)]).astype(np.int64)
        for one, other in ((makers, others), (others, makers)):
            ends.append(np.stack([one, other, np.full(len(one), kind)]))
    one, other, kind = np.concatenate(ends, axis=1)
    # Where a link is of both kinds, the near one decides.
    chosen = np.lexsort((-kind, other, one))
    one, other, kind = one[chosen], other[chosen], kind[chosen]
    first = np.ones(len(one), bool)
    first[1:] = (one[1:] != one[:-1]) | (other[1:] != other[:-1])
    one, other, kind = one[first], other[first], kind[first]
    # From the order of addresses to the caller's numbers; neighbours stay in that order.
    again = np.argsort(order[one], kind="stable")
    numbers = order[one][again]
    unsorted = np.empty_like(order)
    unsorted[order] = np.arange(count)
    return SimilarityGraph(
        starts=np.searchsorted(numbers, np.arange(count + 1)),
        targets=order[other[again]].astype(np.int32),
        is_near=kind[again].astype(bool),
        places=places[unsorted],
        nodes=nodes[unsorted],
        near_made=np.array([len(each) for each in near])[unsorted],
        random_made=np.array([len(each) for each in drawn])[unsorted],
    )


class _Classes:
    """Members by their bits, and the choice of each."""

    def __init__(
        self, bits: np.ndarray, places: np.ndarray, nodes: np.ndarray, settings: SimilaritySettings
    ) -> None:
        self._settings = settings
        self._places = places
        self._nodes = nodes
        packed = np.packbits(bits, axis=1)
        rows = np.ascontiguousarray(packed).view([("", packed.dtype)] * packed.shape[1]).ravel()
        _, first, classes = np.unique(rows, return_index=True, return_inverse=True)
        self._rows = bits[first].astype(np.float32)
        self._counts = np.count_nonzero(bits[first], axis=1)
        order = np.lexsort((places, classes))
        bounds = np.searchsorted(classes[order], np.arange(len(first) + 1))
        self._members = [order[bounds[k] : bounds[k + 1]] for k in range(len(first))]
        """Per class its members, by place."""
        self._mixed = pair_hashes(places, np.zeros(1, _U64))
        self._picked = np.full((len(places), settings.nearest), -1, np.int64)

    def choices(self) -> list[np.ndarray]:
        """Per member, the members that it links itself with."""
        # A state: a class, the classes picked so far, and the members of whom that is true.
        states: list[tuple[int, tuple[int, ...], np.ndarray]] = [
            (number, (), members) for number, members in enumerate(self._members)
        ]
        at_once = max(CELLS_MAX // max(len(self._members), self._rows.shape[1], 1), 1)
        for turn in range(self._settings.nearest):
            later = []
            for begin in range(0, len(states), at_once):
                part = states[begin : begin + at_once]
                for state, gains in zip(part, self._gains(part), strict=True):
                    later += self._pick(state, gains, turn)
            states = later
        return [row[row >= 0] for row in self._picked]

    def _gains(self, states: list[tuple[int, tuple[int, ...], np.ndarray]]) -> np.ndarray:
        own = self._rows[[number for number, _, _ in states]]
        settings = self._settings
        if settings.choice != CLIMB:
            both = np.rint(own @ self._rows.T).astype(np.int64)
            firsts = self._counts[[number for number, _, _ in states]][:, None]
            scores: np.ndarray = proximity_of_counts(settings, both, firsts, self._counts[None, :])
            return scores
        covered = np.zeros_like(own)
        paid = np.zeros(own.shape, bool)
        for row, (_, picked, _) in enumerate(states):
            for number in picked:
                covered[row] += self._rows[number]
                paid[row] |= self._rows[number] > 0
        wanted = np.where(covered < settings.cover, np.float32(settings.wanted_weight), 0)
        weights = np.where(own > 0, wanted, np.where(paid, 0, -1)).astype(np.float32)
        gains: np.ndarray = np.rint(weights @ self._rows.T)
        return gains

    def _pick(
        self, state: tuple[int, tuple[int, ...], np.ndarray], gains: np.ndarray, turn: int
    ) -> list[tuple[int, tuple[int, ...], np.ndarray]]:
        """One more pick for each member of a state; the states that they are in then."""
        number, picked, members = state
        climbs = self._settings.choice == CLIMB
        open_to = self._counts >= self._counts[number] if climbs else np.ones(len(gains), bool)
        if climbs:
            open_to &= gains > 0
        groups = np.flatnonzero(open_to)
        groups = groups[np.argsort(-gains[groups], kind="stable")]
        levels = np.flatnonzero(np.diff(gains[groups])) + 1
        found: list[tuple[int, tuple[int, ...], np.ndarray]] = []
        for level in np.split(groups, levels):
            if not len(members):
                break
            best = np.full(len(members), -1, np.int64)
            best_turn = np.zeros(len(members), _U64)
            best_class = np.full(len(members), -1, np.int64)
            for group in level.tolist():
                other, distance = self._first_in(group, number, members)
                better = (other >= 0) & ((best < 0) | (distance < best_turn))
                best[better], best_turn[better] = other[better], distance[better]
                best_class[better] = group
            served = best >= 0
            self._picked[members[served], turn] = best[served]
            if climbs:
                for group in np.unique(best_class[served]).tolist():
                    found.append((number, (*picked, group), members[best_class == group]))
            elif served.any():
                found.append((number, (), members[served]))
            members = members[~served]
        return found

    def _first_in(
        self, group: int, number: int, members: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Per member the first of a class, on its way round, that it may choose; -1 if none."""
        climbs = self._settings.choice == CLIMB
        pool = self._members[group]
        places = self._places[pool]
        own = self._places[members]
        start = self._mixed[members]
        if climbs and group == number:
            start = own + _scaled(start, own)
        # Of equal rank, those with a higher place stand above it.
        is_level = climbs and self._counts[group] == self._counts[number]
        low = np.searchsorted(places, own, side="right") if is_level else np.zeros_like(members)
        room = len(pool) - low
        at = np.maximum(np.searchsorted(places, start, side="left"), low) - low
        found = np.full(len(members), -1, np.int64)
        open_rows = np.flatnonzero(room > 0)
        steps = np.zeros(len(members), np.int64)
        while len(open_rows):
            spot = low[open_rows] + (at[open_rows] + steps[open_rows]) % room[open_rows]
            other = pool[spot]
            chooser = members[open_rows]
            is_free = (self._nodes[other] != self._nodes[chooser]) & ~(
                self._picked[chooser] == other[:, None]
            ).any(axis=1)
            found[open_rows[is_free]] = other[is_free]
            steps[open_rows] += 1
            open_rows = open_rows[~is_free & (steps[open_rows] < room[open_rows])]
        distance = np.where(found >= 0, self._places[found] - start, _U64(0))
        return found, distance


def _nearest_of_all(
    bits: np.ndarray,
    places: np.ndarray,
    nodes: np.ndarray,
    positions_ms: np.ndarray,
    bandwidths_mbit: np.ndarray,
    settings: SimilaritySettings,
) -> list[np.ndarray]:
    """The nearest of each member by bits and positions, some members at a time."""
    rows = bits.astype(np.float32)
    counts = np.count_nonzero(bits, axis=1)
    mixed = pair_hashes(places, np.zeros(1, _U64))
    near: list[np.ndarray] = []
    at_once = max(CELLS_MAX // max(len(bits), 1) // 4, 1)
    for begin in range(0, len(bits), at_once):
        part = slice(begin, min(begin + at_once, len(bits)))
        both = np.rint(rows[part] @ rows.T).astype(np.int64)
        away = positions_ms[part, None, :] - positions_ms[None, :, :]
        latency = np.sqrt(away[..., 0] * away[..., 0] + away[..., 1] * away[..., 1])
        rate = np.minimum(bandwidths_mbit[part, None], bandwidths_mbit[None, :])
        connection = (factor_of_latency(latency) + factor_of_bandwidth(rate)) / 2
        scores = proximity_of_counts(
            settings, both, counts[part, None], counts[None, :], connection
        )
        scores[nodes[part, None] == nodes[None, :]] = -1.0
        for row in range(len(scores)):
            best = _best(scores[row], places - mixed[begin + row], settings.nearest)
            near.append(best[scores[row][best] >= 0])
    return near


def _best(scores: np.ndarray, turns: np.ndarray, count: int) -> np.ndarray:
    """The places of the greatest scores; of equal ones those with the smallest turns."""
    if count < len(scores):
        least = np.partition(scores, len(scores) - count)[len(scores) - count]
        pool = np.flatnonzero(scores >= least)
    else:
        pool = np.arange(len(scores))
    return pool[np.lexsort((turns[pool], -scores[pool]))][:count]


def _scaled(share: np.ndarray, own: np.ndarray) -> np.ndarray:
    """(2^64 - own) * share / 2^64, rounded down, with numbers of 64 bits only."""
    span = _U64(0) - own  # 2^64 - own; own is never 0 in practice, and 0 stands for 2^64 then
    low, high = _U64(0xFFFFFFFF), _U64(32)
    a, b = span >> high, span & low
    c, d = share >> high, share & low
    middle = (b * d >> high) + (a * d & low) + (b * c & low)
    product = a * c + (a * d >> high) + (b * c >> high) + (middle >> high)
    return np.where(own == 0, share, product)
