"""Fingers, responsibilities and splitting, against the definitions read out naively."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from peersub.overlays.chord.messages import RingMember
from peersub.overlays.chord.topology import ChordTopology
from peersub.overlays.core.identity import PeerId
from peersub.overlays.routing.topology import NOWHERE

BITS = 6
SIZE = 1 << BITS


def member(key: int) -> RingMember:
    return RingMember(key, PeerId(f"n{key}"))


def topology(key: int, others: list[int], bits: int = BITS) -> ChordTopology:
    made = ChordTopology(PeerId(f"n{key}"), key, bits)
    made.know([member(other) for other in others if other != key])
    return made


rings = st.sets(st.integers(0, SIZE - 1), min_size=1, max_size=20).map(sorted)


@st.composite
def places(draw: st.DrawFn) -> tuple[int, list[int]]:
    ring = draw(rings)
    return draw(st.sampled_from(ring)), ring


def walk(start: int, stop: int, nodes: set[int], size: int) -> int | None:
    """The first node at or after `start`, one key at a time, or None if `stop` comes first."""
    key = start % size
    for _ in range(size):
        if key == stop:
            return None
        if key in nodes:
            return key
        key = (key + 1) % size
    return None


def naive_fingers(key: int, ring: list[int]) -> dict[int, int]:
    """Finger k by walking the circle key by key: key of the finger by smallest k."""
    found: dict[int, int] = {}
    for k in range(1, BITS + 1):
        finger = walk(key + SIZE // 2**k, key, set(ring), SIZE)
        if finger is not None and finger not in found:
            found[finger] = k
    return found


@given(places())
def test_fingers_and_labels_are_the_definition(place: tuple[int, list[int]]) -> None:
    """Rows 2 and 3: the search never passes this peer; one edge per peer, smallest k."""
    key, ring = place
    chord = topology(key, ring)
    naive = naive_fingers(key, ring)
    assert {edge.arc[0]: edge.label for edge in chord.fingers()} == naive
    distances = [(edge.arc[0] - key) % SIZE for edge in chord.fingers()]
    assert distances == sorted(distances)
    for k in range(1, BITS + 1):
        finger = chord.finger(k)
        walked = walk(key + SIZE // 2**k, key, set(ring), SIZE)
        assert (finger.key if finger else None) == walked


@given(places())
def test_the_first_finger_is_the_successor(place: tuple[int, list[int]]) -> None:
    key, ring = place
    chord = topology(key, ring)
    successor = walk(key + 1, key, set(ring), SIZE)
    assert (chord.successor.key if chord.successor else None) == successor
    assert list(chord.edges())[:1] == ([] if successor is None else [PeerId(f"n{successor}")])


@given(places())
def test_responsibilities_partition_the_circle(place: tuple[int, list[int]]) -> None:
    key, ring = place
    chord = topology(key, ring)
    owners: dict[int, int] = {}
    for start, length in chord.partition():
        for step in range(length):
            assert owners.setdefault((start + step) % SIZE, start) == start
    assert len(owners) == SIZE
    for start in owners.values():
        assert owners[start] == start
    # Only this peer itself lives on its own arc.
    own = [other for other in ring if owners[other] == key]
    assert own == [key]


@given(places(), st.integers(0, SIZE - 1), st.integers(1, SIZE))
def test_parts_are_disjoint_within_the_scope_and_reach_all_in_it(
    place: tuple[int, list[int]], start: int, length: int
) -> None:
    key, ring = place
    check_parts(key, ring, start, length)
    check_parts(key, ring, key, length)


def check_parts(key: int, ring: list[int], start: int, length: int) -> None:
    chord = topology(key, ring)
    scope = {(start + step) % SIZE for step in range(length)}
    seen: set[int] = set()
    parts = chord.parts((start, length), None)
    for peer, (part_start, part_length) in parts:
        part = {(part_start + step) % SIZE for step in range(part_length)}
        assert part <= scope
        assert not part & seen
        seen |= part
        owner_start, owner_length = chord.scope_of(peer)
        assert part <= {(owner_start + step) % SIZE for step in range(owner_length)}
        if start == key:
            assert PeerId(f"n{part_start}") == peer
    assert {node for node in ring if node in scope} - {key} <= seen
    assert chord.holds_me((start, length)) == (key in scope)
    sizes = [part_length for _, (_, part_length) in parts]
    assert sizes == sorted(sizes, reverse=True)


@given(places(), st.integers(0, SIZE - 1), st.integers(1, SIZE))
def test_serves_are_the_edges_that_meet_the_scope(
    place: tuple[int, list[int]], start: int, length: int
) -> None:
    key, ring = place
    chord = topology(key, ring)
    for begin in (start, key):
        scope = {(begin + step) % SIZE for step in range(length)}
        expected = [
            edge.peer
            for edge in chord.fingers()
            if scope & {(edge.arc[0] + step) % SIZE for step in range(edge.arc[1])}
        ]
        served = list(chord.serves(PeerId("publisher"), (begin, length)))
        assert served == expected
        if begin == key:
            assert served == list(chord.edges())[: len(served)]


@given(places(), st.data())
def test_ways_round_reach_the_others_once_and_leave_each_peer_in_doubt_its_key(
    place: tuple[int, list[int]], data: st.DataObject
) -> None:
    """An event goes from node to node; all agree on whom to avoid, and know the whole ring."""
    publisher, ring = place
    avoided = data.draw(st.sets(st.sampled_from(ring)).map(sorted)) if len(ring) > 1 else []
    avoided = [key for key in avoided if key != publisher]
    in_doubt = [member(key).peer for key in avoided]
    served: list[int] = []
    under_way = [(publisher, (publisher, SIZE))]
    while under_way:
        assert len(served) + len(under_way) < 10 * SIZE, "it goes round in circles"
        key, scope = under_way.pop()
        if key in avoided:
            assert scope == (key, 1)
            served.append(key)
            continue
        here = topology(key, ring)
        keys = [(scope[0] + step) % SIZE for step in range(scope[1])]
        served += [key] if key in keys else []
        left = set(keys) - {key}
        for peer, part in here.parts(scope, None):
            pieces = here.parts_around(part, in_doubt) if peer in in_doubt else [(peer, part)]
            for other, (start, length) in pieces:
                piece = {(start + step) % SIZE for step in range(length)}
                assert piece <= left, "parts overlap, or leave the scope"
                left -= piece
                under_way.append((int(other.node[1:]), (start, length)))
    assert sorted(served) == ring


@given(rings)
def test_labels_fall_along_dependent_edges(ring: list[int]) -> None:
    """Section 4.4: if r_u(v) and r_v(w) overlap, the label of v at u is below that of w at v."""
    chords = {key: topology(key, ring) for key in ring}
    for chord in chords.values():
        for edge in chord.fingers():
            inner = chords[edge.arc[0]]
            for peer in inner.serves(chord.me, edge.arc):
                assert edge.label < inner.label_of(peer)
            assert edge.label < inner.label_of(inner.me)


@given(places())
def test_row_11_exactly_one_node_answers_for_each_key(place: tuple[int, list[int]]) -> None:
    """Row 11: (predecessor, me] is open at the predecessor and closed here."""
    _, ring = place
    answers: dict[int, list[int]] = {key: [] for key in range(SIZE)}
    for node in ring:
        start, length = topology(node, ring).located_here()
        for step in range(length):
            answers[(start + step) % SIZE].append(node)
    for key, nodes in answers.items():
        first = walk(key, -1, set(ring), SIZE)
        assert nodes == [first]


@given(places(), st.integers(0, SIZE - 1))
def test_row_16_a_newcomer_is_adopted_exactly_where_it_becomes_a_finger(
    place: tuple[int, list[int]], newcomer: int
) -> None:
    key, ring = place
    chord = topology(key, ring)
    adopted = any((newcomer - start) % SIZE < length for start, length in chord.adopts())
    assert chord.adopts_at(newcomer) == adopted
    if newcomer in ring:
        # Taken keys, this peer's own among them, are never adopted.
        assert not adopted
    else:
        grown = naive_fingers(key, sorted([*ring, newcomer]))
        assert adopted == (newcomer in grown)


def test_row_16_a_node_that_is_alone_adopts_whoever_comes() -> None:
    alone = topology(9, [])
    assert alone.adopts() == [(10, SIZE - 1)]
    assert alone.located_here() == (10, SIZE)
    assert alone.partition() == [(9, SIZE)]
    assert alone.edges() == []
    assert alone.parts(alone.whole(), None) == []


def test_neighbours_are_nearest_first_both_ways() -> None:
    chord = topology(10, [2, 7, 20, 40, 60])
    assert [found.key for found in chord.successors(3)] == [20, 40, 60]
    assert [found.key for found in chord.predecessors(3)] == [7, 2, 60]
    assert [found.key for found in chord.predecessors(9)] == [7, 2, 60, 40, 20]
    assert chord.predecessors(0) == []


def test_row_6_the_successor_list_is_twice_the_logarithm_of_the_ring() -> None:
    for bits in (4, 6, 8, 10):
        spacing = 1 << 20 - bits
        chord = topology(0, list(range(0, 1 << 20, spacing)), 20)
        assert chord.successors_wanted() == 2 * bits
    # It depends on these members only, not on how many more are known.
    nodes = list(range(0, 1 << 20, 1 << 10))
    assert topology(0, nodes[:30], 20).successors_wanted() == 20


def test_scopes_from_the_wire_are_checked() -> None:
    chord = topology(3, [20])
    assert chord.parse_scope((3, SIZE)) is None
    for bad in ((), (3,), (3, 0), (3, SIZE + 1), (-1, 4), (SIZE, 4), (1, 2, 3)):
        assert chord.parse_scope(bad) is not None
    assert chord.scope_of(PeerId("stranger")) == NOWHERE


def test_order_of_edges_is_clockwise_and_prefixes_nest() -> None:
    chord = topology(50, [3, 17, 33, 51, 55, 60])
    served = [chord.serves(PeerId("p"), (50, length)) for length in range(1, SIZE + 1)]
    for shorter, longer in pairwise(served):
        assert list(longer)[: len(shorter)] == list(shorter)


reaches = st.lists(
    st.tuples(st.integers(0, SIZE - 1), st.integers(1, SIZE)), min_size=1, max_size=4
)


def keys_of(scope: tuple[int, ...]) -> set[int]:
    return {
        (start + step) % SIZE
        for start, length in zip(scope[::2], scope[1::2], strict=True)
        for step in range(length)
    }


@given(reaches, reaches)
def test_reach_is_sets_of_keys(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    chord = topology(5, [20, 40])
    first, second = chord.own_reach(), chord.own_reach()
    assert keys_of(first) == {5}
    for arc in one:
        first = chord.united(first, arc)
    for arc in other:
        second = chord.united(second, arc)
    assert keys_of(first) == {5}.union(*(keys_of(arc) for arc in one))
    both = chord.united(first, second)
    assert both == chord.united(second, first)
    assert keys_of(both) == keys_of(first) | keys_of(second)
    assert chord.within(first, second) == (keys_of(first) <= keys_of(second))
    for arc in other:
        assert chord.meets(first, arc) == bool(keys_of(first) & keys_of(arc))
    assert chord.meets((), second) and chord.united((), second) == ()
    assert chord.within((), ()) and not chord.within((), second)
