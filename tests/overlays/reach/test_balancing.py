"""Pushing hot identifiers, and parents that answer: what must hold whatever the loads are."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from overlays.reach.codes import BITS, Code, codes, host
from overlays.reach.test_interest import FILTERS, chain, kept_everywhere, told_by_all
from peersub.overlays.reach.balancing import (
    TAKERS_MAX,
    Heat,
    answer_number,
    answers,
    is_last,
    pushes,
)
from peersub.overlays.reach.identifiers import (
    Order,
    Place,
    differing_bit,
    event_order,
    fixed_order,
    is_parent,
    is_visited,
)
from peersub.overlays.reach.interest import Wish, leads_to
from peersub.overlays.reach.replicas import copy_bits

PLACES = tuple(Place(2, bits) for bits in range(4))
identifiers = st.integers(0, (1 << BITS) - 1)
numbers = st.integers(0, 200)


@st.composite
def busy(
    draw: st.DrawFn,
) -> tuple[dict[Place, int], dict[Place, int], dict[Place, dict[int, Heat]]]:
    """Loads of places, events that came to them, and which of their identifiers caused what."""
    loads, arrived, heats = {}, {}, {}
    for place in PLACES:
        arrived[place] = draw(numbers)
        heats[place] = {
            identifier << 2 | place.bits: Heat(min(events, arrived[place]), sent)
            for identifier, (events, sent) in draw(
                st.dictionaries(st.integers(0, 15), st.tuples(numbers, numbers), max_size=6)
            ).items()
        }
        others = draw(numbers)
        loads[place] = arrived[place] + others + sum(heat.sent for heat in heats[place].values())
    return loads, arrived, heats


@given(busy())
def test_a_push_makes_nobody_as_busy_as_the_giver_was(
    given_loads: tuple[dict[Place, int], dict[Place, int], dict[Place, dict[int, Heat]]],
) -> None:
    loads, arrived, heats = given_loads
    moved = pushes(loads, arrived, heats, lambda _: PLACES)
    after = Counter(loads)
    for giver in PLACES:
        given_away = {key: taker for key, taker in moved.items() if key[0] == giver}
        takers = set(given_away.values())
        assert giver not in takers
        assert len(takers) <= TAKERS_MAX
        for taker in takers:
            mine = [heats[giver][key[1]] for key, to in given_away.items() if to == taker]
            passed_on = min(sum(heat.events for heat in mine), arrived[giver])
            sent = sum(heat.sent for heat in mine)
            after[giver] += passed_on - sent
            after[taker] += passed_on + sent
    assert max(after.values()) <= max(loads.values())
    if moved:
        busiest = max(loads, key=lambda place: (loads[place], -place.bits))
        givers = {giver for giver, _ in moved}
        assert all(after[giver] < loads[giver] or loads[giver] < loads[busiest] for giver in givers)


@given(busy())
def test_only_takers_that_are_known_get_something(
    given_loads: tuple[dict[Place, int], dict[Place, int], dict[Place, dict[int, Heat]]],
) -> None:
    moved = pushes(*given_loads, lambda place: [place.flipped(0)])
    assert all(taker == giver.flipped(0) for (giver, _), taker in moved.items())
    assert pushes(*given_loads, lambda _: []) == {}


def test_what_one_subscriber_wants_is_not_worth_a_message_of_its_own() -> None:
    loads = {PLACES[0]: 1_000, PLACES[1]: 0}
    heats = {PLACES[0]: {0: Heat(300, 300)}}
    arrived = {PLACES[0]: 400, PLACES[1]: 0}
    assert pushes(loads, arrived, heats, lambda _: loads) == {}
    heats = {PLACES[0]: {0: Heat(100, 300), 4: Heat(1, 1)}}
    assert pushes(loads, arrived, heats, lambda _: loads) == {(PLACES[0], 0): PLACES[1]}


@given(st.integers(0, 12), st.integers(0, 2**12 - 1), st.integers(1, 5), st.integers(0, 4))
def test_copies_are_few_and_at_places_above(
    length: int, bits: int, orders: int, depth: int
) -> None:
    place = Place(length, bits & ((1 << length) - 1))
    found = copy_bits(place, [fixed_order(number) for number in range(orders)], depth)
    assert found.bit_count() <= orders * depth
    assert found & place.bits == 0
    assert found < 1 << length
    free = length - place.bits.bit_count()
    assert found.bit_count() >= min(free, depth)


@given(codes(), identifiers, st.text(max_size=4), st.integers(1, 4))
def test_with_copies_at_all_bits_every_parent_has_one(
    code: Code, event: int, name: str, orders: int
) -> None:
    order = event_order(name, orders)
    for place in code:
        for parent in code:
            if is_parent(parent, place, event, order):
                bit = differing_bit(parent, place)
                assert bit is not None
                known = [fixed_order(number) for number in range(orders)]
                assert copy_bits(place, known, BITS) >> bit & 1


@given(
    codes(), kept_everywhere, identifiers, st.integers(0, 2**64 - 1), st.integers(0, 12), st.data()
)
def test_whoever_is_last_has_nothing_behind_it(
    code: Code, kept: list[Wish], event: int, seed: int, summary: int, data: st.DataObject
) -> None:
    """The parent may answer in its place: all that else is found is found without it."""
    order = Order(seed)
    told = told_by_all(code, kept, summary, with_filters=data.draw(st.booleans()))
    matching = data.draw(st.sampled_from(FILTERS))
    for place in code:
        if is_visited(place, event) and is_last(
            place, event, order, told[place], lambda one: one == matching
        ):
            for identifier, wanted in kept:
                if identifier & ~event == 0 and wanted == matching:
                    its_host = host(code, identifier)
                    assert its_host == place or place not in chain(code, its_host, event, order)
            # And nobody below is taken for wanting it.
            for other in code:
                if is_parent(place, other, event, order):
                    assert not leads_to(
                        other, event, order, told[other], lambda one: one == matching
                    )


def test_a_place_of_one_length_is_last_if_it_alone_is_looked_for() -> None:
    place = Place(2, 0b01)
    code = tuple(Place(2, bits) for bits in range(4))
    order = fixed_order(0)
    told = told_by_all(code, [(0b01, FILTERS[0])], 8, with_filters=True)
    assert is_last(place, 0b11, order, told[place])
    assert is_last(Place(2, 0), 0b11, order, told[Place(2, 0)])


def test_parents_answer_for_about_the_share_that_is_set() -> None:
    parent, child = Place(3, 0b101), Place(3, 0b001)
    for share in (0.0, 0.5, 1.0):
        found = sum(
            answers(parent, child, answer_number(f"e{number}"), share) for number in range(1_000)
        )
        assert abs(found - 1_000 * share) < 60
