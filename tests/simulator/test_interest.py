"""The matcher in place of brute force: the same answers."""

import random

from matching.populations import event, filter_text
from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.simulator.interest import NAIVE_UP_TO, MatcherInterest, interest_for
from peersub.trace.interest import NaiveInterest


def test_both_say_the_same():
    draw = random.Random(1)
    naive, matcher = NaiveInterest(), MatcherInterest()
    for number in range(300):
        wanted = Filter(filter_text(draw))
        naive.add(number, wanted)
        matcher.add(number, wanted)
    for number in range(0, 300, 3):
        naive.remove(number)
        matcher.remove(number)
    found = 0
    for number in range(60):
        asked = Event(f"e{number}", event(draw))
        expected = sorted(naive.matching(asked))
        assert sorted(matcher.matching(asked)) == expected
        found += len(expected)
    assert found > 100


def test_few_subscriptions_are_asked_one_by_one():
    assert isinstance(interest_for(NAIVE_UP_TO), NaiveInterest)
    assert isinstance(interest_for(NAIVE_UP_TO + 1), MatcherInterest)
