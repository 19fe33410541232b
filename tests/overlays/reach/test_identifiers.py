"""Places, routes and subset trees, against answers that look at every identifier (`codes`)."""

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from overlays.reach.codes import (
    BITS,
    IDENTIFIERS,
    Code,
    by_hosts_next_to,
    codes,
    grown,
    host,
    hosted,
)
from peersub.overlays.reach.identifiers import (
    EMPTY_PLACE,
    Order,
    Place,
    are_neighbours,
    differing_bit,
    distance,
    event_order,
    is_above,
    is_parent,
    is_visited,
    missing_parts,
    parent_identifier,
    via,
)
from strategies import examples

identifiers = st.integers(0, (1 << BITS) - 1)
orders = st.builds(Order, st.integers(0, 2**64 - 1))


@examples(30)
@given(codes())
def test_each_identifier_has_one_host(code: Code) -> None:
    for identifier in IDENTIFIERS:
        assert [place.hosts(identifier) for place in code].count(True) == 1
    for place in code:
        assert {z for z in IDENTIFIERS if place.hosts(z)} == hosted(place)


@examples(30)
@given(codes(12))
def test_neighbours_are_those_whose_identifiers_differ_in_one_bit(code: Code) -> None:
    for one in code:
        for other in code:
            touches = one != other and any(
                z ^ 1 << bit in hosted(other) for z in hosted(one) for bit in range(BITS)
            )
            assert are_neighbours(one, other) == touches == by_hosts_next_to(one, other)
            assert are_neighbours(one, other) == are_neighbours(other, one)
            bit = differing_bit(one, other)
            if bit is not None:
                assert one.flipped(bit).overlaps(other)
                assert other.flipped(bit).overlaps(one)
                assert is_above(one, other) == (one.bits >> bit & 1 == 1)
                assert is_above(one, other) != is_above(other, one)


@examples(60)
@given(codes())
def test_going_down_never_comes_back(code: Code) -> None:
    left = set(code)
    while left:
        lowest = {one for one in left if not any(is_above(one, other) for other in left)}
        assert lowest, "each place has another one below it: there is a cycle"
        left -= lowest


@examples(200)
@given(codes(), st.data(), identifiers)
def test_a_route_ends_at_the_host_within_the_distance(
    code: Code, data: st.DataObject, target: int
) -> None:
    place = data.draw(st.sampled_from(code))
    for _ in range(distance(place, target)):
        if place.hosts(target):
            break
        differing = [j for j in range(place.length) if (place.bits ^ target) >> j & 1]
        onward = host(code, via(place, target, data.draw(st.sampled_from(differing))))
        assert are_neighbours(place, onward)
        assert distance(onward, target) < distance(place, target)
        place = onward
    assert place == host(code, target)
    assert distance(place, target) == 0


@given(codes(), identifiers, orders)
def test_an_event_reaches_each_place_with_subsets_once(
    code: Code, event: int, order: Order
) -> None:
    subsets = {host(code, z) for z in IDENTIFIERS if z & ~event == 0}
    assert {place for place in code if is_visited(place, event)} == subsets
    received = Counter({host(code, event): 1})
    ahead = [host(code, event)]
    while ahead:
        sender = ahead.pop()
        near = [place for place in code if are_neighbours(sender, place)]
        for place in near:
            if is_parent(sender, place, event, order):
                assert is_above(sender, place)
                received[place] += 1
                ahead.append(place)
    assert received == Counter(subsets)


@given(codes(), identifiers, orders)
def test_nobody_but_a_neighbour_is_a_parent(code: Code, event: int, order: Order) -> None:
    for place in code:
        senders = [other for other in code if is_parent(other, place, event, order)]
        expected = is_visited(place, event) and not place.hosts(event)
        assert len(senders) == expected
        assert all(are_neighbours(sender, place) for sender in senders)
        if is_visited(place, event):
            assert (parent_identifier(place, event, order) is None) == place.hosts(event)


@given(st.text(max_size=20), st.integers(0, 3))
def test_an_order_ranks_every_bit_and_depends_on_the_event_alone(name: str, fixed: int) -> None:
    order = event_order(name, fixed)
    assert order == event_order(name, fixed)
    assert len({order.rank(bit) for bit in range(64)}) == 64


def test_fixed_orders_are_few_and_all_in_use() -> None:
    found = Counter(event_order(f"e{number}", 3) for number in range(300))
    assert len(found) == 3
    assert min(found.values()) > 70
    assert len({event_order(f"e{number}") for number in range(300)}) == 300


def test_orders_put_each_bit_last_equally_often() -> None:
    """What spreads the load of inner nodes: no bit is cleared first more often than others."""
    found = Counter(event_order(f"e{number}").last(0b11011) for number in range(4000))
    assert set(found) == {0, 1, 3, 4}
    assert all(abs(count - 1000) < 120 for count in found.values())


@given(codes(), st.data())
def test_what_is_missing_of_a_region_is_what_nobody_hosts(code: Code, data: st.DataObject) -> None:
    known = data.draw(st.lists(st.sampled_from(code), unique=True))
    length = data.draw(st.integers(0, BITS))
    region = Place(length, data.draw(st.integers(0, 2**length - 1)))
    parts = missing_parts(region, known)
    missing = hosted(region) - {z for place in known for z in hosted(place)}
    assert frozenset(z for part in parts for z in hosted(part)) == missing
    assert sum(len(hosted(part)) for part in parts) == len(missing), "the parts overlap"
    assert not any(one.sibling == other for one in parts for other in parts if one.length)


@given(codes(), st.data())
def test_halves_siblings_and_wholes(code: Code, data: st.DataObject) -> None:
    place = data.draw(st.sampled_from(code))
    assume(place.length < BITS)
    for half in place.halves:
        assert half.whole == place
        assert place.contains(half)
        assert not half.contains(place)
        assert half.sibling in place.halves
        assert are_neighbours(half, half.sibling)
    without, with_bit = place.halves
    assert hosted(without) | hosted(with_bit) == hosted(place)
    assert not without.overlaps(with_bit)
    assert place.overlaps(without)


def test_a_target_that_is_hosted_here_has_no_way() -> None:
    with pytest.raises(AssertionError):
        via(EMPTY_PLACE, 5)


@pytest.mark.parametrize("nodes", [1, 2, 3, 7, 16, 64])
def test_joins_keep_lengths_of_neighbours_within_one(nodes: int) -> None:
    code = grown(nodes, seed=nodes)
    assert len(code) == nodes
    for one in code:
        for other in code:
            assert not are_neighbours(one, other) or abs(one.length - other.length) <= 1
