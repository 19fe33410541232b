"""The pure rules of orientation, against plain graphs that know nothing of values and lids."""

from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peersub.overlays.dag.orientation import (
    first_free_lid,
    is_sink,
    newcomer_value,
    points_at,
    precedes,
    turned,
)

VALUES = st.integers(0, 2)
LIDS = st.integers(0, 12)


@st.composite
def sinks(draw):
    """A sink: its value and lid, and neighbours with lids of their own that all point at it."""
    val, lid = draw(VALUES), draw(LIDS)
    lids = draw(st.lists(LIDS.filter(lambda each: each != lid), unique=True, max_size=6))
    around = []
    for other in lids:
        ahead = (val + 1) % 3
        around.append((draw(st.sampled_from([val, ahead] if other > lid else [ahead])), other))
    return val, lid, around


def test_the_circle_of_values_has_no_smallest_one():
    after = {x: [y for y in range(3) if precedes(x, y)] for x in range(3)}
    assert after == {0: [1], 1: [2], 2: [0]}


def test_an_edge_points_at_exactly_one_of_its_ends():
    for val_p, val_q, lid_p, lid_q in product(range(3), range(3), range(4), range(4)):
        ends = points_at(val_p, lid_p, val_q, lid_q) + points_at(val_q, lid_q, val_p, lid_p)
        assert ends == (1 if lid_p != lid_q or val_p != val_q else 0)


@given(VALUES, LIDS, st.lists(st.tuples(VALUES, LIDS), max_size=6))
def test_a_sink_has_neighbours_of_two_values_only(val, lid, around):
    if is_sink(val, lid, around):
        assert {other for other, _ in around} <= {val, (val + 1) % 3}
        assert all(other_lid > lid for other, other_lid in around if other == val)
    else:
        assert any(not points_at(val, lid, *other) for other in around)


@given(sinks())
def test_after_its_turn_every_edge_points_away_and_the_lid_is_still_its_own(sink):
    val, lid, around = sink
    new_val, new_lid = turned(val, lid, around)
    assert all(points_at(*other, new_val, new_lid) for other in around)
    assert new_lid not in {other_lid for _, other_lid in around}
    assert (new_val, new_lid) == (val, lid) if not around else new_val == (val + 1) % 3


@given(sinks())
def test_only_where_a_neighbour_is_ahead_the_lid_changes_and_no_more_than_needed(sink):
    val, lid, around = sink
    _, new_lid = turned(val, lid, around)
    ahead = [other_lid for other_val, other_lid in around if other_val != val]
    lids = {other_lid for _, other_lid in around}
    if ahead:
        assert set(range(max(ahead) + 1, new_lid)) <= lids
        assert new_lid > max(ahead)
    else:
        assert new_lid == lid


def test_who_is_no_sink_takes_no_turn():
    with pytest.raises(AssertionError, match="only a sink"):
        turned(0, 4, [(0, 3)])


@given(st.lists(LIDS), st.integers(-1, 8))
def test_the_first_free_lid(taken, above):
    free = first_free_lid(taken, above=above)
    assert free > above
    assert free not in taken
    assert set(range(above + 1, free)) <= set(taken)


@given(VALUES, LIDS, LIDS)
def test_a_newcomer_points_at_the_sink_that_took_it(val, lid, newcomer_lid):
    if lid != newcomer_lid:
        newcomer = newcomer_value(val, lid, newcomer_lid)
        assert points_at(val, lid, newcomer, newcomer_lid)


@pytest.mark.parametrize("seed", range(8))
def test_the_rules_are_edge_reversal(seed):
    """Beside values and lids, a graph whose edges are simply turned round says the same."""
    draw = Random(seed)
    count = draw.randint(2, 12)
    edges = [(n, draw.randrange(n)) for n in range(1, count)]
    pairs = [(p, q) for p in range(count) for q in range(p) if (p, q) not in edges]
    edges += draw.sample(pairs, min(len(pairs), draw.randint(0, 2 * count)))
    around = [[p + q - me for p, q in edges if me in (p, q)] for me in range(count)]
    state = [(0, lid) for lid in draw.sample(range(50), count)]
    head = {edge: min(edge, key=lambda end: state[end][1]) for edge in edges}
    for _ in range(400):
        sinks = [me for me in range(count) if is_sink(*state[me], [state[n] for n in around[me]])]
        assert sinks == [me for me in range(count) if all(head[e] == me for e in edges if me in e)]
        turns = draw.choice(sinks)
        state[turns] = turned(*state[turns], [state[n] for n in around[turns]])
        head.update({edge: sum(edge) - turns for edge in edges if turns in edge})
