"""Errors and gaps of Perng, Wang, Reiter 2004 ("Reach"), and that they are mended, row by row.

=== ============================================================================================
row what the paper leaves wrong or open, and what is done
=== ============================================================================================
1   the walk-through of §3.2 forgets node 0000, which hosts 11000000: it is visited
2   it is about event 11000111, and then prints 1100111: seven bits
3   2^w + h counts the rendezvous node twice: 2^w - 1 + h
4   "the largest suffix" is not enough to route between lengths: the bits above come from the target
5   clearing bits does not carry on "in exactly the same manner": canonical parents
6   who leaves contacts "the" node with the other half, which may be split: go on to longer ones
7   a merge may leave a gap of two to neighbours of the other half: both are asked
8   who is not the right one to merge: whoever merges takes its place
9   no bootstrap of 2^m nodes is needed: one node has the empty place
10  "an event labelled with s" is too narrow for what is pushed: every event that contains s
=== ============================================================================================
"""

from __future__ import annotations

from collections import Counter
from random import Random

from overlays.reach.codes import hosts_among
from papers.test_perng_2004 import cube, dissemination, grown, hops, place
from peersub.overlays.reach.identifiers import (
    EMPTY_PLACE,
    Place,
    are_neighbours,
    event_order,
    is_visited,
    via,
)
from peersub.overlays.reach.structure import Places, heir_rank, heirs, longer, merges, shorter


def gap(places: Places) -> int:
    return max(
        (abs(one.length - other.length) for one in places for other in places.near(one)), default=0
    )


def test_row_1_node_0000_is_visited() -> None:
    edges = dissemination(cube(4), 0b11000111, event_order("e"))
    listed = {"0110", "0101", "0011", "0010", "0100", "0001"}
    assert {str(receiver) for _, receiver in edges} - listed == {"0000"}
    assert place("0000").hosts(0b11000000)
    assert 0b11000000 & ~0b11000111 == 0, "a subscription to it matches the event"


def test_row_2_the_event_has_eight_bits() -> None:
    assert cube(4).host(0b11000111) == place("0111") == cube(4).host(0b1100111)
    assert 0b1100111 != 0b11000111


def test_row_3_a_tree_of_2_to_the_w_nodes_has_one_edge_less() -> None:
    places = cube(4)
    event, start = 0b0111, place("1000")
    messages = hops(places, start, event) + len(dissemination(places, event, event_order("e")))
    assert messages == 4 + 2**3 - 1


def _mixed() -> Places:
    """00, 10, 01, 011, 111: the region that 01 and 10 border on is split."""
    places = cube(2)
    places.split(place("11"))
    return places


def test_row_4_the_bits_above_come_from_the_target() -> None:
    places = _mixed()
    assert via(place("01"), 0b111, 1) == 0b111
    assert places.host(via(place("01"), 0b011, 1)) == place("011")
    assert places.host(via(place("01"), 0b111, 1)) == place("111")
    # The largest suffix that 01 knows of the target, 11, has no host.
    assert place("11") not in places


def test_row_5_clearing_bits_misses_and_doubles() -> None:
    """A node that clears a bit of its own id knows one receiver, and two short of one many."""
    places = _mixed()
    event = 0b111
    naive: Counter[Place] = Counter()
    ahead = [places.host(event)]
    while ahead:
        sender = ahead.pop()
        for bit in range(sender.length):
            if sender.bits >> bit & 1:
                receiver = places.host(sender.bits ^ 1 << bit)
                naive[receiver] += 1
                if naive[receiver] == 1:
                    ahead.append(receiver)
    assert max(naive.values()) > 1
    edges = dissemination(places, event, event_order("e"))
    reached = Counter([places.host(event), *(receiver for _, receiver in edges)])
    assert reached == Counter(each for each in places if is_visited(each, event))


def test_row_6_the_other_half_may_be_split() -> None:
    places = cube(1)
    places.split(place("1"))
    assert place("0").sibling not in places
    assert longer(place("0"), places.near(place("0"))) == [place("01"), place("11")]
    assert places.to_merge(place("0")) in {place("01"), place("11")}


def test_row_7_both_halves_are_asked_for_longer_neighbours() -> None:
    places = _mixed()
    one, other = place("00"), place("10")
    assert longer(one, places.near(one)) == []
    assert longer(one, places.near(other)) == [place("011"), place("111")]
    assert not merges(one, places.near(one), places.near(other))
    assert places.to_merge(one) in {place("011"), place("111")}
    places.merge(one)
    assert gap(places) == 2, "what the paper's rule leaves"


def test_row_8_joins_and_leaves_in_any_order_keep_a_complete_code_and_a_gap_of_one() -> None:
    random = Random(8)
    places = grown(40, seed=8)
    for number in range(150):
        some = random.choice(list(places))
        if random.random() < 0.5 and len(places) > 1:
            # Whoever merges is free to take the place of `some`, which stays as it is.
            places.merge(places.to_merge(some))
        else:
            places.split(places.to_split(some, 8, number))
        assert gap(places) <= 1
    assert sum(2 ** (12 - each.length) for each in places) == 2**12
    for event in random.sample(range(4096), 20):
        assert {each for each in places if is_visited(each, event)} == hosts_among(
            places, event, 12
        )


def test_row_9_a_network_begins_with_one_node_and_ends_with_one() -> None:
    places = Places()
    for number in range(30):
        places.split(places.to_split(places.host(number * 37), 9, number))
    assert len(places) == 31
    for _ in range(30):
        places.merge(places.to_merge(places.host(5)))
    assert list(places) == [EMPTY_PLACE]


def test_row_10_what_is_pushed_away_is_wanted_by_every_event_that_contains_it() -> None:
    pushed = 0b0010
    labelled = [event for event in range(16) if event == pushed]
    wanted = [event for event in range(16) if pushed & ~event == 0]
    assert len(labelled) == 1
    assert len(wanted) == 8


def test_heirs_are_neighbours_whoever_they_are() -> None:
    """§4.3 has no mechanism for crashes: a place falls to its neighbours in a known order."""
    places = grown(70, seed=5)
    for each in places:
        ranked = {}
        for other in places.near(each):
            rank = heir_rank(each, other)
            if rank is not None:
                assert rank not in ranked
                ranked[rank] = other
        expected = [places.host(identifier) for identifier in heirs(each)]
        assert [ranked[rank] for rank in sorted(ranked)] == expected
        assert all(are_neighbours(each, heir) for heir in expected)
        assert not shorter(each, places.near(each)) or each.length > 0
