"""The claims of Perng, Wang, Reiter: Providing Content-Based Services in a Peer-to-Peer
Environment ("Reach", 2004), sections 2 to 4, each as a test.

The number in a test's name is the section. What is expected comes from the paper's text, from
arithmetic, or from looking at every identifier (`overlays.reach.codes`). Errors and gaps of the
paper are in `test_perng_2004_errata`.
"""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import log2
from random import Random
from statistics import mean

import pytest

from overlays.reach.codes import by_hosts_next_to, hosts_among
from peersub import Filter
from peersub.overlays.reach.attributes import AttributeMap
from peersub.overlays.reach.identifiers import (
    EMPTY_PLACE,
    Order,
    Place,
    are_neighbours,
    distance,
    event_order,
    is_above,
    is_parent,
    is_visited,
    via,
)
from peersub.overlays.reach.structure import Places


def place(text: str) -> Place:
    return Place(len(text), int(text, 2))


def cube(bits: int) -> Places:
    """A network of 2^bits nodes."""
    places = Places()
    for length in range(bits):
        for each in list(places):
            assert each.length == length
            places.split(each)
    return places


def grown(nodes: int, seed: int = 1) -> Places:
    """A network that nodes have joined one by one."""
    places = Places()
    for number in range(1, nodes):
        entry = places.host(Random(f"{seed}/{number}").getrandbits(40))
        places.split(places.to_split(entry, seed, number))
    return places


def dissemination(places: Places, event: int, order: Order) -> list[tuple[Place, Place]]:
    """Who sends an event to whom, from the rendezvous node on."""
    edges: list[tuple[Place, Place]] = []
    ahead = [places.host(event)]
    while ahead:
        sender = ahead.pop()
        for near in places.near(sender):
            if is_parent(sender, near, event, order):
                edges.append((sender, near))
                ahead.append(near)
    return edges


def hops(places: Places, start: Place, target: int) -> int:
    taken = 0
    while not start.hosts(target):
        start = places.host(via(start, target))
        taken += 1
    return taken


# --- 2: the model --------------------------------------------------------------------------------


def test_2_an_event_matches_if_it_has_each_attribute_of_the_subscription() -> None:
    bits = AttributeMap(4, "a; b; c; d")
    for present, wanted in product(range(16), repeat=2):
        event = {name: 1 for place, name in enumerate("abcd") if present >> place & 1}
        asked = [f"{name} = 1" for place, name in enumerate("abcd") if wanted >> place & 1]
        (identifier,) = bits.identifiers(Filter(" AND ".join(asked) or "TRUE"))
        assert bits.event_bits(event) == present
        assert identifier == wanted
        matches = Filter(" AND ".join(asked) or "TRUE").matches(event)
        assert matches == (identifier & ~bits.event_bits(event) == 0)


def test_2_figure_1_a_parent_has_all_attributes_of_its_children() -> None:
    assert is_above(place("0011"), place("0001"))
    assert is_above(place("0011"), place("0010"))
    assert not is_above(place("0001"), place("0011"))
    assert not is_above(place("0001"), place("0010"))


def test_2_node_01_of_four_hosts_four_identifiers_of_four_bits() -> None:
    hosted = [f"{z:04b}" for z in range(16) if place("01").hosts(z)]
    assert hosted == ["0001", "0101", "1001", "1101"]


# --- 3.1: point-to-point routing -----------------------------------------------------------------


def test_3_1_the_routing_table_of_1011() -> None:
    near = cube(4).near(place("1011"))
    assert sorted(map(str, near)) == ["0011", "1001", "1010", "1111"]


@pytest.mark.parametrize("bits", [1, 2, 5])
def test_3_1_a_routing_table_has_m_entries(bits: int) -> None:
    places = cube(bits)
    assert all(len(places.near(each)) == bits for each in places)


def test_3_1_hops_are_the_hamming_distance_and_m_over_2_on_average() -> None:
    places = cube(6)
    found = []
    for start in places:
        for target in range(64):
            assert hops(places, start, target) == (start.bits ^ target).bit_count()
            found.append(hops(places, start, target))
    assert mean(found) == 3.0


# --- 3.2: content-based multicast ----------------------------------------------------------------


def test_3_2_an_event_1001_reaches_what_hosts_1001_1000_and_0001() -> None:
    edges = dissemination(cube(4), 0b1001, event_order("e"))
    assert {"1000", "0001"} <= {str(receiver) for _, receiver in edges}


@pytest.mark.parametrize("name", ["e1", "e2", "e3"])
def test_3_2_figure_2_the_tree_of_event_11000111(name: str) -> None:
    edges = dissemination(cube(4), 0b11000111, event_order(name))
    receivers = Counter(str(receiver) for _, receiver in edges)
    assert {str(node) for sender, node in edges if str(sender) == "0111"} == {
        *("0110", "0101", "0011"),
    }
    assert {"0010", "0100", "0001"} < receivers.keys()
    assert set(receivers.values()) == {1}


def test_3_2_every_child_is_one_hamming_distance_away_and_weighs_one_less() -> None:
    places = cube(5)
    for event in range(0, 1024, 7):
        for sender, receiver in dissemination(places, event, event_order(str(event))):
            assert (sender.bits ^ receiver.bits).bit_count() == 1
            assert receiver.bits.bit_count() == sender.bits.bit_count() - 1
            assert receiver in places.near(sender)


def test_3_2_the_tree_is_not_unique_and_follows_from_the_name_of_the_event() -> None:
    places = cube(4)
    trees = {tuple(sorted(dissemination(places, 0b1111, event_order(f"e{n}")))) for n in range(40)}
    assert len(trees) > 10
    again = tuple(sorted(dissemination(places, 0b1111, event_order("e1"))))
    assert again in trees


def test_3_2_a_message_for_each_subset_but_the_rendezvous_and_the_hops_to_it() -> None:
    """The paper's 2^w + h counts the rendezvous node, to which the last of the h hops leads."""
    places = cube(5)
    for event in range(64):
        marked = (event & 0b11111).bit_count()
        assert len(dissemination(places, event, event_order(str(event)))) == 2**marked - 1


# --- 3.3: dynamic networks -----------------------------------------------------------------------


def test_3_3_node_01_splits_into_001_and_101() -> None:
    places = cube(2)
    without, new = places.split(place("01"))
    assert (str(without), str(new)) == ("001", "101")
    assert set(map(str, places.near(without))) == {"101", "11", "00"}
    assert set(map(str, places.near(new))) == {"001", "11", "00"}
    assert new in places.near(place("00"))
    assert new in places.near(place("11"))


def test_3_3_a_join_is_passed_on_to_a_shorter_neighbour() -> None:
    places = cube(2)
    places.split(place("01"))
    assert places.to_split(place("001"), 1, "x") in {place("00"), place("11")}
    assert places.to_split(place("00"), 1, "x") == place("00")


def test_3_3_neighbours_are_dropped_that_are_two_away_after_a_split() -> None:
    places = cube(3)
    places.split(place("011"))
    assert place("1011") in places.near(place("001"))
    without, new = places.split(place("001"))
    assert place("1011") not in places.near(without)
    assert place("1011") in places.near(new)


@pytest.mark.parametrize("nodes", [64, 256, 700])
def test_3_3_about_log_n_nodes_are_affected_by_a_join(nodes: int) -> None:
    places = grown(nodes)
    degrees = [len(places.near(each)) for each in places]
    assert log2(nodes) - 1 <= mean(degrees) <= log2(nodes) + 2
    assert max(degrees) <= 2 * max(each.length for each in places)


@pytest.mark.parametrize("nodes", [64, 90, 128, 300])
def test_3_3_the_average_path_is_still_half_of_log_n(nodes: int) -> None:
    places = grown(nodes)
    random = Random(nodes)
    all_places = list(places)
    found = []
    for _ in range(400):
        start, target = random.choice(all_places), random.getrandbits(12)
        taken = hops(places, start, target)
        assert taken <= distance(start, target)
        found.append(taken)
    assert abs(mean(found) - log2(nodes) / 2) < 0.5


def test_3_3_the_network_grows_to_one_node_for_each_identifier() -> None:
    places = cube(5)
    assert len(places) == 2**5
    assert all([z for z in range(32) if each.hosts(z)] == [each.bits] for each in places)


@pytest.mark.parametrize("nodes", [5, 23, 90])
def test_3_3_events_reach_all_subsets_with_ids_of_different_lengths(nodes: int) -> None:
    places = grown(nodes)
    assert len({each.length for each in places}) > 1
    for event in Random(nodes).sample(range(4096), 40):
        edges = dissemination(places, event, event_order(str(event)))
        reached = Counter([places.host(event), *(receiver for _, receiver in edges)])
        assert reached == Counter(each for each in places if is_visited(each, event))
        assert set(reached) == hosts_among(places, event, 12)


# --- 4: discussion -------------------------------------------------------------------------------


def test_4_1_hierarchical_attributes_change_bits_and_nothing_else() -> None:
    bits = AttributeMap(4, "paper; section LIKE 'sports%'; section LIKE 'sports/rowing%'")
    (coarse,) = bits.identifiers(Filter("section LIKE 'sports/%'"))
    (fine,) = bits.identifiers(Filter("section = 'sports/rowing/eights'"))
    assert coarse & ~fine == 0
    assert coarse != fine
    assert fine & ~bits.event_bits({"section": "sports/rowing/eights"}) == 0
    assert fine & ~bits.event_bits({"section": "sports/chess"}) != 0


def test_4_2_identifier_and_filter_on_the_values_both_decide() -> None:
    bits = AttributeMap(4, "symbol; price")
    wanted = Filter("symbol = 'A' AND price > 10")
    (identifier,) = bits.identifiers(wanted)
    for event in ({"symbol": "A", "price": 11}, {"symbol": "A", "price": 9}, {"symbol": "A"}):
        meets = identifier & ~bits.event_bits(event) == 0
        assert wanted.matches(event) == (meets and event.get("price", 0) > 10)


def test_4_4_random_events_meet_at_all_nodes_alike() -> None:
    places = cube(4)
    random = Random(4)
    found = Counter(places.host(random.getrandbits(12)) for _ in range(3200))
    assert len(found) == 16
    assert all(abs(count - 200) < 60 for count in found.values())


def test_4_5_interest_travels_to_neighbours_that_are_supersets() -> None:
    places = cube(3)
    above = {str(each) for each in places if is_above(each, place("010"))}
    assert above == {"110", "011"}
    told, ahead = {place("010")}, [place("010")]
    while ahead:
        low = ahead.pop()
        for each in places.near(low):
            if is_above(each, low) and each not in told:
                told.add(each)
                ahead.append(each)
    assert set(map(str, told)) == {"010", "110", "011", "111"}


def test_neighbours_by_the_paper_are_neighbours_by_letters() -> None:
    places = list(grown(60))
    for one, other in product(places, repeat=2):
        assert are_neighbours(one, other) == by_hosts_next_to(one, other)
    assert list(Places()) == [EMPTY_PLACE]
