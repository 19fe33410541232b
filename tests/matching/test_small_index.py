"""The index in plain Python: cells, and what they leave open, against each filter by itself."""

from __future__ import annotations

from random import Random

import pytest

from peersub import Filter, Matcher
from peersub.matching.naive import NaiveMatcher
from peersub.matching.small_index import CELLS_PER_INTERVAL_MAX, Probe, SmallIndex

VALUES = 40


def interval_text(random: Random) -> str:
    """An interval, open or closed, perhaps with a gap, perhaps with more to ask."""
    low = random.randrange(VALUES)
    high = low + random.choice((0, 1, 3, 20))
    text = random.choice(
        (
            f"x >= {low} AND x <= {high}",
            f"x > {low} AND x < {high + 1}",
            f"x > {low}",
            f"x <= {high}.5",
            f"x >= {low} AND x <= {high + 4} AND x <> {low + 2}",
            f"x < {low} OR x > {high + 2}",
        )
    )
    more = random.choice(("", "", " AND y = 1", " AND s LIKE 'a%'"))
    return f"({text}){more}"


def event_of(random: Random) -> dict[str, object]:
    return {
        "x": random.choice(
            (random.randrange(VALUES), random.randrange(2 * VALUES) / 2, "text", None)
        ),
        "y": random.choice((1, 2)),
        "s": random.choice(("ab", "b", 3)),
    }


@pytest.mark.parametrize("seed", range(8))
def test_intervals_that_come_and_go_equal_the_naive_twin(seed):
    random = Random(seed)
    matcher, twin = Matcher(), NaiveMatcher()
    names: list[str] = []
    for step in range(160):
        if names and random.random() < 0.3:
            name = names.pop(random.randrange(len(names)))
            matcher.remove(name)
            twin.remove(name)
        else:
            wanted = Filter(interval_text(random))
            names.append(f"s{step}")
            matcher.add(names[-1], wanted)
            twin.add(names[-1], wanted)
        for _ in range(4):
            event = event_of(random)
            expected = sorted(twin.match(event))
            assert sorted(matcher.match(event)) == expected, f"seed {seed} step {step}: {event}"
            assert matcher.matches_any(event) == bool(expected), f"seed {seed} step {step}: {event}"


def test_indexes_may_share_what_is_known_of_an_event():
    random = Random(7)
    matchers = [Matcher() for _ in range(3)]
    twins = [NaiveMatcher() for _ in matchers]
    for number in range(60):
        wanted = Filter(interval_text(random))
        matchers[number % 3].add(str(number), wanted)
        twins[number % 3].add(str(number), wanted)
    for _ in range(60):
        event = event_of(random)
        probe = Probe(event)
        for matcher, twin in zip(matchers, twins, strict=True):
            assert sorted(matcher.match(event, probe)) == sorted(twin.match(event))
            assert matcher.matches_any(event, probe) == bool(twin.match(event))


@pytest.mark.parametrize("width", [1, 50, 100_000])
def test_an_interval_stands_in_a_bounded_number_of_cells(width):
    index, count = SmallIndex(), 600
    for number in range(count):
        low = number * 7 % count
        wanted = Filter(f"x >= {low} AND x < {low + width}")
        index.add(number, wanted.boxes)
    (cells,) = index._ranges.values()
    places = sum(map(len, cells.cells))
    # Up to twice as many holders as when the cells were laid, and the two that its ends lie in.
    assert places <= (2 * CELLS_PER_INTERVAL_MAX + 2) * count
    at = 300
    met = [n for n in range(count) if n * 7 % count <= at < n * 7 % count + width]
    assert index.match(Probe({"x": at})) == met
