"""Which interest counts: never too little of it, against the chains of parents themselves."""

from hypothesis import assume, given
from hypothesis import strategies as st

from overlays.reach.codes import BITS, Code, codes, host
from peersub.overlays.reach.identifiers import (
    Order,
    Place,
    is_parent,
    is_visited,
    parent_identifier,
)
from peersub.overlays.reach.interest import SOMETHING, leads_to
from peersub.overlays.reach.messages import Interest

identifiers = st.integers(0, (1 << BITS) - 1)
orders = st.builds(Order, st.integers(0, 2**64 - 1))


def chain(code: Code, place: Place, event: int, order: Order) -> list[Place]:
    """A place and all that an event passes on the way to it, by looking for parents."""
    found = [place]
    while parent_identifier(found[-1], event, order) is not None:
        (parent,) = [each for each in code if is_parent(each, found[-1], event, order)]
        found.append(parent)
    return found


@given(codes(), identifiers, identifiers, orders, st.integers(0, BITS))
def test_every_place_on_the_way_is_led_through(
    code: Code, event: int, wanted: int, order: Order, cut: int
) -> None:
    wanted &= event
    passed = chain(code, host(code, wanted), event, order)
    shortest = min(place.length for place in passed)
    for place in passed:
        assert leads_to(place, event, order, Interest((wanted,), shortest))
        assert leads_to(place, event, order, Interest((1 << BITS, wanted), min(cut, shortest)))
        low = wanted & ((1 << shortest) - 1)
        assert leads_to(place, event, order, Interest((low,), shortest))
        assert leads_to(place, event, order, SOMETHING)


@given(identifiers, identifiers, orders, st.integers(0, 5))
def test_with_one_length_no_other_place_is(
    event: int, wanted: int, order: Order, length: int
) -> None:
    """Just the places on the way, of all that the event could visit."""
    wanted &= event
    code = tuple(Place(length, bits) for bits in range(1 << length))
    passed = chain(code, host(code, wanted), event, order)
    visited = [place for place in code if is_visited(place, event)]
    interest = Interest((wanted,), length)
    assert {place for place in visited if leads_to(place, event, order, interest)} == set(passed)


@given(identifiers, identifiers, orders)
def test_what_the_event_does_not_have_does_not_count(event: int, wanted: int, order: Order) -> None:
    assume(wanted & ~event)
    assert not leads_to(Place(0, 0), event, order, Interest((wanted,), 0))
    assert not leads_to(Place(0, 0), event, order, Interest((), 0))
