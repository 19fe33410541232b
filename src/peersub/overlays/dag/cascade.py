"""What one event sets off in a layer at rest: who wants turns, who takes them, who sends to whom.

A converged layer holds its turns. Whoever has the event to send asks those who hold its tokens for
theirs (`WantTurn`), these ask on, and sinks begin to take turns; the event goes along, and whoever
got it wants a turn as well, until everybody has sent it once and nobody wants a turn any more. This
is `layer.Layer` and `DagPeer._advance` as arrays, for many events at once, each in a network of its
own (a *job*: a layer, and the member that publishes). Values and lids are only the shadow of the
tokens, so tokens are enough here.

Time goes in *ticks*, the latency of a link. What is sent in one tick arrives in the next, in the
order in which it was sent; members see each other only through messages, so within a tick it is
enough to keep each member's arrivals in their order: the first of everybody's arrivals is handled
for all members at once, then the second, and so on.

Law: receivers, first senders, ticks and copies are those of the simulator for the layer alone, with
one latency for all links, before any hold has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from peersub.overlays.bulk_routing import within

__all__ = ["EDGES_MAX", "Cascades", "LayerEdges", "cascades"]

EDGES_MAX: Final = 1 << 20
"""Edges of all jobs that are worked out together, unless a single one has more."""

_PASSED: Final = 1
_TURN: Final = 2
_WANT: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerEdges:
    """The edges of all layers, between seats: those of seat s from `starts[s]` to `starts[s + 1]`.

    A *seat* is a member in a layer. The seats of a layer follow each other.
    """

    starts: np.ndarray
    targets: np.ndarray
    """Per edge the seat at its other end; each edge is there twice."""
    holds: np.ndarray
    """Per edge whether its seat holds the token in the layer at rest."""
    reverses: np.ndarray
    """Per edge the same edge from its other end."""

    @classmethod
    def of(cls, starts: np.ndarray, targets: np.ndarray, holds: np.ndarray) -> LayerEdges:
        """With the reverses worked out: sorted by their ends either way, edges meet themselves."""
        origins = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        there = np.lexsort((targets, origins))
        back = np.lexsort((origins, targets))
        reverses = np.empty(len(targets), np.int64)
        reverses[there] = back
        return cls(
            starts=starts,
            targets=targets.astype(np.int64),
            holds=holds.astype(np.bool_),
            reverses=reverses,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cascades:
    """What became of some jobs: a row for each seat of each job's layer, job by job."""

    jobs: np.ndarray
    seats: np.ndarray
    senders: np.ndarray
    """The seat that the event came from first; -1 where it was published."""
    ticks: np.ndarray
    """When it came."""
    copies: np.ndarray
    """How many copies came."""


def cascades(
    edges: LayerEdges, firsts: np.ndarray, ends: np.ndarray, entries: np.ndarray
) -> Iterator[Cascades]:
    """Work out jobs, some at once so that memory is bounded.

    Args:
        edges: of all layers.
        firsts: per job the first seat of its layer.
        ends: per job the seat after the last one of its layer.
        entries: per job the seat that publishes.
    """
    sizes = edges.starts[ends] - edges.starts[firsts] + (ends - firsts)
    totals = np.cumsum(sizes)
    start = 0
    while start < len(entries):
        before = totals[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(totals, before + EDGES_MAX, side="right")))
        some = _Some(edges, firsts[start:end], ends[start:end], entries[start:end])
        yield some.worked_out(start)
        start = end


class _Some:
    """Some jobs, their seats and edges numbered through."""

    def __init__(
        self, edges: LayerEdges, firsts: np.ndarray, ends: np.ndarray, entries: np.ndarray
    ) -> None:
        seat_counts = ends - firsts
        edge_counts = edges.starts[ends] - edges.starts[firsts]
        job_seats = np.cumsum(seat_counts) - seat_counts
        job_edges = np.cumsum(edge_counts) - edge_counts
        self.jobs = np.repeat(np.arange(len(entries)), seat_counts)
        self.seats = np.repeat(firsts, seat_counts) + within(seat_counts)
        edge_jobs = np.repeat(np.arange(len(entries)), edge_counts)
        numbers = np.repeat(edges.starts[firsts], edge_counts) + within(edge_counts)
        seat_shift = (job_seats - firsts)[edge_jobs]
        edge_shift = (job_edges - edges.starts[firsts])[edge_jobs]
        self.degrees = np.diff(edges.starts)[self.seats]
        self.starts = np.cumsum(self.degrees) - self.degrees
        self.targets = edges.targets[numbers] + seat_shift
        self.reverses = edges.reverses[numbers] + edge_shift
        self.holds = edges.holds[numbers]
        self.is_asked = np.zeros(len(numbers), np.bool_)
        """Per edge whether its other end, which has the token, was told not to hold its turn."""
        origins = np.repeat(np.arange(len(self.seats)), self.degrees)
        self.missing = np.bincount(origins[~self.holds], minlength=len(self.seats))
        """Per seat how many of its tokens others hold."""
        self.is_queued = np.zeros(len(self.seats), np.bool_)
        self.is_pressed = np.zeros(len(self.seats), np.bool_)
        self.ticks = np.full(len(self.seats), -1, np.int32)
        self.came_by = np.full(len(self.seats), -1, np.int64)
        """Per seat the edge that the event came by first; -1 where it was published."""
        self.copies = np.zeros(len(self.seats), np.int32)
        self.entries = job_seats + entries - firsts

    def worked_out(self, first_job: int) -> Cascades:
        """Let time pass until nothing is under way."""
        tick = 0
        self.ticks[self.entries] = 0
        self.is_queued[self.entries] = True
        edges, kinds = self._sent([self._advanced(self.entries, np.arange(len(self.entries)))])
        while len(edges):
            tick += 1
            edges, kinds = self._sent(list(self._arrived(edges, kinds, tick)))
        senders = np.full(len(self.seats), -1)
        got = np.flatnonzero(self.came_by >= 0)
        senders[got] = self.seats[self.targets[self.came_by[got]]]
        return Cascades(
            jobs=self.jobs + first_job,
            seats=self.seats,
            senders=senders,
            ticks=self.ticks,
            copies=self.copies,
        )

    def _sent(
        self, parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]]
    ) -> tuple[np.ndarray, np.ndarray]:
        """What was sent in a tick, in order: as edges of the receivers, and kinds."""
        ranks, edges, kinds = (np.concatenate([part[i] for part in parts]) for i in range(3))
        order = np.argsort(ranks, kind="stable")
        return self.reverses[edges[order]], kinds[order]

    def _arrived(
        self, edges: np.ndarray, kinds: np.ndarray, tick: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Handle what arrives in a tick, each member's first arrival, then each one's second."""
        seats = self.targets[self.reverses[edges]]
        by_seat = np.argsort(seats, kind="stable")
        starts = np.flatnonzero(np.diff(seats[by_seat], prepend=-1))
        places = np.empty(len(edges), np.int64)
        places[by_seat] = within(np.diff(np.append(starts, len(edges))))
        by_place = np.argsort(places, kind="stable")
        bounds = np.searchsorted(places[by_place], np.arange(int(places.max()) + 2))
        for place in range(len(bounds) - 1):
            ranks = by_place[bounds[place] : bounds[place + 1]]
            yield self._handled(seats[ranks], edges[ranks], kinds[ranks], ranks, tick)

    def _handled(
        self,
        seats: np.ndarray,
        edges: np.ndarray,
        kinds: np.ndarray,
        ranks: np.ndarray,
        tick: int,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One arrival at each of these seats."""
        has_event = (kinds & _PASSED) > 0
        self.copies[seats[has_event]] += 1
        fresh = has_event & (self.ticks[seats] < 0)
        self.ticks[seats[fresh]] = tick
        self.came_by[seats[fresh]] = edges[fresh]
        self.is_queued[seats[fresh]] = True
        is_turn = (kinds & _TURN) > 0
        self.holds[edges[is_turn]] = True
        self.is_asked[edges[is_turn]] = False
        self.missing[seats[is_turn]] -= 1
        # Who has just given the token away is asked in vain.
        is_heard = ((kinds & _WANT) > 0) & self.holds[edges]
        self.is_pressed[seats[is_heard]] = True
        touched = np.flatnonzero(is_turn | is_heard)
        return self._advanced(seats[touched], ranks[touched])

    def _advanced(
        self, seats: np.ndarray, ranks: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Who wants a turn takes it or asks for it. Gives what is sent: ranks, edges, kinds."""
        wants = self.is_queued[seats] | self.is_pressed[seats]
        seats, ranks = seats[wants], ranks[wants]
        counts = self.degrees[seats]
        edges = np.repeat(self.starts[seats], counts) + within(counts)
        is_turn = np.repeat(self.missing[seats] == 0, counts)
        has_event = np.repeat(self.is_queued[seats], counts)
        is_sent_back = np.repeat(self.came_by[seats], counts) == edges
        carries = is_turn & has_event & ~is_sent_back
        asks = ~is_turn & ~self.holds[edges] & ~self.is_asked[edges]
        self.is_asked[edges] = np.where(is_turn, carries, self.is_asked[edges] | asks)
        self.holds[edges[is_turn]] = False
        turning = seats[self.missing[seats] == 0]
        self.is_queued[turning] = False
        self.is_pressed[turning] = False
        self.missing[turning] = self.degrees[turning]
        kinds = np.where(is_turn, _TURN | np.where(carries, _PASSED, 0), _WANT)
        said = is_turn | asks
        return np.repeat(ranks, counts)[said], edges[said], kinds[said]
