"""Which interest counts: never too little of it, against the chains of parents themselves."""

from functools import cache

from hypothesis import assume, given
from hypothesis import strategies as st

from overlays.reach.codes import BITS, Code, codes, host
from peersub.filters.filter import Filter
from peersub.overlays.reach.identifiers import (
    Order,
    Place,
    is_above,
    is_parent,
    is_visited,
    parent_identifier,
)
from peersub.overlays.reach.interest import (
    SOMETHING,
    Wish,
    leads_to,
    merged,
    own_wishes,
    wishes_of,
)
from peersub.overlays.reach.messages import Interest
from peersub.overlays.reach.seats import NOTHING

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


FILTERS = tuple(Filter(f"x = {number}") for number in range(4))
kept_everywhere = st.lists(st.tuples(identifiers, st.sampled_from(FILTERS)), max_size=30)


def told_by_all(
    code: Code, kept: list[Wish], summary: int, *, with_filters: bool
) -> dict[Place, Interest]:
    """What each place tells, from the lowest up."""

    @cache
    def told(place: Place) -> Interest:
        here = [wish for wish in kept if host(code, wish[0]) == place]
        own = own_wishes(place, here, summary, with_filters=with_filters)
        return merged(
            place, own, [told(other) for other in code if is_above(place, other)], summary
        )

    return {place: told(place) for place in code}


@given(codes(), kept_everywhere, identifiers, orders, st.integers(0, 12), st.booleans(), st.data())
def test_no_event_misses_what_is_kept_however_little_is_told(
    code: Code,
    kept: list[Wish],
    event: int,
    order: Order,
    summary: int,
    with_filters: bool,
    data: st.DataObject,
) -> None:
    told = told_by_all(code, kept, summary, with_filters=with_filters)
    matching = data.draw(st.sampled_from(FILTERS))
    for identifier, wanted in kept:
        if identifier & ~event == 0 and wanted == matching:
            for place in chain(code, host(code, identifier), event, order):
                assert leads_to(place, event, order, told[place], lambda one: one == matching)


@given(codes(), kept_everywhere, st.integers(1, 12), st.booleans())
def test_no_more_is_told_than_is_allowed_and_nothing_only_of_nothing(
    code: Code, kept: list[Wish], summary: int, with_filters: bool
) -> None:
    for place, told in told_by_all(code, kept, summary, with_filters=with_filters).items():
        assert len(told.identifiers) <= summary
        assert list(wishes_of(told)) == sorted(
            wishes_of(told), key=lambda wish: (wish[0], wish[1].digest if wish[1] else b"")
        )
        below = [other for other in code if other == place or is_above(place, other)]
        if any(host(code, identifier) in below for identifier, _ in kept):
            assert told != NOTHING
        if not kept:
            assert told == NOTHING


@given(codes(), kept_everywhere, identifiers, orders, st.data())
def test_with_room_for_all_only_the_ways_to_what_matches_are_open(
    code: Code, kept: list[Wish], event: int, order: Order, data: st.DataObject
) -> None:
    """Where all places have one length; else a place may be asked in vain."""
    length = data.draw(st.integers(0, 4))
    code = tuple(Place(length, bits) for bits in range(1 << length))
    matching = data.draw(st.sampled_from(FILTERS))
    told = told_by_all(code, kept, 100, with_filters=True)
    needed = {
        place
        for identifier, wanted in kept
        if identifier & ~event == 0 and wanted == matching
        for place in chain(code, host(code, identifier), event, order)
    }
    open_to = {
        place
        for place in code
        if is_visited(place, event)
        and leads_to(place, event, order, told[place], lambda one: one == matching)
    }
    assert open_to == needed


def test_the_places_at_which_most_is_kept_are_told_in_one_wish() -> None:
    one, other, *_ = FILTERS
    parts = [
        Interest((0b0100, 0b1000, 0b1100), 2, (one, one, one)),
        Interest((0b0001,), 3, (other,)),
        Interest((0b0001, 0b0101), 2, (None, one)),
    ]
    found = merged(Place(2, 0b11), [(0b0111, one)], parts, 4)
    assert list(wishes_of(found)) == [(0, None), (1, None), (7, one)]
    assert found.shortest == 2
    assert merged(Place(2, 0b11), [(0b0111, one)], parts, 2) == SOMETHING
    assert merged(Place(2, 0b11), [(0b0111, one)], [*parts, SOMETHING], 9) == SOMETHING


@given(st.integers(0, 4), identifiers, kept_everywhere, st.integers(1, 6), st.booleans())
def test_each_thing_kept_is_said_by_a_wish_of_its_place(
    length: int, bits: int, kept: list[Wish], summary: int, with_filters: bool
) -> None:
    place = Place(length, bits & ((1 << length) - 1))
    here = [(place.nearest(identifier), wanted) for identifier, wanted in kept]
    wishes = list(own_wishes(place, here, summary, with_filters=with_filters))
    for identifier, wanted in here:
        assert any(
            place.hosts(said) and said & ~identifier == 0 and one in (None, wanted)
            for said, one in wishes
        )
    if with_filters:
        assert len(wishes) <= max(summary, 1)
