"""The state that joins, subscribes and stabilisation lead to, set at once.

All keys are known here, so fingers, successor lists and links follow from the definitions. The rows
on the edges are the fixpoint of section 4.4: labels fall along every chain of updates, so the edges
are worked out from the largest label to the smallest, each from edges that are done. Sender and
receiver, and publishers that are served by the same edges, share the rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence

from peersub.filters.filter import Filter
from peersub.overlays.chord.joining import key_of
from peersub.overlays.chord.messages import RingMember
from peersub.overlays.chord.peer import ChordPeer
from peersub.overlays.chord.settings import ChordSettings
from peersub.overlays.chord.topology import ChordTopology, list_length
from peersub.overlays.core.identity import PeerId
from peersub.overlays.routing.combination import Combination
from peersub.overlays.routing.rows import Rows

__all__ = ["Tables", "converge", "finger_turns", "fixpoint", "free_keys", "ideal_topology"]

Tables = dict[PeerId, dict[PeerId, Rows]]
"""Per peer u and edge u -> v the rows on it."""

KEY_ATTEMPTS_MAX = 1_000_000
LIST_MAX = 256
"""More entries than any successor list has."""
PROGRESS_EVERY = 256
"""Peers, or edges, after which progress is reported."""


def converge(
    peers: Sequence[ChordPeer],
    subscriptions: Mapping[str, Mapping[str, Filter]],
    progress: Callable[[], None] = lambda: None,
) -> None:
    """Make the peers one ring, with these subscriptions by node and name, ready.

    It takes long for thousands of peers: `progress` is called again and again meanwhile.
    """
    if not peers:
        return
    ring = _placed(peers)
    links, horizons = _links(peers, ring)
    strategy = peers[0].engine.maintenance.strategy
    for place, (peer, member) in enumerate(zip(peers, ring, strict=True)):
        if not place % PROGRESS_EVERY:
            progress()
        # What one peer has found out about filters serves all that live in one process.
        peer.engine.maintenance.strategy = strategy
        peer.install(member.key, [ring[other] for other in links[place]], horizons[place])
        given = subscriptions.get(peer.me.node, {})
        peer.engine.home.install(given)
        for name, wanted in given.items():
            peer.engine.maintenance.subscribe(name, wanted)
    tables = fixpoint(peers, progress)
    sent: dict[PeerId, dict[PeerId, tuple[tuple[int, ...], Rows]]] = {p.me: {} for p in peers}
    for peer in peers:
        for edge, rows in tables[peer.me].items():
            sent[edge][peer.me] = (peer.topology.scope_of(edge), rows)
    for peer in peers:
        peer.engine.install(
            told=tables[peer.me], sent=sent[peer.me], connected=list(peer.ring.links)
        )


def _placed(peers: Sequence[ChordPeer]) -> list[RingMember]:
    """Where each stands."""
    keys = free_keys([(peer.me.node, peer.settings) for peer in peers], peers[0].seed)
    return [RingMember(key, peer.me) for key, peer in zip(keys, peers, strict=True)]


def free_keys(nodes: Iterable[tuple[str, ChordSettings]], seed: int) -> list[int]:
    """The keys of nodes that come one by one: whoever finds a key taken tries the next.

    Raises:
        ValueError: there are more nodes than keys.
    """
    taken: dict[int, None] = {}
    for node, settings in nodes:
        for attempt in range(KEY_ATTEMPTS_MAX):
            key = key_of(node, seed, settings, attempt)
            if key not in taken:
                break
        else:
            raise ValueError(f"no key of {settings.size} is left for {node}")
        taken[key] = None
    return list(taken)


def _links(
    peers: Sequence[ChordPeer], ring: Sequence[RingMember]
) -> tuple[list[dict[int, None]], list[int]]:
    """Per peer those it is linked to, from either side, and how far its successor list goes."""
    clockwise = sorted(range(len(ring)), key=lambda place: ring[place].key)
    keys = [ring[place].key for place in clockwise]
    links: list[dict[int, None]] = [{} for _ in ring]
    horizons = [0] * len(ring)
    for turn, place in enumerate(clockwise):
        following = _following(peers[place], turn, keys)
        if following:
            last = (keys[following[-1]] - keys[turn]) % peers[place].settings.size
            is_whole = len(following) == len(keys) - 1
            horizons[place] = peers[place].settings.size if is_whole else last
        fingers = finger_turns(turn, keys, peers[place].settings.key_bits)
        for other in (*fingers, *following):
            links[place][clockwise[other]] = None
            links[clockwise[other]][place] = None
    return links, horizons


def finger_turns(turn: int, keys: Sequence[int], key_bits: int) -> dict[int, int]:
    """The fingers of the node whose turn it is among sorted keys: their turns, with the label.

    They come counter-clockwise, the farthest one first.
    """
    count, size, key = len(keys), 1 << key_bits, keys[turn]
    found: dict[int, int] = {}
    for k in range(1, key_bits + 1):
        place = bisect_left(keys, (key + (size >> k)) % size) % count
        # The first node there may stand beyond the peer itself: then there is no such finger.
        if (keys[place] - key) % size >= size >> k:
            found.setdefault(place, k)
        if place == (turn + 1) % count:
            break
    return found


def _following(peer: ChordPeer, turn: int, keys: list[int]) -> list[int]:
    """The successor list of the peer whose turn it is, by their turns."""
    count, size, key = len(keys), peer.settings.size, keys[turn]
    near = [(turn + step) % count for step in range(1, min(LIST_MAX, count - 1) + 1)]
    offsets = [(keys[place] - key) % size for place in near]
    length = peer.settings.successors or list_length(offsets, size)
    return near[:length]


def ideal_topology(peer: ChordPeer, ring: Iterable[RingMember]) -> ChordTopology:
    """The topology of a peer that knows the whole ring."""
    topology = ChordTopology(peer.me, peer.key, peer.settings.key_bits)
    topology.know(member for member in ring if member.peer != peer.me)
    return topology


def fixpoint(peers: Sequence[ChordPeer], progress: Callable[[], None] = lambda: None) -> Tables:
    """The rows that belong on each edge, given the topologies and the local filters as they are."""
    by_name = {peer.me: peer for peer in peers}
    combinations: dict[PeerId, Combination] = {}
    for peer in peers:
        maintenance = peer.engine.maintenance
        exact = maintenance.settings.strategy.exact_reach
        combination = maintenance.strategy.combination(peer.topology if exact else None)
        combination.replace(None, maintenance.local_rows())
        combinations[peer.me] = combination
    by_label: dict[int, list[tuple[ChordPeer, PeerId]]] = {}
    for peer in peers:
        for edge in peer.topology.fingers():
            by_label.setdefault(edge.label, []).append((peer, edge.peer))
    tables: Tables = {peer.me: {} for peer in peers}
    for label in sorted(by_label, reverse=True):
        for number, (publisher, me) in enumerate(by_label[label]):
            if not number % PROGRESS_EVERY:
                progress()
            scope = publisher.topology.scope_of(me)
            served = by_name[me].topology.serves(publisher.me, scope)
            tables[publisher.me][me] = combinations[me].rows(served, scope)
        # Labels fall strictly: no edge of this label depends on another one of it.
        for publisher, me in by_label[label]:
            combinations[publisher.me].replace(me, tables[publisher.me][me])
    return tables
