"""Interests as sets of messages, and Algorithm 1: what Chand and Felber define, by brute force.

A message is a number of `MESSAGES`: whole ones and halves, so that an interval differs from the
whole numbers in it. An interest is written as a filter, and beside it stands the set of messages
that it wants, by which everything here is judged: the filter itself is never asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from random import Random
from typing import TypeVar

from peersub.filters.filter import Filter
from peersub.overlays.containment.structure import EdgeKind, TreeShape

__all__ = [
    "MESSAGES",
    "VIRTUAL_ROOT",
    "Interest",
    "algorithm_1",
    "chain_length",
    "depth_of",
    "edges_with_virtual_root",
    "f_c",
    "intervals",
    "some_numbers",
    "strict_containers",
    "within_indulgence",
]

SPAN = 12
MESSAGES = tuple(number / 2 for number in range(2 * SPAN))
VIRTUAL_ROOT = -1

_Peer = TypeVar("_Peer", int, str)


@dataclass(frozen=True, slots=True)
class Interest:
    """What a peer wants: the text of a filter, and the messages that match."""

    text: str
    wants: frozenset[float]

    @classmethod
    def between(cls, low: int, high: int) -> Interest:
        """All messages from one number to another."""
        wants = frozenset(message for message in MESSAGES if low <= message <= high)
        return cls(f"x BETWEEN {low} AND {high}", wants)

    @classmethod
    def any_of(cls, numbers: Iterable[int]) -> Interest:
        """Some whole numbers, at least one."""
        wanted = sorted(set(numbers))
        return cls(f"x IN ({', '.join(map(str, wanted))})", frozenset(map(float, wanted)))

    @property
    def filter(self) -> Filter:
        """As a peer registers it."""
        return _filter(self.text)

    def contains(self, other: Interest) -> bool:
        """Definition 1."""
        return other.wants <= self.wants

    def strictly_contains(self, other: Interest) -> bool:
        """Definition 1, without equivalence."""
        return other.wants < self.wants


@cache
def _filter(text: str) -> Filter:
    return Filter(text)


def intervals(random: Random, count: int, *, span: int = SPAN) -> list[Interest]:
    """Intervals: short ones, long ones, and equal ones."""
    ends = [sorted((random.randrange(span), random.randrange(span))) for _ in range(count)]
    return [Interest.between(low, high) for low, high in ends]


def some_numbers(random: Random, count: int, *, span: int = SPAN) -> list[Interest]:
    """Sets of a few numbers: an order of no particular shape."""
    return [
        Interest.any_of(random.sample(range(span), random.choice((1, 1, 2, 2, 3, 4, 6))))
        for _ in range(count)
    ]


# --- section 3: the metric -----------------------------------------------------------------------


def chain_length(chain: Sequence[Interest]) -> int:
    """How long a sequence is, if each one strictly contains the next; else 0."""
    is_chain = all(
        chain[place].strictly_contains(chain[place + 1]) for place in range(len(chain) - 1)
    )
    return len(chain) if is_chain else 0


def strict_containers(interest: Interest, registered: Iterable[Interest]) -> list[Interest]:
    return [other for other in registered if other.strictly_contains(interest)]


def depth_of(interest: Interest, registered: Collection[Interest]) -> int:
    """The longest chain of registered interests that contain one, itself at the end."""

    @cache
    def depth(one: Interest) -> int:
        return 1 + max(map(depth, strict_containers(one, registered)), default=0)

    return depth(interest)


def f_c(parent: Interest, child: Interest, registered: Collection[Interest]) -> float:
    """The proximity of section 3: `parent` is I, and `child` is I'."""
    if not parent.contains(child):
        return -inf
    return inf if child.contains(parent) else depth_of(parent, registered)


# --- section 2: routing --------------------------------------------------------------------------


def algorithm_1(
    neighbours: Mapping[int, Collection[int]], interested: Collection[int], publisher: int
) -> dict[int, list[int]]:
    """Who receives a message, and from whom, one entry for each copy; the publisher from nobody."""
    received: dict[int, list[int]] = {publisher: []}
    waiting = deque([publisher])
    while waiting:
        peer = waiting.popleft()
        if peer not in interested and peer != publisher:
            continue
        came_from = received[peer][:1]
        for other in neighbours[peer]:
            if other not in came_from:
                if other not in received:
                    waiting.append(other)
                received.setdefault(other, []).append(peer)
    return received


def within_indulgence(
    links: Mapping[_Peer, Collection[_Peer]],
    interested: Collection[_Peer],
    origin: _Peer,
    indulgence: int,
) -> set[_Peer]:
    """Who is reached over at most so many forwarders that do not want it: section 4's γ."""
    spent: dict[_Peer, float] = {origin: 0}
    waiting = deque([origin])
    while waiting:
        peer = waiting.popleft()
        after = spent[peer] + (peer not in interested)
        if after > indulgence:
            continue
        for other in links[peer]:
            if after < spent.get(other, inf):
                spent[other] = after
                waiting.append(other)
    return set(spent)


def edges_with_virtual_root(shape: TreeShape) -> dict[int, set[int]]:
    """The neighbours of each peer in the paper's tree: one root above all top-level peers."""
    neighbours: dict[int, set[int]] = {peer: set() for peer in range(len(shape))}
    neighbours[VIRTUAL_ROOT] = set()
    for peer, kind in enumerate(shape.kinds):
        is_top = kind in (EdgeKind.TOP, EdgeKind.CROWN)
        above = VIRTUAL_ROOT if is_top else shape.parents[peer]
        neighbours[peer].add(above)
        neighbours[above].add(peer)
    return neighbours
