"""Keys placed by interest: their properties, and what they save by a model of the circle alone."""

from bisect import bisect_left
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.chord.placement import PLACES, InterestMap, interest_key, placed_keys

BITS = 63
SIZE = 1 << BITS
WORDS = ("ash", "birch", "cedar", "elm", "fir", "oak", "pine", "yew")


def events(count: int, seed: int = 1) -> list[dict[str, object]]:
    random = Random(seed)
    return [
        {
            "price": random.randrange(1_000),
            "size": random.randrange(50),
            "wood": random.choice(WORDS),
        }
        for _ in range(count)
    ]


def wish(random: Random) -> str:
    low = random.randrange(900)
    price = f"price BETWEEN {low} AND {low + 100}"
    wood = f"wood = '{random.choice(WORDS)}'"
    size = f"size >= {random.randrange(25, 50)}"
    return random.choice((f"{price} AND {wood}", f"{wood} AND {size}", f"{price} AND {size}"))


def wishes(count: int, seed: int = 2) -> dict[str, list[Filter]]:
    random = Random(seed)
    return {f"n{number}": [Filter(wish(random))] for number in range(count)}


SAMPLE = events(256)
FEW = [Filter(text) for text in ("price < 100", "price < 120", "wood = 'oak'", "size = 1000")]


# --- all interests are known ---------------------------------------------------------------------


@given(st.lists(st.sampled_from(FEW), max_size=24), st.integers(5, 63), st.integers(0, 9))
def test_placed_keys_are_distinct_evenly_spread_and_a_function_of_the_nodes(chosen, bits, seed):
    nodes = {f"n{number}": [wanted] for number, wanted in enumerate(chosen)}
    keys = placed_keys(nodes, SAMPLE, bits=bits, seed=seed)
    assert list(keys) == list(nodes)
    ordered = sorted(keys.values())
    assert all(0 <= key < 1 << bits for key in ordered)
    gaps = [
        (after - before) % (1 << bits)
        for before, after in zip(ordered, ordered[1:] + ordered[:1], strict=True)
    ]
    assert len(chosen) < 2 or (max(gaps) - min(gaps) <= 1 and min(gaps) > 0)
    backwards = dict(reversed(list(nodes.items())))
    assert placed_keys(backwards, SAMPLE, bits=bits, seed=seed) == keys


@given(st.lists(st.sampled_from(FEW), min_size=2, max_size=24), st.integers(0, 9))
def test_nodes_with_equal_interests_stand_in_one_run(chosen, seed):
    nodes = {f"n{number}": [wanted] for number, wanted in enumerate(chosen)}
    keys = placed_keys(nodes, SAMPLE, bits=BITS, seed=seed)
    around = [nodes[node][0].text for node in sorted(keys, key=keys.__getitem__)]
    turns = sum(one != other for one, other in zip(around, around[1:] + around[:1], strict=True))
    kinds = len(set(around))
    assert turns == (kinds if kinds > 1 else 0)


def test_more_nodes_than_keys_are_refused():
    with pytest.raises(ValueError, match="9 nodes do not fit on a circle of 2\\^3 keys"):
        placed_keys(wishes(9), SAMPLE, bits=3, seed=1)
    assert sorted(placed_keys(wishes(8), SAMPLE, bits=3, seed=1).values()) == list(range(8))
    assert placed_keys({}, SAMPLE, bits=3, seed=1) == {}


# --- a node knows its own interest ---------------------------------------------------------------


def test_equal_interests_give_keys_in_one_cell_and_different_keys():
    interests = InterestMap(SAMPLE)
    wanted = [Filter("wood = 'oak' AND price < 300")]
    keys = [interests.key(wanted, bits=BITS, seed=1, node=f"n{number}") for number in range(50)]
    assert len(set(keys)) == len(keys)
    assert max(keys) - min(keys) <= SIZE // (3 * PLACES * PLACES)
    # Said in other words, or split in two, it is the same interest.
    other = [Filter("price < 100 AND wood = 'oak'"), Filter("wood = 'oak' AND price < 300")]
    assert interests.key(other, bits=BITS, seed=1, node="n0") == keys[0]


def test_a_key_is_a_function_of_its_arguments():
    wanted = [Filter("price < 100")]
    key = interest_key(wanted, SAMPLE, bits=BITS, seed=1, node="n1")
    assert key == interest_key(wanted, list(SAMPLE), bits=BITS, seed=1, node="n1")
    assert key != interest_key(wanted, SAMPLE, bits=BITS, seed=2, node="n1")
    assert key != interest_key(wanted, SAMPLE, bits=BITS, seed=1, node="n2")


def test_along_an_attribute_keys_follow_its_values():
    sample = [{"price": price} for price in range(200)]
    keys = [
        interest_key(
            [Filter(f"price BETWEEN {low} AND {low + 9}")], sample, bits=BITS, seed=1, node="n"
        )
        for low in range(0, 190, 5)
    ]
    assert keys == sorted(keys) and len(set(keys)) == len(keys)
    assert keys[0] < SIZE // 10 and keys[-1] > SIZE - SIZE // 10


@pytest.mark.parametrize(
    "wanted", [[], [Filter("price > 5000")], [Filter("price IS NOT NULL")], [Filter("colour = 1")]]
)
def test_without_a_focus_keys_are_drawn_over_the_whole_circle(wanted):
    interests = InterestMap(SAMPLE)
    keys = [interests.key(wanted, bits=BITS, seed=1, node=f"n{number}") for number in range(200)]
    quarters = [sum(key * 4 // SIZE == quarter for key in keys) for quarter in range(4)]
    assert len(set(keys)) == 200 and min(quarters) > 20


def test_samples_may_hold_anything():
    sample = [
        {"a": 1, "r": {"x": 1.5}},
        {"a": "word", "r": {"x": Decimal("2.5")}},
        {"a": None, "b": True, "list": [1, 2]},
        {"a": float("nan"), "day": date(2024, 5, 1)},
        Event("e", {"a": 2}, b"<story><p/></story>"),
        {},
    ]
    wanted = [Filter("r.x > 2"), Filter("a = 'word'"), Filter("day IS NOT NULL")]
    for bits in (1, 8, 63):
        for one in (*wanted, Filter.xpath("/story/p")):
            assert 0 <= interest_key([one], sample, bits=bits, seed=1, node="n") < 1 << bits
    assert 0 <= interest_key(wanted, [], bits=8, seed=1, node="n") < 256
    assert 0 <= interest_key(wanted, [{"a": 1}, {"a": 1}], bits=8, seed=1, node="n") < 256


def test_keys_by_own_interest_leave_no_large_part_of_the_circle_empty():
    interests = InterestMap(SAMPLE)
    keys = sorted(
        interests.key(own, bits=BITS, seed=1, node=node) for node, own in wishes(400).items()
    )
    eighths = [sum(key * 8 // SIZE == eighth for key in keys) for eighth in range(8)]
    assert min(eighths) > 0 and max(eighths) < 200


# --- what it is for ------------------------------------------------------------------------------


def visited_per_event(keys: Sequence[int], wanting: Sequence[Sequence[bool]]) -> float:
    """Nodes that events visit on trees over the fingers, with filters that know each arc exactly.

    Written from the definitions: nodes are places in the order of keys, an arc is a place and how
    many places it has.
    """
    order = sorted(range(len(keys)), key=lambda node: keys[node])
    ring = [keys[node] for node in order]
    count = len(ring)

    def fingers(place: int) -> list[int]:
        found = {
            (bisect_left(ring, (ring[place] + (SIZE >> k)) % SIZE) - place) % count
            for k in range(1, BITS + 1)
        }
        return sorted(found - {0})

    tables = [fingers(place) for place in range(count)]
    visited = 0
    for number, wants in enumerate(wanting):
        around = [wants[node] for node in order] * 2
        arcs = [(number * 37 % count, count)]
        while arcs:
            place, length = arcs.pop()
            steps = [step for step in tables[place] if step < length]
            for step, end in pairwise([*steps, length]):
                start = (place + step) % count
                if any(around[start : start + end - step]):
                    visited += 1
                    arcs.append((start, end - step))
    return visited / len(wanting)


def test_placing_by_interest_saves_relays():
    nodes = wishes(128)
    published = events(150, seed=3)
    wanting = [[own[0].matches(event) for own in nodes.values()] for event in published]
    drawn = visited_per_event([Random(node).randrange(SIZE) for node in nodes], wanting)
    interests = InterestMap(SAMPLE)
    by_own = [interests.key(own, bits=BITS, seed=1, node=node) for node, own in nodes.items()]
    by_all = list(placed_keys(nodes, SAMPLE, bits=BITS, seed=1).values())
    assert visited_per_event(by_own, wanting) < 0.85 * drawn
    assert visited_per_event(by_all, wanting) < 0.85 * drawn
