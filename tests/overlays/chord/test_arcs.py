"""Arcs against brute force: sets of keys on circles small enough to enumerate.

Row 1 of the paper's gaps: an arc is a start and a length, so that all and nothing differ.
"""

from hypothesis import given
from hypothesis import strategies as st

from peersub.overlays.chord import arcs
from peersub.overlays.chord.arcs import Arc

sizes = st.integers(0, 5).map(lambda bits: 1 << bits)


def keys_of(arc: Arc, size: int) -> set[int]:
    start, length = arc
    return {(start + step) % size for step in range(length)}


@st.composite
def circles(draw: st.DrawFn, arcs_count: int = 2) -> tuple[int, list[Arc]]:
    size = draw(sizes)
    key = st.integers(0, size - 1)
    arc = st.tuples(key, st.integers(1, size))
    return size, draw(st.lists(arc, min_size=arcs_count, max_size=arcs_count))


@given(circles(1), st.data())
def test_contains_is_membership(circle: tuple[int, list[Arc]], data: st.DataObject) -> None:
    size, [arc] = circle
    key = data.draw(st.integers(0, size - 1))
    assert arcs.contains(arc, key, size) == (key in keys_of(arc, size))


@given(circles(2))
def test_overlap_and_within_are_those_of_sets(circle: tuple[int, list[Arc]]) -> None:
    size, [one, other] = circle
    keys, other_keys = keys_of(one, size), keys_of(other, size)
    assert arcs.overlap(one, other, size) == bool(keys & other_keys)
    assert arcs.within(one, other, size) == (keys <= other_keys)


@given(circles(2))
def test_intersection_is_that_of_sets_in_at_most_two_disjoint_arcs(
    circle: tuple[int, list[Arc]],
) -> None:
    size, [one, other] = circle
    pieces = arcs.intersection(one, other, size)
    found = [keys_of(piece, size) for piece in pieces]
    assert len(pieces) <= 2
    assert all(1 <= length <= size and 0 <= start < size for start, length in pieces)
    assert set().union(*found) == keys_of(one, size) & keys_of(other, size)
    assert sum(length for _, length in pieces) == len(set().union(*found))
    distances = [arcs.clockwise(one[0], start, size) for start, _ in pieces]
    assert distances == sorted(distances)


@given(st.integers(0, 5).flatmap(lambda count: circles(count)))
def test_united_is_the_union_in_the_fewest_arcs(circle: tuple[int, list[Arc]]) -> None:
    size, given_arcs = circle
    union = arcs.united(given_arcs, size)
    wanted = set().union(*(keys_of(arc, size) for arc in given_arcs))
    assert set().union(*(keys_of(arc, size) for arc in union)) == wanted
    assert sum(length for _, length in union) == len(wanted)
    starts = {key for key in wanted if (key - 1) % size not in wanted}
    assert len(union) == (len(starts) if starts else bool(wanted))
    assert union == sorted(union)


def test_row_1_the_whole_circle_and_a_single_key_are_different_arcs() -> None:
    size = 16
    assert keys_of((5, 16), size) == set(range(16))
    assert arcs.intersection((5, 16), (9, 1), size) == [(9, 1)]
    assert arcs.intersection((5, 16), (5, 16), size) == [(5, 16)]
    assert arcs.contains((5, 16), 4, size) and not arcs.contains((5, 1), 4, size)


@given(st.integers(1, 8).flatmap(lambda count: circles(count)), st.integers(1, 4))
def test_bounded_closes_the_smallest_gaps(circle: tuple[int, list[Arc]], count_max: int) -> None:
    size, given_arcs = circle
    union = arcs.united(given_arcs, size)
    fewer = arcs.bounded(union, count_max, size)
    before = set().union(*(keys_of(arc, size) for arc in union))
    after = set().union(*(keys_of(arc, size) for arc in fewer))
    assert before <= after
    assert len(fewer) == min(len(union), count_max)
    assert sum(length for _, length in fewer) == len(after)
    if len(union) > 1:
        gaps = sorted(
            (following[0] - start - length) % size
            for (start, length), following in zip(union, [*union[1:], union[0]], strict=True)
        )
        closed = gaps[: max(0, len(union) - count_max)]
        assert len(after) - len(before) == sum(closed)
