"""Control filters against sets of keys."""

from random import Random

import pytest

from peersub.filters.filter import Filter
from peersub.overlays.routing.control_filters import (
    CONTROL_INTERVALS_MAX,
    KEY_MAX,
    control_attributes,
    control_filter,
    filter_of,
    holds_key,
    intervals_of,
    normalised,
    united,
)

KEYS = range(64)


def random_intervals(random: Random, count: int) -> list[tuple[int, int]]:
    found = []
    for _ in range(count):
        low = random.choice(KEYS)
        found.append((low, min(low + random.randrange(6), KEYS[-1])))
    return found


def keys_of(intervals: tuple[int, ...]) -> set[int]:
    pairs = zip(intervals[::2], intervals[1::2], strict=True)
    return {key for low, high in pairs for key in range(low, high + 1)}


@pytest.mark.parametrize("seed", range(50))
def test_intervals_are_sets_of_keys(seed):
    random = Random(seed)
    pairs = random_intervals(random, random.randrange(1, 12))
    expected = {key for low, high in pairs for key in range(low, high + 1)}
    intervals = normalised([end for pair in pairs for end in pair])
    assert keys_of(intervals) == expected
    gaps = zip(intervals[1::2], intervals[2::2], strict=False)
    assert all(high + 1 < low for high, low in gaps), "sorted, disjoint and not touching"
    wanted = control_filter("node-join", pairs)
    assert intervals_of("node-join", wanted) == intervals
    for key in KEYS:
        assert holds_key(intervals, key) == (key in expected)
        assert wanted.matches(control_attributes("node-join", key)) == (key in expected)
        assert not wanted.matches(control_attributes("node-location", key))


@pytest.mark.parametrize("seed", range(50))
def test_a_union_has_few_intervals_and_closes_the_smallest_gaps(seed):
    random = Random(seed)
    one, other = (
        normalised([end for pair in random_intervals(random, 8) for end in pair]) for _ in range(2)
    )
    exact = normalised(one + other)
    both = united(one, other)
    assert both == united(other, one)
    assert keys_of(both) >= keys_of(one) | keys_of(other)
    assert len(both) <= 2 * CONTROL_INTERVALS_MAX
    if len(exact) <= 2 * CONTROL_INTERVALS_MAX:
        assert both == exact
        return
    sizes = sorted(low - high for high, low in zip(exact[1::2], exact[2::2], strict=False))
    closed = len(exact) // 2 - CONTROL_INTERVALS_MAX
    assert len(keys_of(both)) - len(keys_of(exact)) == sum(size - 1 for size in sizes[:closed])


def test_keys_reach_to_the_end_of_64_bits():
    wanted = control_filter("node-join", [(KEY_MAX - 1, KEY_MAX)])
    assert wanted.matches(control_attributes("node-join", KEY_MAX))
    again = Filter.from_bytes(wanted.to_bytes())
    assert intervals_of("node-join", again) == (KEY_MAX - 1, KEY_MAX)


def test_other_filters_are_no_control_filters():
    good = filter_of("node-join", (1, 2))
    assert intervals_of("node-join", good) == (1, 2)
    assert intervals_of("node-location", good) is None
    assert intervals_of("node-join", Filter("a = 1")) is None
    assert intervals_of("node-join", Filter("TRUE")) is None
    assert intervals_of("node-join", Filter.xpath("/a")) is None
    assert intervals_of("node-join", Filter("FALSE")) == ()
    narrower = Filter(
        "`peersub.notification` = 'node-join' AND `peersub.key` BETWEEN 1 AND 2 AND a = 1"
    )
    assert intervals_of("node-join", narrower) is None
