"""Whom members choose: the rules against brute force, and what follows from them."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peersub.overlays.core.identity import PeerId
from peersub.overlays.similarity.choosing import (
    Candidate,
    chosen,
    drawn_random,
    place_of,
    ranked,
    score,
    turn,
)
from peersub.overlays.similarity.forwarding import event_draw, forward_share
from peersub.overlays.similarity.messages import Profile
from peersub.overlays.similarity.proximity import connection_factor, proximity_of_counts
from peersub.overlays.similarity.settings import PROXIMITIES, SimilaritySettings
from strategies import examples

EVENTS = 12


def settings(**chosen_ones: object) -> SimilaritySettings:
    return SimilaritySettings(**{"clique_up_to": 0, **chosen_ones})


def members(rows: list[int]) -> list[Candidate]:
    peers = [PeerId(f"n{number}", 0, 1) for number in range(len(rows))]
    return [
        Candidate(peer, place_of(1, peer), bits) for peer, bits in zip(peers, rows, strict=True)
    ]


rows = st.lists(st.integers(0, 2**EVENTS - 1), min_size=1, max_size=25)


# --- nearness ------------------------------------------------------------------------------------


@pytest.mark.parametrize("proximity", PROXIMITIES)
@pytest.mark.parametrize("smoothing", [0.0, 0.5])
@given(st.integers(0, 2**EVENTS - 1), st.integers(0, 2**EVENTS - 1))
def test_nearness_is_symmetric_and_a_share(proximity, smoothing, first, second):
    one, other = members([first, second])
    chosen_ones = settings(proximity=proximity, smoothing=smoothing)
    near = score(one, other, chosen_ones)
    assert 0 <= near <= 1
    assert near == score(other, one, chosen_ones)


def test_f_s_is_the_paper_s():
    plain = settings(smoothing=0.0)
    assert proximity_of_counts(plain, 2, 4, 8) == pytest.approx((2 / 4 + 2 / 8) / 2)
    assert proximity_of_counts(plain, 3, 3, 3) == 1
    assert proximity_of_counts(plain, 0, 0, 5) == 0
    smoothed = settings(smoothing=0.5)
    assert proximity_of_counts(smoothed, 0, 0, 0) == 0.5
    assert proximity_of_counts(smoothed, 2, 4, 8) == pytest.approx((2.5 / 5 + 2.5 / 9) / 2)


def test_jaccard_is_both_over_one_of_them():
    plain = settings(proximity="jaccard", smoothing=0.0)
    assert proximity_of_counts(plain, 2, 4, 8) == pytest.approx(2 / 10)
    assert proximity_of_counts(plain, 0, 0, 0) == 0


def test_far_and_slow_members_are_less_near_but_what_they_want_counts_most():
    here = Profile(PeerId("a"), 0, b"", b"", b"", b"", 0.0, 0.0, 100.0)
    close, far = here._replace(x_ms=3.0, y_ms=4.0), here._replace(x_ms=300.0, y_ms=400.0)
    slow = close._replace(bandwidth_mbit=1.0)
    factors = [connection_factor(here, other) for other in (here, close, slow, far)]
    assert factors == sorted(factors, reverse=True)
    assert min(factors) > 0.5
    weighed = settings(proximity="well-connected", smoothing=0.0)
    assert proximity_of_counts(weighed, 4, 4, 4, 0.5) > proximity_of_counts(weighed, 1, 4, 4, 1.0)


@given(rows, st.integers(1, 6))
def test_nearest_takes_the_n_nearest(drawn, count):
    me, *others = members(drawn)
    chosen_ones = settings(choice="nearest", nearest=count)
    best = chosen(me, others, chosen_ones)
    assert len(best) == min(count, len(others))
    left = [one for one in others if one not in best]
    if left:
        least = min(score(me, one, chosen_ones) for one in best)
        assert least >= max(score(me, one, chosen_ones) for one in left)


def test_equals_are_chosen_by_as_many_as_others():
    everyone = members([7] * 200)
    chosen_ones = settings(choice="nearest", nearest=5)
    picked = Counter(
        one.peer
        for me in everyone
        for one in chosen(me, [other for other in everyone if other != me], chosen_ones)
    )
    assert sum(picked.values()) == 1_000
    assert max(picked.values()) < 40
    assert [one.peer for one in ranked(everyone[0], everyone[1:], chosen_ones)] != [
        one.peer for one in ranked(everyone[1], everyone[2:], chosen_ones)
    ]


# --- climbing ------------------------------------------------------------------------------------


def naive_climb(me: Candidate, others: list[Candidate], wished: SimilaritySettings) -> list[PeerId]:
    """The rule in words, event by event."""
    wanted = {event for event in range(EVENTS) if me.bits >> event & 1}
    taken: list[Candidate] = []
    left = [other for other in others if other.rank > me.rank]

    def events(one: Candidate) -> set[int]:
        return {event for event in range(EVENTS) if one.bits >> event & 1}

    while left and len(taken) < wished.nearest:
        times = Counter(event for one in taken for event in events(one))
        gains = []
        for one in left:
            gain = 0
            for event in events(one):
                if event in wanted:
                    gain += wished.wanted_weight if times[event] < wished.cover else 0
                elif not times[event]:
                    gain -= 1
            gains.append((gain, -turn(me, one, climbs=True), one))
        gain, _, best = max(gains)
        if gain <= 0:
            break
        taken.append(best)
        left.remove(best)
    return [one.peer for one in taken]


@given(rows, st.integers(1, 5), st.integers(1, 3), st.sampled_from((1, 3, 16)))
def test_climbing_follows_its_rule(drawn, count, cover, weight):
    me, *others = members(drawn)
    wished = settings(nearest=count, cover=cover, wanted_weight=weight)
    assert [one.peer for one in chosen(me, others, wished)] == naive_climb(me, others, wished)


def linked(everyone: list[Candidate], wished: SimilaritySettings) -> dict[PeerId, set[PeerId]]:
    links: dict[PeerId, set[PeerId]] = {one.peer: set() for one in everyone}
    for me in everyone:
        for other in chosen(me, [one for one in everyone if one != me], wished):
            links[me.peer].add(other.peer)
            links[other.peer].add(me.peer)
    return links


def reached(links: dict[PeerId, set[PeerId]], among: set[PeerId]) -> set[PeerId]:
    found, ahead = set(), [min(among)] if among else []
    while ahead:
        peer = ahead.pop()
        if peer not in found:
            found.add(peer)
            ahead += links[peer] & among
    return found


@given(rows)
@examples(60)
def test_who_matches_an_event_of_the_sample_is_connected_wherever_it_can_be_covered(drawn):
    """The law of the module's docstring.

    Each event of a member that someone of higher rank matches is covered, as links and weight allow
    it; so whoever matches an event reaches one who has nobody above.
    """
    everyone = members(drawn)
    links = linked(everyone, settings(nearest=EVENTS, cover=1, wanted_weight=10_000))
    for event in range(EVENTS):
        among = {one.peer for one in everyone if one.bits >> event & 1}
        assert reached(links, among) == among


def test_nearest_falls_apart_where_climbing_does_not():
    """Why the rule is another than the paper's: cliques of the same interest."""
    special = [0b0001, 0b0011, 0b0101, 0b1001]
    everyone = members([bits for bits in special for _ in range(8)] + [0b1111])
    among = {one.peer for one in everyone}
    apart = linked(everyone, settings(choice="nearest", nearest=5))
    together = linked(everyone, settings(nearest=2, cover=1))
    assert len(reached(apart, among)) < len(among)
    assert reached(together, among) == among
    degree = [sum(map(len, links.values())) for links in (apart, together)]
    assert degree[1] < degree[0] / 2


def test_equals_form_a_tree_of_logarithmic_depth():
    everyone = sorted(members([0b11] * 600), key=lambda one: one.rank)
    wished = settings(nearest=1, cover=1)
    depth: dict[PeerId, int] = {}
    for me in reversed(everyone):
        above = chosen(me, [one for one in everyone if one != me], wished)
        depth[me.peer] = 1 + depth[above[0].peer] if above else 0
    assert sum(not above for above in depth.values()) == 1
    assert max(depth.values()) < 30


def test_members_that_want_nothing_of_the_sample_choose_nobody_by_climbing():
    me, *others = members([0, 0b1, 0, 0b111])
    assert chosen(me, others, settings()) == []


@given(rows, st.sampled_from(("nearest", "climb")))
def test_a_small_network_is_a_clique(drawn, choice):
    me, *others = members(drawn)
    bound = len(others)
    assert sorted(chosen(me, others, settings(choice=choice, clique_up_to=bound))) == sorted(others)
    if bound > 5:
        assert len(chosen(me, others, settings(choice=choice, clique_up_to=bound - 1))) < bound


# --- draws ---------------------------------------------------------------------------------------


def test_random_links_are_drawn_evenly_without_those_that_are_taken():
    peers = [PeerId(f"n{number}", 0, 1) for number in range(50)]
    picked: Counter[int] = Counter()
    for number, me in enumerate(peers):
        taken = peers[:5]
        places = drawn_random(3, me, peers, taken, 4)
        assert len(set(places)) == len(places) <= 4
        assert number not in places
        assert not {0, 1, 2, 3, 4} & set(places)
        picked.update(places)
    assert len(picked) == 45
    assert max(picked.values()) < 15


def test_over_a_random_link_events_go_with_the_probability_that_was_asked_for():
    random = Random(1)
    shares = [
        forward_share(event_draw(1, f"e{number}"), random.getrandbits(64), random.getrandbits(64))
        for number in range(4_000)
    ]
    assert 0.47 < sum(share < 0.5 for share in shares) / 4_000 < 0.53
    assert 0.035 < sum(share < 0.05 for share in shares) / 4_000 < 0.065
    draws = [event_draw(1, f"e{number}") for number in range(50)]
    for one, other in combinations(range(3), 2):
        both = [(forward_share(d, one, 9) < 0.5, forward_share(d, other, 9) < 0.5) for d in draws]
        assert len(set(both)) == 4, "two senders draw by themselves"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"choice": "best"}, "choice is one of nearest, climb"),
        ({"proximity": "near"}, "proximity is one of"),
        ({"nearest": 0}, "nearest is 1 or more"),
        ({"random": -1}, "random is 0 or more"),
        ({"random_forward": 1.5}, "random_forward is a share"),
        ({"indulgence": 101}, "indulgence is at most"),
        ({"wanted_weight": 1 << 20}, "below 2\\^24"),
        ({"bandwidth_mbit": 0.0}, "bandwidth_mbit is above 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        SimilaritySettings(**wrong)
