"""`ChordTopology`: fingers, responsibilities, and how a scope is split (sections 4.1 and 4.3).

The topology is a function of the peers that are *known*: members of the ring to which a link is up.
Seen from the peer u at key `key`, on a circle of 2^m keys:

* finger k (k = 1 .. m) is the first known peer at clockwise distance 2^m / 2^k or more. The search
  ends at u: where it would pass u there is no finger k. Several k may give one peer: that is one
  edge, whose *label* is the smallest such k. Finger m is the immediate successor.
* u and its fingers, in clockwise order, split the circle: r_u(v) runs from v up to the next of
  them, r_u(u) from u up to its successor. These arcs are a partition of the circle.
* a scope is an arc, `(start, length)`. It normally begins at the peer that serves it, and so do its
  parts; then the edges that meet it are a prefix of `edges()`.

Invariants: the arcs partition the circle (`partition`); parts are disjoint and lie in the scope.

Departures from the paper: more known peers than fingers are welcome, they make the fingers right;
a scope may begin anywhere, because what was delegated to a peer that has died is delegated anew as
it is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence

from peersub.overlays.chord import arcs
from peersub.overlays.chord.arcs import Arc
from peersub.overlays.chord.messages import RingMember
from peersub.overlays.core.identity import PeerId
from peersub.overlays.routing.topology import NOWHERE, Reach, Scope

__all__ = ["REACH_ARCS_MAX", "SUCCESSORS_MIN", "ChordTopology", "Edge", "list_length"]

SUCCESSORS_MIN = 4
"""No successor list is planned to be shorter than this."""
REACH_ARCS_MAX = 8
"""Arcs in the reach of one row."""


class Edge:
    """A finger: the peer, its key, its smallest k, and the arc it is responsible for."""

    __slots__ = ("arc", "label", "offset", "peer")

    def __init__(self, peer: PeerId, label: int, offset: int, arc: Arc) -> None:
        self.peer = peer
        self.label = label
        self.offset = offset
        """How far clockwise of this peer it stands."""
        self.arc = arc

    def __repr__(self) -> str:
        return f"Edge({self.peer}, label={self.label}, arc={self.arc})"


class ChordTopology:
    """The fingers of one peer and what each is responsible for."""

    __slots__ = (
        "_by_peer",
        "_edges",
        "_offsets",
        "_peers",
        "_rest",
        "_ring",
        "bits",
        "key",
        "me",
        "size",
    )

    def __init__(self, me: PeerId, key: int, bits: int) -> None:
        assert 0 <= key < 1 << bits
        self.me = me
        self.key = key
        self.bits = bits
        self.size = 1 << bits
        self._ring: list[RingMember] = []
        """The known members, clockwise from this peer; `_offsets` are their distances."""
        self._offsets: list[int] = []
        self._edges: list[Edge] = []
        self._peers: list[PeerId] = []
        self._by_peer: dict[PeerId, Edge] = {}
        self._rest: tuple[tuple[PeerId, ...], ChordTopology] | None = None
        """The topology that there would be without some peers, and which these are."""

    # --- who is known --------------------------------------------------------------------------

    def know(self, members: Iterable[RingMember]) -> None:
        """These members, and no others, are known. No two stand at one key, none at this one's."""
        size, key = self.size, self.key
        placed = sorted(((member.key - key) % size, member) for member in members)
        self._offsets = [offset for offset, _ in placed]
        self._ring = [member for _, member in placed]
        assert all(self._offsets), "a known peer stands at this peer's own key"
        assert len(dict.fromkeys(self._offsets)) == len(placed), "two known peers share a key"
        self._place_fingers()
        self._rest = None

    def move(self, key: int) -> None:
        """Stand at another key, among the same known members."""
        assert 0 <= key < self.size
        self.key = key
        self.know(self._ring)

    def _place_fingers(self) -> None:
        labels: dict[int, int] = {}
        places = self._offsets
        if places:
            for k in range(1, self.bits + 1):
                place = bisect_left(places, self.size >> k)
                if place < len(places):
                    labels.setdefault(place, k)
                if not place:
                    break  # all further k give the successor too
        ordered = sorted(labels)
        ends = [*(places[place] for place in ordered), self.size][1:]
        self._edges = [
            Edge(
                self._ring[place].peer,
                labels[place],
                places[place],
                (self._ring[place].key, end - places[place]),
            )
            for place, end in zip(ordered, ends, strict=True)
        ]
        self._peers = [edge.peer for edge in self._edges]
        self._by_peer = {edge.peer: edge for edge in self._edges}

    @property
    def known(self) -> Sequence[RingMember]:
        """The known members, clockwise from this peer."""
        return self._ring

    def successors(self, count: int) -> list[RingMember]:
        """The first known members clockwise, nearest first."""
        return self._ring[:count]

    def predecessors(self, count: int) -> list[RingMember]:
        """The first known members counter-clockwise, nearest first."""
        return self._ring[: -count - 1 : -1] if count else []

    @property
    def successor(self) -> RingMember | None:
        """The next known member clockwise; None if this peer is alone."""
        return self._ring[0] if self._ring else None

    @property
    def predecessor(self) -> RingMember | None:
        """The next known member counter-clockwise; None if this peer is alone."""
        return self._ring[-1] if self._ring else None

    def successors_wanted(self) -> int:
        """How long the successor list of a peer that knows the whole ring is; see `list_length`."""
        return list_length(self._offsets, self.size) or len(self._offsets)

    def offsets_up_to(self, horizon: int) -> list[int]:
        """How far the known members stand clockwise, of those that stand no farther than this."""
        return self._offsets[: bisect_right(self._offsets, horizon)]

    # --- the topology of routing ---------------------------------------------------------------

    def whole(self) -> Scope:
        """The entire circle, beginning here."""
        return (self.key, self.size)

    def holds_me(self, scope: Scope) -> bool:
        """Whether this peer's key lies on the arc."""
        return (self.key - scope[0]) % self.size < scope[1]

    def edges(self) -> Sequence[PeerId]:
        """The fingers, clockwise: p(u) without u."""
        return self._peers

    def scope_of(self, peer: PeerId) -> Scope:
        """r_u(v); nothing if the peer is no finger."""
        edge = self._by_peer.get(peer)
        return NOWHERE if edge is None else edge.arc

    def label_of(self, peer: PeerId) -> int:
        """The smallest k whose finger the peer is; bits + 1 for this peer itself (section 4.4)."""
        return self.bits + 1 if peer == self.me else self._by_peer[peer].label

    def label_or_none(self, peer: PeerId) -> int | None:
        """The label of the edge to the peer; None if there is no such edge."""
        edge = self._by_peer.get(peer)
        return None if edge is None else edge.label

    def parts(self, scope: Scope, sender: PeerId | None) -> list[tuple[PeerId, Scope]]:
        """The scope split among the fingers, largest part first."""
        start, length = scope
        found: list[tuple[PeerId, Scope]] = []
        if start == self.key:
            for edge in self._edges:
                rest = length - edge.offset
                if rest <= 0:
                    break
                arc = edge.arc
                found.append((edge.peer, arc if arc[1] <= rest else (arc[0], rest)))
        else:
            for edge in self._edges:
                for piece in arcs.intersection((start, length), edge.arc, self.size):
                    found.append((edge.peer, piece))
        found.sort(key=_part_length, reverse=True)
        return found

    def parts_around(self, scope: Scope, avoided: Collection[PeerId]) -> list[tuple[PeerId, Scope]]:
        """The scope split as if the avoided peers were gone, but for their own keys: theirs.

        Whoever gets a part that an avoided peer should have had stands between this peer and that
        one, or on the part itself: so parts that are split again and again come to an end.
        """
        start, length = scope
        away = [
            (member.peer, (member.key - start) % self.size)
            for member in self._ring
            if member.peer in avoided and (member.key - start) % self.size < length
        ]
        found: list[tuple[PeerId, Scope]] = [
            (peer, ((start + offset) % self.size, 1)) for peer, offset in away
        ]
        cuts = [offset for _, offset in away]
        for peer, (begin, reach) in self._without(avoided).parts(scope, None):
            offset = (begin - start) % self.size
            found += [
                (peer, ((start + low) % self.size, high - low))
                for low, high in _between(offset, offset + reach, cuts)
            ]
        return found

    def _without(self, avoided: Collection[PeerId]) -> ChordTopology:
        """The topology that there would be if these peers were not known."""
        peers = tuple(avoided)
        if self._rest is None or self._rest[0] != peers:
            rest = ChordTopology(self.me, self.key, self.bits)
            rest.know(member for member in self._ring if member.peer not in avoided)
            self._rest = peers, rest
        return self._rest[1]

    def serves(self, publisher: PeerId, scope: Scope) -> Sequence[PeerId]:
        """The fingers whose arcs meet the scope, clockwise."""
        start, length = scope
        if start == self.key:
            # Arcs begin at their fingers: one meets the scope if its finger stands on it.
            count = 0
            for edge in self._edges:
                if edge.offset >= length:
                    break
                count += 1
            return self._peers if count == len(self._peers) else self._peers[:count]
        given = (start, length)
        return [e.peer for e in self._edges if arcs.overlap(given, e.arc, self.size)]

    def parse_scope(self, scope: Scope) -> str | None:
        """Why the scope is no arc of this circle, or None."""
        if len(scope) != 2:
            return f"a scope on the circle is a start and a length, not {len(scope)} numbers"
        start, length = scope
        if not (0 <= start < self.size and 1 <= length <= self.size):
            return f"no arc of a circle of 2^{self.bits} keys: {start}, {length}"
        return None

    # --- where the owners of filters are (`routing.topology.Reach`) -----------------------------

    @property
    def reach(self) -> Reach:
        """Arcs."""
        return self

    def own_reach(self) -> Scope:
        """The key of this peer alone."""
        return (self.key, 1)

    def meets(self, reach: Scope, scope: Scope) -> bool:
        """Whether one of the arcs overlaps one of the others; what is unknown may be anywhere."""
        if not reach or not scope:
            return True
        size = self.size
        return any(
            arcs.overlap(one, other, size) for one in _pairs(reach) for other in _pairs(scope)
        )

    def united(self, first: Scope, second: Scope) -> Scope:
        """The arcs of both, with small gaps closed where there are too many."""
        if not first or not second:
            return NOWHERE
        if first == second:
            return first
        joined = arcs.united([*_pairs(first), *_pairs(second)], self.size)
        return tuple(
            number for arc in arcs.bounded(joined, REACH_ARCS_MAX, self.size) for number in arc
        )

    def clipped(self, reach: Scope, scope: Scope) -> Scope | None:
        """What of the arcs lies on the scope's; None if nothing does, all of it if unknown."""
        if not reach or not scope:
            return reach or scope
        size = self.size
        pieces = [
            piece
            for one in _pairs(reach)
            for other in _pairs(scope)
            for piece in arcs.intersection(one, other, size)
        ]
        if not pieces:
            return None
        joined = arcs.bounded(arcs.united(pieces, size), REACH_ARCS_MAX, size)
        return tuple(number for arc in joined for number in arc)

    def within(self, inner: Scope, outer: Scope) -> bool:
        """Whether each of the arcs lies on one of the outer ones, which do not touch."""
        if not inner or not outer:
            return inner == outer
        size = self.size
        return all(
            any(arcs.within(one, other, size) for other in _pairs(outer)) for one in _pairs(inner)
        )

    # --- what fingers and predecessors mean for control notifications --------------------------

    def partition(self) -> list[Arc]:
        """r_u(u) and r_u(v) of each finger, clockwise: together the circle."""
        own_length = self._edges[0].offset if self._edges else self.size
        return [(self.key, own_length), *(edge.arc for edge in self._edges)]

    def fingers(self) -> Sequence[Edge]:
        """The edges with their labels and arcs, clockwise."""
        return self._edges

    def finger(self, k: int) -> RingMember | None:
        """Finger k, or None where the search reaches this peer."""
        place = bisect_left(self._offsets, self.size >> k)
        return self._ring[place] if place < len(self._ring) else None

    def located_here(self) -> Arc:
        """(predecessor, me]: the keys whose first node at or after them is this one."""
        predecessor = self.predecessor
        if predecessor is None:
            return ((self.key + 1) % self.size, self.size)
        return (
            (predecessor.key + 1) % self.size,
            (self.key - predecessor.key) % self.size,
        )

    def adopts(self) -> list[Arc]:
        """The keys at which a newcomer becomes a finger: [u + 2^m/2^k, finger k) for every k.

        Where there is no finger k, the range runs up to this peer. So a node that is alone adopts
        whoever comes (the paper leaves both undefined).
        """
        found: list[Arc] = []
        for k in range(1, self.bits + 1):
            distance = self.size >> k
            place = bisect_left(self._offsets, distance)
            end = self._offsets[place] if place < len(self._offsets) else self.size
            if self._offsets and not place:
                # From here on all ranges end at the successor, and the last holds the others.
                distance = 1
            if end > distance:
                found.append(((self.key + distance) % self.size, end - distance))
            if self._offsets and not place:
                break
        return arcs.united(found, self.size)

    def adopts_at(self, key: int) -> bool:
        """Whether a newcomer at the key becomes a finger: whether one of `adopts()` holds the key.

        Of the distances 2^m / 2^k up to the newcomer the largest decides: if nobody stands between
        a smaller one and the newcomer, then nobody does from there on.
        """
        offset = (key - self.key) % self.size
        if not offset:
            return False
        place = bisect_left(self._offsets, 1 << offset.bit_length() - 1)
        return place == len(self._offsets) or offset < self._offsets[place]


def list_length(offsets: Sequence[int], size: int) -> int | None:
    """How long a successor list has to be: 2 log2 N, with N estimated from the list itself.

    The expected number of nodes that lose a list of r when half of N nodes fail is N / 2^r: with
    log2 N entries one node is cut off, with twice as many hardly ever one is (the paper has log N).
    It is the smallest r for which the first r successors, `offsets` away, stand so far apart that r
    is enough. So it depends on these r only. None if more would be needed than there are.

    >>> list_length(range(64, 1 << 16, 64), 1 << 16), list_length([64, 128], 1 << 16)
    (20, None)
    """
    for count, offset in enumerate(offsets, 1):
        ring_size = count * size // offset
        if count >= SUCCESSORS_MIN and count >= 2 * (ring_size - 1).bit_length():
            return count
    return None


def _between(low: int, high: int, cuts: Iterable[int]) -> list[tuple[int, int]]:
    """What is left of the numbers from low up to high without some of them, as such stretches.

    >>> _between(2, 9, [5, 2, 12]), _between(4, 5, [4])
    ([(3, 5), (6, 9)], [])
    """
    ends = [cut for cut in sorted(cuts) if low <= cut < high]
    begins = [low, *(cut + 1 for cut in ends)]
    return [(begin, end) for begin, end in zip(begins, [*ends, high], strict=True) if begin < end]


def _pairs(scope: Scope) -> list[Arc]:
    return list(zip(scope[::2], scope[1::2], strict=True))


def _part_length(part: tuple[PeerId, Scope]) -> int:
    return part[1][1]
