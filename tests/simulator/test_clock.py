"""The virtual clock."""

from hypothesis import given
from hypothesis import strategies as st

from peersub.simulator.clock import Clock


@given(st.lists(st.integers(0, 20)))
def test_actions_come_by_time_and_then_in_the_order_of_planning(times):
    clock, seen = Clock(), []
    for number, at_ms in enumerate(times):
        clock.plan(at_ms, lambda *what: seen.append(what), (at_ms, number))
    clock.advance(20)
    assert seen == sorted((at_ms, number) for number, at_ms in enumerate(times))
    assert clock.taken == len(times) and clock.next_ms is None


def test_an_action_may_plan_more_for_the_same_moment():
    clock, seen = Clock(), []

    def twice(left):
        seen.append((clock.now_ms, left))
        if left:
            clock.plan(clock.now_ms, twice, (left - 1,))

    clock.plan(5, twice, (2,))
    clock.plan(5, seen.append, ("other",))
    clock.advance(5)
    assert seen == [(5, 2), "other", (5, 1), (5, 0)]


def test_it_stops_where_it_is_told_to_and_goes_on_from_there():
    clock, seen = Clock(), []
    for number in range(4):
        clock.plan(3, seen.append, (number,))
    assert clock.advance(10, lambda: len(seen) == 2)
    assert (seen, clock.now_ms) == ([0, 1], 3)
    clock.plan(3, seen.append, ("late",))
    assert not clock.advance(10)
    assert (seen, clock.now_ms) == ([0, 1, 2, 3, "late"], 10)


def test_an_idle_clock_stands_still():
    clock = Clock()
    clock.plan(7, lambda: None, ())
    assert not clock.advance_until_idle(5) and clock.now_ms == 5
    assert clock.advance_until_idle(100) and clock.now_ms == 7
