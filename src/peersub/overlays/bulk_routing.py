"""Routing over plans: many events at once, hop by hop.

`spread` serves overlays whose events take each edge of a tree at most once (tree, Chord): a step
looks at all edges of all nodes that got some event at the last hop, and keeps those that are within
the span, do not lead back, and are opened by an interested source. `flood` serves networks in which
every edge is open: its tree depends on the publisher only, so it is worked out once for each.

Interest is looked up in tables with a row per event, of at most CELLS_MAX cells:

* for `NodeRuns`, per place of the circle the next one of an interested node; an edge is open if
  that lies within its run. One look-up, however many nodes are behind the edge.
* for `RowSources`, per edge the nearest node that an interested row on it reaches; the edge is open
  for parts that are longer than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import numpy as np

from peersub.overlays.bulk import Edges, NodeRuns, Plan, Receipts, RowSources, Sets

__all__ = ["CELLS_MAX", "chunks", "flood", "spread", "wanted_by", "wanted_flags", "within"]

CELLS_MAX: Final = 1 << 20
"""Cells of a table of interest, and receipts that are worked out at once (unless a single event has
more): few enough to stay near the processor."""
PAIRS_MAX: Final = 1 << 20
"""Pairs of an event and an edge that are looked at together when rows are looked up."""

_Opens: TypeAlias = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Events and spans of receipts, and edges with the receipt that each leads from, to whether each
edge is open for the event and the part that it gets."""


# --- events that are filtered --------------------------------------------------------------------


def spread(
    plan: Plan, publishers: np.ndarray, interested: Sets, wanted: Sets
) -> Iterator[Receipts]:
    """Route events over edges that interest opens."""
    sources = plan.sources
    assert isinstance(sources, (NodeRuns, RowSources))
    width = len(plan.edges) if isinstance(sources, RowSources) else 0
    steps = _Steps(plan.edges)
    for start, end in chunks(len(publishers), max(width, len(plan.names))):
        those = interested.part(start, end)
        if isinstance(sources, NodeRuns):
            opens = _run_opens(sources, those)
        else:
            opens = _row_opens(sources, those, steps)
        hops = list(_hops(steps, publishers[start:end], opens))
        rows, nodes, senders = (np.concatenate([hop[part] for hop in hops]) for part in range(3))
        counts = np.repeat(np.arange(len(hops), dtype=np.int32), [len(hop[0]) for hop in hops])
        yield Receipts(
            events=rows + start,
            nodes=nodes.astype(np.int32),
            senders=senders.astype(np.int32),
            hops=counts,
            messages=(counts > 0).astype(np.int32),
            wanted=wanted_flags(wanted.part(start, end), len(plan.names), rows, nodes),
        )


def chunks(events: int, width: int) -> Iterator[tuple[int, int]]:
    """Cut the events so that tables of this width have at most CELLS_MAX cells, or one row."""
    step = max(1, CELLS_MAX // max(1, width))
    for start in range(0, events, step):
        yield start, min(start + step, events)


class _Steps:
    """The edges, prepared for steps from many nodes at once."""

    def __init__(self, edges: Edges) -> None:
        self.nodes = len(edges.starts) - 1
        self.firsts = edges.starts[:-1]
        self.degrees = np.diff(edges.starts)
        # As NumPy wants its indices: it would turn each look-up into them.
        self.targets = edges.targets.astype(np.intp)
        self.offsets = edges.offsets
        self.spans = edges.spans
        self.has_parts = bool(edges.offsets.any())
        """Whether events are for parts of the network, which never hold their sender."""
        if self.has_parts:
            self._table = np.full((int(self.degrees.max()), self.nodes), self.nodes, np.int32)
            self._table[within(self.degrees), edges.origins] = edges.offsets

    def from_nodes(self, nodes: np.ndarray, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The edges that lie within the spans of these nodes, and from which of them each leads."""
        if self.has_parts:
            # Edges are sorted by offset, so those within the span come first.
            is_within = self._table.take(nodes, axis=1) < spans
            counts = is_within.view(np.int8).sum(axis=0, dtype=np.int8).astype(np.intp)
        else:
            counts = self.degrees.take(nodes)
        parents = np.repeat(np.arange(len(nodes)), counts)
        ends = np.cumsum(counts)
        firsts = self.firsts.take(nodes) - (ends - counts)
        return parents, firsts.take(parents) + np.arange(len(parents))

    def parts(self, taken: np.ndarray, spans: np.ndarray) -> np.ndarray:
        """What the edges get of the spans of the nodes that they leave."""
        found: np.ndarray = np.minimum(self.spans.take(taken), spans - self.offsets.take(taken))
        return found


def within(counts: np.ndarray) -> np.ndarray:
    """0, 1, … up to each count: the place of each item within its group."""
    ends = np.cumsum(counts)
    found: np.ndarray = np.arange(counts.sum()) - np.repeat(ends - counts, counts)
    return found


_Hop: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Events, nodes and senders of what was received at one hop."""


def _hops(steps: _Steps, publishers: np.ndarray, opens: _Opens) -> Iterator[_Hop]:
    rows = np.arange(len(publishers))
    nodes = publishers.astype(np.intp)
    senders = np.full(len(rows), -1, np.intp)
    spans = np.full(len(rows), steps.nodes, np.int32)
    left = len(rows) * steps.nodes
    while len(rows):
        left -= len(rows)
        if left < 0:
            raise ValueError("the plan is wrong: an event comes to a node more than once")
        yield rows, nodes, senders
        if steps.has_parts:
            # Most nodes are the last of their part.
            several = np.flatnonzero(spans > 1)
            rows, nodes, spans = rows.take(several), nodes.take(several), spans.take(several)
        parents, taken = steps.from_nodes(nodes, spans)
        if not steps.has_parts:
            kept = np.flatnonzero(steps.targets.take(taken) != senders.take(parents))
            parents, taken = parents.take(kept), taken.take(kept)
        kept = np.flatnonzero(opens(rows, spans, parents, taken))
        parents, taken = parents.take(kept), taken.take(kept)
        spans = steps.parts(taken, spans.take(parents))
        rows, senders, nodes = rows.take(parents), nodes.take(parents), steps.targets.take(taken)


def _run_opens(sources: NodeRuns, interested: Sets) -> _Opens:
    count = len(sources.places)
    following = _following(sources.places[interested.numbers], interested, count)
    starts, lengths = sources.starts.astype(np.intp), sources.lengths

    def opens(
        rows: np.ndarray, _spans: np.ndarray, parents: np.ndarray, taken: np.ndarray
    ) -> np.ndarray:
        cells = (rows * count).take(parents) + starts.take(taken)
        is_open: np.ndarray = following.take(cells) < cells + lengths.take(taken)
        return is_open

    return opens


def _following(places: np.ndarray, interested: Sets, count: int) -> np.ndarray:
    """Per event and place, as one line, the next place of an interested node in it.

    The circle of each event is a part of the line. Behind the last interested node it goes on with
    the first one, a circle farther; if there is none, with one that no run comes to.
    """
    firsts = np.arange(len(interested)) * count
    is_interested = np.zeros(len(interested) * count, np.bool_)
    is_interested[interested.rows() * count + places] = True
    cells = np.flatnonzero(is_interested)
    begins = np.searchsorted(cells, firsts)
    is_empty = begins == np.searchsorted(cells, firsts + count)
    nexts = np.append(cells, 0)[np.where(is_empty, len(cells), begins)] + count
    nexts[is_empty] = firsts[is_empty] + 2 * count
    # Each circle ends with its last place, after an interested node that may stand there.
    ends = np.concatenate([cells, firsts + count - 1])
    values = np.concatenate([cells, nexts])
    order = np.argsort(ends, kind="stable")
    return np.repeat(values[order], np.diff(ends[order], prepend=-1))


def _row_opens(sources: RowSources, interested: Sets, steps: _Steps) -> _Opens:
    edges = len(steps.targets)
    nearest = np.full(len(interested) * edges, np.iinfo(np.int32).max, np.int32)
    numbers = interested.numbers
    firsts = interested.rows() * edges
    counts = np.diff(sources.starts)[numbers]
    for start, end in _bounded(counts):
        some = counts[start:end]
        places = np.repeat(sources.starts[numbers[start:end]], some) + within(some)
        cells = np.repeat(firsts[start:end], some) + sources.edges[places]
        np.minimum.at(nearest, cells, sources.nearest[places])

    def opens(
        rows: np.ndarray, spans: np.ndarray, parents: np.ndarray, taken: np.ndarray
    ) -> np.ndarray:
        cells = (rows * edges).take(parents) + taken
        is_open: np.ndarray = nearest.take(cells) < steps.parts(taken, spans.take(parents))
        return is_open

    return opens


def _bounded(counts: np.ndarray) -> Iterator[tuple[int, int]]:
    """Cut a list of counts so that each part adds up to at most PAIRS_MAX, or is a single one."""
    ends = np.cumsum(counts)
    start = 0
    while start < len(counts):
        before = ends[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + PAIRS_MAX, side="right")))
        yield start, end
        start = end


def wanted_flags(wanted: Sets, count: int, rows: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Whether each event is wanted at the node beside it."""
    table = np.zeros((len(wanted), count), np.bool_)
    table[wanted.rows(), wanted.numbers] = True
    found: np.ndarray = table[rows, nodes]
    return found


# --- events that go everywhere -------------------------------------------------------------------


def flood(plan: Plan, publishers: np.ndarray, interested: Sets, wanted: Sets) -> Iterator[Receipts]:
    """Route events over all edges: every node sends its first copy to all but its sender."""
    count = len(plan.names)
    steps = _Steps(plan.edges)
    by_publisher = np.argsort(publishers, kind="stable")
    origins, firsts = np.unique(publishers[by_publisher], return_index=True)
    ends = np.append(firsts[1:], len(publishers))
    for start, end in chunks(len(origins), count):
        tree = _flooded(steps, origins[start:end])
        # The receipts of each publisher stand together: those of its events are copies.
        order = np.argsort(tree.events, kind="stable")
        sizes = np.bincount(tree.events, minlength=end - start)
        begins = np.cumsum(sizes) - sizes
        events = by_publisher[firsts[start] : ends[end - 1]]
        which = np.repeat(np.arange(end - start), ends[start:end] - firsts[start:end])
        for first, last in chunks(len(events), count):
            of = which[first:last]
            places = order[np.repeat(begins[of], sizes[of]) + within(sizes[of])]
            rows = np.repeat(events[first:last], sizes[of])
            nodes = tree.nodes[places]
            yield Receipts(
                events=rows,
                nodes=nodes,
                senders=tree.senders[places],
                hops=tree.hops[places],
                messages=tree.messages[places],
                wanted=wanted_by(wanted, count, events[first:last], sizes[of], nodes),
            )


def wanted_by(
    wanted: Sets, count: int, events: np.ndarray, sizes: np.ndarray, nodes: np.ndarray
) -> np.ndarray:
    """Whether each node wants the event; of each of these events there are so many nodes."""
    lengths = np.diff(wanted.starts)[events]
    table = np.zeros(len(events) * count, np.bool_)
    numbers = wanted.numbers[np.repeat(wanted.starts[events], lengths) + within(lengths)]
    places = np.arange(len(events)) * count
    table[np.repeat(places, lengths) + numbers] = True
    found: np.ndarray = table[np.repeat(places, sizes) + nodes]
    return found


def _flooded(steps: _Steps, publishers: np.ndarray) -> Receipts:
    """What one event from each of these publishers leads to.

    At each hop nodes are in the order in which the event came to them, which is that of the senders
    and then that of the senders' edges: the first of several copies is the one that counts.
    """
    count = steps.nodes
    is_seen = np.zeros(len(publishers) * count, np.bool_)
    rows = np.arange(len(publishers))
    nodes = publishers.astype(np.intp)
    senders = np.full(len(rows), -1, np.intp)
    is_seen[rows * count + nodes] = True
    hops = [(rows, nodes, senders)]
    while len(rows):
        parents, taken = steps.from_nodes(nodes, rows)
        targets = steps.targets.take(taken)
        cells = rows.take(parents) * count + targets
        # Among those are the senders, too: they have it.
        fresh = np.flatnonzero(~is_seen.take(cells))
        firsts = fresh.take(np.sort(np.unique(cells.take(fresh), return_index=True)[1]))
        is_seen[cells.take(firsts)] = True
        parents = parents.take(firsts)
        rows, senders, nodes = rows.take(parents), nodes.take(parents), targets.take(firsts)
        hops.append((rows, nodes, senders))
    rows, nodes, senders = (np.concatenate([hop[part] for hop in hops]) for part in range(3))
    # All neighbours have it then, and each sent it here unless it had it from here.
    is_sent = senders >= 0
    cells = (rows * count + senders)[is_sent]
    passed_on = np.bincount(cells, minlength=len(is_seen))
    return Receipts(
        events=rows,
        nodes=nodes.astype(np.int32),
        senders=senders.astype(np.int32),
        hops=np.repeat(np.arange(len(hops), dtype=np.int32), [len(hop[0]) for hop in hops]),
        messages=(steps.degrees[nodes] - passed_on[rows * count + nodes]).astype(np.int32),
        wanted=np.zeros(len(rows), np.bool_),
    )
