"""Graphs of `ChordTopology` objects, without any protocol: what nodes that know these peers do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from random import Random

from papers.ideal_ring import Arc, IdealRing
from peersub.overlays.chord.messages import RingMember
from peersub.overlays.chord.topology import ChordTopology
from peersub.overlays.core.identity import PeerId

BITS = 63
SOME = 12
"""Nodes that are tried in one ring, if there are more."""


@cache
def random_ring(nodes: int) -> IdealRing:
    return IdealRing.random(nodes, BITS, seed=2003)


@cache
def equidistant_ring(nodes: int) -> IdealRing:
    return IdealRing.equidistant(nodes, BITS)


def some_of(ring: IdealRing, count: int = SOME) -> list[int]:
    return Random(len(ring.keys)).sample(ring.keys, min(count, len(ring.keys)))


def member(key: int) -> RingMember:
    return RingMember(key, PeerId(f"{key:x}"))


def topology(ring: IdealRing, key: int, known: Iterable[int]) -> ChordTopology:
    made = ChordTopology(member(key).peer, key, ring.bits)
    made.know(member(other) for other in dict.fromkeys(known) if other != key)
    return made


@cache
def topologies_of(ring: IdealRing) -> dict[int, ChordTopology]:
    """Each node knows its ideal fingers and a few others, as nodes do that are linked to more."""
    random = Random(7)
    more = min(8, len(ring.keys))
    return {
        key: topology(ring, key, [*ring.fingers[key], *random.sample(ring.keys, more)])
        for key in ring.keys
    }


@dataclass(frozen=True)
class Hop:
    """A notification from one node to another, with the arc that is handed over."""

    sender: int
    receiver: int
    arc: Arc
    depth: int


def broadcast(topologies: Mapping[int, ChordTopology], publisher: int) -> list[Hop]:
    """All hops of a notification that every filter wants."""
    hops: list[Hop] = []
    waiting = [(publisher, topologies[publisher].whole(), 0)]
    for key, scope, depth in waiting:
        for peer, part in topologies[key].parts(scope, None):
            receiver = int(peer.node, 16)
            hops.append(Hop(key, receiver, part, depth + 1))
            assert len(hops) < 4 * len(topologies), "a notification without end"
            waiting.append((receiver, part, depth + 1))
    return hops
