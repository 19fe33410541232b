"""The checker of a week of operations: it finds the mistakes that are planted, and no others."""

import pytest

from peersub.bench.operations.checking import Facts, Received

LEVELS = 10


def week(*, skip=(), twice=(), marked=False, extra=()):
    """Ann reads a durable subscription; at 100 ms her bound falls to 5, which is sure at 110."""
    facts = Facts()
    facts.granted("feed", "publish", LEVELS, 0, 0)
    facts.granted("ann", "see", LEVELS, 0, 0)
    facts.reads("ann/a", "ann", "a", is_durable=True)
    facts.ready("ann/a", 10)
    for number in range(40):
        begun_ms = number * 5
        facts.ended(
            f"e{number}",
            "feed",
            "a",
            number % LEVELS,
            begun_ms,
            begun_ms + 1,
            is_acknowledged=number != 13,
        )
        if (begun_ms > 110 and number % LEVELS >= 5) or number in skip:
            continue
        facts.received("ann/a", Received(f"e{number}", 0, begun_ms + 3))
        if number in twice:
            facts.received("ann/a", Received(f"e{number}", 0, begun_ms + 9, is_marked=marked))
    facts.granted("ann", "see", 5, 100, 110)
    for received in extra:
        facts.received("ann/a", received)
    return facts


def test_a_good_week_has_no_problems():
    verdict = week().judge()
    assert verdict.problems == []
    assert (verdict.acknowledged, verdict.failed) == (39, 1)
    # Of what was forbidden in the end nothing is due, and nothing from before it was ready.
    assert verdict.expected == 17


@pytest.mark.parametrize(
    ("planted", "kind", "count"),
    [
        ({"skip": {24}}, "lost", 1),
        ({"skip": {1}}, "lost", 0),  # Before the subscription was ready.
        ({"skip": {6}}, "lost", 0),  # It was forbidden before it could be taken.
        ({"skip": {13}}, "lost", 0),  # Nobody promised it.
        ({"twice": {3, 4}}, "doubled", 2),
        ({"twice": {3, 4}, "marked": True}, "doubled", 0),
        # Published after the bound was sure to hold.
        ({"extra": [Received("e25", 0, 130)]}, "forbidden", 1),
        # Published before, and handed over to who attached itself after.
        ({"extra": [Received("e15", 120, 130)], "skip": {15}}, "forbidden", 1),
        ({"extra": [Received("e15", 105, 130)], "skip": {15}}, "forbidden", 0),
        ({"extra": [Received("e15", 0, 500)], "skip": {15}}, "forbidden", 0),
    ],
)
def test_planted_mistakes_are_found(planted, kind, count):
    verdict = week(**planted).judge()
    assert len(getattr(verdict, kind)) == count
    assert bool(verdict.problems) == bool(count)


def test_of_what_came_twice_it_is_told_how_each_copy_came():
    way = "over connection 2 to n3"
    verdict = week(extra=[Received("e4", 0, 35, way=way)]).judge()
    told = f"published at 20 ms, acknowledged at 21 ms; came at 23 ms, and at 35 ms {way}"
    assert verdict.problems == ["1 doubled: ann/a e4", f"ann/a e4: {told}"]


def test_what_was_not_wanted_smuggled_or_did_not_happen_is_found():
    facts = week()
    facts.granted("feed", "publish", 3, 300, 310)
    facts.ended("late", "feed", "b", 7, 320, 321, is_acknowledged=True)
    facts.ended("refused", "feed", "b", 7, 320, 321, is_acknowledged=False)
    facts.received("ann/a", Received("late", 0, 330))
    facts.expected("the node comes back", holds=False)
    facts.expected("the sun rises", holds=True)
    verdict = facts.judge()
    assert (verdict.refused, verdict.failed) == (1, 1)
    assert verdict.smuggled == [("feed", "late")]
    assert verdict.unwanted == verdict.forbidden == [("ann/a", "late")]
    assert verdict.broken == ["the node comes back"] and len(verdict.problems) == 4
    assert verdict.as_dict()["smuggled"] == 1
