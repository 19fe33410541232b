"""The ring of Terpstra et al. 2003 by its definitions, written without the code under test.

All keys are known here. Peers are looked up in the sorted list of keys, ways are found as Chord
finds them (the farthest finger that is not beyond the target), arcs are compared as intervals of
the line, and filters are bit masks over a small set of events, in which a union is exact.
`naive_*` say the same by walking the circle key by key: the oracle's own oracle.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from random import Random

Arc = tuple[int, int]
"""Where it begins, and how many keys it has."""
Edge = tuple[int, int]
"""The keys of its two ends."""


class IdealRing:
    """Nodes at these keys of a circle of 2^bits keys."""

    def __init__(self, keys: Iterable[int], bits: int) -> None:
        self.bits = bits
        self.size = 1 << bits
        self.keys = sorted(keys)
        assert len(set(self.keys)) == len(self.keys)

    @classmethod
    def random(cls, nodes: int, bits: int, seed: int) -> IdealRing:
        random = Random(f"{seed}/{nodes}")
        keys: dict[int, None] = {}
        while len(keys) < nodes:
            keys[random.getrandbits(bits)] = None
        return cls(keys, bits)

    @classmethod
    def equidistant(cls, nodes: int, bits: int) -> IdealRing:
        assert (1 << bits) % nodes == 0
        return cls(range(0, 1 << bits, (1 << bits) // nodes), bits)

    # --- places --------------------------------------------------------------------------------

    def ahead(self, start: int, end: int) -> int:
        """How far clockwise the end lies: less than once round."""
        return end - start if end >= start else end - start + self.size

    def first_at_or_after(self, key: int) -> int:
        place = bisect_left(self.keys, key % self.size)
        return self.keys[place] if place < len(self.keys) else self.keys[0]

    def successors(self, key: int, count: int) -> list[int]:
        """The next nodes clockwise, as many as there are."""
        place = bisect_left(self.keys, key)
        turned = self.keys[place + 1 :] + self.keys[:place]
        return turned[:count]

    def predecessor(self, key: int) -> int:
        return self.keys[bisect_left(self.keys, key) - 1]

    # --- section 4.1 ---------------------------------------------------------------------------

    def finger(self, key: int, k: int) -> int | None:
        """The first node that is 1/2^k of the circle or more ahead; the search ends at the node."""
        distance = self.size // 2**k
        found = self.first_at_or_after(key + distance)
        # Beyond the node itself the distance, counted from it, begins again at 0.
        return found if self.ahead(key, found) >= distance else None

    @cached_property
    def fingers(self) -> dict[int, dict[int, int]]:
        """Per node its fingers, clockwise, each with its smallest k."""
        return {key: self._fingers_of(key) for key in self.keys}

    def _fingers_of(self, key: int) -> dict[int, int]:
        labels: dict[int, int] = {}
        following = self.successors_map[key]
        for k in range(1, self.bits + 1):
            found = self.finger(key, k)
            if found is not None:
                labels.setdefault(found, k)
            if found == following:
                break
        return dict(sorted(labels.items(), key=lambda item: self.ahead(key, item[0])))

    @cached_property
    def successors_map(self) -> dict[int, int]:
        return dict(zip(self.keys, [*self.keys[1:], self.keys[0]], strict=True))

    @cached_property
    def arcs(self) -> dict[int, dict[int, Arc]]:
        """Per node u the arcs r_u(v), u's own first, then those of its fingers, clockwise."""
        found = {}
        for key in self.keys:
            peers = [key, *self.fingers[key]]
            ends = [*peers[1:], key]
            found[key] = {
                peer: (peer, self.ahead(peer, end) or self.size)
                for peer, end in zip(peers, ends, strict=True)
            }
        return found

    @cached_property
    def publishers(self) -> dict[int, list[int]]:
        """Per node those that have it as a finger: s(v) without v."""
        found: dict[int, list[int]] = {key: [] for key in self.keys}
        for key, fingers in self.fingers.items():
            for finger in fingers:
                found[finger].append(key)
        return found

    def edges(self) -> Iterator[Edge]:
        return ((key, finger) for key, fingers in self.fingers.items() for finger in fingers)

    def holder(self, key: int, target: int) -> int:
        """Whom a node holds responsible for a key: the last of its peers that is not beyond it."""
        reach = self.ahead(key, target)
        held = key
        for finger in self.fingers[key]:
            if self.ahead(key, finger) > reach:
                break
            held = finger
        return held

    # --- section 4.3 ---------------------------------------------------------------------------

    def path(self, start: int, end: int) -> list[int]:
        """The nodes on the way of a notification, both ends included."""
        path = [start]
        while path[-1] != end:
            path.append(self.holder(path[-1], end))
        return path

    def parents(self, publisher: int) -> dict[int, int]:
        """From whom each node gets a notification for all."""
        return {key: self.path(publisher, key)[-2] for key in self.keys if key != publisher}

    # --- sections 4.2 and 4.4 ------------------------------------------------------------------

    def meets(self, one: Arc, other: Arc) -> bool:
        """Whether some key lies on both arcs, as intervals of the line, laid out thrice."""
        return any(
            one[0] < other[0] + shift + other[1] and other[0] + shift < one[0] + one[1]
            for shift in (-self.size, 0, self.size)
        )

    @cached_property
    def dependents(self) -> dict[Edge, list[Edge]]:
        """Per edge v -> w the edges u -> v whose filter must hold its: r_u(v) meets r_v(w)."""
        return {
            (v, w): [
                (u, v) for u in self.publishers[v] if self.meets(self.arcs[u][v], self.arcs[v][w])
            ]
            for v, w in self.edges()
        }

    def is_acyclic(self) -> bool:
        """Whether no edge depends on itself, over others."""
        waits = dict.fromkeys(self.edges(), 0)
        for followers in self.dependents.values():
            for follower in followers:
                waits[follower] += 1
        free = [edge for edge, count in waits.items() if not count]
        done = 0
        while free:
            done += 1
            for follower in self.dependents[free.pop()]:
                waits[follower] -= 1
                if not waits[follower]:
                    free.append(follower)
        return done == len(waits)

    def least_filters(self, wanted: Mapping[int, int]) -> dict[Edge, int]:
        """The smallest filters that keep the invariant, given what the nodes want themselves.

        Masks grow until nothing changes, in any order: no argument about labels is used.
        """
        filters = dict.fromkeys(self.edges(), 0)
        waiting: list[tuple[Edge, int]] = [
            ((u, v), wanted.get(v, 0)) for u, v in filters if wanted.get(v, 0)
        ]
        while waiting:
            edge, mask = waiting.pop()
            if mask & ~filters[edge]:
                filters[edge] |= mask
                waiting += [(follower, filters[edge]) for follower in self.dependents[edge]]
        return filters

    def invariant_complaints(
        self, wanted: Mapping[int, int], filters: Mapping[Edge, int]
    ) -> list[str]:
        """Section 4.2: for all u -> v -> w, w = v included, f(v -> w) within f(u -> v)."""
        complaints = [
            f"{u:x} -> {v:x} wants less than {v:x} itself"
            for u, v in self.edges()
            if wanted.get(v, 0) & ~filters[u, v]
        ]
        for (v, w), followers in self.dependents.items():
            complaints += [
                f"{u:x} -> {v:x} wants less than {v:x} -> {w:x}"
                for u, _ in followers
                if filters[v, w] & ~filters[u, v]
            ]
        return complaints


# --- the same by walking, for small circles ----------------------------------------------------


def naive_finger(keys: set[int], size: int, key: int, k: int) -> int | None:
    """Walk clockwise, one key at a time, from 1/2^k of the circle ahead; stop at the node."""
    for step in range(size // 2**k, size):
        if (key + step) % size in keys:
            return (key + step) % size
    return None


def naive_holder(ring: IdealRing, key: int, target: int) -> int:
    """Walk back from the target to the first peer of the node, or to the node."""
    while target != key and target not in ring.fingers[key]:
        target = (target - 1) % ring.size
    return target


def naive_keys(arc: Arc, size: int) -> set[int]:
    return {(arc[0] + step) % size for step in range(arc[1])}
