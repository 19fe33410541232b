"""A layer in synchronous rounds, as arrays: all sinks take their turns, then the next round begins.

That is edge reversal as Barbosa and Gafni look at it, and the measure of the digest: how many
rounds pass until an event has reached all members, which share of them is on turn, how many copies
of the event are sent. Turns do not depend on events, so any number of events travels at once.

In a round every sink sends what it has got in earlier rounds, and has not sent yet, to all its
neighbours; these have it from then on. Sinks are never neighbours, so the order within a round
matters only where several bring an event to the same member: then the first of them counts, by
number, as the one it came from.

Laws (Datta et al. 2003, section 3; `orientation`): neighbours take turns strictly in turn, so their
numbers of turns differ by at most one, and those of any two members by at most their distance.
Every event reaches every member of a connected layer. Each member sends it once to each neighbour:
2 * edges copies, or 2 * edges - (members - 1) if nobody sends it back to where it came from first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from peersub.overlays.dag.graph import LayerGraph
from peersub.overlays.dag.orientation import VALUES

__all__ = ["NEVER", "LayerRounds", "Spreading", "spread"]

NEVER: Final = -1
"""In place of a round or of a member: the event has not come."""


class LayerRounds:
    """A layer that goes through rounds. It begins where its graph does, before anybody's turn."""

    def __init__(self, graph: LayerGraph) -> None:
        degrees = np.array([len(others) for others in graph.neighbours], np.int64)
        self.members = len(degrees)
        self.starts = np.concatenate([[0], np.cumsum(degrees)])
        self.targets = np.array([o for others in graph.neighbours for o in others], np.int64)
        """Each edge is there twice, once from each of its ends."""
        self.origins = np.repeat(np.arange(self.members), degrees)
        self.vals = np.zeros(self.members, np.int64)
        self.lids = np.array(graph.lids, np.int64)
        self.turns = np.zeros(self.members, np.int64)
        """How many turns each member has taken."""
        self.rounds = 0
        self._degrees = degrees

    @property
    def edges(self) -> int:
        """How many edges there are, each counted once."""
        return len(self.targets) // 2

    def points_at_origins(self) -> np.ndarray:
        """Per edge whether it points at the member that it is listed for (Def. 3.2)."""
        gaps = (self.vals[self.targets] - self.vals[self.origins]) % VALUES
        is_lower = self.lids[self.origins] < self.lids[self.targets]
        found: np.ndarray = (gaps == 1) | ((gaps == 0) & is_lower)
        return found

    def sinks(self) -> np.ndarray:
        """Those whose turn it is (Def. 3.3), by number. Who has no neighbour takes no turns."""
        held = np.bincount(self.origins[self.points_at_origins()], minlength=self.members)
        return np.flatnonzero((held == self._degrees) & (self._degrees > 0))

    def take_turns(self) -> np.ndarray:
        """One round: all sinks turn their edges outwards (LLRO). Gives those who did."""
        sinks = self.sinks()
        is_sink = np.zeros(self.members, np.bool_)
        is_sink[sinks] = True
        after = (self.vals + 1) % VALUES
        # R2: those with neighbours of the next value go above the largest lid of these.
        mine = np.flatnonzero(is_sink[self.origins])
        ahead = mine[self.vals[self.targets[mine]] == after[self.origins[mine]]]
        highest = np.full(self.members, NEVER)
        np.maximum.at(highest, self.origins[ahead], self.lids[self.targets[ahead]])
        self._lift(mine, highest)
        self.vals[sinks] = after[sinks]
        self.turns[sinks] += 1
        self.rounds += 1
        return sinks

    def _lift(self, mine: np.ndarray, highest: np.ndarray) -> None:
        """Give each sink of R2 the first lid above these that no neighbour of it has."""
        lids = highest + 1
        while True:
            # One more than a lid that is taken may be taken as well: at most once per neighbour.
            is_taken = self.lids[self.targets[mine]] == lids[self.origins[mine]]
            clashing = np.unique(self.origins[mine[is_taken]])
            clashing = clashing[highest[clashing] > NEVER]
            if not len(clashing):
                break
            lids[clashing] += 1
        lifted = np.flatnonzero(highest > NEVER)
        self.lids[lifted] = lids[lifted]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreading:
    """How events spread. Rows are members, columns events; rounds count from the layer's start."""

    arrivals: np.ndarray
    """The round in which an event came to a member; for its publisher the last one before it was
    published. `NEVER` if it did not come."""
    senders: np.ndarray
    """From whom it came first; `NEVER` where it was published or did not come."""
    sent: np.ndarray
    """The round in which the member sent it on; `NEVER` if it did not."""
    copies: np.ndarray
    """Per event how many copies were sent, to all neighbours of all members."""
    rounds: np.ndarray
    """Per event how many rounds it took to reach everybody; `NEVER` if it did not."""
    sinks_share: float
    """Which part of the members was on turn, on average over the rounds."""

    @property
    def copies_without_senders(self) -> np.ndarray:
        """Copies per event if nobody sends it back to whom it came from first."""
        skipped = ((self.senders != NEVER) & (self.sent != NEVER)).sum(axis=0)
        found: np.ndarray = self.copies - skipped
        return found


def spread(layer: LayerRounds, publishers: np.ndarray, begins: np.ndarray, last: int) -> Spreading:
    """Let events travel; the layer goes through rounds until all have been sent by everybody.

    Args:
        layer: as it is before the first of these rounds.
        publishers: per event who publishes it.
        begins: per event after how many rounds of the layer it is published.
        last: the round after which to give up.
    """
    assert begins.min(initial=layer.rounds) >= layer.rounds, "an event begins before the layer"
    shape = (layer.members, len(publishers))
    arrivals = np.full(shape, NEVER, np.int32)
    senders = np.full(shape, NEVER, np.int32)
    sent = np.full(shape, NEVER, np.int32)
    events = np.arange(len(publishers))
    arrivals[publishers, events] = begins
    is_there = np.zeros(shape, np.bool_)
    waiting = np.sort(np.unique(begins)).tolist()
    turns, begun = 0, layer.rounds
    while layer.rounds < last:
        if waiting and waiting[0] == layer.rounds:
            those = begins == waiting.pop(0)
            is_there[publishers[those], events[those]] = True
        if not waiting and (sent != NEVER).all():
            break
        sinks = layer.take_turns()
        turns += len(sinks)
        fresh = is_there[sinks] & (sent[sinks] == NEVER)
        sent[sinks] = np.where(fresh, layer.rounds, sent[sinks])
        for sink, brought in zip(sinks.tolist(), fresh, strict=True):
            if not brought.any():
                continue
            others = layer.targets[layer.starts[sink] : layer.starts[sink + 1]]
            new = brought & ~is_there[others]
            is_there[others] |= new
            arrivals[others] = np.where(new, layer.rounds, arrivals[others])
            senders[others] = np.where(new, sink, senders[others])
    degrees = np.diff(layer.starts)
    reached = arrivals.max(axis=0, initial=NEVER) - begins
    return Spreading(
        arrivals=arrivals,
        senders=senders,
        sent=sent,
        copies=degrees @ (sent != NEVER),
        rounds=np.where(is_there.all(axis=0), reached, NEVER),
        sinks_share=turns / max(1, layer.members * (layer.rounds - begun)),
    )
