"""Where events go, from places alone, against asking every place."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from overlays.reach.codes import BITS, Code, by_hosts_next_to, codes, host, hosts_among
from peersub.overlays.reach.identifiers import Order, distance, is_parent
from peersub.overlays.reach.routes import WAYS, Layout, way_of

identifiers = st.integers(0, (1 << BITS) - 1)
orders = st.builds(Order, st.integers(0, 2**64 - 1))


@given(codes(), identifiers, st.integers(0, 63), st.data())
def test_ways_go_from_neighbour_to_neighbour_and_end_at_the_host(
    code: Code, target: int, first: int, data: st.DataObject
) -> None:
    layout = Layout(code)
    start = data.draw(st.sampled_from(code))
    way = [start, *layout.way(start, target, first)]
    assert way[-1] == layout.host(target) == host(code, target)
    assert len(way) - 1 <= distance(start, target)
    assert all(by_hosts_next_to(one, other) for one, other in pairwise(way))


@given(codes(), identifiers, orders)
def test_each_host_of_a_subset_is_visited_once_from_its_parent(
    code: Code, event: int, order: Order
) -> None:
    visits = Layout(code).visits(event, order)
    places = [visit.place for visit in visits]
    assert len(places) == len(set(places))
    assert set(places) == hosts_among(code, event, BITS)
    steps = {visit.place: visit.steps for visit in visits}
    for place, parent, step in visits:
        if parent is None:
            assert place == host(code, event)
            assert step == 0
        else:
            assert is_parent(parent, place, event, order)
            assert step == steps[parent] + 1


@given(codes(), identifiers, orders, st.data())
def test_nothing_goes_on_from_where_nothing_is_wanted(
    code: Code, event: int, order: Order, data: st.DataObject
) -> None:
    unwanted = data.draw(st.sets(st.sampled_from(code)))
    layout = Layout(code)
    visits = layout.visits(event, order, lambda place: place not in unwanted)
    parents = {visit.place: visit.parent for visit in layout.visits(event, order)}
    for place, parent in parents.items():
        chain = [place]
        while parent is not None:
            chain.append(parent)
            parent = parents[parent]
        is_open = not any(each in unwanted for each in chain[:-1])
        assert is_open == any(visit.place == place for visit in visits)


def test_events_take_different_ways() -> None:
    ways = [way_of(f"e{number}", 1) for number in range(200)]
    assert len(set(ways)) > 50
    assert all(0 <= way < WAYS for way in ways)
